/* What a test problem's memory holds: poison, and values where some row reaches. See problem.h. */
#include "decode.h"
#include "encode.h"
#include "problem.h"
#include "random.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lengths, offsets, slopes, sinks --------------------------------------------------------- */

static int32_t some_length(int64_t width, uint32_t b)
{
    int64_t length = b % 4 == 0   ? width
                     : b % 4 == 1 ? width * 2 / 3 - 1
                     : b % 4 == 2 ? 1
                                  : width / 3;
    return (int32_t)(length < 1 ? width < 1 ? 0 : 1 : length);
}

static void choose_sequence(const kit_spec *s, uint32_t b, kit_sequence *seq)
{
    if (s->lens == KIT_LENS_GIVEN) {
        *seq = s->sequence[b];
        return;
    }
    seq->id = b + 1;
    seq->first_row = 0;
    seq->q_len = (int32_t)s->q_len;
    seq->kv_len = (int32_t)s->kv_len;
    if (s->lens == KIT_LENS_KV || s->lens == KIT_LENS_BOTH)
        seq->kv_len = some_length(s->kv_len, b + (s->batch == 1));
    if (s->lens == KIT_LENS_Q || s->lens == KIT_LENS_BOTH)
        seq->q_len = some_length(s->q_len, b + 1);
    if (s->lens == KIT_LENS_ZEROS) {
        seq->kv_len = b % 2 == 0 ? 0 : seq->kv_len;
        seq->q_len = b % 4 == 1 || b % 4 == 2 ? 0 : seq->q_len;
    }
    uint32_t kind = s->offsets;
    if (kind == KIT_OFFSET_MIXED)
        kind = b % 4 == 0 ? KIT_OFFSET_END : b % 4 == 1 ? KIT_OFFSET_NEGATIVE : KIT_OFFSET_SEEN;
    seq->offset = kind == KIT_OFFSET_END        ? seq->kv_len - seq->q_len
                  : kind == KIT_OFFSET_NEGATIVE ? -(seq->q_len / 2 + 1)
                  : kind == KIT_OFFSET_SEEN     ? seq->kv_len + (b % 4 == 3 ? 7 : -2)
                  : b % 2                       ? INT32_MIN
                                                : INT32_MAX;
}

void kit_choose(kit_problem *p)
{
    const kit_spec *s = &p->spec;
    for (uint32_t b = 0; b < s->batch; b++) {
        kit_sequence *seq = &p->sequence[b];
        choose_sequence(s, b, seq);
        p->q_lens[b] = seq->q_len;
        p->kv_lens[b] = seq->kv_len;
        p->q_offsets[b] = seq->offset;
        p->offset[b] = s->position == HEED_POS_GIVEN          ? seq->offset
                       : s->position == HEED_POS_BOTTOM_RIGHT ? seq->kv_len - seq->q_len
                                                              : 0;
    }
    for (uint32_t h = 0; h < s->q_heads; h++) {
        p->alibi_slope[h] = (float)exp2(-8.0 * (h + 1) / s->q_heads);
        /* -inf in the bias masks with a slope of 0 and with a negative one, too. */
        p->bias_slope[h] = h == 1 ? 0 : h == 2 ? -1 : 0.5F + 0.25F * (float)h;
        double sink = 2 * kit_normal(kit_hash(kit_hash(s->seed, 77), h));
        int off = s->sinks == KIT_SINK_OFF || (s->sinks == KIT_SINK_SOME_OFF && h % 2 == 0);
        p->sink[h] = off                                           ? -INFINITY
                     : s->sinks == KIT_SINK_HUGE                   ? 1e4F
                     : s->sinks == KIT_SINK_INFINITE && h % 2 == 0 ? INFINITY
                                                                   : (float)sink;
    }
}

/* ---- mask and bias --------------------------------------------------------------------------- */

/* A token tree, each token a child of a random earlier one: who is on whose path to the root. */
static int on_path(uint64_t seed, int64_t j, int64_t i)
{
    while (i > j)
        i = (int64_t)(kit_hash(seed, i) % (uint64_t)i);
    return i == j;
}

