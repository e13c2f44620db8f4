/* Families of problems, computed by groups of ranks. Each result has to be close to that of one
 * process; for each a line with a hash of its bytes is written, which compare.py compares with the
 * lines of other transports and other runs.
 *
 * Usage: families_threads FOLDER RANKS
 *        mpirun -np RANKS families_MPI FOLDER
 *
 * Writes FOLDER/RANKS.RANK, one file for each rank. */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef NODES_OVER_MPI
#include <heed/mpi.h>
#else
#include <pthread.h>
#endif

typedef struct rank_of {
    heed_transport transport;
    heed_context *context;
    FILE *lines;
    int bad, runs;
} rank_of;

static const char *const want_name[] = {"all", "root", "heads"};
static const char *const cut_name[] = {"even", "uneven", "many", "one"};

static void wrong(rank_of *r, const char *what, const char *sentence)
{
    r->bad++;
    fprintf(stderr, "rank %u of %u: %s: %s\n", r->transport.rank, r->transport.size, what,
            sentence);
}

/* Computes the whole problem in one process. */
static int run_whole(rank_of *r, problem *p)
{
    heed_attn_args a = problem_args(p, &p->whole);
    heed_attn_desc d = p->desc;
    d.features |= HEED_HAS_LENS;
    a.kv_lens = p->whole.kv_lens;
    if (heed_attention(r->context, &d, &a) == HEED_OK)
        return 1;
    wrong(r, p->s.name, heed_last_error());
    return 0;
}

/* The squared error and the squared norm of rows, and the greatest error of lse. Each of the two
 * results may be off by the bound that attention.h gives for EXACT (with bf16 inputs, by that for
 * BF16 in addition), and merging parts rounds a few terms more: see bound_of. */
typedef struct sums {
    double error, size, lse;
} sums;

static double bound_of(const problem *p)
{
    const double exact = 0x1p-24 * (8 + sqrt((double)p->s.qk_dim)), merged = 4 * 0x1p-24;
    const double rounded = p->s.out_type == HEED_BF16  ? 0x1p-8
                           : p->s.out_type == HEED_F16 ? 0x1p-11
                                                       : 0;
    return 2 * (exact + merged + rounded + (p->s.q_type == HEED_BF16 ? 2.5e-3 : 0));
}

static void add_row(const problem *p, const memory *l, int64_t at, int64_t whole_at, sums *s)
{
    for (uint32_t d = 0; d < p->s.v_dim; d++) {
        const double x = (double)heed_load(p->s.out_type, l->out, at * p->s.v_dim + d);
        const double y = (double)heed_load(p->s.out_type, p->whole.out, whole_at * p->s.v_dim + d);
        s->error += (x - y) * (x - y);
        s->size += y * y;
    }
    if (p->desc.features & HEED_HAS_LSE) {
        const double x = (double)l->lse[at], y = (double)p->whole.lse[whole_at];
        const double off = x == y ? 0 : fabs(x - y);
        s->lse = off > s->lse || isnan(off) ? off : s->lse;
    }
}

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Compares every row that this rank wants with that of one process; heads that it does not want
 * have to be untouched. Returns a hash of the rows. */
static uint64_t compare(rank_of *r, const problem *p, const cut *c, const memory *l,
                        const char *what)
{
    const uint32_t size = r->transport.size, rank = r->transport.rank, heads = p->s.q_heads;
    const uint32_t n = c->partition.n_parts, want = c->partition.want;
    const size_t bytes = p->s.v_dim * (size_t)heed_dtype_bytes(p->s.out_type);
    uint32_t first = 0, end = heads;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    sums s = {0, 0, 0};
    char text[160];
    if (want == HEED_WANT_HEADS) {
        first = rank * heads / size;
        end = (rank + 1) * heads / size;
    } else if (want == HEED_WANT_ROOT && rank != c->partition.root) {
        end = 0;
    }
    for (int64_t b = 0; b < p->s.batch; b++)
        for (uint32_t h = 0; h < heads; h++) {
            int64_t at = 0;
            for (uint32_t part = 0; part < (p->s.ring ? n : 1); part++) {
                const int32_t *row = c->row_first + b * (n + 1) + part;
                const int32_t from = p->s.ring ? row[0] : 0;
                const int32_t to = p->s.ring ? row[1] : l->q_lens[b];
                for (int32_t i = from; i < to && (!p->s.ring || c->owner[part] == rank); i++) {
                    const int64_t mine = problem_row(p, l, b, h, at++);
                    const char *out = (const char *)l->out + (size_t)mine * bytes;
                    hash = mix(hash, out, bytes);
                    if (h >= first && h < end)
                        add_row(p, l, mine, problem_row(p, &p->whole, b, h, i), &s);
                    else
                        for (size_t k = 0; k < bytes; k++)
                            if (out[k]) {
                                wrong(r, what, "wrote a head that is not its own");
                                return 0;
                            }
                    if (p->desc.features & HEED_HAS_LSE)
                        hash = mix(hash, &l->lse[mine], sizeof(float));
                }
            }
        }
    if (!(sqrt(s.error) <= bound_of(p) * sqrt(s.size)) || !(s.lse <= 1e-5 + bound_of(p))) {
        snprintf(text, sizeof text, "off by %.3g of %.3g, lse by %.3g", sqrt(s.error), sqrt(s.size),
                 s.lse);
        wrong(r, what, text);
    }
    return hash;
}

