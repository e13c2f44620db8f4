/* Hidden keys cost nothing: the tile products, counted on the model of the unit, are those of the
 * (32 rows, 32 keys) pairs in which some row sees some key. A loaded tile is used for several
 * products, since a load takes half a product's time even from the first cache. And rows whose scores
 * rise steadily stay on the fast path: nothing is computed twice. */
#define HEED_AMX_MODEL
#include "tile.h"

#include "../unit/unit.h"

enum { LEN = 640, DIM = 64 };

static uint16_t q[LEN][DIM], k[LEN][DIM], v[LEN][DIM];
static float out[LEN][DIM];
static uint8_t mask[LEN][LEN];

static uint32_t accuracy; /* of the calls */
static double loads;      /* of the last one, for each product */

/* Products of one call. */
static int64_t products(heed_context *context, uint64_t features, int64_t window, int64_t q_len)
{
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .features = features,
                           .position = features & ~HEED_HAS_MASK ? HEED_POS_TOP_LEFT : 0,
                           .window_left = window,
                           .window_right = window ? -1 : 0,
                           UNIT_SHAPE(1, 1, DIM, DIM),
                           UNIT_TYPES(HEED_BF16, HEED_BF16, HEED_BF16, HEED_F32),
                           .accuracy = accuracy};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = q_len,
                           .kv_len = q_len,
                           .q = {q, {0, 0, DIM, 1}},
                           .k = {k, {0, 0, DIM, 1}},
                           .v = {v, {0, 0, DIM, 1}},
                           .out = {out, {0, 0, DIM, 1}}};
    const amx_model_count before = heed_amx_model_count;
    int64_t n;
    if (features & HEED_HAS_MASK)
        args.mask = (heed_const_view){mask, {0, 0, LEN, 1}};
    CHECK_OK(heed_attention(context, &desc, &args));
    n = heed_amx_model_count.products - before.products;
    loads = (double)(heed_amx_model_count.loads - before.loads) / (double)n;
    return n;
}

/* The products of so many pairs: 4 tiles of scores and 4 of out, each in DIM / 32 steps. */
static int64_t of_pairs(int64_t pairs)
{
    return pairs * (4 * (DIM / 32) + 4 * (DIM / 32));
}

static void expect(const char *what, int64_t got, int64_t pairs)
{
    printf("%-24s %6lld products, %6lld are needed\n", what, (long long)got,
           (long long)of_pairs(pairs));
    CHECK(got == of_pairs(pairs), "%s", what);
}

static void expect_loads(const char *what, double most)
{
    printf("%-24s %.2f loads for a product\n", what, loads);
    CHECK(loads <= most, "%s", what);
}

int main(void)
{
    const int64_t all = LEN / 32;
    uint64_t seed = 3;
    static heed_backend table;
    heed_context *context = unit_context(1, "amx_counted");
    table = *heed_amx_model_backend();
    table.name = "amx_counted";
    CHECK_OK(heed_context_register(context, &table));
    for (int i = 0; i < LEN; i++)
        for (int d = 0; d < DIM; d++) {
            q[i][d] = heed_bf16_of_f32(unit_number(&seed));
            k[i][d] = heed_bf16_of_f32(unit_number(&seed));
            v[i][d] = heed_bf16_of_f32(unit_number(&seed));
        }
    products(context, 0, 0, LEN); /* with the trial */
    expect("full", products(context, 0, 0, LEN), all * all);
    expect_loads("full", 1.4); /* O of 16 rows stays in registers, operands are not shared */
    expect("causal", products(context, HEED_HAS_CAUSAL, 0, LEN), all * (all + 1) / 2);
    expect("causal, 128 rows", products(context, HEED_HAS_CAUSAL, 0, 128), 4 * 5 / 2);
    expect("causal, 32 rows", products(context, HEED_HAS_CAUSAL, 0, 32), 1);
    /* A row sees 64 keys before itself, so that 32 rows meet 3 blocks of 32 keys, at the start
     * fewer. */
    expect("window of 64", products(context, HEED_HAS_CAUSAL | HEED_HAS_WINDOW, 64, LEN),
           3 * all - 3);
    for (int i = 0; i < LEN; i++)
        for (int j = 0; j < LEN; j++)
            mask[i][j] = j >= LEN / 2 - 64; /* a whole number of blocks */
    expect("mask, first keys hidden", products(context, HEED_HAS_MASK, 0, LEN),
           all * (all / 2 + 2));
    for (int i = 0; i < LEN; i++)
        for (int j = 0; j < LEN; j++)
            mask[i][j] = (i * 7 + j * 13) % 3 != 0; /* every block is mixed */
    expect("mask, everywhere mixed", products(context, HEED_HAS_MASK, 0, LEN), all * all);
    /* By 2 in log2 units from block to block: weights of 2^-2 and more in the second one after a
     * reference was set, and from the third on too large ones if the reference stays. */
    for (int i = 0; i < LEN; i++)
        for (int d = 0; d < DIM; d++) {
            q[i][d] = heed_bf16_of_f32(d ? 0 : 8);
            k[i][d] = heed_bf16_of_f32(d ? 0 : (float)i * (2 / 1.442695f) / 128);
        }
    const int64_t rising = products(context, 0, 0, LEN);
    printf("%-24s %6lld products\n", "rising", (long long)rising);
    CHECK(rising <= of_pairs(all * all) * 11 / 10, "rising: computed twice");
    accuracy = HEED_ACCURACY_SPLIT;
    products(context, 0, 0, LEN); /* with the trial */
    CHECK(products(context, 0, 0, LEN) == 3 * of_pairs(all * all), "split: not three for one");
    expect_loads("split", 0.9);
    heed_context_release(context);
    return checks_end();
}