static int mask_value(const kit_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const kit_spec *s = &p->spec;
    uint32_t form = s->mask_form;
    int64_t row = form & 4 ? 0 : p->sequence[b].first_row + i, key = form & 8 ? 0 : j;
    uint64_t own = kit_hash(kit_hash(s->seed, 55), form & 1 ? 0 : p->sequence[b].id);
    own = kit_hash(own, form & 2 ? 0 : h);
    uint64_t bits = kit_hash(kit_hash(own, row), key);
    switch (s->mask_kind) {
    case KIT_MASK_ALL:
        return 1;
    case KIT_MASK_NONE:
        return 0;
    case KIT_MASK_LISTS:
        return kit_is_listed(p, b, h, i, j);
    case KIT_MASK_EMPTY_ROWS:
        return row % 3 != 1 && bits % 3 != 0;
    case KIT_MASK_BLOCKS:
        return (int)(kit_hash(kit_hash(own, row / 16), key / 64) & 1);
    case KIT_MASK_FIRST_KEYS: /* whatever comes first is hidden: a running maximum starts late */
        return form & 8 ? 1 : key >= (row * 7) % 41;
    case KIT_MASK_TREE:
        return on_path(own, key, row);
    case KIT_MASK_ISLANDS: /* one key of 512 is hidden from all: its k, v are poison */
        if (key % 512 == (int64_t)(kit_hash(s->seed, key / 512) % (key / 512 % 4 == 3 ? 512 : 128)))
            return 0;
        return kit_hash(kit_hash(own, row / 3), key / 128) % 4 != 0;
    default:
        return bits % 3 != 0;
    }
}

static double bias_value(const kit_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const kit_spec *s = &p->spec;
    uint32_t form = s->bias_form;
    int64_t row = form & 4 ? 0 : p->sequence[b].first_row + i;
    uint64_t bits = kit_hash(kit_hash(s->seed, 66), form & 1 ? 0 : p->sequence[b].id);
    bits = kit_hash(kit_hash(kit_hash(bits, form & 2 ? 0 : h), row), form & 8 ? 0 : j);
    if (s->values == KIT_NAN_BIAS && bits % 31 == 0)
        return (double)NAN;
    if ((s->bias_kind == KIT_BIAS_INF && bits % 3 == 0) ||
        (s->bias_kind == KIT_BIAS_EMPTY_ROWS && row % 3 == 1))
        return -(double)INFINITY;
    if (s->bias_kind == KIT_BIAS_FILLER && bits % 3 == 0)
        return -10000;
    if (s->bias_kind == KIT_BIAS_LEAST && (bits % 3 == 0 || row % 3 == 1))
        return s->bias_type == HEED_F32   ? -(double)FLT_MAX
               : s->bias_type == HEED_F16 ? -65504
                                          : -0x1.FEp127;
    return 2 * kit_normal(kit_mix(bits));
}

/* ---- q, k, v --------------------------------------------------------------------------------- */

/* Scores rise at the boundaries of blocks of any size that divides the period, beside them or in
 * the middle. There are n_series different series of such rises; half of the rows (or one of
 * `lone`) see one of them each, the others none. */
enum { RISES = 8 };

static int64_t n_series(const kit_spec *s)
{
    return s->qk_dim < 64 ? s->qk_dim / 4 : 16;
}

/* The key of period n at which the level of a series changes. */
static int64_t rise_at(const kit_spec *s, int64_t series, int64_t n)
{
    const int64_t period = s->period;
    uint64_t bits = kit_hash(kit_hash(kit_hash(s->seed, 99), series), n);
    const int64_t within[] = {0,          0,          1,
                              period / 2, period - 1, (int64_t)((bits >> 8) % (uint64_t)period)};
    return n * period + within[bits % 6];
}

/* What a key adds to a row's score, in multiples of `rise`. */
static double level(const kit_spec *s, int64_t series, int64_t key)
{
    const int64_t at = key / s->period;
    const int64_t where = rise_at(s, series, at), n = at + (key >= where);
    switch (s->values) {
    case KIT_STEPS: /* the highest level is 0, where scores are small and known well */
        return (double)(n % (RISES + 1) - RISES);
    case KIT_DROPS:
        return -(double)(n % (RISES + 1));
    case KIT_SAW:
        return (double)(n * 5 % RISES - (RISES - 1));
    case KIT_ONCE:
        if (at != series / 2 % (RISES / 2) + 1)
            return 0;
        return series % 2 ? 4 * (key % s->period == s->period / 2) : key % s->period == 17;
    default: { /* spikes; not in every period, so that some rows meet their first late */
        uint64_t draw = kit_hash(kit_hash(kit_hash(s->seed, 98), series), at);
        return key == where && draw % 3 == 0 ? (double)(1 << (draw >> 8) % 3) : 0;
    }
    }
}

