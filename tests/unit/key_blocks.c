/* heed/masks.h: key blocks from lists, and by the bounds of their keys, against plain loops. Wrong
 * arguments are refused, and nothing is written then. */
#include "unit.h"

static uint64_t words[3][3];

/* Are the two words of a row of 71 blocks these? The third, behind them, is never written. */
static void check_row(int row, uint64_t first, uint64_t second)
{
    CHECK(words[row][0] == first && words[row][1] == second &&
              words[row][2] == UINT64_C(0x5555555555555555),
          "row %d: %llx %llx, then %llx", row, (unsigned long long)words[row][0],
          (unsigned long long)words[row][1], (unsigned long long)words[row][2]);
}

static void check_untouched(void)
{
    check_row(0, words[0][2], words[0][2]);
}

static void check_blocks(void)
{
    static const int32_t index[] = {3, 0, 70, -1, 64, 69, 3};
    static const int64_t start[] = {0, 2, 2, 7}, down[] = {0, 2, 1, 7};
    heed_key_blocks_args a = {.struct_size = sizeof a,
                              .rows = 3,
                              .blocks = 71,
                              .row_stride = 3,
                              .words = words[0],
                              .index = index,
                              .start = start};
    memset(words, 0x55, sizeof words);
    CHECK_OK(heed_key_blocks_csr(&a));
    check_row(0, 9, 0);
    check_row(1, 0, 0);
    check_row(2, 8, UINT64_C(1) | 1 << 5 | 1 << 6);
    a.per_row = 2;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "per_row");
    CHECK_OK(heed_key_blocks_list(&a));
    check_row(0, 9, 0);
    check_row(1, 0, 1 << 6);
    check_row(2, 0, 33);
    memset(words, 0x55, sizeof words);
    a.per_row = 0;
    a.start = down;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "start[1]");
    a.start = start;
    a.blocks = 70;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "index[2]");
    a.row_stride = 1;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "row_stride");
    a.row_stride = INT64_C(1) << 61; /* in bytes it wraps to 0 */
    a.blocks = 71;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "row_stride");
    CHECK_REFUSED(heed_key_blocks_list(&a), HEED_ERR_INVALID, "row_stride");
    check_untouched();
    a.rows = 0; /* no row is reached */
    CHECK_OK(heed_key_blocks_csr(&a));
    check_untouched();
    a.rows = 1; /* and no second one */
    CHECK_OK(heed_key_blocks_csr(&a));
    check_row(0, 9, 0);
    a.rows = 3;
    a.row_stride = 3;
    a.per_row = INT64_MAX / 2;
    CHECK_REFUSED(heed_key_blocks_list(&a), HEED_ERR_INVALID, "per_row");
    a.per_row = 0;
    CHECK_OK(heed_key_blocks_list(&a));
    check_row(0, 0, 0);
    check_row(2, 0, 0);
    a.blocks = 0;
    a.row_stride = INT64_MAX; /* rows without words */
    CHECK_OK(heed_key_blocks_list(&a));
}

enum { DIM = 19, BLOCK = 8, BLOCKS = 13, HEADS = 4, KV = 2, LENGTH = BLOCK * (BLOCKS - 1) + 3 };

static float k[KV][LENGTH][DIM], q[HEADS][DIM], least[KV][BLOCKS][DIM], greatest[KV][BLOCKS][DIM];

/* The bounds of all keys, in one piece of memory. */
static heed_key_bounds_args bounds_args(void)
{
    return (heed_key_bounds_args){.struct_size = sizeof(heed_key_bounds_args),
                                  .q_heads = HEADS,
                                  .kv_heads = KV,
                                  .dim = DIM,
                                  .type = HEED_F32,
                                  .keys = LENGTH,
                                  .block_keys = BLOCK,
                                  .x = {k, {0, LENGTH * DIM, DIM, 1}},
                                  .least = least[0][0],
                                  .greatest = greatest[0][0],
                                  .bounds_stride = BLOCKS * DIM};
}

static double bound(int h, int n)
{
    double sum = 0;
    for (int d = 0; d < DIM; d++)
        sum += fmax((double)q[h][d] * (double)least[h / 2][n][d],
                    (double)q[h][d] * (double)greatest[h / 2][n][d]);
    return sum;
}

