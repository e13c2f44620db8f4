/* Turns input bytes into sequences that grow in a cache. See fuzz_cache.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "encode.h"
#include "fuzz_cache.h"
#include "random.h"
#include "strides.h"

/* ---- the sequences --------------------------------------------------------------------------- */

/* Sometimes chooses a cache of codes, whose rows are then whole blocks. Types that may have scales
 * get none. */
static void choose_codes(fuzz_cache *c, fuzz_bytes *bytes)
{
    for (int side = 0; side < 2; side++)
        if (fuzz_rarely(bytes, 5))
            c->cache_type[side] = HEED_I8 + fuzz_below(bytes, 10);
    const uint32_t k = heed_block_len(c->cache_type[0]);
    const uint32_t v = c->values_are_keys ? k : heed_block_len(c->cache_type[1]);
    c->qk_dim = (c->qk_dim + k - 1) / k * k;
    c->v_dim = (c->v_dim + v - 1) / v * v;
}

static void choose_rotary(fuzz_cache *c, fuzz_bytes *bytes)
{
    c->rotary.style = fuzz_below(bytes, 3);
    if (c->qk_dim < 2)
        c->rotary.style = HEED_ROTARY_NONE;
    if (c->rotary.style) {
        c->rotary.dims = 2 + 2 * fuzz_below(bytes, c->qk_dim / 2);
        c->rotary.scale = fuzz_rarely(bytes, 4) ? 0.25F + (float)fuzz_byte(bytes) : 0;
        c->rotary.mscale = fuzz_rarely(bytes, 4) ? (float)fuzz_byte(bytes) / 64 - 1 : 0;
        if (fuzz_rarely(bytes, 4))
            c->rotary.freq = c->freq;
        else
            c->rotary.base = fuzz_rarely(bytes, 3) ? 2 + (float)fuzz_byte(bytes) * 4000 : 0;
    }
}

static void choose(fuzz_cache *c, fuzz_bytes *bytes)
{
    uint64_t some = fuzz_byte(bytes) & (fuzz_byte(bytes) | fuzz_byte(bytes));
    c->batch = fuzz_rarely(bytes, 2) ? 1 + fuzz_below(bytes, FUZZ_CACHE_BATCH) : 1;
    c->kv_heads = 1 + fuzz_below(bytes, 3);
    c->group = 1 + fuzz_below(bytes, 4);
    c->qk_dim = 1 + (uint32_t)fuzz_length(bytes, 24, 140);
    c->v_dim = fuzz_rarely(bytes, 3) ? 1 + (uint32_t)fuzz_length(bytes, 24, 140) : c->qk_dim;
    c->values_are_keys = fuzz_rarely(bytes, 8);
    if (c->values_are_keys && c->v_dim > c->qk_dim)
        c->v_dim = c->qk_dim;
    c->q_type = c->type[0] = c->type[1] = c->cache_type[0] = c->cache_type[1] = fuzz_type(bytes);
    if (fuzz_rarely(bytes, 3)) {
        c->type[0] = fuzz_type(bytes);
        c->type[1] = fuzz_type(bytes);
        c->cache_type[0] = fuzz_type(bytes);
        c->cache_type[1] = fuzz_type(bytes);
    }
    choose_codes(c, bytes);
    if (c->values_are_keys)
        c->cache_type[1] = c->cache_type[0];
    c->page_len = fuzz_byte(bytes) & 1 ? 1 + (uint32_t)fuzz_length(bytes, 20, 70) : 0;
    c->features = HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_LENS | HEED_HAS_CAUSAL |
                  (some & (HEED_HAS_SCALE | HEED_HAS_SOFTCAP | HEED_HAS_WINDOW | HEED_HAS_ALIBI));
    c->features |= fuzz_rarely(bytes, 4) ? HEED_HAS_SINK : 0;
    c->features |= fuzz_rarely(bytes, 2) ? HEED_HAS_LSE : 0;
    c->scale = ((float)fuzz_byte(bytes) - 100) / 64;
    c->softcap = (float)fuzz_byte(bytes) / 16;
    c->window = fuzz_below(bytes, 40);
    c->accuracy = fuzz_below(bytes, 5);
    choose_rotary(c, bytes);
    c->most = 0;
    for (int64_t b = 0; b < c->batch; b++) {
        c->tokens[b] = (int32_t)fuzz_length(bytes, 30, 180);
        c->most = c->tokens[b] > c->most ? c->tokens[b] : c->most;
    }
    if (fuzz_rarely(bytes, 100)) { /* several chunks of keys, with windows that span them */
        c->batch = c->kv_heads = 1;
        c->most = c->tokens[0] = (int32_t)fuzz_below(bytes, FUZZ_CACHE_TOKENS);
        c->window = fuzz_below(bytes, FUZZ_CACHE_TOKENS);
        c->page_len += c->page_len ? 60 : 0;
    }
    c->capacity = c->most + fuzz_below(bytes, 20);
    c->spread = fuzz_byte(bytes) & 1 ? (double)(1 << fuzz_below(bytes, 6)) : 1;
    c->period = 1 << (4 + fuzz_below(bytes, 5));
    if (fuzz_rarely(bytes, 3)) { /* weights vary by 2^2 to 2^12, sometimes by far more */
        c->rise = (2 + fuzz_below(bytes, 11)) * sqrt((double)c->qk_dim) / 8 * 0.6931471805599453;
        c->rise *= fuzz_rarely(bytes, 8) ? 50 : 1;
    }
    for (int h = 0; h < FUZZ_CACHE_HEADS; h++) {
        c->slope[h] = (float)kit_next(&c->random) / 0x1p66F;
        c->sink[h] = (float)kit_next(&c->random) / 0x1p62F;
    }
    for (int i = 0; i < FUZZ_CACHE_PAIRS; i++)
        c->freq[i] = (float)kit_next(&c->random) / 0x1p64F;
}

