/* The fuzz target of the key/value cache: sequences grow in a cache of any layout, contiguous or
 * in pages, by pieces of any size, which are rotated, appended and attended to.
 *
 *     cache      after every piece each byte is what a plain copy would have left, made by
 *                kit_encode, or by heed_encode for codes
 *     rotary     a piece has the bits of the whole sequence rotated at once, and those are float64
 *                results, rounded
 *     attention  with HEED_HAS_REPRODUCIBLE_CHUNKS the pieces have the bits of all rows computed at
 *                once over dense keys
 *     spoilt     a call with one of the kit's mistakes is refused, while the caches are read-only
 *
 * A finding ends the process with abort().
 */
#include "fuzz_cache.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "cache_errors.h"
#include "decode.h"
#include "encode.h"
#include "strides.h"

static const fuzz_cache *current; /* for the report */

void fuzz_describe(FILE *out)
{
    const fuzz_cache *c = current;
    if (!c)
        return;
    fprintf(out,
            "batch %lld heads %u x %u dims %u %u (values are keys: %d), types q %u k %u %u "
            "cache %u %u, pages of %u, features 0x%llx\n",
            (long long)c->batch, c->kv_heads, c->group, c->qk_dim, c->v_dim, c->values_are_keys,
            c->q_type, c->type[0], c->type[1], c->cache_type[0], c->cache_type[1], c->page_len,
            (unsigned long long)c->features);
    for (int64_t b = 0; b < c->batch; b++)
        fprintf(out, "  sequence %lld: %d + %d of %d tokens\n", (long long)b, c->there[b],
                c->now[b], c->tokens[b]);
    fprintf(out, "rotary style %u dims %u base %g scale %g mscale %g freq %d\n", c->rotary.style,
            c->rotary.dims, (double)c->rotary.base, (double)c->rotary.scale,
            (double)c->rotary.mscale, c->rotary.freq != NULL);
}

/* Sometimes makes a call with a mistake first, which has to be refused. */
static void spoil_rotary(const heed_rotary_args *args, fuzz_bytes *bytes, guard_buffer *y)
{
    kit_outcome outcome = {.verdict = KIT_PASSED};
    if (!fuzz_rarely(bytes, 2))
        return;
    const uint32_t which = fuzz_below(bytes, (uint32_t)kit_rotary_mistakes());
    guard_read_only(y);
    kit_rotary_refuses(args, 0, which, fuzz_word(bytes), &outcome);
    guard_open(y);
    fuzz_judge(&outcome, NULL);
}

static void spoil_append(fuzz_cache *c, const heed_kv_append_args *args, fuzz_bytes *bytes)
{
    kit_outcome outcome = {.verdict = KIT_PASSED};
    if (!fuzz_rarely(bytes, 2))
        return;
    const uint32_t which = fuzz_below(bytes, (uint32_t)kit_append_mistakes());
    for (int side = 0; side < 2; side++)
        if (c->buffer[side].map)
            guard_read_only(&c->buffer[side]);
    kit_append_refuses(args, 0, which, fuzz_word(bytes), &outcome);
    for (int side = 0; side < 2; side++)
        if (c->buffer[side].map)
            guard_open(&c->buffer[side]);
    fuzz_judge(&outcome, NULL);
}

/* ---- a piece --------------------------------------------------------------------------------- */

/* Rows there[b] .. there[b] + now[b] of a dense tensor, in guarded memory of any layout. */
typedef struct piece {
    guard_buffer buffer;
    heed_view view;
} piece;

static int take_piece(const fuzz_cache *c, fuzz_bytes *bytes, const void *from, uint32_t type,
                      int64_t heads, int64_t dims, piece *p)
{
    const int64_t dim[4] = {c->packed ? 1 : c->batch, heads, c->packed ? c->packed_rows : c->len,
                            dims};
    const size_t size = kit_bytes_of(type);
    const uint32_t draw = fuzz_word(bytes);
    int64_t first, n = kit_draw_strides(draw, 4, dim, 0, p->view.stride, &first);
    for (int a = 0; a < 2 && draw & 1; a++)
        if (dim[a] == 1)
            p->view.stride[a] = kit_any_stride(a);
    if (guard_map(&p->buffer, (size_t)n * size, fuzz_byte(bytes) & 1, 0, FUZZ_CACHE_CANARY) != 0)
        return -1;
    p->view.data = p->buffer.data + (size_t)first * size;
    for (int64_t b = 0; from && b < c->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < c->now[b]; i++)
                for (int64_t d = 0; d < dims; d++)
                    memcpy((char *)p->view.data + (fuzz_cache_piece_row(c, &p->view, b, h, i) +
                                                   d * p->view.stride[3]) *
                                                      (int64_t)size,
                           (const char *)from +
                               (size_t)(((b * heads + h) * c->most + c->there[b] + i) * dims + d) *
                                   size,
                           size);
    return 0;
}

