/* Checks of a call's arguments, but for the lengths of its sequences (schedule.c reads those once,
 * and checks them then). Each failure names the argument, its value and the condition. */
#include "validate.h"

#include "base/checked.h"
#include "base/reason.h"
#include "base/rows.h"

#define MAX_LENGTH INT32_MAX

heed_status heed_validate_sizes(const heed_attn_args *args, heed_error *why)
{
    const heed_number size[] = {{"args.batch", args->batch, 0, MAX_LENGTH},
                                {"args.q_len", args->q_len, 0, MAX_LENGTH},
                                {"args.kv_len", args->kv_len, 0, MAX_LENGTH}};
    return heed_check_numbers(size, 3, why);
}

static heed_status check_size(const char *name, int64_t value, int64_t most, heed_error *why)
{
    if (value < 0 || value > most)
        INVALID("args.%s is %lld, 0 to the plan's max_%s = %lld is required", name,
                (long long)value, name, (long long)most);
    return HEED_OK;
}

static heed_status check_sizes(const heed_attn_desc *desc, const heed_attn_args *args,
                               heed_error *why)
{
    heed_status st = check_size("batch", args->batch, desc->max_batch, why);
    if (st == HEED_OK)
        st = check_size("q_len", args->q_len, desc->max_q_len, why);
    return st == HEED_OK ? check_size("kv_len", args->kv_len, desc->max_kv_len, why) : st;
}

/* Checks the scales of k and v, which have these shapes. */
static heed_status check_quants(const heed_attn_desc *desc, const heed_attn_args *args,
                                const int64_t k_shape[4], const int64_t v_shape[4], heed_error *why)
{
    const heed_quant *k = &args->k_quant, *v = &args->v_quant;
    const int wanted = (desc->features & HEED_HAS_QUANT) != 0;
    if (!wanted && heed_quant_is_absent(k) && heed_quant_is_absent(v))
        return HEED_OK;
    if (!wanted && (k->scale || v->scale))
        INVALID("args.%s is given, but the plan's features lack HEED_HAS_QUANT",
                k->scale ? "k_quant" : "v_quant");
    heed_status st = heed_check_quant("k_quant", k, desc->k_type, k_shape, why);
    if (st == HEED_OK)
        st = heed_check_quant("v_quant", v, desc->v_type, v_shape, why);
    if (st == HEED_OK && wanted && !k->scale && !v->scale && k_shape[0])
        INVALID("args.k_quant.scale and args.v_quant.scale are NULL, but the plan has "
                "HEED_HAS_QUANT");
    return st;
}

/* Checks that an array is there exactly when the plan wants it. */
static heed_status check_array(const char *name, const void *array, int wanted, heed_error *why)
{
    if (!array == !wanted)
        return HEED_OK;
    INVALID(wanted ? "args.%s is NULL, but required by the plan"
                   : "args.%s is given, but the plan does not use it",
            name);
}

static heed_status check_block_table(const heed_attn_desc *desc, const heed_attn_args *args,
                                     heed_error *why)
{
    if (!(desc->features & HEED_HAS_PAGES)) {
        const char *given = args->block_table          ? "block_table"
                            : args->block_table_stride ? "block_table_stride"
                            : args->n_pages            ? "n_pages"
                                                       : NULL;
        if (given)
            INVALID("args.%s is given, but the plan's features lack HEED_HAS_PAGES", given);
        return HEED_OK;
    }
    const int64_t pages = heed_ceil_div(args->kv_len, desc->page_len);
    if (args->kv_starts)
        INVALID(
            "args.kv_starts is given, but the plan has HEED_HAS_PAGES: keys are one or the other");
    if (!args->block_table && pages)
        INVALID("args.block_table is NULL, but required by the plan");
    if (args->block_table_stride < pages)
        INVALID("args.block_table_stride is %lld, at least %lld is required for args.kv_len = %lld "
                "in pages of %u",
                (long long)args->block_table_stride, (long long)pages, (long long)args->kv_len,
                desc->page_len);
    if (args->block_table_stride > MAX_LENGTH)
        INVALID("args.block_table_stride is %lld, at most %d is possible",
                (long long)args->block_table_stride, MAX_LENGTH);
    return HEED_OK;
}

