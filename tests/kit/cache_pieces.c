/* Shows that sequences which come through a cache in pieces give the same bits as at once. */
#include "cache_pieces.h"

#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, HEADS = 2, TOKENS = 75, DIM = 24, PAGE = 16, PAGES = 5, Q_HEADS = 4 };

/* Three sequences of tokens, and the cache that they grow in. */
typedef struct growing {
    float q[BATCH][TOKENS][Q_HEADS][DIM], k[BATCH][TOKENS][HEADS][DIM],
        v[BATCH][TOKENS][HEADS][DIM];
    unsigned char k_cache[(BATCH * PAGES + 1) * PAGE * HEADS * DIM * 4];
    unsigned char v_cache[(BATCH * PAGES + 1) * PAGE * HEADS * DIM * 4];
    float whole[BATCH][TOKENS][Q_HEADS][DIM], out[BATCH][TOKENS][Q_HEADS][DIM];
    float packed_q[BATCH * TOKENS][Q_HEADS][DIM], packed_out[BATCH * TOKENS][Q_HEADS][DIM];
    float packed_k[BATCH * TOKENS][HEADS][DIM], packed_v[BATCH * TOKENS][HEADS][DIM];
    int32_t table[BATCH][PAGES], there[BATCH], now[BATCH], first[BATCH], after[BATCH];
    int paged;
    uint32_t type; /* of the cache */
} growing;

/* Packs now[b] tokens of each sequence b one after another. Returns the largest now[b]. */
static int32_t pack(growing *g)
{
    int32_t at = 0, most = 0;
    for (int b = 0; b < BATCH; b++) {
        g->first[b] = at;
        memcpy(g->packed_q[at], g->q[b][g->there[b]], (size_t)g->now[b] * sizeof g->q[0][0]);
        memcpy(g->packed_k[at], g->k[b][g->there[b]], (size_t)g->now[b] * sizeof g->k[0][0]);
        memcpy(g->packed_v[at], g->v[b][g->there[b]], (size_t)g->now[b] * sizeof g->v[0][0]);
        at += g->now[b];
        most = g->now[b] > most ? g->now[b] : most;
        g->after[b] = g->there[b] + g->now[b];
    }
    return most;
}

static heed_kv_append_args append_args(growing *g, int32_t most)
{
    const int64_t rows = g->paged ? PAGE : PAGES * PAGE;
    const heed_const_view new_k = {g->packed_k, {0, DIM, HEADS * DIM, 1}};
    const heed_view cache = {g->k_cache, {rows * HEADS * DIM, rows * DIM, DIM, 1}};
    return (heed_kv_append_args){
        .struct_size = sizeof(heed_kv_append_args),
        .batch = BATCH,
        .len = most,
        .capacity = PAGES * PAGE,
        .kv_heads = HEADS,
        .qk_dim = DIM,
        .v_dim = DIM,
        .page_len = g->paged ? PAGE : 0,
        .k_type = HEED_F32,
        .v_type = HEED_F32,
        .k_cache_type = g->type,
        .v_cache_type = g->type,
        .k = new_k,
        .v = {g->packed_v, {0, DIM, HEADS * DIM, 1}},
        .k_cache = cache,
        .v_cache = {g->v_cache, {cache.stride[0], cache.stride[1], cache.stride[2], 1}},
        .lens = g->now,
        .starts = g->first,
        .cache_lens = g->there,
        .block_table = g->paged ? g->table[0] : NULL,
        .block_table_stride = g->paged ? PAGES : 0,
        .n_pages = g->paged ? BATCH * PAGES + 1 : 0,
        .rows = BATCH * TOKENS};
}

static heed_attn_desc attend_desc(const growing *g)
{
    return (heed_attn_desc){.struct_size = sizeof(heed_attn_desc),
                            .features = HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_CAUSAL |
                                        HEED_HAS_LENS | HEED_HAS_PACKED |
                                        (g->paged ? HEED_HAS_PAGES : 0),
                            .q_heads = Q_HEADS,
                            .kv_heads = HEADS,
                            .qk_dim = DIM,
                            .v_dim = DIM,
                            .q_type = HEED_F32,
                            .k_type = g->type,
                            .v_type = g->type,
                            .out_type = HEED_F32,
                            .position = HEED_POS_BOTTOM_RIGHT,
                            .page_len = g->paged ? PAGE : 0,
                            .max_rows = BATCH * TOKENS};
}