/* What a block counts, of which no more than `top` are chosen: with `shared` the greater bound of
 * both heads of a group. */
static double rank(uint32_t shared, int h, int n)
{
    return shared ? fmax(bound(h, n), bound(h ^ 1, n)) : bound(h, n);
}

static heed_key_bounds_args topk_args(float *scores, uint64_t *chosen)
{
    heed_key_bounds_args a = bounds_args();
    a.x = (heed_const_view){q, {0, DIM, DIM, 1}};
    a.scores = scores;
    a.words = chosen;
    return a;
}

static void check_topk(uint32_t shared, int64_t top, int64_t always_first, int64_t always_last)
{
    float scores[BLOCKS];
    uint64_t chosen[HEADS];
    heed_key_bounds_args a = topk_args(scores, chosen);
    a.top = top;
    a.always_first = always_first;
    a.always_last = always_last;
    a.shared = shared;
    CHECK_OK(heed_key_blocks_topk(&a));
    for (int h = 0; h < HEADS; h++) {
        int n_chosen = 0;
        double worst = 1e30, best = -1e30;
        for (int n = 0; n < BLOCKS; n++) {
            const int in = (int)(chosen[h] >> n & 1);
            n_chosen += in;
            if (n < always_first || n >= BLOCKS - always_last)
                CHECK(in, "head %d: block %d is left out", h, n);
            else if (in)
                worst = fmin(worst, rank(shared, h, n));
            else
                best = fmax(best, rank(shared, h, n));
        }
        CHECK(n_chosen == (top < BLOCKS ? top : BLOCKS) && chosen[h] >> BLOCKS == 0,
              "head %d: %d are chosen of %d", h, n_chosen, (int)top);
        CHECK(best <= worst + 1e-5, "head %d: %g is left out, %g is not", h, best, worst);
    }
}

/* A NaN makes both bounds of its column and block NaN and no others, wherever in the block it stands. */
static void check_nans(void)
{
    static float with[LENGTH][DIM];
    heed_key_bounds_args a = bounds_args();
    a.kv_heads = 1;
    for (int at = 0; at < 2 * BLOCK; at++) {
        memcpy(with, k[0], sizeof with);
        with[at][at % DIM] = at % 2 ? NAN : -NAN;
        CHECK_OK(heed_key_bounds(&a)); /* of k */
        static float before[2][DIM];
        memcpy(before, least[0], sizeof before);
        a.x.data = with;
        CHECK_OK(heed_key_bounds(&a));
        for (int n = 0; n < 2; n++)
            for (int d = 0; d < DIM; d++)
                if (n == at / BLOCK && d == at % DIM)
                    CHECK(isnan(least[0][n][d]) && isnan(greatest[0][n][d]),
                          "a NaN of key %d gives %g to %g", at, (double)least[0][n][d],
                          (double)greatest[0][n][d]);
                else
                    CHECK(least[0][n][d] == before[n][d], "a NaN of key %d: block %d, dim %d is %g",
                          at, n, d, (double)least[0][n][d]);
        a.x.data = k;
    }
    a = bounds_args();
    CHECK_OK(heed_key_bounds(&a)); /* as the other checks expect them */
}

/* Rows that are longer than what is looked at together. */
static void check_wide(void)
{
    enum { WIDE = 300, KEYS = 3 };
    static uint16_t x[KEYS][WIDE];
    static float low[2][WIDE], high[2][WIDE];
    uint64_t state = 3;
    const heed_key_bounds_args a = {.struct_size = sizeof a,
                                    .kv_heads = 1,
                                    .dim = WIDE,
                                    .type = HEED_BF16,
                                    .keys = KEYS,
                                    .block_keys = 2,
                                    .x = {x, {0, 0, WIDE, 1}},
                                    .least = low[0],
                                    .greatest = high[0],
                                    .bounds_stride = 2 * WIDE};
    for (int64_t i = 0; i < KEYS * WIDE; i++)
        heed_store(HEED_BF16, x, i, kit_next_float(&state));
    CHECK_OK(heed_key_bounds(&a));
    for (int d = 0; d < WIDE; d++) {
        const float first = heed_load(HEED_BF16, x[0], d), second = heed_load(HEED_BF16, x[1], d);
        const float third = heed_load(HEED_BF16, x[2], d);
        CHECK(low[0][d] == fminf(first, second) && high[0][d] == fmaxf(first, second) &&
                  low[1][d] == third && high[1][d] == third,
              "dim %d of %d: %g to %g, %g to %g", d, WIDE, (double)low[0][d], (double)high[0][d],
              (double)low[1][d], (double)high[1][d]);
    }
}

