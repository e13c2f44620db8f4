/*
 * Encodes rows of numbers to rows of a cache; compiled once per instruction set (encode.h).
 *
 * Result     bit for bit what formats.h makes of them, in the default floating-point mode.
 * Work       blocks of the Q formats and rows that get scales of their own are worked on eight at a
 *            time, so that what each has only one of (a scale, its inverse, its f16) is one
 *            operation for eight.
 * Edges      the last vector of a row lies at its end and repeats part of the one before: no byte
 *            beside the row is read or written. Rows shorter than a vector are refused, and core
 *            encodes them.
 * Rules      blocks with numbers that need the special rules of formats.h (a NaN, an infinity,
 *            zeros, sizes near f32's ends) are looked for, and rows of unusual scales, which such
 *            numbers make. They are left to formats.h.
 */
#include "../simd.h"
#include "../vec/encode.h"

V_INLINE int append_size(uint32_t type)
{
    return type == HEED_F32 ? 4 : 2;
}

/* LANES numbers from element i on. */
V_INLINE vf append_load(uint32_t from, const char *in, int64_t i)
{
    return v_load_type(from, in + i * append_size(from), LANES);
}

/* Fetches what the next call reads while this one encodes: factors and scales wait for all that a
 * batch reads, and nothing else would fetch it ahead. */
V_INLINE void append_ask(const char *in, int64_t ahead, int64_t bytes)
{
    for (int64_t i = 0; ahead && i < bytes; i += 64)
        V_PREFETCH_L1((const char *)((uintptr_t)in + (uintptr_t)(ahead + i)));
}

#include "ranges.inc.h"

#include "blocks.inc.h"
#include "iq4.inc.h"
#include "scaled.inc.h"

/* Converts rows to numbers of another type. */
V_INLINE void append_numbers(uint32_t from, uint32_t to, const heed_append_rows *a)
{
    (void)to;
    for (int64_t row = 0; row < a->n_rows; row++) {
        const char *in = (const char *)a->from + row * a->from_stride * append_size(from);
        char *out = (char *)a->to + row * a->to_stride * append_size(a->to_type);
        for (int64_t d = 0; d < a->dim; d += LANES) {
            const int64_t at = d + LANES > a->dim ? a->dim - LANES : d;
            v_store_type(a->to_type, out + at * append_size(a->to_type), append_load(from, in, at),
                         LANES);
        }
    }
}

/* A function for each pair of types: all of them in one would have no registers left. */
typedef void append_function(const heed_append_rows *a);

#define APPEND(body, from, to)                                                                     \
    V_NOINLINE void append_##from##_##to(const heed_append_rows *a)                                \
    {                                                                                              \
        body(HEED_##from, HEED_##to, a);                                                           \
    }
#define APPEND_SCALED(from, to)                                                                    \
    V_NOINLINE void append_##from##_##to##_FRESH(const heed_append_rows *a)                        \
    {                                                                                              \
        append_fresh(HEED_##from, HEED_##to, a);                                                   \
    }                                                                                              \
    APPEND(append_given, from, to)
#define APPEND_FROM(from)                                                                          \
    APPEND_SCALED(from, I8)                                                                        \
    APPEND_SCALED(from, U8)                                                                        \
    APPEND_SCALED(from, U4)                                                                        \
    APPEND_SCALED(from, F8_E4M3)                                                                   \
    APPEND(append_blocks, from, Q8_0)                                                              \
    APPEND(append_blocks, from, Q4_0)                                                              \
    APPEND(append_blocks, from, Q4_1)                                                              \
    APPEND(append_blocks, from, Q5_0)                                                              \
    APPEND(append_blocks, from, Q5_1)                                                              \
    APPEND(append_iq4, from, IQ4_NL)
#define APPEND_TABLE(from)                                                                         \
    {                                                                                              \
        [HEED_I8] = append_##from##_I8, [HEED_U8] = append_##from##_U8,                            \
        [HEED_U4] = append_##from##_U4, [HEED_F8_E4M3] = append_##from##_F8_E4M3,                  \
        [HEED_Q8_0] = append_##from##_Q8_0, [HEED_Q4_0] = append_##from##_Q4_0,                    \
        [HEED_Q4_1] = append_##from##_Q4_1, [HEED_Q5_0] = append_##from##_Q5_0,                    \
        [HEED_Q5_1] = append_##from##_Q5_1, [HEED_IQ4_NL] = append_##from##_IQ4_NL                 \
    }
#define APPEND_FRESH_TABLE(from)                                                                   \
    {                                                                                              \
        [HEED_I8] = append_##from##_I8_FRESH, [HEED_U8] = append_##from##_U8_FRESH,                \
        [HEED_U4] = append_##from##_U4_FRESH, [HEED_F8_E4M3] = append_##from##_F8_E4M3_FRESH       \
    }

APPEND_FROM(F32)
APPEND_FROM(F16)
APPEND_FROM(BF16)
APPEND(append_numbers, F32, BF16) /* from f32 to f16 and bf16 alike */
APPEND(append_numbers, F16, BF16)
APPEND(append_numbers, BF16, F16)

heed_status HEED_ISA_FUNCTION(heed_append_rows)(const heed_append_rows *a)
{
    static append_function *const codes[][HEED_IQ4_NL + 1] = {[HEED_F32] = APPEND_TABLE(F32),
                                                              [HEED_F16] = APPEND_TABLE(F16),
                                                              [HEED_BF16] = APPEND_TABLE(BF16)};
    static append_function *const fresh[][HEED_F8_E4M3 + 1] = {[HEED_F32] = APPEND_FRESH_TABLE(F32),
                                                               [HEED_F16] = APPEND_FRESH_TABLE(F16),
                                                               [HEED_BF16] =
                                                                   APPEND_FRESH_TABLE(BF16)};
    const uint32_t from = a->from_type, to = a->to_type;
    if (a->dim < (to == HEED_U4 ? 32 : 16) || from < HEED_F32 || from > HEED_BF16)
        return HEED_ERR_UNSUPPORTED;
    if (heed_is_code(to))
        (a->fresh_scale ? fresh[from][to] : codes[from][to])(a);
    else if (from == HEED_F32)
        append_F32_BF16(a);
    else if (from == HEED_BF16)
        append_BF16_F16(a);
    else if (to == HEED_BF16) /* vcvtph2ps would make a signalling NaN quiet, which shows in f32 */
        append_F16_BF16(a);
    else
        return HEED_ERR_UNSUPPORTED;
    v_leave();
    return HEED_OK;
}
