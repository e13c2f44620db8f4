/* The numbers that the vector kernels make of codes are those of heed_decode, bit for bit: in every
 * format, at every row length, with scales of any strides, with and without flushing of subnormals.
 * A row ends where accessible memory does. Built and run once per instruction set. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../backends/simd/vec/codes.h"
#include "../draw.h"
#if !defined(HEED_VEC_PLAIN)
#include "here.h"
#endif

enum { MOST = 320, ROUNDS = 400 };

static int same(float a, float b)
{
    return heed_bits_of_f32(a) == heed_bits_of_f32(b) || (a != a && b != b);
}

/* An f16 that a block may have: mostly an ordinary one. */
static uint16_t random_f16(void)
{
    static const uint16_t odd[] = {0, 0x8000, 1, 0x83ff, 0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x0400};
    if (below(4) == 0)
        return odd[below(sizeof odd / sizeof *odd)];
    return heed_f16_of_f32(normal());
}

/* No subnormal scales are drawn: under DAZ they are 0 for the kernels. */
static float random_scale(void)
{
    static const float odd[] = {0, 1, INFINITY, NAN, 0x1p-100f, -0x1p100f};
    return below(4) ? normal() : odd[below(sizeof odd / sizeof *odd)];
}

static int check(uint32_t type, char *end)
{
    static const uint32_t groups[] = {0, 1, 1, 3, 8, 16, 20, 32, 64};
    const uint32_t unit = heed_block_len(type);
    const int has_stride = unit == 1 && below(4) == 0;
    const int64_t stride = has_stride ? (below(2) ? 2 : 3) : 1;
    const int64_t dims = (int64_t)(1 + below(MOST / unit)) * unit;
    const int64_t bytes = has_stride ? (dims - 1) * stride + 1 : heed_offset_bytes(type, dims);
    char *row = end - bytes;
    float scales[2 * MOST], zeros[2 * MOST], to[MOST + 16];
    for (int64_t i = 0; i < bytes; i++)
        row[i] = (char)kit_next(&random_state);
    if (unit == 32)
        for (char *b = row; b < end; b += heed_block_bytes(type))
            for (int i = 0; i < (code_has_least(type) ? 2 : 1); i++) {
                const uint16_t d = random_f16();
                memcpy(b + 2 * i, &d, sizeof d);
            }
    for (int i = 0; i < 2 * MOST; i++) {
        scales[i] = random_scale();
        zeros[i] = below(2) ? (float)below(256) : random_scale();
    }
    const heed_quant quant = {.scale = below(8) ? scales : NULL,
                              .zero = below(2) ? zeros : NULL,
                              .stride = {0, 0, 1, 1 + (int64_t)below(2)},
                              .group = groups[below(9)]};
    const code_key key = code_key_of(&quant, 0, 1);
    const int64_t first = below((uint32_t)(dims + 31) / 32) * 32;
    for (int64_t i = 0; i < MOST + 16; i++)
        to[i] = 77;
    code_row(type, row, stride, first, dims - first, &key, to);
    for (int64_t d = first; d < dims; d++) {
        const int64_t at = heed_scale_at(&quant, 0, 0, 1, d);
        const float scale = quant.scale ? scales[at] : 1;
        const float zero = quant.scale && quant.zero ? zeros[at] : 0;
        const float want = has_stride ? heed_decode(type, row + d * stride, 0, scale, zero)
                                      : heed_decode(type, row, d, scale, zero);
        if (!same(want, to[d - first])) {
            printf("%s, %d dims, stride %d: element %d is %a, not %a\n", heed_dtype_name(type),
                   (int)dims, (int)stride, (int)d, (double)to[d - first], (double)want);
            return 1;
        }
    }
    if (to[dims - first] != 77) {
        printf("%s, %d dims: written behind the end\n", heed_dtype_name(type), (int)dims);
        return 1;
    }
    return 0;
}

/* Every code of a byte, as E4M3 and as integers. */
static int check_bytes(uint32_t type)
{
    uint8_t codes[256];
    float to[256];
    int bad = 0;
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    code_row(type, (const char *)codes, 1, 0, 256, &(code_key){NULL, NULL, 0, 1}, to);
    for (int i = 0; i < 256; i++)
        bad += !same(to[i], heed_decode(type, codes, i, 1, 0));
#ifdef V_TWO_E4M3
    for (int i = 0; type == HEED_F8_E4M3 && i < 256; i += 2 * LANES) {
        const int other = (i + 112) % 256 / (2 * LANES) * (2 * LANES);
        vf x[4];
        v_load_two_e4m3(codes + i, codes + other, x);
        for (int n = 0; n < 4; n++)
            v_store(to + n * LANES, x[n]);
        for (int n = 0; n < 4 * LANES; n++)
            bad += !same(to[n], heed_decode(type, codes,
                                            n < 2 * LANES ? i + n : other + n - 2 * LANES, 1, 0));
    }
#endif
#ifdef V_BIAS
    for (int i = 0; type == HEED_I8 && i < 256; i += 2 * LANES) {
        const vi two = vi_load_two_i8(codes + i);
        v_store(to, v_sub(v_biased_i8(two, 0), v_set1(V_BIAS)));
        v_store(to + LANES, v_sub(v_biased_i8(two, 1), v_set1(V_BIAS)));
        for (int n = 0; n < 2 * LANES; n++)
            bad += !same(to[n], heed_decode(type, codes, i + n, 1, 0));
    }
#endif
    if (bad)
        printf("%s: %d of 256 codes are wrong\n", heed_dtype_name(type), bad);
    return bad;
}

int main(void)
{
#if !defined(HEED_VEC_PLAIN)
    if (!runs_here(LANES))
        return 77;
#endif
    const long page = sysconf(_SC_PAGESIZE);
    const size_t size = (size_t)page * 2;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int bad = 0, cases = 0;
    random_state = 20;
    if (memory == MAP_FAILED || mprotect(memory + page, (size_t)page, PROT_NONE))
        return 99;
    for (int flush = 0; flush < 2; flush++) {
#if !defined(HEED_VEC_PLAIN)
        _mm_setcsr(flush ? _mm_getcsr() | 0x8040u : _mm_getcsr() & ~0x8040u);
#endif
        for (uint32_t type = HEED_I8; type <= HEED_IQ4_NL; type++) {
            if (heed_block_bytes(type) == 1 && type != HEED_U4)
                bad += check_bytes(type);
            for (int i = 0; i < ROUNDS && bad < 10; i++, cases++)
                bad += check(type, memory + page);
        }
    }
    printf("%d rows of codes, %d wrong\n", cases, bad);
    return bad != 0 || cases == 0;
}
