/* What a caller of heed_kv_append and heed_rotary may get wrong: each mistake has to come back with
 * its status and a sentence that names the argument, and nothing may be written. */
#include "cache_errors.h"

#include "mistake.h"

#include <stdio.h>
#include <string.h>

enum { MOST_ENTRIES = 1 << 14 }; /* of a block table */

/* A good call, for a mistake to be made in; `list` holds a list that the mistake changes. */
typedef struct call {
    heed_kv_append_args append;
    heed_rotary_args rotary;
    int32_t list[KIT_MAX_BATCH];
} call;

/* What a call has, as bits. KNOWN: it is one of the kit's cases. */
enum { KNOWN = 1, PAGES = 2, PACKED = 4, VALUES = 8, ROWS = 16, STYLE = 32 };

/* clang-format off */
#define INVALID HEED_ERR_INVALID
#define PUT(field, ...) KIT_CHANGE(call, KIT_PUT, field, __VA_ARGS__)
#define DO(function, of, kinds) .make = (function), .arg = (of), .n = (kinds)
#define WITH(bits) .with = (bits)
#define WITHOUT(bits) .without = (bits)
#define BAD_DIMS 0, (1u << 20) + 1, UINT32_MAX
#define BAD_TYPES KIT_BAD_TYPES, KIT_CODES
/* clang-format on */

/* ---- append ---------------------------------------------------------------------------------- */

enum { K, K_CACHE, V, V_CACHE };

static const char *broken_view(void *of, int arg, uint32_t pick)
{
    static const char *const name[] = {"args.k ", "k_cache", "args.v ", "v_cache"};
    static const char *const stride_name[] = {"args.k", "k_cache", "args.v", "v_cache"};
    heed_kv_append_args *a = &((call *)of)->append;
    int64_t *const stride[] = {a->k.stride, a->k_cache.stride, a->v.stride, a->v_cache.stride};
    void *const data[] = {&a->k.data, &a->k_cache.data, &a->v.data, &a->v_cache.data};
    const int64_t dims = arg < V ? a->qk_dim : a->v_dim;
    const int64_t rows[] = {a->starts ? 1 : a->batch, a->kv_heads, a->starts ? a->rows : a->len,
                            dims};
    const int64_t keys[] = {a->page_len ? a->n_pages : a->batch, a->kv_heads,
                            a->page_len ? a->page_len : a->capacity, dims};
    const int is_cache = arg == K_CACHE || arg == V_CACHE;
    const int64_t *shape = is_cache ? keys : rows;
    if (pick % 3 == 0) {
        memset(data[arg], 0, sizeof a->k.data);
        return shape[2] ? name[arg] : NULL;
    }
    return kit_break_stride(stride[arg], shape, 4, 2, is_cache, pick / 3) ? stride_name[arg] : NULL;
}

static const char *v_alone(void *of, int arg, uint32_t pick)
{
    heed_kv_append_args *a = &((call *)of)->append;
    (void)arg;
    (void)pick;
    a->v = a->k;
    return "";
}

/* Values go where keys go, as those do that are a view of the keys: but here they are others. */
static const char *one_cache(void *of, int arg, uint32_t pick)
{
    heed_kv_append_args *a = &((call *)of)->append;
    (void)arg;
    a->v_cache.data = a->k_cache.data;
    if (pick && a->k_cache_type == a->v_cache_type && a->qk_dim == a->v_dim)
        memcpy(a->v_cache.stride, a->k_cache.stride, sizeof a->k_cache.stride);
    return a->batch && a->len && a->capacity ? "args.v_cache.data equals args.k_cache.data" : NULL;
}

static const char *small_table(void *of, int arg, uint32_t pick)
{
    heed_kv_append_args *a = &((call *)of)->append;
    (void)arg;
    if (pick & 1)
        a->block_table_stride = (a->capacity - 1) / a->page_len;
    else
        a->capacity = a->block_table_stride * a->page_len + 1;
    return "capacity";
}

enum { LENS, CACHE_LENS, STARTS };