/* Dim d of k holds series d, and a row sees that series if dim d of its q is not 0. */
static double rising(const kit_spec *s, int which, int64_t row, int64_t d, uint64_t stream)
{
    if (which == KIT_Q) {
        uint64_t kind = kit_mix(stream ^ 7);
        if (kind % (s->lone ? s->lone : 2) != 0 || (int64_t)((kind >> 32) % 64) % n_series(s) != d)
            return 0;
        return kind >> 60 == 0 ? -8 : 8; /* a few see it upside down */
    }
    double scale = s->features & HEED_HAS_SCALE ? (double)s->scale : 1 / sqrt(s->qk_dim);
    return level(s, d, row) * (double)s->rise * 0.6931471805599453 / (8 * scale);
}

static double any_number(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return (double)x;
}

/* Scores beyond the range of f32: of some keys or all, below it or above. */
static double overflowing(const kit_spec *s, int which, int64_t row, double x, double u)
{
    if (which == KIT_V)
        return x;
    if (which == KIT_Q)
        return 1e20 * (0.5 + u);
    if (s->values == KIT_OVERFLOW_HIGH)
        return row % 13 == 5 ? 1e20 * (0.5 + u) : 1e-20 * x;
    const int below = s->values == KIT_OVERFLOW_ALL ||
                      (s->values == KIT_OVERFLOW_LONG ? row < 1100 : row % 3 == 0);
    return below ? -1e20 * (0.5 + u) : 1e-20 * x;
}

/* Dim 0 of q is 8, so that with 40 dims a score contains 8 / sqrt(40) times dim 0 of k, which
 * depends on the key's row. */
static double slanting(const kit_spec *s, int which, int64_t row, int64_t d, double x,
                       uint64_t stream)
{
    if (which == KIT_V || d != 0)
        return x;
    if (which == KIT_Q)
        return 8;
    if (s->values == KIT_APART)
        return 8000.0 * (int)(stream % 5) - 16000;
    return (s->values == KIT_CREEPING ? 0.025
            : s->values == KIT_RISING ? 0.25
                                      : -0.25) *
           (double)row;
}

static double value(const kit_spec *s, int which, uint32_t type, int64_t row, int64_t d,
                    int64_t dim, uint64_t stream)
{
    const uint64_t bits = kit_mix(stream + (uint64_t)d);
    const double x = kit_normal(bits);
    const double u = kit_uniform(kit_mix(bits));
    int is_v = which == KIT_V, here = d == (int64_t)(stream >> 32) % dim; /* one dim of a row */
    if (s->odd && row % 300 == 211 && here) {
        if (is_v && s->odd >= KIT_ODD_NAN_V)
            return s->odd == KIT_ODD_NAN_V ? (double)NAN : (double)INFINITY;
        if (which == KIT_K && s->odd < KIT_ODD_NAN_V)
            return s->odd == KIT_ODD_NAN_K ? (double)NAN : (double)INFINITY;
    }
    switch (s->values) {
    case KIT_HUGE:
        return is_v ? x : 2000 * x;
    case KIT_OVERFLOW_LOW:
    case KIT_OVERFLOW_ALL:
    case KIT_OVERFLOW_LONG:
    case KIT_OVERFLOW_HIGH:
        return overflowing(s, which, row, x, u);
    case KIT_DENORMAL:
        return bits & 1 ? x * (type == HEED_F16 ? 0x1p-20 : 1e-39) : x;
    case KIT_TINY_V:
        return is_v ? x * (type == HEED_F16 ? 0x1p-16 : 1e-39) : x;
    case KIT_MEAN_ONE:
        return is_v ? 1 + 0.1 * x : x;
    case KIT_NAN_Q:
        return which == KIT_Q && row % 5 == 2 && here ? (double)NAN : x;
    case KIT_NAN_K:
        return which == KIT_K && row % 23 == 3 && here ? (double)NAN : x;
    case KIT_NAN_V:
        return is_v && row % 23 == 3 && here ? (double)NAN : x;
    case KIT_INF_K:
        return which == KIT_K && row % 23 == 3 && here ? (double)INFINITY : x;
    case KIT_INF_V:
        return is_v && row % 23 == 3 && here ? (double)INFINITY : x;
    case KIT_BIG_V:
        return is_v ? 30000 * (1 + u) : x;
    case KIT_CREEPING:
    case KIT_RISING:
    case KIT_FALLING:
    case KIT_APART:
        return slanting(s, which, row, d, x, stream);
    case KIT_SPREAD:
        return which == KIT_Q ? (double)s->spread * x : x;
    case KIT_STEPS:
    case KIT_DROPS:
    case KIT_SAW:
    case KIT_SPIKES:
    case KIT_ONCE:
        return is_v || d >= n_series(s) ? x : rising(s, which, row, d, stream);
    case KIT_SIGNED_ZEROS:
        return is_v && bits & 2 ? x : bits & 1 ? -0.0 : 0.0;
    case KIT_WILD:
        return kit_mix(bits) % 16 == 0 ? any_number(kit_mix(bits) >> 32) : x;
    default:
        return x;
    }
}

