/* What groups refuse, each with a sentence that names it: outputs stay as they are, and nothing is
 * sent of what all ranks refuse alike. Also what AUTO chooses, and two groups at once. */
#include "../check.h"
#include "threads.h"
#include "wrap.h"

#include <math.h>
#include <string.h>

/* A call of rank 0 of two; the other rank never calls. */
typedef struct call {
    heed_attn_desc desc;
    heed_attn_args args;
    heed_partition partition;
    heed_transport transport;
    uint32_t owner[4];
    int32_t keys[2 * 5], rows[2 * 5], lens[2];
    size_t bytes;
    int with_workspace;
} call;

/* clang-format off */
static void no_plan_scheme(call *c) { c->partition.scheme = 3; }
static void bad_want(call *c) { c->partition.want = 3; }
static void ring_want(call *c) { c->partition.row_first = c->rows; c->partition.want = 1; }
static void bad_root(call *c) { c->partition.want = HEED_WANT_ROOT; c->partition.root = 2; }
static void root_unasked(call *c) { c->partition.root = 1; }
static void no_parts(call *c) { c->partition.n_parts = 0; }
static void unowned(call *c) { c->partition.n_parts = 3; }
static void bad_owner(call *c) { c->owner[1] = 2; c->partition.owner = c->owner; }
static void no_time(call *c) { c->partition.timeout_ns = 0; }
static void no_keys(call *c) { c->partition.key_first = NULL; }
static void late_first(call *c) { c->keys[3] = 1; }
static void falling(call *c) { c->keys[1] = 9; c->keys[2] = 8; }
static void rows_want(call *c)
{
    c->partition.scheme = HEED_GROUP_SPLIT;
    c->partition.row_first = c->rows;
    c->partition.want = HEED_WANT_HEADS;
}
static void late_row(call *c) { c->partition.row_first = c->rows; c->rows[3] = 1; }
static void ring_no_rows(call *c) { c->partition.scheme = HEED_GROUP_RING; }
static void partition_size(call *c) { c->partition.struct_size = 8; }
static void weights(call *c) { c->desc.features |= HEED_HAS_WEIGHTS; }
static void scores(call *c) { c->desc.features |= HEED_HAS_SCORES; c->desc.scores_stage = 1; }
static void ring_quant(call *c)
{
    c->partition.scheme = HEED_GROUP_RING;
    c->partition.row_first = c->rows;
    c->desc.features |= HEED_HAS_QUANT;
    c->desc.k_type = HEED_I8;
}
static void pages(call *c) { c->desc.features |= HEED_HAS_PAGES; c->desc.page_len = 3; }
static void blocks(call *c)
{
    c->desc.features |= HEED_HAS_KEY_BLOCKS;
    c->desc.block_keys = c->desc.block_rows = 1;
}
static void row_blocks(call *c)
{
    blocks(c);
    c->desc.block_rows = 2;
    for (int i = 0; i < 10; i++)
        c->keys[i] = i % 3 == 2 ? 10 : 0, c->rows[i] = i % 3;
    c->partition.n_parts = 2;
    c->owner[0] = c->owner[1] = 0;
    c->partition.owner = c->owner;
    c->partition.row_first = c->rows;
}
static void no_ranks(call *c) { c->transport.size = 0; }
static void bad_rank(call *c) { c->transport.rank = 2; }
static void no_send(call *c) { c->transport.send = NULL; }
static void no_cancel(call *c) { c->transport.cancel = NULL; }
static void transport_size(call *c) { c->transport.struct_size = 0; }
static void bad_batch(call *c) { c->args.batch = 3; }
static void args_size(call *c) { c->args.struct_size = 8; }
/* Mistakes of this rank alone: the other one is told. */
static void kv_lens(call *c) { c->args.kv_lens = c->lens; }
static void ring_q_lens(call *c) { c->partition.row_first = c->rows; c->args.q_lens = c->lens; }
static void few_keys(call *c) { c->args.kv_len = 4; }
static void few_rows(call *c) { c->partition.row_first = c->rows; c->args.q_len = 0; }
static void no_q(call *c) { c->args.q.data = NULL; }
static void no_k(call *c) { c->args.k.data = NULL; }
static void no_out(call *c) { c->args.out.data = NULL; }
static void no_lse(call *c) { c->args.lse.data = NULL; }
static void ring_starts(call *c, int32_t start)
{
    c->desc.features |= HEED_HAS_PACKED;
    c->args.kv_starts = c->lens;
    c->lens[1] = start;
    c->partition.scheme = HEED_GROUP_RING;
    c->partition.row_first = c->rows;
    c->args.k.stride[2] = c->args.v.stride[2] = 0; /* so that every key lies there */
}
static void early_keys(call *c) { ring_starts(c, -1); }
static void late_keys(call *c) { ring_starts(c, INT32_MAX - 4); }
static void long_rows(call *c) { c->args.q_len = 7; }
static void absent(call *c) { c->bytes = 1 << 20; }
static void small(call *c) { c->with_workspace = 1; c->bytes = 64; }
static void crooked(call *c) { c->with_workspace = 2; c->bytes = 1 << 20; }
static void too_far(call *c)
{
    static const int32_t offsets[] = {INT32_MIN, INT32_MIN};
    c->desc.features |= HEED_HAS_CAUSAL;
    c->desc.position = HEED_POS_GIVEN;
    c->args.q_offsets = offsets;
    c->owner[0] = 1; /* so that this rank's keys begin at 5 */
    c->owner[1] = 0;
    c->partition.owner = c->owner;
}
/* Rows travel to this rank's keys, so that it needs the lists of all rows. */
static void travel(call *c, int32_t own_rows)
{
    c->partition.scheme = HEED_GROUP_SPLIT;
    c->partition.row_first = c->rows;
    c->rows[1] = c->rows[4] = own_rows;
    c->args.q_len = own_rows;
}
static void no_ranges(call *c)
{
    travel(c, 0);
    c->desc.features |= HEED_HAS_RANGES;
    c->desc.n_ranges = 1;
}
static void far_ranges(call *c)
{
    static const int32_t all[2] = {0, 10};
    no_ranges(c);
    travel(c, 1);
    c->args.ranges = (heed_const_view){all, {0, 0, INT64_C(1) << 60, 1}};
}
static void far_blocks(call *c)
{
    static const uint64_t word = 1;
    travel(c, 1);
    blocks(c);
    c->desc.max_kv_len = c->args.kv_len = 64;
    c->args.k.stride[2] = c->args.v.stride[2] = 0;
    c->keys[1] = c->keys[4] = 64;
    c->keys[2] = c->keys[5] = 128;
    c->owner[0] = 1; /* so that this rank's keys begin at 64 */
    c->owner[1] = 0;
    c->partition.owner = c->owner;
    c->args.key_blocks = (heed_const_view){&word, {0, 0, 0, INT64_C(1) << 60}};
}