/* Whether the rows of a piece equal those of the dense tensor; with `put`, copies them there
 * instead. */
static int same_rows(const fuzz_cache *c, const piece *p, void *all, uint32_t type, int64_t heads,
                     int64_t dims, int put)
{
    const size_t size = kit_bytes_of(type);
    int same = 1;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < c->now[b]; i++)
                for (int64_t d = 0; d < dims; d++) {
                    const char *mine =
                        (const char *)p->view.data +
                        (fuzz_cache_piece_row(c, &p->view, b, h, i) + d * p->view.stride[3]) *
                            (int64_t)size;
                    char *its =
                        (char *)all +
                        (size_t)(((b * heads + h) * c->most + c->there[b] + i) * dims + d) * size;
                    if (put)
                        memcpy(its, mine, size);
                    same &= memcmp(its, mine, size) == 0;
                }
    return same;
}

static void turn_piece(const fuzz_cache *c, fuzz_bytes *bytes, piece *p, void *want, uint32_t type,
                       uint32_t heads)
{
    heed_rotary_args args = {.struct_size = sizeof args,
                             .rotary = c->rotary,
                             .batch = c->batch,
                             .len = c->len,
                             .heads = heads,
                             .dim = c->qk_dim,
                             .x_type = type,
                             .y_type = type,
                             .x = heed_as_const(p->view),
                             .y = p->view,
                             .offsets = c->there,
                             .lens = c->now,
                             .starts = c->packed ? c->starts : NULL,
                             .rows = c->packed ? c->packed_rows : 0};
    piece other = {.buffer = {0}};
    const int in_place = fuzz_byte(bytes) & 1;
    int32_t positions[FUZZ_CACHE_BATCH][FUZZ_CACHE_TOKENS];
    if (!in_place) {
        if (take_piece(c, bytes, NULL, type, heads, c->qk_dim, &other) != 0)
            return;
        args.y = other.view;
        guard_read_only(&p->buffer);
    }
    if (fuzz_rarely(bytes, 3)) {
        for (int b = 0; b < c->batch; b++)
            for (int i = 0; i < c->now[b]; i++)
                positions[b][i] = c->there[b] + i;
        args.offsets = NULL;
        args.positions = positions[0];
        args.positions_stride = FUZZ_CACHE_TOKENS;
    }
    spoil_rotary(&args, bytes, in_place ? &p->buffer : &other.buffer);
    const fuzz_host host = fuzz_host_enter(bytes);
    heed_status st = heed_rotary(&args);
    if (fuzz_host_read() != host)
        fuzz_finding("heed_rotary", "changed the host's floating-point environment");
    fuzz_host_leave();
    if (st != HEED_OK)
        fuzz_finding("heed_rotary of a piece", heed_last_error());
    if (!in_place) {
        guard_unmap(&p->buffer);
        *p = other;
    }
    if (!same_rows(c, p, want, type, heads, c->qk_dim, 0))
        fuzz_finding("heed_rotary", "a piece has other bits than the whole");
}

static heed_kv_append_args append_args(const fuzz_cache *c, const piece *k, const piece *v)
{
    heed_kv_append_args args = {.struct_size = sizeof args,
                                .batch = c->batch,
                                .len = c->len,
                                .capacity = c->capacity,
                                .kv_heads = c->kv_heads,
                                .qk_dim = c->qk_dim,
                                .page_len = c->page_len,
                                .k_type = c->type[0],
                                .k_cache_type = c->cache_type[0],
                                .k = heed_as_const(k->view),
                                .k_cache = c->cache[0],
                                .lens = c->now,
                                .starts = c->packed ? c->starts : NULL,
                                .cache_lens = c->there,
                                .rows = c->packed ? c->packed_rows : 0};
    if (!c->values_are_keys) {
        args.v_dim = c->v_dim;
        args.v_type = c->type[1];
        args.v_cache_type = c->cache_type[1];
        args.v = heed_as_const(v->view);
        args.v_cache = c->cache[1];
    }
    if (c->page_len) {
        args.block_table = c->table;
        args.block_table_stride = c->table_stride;
        args.n_pages = c->n_pages;
    }
    return args;
}

