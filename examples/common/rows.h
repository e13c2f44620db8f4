/* What a transformer does to rows between its linear layers and attention. Plain C that compilers
 * turn into vector code: sums run in 16 lanes, which fixes their order. */
#ifndef COMMON_ROWS_H
#define COMMON_ROWS_H

#include <stdint.h>

/** out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i] of one row; out may be x. Ba
 * et al. 2016, arXiv:1607.06450. */
void layer_norm(const float *x, int64_t n, const float *weight, const float *bias, double eps,
                float *out);

/** out[i] = x[i] / sqrt(mean square + eps) * weight[i]; out may be x. Zhang & Sennrich 2019,
 * arXiv:1910.07467. */
void rms_norm(const float *x, int64_t n, const float *weight, double eps, float *out);

/** The sum of a[i] * b[i]. */
float dot(const float *a, const float *b, int64_t n);

/** Numbers of a type of Heed's from and to f32. */
void load_row(uint32_t type, const void *from, int64_t n, float *to);
void store_row(uint32_t type, const float *from, int64_t n, void *to);

#endif
