/* Holds a run's outputs against the oracle. See run.h. */
#include "decode.h"
#include "random.h"
#include "run.h"
#include "tolerance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t kit_accuracy(const kit_spec *s)
{
    int bf16 = s->q_type == HEED_BF16 && s->k_type == HEED_BF16 && s->v_type == HEED_BF16;
    if (s->accuracy == HEED_ACCURACY_DEFAULT || s->accuracy == HEED_ACCURACY_BF16 ||
        (s->accuracy == HEED_ACCURACY_INT8 && !heed_is_code(s->k_type)))
        return bf16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_EXACT;
    return s->accuracy;
}

/* The errors of out over what rounding explains, as squares of L2 norms: of the whole result, and of the
 * row where that is most. */
typedef struct kit_excess {
    double whole, row;
    int64_t b, h, i;
} kit_excess;

typedef struct checker {
    kit_problem *problem;
    kit_outcome *outcome;
    kit_tolerance how, f32;
    kit_row_tolerance tolerance;
    double error2, typical2; /* sums of squares over the whole out */
    kit_excess excess;
} checker;

static double got(const checker *c, int which, const reference_row *r, int64_t d)
{
    const kit_tensor *t = &c->problem->tensor[which];
    return kit_decode(t->type, c->problem->buffer[t->buffer].data,
                      kit_at(t, r->b, r->h, r->i, d) / t->bytes);
}

static int is_canary(const checker *c, int which, const reference_row *r, int64_t d)
{
    static const unsigned char canary[4] = {KIT_CANARY, KIT_CANARY, KIT_CANARY, KIT_CANARY};
    const kit_tensor *t = &c->problem->tensor[which];
    return memcmp(c->problem->buffer[t->buffer].data + kit_at(t, r->b, r->h, r->i, d), canary,
                  t->bytes) == 0;
}

static void element(checker *c, const char *name, int which, const reference_row *r, int64_t d,
                    double want, double bound)
{
    const kit_tolerance *how = which == KIT_OUT ? &c->how : &c->f32;
    double have = got(c, which, r, d);
    if (is_canary(c, which, r, d))
        kit_fail(c->outcome, "%s[%lld, %lld, %lld, %lld] was not written", name, (long long)r->b,
                 (long long)r->h, (long long)r->i, (long long)d);
    else if (!(which == KIT_OUT ? kit_close_out : kit_close)(how, have, want, bound))
        kit_fail(c->outcome, "%s[%lld, %lld, %lld, %lld] is %.9g, should be %.9g +- %.2g", name,
                 (long long)r->b, (long long)r->h, (long long)r->i, (long long)d, have, want,
                 bound);
}

/* Counts a row's out for the whole result, and remembers the row that is worst as a whole. */
static void whole_row(checker *c, const reference_row *r, int64_t dims)
{
    kit_excess *e = &c->excess;
    double error2 = 0, typical2 = 0;
    for (int64_t d = 0; d < dims; d++) {
        const double error = got(c, KIT_OUT, r, d) - r->out[d];
        const double rounding = c->how.out * fabs(r->out[d]) + c->how.out_floor;
        const double typical = c->tolerance.typical[d];
        if (isfinite(error)) {
            error2 += error * error;
            typical2 += typical * typical + rounding * rounding;
        }
    }
    c->error2 += error2;
    c->typical2 += typical2;
    if (error2 > e->row * typical2)
        *e = (kit_excess){.row = error2 / typical2, .b = r->b, .h = r->h, .i = r->i};
}

static void check_row(void *user, const reference_problem *p, const reference_row *r)
{
    checker *c = user;
    const kit_spec *s = &c->problem->spec;
    kit_row_tolerance *to = &c->tolerance;
    if (c->outcome->verdict == KIT_FAILED)
        return;
    kit_tolerate(&c->how, p, r, to);
    for (int64_t d = 0; d < p->v_dim; d++)
        element(c, "out", KIT_OUT, r, d, r->out[d], to->out[d]);
    whole_row(c, r, p->v_dim);
    if (s->features & HEED_HAS_LSE)
        element(c, "lse", KIT_LSE, r, 0, r->lse, to->lse);
    for (int64_t j = 0; j < p->kv_len; j++) {
        if (s->features & HEED_HAS_WEIGHTS) {
            element(c, "weights", KIT_WEIGHTS, r, j, r->weight[j], to->weight[j]);
            if (!r->visible[j] && got(c, KIT_WEIGHTS, r, j) != 0)
                kit_fail(c->outcome, "weights[%lld, %lld, %lld, %lld] of a hidden key is not 0",
                         (long long)r->b, (long long)r->h, (long long)r->i, (long long)j);
        }
        if (!(s->features & HEED_HAS_SCORES))
            continue;
        if (s->scores_stage == HEED_SCORES_RAW)
            element(c, "raw scores", KIT_SCORES, r, j, r->raw[j], to->raw[j]);
        else if (s->scores_stage == HEED_SCORES_SOFTCAPPED)
            element(c, "softcapped scores", KIT_SCORES, r, j, r->softcapped[j], to->softcapped[j]);
        else
            element(c, "biased scores", KIT_SCORES, r, j, r->score[j], to->score[j]);
    }
}

/* Fails if anything but the elements of the outputs has been written. */
void kit_check_memory(kit_problem *p, kit_outcome *outcome)
{
    static const char *const name[KIT_TENSORS] = {
        [KIT_OUT] = "out", [KIT_LSE] = "lse", [KIT_WEIGHTS] = "weights", [KIT_SCORES] = "scores"};
    for (int t = 0; t < KIT_TENSORS; t++) {
        int64_t where;
        if ((t != KIT_OUT && t < KIT_LSE) || !p->tensor[t].bytes ||
            kit_untouched(p, t, &where) == 0)
            continue;
        kit_fail(outcome,
                 "byte %lld of the buffer of %s was written, and is no element of a row "
                 "below q_lens",
                 (long long)where, name[t]);
    }
}

