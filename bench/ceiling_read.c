/* A loop that only reads memory. It is compiled once for each width of vectors (READ_BYTES: 16 for
 * the baseline, 32 with -mavx2, 64 with -mavx512f), so that each read is one instruction.
 *
 * For each stream s it reads `length` bytes from base + s * section on, and prefetches up to
 * `ahead` bytes past them, which never faults.
 * */
#include "ceiling_kernels.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define LINE 64

typedef int vector __attribute__((vector_size(READ_BYTES)));

/* Reads a cache line of a stream. The caller passes constants, so the tests of the hint
 * disappear. */
static inline __attribute__((always_inline)) vector read_line(vector sum, const char *p,
                                                              size_t ahead, unsigned hint)
{
    if (ahead && hint == HEED_PREFETCH_T0)
        __builtin_prefetch(p + ahead, 0, 3);
    else if (ahead && hint == HEED_PREFETCH_T1)
        __builtin_prefetch(p + ahead, 0, 2);
    else if (ahead)
        __builtin_prefetch(p + ahead, 0, 0);
    for (int i = 0; i < LINE; i += READ_BYTES)
        sum ^= *(const vector *)(p + i);
    return sum;
}

static inline __attribute__((always_inline)) vector read_streams(const char *base, size_t section,
                                                                 size_t length, unsigned streams,
                                                                 size_t ahead, unsigned hint)
{
    vector sum[4] = {{0}};
    for (size_t at = 0; at < length; at += 2 * LINE)
        for (unsigned s = 0; s < streams; s++) {
            const char *p = base + s * section + at;
            sum[s % 2] = read_line(sum[s % 2], p, ahead, hint);
            sum[s % 2 + 2] = read_line(sum[s % 2 + 2], p + LINE, ahead, hint);
        }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

static vector read_form(const char *base, size_t section, size_t length, const heed_read_form *form)
{
    const unsigned streams = form->streams;
    const size_t ahead = form->ahead;
    if (!ahead)
        return read_streams(base, section, length, streams, 0, HEED_PREFETCH_T0);
    if (form->hint == HEED_PREFETCH_T0)
        return read_streams(base, section, length, streams, ahead, HEED_PREFETCH_T0);
    if (form->hint == HEED_PREFETCH_T1)
        return read_streams(base, section, length, streams, ahead, HEED_PREFETCH_T1);
    return read_streams(base, section, length, streams, ahead, HEED_PREFETCH_NTA);
}

float JOIN(heed_ceiling_read_, READ_BYTES)(const char *base, size_t section, size_t length,
                                           const heed_read_form *form)
{
    const vector sum = read_form(base, section, length, form);
    int all = 0;
    for (size_t i = 0; i < READ_BYTES / sizeof(int); i++)
        all ^= sum[i];
    return (float)all;
}
