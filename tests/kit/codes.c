/* Keys and values in codes: how their scales lie, which codes a test problem has, and the numbers
 * that they stand for. The number of a code is computed by heed/formats.h, which golden blocks hold
 * to the published formulas; where a scale lies is computed here, without the library. See
 * problem.h. */
#include "decode.h"
#include "encode.h"
#include "problem.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 1, H = 2, I = 4, D = 8 }; /* axes, as bits */

kit_scaling kit_scaling_of(const kit_spec *s, int is_v)
{
    const uint32_t type = is_v ? s->v_type : s->k_type, dim = is_v ? s->v_dim : s->qk_dim;
    const kit_scales *of = is_v ? &s->v_scales : &s->k_scales;
    static const uint32_t same[KIT_SCALES] = {
        [KIT_SCALES_TENSOR] = B | H | I | D, [KIT_SCALES_HEAD] = B | I | D, [KIT_SCALES_TOKEN] = D,
        [KIT_SCALES_CHANNELS] = B | I,       [KIT_SCALES_IN_LINE] = D,      [KIT_SCALES_PAIRS] = D};
    kit_scaling how = {.kind = of->kind};
    if (!heed_takes_scale(type) || !of->kind)
        return (kit_scaling){0};
    /* Values that are columns of keys have a header only where keys do. */
    if (is_v && s->layout == KIT_V_IN_K && how.kind == KIT_SCALES_IN_LINE &&
        s->k_scales.kind != KIT_SCALES_IN_LINE)
        how.kind = KIT_SCALES_TOKEN;
    how.zeros = of->zeros && type != HEED_F8_E4M3;
    how.same = same[how.kind];
    if (how.kind == KIT_SCALES_CHANNELS)
        how.group = 1;
    if (how.kind == KIT_SCALES_GROUPS)
        how.group = dim % 32 == 0 && dim > 32 ? 32 : 5;
    if (how.kind == KIT_SCALES_KEY_GROUPS) {
        how.group = 16;
        how.key_group = 4;
    }
    return how;
}

int64_t kit_scale_at(const kit_problem *p, int which, int64_t b, int64_t g, int64_t j, int64_t d)
{
    const kit_tensor *t = &p->tensor[which];
    const kit_scaling how = kit_scaling_of(&p->spec, which >= KIT_V_SCALE);
    const int64_t keys = how.key_group ? how.key_group : 1, len = p->spec.page_len;
    int64_t at = t->first + g * t->stride[1] + (how.group ? d / how.group : 0) * t->stride[3];
    if (p->n_pages)
        at += p->true_table[b * p->table_stride + j / len] * t->stride[0] +
              j % len / keys * t->stride[2];
    else if (p->kv_rows)
        at += (p->kv_starts[b] + j) / keys * t->stride[2];
    else
        at += b * t->stride[0] + j / keys * t->stride[2];
    return at * t->bytes;
}

static float *scale_of(kit_problem *p, int which, int64_t b, int64_t g, int64_t j, int64_t d)
{
    unsigned char *data = p->buffer[p->tensor[which].buffer].data;
    return (float *)(void *)(data + kit_scale_at(p, which, b, g, j, d));
}

/* The scale with which codes of N(0, 1) use their range. */
static double usual_scale(uint32_t type)
{
    return type == HEED_I8 ? 4 / 127.0 : type == HEED_U8 ? 8 / 255.0 : type == HEED_U4 ? 0.5 : 0.02;
}

static double usual_zero(uint32_t type, double u)
{
    return type == HEED_I8 ? 10 * u - 5 : type == HEED_U8 ? 112 + 32 * u : 6 + 3 * u;
}

/* Some scales are negative or 0, and zeros lie between codes as well as on them. Both are functions
 * of what shares them, not of where it lies in memory. */
