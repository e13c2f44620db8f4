/* heed-group-cost: what attention by a group of nodes costs: bytes, messages and steps by
 * heed_group_count, and seconds by the model of docs/nodes.md. `--check` runs groups of threads
 * over a transport that counts, and compares its counts with heed_group_count: every number has to
 * be equal. */
#include <heed/group.h>
#include <heed/heed.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bench/program.h"
#include "numbers.h"

static const char usage[] =
    "usage: heed-group-cost [NAME=NUMBER...] | --table | --check\n\n"
    "  nodes=4           ranks\n"
    "  q=1 kv=131072     rows of a sequence, and its keys\n"
    "  batch=1 q_heads=32 kv_heads=8 dim=128 bytes=2 (of an element: 4, or 2 for bf16)\n"
    "  causal=1          rows see no key behind them (the last row stands at the last key)\n"
    "  rows=0            0 every rank has all, 1 apart (AUTO), 2 apart and they travel (split), 3 "
    "ring\n"
    "  want=0            0 all, 1 root, 2 heads (rows=0)\n"
    "  latency=20 gap=5  us: of a message, and of each further one at the same time\n"
    "  net=1.25          GB/s of a link, each way\n"
    "  memory=150        GB/s that a node reads keys with\n"
    "  compute=2000      GFLOP/s of a node\n\n"
    "--table prints the tables of docs/nodes.md; --check holds counts against messages.\n";

/* By name. */
enum {
    NODES,
    Q,
    KV,
    BATCH,
    Q_HEADS,
    KV_HEADS,
    DIM,
    BYTES,
    CAUSAL,
    ROWS,
    WANT,
    LATENCY,
    GAP,
    NET,
    MEMORY,
    COMPUTE,
    N_NUMBERS
};
enum { ROWS_ALL, ROWS_AUTO, ROWS_TRAVEL, ROWS_RING, ROWS_KINDS };

enum { MOST_NODES = 256, MOST_BATCH = 64, MOST_LEN = INT32_MAX, MOST_SIZE = 1 << 20 };
#define LEAST_RATE 1e-6 /* of what seconds are divided by */
#define MOST_RATE 1e9

/* Of the enumeration. */
static const number numbers[N_NUMBERS] = {[NODES] = {"nodes", 4, 1, MOST_NODES, 1},
                                          [Q] = {"q", 1, 1, MOST_LEN, 1},
                                          [KV] = {"kv", 131072, 1, MOST_LEN, 1},
                                          [BATCH] = {"batch", 1, 1, MOST_BATCH, 1},
                                          [Q_HEADS] = {"q_heads", 32, 1, MOST_SIZE, 1},
                                          [KV_HEADS] = {"kv_heads", 8, 1, MOST_SIZE, 1},
                                          [DIM] = {"dim", 128, 1, MOST_SIZE, 1},
                                          [BYTES] = {"bytes", 2, 2, 4, 2},
                                          [CAUSAL] = {"causal", 1, 0, 1, 1},
                                          [ROWS] = {"rows", 0, 0, ROWS_KINDS - 1, 1},
                                          [WANT] = {"want", 0, HEED_WANT_ALL, HEED_WANT_HEADS, 1},
                                          [LATENCY] = {"latency", 20, 0, MOST_RATE, 0},
                                          [GAP] = {"gap", 5, 0, MOST_RATE, 0},
                                          [NET] = {"net", 1.25, LEAST_RATE, MOST_RATE, 0},
                                          [MEMORY] = {"memory", 150, LEAST_RATE, MOST_RATE, 0},
                                          [COMPUTE] = {"compute", 2000, LEAST_RATE, MOST_RATE, 0}};

static void set_all(double *x)
{
    for (int n = 0; n < N_NUMBERS; n++)
        x[n] = numbers[n].without;
}

typedef struct cost {
    heed_group_cost rank; /* of the rank that sends most */
    /* Seconds of one node alone, of the two parts of a group's time, and of the group. */
    double one, compute, network, all;
} cost;

