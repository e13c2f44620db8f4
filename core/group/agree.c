/* See agree.h. */
#include "agree.h"

static int32_t rows_of(const heed_group_call *call, int64_t b)
{
    const heed_shape *s = &call->shape;
    return heed_rows_apart(s)  ? heed_first_of(s, s->part.row_first, b, s->part.n_parts)
           : call->args.q_lens ? call->args.q_lens[b]
                               : (int32_t)call->args.q_len;
}

int64_t heed_agreed_tokens(const heed_group_call *call, int64_t *first_token)
{
    const heed_attn_args *a = &call->args;
    int64_t low = INT32_MAX, high = 0;
    *first_token = 0;
    if (!a->q_starts)
        return call->shape.batch * a->q_len;
    for (int64_t b = 0; b < call->shape.batch; b++) {
        const int64_t n = a->q_lens ? a->q_lens[b] : a->q_len;
        low = n && a->q_starts[b] < low ? a->q_starts[b] : low;
        high = n && a->q_starts[b] + n > high ? a->q_starts[b] + n : high;
    }
    *first_token = low < high ? low : 0;
    return low < high ? high - low : 0;
}

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Mixes in what the args say of each sequence. Of one without rows it is not looked at. Sinks and
 * slopes are left out: ranks may have computed those, and a last bit may differ. */
static uint64_t mix_rows(uint64_t hash, const heed_group_call *call)
{
    const heed_attn_args *a = &call->args;
    const int packed = a->q_starts && !heed_rows_apart(&call->shape);
    int64_t first_token = 0;
    if (packed)
        heed_agreed_tokens(call, &first_token);
    for (int64_t b = 0; b < call->shape.batch; b++) {
        const int32_t rows = rows_of(call, b);
        const int32_t numbers[] = {rows, packed && rows ? a->q_starts[b] - (int32_t)first_token : 0,
                                   a->q_offsets && rows ? a->q_offsets[b] : 0,
                                   a->mask_from && rows ? a->mask_from[b] : 0};
        hash = mix(hash, numbers, sizeof numbers);
    }
    return hash;
}

uint64_t heed_agreed_call(const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const heed_partition *p = &s->part;
    heed_attn_desc d = *s->desc;
    const size_t n = (size_t)s->batch * (p->n_parts + (size_t)1) * sizeof(int32_t);
    const int64_t numbers[] = {p->scheme, p->want,  p->root,  p->n_parts,
                               s->size,   s->batch, s->tokens};
    d.max_batch = d.max_q_len = d.max_kv_len = d.max_rows = 0; /* split's rows are in tokens */
    uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), &d, sizeof d);
    hash = mix(hash, numbers, sizeof numbers);
    for (uint32_t i = 0; i < p->n_parts; i++) { /* also where owner is NULL */
        const uint32_t owner = heed_owner(s, i);
        hash = mix(hash, &owner, sizeof owner);
    }
    if (p->key_first)
        hash = mix(hash, p->key_first, n);
    if (p->row_first)
        hash = mix(hash, p->row_first, n);
    /* Else tokens says all of it. */
    if (d.features & (HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_MASK_FROM) ||
        d.position == HEED_POS_GIVEN)
        hash = mix_rows(hash, call);
    return hash;
}
