/* Scores that rise late, beside unusual rows and keys: the reference of a row has to rise after its
 * chunk was begun, and what was computed until then has to be computed again or rescaled.
 *
 * Random problems with windows and bool masks, spikes of 2^2 to 2^12 at and around the edges of
 * blocks and chunks, rows that see nothing of the first blocks, blocks that are hidden as a whole,
 * and NaN and infinities in hidden keys, against float64. The kernels run on the model; `rising
 * emulated` and `rising hardware` run those compiled for the unit. */
#define _DEFAULT_SOURCE
#include "which.h"

#include <math.h>

enum { MOST_ROWS = 80, MOST_KEYS = 2400, MOST_DIM = 160 };

typedef struct problem {
    int64_t rows, keys, window; /* -1: none */
    uint32_t dim;
    int masked, odd; /* odd: hidden keys hold NaN and infinities */
    float spread;    /* standard deviation of the scores */
} problem;

static uint16_t q[MOST_ROWS][MOST_DIM], k[MOST_KEYS][MOST_DIM], v[MOST_KEYS][MOST_DIM];
static uint8_t mask[MOST_ROWS][MOST_KEYS];
static float out[MOST_ROWS][MOST_DIM], lse[MOST_ROWS];

/* Gives key j the score `height` with row i. */
static void put_spike(const problem *p, int64_t i, int64_t j, float height)
{
    float square = 0;
    for (uint32_t d = 0; d < p->dim; d++)
        square += heed_f32_of_bf16(q[i][d]) * heed_f32_of_bf16(q[i][d]);
    for (uint32_t d = 0; d < p->dim; d++)
        k[j][d] =
            heed_bf16_of_f32(heed_f32_of_bf16(q[i][d]) * height * sqrtf((float)p->dim) / square);
}

/* Spikes that rise with the keys, most of them beside multiples of 128, 512 and 1024. */
static void put_spikes(const problem *p, uint64_t *seed)
{
    static const int64_t step[] = {128, 512, 1024, 32};
    const int64_t n = 1 + kit_below(seed, 6);
    const float factor = (float)(1 << kit_below(seed, 3));
    float height = (float)(4 << kit_below(seed, 7));
    for (int64_t at = 0; at < n; at++) {
        const int64_t every = step[kit_below(seed, 4)], low = p->keys * at / n;
        int64_t j = low + kit_below(seed, p->keys / n);
        if (kit_below(seed, 4))
            j = (j + every - 1) / every * every + kit_below(seed, 3) - 1;
        if (j < 0 || j >= p->keys)
            continue;
        put_spike(p, kit_below(seed, p->rows), j, height);
        height = fminf(height * factor, 4096);
    }
}

/* Most rows see most keys; some rows begin late, some blocks are hidden from all. */
static void fill_mask(const problem *p, uint64_t *seed)
{
    const uint64_t dense = 2 + kit_next(seed) % 7;
    const int late = kit_below(seed, 2) == 0;
    for (int64_t i = 0; i < p->rows; i++) {
        const int64_t first = late && kit_below(seed, 8) == 0 ? kit_below(seed, p->keys) : 0;
        for (int64_t j = 0; j < p->keys; j++)
            mask[i][j] = j >= first && (dense == 8 || kit_next(seed) % 8 < dense);
    }
    for (int64_t block = 0; block * 128 < p->keys; block++)
        if (kit_below(seed, 8) == 0)
            for (int64_t i = 0; i < p->rows; i++)
                for (int64_t j = block * 128; j < (block + 1) * 128 && j < p->keys; j++)
                    mask[i][j] = 0;
}

static problem make_problem(uint64_t *seed)
{
    static const uint32_t dims[] = {64, 64, 40, 24, 96, 160};
    static const uint16_t odd_values[] = {0x7fc0, 0x7f80, 0xff80, 0x7f00};
    problem p = {.rows = 20 + kit_below(seed, MOST_ROWS - 19),
                 .keys = 600 + kit_below(seed, MOST_KEYS - 599),
                 .dim = dims[kit_below(seed, 6)],
                 .spread = (float)(1 + kit_below(seed, 12))};
    const int64_t kind = kit_below(seed, 4);
    p.window = kind == 0 || kind == 3 ? 100 + kit_below(seed, p.keys) : -1;
    p.masked = kind != 0;
    p.odd = p.masked && kit_below(seed, 4) != 0;
    for (int64_t i = 0; i < p.rows; i++)
        for (uint32_t d = 0; d < p.dim; d++)
            q[i][d] = heed_bf16_of_f32(unit_normal(seed));
    for (int64_t j = 0; j < p.keys; j++)
        for (uint32_t d = 0; d < p.dim; d++) {
            k[j][d] = heed_bf16_of_f32(unit_normal(seed) * p.spread);
            v[j][d] = heed_bf16_of_f32(unit_normal(seed));
        }
    put_spikes(&p, seed);
    if (p.masked)
        fill_mask(&p, seed);
    for (int n = 0; p.odd && n < 6; n++) {
        const int64_t j = kit_below(seed, p.keys), d = kit_below(seed, p.dim);
        k[j][d] = odd_values[kit_below(seed, 4)];
        v[j][p.dim - 1 - d] = odd_values[kit_below(seed, 3)];
        for (int64_t i = 0; i < p.rows; i++)
            mask[i][j] = 0;
    }
    return p;
}