static const char *bad_list(void *of, int arg, uint32_t pick)
{
    static const char *const name[] = {"lens", "cache_lens", "starts"};
    static char word[40];
    call *c = of;
    heed_kv_append_args *a = &c->append;
    const int32_t **const list[] = {&a->lens, &a->cache_lens, &a->starts};
    const int64_t b = a->batch - 1 - pick / 4 % a->batch;
    const int32_t now = a->lens ? a->lens[b] : (int32_t)a->len;
    const int64_t most[] = {a->len, a->capacity, a->rows - now};
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, (int32_t)most[arg] + 1};
    if (!*list[arg] || (arg == STARTS && now == 0 && pick % 4 > 1))
        return NULL;
    memcpy(c->list, *list[arg], (size_t)a->batch * sizeof *c->list);
    c->list[b] = bad[pick % 4];
    *list[arg] = c->list;
    snprintf(word, sizeof word, "%s[%lld]", name[arg], (long long)b);
    return word;
}

static const char *too_full(void *of, int arg, uint32_t pick)
{
    call *c = of;
    heed_kv_append_args *a = &c->append;
    const int64_t b = a->batch - 1 - pick % a->batch;
    const int32_t now = a->lens ? a->lens[b] : (int32_t)a->len;
    (void)arg;
    if (!a->cache_lens || now == 0)
        return NULL;
    memcpy(c->list, a->cache_lens, (size_t)a->batch * sizeof *c->list);
    c->list[b] = (int32_t)a->capacity - now + 1;
    a->cache_lens = c->list;
    return "capacity";
}

static const char *bad_page(void *of, int arg, uint32_t pick)
{
    static int32_t table[MOST_ENTRIES];
    static char word[60];
    heed_kv_append_args *a = &((call *)of)->append;
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, (int32_t)a->n_pages};
    const int64_t b = a->batch - 1 - pick / 4 % a->batch, n = a->batch * a->block_table_stride;
    const int64_t page = a->cache_lens[b] / a->page_len;
    if (n > MOST_ENTRIES || (a->lens ? a->lens[b] : a->len) == 0)
        return NULL;
    if (arg) { /* there is none at all */
        a->block_table = NULL;
        return "block_table";
    }
    memcpy(table, a->block_table, (size_t)n * sizeof *table);
    table[b * a->block_table_stride + page] = bad[pick % 4];
    a->block_table = table;
    snprintf(word, sizeof word, "block_table[%lld][%lld]", (long long)b, (long long)page);
    return word;
}

/* Mistakes in the scales of a call whose keys become codes: they are missing, too few, or given
 * where they mean nothing. */
enum {
    NO_SCALE,
    NO_ZERO,
    A_GROUP,
    A_KEY_GROUP,
    SHARED,
    FAR,
    ZERO_ALONE,
    GROUP_ALONE,
    ZERO_OF_F8,
    DIM_STRIDE,
    OF_Q,
    OF_PLAIN,
    NO_TYPE,
    ZERO_IS_SCALE,
    OF_BOTH
};

/* Makes one of these mistakes in a call whose scales are good. */
static void spoil_scales(heed_kv_append_args *a, int arg, uint32_t pick, float *some)
{
    heed_quant_out *q = &a->k_quant;
    switch (arg) {
    case NO_SCALE:
        *q = (heed_quant_out){0};
        break;
    case NO_ZERO:
        q->zero = NULL;
        break;
    case A_GROUP:
        q->group = 2;
        break;
    case A_KEY_GROUP:
        q->key_group = 3;
        break;
    case SHARED:
        q->stride[2] = 0;
        break;
    case FAR:
        q->stride[pick % 3] = INT64_MAX / 2;
        break;
    case ZERO_ALONE:
        *q = (heed_quant_out){.zero = some};
        a->options = 0;
        break;
    case GROUP_ALONE:
        *q = (heed_quant_out){.group = 1};
        a->options = 0;
        break;
    case ZERO_OF_F8:
        a->k_cache_type = HEED_F8_E4M3;
        break;
    case DIM_STRIDE:
        q->stride[3] = 1;
        break;
    case OF_Q:
        a->k_cache_type = HEED_Q8_0;
        a->options = 0;
        a->qk_dim = 32;
        break;
    case OF_PLAIN:
        a->k_cache_type = HEED_BF16;
        a->options = 0;
        break;
    case NO_TYPE:
        a->k_cache_type = HEED_F32;
        break;
    case ZERO_IS_SCALE:
        q->zero = q->scale;
        break;
    case OF_BOTH: /* values whose shape is that of the keys */
        a->v_cache_type = HEED_U8;
        a->v_quant = *q;
        a->v_quant.scale = pick & 1 ? q->zero : q->scale;
        a->v_quant.zero = some + 2;
        break;
    }
}

