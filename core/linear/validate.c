/* Checks what a caller of linear layers gives. Each failure names the argument, its value
 * and the condition. */
#include "base/reason.h"
#include "base/rows.h"
#include "linear.h"

#define MAX_DIM (1u << 24)
#define KNOWN_FEATURES (HEED_LINEAR_HAS_BIAS | HEED_LINEAR_HAS_RESIDUAL)

static heed_status check_type(const char *name, uint32_t type, heed_error *why)
{
    if (type >= HEED_I8 && type <= HEED_IQ4_NL)
        return heed_refuse(why, "desc.%s is %s, which is reserved and not served yet", name,
                           heed_dtype_name(type));
    if (type < HEED_F32 || type > HEED_BF16)
        INVALID("desc.%s is %u, HEED_F32, HEED_F16 or HEED_BF16 is required", name, type);
    return HEED_OK;
}

static heed_status check_types(const heed_linear_desc *desc, heed_error *why)
{
    const int has_bias = (desc->features & HEED_LINEAR_HAS_BIAS) != 0;
    heed_status st = check_type("x_type", desc->x_type, why);
    if (st == HEED_OK)
        st = check_type("w_type", desc->w_type, why);
    if (st == HEED_OK)
        st = check_type("y_type", desc->y_type, why);
    if (st == HEED_OK && has_bias)
        st = check_type("bias_type", desc->bias_type, why);
    if (st == HEED_OK && !has_bias && desc->bias_type != HEED_DTYPE_NONE)
        INVALID("desc.bias_type is %u without HEED_LINEAR_HAS_BIAS", desc->bias_type);
    return st;
}

heed_status heed_linear_validate_desc(const heed_linear_desc *desc, heed_linear_problem *problem,
                                      heed_error *why)
{
    if (desc->features & ~KNOWN_FEATURES)
        INVALID("desc.features has the unknown bits 0x%llx",
                (unsigned long long)(desc->features & ~KNOWN_FEATURES));
    const heed_number dim[] = {{"desc.in_dim", desc->in_dim, 1, MAX_DIM},
                               {"desc.out_dim", desc->out_dim, 1, MAX_DIM}};
    heed_status st = heed_check_numbers(dim, 2, why);
    if (st == HEED_OK)
        st = check_types(desc, why);
    if (st != HEED_OK)
        return st;
    if (desc->layout > HEED_LINEAR_OUT_IN)
        INVALID("desc.layout is %u, HEED_LINEAR_IN_OUT or HEED_LINEAR_OUT_IN is required",
                desc->layout);
    if (desc->activation > HEED_ACT_SILU)
        INVALID("desc.activation is %u, HEED_ACT_* is required", desc->activation);
    if (desc->accuracy > HEED_ACCURACY_INT8)
        INVALID("desc.accuracy is %u, HEED_ACCURACY_* is required", desc->accuracy);
    if (desc->heads > 1 && desc->out_dim % desc->heads)
        INVALID("desc.out_dim is %u, a multiple of desc.heads = %u is required", desc->out_dim,
                desc->heads);
    const int both_bf16 = desc->x_type == HEED_BF16 && desc->w_type == HEED_BF16;
    *problem = (heed_linear_problem){
        .struct_size = sizeof *problem,
        .features = desc->features,
        .in_dim = desc->in_dim,
        .out_dim = desc->out_dim,
        .x_type = desc->x_type,
        .w_type = desc->w_type,
        .y_type = desc->y_type,
        .bias_type = desc->bias_type,
        .activation = desc->activation,
        .accuracy = desc->accuracy,
    };
    if (desc->accuracy != HEED_ACCURACY_EXACT && desc->accuracy != HEED_ACCURACY_SPLIT)
        problem->accuracy = both_bf16 ? HEED_ACCURACY_BF16 : HEED_ACCURACY_EXACT;
    return HEED_OK;
}

/* A stride of an axis that is not there comes with a view of something else, and then the first ones
 * mean something else, too. */
static heed_status check_axes(const char *where, const char *name, const int64_t stride[4],
                              int n_axes, heed_error *why)
{
    static const char *const number[] = {"no axis", "one axis", "two axes", "three axes"};
    for (int i = n_axes; i < 4; i++)
        if (stride[i])
            INVALID("%s%s.stride[%d] is %lld, 0 is required: it has %s", where, name, i,
                    (long long)stride[i], number[n_axes]);
    return HEED_OK;
}

