/* Bits of key blocks, from lists of indices, and from bounds of the keys that they hold. */
#include <heed/masks.h>

#include "base/fpenv.h"
#include "base/reason.h"
#include "base/rows.h"

/* How far words and, of a list, index reach. */
static heed_status check_sizes(const heed_key_blocks_args *a, int64_t words, heed_error *why)
{
    const int64_t stride[] = {a->row_stride, 1}, shape[] = {a->rows, words};
    const int64_t step[] = {a->per_row, 1}, list[] = {a->rows, a->per_row};
    if (words && !heed_strides_reach(stride, 2, shape, sizeof *a->words))
        INVALID("args.row_stride is %lld: %lld rows reach beyond the address space",
                (long long)a->row_stride, (long long)a->rows);
    if (a->per_row && !heed_strides_reach(step, 2, list, sizeof *a->index))
        INVALID("args.per_row is %lld: %lld rows reach beyond the address space",
                (long long)a->per_row, (long long)a->rows);
    return HEED_OK;
}

static heed_status check_blocks(const heed_key_blocks_args *a, int csr, heed_error *why)
{
    const heed_number size[] = {{"args.rows", a->rows, 0, INT32_MAX},
                                {"args.blocks", a->blocks, 0, INT32_MAX}};
    heed_status st = heed_check_numbers(size, 2, why);
    if (st != HEED_OK)
        return st;
    const int64_t words = (a->blocks + 63) / 64;
    if (a->row_stride < words)
        INVALID("args.row_stride is %lld, at least %lld words are required for %lld blocks",
                (long long)a->row_stride, (long long)words, (long long)a->blocks);
    if (a->per_row < 0 || (csr && a->per_row))
        INVALID("args.per_row is %lld, %s is required", (long long)a->per_row,
                csr ? "0" : "at least 0");
    if (a->rows == 0)
        return HEED_OK;
    if ((!a->words && a->blocks) || (csr && !a->start))
        INVALID("args.%s is NULL, but required", !a->words && a->blocks ? "words" : "start");
    st = check_sizes(a, words, why);
    if (st != HEED_OK)
        return st;
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t first = csr ? a->start[r] : r * a->per_row;
        const int64_t end = csr ? a->start[r + 1] : first + a->per_row;
        if (first < 0 || end < first)
            INVALID("args.start[%lld] is %lld and the next %lld: from 0 on, not descending, is "
                    "required",
                    (long long)r, (long long)first, (long long)end);
        if (first < end && !a->index)
            INVALID("args.index is NULL, but required");
        for (int64_t n = first; n < end; n++)
            if (a->index[n] < -1 || a->index[n] >= a->blocks)
                INVALID("args.index[%lld] is %d, -1 to args.blocks - 1 = %lld is required",
                        (long long)n, a->index[n], (long long)a->blocks - 1);
    }
    return HEED_OK;
}

HEED_CHECK_ARGS_ERROR(heed_key_blocks_args);
static heed_status blocks(const heed_key_blocks_args *args, int csr)
{
    heed_key_blocks_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK)
        st = check_blocks(&a, csr, &why);
    for (int64_t r = 0; st == HEED_OK && r < a.rows && a.blocks; r++) {
        uint64_t *words = a.words + r * a.row_stride;
        const int64_t first = csr ? a.start[r] : r * a.per_row;
        const int64_t end = csr ? a.start[r + 1] : first + a.per_row;
        memset(words, 0, (size_t)((a.blocks + 63) / 64) * sizeof *words);
        for (int64_t n = first; n < end; n++)
            if (a.index[n] >= 0)
                words[a.index[n] / 64] |= UINT64_C(1) << a.index[n] % 64;
    }
    return heed_report_call(args, st, &why);
}

heed_status heed_key_blocks_csr(const heed_key_blocks_args *args)
{
    return blocks(args, 1);
}

heed_status heed_key_blocks_list(const heed_key_blocks_args *args)
{
    return blocks(args, 0);
}

/* ---- bounds of key blocks, and a choice by them ----------------------------------------------- */

