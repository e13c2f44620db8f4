/* A rank for each NUMA node of this machine, in one process: a thread bound to the node's CPUs,
 * with a context, a workspace and keys of its own, which it touches first, so that Linux puts them
 * into the node's memory. A decode step is one heed_group_attention over heed_group_threads: what
 * crosses between nodes is partial results.
 *
 *     numa [nodes=N keys=262144 heads=32 kv_heads=8 dim=128 calls=30]
 *
 * Nodes and their CPUs are those of /sys/devices/system/node; nodes=N divides the CPUs that the
 * process may use into so many, in their order, so that it can be tried on a machine with one. */
#define _GNU_SOURCE
#include <heed/group.h>
#include <heed/heed.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../bench/program.h"
#include "numbers.h"

enum { MOST_NODES = 64, MOST_SIZE = 1 << 12 }; /* sizes of which no product overflows */

/* By name. */
enum { NODES, KEYS, HEADS, KV_HEADS, DIM, CALLS, N_NUMBERS };
static const number table[N_NUMBERS] = {
    [NODES] = {"nodes", 0, 1, MOST_NODES, 1}, [KEYS] = {"keys", 262144, 1, INT32_MAX, 1},
    [HEADS] = {"heads", 32, 1, MOST_SIZE, 1}, [KV_HEADS] = {"kv_heads", 8, 1, MOST_SIZE, 1},
    [DIM] = {"dim", 128, 1, MOST_SIZE, 1},    [CALLS] = {"calls", 30, 1, INT32_MAX, 1}};
static int64_t given[N_NUMBERS];

typedef struct member {
    pthread_t thread;
    heed_transport transport;
    cpu_set_t cpus;
    int n_cpus;
    heed_status status;
    char sentence[256];
    double seconds; /* of the fastest call */
    float *out;
} member;

static pthread_barrier_t all_ready;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "0-3,8,10-11" as the kernel writes lists of CPUs; those that the process may not use are left
 * out. */
static void read_list(const char *text, const cpu_set_t *allowed, cpu_set_t *out)
{
    CPU_ZERO(out);
    while (*text >= '0' && *text <= '9') {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET((size_t)cpu, allowed))
                CPU_SET((size_t)cpu, out);
        text = *end == ',' ? end + 1 : end;
    }
}

static int read_line(const char *path, char *line, int room)
{
    FILE *file = fopen(path, "r");
    const int good = file && fgets(line, room, file) != NULL;
    if (file)
        fclose(file);
    return good;
}

/* The nodes that have CPUs for this process, as Linux shows them. Returns how many; one of all
 * CPUs where it shows none. */
static int find_nodes(member *m, const cpu_set_t *allowed)
{
    int n = 0;
    for (int node = 0; node < 1024 && n < MOST_NODES; node++) {
        char path[80], line[4096];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (!read_line(path, line, sizeof line))
            continue;
        read_list(line, allowed, &m[n].cpus);
        n += CPU_COUNT(&m[n].cpus) > 0;
    }
    if (n == 0) {
        m[0].cpus = *allowed;
        n = 1;
    }
    return n;
}

/* The CPUs in their order, divided into n nodes; with fewer CPUs than nodes they are shared. */
static int pretend_nodes(member *m, const cpu_set_t *allowed, int n)
{
    const int cpus = CPU_COUNT(allowed);
    for (int i = 0; i < n; i++) {
        int seen = 0;
        CPU_ZERO(&m[i].cpus);
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, allowed)) {
                if (cpus >= n ? seen * n / cpus == i : seen == i % cpus)
                    CPU_SET(cpu, &m[i].cpus);
                seen++;
            }
    }
    return n;
}

/* A number in [-1, 1), by the finaliser of MurmurHash3. */
static float value(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (float)((double)(x >> 40) / (1 << 23) - 1);
}

/* Makes keys (or values) [first, end) of every head. The thread in whose memory they are to lie
 * calls this. */
