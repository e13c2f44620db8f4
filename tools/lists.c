/* The heed command: reads the ranges and key blocks of heed run. */
#include "inputs.h"

#include <heed/masks.h>

#include <stdlib.h>
#include <string.h>

/* Loads a file of integers as int32_t. */
static int load_integers(const heed_cli_option *options, const char *name, heed_npy *array,
                         int32_t **out)
{
    int failed = heed_inputs_load(options, name, array);
    if (failed)
        return failed;
    if (array->type != HEED_NPY_I4 && array->type != HEED_NPY_I8)
        return heed_cli_fail(HEED_EXIT_USAGE, "--%s holds %s: i4 or i8 is required", name,
                             heed_npy_type_name(array->type));
    return heed_inputs_integers(name, array, out);
}

/* Cuts n intervals where a sequence of `len` keys ends; a wrong length is left to the library. */
static void cut_at(int32_t len, int64_t n, int32_t *ranges)
{
    for (int64_t i = 0; i < 2 * n && len >= 0; i++)
        ranges[i] = ranges[i] < len ? ranges[i] : len;
}

/* Makes the ranges of one sequence after another, all with as many intervals as the one that needs
 * most. per_batch: from one sequence's segments to the next one's, 0 if they are the same. */
static int of_segments(const int32_t *segments, int64_t per_batch, heed_attn_desc *desc,
                       heed_attn_args *args, int32_t **out)
{
    const int64_t batch = per_batch || args->kv_lens ? args->batch : 1;
    uint32_t most = 1;
    int64_t numbers = 16; /* of a row: 8 intervals, the most that there can be */
    const int fits = heed_npy_multiply(numbers, batch, &numbers) &&
                     heed_npy_multiply(numbers, args->q_len, &numbers);
    *out = fits ? calloc((size_t)numbers + 1, sizeof **out) : NULL;
    if (!*out)
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for --segments");
    for (int pass = 0; pass < 2; pass++)
        for (int64_t b = 0; b < batch; b++) {
            uint32_t needed = 0;
            const heed_ranges_args a = {.struct_size = sizeof a,
                                        .rows = args->q_len,
                                        .keys = args->kv_len,
                                        .offset = args->kv_len - args->q_len,
                                        .n_ranges = pass ? most : 8,
                                        .ranges = *out + 2 * b * args->q_len * (pass ? most : 8),
                                        .needed = &needed,
                                        .segments = segments + b * per_batch};
            const heed_status st = heed_ranges_segments(&a);
            if (needed > 8)
                return heed_cli_fail(HEED_EXIT_USAGE,
                                     "--segments: some row sees its segment's keys in %u "
                                     "intervals, 8 at most are required",
                                     needed);
            if (st != HEED_OK)
                return heed_cli_fail(HEED_EXIT_USAGE, "--segments: %s", heed_last_error());
            most = needed > most ? needed : most;
            if (pass && args->kv_lens)
                cut_at(args->kv_lens[b], args->q_len * most, a.ranges);
        }
    desc->n_ranges = most;
    args->ranges = (heed_const_view){*out, {batch > 1 ? args->q_len * most : 0, 0, most, 1}};
    return HEED_EXIT_OK;
}

static int load_segments(const heed_cli_option *options, heed_attn_desc *desc, heed_attn_args *args,
                         int32_t **out)
{
    heed_npy array = {0};
    int32_t *segments = NULL;
    char shape[HEED_NPY_SHAPE_TEXT];
    int failed = load_integers(options, "segments", &array, &segments);
    const int n = array.n_dims;
    const int whole = n == 2 && array.shape[0] == args->batch && array.shape[1] == args->kv_len;
    if (!failed && !whole && !(n == 1 && array.shape[0] == args->kv_len))
        failed =
            heed_cli_fail(HEED_EXIT_USAGE,
                          "--segments has shape %s: [%lld] or [%lld, %lld], a segment for each "
                          "key, is required",
                          heed_npy_shape_text(n, array.shape, shape), (long long)args->kv_len,
                          (long long)args->batch, (long long)args->kv_len);
    if (!failed)
        failed = of_segments(segments, whole ? args->kv_len : 0, desc, args, out);
    free(segments);
    heed_npy_free(&array);
    return failed;
}

