/*
 * Prefill: attention for many query rows, be they of many heads, and for every problem that no other
 * kernel covers.
 * Compiled once per instruction set (vec/vec.h).
 *
 * Work       The rows of a tile (of all query heads of a group) are cut into panels of 3 vectors.
 *            Blocks of keys are the outer loop, panels the inner one: a block of K and V is
 *            fetched, and where needed converted or copied, once for all of them. Per block and
 *            panel: S = K Q^T, its maximum, 2^(S - m), O = O 2^(m_old - m) + V^T P^T. Panels are
 *            finished here, but where few query rows have many heads: core cuts their keys.
 * Serves     all of heed/attention.h that is not reserved: any type, stride, dim, mask. Keys or
 *            values of another type than f32, of a stride along the dim, or in pages, are copied;
 *            so are rows that lie so far apart that they share cache sets.
 * Edges      Never reads a byte outside the rows and keys of its tile.
 * Hidden     Scores of hidden keys are replaced, never multiplied. Weights 0 of hidden keys are
 *            multiplied by V as it is; if the sum of a block in which some row does not see some
 *            key is not finite, that block is summed again over what each row sees.
 * Numerics   One chain of fused multiply-adds per score, in order of d; one per block, row and
 *            column, in order of the key, added to the sum of its stretch of blocks. Blocks and
 *            stretches lie at absolute positions. So a row's bits depend neither on the vector
 *            width nor on the rows beside it, the tile, or keys that it does not see. FTZ and DAZ
 *            are set (tiling.flush).
 * Scratch    see layout.h; does not depend on kv_len.
 */
#include "../simd.h"
#include "block.inc.h"

/* ---- a panel and a block ----------------------------------------------------------------------
 */

/* Forms the scores of a block, and the maximum of each row's in `top` if that is not NULL. A step
 * may reach beyond both ends of the panel's keys, but not of the block: what it writes there is not
 * read, and keys that no row sees do not count for the maximum. */
static void block_scores(prefill *f, const panel *p, const block *b, float *top)
{
    int64_t dims = words_of(f->problem->qk_dim);
    for (int64_t j = b->first; j < b->to[VECTORS - 1]; j += STEP) {
        int64_t at = j - f->first, last = f->end - STEP - f->first;
        int v = 0;
        while (b->to[v] <= j)
            v++;
        if (at > last)
            at = last > 0 ? last : 0;
        const char *k = f->k + at * f->k_stride;
        const float *q = p->q;
        float *s = f->s + at * PANEL;
        for (int i = 0; i < f->n_fetches; i++)
            fetch_step(f->problem, f->tile, &f->fetch[i]);
        const tops to = {top, b->seen ? f->seen + at : NULL};
        if (v == 0)
            scores_3(q, dims, k, f->k_stride, f->unit, s, to);
        else if (v == 1)
            scores_2(q, dims, k, f->k_stride, f->unit, s, to);
        else
            scores_1(q, dims, k, f->k_stride, f->unit, s, to);
    }
}

static void attend(prefill *f, panel *p, block *b)
{
    const int64_t stretch = f->first / f->layout.key_block / STRETCH;
    if (p->started && p->stretch != stretch)
        keep_sums(p, whole_steps(f->problem->v_dim));
    p->stretch = stretch;
    float top[PANEL];
    for (int lane = 0; lane < PANEL; lane++)
        top[lane] = -INFINITY;
    /* The product finds the maximum itself, but for modifiers, a bias, and the padding of a short
     * block that all rows see: it knows nothing of these. */
    int plain = !f->natural && !b->bias && (b->seen || f->end - f->first >= STEP);
    block_scores(f, p, b, plain ? top : NULL);
    if (f->values)
        block_load_values(f);
    if (f->natural)
        modify_block(f->problem, p, b);
    if (b->bias && !f->natural)
        bias_top_block(p, b, top);
    else if (!plain)
        top_block(p, b, top);
    weigh_block(f->problem, f->tile, p, b, top);

    int64_t n_keys[VECTORS], done = 0;
    for (int i = 0; i < VECTORS; i++) {
        n_keys[i] = words_of(b->to[i] - b->first) - done;
        done += n_keys[i];
    }
    const float *v = f->v + (b->first - f->first) / PAIR * f->v_stride;
    float *o = p->o;
    for (int64_t d = 0; d < f->problem->v_dim; d += STEP, v += f->v_group, o += STEP * PANEL) {
        if (accumulate(b->s, n_keys, v, f->v_stride, p->alpha, o, !p->started, b->seen != NULL))
            for (int i = 0; i < STEP; i++)
                accumulate_seen(p, b, v + i, f->v_stride, o + i * PANEL, !p->started);
    }
    p->started = 1;
}

