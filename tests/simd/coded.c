/* Attention over codes: AVX2 and AVX-512 give the same bits. Where the codes carry their scales, or
 * have none, these are the bits of attention over the f32 numbers that the codes stand for,
 * elsewhere those of the same problem with a mask that hides nothing. Both are within a bound of
 * the naive backend. Shapes, types, features, strides and pages are random; the codes and scales of
 * keys that no row sees are NaN or as large as they get.
 *
 * The same with accuracy int8, for rows of q that are multiples of a 127th of the greatest of each
 * 32 numbers: rounding to int8 keeps those exactly, so integer products are as close to naive as
 * f32. Without AVX-512 the test compares AVX2 with itself. Another backend may take its place, such
 * as the model of AVX-VNNI. */
#include <ctype.h>
#include <heed/kit.h>
#include <math.h>

#include "../draw.h"
#include "../unit/unit.h"

#ifndef CASES
#define CASES 200 /* of each accuracy */
#endif

enum { MOST_KEYS = 3000 };

static void *memory(size_t bytes)
{
    void *p = malloc(bytes + 64);
    if (!p)
        exit(99);
    return p;
}

/* K or V of a case: codes with scales, and the same as f32. */
typedef struct tensor {
    uint32_t type;
    int64_t heads, keys, dims; /* keys: rows of all pages, or of the sequence */
    char *data;
    float *scales, *zeros, *plain; /* [head][key][4] */
    heed_quant quant;
    heed_view view, plain_view;
    int lifted;
} tensor;

static int64_t row_at(const tensor *t, int beside, int64_t head, int64_t key)
{
    return (beside ? key * t->heads + head : head * t->keys + key) * t->dims;
}

/* Element strides {0, head, key, 1}, rows of heads side by side or not. */
static heed_view view_of(void *data, const tensor *t, int beside)
{
    return (heed_view){data, {0, row_at(t, beside, 1, 0), row_at(t, beside, 0, 1), 1}};
}

/* Codes of random bits, none of them a NaN, whose blocks have scales of a sensible size. */
static void fill_codes(tensor *t)
{
    const uint32_t type = t->type;
    const int64_t n = t->heads * t->keys * t->dims;
    const size_t bytes = (size_t)heed_offset_bytes(type, n);
    for (size_t i = 0; i < bytes; i++)
        t->data[i] = (char)kit_next(&random_state);
    if (!heed_is_code(type))
        for (int64_t i = 0; i < n; i++)
            heed_store(type, t->data, i, normal());
    for (int64_t i = 0; type == HEED_F8_E4M3 && i < n; i++)
        if ((t->data[i] & 0x7f) == 0x7f)
            t->data[i] = 1;
    for (int64_t i = 0; heed_block_len(type) == 32 && i < n / 32; i++)
        for (int of = 0; of < (type == HEED_Q4_1 || type == HEED_Q5_1 ? 2 : 1); of++)
            heed_store(HEED_F16, t->data + i * heed_block_bytes(type), of, normal() / 50);
}

/* Scales beside the codes, `per` of them for each row. */
static void fill_scales(tensor *t, int per)
{
    for (int64_t i = 0; i < t->heads * t->keys * 4; i++) {
        t->scales[i] = (0.5f + kit_next_float(&random_state)) / 60;
        t->zeros[i] = (float)below(16) - (t->type == HEED_I8 ? 8 : 0);
        if (below(2000) == 0)
            t->scales[i] = below(2) ? 0x1p-80f : 0;
    }
    if (!heed_takes_scale(t->type) || !below(8))
        return;
    t->quant = (heed_quant){.scale = t->scales, .zero = below(2) ? t->zeros : NULL};
    if (t->type == HEED_F8_E4M3)
        t->quant.zero = NULL;
    t->quant.stride[1] = t->keys * 4;
    t->quant.stride[2] = 4;
    t->quant.stride[3] = per > 1;
    t->quant.group = per > 1 ? (uint32_t)(t->dims + 3) / 4 : 0;
    t->lifted = per == 1;
    if (t->lifted && below(2)) { /* those of adjacent keys lie side by side */
        t->quant.stride[1] = t->keys;
        t->quant.stride[2] = 1;
    }
}

