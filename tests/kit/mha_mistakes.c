/* What a caller of heed_mha may get wrong: each mistake has to come back with its status and a
 * sentence that names the argument, with outputs and cache untouched. */
#include "mha_mistakes.h"
#include "layer_case.h"
#include "ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A good layer and its run, for a mistake to be made in. */
typedef struct call {
    layer l; /* a copy, which shares the memory of the original */
    int32_t list[LAYER_BATCH];
    kit_mistaken_workspace room;
} call;

/* Which call finds a mistake: heed_mha_create; heed_mha_run and heed_mha_begin, or one of them. */
enum { AT_CREATION, AT_RUN, AT_RUN_ALONE, AT_BEGIN_ALONE };

/* What a layer has, besides the features of its attention, and KNOWN. */
#define KNOWN LAYER_KNOWN
#define CROSS (UINT64_C(1) << 62)
#define CACHE (UINT64_C(1) << 61)
#define NEW_KV (UINT64_C(1) << 60)
#define RESIDUAL (UINT64_C(1) << 59)
#define TURNS (UINT64_C(1) << 58)   /* a rotary position embedding */
#define PLACED (UINT64_C(1) << 57)  /* positions of rows */
#define SEVERAL (UINT64_C(1) << 56) /* more than one sequence */

/* ---- mistakes that are more than a field ----------------------------------------------------- */

enum { X_Q, X_KV, Y, ADDED, MASK, K_CACHE, V_CACHE, WEIGHTS, LSE, VIEWS };

static const char *broken_stride(void *of, int arg, uint32_t pick)
{
    static const char *const name[VIEWS] = {"x_q",     "x_kv",    "args.y",  "residual", "mask",
                                            "k_cache", "v_cache", "weights", "lse"};
    layer *l = &((call *)of)->l;
    const layer_spec *s = &l->spec;
    heed_mha_args *a = &l->args;
    int64_t *const stride[VIEWS] = {a->x_q.stride,      a->x_kv.stride,    a->y.stride,
                                    a->residual.stride, a->mask.stride,    a->k_cache.stride,
                                    a->v_cache.stride,  a->weights.stride, a->lse.stride};
    const int64_t y_cols = s->out ? s->out : (int64_t)s->q_heads * s->v_dim;
    const int64_t keys = s->cache ? s->capacity : s->d_kv ? s->kv_len : s->q_len;
    const int64_t page = s->cache == LAYER_PAGES ? 16 : s->capacity;
    const int packed = s->rows >= LAYER_PACKED;
    const int64_t batch = packed ? 1 : s->batch, rows = packed ? 1 : s->q_len; /* at least */
    const int64_t shape[VIEWS][4] = {{batch, rows, s->d_model, 1},
                                     {batch, packed ? 1 : s->kv_len, s->d_kv, 1},
                                     {batch, rows, y_cols, 1},
                                     {batch, rows, y_cols, 1},
                                     {s->batch, s->q_heads, s->q_len, keys},
                                     {1, s->kv_heads, page, s->qk_dim},
                                     {1, s->kv_heads, page, s->v_dim},
                                     {s->batch, s->q_heads, s->q_len, keys},
                                     {batch, s->q_heads, rows, 1}};
    const int is_cache = arg == K_CACHE || arg == V_CACHE,
              n_axes = arg < MASK || arg == LSE ? 3 : 4;
    /* a cache that nothing is appended to is only read */
    const int is_output = arg == Y || arg >= WEIGHTS || (is_cache && !s->no_new);
    return kit_break_stride(stride[arg], shape[arg], n_axes, arg == MASK ? 1 : 2, is_output, pick)
               ? name[arg]
               : NULL;
}

/* y where another output is. */
static const char *y_shares(void *of, int arg, uint32_t pick)
{
    static const char *const name[] = {"k_cache", "v_cache", "weights", "lse"};
    layer *l = &((call *)of)->l;
    void *const at[] = {l->args.k_cache.data, l->args.v_cache.data, l->args.weights.data,
                        l->args.lse.data};
    int64_t rows = 0;
    (void)arg;
    for (uint32_t b = 0; b < l->spec.batch; b++)
        rows += l->q_lens[b];
    if (!rows || !at[pick % 4])
        return NULL;
    l->args.y.data = at[pick % 4];
    return name[pick % 4];
}

