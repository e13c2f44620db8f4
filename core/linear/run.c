/* A run of a linear layer: its tiles, and a part's loop over them. */
#include "base/checked.h"
#include "base/compiler.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "linear.h"
#include "runtime/parallel.h"

/* Tiles that each part should find, so that none waits long for the last one. */
#define TILES_PER_PART 3
#define STEP 8
#define FEW_ROWS 16 /* tiles are not cut to fewer: each weight that is loaded serves all rows */

static size_t run_bytes(void)
{
    return (sizeof(heed_linear_run_state) + HEED_CACHE_LINES - 1) / HEED_CACHE_LINES *
           HEED_CACHE_LINES;
}

size_t heed_linear_workspace_bytes(const heed_linear *linear, uint32_t n_parts)
{
    size_t bytes;
    if (!linear || n_parts == 0 || heed_mul_size(n_parts, linear->part_bytes, &bytes) ||
        heed_add_size(bytes, run_bytes(), &bytes) || bytes > PTRDIFF_MAX)
        return 0;
    return bytes;
}

uint32_t heed_linear_workspace_parts(const void *of, size_t bytes, uint32_t limit)
{
    const heed_linear *linear = of;
    if (bytes < run_bytes())
        return 0;
    size_t n = (bytes - run_bytes()) / linear->part_bytes;
    return n < limit ? (uint32_t)n : limit;
}

/* Cuts the outputs into tiles: as large as the kernel likes them, or smaller if that makes too few for the
 * parts. Their number is a multiple of the parts where that can be, and they are of about the same size: with
 * two parts, a narrow last tile left one of them without work for a tenth of a product of few rows. */
static void cut(heed_linear_run_state *run)
{
    const heed_linear *l = run->linear;
    const int64_t parts =
        heed_parts_worth(run->head.estimate, HEED_SERIAL_NANOSECONDS, INT64_MAX, run->head.n_parts);
    const int64_t rows = run->args.rows, wanted = parts > 1 ? parts * TILES_PER_PART : 1;
    const int64_t least = heed_ceil_div(l->panels, l->tiling.cols / l->tiling.panel_cols);
    /* All row tiles get about the same size, a multiple of the rows that kernels hold
     * in registers. */
    run->tile_rows =
        heed_ceil_div(heed_max64(1, rows), heed_ceil_div(rows, l->tiling.rows) + !rows);
    run->tile_rows = heed_min64(heed_ceil_div(run->tile_rows, STEP) * STEP, l->tiling.rows);
    for (;; run->tile_rows = (run->tile_rows + 1) / 2) {
        run->row_tiles = heed_ceil_div(rows, run->tile_rows);
        run->col_tiles = heed_ceil_div(wanted, heed_max64(1, run->row_tiles));
        run->col_tiles = heed_max64(least, heed_min64(run->col_tiles, l->panels));
        if (run->row_tiles * run->col_tiles >= wanted || run->tile_rows < 2 * FEW_ROWS)
            break;
    }
    while (run->row_tiles * run->col_tiles % parts && run->col_tiles < l->panels)
        run->col_tiles++;
    run->head.n_tiles = run->row_tiles * run->col_tiles;
}

heed_status heed_linear_schedule(const void *of, const void *args, uint32_t n_parts,
                                 void *workspace, heed_error *why)
{
    const heed_linear *linear = of;
    heed_linear_run_state *run = workspace;
    heed_status st = heed_read_struct("args", args, sizeof run->args, &run->args, why);
    if (st == HEED_OK)
        st = heed_linear_validate_args(linear, &run->args, why);
    if (st != HEED_OK)
        return st;
    run->linear = linear;
    run->head.n_parts = n_parts;
    run->parts = (char *)workspace + run_bytes();
    run->head.estimate =
        linear->kernel->linear->cost(linear->kernel->machine, &linear->problem, run->args.rows);
    cut(run);
    atomic_init(&run->next_tile, 0);
    return HEED_OK;
}

/* ---- parts ------------------------------------------------------------------------------------
 */