/* ---- results ----------------------------------------------------------------------------------
 */

/* Adds the sink, writes lse, and leaves the final reference and the sum in the panel: as
 * heed_finish_row does, of the sums `told`, which lse is made of. factor is what the row's sums are
 * to be multiplied by. */
static void finish_lanes(const heed_tile *tile, panel *p, float *told, float *factor)
{
    for (int64_t lane = p->unused; lane < PANEL; lane++) {
        const int empty = p->sum[lane] == 0;
        const float sink = tile->sink ? tile->sink[p->head[lane]] : -INFINITY;
        double m = (double)p->m[lane], more = 0;
        const double scale = empty ? 0 : heed_add_sink(1, sink, &m, &more);
        const double sum = (double)told[lane] * scale + more;
        factor[lane] = empty ? NOTHING : (float)(scale / ((double)p->sum[lane] * scale + more));
        if (tile->lse.data)
            heed_store(HEED_F32, tile->lse.data, row_offset(p, &tile->lse, lane),
                       empty ? sink : (float)(m * LN_2 + log(sum)));
        heed_leave_state(m, sum, &p->m[lane], &told[lane]); /* 0 says so to the second pass */
    }
}

/* Stores vector v of a panel, [column][PANEL], to rows of a tensor from dim `first` on. */
static void panel_store(const panel *p, int v, const float *x, int64_t columns, const float *factor,
                        const heed_rows *rows, uint32_t type, int64_t first)
{
    char *row[LANES];
    int64_t unused = p->unused > v * LANES ? p->unused - v * LANES : 0;
    for (int64_t i = unused; i < LANES; i++)
        row[i] =
            (char *)rows->data + (row_offset(p, rows, v * LANES + i) + first * rows->dim_stride) *
                                     (int64_t)heed_dtype_bytes(type);
    unpack_rows(x, columns, factor, type, row, unused, rows->dim_stride);
}

static void panel_end(const prefill *f, heed_tile *tile, panel *p)
{
    const heed_problem *problem = f->problem;
    float factor[PANEL];
    float *told = wants_exact(problem, tile) ? p->exact : p->sum; /* to lse, weights and states */
    const float *o = p->o;
    if (!p->started)
        memset(p->o, 0, (size_t)(whole_steps(problem->v_dim) * PANEL) * sizeof *p->o);
    if (p->keeps) {
        keep_sums(p, whole_steps(problem->v_dim));
        o = p->kept;
    }
    if (!(tile->flags &
          HEED_TILE_WHOLE)) { /* the unfinished state; row 0 is the tile's first query */
        heed_rows acc = {tile->acc - tile->q_first * tile->acc_stride,
                         tile->q_count * tile->acc_stride, tile->acc_stride, 1};
        for (int lane = 0; lane < PANEL; lane++)
            factor[lane] = 1;
        for (int v = first_vector(p); v < VECTORS; v++)
            panel_store(p, v, o + v * LANES, problem->v_dim, factor + v * LANES, &acc, HEED_F32, 0);
    } else {
        if (tile->sink || tile->lse.data) {
            finish_lanes(tile, p, told, factor);
        } else {
            for (int v = 0; v < VECTORS; v++) {
                vf sum = v_load(p->sum + v * LANES);
                v_store(factor + v * LANES, v_select(m_equal(sum, v_zero()), v_set1(NOTHING),
                                                     v_div(v_set1(1.0f), sum)));
            }
        }
        for (int v = first_vector(p); v < VECTORS; v++)
            panel_store(p, v, o + v * LANES, problem->v_dim, factor + v * LANES, &tile->out,
                        problem->out_type, 0);
    }
    memcpy(tile->row_max + p->row, p->m + p->unused, (size_t)(PANEL - p->unused) * sizeof(float));
    memcpy(tile->row_sum + p->row, told + p->unused, (size_t)(PANEL - p->unused) * sizeof(float));
}

/* ---- second pass: weights and scores ----------------------------------------------------------
 */

/* Replaces the scores of vector v for every key of the block at hand by what is to be written:
 * weights if m is given, else scores up to a stage. b is NULL if the panel sees nothing here. */
