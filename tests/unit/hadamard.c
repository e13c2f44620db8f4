/* heed_hadamard agrees with its matrix in f64, is its own inverse, keeps the length of a group,
 * works in place and with any strides, is what appending with it does, and refuses mistakes. */
#include "unit.h"

#include <heed/formats.h>

enum { BATCH = 2, HEADS = 3, LEN = 4, MOST_DIM = 4096 };

/* y[i] = sum of x[j] * (-1)^popcount(i & j) / sqrt(group). */
static double by_matrix(const double *x, int group, int i)
{
    double sum = 0;
    for (int j = 0; j < group; j++) {
        int common = i & j, odd = 0;
        for (; common; common >>= 1)
            odd ^= common & 1;
        sum += odd ? -x[j] : x[j];
    }
    return sum / sqrt((double)group);
}

static heed_hadamard_args call_of(const void *x, void *y, uint32_t type, uint32_t dim,
                                  uint32_t group)
{
    const heed_hadamard_args args = {
        .struct_size = sizeof args,
        .batch = BATCH,
        .len = LEN,
        .heads = HEADS,
        .dim = dim,
        .group = group,
        .x_type = type,
        .y_type = type,
        .x = {x, {HEADS * LEN * (int64_t)dim, LEN * (int64_t)dim, dim, 1}},
        .y = {y, {HEADS * LEN * (int64_t)dim, LEN * (int64_t)dim, dim, 1}}};
    return args;
}

static void check_matrix(uint32_t type, uint32_t dim, uint32_t group)
{
    const int64_t n = (int64_t)BATCH * HEADS * LEN * dim;
    float *x = malloc((size_t)n * 4), *y = malloc((size_t)n * 4), *back = malloc((size_t)n * 4);
    double row[MOST_DIM];
    uint64_t state = dim + group;
    if (!x || !y || !back)
        exit(1);
    for (int64_t i = 0; i < n; i++)
        heed_store(type, x, i, unit_number(&state));
    heed_hadamard_args args = call_of(x, y, type, dim, group);
    CHECK_OK(heed_hadamard(&args));
    /* log2(group) sums and one product, each with a relative error of 2^-24; their results are at
     * most the sum of all magnitudes / sqrt(group). Then the type's own rounding. */
    const double unit = type == HEED_F32 ? 0 : type == HEED_F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t at = 0; at < n; at += group) {
        double sum = 0, square[2] = {0, 0};
        for (uint32_t j = 0; j < group; j++) {
            row[j] = (double)heed_load(type, x, at + j);
            sum += fabs(row[j]);
            square[0] += row[j] * row[j];
        }
        const double bound = sum / sqrt((double)group) * (log2((double)group) + 2) * 0x1p-24;
        for (uint32_t i = 0; i<group; i += group> 256 ? 37 : 1) {
            const double want = by_matrix(row, (int)group, (int)i);
            const double got = (double)heed_load(type, y, at + i);
            CHECK(fabs(got - want) <= bound + unit * (fabs(want) + bound) + 0x1p-25,
                  "%s, dim %u, group %u: element %lld is %g, must be %g", heed_dtype_name(type),
                  dim, group, (long long)(at + i), got, want);
        }
        for (uint32_t i = 0; i < group; i++)
            square[1] += pow((double)heed_load(type, y, at + i), 2);
        CHECK(fabs(square[0] - square[1]) <= (4 * unit + 0x1p-19) * square[0] + 0x1p-20,
              "%s, group %u: the length of a group changed", heed_dtype_name(type), group);
    }
    args = call_of(y, back, type, dim, group);
    CHECK_OK(heed_hadamard(&args));
    for (int64_t i = 0; i < n; i++) {
        const double got = (double)heed_load(type, back, i), want = (double)heed_load(type, x, i);
        CHECK(fabs(got - want) <= (unit + 0x1p-20) * sqrt((double)group) * 2,
              "%s, group %u: twice makes %g of %g", heed_dtype_name(type), group, got, want);
    }
    args = call_of(x, x, type, dim, group); /* in place, the same bits */
    CHECK_OK(heed_hadamard(&args));
    CHECK(memcmp(x, y, (size_t)n * heed_dtype_bytes(type)) == 0, "in place, %s, group %u",
          heed_dtype_name(type), group);
    free(x);
    free(y);
    free(back);
}

