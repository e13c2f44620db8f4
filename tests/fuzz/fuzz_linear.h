/* A linear layer made of bytes: whatever they are, it is valid, small and lies in guarded memory
 * with strides of all kinds. */
#ifndef FUZZ_LINEAR_H
#define FUZZ_LINEAR_H

#include "fuzz_bytes.h"
#include "linear.h"

/** How the weight and bias of heed_linear_create and the args of a run are given to the library. */
typedef struct fuzz_linear {
    kit_linear p; /* the conformance kit's: its oracle and its ways to run serve here too */
    heed_const_view weight, bias;
    const heed_const_view *weight_given, *bias_given;
    heed_error error;
} fuzz_linear;

/** Makes the layer, y filled with canaries (or the residual that lies in it). Returns 0, or -1 when
 * out of memory. To be freed by kit_linear_free(&layer->p) in any case. */
int fuzz_linear_build(fuzz_linear *layer, fuzz_bytes *bytes);

/** What comes back from heed_linear_create, or else from heed_linear_run or heed_linear_begin. */
typedef struct fuzz_linear_refusal {
    const char *what; /* was spoilt; NULL: nothing, it does not exist in this layer */
    heed_status status;
    int touched; /* memory of y */
    heed_error sentence;
} fuzz_linear_refusal;

/** Spoils one thing that the library has to find, and calls it; which one is said by the bytes. */
fuzz_linear_refusal fuzz_linear_spoil(heed_context *context, fuzz_linear *layer, fuzz_bytes *bytes);

#endif
