/* Heed: helpers for backends, all static inline, so that a plugin resolves no symbol of libheed.
 * Included by backend.h. Nothing here depends on the rounding or flush-to-zero mode. */
#ifndef HEED_KIT_H
#define HEED_KIT_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"

HEED_BEGIN_C

#if defined(__GNUC__)
#define HEED_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HEED_PRINTF(fmt, args)
#endif

/* ---- reasons ---------------------------------------------------------------------------------- */

/** Writes the reason of a refusal and returns HEED_ERR_UNSUPPORTED. why may be NULL. */
HEED_PRINTF(2, 3) static inline heed_status heed_refuse(heed_error *why, const char *format, ...)
{
    if (why) {
        va_list list;
        va_start(list, format);
        vsnprintf(why->text, sizeof why->text, format, list);
        va_end(list);
    }
    return HEED_ERR_UNSUPPORTED;
}

/* ---- element types ---------------------------------------------------------------------------- */

/** Bytes of one element of a type that is addressed by element; 0 for others. */
static inline uint32_t heed_dtype_bytes(uint32_t type)
{
    return type == HEED_F32 ? 4 : type == HEED_F16 || type == HEED_BF16 ? 2 : type == HEED_I8 ? 1 : 0;
}

/** "f32", "f16", "bf16", "i8", "q8_0"; "none" for anything else. */
static inline const char *heed_dtype_name(uint32_t type)
{
    return type == HEED_F32    ? "f32"
           : type == HEED_F16  ? "f16"
           : type == HEED_BF16 ? "bf16"
           : type == HEED_I8   ? "i8"
           : type == HEED_Q8_0 ? "q8_0"
                               : "none";
}

static inline float heed_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t heed_bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float heed_f32_of_bf16(uint16_t bits)
{
    return heed_f32_of_bits((uint32_t)bits << 16);
}

/** To nearest even; a NaN stays one (its lower payload bits may have been the only ones). */
static inline uint16_t heed_bf16_of_f32(float x)
{
    uint32_t bits = heed_bits_of_f32(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float heed_f32_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 31)
        return heed_f32_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
        if (fraction == 0)
            return heed_f32_of_bits(sign);
        exponent = 1; /* subnormal: shift the leading one into place */
        while (!(fraction & 0x400u)) {
            fraction <<= 1;
            exponent--; /* wraps below 0 and comes right again in the sum below */
        }
        fraction &= 0x3ffu;
    }
    return heed_f32_of_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

/** To nearest even, overflow to infinity, underflow through the f16 subnormals. */
static inline uint16_t heed_f16_of_f32(float x)
{
    uint32_t bits = heed_bits_of_f32(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t shift = 13, half;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) /* below half of the smallest subnormal */
        return (uint16_t)sign;
    if (magnitude < 0x38800000u) { /* subnormal: the implicit one becomes visible */
        shift = 126u - (magnitude >> 23);
        magnitude = (magnitude & 0x7fffffu) | 0x800000u;
    } else {
        magnitude -= 112u << 23;
    }
    half = magnitude >> shift;
    {
        uint32_t rest = magnitude & ((1u << shift) - 1u), middle = 1u << (shift - 1);
        half += rest + (half & 1u) > middle; /* a branch would be guessed wrong half the time */
    }
    return (uint16_t)(sign | half);
}

/** Element `index` of an array of f32, f16 or bf16 at any address. */
static inline float heed_load(uint32_t type, const void *data, int64_t index)
{
    uint16_t half;
    float x;
    if (type == HEED_F32) {
        memcpy(&x, (const char *)data + index * 4, sizeof x);
        return x;
    }
    memcpy(&half, (const char *)data + index * 2, sizeof half);
    return type == HEED_F16 ? heed_f32_of_f16(half) : heed_f32_of_bf16(half);
}

