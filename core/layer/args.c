/* Checks what a run of a layer is given, and counts and places its rows. */
#include "base/checked.h"
#include "base/reason.h"
#include "base/rows.h"
#include "mha.h"
#include "rotary.h"

static heed_status check_sizes(const heed_mha *m, const heed_mha_args *a, heed_error *why)
{
    const struct {
        const char *name, *limit, *missing; /* missing: the feature without which it is 0 */
        int64_t value, most;
    } size[] = {
        {"batch", "batch", NULL, a->batch, m->attn.max_batch},
        {"q_len", "q_len", NULL, a->q_len, m->attn.max_q_len},
        {"kv_len", "kv_len", m->cross ? NULL : "CROSS", a->kv_len, m->attn.max_kv_len},
        {"capacity", "kv_len", m->cache ? NULL : "CACHE", a->capacity, m->attn.max_kv_len},
    };
    for (int i = 0; i < 4; i++) {
        if (size[i].missing && size[i].value)
            INVALID("args.%s is %lld, 0 is required without HEED_MHA_HAS_%s", size[i].name,
                    (long long)size[i].value, size[i].missing);
        if (size[i].value < 0 || size[i].value > size[i].most)
            INVALID("args.%s is %lld, 0 to the layer's max_%s = %lld is required", size[i].name,
                    (long long)size[i].value, size[i].limit, (long long)size[i].most);
    }
    return HEED_OK;
}

/* Checks what may be there by the layer's features. Attention checks the rest. */
static heed_status check_presence(const heed_mha *m, const heed_mha_args *a, heed_error *why)
{
    const int lens = (m->attn.features & HEED_HAS_LENS) != 0;
    const int packed = (m->attn.features & HEED_HAS_PACKED) != 0;
    const int pages = (m->attn.features & HEED_HAS_PAGES) != 0;
    const int residual =
        m->desc.out_proj && (m->desc.out_proj->problem.features & HEED_LINEAR_HAS_RESIDUAL) != 0;
    const struct {
        const char *name;
        const void *data;
        int allowed;
    } given[] = {
        {"x_kv", a->x_kv.data, (int)m->cross},
        {"residual", a->residual.data, residual},
        {"k_cache", a->k_cache.data, (int)m->cache},
        {"v_cache", a->v_cache.data, (int)m->cache},
        {"cache_lens", a->cache_lens, (int)m->cache},
        {"q_lens", a->q_lens, lens},
        {"kv_lens", a->kv_lens, lens && m->cross},
        {"q_starts", a->q_starts, packed},
        {"kv_starts", a->kv_starts, packed && m->cross},
        {"block_table", a->block_table, pages},
        {"positions", a->positions, m->desc.rotary.style != HEED_ROTARY_NONE},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].data && !given[i].allowed)
            INVALID("args.%s is given, but the layer does not use it", given[i].name);
    if (a->append & ~(uint64_t)HEED_APPEND_FRESH_SCALES ||
        (a->append && !(m->attn.features & HEED_HAS_QUANT)))
        INVALID("args.append is 0x%llx, 0%s is required", (unsigned long long)a->append,
                m->attn.features & HEED_HAS_QUANT ? " or HEED_APPEND_FRESH_SCALES"
                                                  : " without HEED_HAS_QUANT");
    if (!(m->attn.features & HEED_HAS_QUANT) && (a->k_quant.scale || a->v_quant.scale))
        INVALID("args.%s is given, but the layer's attention lacks HEED_HAS_QUANT",
                a->k_quant.scale ? "k_quant" : "v_quant");
    if (lens && !a->q_lens && !a->kv_lens)
        INVALID("args.q_lens is NULL, but the layer has HEED_HAS_LENS");
    if (packed && !a->q_starts && !a->kv_starts)
        INVALID("args.q_starts is NULL, but the layer has HEED_HAS_PACKED");
    if (!pages && (a->block_table_stride || a->n_pages))
        INVALID("args.%s is given, but the layer's attention lacks HEED_HAS_PAGES",
                a->n_pages ? "n_pages" : "block_table_stride");
    if (pages && (a->n_pages < 0 || a->n_pages > INT32_MAX)) /* before it is a view's shape */
        INVALID("args.n_pages is %lld, 0 to %d is required", (long long)a->n_pages, INT32_MAX);
    return HEED_OK;
}

