/* heed_kv_append: new keys and values behind those of a cache, contiguous or in pages. */
#include "kv_append.h"

#include "base/checked.h"
#include "base/reason.h"
#include "base/rows.h"

#define INVALID(...) return heed_fail(why, HEED_ERR_INVALID, __VA_ARGS__)

/* ---- checks -----------------------------------------------------------------------------------
 */

static heed_status check_sizes(const heed_kv_append_args *a, heed_error *why)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } size[] = {{"capacity", a->capacity, 0, INT32_MAX},
                {"kv_heads", a->kv_heads, 1, 1 << 20},
                {"qk_dim", a->qk_dim, 1, 1 << 20},
                {"v_dim", a->v_dim, 0, 1 << 20},
                {"page_len", a->page_len, 0, INT32_MAX},
                {"n_pages", a->n_pages, 0, a->page_len ? INT32_MAX : 0},
                {"block_table_stride", a->block_table_stride, 0, a->page_len ? INT32_MAX : 0}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].value < size[i].least || size[i].value > size[i].most)
            INVALID("args.%s is %lld, %lld to %lld is required%s", size[i].name,
                    (long long)size[i].value, (long long)size[i].least, (long long)size[i].most,
                    i > 4 && !a->page_len ? " without args.page_len" : "");
    if (a->page_len && a->capacity > a->block_table_stride * a->page_len)
        INVALID("args.capacity is %lld, at most args.block_table_stride = %lld pages of %u is "
                "required",
                (long long)a->capacity, (long long)a->block_table_stride, a->page_len);
    if (!a->page_len && a->block_table)
        INVALID("args.block_table is given without args.page_len");
    return HEED_OK;
}

static heed_status check_types(const heed_kv_append_args *a, heed_error *why)
{
    heed_status st = heed_check_type("k_type", a->k_type, why);
    if (st == HEED_OK)
        st = heed_check_type("k_cache_type", a->k_cache_type, why);
    if (st == HEED_OK && a->v_dim)
        st = heed_check_type("v_type", a->v_type, why);
    if (st == HEED_OK && a->v_dim)
        st = heed_check_type("v_cache_type", a->v_cache_type, why);
    if (st == HEED_OK && !a->v_dim && (a->v.data || a->v_cache.data))
        INVALID("args.%s is given, but args.v_dim is 0", a->v.data ? "v" : "v_cache");
    return st;
}

static heed_status check_views(const heed_kv_append_args *a, heed_error *why)
{
    const int64_t new_batch = a->starts && a->batch ? 1 : a->batch;
    const int64_t new_rows = a->len == 0 ? 0 : a->starts ? a->rows : a->len;
    const int64_t batch = a->len == 0 || !a->batch ? 0 : a->page_len ? a->n_pages : a->batch;
    const int64_t rows = a->page_len ? a->page_len : a->capacity;
    const int64_t k_shape[] = {new_batch, a->kv_heads, new_rows, a->qk_dim};
    const int64_t v_shape[] = {new_batch, a->kv_heads, new_rows, a->v_dim};
    const int64_t k_cache_shape[] = {batch, a->kv_heads, rows, a->qk_dim};
    const int64_t v_cache_shape[] = {batch, a->kv_heads, rows, a->v_dim};
    heed_status st =
        heed_check_view("k", a->k.data, a->k.stride, heed_dtype_bytes(a->k_type), 0, k_shape, why);
    if (st == HEED_OK)
        st = heed_check_view("v", a->v.data, a->v.stride, heed_dtype_bytes(a->v_type), 0, v_shape,
                             why);
    if (st == HEED_OK)
        st = heed_check_view("k_cache", a->k_cache.data, a->k_cache.stride,
                             heed_dtype_bytes(a->k_cache_type), 1, k_cache_shape, why);
    if (st == HEED_OK)
        st = heed_check_view("v_cache", a->v_cache.data, a->v_cache.stride,
                             heed_dtype_bytes(a->v_cache_type), 1, v_cache_shape, why);
    return st;
}

