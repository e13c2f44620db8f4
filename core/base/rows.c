/* Checks and conversion of rows. See rows.h. */
#include "rows.h"

#include "compiler.h"
#include "reason.h"

heed_status heed_check_rows(const heed_row_lists *l, heed_error *why)
{
    const int64_t sizes[] = {l->batch, l->len, l->rows};
    static const char *const name[] = {"batch", "len", "rows"};
    for (int i = 0; i < 3; i++)
        if (sizes[i] < 0 || sizes[i] > INT32_MAX)
            INVALID("args.%s is %lld, 0 to %d is required", name[i], (long long)sizes[i],
                    INT32_MAX);
    if (!l->starts && l->rows)
        INVALID("args.rows is %lld without args.starts", (long long)l->rows);
    for (int64_t b = 0; b < l->batch; b++) {
        int32_t n = heed_row_count(l->lens, b, l->len);
        if (n < 0 || n > l->len)
            INVALID("args.lens[%lld] is %d, 0 to args.len = %lld is required", (long long)b, n,
                    (long long)l->len);
        if (l->starts && n > l->rows)
            INVALID("sequence %lld has %d rows, and args.rows, those of all sequences, is %lld",
                    (long long)b, n, (long long)l->rows);
        if (l->starts && (l->starts[b] < 0 || l->starts[b] + (int64_t)n > l->rows))
            INVALID("args.starts[%lld] is %d: with %d rows, 0 to %lld is required", (long long)b,
                    l->starts[b], n, (long long)(l->rows - n));
    }
    return HEED_OK;
}

/* Are all strides so small that no tensor whose lengths are below 2^31 can reach too far? 4 axes of
 * 2^25 * 2^31 elements of 8 bytes are 2^61 bytes. Most strides are, and then a small call pays for
 * nothing but this. */
static int are_short(const int64_t *stride, int n_axes, const int64_t *shape)
{
    uint64_t strides = 0, lengths = 0;
    for (int i = 0; i < n_axes; i++) {
        strides |= (uint64_t)stride[i] + ((uint64_t)1 << 25);
        lengths |= (uint64_t)shape[i];
        HEED_OPAQUE(lengths); /* no vectors: they would wait for shape to be stored */
    }
    return !(strides >> 26 | lengths >> 31);
}

int heed_strides_reach(const int64_t *stride, int n_axes, const int64_t *shape, int64_t bytes)
{
    if (n_axes <= 4 && bytes <= 8 && are_short(stride, n_axes, shape))
        return 1;
    int64_t up = 0, down = 0, reach;
    int bad = 0;
    for (int i = 0; i < n_axes; i++) {
        if (shape[i] == 1)
            continue;
        bad |= __builtin_mul_overflow(stride[i], shape[i] - 1, &reach);
        bad |= __builtin_add_overflow(up, reach > 0 ? reach : 0, &up);
        bad |= __builtin_add_overflow(down, reach < 0 ? reach : 0, &down);
    }
    bad |= __builtin_sub_overflow(up, down, &up);
    bad |= __builtin_mul_overflow(up, bytes, &up);
    return !bad && up <= PTRDIFF_MAX / 2;
}

heed_status heed_check_view(const char *name, const void *data, const int64_t stride[4],
                            int64_t bytes, int is_output, const int64_t shape[4], heed_error *why)
{
    static const char *const axis[] = {"batch", "head", "row", "dim"};
    if (!(shape[0] && shape[1] && shape[2] && shape[3]))
        return HEED_OK; /* no element to point at */
    if (!data)
        INVALID("args.%s is NULL, but required", name);
    for (int i = 0; i < 4 && is_output; i++)
        if (shape[i] != 1 && stride[i] == 0)
            INVALID("args.%s.stride[%d] (%s) is 0 for %lld elements: outputs cannot broadcast",
                    name, i, axis[i], (long long)shape[i]);
    if (!heed_strides_reach(stride, 4, shape, bytes))
        INVALID(
            "args.%s has strides %lld, %lld, %lld, %lld that reach beyond the address space with "
            "a shape of %lld, %lld, %lld, %lld",
            name, (long long)stride[0], (long long)stride[1], (long long)stride[2],
            (long long)stride[3], (long long)shape[0], (long long)shape[1], (long long)shape[2],
            (long long)shape[3]);
    return HEED_OK;
}

