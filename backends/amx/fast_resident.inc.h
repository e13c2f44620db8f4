/*
 * The resident path: the fast path for heads of up to 64 dims (fast.inc.h has the others). O of a
 * group of 16 rows stays in four registers while the group goes through the keys. A slot is one
 * unit of 32 keys: between the rows of its softmax come the products Q K of the next unit and P V
 * of the unit before the last, so that the tile unit and the vector ports work at the same time and
 * a product's result is read long after it was begun.
 */
#ifndef HEED_AMX_FAST_RESIDENT_H
#define HEED_AMX_FAST_RESIDENT_H

#include "fast.inc.h"
#include "finish.inc.h"

/* Registers: 0-3 O ([32 columns][column tile]), 4 and 5 S of the two halves, 6 K or V, 7 Q or P. */

/* Q K of one unit in four parts. */
AMX_INLINE void resident_qk(const fast_unit *f, const int steps, const int part)
{
    tile_unit *u = f->unit;
    const int step = part / 2;
    (void)u;
    if (step >= steps)
        return;
    if (part % 2 == 0) {
        tile_load(u, 7, f->q + step * 1024, 64);
        tile_load(u, 6, f->k_next + step * 1024, 64);
        if (step == 0)
            tile_zero(u, 4);
        tile_product(u, 4, 7, 6);
    } else {
        tile_load(u, 6, f->k_next + (steps + step) * 1024, 64);
        if (step == 0)
            tile_zero(u, 5);
        tile_product(u, 5, 7, 6);
    }
}

/* P V of one unit in four parts. */
AMX_INLINE void resident_pv(const fast_unit *f, const int pairs, const int part)
{
    tile_unit *u = f->unit;
    (void)u;
    if (part >= 2 * pairs)
        return;
    if (part == 0)
        tile_load(u, 7, f->p_before, 64);
    tile_load(u, 6, f->v_before + part * 1024, 64);
    if (part == 0)
        tile_product(u, 0, 7, 6);
    else if (part == 1)
        tile_product(u, 1, 7, 6);
    else if (part == 2)
        tile_product(u, 2, 7, 6);
    else
        tile_product(u, 3, 7, 6);
}

/* Stores one half of S, [2][16 rows][16]. */
AMX_INLINE void resident_store(const fast_unit *f, const int half)
{
    tile_unit *u = f->unit;
    (void)u;
    if (half == 0)
        tile_store(u, 4, f->next, 64);
    else
        tile_store(u, 5, f->next + 256, 64);
}

/* The tile operations that come before row `row` of the softmax. */
AMX_INLINE void resident_op(const fast_unit *f, const int steps, const int next, const int before,
                            const int row)
{
    if (next && row < 8 && row % 2 == 0)
        resident_qk(f, steps, row / 2);
    if (before && row >= 8 && row % 2 == 0)
        resident_pv(f, steps, (row - 8) / 2);
    if (next && row == 11)
        resident_store(f, 0);
    if (next && row == 13)
        resident_store(f, 1);
}

#define RESIDENT_ROW(n)                                                                            \
    resident_op(f, steps, next, before, n);                                                        \
    fast_row(f, c, table, &top, n, 256);

/* One slot. next: with Q K of a later unit, before: with P V of an earlier one. */
AMX_INLINE void resident_slot(fast_unit *state, const int steps, const int next, const int before)
{
    const fast_unit copy = *state, *const f = &copy; /* a local, which no store can change */
    const vf c = v_set1(f->c);
    const vi table = vi_load(exp2_table);
    vi top = f->top;
    EACH_OF_16(RESIDENT_ROW)
    state->top = top;
}

#define RESIDENT_KIND(steps, next, before)                                                         \
    static void resident_##steps##next##before(fast_unit *f)                                       \
    {                                                                                              \
        resident_slot(f, steps, next, before);                                                     \
    }