static float *touch(int64_t first, int64_t end, uint64_t kind)
{
    const int64_t n = end - first, dim = given[DIM];
    float *data = malloc((size_t)(given[KV_HEADS] * n * dim) * sizeof *data + 1);
    for (int64_t g = 0; data && g < given[KV_HEADS]; g++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t d = 0; d < dim; d++)
                data[(g * n + j) * dim + d] =
                    value(kind + 2 * (uint64_t)((g * given[KEYS] + first + j) * dim + d));
    return data;
}

static heed_attn_desc describe(int64_t keys)
{
    const heed_attn_desc d = {.struct_size = sizeof d,
                              .q_heads = (uint32_t)given[HEADS],
                              .kv_heads = (uint32_t)given[KV_HEADS],
                              .qk_dim = (uint32_t)given[DIM],
                              .v_dim = (uint32_t)given[DIM],
                              .q_type = HEED_F32,
                              .k_type = HEED_F32,
                              .v_type = HEED_F32,
                              .out_type = HEED_F32,
                              .max_batch = 1,
                              .max_q_len = 1,
                              .max_kv_len = keys};
    return d;
}

/* Makes a rank's calls; the first one warms up. */
static heed_status attend(member *m, heed_context *context, const float *q, const float *k,
                          const float *v, const heed_partition *p, int64_t keys)
{
    const int64_t dim = given[DIM];
    const heed_attn_desc d = describe(keys);
    heed_attn *plan = NULL;
    heed_attn_args a = {.struct_size = sizeof a,
                        .batch = 1,
                        .q_len = 1,
                        .kv_len = keys,
                        .q = {q, {0, dim, dim, 1}},
                        .k = {k, {0, keys * dim, dim, 1}},
                        .v = {v, {0, keys * dim, dim, 1}},
                        .out = {m->out, {0, dim, dim, 1}}};
    heed_status st = heed_attn_create(context, &d, &plan);
    pthread_barrier_wait(&all_ready);
    for (int64_t call = 0; call <= given[CALLS] && st == HEED_OK; call++) {
        const double start = now();
        st = heed_group_attention(plan, &a, p, &m->transport, NULL, 0);
        const double seconds = now() - start;
        if (call > 0 && (m->seconds == 0 || seconds < m->seconds))
            m->seconds = seconds;
    }
    heed_attn_release(plan);
    return st;
}

static void *on_thread(void *arg)
{
    member *m = arg;
    const uint32_t size = m->transport.size, rank = m->transport.rank;
    int32_t first[MOST_NODES + 1];
    const heed_partition p = {.struct_size = sizeof p,
                              .n_parts = size,
                              .key_first = first,
                              .timeout_ns = INT64_C(60000000000)};
    const heed_context_options options = {.struct_size = sizeof options,
                                          .n_threads = (uint32_t)m->n_cpus};
    heed_context *context = NULL;
    for (uint32_t i = 0; i <= size; i++)
        first[i] = (int32_t)(given[KEYS] * i / size);
    pthread_setaffinity_np(pthread_self(), sizeof m->cpus,
                           &m->cpus); /* the context's threads inherit it */
    const int64_t count = given[HEADS] * given[DIM];
    float *k = touch(first[rank], first[rank + 1], 0), *v = touch(first[rank], first[rank + 1], 1);
    float *q = malloc((size_t)count * sizeof *q);
    m->out = calloc((size_t)count, sizeof *m->out);
    const int made = k && v && q && m->out;
    m->status = made ? heed_context_create(&options, &context) : HEED_ERR_NOMEM;
    for (int64_t i = 0; q && i < count; i++)
        q[i] = value((uint64_t)i + (UINT64_C(1) << 40));
    if (m->status == HEED_OK)
        m->status = attend(m, context, q, k, v, &p, first[rank + 1] - first[rank]);
    else
        pthread_barrier_wait(&all_ready);
    snprintf(m->sentence, sizeof m->sentence, "%s",
             made ? heed_last_error() : "no memory for keys and values");
    heed_context_release(context);
    free(k);
    free(v);
    free(q);
    return NULL;
}

