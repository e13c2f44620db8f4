/* Small problems through the public calls: AVX2 and AVX-512 give the same bits for every type,
 * whether one part takes all heads at once or parts take them one by one, and whether weights are
 * asked for or not. Results are close to the naive backend's, nothing else is written, and
 * keys beyond a sequence's length change nothing. */
#include <heed/kit.h>

#include "../draw.h"
#include "../unit/unit.h"

#ifndef CASES
#define CASES 3000
#endif

enum { MOST = 40000, PARTS = 3 };

static char q[MOST * 4], k[MOST * 4], v[MOST * 4];
/* One backend's results. */
typedef struct results {
    char out[MOST * 4];
    float lse[MOST], weights[MOST];
} results;

static results naive, once, apart;

/* Rows of `dim` elements and a gap, for each head separately or with all heads side by side. */
static heed_view laid(void *data, int64_t heads, int64_t rows, int64_t dim, int64_t gap,
                      int token_major)
{
    const int64_t row = dim + gap;
    return (heed_view){
        data,
        {heads * rows * row, token_major ? row : rows * row, token_major ? heads * row : row, 1}};
}

static void fill(char *data, uint32_t type, float with)
{
    for (int64_t i = 0; i < MOST; i++)
        heed_store(type, data, i, with == 0 ? unit_number(&random_state) : with);
}

static uint32_t any_type(void)
{
    static const uint32_t types[] = {HEED_F32, HEED_F16, HEED_BF16};
    return types[below(3)];
}

static void run(heed_context *context, heed_attn_desc desc, heed_attn_args args, int parts,
                int weights, results *to)
{
    heed_attn *plan = NULL;
    size_t bytes;
    heed_status st;
    memset(to->out, 0x7f, sizeof to->out);
    memset(to->lse, 0x7f, sizeof to->lse);
    memset(to->weights, 0x7f, sizeof to->weights);
    args.out.data = to->out;
    if (desc.features & HEED_HAS_LSE)
        args.lse.data = to->lse;
    if (weights) {
        desc.features |= HEED_HAS_WEIGHTS;
        args.weights = laid(to->weights, desc.q_heads, args.q_len, args.kv_len, 0, 0);
    }
    st = heed_attn_create(context, &desc, &plan);
    if (st != HEED_OK) {
        CHECK(0, "%s", heed_last_error());
        return;
    }
    void *workspace = unit_workspace(plan, PARTS, &bytes);
    if (parts == 1) {
        st = heed_attn_run(plan, &args, workspace, bytes);
    } else {
        st = heed_attn_begin(plan, &args, PARTS, workspace, bytes);
        for (uint32_t part = 0; part < PARTS && st == HEED_OK; part++)
            st = heed_run_part(workspace, part);
    }
    CHECK_OK(st);
    free(workspace);
    heed_attn_release(plan);
}

/* The largest difference of any element, including those that nobody should write. */
static double farthest(const heed_attn_desc *d, const results *a, const results *b)
{
    double most = 0;
    for (int64_t i = 0; i < MOST; i++) {
        double x = (double)heed_load(d->out_type, a->out, i);
        double y = (double)heed_load(d->out_type, b->out, i);
        double off = x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y);
        if (!(off <= most)) /* a NaN on one side counts as infinitely far */
            most = isnan(off) ? INFINITY : off;
    }
    return most;
}

static heed_attn_desc draw_desc(void)
{
    heed_attn_desc d = {.struct_size = sizeof d, .features = HEED_HAS_LENS};
    d.kv_heads = 1 + below(4);
    d.q_heads = d.kv_heads * (1 + below(3));
    d.qk_dim = 8 * (1 + below(2));
    d.v_dim = 8 * (1 + below(4));
    d.q_type = d.k_type = d.v_type = d.out_type = any_type();
    if (below(3) == 0) {
        d.q_type = any_type();
        d.k_type = any_type();
        d.v_type = any_type();
        d.out_type = any_type();
    }
    d.features |= below(2) ? HEED_HAS_LSE : 0;
    if (below(3) == 0) {
        d.features |= below(2) ? HEED_HAS_CAUSAL : HEED_HAS_WINDOW;
        d.position = HEED_POS_GIVEN;
        d.window_left = d.features & HEED_HAS_WINDOW ? below(12) : 0;
        d.window_right = d.features & HEED_HAS_WINDOW ? below(12) : 0;
    }
    d.max_batch = 4;
    d.max_q_len = 16;
    d.max_kv_len = 40;
    return d;
}

static heed_attn_args draw_args(const heed_attn_desc *d, int32_t lens[4], int32_t offsets[4])
{
    heed_attn_args a = {.struct_size = sizeof a, .batch = 1 + below(3), .kv_lens = lens};
    a.q_len = below(3) ? 1 + below(16) : 1;
    a.kv_len = 1 + below(32);
    for (int b = 0; b < 4; b++) {
        lens[b] = (int32_t)below((uint32_t)a.kv_len + 1);
        offsets[b] = (int32_t)below(40) - 8;
    }
    if (d->position)
        a.q_offsets = offsets;
    const int64_t gap = below(2) ? 0 : below(5);
    const int token_major = below(3) == 0;
    a.q = heed_as_const(laid(q, d->q_heads, a.q_len, d->qk_dim, gap, token_major));
    a.k = heed_as_const(laid(k, d->kv_heads, a.kv_len, d->qk_dim, gap, token_major));
    a.v = heed_as_const(laid(v, d->kv_heads, a.kv_len, d->v_dim, gap, token_major));
    a.out = laid(NULL, d->q_heads, a.q_len, d->v_dim, gap, token_major);
    a.lse = laid(NULL, d->q_heads, a.q_len, 1, 0, 0);
    return a;
}

