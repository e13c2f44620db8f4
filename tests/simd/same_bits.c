/* AVX2 and AVX-512 give the same bits for f32, out and lse: what allows to switch between them. */
#include <heed/heed.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../draw.h"
#include "../unit/unit.h"

static float *numbers(size_t n, float size)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = kit_next_float(&random_state) * size;
    return x;
}

typedef struct problem {
    const char *name;
    uint64_t features;
    uint32_t q_heads, kv_heads, qk_dim, v_dim;
    int64_t q_len, kv_len, left, right;
} problem;

static const problem problems[] = {
    {"full", 0, 2, 2, 64, 64, 200, 300, 0, 0},
    {"odd dims", 0, 3, 1, 37, 51, 61, 129, 0, 0},
    {"causal", HEED_HAS_CAUSAL, 2, 1, 64, 80, 333, 333, 0, 0},
    {"window", HEED_HAS_WINDOW, 2, 2, 32, 32, 300, 300, 40, 17},
    {"softcap", HEED_HAS_SOFTCAP, 1, 1, 64, 64, 100, 257, 0, 0},
    {"alibi", HEED_HAS_ALIBI | HEED_HAS_CAUSAL, 2, 1, 64, 64, 130, 130, 0, 0},
    {"bias", HEED_HAS_BIAS, 2, 2, 40, 40, 77, 140, 0, 0},
    {"mask", HEED_HAS_MASK, 2, 1, 64, 64, 90, 300, 0, 0},
    {"few rows, whole as in chunks", HEED_HAS_REPRODUCIBLE_CHUNKS, 4, 1, 64, 64, 3, 500, 0, 0},
    {"large dims", 0, 1, 1, 576, 512, 30, 150, 0, 0},
    {"one row", 0, 8, 2, 128, 128, 1, 3000, 0, 0},
    {"few rows", HEED_HAS_CAUSAL, 8, 2, 100, 60, 7, 1500, 0, 0},
    {"one row of many heads", 0, 49, 1, 96, 64, 1, 2500, 0, 0},
    {"few rows of many heads", HEED_HAS_CAUSAL, 96, 2, 40, 40, 5, 1500, 0, 0},
    {"one row of 256 dims", 0, 4, 2, 256, 256, 1, 2000, 0, 0},
    {"long", HEED_HAS_CAUSAL, 2, 1, 32, 32, 60, 9000, 0, 0},
    {"small", 0, 4, 4, 8, 8, 10, 10, 0, 0},
};

static heed_view laid(void *data, int64_t heads, int64_t rows, int64_t dims)
{
    return (heed_view){data, {heads * rows * dims, rows * dims, dims, 1}};
}

/* 0, or the status; the same inputs every time. */
static heed_status run(heed_context *context, const problem *p, float *out, float *lse)
{
    const int64_t pairs = p->q_len * p->kv_len;
    float slope[16], *q, *k, *v, *bias;
    uint8_t *mask = malloc((size_t)(p->q_heads * pairs));
    heed_attn_desc desc = {.struct_size = sizeof desc};
    heed_attn_args args = {.struct_size = sizeof args};
    heed_status status = HEED_ERR_NOMEM;
    random_state = 12345;
    q = numbers((size_t)(p->q_heads * p->q_len * p->qk_dim), 3);
    k = numbers((size_t)(p->kv_heads * p->kv_len * p->qk_dim), 3);
    v = numbers((size_t)(p->kv_heads * p->kv_len * p->v_dim), 1);
    bias = numbers((size_t)(p->q_heads * pairs), 2);
    for (int i = 0; i < 16; i++)
        slope[i] = 0.05f * (float)(i + 1);

    desc.features = p->features | HEED_HAS_LSE;
    desc.q_heads = p->q_heads;
    desc.kv_heads = p->kv_heads;
    desc.qk_dim = p->qk_dim;
    desc.v_dim = p->v_dim;
    desc.q_type = desc.k_type = desc.v_type = desc.out_type = HEED_F32;
    desc.bias_type = p->features & HEED_HAS_BIAS ? HEED_F32 : HEED_DTYPE_NONE;
    if (p->features & (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI))
        desc.position = HEED_POS_BOTTOM_RIGHT;
    desc.softcap = p->features & HEED_HAS_SOFTCAP ? 5.0f : 0;
    desc.window_left = p->left;
    desc.window_right = p->right;
    args.batch = 1;
    args.q_len = p->q_len;
    args.kv_len = p->kv_len;
    if (q && k && v && bias && mask) {
        args.q = heed_as_const(laid(q, p->q_heads, p->q_len, p->qk_dim));
        args.k = heed_as_const(laid(k, p->kv_heads, p->kv_len, p->qk_dim));
        args.v = heed_as_const(laid(v, p->kv_heads, p->kv_len, p->v_dim));
        args.out = laid(out, p->q_heads, p->q_len, p->v_dim);
        args.lse = (heed_view){lse, {p->q_heads * p->q_len, p->q_len, 1, 0}};
        for (int64_t i = 0; i < (int64_t)p->q_heads * pairs; i++)
            mask[i] = kit_next_float(&random_state) > 0.2f;
        if (p->features & HEED_HAS_MASK)
            args.mask = heed_as_const(laid(mask, p->q_heads, p->q_len, p->kv_len));
        if (p->features & HEED_HAS_BIAS)
            args.bias = heed_as_const(laid(bias, p->q_heads, p->q_len, p->kv_len));
        if (p->features & HEED_HAS_ALIBI)
            args.alibi_slope = slope;
        status = heed_attention(context, &desc, &args);
    }
    free(q);
    free(k);
    free(v);
    free(bias);
    free(mask);
    return status;
}

int main(void)
{
    const char *names[2] = {"avx2", "avx512"};
    heed_context *context[2] = {unit_context(0, names[0]), unit_context(0, names[1])};
    const int here = unit_runs_here(context[0]) && unit_runs_here(context[1]);
    int bad = 0, n = here ? (int)(sizeof problems / sizeof problems[0]) : 0;
    if (!here)
        printf("not both run here: %s\n", heed_last_error());
    for (int i = 0; i < n; i++) {
        const problem *p = &problems[i];
        size_t n_out = (size_t)(p->q_heads * p->q_len * p->v_dim),
               n_lse = (size_t)(p->q_heads * p->q_len);
        float *got[2];
        int differ;
        for (int c = 0; c < 2; c++) {
            got[c] = calloc(n_out + n_lse, sizeof(float));
            heed_status status =
                got[c] ? run(context[c], p, got[c], got[c] + n_out) : HEED_ERR_NOMEM;
            if (status != HEED_OK) {
                printf("%s, %s: %s\n", p->name, names[c], heed_last_error());
                return 1;
            }
        }
        differ = memcmp(got[0], got[1], (n_out + n_lse) * sizeof(float)) != 0;
        for (size_t at = 0; at < n_out + n_lse; at++)
            differ |= !isfinite(got[0][at]);
        printf("%s: %s\n", p->name, differ ? "DIFFERENT or not finite" : "same bits");
        bad += differ;
        free(got[0]);
        free(got[1]);
    }
    heed_context_release(context[0]);
    heed_context_release(context[1]);
    return here ? bad != 0 : 77;
}
