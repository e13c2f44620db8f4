/* heed_mha: every kind of layer against float64 in guarded memory, its bits under everything that
 * may not matter, and what it refuses. */
#include "cases.h"
#include "decode.h"
#include "layer_case.h"
#include "random.h"
#include "ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define BOTTOM .features = HEED_HAS_CAUSAL, .position = HEED_POS_BOTTOM_RIGHT
#define HALF(n) .rotary = {.style = HEED_ROTARY_HALF, .dims = (n)}

/* clang-format off */
static const struct {
    const char *name;
    layer_spec spec;
} table[] = {
    {"attention_alone", {.q_len = 7}},
    {"attention_alone_cross", {.q_len = 7, .kv_len = 11, .d_kv = 24}},
    {"attention_alone_rotary", {.q_len = 7, HALF(12)}},
    {"attention_alone_cache", {.q_len = 7, .cache = LAYER_CONTIGUOUS, .capacity = 20, BOTTOM}},
    {"separate", {.q_len = 9, .projections = LAYER_SEPARATE}},
    {"separate_bias_out", {.q_len = 9, .projections = LAYER_SEPARATE, .bias = 1, .out = 20}},
    {"fused", {.q_len = 9, .projections = LAYER_FUSED, .bias = 1, .out = 24, .residual = 1, BOTTOM}},
    {"fused_out_in", {.q_len = 9, .projections = LAYER_FUSED, .out = 24, .out_in = 1}},
    {"per_head", {.q_len = 5, .projections = LAYER_PER_HEAD, .bias = 1, .out = 9}},
    {"shared", {.q_len = 10, .projections = LAYER_SHARED, .d_model = 24, .kv_heads = 4, .bias = 1}},
    {"shared_gaps", {.q_len = 10, .projections = LAYER_SHARED, .d_model = 24, .kv_heads = 4, .rows = LAYER_GAPS, .out = 8}},
    {"cross", {.q_len = 6, .kv_len = 13, .d_kv = 17, .projections = LAYER_SEPARATE, .bias = 1, .out = 24}},
    {"cross_pair", {.q_len = 6, .kv_len = 13, .d_kv = 17, .projections = LAYER_PAIR, .out = 24}},
    {"pair", {.q_len = 6, .projections = LAYER_PAIR}},
    {"only_q", {.q_len = 6, .kv_len = 8, .d_kv = 24, .d_model = 19, .projections = LAYER_ONLY_Q}},
    {"gaps", {.q_len = 9, .projections = LAYER_FUSED, .out = 24, .residual = 1, .rows = LAYER_GAPS, BOTTOM}},
    {"lens", {.q_len = 19, .projections = LAYER_FUSED, .out = 24, .residual = 1, .rows = LAYER_LENS, BOTTOM}},
    {"lens_no_out", {.q_len = 19, .projections = LAYER_FUSED, .rows = LAYER_LENS, BOTTOM}},
    {"lens_cross", {.q_len = 9, .kv_len = 20, .d_kv = 17, .projections = LAYER_SEPARATE, .out = 24, .rows = LAYER_LENS}},
    {"packed", {.q_len = 19, .projections = LAYER_FUSED, .out = 24, .residual = 1, .rows = LAYER_PACKED, BOTTOM, HALF(12)}},
    {"packed_gaps", {.q_len = 19, .projections = LAYER_SEPARATE, .out = 24, .residual = 1, .rows = LAYER_PACKED_GAPS, BOTTOM}},
    {"packed_cross", {.q_len = 9, .kv_len = 20, .d_kv = 17, .projections = LAYER_PAIR, .out = 24, .rows = LAYER_PACKED_GAPS}},
    {"rotary_half", {.q_len = 9, .projections = LAYER_FUSED, .out = 24, BOTTOM, HALF(12)}},
    {"rotary_partial", {.q_len = 9, .projections = LAYER_SEPARATE, .out = 24, BOTTOM,
     .rotary = {.style = HEED_ROTARY_INTERLEAVED, .dims = 8, .base = 500000, .scale = 2}}},
    {"rotary_positions", {.q_len = 9, .projections = LAYER_FUSED, .out = 24, .positions = 1, HALF(12)}},
    {"rotary_positions_cross", {.q_len = 6, .kv_len = 13, .d_kv = 17, .projections = LAYER_PAIR, .positions = 1, HALF(12)}},
    {"rotary_positions_tree", {.q_len = 19, .projections = LAYER_FUSED, .out = 24, .rows = LAYER_PACKED_GAPS, .cache = LAYER_PAGES, .capacity = 64,
     .lists = LAYER_RANGES, .positions = 1, HALF(12)}},
    {"rotary_cross", {.q_len = 6, .kv_len = 13, .d_kv = 17, .projections = LAYER_PAIR, HALF(12)}},
    {"outputs", {.q_len = 9, .projections = LAYER_FUSED, .out = 24,
     .features = HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_MASK | HEED_HAS_ALIBI | HEED_HAS_SINK, .position = HEED_POS_BOTTOM_RIGHT}},
    {"outputs_lens", {.q_len = 9, .projections = LAYER_FUSED, .rows = LAYER_LENS,
     .features = HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_CAUSAL, .position = HEED_POS_BOTTOM_RIGHT}},
    {"outputs_packed_cache", {.q_len = 9, .projections = LAYER_FUSED, .rows = LAYER_PACKED_GAPS, .cache = LAYER_PAGES, .capacity = 40,
     .features = HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_CAUSAL | HEED_HAS_MASK, .position = HEED_POS_BOTTOM_RIGHT}},
    {"cache", {.q_len = 9, .projections = LAYER_FUSED, .out = 24, .cache = LAYER_CONTIGUOUS, .capacity = 50, BOTTOM, HALF(12)}},
    {"cache_unset", {.q_len = 9, .projections = LAYER_FUSED, .out = 24, .cache = LAYER_CONTIGUOUS, .capacity = 50, HALF(12)}},
    {"cache_decode", {.q_len = 1, .projections = LAYER_FUSED, .out = 24, .residual = 1, .cache = LAYER_CONTIGUOUS, .capacity = 70, BOTTOM, HALF(12)}},
    {"cache_lens", {.q_len = 9, .projections = LAYER_FUSED, .rows = LAYER_LENS, .cache = LAYER_CONTIGUOUS, .capacity = 50, BOTTOM}},
    {"pages", {.q_len = 9, .projections = LAYER_SEPARATE, .out = 24, .cache = LAYER_PAGES, .capacity = 50, BOTTOM, HALF(12)}},
    {"pages_packed", {.q_len = 21, .projections = LAYER_FUSED, .out = 24, .residual = 1, .rows = LAYER_PACKED, .cache = LAYER_PAGES, .capacity = 64, BOTTOM, HALF(12)}},
    {"pages_packed_gaps", {.q_len = 21, .projections = LAYER_PAIR, .out = 24, .rows = LAYER_PACKED_GAPS, .cache = LAYER_PAGES, .capacity = 64, BOTTOM, HALF(12)}},
    {"cross_cache", {.q_len = 3, .kv_len = 13, .d_kv = 17, .projections = LAYER_PAIR, .out = 24, .cache = LAYER_CONTIGUOUS, .capacity = 30}},
    {"cross_cache_again", {.q_len = 3, .kv_len = 13, .d_kv = 17, .projections = LAYER_PAIR, .out = 24, .cache = LAYER_CONTIGUOUS, .capacity = 30, .no_new = 1}},
    {"gaps_decode", {.q_len = 1, .projections = LAYER_FUSED, .out = 24, .residual = 1, .rows = LAYER_GAPS, .cache = LAYER_PAGES, .capacity = 30, BOTTOM}},
    {"cross_cache_rotary", {.q_len = 3, .kv_len = 13, .d_kv = 17, .projections = LAYER_PAIR, .cache = LAYER_PAGES, .capacity = 30, HALF(12)}},
    {"ranges", {.q_len = 19, .projections = LAYER_FUSED, .out = 24, .residual = 1, .lists = LAYER_RANGES}},
    {"ranges_outputs_packed", {.q_len = 9, .projections = LAYER_FUSED, .rows = LAYER_PACKED_GAPS, .cache = LAYER_PAGES, .capacity = 40,
     .features = HEED_HAS_LSE | HEED_HAS_WEIGHTS, .lists = LAYER_RANGES}},
    {"ranges_decode", {.q_len = 1, .projections = LAYER_FUSED, .out = 24, .cache = LAYER_PAGES, .capacity = 70, .lists = LAYER_RANGES, HALF(12)}},
    {"ranges_cross", {.q_len = 6, .kv_len = 20, .d_kv = 17, .projections = LAYER_PAIR, .out = 24, .rows = LAYER_LENS, .lists = LAYER_RANGES}},
    {"blocks", {.q_len = 19, .projections = LAYER_SEPARATE, .out = 24, .rows = LAYER_LENS, .lists = LAYER_BLOCKS, BOTTOM}},
    {"blocks_pages", {.q_len = 9, .projections = LAYER_FUSED, .cache = LAYER_PAGES, .capacity = 64, .lists = LAYER_BLOCKS,
     .features = HEED_HAS_LSE | HEED_HAS_WEIGHTS}},
    {"mask_from", {.q_len = 9, .projections = LAYER_FUSED, .out = 24, .cache = LAYER_CONTIGUOUS, .capacity = 50, .lists = LAYER_FROM,
     .features = HEED_HAS_LSE | HEED_HAS_MASK}},
    {"all_lists", {.q_len = 9, .projections = LAYER_FUSED, .rows = LAYER_PACKED, .cache = LAYER_PAGES, .capacity = 40,
     .lists = LAYER_RANGES | LAYER_BLOCKS | LAYER_FROM, .features = HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_MASK | HEED_HAS_CAUSAL,
     .position = HEED_POS_BOTTOM_RIGHT}},
    /* A single head as wide as a layer of BERT, and small heads in a batch. */
    {"bert_self", {.q_heads = 1, .kv_heads = 1, .batch = 2, .q_len = 6, .d_model = 768, .qk_dim = 768, .v_dim = 768, .projections = LAYER_SEPARATE, .bias = 1, .out_in = 1}},
    {"bert_cross", {.q_heads = 1, .kv_heads = 1, .batch = 2, .q_len = 6, .kv_len = 9, .d_kv = 768, .d_model = 768, .qk_dim = 768, .v_dim = 768, .projections = LAYER_SEPARATE, .bias = 1, .out_in = 1}},
    {"batch_4x10x32_full", {.kv_heads = 4, .batch = 4, .q_len = 10, .d_model = 32, .qk_dim = 8, .v_dim = 8, .projections = LAYER_SEPARATE}},
    {"batch_4x10x32_shared", {.kv_heads = 4, .batch = 4, .q_len = 10, .d_model = 32, .projections = LAYER_SHARED}},
    {"large", {.q_len = 70, .batch = 2, .projections = LAYER_FUSED, .d_model = 130, .qk_dim = 32, .v_dim = 32, .out = 130, .residual = 1, BOTTOM, HALF(32)}},
};
/* clang-format on */

