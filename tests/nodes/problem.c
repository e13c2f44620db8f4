/* See problem.h. Keys and values are encoded by heed_kv_append, which supports every type of
 * cache. */
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAUSAL .position = HEED_POS_BOTTOM_RIGHT
#define TYPES(type) .q_type = type, .kv_type = type, .out_type = type

/* Fields that a problem leaves out get the values of problem_spec. */
static const spec all[] = {
    {.name = "plain"},
    {.name = "lse", .features = HEED_HAS_LSE},
    {.name = "decode", .q_len = 1, .kv_len = 700, .features = HEED_HAS_CAUSAL, CAUSAL},
    {.name = "causal", .q_len = 200, .features = HEED_HAS_CAUSAL | HEED_HAS_LSE, CAUSAL},
    {.name = "given", .features = HEED_HAS_CAUSAL, .position = HEED_POS_GIVEN},
    {.name = "window",
     .q_len = 60,
     .window_left = 31,
     .window_right = 4,
     .features = HEED_HAS_WINDOW,
     CAUSAL},
    {.name = "softcap", .features = HEED_HAS_SOFTCAP | HEED_HAS_SCALE},
    {.name = "alibi", .features = HEED_HAS_ALIBI | HEED_HAS_CAUSAL, CAUSAL},
    {.name = "mask", .features = HEED_HAS_MASK | HEED_HAS_LSE},
    {.name = "bias", .features = HEED_HAS_BIAS},
    {.name = "sink", .features = HEED_HAS_SINK | HEED_HAS_LSE},
    {.name = "lens", .features = HEED_HAS_LENS},
    {.name = "packed", .features = HEED_HAS_PACKED | HEED_HAS_LENS | HEED_HAS_LSE},
    {.name = "pages", .page_len = 16, .features = HEED_HAS_PAGES | HEED_HAS_CAUSAL, CAUSAL},
    {.name = "ranges", .features = HEED_HAS_RANGES},
    {.name = "blocks", .kv_len = 1500, .features = HEED_HAS_KEY_BLOCKS},
    {.name = "multi-query", .kv_heads = 1, .features = HEED_HAS_SINK},
    {.name = "f16", TYPES(HEED_F16), .features = HEED_HAS_CAUSAL, CAUSAL},
    {.name = "bf16", TYPES(HEED_BF16), .features = HEED_HAS_CAUSAL | HEED_HAS_LSE, CAUSAL},
    {.name = "bf16 pages", TYPES(HEED_BF16), .page_len = 32, .features = HEED_HAS_PAGES},
    {.name = "q8_0", .kv_type = HEED_Q8_0, .qk_dim = 64, .v_dim = 32},
    {.name = "i8", .kv_type = HEED_I8, .features = HEED_HAS_QUANT},
    {.name = "ring", .ring = 1, .q_len = 300},
    {.name = "ring causal",
     .ring = 1,
     .q_len = 300,
     .features = HEED_HAS_CAUSAL | HEED_HAS_LSE,
     CAUSAL},
    {.name = "ring window",
     .ring = 1,
     .q_len = 300,
     .window_left = 90,
     .window_right = 0,
     .features = HEED_HAS_WINDOW,
     CAUSAL},
    {.name = "ring sink mask", .ring = 1, .q_len = 70, .features = HEED_HAS_SINK | HEED_HAS_MASK},
    {.name = "ring bf16",
     TYPES(HEED_BF16),
     .ring = 1,
     .q_len = 300,
     .features = HEED_HAS_CAUSAL,
     CAUSAL},
    {.name = "ring alibi",
     .ring = 1,
     .q_len = 200,
     .kv_len = 200,
     .features = HEED_HAS_ALIBI | HEED_HAS_CAUSAL,
     CAUSAL},
    {.name = "rows", .ring = APART, .q_len = 60},
    {.name = "rows causal",
     .ring = APART,
     .q_len = 60,
     .features = HEED_HAS_CAUSAL | HEED_HAS_LSE,
     CAUSAL},
    {.name = "rows few", .ring = APART, .q_len = 3, .features = HEED_HAS_SINK | HEED_HAS_LSE},
    {.name = "rows mask", .ring = APART, .q_len = 40, .features = HEED_HAS_SINK | HEED_HAS_MASK},
    {.name = "rows pages",
     TYPES(HEED_BF16),
     .ring = APART,
     .q_len = 40,
     .page_len = 16,
     .features = HEED_HAS_PAGES | HEED_HAS_CAUSAL,
     CAUSAL},
    {.name = "rows packed",
     .ring = APART,
     .q_len = 40,
     .features = HEED_HAS_PACKED | HEED_HAS_LENS | HEED_HAS_LSE},
    {.name = "rows i8", .kv_type = HEED_I8, .ring = APART, .features = HEED_HAS_QUANT},
};