/* Reads the rows of one side, of q or of k and v. *reach: rows of a view that holds them. */
static heed_status read_rows(const char *side, const heed_row_lists *of, int64_t most,
                             heed_mha_rows *r, int64_t *reach, heed_error *why)
{
    const int32_t *starts = of->starts;
    const int64_t len = of->len;
    r->total = r->n_units = 0;
    r->user_len = len;
    r->user_starts = starts;
    *reach = starts ? 0 : len;
    for (int64_t b = 0; b < of->batch; b++) {
        const int32_t n = heed_row_count(of->lens, b, len);
        if (n < 0 || n > len)
            INVALID("args.%s_lens[%lld] is %d, 0 to args.%s_len = %lld is required", side,
                    (long long)b, n, side, (long long)len);
        if (starts && starts[b] < 0)
            INVALID("args.%s_starts[%lld] is %d, at least 0 is required", side, (long long)b,
                    starts[b]);
        if (r->total + n > most)
            INVALID("sequences 0 to %lld have %lld rows of %s, at most %lld are possible with this "
                    "layer",
                    (long long)b, (long long)r->total + n, side, (long long)most);
        if (starts && n)
            *reach = heed_max64(*reach, starts[b] + (int64_t)n);
        r->lens[b] = n;
        r->starts[b] = (int32_t)r->total;
        r->first_unit[b] = r->n_units;
        r->total += n;
        r->n_units += heed_ceil_div(n, HEED_MHA_UNIT_ROWS);
    }
    return HEED_OK;
}

static heed_status check_matrix(const char *name, const void *data, const int64_t stride[4],
                                uint32_t type, int is_output, const int64_t shape[4],
                                heed_error *why)
{
    if (stride[3])
        INVALID("args.%s.stride[3] is %lld, 0 is required: it has three axes", name,
                (long long)stride[3]);
    return heed_check_view(name, data, stride, heed_dtype_bytes(type), is_output, shape, why);
}

/* Without out_proj attention writes y, while it may still read its inputs. Tensors without elements,
 * as those of keys are where there are none, may have any address. */
static heed_status check_in_place(const heed_mha *m, const heed_mha_args *a, heed_error *why)
{
    const void *y = a->y.data;
    const int keys = (m->cache ? a->capacity : m->cross ? a->kv_len : a->q_len) > 0;
    const char *input = y == a->x_q.data          ? "x_q"
                        : y == a->x_kv.data       ? "x_kv"
                        : y == a->ranges.data     ? "ranges"
                        : !keys                   ? NULL
                        : y == a->mask.data       ? "mask"
                        : y == a->bias.data       ? "bias"
                        : y == a->key_blocks.data ? "key_blocks"
                                                  : NULL;
    const char *other = y == a->lse.data       ? "lse"
                        : !keys                ? NULL
                        : y == a->k_cache.data ? "k_cache"
                        : y == a->v_cache.data ? "v_cache"
                        : y == a->weights.data ? "weights"
                        : y == a->scores.data  ? "scores"
                                               : NULL;
    if (input && !m->desc.out_proj)
        INVALID("args.y.data equals args.%s.data, which the layer permits with out_proj alone",
                input);
    if (other)
        INVALID("args.y.data equals args.%s.data: y may not share elements with it", other);
    return HEED_OK;
}

/* Looks at the caches as attention does, which would call them k and v. */
static heed_status check_caches(const heed_mha *m, const heed_mha_args *a, heed_error *why)
{
    const int paged = (m->attn.features & HEED_HAS_PAGES) != 0;
    const int64_t batch = !a->capacity || !a->batch ? 0 : paged ? a->n_pages : a->batch;
    const int64_t rows = paged ? m->attn.page_len : a->capacity;
    const struct {
        const char *name;
        const heed_view *view;
        uint32_t type, dim;
    } cache[] = {{"k_cache", &a->k_cache, m->attn.k_type, m->attn.qk_dim},
                 {"v_cache", &a->v_cache, m->attn.v_type, m->attn.v_dim}};
    for (int i = 0; i < 2; i++) {
        const int64_t shape[] = {batch, m->attn.kv_heads, rows, cache[i].dim};
        const int64_t *stride = cache[i].view->stride;
        heed_status st = heed_check_view(cache[i].name, cache[i].view->data, stride,
                                         heed_reach_bytes(cache[i].type), 0, shape, why);
        if (st == HEED_OK && batch)
            st = heed_check_blocks(cache[i].name, cache[i].type, stride, shape, why);
        if (st != HEED_OK)
            return st;
    }
    return HEED_OK;
}

