/* Measures how fast the tile unit is beside the vector unit of the same core, which no feature bit
 * tells. Takes some tens of microseconds, a millisecond at most where the unit is emulated.
 * Compiled with the flags of attn_tile_amx.c; runs after the permission has been granted. */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include "lanes.h"
#include "tile.h"

#include <time.h>

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* n times four products, each onto a sum of its own. */
static void tile_loop(int n)
{
    tile_unit unit;
    tile_begin(&unit); /* all registers are zeros */
    for (; n > 0; n--) {
        tile_product(&unit, 0, 4, 6);
        tile_product(&unit, 1, 4, 7);
        tile_product(&unit, 2, 5, 6);
        tile_product(&unit, 3, 5, 7);
    }
    tile_end(&unit);
}

/* n times 12 fused multiply-adds of 16 floats, each onto a sum of its own. */
static void vector_loop(int n)
{
    vf s0 = v_zero(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    vf s8 = s0, s9 = s0, s10 = s0, s11 = s0, a = s0;
    V_IN_REGISTER(a) /* hides from the compiler that it is 0 */
    for (; n > 0; n--) {
#define STEP(s)                                                                                    \
    s = v_fma(a, a, s);                                                                            \
    __asm__ volatile("" : "+v"(s));
        STEP(s0)
        STEP(s1)
        STEP(s2)
        STEP(s3)
        STEP(s4)
        STEP(s5)
        STEP(s6)
        STEP(s7)
        STEP(s8)
        STEP(s9)
        STEP(s10)
        STEP(s11)
#undef STEP
    }
}

/* The least time of one turn in five tries, or in fewer where they take long. */
static double least_ns(void (*loop)(int n), int turns)
{
    double best = 1e30, first = now_ns(), start = first;
    loop(8); /* wakes the unit up */
    if (now_ns() - first > 1e5)
        return (now_ns() - first) / 8;
    for (int i = 0; i < 5 && start - first < 3e5; i++) {
        double ns;
        start = now_ns();
        loop(turns);
        ns = (now_ns() - start) / turns;
        best = ns < best ? ns : best;
    }
    return best;
}

void heed_rates_amx(double *product_ns, double *fma_ns)
{
    *product_ns = least_ns(tile_loop, 250) / 4;
    *fma_ns = least_ns(vector_loop, 800) / 12;
}