int problems(void)
{
    return (int)(sizeof all / sizeof *all);
}

spec problem_spec(int n)
{
    spec s = all[n];
    s.q_type = s.q_type ? s.q_type : HEED_F32;
    s.kv_type = s.kv_type ? s.kv_type : HEED_F32;
    s.out_type = s.out_type ? s.out_type : HEED_F32;
    s.batch = 2;
    s.q_len = s.q_len ? s.q_len : 5;
    s.kv_len = s.kv_len ? s.kv_len : 300;
    s.q_heads = 6;
    s.kv_heads = s.kv_heads ? s.kv_heads : 2;
    s.qk_dim = s.qk_dim ? s.qk_dim : 40;
    s.v_dim = s.v_dim ? s.v_dim : 24;
    return s;
}

static void *get(int64_t count, size_t bytes)
{
    void *data = calloc((size_t)count + 1, bytes);
    if (!data) {
        fputs("no memory\n", stderr);
        abort();
    }
    return data;
}

/* Nearly N(0,1): the sum of 12 random numbers of [0,1), less 6. The generator is Knuth's MMIX, of
 * 64 bits. */
static float normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (double)(*state >> 40) / (1 << 24);
    }
    return (float)sum;
}

static int has(const problem *p, uint64_t feature)
{
    return (p->desc.features & feature) != 0;
}

/* Draws random rows of q, k or v and returns them in the given type; where that has scales, they
 * are chosen from the rows. */
static void *encode(const problem *p, uint32_t type, int64_t heads, int64_t rows, int64_t dim,
                    float **scale, uint64_t *state)
{
    const int64_t n = heads * rows;
    float *from = get(n * dim, sizeof *from);
    char *to = get(n, (size_t)heed_offset_bytes(type, dim));
    for (int64_t i = 0; i < n * dim; i++)
        from[i] = normal(state);
    heed_kv_append_args a = {.struct_size = sizeof a,
                             .batch = 1,
                             .len = n,
                             .capacity = n,
                             .kv_heads = 1,
                             .qk_dim = (uint32_t)dim,
                             .k_type = HEED_F32,
                             .v_type = HEED_F32,
                             .k_cache_type = type,
                             .v_cache_type = HEED_F32};
    a.k = (heed_const_view){from, {n * dim, n * dim, dim, 1}};
    a.k_cache = (heed_view){to, {n * dim, n * dim, dim, 1}};
    if (scale && heed_takes_scale(type)) {
        *scale = get(n, sizeof **scale);
        a.k_quant.scale = *scale;
        a.k_quant.stride[2] = 1;
        a.options = HEED_APPEND_FRESH_SCALES;
    }
    if (n && heed_kv_append(&a) != HEED_OK) {
        fprintf(stderr, "%s: %s\n", p->s.name, heed_last_error());
        abort();
    }
    free(from);
    return to;
}

static void describe(problem *p)
{
    const spec *s = &p->s;
    p->desc = (heed_attn_desc){.struct_size = sizeof p->desc,
                               .features = s->features,
                               .q_heads = s->q_heads,
                               .kv_heads = s->kv_heads,
                               .qk_dim = s->qk_dim,
                               .v_dim = s->v_dim,
                               .q_type = s->q_type,
                               .k_type = s->kv_type,
                               .v_type = s->kv_type,
                               .out_type = s->out_type,
                               .position = s->position,
                               .page_len = s->page_len,
                               .window_left = s->window_left,
                               .window_right = s->window_right,
                               .max_batch = s->batch,
                               .max_q_len = s->q_len,
                               .max_kv_len = s->kv_len};
    p->desc.bias_type = has(p, HEED_HAS_BIAS) ? HEED_F32 : HEED_DTYPE_NONE;
    p->desc.softcap = has(p, HEED_HAS_SOFTCAP) ? 3 : 0;
    p->desc.scale = has(p, HEED_HAS_SCALE) ? 0.21f : 0;
    p->desc.n_ranges = has(p, HEED_HAS_RANGES) ? 2 : 0;
    p->desc.block_rows = has(p, HEED_HAS_KEY_BLOCKS) ? 2 : 0;
    p->desc.block_keys = has(p, HEED_HAS_KEY_BLOCKS) ? 4 : 0;
}

