/* The input bytes of a fuzz target, and functions that turn them into choices. */
#ifndef FUZZ_BYTES_H
#define FUZZ_BYTES_H

#include <heed/tensor.h>
#include <stdint.h>

/** The bytes that are left; they read as zeros when they have run out. */
typedef struct fuzz_bytes {
    const uint8_t *at, *end;
} fuzz_bytes;

static inline uint32_t fuzz_byte(fuzz_bytes *bytes)
{
    return bytes->at < bytes->end ? *bytes->at++ : 0;
}

/** A number made of two bytes. */
static inline uint32_t fuzz_word(fuzz_bytes *bytes)
{
    const uint32_t high = fuzz_byte(bytes);
    return high << 8 | fuzz_byte(bytes);
}

/** A number in [0, n). */
static inline uint32_t fuzz_below(fuzz_bytes *bytes, uint32_t n)
{
    uint32_t x = fuzz_byte(bytes);
    if (n > 256)
        x = x << 8 | fuzz_byte(bytes);
    return x % n;
}

/** True about once in n times. A zero gives false, so that exhausted bytes give the plain case. */
static inline int fuzz_rarely(fuzz_bytes *bytes, uint32_t n)
{
    return fuzz_below(bytes, n) == n - 1;
}

/** A length: mostly a short one, sometimes one of about a kernel's tile, with a tail. */
static inline int64_t fuzz_length(fuzz_bytes *bytes, uint32_t usual, uint32_t rare)
{
    return fuzz_rarely(bytes, 16) ? fuzz_below(bytes, rare) : fuzz_below(bytes, usual);
}

/** HEED_F32, HEED_F16 or HEED_BF16. */
static inline uint32_t fuzz_type(fuzz_bytes *bytes)
{
    return HEED_F32 + fuzz_below(bytes, 3);
}

#endif