heed_status heed_check_in_place(const heed_const_view *x, uint32_t x_type, const heed_view *y,
                                uint32_t y_type, const int64_t shape[4], heed_error *why)
{
    int same = x_type == y_type;
    for (int i = 0; i < 4; i++) {
        if (shape[i] == 0)
            return HEED_OK;
        same &= shape[i] == 1 || x->stride[i] == y->stride[i];
    }
    if (x->data == y->data && !same)
        INVALID("args.y.data equals args.x.data, but their types or strides differ");
    return HEED_OK;
}

heed_status heed_check_blocks(const char *name, uint32_t type, const int64_t stride[4],
                              const int64_t shape[4], heed_error *why)
{
    static const char *const axis[] = {"batch", "head", "row", "dim"};
    const int64_t len = heed_block_len(type);
    if (len <= 1)
        return HEED_OK;
    if (stride[3] != 1)
        INVALID("args.%s.stride[3] (dim) is %lld, 1 is required of %s", name, (long long)stride[3],
                heed_dtype_name(type));
    for (int i = 0; i < 3; i++)
        if (shape[i] > 1 && stride[i] % len)
            INVALID("args.%s.stride[%d] (%s) is %lld, a multiple of %lld is required of %s", name,
                    i, axis[i], (long long)stride[i], (long long)len, heed_dtype_name(type));
    return HEED_OK;
}

heed_status heed_check_quant(const char *name, const heed_quant *quant, uint32_t type,
                             const int64_t shape[4], heed_error *why)
{
    const int64_t *stride = quant->stride;
    if (!quant->scale) {
        const char *given = quant->zero                                        ? "zero"
                            : quant->group                                     ? "group"
                            : quant->key_group                                 ? "key_group"
                            : stride[0] || stride[1] || stride[2] || stride[3] ? "stride"
                                                                               : NULL;
        if (given)
            INVALID("args.%s.%s is given, but args.%s.scale is NULL", name, given, name);
        return HEED_OK;
    }
    if (!heed_takes_scale(type))
        INVALID("args.%s.scale is given, but a tensor of %s takes no scales", name,
                heed_dtype_name(type));
    if (quant->zero && type == HEED_F8_E4M3)
        INVALID("args.%s.zero is given, but a tensor of f8_e4m3 takes no zeros", name);
    if (!quant->group && stride[3])
        INVALID(
            "args.%s.stride[3] is %lld, 0 is required where args.%s.group is 0, one scale for a "
            "row",
            name, (long long)stride[3], name);
    for (int i = 0; i < 4; i++)
        if (shape[i] == 0)
            return HEED_OK;
    const int64_t key_group = quant->key_group ? quant->key_group : 1;
    const int64_t scales[] = {shape[0], shape[1], (shape[2] - 1) / key_group + 1,
                              quant->group ? (shape[3] - 1) / quant->group + 1 : 1};
    if (!heed_strides_reach(stride, 4, scales, sizeof(float)))
        INVALID("args.%s has strides %lld, %lld, %lld, %lld that reach beyond the address space",
                name, (long long)stride[0], (long long)stride[1], (long long)stride[2],
                (long long)stride[3]);
    return HEED_OK;
}

heed_status heed_check_type(const char *name, uint32_t type, heed_error *why)
{
    if (type < HEED_F32 || type > HEED_BF16)
        INVALID("args.%s is %u, HEED_F32, HEED_F16 or HEED_BF16 is required", name, type);
    return HEED_OK;
}

/* heed_f32_of_f16 without branches, so that compilers vectorize it. The product turns the
 * exponent of an f16 into that of an f32, also that of a subnormal in the default floating-point
 * mode (no flushing). */
static inline float widened(const void *halves, int64_t i)
{
    uint16_t half;
    memcpy(&half, (const char *)halves + 2 * i, sizeof half);
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, size = (uint32_t)(half & 0x7fffu) << 13;
    const uint32_t bits = heed_bits_of_f32(heed_f32_of_bits(size) * 0x1p112f);
    const uint32_t no_number = size >= 0x0f800000u ? 0x7f800000u : 0;
    return heed_f32_of_bits(sign | bits | no_number);
}

