/* heed_merge and heed_merge_parts: they merge finished results over disjoint keys into one. */
#include "merge.h"

#include "base/fpenv.h"
#include "base/reason.h"
#include "base/rows.h"

/* ---- the mathematics --------------------------------------------------------------------------
 */

/* Dims that are summed at once: all parts are read for so many dims before any of
 * these is written. */
enum { DIMS = 256 };

static int64_t place(const int64_t stride[4], int64_t row, int64_t head, int64_t d)
{
    return stride[0] * row + stride[1] * head + stride[2] * d;
}

static double lse_of(const heed_merging *m, uint32_t part, int64_t row, int64_t head)
{
    const heed_const_view *v = &m->lses[part];
    return (double)heed_load(HEED_F32, v->data, place(v->stride, row, head + m->skip, 0));
}

/* A sum of exp over the parts' lse and the sink, as sum * exp(top). */
typedef struct exp_sum {
    double top, sum;
} exp_sum;

/* top is the greatest term. A single one stays exactly as it is. */
static exp_sum exp_sum_of(const heed_merging *m, int64_t row, int64_t head)
{
    const double none = -(double)INFINITY;
    const double sink = m->sink ? (double)m->sink[head] : none;
    double top = none, sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_parts; i++) {
        const double lse = lse_of(m, i, row, head);
        if (lse != none && (n++ == 0 || lse > top)) /* a NaN must stay: it does, in the sum */
            top = lse;
    }
    if (sink != none && (n++ == 0 || sink > top))
        top = sink;
    if (n <= 1)
        return (exp_sum){top, 1};
    for (uint32_t i = 0; i < m->n_parts; i++) {
        const double lse = lse_of(m, i, row, head);
        sum += lse == none ? 0 : exp(lse - top);
    }
    sum += sink == none ? 0 : exp(sink - top);
    return (exp_sum){top, sum};
}

static void write_dims(const heed_merging *m, int64_t at, int64_t n, const double *sum)
{
    const int64_t stride = m->out.stride[2];
    void *data = m->out.data;
    float x[DIMS];
    if (m->out_type == HEED_F32 && stride == 1) {
        for (int64_t d = 0; d < n; d++) /* a constant type, so that the compiler vectorizes it */
            heed_store_f64(HEED_F32, data, at + d, sum[d]);
        return;
    }
    for (int64_t d = 0; d < n; d++)
        x[d] = m->out_type == HEED_F32 ? (float)sum[d] : heed_odd_f32(sum[d]);
    heed_convert(&(heed_elements){HEED_F32, x, 0, 1}, m->out_type, data, at, stride, n);
}

/* Reads every operand of a row and head before it writes, so that out may be one of the parts. */
static void merge_row(const heed_merging *m, int64_t row, int64_t head)
{
    const double none = -(double)INFINITY;
    const exp_sum total = exp_sum_of(m, row, head);
    for (int64_t first = 0; first < m->dim; first += DIMS) {
        const int64_t n = m->dim - first < DIMS ? m->dim - first : DIMS;
        double sum[DIMS];
        float x[DIMS];
        for (int64_t d = 0; d < n; d++)
            sum[d] = 0;
        for (uint32_t i = 0; i < m->n_parts; i++) {
            const double lse = lse_of(m, i, row, head);
            if (lse == none)
                continue;
            /* not exp(lse - their ln): beside a huge top the ln of sum would be rounded away */
            const double weight = exp(lse - total.top) / total.sum;
            const heed_const_view *part = &m->parts[i];
            const int64_t at = place(part->stride, row, head + m->skip, first);
            heed_convert(&(heed_elements){HEED_F32, part->data, at, part->stride[2]}, HEED_F32, x,
                         0, 1, n);
            for (int64_t d = 0; d < n; d++)
                sum[d] += weight * (double)x[d];
        }
        write_dims(m, place(m->out.stride, row, head, first), n, sum);
    }
    if (m->lse.data)
        heed_store(HEED_F32, m->lse.data, place(m->lse.stride, row, head, 0),
                   (float)(total.top + log(total.sum)));
}