/* Loads ranges [q_len, n, 2], with axes for heads and sequences before them or not. */
static int load_ranges(const heed_cli_option *options, heed_attn_desc *desc, heed_attn_args *args,
                       int32_t **out)
{
    heed_npy array = {0};
    char shape[HEED_NPY_SHAPE_TEXT];
    int failed = load_integers(options, "ranges", &array, out);
    const int n = array.n_dims;
    if (!failed && (n < 3 || array.shape[n - 1] != 2 || array.shape[n - 2] > 8))
        failed = heed_cli_fail(HEED_EXIT_USAGE,
                               "--ranges has shape %s: [batch, q_heads, q_len, n, 2], the first "
                               "two of which may lack, with an n of 1 to 8 is required",
                               heed_npy_shape_text(n, array.shape, shape));
    if (!failed) {
        const int64_t full[4] = {args->batch, desc->q_heads, args->q_len, array.shape[n - 2]};
        desc->n_ranges = (uint32_t)array.shape[n - 2];
        failed = heed_inputs_broadcast("ranges", n - 1, array.shape, full, 2, args->ranges.stride);
        args->ranges.data = *out;
    }
    heed_npy_free(&array);
    return failed;
}

static int load_blocks(const heed_cli_option *options, heed_attn_desc *desc, heed_attn_args *args,
                       uint64_t **out)
{
    heed_npy array = {0};
    int64_t rows, keys, stride[4];
    int failed = heed_cli_block(options, &rows, &keys);
    if (!failed && rows == 0)
        failed = heed_cli_fail(HEED_EXIT_USAGE, "--key-blocks is given without --block ROWSxKEYS");
    if (failed)
        return failed;
    failed = heed_inputs_load(options, "key-blocks", &array);
    if (!failed && array.type != HEED_NPY_B1)
        failed = heed_cli_fail(HEED_EXIT_USAGE, "--key-blocks holds %s: b1 is required",
                               heed_npy_type_name(array.type));
    const int64_t full[4] = {args->batch, desc->q_heads, (args->q_len + rows - 1) / rows,
                             (args->kv_len + keys - 1) / keys};
    if (!failed)
        failed = heed_inputs_broadcast("key-blocks", array.n_dims, array.shape, full, 2, stride);
    const int64_t words = (full[3] + 63) / 64, lines = full[3] ? array.count / full[3] : 0;
    if (!failed && !(*out = calloc((size_t)(lines * words) + 1, sizeof **out)))
        failed = heed_cli_fail(HEED_EXIT_FAILED, "no memory for --key-blocks");
    for (int64_t i = 0; !failed && i < lines * full[3]; i++)
        if (((const uint8_t *)array.data)[i])
            (*out)[i / full[3] * words + i % full[3] / 64] |= UINT64_C(1) << i % full[3] % 64;
    for (int a = 0; !failed && a < 3; a++)
        args->key_blocks.stride[a] = full[3] ? stride[a] / full[3] * words : 0;
    args->key_blocks.stride[3] = 1;
    args->key_blocks.data = *out;
    desc->block_rows = (uint32_t)rows;
    desc->block_keys = (uint32_t)keys;
    heed_npy_free(&array);
    return failed;
}

int heed_inputs_lists(const heed_cli_option *options, heed_inputs *in, heed_attn_desc *desc,
                      heed_attn_args *args)
{
    int failed = HEED_EXIT_OK;
    if (heed_cli_given(options, "segments") && heed_cli_given(options, "ranges"))
        return heed_cli_fail(HEED_EXIT_USAGE, "--segments and --ranges cannot be given together");
    if (heed_cli_given(options, "segments"))
        failed = load_segments(options, desc, args, &in->ranges);
    if (!failed && heed_cli_given(options, "ranges"))
        failed = load_ranges(options, desc, args, &in->ranges);
    if (args->ranges.data)
        desc->features |= HEED_HAS_RANGES;
    if (!failed && heed_cli_given(options, "key-blocks")) {
        failed = load_blocks(options, desc, args, &in->words);
        desc->features |= HEED_HAS_KEY_BLOCKS;
    } else if (!failed && heed_cli_given(options, "block")) {
        failed = heed_cli_fail(HEED_EXIT_USAGE, "--block is given without --key-blocks");
    }
    return failed;
}
