/* heed_merge: the results of two parts of a problem's keys merge to that of the whole at every cut,
 * and called alone it gives the result that heed/attention.h defines. */
#include "cases.h"
#include "decode.h"
#include "mistake.h"
#include "run.h"
#include "tolerance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24

static const kit_way plainly = {.how = KIT_BY_WORKSPACE, .n_parts = 1, .garbage = 0xff};

static heed_const_view shifted(heed_const_view view, int axis, int64_t by, int64_t bytes)
{
    if (view.data)
        view.data = (const char *)view.data + view.stride[axis] * by * bytes;
    return view;
}

/* The outputs of a part: f32, dense. */
typedef struct part {
    float *out, *lse;
    size_t n_out, n_lse;
} part;

/* Runs p on its keys [first, end) alone: the same memory, the same positions. */
static int run_part(const kit_env *env, kit_problem *p, int64_t first, int64_t end, int with_sink,
                    part *to, kit_outcome *outcome)
{
    heed_attn_desc desc = p->desc;
    heed_attn_args args = p->args;
    int32_t offset[KIT_MAX_BATCH];
    const kit_spec *s = &p->spec;
    args.k = shifted(args.k, 2, first, p->tensor[KIT_K].bytes);
    args.v = shifted(args.v, 2, first, p->tensor[KIT_V].bytes);
    args.mask = shifted(args.mask, 3, first, 1);
    args.bias = shifted(args.bias, 3, first, p->tensor[KIT_BIAS].bytes);
    args.kv_len = end - first;
    for (uint32_t b = 0; b < s->batch; b++)
        offset[b] = p->q_offsets[b] - (int32_t)first;
    args.q_offsets = offset;
    if (!with_sink) {
        desc.features &= ~HEED_HAS_SINK;
        args.sink = NULL;
    }
    desc.out_type = HEED_F32;
    int64_t rows = s->q_len, dim = s->v_dim, heads = s->q_heads;
    args.out = (heed_view){to->out, {heads * rows * dim, rows * dim, dim, 1}};
    args.lse = (heed_view){to->lse, {heads * rows, rows, 1, 0}};
    return kit_status(outcome, heed_attention(env->context, &desc, &args), heed_last_error(),
                      "a part of the keys");
}

static int make_part(part *to, const kit_spec *s)
{
    to->n_lse = (size_t)s->batch * s->q_heads * (size_t)s->q_len;
    to->n_out = to->n_lse * s->v_dim;
    to->out = malloc((to->n_out + 1) * sizeof(float));
    to->lse = malloc((to->n_lse + 1) * sizeof(float));
    return to->out && to->lse ? 0 : -1;
}

static void drop_part(part *p)
{
    free(p->out);
    free(p->lse);
}

/* The merged result against the oracle's whole. The parts' lse are rounded to f32, so the weight of
 * a part is off by u |lse| of either on top of the problem's own bound, and the merge rounds twice.
 */
typedef struct judge {
    const kit_problem *p;
    const part *a, *b;
    kit_outcome *outcome;
    kit_row_tolerance to;
    kit_tolerance how, f32;
    int64_t cut;
} judge;

static void judge_row(void *user, const reference_problem *p, const reference_row *r)
{
    judge *j = user;
    const kit_tensor *out = &j->p->tensor[KIT_OUT], *lse = &j->p->tensor[KIT_LSE];
    size_t row = (size_t)((r->b * p->q_heads + r->h) * p->q_len + r->i);
    double a = (double)j->a->lse[row], b = (double)j->b->lse[row];
    double shift = U * ((isfinite(a) ? fabs(a) : 0) + (isfinite(b) ? fabs(b) : 0) + 4);
    kit_tolerate(&j->how, p, r, &j->to);
    for (int64_t d = 0; d < p->v_dim; d++) {
        size_t at = row * (size_t)p->v_dim + (size_t)d;
        double largest = fmax(fabs((double)j->a->out[at]), fabs((double)j->b->out[at]));
        double got = kit_decode(out->type, j->p->buffer[KIT_OUT].data,
                                kit_at(out, r->b, r->h, r->i, d) / out->bytes);
        double bound = 2 * j->to.out[d] + 2 * shift * largest;
        if (!kit_close_out(&j->how, got, r->out[d], bound))
            kit_fail(j->outcome,
                     "cut at key %lld: out[%lld, %lld, %lld, %lld] is %.9g, should be "
                     "%.9g +- %.2g",
                     (long long)j->cut, (long long)r->b, (long long)r->h, (long long)r->i,
                     (long long)d, got, r->out[d], bound);
    }
    double got = reference_decode(REFERENCE_F32, j->p->buffer[KIT_LSE].data,
                                  kit_at(lse, r->b, r->h, r->i, 0) / 4);
    if (!kit_close(&j->f32, got, r->lse, 2 * j->to.lse + 2 * shift))
        kit_fail(j->outcome, "cut at key %lld: lse[%lld, %lld, %lld] is %.9g, should be %.9g",
                 (long long)j->cut, (long long)r->b, (long long)r->h, (long long)r->i, got, r->lse);
}