/* Writes a row as the cache should store it. */
static void store_row(const fuzz_cache *c, int side, const void *rows, int64_t from,
                      unsigned char *to)
{
    const int64_t dims = side ? c->v_dim : c->qk_dim, stride = c->cache[side].stride[3];
    const uint32_t type = c->cache_type[side];
    float x[2 * FUZZ_CACHE_PAIRS];
    for (int64_t d = 0; d < dims; d++) {
        const double value = kit_decode(c->type[side], rows, from + d);
        x[d] = (float)value;
        if (!heed_is_code(type))
            kit_encode(type, to, d * stride, value);
    }
    if (heed_is_code(type))
        heed_encode(type, x, dims, to, 1, 0);
}

/* Updates the image to what appending should leave in the cache, then compares the two. */
static void judge_append(fuzz_cache *c, int side, const void *rows)
{
    const int64_t dims = side ? c->v_dim : c->qk_dim;
    unsigned char *first =
        c->image[side] + ((unsigned char *)c->cache[side].data - c->buffer[side].data);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->kv_heads; h++)
            for (int64_t i = 0; i < c->now[b]; i++) {
                const int64_t token = c->there[b] + i;
                store_row(c, side, rows, ((b * c->kv_heads + h) * c->most + token) * dims,
                          first + heed_offset_bytes(c->cache_type[side],
                                                    fuzz_cache_key(c, side, b, h, token)));
            }
    if (memcmp(c->image[side], c->buffer[side].data, c->buffer[side].bytes) != 0)
        fuzz_finding("heed_kv_append", side ? "the values' cache is not what it should be"
                                            : "the keys' cache is not what it should be");
    if (!guard_slack_is(&c->buffer[side], FUZZ_CACHE_CANARY))
        fuzz_finding("heed_kv_append", "wrote around the cache");
}

static void attend(fuzz_cache *c, fuzz_bytes *bytes, heed_context *context, const piece *q)
{
    const uint32_t heads = c->kv_heads * c->group, out_type = c->q_type;
    int32_t all[FUZZ_CACHE_BATCH];
    piece out = {.buffer = {0}}, lse = {.buffer = {0}};
    heed_attn_desc desc = fuzz_cache_attention(c);
    desc.position = fuzz_byte(bytes) & 1 ? HEED_POS_BOTTOM_RIGHT : HEED_POS_GIVEN;
    desc.features |= (c->packed ? HEED_HAS_PACKED : 0) | (c->page_len ? HEED_HAS_PAGES : 0);
    desc.page_len = c->page_len;
    desc.max_rows = c->packed ? c->packed_rows : 0;
    for (int64_t b = 0; b < c->batch; b++)
        all[b] = c->there[b] + c->now[b];
    if (heed_attn_supported(context, &desc, NULL) != HEED_OK)
        return;
    if (take_piece(c, bytes, NULL, out_type, heads, c->v_dim, &out) != 0 ||
        take_piece(c, bytes, NULL, HEED_F32, heads, 1, &lse) != 0)
        goto end;
    lse.view.stride[3] = 0;
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = c->batch,
                           .q_len = c->len,
                           .kv_len = c->capacity,
                           .q = heed_as_const(q->view),
                           .k = heed_as_const(c->cache[0]),
                           .v = heed_as_const(c->cache[!c->values_are_keys]),
                           .out = out.view,
                           .q_lens = c->now,
                           .kv_lens = all,
                           .q_offsets = desc.position == HEED_POS_GIVEN ? c->there : NULL,
                           .q_starts = c->packed ? c->starts : NULL,
                           .block_table = c->page_len ? c->table : NULL,
                           .block_table_stride = c->page_len ? c->table_stride : 0,
                           .n_pages = c->page_len ? c->n_pages : 0,
                           .alibi_slope = c->features & HEED_HAS_ALIBI ? c->slope : NULL,
                           .sink = c->features & HEED_HAS_SINK ? c->sink : NULL};
    if (c->features & HEED_HAS_LSE)
        args.lse = lse.view;
    c->attended = 1;
    if (heed_attention(context, &desc, &args) != HEED_OK)
        fuzz_finding("heed_attention of a piece", heed_last_error());
    same_rows(c, &out, c->out, out_type, heads, c->v_dim, 1);
    if (c->features & HEED_HAS_LSE)
        same_rows(c, &lse, c->lse, HEED_F32, heads, 1, 1);