void kit_fill_scales(kit_problem *p, int is_v, int64_t b, int64_t g, int64_t j)
{
    const kit_spec *s = &p->spec;
    const kit_scaling how = kit_scaling_of(s, is_v);
    const int which = is_v ? KIT_V_SCALE : KIT_K_SCALE;
    const uint32_t type = is_v ? s->v_type : s->k_type;
    const int shared = s->storage >= KIT_PAGED && s->pages == KIT_PAGES_SHARED;
    if (!how.kind)
        return;
    for (int64_t n = 0; n < p->tensor[which].dim[3]; n++) {
        const int64_t d = how.group ? n * how.group : 0;
        uint64_t bits = kit_hash(s->seed, 70 + which);
        bits = kit_hash(bits, how.same & B || shared ? 0 : p->sequence[b].id);
        bits = kit_hash(bits, how.same & H ? 0 : g);
        bits = kit_hash(bits, how.same & I ? 0 : j / (how.key_group ? how.key_group : 1));
        bits = kit_hash(bits, how.same & D ? 0 : n);
        const double u = kit_uniform(kit_mix(bits));
        double scale = usual_scale(type) * (0.5 + u);
        if (how.same != (B | H | I | D) && bits % 8 == 0)
            scale = bits % 64 ? -scale : 0;
        *scale_of(p, which, b, g, j, d) = (float)scale;
        if (how.zeros) {
            const double zero = usual_zero(type, kit_uniform(kit_mix(bits + 1)));
            *scale_of(p, which + 1, b, g, j, d) = (float)(bits % 3 ? zero : nearbyint(zero));
        }
    }
}

static float zero_of(kit_problem *p, int which, int64_t b, int64_t g, int64_t j, int64_t d)
{
    const int zero = which == KIT_V ? KIT_V_ZERO : KIT_K_ZERO;
    return p->tensor[zero].bytes ? *scale_of(p, zero, b, g, j, d) : 0;
}

/* Fills a block that holds its own factor. Drawn: random codes with a factor of either sign, which
 * is sometimes tiny or 0. Otherwise the block encodes x, and a NaN or infinity in x becomes the
 * factor. */
static void fill_q(uint32_t type, unsigned char *to, const double *x, int drawn, uint64_t bits)
{
    const uint32_t bytes = heed_block_bytes(type);
    const int has_least = type == HEED_Q4_1 || type == HEED_Q5_1;
    float number[32], odd = 0;
    for (int i = 0; i < 32; i++) {
        number[i] = isfinite(x[i]) ? (float)x[i] : 0;
        odd = isfinite(x[i]) ? odd : (float)x[i];
    }
    if (drawn) {
        const double one = type == HEED_Q8_0 || type == HEED_IQ4_NL ? 4 / 127.0
                           : type == HEED_Q4_0 || type == HEED_Q4_1 ? 0.5
                                                                    : 0.25;
        double factor = one * (0.5 + kit_uniform(kit_mix(bits)));
        for (uint32_t i = 0; i < bytes; i++)
            to[i] = (unsigned char)kit_hash(bits, i);
        if (bits % 16 == 0)
            factor = bits % 128 ? factor * 0x1p-12 : 0;
        kit_encode(HEED_F16, to, 0, bits % 5 ? factor : -factor);
        if (has_least)
            kit_encode(HEED_F16, to, 1, 3 * kit_uniform(kit_mix(bits + 1)) - 3);
    } else {
        heed_encode_q(type, number, to);
    }
    if (odd != 0)
        kit_encode(HEED_F16, to, 0, (double)odd);
}

