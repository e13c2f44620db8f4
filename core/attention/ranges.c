/* What scheduling finds out about ranges and key blocks. Neighbouring rows often have equal lists,
 * which are looked at once. */
#include "ranges.h"

#include "base/checked.h"
#include "base/reason.h"

/* Sequence b as one tile of all rows, heads and keys, with the members that lists need. */
static heed_tile tile_of(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                         const heed_sequence *s)
{
    const heed_const_view *r = &args->ranges, *k = &args->key_blocks;
    heed_tile t = {
        .struct_size = sizeof t,
        .n_heads = plan->desc.q_heads,
        .q_count = s->q_len,
        .q_len = s->q_len,
        .k_end = s->kv_len,
        .kv_len = s->kv_len,
        .q_offset = s->q_offset,
        .window_left = plan->window_left,
        .window_right = plan->window_right,
        .ranges = {NULL, r->stride[1], r->stride[2], r->stride[3]},
        .key_blocks = {NULL, k->stride[1], k->stride[2], k->stride[3]},
    };
    if (r->data)
        t.ranges.data = (char *)r->data + b * r->stride[0] * 8;
    if (k->data)
        t.key_blocks.data = (char *)k->data + b * k->stride[0] * 8;
    return t;
}

/* A problem with the members that lists need, which are the same in all classes of a plan. */
static heed_problem problem_of(const heed_attn *plan)
{
    const heed_attn_desc *d = &plan->desc;
    return (heed_problem){.struct_size = sizeof(heed_problem),
                          .page_len = d->page_len,
                          .n_ranges = d->n_ranges,
                          .block_rows = d->block_rows,
                          .block_keys = d->block_keys};
}

/* Checks the intervals of one row: they ascend, do not overlap, and do not reach
 * beyond the keys. */
static heed_status check_row(const heed_tile *t, uint32_t n_ranges, int64_t b, int64_t h, int64_t i,
                             heed_error *why)
{
    int32_t last = 0;
    for (uint32_t n = 0; n < n_ranges; n++) {
        const int32_t *range = heed_range_at(t, h, i, n);
        if (range[0] < 0 || range[1] < range[0] || range[1] > t->kv_len)
            INVALID("args.ranges[%lld][%lld][%lld][%u] is [%d, %d): 0 <= begin <= end <= "
                    "%lld, the sequence's keys, is required",
                    (long long)b, (long long)h, (long long)i, n, range[0], range[1],
                    (long long)t->kv_len);
        if (range[0] == range[1])
            continue;
        if (range[0] < last)
            INVALID("args.ranges[%lld][%lld][%lld][%u] begins at %d: the ranges of a row "
                    "ascend and do not overlap, and one before it ends at %d",
                    (long long)b, (long long)h, (long long)i, n, range[0], last);
        last = range[1];
    }
    return HEED_OK;
}

/* Widens a span to the intervals of a row. */
static void widen(heed_span *span, const heed_tile *t, uint32_t n_ranges, int64_t h, int64_t i)
{
    for (uint32_t n = 0; n < n_ranges; n++) {
        const int32_t *range = heed_range_at(t, h, i, n);
        if (range[0] == range[1])
            continue;
        span->first = heed_min64(span->first, range[0]);
        span->end = heed_max64(span->end, range[1]);
    }
}

/* Checks the ranges of sequence b and finds from where to where they reach. Not a part of
 * heed_ranges_read, because small calls without ranges have no time to make the tile. */
static heed_status read_ranges(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                               heed_sequence *s, heed_error *why)
{
    const int trust = (plan->context->user.flags & HEED_CONTEXT_TRUST_LENGTHS) != 0;
    const heed_tile t = tile_of(plan, args, b, s);
    const int64_t heads = t.ranges.head_stride ? t.n_heads : 1;
    const uint32_t n_ranges = plan->desc.n_ranges;
    heed_span span = {s->kv_len, 0};
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0, alike; i < s->q_len; i += alike) {
            heed_status st = trust ? HEED_OK : check_row(&t, n_ranges, b, h, i, why);
            if (st != HEED_OK)
                return st;
            alike = t.ranges.row_stride ? 1 : s->q_len;
            widen(&span, &t, n_ranges, h, i);
        }
    s->key_first = (int32_t)span.first;
    s->key_end = (int32_t)span.end;
    return HEED_OK;
}

