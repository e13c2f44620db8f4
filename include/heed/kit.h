/* Heed: helpers for backends, all static inline, so that a plugin resolves no symbol of libheed.
 * Included by backend.h. What rounds or computes here does so in the mode in which core calls
 * kernels: to nearest, and flushing as heed_tiling.flush or heed_linear_tiling.flush says. */
#ifndef HEED_KIT_H
#define HEED_KIT_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "formats.h"

HEED_BEGIN_C

#if defined(__GNUC__)
#define HEED_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HEED_PRINTF(fmt, args)
#endif

/* ---- reasons ---------------------------------------------------------------------------------- */

/** Writes the reason of a refusal and returns HEED_ERR_UNSUPPORTED. why may be NULL. */
HEED_PRINTF(2, 3) static inline heed_status heed_refuse(heed_error *why, const char *format, ...)
{
    if (why) {
        va_list list;
        va_start(list, format);
        vsnprintf(why->text, sizeof why->text, format, list);
        va_end(list);
    }
    return HEED_ERR_UNSUPPORTED;
}

/* ---- tiles ------------------------------------------------------------------------------------ */

/** The keys of the tile inside row i's causal range and window: [*first, *end), empty if *first >=
 * *end. i is the row in its sequence, not in the tile. */
static inline void heed_row_keys(const heed_tile *tile, int64_t i, int64_t *first, int64_t *end)
{
    int64_t position = i + tile->q_offset;
    int64_t low = position - tile->window_left, high = position + tile->window_right + 1;
    *first = low > tile->k_first ? low : tile->k_first;
    *end = high < tile->k_end ? high : tile->k_end;
}

/** Does the tile have ranges or key blocks? */
static inline int heed_has_lists(const heed_tile *tile)
{
    return tile->ranges.data || tile->key_blocks.data;
}

/** Range n of row i: two numbers, begin and end. */
static inline const int32_t *heed_range_at(const heed_tile *tile, int64_t head, int64_t i,
                                           int64_t n)
{
    const heed_rows *r = &tile->ranges;
    return (const int32_t *)r->data +
           2 * (head * r->head_stride + i * r->row_stride + n * r->dim_stride);
}

/** Moves [*first, *end) to the next keys in it that key blocks let row i see: all that follow each
 * other without a gap. Returns 0 if there are none. */
static inline int heed_next_block_keys(const heed_problem *problem, const heed_tile *tile,
                                       int64_t head, int64_t i, int64_t *first, int64_t *end)
{
    const heed_rows *b = &tile->key_blocks;
    const uint32_t keys = problem->block_keys;
    const uint64_t *words = (const uint64_t *)b->data + head * b->head_stride +
                            (int64_t)((uint32_t)i / problem->block_rows) * b->row_stride;
    const int64_t last = (int64_t)((uint32_t)(*end - 1) / keys);
    int64_t n = (int64_t)((uint32_t)*first / keys), stop;
    while (n <= last) { /* to the next bit that is set */
        uint64_t word = words[(n >> 6) * b->dim_stride] >> (n & 63);
        if (!word) {
            n = (n | 63) + 1;
            continue;
        }
        for (; !(word & 255); word >>= 8)
            n += 8;
        for (; !(word & 1); word >>= 1)
            n++;
        break;
    }
    if (n > last)
        return 0;
    for (stop = n + 1; stop <= last && words[(stop >> 6) * b->dim_stride] >> (stop & 63) & 1;)
        stop++;
    *first = n * keys > *first ? n * keys : *first;
    *end = stop * keys < *end ? stop * keys : *end;
    return 1;
}

/** Moves [*first, *end) to the next keys in it that ranges and key blocks let row i of a head of
 * the tile see: some that follow each other, though the next ones may begin right behind them.
 * Returns 0 if there are none. Causality, window, mask and bias are not looked at. */
