/*
 * Works on a chunk of several kv heads at once, where keys lie in pages or the rows of a key's
 * heads lie side by side. One head's share of a page or of a key is so short a piece that memory
 * gives it at no more than half of its rate; the shares of all heads together are long enough.
 * Included by decode.c.
 */

/* How many tiles of adjacent kv heads scratch memory has room for: tiling.c. */
static int64_t heads_at_once(int64_t heads, int64_t rows)
{
    const int64_t most =
        DECODE_MAX_ROWS / rows < DECODE_MOST_HEADS ? DECODE_MAX_ROWS / rows : DECODE_MOST_HEADS;
    return heads < most ? heads : most;
}

heed_status HEED_ISA_FUNCTION(heed_attn_decode_heads)(const heed_simd_tuning *tuning,
                                                      const heed_problem *problem, heed_tile *tile,
                                                      void *scratch)
{
    const int64_t heads = tile->kv_heads;
    const decode of_tile = {.problem = problem,
                            .tile = tile,
                            .masked = tile->mask.data || tile->bias.data || heed_has_lists(tile),
                            .rows = tile->group * tile->q_count};
    const int64_t most = heads_at_once(heads, of_tile.rows);
    if (most < 2)
        return HEED_ERR_UNSUPPORTED;
    int64_t goes = (heads + most - 1) / most, n = (heads + goes - 1) / goes;
    if (!(is_coded(&of_tile) || runs_cover(tuning, &of_tile, n)) ||
        !(tile->pages || (llabs(tile->k.row_stride) > llabs(tile->k.head_stride) &&
                          llabs(tile->v.row_stride) > llabs(tile->v.head_stride))))
        return HEED_ERR_UNSUPPORTED;
    for (int64_t done = 0; done < heads; done += n, goes--) {
        n = (heads - done + goes - 1) / goes; /* evenly: one left alone would be slower */
        decode d[DECODE_MOST_HEADS];
        heed_tile t[DECODE_MOST_HEADS];
        decode_room room = divide(problem, of_tile.rows, scratch);
        for (int64_t h = 0; h < n; h++) {
            heed_tile_of_head(problem, tile, (uint32_t)(done + h), &t[h]);
            d[h] = (decode){.problem = problem, .tile = &t[h]};
            begin(&d[h], tuning, &room);
        }
        /* One alone is no run: its rows lie among those of the others. */
        all_blocks(tuning, d, n, n > 1 || tile->pages, &room);
        for (int64_t h = 0; h < n; h++)
            end(&d[h]);
    }
    v_leave();
    return HEED_OK;
}
