/*
 * The second pass, which computes products again and writes weights and scores.
 */
#ifndef HEED_AMX_OUTPUTS_H
#define HEED_AMX_OUTPUTS_H

#include "run.inc.h"

/* Writes the group's weights and scores of units [unit, end) of the chunk, from the final row_max
 * and row_sum. */
static void write_outputs(const amx_run *x, int unit, int end)
{
    const heed_problem *p = x->p;
    const heed_tile *t = x->t;
    for (int u = unit; u < end; u++) {
        products_with_k(x, u, x->s);
        for (int half = 0; half < 2; half++) {
            float *products = x->s + half * 512;
            int64_t j = x->chunk + u * AMX_UNIT + half * 16;
            const amx_header *header = header_of(x, u / AMX_BLOCK_UNITS);
            uint32_t odd_k = header->odd_k[u % AMX_BLOCK_UNITS] >> (16 * half);
            uint16_t tile_keys = range_mask(t->k_first, t->k_end, j);
            for (int i = 0; tile_keys && i < x->n_rows; i++) {
                int64_t r = x->first_row + i;
                amx_row row = x->row[i];
                uint16_t range = range_mask(row.first, row.end, j) & listed_lanes(p, t, &row, j);
                uint16_t seen = range;
                float lanes[2][16], sum = t->row_sum[r];
                vf stage, s;
                if (x->l->parts == 2)
                    for (int n = 0; n < 16; n++)
                        if ((range >> n & 1) && ((x->rows->odd_q >> i & 1) || (odd_k >> n & 1)))
                            products[i * 16 + n] = exact_product(p, t, &row, j + n);
                s = score_lanes(p, t, &row, j, v_load(products + i * 16), &seen, &stage);
                if (p->scores_stage == HEED_SCORES_BIASED)
                    range = seen;
                v_store(lanes[0], v_select(range, stage, v_set1(-INFINITY)));
                /* To log2 units, with the roundings of the first pass. */
                if (x->general)
                    s = v_to_log2(s);
                else
                    s = v_mul(v_load(products + i * 16), v_set1(x->exponent_scale));
                s = v_mul(v_exp2(v_sub(s, v_set1(t->row_max[r]))), v_set1(1.0f / sum));
                v_store(lanes[1], v_select(sum == 0 ? 0 : seen, s, v_set1(0)));
                for (int n = 0; n < 16; n++) {
                    if (!(tile_keys >> n & 1))
                        continue;
                    if (t->scores.data)
                        heed_store(HEED_F32, t->scores.data,
                                   row.head * t->scores.head_stride + row.q * t->scores.row_stride +
                                       (j + n) * t->scores.dim_stride,
                                   lanes[0][n]);
                    if (t->weights.data)
                        heed_store(HEED_F32, t->weights.data,
                                   row.head * t->weights.head_stride +
                                       row.q * t->weights.row_stride +
                                       (j + n) * t->weights.dim_stride,
                                   lanes[1][n]);
                }
            }
        }
    }
}

#endif
