/* The fuzz target of attention layers.
 *
 * Valid    the input bytes choose a layer of the conformance kit. It succeeds in whatever
 *          floating-point environment the host has, with the results of float64. The same rows in
 *          other layouts (with y in the memory of the residual or of x, too), run in another way,
 *          have the same bits.
 * Spoilt   one mistake of the kit's table is made: the call is refused with the mistake's status
 *          and a message that names the argument; a write to an output or a cache would crash.
 *
 * A finding ends the process with abort().
 */
#include "fuzz.h"
#include "fuzz_view.h"

#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "layer_case.h"
#include "strides.h"
#include "ways.h"

static const layer_spec *current; /* for the report */

void fuzz_describe(FILE *out)
{
    const layer_spec *s = current;
    if (s)
        fprintf(out,
                "batch %u q_len %lld kv_len %lld capacity %lld, heads %u/%u dims %u %u, d_model %u "
                "d_kv %u, projections %u cache %u rows %u, bias %d out %d residual %d out_in %d, "
                "types x %u w %u mid %u kv %u y %u, features 0x%llx position %u, rotary %u of %u, "
                "positions %d, no new %d\n",
                s->batch, (long long)s->q_len, (long long)s->kv_len, (long long)s->capacity,
                s->q_heads, s->kv_heads, s->qk_dim, s->v_dim, s->d_model, s->d_kv, s->projections,
                s->cache, s->rows, s->bias, s->out, s->residual, s->out_in, s->x_type, s->w_type,
                s->mid_type, s->kv_type, s->y_type, (unsigned long long)s->features, s->position,
                s->rotary.dims, s->rotary.style, s->positions, s->no_new);
}

/* ---- a layer --------------------------------------------------------------------------------- */

static void choose_shape(layer_spec *s, fuzz_bytes *bytes)
{
    s->batch = fuzz_byte(bytes) & 1 ? 1 : 1 + fuzz_below(bytes, LAYER_BATCH);
    s->kv_heads = 1 + fuzz_below(bytes, 3);
    s->q_heads = s->kv_heads * (1 + fuzz_below(bytes, 3));
    s->qk_dim = 1 + (uint32_t)fuzz_length(bytes, 14, 70);
    s->v_dim = 1 + (uint32_t)fuzz_length(bytes, 14, 70);
    s->d_model = 1 + (uint32_t)fuzz_length(bytes, 40, 300);
    s->q_len = fuzz_rarely(bytes, 3) ? 1 : 1 + fuzz_length(bytes, 16, 70);
    s->projections = fuzz_below(bytes, LAYER_ONLY_Q + 1);
    s->cache = fuzz_below(bytes, LAYER_PAGES + 1);
    s->rows = fuzz_below(bytes, LAYER_PACKED_GAPS + 1);
    if (s->projections != LAYER_FUSED && fuzz_rarely(bytes, 3)) {
        s->d_kv = 1 + (uint32_t)fuzz_length(bytes, 40, 200);
        s->kv_len = 1 + fuzz_length(bytes, 20, 90);
        s->no_new = s->cache && fuzz_rarely(bytes, 4);
    }
    if (s->cache)
        s->capacity = (s->d_kv ? s->kv_len : s->q_len) + fuzz_length(bytes, 40, 200);
    s->spread = fuzz_rarely(bytes, 3) ? 1 << fuzz_below(bytes, 5) : 1;
    if (fuzz_rarely(bytes, 100)) { /* several blocks of keys */
        s->batch = s->kv_heads = 1;
        s->q_heads = 1 + (fuzz_byte(bytes) & 1);
        s->cache = s->cache == LAYER_PAGES ? LAYER_CONTIGUOUS : s->cache;
        s->q_len = 1 + fuzz_below(bytes, 400);
        s->kv_len = s->d_kv ? 1 + fuzz_below(bytes, 800) : s->kv_len;
        if (s->cache)
            s->capacity = (s->d_kv ? s->kv_len : s->q_len) + fuzz_below(bytes, 300);
    }
    s->bias = fuzz_byte(bytes) & 1;
    s->out_in = fuzz_byte(bytes) & 1;
    s->out = fuzz_rarely(bytes, 3) ? 0 : 1 + (int)fuzz_length(bytes, 40, 200);
    s->residual = s->out && fuzz_byte(bytes) & 1;
}

