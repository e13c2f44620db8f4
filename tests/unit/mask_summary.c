/* What core tells kernels of blocks of keys (NONE, ALL or MIXED) is what plain loops over mask,
 * bias and ranges find: for every type of bias, any strides, masks that begin late, slopes, heads
 * that share their masks and heads that do not. So is what it tells them of each key, in bits. */
#include "attention/mask_summary.h"
#include "../draw.h"
#include "attention/mask_bits.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>

enum { HEADS = 2, ROWS = 3, KEYS = 90, WIDE = 2 * KEYS, BLOCK = 16, CASES = 20000 };

static uint8_t mask[HEADS * ROWS * WIDE];
static float bias[HEADS * ROWS * WIDE];
static uint32_t typed[HEADS * ROWS * WIDE];
static int32_t ranges[HEADS][ROWS][2][2];
static int n_there; /* tiles that got bits */

/* Long runs of one value, so that whole blocks are of a kind; now and then another value. */
static void fill(uint32_t type)
{
    static const float often[] = {0, 0, -0.0f, -INFINITY, -INFINITY, 1.5f, NAN};
    for (int i = 0, left = 0, what = 0; i < HEADS * ROWS * WIDE; i++, left--) {
        if (left <= 0)
            left = 1 + (int)below(150), what = (int)below(below(4) ? 5 : 7);
        bias[i] = often[below(300) ? what : (int)below(7)];
        mask[i] = (uint8_t)(below(300) ? (what < 3) * 2 : below(2));
        heed_store(type, typed, i, bias[i]);
    }
}

/* Two ranges a row, of which one or both may be empty; often those of the row before. */
static void fill_ranges(void)
{
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < ROWS; i++) {
            int32_t at = 0;
            for (int n = 0; n < 2; n++) {
                const int32_t first = at + (int32_t)below((uint32_t)(KEYS - at) / 2 + 1);
                at = below(3) ? first + (int32_t)below((uint32_t)(KEYS - first) + 1) : first;
                ranges[h][i][n][0] = first;
                ranges[h][i][n][1] = at;
            }
            if (i > 0 && below(2))
                memcpy(ranges[h][i], ranges[h][i - 1], sizeof ranges[h][i]);
        }
}

/* The kind of keys [first, end) by the ranges alone. */
static int kind_of_ranges(const heed_tile *t, int64_t h, int64_t first, int64_t end)
{
    int any = 0, all = 1;
    for (int64_t i = t->q_first; i < t->q_first + t->q_count; i++)
        for (int64_t j = first; j < end; j++) {
            int32_t(*r)[2] = ranges[t->ranges.head_stride ? h : 0][t->ranges.row_stride ? i : 0];
            const int seen = (r[0][0] <= j && j < r[0][1]) || (r[1][0] <= j && j < r[1][1]);
            any |= seen;
            all &= seen;
        }
    return !any ? HEED_BLOCK_NONE : all ? HEED_BLOCK_ALL : HEED_BLOCK_MIXED;
}

/* The kind of keys [first, end) for head h. */
static int kind_of(const heed_tile *t, int64_t h, int64_t first, int64_t end, int odd)
{
    int by_mask = t->mask.data != NULL, by_bias = t->bias.data != NULL, all = 1;
    for (int64_t i = t->q_first; i < t->q_first + t->q_count; i++)
        for (int64_t j = first; j < end; j++) {
            const int late = j < t->mask_from;
            const int64_t m = h * t->mask.head_stride + i * t->mask.row_stride + j;
            const int64_t b =
                h * t->bias.head_stride + i * t->bias.row_stride + j * t->bias.dim_stride;
            const int masked = t->mask.data && !late && !mask[m];
            const float x = t->bias.data && !late ? bias[b] : 0;
            by_mask &= masked;
            by_bias &= x == -INFINITY && !odd;
            all &= !masked && x == 0 && !(t->bias.data && odd);
        }
    return by_mask || by_bias ? HEED_BLOCK_NONE : all ? HEED_BLOCK_ALL : HEED_BLOCK_MIXED;
}

static int is_mixed(const heed_tile *t, int64_t j)
{
    return t->mask_blocks[j / BLOCK - t->k_first / BLOCK] == HEED_BLOCK_MIXED;
}

/* The bits of a tile whose heads share their masks: they exist if all biases in the words that are
 * made are 0 or -inf, and then say what mask and bias say. */