static const char *bad_scales(void *of, int arg, uint32_t pick)
{
    static float some[3];
    static const char *const word[] = {"args.k_quant.scale is NULL",
                                       "args.k_quant.zero is NULL",
                                       "args.k_quant.group is 2",
                                       "args.k_quant.key_group is 3",
                                       "args.k_quant.stride[2] (key) is 0",
                                       "args.k_quant has strides",
                                       "args.k_quant.zero is given",
                                       "args.k_quant.group is given",
                                       "args.k_quant.zero is given",
                                       "args.k_quant.stride[3] is 1",
                                       "args.k_quant.scale is given",
                                       "args.k_quant.scale is given",
                                       "args.options has HEED_APPEND_FRESH_SCALES",
                                       "args.k_quant.zero equals args.k_quant.scale",
                                       "args.v_quant.scale equals args.k_quant."};
    heed_kv_append_args *a = &((call *)of)->append;
    const int64_t keys = a->page_len ? a->page_len : a->capacity;
    const heed_quant_out good = {some, some + 1, {a->kv_heads * keys, keys, 1, 0}, 0, pick & 1};
    a->k_cache_type = HEED_U8;
    a->options = HEED_APPEND_FRESH_SCALES;
    a->k_quant = good;
    spoil_scales(a, arg, pick, some);
    if (arg == OF_Q) { /* rows of whole blocks; the memory is never touched */
        a->k_cache.stride[0] = a->k_cache.stride[1] = a->k_cache.stride[2] = 32;
        a->k_cache.stride[3] = 1;
    }
    return word[arg];
}

/* A cache of codes whose strides tear blocks. */
static const char *torn_blocks(void *of, int arg, uint32_t pick)
{
    static char word[40];
    heed_kv_append_args *a = &((call *)of)->append;
    heed_view *view = arg ? &a->v_cache : &a->k_cache;
    const int axis = (int)(pick % 4);
    *(arg ? &a->v_dim : &a->qk_dim) = 32;
    *(arg ? &a->v_cache_type : &a->k_cache_type) = HEED_Q4_0 + pick / 4 % 5;
    for (int i = 0; i < 4; i++)
        view->stride[i] = i == 3 ? 1 : 64;
    view->stride[axis] += 1 + pick % 30;
    if ((axis == 2 && (a->page_len ? a->page_len : a->capacity) < 2) ||
        (axis == 1 && a->kv_heads < 2))
        return NULL;
    snprintf(word, sizeof word, "%s.stride[%d]", arg ? "v_cache" : "k_cache", axis);
    return word;
}

