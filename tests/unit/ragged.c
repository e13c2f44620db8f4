/* Packed rows and pages name memory, they do not change a problem: a ragged batch gives for each of
 * its sequences what the sequence gives alone and contiguous, bit for bit with
 * HEED_HAS_REPRODUCIBLE_CHUNKS. Also what begin refuses: starts and page numbers out of range, and
 * nothing is written then. */
#include <math.h>

#include "unit.h"

enum { BATCH = 4, Q_HEADS = 4, KV_HEADS = 2, DIM = 5, PAGE = 7, MAX_Q = 20, MAX_KV = 60 };
enum { PAGES_EACH = (MAX_KV + PAGE - 1) / PAGE, N_PAGES = BATCH * PAGES_EACH };
enum { Q_ROWS = BATCH * MAX_Q, KV_ROWS = BATCH * MAX_KV };

static float alone_q[BATCH][Q_HEADS][MAX_Q][DIM], alone_out[BATCH][Q_HEADS][MAX_Q][DIM];
static float alone_k[BATCH][KV_HEADS][MAX_KV][DIM], alone_v[BATCH][KV_HEADS][MAX_KV][DIM];
static float packed_q[Q_ROWS][Q_HEADS][DIM], packed_out[Q_ROWS][Q_HEADS][DIM];
static float packed_k[KV_ROWS][KV_HEADS][DIM], packed_v[KV_ROWS][KV_HEADS][DIM];
static float page_k[N_PAGES][KV_HEADS][PAGE][DIM], page_v[N_PAGES][PAGE][KV_HEADS][DIM];
static float alone_lse[BATCH][Q_HEADS][MAX_Q], packed_lse[Q_ROWS][Q_HEADS];
static int32_t q_lens[BATCH], kv_lens[BATCH], q_starts[BATCH], kv_starts[BATCH];
static int32_t table[BATCH][PAGES_EACH + 2];

static void fill(float *x, size_t n, uint64_t *r)
{
    for (size_t i = 0; i < n; i++)
        x[i] = unit_number(r);
}

/* Lengths, starts with gaps between them, and page numbers in no order; then the same rows of every
 * sequence in all three forms. What no sequence owns holds NaN. */