static inline int heed_next_listed(const heed_problem *problem, const heed_tile *tile, int64_t head,
                                   int64_t i, int64_t *first, int64_t *end)
{
    uint32_t n;
    if (*first >= *end)
        return 0;
    if (!tile->ranges.data)
        return !tile->key_blocks.data || heed_next_block_keys(problem, tile, head, i, first, end);
    for (n = 0; n < problem->n_ranges; n++) {
        const int32_t *range = heed_range_at(tile, head, i, n);
        int64_t low = range[0] > *first ? range[0] : *first,
                high = range[1] < *end ? range[1] : *end;
        if (low >= high ||
            (tile->key_blocks.data && !heed_next_block_keys(problem, tile, head, i, &low, &high)))
            continue;
        *first = low;
        *end = high;
        return 1;
    }
    return 0;
}

/** Bits [first, end) of a word, as far as it has them. */
static inline uint64_t heed_bits_between(int64_t first, int64_t end)
{
    const uint64_t from = first <= 0 ? ~UINT64_C(0) : first >= 64 ? 0 : ~UINT64_C(0) << first;
    return end <= 0 ? 0 : end >= 64 ? from : from & ~(~UINT64_C(0) << end);
}

/** Bits of keys j to j + n - 1, n from 1 to 64: which of them ranges and key blocks
 * let row i see. */
static inline uint64_t heed_listed_bits(const heed_problem *problem, const heed_tile *tile,
                                        int64_t head, int64_t i, int64_t j, int64_t n)
{
    int64_t first = j, end = j + n;
    uint64_t bits = 0;
    for (; heed_next_listed(problem, tile, head, i, &first, &end); first = end, end = j + n)
        bits |= heed_bits_between(first - j, end - j);
    return bits;
}

/** The keys from the first to the last of the tile that row i of a head may see by causality,
 * window and ranges: [*first, *end), which lies in the tile; *first = *end if there are none. With
 * one range and no mask, bias and key blocks the row sees all of them. */
static inline void heed_row_span(const heed_problem *problem, const heed_tile *tile, int64_t head,
                                 int64_t i, int64_t *first, int64_t *end)
{
    heed_row_keys(tile, i, first, end);
    if (tile->ranges.data) {
        int64_t low = *end, high = *first;
        uint32_t n;
        for (n = 0; n < problem->n_ranges; n++) {
            const int32_t *range = heed_range_at(tile, head, i, n);
            if (range[0] == range[1])
                continue;
            low = range[0] < low ? range[0] : low;
            high = range[1] > high ? range[1] : high;
        }
        *first = low > *first ? low : *first;
        *end = high < *end ? high : *end;
    }
    if (*end < *first)
        *first = *end = *end > tile->k_first ? *end : tile->k_first;
}

/** How many rows from i on, and before `end`, have the lists of row i. */
static inline int64_t heed_rows_alike(const heed_problem *problem, const heed_tile *tile,
                                      int64_t head, int64_t i, int64_t end)
{
    const heed_rows *r = &tile->ranges;
    int64_t to = i + 1;
    if (tile->key_blocks.data) {
        const int64_t block =
            ((int64_t)((uint32_t)i / problem->block_rows) + 1) * problem->block_rows;
        end = block < end ? block : end;
    }
    if (!r->data || r->row_stride == 0)
        return end - i;
    for (; to < end; to++) {
        uint32_t n;
        for (n = 0; n < problem->n_ranges; n++) {
            const int32_t *a = heed_range_at(tile, head, i, n),
                          *b = heed_range_at(tile, head, to, n);
            if (a[0] != b[0] || a[1] != b[1])
                return to - i;
        }
    }
    return end - i;
}

/** Finds which of keys [first, end), at most 64 times n_words of them, some row of the tile may see
 * by causality, window, ranges and key blocks: a bit each, from `first` on. Returns HEED_BLOCK_NONE
 * or HEED_BLOCK_ALL if no bit or every one is set, else HEED_BLOCK_MIXED. Keys outside the tile get
 * no bit and do not count for ALL. */