/* Any strides, different types of x and y, and nothing written beside the view. */
static void check_strides(void)
{
    enum { DIM = 48, GROUP = 16, N = BATCH * LEN * HEADS * (2 * DIM + 3) };
    static float x[N];
    static uint16_t y[N], want[BATCH * HEADS * LEN * DIM];
    static float dense[BATCH * HEADS * LEN * DIM];
    uint64_t state = 5;
    heed_hadamard_args args = call_of(dense, want, HEED_F32, DIM, GROUP);
    const int64_t stride[] = {LEN * HEADS * (2 * DIM + 3), 2 * DIM + 3, HEADS * (2 * DIM + 3), 2};
    for (int i = 0; i < N; i++)
        x[i] = unit_number(&state), y[i] = 0xa5a5;
    for (int b = 0, n = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < LEN; i++)
                for (int d = 0; d < DIM; d++)
                    dense[n++] = x[b * stride[0] + h * stride[1] + i * stride[2] + d * stride[3]];
    args.y_type = HEED_BF16;
    CHECK_OK(heed_hadamard(&args));
    args.x.data = x;
    args.y.data = y;
    memcpy(args.x.stride, stride, sizeof stride);
    memcpy(args.y.stride, stride, sizeof stride);
    CHECK_OK(heed_hadamard(&args));
    for (int b = 0, n = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < LEN; i++)
                for (int d = 0; d < DIM; d++, n++) {
                    uint16_t *at =
                        y + b * stride[0] + h * stride[1] + i * stride[2] + d * stride[3];
                    CHECK(*at == want[n], "element %d is %04x, dense %04x", n, *at, want[n]);
                    *at = 0xa5a5;
                }
    for (int i = 0; i < N; i++)
        CHECK(y[i] == 0xa5a5, "element %d beside the view was written", i);
}

/* Appending with the transform is appending what it makes of the rows, of more heads too than are brought
 * together at once. */
static void check_append(uint32_t type, uint32_t dim, uint32_t group)
{
    enum { MOST = 3 * MOST_DIM };
    static float x[MOST], y[MOST], scale[2][HEADS], zero[2][HEADS];
    static unsigned char cache[2][MOST * 4];
    uint64_t state = dim + group;
    const int has_zero = type != HEED_F8_E4M3;
    const heed_quant_out quant[] = {{scale[0], has_zero ? zero[0] : NULL, {HEADS, 1, 1, 0}, 0, 0},
                                    {scale[1], has_zero ? zero[1] : NULL, {HEADS, 1, 1, 0}, 0, 0}};
    const int takes = heed_takes_scale(type);
    heed_kv_append_args args = {.struct_size = sizeof args,
                                .batch = 1,
                                .len = 1,
                                .capacity = 1,
                                .kv_heads = HEADS,
                                .qk_dim = dim,
                                .k_type = HEED_F32,
                                .v_type = HEED_F32,
                                .k_cache_type = type,
                                .v_cache_type = type,
                                .k = {x, {HEADS * (int64_t)dim, dim, dim, 1}},
                                .k_cache = {cache[0], {HEADS * (int64_t)dim, dim, dim, 1}},
                                .hadamard = group};
    heed_hadamard_args transform = call_of(x, y, HEED_F32, dim, group);
    transform.batch = 1;
    transform.len = 1;
    transform.x.stride[1] = transform.y.stride[1] = dim;
    for (uint32_t i = 0; i < HEADS * dim; i++)
        x[i] = unit_number(&state);
    memset(cache, 0, sizeof cache);
    args.k_quant = takes ? quant[0] : args.k_quant;
    args.options = HEED_APPEND_HADAMARD_K | (takes ? HEED_APPEND_FRESH_SCALES : 0);
    CHECK_OK(heed_kv_append(&args));
    CHECK_OK(heed_hadamard(&transform));
    args.k.data = y;
    args.k_cache.data = cache[1];
    args.k_quant = takes ? quant[1] : args.k_quant;
    args.options &= ~(uint64_t)HEED_APPEND_HADAMARD_K;
    args.hadamard = 0;
    CHECK_OK(heed_kv_append(&args));
    CHECK(memcmp(cache[0], cache[1], sizeof cache[0]) == 0, "%s, dim %u, group %u: other codes",
          heed_dtype_name(type), dim, group);
    CHECK(!takes || memcmp(scale[0], scale[1], sizeof scale[0]) == 0,
          "%s, dim %u, group %u: other scales", heed_dtype_name(type), dim, group);
}