static void make(uint64_t seed)
{
    uint64_t r = seed;
    int32_t q_at = 0, kv_at = 0, order[N_PAGES];
    memset(packed_q, 0xff, sizeof packed_q);
    memset(packed_k, 0xff, sizeof packed_k);
    memset(packed_v, 0xff, sizeof packed_v);
    memset(page_k, 0xff, sizeof page_k);
    memset(page_v, 0xff, sizeof page_v);
    fill(&alone_q[0][0][0][0], sizeof alone_q / 4, &r);
    fill(&alone_k[0][0][0][0], sizeof alone_k / 4, &r);
    fill(&alone_v[0][0][0][0], sizeof alone_v / 4, &r);
    for (int i = 0; i < N_PAGES; i++) {
        int other = (int)unit_below(&r, i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (int b = 0; b < BATCH; b++) {
        q_lens[b] = (int32_t)unit_below(&r, b % 2 ? MAX_Q - 2 : 3);
        kv_lens[b] = (int32_t)unit_below(&r, MAX_KV - 2);
        q_starts[b] = q_at += (int32_t)unit_below(&r, 3);
        kv_starts[b] = kv_at += (int32_t)unit_below(&r, 3);
        q_at += q_lens[b], kv_at += kv_lens[b];
        for (int p = 0; p < PAGES_EACH + 2; p++)
            table[b][p] = p * PAGE < kv_lens[b] ? order[b * PAGES_EACH + p] : -12345;
        for (int i = 0; i < q_lens[b]; i++)
            for (int h = 0; h < Q_HEADS; h++)
                memcpy(packed_q[q_starts[b] + i][h], alone_q[b][h][i], sizeof alone_q[0][0][0]);
        for (int j = 0; j < kv_lens[b]; j++)
            for (int h = 0; h < KV_HEADS; h++) {
                int page = table[b][j / PAGE];
                memcpy(packed_k[kv_starts[b] + j][h], alone_k[b][h][j], sizeof alone_k[0][0][0]);
                memcpy(packed_v[kv_starts[b] + j][h], alone_v[b][h][j], sizeof alone_k[0][0][0]);
                memcpy(page_k[page][h][j % PAGE], alone_k[b][h][j], sizeof alone_k[0][0][0]);
                memcpy(page_v[page][j % PAGE][h], alone_v[b][h][j], sizeof alone_k[0][0][0]);
            }
    }
}

static heed_attn_desc desc_of(uint64_t more)
{
    return (heed_attn_desc){.struct_size = sizeof(heed_attn_desc),
                            .features = HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_LSE |
                                        HEED_HAS_LENS | HEED_HAS_CAUSAL | HEED_HAS_WINDOW | more,
                            .q_heads = Q_HEADS,
                            .kv_heads = KV_HEADS,
                            .qk_dim = DIM,
                            .v_dim = DIM,
                            .q_type = HEED_F32,
                            .k_type = HEED_F32,
                            .v_type = HEED_F32,
                            .out_type = HEED_F32,
                            .position = HEED_POS_BOTTOM_RIGHT,
                            .window_left = 30,
                            .window_right = -1,
                            .max_batch = BATCH,
                            .max_q_len = MAX_Q,
                            .max_kv_len = MAX_KV,
                            .page_len = more & HEED_HAS_PAGES ? PAGE : 0,
                            .max_rows = more & HEED_HAS_PACKED ? Q_ROWS : 0};
}

static heed_attn_args ragged_args(int paged)
{
    heed_attn_args a = {.struct_size = sizeof a,
                        .batch = BATCH,
                        .q_len = MAX_Q,
                        .kv_len = MAX_KV,
                        .q = {packed_q, {0, DIM, Q_HEADS * DIM, 1}},
                        .k = {packed_k, {0, DIM, KV_HEADS * DIM, 1}},
                        .v = {packed_v, {0, DIM, KV_HEADS * DIM, 1}},
                        .out = {packed_out, {0, DIM, Q_HEADS * DIM, 1}},
                        .lse = {packed_lse, {0, 1, Q_HEADS, 0}},
                        .q_lens = q_lens,
                        .kv_lens = kv_lens,
                        .q_starts = q_starts,
                        .kv_starts = kv_starts};
    if (paged) {
        a.kv_starts = NULL;
        a.k = (heed_const_view){page_k, {KV_HEADS * PAGE * DIM, PAGE * DIM, DIM, 1}};
        a.v = (heed_const_view){page_v, {KV_HEADS * PAGE * DIM, DIM, KV_HEADS * DIM, 1}};
        a.block_table = table[0];
        a.block_table_stride = PAGES_EACH + 2;
        a.n_pages = N_PAGES;
    }
    return a;
}

static void run_alone(heed_context *context)
{
    heed_attn_desc desc = desc_of(0);
    for (int b = 0; b < BATCH; b++) {
        heed_attn_args a = {.struct_size = sizeof a,
                            .batch = 1,
                            .q_len = MAX_Q,
                            .kv_len = MAX_KV,
                            .q = {alone_q[b], {0, MAX_Q * DIM, DIM, 1}},
                            .k = {alone_k[b], {0, MAX_KV * DIM, DIM, 1}},
                            .v = {alone_v[b], {0, MAX_KV * DIM, DIM, 1}},
                            .out = {alone_out[b], {0, MAX_Q * DIM, DIM, 1}},
                            .lse = {alone_lse[b], {0, MAX_Q, 1, 0}},
                            .q_lens = &q_lens[b],
                            .kv_lens = &kv_lens[b]};
        CHECK(heed_attention(context, &desc, &a) == HEED_OK, "%s", heed_last_error());
    }
}

static void check_ragged(heed_context *context, int paged, uint64_t seed)
{
    heed_attn_desc desc = desc_of(HEED_HAS_PACKED | (paged ? HEED_HAS_PAGES : 0));
    heed_attn_args a = ragged_args(paged);
    int wrong = 0, written = 0, rows = 0;
    memset(packed_out, 0xff, sizeof packed_out);
    CHECK(heed_attention(context, &desc, &a) == HEED_OK, "%s", heed_last_error());
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < q_lens[b]; i++, rows++)
            for (int h = 0; h < Q_HEADS; h++)
                wrong += memcmp(packed_out[q_starts[b] + i][h], alone_out[b][h][i],
                                sizeof alone_out[0][0][0]) != 0 ||
                         memcmp(&packed_lse[q_starts[b] + i][h], &alone_lse[b][h][i], 4) != 0;
    for (int i = 0; i < Q_ROWS; i++)
        written += !isnan(packed_out[i][0][0]);
    CHECK(wrong == 0, "seed %llu, paged %d: %d rows differ", (unsigned long long)seed, paged,
          wrong);
    CHECK(written == rows, "seed %llu, paged %d: %d rows written, %d owned",
          (unsigned long long)seed, paged, written, rows);
}

static void check_refusals(heed_context *context)
{
    static const char *const word[] = {"q_starts[2]",     "q_starts[1]",     "kv_starts[3]",
                                       "block_table[1][", "block_table[1][", "block_table_stride",
                                       "kv_starts",       "desc.max_rows"};
    make(5);
    kv_lens[1] = PAGE + 1, q_lens[1] = 1;
    for (int n = 0; n < 8; n++) {
        heed_attn_desc desc = desc_of(HEED_HAS_PACKED | (n > 2 ? HEED_HAS_PAGES : 0));
        heed_attn_args a = ragged_args(n > 2);
        int32_t starts[BATCH], kv[BATCH], good = table[1][0];
        memcpy(starts, q_starts, sizeof starts);
        memcpy(kv, kv_starts, sizeof kv);
        a.q_starts = starts;
        if (n <= 2)
            a.kv_starts = kv;
        if (n == 0)
            starts[2] = -1;
        if (n == 1)
            starts[1] = Q_ROWS;
        if (n == 2)
            kv[3] = -7;
        if (n == 3)
            table[1][0] = N_PAGES;
        if (n == 4)
            table[1][0] = -1;
        if (n == 5)
            a.block_table_stride = PAGES_EACH - 1;
        if (n == 6)
            a.kv_starts = kv;
        if (n == 7)
            desc.max_rows = 0;
        memset(packed_out, 0xff, sizeof packed_out);
        CHECK(heed_attention(context, &desc, &a) == HEED_ERR_INVALID &&
                  strstr(heed_last_error(), word[n]),
              "case %d: %s", n, heed_last_error());
        for (int i = 0; i < Q_ROWS; i++)
            CHECK(isnan(packed_out[i][0][0]), "case %d: row %d was written", n, i);
        table[1][0] = good;
    }
}

/* Each row of a causal call alone, which ends where the row does: what of the call's keys follow the
 * row's last one changes no bit. Of so many rows some have sums whose rounding another block would undo. */
static void rows_alone(const char *backend)
{
    enum { SEEDS = 60, HEADS_ALONE = 8, ROWS_ALONE = 96, KEYS_ALONE = 300, DIM_ALONE = 64 };
    heed_context *context = unit_context(1, backend);
    int wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        unit_problem p = unit_make(1, HEADS_ALONE, ROWS_ALONE, KEYS_ALONE, DIM_ALONE, seed * 1000);
        p.desc.features = HEED_HAS_CAUSAL | HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_SCALE;
        p.desc.scale = (float)(1 + seed % 6) / 4; /* from even weights to almost one-hot */
        p.desc.position = HEED_POS_BOTTOM_RIGHT;
        float *whole = malloc(p.out_bytes);
        heed_attn_args args = p.args;
        args.out.data = whole;
        heed_status st = heed_attention(context, &p.desc, &args);
        for (int64_t i = 0; i < ROWS_ALONE && st == HEED_OK; i++) {
            args = p.args;
            args.q_len = 1;
            args.kv_len = KEYS_ALONE - ROWS_ALONE + i + 1;
            args.q.data = p.q + i * DIM_ALONE;
            args.out.data = p.out + i * DIM_ALONE;
            st = heed_attention(context, &p.desc, &args);
        }
        CHECK(st == HEED_OK, "%s", heed_last_error());
        for (size_t i = 0; i < p.out_bytes / sizeof(float) && st == HEED_OK; i++)
            wrong += memcmp(&whole[i], &p.out[i], sizeof(float)) != 0;
        free(whole);
        unit_free(&p);
    }
    CHECK(wrong == 0, "%s: %d elements of rows alone have other bits", backend ? backend : "any",
          wrong);
    heed_context_release(context);
}

int main(void)
{
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        heed_context *context = unit_context(threads, NULL);
        for (uint64_t seed = 1; seed <= 30; seed++) {
            make(seed);
            run_alone(context);
            check_ragged(context, 0, seed);
            check_ragged(context, 1, seed);
        }
        check_refusals(context);
        heed_context_release(context);
    }
    rows_alone(NULL);
    return unit_end();
}
