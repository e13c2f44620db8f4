/* heed/masks.h: every list agrees with a one-line predicate for every row and key. Wrong arguments
 * are refused, and nothing is written then. */
#include <heed/heed.h>

#include "../kit/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s is not true (%s)\n", __LINE__, #condition, heed_last_error());     \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

enum { ROWS = 29, KEYS = 40, MOST = 8 };

static int failures;
static int32_t ranges[ROWS * MOST * 2];
static int32_t segments[KEYS], lens[] = {7, 0, 12, 15}, parents[ROWS], low[KEYS], high[KEYS];
static int32_t rows_in[ROWS], behind_end[KEYS];
static int has_more; /* row_segments and hidden_end2 are given */

static int document(int64_t x)
{
    return x < 0 || x >= 34 ? -1 : x < 7 ? 0 : x < 19 ? 1 : 2;
}

static int path(int64_t i, int64_t j)
{
    while (i > j)
        i = parents[i];
    return i == j;
}

/* Does row i of this kind see key j? Rows stand at key i + 11. */
static int sees(int kind, int causal, int64_t i, int64_t j)
{
    const int64_t own = i + 11;
    if (causal && j > own)
        return 0;
    switch (kind) {
    case 0:
        return segments[j] >= 0 && (has_more ? rows_in[i] : segments[own]) == segments[j];
    case 1:
        return document(own) >= 0 && document(own) == document(j);
    case 2:
        return j < 17 || j <= own;
    case 3:
        return own / 6 == j / 6;
    case 4:
        return j < 11 || path(i, j - 11);
    default:
        return !(i >= low[j] && i < high[j]) &&
               (i < 25 + j % 2 * 4 || (has_more && i >= behind_end[j]));
    }
}

static heed_ranges_args args_of(int kind, int causal)
{
    static int32_t behind[KEYS];
    heed_ranges_args a = {.struct_size = sizeof a,
                          .rows = ROWS,
                          .keys = KEYS,
                          .offset = 11,
                          .n_ranges = MOST,
                          .causal = (uint32_t)causal,
                          .ranges = ranges};
    for (int j = 0; j < KEYS; j++)
        behind[j] = 25 + j % 2 * 4;
    a.segments = kind == 0 ? segments : NULL;
    a.lens = kind == 1 ? lens : NULL;
    a.n_lens = kind == 1 ? 4 : 0;
    a.prefix = kind == 2 ? 17 : 0;
    a.chunk = kind == 3 ? 6 : 0;
    a.parents = kind == 4 ? parents : NULL;
    a.hidden_start = kind == 5 ? low : NULL;
    a.hidden_end = kind == 5 ? high : NULL;
    a.hidden_start2 = kind == 5 ? behind : NULL;
    a.row_segments = kind == 0 && has_more ? rows_in : NULL;
    a.hidden_end2 = kind == 5 && has_more ? behind_end : NULL;
    return a;
}

static heed_status (*const maker[])(const heed_ranges_args *) = {
    heed_ranges_segments, heed_ranges_lens, heed_ranges_prefix,
    heed_ranges_chunks,   heed_ranges_tree, heed_ranges_columns};

static void check_kind(int kind, int causal)
{
    uint32_t needed = 0, most = 0;
    heed_ranges_args a = args_of(kind, causal);
    const int64_t rows = kind == 5 ? 24 : ROWS; /* columns: later rows see every second key */
    a.rows = rows;
    a.needed = &needed;
    memset(ranges, 0x55, sizeof ranges);
    EXPECT(maker[kind](&a) == HEED_OK);
    for (int64_t i = 0; i < rows; i++) {
        uint32_t used = 0;
        for (int64_t j = 0; j < KEYS; j++) {
            int in = 0;
            for (int n = 0; n < MOST; n++)
                in += j >= ranges[2 * (i * MOST + n)] && j < ranges[2 * (i * MOST + n) + 1];
            if (in != sees(kind, causal, i, j)) {
                printf("kind %d causal %d: row %d and key %d\n", kind, causal, (int)i, (int)j);
                failures++;
            }
        }
        for (int n = 0; n < MOST; n++) {
            const int32_t *r = ranges + 2 * (i * MOST + n);
            EXPECT(r[0] <= r[1] && (n == 0 || r[0] >= r[-1]));
            used += r[0] < r[1];
        }
        most = used > most ? used : most;
    }
    EXPECT(needed == most);
    needed = 77; /* counts alone: n_ranges is not read */
    a.ranges = NULL;
    a.n_ranges = 0;
    EXPECT(maker[kind](&a) == HEED_OK && needed == most);
    a.ranges = ranges;
    if (most < 2)
        return;
    memset(ranges, 0x55, sizeof ranges);
    a.n_ranges = most - 1; /* too few: counts, and writes nothing */
    EXPECT(maker[kind](&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "n_ranges"));
    EXPECT(needed == most && ranges[0] == 0x55555555 && ranges[2 * ROWS] == 0x55555555);
}

