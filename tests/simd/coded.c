/* Attention over codes: AVX2 and AVX-512 give the same bits; where the codes carry their scales, or have
 * none, these are the bits of attention over the f32 numbers that the codes stand for, and elsewhere those
 * of the same problem with a mask that hides nothing; both are within a bound of the naive backend. Random shapes, types, features, strides and pages; the codes and
 * scales of keys that no row sees are NaN or as large as they get. And all of it with accuracy int8, of rows
 * of q that are multiples of a 127th of the greatest of 32: what rounds to int8 then is q itself, and integer
 * products are as near to naive as those of f32. */
#include <heed/heed.h>
#include <heed/kit.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kit/random.h"

#ifndef CASES
#define CASES 200 /* of each accuracy */
#endif

enum { MOST_KEYS = 3000 };

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(kit_next(&random_state) % n);
}

static float normal(void)
{
    return (float)kit_normal(kit_next(&random_state));
}

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

static void make(tensor *t, uint32_t type, int64_t heads, int64_t keys, int64_t dims, int beside,
                 int64_t hidden_from, int64_t hidden_to)
{
    const int64_t rows = heads * keys;
    const size_t bytes = (size_t)heed_offset_bytes(type, rows * dims);
    const int per = below(3) == 0 ? 4 : 1; /* scales of a row */
    *t = (tensor){type, heads, keys, dims, memory(bytes), NULL, NULL, NULL, {0}, {0}, {0}, 0};
    t->plain = memory((size_t)(rows * dims) * sizeof(float));
    t->scales = memory((size_t)rows * 4 * sizeof(float));
    t->zeros = memory((size_t)rows * 4 * sizeof(float));
    for (size_t i = 0; i < bytes; i++)
        t->data[i] = (char)kit_next(&random_state);
    if (!heed_is_code(type))
        for (int64_t i = 0; i < rows * dims; i++)
            heed_store(type, t->data, i, normal());
    for (int64_t i = 0; type == HEED_F8_E4M3 && i < rows * dims; i++)
        if ((t->data[i] & 0x7f) == 0x7f)
            t->data[i] = 1;
    for (int64_t i = 0; heed_block_len(type) == 32 && i < rows * dims / 32; i++)
        for (int n = 0; n < (type == HEED_Q4_1 || type == HEED_Q5_1 ? 2 : 1); n++)
            heed_store(HEED_F16, t->data + i * heed_block_bytes(type), n, normal() / 50);
    for (int64_t i = 0; i < rows * 4; i++) {
        t->scales[i] = (0.5f + kit_next_float(&random_state)) / 60;
        t->zeros[i] = (float)below(16) - (type == HEED_I8 ? 8 : 0);
        if (below(2000) == 0)
            t->scales[i] = below(2) ? 0x1p-80f : 0;
    }
    if (heed_takes_scale(type) && below(8)) {
        t->quant = (heed_quant){.scale = t->scales, .zero = below(2) ? t->zeros : NULL};
        if (type == HEED_F8_E4M3)
            t->quant.zero = NULL;
        t->quant.stride[1] = keys * 4;
        t->quant.stride[2] = 4;
        t->quant.stride[3] = per > 1;
        t->quant.group = per > 1 ? (uint32_t)(dims + 3) / 4 : 0;
        t->lifted = per == 1;
        if (t->lifted && below(2)) /* of adjacent keys side by side */
            t->quant.stride[1] = keys, t->quant.stride[2] = 1;
    }
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = 0; j < keys; j++)
            for (int64_t d = 0; d < dims; d++) {
                const int64_t at = row_at(t, beside, h, j),
                              s = heed_scale_at(&t->quant, 0, h, j, d);
                const int scaled = t->quant.scale != NULL;
                t->plain[at + d] = heed_is_code(type)
                                       ? heed_decode(type, t->data + heed_offset_bytes(type, at), d,
                                                     scaled ? t->scales[s] : 1,
                                                     scaled && t->quant.zero ? t->zeros[s] : 0)
                                       : heed_load(type, t->data, at + d);
            }
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = hidden_from; j < hidden_to; j++) {
            const int64_t at = row_at(t, beside, h, j);
            memset(t->data + heed_offset_bytes(type, at), 0x7f,
                   (size_t)heed_offset_bytes(type, dims));
            for (int64_t d = 0; d < dims; d++)
                t->plain[at + d] = NAN;
            for (int i = 0; t->quant.scale && i < (t->quant.group ? 4 : 1); i++)
                t->scales[h * t->quant.stride[1] + j * t->quant.stride[2] + i] = NAN;
        }
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

/* Multiples of a 127th of the greatest of each 32, which are as large as `size` says. */
static void fill_steps(float *q, int64_t rows, int64_t dims, float size)
{
    for (int64_t i = 0; i < rows * dims; i++) {
        const int64_t d = i % dims, first = d - d % 32;
        const float step = size / (float)(127 + (i / dims + first * 7) % 100);
        q[i] = step * (float)(d == first ? 127 : (int)below(255) - 127);
    }
}