end:
    guard_unmap(&out.buffer);
    guard_unmap(&lse.buffer);
}

/* Chooses how many tokens of every sequence come next. Returns whether any were left. */
static int draw_piece(fuzz_cache *c, fuzz_bytes *bytes)
{
    const uint32_t size = c->most > 180 ? 300 : 1 + fuzz_below(bytes, 20), gaps = fuzz_byte(bytes);
    int left = 0;
    c->len = 0;
    c->packed = fuzz_byte(bytes) & 1;
    c->packed_rows = gaps & 3;
    for (int64_t b = 0; b < c->batch; b++) {
        const int32_t rest = c->tokens[b] - c->there[b];
        int32_t n = bytes->at < bytes->end ? (int32_t)fuzz_below(bytes, size + 1) : rest;
        n = n < rest ? n : rest;
        left |= rest > 0;
        c->now[b] = n;
        c->starts[b] = (int32_t)c->packed_rows;
        c->packed_rows += n + (gaps >> (2 + 2 * b) & 3);
        c->len = n > c->len ? n : c->len;
    }
    c->len += gaps >> 7;
    return left;
}

static void one_piece(fuzz_cache *c, fuzz_bytes *bytes, heed_context *context)
{
    const uint32_t heads = c->kv_heads * c->group;
    piece q = {.buffer = {0}}, k = {.buffer = {0}}, v = {.buffer = {0}};
    if (take_piece(c, bytes, c->q, c->q_type, heads, c->qk_dim, &q) == 0 &&
        take_piece(c, bytes, c->rows[0], c->type[0], c->kv_heads, c->qk_dim, &k) == 0 &&
        take_piece(c, bytes, c->rows[1], c->type[1], c->kv_heads, c->v_dim, &v) == 0) {
        if (c->rotary.style || fuzz_rarely(bytes, 3)) {
            turn_piece(c, bytes, &q, c->turned_q, c->q_type, heads);
            turn_piece(c, bytes, &k, c->turned_k, c->type[0], c->kv_heads);
        }
        guard_read_only(&k.buffer);
        guard_read_only(&v.buffer);
        const heed_kv_append_args args = append_args(c, &k, &v);
        spoil_append(c, &args, bytes);
        const fuzz_host host = fuzz_host_enter(bytes);
        heed_status st = heed_kv_append(&args);
        if (fuzz_host_read() != host)
            fuzz_finding("heed_kv_append", "changed the host's floating-point environment");
        fuzz_host_leave();
        if (st != HEED_OK)
            fuzz_finding("heed_kv_append", heed_last_error());
        judge_append(c, 0, c->turned_k);
        if (!c->values_are_keys)
            judge_append(c, 1, c->rows[1]);
        attend(c, bytes, context, &q);
    }
    guard_unmap(&q.buffer);
    guard_unmap(&k.buffer);
    guard_unmap(&v.buffer);
}

/* ---- the target ------------------------------------------------------------------------------ */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_bytes bytes = {data, data + size};
    fuzz_cache c;
    heed_context *context = fuzz_context(&bytes);
    if (fuzz_cache_build(&c, &bytes) == 0) {
        current = &c;
        const uint32_t heads = c.kv_heads * c.group;
        fuzz_cache_turn(&c, c.q, c.turned_q, c.q_type, heads);
        fuzz_cache_turn(&c, c.rows[0], c.turned_k, c.type[0], c.kv_heads);
        fuzz_cache_judge_rotary(&c, c.q, c.turned_q, c.q_type, heads);
        fuzz_cache_judge_rotary(&c, c.rows[0], c.turned_k, c.type[0], c.kv_heads);
        while (draw_piece(&c, &bytes)) {
            one_piece(&c, &bytes, context);
            for (int64_t b = 0; b < c.batch; b++)
                c.there[b] += c.now[b];
        }
        if (c.attended)
            fuzz_cache_at_once(&c, context);
        current = NULL;
    }
    fuzz_cache_destroy(&c);
    return 0;
}