enum { Q_LENS, KV_LENS, Q_STARTS, KV_STARTS, CACHE_LENS };
static const char *const list_name[] = {"q_lens", "kv_lens", "q_starts", "kv_starts", "cache_lens"};

static const int32_t **list_of(call *c, int which)
{
    heed_mha_args *a = &c->l.args;
    const int32_t **const list[] = {&a->q_lens, &a->kv_lens, &a->q_starts, &a->kv_starts,
                                    &a->cache_lens};
    return list[which];
}

static const char *bad_list(void *of, int arg, uint32_t pick)
{
    static char word[40];
    call *c = of;
    const layer_spec *s = &c->l.spec;
    const uint32_t b = s->batch - 1 - pick / 3 % s->batch;
    const int32_t beyond[] = {(int32_t)s->q_len + 1, (int32_t)c->l.args.kv_len + 1, -5, -5,
                              (int32_t)s->capacity + 1};
    const int32_t bad[] = {-1, INT32_MIN, beyond[arg]};
    const int32_t **list = list_of(c, arg);
    if (!*list)
        return NULL;
    memcpy(c->list, *list, s->batch * sizeof *c->list);
    c->list[b] = bad[pick % 3];
    *list = c->list;
    snprintf(word, sizeof word, "%s[%u]", list_name[arg], b);
    return word;
}

/* A list that the layer's rows have no use for. */
static const char *list_alone(void *of, int arg, uint32_t pick)
{
    call *c = of;
    const layer_spec *s = &c->l.spec;
    const int32_t **list = list_of(c, arg);
    (void)pick;
    if (*list || (arg == CACHE_LENS && s->cache))
        return NULL;
    *list = c->list;
    /* with the feature, the list of the other side is allowed */
    return arg == CACHE_LENS || (s->rows != LAYER_LENS && s->rows < LAYER_PACKED) ||
                   (arg >= Q_STARTS && s->rows < LAYER_PACKED) || (arg % 2 && !s->d_kv)
               ? list_name[arg]
               : NULL;
}

/* The cache holds one key more, so that with the new rows it passes its capacity. */
static const char *cache_too_full(void *of, int arg, uint32_t pick)
{
    call *c = of;
    (void)arg;
    (void)pick;
    memcpy(c->list, c->l.cache_lens, sizeof c->list);
    c->list[0]++; /* sequence 0 fills its cache exactly */
    c->l.args.cache_lens = c->list;
    return "capacity";
}

static const char *bad_page(void *of, int arg, uint32_t pick)
{
    layer *l = &((call *)of)->l;
    static int32_t table[KIT_COUNT(l->table)];
    memcpy(table, l->args.block_table, sizeof table);
    table[arg ? l->cache_lens[0] / 16 : 0] = pick & 1 ? INT32_MAX : -1;
    l->args.block_table = table;
    return "block_table[0]";
}

static const char *view_alone(void *of, int arg, uint32_t pick)
{
    heed_mha_args *a = &((call *)of)->l.args;
    (void)pick;
    memcpy(arg == X_KV   ? (void *)&a->x_kv
           : arg == MASK ? (void *)&a->mask
                         : (void *)&a->k_cache,
           &a->x_q, sizeof a->x_q);
    return arg == X_KV ? "x_kv" : arg == MASK ? "mask" : "k_cache";
}

static const char *bad_executor(void *of, int arg, uint32_t pick)
{
    static const heed_executor executor = {.struct_size = sizeof executor,
                                           .parallel_for = kit_backwards};
    (void)arg;
    (void)pick;
    ((call *)of)->l.args.executor = &executor;
    return "executor";
}

static const char *bad_workspace(void *of, int arg, uint32_t pick)
{
    return kit_spoil_workspace(&((call *)of)->room, arg, pick);
}

