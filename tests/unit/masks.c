/* heed/masks.h: every list of ranges agrees with a one-line predicate for every row and key. Wrong
 * arguments are refused, and nothing is written then. */
#include "unit.h"

enum { ROWS = 29, KEYS = 40, MOST = 8 };

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

/* How many of the ranges of row i hold key j. */
static int n_holding(int64_t i, int64_t j)
{
    int in = 0;
    for (int n = 0; n < MOST; n++)
        in += j >= ranges[2 * (i * MOST + n)] && j < ranges[2 * (i * MOST + n) + 1];
    return in;
}

/* Counts alone, where n_ranges is not read; and nothing is written where they are too few. */
static void check_counts(int kind, heed_ranges_args a, uint32_t most)
{
    uint32_t needed = 77;
    a.needed = &needed;
    a.ranges = NULL;
    a.n_ranges = 0;
    CHECK(maker[kind](&a) == HEED_OK && needed == most, "kind %d: %u, not %u", kind, needed, most);
    if (most < 2)
        return;
    memset(ranges, 0x55, sizeof ranges);
    needed = 77;
    a.ranges = ranges;
    a.n_ranges = most <= MOST ? most - 1 : MOST;
    CHECK_REFUSED(maker[kind](&a), HEED_ERR_INVALID, "n_ranges");
    CHECK(needed == most && ranges[0] == 0x55555555 && ranges[2 * ROWS] == 0x55555555,
          "kind %d: %u, not %u, or written", kind, needed, most);
}

/* Every row's ranges, in order, hold the keys that it sees; as many are needed as the row with the
 * most has, also where that are more than can be written. */
static void check_kind(int kind, int causal, int64_t rows)
{
    uint32_t needed = 0, most = 0;
    heed_ranges_args a = args_of(kind, causal);
    a.rows = rows;
    for (int64_t i = 0; i < rows; i++) {
        uint32_t n = 0;
        for (int64_t j = 0; j < KEYS; j++)
            n += sees(kind, causal, i, j) && !(j && sees(kind, causal, i, j - 1));
        most = n > most ? n : most;
    }
    check_counts(kind, a, most);
    if (most > MOST)
        return;
    memset(ranges, 0x55, sizeof ranges);
    a.needed = &needed;
    CHECK_OK(maker[kind](&a));
    CHECK(needed == most, "kind %d: %u, not %u", kind, needed, most);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < KEYS; j++)
            CHECK(n_holding(i, j) == sees(kind, causal, i, j),
                  "kind %d, causal %d: row %d and key %d", kind, causal, (int)i, (int)j);
        for (int n = 0; n < MOST; n++) {
            const int32_t *r = ranges + 2 * (i * MOST + n);
            CHECK(r[0] <= r[1] && (n == 0 || r[0] >= r[-1]), "kind %d, row %d: out of order", kind,
                  (int)i);
        }
    }
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

static void check_refusals(void)
{
    for (int kind = 0; kind < 6; kind++) {
        for (int bad = 0; bad < 9; bad++) {
            heed_ranges_args a = args_of(kind, 0);
            static const char *const word[] = {"rows",
                                               "keys",
                                               "n_ranges is 0, 1 to 8",
                                               "n_ranges is 9, 1 to 8",
                                               "causal",
                                               "ranges",
                                               "offset",
                                               "",
                                               "struct_size"};
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
            CHECK_REFUSED(maker[kind](&a), bad == 8 ? HEED_ERR_ABI : HEED_ERR_INVALID, named);
            CHECK(ranges[0] == 0x55555555, "kind %d, mistake %d: written", kind, bad);
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
        CHECK_REFUSED(heed_ranges_columns(&a), HEED_ERR_INVALID, "args.hidden_end2 ");
        a.hidden_start = NULL;
        a.hidden_end = high;
        a.hidden_start2 = given ? low : NULL;
        a.hidden_end2 = NULL;
        CHECK_REFUSED(heed_ranges_columns(&a), HEED_ERR_INVALID, "args.hidden_end ");
    }
}

/* Lengths and a tree that are not there, and a tree whose rows are no keys. */
static void check_missing(void)
{
    heed_ranges_args a = args_of(1, 0);
    a.n_lens = -1;
    CHECK_REFUSED(heed_ranges_lens(&a), HEED_ERR_INVALID, "args.n_lens is -1 and args.lens given");
    a = args_of(1, 0), a.lens = NULL;
    CHECK_REFUSED(heed_ranges_lens(&a), HEED_ERR_INVALID, "args.lens NULL");
    a = args_of(4, 0), a.parents = NULL;
    CHECK_REFUSED(heed_ranges_tree(&a), HEED_ERR_INVALID, "args.parents is NULL");
    a = args_of(4, 0), a.keys = 3; /* no offset would do */
    CHECK_REFUSED(heed_ranges_tree(&a), HEED_ERR_INVALID, "each of them a key");
    for (int far = 0; far < 2; far++) {
        a = args_of(4, 0), a.offset = far ? a.keys - a.rows + 1 : -1;
        CHECK_REFUSED(heed_ranges_tree(&a), HEED_ERR_INVALID, "args.offset is ");
    }
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
    for (int kind = 0; kind < 6; kind++)
        for (int causal = 0; causal < 2 - (kind == 2 || kind == 4); causal++)
            check_kind(kind, causal, kind == 5 ? 24 : ROWS); /* later rows: every second key */
    check_refusals();
    check_ends();
    check_missing();
    for (int n = 0; n < 1000; n++) {
        draw_masks();
        for (int kind = 0; kind < 6; kind += kind ? 1 : 4) /* segments, tree, columns */
            for (int causal = 0; causal < 2 - (kind == 4); causal++)
                check_kind(kind, causal, ROWS);
    }
    return checks_end();
}
