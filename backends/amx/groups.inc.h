/*
 * Takes the groups of a tile through the current chunk one after another: on the resident path
 * without a gap between them, else each by itself.
 */
#ifndef HEED_AMX_GROUPS_H
#define HEED_AMX_GROUPS_H

#include "chunk.inc.h"
#include "outputs.inc.h"

/* Sets the group's rows and the ranges of keys that they see. */
static void begin_group(amx_run *x)
{
    const heed_tile *t = x->t;
    int64_t head = x->first_row / t->q_count, q = x->first_row % t->q_count;
    x->all_first = x->some_first = t->k_first;
    x->all_end = x->some_end = t->k_end;
    if (t->window_left >= HEED_UNBOUNDED && t->window_right >= HEED_UNBOUNDED && !t->ranges.data) {
        for (int i = 0; i < x->n_rows; i++) {
            x->row[i] = (amx_row){head, t->q_first + q, t->k_first, t->k_end};
            if (++q == t->q_count) {
                q = 0;
                head++;
            }
        }
        return;
    }
    x->some_first = t->k_end;
    x->some_end = t->k_first;
    for (int i = 0; i < x->n_rows; i++) {
        amx_row *row = &x->row[i];
        row->head = head;
        row->q = t->q_first + q;
        heed_row_span(x->p, t, head, row->q, &row->first, &row->end);
        x->all_first = row->first > x->all_first ? row->first : x->all_first;
        x->all_end = row->end < x->all_end ? row->end : x->all_end;
        if (row->first < row->end) {
            x->some_first = row->first < x->some_first ? row->first : x->some_first;
            x->some_end = row->end > x->some_end ? row->end : x->some_end;
        }
        if (++q == t->q_count) {
            q = 0;
            head++;
        }
    }
}

/* Points x at group g of the tile. */
static void choose_group(amx_run *x, char *scratch, int64_t g)
{
    const amx_layout *l = x->l;
    int64_t n_rows = x->t->n_heads * x->t->q_count - g * l->group;
    x->first_row = (int32_t)(g * l->group);
    x->n_rows = (int32_t)(n_rows < l->group ? n_rows : l->group);
    x->q = scratch + l->q_at + g * l->q_group_bytes;
    x->o = scratch + l->o_at + g * l->o_group_bytes;
    x->rows = (amx_rows *)(void *)(scratch + l->rows_at) + g;
    begin_group(x);
}

/* The units of the chunk that some row of the group sees. Returns whether there are any. */
static int units_of_group(const amx_run *x, int *unit, int *end)
{
    const heed_tile *t = x->t;
    int64_t low = x->some_first, high = x->some_end;
    if (t->flags & HEED_TILE_OUTPUTS) {
        low = t->k_first;
        high = t->k_end;
    }
    low = low > x->chunk ? low : x->chunk;
    if (high > x->chunk + x->l->chunk_blocks * AMX_BLOCK)
        high = x->chunk + x->l->chunk_blocks * AMX_BLOCK;
    *unit = (int)((low - x->chunk) / AMX_UNIT);
    *end = (int)((high - x->chunk + AMX_UNIT - 1) / AMX_UNIT);
    return low < high;
}

/* Takes a group by itself through the chunk, whose blocks are packed. */
static void group_alone(amx_run *x, int unit, int end, int careful_to)
{
    if (x->n_rows < x->l->group) { /* rows that do not exist need weights that are finite */
        int64_t keys = x->t->k_end - x->chunk, chunk_keys = x->l->chunk_blocks * AMX_BLOCK;
        keys = keys < chunk_keys ? keys : chunk_keys;
        memset(x->weights, 0, (size_t)((keys + AMX_UNIT - 1) / AMX_UNIT * 2048 * x->l->parts));
    }
    if (x->t->flags & HEED_TILE_OUTPUTS)
        write_outputs(x, unit, end);
    else
        run_chunk(x, unit, end, careful_to);
}

/* Can all units of the chunk that the group sees take the resident path? */
static int is_resident(const amx_run *x, int unit, int end)
{
    if (x->l->group != 16 || x->rows->odd_q || end < unit + 2 || x->t->flags & HEED_TILE_OUTPUTS)
        return 0;
    for (int block = unit / AMX_BLOCK_UNITS; block * AMX_BLOCK_UNITS < end; block++)
        if (x->odd_blocks >> block & 1 || block_is(x, block, HEED_BLOCK_NONE))
            return 0;
    /* A fresh group has seen nothing: all of its rows begin here. */
    return x->rows->fresh || state_of_rows(x) != ROWS_MIXED;
}

/* Points x at the first group from *g on that sees something of the chunk. Groups passed over are
 * finished if the chunk is the last. Returns 0 where no group is left. */
static int next_group(amx_run *x, char *scratch, int64_t *g, int64_t groups, int *unit, int *end)
{
    for (; *g < groups; ++*g) {
        choose_group(x, scratch, *g);
        if (units_of_group(x, unit, end))
            return 1;
        if (x->leaves)
            leave_group(x);
    }
    return 0;
}