/* What element d of a row that begins at `at` stands for. */
static float plain_number(const tensor *t, int64_t at, int64_t head, int64_t key, int64_t d)
{
    const int64_t s = heed_scale_at(&t->quant, 0, head, key, d);
    const int scaled = t->quant.scale != NULL;
    if (!heed_is_code(t->type))
        return heed_load(t->type, t->data, at + d);
    return heed_decode(t->type, t->data + heed_offset_bytes(t->type, at), d,
                       scaled ? t->scales[s] : 1, scaled && t->quant.zero ? t->zeros[s] : 0);
}

static void fill_plain(tensor *t, int beside)
{
    for (int64_t h = 0; h < t->heads; h++)
        for (int64_t j = 0; j < t->keys; j++)
            for (int64_t d = 0; d < t->dims; d++) {
                const int64_t at = row_at(t, beside, h, j);
                t->plain[at + d] = plain_number(t, at, h, j, d);
            }
}

/* Spoils the first `hidden` keys, which no row sees. */
static void spoil(tensor *t, int beside, int64_t hidden)
{
    for (int64_t h = 0; h < t->heads; h++)
        for (int64_t j = 0; j < hidden; j++) {
            const int64_t at = row_at(t, beside, h, j);
            memset(t->data + heed_offset_bytes(t->type, at), 0x7f,
                   (size_t)heed_offset_bytes(t->type, t->dims));
            for (int64_t d = 0; d < t->dims; d++)
                t->plain[at + d] = NAN;
            for (int i = 0; t->quant.scale && i < (t->quant.group ? 4 : 1); i++)
                t->scales[h * t->quant.stride[1] + j * t->quant.stride[2] + i] = NAN;
        }
}

static void make(tensor *t, uint32_t type, int64_t heads, int64_t keys, int64_t dims, int beside,
                 int64_t hidden)
{
    const int64_t rows = heads * keys;
    const int per = below(3) == 0 ? 4 : 1; /* scales of a row */
    *t = (tensor){.type = type, .heads = heads, .keys = keys, .dims = dims};
    t->data = memory((size_t)heed_offset_bytes(type, rows * dims));
    t->plain = memory((size_t)(rows * dims) * sizeof(float));
    t->scales = memory((size_t)rows * 4 * sizeof(float));
    t->zeros = memory((size_t)rows * 4 * sizeof(float));
    fill_codes(t);
    fill_scales(t, per);
    fill_plain(t, beside);
    spoil(t, beside, hidden);
    t->view = view_of(t->data, t, beside);
    t->plain_view = view_of(t->plain, t, beside);
}

static void drop(tensor *t)
{
    free(t->data);
    free(t->plain);
    free(t->scales);
    free(t->zeros);
}

static void page(heed_const_view *view, uint32_t len)
{
    view->stride[0] = view->stride[2] * len;
}

static uint32_t pick_type(void)
{
    return below(4) ? HEED_I8 + below(10) : HEED_F32 + below(3);
}

/* Multiples of a 127th of the greatest of each 32 numbers, which is about `size`. */
static void fill_steps(float *q, int64_t rows, int64_t dims, float size)
{
    for (int64_t i = 0; i < rows * dims; i++) {
        const int64_t d = i % dims, first = d - d % 32;
        const float step = size / (float)(127 + (i / dims + first * 7) % 100);
        q[i] = step * (float)(d == first ? 127 : (int)below(255) - 127);
    }
}

/* What runs: a description and arguments without K, V and results, which differ from run to run. */
typedef struct problem {
    uint64_t seed;
    heed_attn_desc desc;
    heed_attn_args args;
    tensor k, v;
    float *q, q_size;
    int32_t *table;
    uint8_t *mask;
    int64_t keys, hidden; /* rows of all pages or of the sequence; the first that no row sees */
    int beside;           /* rows of heads side by side */
    int lifted;           /* other bits than with f32: scales are applied to sums */
} problem;