/** Types: all f32; f32 rows with weights and a cache of f16; all bf16. */
static const struct {
    const char *name;
    uint32_t x, w, mid, kv, y;
} types[] = {{"f32", HEED_F32, HEED_F32, HEED_F32, HEED_F32, HEED_F32},
             {"f16", HEED_F32, HEED_F16, HEED_F32, HEED_F16, HEED_F32},
             {"bf16", HEED_BF16, HEED_BF16, HEED_BF16, HEED_BF16, HEED_BF16}};

layer_spec layer_complete(const kit_case *c)
{
    layer_spec s = table[c->variant / 8].spec;
    const size_t t = (size_t)c->variant % 8;
    s.q_heads = s.q_heads ? s.q_heads : 4;
    s.kv_heads = s.kv_heads ? s.kv_heads : 2;
    s.batch = s.batch ? s.batch : 3;
    s.qk_dim = s.qk_dim ? s.qk_dim : s.projections ? 12 : 6;
    s.v_dim = s.v_dim ? s.v_dim : s.projections ? 10 : 6;
    if (s.projections == LAYER_SHARED)
        s.v_dim = s.qk_dim = 8;
    if (!s.projections && s.rotary.style)
        s.qk_dim = s.v_dim = 12;
    if (!s.projections || s.projections == LAYER_ONLY_Q) /* the input is k and v */
        s.v_dim = s.qk_dim;
    if (!s.projections)
        s.kv_heads = s.q_heads, s.d_model = s.q_heads * s.qk_dim;
    if (s.d_kv && (!s.projections || s.projections == LAYER_ONLY_Q))
        s.d_kv = s.kv_heads * s.qk_dim;
    s.d_model = s.d_model ? s.d_model : 23;
    s.x_type = types[t].x;
    s.w_type = types[t].w;
    s.mid_type = s.projections ? types[t].mid : types[t].x;
    s.y_type = types[t].y;
    const int taken = !s.projections || s.projections == LAYER_ONLY_Q;
    /* without a cache k and v are what the projection of all three gives, or the input */
    s.kv_type = s.cache                        ? types[t].kv
                : taken                        ? s.x_type
                : s.projections == LAYER_FUSED ? s.mid_type
                                               : types[t].kv;
    if (s.projections == LAYER_PAIR && !s.d_kv && !s.cache)
        s.kv_type = s.mid_type;
    s.seed = c->spec.seed;
    return s;
}

