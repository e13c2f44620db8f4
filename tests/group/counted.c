/* Ranks send exactly the bytes that heed_group_count returns; and while keys travel, tiles are
 * computed, with calls of the transport's test between them.
 *
 * Usage: counted SEEDS */
#include "../check.h"
#include "threads.h"
#include "wrap.h"

#include <string.h>

static void around(heed_transport *transport, void *user)
{
    wrap(&((wrapped *)user)[transport->rank], transport);
}

/* The rows that heed_group_count asks for: of packed q all, with the unused rows between them. */
static int64_t rows_of(const ranks_case *c)
{
    const kit_problem *p = &c->problem;
    int64_t low = INT32_MAX, high = 0;
    if (!p->q_rows || c->rows_apart)
        return c->spec.q_len;
    for (uint32_t b = 0; b < c->spec.batch; b++) {
        if (!p->q_lens[b])
            continue;
        low = p->q_starts[b] < low ? p->q_starts[b] : low;
        high = p->q_starts[b] + p->q_lens[b] > high ? p->q_starts[b] + p->q_lens[b] : high;
    }
    return low < high ? high - low : 0;
}

static void check(ranks_case *c, heed_context *const *context)
{
    rank_thread *t = calloc(RANKS_MOST, sizeof *t);
    wrapped *w = calloc(RANKS_MOST, sizeof *w);
    if (!t || !w || threads_run(c, t, context, 1, around, w) != 0)
        exit(1);
    for (uint32_t r = 0; r < c->size; r++) {
        heed_group_cost cost = {.struct_size = sizeof cost};
        heed_attn *plan = NULL;
        CHECK(t[r].call.status == HEED_OK, "%s: %s", c->name, t[r].call.why.text);
        CHECK(heed_attn_create(context[r], &t[r].call.desc, &plan) == HEED_OK &&
                  heed_group_count(plan, &c->partition, c->spec.batch, rows_of(c), r, c->size,
                                   &cost) == HEED_OK,
              "%s: %s", c->name, heed_last_error());
        CHECK(cost.messages == w[r].messages && cost.bytes == w[r].bytes,
              "%s: rank %u sent %llu messages of %llu bytes, heed_group_count says %llu of %llu",
              c->name, r, (unsigned long long)w[r].messages, (unsigned long long)w[r].bytes,
              (unsigned long long)cost.messages, (unsigned long long)cost.bytes);
        CHECK(c->scheme ? cost.scheme == c->scheme : cost.scheme != 0, "%s: scheme %u", c->name,
              cost.scheme);
        heed_attn_release(plan);
    }
    threads_free(c, t);
    free(t);
    free(w);
}

/* A ring of two ranks over a slow network. */
static void overlap(heed_context *const *context)
{
    ranks_case *c = calloc(1, sizeof *c);
    rank_thread *t = calloc(RANKS_MOST, sizeof *t);
    wrapped *w = calloc(RANKS_MOST, sizeof *w);
    wrap_net *net = calloc(1, sizeof *net);
    if (!c || !t || !w || !net)
        exit(1);
    c->spec = (kit_spec){.q_type = HEED_F32,
                         .k_type = HEED_F32,
                         .v_type = HEED_F32,
                         .out_type = HEED_F32,
                         .q_heads = 4,
                         .kv_heads = 4,
                         .qk_dim = 64,
                         .v_dim = 64,
                         .batch = 1,
                         .q_len = 600,
                         .kv_len = 600,
                         .seed = 3};
    c->size = c->n_parts = 2;
    c->scheme = HEED_GROUP_RING;
    strcpy(c->name, "overlap");
    net->latency = 0.5; /* far more than a rank may begin behind the other */
    net->bytes_per_second = 1e9;
    w[0].net = w[1].net = net;
    if (ranks_build(c, 1) != 0 || threads_run(c, t, context, 1, around, w) != 0)
        exit(1);
    for (uint32_t r = 0; r < 2; r++) {
        CHECK(t[r].call.status == HEED_OK, "%s", t[r].call.why.text);
        CHECK(w[r].tests_under_way >= 2,
              "test was not called between tiles while keys were under way");
    }
    threads_free(c, t);
    ranks_free(c);
    free(c);
    free(t);
    free(w);
    free(net);
}

int main(int argc, char **argv)
{
    heed_context *context[RANKS_MOST];
    ranks_case *c = malloc(sizeof *c);
    for (int r = 0; r < RANKS_MOST; r++)
        context[r] = threads_context(NULL, 1);
    for (int seed = 1; seed <= (argc > 1 ? atoi(argv[1]) : 3) && c; seed++)
        for (int f = 0; f < ranks_families(); f++) {
            if (ranks_draw(c, f, (uint64_t)seed + 7000) != 0)
                return 1;
            check(c, context);
            ranks_free(c);
        }
    overlap(context);
    for (int r = 0; r < RANKS_MOST; r++)
        heed_context_release(context[r]);
    free(c);
    return checks_end();
}
