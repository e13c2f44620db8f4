/* Runs test problems and takes their results. See run.h. */
#include "run.h"

#include "registers.h"

#include <heed/formats.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

static unsigned int get_mxcsr(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return _mm_getcsr();
#else
    return 0;
#endif
}

static void set_mxcsr(unsigned int value)
{
#if defined(__x86_64__) || defined(__i386__)
    _mm_setcsr(value);
#else
    (void)value;
#endif
}

static heed_status with_workspace(const heed_attn *plan, kit_problem *p, const kit_way *way)
{
    guard_buffer workspace;
    uint32_t n_parts = way->n_parts ? way->n_parts : 1;
    size_t bytes = heed_attn_workspace_bytes(plan, n_parts), whole = (bytes + 63) / 64 * 64;
    heed_status status;
    if (bytes == 0 || guard_map(&workspace, whole, GUARD_HIGH, 0, way->garbage) != 0)
        return HEED_ERR_NOMEM;
    if (way->how == KIT_BY_WORKSPACE || way->how == KIT_BY_EXECUTOR) {
        status = heed_attn_run(plan, &p->args, workspace.data, whole);
    } else {
        status = heed_attn_begin(plan, &p->args, n_parts, workspace.data, bytes);
        if (status == HEED_OK)
            status = kit_run_parts(way->how, n_parts, workspace.data, heed_run_part);
    }
    guard_unmap(&workspace);
    return status;
}

heed_status kit_run(heed_context *context, kit_problem *p, const kit_way *way, heed_error *sentence,
                    const char **changed)
{
    heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = way->n_parts, .parallel_for = kit_backwards};
    heed_attn_desc desc = p->desc;
    unsigned int before = get_mxcsr(), after;
    const int uppers = kit_uppers_in_use();
    heed_attn *plan = NULL;
    heed_status status;

    desc.max_batch += way->more;
    desc.max_q_len += way->more;
    desc.max_kv_len += way->more + way->more_keys;
    p->args.executor = way->how == KIT_BY_EXECUTOR ? &executor : NULL;
    p->args.error = way->error ? sentence : NULL;
    if (way->mxcsr)
        set_mxcsr(way->mxcsr);
    if (way->how == KIT_BY_CALL) {
        status = heed_attention(context, &desc, &p->args);
    } else {
        status = heed_attn_create(context, &desc, &plan);
        if (status == HEED_OK)
            status = way->how == KIT_BY_CONTEXT ? heed_attn_run(plan, &p->args, NULL, 0)
                                                : with_workspace(plan, p, way);
    }
    after = get_mxcsr();
    set_mxcsr(before);
    *changed = NULL;
    /* The flags of exceptions that were raised (the low six bits) may change. */
    if (((after ^ (way->mxcsr ? way->mxcsr : before)) & ~0x3fu) != 0)
        *changed = "MXCSR is not what it was before the call";
    else if (!uppers && kit_uppers_in_use())
        *changed = KIT_UPPERS_LEFT;
    if (status != HEED_OK && (!way->error || !sentence->text[0])) /* the plan failed, not the run */
        snprintf(sentence->text, sizeof sentence->text, "%s", heed_last_error());
    heed_attn_release(plan);
    p->args.executor = NULL;
    p->args.error = NULL;
    return status;
}

/* ---- results as bits ------------------------------------------------------------------------- */

static const int output_of[4] = {KIT_OUT, KIT_LSE, KIT_WEIGHTS, KIT_SCORES};
static const char *const output_name[4] = {"out", "lse", "weights", "scores"};