static const struct refusal {
    void (*spoil)(call *c);
    heed_status status;
    const char *word;
} refusals[] = {
    {no_plan_scheme, HEED_ERR_INVALID, "partition.scheme is 3"},
    {bad_want, HEED_ERR_INVALID, "partition.want is 3"},
    {ring_want, HEED_ERR_INVALID, "partition.want is 1"},
    {bad_root, HEED_ERR_INVALID, "partition.root is 2"},
    {root_unasked, HEED_ERR_INVALID, "partition.root is 1"},
    {no_parts, HEED_ERR_INVALID, "partition.n_parts is 0"},
    {unowned, HEED_ERR_INVALID, "partition.owner is NULL"},
    {bad_owner, HEED_ERR_INVALID, "partition.owner[1] is 2"},
    {no_time, HEED_ERR_INVALID, "partition.timeout_ns is 0"},
    {no_keys, HEED_ERR_INVALID, "partition.key_first is NULL"},
    {late_first, HEED_ERR_INVALID, "partition.key_first[1][0] is 1"},
    {falling, HEED_ERR_INVALID, "partition.key_first[0][2] is 8"},
    {rows_want, HEED_ERR_INVALID, "partition.want is 2"},
    {late_row, HEED_ERR_INVALID, "partition.row_first[1][0] is 1"},
    {ring_no_rows, HEED_ERR_INVALID, "partition.row_first is NULL"},
    {partition_size, HEED_ERR_ABI, "partition.struct_size"},
    {weights, HEED_ERR_UNSUPPORTED, "HEED_HAS_WEIGHTS"},
    {scores, HEED_ERR_UNSUPPORTED, "HEED_HAS_SCORES"},
    {ring_quant, HEED_ERR_UNSUPPORTED, "HEED_HAS_QUANT"},
    {pages, HEED_ERR_INVALID, "desc.page_len = 3"},
    {blocks, HEED_ERR_UNSUPPORTED, "64 * desc.block_keys = 64"},
    {row_blocks, HEED_ERR_UNSUPPORTED, "desc.block_rows = 2"},
    {no_ranks, HEED_ERR_INVALID, "transport.size is 0"},
    {bad_rank, HEED_ERR_INVALID, "transport.rank is 2"},
    {no_send, HEED_ERR_INVALID, "transport.send is NULL"},
    {no_cancel, HEED_ERR_INVALID, "transport.cancel is NULL"},
    {transport_size, HEED_ERR_ABI, "transport.struct_size"},
    {bad_batch, HEED_ERR_INVALID, "args.batch is 3"},
    {args_size, HEED_ERR_ABI, "args.struct_size"},
    {kv_lens, HEED_ERR_INVALID, "args.kv_lens is given"},
    {ring_q_lens, HEED_ERR_INVALID, "args.q_lens is given"},
    {few_keys, HEED_ERR_INVALID, "5 keys of sequence 0"},
    {few_rows, HEED_ERR_INVALID, "1 rows of sequence 0"},
    {no_q, HEED_ERR_INVALID, "args.q is NULL"},
    {no_k, HEED_ERR_INVALID, "args.k is NULL"},
    {no_out, HEED_ERR_INVALID, "args.out is NULL"},
    {no_lse, HEED_ERR_INVALID, "args.lse is NULL"},
    {long_rows, HEED_ERR_INVALID, "args.q_len is 7"},
    {early_keys, HEED_ERR_INVALID, "args.kv_starts[1] is -1: with 5 keys"},
    {late_keys, HEED_ERR_INVALID, "args.kv_starts[1] is 2147483643: with 5 keys"},
    {absent, HEED_ERR_INVALID, "workspace is NULL, but has 1048576 bytes"},
    {small, HEED_ERR_NOMEM, "workspace has 64 bytes"},
    {crooked, HEED_ERR_INVALID, "aligned to 64 bytes"},
    {too_far, HEED_ERR_UNSUPPORTED, "32 bits"},
    {no_ranges, HEED_ERR_INVALID, "args.ranges is NULL"},
    {far_ranges, HEED_ERR_INVALID, "args.ranges has strides 0, 0, 1152921504606846976, 1"},
    {far_blocks, HEED_ERR_INVALID, "args.key_blocks has strides 0, 0, 0, 1152921504606846976"},
};
/* clang-format on */

