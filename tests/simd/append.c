/* Rows that the backends append have the bytes that formats.h makes: for every number of f16 and
 * bf16, for 2^24 numbers of f32 and more in each type, for every kind of number that has a rule of
 * its own, and for rows of any length and stride, at the edge of memory. heed_kv_append writes the
 * same bytes, also where a backend leaves rows to core. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <fenv.h>
#include <sys/mman.h>

#include <xmmintrin.h>

#include "../../backends/simd/simd.h"
#include "../unit/unit.h"
#include "here.h"

#ifndef BLOCKS
#define BLOCKS (1 << 19) /* of 32 numbers of f32, by each type */
#endif

enum { MOST = 1 << 13, ROOM = 4 * MOST + 4096, LEFT_ALONE = 0xa5 };

typedef heed_status append_function(const heed_append_rows *rows);

static const char *set; /* the instruction set under test */
static append_function *run;

/* ---- the expected bytes ---------------------------------------------------------------------- */

static void want_row(const heed_append_rows *a, int64_t row, uint8_t *to, float by[2])
{
    float x[MOST];
    for (int64_t d = 0; d < a->dim; d++)
        x[d] = heed_load(a->from_type, a->from, row * a->from_stride + d);
    by[0] = a->scale ? a->scale[row * a->scale_stride] : 1;
    by[1] = a->zero ? a->zero[row * a->scale_stride] : 0;
    if (a->fresh_scale)
        heed_fresh_scale(a->to_type, x, a->dim, &by[0], &by[1]);
    if (heed_is_code(a->to_type)) {
        heed_encode(a->to_type, x, a->dim, to, by[0], by[1]);
        return;
    }
    for (int64_t d = 0; d < a->dim; d++)
        heed_store(a->to_type, to, d, x[d]);
}

/* Checks rows that were encoded into [out, end), which held LEFT_ALONE before. */
static void check_rows(const heed_append_rows *a, const uint8_t *out, const uint8_t *end,
                       const char *what)
{
    static uint8_t want[ROOM], is_row[ROOM];
    const int64_t bytes = heed_offset_bytes(a->to_type, a->dim);
    memset(want, LEFT_ALONE, (size_t)(end - out));
    memset(is_row, 0, (size_t)(end - out));
    for (int64_t row = 0; row < a->n_rows; row++) {
        uint8_t *to =
            want + ((uint8_t *)a->to - out) + heed_offset_bytes(a->to_type, row * a->to_stride);
        float by[2];
        want_row(a, row, to, by);
        memset(is_row + (to - want), 1, (size_t)bytes);
        if (!a->fresh_scale)
            continue;
        CHECK(unit_same(a->fresh_scale[row * a->scale_stride], by[0]),
              "%s, %s, %s: scale %a, not %a", set, what, heed_dtype_name(a->to_type),
              (double)a->fresh_scale[row * a->scale_stride], (double)by[0]);
        CHECK(!a->fresh_zero || unit_same(a->fresh_zero[row * a->scale_stride], by[1]),
              "%s, %s, %s: zero %a, not %a", set, what, heed_dtype_name(a->to_type),
              (double)a->fresh_zero[row * a->scale_stride], (double)by[1]);
    }
    int64_t at = 0;
    while (at < end - out && out[at] == want[at])
        at++;
    CHECK(at == end - out, "%s, %s, %s to %s, %lld rows of %lld: byte %lld (%s) is %02x, not %02x",
          set, what, heed_dtype_name(a->from_type), heed_dtype_name(a->to_type),
          (long long)a->n_rows, (long long)a->dim, (long long)at,
          is_row[at] ? "of a row" : "beside them", out[at], want[at]);
}