/* clang-format off */
static const kit_mistake append_mistakes[] = {
    {"struct_size", "struct_size", 0, HEED_ERR_ABI, PUT(append.struct_size, KIT_BAD_STRUCTS)},
    {"batch", "batch", 0, INVALID, PUT(append.batch, KIT_BAD_SIZES)},
    {"len", "len", 0, INVALID, PUT(append.len, KIT_BAD_SIZES)},
    {"capacity", "capacity", 0, INVALID, PUT(append.capacity, KIT_BAD_SIZES)},
    {"rows", "rows", 0, INVALID, PUT(append.rows, KIT_BAD_SIZES)},
    {"rows without starts", "rows", 0, INVALID, PUT(append.rows, 1), WITHOUT(PACKED)},
    {"no starts", "rows", 0, INVALID, PUT(append.starts, 0), WITH(KNOWN | PACKED)},
    {"n_pages", "n_pages", 0, INVALID, PUT(append.n_pages, KIT_BAD_SIZES)},
    {"n_pages of one", "block_table[", 0, INVALID, PUT(append.n_pages, 1), WITH(KNOWN | PAGES)},
    {"page_len", "page_len", 0, INVALID,
     PUT(append.page_len, INT64_C(1) << 31, (INT64_C(1) << 31) + 200, UINT32_MAX)},
    {"kv_heads", "kv_heads", 0, INVALID, PUT(append.kv_heads, BAD_DIMS)},
    {"qk_dim", "qk_dim", 0, INVALID, PUT(append.qk_dim, BAD_DIMS)},
    {"k_type", "k_type", 0, INVALID, PUT(append.k_type, BAD_TYPES)},
    {"k_cache_type", "k_cache_type", 0, INVALID, PUT(append.k_cache_type, KIT_BAD_TYPES)},
    {"blocks of k", "args.qk_dim is 5", 0, INVALID, PUT(append.k_cache_type, HEED_U4, HEED_Q8_0, HEED_Q4_0, HEED_Q4_1, HEED_Q5_0, HEED_Q5_1, HEED_IQ4_NL),
     WITH(KNOWN)},
    {"v_type", "v_type", 0, INVALID, PUT(append.v_type, BAD_TYPES), WITH(VALUES)},
    {"v_cache_type", "v_cache_type", 0, INVALID, PUT(append.v_cache_type, KIT_BAD_TYPES), WITH(VALUES)},
    {"blocks of v", "args.v_dim is 3", 0, INVALID, PUT(append.v_cache_type, HEED_U4, HEED_Q8_0, HEED_Q4_0, HEED_Q4_1, HEED_Q5_0, HEED_Q5_1, HEED_IQ4_NL),
     WITH(KNOWN | VALUES)},
    {"v without v_dim", "v", 0, INVALID, DO(v_alone, 0, 1), WITHOUT(VALUES)},
    {"a small table", "capacity", 0, INVALID, DO(small_table, 0, 2), WITH(PAGES)},
    {"a table without pages", "block_table", 0, INVALID, PUT(append.block_table, KIT_SOMETHING),
     WITHOUT(PAGES)},
    {"k", "args.k", 0, INVALID, DO(broken_view, K, 48), WITH(ROWS)},
    {"k_cache", "k_cache", 0, INVALID, DO(broken_view, K_CACHE, 48), WITH(ROWS)},
    {"v", "args.v", 0, INVALID, DO(broken_view, V, 48), WITH(ROWS | VALUES)},
    {"v_cache", "v_cache", 0, INVALID, DO(broken_view, V_CACHE, 48), WITH(ROWS | VALUES)},
    {"one cache", "v_cache", 0, INVALID, DO(one_cache, 0, 2), WITH(ROWS | VALUES)},
    {"lens", "lens", 0, INVALID, DO(bad_list, LENS, 12)},
    {"cache_lens", "cache_lens", 0, INVALID, DO(bad_list, CACHE_LENS, 12)},
    {"starts", "starts", 0, INVALID, DO(bad_list, STARTS, 12), WITH(PACKED)},
    {"more than capacity", "capacity", 0, INVALID, DO(too_full, 0, 3)},
    {"a page", "block_table", 0, INVALID, DO(bad_page, 0, 12), WITH(PAGES)},
    {"no block_table", "block_table", 0, INVALID, DO(bad_page, 1, 3), WITH(PAGES)},
    {"options", "args.options is 0x", 0, INVALID, PUT(append.options, 8, 15, INT64_MIN, -1)},
    {"reserved", "args.reserved is", 0, INVALID, PUT(append.reserved, 1, UINT32_MAX)},
    {"hadamard without its option", "args.hadamard is", 0, INVALID, PUT(append.hadamard, 1, 4), WITH(KNOWN)},
    {"hadamard of none", "args.hadamard is 0", 0, INVALID, PUT(append.options, HEED_APPEND_HADAMARD_K), WITH(KNOWN)},
    {"hadamard of v", "args.hadamard is 0", 0, INVALID, PUT(append.options, HEED_APPEND_HADAMARD_V), WITH(KNOWN | VALUES)},
    {"hadamard of no v", "args.v_dim is 0", 0, INVALID, PUT(append.options, HEED_APPEND_HADAMARD_V), WITH(KNOWN), WITHOUT(VALUES)},
    {"scales of no v", "args.v_quant", 0, INVALID, PUT(append.v_quant.scale, KIT_SOMETHING), WITHOUT(VALUES)},
    {"fresh of no codes", "args.options", 0, INVALID, DO(bad_scales, NO_TYPE, 1), WITH(KNOWN)},
    {"no scales", "k_quant.scale", 0, INVALID, DO(bad_scales, NO_SCALE, 2), WITH(KNOWN)},
    {"no zeros", "k_quant.zero", 0, INVALID, DO(bad_scales, NO_ZERO, 2), WITH(KNOWN)},
    {"fresh by group", "k_quant.group", 0, INVALID, DO(bad_scales, A_GROUP, 2), WITH(KNOWN)},
    {"fresh by key group", "k_quant.key_group", 0, INVALID, DO(bad_scales, A_KEY_GROUP, 2), WITH(KNOWN)},
    {"fresh and shared", "k_quant.stride", 0, INVALID, DO(bad_scales, SHARED, 2), WITH(KNOWN)},
    {"zeros over scales", "k_quant.zero equals", 0, INVALID, DO(bad_scales, ZERO_IS_SCALE, 2), WITH(KNOWN | ROWS)},
    {"scales of both", "v_quant.scale equals", 0, INVALID, DO(bad_scales, OF_BOTH, 2), WITH(KNOWN | ROWS | VALUES)},
    {"a group of no v", "args.v_quant", 0, INVALID, PUT(append.v_quant.group, 1, 3), WITHOUT(VALUES)},
    {"a stride of no v", "args.v_quant", 0, INVALID, PUT(append.v_quant.stride[1], 1, -1), WITHOUT(VALUES)},
    {"far scales", "k_quant", 0, INVALID, DO(bad_scales, FAR, 3), WITH(KNOWN)},
    {"zeros alone", "k_quant.zero", 0, INVALID, DO(bad_scales, ZERO_ALONE, 2), WITH(KNOWN)},
    {"a group alone", "k_quant.group", 0, INVALID, DO(bad_scales, GROUP_ALONE, 2), WITH(KNOWN)},
    {"zeros of f8", "k_quant.zero", 0, INVALID, DO(bad_scales, ZERO_OF_F8, 2), WITH(KNOWN)},
    {"a stride without groups", "k_quant.stride[3]", 0, INVALID, DO(bad_scales, DIM_STRIDE, 2), WITH(KNOWN)},
    {"scales of q8_0", "k_quant.scale", 0, INVALID, DO(bad_scales, OF_Q, 2), WITH(KNOWN)},
    {"scales of bf16", "k_quant.scale", 0, INVALID, DO(bad_scales, OF_PLAIN, 2), WITH(KNOWN)},
    {"torn blocks of k", "k_cache", 0, INVALID, DO(torn_blocks, 0, 96), WITH(KNOWN | ROWS)},
    {"torn blocks of v", "v_cache", 0, INVALID, DO(torn_blocks, 1, 96), WITH(KNOWN | ROWS | VALUES)},
};
/* clang-format on */

