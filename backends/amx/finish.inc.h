/*
 * Finishes a group's rows: writes results in the type and strides of out, or the state that core
 * merges.
 */
#ifndef HEED_AMX_FINISH_H
#define HEED_AMX_FINISH_H

#include "sums.inc.h"

/* Columns [32 pair, 32 pair + 32) of row i of O, in their order. */
AMX_INLINE void load_columns(const amx_run *x, int i, int pair, vf *low, vf *high)
{
    *low = v_load((const float *)(const void *)(o_tile(x, pair, i / 16, 0) + i % 16 * 64));
    *high = v_load((const float *)(const void *)(o_tile(x, pair, i / 16, 1) + i % 16 * 64));
    v_in_order(low, high);
}

/* Writes 16 columns or less of an output row. */
static inline void store_out(const heed_problem *p, const heed_tile *t, char *row, int64_t d, int n,
                             vf y)
{
    const uint16_t mask = (uint16_t)((1u << n) - 1);
    const size_t size = heed_dtype_bytes(p->out_type);
    char apart[64], *data = row + d * t->out.dim_stride * (int64_t)size;
    char *to = t->out.dim_stride == 1 ? data : apart;
    if (p->out_type == HEED_BF16)
        v_store_bf16_some(to, mask, y);
    else if (p->out_type == HEED_F16)
        v_store_f16_some(to, mask, y);
    else
        v_store_some((float *)(void *)to, mask, y);
    /* Elements that lie apart are converted as adjacent ones are: the instruction that converts to
     * bf16 flushes denormals, heed_store does not. */
    for (int i = 0; to == apart && i < n; i++)
        memcpy(data + i * t->out.dim_stride * (int64_t)size, apart + (size_t)i * size, size);
}

/* Writes row i of O times a factor. */
static void write_row(const amx_run *x, int i, char *out, float times)
{
    const heed_problem *p = x->p;
    const int v_dim = (int)p->v_dim, dense = x->t->out.dim_stride == 1;
    const vf factor = v_set1(times), zero = v_set1(0);
    for (int d = 0; d < v_dim; d += 32) {
        int n = v_dim - d;
        vf low, high;
        load_columns(x, i, d / 32, &low, &high);
        /* Adding 0 turns a flushed -0 into +0, which it also becomes when more keys follow. */
        low = v_fma(low, factor, zero);
        high = v_fma(high, factor, zero);
        if (n >= 32 && dense && p->out_type == HEED_BF16) {
            v_store_bf16_two(out + d * 2, low, high);
        } else if (n >= 32 && dense && p->out_type == HEED_F32) {
            v_store((float *)(void *)(out + d * 4), low);
            v_store((float *)(void *)(out + d * 4 + 64), high);
        } else {
            store_out(p, x->t, out, d, n < 16 ? n : 16, low);
            if (n > 16)
                store_out(p, x->t, out, d + 16, n < 32 ? n - 16 : 16, high);
        }
    }
}

/* The same bits as heed_finish_row except for out: core finishes rows that see no key, and a row's
 * bits must not depend on who finishes it. out is multiplied by the f32 reciprocal of `weights`,
 * the sum of the rounded weights that made it; everything else uses `exact`. */
static void finish_row(const amx_run *x, int i, float reference, float weights, float exact)
{
    const double ln_2 = 0.6931471805599453;
    const heed_tile *t = x->t;
    int64_t r = x->first_row + i, head = x->row[i].head, q = x->row[i].q;
    int64_t at = head * t->out.head_stride + q * t->out.row_stride;
    char *out = (char *)t->out.data + at * heed_dtype_bytes(x->p->out_type);
    const float sink = t->sink ? t->sink[head] : -INFINITY;
    double m = (double)reference, more = 0;
    const double scale = weights == 0 ? 0 : heed_add_sink(1, sink, &m, &more);
    const double whole = (double)exact * scale + more;
    if (weights != 0)
        write_row(x, i, out, (float)(scale / ((double)weights * scale + more)));
    else
        for (int d = 0; d < (int)x->p->v_dim; d += 16)
            store_out(x->p, t, out, d, (int)x->p->v_dim - d < 16 ? (int)x->p->v_dim - d : 16,
                      v_set1(0));
    if (t->lse.data)
        heed_store(HEED_F32, t->lse.data, head * t->lse.head_stride + q * t->lse.row_stride,
                   weights == 0 ? sink : (float)(m * ln_2 + log(whole)));
    heed_leave_state(m, whole, &t->row_max[r], &t->row_sum[r]);
}