void kit_fill_block(kit_problem *p, int which, int64_t b, int64_t g, int64_t j, int64_t n,
                    const double *x, uint64_t bits)
{
    const kit_tensor *t = &p->tensor[which];
    const kit_scaling how = kit_scaling_of(&p->spec, which == KIT_V);
    const int scale_tensor = which == KIT_V ? KIT_V_SCALE : KIT_K_SCALE;
    const int drawn = p->spec.values == KIT_NORMAL;
    unsigned char *to = p->buffer[t->buffer].data + kit_at(t, b, g, j, n);
    if (!heed_takes_scale(t->type)) {
        fill_q(t->type, to, x, drawn, bits);
        return;
    }
    to[0] = 0;
    for (uint32_t i = 0; i < t->block_len; i++) {
        const int64_t d = n * t->block_len + i;
        float *scale = NULL;
        uint8_t code = (uint8_t)kit_hash(bits, i);
        if (t->type == HEED_U4)
            code &= 15;
        if (t->type == HEED_F8_E4M3 && (code & 127) == 127)
            code ^= 64; /* NaNs are only where they are requested */
        if (how.kind && (!drawn || !isfinite(x[i])))
            scale = scale_of(p, scale_tensor, b, g, j, d);
        const float by = scale ? *scale : 1;
        if (!drawn && isfinite(x[i]) && isfinite(by))
            code = heed_encode_by(t->type, (float)x[i], by, zero_of(p, which, b, g, j, d));
        if (!isfinite(x[i]) && t->type == HEED_F8_E4M3)
            code = 0x7f;
        else if (!isfinite(x[i]) && scale && !(how.same & I))
            *scale = (float)x[i];
        to[0] |= (unsigned char)(code << 4 * i);
    }
}

/* ---- as numbers ------------------------------------------------------------------------------ */

/* A bound of |a| + |b| for a number a - b, where a comes from its code and b is its zero or what
 * its block adds to all codes: |a| + |b| <= |a - b| + 2 |b|. */
static float size_of(uint32_t type, const unsigned char *block, int64_t d, float scale, float zero)
{
    const float number = heed_decode(type, block, d, scale, zero);
    uint16_t bits[2];
    if (heed_takes_scale(type))
        return fabsf(number) + 2 * fabsf(zero * scale);
    memcpy(bits, block, sizeof bits);
    const float factor = heed_f32_of_f16(bits[0]), least = heed_f32_of_f16(bits[1]);
    const float added = type == HEED_Q4_0                        ? 8 * factor
                        : type == HEED_Q5_0                      ? 16 * factor
                        : type == HEED_Q4_1 || type == HEED_Q5_1 ? least
                                                                 : 0;
    return fabsf(number) + 2 * fabsf(added);
}

static void decode_row(kit_problem *p, int which, int64_t b, int64_t g, int64_t j, float *to,
                       float *sizes)
{
    const kit_tensor *t = &p->tensor[which];
    const int of = which == KIT_V ? KIT_V_SCALE : KIT_K_SCALE;
    const kit_scaling how = kit_scaling_of(&p->spec, which == KIT_V);
    float scale = 1, zero = 0;
    for (int64_t d = 0; d < t->dim[3] * t->block_len; d++) {
        const unsigned char *block =
            p->buffer[t->buffer].data + kit_at(t, b, g, j, d / t->block_len);
        if (how.kind && (d == 0 || (how.group && d % how.group == 0))) {
            scale = *scale_of(p, of, b, g, j, d);
            zero = zero_of(p, which, b, g, j, d);
        }
        to[d] = heed_decode(t->type, block, d % t->block_len, scale, zero);
        if (sizes)
            sizes[d] = size_of(t->type, block, d % t->block_len, scale, zero);
    }
}

int kit_decode_codes(kit_problem *p)
{
    const kit_spec *s = &p->spec;
    for (int which = KIT_K; which <= KIT_V; which++) {
        const kit_tensor *t = &p->tensor[which];
        const int64_t dim = which == KIT_K ? s->qk_dim : s->v_dim;
        const int sized = which == KIT_K && s->accuracy == HEED_ACCURACY_INT8;
        const size_t all = (size_t)(s->batch * s->kv_heads * s->kv_len * dim) + 1;
        if (!heed_is_code(t->type))
            continue;
        float *to = p->decoded[which == KIT_V] = calloc(all, sizeof *to);
        if (sized)
            p->sizes = calloc(all, sizeof *p->sizes);
        if (!to || (sized && !p->sizes))
            return -1;
        for (int64_t b = 0; b < s->batch; b++)
            for (int64_t g = 0; g < s->kv_heads; g++)
                for (int64_t j = 0; j < p->kv_lens[b]; j++) {
                    const int64_t at = ((b * s->kv_heads + g) * s->kv_len + j) * dim;
                    decode_row(p, which, b, g, j, to + at, sized ? p->sizes + at : NULL);
                }
    }
    return 0;
}
