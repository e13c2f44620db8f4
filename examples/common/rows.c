/* The operations of a transformer on rows, between its linear layers and attention. */
#include "rows.h"

#include <heed/kit.h>
#include <math.h>
#include <string.h>

enum { LANES = 16 };

/* These functions are compiled for AVX2 too, and the loader chooses that version where the CPU has
 * AVX2. Sanitizers do not support this, and only glibc does it. The bits are the same, because the
 * order of sums is fixed and nothing is contracted. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* The sum of the lanes, added pairwise. */
static inline float total(float *lane)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static inline __attribute__((always_inline)) float sum(const float *x, int64_t n)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += x[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += x[i];
    return total(lane);
}

static inline __attribute__((always_inline)) float square_distance(const float *x, int64_t n,
                                                                   float mean)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (int l = 0; i < n; i++, l++)
        lane[l] += (x[i] - mean) * (x[i] - mean);
    return total(lane);
}

WIDE float dot(const float *a, const float *b, int64_t n)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += a[i] * b[i];
    return total(lane);
}

WIDE void layer_norm(const float *x, int64_t n, const float *weight, const float *bias, double eps,
                     float *out)
{
    float mean = sum(x, n) / (float)n;
    float scale = (float)(1 / sqrt((double)square_distance(x, n, mean) / (double)n + eps));
    for (int64_t i = 0; i < n; i++)
        out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

WIDE void rms_norm(const float *x, int64_t n, const float *weight, double eps, float *out)
{
    float scale = (float)(1 / sqrt((double)dot(x, x, n) / (double)n + eps));
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

WIDE void load_row(uint32_t type, const void *from, int64_t n, float *to)
{
    if (type == HEED_F32) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    if (type == HEED_BF16) { /* a separate loop, which the compiler can vectorise */
        for (int64_t i = 0; i < n; i++)
            to[i] = heed_load(HEED_BF16, from, i);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = heed_load(type, from, i);
}

WIDE void store_row(uint32_t type, const float *from, int64_t n, void *to)
{
    if (type == HEED_F32) {
        memcpy(to, from, (size_t)n * sizeof *from);
        return;
    }
    if (type == HEED_BF16) {
        for (int64_t i = 0; i < n; i++)
            heed_store(HEED_BF16, to, i, from[i]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        heed_store(type, to, i, from[i]);
}