static inline int heed_listed_keys(const heed_problem *problem, const heed_tile *tile,
                                   int64_t first, int64_t end, uint64_t *bits, int n_words)
{
    const int64_t low = first > tile->k_first ? first : tile->k_first;
    const int64_t high = end < tile->k_end ? end : tile->k_end;
    const int64_t heads =
        tile->ranges.head_stride || tile->key_blocks.head_stride ? tile->n_heads : 1;
    const int64_t q_end = tile->q_first + tile->q_count;
    int64_t head, i, alike;
    int word, all = 0, any = 0;
    for (word = 0; word < n_words; word++)
        bits[word] = 0;
    if (low >= high)
        return HEED_BLOCK_NONE;
    for (head = 0; head < heads && !all; head++)
        for (i = tile->q_first; i < q_end && !all; i += alike) {
            int64_t from, to, unused, a, b;
            alike = heed_rows_alike(problem, tile, head, i, q_end);
            heed_row_keys(tile, i, &from, &unused); /* consecutive rows see one interval */
            heed_row_keys(tile, i + alike - 1, &unused, &to);
            from = from > low ? from : low;
            to = to < high ? to : high;
            for (a = from, b = to; heed_next_listed(problem, tile, head, i, &a, &b); a = b, b = to)
                for (any = 1, word = 0; word < n_words; word++)
                    bits[word] |= heed_bits_between(a - first - 64 * word, b - first - 64 * word);
            for (all = any, word = 0; all && word < n_words; word++)
                all = bits[word] ==
                      heed_bits_between(low - first - 64 * word, high - first - 64 * word);
        }
    return all ? HEED_BLOCK_ALL : any ? HEED_BLOCK_MIXED : HEED_BLOCK_NONE;
}

/** Element w[i, c] of a layer's weights, in elements from weight->data. */
static inline int64_t heed_linear_weight_at(const heed_linear_weight *weight, int64_t i, int64_t c)
{
    return i * weight->in_stride + c / weight->head_cols * weight->head_stride +
           c % weight->head_cols * weight->out_stride;
}

/** act(s) as heed/linear.h defines it, to f64's accuracy. */
static inline double heed_activate(uint32_t activation, double s)
{
    double u;
    if (activation == HEED_ACT_NONE)
        return s;
    if (s == -(double)INFINITY)
        return 0;
    if (activation == HEED_ACT_SILU)
        return s / (1 + exp(-s));
    if (activation == HEED_ACT_GELU) /* 1 + erf would lose the small results of negative s */
        return s / 2 * erfc(s * -0.70710678118654752);
    u = 0.79788456080286536 * s * (1 + 0.044715 * s * s); /* sqrt(2 / pi) */
    return s / (1 + exp(-2 * u)); /* as 1 + tanh(u) = 2 / (1 + exp(-2u)), and loses nothing */
}

/** Turns the sum of the products into y[r, c], r and c counted in the tile: adds the bias, applies the
 * activation, adds the residual, rounds once and writes. */
static inline void heed_linear_finish(const heed_linear_problem *problem,
                                      const heed_linear_tile *tile, int64_t r, int64_t c, double sum)
{
    const heed_matrix *residual = &tile->residual, *y = &tile->y;
    if (tile->bias)
        sum += (double)tile->bias[c];
    sum = heed_activate(problem->activation, sum);
    if (residual->data)
        sum += (double)heed_load(problem->y_type, residual->data,
                                 r * residual->row_stride + c * residual->col_stride);
    heed_store_f64(problem->y_type, y->data, r * y->row_stride + c * y->col_stride, sum);
}

/** Elements from rows->data to dim 0 of key j (of kv head 0), through the page row if there is one.
 * page_stride is the tile's k_page_stride or v_page_stride. */
static inline int64_t heed_key_offset(const heed_rows *rows, const int32_t *pages, uint32_t page_len,
                                      int64_t page_stride, int64_t j)
{
    if (!pages)
        return j * rows->row_stride;
    return pages[j / page_len] * page_stride + j % page_len * rows->row_stride;
}

/** A key of a tile, or a value: where its elements and its scales lie. */
typedef struct heed_key {
    const char *row; /* dim 0 */
    const heed_quant *quant;
    int64_t dim_stride, page, at; /* page and key as heed_scale_at wants them */
    uint32_t type, reserved;
} heed_key;

