/*
 * Linear layers by oneDNN's matrix product: one primitive, always of ROWS rows and COLS columns.
 *
 * Work       a tile's rows are copied (widened) to scratch, ROWS at a time with zeros behind the last
 *            one, and meet each panel; bias, activation and residual follow element by element
 *            (heed_linear_finish in kit.h).
 * Layout     w in panels [in_dim][COLS], in bf16 where the products are, else in f32: oneDNN 2.6 has
 *            no products of mixed types.
 * Bits       oneDNN may sum in another order for another number of rows. There is only one number,
 *            so that a row's bits do not depend on how many rows come with it: one row costs as
 *            much as ROWS.
 * Kept       each layer has its own primitive (oneDNN stores the code of equal ones once) and a
 *            pool of what the threads that run it need.
 */
#include <sched.h>
#include <stdlib.h>

#include "linear.h"

#define ROWS 16
#define COLS 64
#define MOST_INPUTS (1 << 20) /* scratch holds ROWS rows of them */

/* What one thread takes from the pool: memory objects hold addresses, so they cannot be shared. */
typedef struct slot {
    _Alignas(64) atomic_int taken;
    dnnl_stream_t stream;
    heed_gemm_memory memory;
} slot;

typedef struct plan {
    heed_gemm gemm;
    uint32_t n_slots;
    slot *slot;
} plan;

static int is_bf16(const heed_linear_problem *problem)
{
    return problem->accuracy == HEED_ACCURACY_BF16 && heed_onednn_opened()->has_bf16;
}

static dnnl_status_t describe(const heed_linear_problem *problem, heed_gemm *gemm)
{
    const heed_gemm_shape shape = {.m = ROWS,
                                   .n = COLS,
                                   .k = problem->in_dim,
                                   .type = is_bf16(problem) ? dnnl_bf16 : dnnl_f32};
    return heed_gemm_describe(gemm, heed_onednn_opened()->engine, &shape);
}

/* Asks oneDNN whether it has such a product, and for the size of its scratchpad. */
static heed_status ask(const heed_linear_problem *problem, size_t *scratchpad_bytes,
                       heed_error *why)
{
    const heed_onednn_library *library = heed_onednn_opened();
    heed_gemm gemm;
    const heed_status st = heed_onednn_use(why);
    if (st != HEED_OK)
        return st;
    const int before = heed_onednn_one(&library->threads);
    const dnnl_status_t status = describe(problem, &gemm);
    *scratchpad_bytes = gemm.scratchpad_bytes;
    heed_gemm_destroy(&gemm);
    heed_onednn_many(&library->threads, before);
    return status == dnnl_success ? HEED_OK
                                  : heed_refuse(why, "oneDNN has no product of these sizes: %s",
                                                heed_dnnl_status_name(status));
}

static void plan_destroy(void *state)
{
    plan *p = state;
    if (heed_onednn_is_lost())
        return; /* in such a child nothing of it can be destroyed */
    for (uint32_t i = 0; p->slot && i < p->n_slots; i++) {
        heed_gemm_memory_destroy(&p->slot[i].memory);
        if (p->slot[i].stream)
            dnnl_stream_destroy(p->slot[i].stream);
    }
    free(p->slot);
    heed_gemm_destroy(&p->gemm);
    free(p);
}

static dnnl_status_t fill(const heed_linear_problem *problem, plan *p)
{
    const heed_onednn_library *library = heed_onednn_opened();
    dnnl_status_t status = describe(problem, &p->gemm);
    if (status == dnnl_success)
        status = heed_gemm_create(&p->gemm);
    for (uint32_t i = 0; i < p->n_slots && status == dnnl_success; i++) {
        status = dnnl_stream_create(&p->slot[i].stream, library->engine, dnnl_stream_default_flags);
        if (status == dnnl_success)
            status = heed_gemm_memory_create(&p->slot[i].memory, library->engine, &p->gemm);
    }
    return status;
}

static heed_status plan_create(const void *machine, const heed_linear_problem *problem,
                               void **state)
{
    const heed_onednn_library *library = machine;
    const heed_status st = heed_onednn_use(NULL);
    if (st != HEED_OK)
        return st;
    plan *p = calloc(1, sizeof *p);
    if (!p)
        return HEED_ERR_NOMEM;
    p->n_slots = library->n_slots;
    p->slot = aligned_alloc(64, p->n_slots * sizeof *p->slot);
    dnnl_status_t status = dnnl_out_of_memory;
    if (p->slot) {
        memset(p->slot, 0, p->n_slots * sizeof *p->slot);
        const int before = heed_onednn_one(&library->threads);
        status = fill(problem, p);
        heed_onednn_many(&library->threads, before);
    }
    if (status != dnnl_success) {
        plan_destroy(p); /* safe on a half-made one */
        return status == dnnl_out_of_memory ? HEED_ERR_NOMEM : HEED_ERR_BACKEND;
    }
    *state = p;
    return HEED_OK;
}

static heed_status supports(const void *machine, const heed_linear_problem *problem,
                            heed_error *why)
{
    size_t scratchpad_bytes;
    (void)machine;
    if (problem->in_dim > MOST_INPUTS)
        return heed_refuse(why, "its rows of %u inputs are longer than %d", problem->in_dim,
                           MOST_INPUTS);
    return ask(problem, &scratchpad_bytes, why);
}

/* In nanoseconds, as measured for attention's products. Steps of rows and columns count in full. */
static double cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    const heed_onednn_library *library = machine;
    const double steps = ceil((double)rows / ROWS) * ceil((double)problem->out_dim / COLS);
    const double slower = (double)library->slower;
    return steps * (1500 + 0.0138 * slower * ROWS * COLS * problem->in_dim) +
           (double)rows * problem->out_dim * (problem->activation == HEED_ACT_NONE ? 2 : 30);
}

