/* A layer over a cache of codes has the bits of an append and attention: with every type of codes,
 * with one scale for all, with fresh ones and without, contiguous and in pages, growing by pieces.
 * And mistakes in its scales are refused. */
#include "unit.h"

#include <heed/formats.h>

enum { BATCH = 2, HEADS = 2, DIM = 32, WIDTH = HEADS * DIM, STEPS = 4, CAPACITY = 16, PAGE = 4 };
enum { PAGES = BATCH * CAPACITY / PAGE };
enum { NO_SCALES, ONE_SCALE, FRESH, SCALES };

typedef struct memory {
    unsigned char cache[2][BATCH * CAPACITY * WIDTH * 2];
    float scale[2][BATCH * CAPACITY * HEADS], zero[2][BATCH * CAPACITY * HEADS];
    float out[BATCH * CAPACITY * WIDTH];
} memory;

static int32_t table[PAGES];

static heed_attn_desc desc_of(uint32_t k_type, uint32_t v_type, int scales, int pages)
{
    const int takes = heed_takes_scale(k_type) || heed_takes_scale(v_type);
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_CAUSAL | (pages ? HEED_HAS_PAGES : 0) |
                                             (takes && scales ? HEED_HAS_QUANT : 0),
                                 .position = HEED_POS_BOTTOM_RIGHT,
                                 UNIT_SHAPE(HEADS, HEADS, DIM, DIM),
                                 UNIT_TYPES(HEED_F32, k_type, v_type, HEED_F32),
                                 .page_len = pages ? PAGE : 0,
                                 .max_batch = BATCH,
                                 .max_q_len = CAPACITY,
                                 .max_kv_len = CAPACITY};
    return desc;
}

static heed_quant_out quant_of(memory *m, int which, uint32_t type, int scales, int pages)
{
    heed_quant_out quant = {0};
    const int64_t keys = pages ? PAGE : CAPACITY;
    if (!heed_takes_scale(type) || scales == NO_SCALES)
        return quant;
    quant.scale = m->scale[which];
    quant.zero = type == HEED_F8_E4M3 ? NULL : m->zero[which];
    if (scales == FRESH) {
        quant.stride[0] = HEADS * keys;
        quant.stride[1] = keys;
        quant.stride[2] = 1;
    }
    return quant;
}

static heed_view cache_of(memory *m, int which, int pages)
{
    const int64_t keys = pages ? PAGE : CAPACITY;
    const heed_view view = {m->cache[which], {keys * WIDTH, keys * DIM, DIM, 1}};
    return view;
}

/* The types and scales of the cache, and how far it has grown. */
typedef struct growth {
    heed_attn_desc attn;
    int scales, pages;
    uint64_t options;
    const float *x;
    int there, n; /* keys so far, and new ones */
    int32_t lens[BATCH], after[BATCH];
} growth;

static heed_const_view new_rows(const growth *g)
{
    return (heed_const_view){g->x + g->there * WIDTH, {CAPACITY * WIDTH, DIM, WIDTH, 1}};
}

static heed_mha_args layer_args(const growth *g, memory *m)
{
    const int pages = g->pages;
    return (heed_mha_args){.struct_size = sizeof(heed_mha_args),
                           .batch = BATCH,
                           .q_len = g->n,
                           .capacity = CAPACITY,
                           .x_q = {new_rows(g).data, {CAPACITY * WIDTH, WIDTH, 1, 0}},
                           .y = {m->out + g->there * WIDTH, {CAPACITY * WIDTH, WIDTH, 1, 0}},
                           .k_cache = cache_of(m, 0, pages),
                           .v_cache = cache_of(m, 1, pages),
                           .cache_lens = g->lens,
                           .block_table = pages ? table : NULL,
                           .block_table_stride = pages ? CAPACITY / PAGE : 0,
                           .n_pages = pages ? PAGES : 0,
                           .k_quant = quant_of(m, 0, g->attn.k_type, g->scales, pages),
                           .v_quant = quant_of(m, 1, g->attn.v_type, g->scales, pages),
                           .append = g->options};
}

