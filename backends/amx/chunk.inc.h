/*
 * Takes one group through one chunk: decides which blocks go a fast path and which the careful one.
 */
#ifndef HEED_AMX_CHUNK_H
#define HEED_AMX_CHUNK_H

#include "fast_resident.inc.h"

/* Can the fast path take this block? It can where no value is odd (amx_header, amx_rows) and the
 * block is not hidden as a whole. */
static int block_is_plain(const amx_run *x, int block)
{
    const amx_header *header;
    if (x->l->parts > 1 || x->rows->odd_q || block_is(x, block, HEED_BLOCK_NONE))
        return 0;
    header = header_of(x, block); /* not earlier: a hidden block may not have been packed */
    for (int n = 0; n < AMX_BLOCK / 32; n++)
        if (header->odd_k[n] || (x->l->group == 16 && header->odd_v[n]))
            return 0;
    return 1;
}

enum { ROWS_MIXED, ROWS_KNOWN, ROWS_UNSEEN };

static int state_of_rows(const amx_run *x)
{
    int known = 0, unseen = 0;
    for (int i = 0; i < x->n_rows; i++) {
        known += fabsf(x->rows->reference[i]) <= AMX_ONE_STEP;
        unseen += x->rows->reference[i] == AMX_UNSEEN;
    }
    return known == x->n_rows ? ROWS_KNOWN : unseen == x->n_rows ? ROWS_UNSEEN : ROWS_MIXED;
}

/* Takes the group through units [unit, end) of the chunk, by the careful path before careful_to. */
static void run_chunk(amx_run *x, int unit, int end, int careful_to)
{
    x->from = unit;
    while (unit < end) {
        int block = unit / AMX_BLOCK_UNITS, last = block, to = (block + 1) * AMX_BLOCK_UNITS;
        int state = unit < careful_to ? ROWS_MIXED : state_of_rows(x);
        to = to < end ? to : end;
        if (block_is(x, block, HEED_BLOCK_NONE)) { /* no products: nothing of the block is read */
            flush_o(x, unit);
            unit = x->from = to;
            continue;
        }
        while (state != ROWS_MIXED && last * AMX_BLOCK_UNITS < end && block_is_plain(x, last))
            last++;
        if (last > block) {
            amx_rows saved; /* put back if the fast path fails; O is flushed to match them */
            flush_o(x, unit);
            copy_rows(x, &saved, x->rows);
            to = last * AMX_BLOCK_UNITS < end ? last * AMX_BLOCK_UNITS : end;
            to = x->l->group == 16 ? resident_units(x, unit, to, state == ROWS_UNSEEN)
                                   : fast_units(x, unit, to, state == ROWS_UNSEEN);
            if (to >= 0) {
                unit = to;
            } else if (to == -1) {
                copy_rows(x, x->rows, &saved);
                careful_to = end;
            } else {
                careful_to = unit + 1;
            }
            continue;
        }
        careful_block(x, unit, to);
        unit = to;
    }
    flush_o(x, end);
}

#endif
