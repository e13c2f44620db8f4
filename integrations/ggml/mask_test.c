/* What mask.c recognises: every causal range, window and length that there is for a few rows and
 * keys, and nothing else. The expected result is the mask itself: the form that is recognised has
 * to reproduce it. */
#include "mask.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 5, KEYS = 70, ROW = 72 };

static uint16_t mask[ROWS * ROW];
static int failed;

/* Does row i see key j in the form that was recognised? */
static int sees(const mask_form *form, const mask_span *spans, int64_t i, int64_t j)
{
    for (int n = 0; form->kind == MASK_RANGES && n < form->n_ranges; n++)
        if (j >= spans[i * MASK_MOST + n].begin && j < spans[i * MASK_MOST + n].end)
            return 1;
    if (form->kind == MASK_RANGES)
        return 0;
    return j < form->kv_len && j <= i + form->offset &&
           (form->window_left < 0 || j >= i + form->offset - form->window_left);
}

static void draw(int64_t rows, int64_t kv_len, int64_t offset, int64_t window)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < ROW; j++)
            mask[i * ROW + j] =
                j < kv_len && j <= i + offset && (window < 0 || j >= i + offset - window) ? 0
                                                                                          : 0xfc00;
}

static mask_form find(int64_t rows, mask_span *spans)
{
    return mask_find_form(mask, ROW * (int64_t)sizeof *mask, rows, KEYS, spans);
}

static void check(const char *what, int64_t rows, int wanted)
{
    mask_span spans[ROWS * MASK_MOST];
    const mask_form form = find(rows, spans);
    int wrong = form.kind != wanted;
    for (int64_t i = 0; form.kind != MASK_DENSE && i < rows; i++)
        for (int64_t j = 0; j < KEYS; j++)
            wrong |= sees(&form, spans, i, j) != (mask[i * ROW + j] == 0);
    if (wrong) {
        printf("%s: of %lld rows form %d, %d is required\n", what, (long long)rows, form.kind,
               wanted);
        failed = 1;
    }
}

int main(void)
{
    mask_span spans[ROWS * MASK_MOST];
    for (int64_t rows = 1; rows <= ROWS; rows++)
        for (int64_t kv_len = 0; kv_len <= KEYS; kv_len++)
            for (int64_t offset = -6; offset <= KEYS; offset++)
                for (int64_t window = -1; window < 40; window += 1 + (window > 6) * 9) {
                    /* Where the windows of the last rows lie behind all keys, their length cannot
                     * be known. */
                    if (window >= 0 && rows - 1 + offset - window >= kv_len)
                        continue;
                    draw(rows, kv_len, offset, window);
                    check("causal", rows, MASK_CAUSAL);
                }
    draw(ROWS, KEYS, 60, -1);
    mask[2 * ROW + 7] = 0xfc00; /* a hole */
    check("hole", ROWS, MASK_RANGES);
    for (int64_t j = 10; j < 24; j += 2)
        mask[2 * ROW + j] = 0xfc00;
    check("9 runs", ROWS, MASK_DENSE);
    mask[2 * ROW + 22] = 0;
    check("8 runs", ROWS, MASK_RANGES);
    mask[2 * ROW + 7] = 0x8000; /* -0 does not count as 0 */
    check("minus 0", ROWS, MASK_DENSE);
    mask[2 * ROW + 7] = 0x3c00;
    check("1", ROWS, MASK_DENSE);
    draw(ROWS, KEYS, 20, -1);
    for (int64_t j = 0; j < ROW; j++) /* one row that sees as much as the first */
        mask[3 * ROW + j] = mask[j];
    check("uneven", ROWS, MASK_RANGES);
    for (int64_t j = 0; j < ROW; j++)
        mask[3 * ROW + j] = 0xfc00;
    check("row of nothing", ROWS, MASK_RANGES);
    const mask_form form = find(ROWS, spans);
    failed |= form.kv_len != 25 || spans[3 * MASK_MOST].end != 0;
    if (!failed)
        puts("what is recognised draws the mask again");
    return failed;
}
