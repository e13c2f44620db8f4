/* The values of a problem made of bytes: garbage everywhere, and numbers where some row looks. A
 * value is a function of its address, so that elements with several names have one. See
 * fuzz_problem.h. */
#include "fuzz_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "random.h"

enum { SERIES = 4, MASK_ISLANDS = 4, MASK_KINDS };

/* How the scores of a problem go. */
typedef struct values {
    uint64_t seed;
    int wild;         /* odd values among the visible too */
    uint32_t gain;    /* q is 2^gain times as large */
    uint32_t pattern; /* of levels that go by the key; 0: none */
    double rise;      /* a level, in units of k */
    int64_t period;
} values;

/* Bits of a number of magnitude 2^-6 to 2 in any of the three types, times 2^gain. */
static uint32_t tame_bits(uint32_t type, uint64_t random, uint32_t gain)
{
    uint32_t exponent = (uint32_t)(random >> 32) % 7 + gain, low = (uint32_t)random;
    if (type == HEED_F32)
        return (low & 0x80000000u) | (121 + exponent) << 23 | (low & 0x7fffffu);
    if (type == HEED_F16)
        return (low & 0x8000u) | (9 + exponent) << 10 | (low & 0x3ffu);
    return (low & 0x8000u) | (121 + exponent) << 7 | (low & 0x7fu);
}

/* NaN, infinities and the largest numbers. */
static uint32_t garbage_bits(uint32_t type, uint64_t random)
{
    static const uint32_t f32[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff};
    static const uint32_t f16[] = {0x7e00, 0x7c00, 0xfc00, 0xfbff};
    uint32_t which = (uint32_t)(random >> 40) & 3;
    return type == HEED_F16 ? f16[which] : type == HEED_F32 ? f32[which] : f32[which] >> 16;
}

/* Where in memory the first element starts: in front of it is the slack that makes addresses odd.
 */
static size_t first_element(const fuzz_tensor *t)
{
    return (size_t)(t->first - t->memory) % t->element;
}

static void put(const fuzz_tensor *t, int64_t at, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    unsigned char *to = t->first + at * (int64_t)t->element;
    memcpy(to, t->element == 4 ? (void *)&bits : (void *)&half, t->element);
}

static void garbage(fuzz_tensor *t, uint32_t type, uint64_t *state)
{
    if (!t->memory)
        return;
    memset(t->memory, 0xff, t->bytes);
    for (size_t at = first_element(t); at + t->element <= t->bytes; at += t->element) {
        uint32_t bits = garbage_bits(type, fuzz_next(state));
        uint16_t half = (uint16_t)bits;
        memcpy(t->memory + at, t->element == 4 ? (void *)&bits : (void *)&half, t->element);
    }
}

/* ---- mask and bias -----------------------------------------------------------------------------
 */

static void fill_mask(const fuzz_problem *p, uint64_t *state, uint32_t kind)
{
    const fuzz_tensor *t = &p->tensor[FUZZ_MASK];
    for (size_t at = 0; t->memory && at < t->bytes; at++) {
        uint64_t random = fuzz_next(state);
        t->memory[at] = kind == 0                   ? (unsigned char)(random & 1)
                        : kind == 1                 ? (unsigned char)(random >> 56)
                        : kind == 2                 ? 0
                        : kind == 3 && random >> 60 ? 0
                                                    : 255;
    }
    if (!t->memory || kind != MASK_ISLANDS)
        return;
    /* One key of 512 is nobody's, and every third row sees nothing of some blocks. */
    for (int64_t b = 0; b < t->dim[0]; b++)
        for (int64_t h = 0; h < t->dim[1]; h++)
            for (int64_t i = 0; i < t->dim[2]; i++)
                for (int64_t j = 0; j < t->dim[3]; j++)
                    if (j % 512 == 77 || ((i + j / 128) % 3 == 0 && j / 64 % 5 != 4))
                        t->first[fuzz_at(p, FUZZ_MASK, b, h, i, j)] = 0;
}

/* A bias of -inf masks: put some in. */
static uint32_t bias_bits(const values *v, uint32_t type, int64_t at)
{
    uint64_t random = kit_hash(v->seed ^ FUZZ_BIAS, at);
    if (v->seed & 1 && random >> 62 == 0)
        return type == HEED_F32 ? 0xff800000u : type == HEED_F16 ? 0xfc00u : 0xff80u;
    if (v->wild && random >> 58 == 63)
        return (uint32_t)(random >> 20);
    return tame_bits(type, random, 0);
}