heed_status heed_linear_validate_weights(const heed_linear_desc *desc,
                                         const heed_const_view *weight, const heed_const_view *bias,
                                         heed_error *why)
{
    const int has_bias = (desc->features & HEED_LINEAR_HAS_BIAS) != 0, per_head = desc->heads > 1;
    const int transposed = desc->layout == HEED_LINEAR_OUT_IN;
    const int64_t out_dim = desc->out_dim, cols = per_head ? out_dim / desc->heads : out_dim;
    int64_t shape[3] = {desc->heads};
    shape[per_head + transposed] = desc->in_dim;
    shape[per_head + !transposed] = cols;
    if (!weight || !weight->data)
        INVALID("weight is NULL");
    if (!heed_strides_reach(weight->stride, per_head + 2, shape, heed_dtype_bytes(desc->w_type)))
        INVALID("weight has strides %lld, %lld, %lld that reach beyond the address space",
                (long long)weight->stride[0], (long long)weight->stride[1],
                (long long)weight->stride[2]);
    if (has_bias && (!bias || !bias->data))
        INVALID("bias is NULL, but desc.features has HEED_LINEAR_HAS_BIAS");
    if (!has_bias && bias && bias->data)
        INVALID("bias is given, but desc.features lacks HEED_LINEAR_HAS_BIAS");
    heed_status st = check_axes("", "weight", weight->stride, per_head + 2, why);
    if (st == HEED_OK && has_bias)
        st = check_axes("", "bias", bias->stride, 1, why);
    if (st != HEED_OK)
        return st;
    if (has_bias &&
        !heed_strides_reach(bias->stride, 1, &out_dim, heed_dtype_bytes(desc->bias_type)))
        INVALID("bias has a stride of %lld that reaches beyond the address space",
                (long long)bias->stride[0]);
    return HEED_OK;
}

/* Presence and reach: the farthest element on either side must be addressable. */
static heed_status check_view(const char *name, const void *data, const int64_t stride[4],
                              int is_output, int64_t rows, int64_t cols, uint32_t type,
                              heed_error *why)
{
    const int64_t shape[2] = {rows, cols};
    if (rows == 0)
        return HEED_OK; /* no element to point at */
    if (!data)
        INVALID("args.%s is NULL", name);
    heed_status st = check_axes("args.", name, stride, 2, why);
    if (st != HEED_OK)
        return st;
    for (int i = 0; i < 2; i++)
        if (is_output && shape[i] != 1 && stride[i] == 0)
            INVALID("args.%s.stride[%d] (%s) is 0 for %lld elements: outputs cannot broadcast",
                    name, i, i ? "dim" : "row", (long long)shape[i]);
    if (!heed_strides_reach(stride, 2, shape, heed_dtype_bytes(type)))
        INVALID("args.%s has strides %lld, %lld that reach beyond the address space", name,
                (long long)stride[0], (long long)stride[1]);
    return HEED_OK;
}

/* The residual may be y itself, element for element. That is checked only if both begin at
 * the same address. */
static heed_status check_residual(const heed_linear_problem *p, const heed_linear_args *args,
                                  heed_error *why)
{
    const heed_view *y = &args->y;
    const heed_const_view *residual = &args->residual;
    heed_status st = check_view("residual", residual->data, residual->stride, 0, args->rows,
                                p->out_dim, p->y_type, why);
    if (st == HEED_OK && args->rows > 0 && residual->data == y->data &&
        ((args->rows > 1 && residual->stride[0] != y->stride[0]) ||
         (p->out_dim > 1 && residual->stride[1] != y->stride[1])))
        INVALID("args.residual.data equals args.y.data, but their strides differ");
    return st;
}

heed_status heed_linear_validate_args(const heed_linear *linear, const heed_linear_args *args,
                                      heed_error *why)
{
    const heed_linear_problem *p = &linear->problem;
    if (args->rows < 0 || args->rows > INT32_MAX)
        INVALID("args.rows is %lld, 0 to %d is required", (long long)args->rows, INT32_MAX);
    heed_status st =
        check_view("x", args->x.data, args->x.stride, 0, args->rows, p->in_dim, p->x_type, why);
    if (st == HEED_OK)
        st = check_view("y", args->y.data, args->y.stride, 1, args->rows, p->out_dim, p->y_type,
                        why);
    if (st != HEED_OK)
        return st;
    if (args->rows > 0 && args->y.data == args->x.data)
        INVALID("args.y is args.x: they may share no element");
    if (p->features & HEED_LINEAR_HAS_RESIDUAL)
        return check_residual(p, args, why);
    if (args->residual.data)
        INVALID("args.residual is given, but desc.features lacks HEED_LINEAR_HAS_RESIDUAL");
    return HEED_OK;
}