/* Makes the parts of a layer agree. */
static void make_consistent(layer_spec *s)
{
    const uint32_t inner = s->d_kv ? s->d_kv : s->d_model;
    switch (s->projections) {
    case LAYER_NONE:
    case LAYER_ONLY_Q: /* the input itself is k and v */
        s->v_dim = s->qk_dim;
        if (s->projections == LAYER_NONE && !s->d_kv)
            s->q_heads = s->kv_heads;
        if (s->projections == LAYER_NONE)
            s->d_model = s->q_heads * s->qk_dim;
        if (s->d_kv)
            s->d_kv = s->kv_heads * s->qk_dim;
        else
            s->d_model = s->kv_heads * s->qk_dim;
        break;
    case LAYER_SHARED:
        s->d_model = s->q_heads * (1 + inner % 9);
        if (s->d_kv)
            s->d_kv = s->kv_heads * (1 + inner % 7);
        break;
    default:
        break;
    }
}

static void choose_types(layer_spec *s, fuzz_bytes *bytes)
{
    s->x_type = s->w_type = s->mid_type = s->kv_type = s->y_type = fuzz_type(bytes);
    if (fuzz_rarely(bytes, 2)) {
        s->w_type = fuzz_type(bytes);
        s->mid_type = fuzz_type(bytes);
        s->kv_type = fuzz_type(bytes);
        s->y_type = fuzz_type(bytes);
    }
    if (!s->projections)
        s->mid_type = s->x_type;
    if (s->cache)
        return;
    if (s->projections == LAYER_NONE || s->projections == LAYER_ONLY_Q)
        s->kv_type = s->x_type;
    else if (s->projections == LAYER_FUSED)
        s->kv_type = s->mid_type;
}

static void choose_attention(layer_spec *s, fuzz_bytes *bytes)
{
    const uint32_t some = fuzz_byte(bytes);
    static const uint64_t feature[] = {HEED_HAS_CAUSAL, HEED_HAS_ALIBI, HEED_HAS_SINK,
                                       HEED_HAS_LSE,    HEED_HAS_MASK,  HEED_HAS_WEIGHTS};
    for (int i = 0; i < 6; i++)
        if (some >> i & 1 && fuzz_byte(bytes) & 1)
            s->features |= feature[i];
    if (fuzz_rarely(bytes, 4))
        s->features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    if (s->features & (HEED_HAS_CAUSAL | HEED_HAS_ALIBI))
        s->position = fuzz_byte(bytes) & 1 ? HEED_POS_BOTTOM_RIGHT : HEED_POS_TOP_LEFT;
    if (s->qk_dim > 1 && fuzz_byte(bytes) & 1) {
        s->rotary.style = HEED_ROTARY_HALF + (fuzz_byte(bytes) & 1);
        s->rotary.dims = 2 + 2 * fuzz_below(bytes, s->qk_dim / 2);
        s->positions = fuzz_rarely(bytes, 3);
    }
}

static layer_spec choose(fuzz_bytes *bytes)
{
    layer_spec s = {.batch = 0};
    choose_shape(&s, bytes);
    make_consistent(&s);
    choose_types(&s, bytes);
    choose_attention(&s, bytes);
    s.seed = fuzz_word(bytes);
    return s;
}

/* ---- ways to run ----------------------------------------------------------------------------- */

enum { MOST_WORKSPACE = 64 << 20, MOST_GARBAGE = 1 << 16 };