/* Whether value() is a normal number everywhere, as in most cases: it does not have to be called. */
static int is_normal(const kit_spec *s)
{
    return s->values == KIT_NORMAL && !s->odd;
}

static void fill_codes(kit_problem *p, int which, int64_t b, int64_t h, int64_t i, int64_t row,
                       uint64_t stream)
{
    const kit_tensor *t = &p->tensor[which];
    const int drawn = is_normal(&p->spec); /* kit_fill_block draws codes */
    double x[32] = {0};
    for (int64_t n = 0; n < t->dim[3]; n++) {
        for (int64_t d = 0; d < t->block_len && !drawn; d++)
            x[d] = value(&p->spec, which, HEED_F32, row, n * t->block_len + d,
                         t->dim[3] * t->block_len, stream);
        kit_fill_block(p, which, b, h, i, n, x, kit_hash(stream, -1 - n));
    }
}

static void fill_row(kit_problem *p, int which, int64_t b, int64_t h, int64_t i)
{
    const kit_spec *s = &p->spec;
    const kit_tensor *t = &p->tensor[which];
    int64_t id = p->sequence[b].id, head = h,
            row = which == KIT_Q ? p->sequence[b].first_row + i : i;
    if (s->layout == KIT_SHARED && which == KIT_Q)
        id = 0;
    if (s->layout == KIT_SHARED && which != KIT_Q)
        head = 0;
    int same = (s->values == KIT_EQUAL_KEYS && which == KIT_K) ||
               (s->values == KIT_CONSTANT_V && which == KIT_V);
    if (s->storage >= KIT_PAGED && s->pages == KIT_PAGES_SHARED && which != KIT_Q)
        id = 0;
    uint64_t stream = kit_hash(kit_hash(kit_hash(s->seed, which + 1), id), head);
    stream = kit_hash(stream, same ? 0 : row);
    if (heed_is_code(t->type)) {
        fill_codes(p, which, b, h, i, row, stream);
        return;
    }
    const int normal = is_normal(s);
    const int64_t first = kit_at(t, b, h, i, 0) / t->bytes;
    for (int64_t d = 0; d < t->dim[3]; d++)
        kit_encode(t->type, p->buffer[t->buffer].data, first + d * t->stride[3],
                   normal ? kit_normal(kit_mix(stream + (uint64_t)d))
                          : value(s, which, t->type, row, d, t->dim[3], stream));
}