/* Runs the members as the ranks of one group. Returns the time of the slowest rank's fastest call,
 * or 0 after printing an error. */
static double run(member *m, int n)
{
    heed_group_threads *group = NULL;
    double seconds = 0;
    int bad = heed_group_threads_create((uint32_t)n, &group) != HEED_OK;
    pthread_barrier_init(&all_ready, NULL, (unsigned)n);
    for (int i = 0; i < n && !bad; i++) {
        m[i].n_cpus = CPU_COUNT(&m[i].cpus);
        m[i].seconds = 0;
        m[i].transport.struct_size = sizeof m[i].transport;
        bad = heed_group_threads_transport(group, (uint32_t)i, &m[i].transport) != HEED_OK;
    }
    if (bad)
        fprintf(stderr, "numa: %s\n", heed_last_error());
    for (int i = 0; i < n && !bad; i++)
        if (pthread_create(&m[i].thread, NULL, on_thread, &m[i]) != 0) {
            fprintf(stderr, "numa: no thread\n");
            exit(1); /* the others would wait for it */
        }
    for (int i = 0; i < n && !bad; i++) {
        pthread_join(m[i].thread, NULL);
        seconds = m[i].seconds > seconds ? m[i].seconds : seconds;
    }
    for (int i = 0; i < n && !bad; i++)
        if (m[i].status != HEED_OK) {
            fprintf(stderr, "numa: node %d: %s: %s\n", i, heed_status_string(m[i].status),
                    m[i].sentence);
            seconds = 0;
        }
    heed_group_threads_release(group);
    pthread_barrier_destroy(&all_ready);
    return seconds;
}

static const char usage[] = "usage: numa [nodes=N keys=N heads=N kv_heads=N dim=N calls=N]\n";

static int compare(int argc, char **argv)
{
    static member nodes[MOST_NODES], alone;
    cpu_set_t allowed;
    double worst = 0;
    double x[N_NUMBERS];
    if (read_numbers("numa", table, N_NUMBERS, argc - 1, argv + 1, x))
        return 2;
    for (int i = 0; i < N_NUMBERS; i++)
        given[i] = (int64_t)x[i];
    sched_getaffinity(0, sizeof allowed, &allowed);
    const int n = given[NODES] ? pretend_nodes(nodes, &allowed, (int)given[NODES])
                               : find_nodes(nodes, &allowed);
    /* As in a program without groups: one pool, all keys touched by one thread. */
    alone.cpus = allowed;
    const double one = run(&alone, 1), group = one > 0 ? run(nodes, n) : 0;
    if (group == 0)
        return 1;
    for (int64_t i = 0; i < given[HEADS] * given[DIM]; i++)
        for (int r = 0; r < n; r++) {
            const double off = fabs((double)nodes[r].out[i] - (double)alone.out[i]);
            worst = off > worst || isnan(off) ? off : worst;
        }
    const double bytes = 8.0 * (double)(given[KEYS] * given[KV_HEADS] * given[DIM]);
    for (int i = 0; i < n; i++)
        printf("node %d: %d CPUs\n", i, nodes[i].n_cpus);
    printf("one pool of %d threads: %.3f ms, %.1f GB/s\n", alone.n_cpus, one * 1e3,
           bytes / one * 1e-9);
    printf("%d ranks: %.3f ms, %.1f GB/s, %.2f x; off by %.2g\n", n, group * 1e3,
           bytes / group * 1e-9, one / group, worst);
    for (int i = 0; i < n; i++)
        free(nodes[i].out);
    free(alone.out);
    return !(worst <=
             32 * 0x1p-24); /* values below 1; each is off by (8 + sqrt(dim)) 2^-24 at most */
}

int main(int argc, char **argv)
{
    return program_main("numa", usage, compare, argc, argv);
}