/* A run of one part counts without the bus lock. */
static int64_t take_tile(heed_linear_run_state *run)
{
    if (run->head.n_parts > 1)
        return atomic_fetch_add_explicit(&run->next_tile, 1, memory_order_relaxed);
    int64_t tile = atomic_load_explicit(&run->next_tile, memory_order_relaxed);
    atomic_store_explicit(&run->next_tile, tile + 1, memory_order_relaxed);
    return tile;
}

/* The rows and columns from (row, col) on. The const of inputs is cast away:
 * kernels only read them. */
static heed_matrix matrix_at(const void *data, const int64_t *stride, uint32_t type, int64_t row,
                             int64_t col)
{
    const int64_t at = row * stride[0] + col * stride[1];
    return (heed_matrix){data ? (char *)data + at * (int64_t)heed_dtype_bytes(type) : NULL,
                         stride[0], stride[1]};
}

/* Consecutive tiles go down the rows of one column tile, whose weights stay in a
 * cache meanwhile. */
static void set_tile(const heed_linear_run_state *run, int64_t n, heed_linear_tile *tile)
{
    const heed_linear_args *a = &run->args;
    const heed_linear *l = run->linear;
    const heed_linear_problem *p = &l->problem;
    const int64_t column = heed_divide(n, run->row_tiles);
    const int64_t row = (n - column * run->row_tiles) * run->tile_rows;
    /* the first of them have one panel more */
    const int64_t each = heed_divide(l->panels, run->col_tiles);
    const int64_t wider = l->panels - each * run->col_tiles;
    const int64_t panel = column * each + heed_min64(column, wider);
    const int64_t end = panel + each + (column < wider);
    tile->rows = heed_min64(run->tile_rows, run->args.rows - row);
    tile->col_first = panel * l->tiling.panel_cols;
    tile->col_end = heed_min64(end * l->tiling.panel_cols, p->out_dim);
    tile->x = matrix_at(a->x.data, a->x.stride, p->x_type, row, 0);
    tile->y = matrix_at(a->y.data, a->y.stride, p->y_type, row, tile->col_first);
    tile->residual =
        matrix_at(a->residual.data, a->residual.stride, p->y_type, row, tile->col_first);
    tile->packed = l->packed + (size_t)panel * l->tiling.panel_bytes;
    tile->bias = l->bias ? l->bias + tile->col_first : NULL;
}

/* A backend that has come to refuse the problem since the layer was made gives its reason, which
 * goes into the sentence. */
static void record_error(heed_linear_run_state *run, const heed_linear_tile *tile, heed_status st)
{
    const heed_linear *l = run->linear;
    heed_error now = {""};
    if (!heed_run_claims_error(&run->head))
        return;
    if (l->kernel->linear->supports(l->kernel->machine, &l->problem, &now) == HEED_OK)
        now.text[0] = 0;
    heed_fail(
        &run->head.error, HEED_ERR_BACKEND,
        "backend %s returned %s on %lld rows and columns [%lld, %lld) of a linear layer%s%.120s",
        l->kernel->of->name, heed_status_string(st), (long long)tile->rows,
        (long long)tile->col_first, (long long)tile->col_end, now.text[0] ? ": " : "", now.text);
    heed_run_failed(&run->head, HEED_ERR_BACKEND);
}

void heed_linear_take(heed_run_head *head, uint32_t part)
{
    heed_linear_run_state *run = (heed_linear_run_state *)(void *)head; /* its first member */
    const heed_linear *l = run->linear;
    const heed_linear_kernel *kernel = l->kernel->linear;
    heed_linear_tile tile = {.struct_size = sizeof tile};
    int64_t n = take_tile(run);
    if (n < run->head.n_tiles) {
        if (l->tiling.flush)
            heed_fpenv_flush(l->tiling.flush);
        for (; n < run->head.n_tiles; n = take_tile(run)) {
            if (!heed_run_goes_on(head))
                break;
            set_tile(run, n, &tile);
            heed_status st = kernel->run(l->kernel->machine, l->state, &l->problem, &tile,
                                         run->parts + part * l->part_bytes);
            if (st != HEED_OK) {
                record_error(run, &tile, st);
                break;
            }
        }
    }
}
