/* Turns masks with structure into the intervals of keys that each row sees. The intervals are made
 * twice, first to count and then to write them, so that nothing is written if they do not fit. */
#include <heed/masks.h>

#include "base/reason.h"

#define INVALID(...) return heed_fail(why, HEED_ERR_INVALID, __VA_ARGS__)

/* The intervals of a row that is being made, in order; those that meet become one. */
typedef struct row_ranges {
    const heed_ranges_args *args;
    int32_t *to; /* NULL: they are only counted */
    uint32_t n;
    int64_t most, end; /* no key from `most` on is seen; the last interval's end */
    struct segment *segment;
} row_ranges;

enum { MOST = 8 };

/* Where the keys of a segment lie. It is kept from row to row: neighbours mostly have
 * the same segment. */
typedef struct segment {
    int known;
    int32_t id;
    uint32_t n; /* MOST + 1: more than are kept */
    int64_t first[MOST], end[MOST];
} segment;

static void add(row_ranges *r, int64_t first, int64_t end)
{
    first = first > 0 ? first : 0;
    end = end < r->most ? end : r->most;
    if (first >= end)
        return;
    if (r->n && r->end >= first) {
        r->end = end > r->end ? end : r->end;
    } else {
        if (r->to)
            r->to[2 * r->n] = (int32_t)first;
        r->n++;
        r->end = end;
    }
    if (r->to)
        r->to[2 * r->n - 1] = (int32_t)r->end;
}

static void find_segment(const heed_ranges_args *a, int32_t id, segment *s)
{
    s->known = 1;
    s->id = id;
    s->n = 0;
    for (int64_t j = 0; j < a->keys && s->n <= MOST; j++) {
        const int64_t first = j;
        while (j < a->keys && a->segments[j] == id)
            j++;
        if (first == j)
            continue;
        if (s->n < MOST) {
            s->first[s->n] = first;
            s->end[s->n] = j;
        }
        s->n++;
    }
}

typedef void make_row(row_ranges *r, int64_t i);

static void add_segment(row_ranges *r, int64_t i)
{
    const heed_ranges_args *a = r->args;
    const int64_t own = i + a->offset;
    int32_t id;
    if (!a->row_segments && (own < 0 || own >= a->keys))
        return;
    id = a->row_segments ? a->row_segments[i] : a->segments[own];
    if (id < 0) /* the row is in no segment */
        return;
    if (!r->segment->known || r->segment->id != id)
        find_segment(a, id, r->segment);
    for (uint32_t n = 0; n < r->segment->n && n < MOST; n++)
        add(r, r->segment->first[n], r->segment->end[n]);
    for (int64_t j = r->segment->end[MOST - 1]; r->segment->n > MOST && j < r->most; j++)
        if (a->segments[j] == id)
            add(r, j, j + 1);
}

static void add_document(row_ranges *r, int64_t i)
{
    const heed_ranges_args *a = r->args;
    const int64_t own = i + a->offset;
    int64_t first = 0;
    for (int64_t n = 0; n < a->n_lens; first += a->lens[n++])
        if (own >= first && own < first + a->lens[n])
            add(r, first, first + a->lens[n]);
}

static void add_prefix(row_ranges *r, int64_t i)
{
    const int64_t own = i + r->args->offset + 1;
    add(r, 0, own > r->args->prefix ? own : r->args->prefix);
}

static void add_chunk(row_ranges *r, int64_t i)
{
    const int64_t own = i + r->args->offset, chunk = r->args->chunk;
    if (own >= 0)
        add(r, own / chunk * chunk, own / chunk * chunk + chunk);
}

/* Adds the path from the root to row i. A parent lies before its children and is found from them,
 * so each step follows the path back from i to the first node that has not been added. */
static void add_path(row_ranges *r, int64_t i)
{
    const heed_ranges_args *a = r->args;
    add(r, 0, a->offset);
    for (int64_t last = -1; last < i;) {
        int64_t node = i;
        while (a->parents[node] > last)
            node = a->parents[node];
        add(r, a->offset + node, a->offset + node + 1);
        last = node;
    }
}

static int is_hidden(const int32_t *start, const int32_t *end, int64_t i, int64_t j)
{
    return start && i >= start[j] && (!end || i < end[j]);
}

static void add_columns(row_ranges *r, int64_t i)
{
    const heed_ranges_args *a = r->args;
    for (int64_t j = 0; j < r->most; j++)
        if (!is_hidden(a->hidden_start, a->hidden_end, i, j) &&
            !is_hidden(a->hidden_start2, a->hidden_end2, i, j))
            add(r, j, j + 1);
}

/* Makes the intervals of row i, writes them unless `to` is NULL, and returns how many there are. */
static uint32_t make(const heed_ranges_args *a, make_row *row, segment *s, int64_t i, int32_t *to)
{
    const int64_t own = i + a->offset + 1;
    row_ranges r = {a, to, 0, a->keys, 0, s};
    if (a->causal && own < r.most)
        r.most = own > 0 ? own : 0;
    row(&r, i);
    for (uint32_t n = r.n; to && n < a->n_ranges; n++)
        to[2 * n] = to[2 * n + 1] = (int32_t)r.end;
    return r.n;
}

static int counting(const heed_ranges_args *a)
{
    return !a->ranges && a->needed;
}

