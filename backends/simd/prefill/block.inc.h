/* A tile of prefill under way: the rows of its panels, the block of keys at hand, and what is
 * brought closer meanwhile. */
#ifndef HEED_SIMD_PREFILL_BLOCK_H
#define HEED_SIMD_PREFILL_BLOCK_H

#include "../distance.h"
#include "fetch.inc.h"
#include "layout.h"

_Static_assert(sizeof(panel) <= HEED_PREFILL_PANEL_BYTES(LANES), "scratch has room for a panel");
#define MOST_PANELS 22
#define NEEDED_WORDS 2 /* bits for the keys of a block */

/* A tile under way. */
typedef struct prefill {
    const heed_problem *problem;
    const heed_tile *tile;
    heed_prefill_layout layout;
    int32_t natural;    /* the first product leaves scores in natural units, for modify_block */
    float factor;       /* what the queries are multiplied by */
    float unit;         /* with pairs, what their products with the keys are multiplied by */
    int64_t first, end; /* the key block at hand */
    const char *k;      /* its first key */
    const float *v;
    int64_t v_far_bytes;
    int64_t k_stride;          /* bytes from key to key */
    int64_t v_stride, v_group; /* words from word to word of keys, from STEP columns to the next */
    float *s, *bias, *k_copy, *v_copy;
    uint64_t *seen;
    /* the panel whose mask and bias `seen` and `bias` hold, of the block up to
     * dense_end; or NULL */
    const panel *dense;
    int64_t dense_end;
    int all_seen; /* `seen` is of a bias that hides nothing: every row sees every key */
    /* all heads of the tile share one mask and bias, and no other term hides keys of some heads */
    int32_t shared;
    int32_t lists; /* ranges and key blocks say more than the spans of rows */
    int32_t needs; /* HEED_BLOCK_*: keys of the block at hand that some row of the panels may see */
    uint64_t needed[NEEDED_WORDS]; /* a bit each */
    int32_t values;                /* are the values of the block at hand still to be loaded? */
    int32_t n_fetches;             /* go on with every step of the products at hand */
    fetch fetch[6];
    heed_rows next_q, next_k; /* of the kv head that most likely comes next; data NULL: no guess */
    heed_rows next_bias;      /* of the block that comes next */
    const panel *first_panel; /* that head's first panel has the same rows */
} prefill;

/* ---- a panel's rows ---------------------------------------------------------------------------
 */

/* Fills n lanes of a panel, from `lane` on, with rows of one head. */
static void panel_rows(const heed_problem *problem, const heed_tile *tile, panel *p, int64_t lane,
                       int64_t n, int64_t head, int64_t query)
{
    int64_t first, end, last_first, last_end;
    float alibi_slope = tile->alibi_slope ? tile->alibi_slope[head] : 0;
    float bias_slope = tile->bias_slope ? tile->bias_slope[head] : 1;
    for (int64_t i = 0; i < n; i++) {
        p->head[lane + i] = (int32_t)head;
        p->query[lane + i] = (int32_t)(query + i);
        p->alibi_slope[lane + i] = alibi_slope;
        p->bias_slope[lane + i] = bias_slope;
    }
    for (int64_t i = 0; i < n && tile->alibi_slope; i++) {
        const heed_row_position at = heed_position_of(tile, query + i);
        p->near[lane + i] = at.near;
        p->far[lane + i] = at.far;
    }
    heed_row_keys(tile, query, &first, &end);
    heed_row_keys(tile, query + n - 1, &last_first, &last_end);
    if (!tile->ranges.data && first < end && first == last_first &&
        end == last_end) { /* then every row between has the same */
        for (int64_t i = 0; i < n; i++) {
            p->first[lane + i] = (int32_t)first;
            p->end[lane + i] = (int32_t)end;
        }
        p->all_first = first > p->all_first ? first : p->all_first;
        p->all_end = end < p->all_end ? end : p->all_end;
        p->key_first = first < p->key_first ? first : p->key_first;
        p->key_end = end > p->key_end ? end : p->key_end;
        for (int64_t v = lane / LANES; v <= (lane + n - 1) / LANES; v++)
            p->limit[v] = end > p->limit[v] ? end : p->limit[v];
        return;
    }
    for (int64_t i = lane; i < lane + n; i++, query++) {
        heed_row_span(problem, tile, head, query, &first, &end);
        p->all_first = first > p->all_first ? first : p->all_first;
        p->all_end = end < p->all_end ? end : p->all_end;
        if (first == end)
            continue;
        p->first[i] = (int32_t)first;
        p->end[i] = (int32_t)end;
        p->key_first = first < p->key_first ? first : p->key_first;
        p->key_end = end > p->key_end ? end : p->key_end;
        p->limit[i / LANES] = end > p->limit[i / LANES] ? end : p->limit[i / LANES];
    }
}