static void run(heed_context *context, const problem *p)
{
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .features = HEED_HAS_LSE | (p->masked ? HEED_HAS_MASK : 0),
                           UNIT_SHAPE(1, 1, p->dim, p->dim),
                           UNIT_TYPES(HEED_BF16, HEED_BF16, HEED_BF16, HEED_F32)};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = p->rows,
                           .kv_len = p->keys,
                           .q = {q, {0, 0, MOST_DIM, 1}},
                           .k = {k, {0, 0, MOST_DIM, 1}},
                           .v = {v, {0, 0, MOST_DIM, 1}},
                           .out = {out, {0, 0, MOST_DIM, 1}},
                           .lse = {lse, {0, 0, 1, 0}}};
    if (p->window >= 0) {
        desc.features |= HEED_HAS_CAUSAL | HEED_HAS_WINDOW;
        desc.position = HEED_POS_BOTTOM_RIGHT;
        desc.window_left = p->window;
        desc.window_right = -1;
    }
    if (p->masked)
        args.mask = (heed_const_view){mask, {0, 0, MOST_KEYS, 1}};
    CHECK_OK(heed_attention(context, &desc, &args));
}

static int is_visible(const problem *p, int64_t i, int64_t j)
{
    const int64_t position = i + p->keys - p->rows;
    if (p->window >= 0 && (j > position || j < position - p->window))
        return 0;
    return !p->masked || mask[i][j];
}

/*
 * Row i of out and lse against float64.
 *
 * A score is a product of dim terms, of which the unit adds pairs: it is off by (dim / 2 + 4)
 * 2^-24 of the sum of its terms' sizes, and by 2^-22 of itself for its factors and what is
 * subtracted from it. lse is off by the mean of that, and by 2^-18 for exponentials and sums in
 * f32 of some thousand keys. A rounded weight has a relative error e of 5.3e-3 besides
 * (softmax.h): with sum w (v - out) = 0, out is off by at most sum w e |v - out| / (sum w (1 -
 * e)), and by 2^-18 of sum w |v|.
 */
static int row_is_wrong(const problem *p, int64_t i)
{
    static double score[MOST_KEYS], error[MOST_KEYS];
    double most = -(double)INFINITY, sum = 0, of_lse = 0, of_sum = 0, lse_want;
    const double scale = 1 / sqrt(p->dim);
    for (int64_t j = 0; j < p->keys; j++) {
        double terms = 0;
        score[j] = 0;
        for (uint32_t d = 0; is_visible(p, i, j) && d < p->dim; d++) {
            const double term = (double)heed_f32_of_bf16(q[i][d]) * heed_f32_of_bf16(k[j][d]);
            score[j] += term * scale;
            terms += fabs(term) * scale;
        }
        if (is_visible(p, i, j))
            most = score[j] > most ? score[j] : most;
        error[j] = expm1((p->dim / 2 + 4) * 0x1p-24 * terms + 0x1p-22 * fabs(score[j]));
    }
    if (most == -(double)INFINITY)
        return lse[i] != -INFINITY;
    for (int64_t j = 0; j < p->keys; j++) {
        score[j] = is_visible(p, i, j) ? exp(score[j] - most) : 0;
        sum += score[j];
        of_lse += score[j] * error[j];
        error[j] += 5.3e-3;
        of_sum += score[j] * error[j];
    }
    lse_want = most + log(sum);
    if (!(fabs(lse[i] - lse_want) <= -log1p(-of_lse / sum) + 0x1p-18 + 0x1p-23 * fabs(lse_want)))
        return 1;
    for (uint32_t d = 0; d < p->dim; d++) {
        double want = 0, bound = 0, size = 0;
        for (int64_t j = 0; j < p->keys; j++)
            if (score[j] > 0)
                want += score[j] / sum * heed_f32_of_bf16(v[j][d]);
        for (int64_t j = 0; j < p->keys; j++)
            if (score[j] > 0) {
                bound += score[j] * error[j] * fabs(heed_f32_of_bf16(v[j][d]) - want);
                size += score[j] * fabs(heed_f32_of_bf16(v[j][d]));
            }
        bound = bound / (sum - of_sum) + 0x1p-18 * size / sum;
        if (!(fabs(out[i][d] - want) <= bound))
            return 1;
    }
    return 0;
}

/* Checks problem number n. */
static void check_problem(heed_context *context, uint64_t n)
{
    uint64_t seed = n;
    const problem p = make_problem(&seed);
    int wrong = 0;
    run(context, &p);
    for (int64_t i = 0; i < p.rows; i++)
        wrong += row_is_wrong(&p, i);
    CHECK(wrong == 0, "problem %d: %d of %d rows are wrong (%d keys, dim %u, window %d, %s%s)",
          (int)n, wrong, (int)p.rows, (int)p.keys, p.dim, (int)p.window,
          p.masked ? "mask" : "no mask", p.odd ? ", odd values" : "");
}

int main(int argc, char **argv)
{
    const int emulated = argc > 1 && !strcmp(argv[1], "emulated");
    const uint64_t n_problems = emulated ? 12 : 100;
    heed_context *context = which_context(argc, argv, "amx_rising");
    if (!context)
        return 77;
    for (uint64_t n = 0; n < n_problems; n++)
        check_problem(context, n);
    heed_context_release(context);
    return checks_end();
}