static int fail(const char *what)
{
    fprintf(stderr, "heed-group-cost: %s\n", what);
    return 1;
}

static uint32_t whole(const double *x, int name)
{
    return (uint32_t)x[name];
}

/* Divides into even parts. Rows apart are two parts for each rank, one from either end. */
static void divide(const double *x, heed_partition *p, int32_t *first, int32_t *rows,
                   uint32_t *owner)
{
    const uint32_t size = whole(x, NODES), batch = whole(x, BATCH);
    static const uint32_t scheme[ROWS_KINDS] = {HEED_GROUP_SPLIT, HEED_GROUP_AUTO, HEED_GROUP_SPLIT,
                                                HEED_GROUP_RING};
    const uint32_t apart = whole(x, ROWS), n = apart ? 2 * size : size;
    *p = (heed_partition){.struct_size = sizeof *p,
                          .scheme = scheme[apart],
                          .want = whole(x, WANT),
                          .n_parts = n,
                          .owner = owner,
                          .key_first = first,
                          .row_first = apart ? rows : NULL,
                          .timeout_ns = INT64_C(60000000000)};
    for (uint32_t i = 0; i < n; i++)
        owner[i] = i < size ? i : 2 * size - 1 - i;
    for (uint32_t b = 0; b < batch; b++)
        for (uint32_t i = 0; i <= n; i++) {
            first[b * (n + 1) + i] = (int32_t)((int64_t)x[KV] * i / n);
            rows[b * (n + 1) + i] = (int32_t)((int64_t)x[Q] * i / n);
        }
}

static heed_attn_desc describe(const double *x)
{
    const uint32_t type = whole(x, BYTES) == 2 ? HEED_BF16 : HEED_F32;
    heed_attn_desc d = {.struct_size = sizeof d,
                        .q_heads = whole(x, Q_HEADS),
                        .kv_heads = whole(x, KV_HEADS),
                        .qk_dim = whole(x, DIM),
                        .v_dim = whole(x, DIM),
                        .q_type = type,
                        .k_type = type,
                        .v_type = type,
                        .out_type = type,
                        .max_batch = whole(x, BATCH),
                        .max_q_len = (int64_t)x[Q],
                        .max_kv_len = (int64_t)x[KV]};
    if (x[CAUSAL] != 0) {
        d.features = HEED_HAS_CAUSAL;
        d.position = HEED_POS_BOTTOM_RIGHT;
    }
    return d;
}

/* Seconds that one node takes for its share: the longer of reading its keys once and of its
 * arithmetic, two products of two operations for each pair and dim. */
static double local_seconds(const double *x, double share)
{
    const double seeing = x[Q] < x[KV] ? x[Q] : x[KV]; /* rows before these see no key */
    const double pairs =
        x[CAUSAL] != 0 ? seeing * (x[KV] - seeing) + seeing * (seeing + 1) / 2 : x[Q] * x[KV];
    const double flops = 4 * x[BATCH] * pairs * x[DIM] * x[Q_HEADS] * share;
    const double bytes = 2 * x[BATCH] * x[KV] * x[DIM] * x[KV_HEADS] * x[BYTES] * share;
    const double compute = flops / (x[COMPUTE] * 1e9), memory = bytes / (x[MEMORY] * 1e9);
    return compute > memory ? compute : memory;
}

/* The model. Split sends rows that are apart, computes, and then sends results, in steps; the bytes
 * are those of the busiest link in either direction. Ring sends while it computes: a step takes the
 * longer of the two, and the last step has nothing to send. */
