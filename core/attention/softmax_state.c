/* The merge of Milakov & Gimelshein 2018, arXiv:1805.02867: rescale to the common reference, add.
 * The part with the greater reference keeps its factor of exactly 1. */
#include "softmax_state.h"

#include <math.h>
#include <string.h>

static double factor_of(double distance, int log2)
{
    return distance == 0 ? 1 : log2 ? exp2(distance) : exp(distance);
}

static void merge_row(const heed_state *into, const heed_state *from, int64_t r, int64_t v_dim,
                      int64_t acc_stride, int log2)
{
    float *restrict acc = into->acc + r * acc_stride;
    const float *restrict other = from->acc + r * acc_stride;
    if (into->row_sum[r] == 0 || from->row_sum[r] == 0) {
        /* one has no weight: it adds 0, or NaN for a value that is not finite */
        if (into->row_sum[r] == 0) {
            into->row_max[r] = from->row_max[r];
            into->row_sum[r] = from->row_sum[r];
        }
        for (int64_t d = 0; d < v_dim; d++)
            acc[d] += other[d];
        return;
    }
    const double a = (double)into->row_max[r], b = (double)from->row_max[r];
    const double top = b > a ? b : a; /* a NaN in either stays: in the sums at least */
    const double keep = factor_of(a - top, log2), add = factor_of(b - top, log2);
    const float keep_acc = (float)keep, add_acc = (float)add;
    for (int64_t d = 0; d < v_dim; d++)
        acc[d] = acc[d] * keep_acc + other[d] * add_acc;
    into->row_max[r] = (float)top;
    into->row_sum[r] = (float)((double)into->row_sum[r] * keep + (double)from->row_sum[r] * add);
}

void heed_state_merge(const heed_state *into, const heed_state *from, int64_t rows, int64_t v_dim,
                      int64_t acc_stride, int log2)
{
    for (int64_t r = 0; r < rows; r++)
        merge_row(into, from, r, v_dim, acc_stride, log2);
}