/* Random finite rows, dense [batch, head, token, dim]. which: 1 for q, 2 for k, 3 for v. */
static void *make_rows(fuzz_cache *c, uint32_t type, int64_t heads, int64_t dim, int which)
{
    const int64_t n = c->batch * heads * c->most * dim;
    unsigned char *data = malloc((size_t)n * kit_bytes_of(type) + 1);
    for (int64_t i = 0; data && i < n; i++) {
        const uint64_t bits = kit_hash(c->random + (uint64_t)which, i);
        const int64_t d = i % dim, token = i / dim % c->most;
        double x = kit_normal(bits);
        if (which == 1)
            x *= c->spread;
        /* Element 0 of keys is a level that rises and falls; every other row of q reacts to it. */
        if (c->rise > 0 && which == 1 && d == 0)
            x = i / dim % 2 ? 8 : 0;
        if (c->rise > 0 && which == 2 && d == 0)
            x = (double)((token + 3) / c->period * 5 % 8 - 7) * c->rise;
        kit_encode(type, data, i, x);
    }
    return data;
}

/* A copy of rows, for their rotated form; it is what is used if nothing is rotated. */
static void *copy_rows(const fuzz_cache *c, const void *rows, uint32_t type, int64_t heads)
{
    const size_t n = (size_t)(c->batch * heads * c->most * c->qk_dim) * kit_bytes_of(type);
    void *copy = rows ? malloc(n + 1) : NULL;
    return copy ? memcpy(copy, rows, n) : NULL;
}