static heed_status check_arrays(const heed_attn_desc *desc, const heed_attn_args *args,
                                heed_error *why)
{
    uint64_t f = desc->features;
    heed_status st = check_array("alibi_slope", args->alibi_slope, (f & HEED_HAS_ALIBI) != 0, why);
    if (st == HEED_OK)
        st = check_array("bias_slope", args->bias_slope, (f & HEED_HAS_BIAS_SLOPE) != 0, why);
    if (st == HEED_OK)
        st = check_array("sink", args->sink, (f & HEED_HAS_SINK) != 0, why);
    if (st == HEED_OK)
        st = check_array("q_offsets", args->q_offsets, desc->position == HEED_POS_GIVEN, why);
    if (st != HEED_OK)
        return st;
    if ((f & HEED_HAS_LENS) && !args->q_lens && !args->kv_lens)
        INVALID("args.q_lens and args.kv_lens are NULL, but the plan has HEED_HAS_LENS");
    if (!(f & HEED_HAS_LENS) && (args->q_lens || args->kv_lens))
        INVALID("args.%s is given, but the plan's features lack HEED_HAS_LENS",
                args->q_lens ? "q_lens" : "kv_lens");
    if ((f & HEED_HAS_PACKED) && !args->q_starts && !args->kv_starts)
        INVALID("args.q_starts and args.kv_starts are NULL, but the plan has HEED_HAS_PACKED");
    if (!(f & HEED_HAS_PACKED) && (args->q_starts || args->kv_starts))
        INVALID("args.%s is given, but the plan's features lack HEED_HAS_PACKED",
                args->q_starts ? "q_starts" : "kv_starts");
    st = check_array("mask_from", args->mask_from, (f & HEED_HAS_MASK_FROM) != 0, why);
    return st == HEED_OK ? check_block_table(desc, args, why) : st;
}

/* An allocator may put a tensor without elements, as those of keys are where there are none, at the
 * address of the next one. */
static heed_status check_sharing(const heed_attn_args *args, int empty_kv, heed_error *why)
{
    const void *out = args->out.data;
    const char *twin = out == args->q.data                ? "q"
                       : out == args->lse.data            ? "lse"
                       : out == args->ranges.data         ? "ranges"
                       : !empty_kv && out == args->k.data ? "k"
                       : !empty_kv && out == args->v.data ? "v"
                       : args->kv_len == 0                ? NULL
                       : out == args->mask.data           ? "mask"
                       : out == args->bias.data           ? "bias"
                       : out == args->key_blocks.data     ? "key_blocks"
                       : out == args->weights.data        ? "weights"
                       : out == args->scores.data         ? "scores"
                                                          : NULL;
    if (out && twin)
        INVALID("args.out.data equals args.%s.data: out may not share elements with it", twin);
    return HEED_OK;
}

/* How many elements of each axis may be reached, in the tensors that every call has and in lse. */
typedef struct shapes {
    int64_t q[4], k[4], v[4], out[4], lse[4];
    int empty_kv; /* no element of k and v */
} shapes;

/* The same in tensors of pairs of rows and keys. Separate, because a small call has
 * no time for them. */
typedef struct pair_shapes {
    int64_t pairs[4], ranges[4], words[4];
} pair_shapes;

