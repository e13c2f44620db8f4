/* Packing of a layer's weights: panels, taken one by one by as many threads as a run would have. */
#include "base/checked.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "linear.h"
#include "runtime/parallel.h"

/* A job of packing, shared by its parts. */
typedef struct packing {
    const heed_linear *linear;
    heed_linear_weight weight;
    atomic_llong next; /* the next panel to take */
    atomic_int status; /* the first error; no further panel is taken then */
} packing;

/* The weights as backends see them: inputs are rows and outputs columns, whatever the layout. */
static heed_linear_weight weight_of(const heed_linear_desc *desc, const heed_const_view *view)
{
    const int per_head = desc->heads > 1, transposed = desc->layout == HEED_LINEAR_OUT_IN;
    const int64_t *stride = view->stride + per_head;
    return (heed_linear_weight){
        .data = view->data,
        .in_stride = stride[transposed],
        .out_stride = stride[!transposed],
        .head_stride = per_head ? view->stride[0] : 0,
        .head_cols = per_head ? desc->out_dim / desc->heads : desc->out_dim,
    };
}

/* One part: takes panels until none is left. */
static void take_panels(void *arg, uint32_t part)
{
    packing *p = arg;
    const heed_linear *l = p->linear;
    const int64_t cols = l->tiling.panel_cols;
    const heed_fpenv saved = heed_fpenv_enter();
    (void)part;
    while (atomic_load(&p->status) == HEED_OK) {
        const int64_t n = atomic_fetch_add(&p->next, 1);
        if (n >= l->panels)
            break;
        heed_status st =
            l->kernel->linear->pack(l->kernel->machine, &l->problem, &p->weight, n * cols,
                                    heed_min64((n + 1) * cols, l->problem.out_dim),
                                    l->packed + (size_t)n * l->tiling.panel_bytes);
        int none = HEED_OK;
        if (st != HEED_OK)
            atomic_compare_exchange_strong(&p->status, &none, (int)st);
    }
    heed_fpenv_leave(saved);
}

/* As many parts as the panels are worth. A core packs 2 to 2.5 bytes a nanosecond (Zen 4). */
static uint32_t parts_of(const heed_linear *l, const heed_executor *executor)
{
    const heed_fpenv saved = heed_fpenv_enter(); /* a host may let inexact results trap */
    const uint32_t n =
        heed_parts_worth(0.5 * (double)l->bytes, heed_serial_limit(l->context, executor), l->panels,
                         heed_threads_for(l->context, executor));
    heed_fpenv_leave(saved);
    return n;
}

heed_status heed_linear_pack(heed_linear *l, const heed_linear_desc *desc,
                             const heed_const_view *weight, const heed_const_view *bias,
                             heed_error *why)
{
    packing p = {.linear = l, .weight = weight_of(desc, weight)};
    const heed_executor *executor = l->context->user.executor;
    atomic_init(&p.next, 0);
    atomic_init(&p.status, HEED_OK);
    heed_parallel(executor, parts_of(l, executor), take_panels, &p);
    const heed_status st = (heed_status)atomic_load(&p.status);
    if (st != HEED_OK)
        return heed_fail(why, st == HEED_ERR_NOMEM ? st : HEED_ERR_BACKEND,
                         "backend %s could not pack weights: %s", l->kernel->of->name,
                         heed_status_string(st));
    if (atomic_load(&p.next) < l->panels)
        INVALID("executor.parallel_for ran nothing of what packs weights");
    if (l->bias) {
        const int64_t cols = l->tiling.panel_cols;
        float *to = (float *)(void *)(l->packed + l->panels * l->tiling.panel_bytes);
        for (int64_t c = 0; c < l->panels * cols; c++)
            to[c] = c < l->problem.out_dim
                        ? heed_load(desc->bias_type, bias->data, c * bias->stride[0])
                        : 0;
    }
    return HEED_OK;
}
