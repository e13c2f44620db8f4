/* heed_kv_append: what it writes, byte for byte, and what it refuses. */
#include "cache_errors.h"
#include "cache_layer.h"
#include "cache_pieces.h"
#include "cases.h"
#include "decode.h"
#include "encode.h"
#include "random.h"

#include <heed/formats.h>
#include <heed/hadamard.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { BATCH = 3, HEADS = 2, QK = 5, V = 3, LEN = 9, CAPACITY = 26, PACKED_ROWS = 24 };
/* FORM_APART: the dims of a row lie a row of all heads' apart, which blocks of codes cannot. */
enum { FORM_PLAIN, FORM_TOKEN_MAJOR, FORM_PACKED, FORM_ODD, FORM_NO_V, FORM_APART, FORMS };
/* The scales of codes: none, one for all, one for each group of dims and keys, or one for each row
 * that heed_kv_append computes itself (fresh). */
enum { SCALES_NONE, SCALES_ONE, SCALES_GROUPS, SCALES_FRESH, SCALES };
enum { KEY_GROUP = 3, MOST_DIM = 96 };

static const int32_t lens[BATCH] = {7, 0, 9}, starts[BATCH] = {12, 0, 1};
static const int32_t cache_lens[BATCH] = {3, 26, 17};

/* A call with its memory: new rows, and caches that begin as noise. */
typedef struct appending {
    heed_kv_append_args args;
    guard_buffer buffer[8]; /* k, v, k_cache, v_cache, their scales, their zeros */
    int32_t table[BATCH * CAPACITY];
    uint32_t page_len;
} appending;

/* Dense strides of [batch, heads, rows, dim], [batch, rows, heads, dim] or [batch, rows, dim, heads]. */
static heed_view dense(guard_buffer *buffer, int64_t heads, int64_t rows, int64_t dim, int form)
{
    heed_view view = {buffer->data, {heads * rows * dim, rows * dim, dim, 1}};
    if (form == FORM_TOKEN_MAJOR || form == FORM_PACKED)
        view.stride[1] = dim, view.stride[2] = heads * dim;
    if (form == FORM_APART)
        view.stride[1] = 1, view.stride[2] = heads * dim, view.stride[3] = heads;
    return view;
}

static void drop(appending *a)
{
    for (int n = 0; n < 8; n++)
        guard_unmap(&a->buffer[n]);
}

static void noise(guard_buffer *buffer, uint64_t seed)
{
    for (size_t i = 0; i < buffer->bytes; i++)
        buffer->data[i] = (unsigned char)(kit_hash(seed, (int64_t)i) >> 7);
}

/* The dim of a row. Rows that become codes or are transformed (by_blocks) have whole blocks, but
 * their last group of scales is a partial one. */
static int64_t dim_of(uint32_t cache_type, int by_blocks, int is_v)
{
    const int64_t len = heed_block_len(cache_type);
    if (!by_blocks)
        return is_v ? V : QK;
    return (len > 4 ? len : 4) * (is_v ? 1 : 3);
}