static void poison(guard_buffer *buffer, uint32_t type, uint32_t kind, uint64_t seed)
{
    const int nan = kind == KIT_POISON_NAN;
    const int noise = kind == KIT_POISON_NOISE || type == HEED_DTYPE_NONE;
    uint64_t word = type == HEED_F32    ? nan ? 0x7fc000017fc00001 : 0xff8000007f800000
                    : type == HEED_BF16 ? nan ? 0x7fc17fc17fc17fc1 : 0xff807f80ff807f80
                                        : (nan ? 0x7e017e017e017e01 : 0xfc007c00fc007c00);
    for (size_t at = 0; at < buffer->bytes; at += 8) {
        const size_t left = buffer->bytes - at;
        if (noise)
            word = kit_hash(seed, (int64_t)at);
        if (left >= 8)
            memcpy(buffer->data + at, &word, 8);
        else
            memcpy(buffer->data + at, &word, left);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Writes the mask and bias of one row where its range reaches, and marks the keys whose k and v it
 * looks at. Returns whether there is one. */
static int fill_pairs(kit_problem *p, int64_t b, int64_t h, int64_t i, unsigned char *keys)
{
    const kit_spec *s = &p->spec;
    const kit_tensor *mask = &p->tensor[KIT_MASK], *bias = &p->tensor[KIT_BIAS];
    int64_t first, end;
    const int64_t from = p->mask_from[b];
    int whatever = (s->features & HEED_HAS_SCORES) && s->scores_stage != HEED_SCORES_BIASED,
        any = 0;
    kit_row_reach(p, b, i, &first, &end);
    if (!mask->bytes && !bias->bytes && !s->lists) { /* as in most cases */
        for (int64_t j = first; j < end; j++)
            keys[j] = 1;
        return first < end;
    }
    for (int64_t j = first; j < end; j++) {
        const int listed = kit_is_listed(p, b, h, i, j);
        int visible = !mask->bytes || j < from || mask_value(p, b, h, i, j);
        if (mask->bytes && j >= from) {
            static const unsigned char yes[4] = {1, 2, 0x80, 0xff};
            unsigned char byte = visible ? yes[(j + i) & 3] : 0;
            if (s->mask_form) /* one byte for many pairs: the same for all */
                byte = visible ? 0x40 : 0;
            p->buffer[KIT_MASK].data[kit_at(mask, b, h, i, j - from)] = byte;
        }
        if (bias->bytes && visible && j >= from) {
            double x = bias_value(p, b, h, i, j);
            kit_encode(bias->type, p->buffer[KIT_BIAS].data,
                       kit_at(bias, b, h, i, j - from) / bias->bytes, x);
            visible = x != -(double)INFINITY;
        }
        if (listed && (visible || whatever))
            keys[j] = 1, any = 1;
    }
    return any;
}

void kit_fill(kit_problem *p)
{
    const kit_spec *s = &p->spec;
    int64_t group = s->q_heads / s->kv_heads;
    unsigned char *keys = malloc((size_t)s->kv_len + 1);
    for (int t = KIT_Q; t <= KIT_V_ZERO; t++) {
        if (t == KIT_OUT || !p->tensor[t].bytes || p->tensor[t].buffer != (uint32_t)t)
            continue;
        /* From noise in k some of the hidden raw scores that RAW asks for would overflow. */
        int exact = (s->features & HEED_HAS_SCORES) != 0;
        const int header =
            (t == KIT_K || t == KIT_V) && kit_scaling_of(s, t == KIT_V).kind == KIT_SCALES_IN_LINE;
        poison(&p->buffer[t], header ? HEED_F32 : p->tensor[t].type,
               exact ? KIT_POISON_NAN : s->poison, kit_hash(s->seed, 88 + t));
    }
    for (int64_t b = 0; keys && b < s->batch; b++) {
        for (int64_t g = 0; g < s->kv_heads; g++) {
            memset(keys, 0, (size_t)s->kv_len + 1);
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                for (int64_t i = 0; i < p->q_lens[b]; i++)
                    if (fill_pairs(p, b, h, i, keys))
                        fill_row(p, KIT_Q, b, h, i);
            for (int64_t j = 0; j < p->kv_lens[b]; j++) {
                if (!keys[j])
                    continue;
                kit_fill_scales(p, 0, b, g, j); /* codes depend on them */
                kit_fill_scales(p, 1, b, g, j);
                fill_row(p, KIT_K, b, g, j);
                if (s->layout != KIT_V_IN_K)
                    fill_row(p, KIT_V, b, g, j);
            }
        }
    }
    free(keys);
}