enum { HEADS = 2, DIM = 4, KEYS = 5, ROWS = 2 };
static float memory[3][2 * HEADS * KEYS * DIM], result[2 * HEADS * ROWS * DIM],
    lse[2 * HEADS * ROWS];
static _Alignas(64) char workspace[1 << 21];

static void set_call(call *c, const heed_transport *transport)
{
    const int64_t rows = HEADS * ROWS * DIM, keys = HEADS * KEYS * DIM;
    static const int32_t key_first[] = {0, 5, 10, 0, 5, 10}, row_first[] = {0, 1, 2, 0, 1, 2};
    *c = (call){.desc = {.struct_size = sizeof c->desc,
                         .features = HEED_HAS_LSE,
                         .q_heads = HEADS,
                         .kv_heads = HEADS,
                         .qk_dim = DIM,
                         .v_dim = DIM,
                         .q_type = HEED_F32,
                         .k_type = HEED_F32,
                         .v_type = HEED_F32,
                         .out_type = HEED_F32,
                         .max_batch = 2,
                         .max_q_len = ROWS,
                         .max_kv_len = KEYS},
                .args = {.struct_size = sizeof c->args,
                         .batch = 2,
                         .q_len = ROWS,
                         .kv_len = KEYS,
                         .q = {memory[0], {rows, ROWS * DIM, DIM, 1}},
                         .k = {memory[1], {keys, KEYS * DIM, DIM, 1}},
                         .v = {memory[2], {keys, KEYS * DIM, DIM, 1}},
                         .out = {result, {rows, ROWS * DIM, DIM, 1}},
                         .lse = {lse, {HEADS * ROWS, ROWS, 1, 0}}},
                .transport = *transport};
    memcpy(c->keys, key_first, sizeof key_first);
    memcpy(c->rows, row_first, sizeof row_first);
    c->partition = (heed_partition){.struct_size = sizeof c->partition,
                                    .n_parts = 2,
                                    .key_first = c->keys,
                                    .timeout_ns = 50000000};
}

