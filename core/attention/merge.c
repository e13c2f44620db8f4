/* heed_merge: two finished results over disjoint keys into one. */
#include "base/fpenv.h"
#include "base/reason.h"
#include "base/rows.h"

/* Reads every operand of a row and head before it writes, so that out may be a or b. */
static void merge_row(const heed_merge_args *m, int64_t row, int64_t head)
{
#define AT(view, d) ((view).stride[0] * row + (view).stride[1] * head + (view).stride[2] * (d))
    const double none = -(double)INFINITY;
    double a = (double)heed_load(HEED_F32, m->a_lse.data, AT(m->a_lse, 0));
    double b = (double)heed_load(HEED_F32, m->b_lse.data, AT(m->b_lse, 0));
    double top = b > a ? b : a; /* a NaN in either must stay: it does, in the sum */
    double lse = a == none ? b : b == none ? a : top + log(exp(a - top) + exp(b - top));
    double a_weight = a == none ? 0 : exp(a - lse), b_weight = b == none ? 0 : exp(b - lse);
    for (int64_t d = 0; d < m->dim; d++) {
        double sum = 0;
        if (a != none)
            sum += a_weight * (double)heed_load(HEED_F32, m->a.data, AT(m->a, d));
        if (b != none)
            sum += b_weight * (double)heed_load(HEED_F32, m->b.data, AT(m->b, d));
        heed_store_f64(m->out_type, m->out.data, AT(m->out, d), sum);
    }
    if (m->lse.data)
        heed_store(HEED_F32, m->lse.data, AT(m->lse, 0), (float)lse);
#undef AT
}

typedef struct operand {
    const char *name;
    const void *data;
    const int64_t *stride;
} operand;

/* clang-format off */
#define OPERAND(of) {#of, m->of.data, m->of.stride}
/* clang-format on */

/* Where an output begins where another operand does, it has to be that one, element for element. */
static heed_status check_twins(const heed_merge_args *m, heed_error *why)
{
    const int f32 = m->out_type == HEED_F32;
    const int64_t shape[] = {m->rows, m->heads, m->dim};
    const struct {
        operand to, from;
        int axes; /* that the two have; 0: they are nothing that can be one */
    } pair[] = {
        {OPERAND(out), OPERAND(a), f32 ? 3 : 0}, {OPERAND(out), OPERAND(b), f32 ? 3 : 0},
        {OPERAND(out), OPERAND(a_lse), 0},       {OPERAND(out), OPERAND(b_lse), 0},
        {OPERAND(lse), OPERAND(a_lse), 2},       {OPERAND(lse), OPERAND(b_lse), 2},
        {OPERAND(lse), OPERAND(a), 0},           {OPERAND(lse), OPERAND(b), 0},
        {OPERAND(lse), OPERAND(out), 0},
    };
    if (m->dim == 0) /* no elements of a, b and out */
        return HEED_OK;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        int same = pair[i].axes > 0;
        if (!pair[i].to.data || pair[i].to.data != pair[i].from.data)
            continue;
        for (int n = 0; n < pair[i].axes; n++)
            same &= shape[n] <= 1 || pair[i].to.stride[n] == pair[i].from.stride[n];
        if (!same)
            return heed_fail(why, HEED_ERR_INVALID,
                             "args.%s.data equals args.%s.data, but they are not the same elements",
                             pair[i].to.name, pair[i].from.name);
    }
    return HEED_OK;
}

static heed_status check(const heed_merge_args *m, heed_error *why)
{
    const struct {
        const char *name;
        int64_t value;
    } size[] = {{"rows", m->rows}, {"heads", m->heads}, {"dim", m->dim}};
    for (int i = 0; i < 3; i++)
        if (size[i].value < 0)
            return heed_fail(why, HEED_ERR_INVALID, "args.%s is %lld, at least 0 is required",
                             size[i].name, (long long)size[i].value);
    if (m->out_type < HEED_F32 || m->out_type > HEED_BF16)
        return heed_fail(why, HEED_ERR_INVALID,
                         "args.out_type is %u, HEED_F32, HEED_F16 or HEED_BF16 is required",
                         m->out_type);
    if (m->reserved)
        return heed_fail(why, HEED_ERR_INVALID, "args.reserved is %u, 0 is required", m->reserved);
    if (m->rows == 0 || m->heads == 0)
        return HEED_OK;
    const struct {
        operand of;
        int64_t dim;
        uint32_t type;
        int is_output, optional;
    } views[] = {{OPERAND(a_lse), 1, HEED_F32, 0, 0},       {OPERAND(b_lse), 1, HEED_F32, 0, 0},
                 {OPERAND(a), m->dim, HEED_F32, 0, 0},      {OPERAND(b), m->dim, HEED_F32, 0, 0},
                 {OPERAND(out), m->dim, m->out_type, 1, 0}, {OPERAND(lse), 1, HEED_F32, 1, 1}};
    for (int i = 0; i < 6; i++) {
        const operand *v = &views[i].of;
        const int64_t shape[] = {m->rows, m->heads, views[i].dim};
        if (views[i].dim == 0 || (views[i].optional && !v->data))
            continue;
        if (!v->data)
            return heed_fail(why, HEED_ERR_INVALID, "args.%s is NULL, but required", v->name);
        if (!heed_strides_reach(v->stride, 3, shape, heed_dtype_bytes(views[i].type)))
            return heed_fail(
                why, HEED_ERR_INVALID,
                "args.%s has strides %lld, %lld, %lld that reach beyond the address space", v->name,
                (long long)v->stride[0], (long long)v->stride[1], (long long)v->stride[2]);
        for (int n = 0; n < 3 && views[i].is_output; n++)
            if (shape[n] > 1 && v->stride[n] == 0)
                return heed_fail(why, HEED_ERR_INVALID,
                                 "args.%s.stride[%d] is 0 for %lld %s: outputs cannot broadcast",
                                 v->name, n, (long long)shape[n], size[n].name);
    }
    return check_twins(m, why);
}

HEED_CHECK_ARGS_ERROR(heed_merge_args);
heed_status heed_merge(const heed_merge_args *args)
{
    heed_merge_args m;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof m, &m, &why);
    if (st == HEED_OK)
        st = check(&m, &why);
    if (st != HEED_OK)
        return heed_report_call(args, st, &why);
    heed_fpenv saved = heed_fpenv_enter();
    for (int64_t row = 0; row < m.rows; row++)
        for (int64_t head = 0; head < m.heads; head++)
            merge_row(&m, row, head);
    heed_fpenv_leave(saved);
    return HEED_OK;
}