/* Returns how many of n_rows rows from `row` on lie in the same block of rows of key_blocks,
 * where such blocks are large: all rows of a panel then see the same key blocks, and no
 * others are multiplied. */
static int64_t rows_of_block(const prefill *f, int64_t row, int64_t n_rows)
{
    const heed_tile *tile = f->tile;
    const int64_t rows = f->problem->block_rows, i = row % tile->q_count;
    if (!tile->key_blocks.data || rows < 2 * LANES)
        return n_rows;
    const int64_t left = rows - (tile->q_first + i) % rows;
    const int64_t here = left < tile->q_count - i ? left : tile->q_count - i;
    return here < n_rows ? here : n_rows;
}

/* Returns how many of n_rows rows from `row` on come before the first whose ranges begin behind all
 * of theirs, if these fill a vector: another document begins there, and a panel of both would
 * multiply each by the keys of the other. */
static int64_t rows_of_document(const prefill *f, int64_t row, int64_t n_rows)
{
    const heed_tile *tile = f->tile;
    const int64_t i = row % tile->q_count, head = row / tile->q_count;
    const int64_t most = tile->q_count - i < PANEL ? tile->q_count - i : PANEL;
    int64_t first, end, far = 0;
    for (int64_t n = 0; tile->ranges.data && n < most && n < n_rows; n++) {
        heed_row_span(f->problem, tile, head, tile->q_first + i + n, &first, &end);
        if (n >= LANES && first >= far)
            return n;
        far = end > far ? end : far;
    }
    return n_rows;
}

/* Do all heads share their mask and bias, and do the rows of a head fill whole vectors? A
 * panel then has rows of one head only, and what the mask says of them is brought into the
 * lanes once for all heads. */
static int mask_is_shared(const prefill *f)
{
    const heed_tile *tile = f->tile;
    return tile->n_heads > 1 && !heed_has_lists(tile) && (tile->mask.data || tile->bias.data) &&
           (!tile->mask.data || tile->mask.head_stride == 0) &&
           (!tile->bias.data || tile->bias.head_stride == 0) && tile->q_count > LANES &&
           tile->q_count % LANES == 0;
}

/* Fills a panel with rows from `row` on, of which n_rows are left, and returns how many it took. */
static int64_t panel_begin(const prefill *f, panel *p, int64_t row, int64_t n_rows)
{
    const heed_tile *tile = f->tile;
    int64_t head = row / tile->q_count, i = row % tile->q_count, n;
    n_rows = rows_of_document(f, row, rows_of_block(f, row, n_rows));
    /* The kernel of a single vector waits for its own sums, so four vectors are split two and two
     * rather than three and one. */
    int64_t rows = n_rows > PANEL && n_rows <= PANEL + LANES ? PANEL - LANES
                   : n_rows < PANEL                          ? n_rows
                                                             : PANEL;
    memset(p, 0, offsetof(panel, q));
    for (int v = 0; v < VECTORS; v++)
        v_store(p->m + v * LANES, v_set1(-FLT_MAX));
    p->row = row;
    p->unused = PANEL - rows;
    p->key_first = p->all_end = INT64_MAX;
    p->key_end = p->all_first = tile->k_first;
    for (int64_t lane = p->unused; lane < PANEL; lane += n, head++, i = 0) {
        n = tile->q_count - i < PANEL - lane ? tile->q_count - i : PANEL - lane;
        panel_rows(f->problem, tile, p, lane, n, head, tile->q_first + i);
    }
    for (int v = 1; v < VECTORS; v++)
        if (p->limit[v] < p->limit[v - 1])
            p->limit[v] = p->limit[v - 1];
    return rows;
}