static int make(appending *a, int form, uint32_t type, uint32_t cache_type, uint32_t page_len,
                int side, int by_blocks)
{
    const int packed = form == FORM_PACKED;
    const int64_t pages = page_len ? (CAPACITY + page_len - 1) / page_len : 0;
    const int64_t rows = packed ? PACKED_ROWS : LEN, n_pages = BATCH * pages + 2;
    const size_t batch = packed ? 1 : BATCH, cache_batch = (size_t)(page_len ? n_pages : BATCH);
    const int64_t cache_rows = page_len ? page_len : CAPACITY;
    const int64_t dim[2] = {dim_of(cache_type, by_blocks, 0),
                            form == FORM_NO_V ? 0 : dim_of(cache_type, by_blocks, 1)};
    memset(a, 0, sizeof *a);
    a->page_len = page_len;
    for (int n = 0; n < 4; n++) {
        size_t each = (size_t)(HEADS * dim[n & 1]);
        size_t elements =
            n < 2 ? batch * each * (size_t)rows : cache_batch * each * (size_t)cache_rows;
        if (guard_map(&a->buffer[n],
                      (size_t)heed_offset_bytes(n < 2 ? type : cache_type, (int64_t)elements), side,
                      form == FORM_ODD, 0xc3) != 0)
            return drop(a), -1;
        noise(&a->buffer[n], 40 + (uint64_t)n);
        for (size_t i = 0; n < 2 && i < elements; i++)
            kit_encode(type, a->buffer[n].data, (int64_t)i,
                       i % (heed_is_code(cache_type) ? 97 : 11) == 7
                           ? (double)NAN
                           : kit_normal(kit_hash(50 + (uint64_t)n, (int64_t)i)));
        if (n < 2)
            guard_read_only(&a->buffer[n]);
    }
    for (int64_t i = 0; i < BATCH * pages; i++) /* downwards from the last: pages 0, 1 are unused */
        a->table[i] = (int32_t)(n_pages - 1 - i);
    a->args =
        (heed_kv_append_args){.struct_size = sizeof a->args,
                              .batch = BATCH,
                              .len = LEN,
                              .capacity = CAPACITY,
                              .kv_heads = HEADS,
                              .qk_dim = (uint32_t)dim[0],
                              .v_dim = (uint32_t)dim[1],
                              .page_len = page_len,
                              .k_type = type,
                              .v_type = type,
                              .k_cache_type = cache_type,
                              .v_cache_type = cache_type,
                              .k = heed_as_const(dense(&a->buffer[0], HEADS, rows, dim[0], form)),
                              .v = heed_as_const(dense(&a->buffer[1], HEADS, rows, dim[1], form)),
                              .k_cache = dense(&a->buffer[2], HEADS, cache_rows, dim[0], form),
                              .v_cache = dense(&a->buffer[3], HEADS, cache_rows, dim[1], form),
                              .lens = lens,
                              .starts = packed ? starts : NULL,
                              .rows = packed ? PACKED_ROWS : 0,
                              .cache_lens = cache_lens,
                              .block_table = page_len ? a->table : NULL,
                              .block_table_stride = pages,
                              .n_pages = page_len ? n_pages : 0};
    if (form == FORM_NO_V)
        a->args.v.data = NULL, a->args.v_cache.data = NULL;
    return 0;
}

/* Writes into image what a cache should hold, by the definition. */
static void expect(const appending *a, int which, unsigned char *image)
{
    const heed_kv_append_args *g = &a->args;
    const heed_const_view *from = which ? &g->v : &g->k;
    const heed_view *to = which ? &g->v_cache : &g->k_cache;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < lens[b]; i++)
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t d = 0; d < (which ? g->v_dim : g->qk_dim); d++) {
                    int64_t key = cache_lens[b] + i, page = b, row = key;
                    if (a->page_len) {
                        page = a->table[b * g->block_table_stride + key / a->page_len];
                        row = key % a->page_len;
                    }
                    double x = kit_decode(
                        g->k_type, from->data,
                        (g->starts ? g->starts[b] * from->stride[2] : b * from->stride[0]) +
                            h * from->stride[1] + i * from->stride[2] + d * from->stride[3]);
                    kit_encode(g->k_cache_type, image,
                               page * to->stride[0] + h * to->stride[1] + row * to->stride[2] +
                                   d * to->stride[3],
                               x);
                }
}

/* A NaN that is converted may become any NaN of the other type, so its bits are not compared. */
static int same_or_nan(uint32_t type, const unsigned char *got, const unsigned char *want,
                       size_t bytes)
{
    const uint32_t each = kit_bytes_of(type);
    for (size_t i = 0; i < bytes / each; i++)
        if (memcmp(got + i * each, want + i * each, each) != 0 &&
            !(isnan(kit_decode(type, got, (int64_t)i)) &&
              isnan(kit_decode(type, want, (int64_t)i))))
            return 0;
    return 1;
}