static void check_bits(const heed_problem *problem, const heed_tile *t, int odd)
{
    enum { WORDS = 3 };
    uint64_t bits[ROWS * WORDS];
    int wrong = 0, numbers = t->bias.data && odd, mixed[WORDS] = {0};
    for (int64_t j = t->k_first; j < t->k_end; j++)
        mixed[j / 64] |= is_mixed(t, j);
    memset(bits, 0xaa, sizeof bits);
    const int there = heed_mask_bits(problem, BLOCK, t, bits, WORDS);
    for (int64_t i = t->q_first; i < t->q_first + t->q_count; i++)
        for (int64_t j = t->k_first; j < t->k_end; j++) {
            const int late = j < t->mask_from;
            const float x =
                t->bias.data && !late ? bias[i * t->bias.row_stride + j * t->bias.dim_stride] : 0;
            const int seen =
                x != -INFINITY && (!t->mask.data || late || mask[i * t->mask.row_stride + j]);
            numbers |= mixed[j / 64] && x != 0 && x != -INFINITY;
            wrong += is_mixed(t, j) &&
                     (int)(bits[(i - t->q_first) * WORDS + j / 64] >> j % 64 & 1) != seen;
        }
    CHECK(there == !numbers, "bits are there: %d, biases other than 0 and -inf: %d", there,
          numbers);
    CHECK(!there || !wrong, "%d bits are wrong", wrong);
    n_there += there;
}

static void check_case(void)
{
    static const uint32_t types[] = {HEED_F32, HEED_F16, HEED_BF16};
    static const float even[] = {1, 0.5f, 2, 0}, odd[] = {1, 0.5f, 2, INFINITY};
    const uint32_t type = types[below(3)], what = below(4); /* mask, bias, both, none */
    const int slopes = (int)below(4), is_odd = slopes == 1 && what != 0, dim = 1 + (int)below(2);
    heed_problem problem = {.bias_type = type, .q_heads = 4, .n_ranges = 2};
    uint8_t summary[(HEADS + 1) * (KEYS / BLOCK + 2)];
    heed_tile t = {.n_heads = HEADS,
                   .q_first = below(2),
                   .kv_len = KEYS,
                   .window_left = HEED_UNBOUNDED,
                   .window_right = HEED_UNBOUNDED};
    t.first_head = below(2);
    t.q_count = 1 + below((uint32_t)(ROWS - t.q_first));
    t.k_first = below(KEYS - 1);
    t.k_end = t.k_first + 1 + below((uint32_t)(KEYS - t.k_first));
    t.mask_from = below(3) ? 0 : below(KEYS);
    fill(type);
    if (what == 1 || what == 2)
        t.bias = (heed_rows){.data = typed,
                             .head_stride = below(2) ? ROWS * WIDE : 0,
                             .row_stride = below(4) ? WIDE : 0,
                             .dim_stride = dim};
    if (what == 0 || what == 2)
        t.mask = (heed_rows){.data = mask,
                             .head_stride = below(2) ? ROWS * WIDE : 0,
                             .row_stride = below(4) ? WIDE : 0,
                             .dim_stride = 1};
    if (t.bias.data && slopes < 2)
        t.bias_slope = (slopes ? odd : even) + t.first_head;
    fill_ranges();
    if (what == 3 || below(2))
        t.ranges = (heed_rows){.data = ranges,
                               .head_stride = below(2) ? ROWS * 2 : 0,
                               .row_stride = below(4) ? 2 : 0,
                               .dim_stride = 1};
    heed_mask_summary(&problem, BLOCK, &t, summary);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t at = t.k_first / BLOCK; at * BLOCK < t.k_end; at++) {
            const int64_t first = at * BLOCK > t.k_first ? at * BLOCK : t.k_first;
            const int64_t end = (at + 1) * BLOCK < t.k_end ? (at + 1) * BLOCK : t.k_end;
            int kind = kind_of(&t, h, first, end, is_odd);
            if (t.ranges.data) {
                const int listed = kind_of_ranges(&t, h, first, end);
                kind = kind == HEED_BLOCK_ALL || listed == HEED_BLOCK_NONE ? listed : kind;
            }
            CHECK(t.mask_blocks[h * t.mask_block_stride + at - t.k_first / BLOCK] == kind,
                  "head %d, keys [%d, %d)", (int)h, (int)first, (int)end);
        }
    if (what != 3 && heed_shares_masks(&t))
        check_bits(&problem, &t, is_odd);
}

int main(void)
{
    for (int i = 0; i < CASES; i++)
        check_case();
    CHECK(n_there > CASES / 20, "%d tiles had bits", n_there);
    return checks_end();
}