static int model(const heed_attn *plan, const double *x, const heed_partition *p, cost *c)
{
    const uint32_t size = whole(x, NODES), root = whole(x, WANT) == HEED_WANT_ROOT;
    double out = 0, most_out = 0, most_messages = 0;
    memset(c, 0, sizeof *c);
    for (uint32_t r = 0; r < size; r++) {
        heed_group_cost one = {.struct_size = sizeof one};
        if (heed_group_count(plan, p, (int64_t)x[BATCH], (int64_t)x[Q], r, size, &one) != HEED_OK)
            return fail(heed_last_error());
        out += (double)one.bytes;
        if (r == 0 || (double)one.bytes > most_out)
            c->rank = one;
        most_out = (double)one.bytes > most_out ? (double)one.bytes : most_out;
        most_messages = (double)one.messages > most_messages ? (double)one.messages : most_messages;
    }
    const double carried = root ? out : most_out; /* all of them into one link */
    const double messages = root ? size - 1.0 : most_messages;
    const double latency = x[LATENCY] * 1e-6, gap = x[GAP] * 1e-6, net = x[NET] * 1e9;
    c->one = local_seconds(x, 1);
    c->compute = local_seconds(x, 1.0 / size);
    if (size == 1) {
        c->all = c->compute;
    } else if (c->rank.scheme == HEED_GROUP_RING) {
        const double step = c->compute / size, send = latency + gap + carried / (size - 1.0) / net;
        c->network = (size - 1.0) * send;
        c->all = step + (size - 1.0) * (send > step ? send : step);
    } else {
        c->network = c->rank.steps * latency + messages * gap + carried / net;
        c->all = c->compute + c->network;
    }
    return 0;
}

static int estimate(const double *x, cost *c)
{
    static int32_t first[MOST_BATCH * (2 * MOST_NODES + 1)],
        rows[MOST_BATCH * (2 * MOST_NODES + 1)];
    static uint32_t owner[2 * MOST_NODES];
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    heed_partition p;
    const heed_attn_desc d = describe(x);
    divide(x, &p, first, rows, owner);
    if (heed_context_create(NULL, &context) != HEED_OK ||
        heed_attn_create(context, &d, &plan) != HEED_OK) {
        heed_context_release(context);
        return fail(heed_last_error());
    }
    const int failed = model(plan, x, &p, c);
    heed_attn_release(plan);
    heed_context_release(context);
    return failed;
}

/* ---- the tables of docs/nodes.md ------------------------------------------------------------- */

static const struct {
    const char *name;
    double latency, gap, net;
} networks[] = {
    {"10 GbE", 20, 5, 1.25}, {"25 GbE", 20, 5, 3.125}, {"InfiniBand HDR", 1.2, 0.3, 25}};

/* Prints seconds in the unit that suits them. */
static void print_time(double seconds)
{
    if (seconds < 1)
        printf(" %.3g ms", seconds * 1e3);
    else
        printf(" %.3g s", seconds);
}

static int table(const char *title, double q, double kv, int rows)
{
    for (double nodes = 2; nodes <= 64; nodes *= 2) {
        cost c;
        double x[N_NUMBERS];
        set_all(x);
        x[NODES] = nodes;
        x[Q] = q;
        x[KV] = kv;
        x[ROWS] = rows;
        for (size_t n = 0; n < sizeof networks / sizeof *networks; n++) {
            x[LATENCY] = networks[n].latency;
            x[GAP] = networks[n].gap;
            x[NET] = networks[n].net;
            if (estimate(x, &c))
                return 1;
            if (nodes == 2 && n == 0) {
                printf("\n%s: one node", title);
                print_time(c.one);
                printf("\n\n| nodes | bytes a rank sends | steps | 10 GbE | 25 GbE | InfiniBand "
                       "HDR |\n"
                       "|---:|---:|---:|---:|---:|---:|\n");
            }
            if (n == 0)
                printf("| %.0f | %.3g %s | %u |", nodes,
                       (double)c.rank.bytes / (c.rank.bytes < 1000000      ? 1e3
                                               : c.rank.bytes < 1000000000 ? 1e6
                                                                           : 1e9),
                       c.rank.bytes < 1000000      ? "kB"
                       : c.rank.bytes < 1000000000 ? "MB"
                                                   : "GB",
                       c.rank.steps);
            print_time(c.all);
            printf(", %.1f x |", c.one / c.all);
        }
        printf("\n");
    }
    return 0;
}

