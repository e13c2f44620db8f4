/* The element types of heed/kit.h: f16 and bf16 to f32 and back, against arithmetic in f64 that
 * shares nothing with their bit handling. */
#include <fenv.h>
#include <heed/backend.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* A format is its fraction bits and its least and greatest normal exponent. */
typedef struct format {
    const char *name;
    uint32_t type;
    int fraction_bits, min_exponent, max_exponent;
} format;

static const format FORMATS[] = {
    {"f16", HEED_F16, 10, -14, 15},
    {"bf16", HEED_BF16, 7, -126, 127},
};

static int n_failed;

static void fail(const format *f, const char *what, uint32_t input, double got, double want)
{
    if (n_failed++ < 20)
        printf("%s: %s of 0x%08x is %a, must be %a\n", f->name, what, (unsigned)input, got, want);
}

static float widen(const format *f, uint16_t half)
{
    return f->type == HEED_F16 ? heed_f32_of_f16(half) : heed_f32_of_bf16(half);
}

static uint16_t narrow(const format *f, float x)
{
    return f->type == HEED_F16 ? heed_f16_of_f32(x) : heed_bf16_of_f32(x);
}

/* The value of 16 bits by the definition of the format. */
static double value_of(const format *f, uint16_t half)
{
    int fraction = half & ((1 << f->fraction_bits) - 1);
    int exponent = (half & 0x7fff) >> f->fraction_bits;
    double sign = half & 0x8000 ? -1 : 1;
    if (exponent > f->max_exponent - f->min_exponent + 1)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, f->min_exponent - f->fraction_bits);
    return sign * ldexp((1 << f->fraction_bits) + fraction,
                        exponent - 1 + f->min_exponent - f->fraction_bits);
}

/* x rounded to the nearest value of the format, ties to even: nearbyint of x in units of the last
 * place there. All steps are exact in f64 but nearbyint's. */
static double rounded(const format *f, double x)
{
    int exponent = x == 0 || !isfinite(x) ? 0 : ilogb(x);
    int last = (exponent < f->min_exponent ? f->min_exponent : exponent) - f->fraction_bits;
    double y = isfinite(x) ? ldexp(nearbyint(ldexp(x, -last)), last) : x;
    return fabs(y) >= ldexp(1, f->max_exponent + 1) ? copysign(INFINITY, x) : y;
}

static int same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

/* Checks the conversion of x to `half`, whose value is value_of's. */
static void check_narrow(const format *f, float x, uint16_t half)
{
    double got = value_of(f, half), want = rounded(f, (double)x);
    if (!same(got, want))
        fail(f, "narrowing", heed_bits_of_f32(x), got, want);
}

/* Every one of the 65536 bit patterns means what the format says, and comes back as itself. */
static void check_all_halves(const format *f)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        float x = widen(f, half);
        if (!same((double)x, value_of(f, half)))
            fail(f, "widening", bits, (double)x, value_of(f, half));
        if (isnan(x) ? !isnan(value_of(f, narrow(f, x))) : narrow(f, x) != half)
            fail(f, "the round trip", bits, value_of(f, narrow(f, x)), value_of(f, half));
    }
}

/* The points where rounding decides: every value, the middle to the next one, and the floats beside
 * those. The middle of the largest value and what would follow it is where infinity begins. */
static size_t deciding_points(const format *f, float *x)
{
    size_t n = 0;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        double low = value_of(f, half), high = value_of(f, (uint16_t)(half + 1));
        if (!isfinite(low))
            continue;
        if (!isfinite(high))
            high = copysign(ldexp(1, f->max_exponent + 1), low);
        float point[2] = {(float)low, (float)(low / 2 + high / 2)};
        for (int i = 0; i < 2; i++) {
            x[n++] = nextafterf(point[i], -INFINITY);
            x[n++] = point[i];
            x[n++] = nextafterf(point[i], INFINITY);
        }
    }
    return n;
}

/* The deciding points in the host's usual mode, and the same bits in every other mode. */
static void check_deciding_points(const format *f)
{
    static const int mode[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static float x[6 * 65536];
    static uint16_t half[6 * 65536];
    size_t n = deciding_points(f, x);

    for (size_t i = 0; i < n; i++) {
        half[i] = narrow(f, x[i]);
        check_narrow(f, x[i], half[i]);
    }
    for (int m = 0; m < 8; m++) { /* the last four flush subnormals as well, where there is a way */
        size_t n_differ = 0;
        fesetround(mode[m % 4]);
#if defined(__SSE2__)
        unsigned saved = _mm_getcsr();
        _mm_setcsr(m < 4 ? saved : saved | 0x8040);
#endif
        for (size_t i = 0; i < n; i++)
            n_differ += narrow(f, x[i]) != half[i];
#if defined(__SSE2__)
        _mm_setcsr(saved);
#endif
        fesetround(FE_TONEAREST);
        if (n_differ)
            fail(f, "the number of results that changed with floating-point mode", (uint32_t)m,
                 (double)n_differ, 0);
    }
}

/* A double is rounded once: one that is off a middle, by less than f32 can tell, is no tie. */
static void check_doubles(const format *f)
{
    static float point[6 * 65536];
    size_t n = deciding_points(f, point);
    for (size_t i = 0; i < n; i++)
        for (int side = -1; side <= 1; side++) {
            double x =
                side ? nextafter((double)point[i], side * (double)INFINITY) : (double)point[i];
            uint32_t room; /* of f32, which compilers do not rule out */
            uint16_t half;
            heed_store_f64(f->type, &room, 0, x);
            memcpy(&half, &room, sizeof half);
            if (!same(value_of(f, half), rounded(f, x)))
                fail(f, "narrowing a double beside", heed_bits_of_f32(point[i]), value_of(f, half),
                     rounded(f, x));
        }
}

/* All floats in steps of a prime, so that every exponent meets many fractions. */
static void check_many_floats(const format *f)
{
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 509) {
        float x = heed_f32_of_bits((uint32_t)bits);
        check_narrow(f, x, narrow(f, x));
    }
}

/* Stores and loads an element at an odd address, by index; nothing beside it is written. */
static void check_addresses(uint32_t type)
{
    unsigned char memory[24], want[24];
    uint32_t bytes = heed_dtype_bytes(type);
    memset(memory, 0xa5, sizeof memory);
    memcpy(want, memory, sizeof want);
    heed_store(type, memory + 1 + bytes, 1, -1.5f);
    if (heed_load(type, memory + 1 + bytes, 1) != -1.5f ||
        heed_load(type, memory + 1 + 3 * bytes, -1) != -1.5f) {
        printf("%s: what was stored at an odd address is not there\n", heed_dtype_name(type));
        n_failed++;
    }
    memcpy(want + 1 + 2 * bytes, memory + 1 + 2 * bytes, bytes);
    if (memcmp(memory, want, sizeof want) != 0) {
        printf("%s: a store wrote beside its element\n", heed_dtype_name(type));
        n_failed++;
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        check_all_halves(&FORMATS[i]);
        check_deciding_points(&FORMATS[i]);
        check_doubles(&FORMATS[i]);
        check_many_floats(&FORMATS[i]);
        check_addresses(FORMATS[i].type);
    }
    check_addresses(HEED_F32);
    printf("%d failed\n", n_failed);
    return n_failed != 0;
}