/* ---- a block of keys --------------------------------------------------------------------------
 */

/* Rows this many bytes apart or more are copied: they share cache sets, and each may be on a page
 * of its own. */
#define FAR_BYTES 1536
#define V_FAR_BYTES 512 /* where tuning.pack_v says so */

static int wants_copy(const heed_rows *rows, uint32_t type, const int32_t *pages, int64_t far_bytes)
{
    int64_t bytes = heed_offset_bytes(type, rows->row_stride);
    return type != (PAIR == 2 ? HEED_BF16 : HEED_F32) || pages || rows->dim_stride != 1 ||
           bytes >= far_bytes || bytes <= -far_bytes;
}

/* Does the work of find_needed from the spans of panels, if each has a key that all its rows see
 * and rows see all of their spans: together the rows of a panel then see every key from its first
 * to its last. Returns 0 where rows have to be asked one by one. */
static int needed_by_spans(prefill *f, panel *const *p, int64_t n, int64_t low)
{
    int any = 0, all = 1;
    memset(f->needed, 0, sizeof f->needed);
    for (int64_t i = 0; i < n; i++) {
        if (p[i]->all_first >= p[i]->all_end)
            return 0;
        for (int word = 0; word < NEEDED_WORDS; word++)
            f->needed[word] |= heed_bits_between(p[i]->key_first - f->first - 64 * word,
                                                 p[i]->key_end - f->first - 64 * word);
    }
    for (int word = 0; word < NEEDED_WORDS; word++) {
        const uint64_t every =
            heed_bits_between(low - f->first - 64 * word, f->end - f->first - 64 * word);
        f->needed[word] &= every;
        any |= f->needed[word] != 0;
        all &= f->needed[word] == every;
    }
    f->needs = all ? HEED_BLOCK_ALL : any ? HEED_BLOCK_MIXED : HEED_BLOCK_NONE;
    return 1;
}

/* Finds the keys of the block at hand that may be read: those that no row sees by ranges and key
 * blocks may lie in memory that is not there. */
static void find_needed(prefill *f, panel *const *p, int64_t n)
{
    const heed_tile *tile = f->tile;
    const int64_t low = f->first > tile->k_first ? f->first : tile->k_first;
    f->needs = HEED_BLOCK_ALL;
    if (!heed_has_lists(tile))
        return;
    for (int64_t i = 0; i < n && !f->lists; i++) /* one range a row: its span is what it sees */
        if (p[i]->all_first <= low && p[i]->all_end >= f->end)
            return;
    const int64_t at = f->first / f->layout.key_block - tile->k_first / f->layout.key_block;
    const int64_t heads = tile->mask_block_stride ? tile->n_heads : 1;
    for (int64_t h = 0; h < heads && !(tile->flags & HEED_TILE_OUTPUTS); h++)
        if (tile->mask_blocks[h * tile->mask_block_stride + at] == HEED_BLOCK_ALL)
            return;
    if (f->lists || !needed_by_spans(f, p, n, low))
        f->needs = heed_listed_keys(f->problem, tile, f->first, f->end, f->needed, NEEDED_WORDS);
}

static const uint64_t *needed_of(const prefill *f)
{
    return f->needs == HEED_BLOCK_ALL ? NULL : f->needed;
}

/* Makes the keys of the block at hand ready for the products, once. */
static void block_load_keys(prefill *f)
{
    const heed_problem *problem = f->problem;
    const heed_tile *tile = f->tile;
    if (f->end - f->first < STEP || f->first < tile->k_first || problem->qk_dim % PAIR ||
        f->needs != HEED_BLOCK_ALL ||
        wants_copy(&tile->k, problem->k_type, tile->pages, FAR_BYTES)) {
        pack_keys(problem, tile, f->first, f->end, needed_of(f), f->k_copy);
        f->k = (const char *)f->k_copy;
        f->k_stride = words_of(problem->qk_dim) * 4;
    } else {
        f->k_stride = tile->k.row_stride * heed_dtype_bytes(problem->k_type);
        f->k = (const char *)tile->k.data + f->first * f->k_stride;
    }
}

