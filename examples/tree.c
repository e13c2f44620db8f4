/* Verifies a tree of drafted tokens over a paged cache in one call: every draft sees the whole
 * context and the drafts from the root to itself. This is expressed once with ranges, made from the
 * parents, and once with a small mask of the drafts alone, which begins where the context ends.
 * Both have to give the results of each path alone. */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

enum { CONTEXT = 200, DRAFTS = 12, KEYS = CONTEXT + DRAFTS, PAGE = 16 };
enum { PAGES = (KEYS + PAGE - 1) / PAGE, HEADS = 4, KV_HEADS = 2, DIM = 16, RANGES = 8 };

static const int32_t parents[DRAFTS] = {-1, 0, 0, 1, 1, 2, 3, 3, 5, 6, 6, 8};
static float q[HEADS][DRAFTS][DIM], k[PAGES][KV_HEADS][PAGE][DIM], v[PAGES][KV_HEADS][PAGE][DIM];
static float by_ranges[HEADS][DRAFTS][DIM], by_mask[HEADS][DRAFTS][DIM];
static int32_t pages[PAGES], ranges[DRAFTS][RANGES][2];
static uint8_t mask[DRAFTS][DRAFTS];

static void fill(float *to, size_t n, uint32_t state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
}

static heed_status attend(heed_context *context, int with_mask, float (*out)[DRAFTS][DIM])
{
    static const int32_t from = CONTEXT;
    const int64_t page = KV_HEADS * PAGE * DIM;
    const heed_attn_desc desc = {
        .struct_size = sizeof desc,
        .features =
            HEED_HAS_PAGES | (with_mask ? HEED_HAS_MASK | HEED_HAS_MASK_FROM : HEED_HAS_RANGES),
        .n_ranges = with_mask ? 0 : RANGES,
        .page_len = PAGE,
        .q_heads = HEADS,
        .kv_heads = KV_HEADS,
        .qk_dim = DIM,
        .v_dim = DIM,
        .q_type = HEED_F32,
        .k_type = HEED_F32,
        .v_type = HEED_F32,
        .out_type = HEED_F32};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = DRAFTS,
                           .kv_len = KEYS,
                           .q = {q, {0, DRAFTS * DIM, DIM, 1}},
                           .k = {k, {page, PAGE * DIM, DIM, 1}},
                           .v = {v, {page, PAGE * DIM, DIM, 1}},
                           .out = {out, {0, DRAFTS * DIM, DIM, 1}},
                           .block_table = pages,
                           .block_table_stride = PAGES,
                           .n_pages = PAGES};
    if (with_mask) {
        args.mask = (heed_const_view){mask, {0, 0, DRAFTS, 1}};
        args.mask_from = &from;
    } else {
        args.ranges = (heed_const_view){ranges, {0, 0, RANGES, 1}};
    }
    return heed_attention(context, &desc, &args);
}

/* The output of draft i on its own path, in plain loops. */
static double expected(int h, int i, int d)
{
    double sum = 0, out = 0;
    for (int j = 0; j < KEYS; j++) {
        int node = i;
        while (j >= CONTEXT && node > j - CONTEXT)
            node = parents[node];
        if (j >= CONTEXT && node != j - CONTEXT)
            continue;
        const int g = h / (HEADS / KV_HEADS), page = pages[j / PAGE];
        double s = 0;
        for (int e = 0; e < DIM; e++)
            s += (double)q[h][i][e] * (double)k[page][g][j % PAGE][e];
        sum += exp(s / sqrt(DIM));
        out += exp(s / sqrt(DIM)) * (double)v[page][g][j % PAGE][d];
    }
    return out / sum;
}

int main(void)
{
    const heed_ranges_args made = {.struct_size = sizeof made,
                                   .rows = DRAFTS,
                                   .keys = KEYS,
                                   .offset = CONTEXT,
                                   .n_ranges = RANGES,
                                   .ranges = ranges[0][0],
                                   .parents = parents};
    heed_context *context = NULL;
    double worst = 0;
    for (int n = 0; n < PAGES; n++)
        pages[n] = n * 5 % PAGES; /* in any order */
    for (int i = 0; i < DRAFTS; i++)
        for (int j = i; j >= 0; j = parents[j])
            mask[i][j] = 1;
    fill(q[0][0], sizeof q / 4, 1);
    fill(k[0][0][0], sizeof k / 4, 2);
    fill(v[0][0][0], sizeof v / 4, 3);
    heed_status st = heed_context_create(NULL, &context);
    if (st == HEED_OK)
        st = heed_ranges_tree(&made);
    if (st == HEED_OK)
        st = attend(context, 0, by_ranges);
    if (st == HEED_OK)
        st = attend(context, 1, by_mask);
    if (st != HEED_OK)
        printf("%s\n", heed_last_error());
    heed_context_release(context);
    for (int i = 0; i < HEADS * DRAFTS * DIM; i++) {
        const int h = i / (DRAFTS * DIM), t = i / DIM % DRAFTS, d = i % DIM;
        const double want = expected(h, t, d);
        worst = fmax(worst, fabs((double)by_ranges[h][t][d] - want));
        worst = fmax(worst, fabs((double)by_mask[h][t][d] - want));
    }
    printf("a tree of %d drafts over %d cached keys: off by %.1e from each path by itself\n",
           DRAFTS, CONTEXT, worst);
    return st != HEED_OK || !(worst < 1e-5);
}