static void show_block(const prefill *f, const panel *p, const block *b, int v, uint32_t stage,
                       const float *m, const float *one_by_sum)
{
    float *s = f->s + v * LANES;
    for (int64_t j = f->first; j < f->end; j++, s += PANEL) {
        vf hidden = m ? v_zero() : v_set1(-INFINITY), x = v_load(s);
        if (!b || j < b->first || j >= b->to[v]) {
            v_store(s, hidden);
            continue;
        }
        if (f->natural)
            x = modify(f->problem, p, b, x, j, v, stage);
        else if (b->bias)
            x = biased(b, x, j, v);
        if (m) {
            if (f->natural)
                x = to_log2(b, x);
            x = v_mul(v_exp2(v_sub(x, v_load(m + v * LANES))), v_load(one_by_sum + v * LANES));
        }
        if (b->seen)
            x = v_select(seen_lanes(b->seen + (j - b->first), v), x, hidden);
        v_store(s, x);
    }
}

static void show_panel(prefill *f, panel *p, const heed_rows *out, uint32_t stage, int weights)
{
    const heed_tile *tile = f->tile;
    float m[PANEL] = {0}, one_by_sum[PANEL] = {0}, ones[PANEL];
    for (int64_t lane = 0; lane < PANEL; lane++) {
        ones[lane] = 1;
        if (lane < p->unused)
            continue;
        float sum = tile->row_sum[p->row + lane - p->unused];
        m[lane] = tile->row_max[p->row + lane - p->unused];
        one_by_sum[lane] = sum == 0 ? 0 : 1 / sum;
        if (sum == 0) /* then 2^(s - m) is 0 however high a score is: a great sink left nothing */
            m[lane] = INFINITY;
    }
    block b;
    int any = block_of_panel(f, p, weights || stage == HEED_SCORES_BIASED, &b);
    if (any)
        block_scores(f, p, &b, NULL);
    for (int v = first_vector(p); v < VECTORS; v++) {
        show_block(f, p, any ? &b : NULL, v, stage, weights ? m : NULL, one_by_sum);
        panel_store(p, v, f->s + v * LANES, f->end - f->first, ones + v * LANES, out, HEED_F32,
                    f->first);
    }
}

/* ---- a tile -----------------------------------------------------------------------------------
 */

/* Scores are in log2 units as early as possible. They stay in natural units where a modifier needs
 * these, where scores are written out, and where biases have slopes: log2(e) times a slope and its bias may
 * not fit into a float, and to ask the slopes of a tile would have a head's bits depend on the others'.
 * Times scale it fits (range.h). */
static void set_units(prefill *f, int natural)
{
    const uint64_t modifiers = HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS_SLOPE;
    double factor = (double)f->problem->scale;
    f->natural = natural || (f->problem->features & modifiers) != 0;
#if PAIR == 2
    /* The scale alone: rounding to bf16 is then exact where the scale is a power of two. */
    f->factor = (float)factor;
    f->unit = f->natural ? 1 : (float)LOG2_E;
#else
    f->factor = (float)(f->natural ? factor : factor * LOG2_E);
    f->unit = 1;
#endif
}

/* Makes the keys from `first` to the end of its block the block at hand. */
static void set_block(prefill *f, int64_t first)
{
    f->first = first;
    f->end = (first / f->layout.key_block + 1) * f->layout.key_block;
    if (f->end > f->tile->k_end)
        f->end = f->tile->k_end;
}

static void run_outputs(prefill *f, panel *const *p, int64_t n, const heed_rows *out,
                        uint32_t stage, int weights)
{
    set_units(f, !weights);
    for (int64_t i = 0; i < n; i++)
        pack_queries(f->problem, f->tile, p[i], f->factor);
    for (int64_t first = f->tile->k_first; first < f->tile->k_end; first = f->end) {
        set_block(f, first);
        find_needed(f, p, n);
        block_load_keys(f);
        for (int64_t i = 0; i < n; i++)
            show_panel(f, p[i], out, stage, weights);
    }
}