static shapes shapes_of(const heed_attn_desc *desc, const heed_attn_args *args)
{
    const int64_t b = args->batch, q = args->q_len, kv = args->kv_len, heads = desc->q_heads;
    const int paged = (desc->features & HEED_HAS_PAGES) != 0;
    const int empty_kv = b == 0 || kv == 0 || (paged && args->n_pages == 0);
    /* Packed rows lie behind each other like one long sequence. Where those of k and v end is known
     * only per sequence, so their reach is checked for the most rows that there can be. Starts
     * without HEED_HAS_PACKED do not count: check_arrays refuses them. */
    const int packed = (desc->features & HEED_HAS_PACKED) != 0;
    const int q_packed = packed && args->q_starts, kv_packed = packed && args->kv_starts;
    const int64_t q_batch = q_packed && b ? 1 : b;
    const int64_t q_rows = q_packed ? desc->max_rows : q;
    const int64_t kv_batch = empty_kv ? 0 : paged ? args->n_pages : kv_packed ? 1 : b;
    const int64_t kv_rows = paged ? desc->page_len : kv_packed ? MAX_LENGTH : kv;
    return (shapes){
        .q = {q_batch, heads, q_rows, desc->qk_dim},
        .k = {kv_batch, desc->kv_heads, kv_rows, desc->qk_dim},
        .v = {kv_batch, desc->kv_heads, kv_rows, desc->v_dim},
        .out = {q_batch, heads, q_rows, desc->v_dim},
        .lse = {q_batch, heads, q_rows, 1},
        .empty_kv = empty_kv,
    };
}

static pair_shapes pair_shapes_of(const heed_attn_desc *desc, const heed_attn_args *args)
{
    const int64_t b = args->batch, q = args->q_len, kv = args->kv_len, heads = desc->q_heads;
    const int blocks = (desc->features & HEED_HAS_KEY_BLOCKS) != 0;
    const int64_t key_blocks = blocks ? heed_ceil_div(kv, desc->block_keys) : 0;
    return (pair_shapes){
        .pairs = {b, heads, q, kv},
        .ranges = {b, heads, q, desc->n_ranges},
        .words = {b, heads, blocks ? heed_ceil_div(q, desc->block_rows) : 0,
                  heed_ceil_div(key_blocks, 64)},
    };
}

/* Does the plan want a tensor of pairs, or is one given? */
static int has_pairs(const heed_attn_desc *desc, const heed_attn_args *a)
{
    return (desc->features & (HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_WEIGHTS | HEED_HAS_SCORES |
                              HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS)) ||
           a->mask.data || a->bias.data || a->weights.data || a->scores.data || a->ranges.data ||
           a->key_blocks.data;
}

static heed_status lacks_bit(const char *name, heed_error *why)
{
    INVALID("args.%s is given, but the plan's features lack its bit", name);
}

/* A tensor of pairs. */
typedef struct pair_view {
    const char *name;
    const void *data;
    const int64_t *stride;
    int wanted, is_output;
    int64_t bytes;
    const int64_t *shape;
} pair_view;

/* One check after the other: to fill a table of the views would take a small call
 * longer than that. */
static heed_status check_views(const heed_attn_desc *d, const heed_attn_args *args, const shapes *s,
                               heed_error *why)
{
    const int lse = (d->features & HEED_HAS_LSE) != 0;
    heed_status st = heed_check_view("q", args->q.data, args->q.stride, heed_dtype_bytes(d->q_type),
                                     0, s->q, why);
    if (st == HEED_OK)
        st = heed_check_view("k", args->k.data, args->k.stride, heed_reach_bytes(d->k_type), 0,
                             s->k, why);
    if (st == HEED_OK)
        st = heed_check_view("v", args->v.data, args->v.stride, heed_reach_bytes(d->v_type), 0,
                             s->v, why);
    if (st == HEED_OK)
        st = heed_check_view("out", args->out.data, args->out.stride, heed_dtype_bytes(d->out_type),
                             1, s->out, why);
    if (st == HEED_OK && !lse && args->lse.data)
        return lacks_bit("lse", why);
    if (st == HEED_OK && lse)
        st = heed_check_view("lse", args->lse.data, args->lse.stride, 4, 1, s->lse, why);
    return st;
}