/** Key j of kv head 0, through the page row if there is one: of k if is_v is 0, else of v. */
static inline heed_key heed_find_key(const heed_problem *problem, const heed_tile *tile, int is_v,
                                     int64_t j)
{
    const heed_rows *rows = is_v ? &tile->v : &tile->k;
    const int64_t page_stride = is_v ? tile->v_page_stride : tile->k_page_stride;
    heed_key key = {NULL,
                    is_v ? &tile->v_quant : &tile->k_quant,
                    rows->dim_stride,
                    0,
                    j,
                    is_v ? problem->v_type : problem->k_type,
                    0};
    if (tile->pages) {
        key.page = tile->pages[j / problem->page_len];
        key.at = j % problem->page_len;
    }
    key.row = (const char *)rows->data +
              heed_offset_bytes(key.type, key.page * page_stride + key.at * rows->row_stride);
    return key;
}

/** Element d of a key of any type, codes too. The plain definition; kernels read whole blocks. */
static inline float heed_load_key(const heed_key *key, int64_t d)
{
    float scale = 1, zero = 0;
    if (!heed_is_code(key->type))
        return heed_load(key->type, key->row, d * key->dim_stride);
    if (key->quant->scale) {
        const int64_t at = heed_scale_at(key->quant, key->page, 0, key->at, d);
        scale = key->quant->scale[at];
        if (key->quant->zero)
            zero = key->quant->zero[at];
    }
    if (heed_block_len(key->type) > 1)
        return heed_decode(key->type, key->row, d, scale, zero);
    return heed_decode(key->type, key->row + d * key->dim_stride, 0, scale, zero);
}

/** Keys that a row sees on average by causality and window, for estimates of cost. */
static inline double heed_average_keys(const heed_problem *problem, int64_t q_len, int64_t kv_len)
{
    const int windowed = (problem->features & HEED_HAS_WINDOW) != 0;
    const int causal = (problem->features & HEED_HAS_CAUSAL) != 0;
    double keys = (double)kv_len, span;
    if (causal)
        keys -= (double)(q_len < kv_len ? q_len : kv_len) / 2;
    if (!windowed || problem->window_left < 0 || (!causal && problem->window_right < 0))
        return keys;
    span = (double)problem->window_left + (causal ? 0 : (double)problem->window_right) + 1;
    return span < keys ? span : keys;
}

/** Moves scales and zeros to the heads from the g-th on. */
static inline void heed_move_quant(heed_quant *quant, int64_t g)
{
    if (quant->scale)
        quant->scale += g * quant->stride[1];
    if (quant->zero)
        quant->zero += g * quant->stride[1];
}

/** The g-th kv head of a tile, as a tile of its own. */
static inline void heed_tile_of_head(const heed_problem *problem, const heed_tile *tile, uint32_t g,
                                     heed_tile *one)
{
    const int64_t head = (int64_t)g * tile->group, row = head * tile->q_count;
    const struct {
        heed_rows *rows;
        int64_t heads, bytes;
    } moved[] = {
        {&one->q, head, heed_dtype_bytes(problem->q_type)},
        {&one->out, head, heed_dtype_bytes(problem->out_type)},
        {&one->mask, head, 1},
        {&one->bias, head, heed_dtype_bytes(problem->bias_type)},
        {&one->lse, head, 4},
        {&one->weights, head, 4},
        {&one->scores, head, 4},
        {&one->ranges, head, 8},
        {&one->key_blocks, head, 8},
    };
    *one = *tile;
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
        if (moved[i].rows->data)
            moved[i].rows->data = (char *)moved[i].rows->data +
                                  moved[i].heads * moved[i].rows->head_stride * moved[i].bytes;
    one->k.data =
        (char *)tile->k.data + heed_offset_bytes(problem->k_type, g * tile->k.head_stride);
    one->v.data =
        (char *)tile->v.data + heed_offset_bytes(problem->v_type, g * tile->v.head_stride);
    heed_move_quant(&one->k_quant, g);
    heed_move_quant(&one->v_quant, g);
    one->kv_head += g;
    one->first_head += (uint32_t)head;
    one->n_heads = tile->group;
    one->kv_heads = 1;
    one->alibi_slope = tile->alibi_slope ? tile->alibi_slope + head : NULL;
    one->bias_slope = tile->bias_slope ? tile->bias_slope + head : NULL;
    one->sink = tile->sink ? tile->sink + head : NULL;
    one->mask_blocks =
        tile->mask_blocks ? tile->mask_blocks + head * tile->mask_block_stride : NULL;
    one->row_max += row;
    one->row_sum += row;
    one->acc += row * tile->acc_stride;
}

