/* What the ranks of a test problem computed: as bits, together, and against the oracle. See
 * ranks.h. */
#include "ranks.h"

#include "decode.h"
#include "run.h"
#include "tolerance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a. */
#define NO_BITS UINT64_C(0xcbf29ce484222325)
static uint64_t add_bits(uint64_t hash, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t rank_bits(const rank_call *r)
{
    return add_bits(add_bits(NO_BITS, r->out.data, r->out.bytes), r->lse.data, r->lse.bytes);
}

/* ---- what all ranks say together ------------------------------------------------------------- */

/* Byte offset of element [b, h, i] of an output of a rank, or -1 where the rank should not have
 * it. */
static int64_t place_of(const rank_call *r, const ranks_case *c, uint32_t rank, int which,
                        const int64_t at[3])
{
    const kit_tensor *t = &c->problem.tensor[which];
    const int64_t heads = c->spec.q_heads;
    if (!c->rows_apart) {
        const int mine = c->want == HEED_WANT_ALL ||
                         (c->want == HEED_WANT_ROOT && rank == c->root) ||
                         (c->want == HEED_WANT_HEADS && at[1] >= rank * heads / c->size &&
                          at[1] < (rank + 1) * heads / c->size);
        return mine ? kit_at(t, at[0], at[1], at[2], 0) : -1;
    }
    const heed_view *view = which == KIT_OUT ? &r->args.out : &r->args.lse;
    int64_t n = 0, row;
    while ((row = rank_nth(c, c->row_first, rank, (uint32_t)at[0], n)) >= 0 && row != at[2])
        n++;
    if (row < 0)
        return -1;
    n = r->args.q_starts ? (r->args.q_starts[at[0]] + n) * view->stride[2]
                         : at[0] * view->stride[0] + n * view->stride[2];
    return (n + at[1] * view->stride[1]) * t->bytes;
}

/* Copies one output row of a rank to the problem; the rank's copy becomes canaries. */
static void take_row(rank_call *r, ranks_case *c, uint32_t rank, int which, const int64_t at[3],
                     kit_outcome *outcome)
{
    static const unsigned char canary[4] = {KIT_CANARY, KIT_CANARY, KIT_CANARY, KIT_CANARY};
    const kit_tensor *t = &c->problem.tensor[which];
    const int apart = (int)c->rows_apart;
    unsigned char *data = which == KIT_OUT ? r->out.data : r->lse.data;
    const int64_t from = place_of(r, c, rank, which, at);
    for (int64_t d = 0; d < t->dim[3] && from >= 0; d++) {
        unsigned char *to = c->problem.buffer[t->buffer].data + kit_at(t, at[0], at[1], at[2], d);
        unsigned char *mine = data + from + d * (apart ? 1 : t->stride[3]) * t->bytes;
        if (memcmp(to, canary, t->bytes) != 0 && memcmp(to, mine, t->bytes) != 0)
            kit_fail(outcome, "rank %u has other bits at [%lld, %lld, %lld] than another", rank,
                     (long long)at[0], (long long)at[1], (long long)at[2]);
        memcpy(to, mine, t->bytes);
        memset(mine, KIT_CANARY, t->bytes);
    }
}

void rank_collect(const rank_call *call, ranks_case *c, uint32_t rank, kit_outcome *outcome)
{
    rank_call *r = (rank_call *)call;
    const int with_lse = (c->spec.features & HEED_HAS_LSE) != 0;
    for (uint32_t b = 0; b < c->spec.batch; b++)
        for (int64_t h = 0; h < c->spec.q_heads; h++)
            for (int64_t i = 0; i < c->problem.q_lens[b]; i++) {
                take_row(r, c, rank, KIT_OUT, (int64_t[]){b, h, i}, outcome);
                if (with_lse)
                    take_row(r, c, rank, KIT_LSE, (int64_t[]){b, h, i}, outcome);
            }
    const guard_buffer *buffer[] = {&r->out, &r->lse};
    for (int n = 0; n < 2; n++)
        for (size_t at = 0; at < buffer[n]->bytes; at++)
            if (buffer[n]->data[at] != KIT_CANARY) {
                kit_fail(outcome, "rank %u wrote byte %zu of %s, which is no element of its rows",
                         rank, at, n ? "lse" : "out");
                return;
            }
}

/* ---- against the oracle ---------------------------------------------------------------------- */

/* What the oracle says of one row: its lse, what any run's may be off by, the greatest value that
 * the row sees, and for each dim out and what any run's may be off by. */
enum { ROW_LSE, ROW_LSE_BOUND, ROW_LARGEST, ROW_DIMS };

static double *row_of(const ranks_case *c, int64_t b, int64_t h, int64_t i)
{
    const kit_spec *s = &c->spec;
    return c->oracle + ((b * s->q_heads + h) * s->q_len + i) * (ROW_DIMS + 2 * s->v_dim);
}

typedef struct notes {
    ranks_case *c;
    kit_tolerance how;
    kit_row_tolerance to;
} notes;

static void note_row(void *user, const reference_problem *p, const reference_row *r)
{
    notes *n = user;
    double *row = row_of(n->c, r->b, r->h, r->i), largest = 0;
    kit_tolerate(&n->how, p, r, &n->to);
    for (int64_t k = 0; k < r->n_keys; k++)
        for (int64_t d = 0; d < p->v_dim && r->visible[k]; d++)
            largest = fmax(largest, fabs(r->v[k * p->v_dim + d]));
    row[ROW_LSE] = r->lse;
    row[ROW_LSE_BOUND] = n->to.lse;
    row[ROW_LARGEST] = largest;
    for (int64_t d = 0; d < p->v_dim; d++) {
        row[ROW_DIMS + 2 * d] = r->out[d];
        row[ROW_DIMS + 2 * d + 1] = n->to.out[d];
    }
}

/* Asks the oracle, once for all partitions of a problem. Returns 0, or -1 when out of memory. */
static int ask(ranks_case *c, const kit_tolerance *how)
{
    const kit_spec *s = &c->spec;
    notes n = {.c = c, .how = *how};
    const int64_t rows = s->batch * s->q_heads * s->q_len;
    if (c->oracle)
        return 0;
    c->oracle = calloc((size_t)(rows * (ROW_DIMS + 2 * s->v_dim)) + 1, sizeof *c->oracle);
    const int bad = !c->oracle || kit_row_tolerance_make(&n.to, s->kv_len, s->v_dim) != 0 ||
                    reference_attention(&c->problem.reference, note_row, &n) != 0;
    free(n.to.raw);
    return bad ? -1 : 0;
}

static double out_at(const ranks_case *c, const int64_t at[3], int64_t d)
{
    const kit_tensor *t = &c->problem.tensor[KIT_OUT];
    return kit_decode(t->type, c->problem.buffer[t->buffer].data,
                      kit_at(t, at[0], at[1], at[2], d) / t->bytes);
}

static double lse_at(const ranks_case *c, const int64_t at[3])
{
    const kit_tensor *t = &c->problem.tensor[KIT_LSE];
    return reference_decode(REFERENCE_F32, c->problem.buffer[t->buffer].data,
                            kit_at(t, at[0], at[1], at[2], 0) / 4);
}

/* The bound is twice what the oracle grants any run (since each part sums for itself) plus the
 * merge: a part's lse is rounded to f32, so its weight w is off by u |lse_i| w <= u (|lse| + 1) w,
 * because x exp(-x) < 1, with 4 u for all other roundings; the weights sum to 1, and what they
 * weigh is at most the greatest value that is seen. With ring, which AUTO may take, this happens at
 * each merge, and out is rounded to f32 each time. */
static void check_row(const ranks_case *c, const kit_tolerance *how, const int64_t at[3],
                      kit_outcome *outcome)
{
    const double *row = row_of(c, at[0], at[1], at[2]);
    const int merges = ranks_own_pairs(c) ? (int)c->n_parts : 2;
    const double known = isfinite(row[ROW_LSE]) ? fabs(row[ROW_LSE]) : 0;
    const double shift = merges * 0x1p-24 * (known + 5);
    for (int64_t d = 0; d < c->spec.v_dim; d++) {
        const double got = out_at(c, at, d);
        const double want = row[ROW_DIMS + 2 * d];
        const double bound = 2 * row[ROW_DIMS + 2 * d + 1] + 2 * shift * row[ROW_LARGEST];
        if (!kit_close_out(how, got, want, bound))
            kit_fail(outcome, "out[%lld, %lld, %lld, %lld] is %.9g, should be %.9g +- %.2g",
                     (long long)at[0], (long long)at[1], (long long)at[2], (long long)d, got, want,
                     bound);
    }
    if (!(c->spec.features & HEED_HAS_LSE))
        return;
    const kit_tolerance f32 = kit_tolerance_of(kit_accuracy(&c->spec), HEED_F32);
    const double got = lse_at(c, at);
    if (!kit_close(&f32, got, row[ROW_LSE], 2 * row[ROW_LSE_BOUND] + 2 * shift))
        kit_fail(outcome, "lse[%lld, %lld, %lld] is %.9g, should be %.9g", (long long)at[0],
                 (long long)at[1], (long long)at[2], got, row[ROW_LSE]);
}

void ranks_errors(const ranks_case *c, double *out, double *lse)
{
    const int with_lse = (c->spec.features & HEED_HAS_LSE) != 0;
    double error2 = 0, size2 = 0;
    *lse = 0;
    for (int64_t b = 0; b < c->spec.batch; b++)
        for (int64_t h = 0; h < c->spec.q_heads; h++)
            for (int64_t i = 0; i < c->problem.q_lens[b]; i++) {
                const double *row = row_of(c, b, h, i);
                const int64_t at[3] = {b, h, i};
                for (int64_t d = 0; d < c->spec.v_dim; d++) {
                    const double want = row[ROW_DIMS + 2 * d], off = out_at(c, at, d) - want;
                    error2 += off * off;
                    size2 += want * want;
                }
                if (with_lse && lse_at(c, at) != row[ROW_LSE]) /* may both be -inf */
                    *lse = fmax(*lse, fabs(lse_at(c, at) - row[ROW_LSE]));
            }
    *out = sqrt(error2 / size2);
}

void ranks_check(ranks_case *c, kit_outcome *outcome)
{
    const kit_spec *s = &c->spec;
    kit_tolerance how = kit_tolerance_of(kit_accuracy(s), s->out_type);
    kit_tolerate_codes(&how, kit_accuracy(s), s->k_type, s->v_type, c->problem.sizes);
    if (ask(c, &how) != 0) {
        kit_fail(outcome, "out of memory");
        return;
    }
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->q_heads; h++)
            for (int64_t i = 0; i < c->problem.q_lens[b]; i++)
                check_row(c, &how, (int64_t[]){b, h, i}, outcome);
}

uint64_t ranks_bits(const ranks_case *c)
{
    uint64_t hash = NO_BITS;
    for (int which = KIT_OUT; which <= KIT_LSE; which += KIT_LSE - KIT_OUT) {
        const kit_tensor *t = &c->problem.tensor[which];
        for (uint32_t b = 0; b < c->spec.batch && t->bytes; b++)
            for (int64_t h = 0; h < t->dim[1]; h++)
                for (int64_t i = 0; i < c->problem.q_lens[b]; i++)
                    for (int64_t d = 0; d < t->dim[3]; d++)
                        hash = add_bits(hash,
                                        c->problem.buffer[t->buffer].data + kit_at(t, b, h, i, d),
                                        t->bytes);
    }
    return hash;
}