/* ---- running --------------------------------------------------------------------------------- */

static heed_status run(layer *l, int way, uint32_t n, int garbage)
{
    heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = n, .parallel_for = kit_backwards};
    guard_buffer workspace;
    heed_status status;
    l->args.executor = way == KIT_BY_EXECUTOR ? &executor : NULL;
    if (way == KIT_BY_CONTEXT)
        return heed_mha_run(l->mha, &l->args, NULL, 0);
    size_t bytes = (heed_mha_workspace_bytes(l->mha, n) + 63) / 64 * 64;
    if (bytes == 0 || guard_map(&workspace, bytes, GUARD_HIGH, 0, garbage) != 0)
        return HEED_ERR_NOMEM;
    if (way == KIT_BY_WORKSPACE || way == KIT_BY_EXECUTOR) {
        status = heed_mha_run(l->mha, &l->args, workspace.data, bytes);
    } else {
        status = heed_mha_begin(l->mha, &l->args, n, workspace.data, bytes);
        if (status == HEED_OK)
            status = kit_run_parts(way, n, workspace.data, heed_run_part);
    }
    guard_unmap(&workspace);
    l->args.executor = NULL;
    return status;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void conform(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const struct {
        int how;
        uint32_t n_parts;
    } ways[] = {{KIT_BY_WORKSPACE, 1}, {KIT_BY_CONTEXT, 1}, {KIT_BY_PARTS, 3},
                {KIT_BY_ONE_PART, 2},  {KIT_BY_THREADS, 4}, {KIT_BY_EXECUTOR, 3}};
    const layer_spec spec = layer_complete(c);
    layer l;
    unsigned char *first = NULL;
    if (layer_build(env->context, &l, &spec, c->variant & 8 ? GUARD_LOW : GUARD_HIGH, outcome) != 0)
        goto end;
    const guard_buffer *y = &l.buffer[LAYER_Y];
    first = malloc(y->bytes + 1);
    for (int n = 0; first && n < 6 && outcome->verdict == KIT_PASSED; n++) {
        layer_reset(&l);
        if (kit_status(outcome, run(&l, ways[n].how, ways[n].n_parts, n & 1 ? 0xff : 0xa5),
                       heed_last_error(), "the run") != 0)
            break;
        if (n == 0) {
            layer_check(&l, outcome);
            memcpy(first, y->data, y->bytes);
        } else if (memcmp(first, y->data, y->bytes) != 0) {
            kit_fail(outcome, "way %d to run, with %u parts: other bits", n, ways[n].n_parts);
        }
    }
end:
    free(first);
    layer_free(&l);
}