/* leave_group for the usual case: whole rows without sink, lse or second sum, whose sums are
 * ordinary numbers. Returns 0 in any other case. */
static int leave_plain(const amx_run *x)
{
    const heed_tile *t = x->t;
    const heed_problem *p = x->p;
    const int usual = p->out_type == HEED_BF16 && t->out.dim_stride == 1 && p->v_dim % 32 == 0;
    const int pairs = x->l->v_pairs;
    if (!(t->flags & HEED_TILE_WHOLE) || t->sink || t->lse.data || x->exact)
        return 0;
    for (int tile = 0; tile < x->n_rows; tile += 16) {
        const uint16_t exist = range_mask(0, x->n_rows, tile);
        const int n = x->n_rows - tile < 16 ? x->n_rows - tile : 16;
        float factor[16];
        vf rows[16], sum;
        for (int i = 0; i < 16; i++)
            rows[i] = v_load(x->rows->sum[tile + i]);
        sum = v_sums(rows);
        if (m_within(sum, 0x1p100f, exist) != exist || m_within(sum, 0x1p-100f, exist))
            return 0;
        v_store(factor, v_div(v_set1(1), sum)); /* equals the quotient in double, rounded */
        v_store_some(t->row_max + x->first_row + tile, exist, v_load(x->rows->reference + tile));
        v_store_some(t->row_sum + x->first_row + tile, exist, sum);
        for (int i = 0; i < n; i++) {
            const amx_row *row = &x->row[tile + i];
            int64_t at = row->head * t->out.head_stride + row->q * t->out.row_stride;
            char *out = (char *)t->out.data + at * (int64_t)heed_dtype_bytes(p->out_type);
            if (!usual) {
                write_row(x, tile + i, out, factor[i]);
                continue;
            }
            for (int pair = 0; pair < pairs; pair++) { /* as write_row */
                const float *o =
                    (const float *)(const void *)(o_tile(x, pair, tile / 16, 0) + i * 64);
                const vf times = v_set1(factor[i]), zero = v_set1(0);
                v_store_bf16_in_order(out + pair * 64, v_fma(v_load(o), times, zero),
                                      v_fma(v_load(o + 256), times, zero));
            }
        }
    }
    return 1;
}

/* Writes the results of the group's rows, or their state. */
static void leave_group(const amx_run *x)
{
    heed_tile *t = x->t;
    if (leave_plain(x))
        return;
    for (int i = 0; i < x->n_rows; i++) {
        int64_t r = x->first_row + i;
        float sum = x->rows->reference[i] == AMX_UNSEEN ? 0 : v_sum(v_load(x->rows->sum[i]));
        float exact = x->exact && sum != 0 ? v_sum(v_load(x->rows->exact[i])) : sum;
        if (t->flags & HEED_TILE_WHOLE) {
            finish_row(x, i, x->rows->reference[i], sum, exact);
            continue;
        }
        /* Core makes out of acc and row_sum, and lse of row_sum times 2^row_max, which has to be
         * `exact` times 2^reference: the ratio of the two sums goes into row_max. */
        t->row_max[r] = x->rows->reference[i] +
                        (sum > 0 && exact > 0 ? (float)log2((double)exact / (double)sum) : 0);
        t->row_sum[r] = sum;
        if (x->rows->fresh)
            memset(t->acc + r * t->acc_stride, 0, x->p->v_dim * sizeof *t->acc);
        for (int d = 0; !x->rows->fresh && d < (int)x->p->v_dim; d += 32) {
            float columns[32];
            vf low, high;
            int n = (int)x->p->v_dim - d;
            load_columns(x, i, d / 32, &low, &high);
            v_store(columns, low);
            v_store(columns + 16, high);
            memcpy(t->acc + r * t->acc_stride + d, columns, (size_t)(n < 32 ? n : 32) * 4);
        }
    }
}

#endif
