/* What a caller of heed_kv_append and heed_rotary may get wrong. Each of these turns a valid call
 * into one that has to be refused before anything is written, so none needs memory behind it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fuzz_cache.h"
#include "view.h"

#define N(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const int64_t bad_size[] = {-1, INT64_C(1) << 31, INT64_MAX, INT64_MIN};
static const uint32_t bad_dim[] = {0, (1u << 20) + 1, UINT32_MAX};
static const uint32_t bad_type[] = {HEED_DTYPE_NONE, HEED_I8, HEED_Q8_0, 6, UINT32_MAX};
static const size_t bad_struct[] = {0, 7, 8, 20, 65537, SIZE_MAX};
static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 4};
#define DRAW(list) (list)[fuzz_below(bytes, N(list))]

/* Refused, and with a sentence? */
static const char *judge(const char *what, heed_status status, const heed_error *error)
{
    static char text[200];
    const char *wrong = status == HEED_OK ? "accepted"
                        : status == HEED_ERR_INVALID || status == HEED_ERR_ABI
                            ? (error->text[0] ? NULL : "refused without a sentence")
                            : "refused with another status";
    snprintf(text, sizeof text, "%s: %s", what, wrong ? wrong : "");
    return wrong ? text : NULL;
}

/* A stride of 0, or one whose farthest element has no address, on an axis of more than one. */
static int bad_stride(int64_t *stride, fuzz_bytes *bytes, const int64_t *shape, int is_output)
{
    const int axis = (int)fuzz_below(bytes, 4);
    stride[axis] = is_output && fuzz_byte(bytes) & 1 ? 0 : DRAW(far);
    for (int i = 0; i < 4; i++)
        if (shape[i] == 0)
            return 0;
    return shape[axis] > 1;
}

/* ---- append -----------------------------------------------------------------------------------
 */

static int bad_view(const fuzz_cache *c, heed_kv_append_args *a, fuzz_bytes *bytes)
{
    const kit_view view[] = {KIT_IN_VIEW(a->k), KIT_OUT_VIEW(a->k_cache), KIT_IN_VIEW(a->v),
                             KIT_OUT_VIEW(a->v_cache)};
    const uint32_t which = fuzz_below(bytes, c->values_are_keys ? 2 : 4);
    const int64_t dims = which < 2 ? c->qk_dim : c->v_dim;
    const int64_t new_rows[] = {c->packed ? 1 : c->batch, c->kv_heads,
                                c->packed ? c->packed_rows : c->len, dims};
    const int64_t keys[] = {c->page_len ? c->n_pages : c->batch, c->kv_heads,
                            c->page_len ? c->page_len : c->capacity, dims};
    const int64_t *shape = which & 1 ? keys : new_rows;
    if (c->len == 0 || shape[2] == 0)
        return 0;
    if (fuzz_byte(bytes) & 1)
        return kit_view_point(view[which], NULL), 1;
    return bad_stride(view[which].stride, bytes, shape, which & 1);
}

/* Spoils lists of the cache, which are put right again by the caller. */
static const char *bad_list(fuzz_cache *c, heed_kv_append_args *a, fuzz_bytes *bytes)
{
    const int64_t b = fuzz_below(bytes, (uint32_t)c->batch);
    const int64_t page = c->page_len ? c->there[b] / c->page_len : 0;
    switch (fuzz_below(bytes, 6)) {
    case 0:
        return c->now[b] = fuzz_byte(bytes) & 1 ? -1 : (int32_t)c->len + 1, "lens";
    case 1:
        return c->there[b] = fuzz_byte(bytes) & 1 ? -1 : (int32_t)c->capacity + 1, "cache_lens";
    case 2:
        c->there[b] = (int32_t)c->capacity - c->now[b] + 1;
        return c->now[b] ? "more than capacity" : NULL;
    case 3:
        c->starts[b] = fuzz_byte(bytes) & 1 ? -1 : (int32_t)c->packed_rows - c->now[b] + 1;
        return c->packed ? "starts" : NULL;
    case 4:
        if (!c->page_len || !c->now[b])
            return NULL;
        c->table[b * c->table_stride + page] =
            fuzz_byte(bytes) & 1 ? -1 : (int32_t)c->n_pages + (int32_t)fuzz_byte(bytes);
        return "a page";
    default:
        a->block_table = NULL;
        return c->page_len && c->len > c->len * (c->now[b] == 0) ? "no block_table" : NULL;
    }
}