static heed_status check_ranges(const heed_ranges_args *a, uint32_t may_be_causal, heed_error *why)
{
    const struct {
        const char *name;
        int64_t value;
    } size[] = {{"rows", a->rows}, {"keys", a->keys}};
    for (int i = 0; i < 2; i++)
        if (size[i].value < 0 || size[i].value > INT32_MAX)
            INVALID("args.%s is %lld, 0 to %d is required", size[i].name, (long long)size[i].value,
                    INT32_MAX);
    if (a->offset < -INT64_C(0x7fffffff) || a->offset > INT32_MAX)
        INVALID("args.offset is %lld, %d to %d is required", (long long)a->offset, -INT32_MAX,
                INT32_MAX);
    if (!counting(a) && (a->n_ranges == 0 || a->n_ranges > 8))
        INVALID("args.n_ranges is %u, 1 to 8 is required", a->n_ranges);
    if (a->causal > may_be_causal)
        INVALID("args.causal is %u, %s is required", a->causal, may_be_causal ? "0 or 1" : "0");
    if (!a->ranges && a->rows && !a->needed)
        INVALID("args.ranges is NULL, but required, unless args.needed is given to count alone");
    return HEED_OK;
}

static heed_status run_ranges(const heed_ranges_args *a, make_row *row, heed_error *why)
{
    uint32_t most = 0;
    int64_t where = 0;
    segment s = {.known = 0};
    for (int64_t i = 0; i < a->rows; i++) {
        const uint32_t n = make(a, row, &s, i, NULL);
        if (n > most)
            most = n, where = i;
    }
    if (a->needed)
        *a->needed = most;
    if (counting(a))
        return HEED_OK;
    if (most > a->n_ranges)
        INVALID("args.n_ranges is %u, but row %lld sees %u intervals of keys", a->n_ranges,
                (long long)where, most);
    for (int64_t i = 0; i < a->rows; i++)
        make(a, row, &s, i, a->ranges + 2 * i * a->n_ranges);
    return HEED_OK;
}

typedef heed_status check_inputs(const heed_ranges_args *a, heed_error *why);

HEED_CHECK_ARGS_ERROR(heed_ranges_args);
static heed_status ranges(const heed_ranges_args *args, uint32_t may_be_causal, check_inputs *check,
                          make_row *row)
{
    heed_ranges_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK)
        st = check_ranges(&a, may_be_causal, &why);
    if (st == HEED_OK)
        st = check(&a, &why);
    if (st == HEED_OK)
        st = run_ranges(&a, row, &why);
    return st == HEED_OK ? HEED_OK : heed_report_call(args, st, &why);
}

static heed_status check_segments(const heed_ranges_args *a, heed_error *why)
{
    if (!a->segments && a->keys)
        INVALID("args.segments is NULL, but required");
    return HEED_OK;
}

static heed_status check_lens(const heed_ranges_args *a, heed_error *why)
{
    int64_t sum = 0;
    if (a->n_lens < 0 || (a->n_lens && !a->lens))
        INVALID("args.n_lens is %lld and args.lens %s, at least 0 and an array are required",
                (long long)a->n_lens, a->lens ? "given" : "NULL");
    for (int64_t n = 0; n < a->n_lens; n++) {
        sum += a->lens[n];
        if (a->lens[n] < 0 || sum > a->keys)
            INVALID("args.lens[%lld] is %d: at least 0, and a sum of at most args.keys = %lld, is "
                    "required",
                    (long long)n, a->lens[n], (long long)a->keys);
    }
    return HEED_OK;
}

static heed_status check_prefix(const heed_ranges_args *a, heed_error *why)
{
    if (a->prefix < 0 || a->prefix > a->keys)
        INVALID("args.prefix is %lld, 0 to args.keys = %lld is required", (long long)a->prefix,
                (long long)a->keys);
    return HEED_OK;
}

static heed_status check_chunk(const heed_ranges_args *a, heed_error *why)
{
    if (a->chunk < 1 || a->chunk > INT32_MAX)
        INVALID("args.chunk is %lld, 1 to %d is required", (long long)a->chunk, INT32_MAX);
    return HEED_OK;
}

static heed_status check_tree(const heed_ranges_args *a, heed_error *why)
{
    if (a->rows && !a->parents)
        INVALID("args.parents is NULL, but required");
    if (a->offset < 0 || a->offset + a->rows > a->keys)
        INVALID("args.offset is %lld: with %lld rows, each a key, 0 to %lld is required",
                (long long)a->offset, (long long)a->rows, (long long)(a->keys - a->rows));
    for (int64_t i = 0; i < a->rows; i++)
        if (a->parents[i] < -1 || a->parents[i] >= i)
            INVALID("args.parents[%lld] is %d, -1 to %lld, a row before it, is required",
                    (long long)i, a->parents[i], (long long)i - 1);
    return HEED_OK;
}

static heed_status check_columns(const heed_ranges_args *a, heed_error *why)
{
    if (a->hidden_end && !a->hidden_start)
        INVALID("args.hidden_end is given without args.hidden_start");
    if (a->hidden_end2 && !a->hidden_start2)
        INVALID("args.hidden_end2 is given without args.hidden_start2");
    return HEED_OK;
}

heed_status heed_ranges_segments(const heed_ranges_args *args)
{
    return ranges(args, 1, check_segments, add_segment);
}

heed_status heed_ranges_lens(const heed_ranges_args *args)
{
    return ranges(args, 1, check_lens, add_document);
}

heed_status heed_ranges_prefix(const heed_ranges_args *args)
{
    return ranges(args, 0, check_prefix, add_prefix);
}

heed_status heed_ranges_chunks(const heed_ranges_args *args)
{
    return ranges(args, 1, check_chunk, add_chunk);
}

heed_status heed_ranges_tree(const heed_ranges_args *args)
{
    return ranges(args, 0, check_tree, add_path);
}

heed_status heed_ranges_columns(const heed_ranges_args *args)
{
    return ranges(args, 1, check_columns, add_columns);
}