/* ---- q, k, v -----------------------------------------------------------------------------------
 */

static double level(const values *v, int64_t series, int64_t key)
{
    const int64_t at = key / v->period;
    const uint64_t draw = kit_hash(v->seed + 7 * (uint64_t)series, at);
    const int64_t within = draw & 1 ? 0 : (int64_t)(draw >> 1) % v->period;
    const int after = key % v->period >= within;
    switch (v->pattern) {
    case 1: /* steps */
        return (double)((at + after) % 9 - 8);
    case 2:
        return (double)((at + after) * 5 % 8 - 7);
    case 3: /* spikes */
        return key % v->period == within && draw >> 62 == 0 ? (double)(1 << (draw >> 50) % 3) : 0;
    case 4: /* a spike for each series, and a greater one for another in the same period */
        if (at != series / 2 + 1)
            return 0;
        return series % 2 ? 4 * (key % v->period == v->period / 2) : key % v->period == 17;
    default:
        return -(double)((at + after) % 9);
    }
}

static void fill_row(const fuzz_problem *p, const values *v, int which, uint32_t type, int64_t b,
                     int64_t h, int64_t i, uint32_t dim)
{
    const fuzz_tensor *t = &p->tensor[which];
    const int64_t first = fuzz_at(p, which, b, h, i, 0), stride = t->view.stride[3];
    const uint64_t seed = v->seed + (uint64_t)which;
    for (uint32_t d = 0; d < dim; d++) {
        const int64_t at = first + (int64_t)d * stride;
        uint64_t random = kit_hash(seed, at);
        if (v->wild && random >> 60 == 0)
            put(t, at, (uint32_t)(random >> 20));
        else
            put(t, at, tame_bits(type, random, which == FUZZ_Q ? v->gain : 0));
    }
    /* Not every row sees a level, and broadcast elements keep the last that was put there. */
    if (!v->pattern || which == FUZZ_V || dim <= SERIES)
        return;
    const uint64_t kind = kit_hash(seed ^ 99, first);
    for (int64_t d = 0; d < SERIES; d++) {
        double x = which == FUZZ_K ? level(v, d, i) * v->rise
                                   : (double)((int64_t)(kind % (2 * SERIES)) == d ? 8 : 0);
        x = x > 60000 ? 60000 : x < -60000 ? -60000 : x;
        kit_encode(type, t->first, first + d * stride, x);
    }
}

/* The keys that row i of sequence b may see by its range. */
static void range(const fuzz_problem *p, int64_t b, int64_t i, int64_t *first, int64_t *end)
{
    const heed_attn_desc *d = &p->desc;
    const int64_t far = INT64_C(1) << 40;
    int64_t n = fuzz_kv_len(p, b), position = i;
    if (d->position == HEED_POS_BOTTOM_RIGHT)
        position += n - fuzz_q_len(p, b);
    else if (d->position == HEED_POS_GIVEN)
        position += p->q_offsets[b];
    *first = 0;
    *end = n;
    if (d->features & HEED_HAS_CAUSAL && position + 1 < *end)
        *end = position + 1;
    if (!(d->features & HEED_HAS_WINDOW))
        return;
    if (d->window_left >= 0 && d->window_left < far && position - d->window_left > *first)
        *first = position - d->window_left;
    if (d->window_right >= 0 && d->window_right < far && position + d->window_right + 1 < *end)
        *end = position + d->window_right + 1;
}

/* Marks the keys that row i of head h sees, and writes its bias. Returns whether it sees any. */
static int look(const fuzz_problem *p, const values *v, int64_t b, int64_t h, int64_t i,
                unsigned char *seen)
{
    const fuzz_tensor *mask = &p->tensor[FUZZ_MASK], *bias = &p->tensor[FUZZ_BIAS];
    const uint32_t type = p->desc.bias_type;
    const uint32_t hidden = type == HEED_F32 ? 0xff800000u : type == HEED_F16 ? 0xfc00u : 0xff80u;
    int64_t first, end, any = 0;
    range(p, b, i, &first, &end);
    for (int64_t j = first; j < end; j++) {
        if (mask->memory && !mask->first[fuzz_at(p, FUZZ_MASK, b, h, i, j)])
            continue;
        if (bias->memory) {
            const int64_t at = fuzz_at(p, FUZZ_BIAS, b, h, i, j);
            const uint32_t bits = bias_bits(v, type, at);
            put(bias, at, bits);
            if ((type == HEED_F32 ? bits : bits & 0xffff) == hidden)
                continue;
        }
        any = seen[j] = 1;
    }
    return any != 0;
}