static void draw_features(problem *p)
{
    heed_attn_desc *desc = &p->desc;
    if (below(2)) {
        desc->features |= HEED_HAS_CAUSAL;
        desc->position = HEED_POS_BOTTOM_RIGHT;
    }
    if (below(4) == 0) {
        desc->features |= HEED_HAS_WINDOW;
        desc->position = HEED_POS_BOTTOM_RIGHT;
        desc->window_left = below(100);
        desc->window_right = desc->features & HEED_HAS_CAUSAL ? -1 : (int64_t)below(3);
        p->hidden = p->args.kv_len - p->args.q_len - desc->window_left;
    }
    if (below(6) == 0) {
        desc->features |= HEED_HAS_SOFTCAP;
        desc->softcap = 20;
    }
}

/* Returns the length of a page, even if the problem has no pages. */
static uint32_t draw_desc(problem *p, uint32_t accuracy)
{
    static const uint32_t groups[] = {1, 1, 2, 3, 4, 4, 5, 8};
    static const int64_t lens[] = {1, 1, 1, 1, 2, 3, 5, 16, 17, 40};
    heed_attn_desc *desc = &p->desc;
    const uint32_t types[2] = {HEED_I8 + below(10), pick_type()};
    const int turn = (int)below(2);
    p->beside = (int)below(2);
    desc->qk_dim = below(2) ? 128 : 32 * (1 + below(6));
    if (accuracy == HEED_ACCURACY_INT8 && heed_block_len(types[turn]) != 32 && below(4) == 0)
        desc->qk_dim -= 2 * below(16);
    desc->v_dim = below(2) && desc->qk_dim % 32 == 0 ? desc->qk_dim : 32 * (1 + below(6));
    p->args.kv_len = 1 + below(below(2) ? 150 : MOST_KEYS);
    const uint32_t group = groups[below(8)], page_len = below(2) ? 16u : 1 + below(40);
    const int paged = below(3) == 0;
    p->args.q_len = lens[below(10)];
    desc->kv_heads = 1 + below(3);
    desc->q_heads = desc->kv_heads * group;
    desc->q_type = desc->out_type = HEED_F32;
    desc->k_type = types[turn];
    desc->v_type = types[!turn];
    desc->accuracy = accuracy;
    desc->features = HEED_HAS_LSE;
    draw_features(p);
    p->keys = p->args.kv_len;
    if (paged) {
        desc->features |= HEED_HAS_PAGES;
        desc->page_len = page_len;
        p->keys = (p->args.kv_len + page_len - 1) / page_len * page_len;
    }
    return page_len;
}

static int64_t rows_of_q(const problem *p)
{
    return (int64_t)p->desc.q_heads * p->args.q_len;
}

static void draw_q(problem *p)
{
    static const float scales_of_q[] = {1, 1, 1, 0x1p20f};
    const int64_t rows = rows_of_q(p), dims = p->desc.qk_dim;
    p->q_size = scales_of_q[below(4)] * 0.7f;
    for (int64_t i = 0; i < rows * dims; i++)
        p->q[i] = normal() * p->q_size;
    if (p->desc.accuracy == HEED_ACCURACY_INT8)
        fill_steps(p->q, rows, dims, p->q_size * 2);
}

/* Some keys get scales beyond those that are lifted, and q becomes as much smaller: their scores are
 * those of before, and the other keys have scores of almost 0. */
static void draw_large_scales(problem *p)
{
    const float factor = 0x1p72f;
    tensor *k = &p->k;
    if (!k->lifted || below(3))
        return;
    for (int64_t h = 0; h < k->heads; h++)
        for (int64_t j = p->hidden > 0 ? p->hidden : 0; j < k->keys; j++)
            k->scales[h * k->quant.stride[1] + j * k->quant.stride[2]] *= below(4) ? 1 : factor;
    for (int64_t i = 0; i < rows_of_q(p) * p->desc.qk_dim; i++)
        p->q[i] /= factor;
}