void heed_merge_rows(const heed_merging *m, int64_t first, int64_t end)
{
    for (int64_t row = first; row < end; row++)
        for (int64_t head = 0; head < m->heads; head++)
            merge_row(m, row, head);
}

void heed_merge_heads(const heed_merging *m, int64_t first, int64_t end)
{
    for (int64_t n = first; n < end; n++)
        merge_row(m, n / m->heads, n % m->heads);
}

/* ---- checks -----------------------------------------------------------------------------------
 */

/* A view that takes part in a merge, with its name in sentences. */
typedef struct operand {
    char name[24];
    const void *data;
    const int64_t *stride;
} operand;

/* In heed_merge (of_two) the parts are called a and b. */
static operand part_of(const heed_merging *m, int of_two, uint32_t i, int is_lse)
{
    const heed_const_view *v = is_lse ? &m->lses[i] : &m->parts[i];
    operand o = {"", v->data, v->stride};
    if (of_two)
        snprintf(o.name, sizeof o.name, "%s%s", i ? "b" : "a", is_lse ? "_lse" : "");
    else
        snprintf(o.name, sizeof o.name, "%s[%u]", is_lse ? "lses" : "parts", i);
    return o;
}

static operand output_of(const heed_merging *m, int is_lse)
{
    return is_lse ? (operand){"lse", m->lse.data, m->lse.stride}
                  : (operand){"out", m->out.data, m->out.stride};
}

/* An output that begins where another operand does has to be the same elements, by its strides on
 * the first `axes` axes. 0 axes: these two may never be the same. */
static heed_status check_twin(const heed_merging *m, operand to, operand from, int axes,
                              heed_error *why)
{
    const int64_t shape[] = {m->rows, m->heads, m->dim};
    int same = axes > 0;
    if (!to.data || to.data != from.data)
        return HEED_OK;
    for (int n = 0; n < axes; n++)
        same &= shape[n] <= 1 || to.stride[n] == from.stride[n];
    return same ? HEED_OK
                : heed_fail(why, HEED_ERR_INVALID,
                            "args.%s.data equals args.%s.data, but they are not the same elements",
                            to.name, from.name);
}

static heed_status check_twins(const heed_merging *m, int of_two, heed_error *why)
{
    const operand out = output_of(m, 0), lse = output_of(m, 1);
    const int axes = m->out_type == HEED_F32 ? 3 : 0;
    const int has_dims = m->dim > 0; /* without, parts and out have no elements to share */
    heed_status st = HEED_OK;
    for (uint32_t i = 0; i < m->n_parts && st == HEED_OK; i++) {
        const operand part = part_of(m, of_two, i, 0), part_lse = part_of(m, of_two, i, 1);
        if (has_dims)
            st = check_twin(m, out, part, axes, why);
        if (st == HEED_OK && has_dims)
            st = check_twin(m, out, part_lse, 0, why);
        if (st == HEED_OK)
            st = check_twin(m, lse, part_lse, 2, why);
        if (st == HEED_OK && has_dims)
            st = check_twin(m, lse, part, 0, why);
    }
    return st == HEED_OK && has_dims ? check_twin(m, lse, out, 0, why) : st;
}

static heed_status check_view(const heed_merging *m, operand v, int64_t dim, uint32_t type,
                              int is_output, heed_error *why)
{
    static const char *const name[] = {"rows", "heads", "dim"};
    const int64_t shape[] = {m->rows, m->heads, dim};
    if (dim == 0)
        return HEED_OK;
    if (!v.data)
        INVALID("args.%s is NULL, but required", v.name);
    if (!heed_strides_reach(v.stride, 3, shape, heed_dtype_bytes(type)))
        INVALID("args.%s has strides %lld, %lld, %lld that reach beyond the address space", v.name,
                (long long)v.stride[0], (long long)v.stride[1], (long long)v.stride[2]);
    for (int n = 0; n < 3 && is_output; n++)
        if (shape[n] > 1 && v.stride[n] == 0)
            INVALID("args.%s.stride[%d] is 0 for %lld %s: outputs cannot broadcast", v.name, n,
                    (long long)shape[n], name[n]);
    return HEED_OK;
}

