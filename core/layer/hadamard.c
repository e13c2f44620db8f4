/* heed_hadamard: the orthonormal Walsh-Hadamard transform of groups of a row's elements. */
#include "hadamard.h"

#include "base/fpenv.h"
#include "base/reason.h"
#include "base/rows.h"

heed_status heed_hadamard_check_group(const char *name, uint32_t group, const char *dim_name,
                                      uint32_t dim, heed_error *why)
{
    if (group == 0 || group > HEED_HADAMARD_MOST || (group & (group - 1)))
        INVALID("args.%s is %u, a power of two up to %d is required", name, group,
                HEED_HADAMARD_MOST);
    if (dim % group)
        INVALID("args.%s is %u, a multiple of args.%s = %u is required", dim_name, dim, name,
                group);
    return HEED_OK;
}

/* a + b and a - b of n elements each, a multiple of 4; by copies, so that a compiler sees four that it may
 * take together. */
static void add_and_subtract(float *a, float *b, size_t n)
{
    for (size_t j = 0; j < n; j += 4) {
        float x[4], y[4], sum[4], difference[4];
        memcpy(x, a + j, sizeof x);
        memcpy(y, b + j, sizeof y);
        for (int k = 0; k < 4; k++) {
            sum[k] = x[k] + y[k];
            difference[k] = x[k] - y[k];
        }
        memcpy(a + j, sum, sizeof sum);
        memcpy(b + j, difference, sizeof difference);
    }
}

/* The factors of the matrix for elements 1 and 2 apart. */
static void first_factors(float *x, size_t group)
{
    for (size_t i = 0; i < group; i += 4) {
        const float a = x[i] + x[i + 1], b = x[i] - x[i + 1];
        const float c = x[i + 2] + x[i + 3], d = x[i + 2] - x[i + 3];
        x[i] = a + c;
        x[i + 1] = b + d;
        x[i + 2] = a - c;
        x[i + 3] = b - d;
    }
}

/* Sums and differences of elements h apart, h = 1, 2, 4, ...: the factors of the matrix. */
void heed_hadamard_groups(float *x, int64_t n, uint32_t group)
{
    const float factor = (float)(1 / sqrt((double)group));
    for (float *g = x; g < x + n; g += group) {
        if (group == 2) {
            const float a = g[0], b = g[1];
            g[0] = a + b;
            g[1] = a - b;
        } else if (group > 2) {
            first_factors(g, group);
        }
        for (size_t h = 4; h < group; h *= 2)
            for (size_t i = 0; i < group; i += 2 * h)
                add_and_subtract(g + i, g + i + h, h);
        for (uint32_t i = 0; i < group; i++)
            g[i] *= factor;
    }
}

static heed_status check(const heed_hadamard_args *a, heed_error *why)
{
    const int64_t shape[] = {a->batch, a->heads, a->len, a->dim};
    const heed_number size[] = {{"args.batch", a->batch, 0, INT32_MAX},
                                {"args.heads", a->heads, 1, 1 << 20},
                                {"args.len", a->len, 0, INT32_MAX},
                                {"args.dim", a->dim, 1, 1 << 20}};
    heed_status st = heed_check_numbers(size, 4, why);
    if (st == HEED_OK && a->reserved)
        INVALID("args.reserved is %u, 0 is required", a->reserved);
    if (st == HEED_OK)
        st = heed_hadamard_check_group("group", a->group, "dim", a->dim, why);
    if (st == HEED_OK)
        st = heed_check_type("x_type", a->x_type, why);
    if (st == HEED_OK)
        st = heed_check_type("y_type", a->y_type, why);
    if (st == HEED_OK)
        st = heed_check_view("x", a->x.data, a->x.stride, heed_dtype_bytes(a->x_type), 0, shape,
                             why);
    if (st == HEED_OK)
        st = heed_check_view("y", a->y.data, a->y.stride, heed_dtype_bytes(a->y_type), 1, shape,
                             why);
    if (st == HEED_OK)
        st = heed_check_in_place(&a->x, a->x_type, &a->y, a->y_type, shape, why);
    return st;
}

static void transform(const heed_hadamard_args *a)
{
    float x[HEED_HADAMARD_MOST];
    for (int64_t b = 0; a->len && b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->len; i++)
                for (int64_t d = 0; d < a->dim; d += HEED_HADAMARD_MOST) {
                    const int64_t left = a->dim - d;
                    const int64_t n = left < HEED_HADAMARD_MOST ? left : HEED_HADAMARD_MOST;
                    const int64_t at = b * a->x.stride[0] + h * a->x.stride[1] +
                                       i * a->x.stride[2] + d * a->x.stride[3];
                    heed_convert(&(heed_elements){a->x_type, a->x.data, at, a->x.stride[3]},
                                 HEED_F32, x, 0, 1, n);
                    heed_hadamard_groups(x, n, a->group);
                    heed_convert(&(heed_elements){HEED_F32, x, 0, 1}, a->y_type, a->y.data,
                                 b * a->y.stride[0] + h * a->y.stride[1] + i * a->y.stride[2] +
                                     d * a->y.stride[3],
                                 a->y.stride[3], n);
                }
}

HEED_CHECK_ARGS_ERROR(heed_hadamard_args);
heed_status heed_hadamard(const heed_hadamard_args *args)
{
    heed_hadamard_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK)
        st = check(&a, &why);
    if (st != HEED_OK)
        return heed_report_call(args, st, &why);
    heed_fpenv saved = heed_fpenv_enter();
    transform(&a);
    heed_fpenv_leave(saved);
    return HEED_OK;
}
