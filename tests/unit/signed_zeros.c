/* Hidden keys do not change the sign of a 0. A row whose first value is 0, and whose other values
 * have weights so small that the products are below the normal numbers, gives 0 or -0: the same
 * one, whatever the keys behind its position hold. On every backend that runs here, in each type,
 * for rows of prefill and of decode. */
#include <heed/formats.h>

#include "unit.h"

enum { KEYS = 70, ROWS = 40, DIM = 32, CASES = 4 };

static unsigned char q[ROWS * DIM * 4], k[KEYS * DIM * 4], v[KEYS * DIM * 4];
static unsigned char out[CASES][ROWS * DIM * 4];
static int n_served;

static void put(uint32_t type, unsigned char *to, int64_t i, float x)
{
    const uint32_t bits = heed_bits_of_f32(x);
    const uint16_t half = heed_f16_of_f32(x), high = (uint16_t)(bits >> 16);
    if (type == HEED_F32)
        memcpy(to + 4 * i, &x, 4);
    else
        memcpy(to + 2 * i, type == HEED_F16 ? &half : &high,
               2); /* x has no more places than bf16 */
}

/* Runs `rows` rows, the first of which sees `seen` keys; the keys that follow have values of
 * `behind`. Returns 0 if the backend does not support the type. */
static int run(heed_context *context, uint32_t type, int64_t rows, int32_t seen, float behind,
               unsigned char *to)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_CAUSAL,
                                 .position = HEED_POS_GIVEN,
                                 UNIT_SHAPE(1, 1, DIM, DIM),
                                 UNIT_TYPES(type, type, type, type)};
    const int32_t offset = seen - 1;
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = rows,
                           .kv_len = KEYS,
                           .q = {q, {0, 0, DIM, 1}},
                           .k = {k, {0, 0, DIM, 1}},
                           .v = {v, {0, 0, DIM, 1}},
                           .out = {to, {0, 0, DIM, 1}},
                           .q_offsets = &offset};
    if (heed_attn_supported(context, &desc, NULL) == HEED_ERR_UNSUPPORTED)
        return 0;
    for (int64_t i = 0; i < ROWS * DIM; i++)
        put(type, q, i, 1);
    for (int64_t i = 0; i < KEYS * DIM; i++) { /* scores 83 apart: weights of 2^-120 */
        put(type, k, i, i < DIM ? 7.34375f : -7.34375f);
        put(type, v, i, i < DIM ? 0 : i / DIM < seen ? -0x1p-10f : behind);
    }
    CHECK_OK(heed_attention(context, &desc, &args));
    return 1;
}

static void check_type(heed_context *context, const char *name, uint32_t type)
{
    static const float behind[CASES] = {-1, 1, 0, -0.0f};
    const size_t row = DIM * (type == HEED_F32 ? 4 : 2);
    for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) /* decode, then prefill */
        for (int32_t seen = 2; seen < KEYS; seen += 3) {
            for (int i = 0; i < CASES; i++)
                if (!run(context, type, rows, seen, behind[i], out[i]))
                    return;
            n_served++;
            for (int i = 1; i < CASES; i++)
                CHECK(
                    memcmp(out[0], out[i], row) == 0,
                    "%s, %s: of %d rows the first, of %d keys, has other bits before values of %g",
                    name, heed_dtype_name(type), (int)rows, seen, (double)behind[i]);
        }
}

static void check(heed_context *context, const char *name)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++)
        check_type(context, name, type);
}

int main(void)
{
    unit_each_backend(check);
    CHECK(n_served >= 3 * 2 * 23, "%d problems were served", n_served); /* naive runs all */
    return checks_end();
}
