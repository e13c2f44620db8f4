/* Rows that are encoded many numbers at a time have the bytes that formats.h makes one by one: at
 * any length, of ordinary numbers and of every kind of number that has a rule of its own. */
#include "unit.h"

#include "base/codes.h"
#include "base/rows.h"

enum { MOST = 320 };

static void fill(float *x, int64_t n, int kind, uint64_t *state)
{
    const float factor = ldexpf(1, kind % 5 == 4 ? (int)kit_below(state, 250) - 125 : 0);
    for (int64_t i = 0; i < n; i++) {
        x[i] = unit_number(state) * 3 * factor;
        if (kind % 7 == 1) /* ties of many kinds */
            x[i] = (float)(kit_below(state, 33) - 16) / 2;
        if (kind % 7 == 2)
            x[i] = fabsf(x[i]);
        if (kind % 7 == 3 && kit_below(state, 40) == 0)
            x[i] = unit_special(state);
        if (kind % 7 == 5)
            x[i] = heed_f32_of_bits((uint32_t)kit_next(state));
        if (kind % 7 == 6)
            x[i] = i ? x[0] : x[i];
    }
}

static void check_range(const float *x, int64_t n, int kind)
{
    for (uint32_t type = HEED_I8; type <= HEED_F8_E4M3; type++) {
        float range[2][2] = {{INFINITY, -INFINITY}, {INFINITY, -INFINITY}}, by[2][2];
        heed_widen_range(x, n, &range[0][0], &range[0][1]);
        heed_widen_range_fast(x, n / 2, &range[1][0], &range[1][1]); /* in two pieces */
        heed_widen_range_fast(x + n / 2, n - n / 2, &range[1][0], &range[1][1]);
        for (int i = 0; i < 2; i++)
            heed_scale_of_range(type, range[i][0], range[i][1], &by[i][0], &by[i][1]);
        CHECK(unit_same(by[0][0], by[1][0]) && unit_same(by[0][1], by[1][1]),
              "kind %d, %lld numbers, %s: scale %a and zero %a, one by one %a and %a", kind,
              (long long)n, heed_dtype_name(type), (double)by[1][0], (double)by[1][1],
              (double)by[0][0], (double)by[0][1]);
    }
}

static void check_row(uint32_t type, const float *x, int64_t n, float scale, float zero, int kind)
{
    uint8_t want[2 * MOST + 1], got[2 * MOST + 1];
    size_t bytes = (size_t)n;
    memset(want, 0xa5, sizeof want);
    memset(got, 0xa5, sizeof got);
    if (heed_takes_scale(type)) {
        for (int64_t i = 0; i < n; i++)
            want[i] = heed_encode_by(type, x[i], scale, zero);
        heed_codes_by(type, x, n, scale, zero, got);
    } else {
        n -= n % 32;
        heed_encode(type, x, n, want, 1, 0);
        heed_encode_blocks(type, x, n, got);
        bytes = (size_t)heed_offset_bytes(type, n);
    }
    size_t at = 0;
    while (at < bytes && got[at] == want[at])
        at++;
    CHECK(at == bytes && got[bytes] == 0xa5,
          "kind %d, %s by %a and %a: byte %zu of %zu is %02x, one by one %02x", kind,
          heed_dtype_name(type), (double)scale, (double)zero, at, bytes, got[at], want[at]);
}

/* Every f16 becomes the same f32 in a row as alone, the payload of NaN included. */
static void check_widening(void)
{
    enum { N = 1 << 16 };
    static uint16_t half[N + 1];
    static float x[N];
    for (int i = 0; i < N; i++)
        half[i + 1] = (uint16_t)i;
    heed_convert(&(heed_elements){HEED_F16, half, 1, 1}, HEED_F32, x, 0, 1, N);
    for (int i = 0; i < N; i++)
        CHECK(heed_bits_of_f32(x[i]) == heed_bits_of_f32(heed_f32_of_f16((uint16_t)i)),
              "f16 %04x became %08x", (unsigned)i, heed_bits_of_f32(x[i]));
}