/* Gives sequences different lengths where the args can express it, and pages in reverse order. */
static void measure(problem *p)
{
    memory *w = &p->whole;
    const int64_t pages = p->s.page_len ? (p->s.kv_len + p->s.page_len - 1) / p->s.page_len : 0;
    w->q_len = p->s.q_len;
    w->kv_len = p->s.kv_len;
    w->table = get(pages * p->s.batch, sizeof *w->table);
    for (int64_t i = 0; i < pages * p->s.batch; i++)
        w->table[i] = (int32_t)(pages * p->s.batch - 1 - i);
    for (int32_t b = 0; b < p->s.batch; b++) {
        w->q_lens[b] = (int32_t)p->s.q_len - (has(p, HEED_HAS_LENS) ? 2 * b : 0);
        w->kv_lens[b] = (int32_t)p->s.kv_len - (p->s.ring ? 0 : 37 * b);
        w->q_starts[b] = (int32_t)w->rows;
        w->kv_starts[b] = (int32_t)w->keys;
        w->q_offsets[b] = 150 - 20 * b;
        w->rows += w->q_lens[b];
        w->keys += w->kv_lens[b];
    }
    if (has(p, HEED_HAS_PACKED))
        p->desc.max_rows = w->rows;
}

/* Fills the mask, biases, ranges and key blocks: what depends on both the row and the key. */
static void fill_pairs(problem *p, uint64_t *state)
{
    memory *w = &p->whole;
    const int64_t rows = p->s.batch * p->s.q_heads * w->q_len, n = rows * w->kv_len;
    if (has(p, HEED_HAS_MASK))
        w->mask = get(n, 1);
    if (has(p, HEED_HAS_BIAS))
        w->bias = get(n, sizeof *w->bias);
    for (int64_t i = 0; i < n && (w->mask || w->bias); i++) {
        const float x = normal(state);
        if (w->mask)
            w->mask[i] = x > -0.4f;
        else
            w->bias[i] = x < -1.5f ? -(float)INFINITY : x;
    }
    if (has(p, HEED_HAS_RANGES)) {
        w->ranges = get(4 * rows, sizeof *w->ranges);
        for (int32_t i = 0; i < rows; i++) {
            const int32_t r[4] = {i % 40, i % 40 + 60, 130 + i % 7, 255 - i % 50};
            memcpy(w->ranges + 4 * i, r, sizeof r);
        }
    }
    if (has(p, HEED_HAS_KEY_BLOCKS)) {
        const int64_t words = p->s.batch * 16 * ((w->kv_len + 255) / 256);
        w->blocks = get(words, sizeof *w->blocks);
        for (int64_t i = 0; i < words; i++)
            w->blocks[i] = UINT64_C(0x9249f24924b24925) * (uint64_t)(2 * i + 1);
    }
}

void problem_make(problem *p, const spec *s)
{
    uint64_t state = 0;
    for (const char *c = s->name; *c; c++)
        state = state * 131 + (unsigned char)*c;
    memset(p, 0, sizeof *p);
    p->s = *s;
    describe(p);
    measure(p);
    memory *w = &p->whole;
    const int packed = has(p, HEED_HAS_PACKED);
    const int64_t pages = s->page_len ? (s->kv_len + s->page_len - 1) / s->page_len : 0;
    const int64_t keys = packed        ? w->keys
                         : s->page_len ? s->batch * pages * s->page_len
                                       : s->batch * w->kv_len;
    const int64_t rows = packed ? w->rows : s->batch * w->q_len;
    w->q = encode(p, s->q_type, s->q_heads, rows, s->qk_dim, NULL, &state);
    w->k = encode(p, s->kv_type, s->kv_heads, keys, s->qk_dim, &w->k_scale, &state);
    w->v = encode(p, s->kv_type, s->kv_heads, keys, s->v_dim, &w->v_scale, &state);
    w->out = get(rows * s->q_heads * s->v_dim, 4);
    w->lse = get(rows * s->q_heads, 4);
    fill_pairs(p, &state);
    for (int h = 0; h < 16; h++) {
        w->sink[h] = normal(&state);
        w->slope[h] = 0.02f * (float)(h + 1);
    }
}

void memory_free(memory *m)
{
    void *data[] = {m->q,       m->k,    m->v,    m->out,    m->lse,   m->k_scale,
                    m->v_scale, m->mask, m->bias, m->ranges, m->table, m->blocks};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
    memset(m, 0, sizeof *m);
}

void problem_free(problem *p)
{
    memory_free(&p->whole);
}
