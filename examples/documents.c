/* Documents of different lengths are packed in one sequence, where each token sees the tokens of
 * its own document up to itself. One range for each row, made from the lengths of the documents,
 * limits it to its document; causality does the rest.
 *
 * Each document is then run alone, which has to give the same numbers. */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

enum { DOCUMENTS = 5, TOKENS = 300, HEADS = 2, DIM = 32 };

static const int32_t lens[DOCUMENTS] = {70, 3, 120, 41, 66};
static float q[HEADS][TOKENS][DIM], k[HEADS][TOKENS][DIM], v[HEADS][TOKENS][DIM];
static float packed[HEADS][TOKENS][DIM], alone[HEADS][TOKENS][DIM];
static int32_t ranges[TOKENS][2];

static void fill(float *to, size_t n, uint32_t state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
}

/* Runs tokens [first, first + n) alone, or all of them with ranges. */
static heed_status attend(heed_context *context, int64_t first, int64_t n, int with_ranges,
                          float (*out)[TOKENS][DIM])
{
    const int64_t heads = TOKENS * DIM;
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = HEED_HAS_CAUSAL | (with_ranges ? HEED_HAS_RANGES : 0),
                                 .position = HEED_POS_TOP_LEFT,
                                 .n_ranges = with_ranges ? 1 : 0,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .qk_dim = DIM,
                                 .v_dim = DIM,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = n,
                           .kv_len = n,
                           .q = {q[0][first], {0, heads, DIM, 1}},
                           .k = {k[0][first], {0, heads, DIM, 1}},
                           .v = {v[0][first], {0, heads, DIM, 1}},
                           .out = {out[0][first], {0, heads, DIM, 1}}};
    if (with_ranges) /* the same for all heads */
        args.ranges = (heed_const_view){ranges, {0, 0, 1, 1}};
    return heed_attention(context, &desc, &args);
}

int main(void)
{
    const heed_ranges_args made = {.struct_size = sizeof made,
                                   .rows = TOKENS,
                                   .keys = TOKENS,
                                   .n_ranges = 1,
                                   .ranges = ranges[0],
                                   .lens = lens,
                                   .n_lens = DOCUMENTS};
    heed_context *context = NULL;
    double worst = 0;
    fill(q[0][0], sizeof q / 4, 1);
    fill(k[0][0], sizeof k / 4, 2);
    fill(v[0][0], sizeof v / 4, 3);
    heed_status st = heed_context_create(NULL, &context);
    if (st == HEED_OK)
        st = heed_ranges_lens(&made);
    if (st == HEED_OK)
        st = attend(context, 0, TOKENS, 1, packed);
    for (int64_t n = 0, first = 0; n < DOCUMENTS && st == HEED_OK; first += lens[n++])
        st = attend(context, first, lens[n], 0, alone);
    if (st != HEED_OK)
        printf("%s\n", heed_last_error());
    heed_context_release(context);
    for (int i = 0; i < HEADS * TOKENS * DIM; i++) {
        const int h = i / (TOKENS * DIM), t = i / DIM % TOKENS, d = i % DIM;
        worst = fmax(worst, fabs((double)packed[h][t][d] - (double)alone[h][t][d]));
    }
    printf("%d documents in one sequence of %d tokens: off by %.1e from %d separate calls\n",
           DOCUMENTS, TOKENS, worst, DOCUMENTS);
    return st != HEED_OK || !(worst < 1e-5);
}