/* Computes Q K of one more unit of the next group, while O is in its registers. */
static void resident_more(resident *r)
{
    const amx_run *y = r->after;
    const int unit = r->after_first + r->after_have;
    fast_unit f = {.unit = y->unit, .q = y->q, .k_next = k_tile(y, unit, 0, 0)};
    f.next = ring_scores(y, r->after_have++);
    for (int part = 0; part < 4; part++)
        resident_qk(&f, y->l->k_steps, part);
    resident_store(&f, 0);
    resident_store(&f, 1);
    if (!seen_by_all(y, unit))
        hide_keys(y, unit, f.next);
}

/* A group and its units of the chunk; open: its rows begin here. */
typedef struct group_at {
    amx_run *x;
    int64_t g;
    int unit, end, open;
} group_at;

static int is_open(const amx_run *x)
{
    return x->rows->fresh || state_of_rows(x) == ROWS_UNSEEN;
}

/* Points `then` at the group after `now` and, if it can follow without a gap, has its first
 * products made in the last slots of `now`. Returns whether there is a group after `now`. */
static int look_ahead(resident *r, const group_at *now, group_at *then, char *scratch,
                      int64_t groups)
{
    amx_run *y = then->x;
    int more;
    then->g = now->g + 1;
    more = next_group(y, scratch, &then->g, groups, &then->unit, &then->end);
    y->second_set = !now->x->second_set;
    r->after = y;
    r->after_first = then->unit;
    r->after_have = r->after_want = 0;
    if (more && is_resident(y, then->unit, then->end)) {
        then->open = is_open(y);
        r->after_want = resident_first(then->unit, then->end, then->open);
    }
    return more;
}

/* Makes `then` the current group and `now` the one before, whose last P V are still to come.
 * Returns 0 and changes neither where the rows of `then` cannot begin on this path. */
static int go_on(resident *r, group_at *now, group_at *then, amx_run **spare)
{
    const unsigned at = r->at + (unsigned)(now->end - now->unit);
    amx_run *x = now->x;
    while (r->after_have < r->after_want)
        resident_more(r);
    if (then->open && !resident_references(then->x, r->after_want))
        return 0;
    r->before = x;
    r->before_end = now->end;
    r->x = then->x;
    r->at = at;
    r->first = then->unit;
    r->end = then->end;
    r->have = then->unit + r->after_want;
    *now = *then;
    then->x = *spare;
    *spare = x; /* still needed in the first slots of the current group */
    return 1;
}

/* Takes groups one after another along the resident path, from `now`, which has its first scores,
 * until one has no successor that can follow at once or has to leave the path. *then is the next
 * group, not yet begun; returns whether there is one. */
static int resident_groups(resident *r, group_at *now, group_at *then, amx_run **spare,
                           char *scratch, int64_t groups)
{
    for (;;) {
        amx_run *x = now->x;
        amx_rows saved;
        const int more = look_ahead(r, now, then, scratch, groups);
        int status, to;
        if (!now->open)
            copy_rows(x, &saved, x->rows);
        to = resident_slots(r, &status);
        if (status == 0 && r->after_want && go_on(r, now, then, spare))
            continue;
        if (status == 2) { /* O in memory is as it was */
            if (now->open)
                reset_rows(x, x->rows);
            else
                copy_rows(x, x->rows, &saved);
            group_alone(x, now->unit, now->end, now->end);
        } else {
            resident_end(r, to);
            if (status == 1)
                resident_raise(r, to);
            if (to < now->end)
                group_alone(x, to, now->end, 0);
        }
        if (x->leaves)
            leave_group(x);
        return more;
    }
}

/* Takes all groups through the chunk, whose blocks are packed. Groups that can follow each other do
 * so without a gap: the last slots of one make the first products of the next, whose first slots
 * make the last products of the one before. */
static void groups_and_chunk(amx_run three[3], char *scratch, int64_t groups)
{
    group_at now = {.x = &three[0]}, then = {.x = &three[1]};
    amx_run *spare = &three[2];
    int more = next_group(now.x, scratch, &now.g, groups, &now.unit, &now.end);
    while (more) {
        amx_run *x = now.x;
        resident r = {.x = x, .first = now.unit, .end = now.end};
        group_at swap;
        int begun = 0;
        if (is_resident(x, now.unit, now.end)) {
            const int first = resident_first(now.unit, now.end, now.open = is_open(x));
            r.have = now.unit + first;
            *x->odd_scores = 0;
            resident_products(x, now.unit, r.have);
            begun = !now.open || resident_references(x, first);
        }
        if (begun) {
            more = resident_groups(&r, &now, &then, &spare, scratch, groups);
        } else {
            group_alone(x, now.unit, now.end, 0);
            if (x->leaves)
                leave_group(x);
            then.g = now.g + 1;
            more = next_group(then.x, scratch, &then.g, groups, &then.unit, &then.end);
        }
        swap = now;
        now = then;
        then = swap;
    }
}

#endif