RESIDENT_KIND(1, 0, 0)
RESIDENT_KIND(1, 0, 1)
RESIDENT_KIND(1, 1, 0)
RESIDENT_KIND(1, 1, 1)
RESIDENT_KIND(2, 0, 0)
RESIDENT_KIND(2, 0, 1)
RESIDENT_KIND(2, 1, 0)
RESIDENT_KIND(2, 1, 1)

static fast_kind *const resident_kinds[2][2][2] = {
    {{resident_100, resident_101}, {resident_110, resident_111}},
    {{resident_200, resident_201}, {resident_210, resident_211}}};

/* Scores of a group's first units lie in one of two sets, those of later units in a ring that is as
 * short as possible, and weights in a ring of a block: memory that is written again before K and V
 * have pushed it out of L1 causes no traffic with L2. */
#define RESIDENT_AHEAD 1 /* most units whose scores are computed before their turn */
#define RESIDENT_RING (RESIDENT_AHEAD + 1)
_Static_assert((RESIDENT_RING + 2 * AMX_BLOCK_UNITS) * 16 * AMX_UNIT * 4 <= AMX_SCORES_BYTES,
               "scores of a run on the resident path");

typedef struct resident {
    amx_run *x; /* the current group: its units [first, end); those before `have` have scores */
    int first, end, have;
    unsigned at;     /* the place of `first` in the ring of weights */
    amx_run *before; /* the group whose last two units have no P V yet, or NULL */
    int before_end;
    /* The next group: of its first units, after_want are to have scores (0 if it cannot follow at
     * once) and after_have do. */
    amx_run *after;
    int after_first, after_want, after_have;
} resident;

/* Where the scores of the group's n-th unit lie. */
static inline float *ring_scores(const amx_run *x, int n)
{
    const int place = n < AMX_BLOCK_UNITS ? RESIDENT_RING + x->second_set * AMX_BLOCK_UNITS + n
                                          : n % RESIDENT_RING;
    return x->s + place * 512;
}

static inline char *ring_weights(const amx_run *x, unsigned at)
{
    return x->weights + at % AMX_BLOCK_UNITS * 1024;
}

/* Q K of up to four units at once, before O is loaded. A tile is stored only when the next products
 * have begun. */
#define RESIDENT_OPEN(s0, s1, n)                                                                   \
    if (unit + (n) < end) {                                                                        \
        const char *k = k_tile(x, unit + (n), 0, 0);                                               \
        tile_load(u, 7, x->q, 64);                                                                 \
        tile_load(u, 6, k, 64);                                                                    \
        tile_zero(u, s0);                                                                          \
        tile_zero(u, s1);                                                                          \
        tile_product(u, s0, 7, 6);                                                                 \
        tile_load(u, 6, k + steps * 1024, 64);                                                     \
        tile_product(u, s1, 7, 6);                                                                 \
        if (steps > 1) {                                                                           \
            tile_load(u, 7, x->q + 1024, 64);                                                      \
            tile_load(u, 6, k + 1024, 64);                                                         \
            tile_product(u, s0, 7, 6);                                                             \
            tile_load(u, 6, k + 3072, 64);                                                         \
            tile_product(u, s1, 7, 6);                                                             \
        }                                                                                          \
    }
#define RESIDENT_OPENED(s0, s1, n)                                                                 \
    if (unit + (n) < end) {                                                                        \
        tile_store(u, s0, ring_scores(x, (n)), 64);                                                \
        tile_store(u, s1, ring_scores(x, (n)) + 256, 64);                                          \
    }

static void resident_products(const amx_run *x, int unit, int end)
{
    tile_unit *u = x->unit;
    const int steps = x->l->k_steps;
    (void)u;
    RESIDENT_OPEN(0, 1, 0)
    RESIDENT_OPEN(2, 3, 1)
    RESIDENT_OPENED(0, 1, 0)
    RESIDENT_OPEN(4, 5, 2)
    RESIDENT_OPENED(2, 3, 1)
    RESIDENT_OPEN(0, 1, 3)
    RESIDENT_OPENED(4, 5, 2)
    RESIDENT_OPENED(0, 1, 3)
    for (int n = 0; unit < end; unit++, n++)
        if (!seen_by_all(x, unit))
            hide_keys(x, unit, ring_scores(x, n));
}

