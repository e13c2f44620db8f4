/* The heed command: reads the files of heed run and checks that their shapes agree. */
#ifndef HEED_TOOLS_INPUTS_H
#define HEED_TOOLS_INPUTS_H

#include "cli.h"
#include "npy.h"

/** A tensor in memory, which heed_inputs_free frees. */
typedef struct heed_tensor {
    heed_npy npy;
    uint32_t type; /* HEED_F32 and so on: the type of npy.data after conversion */
} heed_tensor;

/** Everything that is read for one run. It must be all zero at first. */
typedef struct heed_inputs {
    heed_tensor q, k, v;
    heed_npy mask, bias, alibi, sinks; /* bias, alibi and sinks converted to f32 */
    int32_t *q_offsets, *kv_lens, *ranges, *mask_from;
    uint64_t *words;
} heed_inputs;

/**
 * Reads every file that the options name and fills desc (heads, dims, types, features, maxima) and
 * args (sizes, views, arrays), which then point into inputs.
 *
 * Returns an exit status, after a line on stderr if it is not 0.
 */
int heed_inputs_read(const heed_cli_option *options, heed_axes axes, heed_inputs *inputs,
                     heed_attn_desc *desc, heed_attn_args *args);

/** Reads --segments, --ranges, --key-blocks and --block, once the sizes and lengths are known. */
int heed_inputs_lists(const heed_cli_option *options, heed_inputs *inputs, heed_attn_desc *desc,
                      heed_attn_args *args);

void heed_inputs_free(heed_inputs *inputs);

/** Reads the file of an option. Returns an exit status, after a line on stderr if it is not 0. */
int heed_inputs_load(const heed_cli_option *options, const char *name, heed_npy *array);

/** Converts i4 or i8 of --name to int32_t, in memory that the caller frees. Returns as above. */
int heed_inputs_integers(const char *name, const heed_npy *array, int32_t **out);

/** The strides of a file of --name with 2 to 4 axes, which are the last of `full`: 0 for missing
 * axes, and for lengths of 1 on the first n_free axes of `full`, where these broadcast. Returns as above. */
int heed_inputs_broadcast(const char *name, int n_dims, const int64_t *shape, const int64_t full[4],
                          int n_free, int64_t stride[4]);

/** The view of a dense tensor that has the shape of its file. */
heed_view heed_inputs_view(void *data, heed_axes axes, const int64_t shape[4]);

#endif