static heed_status run(const heed_mha *mha, heed_mha_args args, fuzz_bytes *bytes)
{
    static const int ways[] = {KIT_BY_WORKSPACE, KIT_BY_CONTEXT, KIT_BY_PARTS, KIT_BY_ONE_PART,
                               KIT_BY_EXECUTOR};
    const int way = ways[fuzz_below(bytes, 5)], garbage = (int)fuzz_byte(bytes);
    const uint32_t n = 1 + fuzz_below(bytes, 5);
    heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = n, .parallel_for = kit_backwards};
    static guard_buffer memory; /* kept, since fresh pages would cost more than the run itself */
    args.executor = way == KIT_BY_EXECUTOR ? &executor : NULL;
    if (!memory.map && guard_map(&memory, MOST_WORKSPACE, GUARD_HIGH, 0, garbage) != 0)
        fuzz_finding("memory", "there is none");
    const size_t room = heed_mha_workspace_bytes(mha, n), whole = (room + 63) / 64 * 64;
    if (way == KIT_BY_CONTEXT || room == 0 || whole > MOST_WORKSPACE)
        return heed_mha_run(mha, &args, NULL, 0);
    unsigned char *workspace = memory.data + MOST_WORKSPACE - whole;
    memset(workspace, garbage, whole < MOST_GARBAGE ? whole : MOST_GARBAGE);
    if (way == KIT_BY_WORKSPACE || way == KIT_BY_EXECUTOR)
        return heed_mha_run(mha, &args, workspace, room);
    const heed_status st = heed_mha_begin(mha, &args, n, workspace, room);
    return st == HEED_OK ? kit_run_parts(way, n, workspace, heed_run_part) : st;
}

static void run_in_host(const layer *l, const heed_mha_args *args, fuzz_bytes *bytes,
                        const char *what)
{
    const fuzz_host host = fuzz_host_enter(bytes);
    heed_status st = run(l->mha, *args, bytes);
    if (fuzz_host_read() != host)
        fuzz_finding(what, "changed the host's floating-point environment");
    fuzz_host_leave();
    if (st != HEED_OK)
        fuzz_finding(what, heed_last_error());
}

/* ---- the same rows in other places ----------------------------------------------------------- */

/* Rows [batch, row, column] of the caller: their view, and which of its strides belongs to which
 * axis. */
typedef struct rows {
    heed_const_view view;
    char *to;        /* the same memory, writable; NULL: it belongs to the layer's case */
    int row, column; /* their axes; the batch is axis 0 */
    uint32_t bytes;
    int64_t columns;
    const int32_t *lens, *starts;
} rows;

/* The offset of an element from the view's data, in bytes. */
static int64_t place(const rows *r, int64_t b, int64_t i, int64_t c)
{
    return ((r->starts ? 0 : b * r->view.stride[0]) +
            (r->starts ? r->starts[b] + i : i) * r->view.stride[r->row] +
            c * r->view.stride[r->column]) *
           r->bytes;
}

static const char *element(const rows *r, int64_t b, int64_t i, int64_t c)
{
    return (const char *)r->view.data + place(r, b, i, c);
}

static rows rows_of(const layer *l, int which)
{
    const layer_spec *s = &l->spec;
    const heed_mha_args *a = &l->args;
    const int64_t y_columns = s->out ? s->out : (int64_t)s->q_heads * s->v_dim;
    const int is_kv = which == LAYER_XKV, is_lse = which == LAYER_LSE;
    return (rows){
        .view = which == LAYER_X   ? a->x_q
                : is_kv            ? a->x_kv
                : which == LAYER_Y ? heed_as_const(a->y)
                : is_lse           ? heed_as_const(a->lse)
                                   : a->residual,
        .row = is_lse ? 2 : 1,
        .column = is_lse ? 1 : 2,
        .bytes = is_lse ? 4 : kit_bytes_of(which == LAYER_X || is_kv ? s->x_type : s->y_type),
        .columns = which == LAYER_X ? s->d_model
                   : is_kv          ? s->d_kv
                   : is_lse         ? s->q_heads
                                    : y_columns,
        .lens = is_kv ? l->kv_lens : l->q_lens,
        .starts = is_kv ? a->kv_starts : a->q_starts,
    };
}

