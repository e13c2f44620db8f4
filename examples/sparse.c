/* One token attends to a few blocks of a long cache: those whose keys may have the highest scores,
 * estimated from the least and the greatest elements of each block's keys. The weight of the other
 * blocks is the error; here a few keys matter, as in most heads of a language model. */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEYS = 8192, BLOCK = 64, BLOCKS = KEYS / BLOCK, WORDS = BLOCKS / 64 };
enum { HEADS = 4, KV_HEADS = 2, DIM = 64, CHOSEN = 16 };

typedef struct cache {
    float k[KV_HEADS][KEYS][DIM], v[KV_HEADS][KEYS][DIM];
    float least[KV_HEADS][BLOCKS][DIM], greatest[KV_HEADS][BLOCKS][DIM];
} cache;

static float q[HEADS][DIM], all[HEADS][DIM], few[HEADS][DIM], scores[BLOCKS];
static uint64_t words[HEADS][WORDS];

static float draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (1 << 23) - 1;
}

static void fill(cache *c)
{
    uint32_t state = 1;
    for (int h = 0; h < HEADS; h++)
        for (int d = 0; d < DIM; d++)
            q[h][d] = draw(&state);
    for (int j = 0; j < KV_HEADS * KEYS; j++)
        for (int d = 0; d < DIM; d++) {
            const int g = j / KEYS;
            c->k[g][j % KEYS][d] = draw(&state);
            if (j % 997 == 5) /* a key with a high score for a head of the group */
                c->k[g][j % KEYS][d] += 6 * q[2 * g + j % 2][d];
            c->v[g][j % KEYS][d] = draw(&state);
        }
}

static heed_status choose(cache *c)
{
    heed_key_bounds_args a = {.struct_size = sizeof a,
                              .q_heads = HEADS,
                              .kv_heads = KV_HEADS,
                              .dim = DIM,
                              .type = HEED_F32,
                              .keys = KEYS,
                              .block_keys = BLOCK,
                              .x = {c->k, {0, (int64_t)KEYS * DIM, DIM, 1}},
                              .least = c->least[0][0],
                              .greatest = c->greatest[0][0],
                              .bounds_stride = (int64_t)BLOCKS * DIM};
    heed_status st = heed_key_bounds(&a); /* once; later only for new blocks */
    a.x = (heed_const_view){q, {0, DIM, DIM, 1}};
    a.top = CHOSEN;
    a.always_first = a.always_last = 1;
    a.shared = 1; /* the heads of a group read the same keys */
    a.scores = scores;
    a.words = words[0];
    return st == HEED_OK ? heed_key_blocks_topk(&a) : st;
}

static heed_status attend(heed_context *context, const cache *c, int sparse, float (*out)[DIM])
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .features = sparse ? HEED_HAS_KEY_BLOCKS : 0,
                                 .block_rows = sparse ? 1 : 0,
                                 .block_keys = sparse ? BLOCK : 0,
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
                           .q_len = 1,
                           .kv_len = KEYS,
                           .q = {q, {0, DIM, DIM, 1}},
                           .k = {c->k, {0, (int64_t)KEYS * DIM, DIM, 1}},
                           .v = {c->v, {0, (int64_t)KEYS * DIM, DIM, 1}},
                           .out = {out, {0, DIM, DIM, 1}}};
    if (sparse)
        args.key_blocks = (heed_const_view){words, {0, WORDS, WORDS, 1}};
    return heed_attention(context, &desc, &args);
}

int main(void)
{
    cache *c = malloc(sizeof *c);
    heed_context *context = NULL;
    double error = 0, size = 0;
    if (!c)
        return 1;
    fill(c);
    heed_status st = heed_context_create(NULL, &context);
    if (st == HEED_OK)
        st = choose(c);
    if (st == HEED_OK)
        st = attend(context, c, 0, all);
    if (st == HEED_OK)
        st = attend(context, c, 1, few);
    if (st != HEED_OK)
        printf("%s\n", heed_last_error());
    heed_context_release(context);
    free(c);
    for (int i = 0; i < HEADS * DIM; i++) {
        const double x = (double)all[i / DIM][i % DIM], y = (double)few[i / DIM][i % DIM];
        error += (x - y) * (x - y);
        size += x * x;
    }
    printf("%d of %d blocks of keys: off by %.1e of the result\n", CHOSEN, BLOCKS,
           sqrt(error / size));
    return st != HEED_OK || !(error < 0.01 * size);
}
