/** @file
 * Heed: linear layers, the projections around attention.
 *
 *     y[r, c] = act(sum_i x[r, i] * w[i, c] + bias[c]) + residual[r, c]
 *
 * The weights are copied at creation, into the form that the chosen backend reads fastest; a call
 * then brings rows of x. One row (a token of decode) is as well served as thousands.
 *
 *     heed_linear_desc desc = { .struct_size = sizeof desc, .in_dim = 768, .out_dim = 3072,
 *                               .x_type = HEED_F32, .w_type = HEED_BF16, .y_type = HEED_F32,
 *                               .layout = HEED_LINEAR_OUT_IN, .activation = HEED_ACT_GELU };
 *     heed_const_view weight = { w, { 768, 1 } };
 *     heed_linear_create(ctx, &desc, &weight, NULL, &linear);
 *     heed_linear_args args = { .struct_size = sizeof args, .rows = n,
 *                               .x = { x, { 768, 1 } }, .y = { y, { 3072, 1 } } };
 *     heed_linear_run(linear, &args, NULL, 0);
 *
 * Numerics   x and w are widened to f32 without error, products and sums are f32 or wider (less only
 *            under accuracy, below), bias, activation and residual follow in f32 or wider, and y is
 *            rounded once, to nearest even. A NaN in a row of x, or in w, reaches what it is
 *            multiplied into. A backend may take subnormal f32 numbers for 0.
 * Bits       A row of y depends on that row of x and of the residual, the weights, the bias and the
 *            description: not on how many rows come with it or where it stands among them, nor on
 *            threads, strides, addresses or the host's rounding mode.
 */
#ifndef HEED_LINEAR_H
#define HEED_LINEAR_H

#include "attention.h"
#include "context.h"
#include "tensor.h"

HEED_BEGIN_C

/** How the axes of a weight follow each other. */
enum {
    HEED_LINEAR_IN_OUT, /**< [in_dim, out_dim], as in x @ W */
    HEED_LINEAR_OUT_IN  /**< [out_dim, in_dim], as in PyTorch's nn.Linear */
};

/** Activations, for s = sum + bias. Each is 0 for s = -inf, its limit. Hendrycks & Gimpel 2016,
 * arXiv:1606.08415. */
enum {
    HEED_ACT_NONE,      /**< s */
    HEED_ACT_GELU,      /**< s / 2 * (1 + erf(s / sqrt(2))) */
    HEED_ACT_GELU_TANH, /**< s / 2 * (1 + tanh(sqrt(2 / pi) * (s + 0.044715 s^3))) */
    HEED_ACT_SILU       /**< s / (1 + exp(-s)) */
};

#define HEED_LINEAR_HAS_BIAS (UINT64_C(1) << 0)     /**< a bias is given at creation */
#define HEED_LINEAR_HAS_RESIDUAL (UINT64_C(1) << 1) /**< args.residual is added */

/** What a linear layer is. */
typedef struct heed_linear_desc {
    size_t struct_size;  /**< sizeof(heed_linear_desc) */
    uint64_t features;   /**< HEED_LINEAR_HAS_* bits */
    uint32_t in_dim;     /**< columns of x; 1 to 2^24 */
    uint32_t out_dim;    /**< columns of y; 1 to 2^24 */
    uint32_t x_type;     /**< HEED_F32, HEED_F16 or HEED_BF16 */
    uint32_t w_type;     /**< the same, independent of x_type */
    uint32_t y_type;     /**< the same, independent of both; the residual is of this type too */
    uint32_t bias_type;  /**< the same with HEED_LINEAR_HAS_BIAS, else HEED_DTYPE_NONE */
    uint32_t layout;     /**< HEED_LINEAR_IN_OUT or HEED_LINEAR_OUT_IN */
    uint32_t activation; /**< HEED_ACT_* */
    /** HEED_ACCURACY_*, of the products: DEFAULT and INT8 are BF16 where x and w are both bf16, else
     * EXACT. BF16: sums in f32, in any order, subnormals may count as 0; the same as EXACT unless x
     * and w are both bf16. SPLIT: f32 and f16 products may be sums of bf16 ones */
    uint32_t accuracy;
    /** 0 or 1: one matrix. More: a matrix for each head, their outputs side by side, so out_dim is a
     * multiple of heads and output c is column c % (out_dim / heads) of head c / (out_dim / heads) */
    uint32_t heads;
} heed_linear_desc;

/** A linear layer with its weights: immutable, counted, shareable between threads; holds its
 * context. */
typedef struct heed_linear heed_linear;

/**
 * What changes from call to call. Views have two axes: stride[0] and stride[1]; the others are 0.
 *
 * Ownership   all memory is the caller's and must stay as it is until the call has ended. y shares
 *             no element with x, and with residual none but the same one.
 * Alignment   none is needed.
 */