size_t kit_append_mistakes(void)
{
    return KIT_COUNT(append_mistakes);
}

int kit_append_refuses(const heed_kv_append_args *args, int known, size_t which, uint32_t pick,
                       kit_outcome *outcome)
{
    const kit_mistake *m = &append_mistakes[which];
    const unsigned has = (known ? KNOWN : 0) | (args->page_len ? PAGES : 0) |
                         (args->starts ? PACKED : 0) | (args->v_dim ? VALUES : 0) |
                         (args->len ? ROWS : 0);
    const int asks = m->status != HEED_ERR_ABI; /* args of an unknown size cannot say where */
    heed_error why = {""};
    call c = {.append = *args};
    const char *word;
    if ((has & m->with) != m->with || has & m->without)
        return 0;
    word = kit_make_mistake(m, &c, pick);
    c.append.error = asks ? &why : NULL;
    if (word) {
        const heed_status status = heed_kv_append(&c.append);
        kit_judge_refusal(m, word, "heed_kv_append", status, asks ? why.text : heed_last_error(),
                          outcome);
    }
    return word != NULL;
}

/* ---- rotary ---------------------------------------------------------------------------------- */

enum { X, Y };

static const char *broken_x_or_y(void *of, int arg, uint32_t pick)
{
    heed_rotary_args *a = &((call *)of)->rotary;
    const int64_t shape[] = {a->starts ? 1 : a->batch, a->heads, a->starts ? a->rows : a->len,
                             a->dim};
    if (pick % 3 == 0) {
        memset(arg == X ? (void *)&a->x.data : (void *)&a->y.data, 0, sizeof a->x.data);
        return shape[2] ? (arg == X ? "args.x " : "args.y ") : NULL;
    }
    return kit_break_stride(arg == X ? a->x.stride : a->y.stride, shape, 4, 2, arg == Y, pick / 3)
               ? (arg == X ? "args.x" : "args.y")
               : NULL;
}