static void block_load_values(prefill *f)
{
    f->values = 0;
    const heed_problem *problem = f->problem;
    const heed_tile *tile = f->tile;
    if (PAIR == 2 || problem->v_dim % STEP || f->needs != HEED_BLOCK_ALL ||
        wants_copy(&tile->v, problem->v_type, tile->pages, f->v_far_bytes)) {
        f->v_group = (f->layout.key_block + V_PADDING) * STEP;
        pack_values(problem, tile, f->first, f->end, needed_of(f), f->v_group, f->v_copy);
        f->v = f->v_copy;
        f->v_stride = STEP;
    } else {
        f->v_stride = tile->v.row_stride;
        f->v = (const float *)tile->v.data + f->first * f->v_stride;
        f->v_group = STEP;
    }
}

/* HEED_BLOCK_* of the block of key `first` for all heads of a panel together. */
static int panel_mask(const prefill *f, const panel *p, int64_t first)
{
    const heed_tile *tile = f->tile;
    int64_t at = first / f->layout.key_block - tile->k_first / f->layout.key_block;
    int64_t head = p->head[p->unused], last = p->head[PANEL - 1];
    if (!tile->mask_blocks)
        return HEED_BLOCK_ALL;
    if (tile->flags & HEED_TILE_OUTPUTS) /* the blocks may be those of the decode kernel */
        return HEED_BLOCK_MIXED;
    int all = tile->mask_blocks[head * tile->mask_block_stride + at];
    while (++head <= last)
        if (tile->mask_blocks[head * tile->mask_block_stride + at] != all)
            return HEED_BLOCK_MIXED;
    return all;
}

/* Cuts b's keys to those that ranges and key blocks let some row of the panel see. Returns
 * HEED_BLOCK_* of what is left. */
static int cut_to_lists(const prefill *f, const panel *p, block *b)
{
    const heed_tile *tile = f->tile;
    int64_t low = b->end, high = b->first, all_low = b->first, all_high = b->end, n;
    int gaps = 0;
    for (int64_t lane = p->unused; lane < PANEL; lane += n) {
        const int64_t head = p->head[lane], i = p->query[lane];
        const int64_t rows = tile->q_first + tile->q_count - i;
        int64_t first = b->first, end = b->end, begun = -1, last = -1;
        n = heed_rows_alike(f->problem, tile, head, i,
                            i + (rows < PANEL - lane ? rows : PANEL - lane));
        while (heed_next_listed(f->problem, tile, head, i, &first, &end)) {
            gaps |= last >= 0 && last != first;
            begun = begun < 0 ? first : begun;
            last = first = end;
            end = b->end;
        }
        if (begun < 0) {
            gaps = 1;
            continue;
        }
        low = begun < low ? begun : low;
        high = last > high ? last : high;
        all_low = begun > all_low ? begun : all_low;
        all_high = last < all_high ? last : all_high;
    }
    if (low >= high)
        return HEED_BLOCK_NONE;
    b->first = low - (low - f->first) % PAIR;
    b->end = high;
    return !gaps && all_low <= b->first && all_high >= high ? HEED_BLOCK_ALL : HEED_BLOCK_MIXED;
}

/* Has what a panel sees of b, and its bias, already been found for the panel before? It has
 * where heads share their masks, because panels of the same rows, of one head each, then
 * follow each other. */
static int dense_is_there(const prefill *f, const panel *p, const block *b)
{
    const panel *last = f->dense;
    return f->shared && last && f->dense_end == b->end && last->unused == p->unused &&
           last->query[PANEL - 1] == p->query[PANEL - 1];
}

/* Finds which rows see which keys of b, and its bias. dense: mask and bias count too; listed: so do
 * ranges and key blocks. */