static void refuse(heed_context *context, const struct refusal *r)
{
    heed_group_threads *group;
    heed_transport transport = {.struct_size = sizeof transport};
    heed_attn *plan = NULL;
    wrapped w;
    call c;
    memset(&w, 0, sizeof w);
    if (heed_group_threads_create(2, &group) != HEED_OK ||
        heed_group_threads_transport(group, 0, &transport) != HEED_OK)
        exit(1);
    wrap(&w, &transport);
    set_call(&c, &transport);
    r->spoil(&c);
    memset(result, 0x77, sizeof result);
    memset(lse, 0x77, sizeof lse);
    if (heed_attn_create(context, &c.desc, &plan) != HEED_OK) {
        CHECK(0, "%s: no plan: %s", r->word, heed_last_error());
        return;
    }
    const heed_status st = heed_group_attention(
        plan, &c.args, &c.partition, &c.transport,
        c.with_workspace ? workspace + (c.with_workspace == 2 ? 8 : 0) : NULL, c.bytes);
    CHECK(st == r->status, "%s: %s, '%s'", r->word, heed_status_string(st), heed_last_error());
    CHECK(strstr(heed_last_error(), r->word), "'%s' lacks '%s'", heed_last_error(), r->word);
    for (size_t i = 0; i < sizeof result; i++)
        CHECK(((unsigned char *)result)[i] == 0x77, "%s: out was written", r->word);
    for (size_t i = 0; i < sizeof lse; i++)
        CHECK(((unsigned char *)lse)[i] == 0x77, "%s: lse was written", r->word);
    if (r - refusals < 29) /* what all ranks refuse alike */
        CHECK(w.messages == 0, "%s: %llu messages", r->word, (unsigned long long)w.messages);
    heed_attn_release(plan);
    heed_group_threads_release(group);
}