static int fill_visible(const fuzz_problem *p, const values *v)
{
    const heed_attn_desc *d = &p->desc;
    const int64_t group = d->q_heads / d->kv_heads;
    unsigned char *seen = malloc((size_t)p->args.kv_len + 1);
    if (!seen)
        return -1;
    for (int64_t b = 0; b < p->args.batch; b++)
        for (int64_t g = 0; g < d->kv_heads; g++) {
            memset(seen, 0, (size_t)p->args.kv_len + 1);
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                for (int64_t i = 0; i < fuzz_q_len(p, b); i++)
                    if (look(p, v, b, h, i, seen))
                        fill_row(p, v, FUZZ_Q, d->q_type, b, h, i, d->qk_dim);
            for (int64_t j = 0; j < fuzz_kv_len(p, b); j++) {
                if (!seen[j])
                    continue;
                fill_row(p, v, FUZZ_K, d->k_type, b, g, j, d->qk_dim);
                fill_row(p, v, FUZZ_V, d->v_type, b, g, j, d->v_dim);
            }
        }
    free(seen);
    return 0;
}

/* Rises of 2^3 to 2^12 in the weights, or far more; 0 where the scale makes nothing of a level. */
static void choose_pattern(const heed_attn_desc *d, int large, fuzz_bytes *bytes, values *v)
{
    static const int64_t period[] = {16, 64, 128, 256, 512, 1024, 5, 100};
    const double scale =
        d->features & HEED_HAS_SCALE ? (double)d->scale : 1 / sqrt((double)d->qk_dim);
    const uint32_t draw = fuzz_byte(bytes);
    v->gain = large || fuzz_byte(bytes) & 1 ? fuzz_below(bytes, 6) : 0;
    v->pattern = fuzz_rarely(bytes, large ? 2 : 3) ? 1 + draw % 5 : 0;
    v->period = period[draw / 5 % 8];
    v->rise = 3 + fuzz_below(bytes, 10);
    if (draw >> 5 == 7)
        v->rise *= 8 << fuzz_below(bytes, 6);
    v->rise *= 0.6931471805599453 / (8 * fabs(scale));
    if (!(fabs(scale) > 0.01)) /* levels would be too large for f16 */
        v->pattern = 0;
}

int fuzz_fill(fuzz_problem *p, fuzz_bytes *bytes)
{
    values v = {.seed = UINT64_C(0x9e3779b97f4a7c15) ^ fuzz_byte(bytes) << 8 ^ fuzz_byte(bytes)};
    uint64_t state = v.seed;
    v.wild = fuzz_rarely(bytes, p->large ? 8 : 4);
    p->tame = !v.wild;
    choose_pattern(&p->desc, p->large, bytes, &v);
    garbage(&p->tensor[FUZZ_Q], p->desc.q_type, &state);
    garbage(&p->tensor[FUZZ_K], p->desc.k_type, &state);
    garbage(&p->tensor[FUZZ_V], p->desc.v_type, &state);
    garbage(&p->tensor[FUZZ_BIAS], p->desc.bias_type, &state);
    const uint32_t kind = fuzz_below(bytes, p->large ? 2 * MASK_KINDS : MASK_KINDS);
    fill_mask(p, &state, kind < MASK_KINDS ? kind : MASK_ISLANDS);
    if (fill_visible(p, &v) != 0)
        return -1;
    for (int h = 0; h < FUZZ_MAX_HEADS; h++) {
        p->alibi_slope[h] = (float)(fuzz_next(&state) >> 56) / 1024;
        p->bias_slope[h] = (float)(fuzz_next(&state) >> 56) / 128;
        p->sink[h] =
            (fuzz_next(&state) & 7) == 0 ? -INFINITY : (float)(fuzz_next(&state) >> 56) / 64;
    }
    if (p->desc.features & HEED_HAS_ALIBI)
        p->args.alibi_slope = p->alibi_slope;
    if (p->desc.features & HEED_HAS_BIAS_SLOPE)
        p->args.bias_slope = p->bias_slope;
    if (p->desc.features & HEED_HAS_SINK)
        p->args.sink = p->sink;
    fuzz_reset_outputs(p);
    return 0;
}