static inline void resident_load_o(const amx_run *x)
{
    tile_unit *u = x->unit;
    (void)u;
    if (x->rows->fresh) {
        TILE_ZERO_4(u)
        return;
    }
    tile_load(u, 0, o_tile(x, 0, 0, 0), 64);
    tile_load(u, 1, o_tile(x, 0, 0, 1), 64);
    if (x->l->v_pairs > 1) {
        tile_load(u, 2, o_tile(x, 1, 0, 0), 64);
        tile_load(u, 3, o_tile(x, 1, 0, 1), 64);
    }
}

static inline void resident_store_o(const amx_run *x)
{
    tile_unit *u = x->unit;
    (void)u;
    tile_store(u, 0, o_tile(x, 0, 0, 0), 64);
    tile_store(u, 1, o_tile(x, 0, 0, 1), 64);
    if (x->l->v_pairs > 1) {
        tile_store(u, 2, o_tile(x, 1, 0, 0), 64);
        tile_store(u, 3, o_tile(x, 1, 0, 1), 64);
    }
    x->rows->fresh = 0;
}

/* Sets the first references of all rows from the first units, as open_references does. */
static int resident_references(const amx_run *x, int units)
{
    const float *s[AMX_BLOCK_UNITS];
    const uint16_t exist = range_mask(0, x->n_rows, 0);
    vf rows[16], top;
    if (x->c < 0)
        for (int i = 0; i < 16; i++) { /* the least product is the largest score */
            vf most = v_set1(-INFINITY);
            for (int n = 0; n < units; n++) {
                const float *p = ring_scores(x, n) + i * 16;
                most = v_max(v_mul(v_load(p), v_set1(-1)), most);
                most = v_max(v_mul(v_load(p + 256), v_set1(-1)), most);
            }
            rows[i] = most;
        }
    else {
        for (int n = 0; n < AMX_BLOCK_UNITS; n++)
            s[n] = ring_scores(x, n < units ? n : 0);
        for (int i = 0; i < 16; i++) {
            vf a = v_max(v_load(s[0] + i * 16), v_load(s[0] + 256 + i * 16));
            vf b = v_max(v_load(s[1] + i * 16), v_load(s[1] + 256 + i * 16));
            vf c = v_max(v_load(s[2] + i * 16), v_load(s[2] + 256 + i * 16));
            vf d = v_max(v_load(s[3] + i * 16), v_load(s[3] + 256 + i * 16));
            rows[i] = v_max(v_max(a, b), v_max(c, d));
        }
    }
    /* The largest product gives the largest score: rounding keeps the order. */
    top = v_mul(v_largest_of(rows), v_set1(fabsf(x->c)));
    top = v_add(v_ceil(top), v_set1(AMX_MARGIN));
    if (m_within(top, AMX_ONE_STEP, exist) != exist)
        return 0;
    v_store_some(x->rows->reference, exist, top);
    return 1;
}

/* Adds P V of unit `unit` to O, with nothing woven in. */
static void resident_add(const amx_run *x, int unit, unsigned at)
{
    const fast_unit f = {
        .unit = x->unit, .p_before = ring_weights(x, at), .v_before = v_tile(x, unit, 0, 0)};
    for (int part = 0; part < 4; part++)
        resident_pv(&f, x->l->k_steps, part);
}

/* Stores O of the group before, if there is one, and loads that of the current group. */
static inline void resident_next_o(resident *r)
{
    if (r->before)
        resident_store_o(r->before);
    resident_load_o(r->x);
}

/* Chooses which Q K are computed beside `unit`: the current group's, up to RESIDENT_AHEAD units
 * ahead, then the first ones of the next group. Returns that group, or NULL if there are none. */