static void find_who_sees(prefill *f, const panel *p, const block *b, int dense, int listed)
{
    const heed_tile *tile = f->tile;
    int hides = listed || (dense && tile->mask.data) || !in_all_ranges(p, b);
    memset(f->seen, 0, (size_t)f->layout.key_block * sizeof *f->seen);
    see_ranges(p, b);
    if (dense && tile->seen)
        see_bits(tile, p, b);
    else if (dense && tile->mask.data)
        see_mask(tile, p, b);
    if (listed)
        see_lists(f->problem, tile, p, b);
    if (b->bias)
        hides |= transpose_bias(f->problem, tile, p, b, f->bias);
    f->all_seen = b->bias && !hides;
    f->dense = dense ? p : NULL;
    f->dense_end = b->end;
}

/* Sets b->seen and b->bias. */
static void show_who_sees(prefill *f, const panel *p, block *b, int dense, int listed)
{
    b->seen = f->seen + (b->first - f->first);
    b->bias = dense && f->tile->bias.data && !f->tile->seen ? f->bias : NULL; /* NULL: it adds 0 */
    if (!dense || !dense_is_there(f, p, b))
        find_who_sees(f, p, b, dense, listed);
    if (f->all_seen)
        b->seen = NULL;
}

/* Leaves out, for each vector, keys at the end of b that no row of the vectors up to it sees. */
static void cut_to_seen(block *b)
{
    for (int v = 0; v < VECTORS; v++) {
        const uint64_t rows = ((uint64_t)1 << ((v + 1) * LANES)) - 1;
        while (b->to[v] > b->first && !(b->seen[b->to[v] - 1 - b->first] & rows))
            b->to[v]--;
    }
}

/* Fills in b: the keys of the block at hand that some row of the panel may see. Returns 0 if there
 * are none. Without `masked` mask and bias count as absent. */
static int block_of_panel(prefill *f, const panel *p, int masked, block *b)
{
    const heed_tile *tile = f->tile;
    int mask = masked ? panel_mask(f, p, f->first) : HEED_BLOCK_ALL;
    b->first = p->key_first > f->first ? p->key_first : f->first;
    b->first -= (b->first - f->first) % PAIR;
    b->end = p->key_end < f->end ? p->key_end : f->end;
    if (b->first >= b->end || mask == HEED_BLOCK_NONE)
        return 0;
    int listed = HEED_BLOCK_ALL;
    if (f->lists && (mask == HEED_BLOCK_MIXED || !masked)) {
        listed = cut_to_lists(f, p, b);
        if (listed == HEED_BLOCK_NONE)
            return 0;
    }
    const int dense = mask == HEED_BLOCK_MIXED && (tile->mask.data || tile->bias.data);
    for (int v = 0; v < VECTORS; v++) {
        int64_t to = p->limit[v] < b->end ? p->limit[v] : b->end;
        b->to[v] = to > b->first ? to : b->first;
    }
    b->s = f->s + (b->first - f->first) * PANEL;
    b->seen = NULL;
    b->bias = NULL;
    if (dense || listed == HEED_BLOCK_MIXED || b->first != f->first || b->end != f->end ||
        !in_all_ranges(p, b)) {
        show_who_sees(f, p, b, dense, listed == HEED_BLOCK_MIXED);
        if (b->seen)
            cut_to_seen(b);
    }
    return 1;
}

static void plan_fetch(prefill *f, const block *b, const heed_rows *rows, const panel *p,
                       uint32_t type, int64_t dims, int64_t first, int64_t end)
{
    uint32_t steps = (uint32_t)(b->end - b->first + STEP - 1) / STEP;
    fetch *t = &f->fetch[f->n_fetches];
    *t = (fetch){.rows = rows, .panel = p, .type = type, .next = first, .end = end};
    f->n_fetches += fetch_begin(t, f->tile, dims, steps);
}

/* Nothing is guessed from strides of so many elements or more: that of an axis of length 1
 * may be anything. */
#define GUESS_STRIDE (INT64_C(1) << 28)

/* The rows of the next `heads` heads, where those at hand are `heads` heads from head `first` on,
 * of `all`. Where the heads of a row lie side by side and those at hand are the last, the rows of
 * the first heads, n rows on. */