static int64_t blocks_of(const heed_key_bounds_args *a)
{
    return (a->keys + a->block_keys - 1) / a->block_keys;
}

/* Checks pages, as far as they hold keys that are read, and how far x and bounds reach. */
static heed_status check_reach(const heed_key_bounds_args *a, int choosing, heed_error *why)
{
    int64_t n_pages = a->pages ? 0 : 1, rows = choosing ? 1 : a->keys;
    if (a->pages) {
        for (int64_t i = a->first_block * a->block_keys / a->page_len; i * a->page_len < a->keys;
             i++) {
            if (a->pages[i] < 0)
                INVALID("args.pages[%lld] is %d, at least 0 is required", (long long)i,
                        a->pages[i]);
            n_pages = a->pages[i] >= n_pages ? a->pages[i] + (int64_t)1 : n_pages;
        }
        rows = rows < a->page_len ? rows : a->page_len;
    }
    const int64_t shape[] = {n_pages, choosing ? a->q_heads : a->kv_heads, rows, a->dim};
    const int64_t bounds[] = {a->kv_heads, blocks_of(a) * a->dim}, one[] = {a->bounds_stride, 1};
    if (!heed_strides_reach(one, 2, bounds, sizeof(float)))
        INVALID(
            "args.bounds_stride is %lld: with %u kv heads bounds reach beyond the address space",
            (long long)a->bounds_stride, a->kv_heads);
    return heed_check_view("x", a->x.data, a->x.stride, heed_dtype_bytes(a->type), 0, shape, why);
}

static heed_status check_bounds(const heed_key_bounds_args *a, int choosing, heed_error *why)
{
    const heed_number size[] = {{"args.keys", a->keys, 0, INT32_MAX},
                                {"args.kv_heads", a->kv_heads, 1, 1 << 20},
                                {"args.dim", a->dim, 1, 1 << 20},
                                {"args.block_keys", a->block_keys, 1, INT32_MAX}};
    heed_status st = heed_check_type("type", a->type, why);
    if (st == HEED_OK)
        st = heed_check_numbers(size, 4, why);
    if (st != HEED_OK)
        return st;
    const int64_t n = blocks_of(a);
    if (a->bounds_stride < n * a->dim)
        INVALID("args.bounds_stride is %lld, at least %lld, %lld blocks of %u, is required",
                (long long)a->bounds_stride, (long long)(n * a->dim), (long long)n, a->dim);
    if (a->reserved)
        INVALID("args.reserved is %u, 0 is required", a->reserved);
    if (!choosing && (a->first_block < 0 || a->first_block > n))
        INVALID("args.first_block is %lld, 0 to %lld is required", (long long)a->first_block,
                (long long)n);
    if (choosing && (a->pages || a->page_len || a->first_block))
        INVALID("args.%s is given, but q has none", a->first_block ? "first_block"
                                                    : a->pages     ? "pages"
                                                                   : "page_len");
    if (!a->pages != !a->page_len)
        INVALID("args.page_len is %u %s args.pages", a->page_len, a->pages ? "with" : "without");
    if (choosing && (a->q_heads == 0 || a->q_heads > 1u << 20 || a->q_heads % a->kv_heads))
        INVALID("args.q_heads is %u, a multiple of args.kv_heads = %u is required", a->q_heads,
                a->kv_heads);
    if (choosing && a->shared > 1)
        INVALID("args.shared is %u, 0 or 1 is required", a->shared);
    if (choosing && (a->top < 1 || a->always_first < 0 || a->always_last < 0 ||
                     a->always_first > a->top || a->always_last > a->top - a->always_first))
        INVALID("args.top is %lld with always_first %lld and always_last %lld: at least 1, and no "
                "less than these two, is required",
                (long long)a->top, (long long)a->always_first, (long long)a->always_last);
    if (a->keys == 0)
        return HEED_OK;
    const struct {
        const char *name;
        const void *data;
        int wanted;
    } array[] = {{"x", a->x.data, 1},
                 {"least", a->least, 1},
                 {"greatest", a->greatest, 1},
                 {"scores", a->scores, choosing},
                 {"words", a->words, choosing}};
    for (int i = 0; i < 5; i++)
        if (array[i].wanted && !array[i].data)
            INVALID("args.%s is NULL, but required", array[i].name);
    return check_reach(a, choosing, why);
}

