/* Checks of a partition, and the choice of a scheme. */
#include "read.h"

#include "base/reason.h"
#include "wire.h"

#define WITH_PAIRS (HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS)

/* ---- checks -----------------------------------------------------------------------------------
 */

static heed_status check_choice(const heed_shape *s, heed_error *why)
{
    const heed_partition *p = &s->part;
    if (p->scheme > HEED_GROUP_RING)
        INVALID("partition.scheme is %u, HEED_GROUP_* is required", p->scheme);
    if (p->want > HEED_WANT_HEADS)
        INVALID("partition.want is %u, HEED_WANT_* is required", p->want);
    if ((p->scheme == HEED_GROUP_RING || p->row_first) && p->want)
        INVALID("partition.want is %u, with HEED_GROUP_RING or row_first 0 is required: each rank "
                "gets its rows",
                p->want);
    if (p->want == HEED_WANT_ROOT && p->root >= s->size)
        INVALID("partition.root is %u, less than the transport's size = %u is required", p->root,
                s->size);
    if (p->want != HEED_WANT_ROOT && p->root)
        INVALID("partition.root is %u without HEED_WANT_ROOT", p->root);
    if (p->n_parts == 0 || p->n_parts > 1u << 20)
        INVALID("partition.n_parts is %u, 1 to %u is required", p->n_parts, 1u << 20);
    if (!p->owner && p->n_parts != s->size)
        INVALID("partition.owner is NULL and n_parts %u, but the transport's size is %u",
                p->n_parts, s->size);
    for (uint32_t i = 0; p->owner && i < p->n_parts; i++)
        if (p->owner[i] >= s->size)
            INVALID("partition.owner[%u] is %u, less than the transport's size = %u is required", i,
                    p->owner[i], s->size);
    if (p->timeout_ns <= 0)
        INVALID("partition.timeout_ns is %lld, at least 1 is required", (long long)p->timeout_ns);
    return HEED_OK;
}

static heed_status check_firsts(const heed_shape *s, const char *name, const int32_t *first,
                                heed_error *why)
{
    const uint32_t n = s->part.n_parts;
    if (!first && s->batch)
        INVALID("partition.%s is NULL, but required", name);
    for (int64_t b = 0; b < s->batch; b++) {
        if (heed_first_of(s, first, b, 0) != 0)
            INVALID("partition.%s[%lld][0] is %d, 0 is required", name, (long long)b,
                    heed_first_of(s, first, b, 0));
        for (uint32_t i = 0; i < n; i++)
            if (heed_first_of(s, first, b, i + 1) < heed_first_of(s, first, b, i))
                INVALID("partition.%s[%lld][%u] is %d, at least the one before it, %d, is required",
                        name, (long long)b, i + 1, heed_first_of(s, first, b, i + 1),
                        heed_first_of(s, first, b, i));
    }
    return HEED_OK;
}

/* Checks that parts with keys begin where pages and words of key blocks begin. */
static heed_status check_starts(const heed_shape *s, heed_error *why)
{
    const heed_attn_desc *d = s->desc;
    const int64_t words = d->features & HEED_HAS_KEY_BLOCKS ? 64 * (int64_t)d->block_keys : 1;
    const int64_t page = d->features & HEED_HAS_PAGES ? d->page_len : 1;
    for (int64_t b = 0; b < s->batch && (words > 1 || page > 1); b++)
        for (uint32_t p = 0; p < s->part.n_parts; p++) {
            const int32_t first = heed_first_of(s, s->part.key_first, b, p);
            if (heed_part_len(s, s->part.key_first, b, p) == 0)
                continue;
            if (first % page)
                INVALID("partition.key_first[%lld][%u] is %d: with HEED_HAS_PAGES a multiple of "
                        "desc.page_len = %lld is required",
                        (long long)b, p, first, (long long)page);
            if (first % words)
                return heed_fail(why, HEED_ERR_UNSUPPORTED,
                                 "partition.key_first[%lld][%u] is %d: with HEED_HAS_KEY_BLOCKS a "
                                 "multiple of 64 * desc.block_keys = %lld is required, where a "
                                 "word of bits begins",
                                 (long long)b, p, first, (long long)words);
        }
    return HEED_OK;
}