static void check_bounds(void)
{
    heed_key_bounds_args a = bounds_args();
    CHECK_OK(heed_key_bounds(&a));
    for (int g = 0; g < KV; g++)
        for (int n = 0; n < BLOCKS; n++)
            for (int d = 0; d < DIM; d++) {
                float low = 9, high = -9;
                for (int j = n * BLOCK; j < (n + 1) * BLOCK && j < LENGTH; j++) {
                    low = fminf(low, k[g][j][d]);
                    high = fmaxf(high, k[g][j][d]);
                }
                CHECK(least[g][n][d] == low && greatest[g][n][d] == high,
                      "head %d, block %d, dim %d: %g to %g, not %g to %g", g, n, d,
                      (double)least[g][n][d], (double)greatest[g][n][d], (double)low, (double)high);
            }
    least[0][0][0] = 77; /* blocks before the first are left alone */
    a.first_block = 1;
    CHECK_OK(heed_key_bounds(&a));
    CHECK(least[0][0][0] == 77, "%g", (double)least[0][0][0]);
    a.first_block = 0;
    CHECK_OK(heed_key_bounds(&a));
    CHECK(least[0][0][0] < 2, "%g", (double)least[0][0][0]);
    for (uint32_t shared = 0; shared < 2; shared++) {
        check_topk(shared, 1, 0, 0);
        check_topk(shared, 4, 0, 0);
        check_topk(shared, 5, 1, 2);
        check_topk(shared, 3, 1, 2);
        check_topk(shared, 100, 0, 0);
    }
    a.block_keys = 0;
    CHECK_REFUSED(heed_key_bounds(&a), HEED_ERR_INVALID, "block_keys");
    a.block_keys = BLOCK;
    a.bounds_stride--;
    CHECK_REFUSED(heed_key_bounds(&a), HEED_ERR_INVALID, "bounds_stride");
}

/* Of pages as of strides only what is read counts, and of what is refused nothing is written. */
static void check_reach(void)
{
    int32_t pages[2] = {0};
    float scores[BLOCKS];
    uint64_t chosen[HEADS];
    heed_key_bounds_args a = bounds_args();
    a.page_len = LENGTH - BLOCK;
    a.pages = pages;
    CHECK_OK(heed_key_bounds(&a));
    memset(least, 0x77, sizeof least);
    memset(greatest, 0x77, sizeof greatest);
    pages[1] = -1;
    CHECK_REFUSED(heed_key_bounds(&a), HEED_ERR_INVALID, "pages[1] is -1");
    pages[1] = 1;
    a.x.stride[0] = INT64_MAX / 2;
    CHECK_REFUSED(heed_key_bounds(&a), HEED_ERR_INVALID, "args.x");
    a.x.stride[0] = 0;
    a.x.stride[2] = INT64_MAX / LENGTH;
    CHECK_REFUSED(heed_key_bounds(&a), HEED_ERR_INVALID, "args.x");
    a.x.stride[2] = DIM;
    a.bounds_stride = INT64_MAX / 4;
    CHECK_REFUSED(heed_key_bounds(&a), HEED_ERR_INVALID, "bounds_stride");
    for (size_t i = 0; i < sizeof least; i++)
        CHECK(((unsigned char *)least)[i] == 0x77 && ((unsigned char *)greatest)[i] == 0x77,
              "byte %zu is written", i);
    a.bounds_stride = BLOCKS * DIM;
    pages[0] = -1; /* of keys before the first block */
    a.first_block = (LENGTH - BLOCK + BLOCK - 1) / BLOCK;
    CHECK(a.first_block * BLOCK < LENGTH, "no key is left");
    CHECK_OK(heed_key_bounds(&a));
    a.x.stride[1] = INT64_MAX / 2;
    a.page_len = 0;
    a.pages = NULL;
    a.first_block = 0;
    a.top = 1;
    a.scores = scores;
    a.words = chosen;
    CHECK_REFUSED(heed_key_blocks_topk(&a), HEED_ERR_INVALID, "args.x");
}