/* f32 become the same f16 in a row as alone: multiples of 4096 in bits, which all numbers are that f16
 * has and all ties between them, and what is beside those. */
static void check_narrowing(void)
{
    enum { N = 3 * 1024 };
    static float x[N];
    static uint16_t half[N];
    for (uint64_t first = 0; first <= UINT32_MAX; first += N / 3 * 4096) {
        for (uint32_t i = 0; i < N; i++)
            x[i] = heed_f32_of_bits((uint32_t)first + i / 3 * 4096 + i % 3 - 1);
        heed_convert(&(heed_elements){HEED_F32, x, 0, 1}, HEED_F16, half, 0, 1, N);
        for (int i = 0; i < N; i++)
            CHECK(half[i] == heed_f16_of_f32(x[i]), "f32 %08x became %04x", heed_bits_of_f32(x[i]),
                  half[i]);
    }
}

/* What keeps its type keeps its bits, those of a signalling NaN too, whatever the strides. */
static void check_copies(void)
{
    enum { N = 1 << 16 };
    static uint16_t half[2 * N], copy[2 * N];
    for (uint32_t type = HEED_F16; type <= HEED_BF16; type++)
        for (int strides = 0; strides < 4; strides++) {
            const int from = 1 + strides % 2, to = 1 + strides / 2;
            memset(half, 0xa5, sizeof half);
            memset(copy, 0xa5, sizeof copy);
            for (int i = 0; i < N; i++)
                half[i * from] = (uint16_t)i;
            heed_convert(&(heed_elements){type, half, 0, from}, type, copy, 0, to, N);
            for (int i = 0; i < 2 * N; i++) {
                const int want = i % to || i / to >= N ? 0xa5a5 : i / to;
                CHECK(copy[i] == want, "%s at strides %d and %d: %04x where %04x is right",
                      heed_dtype_name(type), from, to, copy[i], (unsigned)want);
            }
        }
}

/* Numbers times a factor are rounded as heed_store_f64 does one by one, and -0 becomes 0. */
static void check_scaled(const float *x, int64_t n, double factor, int kind)
{
    float want[2 * MOST], got[2 * MOST];
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++)
        for (int64_t stride = 1; stride <= 2; stride++) {
            memset(want, 0xa5, sizeof want);
            memset(got, 0xa5, sizeof got);
            for (int64_t i = 0; i < n; i++)
                heed_store_f64(type, want, 1 + i * stride, (double)x[i] * factor + 0);
            heed_write_scaled(x, factor, type, got, 1, stride, n);
            CHECK(memcmp(want, got, sizeof want) == 0,
                  "kind %d: %lld numbers times %a as %s at stride %d", kind, (long long)n, factor,
                  heed_dtype_name(type), (int)stride);
        }
}

int main(void)
{
    check_widening();
    check_narrowing();
    check_copies();
    static const float scales[] = {1, 0.25f, -0.037f, 1e-40f, 0x1p-20f, INFINITY, NAN, 0};
    static const float zeros[] = {0, 7.3f, 128, NAN, -INFINITY};
    uint64_t state = 3;
    for (int kind = 0; kind < 3500; kind++) {
        float x[MOST];
        const int64_t n = kit_below(&state, MOST + 1);
        const float scale = scales[kind % 8], zero = zeros[kind / 8 % 5];
        float fresh[2];
        fill(x, n, kind, &state);
        check_range(x, n, kind);
        check_scaled(x, n < MOST ? n : MOST - 1, kind % 3 ? (double)scale : 1 / 3.7e5, kind);
        for (uint32_t type = HEED_I8; type <= HEED_IQ4_NL; type++) {
            check_row(type, x, n, scale, zero, kind);
            if (heed_takes_scale(type)) {
                heed_fresh_scale(type, x, n, &fresh[0], &fresh[1]);
                check_row(type, x, n, fresh[0], fresh[1], kind);
            }
        }
    }
    return checks_end();
}
