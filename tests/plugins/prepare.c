/*
 * The prepare step of the contract. A backend that reads K and V only in a packed form is given
 * them packed, or NULL, and then packs them itself: the bits are the same either way, and what it
 * is given are the keys of its own tile, packed before it is asked to read them.
 */
#include "fixture.h"

#include <heed/backend.h>
#include <stdatomic.h>

enum { QUERY_ROWS = 8, KEY_BLOCK = 16, KEY_CHUNK = 64 };

/* One key block in packed form: [KEY_BLOCK][qk_dim] of K, then [KEY_BLOCK][v_dim] of V. */
typedef struct packed {
    int64_t first, end; /* the keys that are filled in */
    float data[];
} packed;

/* Scratch holds the address of the last tile's K, and at OWN_BLOCK a block for keys packed
 * there. */
enum { OWN_BLOCK = 64 };

static atomic_int n_prepared, n_unprepared, n_same_kv, n_wrong;

static size_t packed_bytes(const heed_problem *problem)
{
    size_t bytes =
        sizeof(packed) + sizeof(float) * KEY_BLOCK * ((size_t)problem->qk_dim + problem->v_dim);
    return (bytes + 63) / 64 * 64;
}

static void pack(const heed_problem *problem, const heed_tile *kv, int64_t first, int64_t end,
                 packed *to)
{
    to->first = first;
    to->end = end;
    for (int64_t j = first; j < end; j++) {
        float *k = to->data + j % KEY_BLOCK * problem->qk_dim;
        float *v = to->data + KEY_BLOCK * (int64_t)problem->qk_dim + j % KEY_BLOCK * problem->v_dim;
        for (int64_t d = 0; d < problem->qk_dim; d++)
            k[d] =
                heed_load(problem->k_type, kv->k.data, j * kv->k.row_stride + d * kv->k.dim_stride);
        for (int64_t d = 0; d < problem->v_dim; d++)
            v[d] =
                heed_load(problem->v_type, kv->v.data, j * kv->v.row_stride + d * kv->v.dim_stride);
    }
}

static heed_status prepare(const void *machine, const void *state, const heed_problem *problem,
                           const heed_tile *kv, void *prepared)
{
    (void)machine, (void)state;
    if (kv->k_first / KEY_BLOCK != (kv->k_end - 1) / KEY_BLOCK || (uintptr_t)prepared % 64)
        n_wrong++; /* more than one key block, or not aligned */
    else
        pack(problem, kv, kv->k_first, kv->k_end, prepared);
    return HEED_OK;
}

