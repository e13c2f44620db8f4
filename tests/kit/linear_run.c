/* Runs test problems of linear layers and compares them with the oracle. See linear_run.h. */
#include "linear_run.h"

#include "registers.h"
#include "tolerance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

heed_status kit_linear_run_made(const heed_linear *linear, kit_linear *p, const kit_linear_way *way)
{
    const uint32_t n_parts = way->n_parts ? way->n_parts : 1;
    heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = n_parts, .parallel_for = kit_backwards};
    guard_buffer workspace;
    heed_status status;
    p->args.executor = way->how == KIT_BY_EXECUTOR ? &executor : NULL;
    if (way->how == KIT_BY_CONTEXT)
        return heed_linear_run(linear, &p->args, NULL, 0);
    size_t bytes = heed_linear_workspace_bytes(linear, n_parts), whole = (bytes + 63) / 64 * 64;
    if (bytes == 0 || guard_map(&workspace, whole, GUARD_HIGH, 0, way->garbage) != 0)
        return HEED_ERR_NOMEM;
    if (way->how == KIT_BY_WORKSPACE || way->how == KIT_BY_EXECUTOR) {
        status = heed_linear_run(linear, &p->args, workspace.data, whole);
    } else {
        status = heed_linear_begin(linear, &p->args, n_parts, workspace.data, bytes);
        if (status == HEED_OK)
            status = kit_run_parts(way->how, n_parts, workspace.data, heed_run_part);
    }
    guard_unmap(&workspace);
    return status;
}

heed_status kit_linear_run(heed_context *context, kit_linear *p, const kit_linear_way *way,
                           heed_error *sentence)
{
    heed_linear *linear = NULL;
    const heed_const_view weight = heed_as_const(p->tensor[KIT_LINEAR_W].view);
    const heed_const_view bias = heed_as_const(p->tensor[KIT_LINEAR_BIAS].view);
    kit_linear_seal(p, 0);
    heed_status status =
        heed_linear_create(context, &p->desc, &weight, p->spec.bias_type ? &bias : NULL, &linear);
    kit_linear_seal(p, 1);
    const int uppers = kit_uppers_in_use();
    if (status == HEED_OK)
        status = kit_linear_run_made(linear, p, way);
    const int left = !uppers && kit_uppers_in_use();
    if (status != HEED_OK)
        snprintf(sentence->text, sizeof sentence->text, "%s", heed_last_error());
    if (status == HEED_OK && left) {
        status = HEED_ERR_BACKEND;
        snprintf(sentence->text, sizeof sentence->text, "%s", KIT_UPPERS_LEFT);
    }
    heed_linear_release(linear);
    kit_linear_open(p);
    return status;
}

int kit_linear_differ(const char *what, const kit_linear *all, int64_t first,
                      const kit_linear *part, kit_outcome *outcome)
{
    const kit_matrix *x = &all->tensor[KIT_LINEAR_Y], *y = &part->tensor[KIT_LINEAR_Y];
    for (int64_t r = 0; r < y->rows; r++)
        for (int64_t c = 0; c < y->cols; c++)
            if (memcmp(x->buffer.data + kit_linear_at(x, first + r, c),
                       y->buffer.data + kit_linear_at(y, r, c), y->bytes) != 0) {
                kit_fail(outcome, "%s: the bits of y[%lld, %lld] differ: %.9g and %.9g", what,
                         (long long)(first + r), (long long)c,
                         kit_linear_value(all, KIT_LINEAR_Y, first + r, c),
                         kit_linear_value(part, KIT_LINEAR_Y, r, c));
                return 1;
            }
    return 0;
}

void kit_linear_check(const kit_linear *p, kit_outcome *outcome)
{
    const kit_linear_spec *s = &p->spec;
    const kit_tolerance how = kit_tolerance_of(HEED_ACCURACY_EXACT, s->y_type);
    double error2 = 0, typical2 = 0;
    int64_t where;
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->out_dim; c++) {
            const size_t at = (size_t)(r * s->out_dim + c);
            const double got = kit_linear_value(p, KIT_LINEAR_Y, r, c), want = p->want[at];
            if (!isfinite(p->bound[at]))
                continue;
            if (!kit_linear_is_right(p, &how, r, c))
                kit_fail(outcome, "y[%lld, %lld] is %.9g, should be %.9g +- %.2g", (long long)r,
                         (long long)c, got, want, p->bound[at]);
            if (!isfinite(got) || !isfinite(want))
                continue;
            const double typical = p->typical[at] + how.out * fabs(want) + how.out_floor;
            error2 += (got - want) * (got - want);
            typical2 += typical * typical;
        }
    /* Of few numbers the greatest error may be far from the usual one. */
    const double allowed = s->rows * s->out_dim < 64 ? 8 : 3;
    if (error2 > allowed * allowed * typical2)
        kit_fail(outcome, "y as a whole is off by %.2g, random errors amount to %.2g", sqrt(error2),
                 sqrt(typical2));
    if (!kit_linear_untouched(p, &where))
        kit_fail(outcome, "byte %lld of y's buffer, which is no element, was written",
                 (long long)where);
}

void kit_linear_conform(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for (int side = GUARD_HIGH; side <= GUARD_LOW && outcome->verdict == KIT_PASSED; side++) {
        kit_linear p = {0};
        kit_linear_spec spec = c->linear;
        kit_linear_way way = {.how = KIT_BY_WORKSPACE, .garbage = 0xff};
        heed_error why = {""};
        spec.seed = c->spec.seed;
        if (kit_linear_build(&p, &spec, side) != 0 || kit_linear_solve(&p) != 0)
            kit_fail(outcome, "out of memory");
        else if (kit_status(outcome, kit_linear_run(env->context, &p, &way, &why), why.text,
                            "a linear layer") == 0)
            kit_linear_check(&p, outcome);
        kit_linear_free(&p);
    }
}