heed_status heed_ranges_read(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                             heed_sequence *s, heed_error *why)
{
    s->key_first = 0;
    s->key_end = s->kv_len;
    if (args->mask_from && !(plan->context->user.flags & HEED_CONTEXT_TRUST_LENGTHS) &&
        (args->mask_from[b] < 0 || args->mask_from[b] > s->kv_len))
        INVALID("args.mask_from[%lld] is %d, 0 to %d, the sequence's keys, is required",
                (long long)b, args->mask_from[b], s->kv_len);
    return args->ranges.data ? read_ranges(plan, args, b, s, why) : HEED_OK;
}

/* The pages that were checked last. Most rows see what the row before them saw, or
 * go on from there. */
typedef struct page_check {
    const int32_t *page;
    int64_t page_len, n_pages, first, end; /* pages [first, end) are good */
} page_check;

/* The first bad page of keys [first, end), or -1. */
static int64_t check_keys(page_check *c, int64_t first, int64_t end)
{
    const int64_t from = first / c->page_len, to = (end - 1) / c->page_len + 1;
    if (from >= c->first && to <= c->end)
        return -1;
    for (int64_t i = from; i < to; i++) {
        if (i >= c->first && i < c->end) {
            i = c->end - 1;
            continue;
        }
        if (c->page[i] < 0 || c->page[i] >= c->n_pages)
            return i;
    }
    if (from > c->end || to < c->first) {
        c->first = from;
        c->end = to;
    } else {
        c->first = heed_min64(c->first, from);
        c->end = heed_max64(c->end, to);
    }
    return -1;
}

heed_status heed_ranges_check_pages(const heed_attn *plan, const heed_attn_args *args, int64_t b,
                                    const heed_sequence *s, heed_error *why)
{
    const heed_tile t = tile_of(plan, args, b, s);
    const heed_problem p = problem_of(plan);
    const int64_t heads = t.ranges.head_stride || t.key_blocks.head_stride ? t.n_heads : 1;
    page_check c = {.page = args->block_table + b * args->block_table_stride,
                    .page_len = plan->desc.page_len,
                    .n_pages = args->n_pages};
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0, alike; i < s->q_len; i += alike) {
            int64_t low, high, unused, first, end;
            alike = heed_rows_alike(&p, &t, h, i, s->q_len);
            heed_row_keys(&t, i, &low, &unused); /* consecutive rows see one interval */
            heed_row_keys(&t, i + alike - 1, &unused, &high);
            for (first = low, end = high; heed_next_listed(&p, &t, h, i, &first, &end);
                 first = end, end = high) {
                const int64_t bad = check_keys(&c, first, end);
                if (bad >= 0)
                    INVALID("args.block_table[%lld][%lld] is %d, 0 to args.n_pages - 1 = %lld is "
                            "required",
                            (long long)b, (long long)bad, c.page[bad],
                            (long long)args->n_pages - 1);
            }
        }
    return HEED_OK;
}

heed_span heed_ranges_span(const heed_problem *problem, const heed_tile *tile, heed_span keys)
{
    const int64_t heads = tile->ranges.head_stride ? tile->n_heads : 1;
    const int64_t rows = tile->ranges.row_stride ? tile->q_count : 1;
    heed_span span = {keys.end, keys.first};
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rows; i++)
            widen(&span, tile, problem->n_ranges, h, tile->q_first + i);
    span.first = heed_max64(span.first, keys.first);
    span.end = heed_min64(span.end, keys.end);
    return span;
}