static const char *spoil_append(fuzz_cache *c, heed_kv_append_args *a, fuzz_bytes *bytes)
{
    int64_t *size[] = {&a->batch, &a->len, &a->capacity, &a->rows, &a->n_pages};
    uint32_t *dim[] = {&a->kv_heads, &a->qk_dim};
    uint32_t *type[] = {&a->k_type, &a->k_cache_type, &a->v_type, &a->v_cache_type};
    switch (fuzz_below(bytes, 11)) {
    case 0:
        return a->struct_size = DRAW(bad_struct), "struct_size";
    case 1:
        return *size[fuzz_below(bytes, 5)] = DRAW(bad_size), "a size";
    case 2:
        return *dim[fuzz_below(bytes, 2)] = DRAW(bad_dim), "kv_heads or qk_dim";
    case 3:
        return *type[fuzz_below(bytes, c->values_are_keys ? 2 : 4)] = DRAW(bad_type), "a type";
    case 4:
        a->page_len = (1u << 31) + fuzz_byte(bytes);
        return "page_len";
    case 5:
        a->rows = 1;
        return c->packed ? NULL : "rows without starts";
    case 6:
        a->v = a->k;
        return c->values_are_keys ? "v without v_dim" : NULL;
    case 7:
        a->capacity = a->block_table_stride * a->page_len + 1;
        return c->page_len ? "a capacity of more than the table" : NULL;
    case 8:
        a->block_table = c->now;
        return c->page_len ? NULL : "a table without pages";
    case 9:
        return bad_view(c, a, bytes) ? "a view" : NULL;
    default:
        return bad_list(c, a, bytes);
    }
}

const char *fuzz_cache_spoil_append(fuzz_cache *c, const heed_kv_append_args *args,
                                    fuzz_bytes *bytes)
{
    heed_kv_append_args a = *args;
    heed_error error = {""};
    int32_t now[FUZZ_CACHE_BATCH], there[FUZZ_CACHE_BATCH], starts[FUZZ_CACHE_BATCH];
    int32_t page[FUZZ_CACHE_BATCH] = {0};
    const char *wrong = NULL;
    if (!fuzz_rarely(bytes, 2))
        return NULL;
    memcpy(now, c->now, sizeof now);
    memcpy(there, c->there, sizeof there);
    memcpy(starts, c->starts, sizeof starts);
    for (int64_t b = 0; b < c->batch && c->page_len; b++)
        page[b] = c->table[b * c->table_stride + there[b] / c->page_len];
    a.error = &error;
    const char *what = spoil_append(c, &a, bytes);
    if (what) {
        guard_read_only(&c->buffer[0]);
        if (!c->values_are_keys)
            guard_read_only(&c->buffer[1]);
        heed_status status = heed_kv_append(&a);
        if (a.struct_size != sizeof a) /* nothing in it says where to */
            memcpy(error.text, heed_last_error(), sizeof error.text);
        wrong = judge(what, status, &error);
        guard_open(&c->buffer[0]);
        if (!c->values_are_keys)
            guard_open(&c->buffer[1]);
    }
    memcpy(c->now, now, sizeof now);
    memcpy(c->there, there, sizeof there);
    memcpy(c->starts, starts, sizeof starts);
    for (int64_t b = 0; b < c->batch && c->page_len; b++)
        c->table[b * c->table_stride + there[b] / c->page_len] = page[b];
    return wrong;
}