static void copy_rows(const layer *l, const rows *from, const rows *to)
{
    for (int64_t b = 0; b < l->spec.batch; b++)
        for (int64_t i = 0; i < from->lens[b]; i++)
            for (int64_t c = 0; c < from->columns; c++)
                memcpy(to->to + place(to, b, i, c), element(from, b, i, c), from->bytes);
}

static int same_rows(const layer *l, const rows *x, const rows *y)
{
    for (int64_t b = 0; b < l->spec.batch; b++)
        for (int64_t i = 0; i < x->lens[b]; i++)
            for (int64_t c = 0; c < x->columns; c++)
                if (memcmp(element(x, b, i, c), element(y, b, i, c), x->bytes) != 0)
                    return 0;
    return 1;
}

/* Makes memory of another layout for such rows. Returns 0, or -1 when memory runs out. */
static int elsewhere(const layer *l, fuzz_bytes *bytes, const rows *like, guard_buffer *buffer,
                     rows *out)
{
    int64_t dim[3] = {l->spec.batch, 0, 0}, most = 0, first;
    *out = *like;
    for (int64_t b = 0; b < l->spec.batch; b++) {
        const int64_t end = like->lens[b] + (like->starts ? like->starts[b] : 0);
        most = end > most ? end : most;
    }
    if (like->starts)
        dim[0] = 1;
    dim[like->row] = like->starts               ? most
                     : like->lens == l->kv_lens ? l->spec.kv_len
                                                : l->spec.q_len;
    dim[like->column] = like->columns;
    const int64_t n = kit_draw_strides(fuzz_word(bytes), 3, dim, 0, out->view.stride, &first);
    if (guard_map(buffer, (size_t)n * like->bytes, fuzz_byte(bytes) & 1,
                  fuzz_rarely(bytes, 4) ? fuzz_below(bytes, 7) : 0, KIT_CANARY) != 0)
        return -1;
    out->to = (char *)buffer->data + (size_t)first * like->bytes;
    out->view.data = out->to;
    return 0;
}

/* Whether all bytes other than the elements of the rows are unchanged. */
static int only_rows_written(const layer *l, const rows *r, const guard_buffer *buffer)
{
    int clean = guard_slack_is(buffer, KIT_CANARY);
    unsigned char *rest = malloc(buffer->bytes + 1);
    if (!rest)
        return 1;
    memcpy(rest, buffer->data, buffer->bytes);
    for (int64_t b = 0; b < l->spec.batch; b++)
        for (int64_t i = 0; i < r->lens[b]; i++)
            for (int64_t c = 0; c < r->columns; c++)
                memset(rest + (element(r, b, i, c) - (char *)buffer->data), KIT_CANARY, r->bytes);
    for (size_t at = 0; at < buffer->bytes; at++)
        clean &= rest[at] == KIT_CANARY;
    free(rest);
    return clean;
}

/* Compares the rows of a second run, at is[] in buffer[], with those of the first, at was[]. */
static void compare_elsewhere(const layer *l, const rows was[5], const rows is[5],
                              const guard_buffer buffer[5], const unsigned char *weights,
                              unsigned char *const cache[2])
{
    const layer_spec *s = &l->spec;
    for (int n = 3; n < 5; n++) {
        if (!was[n].view.data)
            continue;
        if (!only_rows_written(l, &is[n], &buffer[n]))
            fuzz_finding("elsewhere", "wrote outside the rows of y or lse");
        if (!same_rows(l, &was[n], &is[n]))
            fuzz_finding("elsewhere", n == 3 ? "other bits of y" : "other bits of lse");
    }
    if (l->args.weights.data &&
        memcmp(weights, l->buffer[LAYER_WEIGHTS].data, l->buffer[LAYER_WEIGHTS].bytes) != 0)
        fuzz_finding("elsewhere", "other bits of the weights");
    for (int n = 0; n < 2 && s->cache; n++)
        if (memcmp(cache[n], l->buffer[LAYER_K + n].data, l->buffer[LAYER_K + n].bytes) != 0)
            fuzz_finding("elsewhere", "another cache");
}