/* The calls that send nothing. */
static void others(heed_context *context)
{
    heed_group_threads *group = NULL, *none = NULL;
    heed_transport transport, untouched;
    heed_group_cost cost = {.struct_size = sizeof cost};
    heed_attn *plan = NULL;
    call c;
    CHECK(heed_group_threads_create(0, &none) == HEED_ERR_INVALID && !none, "no ranks");
    CHECK(heed_group_threads_create(1025, &none) == HEED_ERR_INVALID && !none, "too many ranks");
    CHECK(heed_group_threads_create(2, NULL) == HEED_ERR_INVALID, "nowhere");
    CHECK_OK(heed_group_threads_create(2, &group));
    memset(&untouched, 0x55, sizeof untouched);
    memcpy(&transport, &untouched, sizeof transport);
    CHECK(heed_group_threads_transport(group, 2, &transport) == HEED_ERR_INVALID, "rank 2 of 2");
    CHECK(memcmp(&transport, &untouched, sizeof transport) == 0, "it was written");
    CHECK(heed_group_threads_transport(NULL, 0, &transport) == HEED_ERR_INVALID, "no group");
    CHECK(heed_group_threads_transport(group, 0, NULL) == HEED_ERR_INVALID, "nowhere");
    untouched.struct_size = 12; /* of no version */
    memcpy(&transport, &untouched, sizeof transport);
    CHECK_REFUSED(heed_group_threads_transport(group, 1, &transport), HEED_ERR_ABI,
                  "out.struct_size");
    CHECK(memcmp(&transport, &untouched, sizeof transport) == 0, "it was written");
    transport.struct_size = sizeof transport;
    CHECK_OK(heed_group_threads_transport(group, 1, &transport));
    heed_group_threads_release(NULL);
    set_call(&c, &transport);
    if (heed_attn_create(context, &c.desc, &plan) != HEED_OK)
        exit(1);
    CHECK(heed_group_attention(NULL, &c.args, &c.partition, &transport, NULL, 0) ==
              HEED_ERR_INVALID,
          "no plan");
    CHECK(heed_group_attention(plan, NULL, &c.partition, &transport, NULL, 0) == HEED_ERR_INVALID,
          "no args");
    CHECK(heed_group_attention(plan, &c.args, NULL, &transport, NULL, 0) == HEED_ERR_INVALID,
          "no partition");
    CHECK(heed_group_attention(plan, &c.args, &c.partition, NULL, NULL, 0) == HEED_ERR_INVALID,
          "no transport");
    CHECK(heed_group_workspace_bytes(plan, &c.partition, 2, 0, 2) > 0, "%s", heed_last_error());
    CHECK(heed_group_workspace_bytes(NULL, &c.partition, 2, 0, 2) == 0, "no plan");
    CHECK(heed_group_workspace_bytes(plan, NULL, 2, 0, 2) == 0, "no partition");
    CHECK(heed_group_workspace_bytes(plan, &c.partition, 3, 0, 2) == 0, "batch 3");
    CHECK(heed_group_workspace_bytes(plan, &c.partition, 2, 2, 2) == 0, "rank 2");
    CHECK(heed_group_count(plan, &c.partition, 2, 2, 0, 2, &cost) == HEED_OK && cost.messages == 2,
          "%s", heed_last_error());
    CHECK(heed_group_count(plan, &c.partition, 2, -1, 0, 2, &cost) == HEED_ERR_INVALID, "q_len -1");
    CHECK(heed_group_count(plan, &c.partition, 2, 2, 2, 2, &cost) == HEED_ERR_INVALID, "rank 2");
    CHECK(heed_group_count(plan, &c.partition, 2, 2, 0, 2, NULL) == HEED_ERR_INVALID, "nowhere");
    /* As heed_group_attention: a transport has at most 2^20 ranks. */
    c.partition.owner = c.owner;
    for (uint32_t size = (1u << 20) + 1; size; size = size < UINT32_MAX ? UINT32_MAX : 0) {
        CHECK(heed_group_workspace_bytes(plan, &c.partition, 2, 0, size) == 0, "%u ranks", size);
        CHECK_REFUSED(heed_group_count(plan, &c.partition, 2, 2, 0, size, &cost), HEED_ERR_INVALID,
                      "1 to 1048576 is required");
    }
    cost.struct_size = 8;
    CHECK(heed_group_count(plan, &c.partition, 2, 2, 0, 2, &cost) == HEED_ERR_ABI, "struct_size");
    CHECK(strcmp(heed_status_string(HEED_ERR_TRANSPORT), "HEED_ERR_TRANSPORT") == 0, "its name");
    heed_attn_release(plan);
    heed_group_threads_release(group);
}