/* ---- rotary -----------------------------------------------------------------------------------
 */

static const char *spoil_desc(heed_rotary_desc *r, uint32_t dim, fuzz_bytes *bytes)
{
    const float bad[] = {-1, NAN, INFINITY, -INFINITY};
    if (!r->style)
        return r->dims = 2, "dims without a style";
    switch (fuzz_below(bytes, 6)) {
    case 0:
        return r->style = 3 + fuzz_byte(bytes), "style";
    case 1:
        return r->dims = fuzz_byte(bytes) & 1 ? 0 : r->dims - 1, "dims";
    case 2:
        return r->dims = dim + 2 - dim % 2, "dims beyond the head";
    case 3:
        return *(fuzz_byte(bytes) & 1 ? &r->base : &r->scale) = DRAW(bad), "base or scale";
    case 4:
        return r->mscale = bad[1 + fuzz_below(bytes, 3)], "mscale";
    default:
        return r->reserved = 1 + fuzz_byte(bytes), "reserved";
    }
}

static const char *spoil_rotary(heed_rotary_args *a, fuzz_bytes *bytes)
{
    static const int32_t some[FUZZ_CACHE_BATCH] = {0};
    static int32_t starts[FUZZ_CACHE_BATCH] = {-1, -1, -1};
    int64_t *size[] = {&a->batch, &a->len, &a->rows};
    const int64_t shape[] = {a->starts ? 1 : a->batch, a->heads, a->starts ? a->rows : a->len,
                             a->dim};
    const uint32_t which = fuzz_byte(bytes) & 1;
    switch (fuzz_below(bytes, 12)) {
    case 0:
        return a->struct_size = DRAW(bad_struct), "struct_size";
    case 1:
        return *size[fuzz_below(bytes, 3)] = DRAW(bad_size), "a size";
    case 2:
        return *(which ? &a->heads : &a->dim) = DRAW(bad_dim), "heads or dim";
    case 3:
        return *(which ? &a->x_type : &a->y_type) = DRAW(bad_type), "a type";
    case 4:
        if (which)
            a->x.data = NULL;
        else
            a->y.data = NULL;
        return a->len && shape[2] ? "no data" : NULL;
    case 5:
        return a->len && bad_stride(which ? a->x.stride : a->y.stride, bytes, shape, !which)
                   ? "a stride"
                   : NULL;
    case 6:
        if (a->offsets)
            a->positions = some;
        else
            a->offsets = some;
        return "offsets and positions";
    case 7:
        a->positions_stride = a->positions ? DRAW(far) : 1;
        return a->positions && (a->batch < 2 || a->len == 0) ? NULL : "positions_stride";
    case 8:
        a->rows = 1;
        return a->starts ? NULL : "rows without starts";
    case 9:
        a->starts = starts;
        return "starts below 0";
    case 10:
        a->x = heed_as_const(a->y);
        a->x.stride[3]++;
        return a->len && shape[2] && a->dim > 1 ? "strides of x that is y" : NULL;
    default:
        return spoil_desc(&a->rotary, a->dim, bytes);
    }
}

const char *fuzz_cache_spoil_rotary(const heed_rotary_args *args, fuzz_bytes *bytes,
                                    guard_buffer *y)
{
    heed_rotary_args a = *args;
    heed_error error = {""};
    const char *wrong = NULL;
    if (!fuzz_rarely(bytes, 2))
        return NULL;
    a.error = &error;
    const char *what = spoil_rotary(&a, bytes);
    if (what) {
        guard_read_only(y);
        heed_status status = heed_rotary(&a);
        if (a.struct_size != sizeof a) /* nothing in it says where to */
            memcpy(error.text, heed_last_error(), sizeof error.text);
        wrong = judge(what, status, &error);
        guard_open(y);
    }
    return wrong;
}