static void writes(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const uint32_t page_len[] = {0, 1, 3, 16, 17};
    (void)env;
    for (int form = 0; form < FORMS; form++)
        for (uint32_t cache_type = HEED_F32; cache_type <= HEED_BF16; cache_type++)
            for (size_t n = 0; n < COUNT(page_len); n++) {
                appending a;
                if (make(&a, form, c->spec.q_type, cache_type, page_len[n],
                         n & 1 ? GUARD_LOW : GUARD_HIGH, 0) != 0) {
                    kit_fail(outcome, "out of memory");
                    return;
                }
                unsigned char *image[2] = {malloc(a.buffer[2].bytes + 1),
                                           malloc(a.buffer[3].bytes + 1)};
                for (int s = 0; s < 2 && image[0] && image[1]; s++) {
                    memcpy(image[s], a.buffer[2 + s].data, a.buffer[2 + s].bytes);
                    expect(&a, s, image[s]);
                }
                heed_status status = heed_kv_append(&a.args);
                if (status != HEED_OK)
                    kit_fail(outcome, "form %d, pages of %u: %s", form, page_len[n],
                             heed_last_error());
                for (int s = 0; s < 2 && image[0] && image[1]; s++)
                    if (!same_or_nan(cache_type, a.buffer[2 + s].data, image[s],
                                     a.buffer[2 + s].bytes) ||
                        !guard_slack_is(&a.buffer[2 + s], 0xc3))
                        kit_fail(outcome,
                                 "form %d, pages of %u, cache type %u: the %s cache is not "
                                 "what it should be",
                                 form, page_len[n], cache_type, s ? "value" : "key");
                free(image[0]);
                free(image[1]);
                drop(&a);
            }
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Adds scales and zeros for both caches. Fresh ones, which the call writes, begin as noise. */
static int add_scales(appending *a, int scales, int side)
{
    heed_kv_append_args *g = &a->args;
    heed_quant_out *quant[2] = {&g->k_quant, &g->v_quant};
    const uint32_t type = g->k_cache_type;
    const int64_t batch = g->page_len ? g->n_pages : BATCH;
    const int64_t keys = g->page_len ? g->page_len : CAPACITY;
    for (int s = 0; s < (g->v_dim ? 2 : 1) && scales != SCALES_NONE; s++) {
        const int64_t dim = s ? g->v_dim : g->qk_dim;
        const uint32_t group = scales == SCALES_GROUPS ? 5 : 0;
        const uint32_t key_group = scales == SCALES_GROUPS ? KEY_GROUP : 0;
        const int64_t across = group ? (dim + group - 1) / group : 1;
        const int64_t along = key_group ? (keys + key_group - 1) / key_group : keys;
        const int64_t n = scales == SCALES_ONE ? 1 : batch * HEADS * along * across;
        for (int i = 0; i < 2; i++) {
            guard_buffer *b = &a->buffer[4 + 2 * i + s];
            if (guard_map(b, (size_t)n * 4, side, 0, 0xc3) != 0)
                return -1;
            noise(b, 60 + (uint64_t)(2 * i + s));
            for (int64_t j = 0; j < n && scales != SCALES_FRESH; j++)
                kit_encode(HEED_F32, b->data, j,
                           i ? 9 + kit_normal(kit_hash(70, j)) : 0.05 + 0.01 * (double)(j % 7));
            if (scales != SCALES_FRESH)
                guard_read_only(b);
        }
        *quant[s] = (heed_quant_out){.scale = (float *)(void *)a->buffer[4 + s].data,
                                     .group = group,
                                     .key_group = key_group};
        if (type != HEED_F8_E4M3 && !(scales == SCALES_ONE && s))
            quant[s]->zero = (float *)(void *)a->buffer[6 + s].data;
        if (scales != SCALES_ONE) {
            const int64_t stride[4] = {HEADS * along * across, along * across, across, group != 0};
            memcpy(quant[s]->stride, stride, sizeof stride);
        }
    }
    g->options = scales == SCALES_FRESH ? HEED_APPEND_FRESH_SCALES : 0;
    return 0;
}

/* Reads a row into x in the form that is stored: transformed if the options ask for it. */
static void stored_row(const appending *a, int which, int64_t from, float *x)
{
    const heed_kv_append_args *g = &a->args;
    const heed_const_view *view = which ? &g->v : &g->k;
    const uint32_t dim = which ? g->v_dim : g->qk_dim;
    const heed_hadamard_args transform = {.struct_size = sizeof transform,
                                          .batch = 1,
                                          .len = 1,
                                          .heads = 1,
                                          .dim = dim,
                                          .group = g->hadamard,
                                          .x_type = HEED_F32,
                                          .y_type = HEED_F32,
                                          .x = {x, {0, 0, 0, 1}},
                                          .y = {x, {0, 0, 0, 1}}};
    for (uint32_t d = 0; d < dim; d++)
        x[d] = (float)kit_decode(g->k_type, view->data, from + d * view->stride[3]);
    if (g->options & (which ? HEED_APPEND_HADAMARD_V : HEED_APPEND_HADAMARD_K))
        heed_hadamard(&transform);
}

/* Writes what a cache, its scales and its zeros should hold, by heed/formats.h. */
static void expect_codes(const appending *a, int which, unsigned char *image, unsigned char *scale,
                         unsigned char *zero)
{
    const heed_kv_append_args *g = &a->args;
    const heed_const_view *from = which ? &g->v : &g->k;
    const heed_view *to = which ? &g->v_cache : &g->k_cache;
    const heed_quant quant = heed_quant_as_const(which ? g->v_quant : g->k_quant);
    const uint32_t dim = which ? g->v_dim : g->qk_dim, type = g->k_cache_type;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t n = 0; n < lens[b] * HEADS; n++) {
            const int64_t i = n / HEADS, h = n % HEADS;
            int64_t key = cache_lens[b] + i, page = b;
            float x[MOST_DIM], by[2] = {1, 0};
            if (a->page_len) {
                page = a->table[b * g->block_table_stride + key / a->page_len];
                key %= a->page_len;
            }
            const int64_t at = page * to->stride[0] + h * to->stride[1] + key * to->stride[2];
            stored_row(a, which,
                       (g->starts ? g->starts[b] * from->stride[2] : b * from->stride[0]) +
                           h * from->stride[1] + i * from->stride[2],
                       x);
            for (uint32_t d = 0; d < dim && !heed_is_code(type); d++)
                kit_encode(type, image, at + d * to->stride[3], (double)x[d]);
            if (!heed_is_code(type))
                continue;
            if (!heed_takes_scale(type)) {
                heed_encode(type, x, dim, image + heed_offset_bytes(type, at), 1, 0);
                continue;
            }
            if (g->options & HEED_APPEND_FRESH_SCALES) {
                heed_fresh_scale(type, x, dim, &by[0], &by[1]);
                memcpy(scale + 4 * heed_scale_at(&quant, page, h, key, 0), &by[0], 4);
                if (quant.zero)
                    memcpy(zero + 4 * heed_scale_at(&quant, page, h, key, 0), &by[1], 4);
            }
            for (uint32_t d = 0; d < dim; d++) {
                const int64_t place = quant.scale ? heed_scale_at(&quant, page, h, key, d) : 0;
                if (quant.scale && !(g->options & HEED_APPEND_FRESH_SCALES)) {
                    memcpy(&by[0], scale + 4 * place, 4);
                    if (quant.zero)
                        memcpy(&by[1], zero + 4 * place, 4);
                }
                const uint8_t code = heed_encode_by(type, x[d], by[0], by[1]);
                if (type == HEED_U4) {
                    unsigned char *byte = image + (at + d) / 2;
                    *byte =
                        (unsigned char)(d % 2 ? (*byte & 15) | code << 4 : (*byte & 0xf0) | code);
                } else {
                    image[at + d * to->stride[3]] = code;
                }
            }
        }
}