typedef struct heed_linear_args {
    size_t struct_size; /**< sizeof(heed_linear_args) */
    heed_error *error;  /**< receives the sentence of a failure; NULL: heed_last_error() */
    const heed_executor *executor; /**< threads for this call; NULL: the context's */
    int64_t rows;                  /**< of x, y and residual: 0 to 2^31 - 1 */
    heed_const_view x;             /**< [rows, in_dim] */
    heed_view y;                   /**< [rows, out_dim] */
    /** HEED_LINEAR_HAS_RESIDUAL: [rows, out_dim] in y_type. It may be y itself, element for element,
     * and may broadcast by strides of 0 */
    heed_const_view residual;
} heed_linear_args;

/**
 * Would heed_linear_create find a backend for this layer? Copies no weights.
 *
 * why      receives the reason if not; NULL: heed_last_error()
 * Errors   as heed_linear_create.
 * Threads  safe.
 */
HEED_API heed_status heed_linear_supported(heed_context *context, const heed_linear_desc *desc,
                                           heed_error *why);

/**
 * Makes a linear layer: chooses a backend and copies the weights into its form, by the context's
 * threads or executor.
 *
 * weight   in w_type: [in_dim, out_dim] (IN_OUT) or [out_dim, in_dim] (OUT_IN), strides stride[0] and
 *          stride[1]; with heads [heads, in_dim, out_dim / heads] or [heads, out_dim / heads, in_dim],
 *          strides stride[0] to stride[2]. Further ones are 0. Not needed after the call
 * bias     [out_dim] in bias_type, stride[0] alone; NULL without HEED_LINEAR_HAS_BIAS. Copied too
 * out      receives the layer, to be given back by heed_linear_release; written on success only
 * Errors   HEED_ERR_INVALID     desc is inconsistent, weight or bias is missing or superfluous, or
 *                               HEED_BACKEND names an unknown backend;
 *          HEED_ERR_UNSUPPORTED every permitted backend refuses, or what is asked for is reserved;
 *          HEED_ERR_BACKEND     those that do not refuse could not make a layer;
 *          HEED_ERR_NOMEM; HEED_ERR_ABI an impossible struct_size, or an unknown tail that is not zero.
 * Threads  safe.
 */
HEED_API heed_status heed_linear_create(heed_context *context, const heed_linear_desc *desc,
                                        const heed_const_view *weight, const heed_const_view *bias,
                                        heed_linear **out);

/** Takes one more hold on a layer, to be given back by heed_linear_release. Thread-safe. */
HEED_API void heed_linear_retain(heed_linear *linear);

/** Gives a layer back; NULL is allowed. No run of the caller's may be under way. Thread-safe. */
HEED_API void heed_linear_release(heed_linear *linear);

/**
 * Tells which backend and kernel the layer uses, its tiling, its size in memory, and for each other the
 * one condition that excluded it, or its cost: an estimate for one core and as many rows as is said.
 *
 * json, text, bytes, errors   as heed_context_backends.
 */
HEED_API heed_status heed_linear_explain(const heed_linear *linear, uint32_t json, char *text,
                                         size_t *bytes);

/**
 * Tells which kernel runs the layer.
 *
 * out      receives it; written on success only
 * Errors   HEED_ERR_INVALID an argument is NULL; HEED_ERR_ABI an impossible struct_size
 * Threads  safe.
 */
HEED_API heed_status heed_linear_kernel_of(const heed_linear *linear, heed_kernel_info *out);

/** The workspace of a run with n_parts parts, in bytes, for any number of rows; 0 if that overflows
 * or n_parts is 0. Align it to 64 bytes. */
HEED_API size_t heed_linear_workspace_bytes(const heed_linear *linear, uint32_t n_parts);

/**
 * Computes y.
 *
 * workspace, bytes   the caller's, 64-byte aligned; as many parts are used as it holds, at most the
 *          context's threads. NULL and 0: the context lends one.
 * Errors   HEED_ERR_INVALID  an argument is missing, superfluous or out of range;
 *          HEED_ERR_NOMEM    bytes < heed_linear_workspace_bytes(linear, 1);
 *          HEED_ERR_BACKEND  a backend failed: y is unspecified.
 *          y is untouched after the first two.
 * Threads, Fork, Memory   as heed_attn_run.
 */
HEED_API heed_status heed_linear_run(const heed_linear *linear, const heed_linear_args *args,
                                     void *workspace, size_t bytes);

/** Begins a run whose parts the caller's own threads do by heed_run_part, as heed_attn_begin. */
HEED_API heed_status heed_linear_begin(const heed_linear *linear, const heed_linear_args *args,
                                       uint32_t n_parts, void *workspace, size_t bytes);

HEED_END_C

#endif