static int64_t row_at(const heed_const_view *view, int64_t b, int64_t head, int64_t row)
{
    return b * view->stride[0] + head * view->stride[1] + row * view->stride[2];
}

/* Makes all scores of the first sequence -inf, so that its rows are zeros. */
static void hide_first(const heed_attn_desc *d, const heed_attn_args *a)
{
    for (int64_t h = 0; h < d->q_heads; h++) {
        for (int64_t i = 0; i < a->q_len; i++)
            heed_store(d->q_type, q, row_at(&a->q, 0, h, i), 1);
        for (int64_t j = 0; j < a->kv_len; j++)
            heed_store(d->k_type, k, row_at(&a->k, 0, h % d->kv_heads, j), -INFINITY);
    }
}

/* Puts NaN behind the keys of each sequence. */
static void spoil_behind(const heed_attn_desc *d, const heed_attn_args *a)
{
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t g = 0; g < d->kv_heads; g++)
            for (int64_t j = a->kv_lens[b]; j < a->kv_len; j++) {
                for (int64_t i = 0; i < d->qk_dim; i++)
                    heed_store(d->k_type, k, row_at(&a->k, b, g, j) + i, NAN);
                for (int64_t i = 0; i < d->v_dim; i++)
                    heed_store(d->v_type, v, row_at(&a->v, b, g, j) + i, NAN);
            }
}

/* A score is a sum of at most 16 products below 1, times at most 1 / sqrt(8): a weight is off by
 * some 40 roundings of 2^-24, out by twice that, and then each side rounds to its type. */
static const double most_off = 80 * 0x1p-24;

static void check_naive(uint64_t seed, const heed_attn_desc *d)
{
    const double step = d->out_type == HEED_F32 ? 0 : d->out_type == HEED_F16 ? 0x1p-10 : 0x1p-7;
    const double off = farthest(d, &naive, &once);
    CHECK(off <= most_off + step, "seed %llu: %g from naive", (unsigned long long)seed, off);
    for (int i = 0; i < MOST && d->features & HEED_HAS_LSE; i++)
        CHECK(once.lse[i] == naive.lse[i] ||
                  fabs((double)once.lse[i] - (double)naive.lse[i]) <= most_off,
              "seed %llu: lse %g, naive has %g", (unsigned long long)seed, (double)once.lse[i],
              (double)naive.lse[i]);
}

/* The results in `apart` have the bits of those in `once`. */
static void check_bits(uint64_t seed, const char *isa, int parts, int weights)
{
    CHECK(!memcmp(once.out, apart.out, sizeof once.out) &&
              !memcmp(once.lse, apart.lse, sizeof once.lse),
          "seed %llu: %s, %d parts%s, has other bits", (unsigned long long)seed, isa, parts,
          weights ? ", weights" : "");
    for (int i = 0; i < MOST && weights; i++)
        CHECK(apart.weights[i] == naive.weights[i] ||
                  fabs((double)apart.weights[i] - (double)naive.weights[i]) <= most_off,
              "seed %llu: weight %g, naive has %g", (unsigned long long)seed,
              (double)apart.weights[i], (double)naive.weights[i]);
}

/* Checks one case on context[1] (AVX2) and, if isas is 2, on context[2] (AVX-512). */
static void check(uint64_t seed, heed_context *const context[3], int isas)
{
    int32_t lens[4], offsets[4];
    random_state = seed;
    const heed_attn_desc d = draw_desc();
    const heed_attn_args a = draw_args(&d, lens, offsets);
    fill(q, d.q_type, 0);
    fill(k, d.k_type, 0);
    fill(v, d.v_type, 0);
    if (below(8) == 0)
        hide_first(&d, &a);
    spoil_behind(&d, &a);
    run(context[0], d, a, 1, 1, &naive);
    run(context[1], d, a, 1, 0, &once);
    check_naive(seed, &d);
    for (int other = 1; other <= isas; other++)
        for (int parts = 1; parts <= PARTS; parts += 2)
            for (int weights = 0; weights < 2; weights++) {
                run(context[other], d, a, parts, weights, &apart);
                check_bits(seed, other == 1 ? "AVX2" : "AVX-512", parts, weights);
            }
}

int main(int argc, char **argv)
{
    const char *names[] = {"naive", "avx2", "avx512"};
    heed_context *context[3];
    for (int i = 0; i < 3; i++)
        context[i] = unit_context(1, names[i]);
    if (!unit_runs_here(context[1])) {
        printf("%s cannot run here: %s\n", names[1], heed_last_error());
        return 77;
    }
    const int isas = unit_runs_here(context[2]) ? 2 : 1;
    for (uint64_t seed = 1; seed <= CASES; seed++)
        if (argc < 2 || seed == strtoull(argv[1], NULL, 0))
            check(seed, context, isas);
    for (int i = 0; i < 3; i++)
        heed_context_release(context[i]);
    return checks_end();
}