static inline uint32_t pick(int is_first, uint32_t first, uint32_t second)
{
    const uint32_t mask = 0u - (uint32_t)is_first;
    return (first & mask) | (second & ~mask);
}

/* heed_f16_of_f32 without branches. The sum of a size and 2^13 times its own power of two has the
 * bits of an f16's fraction at its end, rounded to even; sizes below 2^-14, the subnormals, all are
 * added to that of 2^-14. In the default floating-point mode. */
static inline uint16_t narrowed(float x)
{
    const uint32_t least = 0x38800000, carry = 13u << 23; /* 2^-14; 2^13 as a factor */
    const uint32_t bits = heed_bits_of_f32(x), size = bits & 0x7fffffffu;
    const uint32_t power = size & 0x7f800000u, at_least = pick(power > least, power, least);
    const float sum = heed_f32_of_bits(size) + heed_f32_of_bits(at_least + carry);
    uint32_t half = heed_bits_of_f32(sum) - (at_least + carry) + ((at_least - least) >> 13);
    half = pick(size >= 0x47800000u, 0x7c00, half); /* 2^16 */
    half |= pick(size > 0x7f800000u, 0x7e00 | (size >> 13 & 0x3ffu), 0);
    return (uint16_t)((bits >> 16 & 0x8000u) | half);
}

void heed_convert(const heed_elements *from, uint32_t type, void *to, int64_t at, int64_t stride,
                  int64_t n)
{
    const int dense = from->stride == 1 && stride == 1;
    const char *in = (const char *)from->data + from->at * heed_dtype_bytes(from->type);
    char *out = (char *)to + at * heed_dtype_bytes(type);
    if (dense && from->type == type) {
        memmove(out, in, (size_t)n * heed_dtype_bytes(type));
    } else if (dense && from->type == HEED_F32 && type == HEED_BF16) {
        for (int64_t i = 0; i < n; i++) /* constant types, so that the compiler vectorizes it */
            heed_store(HEED_BF16, out, i, heed_load(HEED_F32, in, i));
    } else if (dense && from->type == HEED_BF16 && type == HEED_F32) {
        for (int64_t i = 0; i < n; i++)
            heed_store(HEED_F32, out, i, heed_load(HEED_BF16, in, i));
    } else if (dense && from->type == HEED_F16 && type == HEED_F32) {
        for (int64_t i = 0; i < n; i++)
            heed_store(HEED_F32, out, i, widened(in, i));
    } else if (dense && from->type == HEED_F32 && type == HEED_F16) {
        for (int64_t i = 0; i < n; i++) {
            const uint16_t half = narrowed(heed_load(HEED_F32, in, i));
            memcpy(out + 2 * i, &half, sizeof half);
        }
    } else if (from->type == type && type != HEED_F32) {
        for (int64_t i = 0; i < n; i++) /* a load would make a signalling NaN quiet */
            memcpy(out + 2 * i * stride, in + 2 * i * from->stride, sizeof(uint16_t));
    } else {
        for (int64_t i = 0; i < n; i++)
            heed_store(type, out, i * stride, heed_load(from->type, in, i * from->stride));
    }
}

void heed_write_scaled(const float *restrict x, double factor, uint32_t type, void *restrict to,
                       int64_t at, int64_t stride, int64_t n)
{
    if (stride != 1) {
        for (int64_t i = 0; i < n; i++)
            heed_store_f64(type, to, at + i * stride, (double)x[i] * factor + 0);
        return;
    }
    if (type == HEED_F32) {
        for (int64_t i = 0; i < n; i++) /* a constant type, as above */
            heed_store_f64(HEED_F32, to, at + i, (double)x[i] * factor + 0);
        return;
    }
    for (int64_t i = 0; i < n; i += 64) {
        const int64_t some = n - i < 64 ? n - i : 64;
        float odd[64];
        for (int64_t j = 0; j < some; j++)
            odd[j] = heed_odd_f32((double)x[i + j] * factor + 0);
        heed_convert(&(heed_elements){HEED_F32, odd, 0, 1}, type, to, at + i, 1, some);
    }
}