static const char *both_positions(void *of, int arg, uint32_t pick)
{
    call *c = of;
    (void)arg;
    (void)pick;
    if (c->rotary.offsets)
        c->rotary.positions = c->list;
    else
        c->rotary.offsets = c->list;
    return "offsets";
}

static const char *far_positions(void *of, int arg, uint32_t pick)
{
    static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 4};
    heed_rotary_args *a = &((call *)of)->rotary;
    (void)arg;
    a->positions_stride = a->positions ? far[pick % 4] : 1 + pick;
    const int none = a->batch < 2 || a->len == 0 || (a->starts && a->rows == 0); /* is read */
    return a->positions && none ? NULL : "positions_stride";
}

static const char *starts_below_0(void *of, int arg, uint32_t pick)
{
    call *c = of;
    const int packed = c->rotary.starts != NULL; /* else args.rows is missing, too */
    (void)arg;
    (void)pick;
    for (int b = 0; b < KIT_MAX_BATCH; b++)
        c->list[b] = -1;
    c->rotary.starts = c->list;
    return packed ? "starts" : "";
}

/* In place, but not element by element. */
static const char *crooked_in_place(void *of, int arg, uint32_t pick)
{
    heed_rotary_args *a = &((call *)of)->rotary;
    (void)arg;
    memcpy(&a->x, &a->y, sizeof a->x);
    a->x.stride[2 + (pick & 1)]++;
    return (a->starts ? a->rows : a->len) > 1 && a->dim > 1 ? "args.y" : NULL;
}

static const char *in_place_of_two_types(void *of, int arg, uint32_t pick)
{
    heed_rotary_args *a = &((call *)of)->rotary;
    (void)arg;
    (void)pick;
    memcpy(&a->x, &a->y, sizeof a->x);
    a->y_type = HEED_F16;
    return "args.y";
}

static const char *odd_dims(void *of, int arg, uint32_t pick)
{
    heed_rotary_args *a = &((call *)of)->rotary;
    (void)arg;
    a->rotary.dims = pick % 3 == 0   ? 0
                     : pick % 3 == 1 ? a->rotary.dims - 1
                                     : a->dim + 2 - a->dim % 2; /* beyond the head */
    return "dims";
}

/* Frequencies, and a base that would give others. */
static const char *base_beside_freq(void *of, int arg, uint32_t pick)
{
    static const float freq[] = {1}; /* not read */
    heed_rotary_args *a = &((call *)of)->rotary;
    (void)arg;
    a->rotary.freq = freq;
    a->rotary.base = pick ? 500000 : 10000; /* the default, too */
    return "base is";
}