static int check(heed_context *const *contexts, uint64_t seed, uint32_t accuracy)
{
    const int int8 = accuracy == HEED_ACCURACY_INT8;
    static const uint32_t groups[] = {1, 1, 2, 3, 4, 4, 5, 8};
    static const int64_t lens[] = {1, 1, 1, 1, 2, 3, 5, 16, 17, 40};
    static const float scales_of_q[] = {1, 1, 1, 0x1p20f};
    random_state = seed * UINT64_C(0xd1342543de82ef95) + 1;
    heed_attn_desc desc = {.struct_size = sizeof desc};
    heed_attn_args args = {.struct_size = sizeof args};
    const uint32_t types[2] = {HEED_I8 + below(10), pick_type()};
    const int turn = (int)below(2), beside = (int)below(2);
    int64_t qk_dim = below(2) ? 128 : 32 * (1 + below(6));
    if (int8 && heed_block_len(types[turn]) != 32 && below(4) == 0)
        qk_dim -= 2 * below(16);
    const int64_t v_dim = below(2) && qk_dim % 32 == 0 ? qk_dim : 32 * (1 + below(6));
    const int64_t kv_len = 1 + below(below(2) ? 150 : MOST_KEYS);
    const uint32_t group = groups[below(8)], page_len = below(2) ? 16u : 1 + below(40);
    const int paged = below(3) == 0;
    int64_t q_len = lens[below(10)], hidden = 0, keys = kv_len;
    desc.kv_heads = 1 + below(3);
    desc.q_heads = desc.kv_heads * group;
    desc.qk_dim = (uint32_t)qk_dim;
    desc.v_dim = (uint32_t)v_dim;
    desc.q_type = desc.out_type = HEED_F32;
    desc.k_type = types[turn];
    desc.v_type = types[!turn];
    desc.accuracy = accuracy;
    desc.features = HEED_HAS_LSE;
    if (below(2)) {
        desc.features |= HEED_HAS_CAUSAL;
        desc.position = HEED_POS_BOTTOM_RIGHT;
    }
    if (below(4) == 0) {
        desc.features |= HEED_HAS_WINDOW;
        desc.position = HEED_POS_BOTTOM_RIGHT;
        desc.window_left = below(100);
        desc.window_right = desc.features & HEED_HAS_CAUSAL ? -1 : (int64_t)below(3);
        hidden = kv_len - q_len - desc.window_left;
    }
    if (below(6) == 0) {
        desc.features |= HEED_HAS_SOFTCAP;
        desc.softcap = 20;
    }
    if (paged) {
        desc.features |= HEED_HAS_PAGES;
        desc.page_len = page_len;
        keys = (kv_len + page_len - 1) / page_len * page_len;
    }
    const int masked = below(5) == 0;
    tensor k, v;
    make(&k, desc.k_type, desc.kv_heads, keys, qk_dim, beside, 0, hidden > 0 ? hidden : 0);
    make(&v, desc.v_type, desc.kv_heads, keys, v_dim, beside, 0, hidden > 0 ? hidden : 0);
    const int64_t q_rows = (int64_t)desc.q_heads * q_len, n_pages = keys / page_len + 1;
    const size_t n_out = (size_t)(q_rows * v_dim), n = n_out + (size_t)q_rows;
    float *q = memory((size_t)(q_rows * qk_dim) * sizeof *q);
    int32_t *table = memory((size_t)n_pages * sizeof *table);
    uint8_t *mask = memory((size_t)kv_len);
    const float q_size = scales_of_q[below(4)] * 0.7f;
    for (int64_t i = 0; i < q_rows * qk_dim; i++)
        q[i] = normal() * q_size;
    if (int8)
        fill_steps(q, q_rows, qk_dim, q_size * 2);
    for (int64_t i = 0; i < n_pages; i++)
        table[i] = (int32_t)i;
    for (int64_t j = 0; j < kv_len; j++)
        mask[j] = below(6) != 0;
    args.batch = 1;
    args.q_len = q_len;
    args.kv_len = kv_len;
    args.q = (heed_const_view){q, {0, q_len * qk_dim, qk_dim, 1}};
    if (masked) {
        desc.features |= HEED_HAS_MASK;
        args.mask = (heed_const_view){mask, {0, 0, 0, 1}};
    }
    if (paged) {
        args.block_table = table;
        args.block_table_stride = n_pages;
        args.n_pages = keys / page_len;
    }
    float *out[4];
    for (int i = 0; i < 4; i++)
        out[i] = memory(n * sizeof(float));
    const int lifted = k.lifted || v.lifted || int8;
    int bad = 0;
    for (int i = 0; i < 4 && !bad;
         i++) { /* naive, AVX2, AVX-512; the last of f32 or a mask of ones */
        float *to = out[i];
        heed_attn_desc of = desc;
        args.k = heed_as_const(i < 3 || lifted ? k.view : k.plain_view);
        args.v = heed_as_const(i < 3 || lifted ? v.view : v.plain_view);
        args.k_quant = i < 3 || lifted ? k.quant : (heed_quant){0};
        args.v_quant = i < 3 || lifted ? v.quant : (heed_quant){0};
        if ((i < 3 || lifted) && (k.quant.scale || v.quant.scale))
            of.features |= HEED_HAS_QUANT;
        if (i == 3 && !lifted)
            of.k_type = of.v_type = HEED_F32;
        if (i == 3 && lifted && !masked) { /* of which some blocks go another way */
            memset(mask, 1, (size_t)kv_len);
            of.features |= HEED_HAS_MASK;
            args.mask = (heed_const_view){mask, {0, 0, 0, 1}};
        }
        if (paged) {
            page(&args.k, page_len);
            page(&args.v, page_len);
            args.k_quant.stride[0] = args.k_quant.stride[2] * page_len;
            args.v_quant.stride[0] = args.v_quant.stride[2] * page_len;
        }
        args.out = (heed_view){to, {0, q_len * v_dim, v_dim, 1}};
        args.lse = (heed_view){to + n_out, {0, q_len, 1, 0}};
        if (heed_attention(contexts[i < 3 ? i : 2], &of, &args) != HEED_OK) {
            printf("seed %d: %s\n", (int)seed, heed_last_error());
            bad = 1;
        }
    }
    /* Naive's sums are of f64. A score is off by at most 2^-24 (8 + sqrt(dims)) of sum |scale q k|, which is
     * below 0.7 sqrt(2 dims / pi) sqrt(dims) * 3.5 < 400 for codes of up to 255 / 40 in size: by 5e-4; a
     * weight by as much of itself, and a value is as large as 6. */
    const float far = 4e-3f;
    for (size_t at = 0; at < n && !bad; at++) {
        const float a = out[1][at], b = out[2][at];
        if (memcmp(&a, &b, sizeof a) || a != a) {
            printf("seed %d: %a by AVX2, %a by AVX-512\n", (int)seed, (double)a, (double)b);
            bad = 1;
        } else if (memcmp(&b, &out[3][at], sizeof b)) {
            printf("seed %d: %a of codes, %a of %s\n", (int)seed, (double)b, (double)out[3][at],
                   lifted ? "codes under a mask of ones" : "f32");
            bad = 1;
        } else if (q_size < 1 && a != out[0][at] &&
                   !(fabsf(a - out[0][at]) <= far * (1 + fabsf(a)))) {
            printf("seed %d: %a, by naive %a\n", (int)seed, (double)a, (double)out[0][at]);
            bad = 1;
        }
    }
    if (bad)
        printf("%sk %s v %s dims %d %d heads %d/%d rows %d keys %d%s%s pages of %d, features %x\n",
               int8 ? "int8, " : "", heed_dtype_name(desc.k_type), heed_dtype_name(desc.v_type),
               (int)qk_dim, (int)v_dim, (int)desc.q_heads, (int)desc.kv_heads, (int)q_len,
               (int)kv_len, k.lifted ? " k lifted" : "", v.lifted ? " v lifted" : "",
               (int)desc.page_len, (unsigned)desc.features);
    for (int i = 0; i < 4; i++)
        free(out[i]);
    free(q);
    free(table);
    free(mask);
    drop(&k);
    drop(&v);
    return bad;
}

int main(int argc, char **argv)
{
    const char *names[3] = {"naive", "avx2", "avx512"};
    heed_context *contexts[3];
    int bad = 0, cases = 0;
    for (int c = 0; c < 3; c++) {
        heed_context_options options = {.struct_size = sizeof options, .backends = names[c]};
        if (heed_context_create(&options, &contexts[c]) != HEED_OK) {
            printf("%s cannot run here: %s\n", names[c], heed_last_error());
            return 77;
        }
    }
    if (argc > 1)
        return check(contexts, (uint64_t)atoi(argv[1]),
                     argc > 2 ? HEED_ACCURACY_INT8 : HEED_ACCURACY_EXACT);
    for (; cases < CASES && bad < 5; cases++)
        bad += check(contexts, (uint64_t)cases, HEED_ACCURACY_EXACT);
    for (; cases < 2 * CASES && bad < 5; cases++)
        bad += check(contexts, (uint64_t)cases, HEED_ACCURACY_INT8);
    printf("%d cases, %d wrong\n", cases, bad);
    for (int c = 0; c < 3; c++)
        heed_context_release(contexts[c]);
    return bad != 0;
}
