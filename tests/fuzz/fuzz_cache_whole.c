/* What fuzz_cache.c compares its pieces with: whole sequences, rotated and attended to at once.
 * Their rotation is compared with float64. See fuzz_cache.h. */
#include "fuzz.h"
#include "fuzz_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

static heed_view dense(const fuzz_cache *c, void *data, int64_t heads, int64_t dim)
{
    return (heed_view){data, {heads * c->most * dim, c->most * dim, dim, 1}};
}

/* ---- rotary ---------------------------------------------------------------------------------- */

void fuzz_cache_turn(const fuzz_cache *c, void *from, void *to, uint32_t type, uint32_t heads)
{
    const heed_rotary_args args = {.struct_size = sizeof args,
                                   .rotary = c->rotary,
                                   .batch = c->batch,
                                   .len = c->most,
                                   .heads = heads,
                                   .dim = c->qk_dim,
                                   .x_type = type,
                                   .y_type = type,
                                   .x = heed_as_const(dense(c, from, heads, c->qk_dim)),
                                   .y = dense(c, to, heads, c->qk_dim),
                                   .lens = c->tokens};
    if (heed_rotary(&args) != HEED_OK)
        fuzz_finding("heed_rotary", heed_last_error());
}

/* One element of a rotated row at `position`, in float64, and a bound for the roundings of the
 * library's. */
static double turned(const fuzz_cache *c, uint32_t type, const void *row, int64_t d,
                     int64_t position, double *bound)
{
    const heed_rotary_desc *r = &c->rotary;
    const int64_t half = r->dims / 2, is_half = r->style == HEED_ROTARY_HALF;
    const double mine = kit_decode(type, row, d), m = r->mscale != 0 ? (double)r->mscale : 1;
    *bound = 0;
    if (!r->style || d >= r->dims)
        return mine;
    const int64_t pair = is_half ? d % half : d / 2, second = is_half ? d >= half : d % 2;
    const double other = kit_decode(type, row, is_half ? (d + half) % r->dims : d ^ 1);
    const double freq = r->freq ? (double)r->freq[pair]
                                : pow(r->base != 0 ? (double)r->base : 10000,
                                      -2.0 * (double)pair / (double)r->dims);
    const double angle = (double)position * (freq / (r->scale != 0 ? (double)r->scale : 1));
    *bound = 4 * 0x1p-24 * (fabs(mine) + fabs(other)) * fabs(m) + 0x1p-148;
    return m * (mine * cos(angle) + (second ? other : -other) * sin(angle));
}

void fuzz_cache_judge_rotary(const fuzz_cache *c, const void *from, const void *to, uint32_t type,
                             uint32_t heads)
{
    const double ulp = type == HEED_F32 ? 0x1p-24 : type == HEED_F16 ? 0x1p-11 : 0x1p-8;
    const double floor = type == HEED_F16 ? 0x1p-25 : 0;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < c->tokens[b]; i++) {
                const int64_t at = ((b * heads + h) * c->most + i) * c->qk_dim;
                const char *row = (const char *)from + at * kit_bytes_of(type);
                for (int64_t d = 0; d < c->qk_dim; d++) {
                    double bound, want = turned(c, type, row, d, i, &bound);
                    const double got = kit_decode(type, to, at + d);
                    if (!(fabs(got - want) <= bound + ulp * (fabs(want) + bound) + floor))
                        fuzz_finding("heed_rotary", "is not the reference's");
                }
            }
}

/* ---- all at once ----------------------------------------------------------------------------- */

/* Copies keys or values out of the cache, as it stores them, into a dense tensor. */
static void *gather(const fuzz_cache *c, int side)
{
    const uint32_t type = c->cache_type[side];
    const int64_t dims = side ? c->v_dim : c->qk_dim, stride = c->cache[side].stride[3];
    const size_t row = fuzz_cache_row_bytes(c, side), n = row * (size_t)(c->batch * c->most);
    const size_t size = stride == 1 ? row : kit_bytes_of(type); /* contiguous bytes */
    char *all = malloc(n * c->kv_heads + 1);
    if (all)
        memset(all, 0xff, n * c->kv_heads); /* NaN behind each sequence */
    for (int64_t b = 0; all && b < c->batch; b++)
        for (int64_t h = 0; h < c->kv_heads; h++)
            for (int64_t j = 0; j < c->tokens[b]; j++) {
                const char *from = (const char *)c->cache[side].data +
                                   heed_offset_bytes(type, fuzz_cache_key(c, side, b, h, j));
                char *to = all + (size_t)((b * c->kv_heads + h) * c->most + j) * row;
                for (int64_t d = 0; d < (stride == 1 ? 1 : dims); d++)
                    memcpy(to + (size_t)d * size, from + d * stride * (int64_t)size, size);
            }
    return all;
}

void fuzz_cache_at_once(fuzz_cache *c, heed_context *context)
{
    const uint32_t heads = c->kv_heads * c->group;
    const size_t size = kit_bytes_of(c->q_type);
    heed_attn_desc desc = fuzz_cache_attention(c);
    void *k = gather(c, 0), *v = c->values_are_keys ? k : gather(c, 1);
    desc.position = HEED_POS_TOP_LEFT;
    heed_attn_args args = {
        .struct_size = sizeof args,
        .batch = c->batch,
        .q_len = c->most,
        .kv_len = c->most,
        .q = heed_as_const(dense(c, c->turned_q, heads, c->qk_dim)),
        .k = heed_as_const(dense(c, k, c->kv_heads, c->qk_dim)),
        .v = heed_as_const(dense(c, v, c->kv_heads, c->values_are_keys ? c->qk_dim : c->v_dim)),
        .out = dense(c, c->whole_out, heads, c->v_dim),
        .q_lens = c->tokens,
        .kv_lens = c->tokens,
        .alibi_slope = c->features & HEED_HAS_ALIBI ? c->slope : NULL,
        .sink = c->features & HEED_HAS_SINK ? c->sink : NULL};
    if (c->features & HEED_HAS_LSE) {
        args.lse = dense(c, c->whole_lse, heads, 1);
        args.lse.stride[3] = 0;
    }
    if (k && v) {
        if (heed_attention(context, &desc, &args) != HEED_OK)
            fuzz_finding("heed_attention of all", heed_last_error());
        const size_t n = (size_t)(c->batch * heads * c->most);
        if (memcmp(c->out, c->whole_out, n * c->v_dim * size) != 0)
            fuzz_finding("attention in pieces", "has other bits than at once");
        if (memcmp(c->lse, c->whole_lse, n * 4) != 0)
            fuzz_finding("attention in pieces", "has other bits of lse than at once");
    }
    free(k);
    if (!c->values_are_keys)
        free(v);
}