static void every_cut(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    kit_problem p = {0};
    kit_result whole = {0};
    part a = {0}, b = {0};
    judge j = {.p = &p, .a = &a, .b = &b, .outcome = outcome};
    j.how = kit_tolerance_of(kit_accuracy(&c->spec), c->spec.out_type);
    j.f32 = kit_tolerance_of(kit_accuracy(&c->spec), HEED_F32);
    int ready = kit_row_tolerance_make(&j.to, c->spec.kv_len, c->spec.v_dim) == 0 &&
                make_part(&a, &c->spec) == 0 && make_part(&b, &c->spec) == 0;
    if (!ready)
        kit_fail(outcome, "out of memory");
    else if (kit_run_once(env->context, &p, &c->spec, GUARD_HIGH, NULL, &plainly, &whole, outcome) == 0)
        for (j.cut = 0; j.cut <= c->spec.kv_len && outcome->verdict == KIT_PASSED; j.cut++) {
            int sink_in_a = j.cut & 1; /* in exactly one of them */
            if (run_part(env, &p, 0, j.cut, sink_in_a, &a, outcome) != 0 ||
                run_part(env, &p, j.cut, c->spec.kv_len, !sink_in_a, &b, outcome) != 0)
                break;
            kit_reset_outputs(&p);
            int64_t rows = c->spec.q_len, dim = c->spec.v_dim, heads = c->spec.q_heads;
            /* One sequence: rows are its rows. */
            heed_merge_args merge = {.struct_size = sizeof merge,
                                     .rows = rows,
                                     .heads = heads,
                                     .dim = dim,
                                     .out_type = c->spec.out_type,
                                     .a = {a.out, {dim, rows * dim, 1, 0}},
                                     .b = {b.out, {dim, rows * dim, 1, 0}},
                                     .a_lse = {a.lse, {1, rows, 0, 0}},
                                     .b_lse = {b.lse, {1, rows, 0, 0}}};
            const int64_t *o = p.args.out.stride, *l = p.args.lse.stride;
            merge.out = (heed_view){p.args.out.data, {o[2], o[1], o[3], 0}};
            merge.lse = (heed_view){p.args.lse.data, {l[2], l[1], 0, 0}};
            heed_status status = heed_merge(&merge);
            if (kit_status(outcome, status, heed_last_error(), "heed_merge") == 0 &&
                reference_attention(&p.reference, judge_row, &j) != 0)
                kit_fail(outcome, "out of memory");
        }
    free(j.to.raw);
    drop_part(&a);
    drop_part(&b);
    kit_drop(&whole);
    kit_free(&p);
}

/* ---- heed_merge by itself -------------------------------------------------------------------- */

enum { ROWS = 4, DIM = 3 };

/* A merge, and the memory that it reads and writes. */
typedef struct merging {
    heed_merge_args args;
    float a[ROWS * DIM], b[ROWS * DIM], a_lse[ROWS], b_lse[ROWS], out[ROWS * DIM], lse[ROWS];
} merging;

/* In row 0 both parts hold something, in row 1 b is empty, in row 2 a is, in row 3 both are. The
 * values of an empty part do not matter. */
static void make_merging(merging *m)
{
    const float none = -INFINITY;
    const float lse[2][ROWS] = {{1.5F, 2.5F, none, none}, {0.25F, none, -3.5F, none}};
    memset(m, KIT_CANARY, sizeof *m);
    m->args = (heed_merge_args){.struct_size = sizeof m->args,
                                .rows = ROWS,
                                .heads = 1,
                                .dim = DIM,
                                .out_type = HEED_F32,
                                .a = {m->a, {DIM, 0, 1, 0}},
                                .b = {m->b, {DIM, 0, 1, 0}},
                                .out = {m->out, {DIM, 0, 1, 0}},
                                .a_lse = {m->a_lse, {1, 0, 0, 0}},
                                .b_lse = {m->b_lse, {1, 0, 0, 0}},
                                .lse = {m->lse, {1, 0, 0, 0}}};
    for (int r = 0; r < ROWS; r++) {
        m->a_lse[r] = lse[0][r];
        m->b_lse[r] = lse[1][r];
        for (int d = 0; d < DIM; d++) {
            m->a[r * DIM + d] = lse[0][r] > none ? 1.25F * (float)(d + 1) : NAN;
            m->b[r * DIM + d] = lse[1][r] > none ? -0.75F * (float)(r + d) : d ? INFINITY : NAN;
        }
    }
}

