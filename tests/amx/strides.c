/* Where the elements of an output row lie does not change their bits
 * (HEED_HAS_REPRODUCIBLE_CHUNKS), not even those of results too small for a normal number, which
 * all results are beside a large sink. The kernels run on the model; `strides emulated` and
 * `strides hardware` run those compiled for the unit. */
#define _DEFAULT_SOURCE
#include "which.h"

enum { ROWS = 40, KEYS = 70, DIM = 88, APART = 3 };

static uint16_t q[ROWS][DIM], k[KEYS][DIM], v[KEYS][DIM];
static uint32_t dense[ROWS][DIM], strided[ROWS][DIM][APART]; /* room for every type */

static void fill(uint16_t *to, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        to[i] = heed_bf16_of_f32((float)kit_below(seed, 17) * 0.125f - 1);
}

static void run(heed_context *context, uint32_t dim, uint32_t type, float sink, int64_t stride,
                void *out)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_SINK | HEED_HAS_REPRODUCIBLE_CHUNKS,
                                 UNIT_SHAPE(1, 1, dim, dim),
                                 UNIT_TYPES(HEED_BF16, HEED_BF16, HEED_BF16, type)};
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = ROWS,
                                 .kv_len = KEYS,
                                 .q = {q, {0, 0, DIM, 1}},
                                 .k = {k, {0, 0, DIM, 1}},
                                 .v = {v, {0, 0, DIM, 1}},
                                 .out = {out, {0, 0, DIM * stride, stride}},
                                 .sink = &sink};
    CHECK_OK(heed_attention(context, &desc, &args));
}

static void compare(heed_context *context, uint32_t dim, uint32_t type, float sink)
{
    const size_t size = heed_dtype_bytes(type);
    int differ = 0;
    memset(dense, 0x55, sizeof dense);
    memset(strided, 0xaa, sizeof strided);
    run(context, dim, type, sink, 1, dense);
    run(context, dim, type, sink, APART, strided);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t d = 0; d < dim; d++) {
            const size_t at = i * DIM + d;
            differ +=
                memcmp((char *)dense + at * size, (char *)strided + at * APART * size, size) != 0;
        }
    CHECK(differ == 0, "dim %u, %s, sink %g: %d elements have other bits", dim,
          heed_dtype_name(type), (double)sink, differ);
}

int main(int argc, char **argv)
{
    static const uint32_t dims[] = {24, 32, 64, 88}, types[] = {HEED_F32, HEED_F16, HEED_BF16};
    heed_context *context = which_context(argc, argv, "amx_strides");
    uint64_t seed = 1;
    if (!context)
        return 77;
    fill(&q[0][0], sizeof q / 2, &seed);
    fill(&k[0][0], sizeof k / 2, &seed);
    fill(&v[0][0], sizeof v / 2, &seed);
    for (int d = 0; d < 4; d++)
        for (int t = 0; t < 3; t++)
            for (float sink = 0; sink <= 104; sink += 13)
                compare(context, dims[d], types[t], sink);
    heed_context_release(context);
    return checks_end();
}
