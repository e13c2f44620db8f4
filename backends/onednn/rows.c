/*
 * What happens to the rows of a block of scores between the two products, and packing for the
 * products. Compiled once per instruction set.
 *
 * Work       plain loops where the compiler makes vectors of them, vec.h where an order of summation or
 *            an exponential is needed.
 * Edges      reads mask and bias in the row's range only, and of tensors only the rows; s is
 *            scratch and holds whole vectors.
 * Numerics   scores end in log2 units. exp2 is within 2 ulp (vec.h); m may be any float, so that the
 *            greatest score itself can be the reference and its weight exactly 1.
 */
#include "rows.h"

#include "../simd/vec/vec.h"

static void hide(float *s, int64_t first, int64_t end)
{
    for (int64_t j = first; j < end; j++)
        s[j] = -INFINITY;
}

static void apply_mask(float *s, const uint8_t *mask, int64_t stride, int64_t first, int64_t end)
{
    if (stride == 1) {
        for (int64_t j = first; j < end; j++)
            s[j] = mask[j] ? s[j] : -INFINITY;
    } else {
        for (int64_t j = first; j < end; j++)
            s[j] = mask[j * stride] ? s[j] : -INFINITY;
    }
}

/* A bias of -inf hides, whatever the score and the slope are. */
static float biased(float s, float slope, float bias)
{
    return bias == -INFINITY ? -INFINITY : s + slope * bias;
}

static void apply_bias(const heed_onednn_row *row)
{
    float *s = row->s;
    if (row->bias_type == HEED_F32 && row->bias_stride == 1 && (uintptr_t)row->bias % 4 == 0) {
        const float *bias = (const float *)row->bias + row->bias_at;
        for (int64_t j = row->first; j < row->end; j++)
            s[j] = biased(s[j], row->bias_slope, bias[j]);
    } else {
        for (int64_t j = row->first; j < row->end; j++)
            s[j] =
                biased(s[j], row->bias_slope,
                       heed_load(row->bias_type, row->bias, row->bias_at + j * row->bias_stride));
    }
}

static void apply_softcap(float *s, int64_t n, float softcap)
{
    const vf cap = v_set1(softcap);
    for (int64_t j = 0; j < n; j += LANES)
        v_store(s + j, v_mul(cap, v_tanh(v_div(v_load(s + j), cap))));
}

static void apply_alibi(const heed_onednn_row *row)
{
    float *s = row->s, slope = row->alibi_slope;
    int32_t distance = row->distance, end = (int32_t)row->end;
    for (int32_t j = (int32_t)row->first; j < end; j++)
        s[j] += slope * ((float)(distance + j) - row->far);
}

/* Turns the scores into log2 units if they are not in them, and returns the greatest. */
static float convert_and_top(float *s, int64_t n, int to_log2)
{
    vf top = v_set1(-INFINITY), second = top;
    float lane[LANES], most = -INFINITY;
    if (!to_log2) {
        for (int64_t j = 0; j < n; j += 2 * LANES) {
            top = v_max(v_load(s + j), top);
            second = v_max(v_load(s + j + LANES), second);
        }
    } else {
        for (int64_t j = 0; j < n; j += LANES) {
            vf x = v_to_log2(v_load(s + j));
            v_store(s + j, x);
            top = v_max(x, top);
        }
    }
    v_store(lane, v_max(top, second));
    for (int i = 0; i < LANES; i++)
        most = lane[i] > most ? lane[i] : most;
    return most;
}