/* Runs and checks; the rows follow one another. */
static void check(heed_append_rows a, const char *what)
{
    static uint8_t out[ROOM];
    static float scale[MOST], zero[MOST];
    const int64_t bytes = heed_offset_bytes(a.to_type, a.n_rows * a.dim);
    for (int fresh = 0; fresh <= heed_takes_scale(a.to_type); fresh++) {
        a.struct_size = sizeof a;
        a.to = out + 5;
        a.to_stride = a.dim;
        a.from_stride = a.dim;
        if (fresh) {
            a.scale = a.zero = NULL;
            a.fresh_scale = scale;
            a.fresh_zero = zero;
            a.scale_stride = 1;
        }
        memset(out, LEFT_ALONE, (size_t)bytes + 80);
        CHECK(run(&a) == HEED_OK, "%s, %s, %s to %s: refused", set, what,
              heed_dtype_name(a.from_type), heed_dtype_name(a.to_type));
        check_rows(&a, out, out + bytes + 80, what);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

static const float scales[] = {1, 0.25f, -0.037f, 1e-40f, 0x1p-20f, INFINITY, NAN, 0, 3e30f};
static const float zeros[] = {0, 7.3f, 128, NAN, -INFINITY, 0.5f};

/* Number i of a row of `kind`. */
static float number(int64_t kind, int64_t i, float first, float factor, uint64_t *state)
{
    const float x = ((float)(int32_t)(uint32_t)kit_next(state) * 0x1p-31f) * 3 * factor;
    switch (kind % 9) {
    case 1: /* ties of many kinds */
        return (float)(kit_below(state, 33) - 16) / 2;
    case 2:
        return fabsf(x);
    case 3:
        return kit_below(state, 40) == 0 ? unit_special(state) : x;
    case 4: /* bf16's, which are often as great as each other */
        return heed_f32_of_bf16(heed_bf16_of_f32(x));
    case 5:
        return heed_f32_of_bits((uint32_t)kit_next(state));
    case 6:
        return i % 32 ? first : x;
    case 7:
        return kit_below(state, 3) ? 0 * x : fabsf(x);
    case 8: /* their scale is a few times the least f32, so that its rounding is up to half of it */
        return (float)(kit_below(state, 401) - 200) * (kind % 2 ? 0x1p-149f : 0x1p-100f);
    default:
        return x;
    }
}

static void fill(float *x, int64_t n, int64_t kind, uint64_t *state)
{
    const float factor = ldexpf(1, kind % 5 == 4 ? (int)kit_below(state, 250) - 125 : 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = number(kind, i, x[i / 32 * 32], factor, state);
}

static void check_random(uint32_t to)
{
    enum { ROWS = 33, DIM = 128 };
    static float x[ROWS * DIM], by[2][ROWS];
    uint64_t state = to;
    for (int64_t kind = 0; kind * (ROWS * DIM / 32) < BLOCKS; kind++) {
        fill(x, ROWS * DIM, kind, &state);
        for (int i = 0; i < ROWS; i++) {
            by[0][i] = scales[kit_below(&state, (int64_t)(sizeof scales / sizeof *scales))];
            by[1][i] = zeros[kit_below(&state, (int64_t)(sizeof zeros / sizeof *zeros))];
        }
        check((heed_append_rows){.from_type = HEED_F32,
                                 .to_type = to,
                                 .n_rows = ROWS,
                                 .dim = DIM,
                                 .from = x,
                                 .scale = kind % 3 ? by[0] : NULL,
                                 .zero = kind % 3 && to != HEED_F8_E4M3 ? by[1] : NULL,
                                 .scale_stride = 1},
              "random numbers");
    }
}

/* Every number of 16 bits, in rows of numbers close to it and of others. */
static void check_halves(uint32_t from, uint32_t to)
{
    enum { N = 1 << 12, DIM = 64 };
    static uint16_t x[N];
    for (uint32_t first = 0; first < 1 << 16; first += N)
        for (uint32_t step = 1; step < 30000; step = step * 5 + 2) {
            for (uint32_t i = 0; i < N; i++)
                x[i] = (uint16_t)((first + i) * step);
            const float by[2] = {scales[step % 4], zeros[step % 3]};
            check((heed_append_rows){.from_type = from,
                                     .to_type = to,
                                     .n_rows = N / DIM,
                                     .dim = DIM,
                                     .from = x,
                                     .scale = by,
                                     .zero = to == HEED_F8_E4M3 ? NULL : by + 1},
                  "all numbers of 16 bits");
        }
}

/* Rows of common numbers but for one, at every place of a row, by scales that are given. */
static void check_lone(uint32_t from, uint32_t to)
{
    enum { MOST_DIM = 160 };
    static const float lone[] = {INFINITY, -INFINITY, NAN, 60000, -60000, 3e30f};
    for (int64_t dim = to == HEED_U4 ? 32 : 16; dim <= MOST_DIM; dim += 16)
        for (int k = 0; k < 12; k++) {
            static uint16_t x[MOST_DIM * MOST_DIM];
            const float by[2] = {k % 2 ? 0.25f : 3e-5f, to == HEED_I8 ? 0.0f : 8.0f};
            for (int64_t i = 0; i < dim * dim; i++)
                heed_store(from, x, i, i % (dim + 1) ? (float)(i % 37 - 18) * by[0] : lone[k / 2]);
            check((heed_append_rows){.from_type = from,
                                     .to_type = to,
                                     .n_rows = dim,
                                     .dim = dim,
                                     .from = x,
                                     .scale = by,
                                     .zero = to == HEED_F8_E4M3 ? NULL : by + 1},
                  "one number of another kind");
        }
}

/* Numbers around every step of IQ4_NL's table and of the other formats: the factor of a block is 1
 * if its extreme is -127, and in Q4_0 and Q5_0 if it is -8 and -16. */
static void check_steps(uint32_t to)
{
    enum { N = 1 << 12 };
    static const float extremes[] = {-127, 127, -8, 8, -16, 16};
    static float x[N];
    for (int e = 0; e < 6; e++)
        for (int twos = -254; twos <= 254; twos++) {
            const uint32_t bits = heed_bits_of_f32((float)twos / 2);
            for (int i = 0; i < N; i++) {
                x[i] = heed_f32_of_bits(bits + (uint32_t)(i % 64) - 32);
                if (fabsf(x[i]) > fabsf(extremes[e]))
                    x[i] = extremes[e];
            }
            for (int i = 0; i < N; i += 32)
                x[i] = extremes[e];
            check((heed_append_rows){.from_type = HEED_F32,
                                     .to_type = to,
                                     .n_rows = N / 128 / 8,
                                     .dim = 128,
                                     .from = x},
                  "around a step");
        }
}

/* Numbers around the products of scales of any mantissa with the quotients that a code ends at: a quotient
 * that is off by one unit of its last place gives another code there, and so does the sign of a zero. */
static void check_quotients(uint32_t to)
{
    enum { ROWS = 32, DIM = 128 };
    static float x[ROWS * DIM], by[2][ROWS];
    uint64_t state = to;
    for (int turn = 0; turn < BLOCKS / 256; turn++) {
        for (int i = 0; i < ROWS; i++) {
            const uint32_t mantissa =
                kit_below(&state, 8) ? (uint32_t)kit_next(&state) : 0xffffffff;
            const int power = (int)kit_below(&state, turn % 4 ? 20 : 150);
            const float zero = to == HEED_F8_E4M3 ? 0 : zeros[kit_below(&state, 3)];
            const float scale =
                ldexpf(heed_f32_of_bits(0x3f800000u | mantissa >> 9), power - (turn % 4 ? 10 : 75));
            by[0][i] = scale;
            by[1][i] = zero;
            for (int d = 0; d < DIM; d++) {
                const float half = (float)(kit_below(&state, 1200) - 600) / 2;
                const float step = to == HEED_F8_E4M3
                                       ? ldexpf(half / 37, -(int)kit_below(&state, 12))
                                       : half - zero;
                const uint32_t bits = heed_bits_of_f32(step * scale);
                x[i * DIM + d] = heed_f32_of_bits(bits + (uint32_t)kit_below(&state, 7) - 3);
            }
            x[i * DIM] = turn % 2 ? -0.0f : x[i * DIM];
        }
        check((heed_append_rows){.from_type = HEED_F32,
                                 .to_type = to,
                                 .n_rows = ROWS,
                                 .dim = DIM,
                                 .from = x,
                                 .scale = by[0],
                                 .zero = to == HEED_F8_E4M3 ? NULL : by[1],
                                 .scale_stride = 1},
              "around a quotient");
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns the end of `bytes` bytes, which an inaccessible page follows. */
static char *page_at_the_edge(size_t bytes)
{
    char *p = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + bytes, 4096, PROT_NONE)) {
        printf("no memory\n");
        exit(1);
    }
    return p + bytes;
}

/* Rows of every length that end where accessible memory does, read and written, at strides of
 * either sign. */
static void check_places(uint32_t from, uint32_t to)
{
    enum { BYTES = 1 << 16 };
    static char *in_edge, *out_edge;
    static uint8_t before[BYTES];
    uint64_t state = from + 16 * to;
    if (!in_edge) {
        in_edge = page_at_the_edge(BYTES);
        out_edge = page_at_the_edge(BYTES);
    }
    const uint32_t len = heed_block_len(to), least = to == HEED_U4 ? 32 : 16;
    const size_t size = from == HEED_F32 ? 4 : 2;
    for (int64_t dim = len; dim <= 160; dim += len) {
        const int64_t rows = 1 + kit_below(&state, 9), gap = kit_below(&state, 3) * 32;
        const int down = (int)kit_below(&state, 2);
        float by[2][16], x[MOST];
        heed_append_rows a = {.struct_size = sizeof a,
                              .from_type = from,
                              .to_type = to,
                              .n_rows = rows,
                              .dim = dim,
                              .from_stride = dim + gap / 2,
                              .to_stride = dim + gap};
        char *in = in_edge - (size_t)((rows - 1) * a.from_stride + dim) * size;
        const int64_t out_bytes = heed_offset_bytes(to, (rows - 1) * a.to_stride + dim);
        fill(x, rows * a.from_stride, dim, &state);
        for (int64_t i = 0; i < (rows - 1) * a.from_stride + dim; i++)
            heed_store(from, in, i, x[i]);
        a.from = in;
        a.to = out_edge - out_bytes;
        if (down) {
            a.from = in + (size_t)((rows - 1) * a.from_stride) * size;
            a.from_stride = -a.from_stride;
            a.to = (char *)a.to + heed_offset_bytes(to, (rows - 1) * a.to_stride);
            a.to_stride = -a.to_stride;
        }
        if (heed_takes_scale(to)) {
            a.fresh_scale = by[0];
            a.fresh_zero = to == HEED_U8 || to == HEED_U4 ? by[1] : NULL;
            a.scale_stride = 1;
        }
        uint8_t *start = (uint8_t *)out_edge - BYTES / 4;
        memset(start, LEFT_ALONE, BYTES / 4);
        memcpy(before, start, BYTES / 4);
        const heed_status st = run(&a);
        CHECK((st == HEED_OK) == (dim >= least), "%s, %s, dim %lld: status %d", set,
              heed_dtype_name(to), (long long)dim, st);
        if (st == HEED_OK)
            check_rows(&a, start, (uint8_t *)out_edge, "at the edge");
        else
            CHECK(!memcmp(before, start, BYTES / 4), "%s, %s: written though refused", set,
                  heed_dtype_name(to));
    }
}

/* ---- the call -------------------------------------------------------------------------------- */

/* What heed_kv_append writes, token-major into pages. */
typedef struct appended {
    uint8_t k[1 << 15];
    float scale[512], zero[512];
} appended;

enum { HEADS = 3, CALL_DIM = 96, LEN = 21, PAGE = 4, PAGES = 7, GROUP = 24 };

static const int32_t table[] = {5, 0, 6, 2, 4, 1};

static void begin(appended *out)
{
    memset(out, LEFT_ALONE, sizeof *out);
    for (int i = 0; i < 512; i++) {
        out->scale[i] = scales[i % 9];
        out->zero[i] = zeros[i % 6];
    }
}

static heed_quant_out quant_of(uint32_t to, int fresh, appended *out)
{
    const int with_zero = to == HEED_U8 || to == HEED_U4;
    if (!heed_takes_scale(to))
        return (heed_quant_out){.scale = NULL};
    return (heed_quant_out){
        .scale = out->scale,
        .zero = with_zero ? out->zero : NULL,
        .group = fresh ? 0 : GROUP,
        .stride = {HEADS * PAGE * (fresh ? 1 : 4), fresh ? PAGE : 4, fresh ? 1 : 0, fresh ? 0 : 1}};
}

static void append_all(uint32_t from, uint32_t to, const void *x, int fresh, appended *out)
{
    const int64_t row = HEADS * CALL_DIM;
    begin(out);
    const heed_kv_append_args a = {.struct_size = sizeof a,
                                   .batch = 1,
                                   .len = LEN,
                                   .capacity = 6 * PAGE,
                                   .kv_heads = HEADS,
                                   .qk_dim = CALL_DIM,
                                   .page_len = PAGE,
                                   .n_pages = PAGES,
                                   .block_table = table,
                                   .block_table_stride = 6,
                                   .k_type = from,
                                   .k_cache_type = to,
                                   .k = {x, {LEN * row, CALL_DIM, row, 1}},
                                   .k_cache = {out->k, {PAGE * row, CALL_DIM, row, 1}},
                                   .k_quant = quant_of(to, fresh, out),
                                   .options = fresh ? HEED_APPEND_FRESH_SCALES : 0};
    CHECK_OK(heed_kv_append(&a));
}

/* The same by formats.h, a group of dims at a time. */
static void want_all(uint32_t from, uint32_t to, const void *x, int fresh, appended *out)
{
    begin(out);
    const heed_quant_out q = quant_of(to, fresh, out);
    const heed_quant read = heed_quant_as_const(q);
    const int64_t piece = heed_takes_scale(to) && !fresh ? GROUP : CALL_DIM;
    for (int64_t i = 0; i < LEN * HEADS; i++) {
        const int64_t key = i / HEADS, h = i % HEADS, page = table[key / PAGE];
        for (int64_t d = 0; d < CALL_DIM; d += piece) {
            float number[CALL_DIM], scale = 1, zero = 0;
            const int64_t at = heed_scale_at(&read, page, h, key % PAGE, d);
            const int64_t to_at = (page * PAGE + key % PAGE) * HEADS * CALL_DIM + h * CALL_DIM + d;
            for (int64_t e = 0; e < piece; e++)
                number[e] = heed_load(from, x, i * CALL_DIM + d + e);
            if (fresh) {
                heed_fresh_scale(to, number, piece, &scale, &zero);
                q.scale[at] = scale;
                if (q.zero)
                    q.zero[at] = zero;
            } else if (q.scale) {
                scale = q.scale[at];
                zero = q.zero ? q.zero[at] : 0;
            }
            for (int64_t e = 0; e < piece && !heed_is_code(to); e++)
                heed_store(to, out->k, to_at + e, number[e]);
            if (heed_is_code(to))
                heed_encode(to, number, piece, out->k + heed_offset_bytes(to, to_at), scale, zero);
        }
    }
}

/* The bytes are those of formats.h, however the host rounds and flushes. */
static void check_call(uint32_t from, uint32_t to)
{
    static const unsigned modes[] = {0x1f80, 0x3f80, 0x5f80, 0x7f80, 0x9fc0, 0xffc0};
    static appended want, got;
    static float x[LEN * HEADS * CALL_DIM];
    static uint8_t in[sizeof x];
    uint64_t state = to;
    for (int64_t i = 0; i < LEN * HEADS; i++)
        fill(x + i * CALL_DIM, CALL_DIM, i, &state);
    for (int64_t i = 0; i < LEN * HEADS * CALL_DIM; i++)
        heed_store(from, in, i, x[i]);
    for (int fresh = 0; fresh <= heed_takes_scale(to); fresh++) {
        want_all(from, to, in, fresh, &want);
        for (int m = 0; m < 6; m++) {
            _mm_setcsr(modes[m]);
            append_all(from, to, in, fresh, &got);
            _mm_setcsr(0x1f80);
            CHECK(!memcmp(&want, &got, sizeof want), "%s to %s, mode %x: other bytes",
                  heed_dtype_name(from), heed_dtype_name(to), modes[m]);
        }
    }
}

static void check_set(append_function *function, const char *name)
{
    set = name;
    run = function;
    for (uint32_t to = HEED_F32; to <= HEED_IQ4_NL; to++) {
        if (to != HEED_F32)
            check_random(to);
        if (heed_is_code(to))
            check_steps(to);
        if (heed_takes_scale(to))
            check_quotients(to);
        for (uint32_t from = HEED_F32; from <= HEED_BF16; from++) {
            if (from == to || (from == HEED_F16 && to == HEED_F32)) /* core does these */
                continue;
            if (from != HEED_F32)
                check_halves(from, to);
            if (from != HEED_F32 && heed_takes_scale(to))
                check_lone(from, to);
            check_places(from, to);
        }
    }
}

int main(void)
{
    if (!runs_here(8))
        return 77;
    check_set(heed_append_rows_avx2, "avx2");
    if (runs_here(16))
        check_set(heed_append_rows_avx512, "avx512");
    for (uint32_t from = HEED_F32; from <= HEED_BF16; from++)
        for (uint32_t to = HEED_F32; to <= HEED_IQ4_NL; to++)
            check_call(from, to);
    return checks_end();
}