static size_t element(const heed_linear_problem *problem)
{
    return is_bf16(problem) ? 2 : 4;
}

static size_t x_bytes(const heed_linear_problem *problem)
{
    return (ROWS * problem->in_dim * element(problem) + 63) / 64 * 64;
}

static size_t panel_bytes(const heed_linear_problem *problem)
{
    return COLS * problem->in_dim * element(problem);
}

static heed_status tiling(const void *machine, const heed_linear_problem *problem,
                          heed_linear_tiling *out)
{
    size_t scratchpad_bytes;
    (void)machine;
    heed_status st = ask(problem, &scratchpad_bytes, NULL);
    if (st != HEED_OK)
        return st;
    out->rows = 8 * ROWS;
    out->panel_cols = COLS;
    out->cols = 4 * COLS;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    out->panel_bytes = panel_bytes(problem);
    out->scratch_bytes =
        x_bytes(problem) + ROWS * COLS * sizeof(float) + (scratchpad_bytes + 63) / 64 * 64;
    return HEED_OK;
}

/* Stores element `at` of an array in the type that the product takes. */
static void put(int bf16, void *to, int64_t at, uint32_t type, const void *from, int64_t index)
{
    if (bf16)
        memcpy((char *)to + 2 * at, (const char *)from + 2 * index, 2);
    else
        ((float *)to)[at] = heed_load(type, from, index);
}

/* Stores one row of x in that type. */
static void put_row(int bf16, void *to, int64_t n, uint32_t type, const void *from, int64_t index,
                    int64_t stride)
{
    if (stride == 1 && type == (bf16 ? HEED_BF16 : HEED_F32)) {
        const size_t each = bf16 ? 2 : 4;
        memcpy(to, (const char *)from + index * (int64_t)each, (size_t)n * each);
        return;
    }
    for (int64_t k = 0; k < n; k++)
        put(bf16, to, k, type, from, index + k * stride);
}

static heed_status pack(const void *machine, const heed_linear_problem *problem,
                        const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                        void *panel)
{
    (void)machine;
    const int bf16 = is_bf16(problem);
    memset(panel, 0, panel_bytes(problem));
    for (int64_t i = 0; i < problem->in_dim; i++)
        for (int64_t c = col_first; c < col_end; c++)
            put(bf16, panel, i * COLS + (c - col_first), problem->w_type, weight->data,
                heed_linear_weight_at(weight, i, c));
    return HEED_OK;
}

static slot *take_slot(const plan *p)
{
    for (;;) {
        for (uint32_t i = 0; i < p->n_slots; i++) {
            int free_one = 0;
            if (atomic_load_explicit(&p->slot[i].taken, memory_order_relaxed) == 0 &&
                atomic_compare_exchange_strong(&p->slot[i].taken, &free_one, 1))
                return &p->slot[i];
        }
        sched_yield();
    }
}

static dnnl_status_t multiply(const heed_linear_problem *problem, const heed_linear_tile *tile,
                              const plan *p, const slot *with, char *scratch)
{
    float *sums = (float *)(void *)(scratch + x_bytes(problem));
    char *scratchpad = (char *)(sums + ROWS * COLS);
    const int bf16 = is_bf16(problem);
    const int64_t in_dim = problem->in_dim, cols = tile->col_end - tile->col_first;
    dnnl_status_t status = dnnl_success;
    for (int64_t r = 0; r < tile->rows && status == dnnl_success; r += ROWS) {
        const int64_t rows = tile->rows - r < ROWS ? tile->rows - r : ROWS;
        memset(scratch + (size_t)(rows * in_dim) * element(problem), 0,
               (size_t)((ROWS - rows) * in_dim) * element(problem));
        for (int64_t i = 0; i < rows; i++)
            put_row(bf16, scratch + (size_t)(i * in_dim) * element(problem), in_dim,
                    problem->x_type, tile->x.data, (r + i) * tile->x.row_stride,
                    tile->x.col_stride);
        for (int64_t c = 0; c < cols && status == dnnl_success; c += COLS) {
            const char *w = (const char *)tile->packed + (size_t)(c / COLS) * panel_bytes(problem);
            status = heed_gemm_execute(&p->gemm, with->stream, &with->memory, scratch, w, sums,
                                       scratchpad);
            for (int64_t i = 0; i < rows && status == dnnl_success; i++)
                for (int64_t j = 0; j < COLS && c + j < cols; j++)
                    heed_linear_finish(problem, tile, r + i, c + j, (double)sums[i * COLS + j]);
        }
    }
    return status;
}

static heed_status run(const void *machine, const void *state, const heed_linear_problem *problem,
                       const heed_linear_tile *tile, void *scratch)
{
    const heed_onednn_library *library = machine;
    const plan *p = state;
    if (heed_onednn_is_lost())
        return HEED_ERR_BACKEND; /* supports() says why */
    slot *taken = take_slot(p);
    int before = heed_onednn_one(&library->threads);
    dnnl_status_t status = multiply(problem, tile, p, taken, scratch);
    heed_onednn_many(&library->threads, before);
    atomic_store(&taken->taken, 0);
    return status == dnnl_success ? HEED_OK : HEED_ERR_BACKEND;
}

const heed_linear_kernel heed_onednn_linear = {
    .struct_size = sizeof heed_onednn_linear,
    .name = "products",
    .supports = supports,
    .cost = cost,
    .tiling = tiling,
    .pack = pack,
    .run = run,
    .plan_create = plan_create,
    .plan_destroy = plan_destroy,
};