static void draw(problem *p, uint64_t seed, uint32_t accuracy)
{
    *p = (problem){.seed = seed,
                   .desc = {.struct_size = sizeof p->desc},
                   .args = {.struct_size = sizeof p->args, .batch = 1}};
    heed_attn_desc *desc = &p->desc;
    heed_attn_args *args = &p->args;
    random_state = seed * UINT64_C(0xd1342543de82ef95) + 1;
    const uint32_t page_len = draw_desc(p, accuracy);
    const int masked = below(5) == 0;
    make(&p->k, desc->k_type, desc->kv_heads, p->keys, desc->qk_dim, p->beside, p->hidden);
    make(&p->v, desc->v_type, desc->kv_heads, p->keys, desc->v_dim, p->beside, p->hidden);
    p->lifted = p->k.lifted || p->v.lifted || accuracy == HEED_ACCURACY_INT8;
    const int64_t n_pages = p->keys / page_len + 1;
    p->q = memory((size_t)(rows_of_q(p) * desc->qk_dim) * sizeof *p->q);
    p->table = memory((size_t)n_pages * sizeof *p->table);
    p->mask = memory((size_t)args->kv_len);
    draw_q(p);
    for (int64_t i = 0; i < n_pages; i++)
        p->table[i] = (int32_t)i;
    for (int64_t j = 0; j < args->kv_len; j++)
        p->mask[j] = below(6) != 0;
    draw_large_scales(p);
    args->q = (heed_const_view){p->q, {0, args->q_len * desc->qk_dim, desc->qk_dim, 1}};
    if (masked) {
        desc->features |= HEED_HAS_MASK;
        args->mask = (heed_const_view){p->mask, {0, 0, 0, 1}};
    }
    if (desc->features & HEED_HAS_PAGES) {
        args->block_table = p->table;
        args->block_table_stride = n_pages;
        args->n_pages = p->keys / page_len;
    }
}

static void drop_problem(problem *p)
{
    free(p->q);
    free(p->table);
    free(p->mask);
    drop(&p->k);
    drop(&p->v);
}

/* Run i of the problem: 0 on naive, 1 on AVX2, 2 on AVX-512, and 3 again on AVX-512 with the f32
 * numbers or, where those give other bits, with codes under a mask of ones, which sends some blocks
 * another way. */
static int run(problem *p, heed_context *const *contexts, int i, float *to)
{
    heed_attn_desc desc = p->desc;
    heed_attn_args args = p->args;
    const int codes = i < 3 || p->lifted;
    const int64_t q_len = args.q_len, v_dim = desc.v_dim;
    args.k = heed_as_const(codes ? p->k.view : p->k.plain_view);
    args.v = heed_as_const(codes ? p->v.view : p->v.plain_view);
    args.k_quant = codes ? p->k.quant : (heed_quant){0};
    args.v_quant = codes ? p->v.quant : (heed_quant){0};
    if (codes && (p->k.quant.scale || p->v.quant.scale))
        desc.features |= HEED_HAS_QUANT;
    if (!codes)
        desc.k_type = desc.v_type = HEED_F32;
    if (i == 3 && p->lifted && !(desc.features & HEED_HAS_MASK)) {
        memset(p->mask, 1, (size_t)args.kv_len);
        desc.features |= HEED_HAS_MASK;
        args.mask = (heed_const_view){p->mask, {0, 0, 0, 1}};
    }
    if (desc.features & HEED_HAS_PAGES) {
        page(&args.k, desc.page_len);
        page(&args.v, desc.page_len);
        args.k_quant.stride[0] = args.k_quant.stride[2] * desc.page_len;
        args.v_quant.stride[0] = args.v_quant.stride[2] * desc.page_len;
    }
    args.out = (heed_view){to, {0, q_len * v_dim, v_dim, 1}};
    args.lse = (heed_view){to + rows_of_q(p) * v_dim, {0, q_len, 1, 0}};
    if (heed_attention(contexts[i < 3 ? i : 2], &desc, &args) == HEED_OK)
        return 0;
    printf("seed %d: %s\n", (int)p->seed, heed_last_error());
    return 1;
}