/**
 * Adds a sink to the state of a row that saw something, whose reference *m may grow. Returns what the
 * row's sums are to be multiplied by; then *more is to be added to them. A sink of -inf gives 1 and 0.
 */
static inline double heed_add_sink(uint32_t state_log2, float sink, double *m, double *more)
{
    const double log2_e = 1.4426950408889634;
    *more = 0;
    if (sink == -INFINITY)
        return 1;
    const double own = state_log2 ? (double)sink * log2_e : (double)sink, before = *m;
    const double least = state_log2 ? ceil(own) : own;
    if (least > before)
        *m = least;
    *more = state_log2 ? exp2(own - *m) : exp(own - *m);
    return state_log2 ? exp2(before - *m) : exp(before - *m);
}

/**
 * Leaves the final state of a row behind, which its weights are made of. In log2 units a sink beyond
 * 2^24 may ask for a reference that no float is: the distance to the nearest one goes into the sum. A
 * sum that this leaves below the normal numbers, of which 1 / sum may be infinite, is 0: so are all
 * weights then.
 */
static inline void heed_leave_state(double m, double sum, float *row_max, float *row_sum)
{
    const double distance = m - (double)(float)m; /* of an infinity a NaN */
    const double left = distance < 0 || distance > 0 ? sum * exp2(distance) : sum;
    *row_max = (float)m;
    *row_sum = left < 0x1p-126 ? 0 : (float)left;
}

/**
 * Makes the state of tile row r final: adds the sink, writes lse where asked for, and leaves the final
 * row_max and row_sum behind. Returns what the row's acc is to be multiplied by, or -1 if the row saw
 * nothing: its out is 0, acc means nothing, and row_sum stays 0, so that no weight is formed of an
 * infinite sink.
 */
static inline double heed_finish_state(uint32_t state_log2, heed_tile *tile, int64_t r)
{
    const double ln_2 = 0.6931471805599453;
    const int64_t head = r / tile->q_count, row = tile->q_first + r % tile->q_count;
    const float sink = tile->sink ? tile->sink[head] : -INFINITY;
    const int nothing = tile->row_sum[r] == 0;
    double m = (double)tile->row_max[r], more = 0;
    const double scale = nothing ? 1 : heed_add_sink(state_log2, sink, &m, &more);
    const double sum = (double)tile->row_sum[r] * scale + more;

    if (tile->lse.data)
        heed_store(HEED_F32, tile->lse.data,
                   head * tile->lse.head_stride + row * tile->lse.row_stride,
                   nothing ? sink : (float)((state_log2 ? m * ln_2 : m) + log(sum)));
    heed_leave_state(m, sum, &tile->row_max[r], &tile->row_sum[r]);
    return nothing ? -1 : scale / sum;
}

/**
 * Turns the state of tile row r into the final result: heed_finish_state, then out, normalised and
 * rounded once. Core does this for every row that a backend has not finished itself.
 *
 * The division by the row's sum is in f64, so that the result is the correctly rounded quotient but
 * for the error of the state itself.
 */
static inline void heed_finish_row(const heed_problem *problem, uint32_t state_log2,
                                   heed_tile *tile, int64_t r)
{
    const double factor = heed_finish_state(state_log2, tile, r);
    const float *acc = tile->acc + r * tile->acc_stride;
    const int64_t at = r / tile->q_count * tile->out.head_stride +
                       (tile->q_first + r % tile->q_count) * tile->out.row_stride;
    for (int64_t d = 0; d < problem->v_dim; d++) /* -0 becomes 0, whatever hidden keys hold */
        heed_store_f64(problem->out_type, tile->out.data, at + d * tile->out.dim_stride,
                       factor < 0 ? 0 : (double)acc[d] * factor + 0);
}

HEED_END_C

#endif