int kit_take(const kit_problem *p, kit_result *result)
{
    size_t total = 1;
    memset(result, 0, sizeof *result);
    for (int o = 0; o < 4; o++) {
        const kit_tensor *t = &p->tensor[output_of[o]];
        if (t->bytes)
            result->n[o] = (size_t)(t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]);
        total += result->n[o];
    }
    uint32_t *at = result->memory = calloc(total, sizeof(uint32_t));
    if (!at)
        return -1;
    uint32_t **const to[4] = {&result->out, &result->lse, &result->weights, &result->scores};
    for (int o = 0; o < 4; o++) {
        const kit_tensor *t = &p->tensor[output_of[o]];
        if (!t->bytes)
            continue;
        *to[o] = at;
        for (int64_t b = 0; b < t->dim[0]; b++)
            for (int64_t h = 0; h < t->dim[1]; h++)
                for (int64_t i = 0; i < t->dim[2]; i++)
                    for (int64_t d = 0; d < t->dim[3]; d++, at++)
                        if (i < p->q_lens[b])
                            memcpy(at, p->buffer[t->buffer].data + kit_at(t, b, h, i, d), t->bytes);
    }
    return 0;
}

void kit_drop(kit_result *result)
{
    free(result->memory);
    memset(result, 0, sizeof *result);
}

static float as_f32(uint32_t bits, uint32_t bytes)
{
    float x;
    if (bytes == 2) /* f16 or bf16: good enough to print as the upper half */
        bits <<= 16;
    memcpy(&x, &bits, 4);
    return x;
}

/* An element's bits, of a dense output of the shape of t. */
static uint32_t bits_at(const kit_rows *rows, const kit_tensor *t, const uint32_t *output,
                        int64_t h, int64_t i, int64_t d)
{
    return output[((rows->b * t->dim[1] + h) * t->dim[2] + rows->first + i) * t->dim[3] + d];
}

static uint32_t output_type(const kit_problem *p, int output)
{
    return output_of[output] == KIT_OUT ? p->spec.out_type : HEED_F32;
}

/* Two NaNs, of any sign and payload: which of its operands' an addition passes on is up to the
 * compiler. */
static int are_nan(uint32_t type, uint32_t a, uint32_t z)
{
    return isnan(heed_load(type, &a, 0)) && isnan(heed_load(type, &z, 0));
}

int kit_differ(kit_outcome *outcome, const char *what, int64_t n_rows, kit_rows x, kit_rows y)
{
    const kit_result *a = x.result, *z = y.result;
    const uint32_t *left[4] = {a->out, a->lse, a->weights, a->scores};
    const uint32_t *right[4] = {z->out, z->lse, z->weights, z->scores};
    for (int o = 0; o < 4; o++) {
        const kit_tensor *t = &x.problem->tensor[output_of[o]];
        const kit_tensor *s = &y.problem->tensor[output_of[o]];
        if (!left[o] || !right[o])
            continue;
        int64_t dims = t->dim[3] < s->dim[3] ? t->dim[3] : s->dim[3];
        for (int64_t h = 0; h < t->dim[1]; h++)
            for (int64_t i = 0; i < n_rows; i++)
                for (int64_t d = 0; d < dims; d++) {
                    uint32_t l = bits_at(&x, t, left[o], h, i, d);
                    uint32_t r = bits_at(&y, s, right[o], h, i, d);
                    if (l == r || are_nan(output_type(x.problem, o), l, r))
                        continue;
                    kit_fail(outcome,
                             "%s: the bits of %s differ at sequence %lld, head %lld, row "
                             "%lld, element %lld: %08x (%g) and %08x (%g)",
                             what, output_name[o], (long long)x.b, (long long)h,
                             (long long)(x.first + i), (long long)d, l, (double)as_f32(l, t->bytes),
                             r, (double)as_f32(r, s->bytes));
                    return 1;
                }
    }
    return 0;
}

int kit_all_differ(kit_outcome *outcome, const char *what, const kit_problem *p,
                   const kit_result *x, const kit_problem *q, const kit_result *y)
{
    for (uint32_t b = 0; b < p->spec.batch; b++)
        if (kit_differ(outcome, what, p->q_lens[b], (kit_rows){p, x, b, 0}, (kit_rows){q, y, b, 0}))
            return 1;
    return 0;
}