static inline void heed_store(uint32_t type, void *data, int64_t index, float x)
{
    if (type == HEED_F32) {
        memcpy((char *)data + index * 4, &x, sizeof x);
    } else {
        uint16_t half = type == HEED_F16 ? heed_f16_of_f32(x) : heed_bf16_of_f32(x);
        memcpy((char *)data + index * 2, &half, sizeof half);
    }
}

/** The same of a sum in f64, rounded once. On the way to 16 bits it passes through f32 rounded to
 * odd (toward zero, the last bit set if that lost anything), which leaves every tie what it was. */
static inline void heed_store_f64(uint32_t type, void *data, int64_t index, double x)
{
    float near = (float)x;
    if (type != HEED_F32 && (double)near != x && fabs((double)near) < (double)INFINITY) {
        uint32_t bits = heed_bits_of_f32(near);
        near = heed_f32_of_bits((bits - (fabs((double)near) > fabs(x))) | 1u);
    }
    heed_store(type, data, index, near);
}

/* ---- tiles ------------------------------------------------------------------------------------ */

/** The keys of the tile inside row i's causal range and window: [*first, *end), empty if *first >=
 * *end. i is the row in its sequence, not in the tile. */
static inline void heed_row_keys(const heed_tile *tile, int64_t i, int64_t *first, int64_t *end)
{
    int64_t position = i + tile->q_offset;
    int64_t low = position - tile->window_left, high = position + tile->window_right + 1;
    *first = low > tile->k_first ? low : tile->k_first;
    *end = high < tile->k_end ? high : tile->k_end;
}

/** Element w[i, c] of a layer's weights, in elements from weight->data. */
static inline int64_t heed_linear_weight_at(const heed_linear_weight *weight, int64_t i, int64_t c)
{
    return i * weight->in_stride + c / weight->head_cols * weight->head_stride +
           c % weight->head_cols * weight->out_stride;
}

/** act(s) as heed/linear.h defines it, to f64's accuracy. */
static inline double heed_activate(uint32_t activation, double s)
{
    double u;
    if (activation == HEED_ACT_NONE)
        return s;
    if (s == -(double)INFINITY)
        return 0;
    if (activation == HEED_ACT_SILU)
        return s / (1 + exp(-s));
    if (activation == HEED_ACT_GELU) /* 1 + erf would lose the small results of negative s */
        return s / 2 * erfc(s * -0.70710678118654752);
    u = 0.79788456080286536 * s * (1 + 0.044715 * s * s); /* sqrt(2 / pi) */
    return s / (1 + exp(-2 * u)); /* as 1 + tanh(u) = 2 / (1 + exp(-2u)), and loses nothing */
}

/** Turns the sum of the products into y[r, c], r and c counted in the tile: adds the bias, applies the
 * activation, adds the residual, rounds once and writes. */
static inline void heed_linear_finish(const heed_linear_problem *problem,
                                      const heed_linear_tile *tile, int64_t r, int64_t c, double sum)
{
    const heed_matrix *residual = &tile->residual, *y = &tile->y;
    if (tile->bias)
        sum += (double)tile->bias[c];
    sum = heed_activate(problem->activation, sum);
    if (residual->data)
        sum += (double)heed_load(problem->y_type, residual->data,
                                 r * residual->row_stride + c * residual->col_stride);
    heed_store_f64(problem->y_type, y->data, r * y->row_stride + c * y->col_stride, sum);
}

/** Elements from rows->data to dim 0 of key j (of kv head 0), through the page row if there is one.
 * page_stride is the tile's k_page_stride or v_page_stride. */
static inline int64_t heed_key_offset(const heed_rows *rows, const int32_t *pages, uint32_t page_len,
                                      int64_t page_stride, int64_t j)
{
    if (!pages)
        return j * rows->row_stride;
    return pages[j / page_len] * page_stride + j % page_len * rows->row_stride;
}