/* Is `given` what the tile would have packed itself? */
static int is_right(const heed_problem *problem, const heed_tile *tile, int64_t first, int64_t end,
                    const packed *given, packed *mine)
{
    pack(problem, tile, first, end, mine);
    if (given->first > first || given->end < end || given->end > tile->kv_len)
        return 0;
    for (int64_t j = first; j < end; j++) {
        int64_t k = j % KEY_BLOCK * problem->qk_dim;
        int64_t v = KEY_BLOCK * (int64_t)problem->qk_dim + j % KEY_BLOCK * problem->v_dim;
        if (memcmp(given->data + k, mine->data + k, problem->qk_dim * sizeof(float)) != 0 ||
            memcmp(given->data + v, mine->data + v, problem->v_dim * sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

/* One row against the keys of one packed block, key by key. */
static void attend(const heed_problem *problem, heed_tile *tile, int64_t r, int64_t first,
                   int64_t end, const packed *block)
{
    int64_t head = r / tile->q_count, i = tile->q_first + r % tile->q_count, row_first, row_end;
    int64_t at = head * tile->q.head_stride + i * tile->q.row_stride;
    float *acc = tile->acc + r * tile->acc_stride;
    heed_row_keys(tile, i, &row_first, &row_end);
    for (int64_t j = first; j < end; j++) {
        const float *k = block->data + j % KEY_BLOCK * problem->qk_dim;
        const float *v =
            block->data + KEY_BLOCK * (int64_t)problem->qk_dim + j % KEY_BLOCK * problem->v_dim;
        float s = 0, m = tile->row_max[r];
        if (j < row_first || j >= row_end)
            continue;
        for (int64_t d = 0; d < problem->qk_dim; d++)
            s += heed_load(problem->q_type, tile->q.data, at + d * tile->q.dim_stride) * k[d];
        s *= problem->scale;
        if (s > m) {
            float scale = expf(m - s);
            tile->row_sum[r] *= scale;
            for (int64_t d = 0; d < problem->v_dim; d++)
                acc[d] *= scale;
            tile->row_max[r] = m = s;
        }
        tile->row_sum[r] += expf(s - m);
        for (int64_t d = 0; d < problem->v_dim; d++)
            acc[d] += expf(s - m) * v[d];
    }
}

static heed_status run_tile(const void *machine, const void *state, const heed_problem *problem,
                            heed_tile *tile, void *scratch)
{
    (void)machine;
    const void **last_k = scratch;
    packed *mine = (packed *)(void *)((char *)scratch + OWN_BLOCK);
    const char *given = tile->prepared;
    (void)state;
    if (tile->flags & HEED_TILE_SAME_KV) {
        n_same_kv++;
        n_wrong += *last_k != tile->k.data;
    }
    *last_k = tile->k.data;
    atomic_fetch_add(given ? &n_prepared : &n_unprepared, 1);

    for (int64_t r = 0; r < tile->n_heads * tile->q_count; r++) {
        tile->row_max[r] = -INFINITY;
        tile->row_sum[r] = 0;
        memset(tile->acc + r * tile->acc_stride, 0, problem->v_dim * sizeof(float));
    }
    for (int64_t first = tile->k_first, end; first < tile->k_end; first = end) {
        const packed *block = (const packed *)(const void *)given;
        end = (first / KEY_BLOCK + 1) * KEY_BLOCK;
        end = end < tile->k_end ? end : tile->k_end;
        if (!given) {
            pack(problem, tile, first, end, mine);
            block = mine;
        } else {
            n_wrong += !is_right(problem, tile, first, end, block, mine);
            given += packed_bytes(problem);
        }
        for (int64_t r = 0; r < tile->n_heads * tile->q_count; r++)
            attend(problem, tile, r, first, end, block);
    }
    return HEED_OK;
}

static heed_status tiling_without(const void *machine, const heed_problem *problem,
                                  heed_tiling *out)
{
    (void)machine;
    out->query_rows = QUERY_ROWS;
    out->key_block = KEY_BLOCK;
    out->key_chunk = problem->query_class == HEED_QUERY_MANY ? 0 : KEY_CHUNK;
    out->scratch_bytes = OWN_BLOCK + packed_bytes(problem);
    return HEED_OK;
}

static heed_status tiling_with(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine;
    out->prepare_bytes = packed_bytes(problem);
    return tiling_without(machine, problem, out);
}

static heed_status supports(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine, (void)problem;
    (void)why;
    return HEED_OK;
}

static double cost(const void *machine, const heed_problem *problem, int64_t q_len, int64_t kv_len)
{
    (void)machine;
    return (double)problem->q_heads * (double)q_len * (double)kv_len * 100;
}

#define KERNEL(the_tiling, the_prepare)                                                            \
    {                                                                                              \
        .struct_size = sizeof(heed_attn_kernel), .name = "packed",                                 \
        .features = HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_LENS, .supports = supports,       \
        .cost = cost, .tiling = the_tiling, .prepare = the_prepare, .run = run_tile,               \
    }
static const heed_attn_kernel with_prepare = KERNEL(tiling_with, prepare);
static const heed_attn_kernel without_prepare = KERNEL(tiling_without, NULL);

static heed_backend table(const char *name)
{
    static const heed_attn_kernel *const attn[] = {&with_prepare, &without_prepare};
    return (heed_backend){
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof(heed_backend),
        .name = name,
        .summary = "packs keys and values",
        .attn = strcmp(name, "with") == 0 ? attn : attn + 1,
        .n_attn = 1,
    };
}

/* A problem: what selects the path through core. Lengths are per sequence, kv first. */
typedef struct shape {
    const char *name;
    uint32_t q_heads, kv_heads, dim;
    uint64_t features;
    int64_t window_left, batch, q_len, kv_len;
    int32_t kv_lens[3], q_lens[3];
    int64_t longer; /* keys that the plan is for beyond those of the call */
} shape;

static const shape SHAPES[] = {
    {"many rows", 4, 2, 8, 0, 0, 2, 40, 150, {150, 150}, {40, 40}, 0},
    {"causal", 4, 2, 8, HEED_HAS_CAUSAL, 0, 2, 40, 40, {40, 40}, {40, 40}, 0},
    {"window", 2, 1, 8, HEED_HAS_CAUSAL | HEED_HAS_WINDOW, 20, 1, 90, 120, {120}, {90}, 0},
    {"ragged", 2, 2, 5, HEED_HAS_CAUSAL, 0, 3, 33, 200, {200, 17, 0}, {33, 1, 5}, 0},
    {"decode", 4, 1, 8, 0, 0, 3, 1, 300, {300, 16, 65}, {1, 1, 1}, 0},
    {"few rows", 4, 2, 8, HEED_HAS_CAUSAL, 0, 2, 9, 300, {300, 77}, {9, 3}, 0},
    {"slots used twice", 4, 4, 64, 0, 0, 3, 20, 1000, {1000, 1000, 999}, {20, 20, 20}, 0},
    {"plan of long ones", 4, 2, 8, 0, 0, 2, 40, 150, {150, 150}, {40, 40}, 1 << 20},
    {"more than a part keeps", 1, 1, 256, 0, 0, 1, 20, 4000, {4000}, {20}, 0},
};

static float *filled(size_t n, int seed)
{
    float *x = malloc(n * sizeof *x);
    if (!x)
        abort();
    for (size_t i = 0; i < n; i++)
        x[i] = (float)sin(seed + 0.7 * (double)i);
    return x;
}

static heed_attn_desc desc_of(const shape *s)
{
    return (heed_attn_desc){
        .struct_size = sizeof(heed_attn_desc),
        .features = s->features | HEED_HAS_LENS,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .qk_dim = s->dim,
        .v_dim = s->dim,
        .q_type = HEED_F32,
        .k_type = HEED_F32,
        .v_type = HEED_F32,
        .out_type = HEED_F32,
        .position = s->features ? HEED_POS_BOTTOM_RIGHT : HEED_POS_UNSET,
        .window_left = s->window_left,
        .window_right = s->features & HEED_HAS_WINDOW ? -1 : 0,
        .max_batch = s->batch,
        .max_q_len = s->q_len,
        .max_kv_len = s->kv_len + s->longer,
    };
}

/* Runs a shape into out on a workspace full of garbage. Keys past a length are NaN. */
static void run(const shape *s, const char *backend, uint32_t n_threads, float *out)
{
    heed_context_options options = {
        .struct_size = sizeof options, .n_threads = n_threads, .backends = backend};
    const heed_attn_desc desc = desc_of(s);
    int64_t dim = s->dim, q_head = s->q_len * dim, kv_head = s->kv_len * dim;
    size_t n_q = (size_t)(s->batch * s->q_heads * q_head);
    size_t n_kv = (size_t)(s->batch * s->kv_heads * kv_head);
    float *q = filled(n_q, 1), *k = filled(n_kv, 2), *v = filled(n_kv, 3);
    for (int64_t i = 0; i < (int64_t)n_kv; i++)
        if (i / dim % s->kv_len >= s->kv_lens[i / kv_head / s->kv_heads])
            k[i] = v[i] = NAN;
    heed_attn_args args = {
        .struct_size = sizeof args,
        .batch = s->batch,
        .q_len = s->q_len,
        .kv_len = s->kv_len,
        .q = {q, {s->q_heads * q_head, q_head, dim, 1}},
        .k = {k, {s->kv_heads * kv_head, kv_head, dim, 1}},
        .v = {v, {s->kv_heads * kv_head, kv_head, dim, 1}},
        .out = {out, {s->q_heads * q_head, q_head, dim, 1}},
        .q_lens = s->q_lens,
        .kv_lens = s->kv_lens,
    };
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    static heed_backend with, without;
    with = table("with");
    without = table("without");
    heed_status status = heed_context_create(&options, &context);
    if (status == HEED_OK)
        status = heed_context_register(context, &with);
    if (status == HEED_OK)
        status = heed_context_register(context, &without);
    if (status == HEED_OK)
        status = heed_attn_create(context, &desc, &plan);
    if (status == HEED_OK) {
        size_t bytes = heed_attn_workspace_bytes(plan, n_threads);
        void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!workspace)
            abort();
        memset(workspace, 0xa5, bytes);
        n_prepared = n_unprepared = n_same_kv = 0; /* the trial has run */
        for (size_t i = 0; i < n_q; i++)
            out[i] = 0;
        status = heed_attn_run(plan, &args, workspace, bytes);
        free(workspace);
    }
    CHECK(status == HEED_OK, "%s, %s, %u threads: %s", s->name, backend, n_threads,
          heed_last_error());
    heed_attn_release(plan);
    heed_context_release(context);
    free(q);
    free(k);
    free(v);
}

int main(void)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        const shape *s = &SHAPES[i];
        size_t n = (size_t)(s->batch * s->q_heads * s->q_len * s->dim);
        float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
        if (!want || !got)
            abort();
        run(s, "without", 1, want);
        CHECK(n_prepared == 0, "%s: prepared data for a backend without prepare", s->name);
        for (size_t j = 0; j < n; j++)
            CHECK(isfinite(want[j]), "%s: an output is %g", s->name, (double)want[j]);
        for (uint32_t n_threads = 1; n_threads <= 4; n_threads++) {
            run(s, "with", n_threads, got);
            CHECK(memcmp(want, got, n * sizeof *got) == 0,
                  "%s, %u threads: prepared data changed the bits", s->name, n_threads);
            if (n_threads > 1)
                continue;
            if (s->dim > 100) /* 8 MiB of packed blocks; a part keeps 4 */
                CHECK(n_unprepared > 0, "%s: everything was prepared", s->name);
            else
                CHECK(n_prepared > 0, "%s: nothing was prepared", s->name);
            if (s->q_len > 2 * QUERY_ROWS)
                CHECK(n_same_kv > 0, "%s: no tile was told that it has the keys of the last",
                      s->name);
        }
        free(want);
        free(got);
    }
    CHECK(n_wrong == 0, "%d times the backend was given something wrong", n_wrong);
    return checks_end();
}