static void run(rank_of *r, const problem *p, int kind, uint32_t want)
{
    char what[100];
    cut c;
    memory l;
    heed_attn *plan = NULL;
    heed_attn_desc d = p->desc;
    problem_cut(p, &c, kind, r->transport.size);
    c.partition.want = want;
    c.partition.root = want == HEED_WANT_ROOT ? r->transport.size - 1 : 0;
    problem_local(p, &c, r->transport.rank, &l);
    heed_attn_args a = problem_args(p, &l);
    if (p->s.ring)
        a.q_lens = NULL;
    if (a.q_starts && p->s.ring)
        d.max_rows = l.rows;
    snprintf(what, sizeof what, "%s %s %s", p->s.name, cut_name[kind], want_name[want]);
    heed_status st = heed_attn_create(r->context, &d, &plan);
    if (st == HEED_OK)
        st = heed_group_attention(plan, &a, &c.partition, &r->transport, NULL, 0);
    if (st == HEED_OK)
        fprintf(r->lines, "%s: %016" PRIx64 "\n", what, compare(r, p, &c, &l, what));
    else
        wrong(r, what, heed_last_error());
    r->runs++;
    heed_attn_release(plan);
    memory_free(&l);
}

/* Runs every problem with every partition on one rank. Returns whether something was wrong. */
static int run_rank(rank_of *r, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%u.%u", folder, r->transport.size, r->transport.rank);
    r->lines = fopen(path, "w");
    if (!r->lines || heed_context_create(NULL, &r->context) != HEED_OK) {
        wrong(r, path, "cannot be begun");
        return 1;
    }
    for (int n = 0; n < problems() && !r->bad; n++) {
        problem p;
        const spec s = problem_spec(n);
        problem_make(&p, &s);
        const uint32_t wants = p.s.ring ? HEED_WANT_ALL : HEED_WANT_HEADS;
        if (run_whole(r, &p))
            for (int kind = 0; kind < N_CUTS && !r->bad; kind++)
                for (uint32_t want = 0; want <= wants && !r->bad; want++)
                    run(r, &p, kind, want);
        problem_free(&p);
    }
    if (fclose(r->lines) != 0)
        wrong(r, path, "cannot be written");
    heed_context_release(r->context);
    if (r->transport.rank == 0)
        printf("%u ranks, %d runs, %d bad\n", r->transport.size, r->runs, r->bad);
    return r->bad || !r->runs;
}

#ifdef NODES_OVER_MPI
int main(int argc, char **argv)
{
    rank_of r = {.bad = 0};
    heed_mpi mpi;
    heed_error why;
    MPI_Init(&argc, &argv);
    if (argc != 2 || heed_mpi_open(MPI_COMM_WORLD, &mpi, &r.transport, &why) != HEED_OK)
        return 2;
    if (run_rank(&r, argv[1]))
        MPI_Abort(MPI_COMM_WORLD, 1);
    heed_mpi_close(&mpi);
    MPI_Finalize();
    return 0;
}
#else
typedef struct thread {
    pthread_t thread;
    rank_of rank;
    const char *folder;
    int bad;
} thread;

static void *on_thread(void *arg)
{
    thread *t = arg;
    t->bad = run_rank(&t->rank, t->folder);
    return NULL;
}

int main(int argc, char **argv)
{
    thread all[64];
    heed_group_threads *group = NULL;
    const int n = argc == 3 ? atoi(argv[2]) : 0;
    int bad = 0;
    memset(all, 0, sizeof all);
    if (n < 1 || n > 64 || heed_group_threads_create((uint32_t)n, &group) != HEED_OK)
        return 2;
    for (int i = 0; i < n; i++) {
        all[i].folder = argv[1];
        all[i].rank.transport.struct_size = sizeof all[i].rank.transport;
        if (heed_group_threads_transport(group, (uint32_t)i, &all[i].rank.transport) != HEED_OK ||
            pthread_create(&all[i].thread, NULL, on_thread, &all[i]) != 0)
            return 2;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        bad |= all[i].bad;
    }
    heed_group_threads_release(group);
    return bad;
}
#endif