/* Where the rows of sequence b go: below capacity, and into pages that there are. */
static heed_status check_room(const heed_kv_append_args *a, int64_t b, heed_error *why)
{
    const int64_t there = a->cache_lens ? a->cache_lens[b] : 0;
    const int64_t n = heed_row_count(a->lens, b, a->len);
    if (there < 0 || there > a->capacity)
        INVALID("args.cache_lens[%lld] is %lld, 0 to args.capacity = %lld is required",
                (long long)b, (long long)there, (long long)a->capacity);
    if (there + n > a->capacity)
        INVALID("sequence %lld has %lld keys and %lld new ones: args.capacity is %lld",
                (long long)b, (long long)there, (long long)n, (long long)a->capacity);
    if (!a->page_len || n == 0)
        return HEED_OK;
    if (!a->block_table)
        INVALID("args.block_table is NULL, but required with args.page_len");
    for (int64_t i = there / a->page_len; i * a->page_len < there + n; i++) {
        const int32_t page = a->block_table[b * a->block_table_stride + i];
        if (page < 0 || page >= a->n_pages)
            INVALID("args.block_table[%lld][%lld] is %d, 0 to args.n_pages - 1 = %lld is required",
                    (long long)b, (long long)i, page, (long long)a->n_pages - 1);
    }
    return HEED_OK;
}

heed_status heed_kv_append_check(const heed_kv_append_args *a, heed_error *why)
{
    const heed_row_lists lists = {
        .batch = a->batch, .len = a->len, .rows = a->rows, .lens = a->lens, .starts = a->starts};
    heed_status st = check_sizes(a, why);
    if (st == HEED_OK)
        st = check_types(a, why);
    if (st == HEED_OK)
        st = heed_check_rows(&lists, why);
    if (st == HEED_OK)
        st = check_views(a, why);
    for (int64_t b = 0; b < a->batch && st == HEED_OK; b++)
        st = check_room(a, b, why);
    return st;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

/* Elements of a cache from its start to key j of sequence b, head 0. */
static int64_t key_at(const heed_kv_append_args *a, const heed_view *cache, int64_t b, int64_t j)
{
    if (!a->page_len)
        return b * cache->stride[0] + j * cache->stride[2];
    const int64_t page = a->block_table[b * a->block_table_stride + j / a->page_len];
    return page * cache->stride[0] + j % a->page_len * cache->stride[2];
}

static void append_row(const heed_kv_append_args *a, int64_t b, int64_t i, int64_t j)
{
    const struct {
        const heed_const_view *from;
        const heed_view *to;
        uint32_t from_type, to_type;
        int64_t dim;
    } side[] = {{&a->k, &a->k_cache, a->k_type, a->k_cache_type, a->qk_dim},
                {&a->v, &a->v_cache, a->v_type, a->v_cache_type, a->v_dim}};
    for (int s = 0; s < (a->v_dim ? 2 : 1); s++) {
        int64_t from = heed_row_at(side[s].from->stride, a->starts, b, i);
        int64_t to = key_at(a, side[s].to, b, j);
        for (uint32_t h = 0; h < a->kv_heads; h++)
            heed_convert(side[s].from_type, side[s].from->data, from + h * side[s].from->stride[1],
                         side[s].from->stride[3], side[s].to_type, side[s].to->data,
                         to + h * side[s].to->stride[1], side[s].to->stride[3], side[s].dim);
    }
}

void heed_kv_append_rows(const heed_kv_append_args *a, int64_t b, int64_t first, int64_t end)
{
    const int64_t there = a->cache_lens ? a->cache_lens[b] : 0;
    for (int64_t i = first; i < end; i++)
        append_row(a, b, i, there + i);
}

HEED_CHECK_ARGS_ERROR(heed_kv_append_args);
heed_status heed_kv_append(const heed_kv_append_args *args)
{
    heed_kv_append_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK)
        st = heed_kv_append_check(&a, &why);
    if (st != HEED_OK)
        return heed_report_call(args, st, &why);
    for (int64_t b = 0; b < a.batch; b++)
        heed_kv_append_rows(&a, b, 0, heed_row_count(a.lens, b, a.len));
    return HEED_OK;
}
