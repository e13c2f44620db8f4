/* Compares one layer of 5 inputs, 19 outputs and 3 rows with bias and residual, in the first type
 * that the kernel takes, with a plain loop in double. All inputs are exact in every type. */
#include "trial.h"

#include "base/fpenv.h"
#include "base/reason.h"
#include "linear.h"
#include "runtime/select.h"
#include "runtime/trial.h"

enum { ROWS = 3, IN = 5, OUT = 19 };

/* Small eighths, different for every index: exact in bf16. */
static float input(int which, int row, int col)
{
    return (float)((which * 7 + row * 5 + col * 3 + row * col) % 17 - 8) / 8;
}

typedef struct trial_data {
    char x[ROWS * IN * 4], w[IN * OUT * 4];
    float bias[OUT], y[ROWS * OUT];
} trial_data;

static heed_status run_tiles(const heed_kernel *kernel, const heed_linear_problem *problem,
                             const heed_linear_tiling *tiling, trial_data *data, char *packed,
                             float *bias, const void *state, void *scratch)
{
    const int64_t cols = tiling->panel_cols;
    heed_linear_weight weight = {data->w, OUT, 1, 0, OUT};
    heed_status st = HEED_OK;
    for (int64_t c = 0; c < OUT && st == HEED_OK; c += cols) {
        const int64_t end = c + cols < OUT ? c + cols : OUT;
        for (int64_t i = 0; i < cols; i++)
            bias[i] = c + i < OUT ? data->bias[c + i] : 0;
        memset(packed, 0xff, tiling->panel_bytes);
        st = kernel->linear->pack(kernel->machine, problem, &weight, c, end, packed);
        for (int64_t r = 0; r < ROWS && st == HEED_OK;) {
            int64_t n = ROWS - r < tiling->rows ? ROWS - r : tiling->rows;
            heed_matrix y = {data->y + r * OUT + c, OUT, 1};
            heed_linear_tile tile = {
                .struct_size = sizeof tile,
                .rows = n,
                .col_first = c,
                .col_end = end,
                .x = {data->x + (size_t)(r * IN) * heed_dtype_bytes(problem->x_type), IN, 1},
                .y = y,
                .residual = y,
                .packed = packed,
                .bias = bias,
            };
            heed_fpenv_flush(tiling->flush);
            st = kernel->linear->run(kernel->machine, state, problem, &tile, scratch);
            heed_fpenv_flush(0);
            r += n;
        }
    }
    return st;
}

static heed_status compare(const trial_data *data, heed_error *why)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < OUT; c++) {
            double want = (double)input(2, c, 0) + (double)input(3, r, c);
            double got = (double)data->y[r * OUT + c];
            for (int i = 0; i < IN; i++)
                want += (double)input(0, r, i) * (double)input(1, i, c);
            if (got != want) /* a few 64ths: nothing is rounded */
                return heed_refuse(why,
                                   "its known-answer trial of a linear layer gave %g where %g is "
                                   "right (row %d, column %d)",
                                   got, want, r, c);
        }
    return HEED_OK;
}

static heed_status try_problem(heed_context *context, const heed_kernel *kernel,
                               const heed_linear_problem *problem, heed_error *why)
{
    const heed_linear_kernel *k = kernel->linear;
    heed_linear_tiling tiling = {.struct_size = sizeof tiling};
    trial_data data;
    void *state = NULL;
    heed_status st = k->tiling(kernel->machine, problem, &tiling);
    const char *flaw = st == HEED_OK ? heed_linear_tiling_flaw(&tiling) : NULL;
    if (flaw)
        st = heed_refuse(why, "its known-answer trial got a tiling of a linear layer with a bad %s",
                         flaw);
    const int too_much =
        tiling.scratch_bytes > PTRDIFF_MAX / 4 || tiling.panel_bytes > PTRDIFF_MAX / 4;
    const size_t scratch = (tiling.scratch_bytes + 63) / 64 * 64, panel = tiling.panel_bytes;
    const size_t bytes = panel + scratch + tiling.panel_cols * sizeof(float) + 64;
    char *memory = st == HEED_OK && !too_much ? heed_alloc(context, bytes, 64) : NULL;
    if (st == HEED_OK && !memory)
        st = !too_much && bytes < HEED_MUCH_SCRATCH
                 ? HEED_ERR_NOMEM
                 : heed_fail(why, HEED_ERR_NOMEM, "it wants %zu bytes of scratch and %zu a panel",
                             tiling.scratch_bytes, panel);
    if (st == HEED_OK && HEED_KERNEL_HAS(k, plan_create))
        st = k->plan_create(kernel->machine, problem, &state);
    if (st == HEED_OK) {
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < IN; i++)
                heed_store(problem->x_type, data.x, r * IN + i, input(0, r, i));
        for (int i = 0; i < IN; i++)
            for (int c = 0; c < OUT; c++)
                heed_store(problem->w_type, data.w, i * OUT + c, input(1, i, c));
        for (int c = 0; c < OUT; c++)
            data.bias[c] = input(2, c, 0);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < OUT; c++)
                data.y[r * OUT + c] = input(3, r, c); /* the residual, in place */
        st = run_tiles(kernel, problem, &tiling, &data, memory,
                       (float *)(void *)(memory + panel + scratch), state, memory + panel);
        if (st == HEED_OK)
            st = compare(&data, why);
        if (state)
            k->plan_destroy(state);
    }
    if (st != HEED_OK && !why->text[0] && (memory || st != HEED_ERR_NOMEM))
        heed_refuse(why, "its known-answer trial of a linear layer returned %s",
                    heed_status_string(st));
    heed_free(context, memory, bytes);
    return st;
}

static heed_status run_trial(heed_context *context, const heed_kernel *kernel, heed_error *why)
{
    static const uint32_t type[] = {HEED_F32, HEED_BF16, HEED_F16};
    for (int i = 0; i < 3; i++) {
        heed_error refusal;
        heed_linear_problem problem = {
            .struct_size = sizeof problem,
            .features = HEED_LINEAR_HAS_BIAS | HEED_LINEAR_HAS_RESIDUAL,
            .in_dim = IN,
            .out_dim = OUT,
            .x_type = type[i],
            .w_type = type[i],
            .y_type = HEED_F32,
            .bias_type = HEED_F32,
            .accuracy = type[i] == HEED_BF16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_EXACT,
        };
        const heed_status st = kernel->linear->supports(kernel->machine, &problem, &refusal);
        if (st == HEED_OK)
            return try_problem(context, kernel, &problem, why);
        if (st == HEED_ERR_NOMEM)
            return st;
    }
    return HEED_OK; /* too special to be tried: its layers will show */
}

heed_status heed_linear_trial(heed_context *context, heed_kernel *kernel, heed_error *why)
{
    return heed_trial_once(context, kernel, run_trial, why);
}