static int tables(void)
{
    return table("decode, 131072 keys, split", 1, 131072, 0) ||
           table("decode, 1048576 keys, split", 1, 1048576, 0) ||
           table("chunk of 512 rows, 131072 keys, rows travel", 512, 131072, ROWS_TRAVEL) ||
           table("chunk of 512 rows, 131072 keys, ring", 512, 131072, ROWS_RING) ||
           table("prefill, 32768, ring", 32768, 32768, ROWS_RING) ||
           table("prefill, 262144, ring", 262144, 262144, ROWS_RING);
}

/* ---- counting -------------------------------------------------------------------------------- */

typedef struct member {
    heed_transport real;
    pthread_t thread;
    const double *x;
    uint64_t messages, bytes;
    int bad;
} member;

static heed_status count_send(void *user, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                              heed_request *request, heed_error *why)
{
    member *m = user;
    m->messages++;
    m->bytes += bytes;
    return m->real.send(m->real.user, to, tag, data, bytes, request, why);
}

static heed_status count_receive(void *user, uint32_t from, uint32_t tag, void *data, size_t bytes,
                                 heed_request *request, heed_error *why)
{
    member *m = user;
    return m->real.receive(m->real.user, from, tag, data, bytes, request, why);
}

static heed_status count_test(void *user, heed_request *request, uint32_t *done, size_t *bytes,
                              heed_error *why)
{
    member *m = user;
    return m->real.test(m->real.user, request, done, bytes, why);
}

static heed_status count_wait(void *user, heed_request *request, int64_t ns, uint32_t *done,
                              size_t *bytes, heed_error *why)
{
    member *m = user;
    return m->real.wait(m->real.user, request, ns, done, bytes, why);
}

static heed_status count_cancel(void *user, heed_request *request, heed_error *why)
{
    member *m = user;
    return m->real.cancel(m->real.user, request, why);
}

/* A rank's part of a call. All tensors are zero, since only messages are counted. */
static heed_status attend(member *m, heed_context *context, heed_group_cost *count)
{
    const double *x = m->x;
    const heed_attn_desc d = describe(x);
    const uint32_t size = whole(x, NODES);
    const int64_t dim = d.qk_dim, q_len = d.max_q_len, kv_len = d.max_kv_len;
    const int64_t n = d.max_batch * d.q_heads * (q_len > kv_len ? q_len : kv_len) * dim;
    int32_t first[64], rows[64];
    uint32_t owner[32];
    heed_partition p;
    heed_attn *plan = NULL;
    heed_transport t = m->real;
    char *memory = calloc((size_t)n, 4 * 4);
    heed_attn_args a = {
        .struct_size = sizeof a, .batch = d.max_batch, .q_len = q_len, .kv_len = kv_len};
    const int64_t q[4] = {d.q_heads * q_len * dim, q_len * dim, dim, 1};
    const int64_t k[4] = {d.kv_heads * kv_len * dim, kv_len * dim, dim, 1};
    a.q.data = memory;
    a.k.data = memory + 4 * n;
    a.v.data = memory + 8 * n;
    a.out.data = memory + 12 * n;
    memcpy(a.q.stride, q, sizeof q);
    memcpy(a.out.stride, q, sizeof q);
    memcpy(a.k.stride, k, sizeof k);
    memcpy(a.v.stride, k, sizeof k);
    t.user = m;
    t.send = count_send;
    t.receive = count_receive;
    t.test = count_test;
    t.wait = count_wait;
    t.cancel = count_cancel;
    divide(x, &p, first, rows, owner);
    heed_status st = memory ? heed_attn_create(context, &d, &plan) : HEED_ERR_NOMEM;
    if (st == HEED_OK)
        st = heed_group_attention(plan, &a, &p, &t, NULL, 0);
    if (st == HEED_OK)
        st = heed_group_count(plan, &p, a.batch, q_len, t.rank, size, count);
    heed_attn_release(plan);
    free(memory);
    return st;
}

