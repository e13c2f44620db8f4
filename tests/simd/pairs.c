/* Products of pairs of bf16: a row's bits do not depend on where its call or tile begins. Under a
 * window a tile begins at any key, and yet pairs have to begin at even keys. */
#include "../unit/unit.h"

enum { ROWS = 420, DIM = 40, HEADS = 2 };

static uint16_t q[HEADS * ROWS * DIM], k[HEADS * ROWS * DIM], v[HEADS * ROWS * DIM];
static float whole[HEADS * ROWS * DIM], part[HEADS * ROWS * DIM];

static void fill(uint16_t *x, uint64_t *state)
{
    for (int i = 0; i < HEADS * ROWS * DIM; i++)
        x[i] = (uint16_t)(0x3e00 + kit_below(state, 0x200) + 0x8000 * kit_below(state, 2));
}

static heed_view laid(void *data)
{
    return (heed_view){data, {0, ROWS * DIM, DIM, 1}};
}

/* Computes rows [first, end) of out. */
static void run(heed_context *context, int64_t left, int64_t first, int64_t end, float *out)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_WINDOW | HEED_HAS_CAUSAL |
                                             HEED_HAS_REPRODUCIBLE_CHUNKS,
                                 UNIT_SHAPE(HEADS, HEADS, DIM, DIM),
                                 UNIT_TYPES(HEED_BF16, HEED_BF16, HEED_BF16, HEED_F32),
                                 .position = HEED_POS_GIVEN,
                                 .window_left = left,
                                 .window_right = 0};
    const int32_t offset = (int32_t)first;
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = end - first,
                           .kv_len = ROWS,
                           .q_offsets = &offset};
    args.q = heed_as_const(laid(q + first * DIM));
    args.k = heed_as_const(laid(k));
    args.v = heed_as_const(laid(v));
    args.out = laid(out + first * DIM);
    CHECK_OK(heed_attention(context, &desc, &args));
}

static void compare(const char *backend)
{
    heed_context *context = unit_context(1, backend);
    uint64_t state = 5;
    if (!unit_runs_here(context)) {
        heed_context_release(context);
        return;
    }
    fill(q, &state);
    fill(k, &state);
    fill(v, &state);
    for (int64_t left = 20; left < 24; left++) {
        run(context, left, 0, ROWS, whole);
        for (int64_t cut = 100; cut < 104; cut++) {
            run(context, left, 0, cut, part);
            run(context, left, cut, ROWS, part);
            CHECK(!memcmp(whole, part, sizeof whole), "%s, window %lld, cut at %lld", backend,
                  (long long)left, (long long)cut);
        }
    }
    heed_context_release(context);
}

int main(void)
{
    compare("avx2");
    compare("avx512");
    if (!n_checks) {
        printf("neither avx2 nor avx512 runs here\n");
        return 77;
    }
    return checks_end();
}