static heed_status read_lists(heed_mha_run_state *run, heed_error *why)
{
    const heed_mha *m = run->mha;
    const heed_mha_args *a = &run->args;
    int64_t *wide = (int64_t *)(void *)((char *)run + m->layout.lists);
    const int64_t most = m->attn.max_batch;
    int32_t *narrow = (int32_t *)(void *)(wide + 2 * most);
    int64_t q_reach, kv_reach = 0;
    run->q_rows = (heed_mha_rows){.lens = narrow, .starts = narrow + most, .first_unit = wide};
    run->kv_rows = (heed_mha_rows){
        .lens = narrow + 2 * most, .starts = narrow + 3 * most, .first_unit = wide + most};
    run->all_lens = narrow + 4 * most;
    run->q_offsets = narrow + 5 * most;
    const heed_row_lists q = {
        .batch = a->batch, .len = a->q_len, .lens = a->q_lens, .starts = a->q_starts};
    const heed_row_lists kv = {
        .batch = a->batch, .len = a->kv_len, .lens = a->kv_lens, .starts = a->kv_starts};
    heed_status st = read_rows("q", &q, m->max_q_rows, &run->q_rows, &q_reach, why);
    if (st == HEED_OK && m->cross)
        st = read_rows("kv", &kv, m->max_kv_rows, &run->kv_rows, &kv_reach, why);
    if (st == HEED_OK && !m->cross)
        run->kv_rows = run->q_rows;
    const int64_t q_batch = !run->q_rows.total ? 0 : a->q_starts ? 1 : a->batch;
    const int64_t kv_batch = !run->kv_rows.total ? 0 : a->kv_starts ? 1 : a->batch;
    const int64_t q_shape[] = {q_batch, q_reach, m->desc.d_model, 1};
    const int64_t kv_shape[] = {kv_batch, kv_reach, m->desc.d_kv, 1};
    const int64_t y_shape[] = {q_batch, q_reach, m->y_cols, 1};
    if (st == HEED_OK)
        st = check_matrix("x_q", a->x_q.data, a->x_q.stride, m->desc.x_type, 0, q_shape, why);
    if (st == HEED_OK && m->cross)
        st = check_matrix("x_kv", a->x_kv.data, a->x_kv.stride, m->desc.kv_type, 0, kv_shape, why);
    if (st == HEED_OK)
        st = check_matrix("y", a->y.data, a->y.stride, m->y_type, 1, y_shape, why);
    if (st == HEED_OK && m->cache)
        st = check_caches(m, a, why);
    if (st == HEED_OK && run->q_rows.total)
        st = check_in_place(m, a, why);
    if (st == HEED_OK && m->desc.out_proj &&
        (m->desc.out_proj->problem.features & HEED_LINEAR_HAS_RESIDUAL))
        st = check_matrix("residual", a->residual.data, a->residual.stride, m->y_type, 0, y_shape,
                          why);
    /* Attention checks lse too, but not the caller's where it is scattered to that
     * from compact rows. */
    const int64_t lse_shape[] = {q_batch, m->attn.q_heads, q_reach, 1};
    if (st == HEED_OK && (m->attn.features & HEED_HAS_LSE))
        st = heed_check_view("lse", a->lse.data, a->lse.stride, sizeof(float), 1, lse_shape, why);
    return st;
}

/* Finds how many keys each sequence has, and the position of its first row. */
static heed_status find_positions(heed_mha_run_state *run, heed_error *why)
{
    const heed_mha *m = run->mha;
    const heed_mha_args *a = &run->args;
    for (int64_t i = 0; i < a->batch; i++) {
        const int32_t there = a->cache_lens ? a->cache_lens[i] : 0;
        const int64_t all = (int64_t)there + run->kv_rows.lens[i];
        if (there < 0 || all > INT32_MAX)
            INVALID("args.cache_lens[%lld] is %d, 0 to args.capacity = %lld is required",
                    (long long)i, there, (long long)a->capacity);
        run->all_lens[i] = (int32_t)all;
        const int32_t behind = (int32_t)all - run->q_rows.lens[i];
        run->q_offsets[i] = m->attn.position == HEED_POS_GIVEN ? a->q_offsets ? a->q_offsets[i] : 0
                            : m->attn.position == HEED_POS_BOTTOM_RIGHT       ? behind
                            : m->attn.position == HEED_POS_UNSET && !m->cross ? behind
                                                                              : 0;
    }
    return HEED_OK;
}

heed_status heed_mha_read_args(heed_mha_run_state *run, heed_error *why)
{
    const heed_mha_args *a = &run->args;
    heed_status st = check_sizes(run->mha, a, why);
    if (st == HEED_OK)
        st = check_presence(run->mha, a, why);
    if (st == HEED_OK)
        st =
            heed_rotary_check_positions(a->positions, a->positions_stride, a->batch, a->q_len, why);
    if (st == HEED_OK)
        st = read_lists(run, why);
    return st == HEED_OK ? find_positions(run, why) : st;
}
