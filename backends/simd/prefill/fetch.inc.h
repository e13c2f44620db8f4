/* Fetches rows whose order the CPU's own prefetching does not foresee into L2 before prefill needs
 * them: a few lines with every step of the products, where they cost next to nothing. Dozens at
 * once, or a loop from row to row, would hold the products up. */
#ifndef HEED_SIMD_PREFILL_FETCH_H
#define HEED_SIMD_PREFILL_FETCH_H

#include "pack.inc.h"

/* Rows that are being fetched: those of a panel's lanes, or keys. */
typedef struct fetch {
    const heed_rows *rows;
    const panel *panel; /* NULL: keys */
    /* page_stride is in elements; stride (from row to row) and row_bytes are in bytes */
    int64_t page_stride, stride, row_bytes;
    uint32_t type;
    int64_t next, end;   /* rows whose place is not known yet */
    const char *at, *to; /* what is left of the row at hand */
    int64_t even;        /* rows that follow it at the stride */
    int64_t step_bytes;  /* a multiple of 64 */
} fetch;

/* Moves to the next rows that lie at one stride. Rows without gaps between them
 * count as one row. */
V_NOINLINE void fetch_next_rows(const heed_problem *problem, const heed_tile *tile, fetch *t)
{
    const int64_t i = t->next, left = t->end - i, page_len = problem->page_len;
    int64_t even = left, offset;
    if (t->panel) {
        offset = row_offset(t->panel, t->rows, i);
        even = tile->q_first + tile->q_count - t->panel->query[i];
    } else {
        offset = heed_key_offset(t->rows, tile->pages, problem->page_len, t->page_stride, i);
        if (tile->pages)
            even = page_len - i % page_len;
    }
    even = even < left ? even : left;
    const int64_t row = t->stride == t->row_bytes ? even * t->row_bytes : t->row_bytes;
    t->at = (const char *)t->rows->data + heed_offset_bytes(t->type, offset);
    t->to = t->at + row;
    t->next += even;
    t->even = t->stride == t->row_bytes ? 0 : even - 1;
}

/* Fetches what is due with one step of the products. */
V_INLINE void fetch_step(const heed_problem *problem, const heed_tile *tile, fetch *t)
{
    for (int64_t left = t->step_bytes; left > 0; left -= 64, t->at += 64) {
        if (t->at >= t->to) {
            if (t->even) {
                t->even--;
                t->to += t->stride;
                t->at = t->to - t->row_bytes;
            } else if (t->next < t->end) {
                fetch_next_rows(problem, tile, t);
            } else {
                return;
            }
        }
        V_PREFETCH_L2(t->at);
    }
}

/* Rows of keys less than this many bytes apart are near enough for the CPU's own prefetching. */
#define NEAR_BYTES 256

/* Begins to fetch the rows [next, end) of t, all of them within so many steps. Returns 0 if there
 * is nothing to do. */
static int fetch_begin(fetch *t, const heed_tile *tile, int64_t dims, uint32_t steps)
{
    const heed_rows *rows = t->rows;
    t->page_stride = rows == &tile->v ? tile->v_page_stride : tile->k_page_stride;
    t->stride = heed_offset_bytes(t->type, rows->row_stride);
    t->row_bytes = heed_offset_bytes(t->type, dims);
    const int near = !t->panel && !tile->pages && t->stride < NEAR_BYTES && t->stride > -NEAR_BYTES;
    if (t->next >= t->end || rows->dim_stride != 1 || near)
        return 0;
    const uint32_t lines = (uint32_t)((t->end - t->next) * t->row_bytes / 64);
    t->step_bytes = (lines / steps + 1) * 64;
    return 1;
}

#endif