static int map_cache(fuzz_cache *c, fuzz_bytes *bytes, int side)
{
    const int64_t dim[4] = {c->page_len ? c->n_pages : c->batch, c->kv_heads,
                            c->page_len ? c->page_len : c->capacity, side ? c->v_dim : c->qk_dim};
    const int codes = heed_is_code(c->cache_type[side]); /* the strides of codes count whole rows */
    const size_t size = codes ? fuzz_cache_row_bytes(c, side) : kit_bytes_of(c->cache_type[side]);
    const uint32_t draw = fuzz_word(bytes);
    int64_t *stride = c->cache[side].stride;
    int64_t first, n = kit_draw_strides(draw, codes ? 3 : 4, dim, 0, stride, &first);
    for (int a = 0; codes && a < 4; a++)
        stride[a] = a < 3 ? stride[a] * dim[3] : 1;
    for (int a = 0; a < 3 && draw & 1; a++)
        if (dim[a] == 1)
            stride[a] = kit_any_stride(a);
    if (guard_map(&c->buffer[side], (size_t)n * size, fuzz_byte(bytes) & 1,
                  fuzz_rarely(bytes, 4) ? fuzz_below(bytes, 7) : 0, FUZZ_CACHE_CANARY) != 0)
        return -1;
    c->cache[side].data = c->buffer[side].data + (size_t)first * size;
    c->image[side] = malloc(c->buffer[side].bytes + 1);
    if (!c->image[side])
        return -1;
    memset(c->image[side], FUZZ_CACHE_CANARY, c->buffer[side].bytes);
    return 0;
}

/* Gives every sequence pages of its own, in any order; unused entries of the table name no page. */
static int make_table(fuzz_cache *c, fuzz_bytes *bytes)
{
    const int64_t pages = (c->capacity + c->page_len - 1) / c->page_len;
    c->table_stride = pages + fuzz_below(bytes, 3);
    c->n_pages = c->batch * pages + 1 + fuzz_below(bytes, 3);
    c->table = malloc((size_t)(c->batch * c->table_stride + 1) * sizeof *c->table);
    int32_t *free_page = malloc((size_t)c->n_pages * sizeof *free_page);
    int64_t left = c->n_pages;
    for (int64_t i = 0; free_page && i < left; i++)
        free_page[i] = (int32_t)i;
    for (int64_t i = 0; c->table && free_page && i < c->batch * c->table_stride; i++) {
        const int64_t b = i / c->table_stride, at = i % c->table_stride;
        c->table[i] = fuzz_byte(bytes) & 1 ? INT32_MIN : INT32_MAX;
        if (at * c->page_len < c->tokens[b]) {
            const int64_t draw = kit_below(&c->random, left);
            c->table[i] = free_page[draw];
            free_page[draw] = free_page[--left];
        }
    }
    free(free_page);
    return c->table && free_page ? 0 : -1;
}

int fuzz_cache_build(fuzz_cache *c, fuzz_bytes *bytes)
{
    memset(c, 0, sizeof *c);
    c->random = UINT64_C(0x9e3779b97f4a7c15) ^ fuzz_word(bytes);
    choose(c, bytes);
    const uint32_t heads = c->kv_heads * c->group;
    if (c->page_len && make_table(c, bytes) != 0)
        return -1;
    for (int side = 0; side < (c->values_are_keys ? 1 : 2); side++)
        if (map_cache(c, bytes, side) != 0)
            return -1;
    c->q = make_rows(c, c->q_type, heads, c->qk_dim, 1);
    c->rows[0] = make_rows(c, c->type[0], c->kv_heads, c->qk_dim, 2);
    c->rows[1] = make_rows(c, c->type[1], c->kv_heads, c->v_dim, 3);
    c->turned_q = copy_rows(c, c->q, c->q_type, heads);
    c->turned_k = copy_rows(c, c->rows[0], c->type[0], c->kv_heads);
    const size_t n = (size_t)(c->batch * heads * c->most);
    c->out = calloc(n * c->v_dim + 1, 4);
    c->lse = calloc(n + 1, 4);
    c->whole_out = calloc(n * c->v_dim + 1, 4);
    c->whole_lse = calloc(n + 1, 4);
    return c->q && c->rows[0] && c->rows[1] && c->turned_q && c->turned_k && c->out && c->lse &&
                   c->whole_out && c->whole_lse
               ? 0
               : -1;
}

void fuzz_cache_destroy(fuzz_cache *c)
{
    void *const all[] = {c->q,   c->rows[0], c->rows[1],   c->turned_q,  c->turned_k, c->out,
                         c->lse, c->table,   c->whole_out, c->whole_lse, c->image[0], c->image[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    guard_unmap(&c->buffer[0]);
    guard_unmap(&c->buffer[1]);
}
