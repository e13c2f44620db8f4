/* The operations of a transformer on rows, between its linear layers and attention, in plain C that
 * compilers can vectorise: sums are in 16 lanes, which fixes their order. */
#ifndef COMMON_ROWS_H
#define COMMON_ROWS_H

#include <stdint.h>

/** out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i] for one row; out may be x.
 * Source: Ba et al. 2016, arXiv:1607.06450. */
void layer_norm(const float *x, int64_t n, const float *weight, const float *bias, double eps,
                float *out);

/** out[i] = x[i] / sqrt(mean square + eps) * weight[i]; out may be x. Source: Zhang & Sennrich
 * 2019, arXiv:1910.07467. */
void rms_norm(const float *x, int64_t n, const float *weight, double eps, float *out);

/** The sum of a[i] * b[i]. */
float dot(const float *a, const float *b, int64_t n);

/** Convert numbers from and to f32; type is one of Heed's. */
void load_row(uint32_t type, const void *from, int64_t n, float *to);
void store_row(uint32_t type, const float *from, int64_t n, void *to);

#endif