void kit_open(kit_problem *p)
{
    for (int n = 0; n < KIT_TENSORS; n++)
        if (p->buffer[n].map)
            guard_open(&p->buffer[n]);
}

static kit_excess check_elements(kit_problem *p, kit_outcome *outcome)
{
    checker c = {.problem = p, .outcome = outcome};
    kit_open(p);
    if (kit_row_tolerance_make(&c.tolerance, p->spec.kv_len, p->spec.v_dim) != 0) {
        kit_fail(outcome, "out of memory");
        return c.excess;
    }
    /* Lists have many cases of so many rows: two of every eight rows are enough. */
    if (p->spec.lists && p->spec.q_len > 70 && !p->reference.every) {
        p->reference.every = 8;
        p->reference.some = 2;
    }
    c.how = kit_tolerance_of(kit_accuracy(&p->spec), p->spec.out_type);
    c.f32 = kit_tolerance_of(kit_accuracy(&p->spec), HEED_F32);
    kit_tolerate_codes(&c.how, kit_accuracy(&p->spec), p->spec.k_type, p->spec.v_type, p->sizes);
    kit_check_memory(p, outcome);
    if (outcome->verdict != KIT_FAILED && reference_attention(&p->reference, check_row, &c) != 0)
        kit_fail(outcome, "out of memory");
    free(c.tolerance.raw);
    c.excess.whole = c.error2 > 0 ? c.error2 / c.typical2 : 0;
    return c.excess;
}

void kit_check_elements(kit_problem *p, kit_outcome *outcome)
{
    check_elements(p, outcome);
}

/* One wrong key of hundreds in one row leaves no element's bound where products are of bf16, and the rows
 * beside it hide it in the norm of the whole result: a row may be off by 3 times what rounding explains.
 * Its elements share the errors of its weights, which then do not average out: up to 1.4 times are seen,
 * where scores are huge. */
void kit_check(kit_problem *p, kit_outcome *outcome)
{
    const kit_excess excess = check_elements(p, outcome);
    if (excess.whole > 2.25)
        kit_fail(outcome,
                 "the relative L2 error of out is %.3g times what rounding explains "
                 "(limit 1.5), though each element is within its bound",
                 sqrt(excess.whole));
    if (excess.row > 9)
        kit_fail(outcome,
                 "the L2 error of out[%lld, %lld, %lld] is %.3g times what rounding explains "
                 "(limit 3), though each element is within its bound",
                 (long long)excess.b, (long long)excess.h, (long long)excess.i, sqrt(excess.row));
}

int kit_run_once(heed_context *context, kit_problem *p, const kit_spec *spec, int side,
                 const kit_problem *first, const kit_way *way, kit_result *result,
                 kit_outcome *outcome)
{
    heed_error sentence = {""};
    const char *changed = NULL;
    if ((first ? kit_build_again(p, spec, side, first) : kit_build(p, spec, side)) != 0)
        return kit_fail(outcome, "out of memory"), -1;
    kit_seal(p);
    heed_status status = kit_run(context, p, way, &sentence, &changed);
    kit_open(p);
    if (kit_status(outcome, status, sentence.text, "the run") != 0)
        return -1;
    if (changed)
        kit_fail(outcome, "%s", changed);
    if (kit_take(p, result) != 0)
        kit_fail(outcome, "out of memory");
    return outcome->verdict == KIT_FAILED ? -1 : 0;
}

void kit_conform_twice(heed_context *context, const kit_twice *t, kit_outcome *outcome)
{
    kit_problem first = {0}, again = {0};
    kit_result x = {0}, y = {0};
    if (kit_run_once(context, &first, &t->spec[0], t->side, NULL, &t->way[0], &x, outcome) == 0)
        t->check(&first, outcome);
    if (outcome->verdict == KIT_PASSED && kit_run_once(context, &again, &t->spec[1], !t->side,
                                                       &first, &t->way[1], &y, outcome) == 0) {
        kit_check_memory(&again, outcome);
        kit_all_differ(outcome, "other addresses, another way to run", &first, &x, &again, &y);
    }
    kit_drop(&x);
    kit_drop(&y);
    kit_free(&first);
    kit_free(&again);
}

void kit_without_optional(kit_spec *spec)
{
    spec->features &= ~(HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES);
    spec->scores_stage = HEED_SCORES_NONE;
}

void kit_conform(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const kit_way other[] = {{.how = KIT_BY_PARTS, .n_parts = 3, .garbage = 0xff},
                                    {.how = KIT_BY_CALL},
                                    {.how = KIT_BY_CONTEXT, .more = 3},
                                    {.how = KIT_BY_EXECUTOR, .n_parts = 2, .garbage = 0x7f}};
    const uint64_t choice = kit_mix(c->spec.seed);
    kit_twice t = {
        .spec = {c->spec, c->spec},
        .way = {{.how = KIT_BY_WORKSPACE, .n_parts = 1, .garbage = 0xa5}, other[(choice >> 1) & 3]},
        .side = GUARD_HIGH,
        .check = kit_check};
    if (choice & 1) /* half of the cases run again without the optional outputs: the same bits */
        kit_without_optional(&t.spec[1]);
    kit_conform_twice(env->context, &t, outcome);
}
