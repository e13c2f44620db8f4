/* Compares one problem of 2 heads, 3 rows, 5 keys and dimension 8, in the first class and type that
 * the kernel takes, with three plain loops in double. All inputs are exact in every type. */
#include "trial.h"

#include "base/fpenv.h"
#include "base/reason.h"
#include "runtime/select.h"
#include "runtime/trial.h"
#include "tiling.h"

enum { HEADS = 2, ROWS = 3, KEYS = 5, DIM = 8, ACC_STRIDE = 16 };

/* Small eighths, different for every index: exact in bf16. */
static float input(int which, int head, int row, int d)
{
    return (float)((which * 7 + head * 5 + row * 3 + d * d + row * d) % 17 - 8) / 8;
}

static double expected(int head, int row, int d, double scale)
{
    double sum = 0, out = 0;
    for (int j = 0; j < KEYS; j++) {
        double s = 0;
        for (int e = 0; e < DIM; e++)
            s += (double)input(0, head, row, e) * (double)input(1, head, j, e);
        sum += exp(s * scale);
        out += exp(s * scale) * (double)input(2, head, j, d);
    }
    return out / sum;
}

typedef struct trial_data {
    char q[HEADS * ROWS * DIM * 4], k[HEADS * KEYS * DIM * 4], v[HEADS * KEYS * DIM * 4];
    float out[HEADS * ROWS * DIM];
} trial_data;

static void fill(uint32_t type, void *to, int which, int rows)
{
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < rows; i++)
            for (int d = 0; d < DIM; d++)
                heed_store(type, to, (h * rows + i) * DIM + d, input(which, h, i, d));
}

static heed_rows rows_of(void *base, int head, int rows, uint32_t type)
{
    return (heed_rows){(char *)base + (size_t)(head * rows * DIM) * heed_dtype_bytes(type),
                       rows * DIM, DIM, 1};
}

/* Runs the tiles of one head; a tile holds at most tiling->query_rows rows. */
static heed_status run_head(const heed_kernel *kernel, void *state, const heed_problem *problem,
                            const heed_tiling *tiling, trial_data *data, int head, void *scratch)
{
    float row_max[ROWS], row_sum[ROWS];
    _Alignas(64) float acc[ROWS * ACC_STRIDE];
    heed_status st = HEED_OK;
    for (int first = 0; first < ROWS && st == HEED_OK;) {
        int n = ROWS - first < (int)tiling->query_rows ? ROWS - first : (int)tiling->query_rows;
        heed_tile tile = {
            .struct_size = sizeof tile,
            .flags = HEED_TILE_WHOLE,
            .kv_head = (uint32_t)head,
            .first_head = (uint32_t)head,
            .n_heads = 1,
            .kv_heads = 1,
            .group = 1,
            .q_first = first,
            .q_count = n,
            .q_len = ROWS,
            .k_end = KEYS,
            .kv_len = KEYS,
            .window_left = HEED_UNBOUNDED,
            .window_right = HEED_UNBOUNDED,
            .q = rows_of(data->q, head, ROWS, problem->q_type),
            .k = rows_of(data->k, head, KEYS, problem->k_type),
            .v = rows_of(data->v, head, KEYS, problem->v_type),
            .out = rows_of(data->out, head, ROWS, HEED_F32),
            .row_max = row_max,
            .row_sum = row_sum,
            .acc = acc,
            .acc_stride = ACC_STRIDE,
        };
        memset(row_max, 0xff, sizeof row_max); /* NaN, so that a kernel that writes nothing fails */
        memset(row_sum, 0xff, sizeof row_sum);
        memset(acc, 0xff, sizeof acc);
        heed_fpenv_flush(tiling->flush);
        st = kernel->attn->run(kernel->machine, state, problem, &tile, scratch);
        heed_fpenv_flush(0);
        if (st == HEED_OK && !(tile.flags & HEED_TILE_FINISHED))
            for (int r = 0; r < n; r++)
                heed_finish_row(problem, tiling->state_log2, &tile, r);
        first += n;
    }
    return st;
}

static heed_status compare(const trial_data *data, double scale, double tolerance, heed_error *why)
{
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < ROWS; i++)
            for (int d = 0; d < DIM; d++) {
                double got = (double)data->out[(h * ROWS + i) * DIM + d];
                double want = expected(h, i, d, scale);
                if (!(fabs(got - want) <= tolerance))
                    return heed_refuse(why,
                                       "its known-answer trial gave %g where %g is right (head %d, "
                                       "row %d, dim %d)",
                                       got, want, h, i, d);
            }
    return HEED_OK;
}