static heed_rows next_rows(const heed_rows *rows, uint32_t type, int64_t heads, int64_t first,
                           int64_t all, int64_t n)
{
    heed_rows next = *rows;
    const int64_t head = rows->head_stride, row = rows->row_stride;
    next.data = NULL;
    if (head <= -GUESS_STRIDE || head >= GUESS_STRIDE || row <= -GUESS_STRIDE ||
        row >= GUESS_STRIDE)
        return next;
    const int64_t to =
        first + heads == all && row >= all * head ? n * row - first * head : heads * head;
    next.data = (char *)rows->data + heed_offset_bytes(type, to);
    return next;
}

/* Where a tile has all rows of its heads, the next tile most likely has those of the next kv
 * head, or of the first kv head of the next sequence. This is a guess, which costs little
 * where it is wrong. */
static void guess_next_head(prefill *f)
{
    const heed_problem *p = f->problem;
    const heed_tile *tile = f->tile;
    if (tile->q_count < tile->q_len || tile->k_first == tile->k_end)
        return;
    f->next_q =
        next_rows(&tile->q, p->q_type, tile->n_heads, tile->first_head, p->q_heads, tile->q_len);
    f->next_k = next_rows(&tile->k, p->k_type, 1, tile->kv_head, p->kv_heads, tile->kv_len);
}

/* Plans what is fetched during the products of a panel, number i of the n that the block at hand
 * has left: its share of the next block, or of the next head's first block; this block's values if
 * they are still to be loaded; the queries that are packed next; and the memory of its results
 * before they are written. */
static void plan_fetches(prefill *f, const panel *p, const block *b, const panel *next, int64_t i,
                         int64_t n)
{
    const heed_problem *problem = f->problem;
    const heed_tile *tile = f->tile;
    const int64_t left = tile->k_end - f->end, most = f->layout.key_block;
    const int64_t from = left > 0 ? f->end : tile->k_first, all = tile->k_end - from;
    const uint32_t keys = (uint32_t)(all < most ? all : most), of = (uint32_t)n;
    const int64_t first = from + keys * (uint32_t)i / of,
                  end = from + keys * (uint32_t)(i + 1) / of;
    f->n_fetches = 0;
    if (left > 0) {
        plan_fetch(f, b, &tile->k, NULL, problem->k_type, problem->qk_dim, first, end);
        plan_fetch(f, b, &tile->v, NULL, problem->v_type, problem->v_dim, first, end);
    } else if (f->next_q.data && f->next_k.data) {
        plan_fetch(f, b, &f->next_k, NULL, problem->k_type, problem->qk_dim, first, end);
        if (i == 0)
            plan_fetch(f, b, &f->next_q, f->first_panel, problem->q_type, problem->qk_dim,
                       f->first_panel->unused, PANEL);
    }
    if (f->values)
        plan_fetch(f, b, &tile->v, NULL, problem->v_type, problem->v_dim,
                   f->first > tile->k_first ? f->first : tile->k_first, f->end);
    if (next)
        plan_fetch(f, b, &tile->q, next, problem->q_type, problem->qk_dim, next->unused, PANEL);
    if (f->end >= p->key_end)
        plan_fetch(f, b, &tile->out, p, problem->out_type, problem->v_dim, p->unused, PANEL);
}

/* The same for the bias of the panel that comes next: panel i + 1 of the n with the block at hand or,
 * behind the last, the first that sees keys of the next block. */
static void plan_bias(prefill *f, const block *b, panel *const *p, int64_t i, int64_t n)
{
    const heed_tile *tile = f->tile;
    const heed_rows *bias = &tile->bias;
    const uint32_t type = f->problem->bias_type;
    int64_t first = f->first, end = f->end;
    if (++i == n) {
        first = f->end;
        end += f->layout.key_block;
        for (i = 0; i < n && p[i]->key_end <= first; i++)
            ;
    }
    if (i == n || !bias->data || tile->seen || bias->row_stride == 0 ||
        panel_mask(f, p[i], first) != HEED_BLOCK_MIXED)
        return;
    if (first < tile->mask_from)
        first = tile->mask_from;
    if (end > p[i]->key_end)
        end = p[i]->key_end;
    f->next_bias = *bias;
    f->next_bias.data = (char *)bias->data + heed_offset_bytes(type, first * bias->dim_stride);
    if (first < end)
        plan_fetch(f, b, &f->next_bias, p[i], type, end - first, p[i]->unused, PANEL);
}

#endif
