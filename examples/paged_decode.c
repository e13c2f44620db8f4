/* A continuous batch: requests of different age share every call, and their keys and values lie in
 * pages, which come from one pool and return to it.
 *
 * In each step, a new request contributes its whole prompt and each running one a single token. All
 * rows are packed one after another; one call of the layer projects them, rotates q and k by their
 * positions, appends k and v to the pages of the requests, and attends.
 *
 * Each request is then run alone, in a single call and contiguous memory. The layer is made with
 * HEED_HAS_REPRODUCIBLE_CHUNKS, so the outputs have to be the same, bit for bit.
 */
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL = 32,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD = MODEL / HEADS,
    QKV = MODEL + 2 * KV_HEADS * HEAD
};
enum { REQUESTS = 9, SLOTS = 4, MOST = 80, PAGE = 16, PAGES_EACH = MOST / PAGE, PAGES = 14 };

/* A request. Its rows come from a random generator, so that it can be run again. */
typedef struct request {
    int prompt, tokens; /* its rows at the beginning and at the end */
    int done;           /* rows that have gone through the layer */
    float x[MOST][MODEL], y[MOST][MODEL];
} request;

/* The pool of pages. */
typedef struct page_pool {
    float k[PAGES][KV_HEADS][PAGE][HEAD], v[PAGES][KV_HEADS][PAGE][HEAD];
    int32_t free[PAGES];
    int n_free;
} page_pool;

typedef struct engine {
    heed_context *context;
    heed_mha *layer;
    page_pool pool;
    request *slot[SLOTS];             /* NULL: the slot is empty */
    int32_t table[SLOTS][PAGES_EACH]; /* the pages of the request in each slot */
    int n_pages[SLOTS];
} engine;

static request requests[REQUESTS];
static float w_qkv[MODEL][QKV], w_out[MODEL][MODEL];

static void fill(float *to, size_t n, double scale, uint32_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        to[i] = (float)(((double)(*state >> 8) / (1 << 23) - 1) * scale);
    }
}

static heed_status make_layer(heed_context *context, int paged, heed_mha **layer)
{
    heed_linear_desc linear = {.struct_size = sizeof linear,
                               .in_dim = MODEL,
                               .out_dim = QKV,
                               .x_type = HEED_F32,
                               .w_type = HEED_F32,
                               .y_type = HEED_F32};
    const heed_const_view qkv = {w_qkv, {QKV, 1}}, out = {w_out, {MODEL, 1}};
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .features =
                                     HEED_HAS_CAUSAL | HEED_HAS_REPRODUCIBLE_CHUNKS |
                                     (paged ? HEED_HAS_PACKED | HEED_HAS_LENS | HEED_HAS_PAGES : 0),
                                 .position = HEED_POS_BOTTOM_RIGHT,
                                 .q_heads = HEADS,
                                 .kv_heads = KV_HEADS,
                                 .qk_dim = HEAD,
                                 .v_dim = HEAD,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .page_len = paged ? PAGE : 0,
                                 .max_batch = SLOTS,
                                 .max_q_len = MOST,
                                 .max_kv_len = MOST};
    heed_mha_desc desc = {.struct_size = sizeof desc,
                          .features = paged ? HEED_MHA_HAS_CACHE : 0,
                          .attn = &attn,
                          .d_model = MODEL,
                          .x_type = HEED_F32,
                          .rotary = {.style = HEED_ROTARY_HALF, .dims = HEAD}};
    heed_status status = heed_linear_create(context, &linear, &qkv, NULL, &desc.qkv_proj);
    linear.out_dim = MODEL;
    if (status == HEED_OK)
        status = heed_linear_create(context, &linear, &out, NULL, &desc.out_proj);
    if (status == HEED_OK)
        status = heed_mha_create(context, &desc, layer);
    heed_linear_release(desc.qkv_proj); /* the layer holds references */
    heed_linear_release(desc.out_proj);
    return status;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Gives the request in a slot pages for `keys` keys in all; 0 if the pool has too few. */
static int reserve(engine *e, int slot, int keys)
{
    int wanted = (keys + PAGE - 1) / PAGE - e->n_pages[slot];
    if (wanted > e->pool.n_free)
        return 0;
    while (wanted-- > 0)
        e->table[slot][e->n_pages[slot]++] = e->pool.free[--e->pool.n_free];
    return 1;
}

