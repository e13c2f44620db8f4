/* The merge of Milakov & Gimelshein 2018, arXiv:1805.02867: rescale to the common reference, add. The
 * part with the greatest reference keeps its factor of exactly 1. */
#include "softmax_state.h"

#include <math.h>
#include <string.h>

static void merge_row(const heed_state *out, void *first, int64_t stride, int64_t n, int64_t rows,
                      int64_t r, int64_t v_dim, int64_t acc_stride, int log2)
{
    double top = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        heed_state part = heed_state_at((char *)first + i * stride, rows, acc_stride);
        if (part.row_sum[r] != 0 && (double)part.row_max[r] > top)
            top = (double)part.row_max[r];
    }
    float *acc = out->acc + r * acc_stride;
    memset(acc, 0, (size_t)v_dim * sizeof *acc);
    for (int64_t i = 0; i < n; i++) {
        heed_state part = heed_state_at((char *)first + i * stride, rows, acc_stride);
        if (part.row_sum[r] == 0) /* saw nothing: what acc holds means nothing */
            continue;
        double distance = (double)part.row_max[r] - top;
        double factor = distance == 0 ? 1 : log2 ? exp2(distance) : exp(distance);
        const float *from = part.acc + r * acc_stride, f = (float)factor;
        for (int64_t d = 0; d < v_dim; d++)
            acc[d] += from[d] * f;
        sum += (double)part.row_sum[r] * factor;
    }
    out->row_max[r] = (float)top;
    out->row_sum[r] = (float)sum;
}

void heed_state_merge(const heed_state *out, void *first, int64_t stride, int64_t n, int64_t rows,
                      int64_t v_dim, int64_t acc_stride, int log2)
{
    for (int64_t r = 0; r < rows; r++)
        merge_row(out, first, stride, n, rows, r, v_dim, acc_stride, log2);
}