static const char *other_d_kv(void *of, int arg, uint32_t pick)
{
    heed_mha_desc *d = &((call *)of)->l.desc;
    (void)arg;
    if (pick & 1)
        d->features ^= HEED_MHA_HAS_CROSS; /* d_kv is there, or is not */
    else
        d->d_kv = d->d_kv ? 0 : d->d_model;
    return "";
}

static const char *pages_without_cache(void *of, int arg, uint32_t pick)
{
    (void)arg;
    (void)pick;
    ((call *)of)->l.desc.features &= ~HEED_MHA_HAS_CACHE;
    return "HEED_HAS_PAGES";
}

static const char *two_projections(void *of, int arg, uint32_t pick)
{
    layer *l = &((call *)of)->l;
    (void)pick;
    if (arg)
        l->desc.qkv_proj = l->linear[0] ? l->linear[0] : l->linear[4];
    else
        l->desc.kv_proj = l->linear[1] ? l->linear[1] : l->linear[3];
    if (!(arg ? l->desc.qkv_proj : l->desc.kv_proj))
        return NULL;
    return arg ? "qkv_proj" : "kv_proj";
}

static const char *cross_with_qkv(void *of, int arg, uint32_t pick)
{
    heed_mha_desc *d = &((call *)of)->l.desc;
    (void)arg;
    (void)pick;
    d->features |= HEED_MHA_HAS_CROSS;
    d->d_kv = 23;
    d->kv_type = HEED_F32;
    return "qkv_proj";
}