static void check_merged(const char *what, const float *out, const float *lse, kit_outcome *outcome)
{
    merging m;
    make_merging(&m);
    for (int r = 0; r < ROWS; r++) {
        double x = (double)m.a_lse[r], y = (double)m.b_lse[r];
        double sum = exp(x) + exp(y), want_lse = log(sum);
        if (lse && !(fabs((double)lse[r] - want_lse) <= 4 * U * (1 + fabs(want_lse))) &&
            (double)lse[r] != want_lse)
            kit_fail(outcome, "%s: lse of row %d is %.9g, should be %.9g", what, r, (double)lse[r],
                     want_lse);
        for (int d = 0; d < DIM; d++) {
            double want = r == 3 ? 0 : r == 2 ? (double)m.b[r * DIM + d] : (double)m.a[r * DIM + d];
            if (r == 0)
                want = ((double)m.a[d] * exp(x) + (double)m.b[d] * exp(y)) / sum;
            if (!(fabs((double)out[r * DIM + d] - want) <= 4 * U * (1 + fabs(want))))
                kit_fail(outcome, "%s: out of row %d is %.9g, should be %.9g", what, r,
                         (double)out[r * DIM + d], want);
        }
    }
}

/* Merges into new memory, without lse, into a, and into b. */
static void by_itself(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const char *const what[] = {"elsewhere", "without lse", "into a", "into b"};
    (void)env;
    (void)c;
    for (int n = 0; n < 4; n++) {
        merging m;
        make_merging(&m);
        float *to = n == 2 ? m.a : n == 3 ? m.b : m.out;
        float *lse = n == 1 ? NULL : n == 2 ? m.a_lse : n == 3 ? m.b_lse : m.lse;
        m.args.out.data = to;
        m.args.lse.data = lse;
        if (heed_merge(&m.args) != HEED_OK)
            kit_fail(outcome, "%s: %s", what[n], heed_last_error());
        check_merged(what[n], to, lse, outcome);
    }
}

/* Outputs that lie where they may not. */
enum { OUT_ON_A, OUT_ON_B, OUT_ON_A_LSE, LSE_ON_OUT, LSE_ON_B_LSE, LONE_LSE_ON_A_LSE, LONE_LSE };

static const char *misplaced(void *call, int arg, uint32_t pick)
{
    merging *m = call;
    heed_merge_args *a = &m->args;
    (void)pick;
    switch (arg) {
    case OUT_ON_A:
        a->out.data = m->a, a->out.stride[0]++;
        return "out.data equals args.a.data";
    case OUT_ON_B:
        a->out.data = m->b, a->out_type = HEED_F16;
        return "out.data equals args.b.data";
    case OUT_ON_A_LSE:
        a->out.data = m->a_lse;
        return "out.data equals args.a_lse.data";
    case LSE_ON_OUT:
        a->lse.data = m->out;
        return "lse.data equals args.out.data";
    case LSE_ON_B_LSE:
        a->lse.data = m->b_lse, a->lse.stride[0]++;
        return "lse.data equals args.b_lse.data";
    case LONE_LSE_ON_A_LSE: /* with no dims too, an lse may lie on nothing but itself */
        a->dim = 0, a->lse.data = m->a_lse, a->lse.stride[0]++;
        return "lse.data equals args.a_lse.data";
    default: /* with no dims, lse is the only output */
        a->dim = a->lse.stride[0] = 0;
        return "lse.stride[0]";
    }
}