/* Rows or keys whose bytes are a multiple of 2^64: 2^31 of 2^20 heads of 2^20 numbers, of f32. */
static void overflows(heed_context *context)
{
    static const uint32_t scheme[] = {HEED_GROUP_SPLIT, HEED_GROUP_SPLIT, HEED_GROUP_RING,
                                      HEED_GROUP_RING, HEED_GROUP_AUTO};
    for (int n = 0; n < 5; n++) {
        heed_transport none = {.size = 2};
        heed_group_cost cost = {.struct_size = sizeof cost};
        heed_attn *plan = NULL;
        call c;
        set_call(&c, &none);
        c.desc.q_heads = c.desc.kv_heads = c.desc.qk_dim = c.desc.v_dim = 1u << 20;
        c.desc.max_q_len = c.desc.max_kv_len = INT32_MAX;
        int32_t *first = n == 2 || n == 4 ? c.keys : c.rows;
        first[1] = first[2] = INT32_MAX;
        first[4] = first[5] = 1;
        c.partition.scheme = scheme[n];
        c.partition.row_first = n == 0 ? NULL : c.rows;
        if (heed_attn_create(context, &c.desc, &plan) != HEED_OK) {
            CHECK(0, "overflow %d: %s", n, heed_last_error());
            continue;
        }
        CHECK(heed_group_workspace_bytes(plan, &c.partition, 2, 0, 2) == 0, "overflow %d", n);
        CHECK(heed_group_count(plan, &c.partition, 2, 1 << 30, 0, 2, &cost) ==
                      HEED_ERR_UNSUPPORTED &&
                  strstr(heed_last_error(), "62 bits"),
              "overflow %d: %llu bytes", n, (unsigned long long)cost.bytes);
        CHECK(cost.bytes == 0 && cost.messages == 0, "overflow %d: it was written", n);
        heed_attn_release(plan);
    }
}

/* What AUTO takes, by bytes counted by hand: heads 2, dim 4, f32, 2 ranks, batch 1. With split a
 * rank sends 64 and 32 for each of its rows to the other, and 64 and 40 for each row of the other;
 * with ring 64, and for each of its keys 32 (rounded up to 64 in all) and 32 again. */