/* Many parts on many threads, again and again: phases may not run into each other. */
static void crowd(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    layer l;
    unsigned char *first = NULL;
    if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) != 0)
        goto end;
    const guard_buffer *y = &l.buffer[LAYER_Y];
    first = malloc(y->bytes + 1);
    for (int n = 0; first && n < 30 && outcome->verdict == KIT_PASSED; n++) {
        layer_reset(&l);
        const int how = n ? KIT_BY_THREADS : KIT_BY_WORKSPACE;
        if (kit_status(outcome, run(&l, how, 1 + (uint32_t)n % 8, n), heed_last_error(),
                       "the run") != 0)
            break;
        if (!n)
            memcpy(first, y->data, y->bytes);
        else if (memcmp(first, y->data, y->bytes) != 0)
            kit_fail(outcome, "%u parts at once: other bits", 1 + (uint32_t)n % 8);
    }
end:
    free(first);
    layer_free(&l);
}

/* Each sequence of a batch gives the same bits when it runs alone. */
static void alone(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    layer l;
    unsigned char *first = NULL;
    if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) != 0)
        goto end;
    const guard_buffer *y = &l.buffer[LAYER_Y];
    const size_t bytes = kit_bytes_of(spec.y_type);
    const size_t row_bytes =
        bytes * (size_t)(spec.out ? spec.out : (int)(spec.q_heads * spec.v_dim));
    first = malloc(y->bytes + 1);
    if (!first ||
        kit_status(outcome, run(&l, KIT_BY_WORKSPACE, 1, 0), heed_last_error(), "the run") != 0)
        goto end;
    memcpy(first, y->data, y->bytes);
    const heed_mha_args whole = l.args;
    for (uint32_t b = 0; b < spec.batch && outcome->verdict == KIT_PASSED; b++) {
        heed_mha_args *a = &l.args;
        layer_reset(&l);
        *a = whole;
        a->batch = 1;
        heed_const_view *const views[] = {&a->x_q, &a->x_kv, &a->residual};
        for (int n = 0; n < 3; n++)
            if (views[n]->data)
                views[n]->data =
                    (const char *)views[n]->data + b * views[n]->stride[0] * (int64_t)bytes;
        a->y.data = (char *)a->y.data + b * a->y.stride[0] * (int64_t)bytes;
        const int32_t **const lists[] = {&a->q_lens, &a->kv_lens, &a->q_starts, &a->kv_starts,
                                         &a->cache_lens};
        for (int n = 0; n < 5; n++)
            *lists[n] = *lists[n] ? *lists[n] + b : NULL;
        if (a->positions)
            a->positions += b * a->positions_stride;
        if (a->block_table)
            a->block_table += b * a->block_table_stride;
        else if (a->k_cache.data) {
            const int64_t each = kit_bytes_of(spec.kv_type);
            a->k_cache.data = (char *)a->k_cache.data + b * a->k_cache.stride[0] * each;
            a->v_cache.data = (char *)a->v_cache.data + b * a->v_cache.stride[0] * each;
        }
        if (kit_status(outcome, run(&l, KIT_BY_WORKSPACE, 1, 0xff), heed_last_error(), "the run") !=
            0)
            break;
        *a = whole;
        for (int64_t i = 0; i < l.q_lens[b]; i++) {
            size_t at = (size_t)layer_y_row(&l, b, i) * bytes;
            if (memcmp(first + at, y->data + at, row_bytes) != 0)
                kit_fail(outcome, "sequence %u, row %lld: other bits alone", b, (long long)i);
        }
    }
