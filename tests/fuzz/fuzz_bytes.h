/* The bytes that a fuzz target is made of, and what they are turned into. */
#ifndef FUZZ_BYTES_H
#define FUZZ_BYTES_H

#include <heed/tensor.h>
#include <stdint.h>

/** The bytes that decide; zeros when they have run out. */
typedef struct fuzz_bytes {
    const uint8_t *at, *end;
} fuzz_bytes;

static inline uint32_t fuzz_byte(fuzz_bytes *bytes)
{
    return bytes->at < bytes->end ? *bytes->at++ : 0;
}

/** Two of them. */
static inline uint32_t fuzz_word(fuzz_bytes *bytes)
{
    const uint32_t high = fuzz_byte(bytes);
    return high << 8 | fuzz_byte(bytes);
}

/** [0, n) */
static inline uint32_t fuzz_below(fuzz_bytes *bytes, uint32_t n)
{
    uint32_t x = fuzz_byte(bytes);
    if (n > 256)
        x = x << 8 | fuzz_byte(bytes);
    return x % n;
}

/** True about once in n; not by a 0, so that exhausted bytes give the plain case. */
static inline int fuzz_rarely(fuzz_bytes *bytes, uint32_t n)
{
    return fuzz_below(bytes, n) == n - 1;
}

/** Mostly short, sometimes of the size of a kernel's tiles and their tails. */
static inline int64_t fuzz_length(fuzz_bytes *bytes, uint32_t usual, uint32_t rare)
{
    return fuzz_rarely(bytes, 16) ? fuzz_below(bytes, rare) : fuzz_below(bytes, usual);
}

/** HEED_F32, HEED_F16 or HEED_BF16 */
static inline uint32_t fuzz_type(fuzz_bytes *bytes)
{
    return HEED_F32 + fuzz_below(bytes, 3);
}

#endif