/** The g-th kv head of a tile, as a tile of its own. */
static inline void heed_tile_of_head(const heed_problem *problem, const heed_tile *tile, uint32_t g,
                                     heed_tile *one)
{
    const int64_t head = (int64_t)g * tile->group, row = head * tile->q_count;
    const struct {
        heed_rows *rows;
        int64_t heads, bytes;
    } moved[] = {
        {&one->q, head, heed_dtype_bytes(problem->q_type)},
        {&one->k, g, heed_dtype_bytes(problem->k_type)},
        {&one->v, g, heed_dtype_bytes(problem->v_type)},
        {&one->out, head, heed_dtype_bytes(problem->out_type)},
        {&one->mask, head, 1},
        {&one->bias, head, heed_dtype_bytes(problem->bias_type)},
        {&one->lse, head, 4},
        {&one->weights, head, 4},
        {&one->scores, head, 4},
    };
    *one = *tile;
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
        if (moved[i].rows->data)
            moved[i].rows->data = (char *)moved[i].rows->data +
                                  moved[i].heads * moved[i].rows->head_stride * moved[i].bytes;
    one->kv_head += g;
    one->first_head += (uint32_t)head;
    one->n_heads = tile->group;
    one->kv_heads = 1;
    one->alibi_slope = tile->alibi_slope ? tile->alibi_slope + head : NULL;
    one->bias_slope = tile->bias_slope ? tile->bias_slope + head : NULL;
    one->sink = tile->sink ? tile->sink + head : NULL;
    one->mask_blocks =
        tile->mask_blocks ? tile->mask_blocks + head * tile->mask_block_stride : NULL;
    one->row_max += row;
    one->row_sum += row;
    one->acc += row * tile->acc_stride;
}

/**
 * Turns the state of tile row r into the final result: adds the sink, normalises, rounds once, and
 * writes out and, where asked for, lse. Leaves the final row_max and row_sum behind. Core calls it
 * for every row that a backend has not finished itself.
 *
 * The row's sum is divided by in f64: its result is the correctly rounded quotient but for the
 * error of the state itself.
 */
static inline void heed_finish_row(const heed_problem *problem, uint32_t state_log2, heed_tile *tile,
                                   int64_t r)
{
    const double log2_e = 1.4426950408889634, ln_2 = 0.6931471805599453;
    int64_t head = r / tile->q_count, row = tile->q_first + r % tile->q_count, d;
    float *acc = tile->acc + r * tile->acc_stride;
    int64_t at = head * tile->out.head_stride + row * tile->out.row_stride;
    double m = (double)tile->row_max[r], sum = (double)tile->row_sum[r], scale, lse;

    if (sum == 0) /* saw nothing: row_max and acc mean nothing */
        m = -(double)INFINITY;
    scale = 1;
    if (tile->sink && tile->sink[head] != -INFINITY) {
        double sink = (double)tile->sink[head], top;
        if (state_log2) {
            sink *= log2_e;
            top = ceil(sink) > m ? ceil(sink) : m;
            scale = sum == 0 ? 0 : exp2(m - top);
            sum = sum * scale + exp2(sink - top);
        } else {
            top = sink > m ? sink : m;
            scale = sum == 0 ? 0 : exp(m - top);
            sum = sum * scale + exp(sink - top);
        }
        m = top;
    }
    lse = sum == 0 ? -(double)INFINITY : (state_log2 ? m * ln_2 : m) + log(sum);
    if (tile->row_sum[r] == 0) {
        for (d = 0; d < problem->v_dim; d++)
            heed_store(problem->out_type, tile->out.data, at + d * tile->out.dim_stride, 0);
    } else {
        scale /= sum;
        for (d = 0; d < problem->v_dim; d++)
            heed_store_f64(problem->out_type, tile->out.data, at + d * tile->out.dim_stride,
                           (double)acc[d] * scale);
    }
    if (tile->lse.data)
        heed_store(HEED_F32, tile->lse.data,
                   head * tile->lse.head_stride + row * tile->lse.row_stride, (float)lse);
    tile->row_max[r] = (float)m;
    tile->row_sum[r] = (float)sum;
}

HEED_END_C

#endif