static heed_kv_append_args append_args(const growth *g, memory *m)
{
    const int pages = g->pages;
    return (heed_kv_append_args){.struct_size = sizeof(heed_kv_append_args),
                                 .batch = BATCH,
                                 .len = g->n,
                                 .capacity = CAPACITY,
                                 .kv_heads = HEADS,
                                 .qk_dim = DIM,
                                 .v_dim = DIM,
                                 .page_len = g->attn.page_len,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .k_cache_type = g->attn.k_type,
                                 .v_cache_type = g->attn.v_type,
                                 .k = new_rows(g),
                                 .v = new_rows(g),
                                 .k_cache = cache_of(m, 0, pages),
                                 .v_cache = cache_of(m, 1, pages),
                                 .cache_lens = g->lens,
                                 .block_table = pages ? table : NULL,
                                 .block_table_stride = pages ? CAPACITY / PAGE : 0,
                                 .n_pages = pages ? PAGES : 0,
                                 .k_quant = quant_of(m, 0, g->attn.k_type, g->scales, pages),
                                 .v_quant = quant_of(m, 1, g->attn.v_type, g->scales, pages),
                                 .options = g->options};
}

/* Attention over what has been appended. */
static heed_attn_args attend_args(const growth *g, memory *m, const heed_kv_append_args *append)
{
    return (heed_attn_args){.struct_size = sizeof(heed_attn_args),
                            .batch = BATCH,
                            .q_len = g->n,
                            .kv_len = CAPACITY,
                            .q = new_rows(g),
                            .k = heed_as_const(append->k_cache),
                            .v = heed_as_const(append->v_cache),
                            .out = {m->out + g->there * WIDTH, {CAPACITY * WIDTH, DIM, WIDTH, 1}},
                            .kv_lens = g->after,
                            .k_quant = heed_quant_as_const(append->k_quant),
                            .v_quant = heed_quant_as_const(append->v_quant),
                            .block_table = append->block_table,
                            .block_table_stride = append->block_table_stride,
                            .n_pages = append->n_pages};
}

/* Runs the layer in m[0], and an append and attention in m[1]. */
static void grow(heed_context *context, const heed_mha *layer, growth *g, memory m[2])
{
    for (int b = 0; b < BATCH; b++) {
        g->lens[b] = g->there;
        g->after[b] = g->there + g->n;
    }
    const heed_mha_args args = layer_args(g, &m[0]);
    const heed_kv_append_args append = append_args(g, &m[1]);
    const heed_attn_args attend = attend_args(g, &m[1], &append);
    heed_attn_desc alone = g->attn;
    alone.features |= HEED_HAS_LENS;
    CHECK_OK(heed_mha_run(layer, &args, NULL, 0));
    CHECK_OK(heed_kv_append(&append));
    CHECK_OK(heed_attention(context, &alone, &attend));
}

static void check_type(heed_context *context, uint32_t k_type, uint32_t v_type, int scales,
                       int pages)
{
    static float x[BATCH * CAPACITY * WIDTH];
    static memory m[2];
    growth g = {
        .attn = desc_of(k_type, v_type, scales, pages), .scales = scales, .pages = pages, .x = x};
    const heed_mha_desc desc = {.struct_size = sizeof desc,
                                .features = HEED_MHA_HAS_CACHE,
                                .attn = &g.attn,
                                .d_model = WIDTH,
                                .x_type = HEED_F32};
    heed_mha *layer = NULL;
    uint64_t state = 9;
    if (g.attn.features & HEED_HAS_QUANT && scales == FRESH)
        g.options = HEED_APPEND_FRESH_SCALES;
    memset(m, 0, sizeof m);
    for (int i = 0; i < BATCH * CAPACITY * WIDTH; i++)
        x[i] = unit_number(&state);
    for (int i = 0; i < PAGES; i++)
        table[i] = (i * 5 + 2) % PAGES;
    for (int i = 0; i < 2; i++)
        for (int which = 0; which < 2; which++) {
            m[i].scale[which][0] = 0.0625F;
            m[i].zero[which][0] = 3;
        }
    CHECK_OK(heed_mha_create(context, &desc, &layer));
    g.n = 1;
    for (int step = 0; step < STEPS && layer; step++, g.there += g.n, g.n += 2)
        grow(context, layer, &g, m);
    CHECK(memcmp(&m[0], &m[1], sizeof m[0]) == 0, "k of %s, v of %s, scales %d, pages %d",
          heed_dtype_name(k_type), heed_dtype_name(v_type), scales, pages);
    int n_set = 0;
    for (int i = 0; i < WIDTH; i++)
        n_set += m[0].out[(BATCH - 1) * CAPACITY * WIDTH + i] != 0;
    CHECK(n_set, "nothing was attended to");
    heed_mha_release(layer);
}