static void writes_one(const kit_case *c, int form, uint32_t page_len, int scales, int hadamard,
                       kit_outcome *outcome)
{
    const uint32_t type = c->spec.k_type;
    const uint32_t from = HEED_F32 + (uint32_t)(form + scales + hadamard) % 3;
    unsigned char *image[8] = {0};
    appending a;
    if (make(&a, form, from, type, page_len, form & 1 ? GUARD_LOW : GUARD_HIGH, 1) != 0 ||
        add_scales(&a, scales, form & 1 ? GUARD_LOW : GUARD_HIGH) != 0) {
        kit_fail(outcome, "out of memory");
        return;
    }
    if (hadamard && (hadamard == 1 || a.args.v_dim)) { /* 1: of keys, 2: of values */
        a.args.hadamard = heed_block_len(type) > 4 ? 16 : 4;
        a.args.options |= hadamard == 1 ? HEED_APPEND_HADAMARD_K : HEED_APPEND_HADAMARD_V;
    }
    int whole = 1;
    for (int n = 2; n < 8; n++) {
        image[n] = malloc(a.buffer[n].bytes + 1);
        whole &= image[n] != NULL;
        if (image[n] && a.buffer[n].bytes) /* memcpy needs an address even for 0 bytes */
            memcpy(image[n], a.buffer[n].data, a.buffer[n].bytes);
    }
    for (int s = 0; s < (a.args.v_dim ? 2 : 1) && whole; s++)
        expect_codes(&a, s, image[2 + s], image[4 + s], image[6 + s]);
    if (heed_kv_append(&a.args) != HEED_OK)
        kit_fail(outcome, "form %d, pages of %u, scales %d: %s", form, page_len, scales,
                 heed_last_error());
    for (int n = 2; n < 8 && whole; n++)
        if (!(n < 4 && !heed_is_code(type)
                  ? same_or_nan(type, a.buffer[n].data, image[n], a.buffer[n].bytes)
                  : a.buffer[n].bytes == 0 ||
                        memcmp(a.buffer[n].data, image[n], a.buffer[n].bytes) == 0) ||
            (a.buffer[n].bytes && !guard_slack_is(&a.buffer[n], 0xc3)))
            kit_fail(outcome,
                     "form %d, pages of %u, scales %d, transform %d: the %s's %s are not what they "
                     "should be",
                     form, page_len, scales, hadamard, n & 1 ? "values" : "keys",
                     n < 4   ? "codes"
                     : n < 6 ? "scales"
                             : "zeros");
    if (!whole)
        kit_fail(outcome, "out of memory");
    for (int n = 2; n < 8; n++)
        free(image[n]);
    drop(&a);
}