end:
    free(first);
    layer_free(&l);
}

/* ---- co-attention ---------------------------------------------------------------------------- */

static void copy_rows(const layer *to, int which, const void *rows, size_t bytes)
{
    guard_buffer buffer = to->buffer[which];
    guard_open(&buffer);
    memcpy(buffer.data, rows, bytes);
    guard_read_only(&buffer);
}

/* Sequences A and B: each attends to the other's input (parallel), or A to B and then B to what A
 * has become (alternating). Every step is held to float64 on the inputs that it got. */
static void attend_each_other(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const uint32_t type = c->spec.q_type;
    layer_spec spec = {.q_heads = 4,
                       .kv_heads = 4,
                       .qk_dim = 8,
                       .v_dim = 8,
                       .d_model = 32,
                       .d_kv = 32,
                       .batch = 2,
                       .q_len = 9,
                       .kv_len = 5,
                       .projections = LAYER_SEPARATE,
                       .bias = 1,
                       .out = 32,
                       .x_type = type,
                       .w_type = type,
                       .mid_type = type,
                       .kv_type = type,
                       .y_type = type,
                       .seed = c->spec.seed};
    for (int alternating = 0; alternating < 2; alternating++) {
        layer a, b = {0};
        int built = layer_build(env->context, &a, &spec, GUARD_HIGH, outcome);
        layer_spec other = spec;
        other.q_len = spec.kv_len, other.kv_len = spec.q_len, other.seed++;
        if (built == 0 && layer_build(env->context, &b, &other, GUARD_LOW, outcome) == 0) {
            const guard_buffer *x_a = &a.buffer[LAYER_X], *x_b = &b.buffer[LAYER_X];
            copy_rows(&a, LAYER_XKV, x_b->data, x_b->bytes);
            copy_rows(&b, LAYER_XKV, x_a->data, x_a->bytes);
            if (kit_status(outcome, run(&a, KIT_BY_WORKSPACE, 1, 0), heed_last_error(), "A to B") ==
                0)
                layer_check(&a, outcome);
            if (alternating)
                copy_rows(&b, LAYER_XKV, a.buffer[LAYER_Y].data, x_a->bytes);
            if (kit_status(outcome, run(&b, KIT_BY_PARTS, 2, 0), heed_last_error(), "B to A") == 0)
                layer_check(&b, outcome);
        }
        layer_free(&a);
        layer_free(&b);
    }
}

/* ---- in pieces ------------------------------------------------------------------------------- */

enum { TOKENS = 40, MODEL = 24, CAPACITY = 48 };