static void again_elsewhere(layer *l, fuzz_bytes *bytes)
{
    static const int which[] = {LAYER_X, LAYER_XKV, LAYER_RESIDUAL, LAYER_Y, LAYER_LSE};
    rows was[5], is[5];
    guard_buffer buffer[5];
    heed_mha_args args = l->args;
    const fuzz_view view[] = {FUZZ_IN(args.x_q), FUZZ_IN(args.x_kv), FUZZ_IN(args.residual),
                              FUZZ_OUT(args.y), FUZZ_OUT(args.lse)};
    const layer_spec *s = &l->spec;
    int ready = 1;
    memset(buffer, 0, sizeof buffer);
    for (int n = 0; n < 5; n++) {
        was[n] = is[n] = rows_of(l, which[n]);
        if (!was[n].view.data)
            continue;
        ready &= elsewhere(l, bytes, &was[n], &buffer[n], &is[n]) == 0;
        if (ready && n < 3)
            copy_rows(l, &was[n], &is[n]);
        fuzz_view_point(view[n], is[n].to);
        memcpy(view[n].stride, is[n].view.stride, sizeof is[n].view.stride);
    }
    if (ready && s->out && fuzz_rarely(bytes, 3)) { /* y replaces an input */
        if (s->residual && fuzz_byte(bytes) & 1)
            args.residual = heed_as_const(args.y), copy_rows(l, &was[2], &is[3]);
        else if (s->x_type == s->y_type && s->d_model == (uint32_t)s->out)
            args.x_q = heed_as_const(args.y), copy_rows(l, &was[0], &is[3]);
    }
    unsigned char *weights = malloc(l->buffer[LAYER_WEIGHTS].bytes + 1), *cache[2] = {NULL, NULL};
    for (int n = 0; n < 2 && s->cache; n++) {
        const guard_buffer *was_cache = &l->buffer[LAYER_K + n];
        cache[n] = malloc(was_cache->bytes + 1);
        ready &= cache[n] != NULL;
        if (cache[n]) {
            memcpy(cache[n], was_cache->data, was_cache->bytes);
            memcpy(was_cache->data, l->cache_before[n], was_cache->bytes);
        }
    }
    if (ready && weights) {
        if (args.weights.data)
            memcpy(weights, l->buffer[LAYER_WEIGHTS].data, l->buffer[LAYER_WEIGHTS].bytes);
        run_in_host(l, &args, bytes, "elsewhere");
        compare_elsewhere(l, was, is, buffer, weights, cache);
    }
    free(weights);
    free(cache[0]);
    free(cache[1]);
    for (int n = 0; n < 5; n++)
        guard_unmap(&buffer[n]);
}

/* ---- the target ------------------------------------------------------------------------------ */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_bytes bytes = {data, data + size};
    kit_outcome outcome = {.verdict = KIT_PASSED};
    layer l;
    const int spoil = fuzz_rarely(&bytes, 4);
    heed_context *context = fuzz_context(&bytes);
    const layer_spec spec = choose(&bytes);
    current = &spec;
    if (layer_build(context, &l, &spec, fuzz_byte(&bytes) & 1, &outcome) == 0) {
        if (spoil) {
            const uint32_t which = fuzz_below(&bytes, (uint32_t)layer_mistakes());
            layer_refuses(context, &l, 0, which, fuzz_word(&bytes), &outcome);
        } else {
            run_in_host(&l, &l.args, &bytes, "a run");
            layer_check(&l, &outcome);
            if (outcome.verdict == KIT_PASSED)
                again_elsewhere(&l, &bytes);
        }
    }
    fuzz_judge(&outcome, context);
    layer_free(&l);
    current = NULL;
    return 0;
}