static void check_errors(heed_context *context)
{
    static float x[BATCH * WIDTH], y[BATCH * WIDTH];
    static memory m;
    for (int with = 0; with < 2; with++) {
        const heed_attn_desc attn = desc_of(HEED_I8, HEED_I8, with ? FRESH : NO_SCALES, 0);
        heed_mha_desc desc = {.struct_size = sizeof desc,
                              .features = HEED_MHA_HAS_CACHE,
                              .attn = &attn,
                              .d_model = WIDTH,
                              .x_type = HEED_F32};
        heed_mha *layer = NULL;
        CHECK_OK(heed_mha_create(context, &desc, &layer));
        heed_mha_args args = {.struct_size = sizeof args,
                              .batch = BATCH,
                              .q_len = 1,
                              .capacity = CAPACITY,
                              .x_q = {x, {WIDTH, WIDTH, 1, 0}},
                              .y = {y, {WIDTH, WIDTH, 1, 0}},
                              .k_cache = cache_of(&m, 0, 0),
                              .v_cache = cache_of(&m, 1, 0),
                              .append = with ? HEED_APPEND_FRESH_SCALES | HEED_APPEND_HADAMARD_K
                                             : HEED_APPEND_FRESH_SCALES};
        CHECK_REFUSED(heed_mha_run(layer, &args, NULL, 0), HEED_ERR_INVALID, "args.append is 0x");
        args.append = with ? HEED_APPEND_FRESH_SCALES : 0;
        if (!with)
            args.v_quant = quant_of(&m, 1, HEED_I8, FRESH, 0);
        CHECK_REFUSED(heed_mha_run(layer, &args, NULL, 0), HEED_ERR_INVALID,
                      with ? "args.k_quant.scale is NULL" : "args.v_quant");
        heed_mha_release(layer);
        desc.features = 0;
        layer = NULL;
        CHECK_REFUSED(heed_mha_create(context, &desc, &layer), HEED_ERR_INVALID,
                      with ? "HEED_HAS_QUANT" : "desc.attn->k_type");
    }
    for (size_t i = 0; i < sizeof y; i++)
        CHECK(((unsigned char *)y)[i] == 0, "an error wrote byte %zu", i);
}

/* A cache without room for keys may lie anywhere and have any strides. */
static void check_no_room(void)
{
    static const int32_t lens[BATCH] = {0};
    static const float x[BATCH * WIDTH] = {0};
    const heed_const_view rows = {x, {WIDTH, DIM, DIM, 1}};
    for (uint32_t type = HEED_F32; type <= HEED_IQ4_NL; type++) {
        const heed_kv_append_args none = {.struct_size = sizeof none,
                                          .batch = BATCH,
                                          .len = 1,
                                          .kv_heads = HEADS,
                                          .qk_dim = DIM,
                                          .v_dim = DIM,
                                          .k_type = HEED_F32,
                                          .v_type = HEED_F32,
                                          .k_cache_type = type,
                                          .v_cache_type = type,
                                          .k = rows,
                                          .v = rows,
                                          .lens = lens};
        CHECK(heed_kv_append(&none) == HEED_OK, "%s: %s", heed_dtype_name(type), heed_last_error());
    }
}

int main(void)
{
    heed_context *context = unit_context(2, NULL);
    for (uint32_t type = HEED_I8; type <= HEED_IQ4_NL; type++) {
        const uint32_t other = type == HEED_IQ4_NL ? HEED_BF16 : type + 1;
        for (int scales = 0; scales < SCALES; scales++)
            for (int pages = 0; pages < 2; pages++)
                if (scales == NO_SCALES || heed_takes_scale(type))
                    check_type(context, type, other, scales, pages);
    }
    check_errors(context);
    check_no_room();
    heed_context_release(context);
    return checks_end();
}