static uint64_t random_state = 1;

static int32_t below(int n)
{
    return (int32_t)kit_below(&random_state, n);
}

/* Segments in order or not, with padding at the end or between; a tree; columns with few rows where
 * something changes, or many. */
static void draw_masks(void)
{
    const int in_order = below(2), changes = 1 + below(ROWS), children = 1 + below(9);
    const int most = 1 + below(9), padding = below(3) ? KEYS : below(KEYS);
    for (int j = 0; j < KEYS; j++) {
        segments[j] = in_order ? (j ? segments[j - 1] + !below(most) : 0) : below(most) - 1;
        low[j] = below(changes) * ROWS / changes;
        high[j] = low[j] + below(2) * below(ROWS);
        behind_end[j] = 25 + below(changes) * ROWS / changes;
    }
    has_more = below(2);
    for (int j = padding; j < KEYS; j++)
        segments[j] = -1 - below(2);
    for (int i = 0; i < ROWS; i++) {
        rows_in[i] = segments[below(KEYS)];
        parents[i] = i - 1 - below(children) < 0 ? -1 : i - 1 - below(i < children ? i : children);
    }
}

/* As many intervals are needed as the row with the most has, also where that are more than can be
 * written. */
static void check_drawn(int kind, int causal)
{
    uint32_t needed = 0, most = 0;
    heed_ranges_args a = args_of(kind, causal);
    a.ranges = NULL;
    a.needed = &needed;
    for (int64_t i = 0; i < ROWS; i++) {
        uint32_t n = 0;
        for (int64_t j = 0; j < KEYS; j++)
            n += sees(kind, causal, i, j) && !(j && sees(kind, causal, i, j - 1));
        most = n > most ? n : most;
    }
    EXPECT(maker[kind](&a) == HEED_OK && needed == most);
    a.ranges = ranges;
    EXPECT(maker[kind](&a) == (most <= MOST ? HEED_OK : HEED_ERR_INVALID));
    for (int64_t i = 0; i < ROWS && most <= MOST; i++)
        for (int64_t j = 0; j < KEYS; j++) {
            int in = 0;
            for (int n = 0; n < MOST; n++)
                in += j >= ranges[2 * (i * MOST + n)] && j < ranges[2 * (i * MOST + n) + 1];
            EXPECT(in == sees(kind, causal, i, j));
        }
}

/* No row sees padding, whether rows take their segment from a key or bring their own; and a count
 * goes beyond the eight ranges that can be written. */
static void check_padding(void)
{
    static const int32_t given[] = {1, -1, 2, -7},
                         scattered[] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
    uint32_t needed = 0;
    heed_ranges_args a = args_of(0, 0);
    a.rows = 4;
    a.row_segments = given;
    a.needed = &needed;
    memset(ranges, 0x55, sizeof ranges);
    EXPECT(heed_ranges_segments(&a) == HEED_OK && needed == 2);
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < KEYS; j++) {
            int in = 0;
            for (int n = 0; n < MOST; n++)
                in += j >= ranges[2 * (i * MOST + n)] && j < ranges[2 * (i * MOST + n) + 1];
            EXPECT(in == (given[i] >= 0 && segments[j] == given[i]));
        }
    a = args_of(0, 0);
    a.rows = a.keys = 19;
    a.offset = 0;
    a.segments = scattered;
    a.needed = &needed;
    memset(ranges, 0x55, sizeof ranges);
    EXPECT(heed_ranges_segments(&a) == HEED_ERR_INVALID && ranges[0] == 0x55555555);
    needed = 0;
    a.ranges = NULL;
    EXPECT(heed_ranges_segments(&a) == HEED_OK && needed == 10);
}