static void give_back(engine *e, int slot)
{
    while (e->n_pages[slot] > 0)
        e->pool.free[e->pool.n_free++] = e->table[slot][--e->n_pages[slot]];
    e->slot[slot] = NULL;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Runs a step of all requests in slots together. Returns how many rows it computed, or -1. */
static int step(engine *e)
{
    static float x[SLOTS * MOST][MODEL], y[SLOTS * MOST][MODEL];
    int32_t lens[SLOTS] = {0}, starts[SLOTS] = {0}, there[SLOTS] = {0}, rows = 0;
    for (int s = 0; s < SLOTS; s++) {
        const request *r = e->slot[s];
        starts[s] = rows;
        if (!r)
            continue; /* its sequence is empty */
        there[s] = r->done;
        lens[s] = r->done ? 1 : r->prompt;
        if (!reserve(e, s, there[s] + lens[s])) {
            lens[s] = 0; /* the request waits until another one returns pages */
            continue;
        }
        memcpy(x[rows], r->x[r->done], (size_t)lens[s] * sizeof x[0]);
        rows += lens[s];
    }
    const heed_mha_args args = {
        .struct_size = sizeof args,
        .batch = SLOTS,
        .q_len = MOST,
        .capacity = MOST,
        .x_q = {x, {0, MODEL, 1}},
        .y = {y, {0, MODEL, 1}},
        .k_cache = {e->pool.k, {KV_HEADS * PAGE * HEAD, PAGE * HEAD, HEAD, 1}},
        .v_cache = {e->pool.v, {KV_HEADS * PAGE * HEAD, PAGE * HEAD, HEAD, 1}},
        .q_lens = lens,
        .q_starts = starts,
        .cache_lens = there,
        .block_table = e->table[0],
        .block_table_stride = PAGES_EACH,
        .n_pages = PAGES,
    };
    if (heed_mha_run(e->layer, &args, NULL, 0) != HEED_OK)
        return -1;
    for (int s = 0; s < SLOTS; s++) {
        request *r = e->slot[s];
        if (!r || !lens[s])
            continue;
        memcpy(r->y[r->done], y[starts[s]], (size_t)lens[s] * sizeof y[0]);
        r->done += lens[s];
        if (r->done == r->tokens)
            give_back(e, s);
    }
    return rows;
}

/* Runs the request alone, with all of its rows at once. Returns whether y has the same bits. */
static int same_alone(const heed_mha *layer, const request *r)
{
    static float y[MOST][MODEL];
    const heed_mha_args args = {.struct_size = sizeof args,
                                .batch = 1,
                                .q_len = r->tokens,
                                .x_q = {r->x, {0, MODEL, 1}},
                                .y = {y, {0, MODEL, 1}}};
    return heed_mha_run(layer, &args, NULL, 0) == HEED_OK &&
           memcmp(y, r->y, (size_t)r->tokens * sizeof y[0]) == 0;
}

int main(void)
{
    static engine e;
    heed_mha *alone = NULL;
    uint32_t state = 11;
    int next = 0, running, same = 0;
    fill(&w_qkv[0][0], MODEL * QKV, 0.3, &state);
    fill(&w_out[0][0], MODEL * MODEL, 0.3, &state);
    for (int n = 0; n < REQUESTS; n++) {
        requests[n].prompt = 1 + n * 13 % 40;
        requests[n].tokens = requests[n].prompt + 5 + n * 7 % 30;
        fill(&requests[n].x[0][0], MOST * MODEL, 1, &state);
    }
    while (e.pool.n_free < PAGES)
        e.pool.free[e.pool.n_free] = e.pool.n_free, e.pool.n_free++;
    if (heed_context_create(NULL, &e.context) != HEED_OK ||
        make_layer(e.context, 1, &e.layer) != HEED_OK ||
        make_layer(e.context, 0, &alone) != HEED_OK) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }

    int steps = 0, rows = 0;
    do {
        running = 0;
        for (int s = 0; s < SLOTS; s++) {
            if (!e.slot[s] && next < REQUESTS && steps >= 3 * next) /* they arrive one by one */
                e.slot[s] = &requests[next++];
            running += e.slot[s] != NULL;
        }
        int n = step(&e);
        if (n < 0 || (running && n == 0)) { /* all wait, so none will ever return pages */
            fprintf(stderr, "step %d: %s\n", steps, n < 0 ? heed_last_error() : "too few pages");
            return 1;
        }
        rows += n;
        steps++;
    } while (running || next < REQUESTS);
    for (int n = 0; n < REQUESTS; n++)
        same += same_alone(alone, &requests[n]);
    printf("%d requests, %d rows in %d steps on %d pages of %d; %d of them give the same bits "
           "alone\n",
           REQUESTS, rows, steps, PAGES, PAGE, same);
    heed_mha_release(alone);
    heed_mha_release(e.layer);
    heed_context_release(e.context);
    return same != REQUESTS || e.pool.n_free != PAGES;
}