static const char *too_many_rows(void *of, int arg, uint32_t pick)
{
    heed_attn_desc *a = &((call *)of)->l.attn;
    (void)arg;
    (void)pick;
    a->max_q_len = INT32_MAX;
    a->max_batch = 2;
    a->max_rows = 0; /* else that says how many there are */
    return "max_q_len";
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* clang-format off */
#define INVALID HEED_ERR_INVALID
#define PUT(field, ...) KIT_CHANGE(call, KIT_PUT, l.field, __VA_ARGS__)
#define OR(field, ...) KIT_CHANGE(call, KIT_OR, l.field, __VA_ARGS__)
#define ADD(field, ...) KIT_CHANGE(call, KIT_ADD, l.field, __VA_ARGS__)
#define DO(function, of, kinds) .make = (function), .arg = (of), .n = (kinds)
#define WITH(bits) .with = (bits)
#define WITHOUT(bits) .without = (bits)

static const kit_mistake mistakes[] = {
    {"desc.struct_size", "struct_size", AT_CREATION, HEED_ERR_ABI,
     PUT(desc.struct_size, KIT_BAD_STRUCTS, 4)},
    {"attn.struct_size", "struct_size", AT_CREATION, HEED_ERR_ABI,
     PUT(attn.struct_size, KIT_BAD_STRUCTS)},
    {"no attn", "attn", AT_CREATION, INVALID, PUT(desc.attn, 0)},
    {"an unknown feature", "features", AT_CREATION, INVALID,
     OR(desc.features, 8, 256, INT64_C(1) << 40, INT64_MIN)},
    {"d_model", "", AT_CREATION, INVALID, PUT(desc.d_model, 0, UINT32_MAX)},
    {"another d_model", "", AT_CREATION, INVALID, ADD(desc.d_model, 1)},
    {"x_type", "desc.x_type is", AT_CREATION, INVALID, PUT(desc.x_type, KIT_BAD_TYPES, KIT_CODES)},
    {"kv_type", "desc.kv_type is", AT_CREATION, INVALID, PUT(desc.kv_type, KIT_BAD_TYPES, KIT_CODES),
     WITH(CROSS)},
    {"d_kv", "", AT_CREATION, INVALID, DO(other_d_kv, 0, 2)},
    {"pages without a cache", "", AT_CREATION, INVALID, DO(pages_without_cache, 0, 1),
     WITH(HEED_HAS_PAGES)},
    {"projections beside qkv_proj", "", AT_CREATION, INVALID, DO(two_projections, 1, 1)},
    {"projections beside kv_proj", "", AT_CREATION, INVALID, DO(two_projections, 0, 1)},
    {"attn.q_heads", "desc.attn->q_heads is 0,", AT_CREATION, INVALID, PUT(attn.q_heads, 0)},
    {"an unknown feature of attn", "desc.attn->features has", AT_CREATION, INVALID,
     OR(attn.features, INT64_C(1) << 40, INT64_MIN)},
    {"attn.page_len", "desc.attn->page_len", AT_CREATION, INVALID, PUT(attn.page_len, 0), WITH(HEED_HAS_PAGES)},
    {"attn.page_len alone", "desc.attn->page_len", AT_CREATION, INVALID, PUT(attn.page_len, 16),
     WITHOUT(HEED_HAS_PAGES)},
    {"rotary.style", "rotary", AT_CREATION, INVALID, PUT(desc.rotary.style, 3, 4, 258)},
    {"attn.max_batch", "desc.attn->max_batch", AT_CREATION, INVALID, PUT(attn.max_batch, KIT_BAD_SIZES)},
    {"attn.max_q_len", "desc.attn->max_q_len", AT_CREATION, INVALID, PUT(attn.max_q_len, KIT_BAD_SIZES)},
    {"attn.max_rows alone", "max_rows", AT_CREATION, INVALID, PUT(attn.max_rows, 5),
     WITHOUT(HEED_HAS_PACKED)},
    {"desc.kv_type alone", "kv_type", AT_CREATION, INVALID, PUT(desc.kv_type, HEED_F16, 99),
     WITHOUT(CROSS)},
    /* Mistakes that only the kit's own layer has for sure, with their words. */
    {"d_model of no projection", "in_dim", AT_CREATION, INVALID, PUT(desc.d_model, 22), WITH(KNOWN)},
    {"d_kv alone", "d_kv", AT_CREATION, INVALID, PUT(desc.d_kv, 7), WITH(KNOWN)},
    {"x_type of no projection", "x_type", AT_CREATION, INVALID, PUT(desc.x_type, HEED_F16),
     WITH(KNOWN)},
    {"no qkv_proj", "d_model", AT_CREATION, INVALID, PUT(desc.qkv_proj, 0), WITH(KNOWN)},
    {"more heads than projected", "out_dim", AT_CREATION, INVALID, PUT(attn.q_heads, 8), WITH(KNOWN)},
    {"an odd number of heads", "q_heads", AT_CREATION, INVALID, PUT(attn.q_heads, 3), WITH(KNOWN)},
    {"out_type", "out_proj", AT_CREATION, INVALID, PUT(attn.out_type, HEED_BF16), WITH(KNOWN)},
    {"rotary.dims", "rotary", AT_CREATION, INVALID, PUT(desc.rotary.dims, 14), WITH(KNOWN)},
    {"no features", "HEED_HAS_PAGES", AT_CREATION, INVALID, PUT(desc.features, 0), WITH(KNOWN)},
    {"cross with qkv_proj", "qkv_proj", AT_CREATION, INVALID, DO(cross_with_qkv, 0, 1), WITH(KNOWN)},
    {"one projection for all heads", "SHARED_PROJ", AT_CREATION, INVALID,
     OR(desc.features, HEED_MHA_HAS_SHARED_PROJ), WITH(KNOWN)},
    {"max_kv_rows", "max_kv_rows", AT_CREATION, INVALID, PUT(desc.max_kv_rows, 5), WITH(KNOWN)},
    {"max_q_len of too many rows", "max_q_len", AT_CREATION, INVALID, DO(too_many_rows, 0, 1),
     WITH(KNOWN)},
    {"args.struct_size", "struct_size", AT_RUN, HEED_ERR_ABI, PUT(args.struct_size, KIT_BAD_STRUCTS)},
    {"batch", "args.batch", AT_RUN, INVALID, PUT(args.batch, KIT_BAD_SIZES)},
    {"q_len", "args.q_len", AT_RUN, INVALID, PUT(args.q_len, KIT_BAD_SIZES)},
    {"q_len above the layer's", "args.q_len", AT_RUN, INVALID, ADD(args.q_len, 1)},
    {"kv_len", "args.kv_len", AT_RUN, INVALID, PUT(args.kv_len, KIT_BAD_SIZES)},
    {"kv_len alone", "args.kv_len is 1, 0 is required without HEED_MHA_HAS_CROSS", AT_RUN, INVALID,
     PUT(args.kv_len, 1), WITHOUT(CROSS)},
    {"capacity", "args.capacity", AT_RUN, INVALID, PUT(args.capacity, KIT_BAD_SIZES)},
    {"capacity above the layer's", "args.capacity", AT_RUN, INVALID, ADD(args.capacity, 1),
     WITH(CACHE)},
    {"no x_q", "args.x_q", AT_RUN, INVALID, PUT(args.x_q.data, 0)},
    {"no x_kv", "args.x_kv", AT_RUN, INVALID, PUT(args.x_kv.data, 0), WITH(CROSS | NEW_KV)},
    {"no y", "args.y", AT_RUN, INVALID, PUT(args.y.data, 0)},
    {"no residual", "residual", AT_RUN, INVALID, PUT(args.residual.data, 0), WITH(RESIDUAL)},
    {"no mask", "mask", AT_RUN, INVALID, PUT(args.mask.data, 0), WITH(HEED_HAS_MASK)},
    {"no k_cache", "k_cache", AT_RUN, INVALID, PUT(args.k_cache.data, 0), WITH(CACHE | NEW_KV)},
    {"no v_cache", "v_cache", AT_RUN, INVALID, PUT(args.v_cache.data, 0), WITH(CACHE | NEW_KV)},
    {"no k_cache to read", "args.k_cache", AT_RUN, INVALID, PUT(args.k_cache.data, 0), WITH(CACHE),
     WITHOUT(NEW_KV)},
    {"no v_cache to read", "args.v_cache", AT_RUN, INVALID, PUT(args.v_cache.data, 0), WITH(CACHE),
     WITHOUT(NEW_KV)},
    {"y where another output is", "args.y", AT_RUN, INVALID, DO(y_shares, 0, 4)},
    {"no weights", "weights", AT_RUN, INVALID, PUT(args.weights.data, 0), WITH(HEED_HAS_WEIGHTS)},
    {"no lse", "lse", AT_RUN, INVALID, PUT(args.lse.data, 0), WITH(HEED_HAS_LSE)},
    {"strides of x_q", "args.x_q", AT_RUN, INVALID, DO(broken_stride, X_Q, 12)},
    {"a fourth stride of x_q", "args.x_q", AT_RUN, INVALID, PUT(args.x_q.stride[3], 1)},
    {"strides of x_kv", "args.x_kv", AT_RUN, INVALID, DO(broken_stride, X_KV, 12),
     WITH(CROSS | NEW_KV)},
    {"strides of y", "args.y", AT_RUN, INVALID, DO(broken_stride, Y, 12)},
    {"rows of y", "args.y", AT_RUN, INVALID, PUT(args.y.stride[1], 0), WITH(KNOWN)},
    {"strides of residual", "residual", AT_RUN, INVALID, DO(broken_stride, ADDED, 12),
     WITH(RESIDUAL)},
    {"strides of mask", "mask", AT_RUN, INVALID, DO(broken_stride, MASK, 16), WITH(HEED_HAS_MASK)},
    {"strides of k_cache", "k_cache", AT_RUN, INVALID, DO(broken_stride, K_CACHE, 16), WITH(CACHE)},
    {"strides of v_cache", "v_cache", AT_RUN, INVALID, DO(broken_stride, V_CACHE, 16), WITH(CACHE)},
    {"strides of weights", "weights", AT_RUN, INVALID, DO(broken_stride, WEIGHTS, 16),
     WITH(HEED_HAS_WEIGHTS)},
    {"strides of lse", "lse", AT_RUN, INVALID, DO(broken_stride, LSE, 12), WITH(HEED_HAS_LSE)},
    {"x_kv alone", "x_kv", AT_RUN, INVALID, DO(view_alone, X_KV, 1), WITHOUT(CROSS)},
    {"a mask alone", "mask", AT_RUN, INVALID, DO(view_alone, MASK, 1), WITHOUT(HEED_HAS_MASK)},
    {"a cache alone", "k_cache", AT_RUN, INVALID, DO(view_alone, K_CACHE, 1), WITHOUT(CACHE)},
    {"a sink alone", "sink", AT_RUN, INVALID, PUT(args.sink, KIT_SOMETHING), WITHOUT(HEED_HAS_SINK)},
    {"q_lens", "q_lens", AT_RUN, INVALID, DO(bad_list, Q_LENS, 9)},
    {"kv_lens", "kv_lens", AT_RUN, INVALID, DO(bad_list, KV_LENS, 9)},
    {"q_starts", "q_starts", AT_RUN, INVALID, DO(bad_list, Q_STARTS, 9)},
    {"kv_starts", "kv_starts", AT_RUN, INVALID, DO(bad_list, KV_STARTS, 9)},
    {"cache_lens", "cache_lens", AT_RUN, INVALID, DO(bad_list, CACHE_LENS, 9)},
    {"a cache that is too full", "capacity", AT_RUN, INVALID, DO(cache_too_full, 0, 1),
     WITH(CACHE | NEW_KV)},
    {"q_lens alone", "q_lens", AT_RUN, INVALID, DO(list_alone, Q_LENS, 1)},
    {"kv_lens alone", "kv_lens", AT_RUN, INVALID, DO(list_alone, KV_LENS, 1)},
    {"q_starts alone", "q_starts", AT_RUN, INVALID, DO(list_alone, Q_STARTS, 1)},
    {"kv_starts alone", "kv_starts", AT_RUN, INVALID, DO(list_alone, KV_STARTS, 1)},
    {"cache_lens alone", "cache_lens", AT_RUN, INVALID, DO(list_alone, CACHE_LENS, 1)},
    {"no q_starts", "q_starts", AT_RUN, INVALID, PUT(args.q_starts, 0), WITH(KNOWN)},
    {"no block_table", "block_table", AT_RUN, INVALID, PUT(args.block_table, 0),
     WITH(HEED_HAS_PAGES)},
    {"a page of the cache", "block_table[0]", AT_RUN, INVALID, DO(bad_page, 0, 2), WITH(KNOWN)},
    {"a page of new rows", "block_table[0]", AT_RUN, INVALID, DO(bad_page, 1, 2), WITH(KNOWN)},
    {"n_pages", "args.n_pages", AT_RUN, INVALID,
     PUT(args.n_pages, 0, -1, INT64_MIN, INT64_MAX, INT64_C(1) << 32), WITH(HEED_HAS_PAGES)},
    {"n_pages alone", "n_pages", AT_RUN, INVALID, PUT(args.n_pages, 1), WITHOUT(HEED_HAS_PAGES)},
    {"positions alone", "args.positions is given", AT_RUN, INVALID, PUT(args.positions, KIT_SOMETHING),
     WITHOUT(TURNS)},
    {"positions_stride alone", "args.positions_stride is 1 without", AT_RUN, INVALID,
     PUT(args.positions_stride, 1), WITHOUT(PLACED)},
    {"positions_stride", "args.positions_stride", AT_RUN, INVALID,
     PUT(args.positions_stride, INT64_MAX, INT64_MIN), WITH(PLACED | SEVERAL)},
    {"executor", "executor", AT_RUN_ALONE, INVALID, DO(bad_executor, 0, 1)},
    {"a crooked workspace", "workspace", AT_RUN, INVALID, DO(bad_workspace, KIT_CROOKED, 63)},
    {"a small workspace", "workspace", AT_RUN, HEED_ERR_NOMEM, DO(bad_workspace, KIT_SMALL, 2)},
    {"no parts", "n_parts", AT_BEGIN_ALONE, INVALID, DO(bad_workspace, KIT_NO_PARTS, 1)},
    {"too many parts", "workspace", AT_BEGIN_ALONE, HEED_ERR_NOMEM,
     DO(bad_workspace, KIT_MANY_PARTS, 1)},
};
/* clang-format on */

size_t layer_mistakes(void)
{
    return KIT_COUNT(mistakes);
}

const kit_mistake *layer_mistake(size_t which)
{
    return &mistakes[which];
}

/* ---- what comes back ------------------------------------------------------------------------- */

static void at_creation(heed_context *context, const kit_mistake *m, const char *word, call *c,
                        kit_outcome *outcome)
{
    heed_mha *mha = NULL;
    kit_judge_refusal(m, word, "heed_mha_create", heed_mha_create(context, &c->l.desc, &mha),
                      heed_last_error(), outcome);
    if (mha)
        kit_fail(outcome, "%s: heed_mha_create failed and yet gave a layer", m->name);
}

static void at_run(const kit_mistake *m, const char *word, call *c, kit_outcome *outcome)
{
    const heed_mha *mha = c->l.mha;
    heed_error why = {""};
    const int asks = m->status != HEED_ERR_ABI; /* args of an unknown size cannot say where */
    kit_mistaken_workspace *room = &c->room;
    c->l.args.error = asks ? &why : NULL;
    if (m->where != AT_BEGIN_ALONE) {
        const heed_status status =
            heed_mha_run(mha, &c->l.args, kit_workspace(room),
                         kit_bytes_left(room, heed_mha_workspace_bytes(mha, 1)));
        kit_judge_refusal(m, word, "heed_mha_run", status, asks ? why.text : heed_last_error(),
                          outcome);
    }
    if (m->where == AT_RUN_ALONE)
        return; /* parts need no executor */
    const size_t bytes = heed_mha_workspace_bytes(mha, KIT_MISTAKEN_PARTS);
    const heed_status status = heed_mha_begin(mha, &c->l.args, room->n_parts, kit_workspace(room),
                                              kit_bytes_left(room, bytes));
    kit_judge_refusal(m, word, "heed_mha_begin", status, asks ? why.text : heed_last_error(),
                      outcome);
    if (heed_run_part(room->memory.data, 0) == HEED_OK)
        kit_fail(outcome, "%s: a part of a run that did not begin runs", m->name);
}

static uint64_t what_has(const layer *l, int known)
{
    const layer_spec *s = &l->spec;
    return l->attn.features | (known ? KNOWN : 0) | (s->d_kv ? CROSS : 0) | (s->cache ? CACHE : 0) |
           (s->no_new ? 0 : NEW_KV) | (s->residual ? RESIDUAL : 0) |
           (s->rotary.style ? TURNS : 0) | (s->positions ? PLACED : 0) |
           (s->batch > 1 ? SEVERAL : 0);
}

int layer_refuses(heed_context *context, layer *l, int known, size_t which, uint32_t pick,
                  kit_outcome *outcome)
{
    const kit_mistake *m = &mistakes[which];
    const uint64_t has = what_has(l, known);
    const char *word = NULL;
    call c = {.l = *l};
    c.l.desc.attn = &c.l.attn;
    if ((has & m->with) != m->with || has & m->without)
        return 0;
    if (kit_map_workspace(&c.room, heed_mha_workspace_bytes(l->mha, KIT_MISTAKEN_PARTS)) == 0 &&
        (word = kit_make_mistake(m, &c, pick)) != NULL) {
        for (int b = LAYER_Y; b < LAYER_BUFFERS; b++) /* a write is a crash */
            if (l->buffer[b].map)
                guard_read_only(&l->buffer[b]);
        if (m->where == AT_CREATION)
            at_creation(context, m, word, &c, outcome);
        else
            at_run(m, word, &c, outcome);
    }
    guard_unmap(&c.room.memory);
    return word != NULL;
}