static heed_status check_pairs(const heed_attn_desc *d, const heed_attn_args *args, heed_error *why)
{
    const uint64_t f = d->features;
    const pair_shapes s = pair_shapes_of(d, args);
    const pair_view view[] = {
        {"mask", args->mask.data, args->mask.stride, (f & HEED_HAS_MASK) != 0, 0, 1, s.pairs},
        {"bias", args->bias.data, args->bias.stride, (f & HEED_HAS_BIAS) != 0, 0, 4, s.pairs},
        {"weights", args->weights.data, args->weights.stride, (f & HEED_HAS_WEIGHTS) != 0, 1, 4,
         s.pairs},
        {"scores", args->scores.data, args->scores.stride, (f & HEED_HAS_SCORES) != 0, 1, 4,
         s.pairs},
        {"ranges", args->ranges.data, args->ranges.stride, (f & HEED_HAS_RANGES) != 0, 0, 8,
         s.ranges},
        {"key_blocks", args->key_blocks.data, args->key_blocks.stride,
         (f & HEED_HAS_KEY_BLOCKS) != 0, 0, 8, s.words},
    };
    heed_status st = HEED_OK;
    for (size_t i = 0; i < sizeof view / sizeof *view && st == HEED_OK; i++)
        if (view[i].wanted)
            st = heed_check_view(view[i].name, view[i].data, view[i].stride, view[i].bytes,
                                 view[i].is_output, view[i].shape, why);
        else if (view[i].data)
            st = lacks_bit(view[i].name, why);
    return st;
}

/* A tensor without elements was not checked: none of its strides is good for a product. */
static void settle(int64_t stride[4], const int64_t shape[4])
{
    const int empty = !(shape[0] && shape[1] && shape[2] && shape[3]);
    for (int i = 0; i < 4; i++)
        if (empty || shape[i] <= 1)
            stride[i] = i == 3; /* dim: adjacent */
}

static void settle_views(const heed_attn_desc *desc, heed_attn_args *args, const shapes *s)
{
    settle(args->q.stride, s->q);
    settle(args->k.stride, s->k);
    settle(args->v.stride, s->v);
    settle(args->out.stride, s->out);
    if (desc->features & HEED_HAS_LSE)
        settle(args->lse.stride, s->lse);
    if (s->empty_kv) {
        memset(args->k_quant.stride, 0, sizeof args->k_quant.stride);
        memset(args->v_quant.stride, 0, sizeof args->v_quant.stride);
    }
}

static void settle_pairs(const heed_attn_desc *desc, heed_attn_args *args)
{
    const pair_shapes s = pair_shapes_of(desc, args);
    settle(args->mask.stride, s.pairs);
    settle(args->bias.stride, s.pairs);
    settle(args->weights.stride, s.pairs);
    settle(args->scores.stride, s.pairs);
    settle(args->ranges.stride, s.ranges);
    settle(args->key_blocks.stride, s.words);
}

heed_status heed_validate_args(const heed_attn_desc *desc, heed_attn_args *args, heed_error *why)
{
    heed_status st = check_sizes(desc, args, why);
    if (st != HEED_OK)
        return st;
    if ((desc->features & HEED_HAS_PAGES) && (args->n_pages < 0 || args->n_pages > MAX_LENGTH))
        INVALID("args.n_pages is %lld, 0 to %d is required", (long long)args->n_pages, MAX_LENGTH);
    const shapes s = shapes_of(desc, args);
    const int pairs = has_pairs(desc, args);
    st = check_views(desc, args, &s, why);
    if (st == HEED_OK && pairs)
        st = check_pairs(desc, args, why);
    if (st == HEED_OK && !s.empty_kv)
        st = heed_check_blocks("k", desc->k_type, args->k.stride, s.k, why);
    if (st == HEED_OK && !s.empty_kv)
        st = heed_check_blocks("v", desc->v_type, args->v.stride, s.v, why);
    if (st == HEED_OK)
        st = check_quants(desc, args, s.k, s.v, why);
    if (st == HEED_OK)
        st = check_arrays(desc, args, why);
    if (st != HEED_OK || args->batch == 0 || args->q_len == 0)
        return st; /* an empty problem has no memory to share */
    settle_views(desc, args, &s);
    if (pairs)
        settle_pairs(desc, args);
    return check_sharing(args, s.empty_kv, why);
}