static heed_status try_problem(heed_context *context, const heed_kernel *kernel,
                               const heed_problem *problem, heed_error *why)
{
    const heed_attn_kernel *k = kernel->attn;
    static const float poison = NAN;
    heed_tiling tiling = {.struct_size = sizeof tiling};
    void *state = NULL, *scratch = NULL;
    trial_data *data = heed_alloc(context, sizeof *data, 64);
    heed_status st = data ? k->tiling(kernel->machine, problem, &tiling) : HEED_ERR_NOMEM;
    const char *flaw = st == HEED_OK ? heed_tiling_flaw(k, &tiling) : NULL;
    if (flaw)
        st = heed_refuse(why, "its known-answer trial got a tiling with a bad %s", flaw);
    size_t bytes = tiling.scratch_bytes ? tiling.scratch_bytes : 1;
    if (st == HEED_OK && !(scratch = heed_alloc(context, bytes, 64)))
        st = bytes < HEED_MUCH_SCRATCH
                 ? HEED_ERR_NOMEM
                 : heed_fail(why, HEED_ERR_NOMEM, "it wants %zu bytes of scratch", bytes);
    if (st == HEED_OK && HEED_KERNEL_HAS(k, plan_create)) {
        st = k->plan_create(kernel->machine, problem, &state);
        if (st == HEED_ERR_NOMEM)
            heed_fail(why, st, "it could not make a plan");
    }
    if (st == HEED_OK) {
        fill(problem->q_type, data->q, 0, ROWS);
        fill(problem->k_type, data->k, 1, KEYS);
        fill(problem->v_type, data->v, 2, KEYS);
        for (int i = 0; i < HEADS * ROWS * DIM; i++)
            data->out[i] = poison;
        for (int h = 0; h < HEADS && st == HEED_OK; h++)
            st = run_head(kernel, state, problem, &tiling, data, h, scratch);
        /* 2^-8 of bf16 products with values below 1; exact paths do far better. */
        if (st == HEED_OK)
            st = compare(data, (double)problem->scale, 0.02, why);
        if (HEED_KERNEL_HAS(k, plan_destroy))
            k->plan_destroy(state);
    }
    if (st != HEED_OK && !why->text[0] && (scratch || st != HEED_ERR_NOMEM))
        heed_refuse(why, "its known-answer trial returned %s", heed_status_string(st));
    heed_free(context, scratch, bytes);
    heed_free(context, data, sizeof *data);
    return st;
}

static heed_status run_trial(heed_context *context, const heed_kernel *kernel, heed_error *why)
{
    static const struct {
        uint32_t type, accuracy;
    } as[] = {{HEED_F32, HEED_ACCURACY_EXACT},
              {HEED_BF16, HEED_ACCURACY_BF16},
              {HEED_F16, HEED_ACCURACY_EXACT},
              {HEED_F32, HEED_ACCURACY_SPLIT}};
    static const uint32_t query_class[] = {HEED_QUERY_MANY, HEED_QUERY_FEW};
    for (int i = 0; i < 4 * 2; i++) {
        heed_error refusal;
        const uint32_t type = as[i / 2].type;
        heed_problem problem = {
            .struct_size = sizeof problem,
            .q_heads = HEADS,
            .kv_heads = HEADS,
            .qk_dim = DIM,
            .v_dim = DIM,
            .q_type = type,
            .k_type = type,
            .v_type = type,
            .out_type = HEED_F32,
            .query_class = query_class[i % 2],
            .accuracy = as[i / 2].accuracy,
            .scale = 1,
            .window_left = -1,
            .window_right = -1,
        };
        const heed_status st = kernel->attn->supports(kernel->machine, &problem, &refusal);
        if (st == HEED_OK)
            return try_problem(context, kernel, &problem, why);
        if (st == HEED_ERR_NOMEM)
            return st;
    }
    return HEED_OK; /* too special to be tried: its problems will show */
}

heed_status heed_trial(heed_context *context, heed_kernel *kernel, heed_error *why)
{
    return heed_trial_once(context, kernel, run_trial, why);
}