static void check_errors(void)
{
    static float x[BATCH * HEADS * LEN * 64], y[BATCH * HEADS * LEN * 64];
    const heed_hadamard_args good = call_of(x, y, HEED_F32, 64, 16);
    const struct {
        const char *word;
        size_t at, bytes;
        int64_t value;
    } wrong[] = {
#define WRONG(member, word, value)                                                                 \
    {word, offsetof(heed_hadamard_args, member), sizeof good.member, value}
        WRONG(batch, "args.batch is -1", -1),
        WRONG(len, "args.len is 2147483648", INT64_C(1) << 31),
        WRONG(heads, "args.heads is 0", 0),
        WRONG(dim, "args.dim is 0", 0),
        WRONG(dim, "args.dim is 40, a multiple of args.group = 16", 40),
        WRONG(group, "args.group is 0", 0),
        WRONG(group, "args.group is 24, a power of two", 24),
        WRONG(group, "args.group is 8192", 8192),
        WRONG(group, "args.dim is 64, a multiple", 128),
        WRONG(x_type, "args.x_type is 4", HEED_I8),
        WRONG(y_type, "args.y_type is 0", 0),
        WRONG(reserved, "args.reserved is 1", 1),
        WRONG(x.data, "args.x is NULL", 0),
        WRONG(y.data, "args.y is NULL", 0),
        WRONG(y.stride[2], "args.y.stride[2]", 0),
        WRONG(x.stride[1], "args.x has strides", INT64_MAX / 2),
        WRONG(struct_size, "args.struct_size", 7),
    };
    memset(y, 0xa5, sizeof y);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_hadamard_args bad = good;
        heed_error why = {""};
        memcpy((char *)&bad + wrong[i].at, &wrong[i].value, wrong[i].bytes);
        bad.error = i + 1 < sizeof wrong / sizeof *wrong ? &why : NULL;
        const heed_status st = heed_hadamard(&bad);
        const char *text = bad.error ? why.text : heed_last_error();
        CHECK(st == (bad.error ? HEED_ERR_INVALID : HEED_ERR_ABI), "%s: status %d", wrong[i].word,
              (int)st);
        CHECK(strstr(text, wrong[i].word), "\"%s\" does not say \"%s\"", text, wrong[i].word);
    }
    heed_hadamard_args bad = good;
    bad.x.data = y;
    bad.y_type = HEED_F16;
    CHECK_REFUSED(heed_hadamard(&bad), HEED_ERR_INVALID, "args.y.data");
    for (size_t i = 0; i < sizeof y; i++)
        CHECK(((unsigned char *)y)[i] == 0xa5, "an error wrote byte %zu", i);
    bad = good;
    bad.batch = 0;
    bad.x.data = NULL;
    CHECK(heed_hadamard(&bad) == HEED_OK, "empty: %s", heed_last_error());
    bad.batch = INT32_MAX; /* not one step for each of 2^51 heads without rows */
    bad.heads = 1 << 20;
    bad.len = 0;
    CHECK(heed_hadamard(&bad) == HEED_OK, "no rows: %s", heed_last_error());
}

int main(void)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        for (uint32_t group = 1; group <= 128; group *= 2)
            check_matrix(type, group == 1 ? 5 : 3 * group, group);
        check_matrix(type, 64, 64);
    }
    check_matrix(HEED_F32, 4096, 4096);
    check_matrix(HEED_F32, 4096 + 64, 64);
    check_strides();
    for (uint32_t type = HEED_F16; type <= HEED_IQ4_NL; type++) {
        check_append(type, 64, 32);
        check_append(type, 2048, 128);
        check_append(type, 4096, 4096);
    }
    check_errors();
    return checks_end();
}
