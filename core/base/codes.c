/* Converts rows of numbers to rows of codes; see codes.h. The common case is done four numbers at a
 * time with SSE2, which every x86-64 has. Blocks to which a special rule of formats.h applies (a
 * NaN, an infinity, two equal extremes, zeros) go through the functions there. */
#include "codes.h"

#if defined(__SSE2__)
#include <emmintrin.h>

static float least_of(__m128 x)
{
    x = _mm_min_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_min_ss(x, _mm_shuffle_ps(x, x, 1)));
}

static float most_of(__m128 x)
{
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}

/* Packs four registers of numbers from -128 to 255 into sixteen bytes. */
static __m128i bytes_of(__m128i a, __m128i b, __m128i c, __m128i d, int is_signed)
{
    const __m128i low = _mm_packs_epi32(a, b), high = _mm_packs_epi32(c, d);
    return is_signed ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high);
}

/* heed_widen_range for whole groups of 16 numbers; the rest is left to the caller. Returns how many
 * were done: none if one of them is a NaN. */
static int64_t widen_range(const float *x, int64_t n, float *least, float *most)
{
    const int64_t whole = n - n % 16;
    __m128 low[2], high[2], bad = _mm_setzero_ps();
    if (!whole)
        return 0;
    low[0] = low[1] = _mm_set1_ps(INFINITY);
    high[0] = high[1] = _mm_set1_ps(-INFINITY);
    for (int64_t i = 0; i < whole; i += 8)
        for (int j = 0; j < 2; j++) {
            const __m128 a = _mm_loadu_ps(x + i + 4 * j);
            low[j] = _mm_min_ps(low[j], a);
            high[j] = _mm_max_ps(high[j], a);
            bad = _mm_or_ps(bad, _mm_cmpunord_ps(a, a));
        }
    if (_mm_movemask_ps(bad))
        return 0;
    const float found[] = {least_of(_mm_min_ps(low[0], low[1])),
                           most_of(_mm_max_ps(high[0], high[1]))};
    heed_widen_range(found, 2, least, most);
    return whole;
}

static int64_t codes_by(uint32_t type, const float *x, int64_t n, float scale, float zero,
                        uint8_t *code)
{
    const __m128 s = _mm_set1_ps(scale), z = _mm_set1_ps(zero);
    const __m128 least = _mm_set1_ps(type == HEED_I8 ? -128 : 0);
    const __m128 most = _mm_set1_ps(type == HEED_I8 ? 127 : type == HEED_U8 ? 255 : 15);
    const int64_t whole = n - n % 16;
    for (int64_t i = 0; i < whole; i += 16) {
        __m128i c[4];
        for (int j = 0; j < 4; j++) {
            __m128 a = _mm_add_ps(_mm_div_ps(_mm_loadu_ps(x + i + 4 * j), s), z);
            a = _mm_and_ps(a, _mm_cmpord_ps(a, a)); /* NaN: 0 */
            c[j] = _mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(a, least), most));
        }
        _mm_storeu_si128((__m128i *)(code + i), bytes_of(c[0], c[1], c[2], c[3], type == HEED_I8));
    }
    return whole;
}

/* The same as heed_e4m3_of_f32, four at a time. */
static __m128i e4m3_of(__m128 x)
{
    const __m128i bits = _mm_castps_si128(x), one = _mm_set1_epi32(1);
    const __m128 size = _mm_andnot_ps(_mm_set1_ps(-0.0f), x);
    const __m128 held = _mm_min_ps(size, _mm_set1_ps(448)); /* a NaN: 448 */
    const __m128i h = _mm_castps_si128(held);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(h, 20), one);
    const __m128i normal = _mm_srli_epi32(
        _mm_add_epi32(_mm_add_epi32(h, odd), _mm_set1_epi32(0x7ffff - (120 << 23))), 20);
    const __m128i small = _mm_sub_epi32(_mm_castps_si128(_mm_add_ps(held, _mm_set1_ps(0x1p14f))),
                                        _mm_set1_epi32(0x46800000));
    const __m128i is_small = _mm_castps_si128(_mm_cmplt_ps(held, _mm_set1_ps(0x1p-6f)));
    const __m128i is_nan = _mm_castps_si128(_mm_cmpunord_ps(x, x));
    const __m128i code =
        _mm_or_si128(_mm_and_si128(is_small, small), _mm_andnot_si128(is_small, normal));
    const __m128i sign = _mm_and_si128(_mm_srli_epi32(bits, 24), _mm_set1_epi32(0x80));
    return _mm_or_si128(_mm_or_si128(code, sign), _mm_and_si128(is_nan, _mm_set1_epi32(0x7f)));
}