static void check_refusals(void)
{
    for (int kind = 0; kind < 6; kind++) {
        for (int bad = 0; bad < 9; bad++) {
            heed_ranges_args a = args_of(kind, 0);
            static const char *const word[] = {"rows",     "keys",   "n_ranges",
                                               "n_ranges", "causal", "ranges",
                                               "offset",   "",       "struct_size"};
            const char *named = word[bad];
            static const int32_t forward[ROWS] = {-1, 2};
            static const int32_t far[4] = {7, 100, 0, 0};
            a.rows = bad == 0 ? -1 : a.rows;
            a.keys = bad == 1 ? INT64_C(1) << 31 : a.keys;
            a.n_ranges = bad == 2 ? 0 : bad == 3 ? 9 : a.n_ranges;
            a.causal = bad == 4 ? 2 : 0;
            a.ranges = bad == 5 ? NULL : ranges;
            a.offset = bad == 6 ? INT64_MIN : a.offset;
            a.struct_size = bad == 8 ? 3 : sizeof a;
            if (bad == 7) { /* what only this kind can get wrong */
                static const char *const own[] = {"segments", "lens",    "prefix",
                                                  "chunk",    "parents", "hidden_end"};
                named = own[kind];
                a.segments = NULL;
                a.lens = far;
                a.prefix = KEYS + 1;
                a.chunk = 0;
                a.parents = forward;
                a.hidden_start = NULL;
                a.hidden_end = high;
            }
            memset(ranges, 0x55, sizeof ranges);
            EXPECT(maker[kind](&a) == (bad == 8 ? HEED_ERR_ABI : HEED_ERR_INVALID));
            if (!strstr(heed_last_error(), named)) {
                printf("kind %d, mistake %d: %s\n", kind, bad, heed_last_error());
                failures++;
            }
            EXPECT(ranges[0] == 0x55555555);
        }
    }
}

/* The sentence names the end that lacks its start, whichever of the two others is given. */
static void check_ends(void)
{
    for (int given = 0; given < 2; given++) {
        heed_ranges_args a = args_of(5, 0);
        a.hidden_start = given ? low : NULL;
        a.hidden_end = NULL;
        a.hidden_start2 = NULL;
        a.hidden_end2 = high;
        EXPECT(heed_ranges_columns(&a) == HEED_ERR_INVALID &&
               strstr(heed_last_error(), "args.hidden_end2 "));
        a.hidden_start = NULL;
        a.hidden_end = high;
        a.hidden_start2 = given ? low : NULL;
        a.hidden_end2 = NULL;
        EXPECT(heed_ranges_columns(&a) == HEED_ERR_INVALID &&
               strstr(heed_last_error(), "args.hidden_end "));
    }
}

static void check_blocks(void)
{
    static const int32_t index[] = {3, 0, 70, -1, 64, 69, 3};
    static const int64_t start[] = {0, 2, 2, 7}, down[] = {0, 2, 1, 7};
    uint64_t words[3][3];
    heed_key_blocks_args a = {.struct_size = sizeof a,
                              .rows = 3,
                              .blocks = 71,
                              .row_stride = 3,
                              .words = words[0],
                              .index = index,
                              .start = start};
    memset(words, 0x55, sizeof words);
    EXPECT(heed_key_blocks_csr(&a) == HEED_OK);
    EXPECT(words[0][0] == 9 && words[0][1] == 0 && words[1][0] == 0 && words[1][1] == 0);
    EXPECT(words[2][0] == 8 && words[2][1] == (UINT64_C(1) | 1 << 5 | 1 << 6));
    EXPECT(words[0][2] == UINT64_C(0x5555555555555555));
    a.per_row = 2;
    EXPECT(heed_key_blocks_csr(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "per_row"));
    EXPECT(heed_key_blocks_list(&a) == HEED_OK);
    EXPECT(words[0][0] == 9 && words[1][0] == 0 && words[1][1] == 1 << 6 && words[2][1] == 33);
    memset(words, 0x55, sizeof words);
    a.per_row = 0;
    a.start = down;
    EXPECT(heed_key_blocks_csr(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "start[1]"));
    a.start = start;
    a.blocks = 70;
    EXPECT(heed_key_blocks_csr(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "index[2]"));
    a.row_stride = 1;
    EXPECT(heed_key_blocks_csr(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "row_stride"));
    EXPECT(words[0][0] == UINT64_C(0x5555555555555555));
    a.row_stride = INT64_C(1) << 61; /* in bytes it wraps to 0 */
    a.blocks = 71;
    EXPECT(heed_key_blocks_csr(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "row_stride"));
    EXPECT(heed_key_blocks_list(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "row_stride"));
    EXPECT(words[0][0] == UINT64_C(0x5555555555555555));
    a.rows = 0; /* no row is reached */
    EXPECT(heed_key_blocks_csr(&a) == HEED_OK);
    a.rows = 1; /* and no second one */
    EXPECT(heed_key_blocks_csr(&a) == HEED_OK && words[0][0] == 9);
    a.rows = 3;
    a.row_stride = 3;
    a.per_row = INT64_MAX / 2;
    EXPECT(heed_key_blocks_list(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "per_row"));
    a.per_row = 0;
    EXPECT(heed_key_blocks_list(&a) == HEED_OK && words[0][0] == 0 && words[2][1] == 0);
    a.blocks = 0;
    a.row_stride = INT64_MAX; /* rows without words */
    EXPECT(heed_key_blocks_list(&a) == HEED_OK);
}