/* What lists and csr lack, or have too much of. */
static void check_missing(void)
{
    static const int64_t start[] = {0, 1};
    static const int32_t index[] = {0};
    const heed_key_blocks_args good = {.struct_size = sizeof good,
                                       .rows = 1,
                                       .blocks = 1,
                                       .row_stride = 1,
                                       .words = words[0],
                                       .index = index,
                                       .start = start};
    heed_key_blocks_args a = good;
    memset(words, 0x55, sizeof words);
    a.words = NULL;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "args.words is NULL");
    a = good, a.blocks = INT64_MAX; /* 63 more would overflow */
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "args.blocks is");
    a = good, a.start = NULL;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "args.start is NULL");
    a = good, a.index = NULL;
    CHECK_REFUSED(heed_key_blocks_csr(&a), HEED_ERR_INVALID, "args.index is NULL");
    check_untouched();
}

/* Each of them names the argument, and nothing is written. */
static void check_mistakes(void)
{
    static const int32_t page = 0;
    enum { CHOOSING = 11, MISTAKES = 21 };
    static const char *const word[MISTAKES] = {
        "args.reserved is 1", "args.first_block is -1", "args.first_block is 14",
        "without args.pages", "with args.pages", "args.x is NULL", "args.least is NULL",
        "args.greatest is NULL", "args.type is 99", "args.kv_heads is 0", "args.dim is 0",
        /* of topk alone */
        "first_block is given", "page_len is given", "q_heads is 0", "q_heads is 3", "shared is 2",
        "top is 0", "always_first -1", "always_first 5", "always_last 4", "args.words is NULL"};
    for (int n = 0; n < MISTAKES; n++) {
        float scores[BLOCKS];
        uint64_t chosen[HEADS];
        heed_key_bounds_args a = n < CHOOSING ? bounds_args() : topk_args(scores, chosen);
        a.reserved = n == 0;
        a.first_block = n == 1 ? -1 : n == 2 ? BLOCKS + 1 : n == 11;
        a.page_len = n == 3 || n == 12 ? 16 : 0;
        a.pages = n == 4 ? &page : NULL;
        a.x.data = n == 5 ? NULL : a.x.data;
        a.least = n == 6 ? NULL : a.least;
        a.greatest = n == 7 ? NULL : a.greatest;
        a.type = n == 8 ? 99 : a.type;
        a.kv_heads = n == 9 ? 0 : a.kv_heads;
        a.dim = n == 10 ? 0 : a.dim;
        a.q_heads = n == 13 ? 0 : n == 14 ? 3 : a.q_heads;
        a.shared = n == 15 ? 2 : 0;
        a.top = n == 16 ? 0 : 4;
        a.always_first = n == 17 ? -1 : n == 18 ? 5 : 1;
        a.always_last = n == 19 ? 4 : 0;
        a.words = n == 20 ? NULL : a.words;
        memset(least, 0x77, sizeof least);
        memset(chosen, 0x77, sizeof chosen);
        CHECK_REFUSED((n < CHOOSING ? heed_key_bounds : heed_key_blocks_topk)(&a), HEED_ERR_INVALID,
                      word[n]);
        for (size_t i = 0; i < sizeof least; i++)
            CHECK(((unsigned char *)least)[i] == 0x77, "mistake %d: byte %zu is written", n, i);
        CHECK(chosen[0] == UINT64_C(0x7777777777777777), "mistake %d: blocks are chosen", n);
    }
}

int main(void)
{
    uint64_t random = 1;
    for (int g = 0; g < KV; g++)
        for (int j = 0; j < LENGTH; j++)
            for (int d = 0; d < DIM; d++)
                k[g][j][d] = kit_next_float(&random);
    for (int h = 0; h < HEADS; h++)
        for (int d = 0; d < DIM; d++)
            q[h][d] = kit_next_float(&random);
    check_blocks();
    check_missing();
    check_bounds();
    check_nans();
    check_wide();
    check_reach();
    check_mistakes();
    return checks_end();
}
