/* Pure functions from a sequence to its tiles. */
#include "partition.h"

#include "base/checked.h"

heed_span heed_run_rows(const heed_attn *plan, const heed_sequence *s, uint32_t run)
{
    int64_t rows = plan->class_plan[s->class_index].tiling.query_rows;
    return (heed_span){run * rows, heed_min64((run + 1) * rows, s->q_len)};
}

heed_span heed_visible_keys(const heed_attn *plan, const heed_sequence *s, heed_span rows)
{
    int64_t low = rows.first + s->q_offset - plan->window_left;
    int64_t high = rows.end - 1 + s->q_offset + plan->window_right + 1;
    return (heed_span){heed_max64(s->key_first, low), heed_min64(s->key_end, high)};
}

heed_span heed_chunk_keys(const heed_attn *plan, const heed_sequence *s, heed_span keys,
                          uint32_t chunk)
{
    int64_t length = plan->class_plan[s->class_index].tiling.key_chunk;
    if (length == 0)
        return keys;
    int64_t first = (s->first_chunk + (int64_t)chunk) * length;
    return (heed_span){heed_max64(keys.first, first), heed_min64(keys.end, first + length)};
}

heed_place heed_tile_place(const heed_sequence *s, int64_t tile)
{
    const int64_t per_head = (int64_t)s->n_runs * s->n_chunks;
    const int64_t heads = per_head == 1 ? tile : heed_divide(tile, per_head);
    const uint32_t n = (uint32_t)(tile - heads * per_head);
    const uint32_t from_last = s->n_chunks == 1 ? n : n / s->n_chunks; /* heavy ones first */
    return (heed_place){
        .head = heads * s->kv_heads,
        .run = s->n_runs - 1 - from_last,
        .chunk = n - from_last * s->n_chunks,
    };
}

void heed_partition_sequence(const heed_attn *plan, heed_sequence *s)
{
    const heed_span keys = heed_visible_keys(plan, s, (heed_span){0, s->q_len});
    s->class_index = heed_class_index(plan, s->q_len, keys.end - keys.first);
    const heed_tiling *tiling = &plan->class_plan[s->class_index].tiling;
    /* Mostly there is one run and one chunk. Then no division is made: small calls
     * would feel it. */
    s->n_runs = s->q_len <= (int64_t)tiling->query_rows
                    ? s->q_len > 0
                    : (uint32_t)heed_ceil_div(s->q_len, tiling->query_rows);
    s->n_chunks = 1;
    s->first_chunk = 0;
    if (keys.first >= keys.end || keys.end <= tiling->key_chunk || tiling->key_chunk == 0)
        return;
    s->first_chunk = (uint32_t)(keys.first / tiling->key_chunk);
    s->n_chunks = (uint32_t)(heed_ceil_div(keys.end, tiling->key_chunk) - s->first_chunk);
}
