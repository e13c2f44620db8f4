/* Heed command line: what heed run reads from files, checked against the shape of the problem. */
#ifndef HEED_TOOLS_INPUTS_H
#define HEED_TOOLS_INPUTS_H

#include "cli.h"
#include "npy.h"

/** A tensor in memory: what heed_inputs_free gives back. */
typedef struct heed_tensor {
    heed_npy npy;
    uint32_t type; /* HEED_F32 and so on, of npy.data once it is converted */
} heed_tensor;

/** Everything read for one run. All zero is a valid start. */
typedef struct heed_inputs {
    heed_tensor q, k, v;
    heed_npy mask, bias, alibi, sinks; /* bias, alibi and sinks converted to f32 */
    int32_t *q_offsets, *kv_lens, *ranges, *mask_from;
    uint64_t *words;
} heed_inputs;

/** Where the axes [batch, head, row, dim] of a file lie: bhsd or bshd. */
typedef struct heed_axes {
    int batch, head, row, dim;
} heed_axes;

/**
 * Reads every file that the options name and fills desc (heads, dims, types, features, maxima) and
 * args (sizes, views, arrays), which point into inputs.
 *
 * Returns an exit status, after a line on stderr if it is not 0.
 */
int heed_inputs_read(const heed_cli_option *options, heed_axes axes, heed_inputs *inputs,
                     heed_attn_desc *desc, heed_attn_args *args);

/** Of these --segments, --ranges, --key-blocks and --block, once the sizes are known. */
int heed_inputs_lists(const heed_cli_option *options, heed_inputs *inputs, heed_attn_desc *desc,
                      heed_attn_args *args);

void heed_inputs_free(heed_inputs *inputs);

/** The strides of a dense tensor whose shape is that of its file. */
heed_view heed_inputs_view(void *data, heed_axes axes, const int64_t shape[4]);

#endif