/* Compares the results of the four runs at one place. */
static int compare(const problem *p, float naive, float a, float b, float last)
{
    /* Naive sums in f64. A score is off by at most 2^-24 (8 + sqrt(dims)) of sum |scale q k|, which
     * is below 0.7 sqrt(2 dims / pi) sqrt(dims) * 3.5 < 400 for codes of up to 255 / 40 in size: by
     * 5e-4. A weight is off by as much of itself, and a value is as large as 6. */
    const float far = 4e-3f;
    if (memcmp(&a, &b, sizeof a) || a != a) {
        printf("seed %d: %a by AVX2, %a by the other\n", (int)p->seed, (double)a, (double)b);
        return 1;
    }
    if (memcmp(&b, &last, sizeof b)) {
        printf("seed %d: %a of codes, %a of %s\n", (int)p->seed, (double)b, (double)last,
               p->lifted ? "codes under a mask of ones" : "f32");
        return 1;
    }
    if (p->q_size < 1 && a != naive && !(fabsf(a - naive) <= far * (1 + fabsf(a)))) {
        printf("seed %d: %a, by naive %a\n", (int)p->seed, (double)a, (double)naive);
        return 1;
    }
    return 0;
}

static void describe(const problem *p)
{
    const heed_attn_desc *desc = &p->desc;
    printf("%sk %s v %s dims %d %d heads %d/%d rows %d keys %d%s%s pages of %d, features %x\n",
           desc->accuracy == HEED_ACCURACY_INT8 ? "int8, " : "", heed_dtype_name(desc->k_type),
           heed_dtype_name(desc->v_type), (int)desc->qk_dim, (int)desc->v_dim, (int)desc->q_heads,
           (int)desc->kv_heads, (int)p->args.q_len, (int)p->args.kv_len,
           p->k.lifted ? " k lifted" : "", p->v.lifted ? " v lifted" : "", (int)desc->page_len,
           (unsigned)desc->features);
}

static int check(heed_context *const *contexts, uint64_t seed, uint32_t accuracy)
{
    problem p;
    float *out[4];
    int bad = 0;
    draw(&p, seed, accuracy);
    const size_t n = (size_t)(rows_of_q(&p) * (p.desc.v_dim + 1)); /* out and lse */
    for (int i = 0; i < 4; i++)
        out[i] = memory(n * sizeof(float));
    for (int i = 0; i < 4 && !bad; i++)
        bad = run(&p, contexts, i, out[i]);
    for (size_t at = 0; at < n && !bad; at++)
        bad = compare(&p, out[0][at], out[1][at], out[2][at], out[3][at]);
    if (bad)
        describe(&p);
    for (int i = 0; i < 4; i++)
        free(out[i]);
    drop_problem(&p);
    return bad;
}

/* Without words all cases: coded [BACKEND in place of avx512] or coded SEED [int8]. */
int main(int argc, char **argv)
{
    const int other = argc > 1 && isalpha((unsigned char)argv[1][0]);
    const char *names[3] = {"naive", "avx2", other ? argv[1] : "avx512"};
    heed_context *contexts[3];
    const int first = other ? CASES : 0; /* another has kernels of its own for int8 alone */
    int bad = 0, cases = first;
    for (int c = 0; c < 3; c++) {
        contexts[c] = unit_context(1, names[c]);
        if (unit_runs_here(contexts[c]))
            continue;
        printf("%s cannot run here: %s\n", names[c], heed_last_error());
        if (c < 2 || other)
            return 77;
        heed_context_release(contexts[2]); /* AVX2 a second time instead */
        contexts[2] = unit_context(1, names[1]);
    }
    if (argc > 1 && !other)
        return check(contexts, (uint64_t)atoi(argv[1]),
                     argc > 2 ? HEED_ACCURACY_INT8 : HEED_ACCURACY_EXACT);
    for (; cases < CASES && bad < 5; cases++)
        bad += check(contexts, (uint64_t)cases, HEED_ACCURACY_EXACT);
    for (; cases < 2 * CASES && bad < 5; cases++)
        bad += check(contexts, (uint64_t)cases, HEED_ACCURACY_INT8);
    printf("%d cases, %d wrong\n", cases - first, bad);
    for (int c = 0; c < 3; c++)
        heed_context_release(contexts[c]);
    return bad != 0;
}
