/* Turns masks with structure into the intervals of keys that each row sees. The intervals are made
 * twice, first to count and then to write them, so that nothing is written if they do not fit. */
#include <heed/masks.h>

#include "base/reason.h"

/* The intervals of a row that is being made, in order; those that meet become one. */
typedef struct row_ranges {
    const heed_ranges_args *args;
    int32_t *to; /* NULL: they are only counted */
    uint32_t n;
    int64_t most, end; /* no key from `most` on is seen; the last interval's end */
    struct kept *kept;
} row_ranges;

enum { MOST = 8 };

/* What is kept from row to row, since neighbours mostly see the same keys. */
typedef struct kept {
    uint32_t n; /* intervals of keys; MOST + 1: more than are kept */
    int64_t first[MOST], end[MOST];
    /* Segments: whose keys they are, and whether no key's segment is before that of the key before. */
    int known, ordered;
    int32_t id;
    int64_t until;                    /* columns: the next row that sees other keys */
    int64_t document, document_first; /* lens: a document and its first key */
} kept;

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

/* Adds key j, behind all others. */
static void keep(kept *k, int64_t j)
{
    if (k->n && k->n <= MOST && k->end[k->n - 1] == j) {
        k->end[k->n - 1]++;
    } else if (k->n < MOST) {
        k->first[k->n] = j;
        k->end[k->n++] = j + 1;
    } else {
        k->n = MOST + 1;
    }
}

typedef int sees_key(const row_ranges *r, int64_t i, int64_t j);

/* Adds the intervals that are kept for row i, and the keys behind them where there are more. */
static void add_kept(row_ranges *r, int64_t i, sees_key *sees)
{
    const kept *k = r->kept;
    for (uint32_t n = 0; n < k->n && n < MOST; n++)
        add(r, k->first[n], k->end[n]);
    for (int64_t j = k->end[MOST - 1]; k->n > MOST && j < r->most; j++)
        if (sees(r, i, j))
            add(r, j, j + 1);
}

typedef void make_row(row_ranges *r, int64_t i);

static int is_ordered(const heed_ranges_args *a)
{
    for (int64_t j = 1; j < a->keys; j++)
        if ((uint32_t)a->segments[j] < (uint32_t)a->segments[j - 1]) /* padding is the last one */
            return 0;
    return 1;
}

/* Where segments are ordered, as packed documents are, a later one lies behind the last one found,
 * and nothing lies behind its keys: so all of them together take one pass over the keys. */
static void find_segment(const heed_ranges_args *a, int32_t id, kept *k)
{
    if (!k->known)
        k->ordered = is_ordered(a);
    int64_t j = k->known && k->ordered && k->n && id > k->id ? k->end[0] : 0;
    k->known = 1;
    k->id = id;
    k->n = 0;
    for (; j < a->keys && k->n <= MOST; j++) {
        if (a->segments[j] == id)
            keep(k, j);
        else if (k->ordered && (uint32_t)a->segments[j] > (uint32_t)id)
            break;
    }
}

static int in_segment(const row_ranges *r, int64_t i, int64_t j)
{
    (void)i;
    return r->args->segments[j] == r->kept->id;
}

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
    if (!r->kept->known || r->kept->id != id)
        find_segment(a, id, r->kept);
    add_kept(r, i, in_segment);
}

static void add_document(row_ranges *r, int64_t i)
{
    const heed_ranges_args *a = r->args;
    const int64_t own = i + a->offset;
    kept *k = r->kept;
    while (k->document < a->n_lens && own >= k->document_first + a->lens[k->document])
        k->document_first += a->lens[k->document++];
    if (own >= 0 && k->document < a->n_lens)
        add(r, k->document_first, k->document_first + a->lens[k->document]);
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

/* Adds the path from the root to row i. It is found from its end, each parent before its child: so
 * intervals of adjacent nodes are collected, the last one first. More than MOST are only counted. */
static void add_path(row_ranges *r, int64_t i)
{
    const heed_ranges_args *a = r->args;
    int64_t first[MOST], end[MOST], last = -1;
    uint32_t n = 0;
    for (int64_t node = i; node >= 0; last = node, node = a->parents[node]) {
        if (node + 1 != last)
            end[n++ % MOST] = node + 1;
        first[(n - 1) % MOST] = node;
    }
    add(r, 0, a->offset);
    if (n > MOST)
        r->n += n - (r->n && last == 0); /* a root at row 0 lies behind the keys before */
    else
        while (n-- > 0)
            add(r, a->offset + first[n], a->offset + end[n]);
}

static int is_hidden(const int32_t *start, const int32_t *end, int64_t i, int64_t j)
{
    return start && i >= start[j] && (!end || i < end[j]);
}

static int sees_column(const row_ranges *r, int64_t i, int64_t j)
{
    const heed_ranges_args *a = r->args;
    return !is_hidden(a->hidden_start, a->hidden_end, i, j) &&
           !is_hidden(a->hidden_start2, a->hidden_end2, i, j);
}

static void find_columns(row_ranges *r, int64_t i)
{
    const heed_ranges_args *a = r->args;
    const int32_t *const bounds[] = {a->hidden_start, a->hidden_end, a->hidden_start2,
                                     a->hidden_end2};
    r->kept->n = 0;
    r->kept->until = a->rows;
    for (int b = 0; b < 4; b++)
        for (int64_t j = 0; bounds[b] && j < a->keys; j++)
            if (bounds[b][j] > i && bounds[b][j] < r->kept->until)
                r->kept->until = bounds[b][j];
    for (int64_t j = 0; j < a->keys && r->kept->n <= MOST; j++)
        if (sees_column(r, i, j))
            keep(r->kept, j);
}

static void add_columns(row_ranges *r, int64_t i)
{
    if (i >= r->kept->until)
        find_columns(r, i);
    add_kept(r, i, sees_column);
}

/* Makes the intervals of row i, writes them unless `to` is NULL, and returns how many there are. */
static uint32_t make(const heed_ranges_args *a, make_row *row, kept *k, int64_t i, int32_t *to)
{
    const int64_t own = i + a->offset + 1;
    row_ranges r = {a, to, 0, a->keys, 0, k};
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
    const heed_number size[] = {{"args.rows", a->rows, 0, INT32_MAX},
                                {"args.keys", a->keys, 0, INT32_MAX},
                                {"args.offset", a->offset, -INT32_MAX, INT32_MAX}};
    heed_status st = heed_check_numbers(size, 3, why);
    if (st != HEED_OK)
        return st;
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
    kept counted = {.known = 0}, written = counted;
    for (int64_t i = 0; i < a->rows; i++) {
        const uint32_t n = make(a, row, &counted, i, NULL);
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
        make(a, row, &written, i, a->ranges + 2 * i * a->n_ranges);
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
    return heed_report_call(args, st, &why);
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
    if (a->rows > a->keys)
        INVALID("args.rows is %lld, each of them a key, and args.keys is %lld", (long long)a->rows,
                (long long)a->keys);
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