/* How many dims of keys are looked at together. */
enum { DIMS = 256 };

/* Finds the bounds of n dims, at most DIMS, from dim d on, of keys [j, end), a block, of kv head h. The least
 * and the greatest pass over a NaN, so NaNs are counted. */
static void bound_block(const heed_key_bounds_args *a, int64_t h, int64_t j, int64_t end, int64_t d,
                        int64_t n)
{
    float x[DIMS], least[DIMS], greatest[DIMS];
    int32_t nans[DIMS] = {0};
    for (int64_t i = 0; i < n; i++) {
        least[i] = INFINITY;
        greatest[i] = -INFINITY;
    }
    const int64_t to = h * a->bounds_stride + j / a->block_keys * a->dim + d;
    for (; j < end; j++) {
        const int64_t row = a->pages ? j % a->page_len : j;
        const int64_t page = a->pages ? a->pages[j / a->page_len] * a->x.stride[0] : 0;
        const int64_t at = page + h * a->x.stride[1] + row * a->x.stride[2] + d * a->x.stride[3];
        heed_convert(&(heed_elements){a->type, a->x.data, at, a->x.stride[3]}, HEED_F32, x, 0, 1,
                     n);
        for (int64_t i = 0; i < n; i++) {
            least[i] = x[i] < least[i] ? x[i] : least[i];
            greatest[i] = x[i] > greatest[i] ? x[i] : greatest[i];
            nans[i] += x[i] != x[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        a->least[to + i] = nans[i] ? NAN : least[i];
        a->greatest[to + i] = nans[i] ? NAN : greatest[i];
    }
}

HEED_CHECK_ARGS_ERROR(heed_key_bounds_args);
heed_status heed_key_bounds(const heed_key_bounds_args *args)
{
    heed_key_bounds_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK)
        st = check_bounds(&a, 0, &why);
    if (st != HEED_OK)
        return heed_report_call(args, st, &why);
    heed_fpenv saved = heed_fpenv_enter();
    for (int64_t h = 0; h < a.kv_heads; h++)
        for (int64_t j = a.first_block * a.block_keys, end; j < a.keys; j = end) {
            end = a.keys - j < a.block_keys ? a.keys : j + a.block_keys;
            for (int64_t d = 0; d < a.dim; d += DIMS)
                bound_block(&a, h, j, end, d, a.dim - d < DIMS ? a.dim - d : DIMS);
        }
    heed_fpenv_leave(saved);
    return HEED_OK;
}

/* The bound of one block, summed in so many parts that compilers vectorize it. */
enum { PARTS = 16 };

static float bound_of(const float *q, const float *least, const float *greatest, int64_t dim)
{
    float sum[PARTS] = {0}, four[4], all = 0;
    int64_t d = 0;
    for (; d + PARTS <= dim; d += PARTS)
        for (int i = 0; i < PARTS; i++) {
            const float a = q[d + i] * least[d + i], b = q[d + i] * greatest[d + i];
            sum[i] += a > b ? a : b;
        }
    for (; d < dim; d++) {
        const float a = q[d] * least[d], b = q[d] * greatest[d];
        all += a > b ? a : b;
    }
    /* A chain of additions would take as long as the products of 128 dims. */
    for (int i = 0; i < 4; i++)
        four[i] = (sum[i] + sum[i + 4]) + (sum[i + 8] + sum[i + 12]);
    return all + ((four[0] + four[2]) + (four[1] + four[3]));
}

/* A number for each float, in the order of the floats, NaN above all. */
static uint32_t order_of(float x)
{
    uint32_t bits;
    if (x != x)
        return UINT32_MAX;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Finds the `top`-th greatest of n scores, as a number of order_of, a byte at a time. *equal
 * becomes how many scores that are equal to it are among the `top`. */
static uint32_t threshold(const float *scores, int64_t n, int64_t top, int64_t *equal)
{
    uint32_t found = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        int byte = 255;
        for (int64_t i = 0; i < n; i++) {
            const uint32_t x = order_of(scores[i]);
            count[x >> shift & 255] += (x & mask) == found;
        }
        while (count[byte] < top)
            top -= count[byte--];
        found |= (uint32_t)byte << shift;
        mask |= UINT32_C(255) << shift;
    }
    *equal = top;
    return found;
}

/* Writes the words of a head's choice, which includes the first and last blocks that
 * always count. */
static void choose(const heed_key_bounds_args *a, int64_t n, uint64_t *words)
{
    int64_t first = a->always_first < n ? a->always_first : n;
    int64_t last = n - (a->always_last < n - first ? a->always_last : n - first), equal = 0;
    const int64_t left = a->top - first - (n - last);
    const int all = n <= a->top;
    const uint32_t least =
        all || left <= 0 ? 0 : threshold(a->scores + first, last - first, left, &equal);
    memset(words, 0, (size_t)((n + 63) / 64) * sizeof *words);
    for (int64_t i = 0; i < n; i++) {
        const int always = all || i < first || i >= last;
        const uint32_t x = always || left <= 0 ? 0 : order_of(a->scores[i]);
        if (always || (left > 0 && (x > least || (x == least && equal-- > 0))))
            words[i / 64] |= UINT64_C(1) << i % 64;
    }
}

/* How many query heads have their bounds of a block taken one after the other, while it is in L1. */
enum { HEADS = 8 };

/* Sets the score of each block to its greatest bound among some adjacent query heads, at most
 * HEADS, of a kv head. With `more` the score that is there counts, too. */
static void score_blocks(const heed_key_bounds_args *a, int64_t h, int64_t heads, int64_t n,
                         int more)
{
    const int64_t g = h / (a->q_heads / a->kv_heads);
    for (int64_t d = 0; d < a->dim; d += DIMS) {
        const int64_t dims = a->dim - d < DIMS ? a->dim - d : DIMS;
        float q[HEADS][DIMS];
        for (int64_t k = 0; k < heads; k++)
            heed_convert(&(heed_elements){a->type, a->x.data,
                                          (h + k) * a->x.stride[1] + d * a->x.stride[3],
                                          a->x.stride[3]},
                         HEED_F32, q[k], 0, 1, dims);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = g * a->bounds_stride + i * a->dim + d;
            for (int64_t k = 0; k < heads; k++) {
                const float bound = bound_of(q[k], a->least + at, a->greatest + at, dims);
                const float before = a->scores[i];
                if (a->dim > DIMS) /* of wide heads the bounds of parts are added up */
                    a->scores[i] = d ? before + bound : bound;
                else if (!(more || k) || !(before >= bound || before != before))
                    a->scores[i] = bound;
            }
        }
    }
}

heed_status heed_key_blocks_topk(const heed_key_bounds_args *args)
{
    heed_key_bounds_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK)
        st = check_bounds(&a, 1, &why);
    if (st == HEED_OK && a.shared && a.dim > DIMS)
        st = heed_fail(&why, HEED_ERR_INVALID,
                       "args.shared is 1 with args.dim = %u, at most %d is required", a.dim, DIMS);
    if (st != HEED_OK)
        return heed_report_call(args, st, &why);
    const int64_t n = blocks_of(&a), words = (n + 63) / 64;
    const uint32_t group = a.shared ? a.q_heads / a.kv_heads : 1;
    heed_fpenv saved = heed_fpenv_enter();
    for (int64_t h = 0; h < a.q_heads && n; h += group) {
        for (uint32_t k = 0; k < group; k += HEADS)
            score_blocks(&a, h + k, group - k < HEADS ? group - k : HEADS, n, k > 0);
        choose(&a, n, a.words + h * words);
        for (uint32_t k = 1; k < group; k++)
            memcpy(a.words + (h + k) * words, a.words + h * words, (size_t)words * sizeof *a.words);
    }
    heed_fpenv_leave(saved);
    return HEED_OK;
}