static heed_status check(const heed_merging *m, int of_two, heed_error *why)
{
    const struct {
        const char *name;
        int64_t value;
    } size[] = {{"rows", m->rows}, {"heads", m->heads}, {"dim", m->dim}};
    heed_status st = HEED_OK;
    for (int i = 0; i < 3; i++)
        if (size[i].value < 0)
            INVALID("args.%s is %lld, at least 0 is required", size[i].name,
                    (long long)size[i].value);
    st = heed_check_type("out_type", m->out_type, why);
    if (st != HEED_OK || m->rows == 0 || m->heads == 0)
        return st;
    if (m->n_parts && (!m->parts || !m->lses))
        INVALID("args.%s is NULL, but required", m->parts ? "lses" : "parts");
    for (uint32_t i = 0; i < m->n_parts && st == HEED_OK; i++)
        st = check_view(m, part_of(m, of_two, i, 1), 1, HEED_F32, 0, why);
    for (uint32_t i = 0; i < m->n_parts && st == HEED_OK; i++)
        st = check_view(m, part_of(m, of_two, i, 0), m->dim, HEED_F32, 0, why);
    if (st == HEED_OK)
        st = check_view(m, output_of(m, 0), m->dim, m->out_type, 1, why);
    if (st == HEED_OK && m->lse.data)
        st = check_view(m, output_of(m, 1), 1, HEED_F32, 1, why);
    return st == HEED_OK ? check_twins(m, of_two, why) : st;
}

/* ---- the calls --------------------------------------------------------------------------------
 */

static heed_status merge_all(const heed_merging *m, int of_two, heed_error *why)
{
    heed_status st = check(m, of_two, why);
    if (st != HEED_OK || m->heads == 0 || (m->dim == 0 && !m->lse.data))
        return st; /* however many rows: nothing is written */
    heed_fpenv saved = heed_fpenv_enter();
    heed_merge_rows(m, 0, m->rows);
    heed_fpenv_leave(saved);
    return HEED_OK;
}

HEED_CHECK_ARGS_ERROR(heed_merge_args);
heed_status heed_merge(const heed_merge_args *args)
{
    heed_merge_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK && a.reserved)
        st = heed_fail(&why, HEED_ERR_INVALID, "args.reserved is %u, 0 is required", a.reserved);
    if (st == HEED_OK) {
        const heed_const_view parts[] = {a.a, a.b}, lses[] = {a.a_lse, a.b_lse};
        const heed_merging m = {.rows = a.rows,
                                .heads = a.heads,
                                .dim = a.dim,
                                .n_parts = 2,
                                .out_type = a.out_type,
                                .parts = parts,
                                .lses = lses,
                                .out = a.out,
                                .lse = a.lse};
        st = merge_all(&m, 1, &why);
    }
    return heed_report_call(args, st, &why);
}

HEED_CHECK_ARGS_ERROR(heed_merge_parts_args);
heed_status heed_merge_parts(const heed_merge_parts_args *args)
{
    heed_merge_parts_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK) {
        const heed_merging m = {.rows = a.rows,
                                .heads = a.heads,
                                .dim = a.dim,
                                .n_parts = a.n_parts,
                                .out_type = a.out_type,
                                .parts = a.parts,
                                .lses = a.lses,
                                .sink = a.sink,
                                .out = a.out,
                                .lse = a.lse};
        st = merge_all(&m, 0, &why);
    }
    return heed_report_call(args, st, &why);
}