static int64_t f8_by(const float *x, int64_t n, float scale, uint8_t *code)
{
    const __m128 s = _mm_set1_ps(scale);
    const int64_t whole = n - n % 16;
    for (int64_t i = 0; i < whole; i += 16) {
        __m128i c[4];
        for (int j = 0; j < 4; j++)
            c[j] = e4m3_of(_mm_div_ps(_mm_loadu_ps(x + i + 4 * j), s));
        _mm_storeu_si128((__m128i *)(code + i), bytes_of(c[0], c[1], c[2], c[3], 0));
    }
    return whole;
}

/* Truncates (x - below) * factor + shift to integers and packs 32 of them into bytes. With has_sign
 * (Q8_0) the shift takes the sign of the product, and the bytes are signed. */
static void cut_off(const float *x, float factor, float below, float shift, int has_sign,
                    __m128i code[2])
{
    const __m128 f = _mm_set1_ps(factor), s = _mm_set1_ps(shift), b = _mm_set1_ps(below);
    const __m128 sign = has_sign ? _mm_set1_ps(-0.0f) : _mm_setzero_ps();
    for (int half = 0; half < 2; half++) {
        __m128i c[4];
        for (int j = 0; j < 4; j++) {
            const __m128 a = _mm_mul_ps(_mm_sub_ps(_mm_loadu_ps(x + 16 * half + 4 * j), b), f);
            c[j] = _mm_cvttps_epi32(_mm_add_ps(a, _mm_or_ps(s, _mm_and_ps(a, sign))));
        }
        code[half] = bytes_of(c[0], c[1], c[2], c[3], has_sign);
    }
}

/* Encodes a block of IQ4_NL. The index of the nearest number in the table is the count of
 * middles between neighbours that are not above x. That decides as the distances would: the
 * middles are exact, and so are both distances of an x near one. The sums are then added in the
 * order of formats.h. */
static int encode_iq4(const float *x, uint8_t *to)
{
    float least = INFINITY, most = -INFINITY, up = 0, down = 0, extreme, inverse;
    uint8_t code[32];
    __m128i packed[2];
    uint16_t half;
    if (widen_range(x, 32, &least, &most) == 0 || most == -least)
        return 0;
    extreme = most > -least ? most : least;
    if (!(fabsf(extreme) > 0x1p-40f && fabsf(extreme) < 0x1p40f))
        return 0;
    inverse = 1 / (extreme / -127);
    for (int part = 0; part < 2; part++) {
        __m128i c[4];
        for (int j = 0; j < 4; j++) {
            const __m128 a = _mm_mul_ps(_mm_loadu_ps(x + 16 * part + 4 * j), _mm_set1_ps(inverse));
            c[j] = _mm_setzero_si128();
            for (int t = 0; t < 15; t++) {
                const float middle = (float)(heed_iq4[t] + heed_iq4[t + 1]) / 2;
                c[j] = _mm_sub_epi32(c[j], _mm_castps_si128(_mm_cmpge_ps(a, _mm_set1_ps(middle))));
            }
        }
        packed[part] = bytes_of(c[0], c[1], c[2], c[3], 0);
        _mm_storeu_si128((__m128i *)(code + 16 * part), packed[part]);
    }
    for (int i = 0; i < 32; i++) {
        const float weight = x[i] * x[i], value = heed_iq4[code[i]];
        up += weight * value * x[i];
        down += weight * value * value;
    }
    half = heed_f16_of_f32(up / down);
    memcpy(to, &half, 2);
    _mm_storeu_si128((__m128i *)(to + 2), _mm_or_si128(packed[0], _mm_slli_epi16(packed[1], 4)));
    return 1;
}