/* Appends now[b] tokens of each sequence, packed, and attends with them. */
static heed_status step(heed_context *context, growing *g)
{
    const int32_t most = pack(g);
    const heed_kv_append_args append = append_args(g, most);
    const heed_attn_desc desc = attend_desc(g);
    const heed_attn_args attend = {.struct_size = sizeof attend,
                                   .batch = BATCH,
                                   .q_len = most,
                                   .kv_len = PAGES * PAGE,
                                   .q = {g->packed_q, {0, DIM, Q_HEADS * DIM, 1}},
                                   .k = heed_as_const(append.k_cache),
                                   .v = heed_as_const(append.v_cache),
                                   .out = {g->packed_out, {0, DIM, Q_HEADS * DIM, 1}},
                                   .q_lens = g->now,
                                   .kv_lens = g->after,
                                   .q_starts = g->first,
                                   .block_table = append.block_table,
                                   .block_table_stride = append.block_table_stride,
                                   .n_pages = append.n_pages};
    heed_status status = heed_kv_append(&append);
    if (status == HEED_OK)
        status = heed_attention(context, &desc, &attend);
    for (int b = 0; b < BATCH && status == HEED_OK; b++) {
        memcpy(g->out[b][g->there[b]], g->packed_out[g->first[b]],
               (size_t)g->now[b] * sizeof g->out[0][0]);
        g->there[b] = g->after[b];
    }
    return status;
}

/* Takes all three sequences through a cache that begins as NaN, in the given kind of pieces. */
static heed_status grow(heed_context *context, growing *g, int paged, int pieces)
{
    heed_status status = HEED_OK;
    uint64_t random = 7;
    memset(g->k_cache, 0xff, sizeof g->k_cache);
    memset(g->v_cache, 0xff, sizeof g->v_cache);
    memset(g->there, 0, sizeof g->there);
    g->paged = paged;
    for (int left = 1; left && status == HEED_OK;) {
        left = 0;
        for (int b = 0; b < BATCH; b++) {
            int n = pieces == 0   ? TOKENS - b * 20 /* at once */
                    : pieces == 1 ? 1
                    : pieces == 2 ? 16 + b
                                  : (int)kit_below(&random, b == 1 ? 2 : 9); /* mixed */
            int rest = TOKENS - b * 20 - g->there[b];
            g->now[b] = n < rest ? n : rest;
            left += rest;
        }
        if (left)
            status = step(context, g);
    }
    return status;
}

void kit_cache_in_pieces(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const char *const name[] = {"at once", "token by token", "in chunks", "mixed"};
    growing *g = calloc(1, sizeof *g);
    if (!g) {
        kit_fail(outcome, "out of memory");
        return;
    }
    g->type = c->spec.q_type;
    for (size_t i = 0; i < sizeof g->q / 4; i++)
        (&g->q[0][0][0][0])[i] = (float)kit_normal(kit_hash(1, (int64_t)i));
    for (size_t i = 0; i < sizeof g->k / 4; i++) {
        (&g->k[0][0][0][0])[i] = (float)kit_normal(kit_hash(2, (int64_t)i));
        (&g->v[0][0][0][0])[i] = (float)kit_normal(kit_hash(3, (int64_t)i));
    }
    for (int i = 0; i < BATCH * PAGES; i++)
        g->table[i / PAGES][i % PAGES] = (i * 7 + 3) % (BATCH * PAGES + 1);
    for (int paged = 0; paged < 2; paged++)
        for (int pieces = 0; pieces < 4; pieces++) {
            if (kit_status(outcome, grow(env->context, g, paged, pieces), heed_last_error(),
                           "a step") != 0)
                goto end;
            if (!paged && !pieces)
                memcpy(g->whole, g->out, sizeof g->out);
            else if (memcmp(g->whole, g->out, sizeof g->out) != 0)
                kit_fail(outcome, "%s, %s: other bits than at once",
                         paged ? "in pages" : "contiguous", name[pieces]);
            memset(g->out, 0, sizeof g->out);
        }
end:
    free(g);
}
