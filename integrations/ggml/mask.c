/* Recognises the form of an f16 mask in one pass. Most masks that engines make are causal
 * ranges, windows and lengths, written out as 0 and -inf; a mask that is recognised costs
 * nothing per pair. */
#include "mask.h"

#include <string.h>

#define MINUS_INF 0xfc00u

/* The first element from `at` on that is not `value`. */
static int64_t run_end(const uint16_t *row, int64_t at, int64_t n, uint16_t value)
{
    const uint64_t word = value * UINT64_C(0x0001000100010001);
    for (; at + 32 <= n; at += 32) { /* steps that compilers make vectors of */
        uint64_t x[8], differ = 0;
        memcpy(x, row + at, sizeof x);
        for (int i = 0; i < 8; i++)
            differ |= x[i] ^ word;
        if (differ)
            break;
    }
    while (at < n && row[at] == value)
        at++;
    return at;
}

/* Writes the runs of zeros of a row whose other numbers are all -inf, in their order, with empty
 * spans behind them. Returns how many there are, or -1 if the row has other numbers or more than
 * MASK_MOST runs. */
static int row_runs(const uint16_t *row, int64_t n, mask_span *span)
{
    int count = 0;
    int32_t last = 0;
    for (int64_t at = 0; (at = run_end(row, at, n, MINUS_INF)) < n; count++) {
        const int64_t end = run_end(row, at, n, 0);
        if (end == at || count == MASK_MOST)
            return -1;
        span[count] = (mask_span){(int32_t)at, (int32_t)end};
        last = (int32_t)(at = end);
    }
    for (int i = count; i < MASK_MOST; i++)
        span[i] = (mask_span){last, last};
    return count;
}

/* The keys that row i sees if the mask has this form. */
static mask_span span_of(const mask_form *form, int64_t i)
{
    const int64_t position = i + form->offset;
    const int64_t low = form->window_left < 0 ? 0 : position - form->window_left;
    const int64_t begin = low > 0 ? low : 0;
    const int64_t end = position + 1 < form->kv_len ? position + 1 : form->kv_len;
    return begin < end ? (mask_span){(int32_t)begin, (int32_t)end} : (mask_span){0, 0};
}

/* Finds out whether the runs are those of a causal form. Its offset comes from a row whose run ends
 * before the last key that any row sees, or from the first row that sees a key; without such a row
 * any offset that lets all rows see the last key will do. Its window comes from a row that does not
 * begin at key 0. All rows are then compared with that form. */
static void fit_causal(mask_form *form, const mask_span *spans, int64_t rows)
{
    mask_form causal = {MASK_CAUSAL, 1, form->kv_len, form->kv_len, -1};
    int64_t last = -1, from = -1; /* the rows that tell offset and window */
    for (int64_t i = 0; i < rows; i++) {
        const mask_span *now = &spans[i * MASK_MOST];
        if (now->end && (now->end < form->kv_len || (i && !now[-MASK_MOST].end)))
            last = i;
        if (now->begin)
            from = i;
    }
    if (last >= 0)
        causal.offset = spans[last * MASK_MOST].end - 1 - last;
    if (from >= 0)
        causal.window_left = from + causal.offset - spans[from * MASK_MOST].begin;
    if (from >= 0 && causal.window_left < 0)
        return;
    for (int64_t i = 0; i < rows; i++) {
        const mask_span want = span_of(&causal, i), *now = &spans[i * MASK_MOST];
        if (want.begin != now->begin || want.end != now->end)
            return;
    }
    *form = causal;
}

mask_form mask_find_form(const void *data, int64_t row_bytes, int64_t rows, int64_t n,
                         mask_span *spans)
{
    mask_form form = {MASK_RANGES, 1, 0, 0, -1};
    for (int64_t i = 0; i < rows; i++) {
        const void *row = (const char *)data + i * row_bytes;
        const int runs = row_runs(row, n, &spans[i * MASK_MOST]);
        const int64_t end = spans[i * MASK_MOST + MASK_MOST - 1].end;
        if (runs < 0)
            return (mask_form){MASK_DENSE, 0, n, 0, -1};
        form.n_ranges = runs > form.n_ranges ? runs : form.n_ranges;
        form.kv_len = end > form.kv_len ? end : form.kv_len;
    }
    if (form.n_ranges == 1)
        fit_causal(&form, spans, rows);
    return form;
}
