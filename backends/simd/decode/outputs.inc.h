/*
 * The second pass of decode: weights, formed again by the arithmetic of the first pass. Another
 * order of the same products would do for scores of ordinary size, but scores of 1e7 in two orders
 * are whole units apart, and a weight would be wrong by that power of two. Included by decode.c.
 */

/* Prefill's pass has written weights and scores of every pair of the tile; this writes the weights
 * of visible keys anew. */
static void write_weights(const decode *d, const block *b)
{
    heed_tile *t = d->tile;
    for (int64_t r = 0; r < d->rows; r++) {
        const int64_t head = r / t->q_count, row = t->q_first + r % t->q_count;
        const int64_t at = head * t->weights.head_stride + row * t->weights.row_stride;
        float *s = b->scores + r * DECODE_BLOCK;
        if (t->row_sum[r] == 0)
            continue;
        if (d->lift_k)
            scale_scores(s, b->k_scales.after);
        if (d->terms)
            finish_scores(d, b, r);
        for (int i = 0; i < DECODE_BLOCK; i += LANES)
            v_store(s + i, v_exp2(v_sub(v_load(s + i), v_set1(t->row_max[r]))));
        for (uint32_t bits = b->same ? b->any : d->visible[r]; bits; bits &= bits - 1) {
            const int64_t key = __builtin_ctz(bits);
            heed_store(HEED_F32, t->weights.data, at + (b->base + key) * t->weights.dim_stride,
                       s[key] / t->row_sum[r]);
        }
    }
}

heed_status HEED_ISA_FUNCTION(heed_attn_decode_weights)(const heed_simd_tuning *tuning,
                                                        const heed_problem *problem,
                                                        heed_tile *tile, void *scratch)
{
    decode d = {.problem = problem, .tile = tile};
    decode_room room;
    block b;
    if (!tile->weights.data)
        return HEED_OK;
    room = divide(problem, tile->n_heads * tile->q_count, scratch);
    begin(&d, tuning, &room);
    b.scores = room.scores[0];
    d.visible = room.visible[0];
    int64_t base = tile->k_first / DECODE_BLOCK * DECODE_BLOCK;
    for (; next_block(&d, base, tile->k_end, &b); base = b.base + DECODE_BLOCK) {
        work_and_score(&d, NULL, &b, NULL);
        write_weights(&d, &b);
    }
    v_leave();
    return HEED_OK;
}
