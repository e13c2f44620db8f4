/* The tile product of the model against loops of one number at a time, bit for bit except for the
 * payloads of NaNs: tiles of ordinary numbers, of numbers around the sizes from which the model
 * takes its careful path, with zeros of both signs, denormal numbers, infinities and NaNs here and
 * there, on accumulators of all of these. The loops follow TDPBF16PS in the Intel 64 and IA-32
 * Architectures Software Developer's Manual, volume 2. */
#define HEED_AMX_MODEL
#include "tile.h"

#include <stdio.h>

#include "../kit/random.h"

enum { TURNS = 20000 };

static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

static float element(uint32_t word, int odd)
{
    return flushed(heed_f32_of_bits(odd ? word & 0xffff0000u : word << 16));
}

static void multiply(const tile_unit *unit, float to[16][16])
{
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float sum[2] = {0, 0};
            for (int k = 0; k < 16; k++)
                for (int odd = 0; odd < 2; odd++)
                    sum[odd] = flushed(fmaf(element(unit->reg[1][m][k], odd),
                                            element(unit->reg[2][k][n], odd), sum[odd]));
            to[m][n] =
                flushed(flushed(heed_f32_of_bits(unit->reg[0][m][n])) + flushed(sum[0] + sum[1]));
        }
}

/* A bf16 with an exponent near `middle`; one of `rare` is some other number. */
static uint32_t draw(uint64_t *state, int middle, int width, uint32_t rare)
{
    static const uint16_t others[] = {0, 0x8000, 1, 0x807f, 0x7f80, 0xff80, 0x7fc1, 0x0080, 0x7f7f};
    const uint64_t bits = kit_next(state);
    if (rare && bits % rare == 0)
        return others[bits / rare % (sizeof others / sizeof *others)];
    const int exponent = middle + (int)(bits >> 20 & 0xffff) % (2 * width + 1) - width;
    const int inside = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
    return (uint32_t)inside << 7 | (uint32_t)(bits & 0x7f) | (uint32_t)(bits >> 40 & 1) << 15;
}

static void fill(uint64_t *state, uint32_t (*reg)[16], int middle, int width, uint32_t rare)
{
    for (int i = 0; i < 16; i++) {
        const int zeros = kit_next(state) % 8 == 0; /* padding */
        for (int j = 0; j < 16; j++)
            reg[i][j] = zeros ? 0
                              : draw(state, middle, width, rare) | draw(state, middle, width, rare)
                                                                       << 16;
    }
}

int main(void)
{
    static tile_unit unit;
    float want[16][16];
    uint64_t state = 1;
    int64_t wrong = 0, nans = 0, plain = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const uint32_t rare = turn % 4 == 0 ? 0 : 1u << (4 + 3 * (turn % 4));
        const int middle = (int)kit_below(&state, 255), width = 1 + (int)kit_below(&state, 40);
        /* Products around 1, at the limits of the careful path, or anywhere. */
        const int about = turn % 5 == 0 ? 254 : turn % 5 == 1 ? 144 : turn % 5 == 2 ? 374 : -1;
        const int other = about < 0 ? (int)kit_below(&state, 255) : about - middle;
        fill(&state, unit.reg[1], middle, width, rare);
        fill(&state, unit.reg[2], other < 0 ? 0 : other > 254 ? 254 : other, width, rare);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++)
                unit.reg[0][i][j] = draw(&state, middle + other - 127, 20, rare) << 16 |
                                    (uint32_t)(kit_next(&state) & 0xffff);
        multiply(&unit, want);
        tile_product(&unit, 0, 1, 2);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                const float got = heed_f32_of_bits(unit.reg[0][i][j]);
                const int is_nan = want[i][j] != want[i][j];
                nans += is_nan;
                plain += !is_nan && want[i][j] != 0 && !isinf(want[i][j]);
                wrong +=
                    is_nan ? got == got : heed_bits_of_f32(got) != heed_bits_of_f32(want[i][j]);
            }
    }
    printf("%d products: %lld numbers differ; %lld are NaNs, %lld finite and not 0\n", TURNS,
           (long long)wrong, (long long)nans, (long long)plain);
    return wrong || nans < TURNS || plain < 100 * TURNS;
}
