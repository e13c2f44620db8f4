/* What a caller may get wrong with keys and values in codes and with their scales: arg 0 is k,
 * 1 is v. */
#include "errors_table.h"

#include <heed/formats.h>

#include <stdio.h>
#include <string.h>

static heed_quant *quant_of(kit_problem *p, int is_v)
{
    return is_v ? &p->args.v_quant : &p->args.k_quant;
}

/* A stride that tears blocks, or dims that are not adjacent. */
const char *kit_torn_block(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    const kit_tensor *t = &p->tensor[arg ? KIT_V : KIT_K];
    int64_t *stride = arg ? p->args.v.stride : p->args.k.stride;
    const int axis = (int)(pick % 4);
    if (t->block_len < 2 || (axis < 3 && t->shape[axis] < 2))
        return NULL;
    if (axis == 3)
        stride[3] = pick & 4 ? 0 : pick & 8 ? 2 : -1;
    else
        stride[axis] += 1 + (pick >> 2) % (t->block_len - 1);
    return arg ? "args.v.stride" : "args.k.stride";
}

/* A zero, group or stride of scales is given without scales. */
const char *kit_part_of_none(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    heed_quant *quant = quant_of(p, arg);
    if (quant->scale)
        return NULL;
    if (pick % 4 == 0)
        quant->zero = p->sink;
    else if (pick % 4 == 1)
        quant->group = 1 + pick;
    else if (pick % 4 == 2)
        quant->key_group = 1 + pick;
    else
        quant->stride[pick / 4 % 4] = 1;
    return arg ? "v_quant" : "k_quant";
}

const char *kit_scales_of_none(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)pick;
    if (!(p->desc.features & HEED_HAS_QUANT) ||
        heed_takes_scale(arg ? p->desc.v_type : p->desc.k_type))
        return NULL;
    quant_of(p, arg)->scale = p->sink;
    return arg ? "v_quant.scale" : "k_quant.scale";
}

const char *kit_zeros_of_f8(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    heed_quant *quant = quant_of(p, arg);
    (void)pick;
    quant->zero = quant->scale;
    return quant->scale && (arg ? p->desc.v_type : p->desc.k_type) == HEED_F8_E4M3
               ? (arg ? "v_quant.zero" : "k_quant.zero")
               : NULL;
}

const char *kit_stride_of_no_group(void *call, int arg, uint32_t pick)
{
    heed_quant *quant = quant_of(call, arg);
    quant->stride[3] = pick & 1 ? 1 : -7;
    return quant->scale && !quant->group ? (arg ? "v_quant.stride[3]" : "k_quant.stride[3]") : NULL;
}

/* The description promises scales, there are keys that need them, and the call gives none. */
const char *kit_no_scales(void *call, int arg, uint32_t pick)
{
    kit_problem *p = call;
    (void)arg, (void)pick;
    memset(&p->args.k_quant, 0, sizeof p->args.k_quant);
    memset(&p->args.v_quant, 0, sizeof p->args.v_quant);
    return "k_quant";
}

/* A sequence that begins between two groups of keys. */
const char *kit_start_in_group(void *call, int arg, uint32_t pick)
{
    static char word[40];
    kit_problem *p = call;
    heed_quant *quant = quant_of(p, arg);
    const int64_t b = pick % (uint32_t)p->args.batch;
    if (!p->args.kv_starts || !quant->scale)
        return NULL;
    quant->key_group = 7;
    for (int64_t i = 0; i <= b; i++)
        if (p->kv_starts[i] % 7) {
            snprintf(word, sizeof word, "kv_starts[%lld]", (long long)i);
            return word;
        }
    return NULL;
}