/* Encodes a block to which no special rule applies; returns 0 if one does. */
static int encode_block(uint32_t type, const float *x, uint8_t *to)
{
    const int has_least = type == HEED_Q4_1 || type == HEED_Q5_1;
    const int has_high = type == HEED_Q5_0 || type == HEED_Q5_1;
    const float last = has_high ? 31 : 15;
    float least = INFINITY, most = -INFINITY, d, inverse, extreme;
    __m128i code[2];
    uint16_t half;
    if (type == HEED_IQ4_NL)
        return encode_iq4(x, to);
    if (widen_range(x, 32, &least, &most) == 0)
        return 0;
    extreme = most > -least ? most : least;
    if ((has_least ? least == 0 : most == -least && type != HEED_Q8_0))
        return 0;
    d = type == HEED_Q8_0   ? fabsf(extreme) / 127
        : has_least         ? (most - least) / last
        : type == HEED_Q4_0 ? extreme / -8
                            : extreme / -16;
    inverse = 1 / d;
    if (!(fabsf(d) > 0x1p-120f && fabsf(d) < 0x1p120f))
        return 0;
    cut_off(x, inverse, has_least ? least : 0,
            type == HEED_Q8_0   ? 0x1.fffffep-2f
            : type == HEED_Q4_0 ? 8.5f
            : type == HEED_Q5_0 ? 16.5f
                                : 0.5f,
            type == HEED_Q8_0, code);
    half = heed_f16_of_f32(d);
    memcpy(to, &half, 2);
    to += 2;
    if (type == HEED_Q8_0) {
        memcpy(to, code, 32);
        return 1;
    }
    if (has_least) {
        half = heed_f16_of_f32(least);
        memcpy(to, &half, 2);
        to += 2;
    }
    code[0] = _mm_min_epu8(code[0], _mm_set1_epi8((char)last));
    code[1] = _mm_min_epu8(code[1], _mm_set1_epi8((char)last));
    if (has_high) {
        const uint32_t high = (uint32_t)_mm_movemask_epi8(_mm_slli_epi16(code[0], 3)) |
                              (uint32_t)_mm_movemask_epi8(_mm_slli_epi16(code[1], 3)) << 16;
        memcpy(to, &high, 4);
        to += 4;
        code[0] = _mm_and_si128(code[0], _mm_set1_epi8(15));
        code[1] = _mm_and_si128(code[1], _mm_set1_epi8(15));
    }
    _mm_storeu_si128((__m128i *)to, _mm_or_si128(code[0], _mm_slli_epi16(code[1], 4)));
    return 1;
}

#else /* none is done here */

#define widen_range(...) 0
#define codes_by(...) 0
#define f8_by(...) 0
#define encode_block(...) 0

#endif

void heed_widen_range_fast(const float *x, int64_t n, float *least, float *most)
{
    const int64_t done = widen_range(x, n, least, most);
    heed_widen_range(x + done, n - done, least, most);
}

void heed_codes_by(uint32_t type, const float *x, int64_t n, float scale, float zero, uint8_t *code)
{
    int64_t done = 0;
    if (scale != 0) /* a NaN is not 0 */
        done = type == HEED_F8_E4M3 ? f8_by(x, n, scale, code)
                                    : codes_by(type, x, n, scale, zero, code);
    for (int64_t i = done; i < n; i++)
        code[i] = heed_encode_by(type, x[i], scale, zero);
}

void heed_encode_blocks(uint32_t type, const float *x, int64_t n, void *row)
{
    uint8_t *to = row;
    for (int64_t i = 0; i < n; i += 32, to += heed_block_bytes(type))
        if (!encode_block(type, x + i, to))
            heed_encode_q(type, x + i, to);
}