AMX_INLINE const amx_run *resident_beside(resident *r, int unit, fast_unit *f, int *next_unit)
{
    const amx_run *next = NULL;
    if (r->have < r->end) {
        if (r->have <= unit + RESIDENT_AHEAD) {
            next = r->x;
            *next_unit = r->have++;
            f->next = ring_scores(next, *next_unit - r->first);
        }
    } else if (r->after_have < r->after_want) {
        next = r->after;
        *next_unit = r->after_first + r->after_have;
        f->next = ring_scores(next, r->after_have++);
    }
    if (next) {
        f->q = next->q;
        f->k_next = k_tile(next, *next_unit, 0, 0);
    }
    return next;
}

#define SUM_LOAD(n) vf sum##n = v_load(f.sums + (n)*16);
#define SUM_STORE(n) v_store(f.sums + (n)*16, sum##n);
#define MIDDLE_ROW(n)                                                                              \
    resident_op(&f, steps, 1, 1, n);                                                               \
    sum##n = v_add_pairs(sum##n, fast_weights(&f, c, table, &top, n, 256));

/* The slots of units [unit, end) of a group, between which nothing is to be decided: all rows see
 * the units after them, Q K of which they make. Sums of rows stay in registers. Ends sooner after a
 * block that has a weight of 2^-2 or more. Returns the unit that it has come to. */
AMX_INLINE int resident_middle(const resident *r, fast_unit *state, const int steps, int unit,
                               const int end)
{
    const char *const *k_at = (const char *const *)r->x->k_at;
    const char *const *v_at = (const char *const *)r->x->v_at;
    const vf c = v_set1(state->c);
    const vi table = vi_load(exp2_table);
    unsigned n = (unsigned)(unit - r->first);
    fast_unit f = *state;
    float *const s = r->x->s, *next = ring_scores(r->x, (int)n);
    char *const w = r->x->weights;
    vi top = f.top;
    f.q = r->x->q;
    EACH_OF_16(SUM_LOAD)
    do {
        const unsigned at = r->at + n;
        f.now = next;
        f.next = next = s + (n + 1) % RESIDENT_RING * 512;
        f.k_next = k_at[unit + 1];
        f.v_before = v_at[unit - 2];
        f.weights = w + at % AMX_BLOCK_UNITS * 1024;
        f.p_before = w + (at - 2) % AMX_BLOCK_UNITS * 1024;
        EACH_OF_16(MIDDLE_ROW)
        unit++;
        n++;
    } while (unit < end && !(unit % AMX_BLOCK_UNITS == 0 && fast_check(top)));
    EACH_OF_16(SUM_STORE)
    state->top = top;
    return unit;
}

static int resident_middle_1(const resident *r, fast_unit *f, int unit, int end)
{
    return resident_middle(r, f, 1, unit, end);
}

static int resident_middle_2(const resident *r, fast_unit *f, int unit, int end)
{
    return resident_middle(r, f, 2, unit, end);
}

/* The end of the slots from the group's n-th unit on that resident_middle can take. */
static inline int end_of_middle(const resident *r, int unit, int n)
{
    const amx_run *x = r->x;
    const int64_t seen = (x->all_end - x->chunk) / AMX_UNIT; /* units before this one, by all */
    if (n < AMX_BLOCK_UNITS - 1 || x->exact || r->have != unit + 1 || r->have >= r->end ||
        !seen_by_all(x, unit + 1))
        return unit;
    return (int)(seen < r->end ? seen : r->end) - 1;
}

/* Runs the units of the current group, with the products that the group before still needs and the
 * first ones of the group after. Stops after a block whose *status (as of fast_check) is not 0, or
 * at the end, and returns the unit it has come to. O of the group is then in registers, without the
 * P V of its last two units. */