static float score_row(const heed_onednn_row *row)
{
    float *s = row->s;
    int cap = row->has_softcap && row->stage >= HEED_SCORES_SOFTCAPPED;
    if (row->first == row->end) {
        hide(s, 0, row->width);
        return -INFINITY;
    }
    /* Before anything is hidden: a factor may be 0 or negative. */
    if (row->factor != 1)
        for (int64_t j = 0; j < row->width; j++)
            s[j] *= row->factor;
    if (cap)
        apply_softcap(s, row->width, row->softcap);
    if (row->stage >= HEED_SCORES_BIASED && row->has_alibi)
        apply_alibi(row);
    if (row->stage >= HEED_SCORES_BIASED && row->bias)
        apply_bias(row);
    hide(s, 0, row->first);
    hide(s, row->end, row->width);
    if (row->listed)
        apply_mask(s, row->listed, 1, row->first, row->end);
    if (row->mask && row->stage >= HEED_SCORES_BIASED)
        apply_mask(s, row->mask, row->mask_stride, row->first, row->end);
    return convert_and_top(s, row->width, row->to_log2);
}

static float weigh(float *s, int64_t n, float m, uint16_t *p)
{
    vf sum = v_zero(), second = v_zero(), reference = v_set1(m);
    float lane[LANES], total = 0;
    if (p) {
        for (int64_t j = 0; j < n; j += LANES) {
            vf w = v_exp2(v_sub(v_load(s + j), reference));
            v_store(s + j, w);
            v_store_type(HEED_BF16, p + j, w, LANES);
            sum = v_add(sum, w);
        }
    } else {
        for (int64_t j = 0; j < n; j += 2 * LANES) {
            vf w = v_exp2(v_sub(v_load(s + j), reference));
            vf x = v_exp2(v_sub(v_load(s + j + LANES), reference));
            v_store(s + j, w);
            v_store(s + j + LANES, x);
            sum = v_add(sum, w);
            second = v_add(second, x);
        }
    }
    v_store(lane, v_add(sum, second));
    for (int i = 0; i < LANES; i++)
        total += lane[i];
    return total;
}

static void accumulate(float *acc, const float *o, int64_t n, float factor)
{
    vf by = v_set1(factor);
    int64_t d = 0;
    for (; d + LANES <= n; d += LANES)
        v_store(acc + d, v_fma(v_load(acc + d), by, v_load(o + d)));
    if (d < n) {
        int rest = (int)(n - d);
        v_store_n(acc + d, v_fma(v_load_n(acc + d, rest), by, v_load_n(o + d, rest)), rest);
    }
}

/* x - x is 0, or a NaN where x is an infinity or a NaN. */
static int all_finite(const float *x, int64_t n)
{
    vf sum = v_zero();
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        sum = v_add(sum, v_sub(v_load(x + j), v_load(x + j)));
    if (j < n) {
        vf last = v_load_n(x + j, (int)(n - j));
        sum = v_add(sum, v_sub(last, last));
    }
    return m_bits(m_nan(sum)) == 0;
}

static void pack(float *to, uint32_t type, const void *from, int64_t at, int64_t stride, int64_t n,
                 float factor)
{
    const char *data = (const char *)from + at * (int64_t)heed_dtype_bytes(type);
    vf by = v_set1(factor);
    int64_t d = 0;
    if (stride != 1) {
        for (; d < n; d++)
            to[d] = heed_load(type, from, at + d * stride) * factor;
        return;
    }
    if (type == HEED_F32 && factor == 1) {
        memcpy(to, data, (size_t)n * sizeof *to);
        return;
    }
    for (; d < n; d += LANES, data += LANES * heed_dtype_bytes(type)) {
        int rest = n - d < LANES ? (int)(n - d) : LANES;
        v_store_n(to + d, v_mul(v_load_type(type, data, rest), by), rest);
    }
}

static float exp2_of(float x)
{
    float lane[LANES];
    v_store(lane, v_exp2(v_set1(x)));
    return lane[0];
}

const heed_onednn_rows HEED_ISA_FUNCTION(heed_onednn_rows) = {
    .isa = V_ISA,
    .score = score_row,
    .weigh = weigh,
    .accumulate = accumulate,
    .all_finite = all_finite,
    .pack = pack,
    .exp2 = exp2_of,
};