static void *on_thread(void *arg)
{
    member *m = arg;
    heed_context *context = NULL;
    heed_context_options one = {.struct_size = sizeof one, .n_threads = 1};
    heed_group_cost count = {.struct_size = sizeof count};
    heed_status st = heed_context_create(&one, &context);
    if (st == HEED_OK)
        st = attend(m, context, &count);
    m->bad = st != HEED_OK || count.messages != m->messages || count.bytes != m->bytes;
    if (m->bad)
        printf("rank %u of %.0f, q %.0f, kv %.0f, rows %.0f, want %.0f: %llu messages, %llu bytes; "
               "the formulas "
               "have %llu and %llu; %s\n",
               m->real.rank, m->x[NODES], m->x[Q], m->x[KV], m->x[ROWS], m->x[WANT],
               (unsigned long long)m->messages, (unsigned long long)m->bytes,
               (unsigned long long)count.messages, (unsigned long long)count.bytes,
               st != HEED_OK ? heed_last_error() : "");
    heed_context_release(context);
    return NULL;
}

static int check_one(const double *x)
{
    const uint32_t size = whole(x, NODES);
    heed_group_threads *group = NULL;
    member all[16];
    int bad = 0;
    memset(all, 0, sizeof all);
    if (heed_group_threads_create(size, &group) != HEED_OK)
        return 1;
    for (uint32_t r = 0; r < size; r++) {
        all[r].x = x;
        all[r].real.struct_size = sizeof all[r].real;
        if (heed_group_threads_transport(group, r, &all[r].real) != HEED_OK ||
            pthread_create(&all[r].thread, NULL, on_thread, &all[r]) != 0)
            exit(fail("no thread"));
    }
    for (uint32_t r = 0; r < size; r++) {
        pthread_join(all[r].thread, NULL);
        bad += all[r].bad;
    }
    heed_group_threads_release(group);
    return bad;
}

static int check(void)
{
    static const double lengths[][2] = {{1, 64}, {3, 1}, {40, 40}, {7, 300}, {2, 0}};
    int ranks = 0, bad = 0;
    for (double nodes = 1; nodes <= 8; nodes++)
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (int way = 0; way < 6; way++) /* split with three wants; AUTO, rows, ring */
                for (int bytes = 2; bytes <= 4; bytes += 2) {
                    double x[N_NUMBERS];
                    set_all(x);
                    x[NODES] = nodes;
                    x[Q] = lengths[n][0];
                    x[KV] = lengths[n][1];
                    x[BATCH] = bytes == 2 ? 2 : 1;
                    x[Q_HEADS] = 6;
                    x[KV_HEADS] = 2;
                    x[DIM] = 24;
                    x[BYTES] = bytes;
                    x[ROWS] = way < 3 ? ROWS_ALL : way - 2;
                    x[WANT] = way < 3 ? way : 0;
                    bad += check_one(x);
                    ranks += (int)nodes;
                }
    printf("%d ranks counted, %d differ from the formulas\n", ranks, bad);
    return bad != 0 || ranks == 0;
}

static int answer(int argc, char **argv)
{
    double x[N_NUMBERS];
    cost c;
    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return check();
    if (argc == 2 && strcmp(argv[1], "--table") == 0)
        return tables();
    if (read_numbers("heed-group-cost", numbers, N_NUMBERS, argc - 1, argv + 1, x))
        return 2;
    if (estimate(x, &c))
        return 1;
    printf("%s: the busiest rank sends %llu messages, %llu bytes in %u steps\n",
           c.rank.scheme == HEED_GROUP_RING ? "ring"
           : x[ROWS] != ROWS_ALL            ? "split, rows travel"
                                            : "split",
           (unsigned long long)c.rank.messages, (unsigned long long)c.rank.bytes, c.rank.steps);
    printf("modelled: one node %.4g ms; a group of %.0f %.4g ms (%.2f x): computing %.4g, network "
           "%.4g\n",
           c.one * 1e3, x[NODES], c.all * 1e3, c.one / c.all, c.compute * 1e3, c.network * 1e3);
    return 0;
}

int main(int argc, char **argv)
{
    return program_main("heed-group-cost", usage, answer, argc, argv);
}
