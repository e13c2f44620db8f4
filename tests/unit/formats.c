/* Codes: every golden block of numpy comes out of the encoders bit for bit, and every code of every
 * type stands for the number that the formula says. tests/golden/golden_formats/make_formats.py
 * wrote the file and describes it. */
#include "unit.h"

#include <heed/formats.h>

enum { NUMBERS, ENCODE, FRESH, DECODE, MOST = 4096 };

static const uint8_t *at, *end;

static void take(void *to, size_t bytes)
{
    if ((size_t)(end - at) < bytes) {
        printf("the file ends within a record\n");
        exit(1);
    }
    memcpy(to, at, bytes);
    at += bytes;
}

/* by: the scale and the zero. */
static void check_encode(uint32_t what, uint32_t type, const float *x, int64_t n, const float by[2],
                         const uint8_t *code, size_t bytes, int record)
{
    const float scale = by[0], zero = by[1];
    uint8_t got[MOST + 2];
    float fresh[2] = {scale, zero};
    memset(got, 0xa5, sizeof got);
    if (what == FRESH) {
        heed_fresh_scale(type, x, n, &fresh[0], &fresh[1]);
        CHECK(unit_same(fresh[0], scale) && unit_same(fresh[1], zero),
              "record %d, %s: scale %a and zero %a, must be %a and %a", record,
              heed_dtype_name(type), (double)fresh[0], (double)fresh[1], (double)scale,
              (double)zero);
    }
    heed_encode(type, x, n, got + 1, fresh[0], fresh[1]);
    for (size_t i = 0; i < bytes; i++)
        CHECK(got[1 + i] == code[i], "record %d, %s by %a and %a: byte %zu is %02x, must be %02x",
              record, heed_dtype_name(type), (double)scale, (double)zero, i, got[1 + i], code[i]);
    CHECK(got[0] == 0xa5 && got[1 + bytes] == 0xa5, "record %d, %s: written beside the codes",
          record, heed_dtype_name(type));
}

static void check_decode(uint32_t type, const float *x, int64_t n, float scale, float zero,
                         const uint8_t *code, int record)
{
    for (int64_t i = 0; i < n; i++) {
        const float got = heed_decode(type, code, i, scale, zero);
        CHECK(unit_same(got, x[i]), "record %d, %s: element %lld is %a, must be %a", record,
              heed_dtype_name(type), (long long)i, (double)got, (double)x[i]);
    }
}

static void check_file(void)
{
    static float numbers[MOST], value[MOST];
    static uint8_t code[MOST];
    int seen[HEED_IQ4_NL + 1][DECODE + 1] = {{0}};
    for (int record = 0; at < end; record++) {
        uint32_t head[3];
        float by[2];
        take(head, sizeof head);
        if (head[0] > DECODE || head[1] > HEED_IQ4_NL || head[2] == 0 || head[2] > MOST ||
            (head[0] != NUMBERS && !heed_is_code(head[1]))) {
            printf("record %d: what %u, type %u, n %u\n", record, head[0], head[1], head[2]);
            exit(1);
        }
        seen[head[1]][head[0]]++;
        if (head[0] == NUMBERS) {
            take(numbers, head[2] * sizeof *numbers);
            continue;
        }
        const size_t bytes = (size_t)heed_offset_bytes(head[1], head[2]);
        take(by, sizeof by);
        take(code, bytes);
        if (head[0] == DECODE) {
            take(value, head[2] * sizeof *value);
            check_decode(head[1], value, head[2], by[0], by[1], code, record);
        } else {
            check_encode(head[0], head[1], numbers, head[2], by, code, bytes, record);
        }
    }
    for (uint32_t type = HEED_I8; type <= HEED_IQ4_NL; type++)
        CHECK(seen[type][ENCODE] && seen[type][DECODE] &&
                  !heed_takes_scale(type) == !seen[type][FRESH],
              "%s: no records", heed_dtype_name(type));
}

/* An encoded row decodes to within half a step at every place of every block: heed_encode and
 * heed_decode agree on where a code lies. */
static void check_rows(void)
{
    enum { N = 192 };
    uint64_t state = 7;
    for (uint32_t type = HEED_I8; type <= HEED_IQ4_NL; type++) {
        float x[N], scale, zero, worst = 0;
        uint8_t row[N * 2];
        for (int i = 0; i < N; i++)
            x[i] = unit_number(&state);
        heed_fresh_scale(type == HEED_I8 || type == HEED_U4 || type == HEED_F8_E4M3 ? type
                                                                                    : HEED_U8,
                         x, N, &scale, &zero);
        heed_encode(type, x, N, row, scale, zero);
        for (int i = 0; i < N; i++)
            worst = fmaxf(worst, fabsf(heed_decode(type, row, i, scale, zero) - x[i]));
        /* Half a step and a margin, for numbers within 1: steps of 2/255, 1/127 (I8, Q8_0), 32/448
         * (F8 near its greatest), 2/15 and 2/31. Q4_0 and Q5_0 lack the last code of one side,
         * which costs a whole step there; the widest step of IQ4_NL is 24/127. */
        const float bound = type == HEED_I8 || type == HEED_Q8_0   ? 0.6f / 127
                            : type == HEED_U8                      ? 0.6f * 2 / 255
                            : type == HEED_F8_E4M3                 ? 0.6f * 32 / 448
                            : type == HEED_Q4_0                    ? 1.1f / 8
                            : type == HEED_Q5_0                    ? 1.1f / 16
                            : type == HEED_Q5_1                    ? 0.6f * 2 / 31
                            : type == HEED_U4 || type == HEED_Q4_1 ? 0.6f * 2 / 15
                                                                   : 0.16f;
        CHECK(worst <= bound && worst > bound / 100, "%s: the worst error is %g, bound %g",
              heed_dtype_name(type), (double)worst, (double)bound);
    }
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    static uint8_t data[1 << 20];
    const size_t bytes = file ? fread(data, 1, sizeof data, file) : 0;
    if (file)
        fclose(file);
    if (bytes == 0 || bytes == sizeof data) {
        printf("usage: unit_formats formats.bin\n");
        return 1;
    }
    at = data;
    end = data + bytes;
    check_file();
    check_rows();
    return checks_end();
}