static int resident_slots(resident *r, int *status)
{
    amx_run *x = r->x;
    float addends[16];
    const int steps = x->l->k_steps;
    int unit = r->first, n = 0;
    fast_unit f = {
        .sums = x->rows->sum[0], .addends = addends, .unit = x->unit, .c = x->c, .top = vi_zero()};
    for (int i = 0; i < 16; i++)
        addends[i] = fixed_addend(i < x->n_rows ? x->rows->reference[i] : AMX_NO_ROW);
    *status = 0;
    while (unit < r->end && !*status) {
        const unsigned at = r->at + (unsigned)n;
        const int middle = end_of_middle(r, unit, n);
        int next_unit = 0, before = 1;
        if (middle > unit) {
            unit = (steps == 1 ? resident_middle_1 : resident_middle_2)(r, &f, unit, middle);
            n = unit - r->first;
            r->have = unit + 1;
            if (unit % AMX_BLOCK_UNITS == 0)
                *status = fast_check(f.top);
            continue;
        }
        const amx_run *next = resident_beside(r, unit, &f, &next_unit);
        f.now = ring_scores(x, n);
        f.weights = ring_weights(x, at);
        f.p_before = ring_weights(x, at - 2);
        if (n >= 2)
            f.v_before = v_tile(x, unit - 2, 0, 0);
        else if (r->before)
            f.v_before = v_tile(x, r->before_end - 2 + n, 0, 0);
        else
            before = 0;
        if (n == 2)
            resident_next_o(r);
        resident_kinds[steps - 1][next != NULL][before](&f);
        if (x->exact)
            add_exact_unit(x, f.now);
        if (next && !seen_by_all(next, next_unit))
            hide_keys(next, next_unit, f.next);
        if (n == 2 && r->before) {
            if (r->before->leaves)
                leave_group(r->before);
            r->before = NULL;
        }
        unit++;
        n++;
        if (unit % AMX_BLOCK_UNITS == 0 || unit == r->end)
            *status = *x->odd_scores ? 2 : fast_check(f.top);
    }
    if (n <= 2) {
        if (r->before && n == 1)
            resident_add(r->before, r->before_end - 1, r->at - 1);
        resident_next_o(r);
        if (r->before && r->before->leaves)
            leave_group(r->before);
        r->before = NULL;
    }
    return unit;
}

/* Adds P V of the last two units before `unit` and stores O. */
static void resident_end(const resident *r, int unit)
{
    amx_run *x = r->x;
    for (int last = unit - 2 < r->first ? r->first : unit - 2; last < unit; last++)
        resident_add(x, last, r->at + (unsigned)(last - r->first));
    resident_store_o(x);
    x->from = unit;
}

/* Raises references after a block that ended before `unit` and had a weight of 2^-2 or more. */
static void resident_raise(const resident *r, int unit)
{
    int block = (unit - 1) / AMX_BLOCK_UNITS * AMX_BLOCK_UNITS;
    block = block > r->first ? block : r->first;
    raise_references(r->x, block, unit,
                     (int)((r->at + (unsigned)(block - r->first)) % AMX_BLOCK_UNITS),
                     AMX_BLOCK_UNITS);
}

/* How many units need scores before the first weights are computed. */
static inline int resident_first(int unit, int end, int open)
{
    const int ready = open ? (unit / AMX_BLOCK_UNITS + 1) * AMX_BLOCK_UNITS : unit + 2;
    return (ready < end ? ready : end) - unit;
}

/* As fast_units, but O is updated as well; after -1 and -2 it is in memory as it was. Weights of
 * only one block are kept, so that their cache lines stay in L1: a tile load of weights waits until
 * they are there. */
static int resident_units(amx_run *x, int unit, int end, int open)
{
    resident r = {.x = x, .first = unit, .end = end};
    const int first = resident_first(unit, end, open);
    int status, to;
    flush_o(x, unit);
    *x->odd_scores = 0;
    resident_products(x, unit, unit + first);
    if (open && !resident_references(x, first))
        return -2;
    r.have = unit + first;
    to = resident_slots(&r, &status);
    if (status == 2)
        return -1;
    resident_end(&r, to);
    if (status == 1)
        resident_raise(&r, to);
    return to;
}

#endif