/* One sequence through a layer with a cache, in pieces of `step` tokens (0: of changing sizes). */
static heed_status pieces(layer *l, int step, const float *x, float *y)
{
    heed_mha_args a = l->args;
    int32_t there = 0;
    for (int turn = 0; there < TOKENS; turn++) {
        int32_t n = step ? step : 1 + turn * 5 % 7, lens = n < TOKENS - there ? n : TOKENS - there;
        a.batch = 1;
        a.q_len = lens;
        a.x_q = (heed_const_view){x + there * MODEL, {0, MODEL, 1, 0}};
        a.y = (heed_view){y + there * MODEL, {0, MODEL, 1, 0}};
        a.cache_lens = &there;
        heed_status status = heed_mha_run(l->mha, &a, NULL, 0);
        if (status != HEED_OK)
            return status;
        there += lens;
    }
    return HEED_OK;
}

static void in_pieces(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const int step[] = {TOKENS, 1, 7, 16, 0};
    static float x[TOKENS][MODEL], whole[TOKENS][MODEL], y[TOKENS][MODEL];
    layer_spec spec = {.q_heads = 4,
                       .kv_heads = 2,
                       .qk_dim = 12,
                       .v_dim = 10,
                       .d_model = MODEL,
                       .batch = 1,
                       .q_len = TOKENS,
                       .capacity = CAPACITY,
                       .projections = LAYER_FUSED,
                       .out = MODEL,
                       .bias = 1,
                       .x_type = HEED_F32,
                       .w_type = c->spec.q_type,
                       .mid_type = HEED_F32,
                       .kv_type = c->spec.q_type,
                       .y_type = HEED_F32,
                       .features = HEED_HAS_CAUSAL | HEED_HAS_REPRODUCIBLE_CHUNKS,
                       .position = HEED_POS_BOTTOM_RIGHT,
                       HALF(12)};
    for (int i = 0; i < TOKENS * MODEL; i++)
        x[i / MODEL][i % MODEL] = (float)kit_normal(kit_hash(9, i));
    for (uint32_t cache = LAYER_CONTIGUOUS; cache <= LAYER_PAGES; cache++) {
        layer l;
        spec.cache = cache;
        if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0)
            for (size_t n = 0; n < COUNT(step) && outcome->verdict == KIT_PASSED; n++) {
                float *to = cache == LAYER_CONTIGUOUS && n == 0 ? whole[0] : y[0];
                for (int b = LAYER_K; b <= LAYER_V; b++)
                    memset(l.buffer[b].data, 0xff, l.buffer[b].bytes);
                if (kit_status(outcome, pieces(&l, step[n], x[0], to), heed_last_error(),
                               "a piece") == 0 &&
                    to == y[0] && memcmp(y, whole, sizeof y) != 0)
                    kit_fail(outcome, "pieces of %d tokens, %s: other bits than at once", step[n],
                             cache == LAYER_PAGES ? "in pages" : "contiguous");
            }
        layer_free(&l);
    }
}

int layer_variant(const char *name)
{
    int n = 0;
    while (strcmp(table[n].name, name) != 0)
        n++;
    return 8 * n;
}

static void add_single_cases(kit_list *list)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        kit_case c = {.quick = 1, .run = in_pieces, .spec.q_type = type};
        snprintf(c.name, sizeof c.name, "mha/in_pieces/%s", kit_type_name(type));
        kit_add(list, &c);
        c.run = attend_each_other;
        snprintf(c.name, sizeof c.name, "mha/co_attention/%s", kit_type_name(type));
        kit_add(list, &c);
    }
}

void kit_mha_cases(kit_list *list)
{
    add_single_cases(list);
    layer_refusal_cases(list);
    for (size_t n = 0; n < COUNT(table); n++)
        for (size_t t = 0; t < COUNT(types); t++) {
            kit_case c = {.quick = t == 0, .run = conform, .variant = (int)(8 * n + t)};
            snprintf(c.name, sizeof c.name, "mha/%s/%s", table[n].name, types[t].name);
            kit_add(list, &c);
            c.quick = 0;
            if (!(table[n].spec.features & (HEED_HAS_WEIGHTS | HEED_HAS_MASK)) &&
                !table[n].spec.lists) {
                c.run = alone;
                snprintf(c.name, sizeof c.name, "mha/alone_%s/%s", table[n].name, types[t].name);
                kit_add(list, &c);
            }
            if (table[n].spec.residual || table[n].spec.rows == LAYER_LENS) {
                c.run = crowd;
                snprintf(c.name, sizeof c.name, "mha/crowd_%s/%s", table[n].name, types[t].name);
                kit_add(list, &c);
            }
        }
}