static void choices(heed_context *context)
{
    static const struct choice {
        int32_t rows[2], keys[2]; /* of ranks 0 and 1 */
        uint64_t features;
        uint32_t scheme, row_first;
    } choice[] = {
        {{1, 1}, {3, 3}, 0, HEED_GROUP_SPLIT, 1}, /* 96 + 104 < 64 + 128 + 96 */
        {{1, 1}, {2, 2}, 0, HEED_GROUP_RING, 1},  /* 96 + 104 > 64 + 64 + 64 */
        {{4, 4}, {6, 7}, 0, HEED_GROUP_SPLIT, 1}, /* 192 + 224 < 64 + 256 + 224 */
        {{4, 4}, {5, 5}, 0, HEED_GROUP_RING, 1},  /* 192 + 224 = 64 + 192 + 160 */
        {{0, 8},
         {9, 3},
         0,
         HEED_GROUP_SPLIT,
         1},                                     /* 384 of rank 0, 320 of rank 1 < 64 + 320 + 288 */
        {{0, 8}, {4, 4}, 0, HEED_GROUP_RING, 1}, /* > 64 + 128 + 128 */
        {{1, 1}, {9, 9}, HEED_HAS_MASK, HEED_GROUP_RING, 1},
        {{1, 1}, {9, 9}, HEED_HAS_RANGES, HEED_GROUP_RING, 1},
        {{9, 9}, {1, 1}, HEED_HAS_QUANT, HEED_GROUP_SPLIT, 1},
        {{9, 9}, {1, 1}, HEED_HAS_QUANT | HEED_HAS_MASK, HEED_GROUP_SPLIT, 1},
        {{9, 9}, {1, 1}, 0, HEED_GROUP_SPLIT, 0},
    };
    for (size_t n = 0; n < sizeof choice / sizeof *choice; n++) {
        const struct choice *w = &choice[n];
        heed_transport none = {.size = 2};
        heed_group_cost cost = {.struct_size = sizeof cost};
        heed_attn *plan = NULL;
        call c;
        set_call(&c, &none);
        c.desc.features = w->features;
        c.desc.n_ranges = w->features & HEED_HAS_RANGES ? 1 : 0;
        c.desc.k_type = w->features & HEED_HAS_QUANT ? HEED_I8 : HEED_F32;
        for (int i = 0; i < 2; i++) {
            c.keys[i + 1] = c.keys[i] + w->keys[i];
            c.rows[i + 1] = c.rows[i] + w->rows[i];
        }
        c.partition.row_first = w->row_first ? c.rows : NULL;
        if (heed_attn_create(context, &c.desc, &plan) != HEED_OK) {
            CHECK(0, "choice %zu: %s", n, heed_last_error());
            continue;
        }
        for (uint32_t rank = 0; rank < 2; rank++) {
            CHECK_OK(heed_group_count(plan, &c.partition, 1, 1, rank, 2, &cost));
            CHECK(cost.scheme == w->scheme, "choice %zu: %u bytes %llu", n, cost.scheme,
                  (unsigned long long)cost.bytes);
        }
        heed_attn_release(plan);
    }
}

/* ---- two groups at once ---------------------------------------------------------------------- */

typedef struct job {
    pthread_t thread;
    ranks_case *c;
    heed_context *const *context;
    int bad;
} job;

static void *run_group(void *of)
{
    job *j = of;
    kit_outcome outcome = {KIT_PASSED, ""};
    rank_thread *t = calloc(RANKS_MOST, sizeof *t);
    if (!t || threads_run(j->c, t, j->context, 0, NULL, NULL) != 0)
        exit(1);
    for (uint32_t r = 0; r < j->c->size; r++) {
        if (t[r].call.status != HEED_OK)
            kit_fail(&outcome, "%s", t[r].call.why.text);
        rank_collect(&t[r].call, j->c, r, &outcome);
    }
    ranks_check(j->c, &outcome);
    j->bad = outcome.verdict != KIT_PASSED;
    threads_free(j->c, t);
    free(t);
    return NULL;
}

static void two_groups(heed_context *const *context)
{
    ranks_case *c = calloc(2, sizeof *c);
    for (int n = 0; n < 6 && c; n++) {
        job j[2];
        for (int i = 0; i < 2; i++) {
            if (ranks_draw(&c[i], 2 + 7 * n + i, 40 + (uint64_t)n) != 0)
                exit(1);
            j[i] = (job){.c = &c[i], .context = context};
            pthread_create(&j[i].thread, NULL, run_group, &j[i]);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(j[i].thread, NULL);
            CHECK(!j[i].bad, "%s", c[i].name);
            ranks_free(&c[i]);
        }
    }
    free(c);
}

int main(void)
{
    heed_context *context[RANKS_MOST];
    for (int r = 0; r < RANKS_MOST; r++)
        context[r] = threads_context(NULL, 1);
    for (size_t n = 0; n < sizeof refusals / sizeof *refusals; n++)
        refuse(context[0], &refusals[n]);
    others(context[0]);
    overflows(context[0]);
    choices(context[0]);
    two_groups(context);
    for (int r = 0; r < RANKS_MOST; r++)
        heed_context_release(context[r]);
    return checks_end();
}