enum { DIM = 19, BLOCK = 8, BLOCKS = 13, HEADS = 4, KV = 2, LENGTH = BLOCK * (BLOCKS - 1) + 3 };

static float k[KV][LENGTH][DIM], q[HEADS][DIM], least[KV][BLOCKS][DIM], greatest[KV][BLOCKS][DIM];

static float draw(void)
{
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223;
    return (float)(int32_t)state * 0x1p-31F;
}

static double bound(int h, int n)
{
    double sum = 0;
    for (int d = 0; d < DIM; d++) {
        const double a = (double)q[h][d] * (double)least[h / 2][n][d];
        const double b = (double)q[h][d] * (double)greatest[h / 2][n][d];
        sum += a > b ? a : b;
    }
    return sum;
}

static void check_topk(uint32_t shared, int64_t top, int64_t always_first, int64_t always_last)
{
    float scores[BLOCKS];
    uint64_t words[HEADS];
    heed_key_bounds_args a = {.struct_size = sizeof a,
                              .q_heads = HEADS,
                              .kv_heads = KV,
                              .dim = DIM,
                              .type = HEED_F32,
                              .keys = LENGTH,
                              .block_keys = BLOCK,
                              .x = {q, {0, DIM, DIM, 1}},
                              .least = least[0][0],
                              .greatest = greatest[0][0],
                              .bounds_stride = BLOCKS * DIM,
                              .top = top,
                              .always_first = always_first,
                              .always_last = always_last,
                              .shared = shared,
                              .scores = scores,
                              .words = words};
    EXPECT(heed_key_blocks_topk(&a) == HEED_OK);
    for (int h = 0; h < HEADS; h++) {
        int chosen = 0;
        double worst = 1e30, best = -1e30;
        for (int n = 0; n < BLOCKS; n++) {
            const int in = (int)(words[h] >> n & 1);
            const int twin = h ^ 1;
            const double x = shared && bound(twin, n) > bound(h, n) ? bound(twin, n) : bound(h, n);
            chosen += in;
            if (n < always_first || n >= BLOCKS - always_last)
                EXPECT(in);
            else if (in)
                worst = x < worst ? x : worst;
            else
                best = x > best ? x : best;
        }
        EXPECT(chosen == (top < BLOCKS ? top : BLOCKS) && words[h] >> BLOCKS == 0);
        EXPECT(best <= worst + 1e-5);
    }
}

static void check_bounds(void)
{
    heed_key_bounds_args a = {.struct_size = sizeof a,
                              .kv_heads = KV,
                              .dim = DIM,
                              .type = HEED_F32,
                              .keys = LENGTH,
                              .block_keys = BLOCK,
                              .x = {k, {0, LENGTH * DIM, DIM, 1}},
                              .least = least[0][0],
                              .greatest = greatest[0][0],
                              .bounds_stride = BLOCKS * DIM};
    for (int i = 0; i < KV * LENGTH; i++)
        for (int d = 0; d < DIM; d++)
            k[i / LENGTH][i % LENGTH][d] = draw();
    for (int i = 0; i < HEADS; i++)
        for (int d = 0; d < DIM; d++)
            q[i][d] = draw();
    EXPECT(heed_key_bounds(&a) == HEED_OK);
    for (int g = 0; g < KV; g++)
        for (int n = 0; n < BLOCKS; n++)
            for (int d = 0; d < DIM; d++) {
                float low_one = 9, high_one = -9;
                for (int j = n * BLOCK; j < (n + 1) * BLOCK && j < LENGTH; j++) {
                    low_one = k[g][j][d] < low_one ? k[g][j][d] : low_one;
                    high_one = k[g][j][d] > high_one ? k[g][j][d] : high_one;
                }
                EXPECT(least[g][n][d] == low_one && greatest[g][n][d] == high_one);
            }
    least[0][0][0] = 77; /* blocks before the first are left alone */
    a.first_block = 1;
    EXPECT(heed_key_bounds(&a) == HEED_OK && least[0][0][0] == 77);
    a.first_block = 0;
    EXPECT(heed_key_bounds(&a) == HEED_OK && least[0][0][0] < 2);
    for (uint32_t shared = 0; shared < 2; shared++) {
        check_topk(shared, 1, 0, 0);
        check_topk(shared, 4, 0, 0);
        check_topk(shared, 5, 1, 2);
        check_topk(shared, 3, 1, 2);
        check_topk(shared, 100, 0, 0);
    }
    a.block_keys = 0;
    EXPECT(heed_key_bounds(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "block_keys"));
    a.block_keys = BLOCK;
    a.bounds_stride--;
    EXPECT(heed_key_bounds(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "bounds_stride"));
}

