/* Where the keys of a decode tile lie in pages. */
#ifndef HEED_SIMD_DECODE_PAGES_H
#define HEED_SIMD_DECODE_PAGES_H

#include "visible.inc.h"

/* Blocks from the one at hand to the one whose addresses are translated ahead. */
#define PAGE_AHEAD 4

/* Where a key lies: its page, and its row there. Contiguous keys are rows of page 0. */
typedef struct place {
    int64_t page, row;
} place;

static place find_place(const decode *d, int64_t j)
{
    const uint32_t len = d->problem->page_len, key = (uint32_t)j; /* a narrow division */
    if (!d->tile->pages)
        return (place){0, j};
    return (place){d->tile->pages[key / len], key % len};
}

/* Prefetches a line of each page of memory in some bytes: translating the addresses takes longer
 * than fetching the lines, and is done when these are fetched. Inline, because gcc takes a function
 * that only prefetches for one without effects and drops its calls. */
V_INLINE void touch(const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 4096)
        V_PREFETCH_L2(at + i);
}

/* Calls touch() for the rows of a block from a place on: two pages of memory at most. */
V_INLINE void touch_block(const heed_rows *rows, int64_t page, int64_t row, place at)
{
    const int64_t span = DECODE_BLOCK * row;
    touch((const char *)rows->data + at.page * page + at.row * row, span > 4096 ? 8192 : 4096);
}

#endif
