/* ALiBi multiplies a slope by the distance of a key from its row. Where both lie beyond 2^24, neither
 * is a float, and yet a short distance has to count as what it is: up to the longest sequence there
 * is, and for rows that an offset puts behind its last key, where positions take 33 bits. Keys and
 * values broadcast, so that so many of them take no memory. */
#include "unit.h"

enum { WINDOW = 40, ROWS = 40 };

/* lse of a row that sees keys [first, end) with scores of 0 and a slope of 1. */
static double lse_of(int64_t position, int64_t first, int64_t end)
{
    double sum = 0;
    for (int64_t j = first; j < end; j++)
        sum += exp((double)(j - position));
    return sum > 0 ? log(sum) : -HUGE_VAL;
}

static void check_row(const char *backend, int64_t q_len, int64_t kv_len, int64_t position,
                      double lse)
{
    const int64_t first = position > WINDOW ? position - WINDOW : 0;
    const int64_t end = position + 1 < kv_len ? position + 1 : kv_len;
    const double want = lse_of(position, first, end);
    /* 4 u for each term of a score (tests/kit/tolerance.c), of which the largest is the distance. */
    const double tolerance = 4 * 0x1p-24 * (WINDOW + 1) + 1e-6;
    CHECK(want == lse || fabs(want - lse) < tolerance,
          "%s, %lld rows, %lld keys, position %lld: lse %.7g, not %.7g", backend, (long long)q_len,
          (long long)kv_len, (long long)position, lse, want);
}

static void check_rows(heed_context *context, const char *backend, int64_t q_len, int64_t kv_len,
                       int32_t offset)
{
    static const float zero, slope = 1;
    float q[ROWS] = {0}, out[ROWS], lse[ROWS];
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_ALIBI | HEED_HAS_LSE | HEED_HAS_CAUSAL |
                                             HEED_HAS_WINDOW,
                                 .position = HEED_POS_GIVEN,
                                 .window_left = WINDOW,
                                 .window_right = -1,
                                 UNIT_SHAPE(1, 1, 1, 1),
                                 UNIT_TYPES(HEED_F32, HEED_F32, HEED_F32, HEED_F32),
                                 .accuracy = HEED_ACCURACY_EXACT};
    const heed_attn_args args = {.struct_size = sizeof args,
                                 .batch = 1,
                                 .q_len = q_len,
                                 .kv_len = kv_len,
                                 .q = {q, {0, 0, 1, 1}},
                                 .k = {&zero, {0}},
                                 .v = {&zero, {0}},
                                 .out = {out, {0, 0, 1, 1}},
                                 .lse = {lse, {0, 0, 1, 0}},
                                 .q_offsets = &offset,
                                 .alibi_slope = &slope};
    CHECK(heed_attention(context, &desc, &args) == HEED_OK, "%s: %s", backend, heed_last_error());
    for (int64_t i = 0; i < q_len; i++)
        check_row(backend, q_len, kv_len, offset + i, (double)lse[i]);
}

int main(void)
{
    static const char *const backends[] = {"naive", "avx2", "avx512", "amx", "onednn"};
    static const int64_t rows[] = {1, 4, ROWS};
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        heed_context *context = unit_context(1, backends[i]);
        const int there = unit_runs_here(context);
        printf("%s: %s\n", backends[i], there ? "checked" : "not here");
        for (int n = 0; there && n < 3; n++) {
            check_rows(context, backends[i], rows[n], 100, -20);
            check_rows(context, backends[i], rows[n], (1 << 24) + 66, (1 << 24) + 25);
            check_rows(context, backends[i], rows[n], INT32_MAX, INT32_MAX - 60);
            check_rows(context, backends[i], rows[n], INT32_MAX, INT32_MAX - 10);
        }
        heed_context_release(context);
    }
    return checks_end();
}
