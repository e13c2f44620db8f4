/* Query heads of a group that share a mask or a bias give the bits of heads that have a copy each:
 * with groups and numbers of rows and keys at which a kernel may work on the heads of the same rows
 * one after the other, and with others, on every backend that runs here. */
#include <heed/formats.h>

#include "unit.h"

enum { MOST_ROWS = 200, MOST_KEYS = 300, MOST_HEADS = 8, DIM = 16, KV_HEADS = 2 };

/* What is in the bias and the mask. */
enum { NUMBERS, HIDING, MASK, BOTH, CONTENTS };

static float q[MOST_HEADS * MOST_ROWS * DIM], k[KV_HEADS * MOST_KEYS * DIM],
    v[KV_HEADS * MOST_KEYS * DIM];
static float bias[MOST_HEADS * MOST_ROWS * MOST_KEYS], out[2][MOST_HEADS * MOST_ROWS * DIM];
static float lse[2][MOST_HEADS * MOST_ROWS];
static uint8_t mask[MOST_HEADS * MOST_ROWS * MOST_KEYS];
static int n_served;

/* Fills the masks of the first head and copies them to the others. A fifth of the rows sees nothing
 * of the first half of the keys. */
static void fill_masks(uint64_t *random, int contents, int64_t heads, int64_t rows, int64_t keys)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < keys; j++) {
            const int hidden = kit_below(random, 4) == 0 || (i % 5 == 0 && j < keys / 2);
            const float number = contents == HIDING ? 0 : unit_number(random);
            mask[i * keys + j] = !hidden;
            bias[i * keys + j] = contents != BOTH && hidden ? -INFINITY : number;
        }
    for (int64_t h = 1; h < heads; h++) {
        memcpy(mask + h * rows * keys, mask, (size_t)(rows * keys));
        memcpy(bias + h * rows * keys, bias, (size_t)(rows * keys) * sizeof *bias);
    }
}

static void check(heed_context *context, const char *name, uint64_t *random, int contents,
                  uint32_t group, int64_t rows, int64_t keys, int causal)
{
    static const float slopes[MOST_HEADS] = {1, -2, 0.5f, 3, 0, 0.25f, -1, 2};
    const int64_t heads = KV_HEADS * (int64_t)group;
    const heed_attn_desc desc = {
        .struct_size = sizeof desc,
        .features = HEED_HAS_LSE | (contents == MASK || contents == BOTH ? HEED_HAS_MASK : 0) |
                    (contents == MASK ? 0 : HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE) |
                    (causal ? HEED_HAS_CAUSAL : 0),
        .position = causal ? HEED_POS_BOTTOM_RIGHT : HEED_POS_UNSET,
        UNIT_SHAPE((uint32_t)heads, KV_HEADS, DIM, DIM),
        UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
        .bias_type = contents == MASK ? HEED_DTYPE_NONE : HEED_F32};
    if (heed_attn_supported(context, &desc, NULL) == HEED_ERR_UNSUPPORTED)
        return;
    fill_masks(random, contents, heads, rows, keys);
    for (int copies = 0; copies < 2; copies++) {
        const int64_t head = copies ? rows * keys : 0;
        heed_attn_args args = {.struct_size = sizeof args,
                               .batch = 1,
                               .q_len = rows,
                               .kv_len = keys,
                               .q = {q, {0, rows * DIM, DIM, 1}},
                               .k = {k, {0, keys * DIM, DIM, 1}},
                               .v = {v, {0, keys * DIM, DIM, 1}},
                               .out = {out[copies], {0, rows * DIM, DIM, 1}},
                               .lse = {lse[copies], {0, rows, 1}}};
        if (contents == MASK || contents == BOTH)
            args.mask = (heed_const_view){mask, {0, head, keys, 1}};
        if (contents != MASK) {
            args.bias = (heed_const_view){bias, {0, head, keys, 1}};
            args.bias_slope = slopes;
        }
        CHECK_OK(heed_attention(context, &desc, &args));
    }
    n_served++;
    CHECK(memcmp(out[0], out[1], (size_t)(heads * rows * DIM) * sizeof(float)) == 0 &&
              memcmp(lse[0], lse[1], (size_t)(heads * rows) * sizeof(float)) == 0,
          "%s, contents %d: %u heads of a group, %d rows, %d keys, causal %d: a shared one has "
          "other bits",
          name, contents, group, (int)rows, (int)keys, causal);
}

static void check_all(heed_context *context, const char *name)
{
    static const int rows[] = {16, 32, 64, 80, 96, 131, 200};
    static const int keys[] = {100, 300};
    uint64_t random = 1;
    for (int i = 0; i < MOST_HEADS * MOST_ROWS * DIM; i++)
        q[i] = 4 * unit_number(&random);
    for (int i = 0; i < KV_HEADS * MOST_KEYS * DIM; i++) {
        k[i] = unit_number(&random);
        v[i] = unit_number(&random);
    }
    for (int contents = 0; contents < CONTENTS; contents++)
        for (uint32_t group = 1; group <= MOST_HEADS / KV_HEADS; group *= 2)
            for (int r = 0; r < (int)(sizeof rows / sizeof *rows); r++)
                for (int n = 0; n < 2; n++)
                    check(context, name, &random, contents, group, rows[r], keys[n], (r + n) % 2);
}

int main(void)
{
    unit_each_backend(check_all);
    CHECK(n_served >= CONTENTS * 3 * 7 * 2, "%d problems were served",
          n_served); /* naive runs all */
    return checks_end();
}