#define NOT_FINITE KIT_BITS_NAN, KIT_BITS_INF, KIT_BITS_MINUS_INF
/* clang-format off */
static const kit_mistake rotary_mistakes[] = {
    {"struct_size", "struct_size", 0, HEED_ERR_ABI, PUT(rotary.struct_size, KIT_BAD_STRUCTS)},
    {"batch", "batch", 0, INVALID, PUT(rotary.batch, KIT_BAD_SIZES)},
    {"len", "len", 0, INVALID, PUT(rotary.len, KIT_BAD_SIZES)},
    {"rows", "rows", 0, INVALID, PUT(rotary.rows, KIT_BAD_SIZES)},
    {"rows without starts", "rows", 0, INVALID, PUT(rotary.rows, 1), WITHOUT(PACKED)},
    {"heads", "heads", 0, INVALID, PUT(rotary.heads, BAD_DIMS)},
    {"dim", "dim", 0, INVALID, PUT(rotary.dim, BAD_DIMS)},
    {"x_type", "x_type", 0, INVALID, PUT(rotary.x_type, BAD_TYPES)},
    {"y_type", "y_type", 0, INVALID, PUT(rotary.y_type, BAD_TYPES)},
    {"x", "args.x", 0, INVALID, DO(broken_x_or_y, X, 48), WITH(ROWS)},
    {"y", "args.y", 0, INVALID, DO(broken_x_or_y, Y, 48), WITH(ROWS)},
    {"offsets and positions", "offsets", 0, INVALID, DO(both_positions, 0, 1)},
    {"positions_stride", "positions_stride", 0, INVALID, DO(far_positions, 0, 4)},
    {"starts below 0", "", 0, INVALID, DO(starts_below_0, 0, 1)},
    {"crooked in place", "args.y", 0, INVALID, DO(crooked_in_place, 0, 2), WITH(ROWS)},
    {"in place of two types", "args.y", 0, INVALID, DO(in_place_of_two_types, 0, 1), WITH(KNOWN)},
    {"no style", "", 0, INVALID, PUT(rotary.rotary.dims, 2), WITHOUT(STYLE)},
    {"style", "style", 0, INVALID, PUT(rotary.rotary.style, 3, 4, 258), WITH(STYLE)},
    {"style none", "NONE", 0, INVALID, PUT(rotary.rotary.style, HEED_ROTARY_NONE), WITH(KNOWN)},
    {"dims", "dims", 0, INVALID, DO(odd_dims, 0, 3), WITH(STYLE)},
    {"base", "base", 0, INVALID, PUT(rotary.rotary.base, KIT_BITS_MINUS_1, NOT_FINITE), WITH(STYLE)},
    {"base beside freq", "base", 0, INVALID, DO(base_beside_freq, 0, 2), WITH(STYLE)},
    {"scale", "scale", 0, INVALID, PUT(rotary.rotary.scale, KIT_BITS_MINUS_1, NOT_FINITE),
     WITH(STYLE)},
    {"mscale", "mscale", 0, INVALID, PUT(rotary.rotary.mscale, NOT_FINITE), WITH(STYLE)},
    {"reserved", "reserved", 0, INVALID, PUT(rotary.rotary.reserved, 1, 256), WITH(STYLE)},
    {"lens above len", "lens[0]", 0, INVALID, PUT(rotary.len, 6), WITH(KNOWN)},
    {"starts above rows", "starts[0]", 0, INVALID, PUT(rotary.rows, 9), WITH(KNOWN)},
    {"fewer rows than of one sequence",
     "sequence 0 has 7 rows, and args.rows, those of all sequences, is 6", 0, INVALID,
     PUT(rotary.rows, 6), WITH(KNOWN)},
};
/* clang-format on */

size_t kit_rotary_mistakes(void)
{
    return KIT_COUNT(rotary_mistakes);
}

int kit_rotary_refuses(const heed_rotary_args *args, int known, size_t which, uint32_t pick,
                       kit_outcome *outcome)
{
    const kit_mistake *m = &rotary_mistakes[which];
    const unsigned has = (known ? KNOWN : 0) | (args->starts ? PACKED : 0) |
                         (args->len && (!args->starts || args->rows) ? ROWS : 0) |
                         (args->rotary.style ? STYLE : 0);
    call c = {.rotary = *args};
    const char *word;
    if ((has & m->with) != m->with || has & m->without)
        return 0;
    word = kit_make_mistake(m, &c, pick);
    c.rotary.error = NULL;
    if (word) {
        const heed_status status = heed_rotary(&c.rotary);
        kit_judge_refusal(m, word, "heed_rotary", status, heed_last_error(), outcome);
    }
    return word != NULL;
}