/* clang-format off */
#define INVALID HEED_ERR_INVALID
#define PUT(field, ...) KIT_CHANGE(merging, KIT_PUT, args.field, __VA_ARGS__)
#define DO(function, of) .make = (function), .arg = (of), .n = 1
static const kit_mistake merge_mistakes[] = {
    {"struct_size", "struct_size", 0, HEED_ERR_ABI, PUT(struct_size, KIT_BAD_STRUCTS)},
    {"rows", "rows", 0, INVALID, PUT(rows, -1)},
    {"heads", "heads", 0, INVALID, PUT(heads, -1)},
    {"dim", "dim", 0, INVALID, PUT(dim, -1)},
    {"no a", "args.a ", 0, INVALID, PUT(a.data, 0)},
    {"no b", "args.b ", 0, INVALID, PUT(b.data, 0)},
    {"no a_lse", "a_lse", 0, INVALID, PUT(a_lse.data, 0)},
    {"no b_lse", "b_lse", 0, INVALID, PUT(b_lse.data, 0)},
    {"no out", "out", 0, INVALID, PUT(out.data, 0)},
    {"out_type", "out_type", 0, INVALID, PUT(out_type, 9)},
    {"reserved", "reserved", 0, INVALID, PUT(reserved, 1)},
    {"one element of out", "out", 0, INVALID, PUT(out.stride[2], 0)},
    {"far a", "a has", 0, INVALID, PUT(a.stride[0], INT64_MIN)},
    {"far b", "b has", 0, INVALID, PUT(b.stride[0], INT64_MIN)},
    {"far a_lse", "a_lse has", 0, INVALID, PUT(a_lse.stride[0], INT64_MIN)},
    {"far b_lse", "b_lse has", 0, INVALID, PUT(b_lse.stride[0], INT64_MIN)},
    {"far out", "out has", 0, INVALID, PUT(out.stride[0], INT64_MIN)},
    {"far lse", "lse has", 0, INVALID, PUT(lse.stride[0], INT64_MIN)},
    {"out crooked on a", "", 0, INVALID, DO(misplaced, OUT_ON_A)},
    {"out of another type on b", "", 0, INVALID, DO(misplaced, OUT_ON_B)},
    {"out on a_lse", "", 0, INVALID, DO(misplaced, OUT_ON_A_LSE)},
    {"lse on out", "", 0, INVALID, DO(misplaced, LSE_ON_OUT)},
    {"lse crooked on b_lse", "", 0, INVALID, DO(misplaced, LSE_ON_B_LSE)},
    {"lse alone, crooked on a_lse", "", 0, INVALID, DO(misplaced, LONE_LSE_ON_A_LSE)},
    {"one element of lse alone", "", 0, INVALID, DO(misplaced, LONE_LSE)},
};
/* clang-format on */

static void mistakes(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    (void)env;
    (void)c;
    for (size_t n = 0; n < KIT_COUNT(merge_mistakes); n++)
        for (uint32_t pick = 0; pick < merge_mistakes[n].n; pick++) {
            const kit_mistake *wrong = &merge_mistakes[n];
            merging m, before;
            make_merging(&m);
            const char *word = kit_make_mistake(wrong, &m, pick);
            memcpy(&before, &m, sizeof m);
            const heed_status status = heed_merge(&m.args);
            kit_judge_refusal(wrong, word, "heed_merge", status, heed_last_error(), outcome);
            if (memcmp(&before, &m, sizeof m) != 0)
                kit_fail(outcome, "%s: something was written", wrong->name);
        }
}

void kit_merge_cases(kit_list *list)
{
    /* clang-format off */
    static const struct {
        const char *name;
        kit_spec spec;
    } table[] = {
        {"plain", {.features = HEED_HAS_LSE}},
        {"sink", {.features = HEED_HAS_LSE | HEED_HAS_SINK}},
        {"causal_window",
         {.features = HEED_HAS_LSE | HEED_HAS_CAUSAL | HEED_HAS_WINDOW, .window_left = 9}},
        {"mask_sink",
         {.features = HEED_HAS_LSE | HEED_HAS_MASK | HEED_HAS_SINK,
          .mask_kind = KIT_MASK_EMPTY_ROWS,
          .layout = KIT_BSHD}},
        {"alibi_bias",
         {.features = HEED_HAS_LSE | HEED_HAS_ALIBI | HEED_HAS_BIAS, .bias_kind = KIT_BIAS_INF}},
    };
    /* clang-format on */
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
            kit_case c = {.quick = n == 3, .run = every_cut, .spec = table[n].spec};
            c.spec.q_type = c.spec.k_type = c.spec.v_type = c.spec.out_type = type;
            c.spec.batch = 1;
            c.spec.position = HEED_POS_GIVEN;
            kit_complete(&c.spec);
            snprintf(c.name, sizeof c.name, "merge/every_cut_%s/%s", table[n].name,
                     kit_type_name(type));
            kit_add(list, &c);
        }
    kit_case alone = {.name = "merge/by_itself/f32", .quick = 1, .run = by_itself};
    kit_case bad = {.name = "merge/mistakes/f32", .quick = 1, .run = mistakes};
    kit_add(list, &alone);
    kit_add(list, &bad);
}
