/* A mask that all heads share is summarised once per sequence and run of rows: the kv heads of a
 * sequence use what one of them has made, and nothing of another sequence. Each sequence here sees
 * other keys than the others, so that a mix-up shows. */
#include "unit.h"

enum {
    BATCH = 3,
    HEADS = 3,
    ROWS = 800,
    KEYS = 400,
    DIM = 16,
    Q = HEADS * ROWS * DIM,
    K = HEADS * KEYS * DIM
};

static float q[BATCH * Q], k[BATCH * K], v[BATCH * K], whole[BATCH * Q], alone[BATCH * Q];
static uint8_t mask[BATCH * ROWS * KEYS];

static heed_view laid(float *data, int64_t rows)
{
    return (heed_view){data, {HEADS * rows * DIM, rows * DIM, DIM, 1}};
}

/* Runs sequences [first, first + n). */
static void run(heed_context *context, int64_t first, int64_t n, float *out)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_MASK,
                                 UNIT_SHAPE(HEADS, HEADS, DIM, DIM),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32)};
    heed_attn_args args = {.struct_size = sizeof args, .batch = n, .q_len = ROWS, .kv_len = KEYS};
    args.q = heed_as_const(laid(q + first * Q, ROWS));
    args.k = heed_as_const(laid(k + first * K, KEYS));
    args.v = heed_as_const(laid(v + first * K, KEYS));
    args.out = laid(out + first * Q, ROWS);
    args.mask.data = mask + first * ROWS * KEYS;
    args.mask.stride[0] = ROWS * KEYS;
    args.mask.stride[2] = KEYS;
    args.mask.stride[3] = 1;
    CHECK_OK(heed_attention(context, &desc, &args));
}

int main(void)
{
    uint64_t state = 1;
    heed_context *context = NULL;
    for (int i = 0; i < BATCH * Q; i++)
        q[i] = (float)kit_below(&state, 2001) * 1e-3f - 1;
    for (int i = 0; i < BATCH * K; i++) {
        k[i] = (float)kit_below(&state, 2001) * 1e-3f - 1;
        v[i] = (float)kit_below(&state, 2001) * 1e-3f - 1;
    }
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < KEYS; j++) /* one block of keys, another for the later rows */
                mask[(b * ROWS + i) * KEYS + j] = j / 128 == (b + i / 528) % 3;
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        const heed_context_options options = {.struct_size = sizeof options, .n_threads = threads};
        CHECK_OK(heed_context_create(&options, &context));
        run(context, 0, BATCH, whole);
        for (int b = 0; b < BATCH; b++)
            run(context, b, 1, alone);
        CHECK(!memcmp(whole, alone, sizeof whole), "%u threads", threads);
        for (int b = 0; b < BATCH; b++)
            for (int i = 0; i < ROWS; i += 527) { /* the row sees one block: a mean of its values */
                float low = 1, high = -1;
                const int first = (b + i / 528) % 3 * 128;
                for (int j = first; j < first + 128; j++) {
                    const float x = v[b * K + 2 * KEYS * DIM + j * DIM];
                    low = x < low ? x : low;
                    high = x > high ? x : high;
                }
                const float out = whole[b * Q + 2 * ROWS * DIM + i * DIM];
                CHECK(out >= low && out <= high && out != 0, "sequence %d row %d: %g", b, i,
                      (double)out);
            }
        heed_context_release(context);
    }
    return checks_end();
}