static void writes_codes(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const uint32_t page_len[] = {0, 1, 3, 16, 17};
    (void)env;
    const int forms = heed_block_len(c->spec.k_type) > 1 ? FORM_APART : FORMS;
    for (int form = 0; form < forms; form++)
        for (size_t n = 0; n < COUNT(page_len); n++)
            for (int scales = 0; scales < (heed_takes_scale(c->spec.k_type) ? SCALES : 1); scales++)
                for (int hadamard = 0; hadamard < 3; hadamard++)
                    writes_one(c, form, page_len[n], scales, hadamard, outcome);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* Makes every mistake in paged, packed calls and in contiguous ones with and without values; each
 * mistake has to exist in at least one of these calls. */
static void refuses(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    (void)env;
    (void)c;
    int n_never = 0;
    for (size_t n = 0; n < kit_append_mistakes(); n++) {
        int n_made = 0;
        for (uint32_t pick = 0; pick < 96; pick++) {
            appending a;
            const int paged = (int)pick & 1;
            const int form = paged ? FORM_PACKED : pick % 3 ? FORM_PLAIN : FORM_NO_V;
            if (make(&a, form, HEED_F32, HEED_F16, paged ? 16 : 0, GUARD_HIGH, 0) != 0) {
                kit_fail(outcome, "out of memory");
                return;
            }
            guard_read_only(&a.buffer[2]); /* a write is a crash */
            guard_read_only(&a.buffer[3]);
            n_made += kit_append_refuses(&a.args, 1, n, pick / 2, outcome);
            drop(&a);
        }
        n_never += n_made == 0;
    }
    if (n_never)
        kit_fail(outcome, "%d mistakes were not made", n_never);
}

void kit_cache_cases(kit_list *list)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        kit_case c = {.quick = 1, .run = writes, .spec.q_type = type};
        snprintf(c.name, sizeof c.name, "cache/append/%s", kit_type_name(type));
        kit_add(list, &c);
        c.run = kit_cache_in_pieces;
        snprintf(c.name, sizeof c.name, "cache/in_pieces/%s", kit_type_name(type));
        kit_add(list, &c);
    }
    for (uint32_t type = HEED_F32; type <= HEED_IQ4_NL; type++) {
        kit_case c = {.quick = 1, .run = writes_codes, .spec.k_type = type};
        snprintf(c.name, sizeof c.name, "cache/%s/%s",
                 heed_is_code(type) ? "append" : "transformed", heed_dtype_name(type));
        kit_add(list, &c);
        c.run = kit_cache_by_layer;
        snprintf(c.name, sizeof c.name, "cache/by_layer/%s", heed_dtype_name(type));
        kit_add(list, &c);
    }
    kit_case mistakes = {.name = "cache/mistakes/f32", .quick = 1, .run = refuses};
    kit_add(list, &mistakes);
}