/* Of pages as of strides only what is read counts, and of what is refused nothing is written. */
static void check_reach(void)
{
    int32_t pages[2] = {0};
    float scores[BLOCKS];
    uint64_t words[HEADS];
    heed_key_bounds_args a = {.struct_size = sizeof a,
                              .q_heads = HEADS,
                              .kv_heads = KV,
                              .dim = DIM,
                              .type = HEED_F32,
                              .keys = LENGTH,
                              .block_keys = BLOCK,
                              .page_len = LENGTH - BLOCK,
                              .x = {k, {0, LENGTH * DIM, DIM, 1}},
                              .pages = pages,
                              .least = least[0][0],
                              .greatest = greatest[0][0],
                              .bounds_stride = BLOCKS * DIM};
    EXPECT(heed_key_bounds(&a) == HEED_OK);
    memset(least, 0x77, sizeof least);
    memset(greatest, 0x77, sizeof greatest);
    pages[1] = -1;
    EXPECT(heed_key_bounds(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "pages[1] is -1"));
    pages[1] = 1;
    a.x.stride[0] = INT64_MAX / 2;
    EXPECT(heed_key_bounds(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "args.x"));
    a.x.stride[0] = 0;
    a.x.stride[2] = INT64_MAX / LENGTH;
    EXPECT(heed_key_bounds(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "args.x"));
    a.x.stride[2] = DIM;
    a.bounds_stride = INT64_MAX / 4;
    EXPECT(heed_key_bounds(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "bounds_stride"));
    for (size_t i = 0; i < sizeof least; i++)
        EXPECT(((unsigned char *)least)[i] == 0x77 && ((unsigned char *)greatest)[i] == 0x77);
    a.bounds_stride = BLOCKS * DIM;
    pages[0] = -1; /* of keys before the first block */
    a.first_block = (LENGTH - BLOCK + BLOCK - 1) / BLOCK;
    EXPECT(a.first_block * BLOCK < LENGTH && heed_key_bounds(&a) == HEED_OK);
    a.x.stride[1] = INT64_MAX / 2;
    a.page_len = 0;
    a.pages = NULL;
    a.first_block = 0;
    a.top = 1;
    a.scores = scores;
    a.words = words;
    EXPECT(heed_key_blocks_topk(&a) == HEED_ERR_INVALID && strstr(heed_last_error(), "args.x"));
}

int main(void)
{
    for (int j = 0; j < KEYS; j++) {
        segments[j] = j / 9 % 4 == 3 ? -1 - j % 2 : j / 9 % 3; /* of two kinds of padding */
        low[j] = j / 5;
        high[j] = j / 5 + 9;
    }
    for (int i = 0; i < ROWS; i++)
        parents[i] = i % 7 == 0 ? -1 : i - 1 - (i % 7 > 1 && i % 2);
    for (int kind = 0; kind < 6; kind++) {
        check_kind(kind, 0);
        if (kind != 2 && kind != 4)
            check_kind(kind, 1);
    }
    check_padding();
    check_refusals();
    check_ends();
    check_blocks();
    check_bounds();
    check_reach();
    for (int n = 0; n < 1000; n++) {
        draw_masks();
        for (int kind = 0; kind < 6; kind += kind ? 1 : 4) /* segments, tree, columns */
            for (int causal = 0; causal < 2 - (kind == 4); causal++)
                check_drawn(kind, causal);
    }
    return failures != 0;
}