/* Checks that rows that share bits of key blocks lie in one part. */
static heed_status check_row_blocks(const heed_shape *s, heed_error *why)
{
    const int64_t rows = s->desc->block_rows;
    for (int64_t b = 0; b < s->batch; b++)
        for (uint32_t p = 0; p < s->part.n_parts; p++) {
            const int64_t at = heed_held_before(s, s->part.row_first, b, heed_owner(s, p), p);
            if (at % rows && heed_part_len(s, s->part.row_first, b, p))
                return heed_fail(why, HEED_ERR_UNSUPPORTED,
                                 "part %u of sequence %lld begins at row %lld of its rank: with "
                                 "HEED_HAS_KEY_BLOCKS a multiple of desc.block_rows = %lld is "
                                 "required",
                                 p, (long long)b, (long long)at, (long long)rows);
        }
    return HEED_OK;
}

static heed_status check_features(const heed_shape *s, heed_error *why)
{
    const uint64_t f = s->desc->features;
    if (f & (HEED_HAS_WEIGHTS | HEED_HAS_SCORES))
        return heed_fail(why, HEED_ERR_UNSUPPORTED,
                         "desc.features has %s: a rank has no whole rows of them",
                         f & HEED_HAS_WEIGHTS ? "HEED_HAS_WEIGHTS" : "HEED_HAS_SCORES");
    if (s->part.scheme == HEED_GROUP_RING && s->size > 1 && f & HEED_HAS_QUANT)
        return heed_fail(why, HEED_ERR_UNSUPPORTED,
                         "desc.features has HEED_HAS_QUANT: with HEED_GROUP_RING scales would have "
                         "to travel beside their keys; formats that carry theirs do");
    return HEED_OK;
}

/* ---- the scheme -------------------------------------------------------------------------------
 */

/* The most that a rank sends if rows travel. */
static uint64_t most_by_rows(const heed_shape *s, const heed_tally *t)
{
    heed_shape of = *s;
    uint64_t most = 0;
    of.part.scheme = HEED_GROUP_SPLIT;
    for (of.rank = 0; of.rank < of.size; of.rank++) {
        heed_group_cost c;
        heed_count(&of, t, &c);
        most = c.bytes > most ? c.bytes : most;
    }
    return most;
}

/* Chooses the scheme in which the rank that sends most sends fewer bytes, where rows are apart. In
 * a group of one rank nothing travels. */
static uint32_t choose(const heed_shape *s)
{
    const uint64_t f = s->desc->features;
    if (!s->part.row_first)
        return HEED_GROUP_SPLIT;
    if (s->size == 1)
        return HEED_GROUP_RING;
    if (f & HEED_HAS_QUANT)
        return HEED_GROUP_SPLIT;
    if (f & WITH_PAIRS) /* what args hold of pairs depends on the scheme */
        return HEED_GROUP_RING;
    const heed_tally t = heed_tally_of(s);
    const uint64_t ring =
        (s->size - UINT64_C(1)) * sizeof(heed_wire_header) + t.keys - t.least_keys;
    return most_by_rows(s, &t) < ring ? HEED_GROUP_SPLIT : HEED_GROUP_RING;
}

heed_status heed_shape_read(heed_shape *s, const heed_attn *plan, const heed_partition *partition,
                            int64_t batch, heed_error *why)
{
    heed_status st = heed_read_struct("partition", partition, sizeof s->part, &s->part, why);
    s->desc = &plan->desc;
    s->batch = batch;
    s->tokens = 0;
    if (st == HEED_OK)
        st = check_choice(s, why);
    if (st == HEED_OK)
        st = check_firsts(s, "key_first", s->part.key_first, why);
    if (st == HEED_OK && (s->part.scheme == HEED_GROUP_RING || s->part.row_first))
        st = check_firsts(s, "row_first", s->part.row_first, why);
    for (int64_t b = 0; b < batch && st == HEED_OK && s->part.row_first; b++)
        s->tokens += heed_first_of(s, s->part.row_first, b, s->part.n_parts);
    if (st == HEED_OK && !heed_bytes_fit(s)) /* where each has all rows, tokens is not known yet */
        st = heed_fail(why, HEED_ERR_UNSUPPORTED,
                       "the partition's rows and keys take more bytes than 62 bits count");
    if (st == HEED_OK && s->part.scheme == HEED_GROUP_AUTO)
        s->part.scheme = choose(s);
    if (st == HEED_OK)
        st = check_features(s, why);
    if (st == HEED_OK && s->size > 1)
        st = check_starts(s, why);
    if (st == HEED_OK && s->size > 1 && s->part.scheme == HEED_GROUP_RING &&
        s->desc->features & HEED_HAS_KEY_BLOCKS)
        st = check_row_blocks(s, why);
    return st;
}