static void run_panels(prefill *f, heed_tile *tile, panel *const *p, int64_t n)
{
    const heed_problem *problem = f->problem;
    /* Fetching does not pay for a single panel and block. */
    const int fetches = n > 1 || tile->k_end - tile->k_first > f->layout.key_block;
    int64_t loaded = 0; /* panels whose queries have been packed */
    f->first_panel = p[0];
    for (int64_t first = tile->k_first; first < tile->k_end; first = f->end) {
        int64_t first_panel = -1;
        set_block(f, first);
        f->first -= f->first % PAIR;
        for (int64_t i = 0; i < n; i++) {
            block b;
            if (!block_of_panel(f, p[i], 1, &b))
                continue;
            for (; loaded <= i; loaded++)
                pack_queries(problem, tile, p[loaded], f->factor);
            if (first_panel < 0) {
                first_panel = i;
                find_needed(f, p, n);
                block_load_keys(f);
                f->values = 1;
            }
            if (fetches) {
                plan_fetches(f, p[i], &b, loaded < n ? p[loaded] : NULL, i - first_panel,
                             n - first_panel);
                plan_bias(f, &b, p, i, n);
            }
            attend(f, p[i], &b);
        }
    }
    for (int64_t i = 0; i < n; i++)
        panel_end(f, tile, p[i]);
}

/* Where the rows of the next panel begin. */
typedef struct cursor {
    int64_t head, row;
} cursor;

/* Fills a panel and moves on: through the rows of one head after the other, or, if `shared` is set,
 * through the heads of the same rows, so that panels with the same mask follow each other. */
static void take_rows(const prefill *f, panel *p, cursor *at)
{
    const heed_tile *tile = f->tile;
    const int64_t row = at->head * tile->q_count + at->row;
    if (f->shared) {
        const int64_t n = panel_begin(f, p, row, tile->q_count - at->row);
        if (++at->head < tile->n_heads)
            return;
        at->row += n;
        at->head = at->row < tile->q_count ? 0 : tile->n_heads;
    } else {
        const int64_t next = row + panel_begin(f, p, row, tile->n_heads * tile->q_count - row);
        at->head = next / tile->q_count;
        at->row = next % tile->q_count;
    }
}

heed_status HEED_ISA_FUNCTION(heed_attn_prefill)(const heed_simd_tuning *tuning,
                                                 const heed_problem *problem, heed_tile *tile,
                                                 void *scratch)
{
    char *base = scratch;
    prefill f = {.problem = problem, .tile = tile};
    f.v_far_bytes = tuning->pack_v ? V_FAR_BYTES : FAR_BYTES;
    panel *p[MOST_PANELS];
    heed_prefill_lay_out(problem, LANES, &f.layout);
    f.s = (float *)(void *)(base + f.layout.score_at);
    f.bias = (float *)(void *)(base + f.layout.bias_at);
    f.seen = (uint64_t *)(void *)(base + f.layout.seen_at);
    f.k_copy = (float *)(void *)(base + f.layout.k_at);
    f.v_copy = (float *)(void *)(base + f.layout.v_at);
    f.lists = tile->key_blocks.data || (tile->ranges.data && problem->n_ranges > 1);
    set_units(&f, 0);
    for (int64_t i = 0; i < f.layout.panels; i++) {
        char *at = base + f.layout.panel_at + (size_t)i * f.layout.panel_bytes;
        p[i] = (panel *)(void *)at;
        p[i]->q = (float *)(void *)(at + heed_prefill_round(HEED_PREFILL_PANEL_BYTES(LANES)));
        p[i]->o = p[i]->q + (int64_t)problem->qk_dim * PANEL;
        p[i]->kept = p[i]->o + whole_steps(problem->v_dim) * PANEL;
    }

    f.shared = mask_is_shared(&f);
    guess_next_head(&f);
    cursor at = {0, 0};
    while (at.head < tile->n_heads) {
        int64_t n = 0;
        f.dense = NULL;
        for (; n < f.layout.panels && at.head < tile->n_heads; n++)
            take_rows(&f, p[n], &at);
        if (!(tile->flags & HEED_TILE_OUTPUTS)) {
            run_panels(&f, tile, p, n);
            continue;
        }
        if (tile->weights.data)
            run_outputs(&f, p, n, &tile->weights, HEED_SCORES_BIASED, 1);
        if (tile->scores.data)
            run_outputs(&f, p, n, &tile->scores, problem->scores_stage, 0);
    }
    if (tile->flags & HEED_TILE_WHOLE && !(tile->flags & HEED_TILE_OUTPUTS))
        tile->flags |= HEED_TILE_FINISHED;
    v_leave();
    return HEED_OK;
}
