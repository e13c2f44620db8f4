/* Resolving a tile. Between tiles only what changed is rewritten. */
#include "worker.h"

#include "base/checked.h"
#include "base/compiler.h"
#include "ranges.h"
#include "softmax_state.h"

/* What the rows of an operand belong to. */
enum { OF_QUERIES, OF_KEYS, OF_PAIRS };

/* Returns where the next operand goes: behind this one, or to `o` if there is no such tensor. */
static heed_operand *add_operand(const heed_worker *w, heed_operand *o, heed_rows *rows,
                                 const void *data, const int64_t stride[4], uint32_t type, int kind)
{
    const heed_attn_args *a = &w->run->args;
    const int64_t heads = kind == OF_KEYS ? 1 : w->plan->group;
    if (!data)
        return o;
    rows->head_stride = stride[1];
    rows->row_stride = stride[2];
    rows->dim_stride = stride[3];
    /* Packed rows are those of one long sequence; pages take the place of the batch axis. */
    const int packed = kind == OF_QUERIES ? a->q_starts != NULL
                       : kind == OF_KEYS  ? a->kv_starts || a->block_table
                                          : 0;
    *o = (heed_operand){
        .rows = rows,
        .data = (void *)data, /* kernels only read what is an input */
        .batch_step = packed ? 0 : heed_offset_bytes(type, stride[0]),
        .head_step = heed_offset_bytes(type, stride[1] * heads),
        .row_step = heed_offset_bytes(type, stride[2]),
        .column_step =
            rows == &w->tile.mask || rows == &w->tile.bias ? heed_offset_bytes(type, stride[3]) : 0,
        .kind = kind,
    };
    return o + 1;
}

static heed_operand *add_lists(const heed_worker *w, heed_operand *o, heed_rows *rows,
                               const heed_const_view *view)
{
    if (!view->data)
        return o;
    *rows = (heed_rows){NULL, view->stride[1], view->stride[2], view->stride[3]};
    *o = (heed_operand){
        .rows = rows,
        .data = (void *)view->data,
        .batch_step = view->stride[0] * 8,
        .head_step = view->stride[1] * w->plan->group * 8,
        .kind = OF_PAIRS,
    };
    return o + 1;
}

void heed_worker_start(heed_worker *w, heed_attn_run_state *run, uint32_t part)
{
    const heed_attn_args *a = &run->args;
    const heed_attn *plan = run->plan;
    const heed_attn_desc *d = &plan->desc;
    heed_clear(w, offsetof(heed_worker, operands));
    w->run = run;
    w->plan = plan;
    w->part = part;
    w->index = w->unit = w->last_unit = -1;
    w->area = run->parts + part * plan->layout.part;
    heed_tile *t = &w->tile;
    t->struct_size = sizeof *t;
    t->group = plan->group;
    t->window_left = plan->window_left;
    t->window_right = plan->window_right;
    t->acc_stride = plan->layout.acc_stride;
    heed_operand *o = w->operands; /* a count in *w would wait for heed_clear to be stored */
    o = add_operand(w, o, &t->q, a->q.data, a->q.stride, d->q_type, OF_QUERIES);
    o = add_operand(w, o, &t->k, a->k.data, a->k.stride, d->k_type, OF_KEYS);
    o = add_operand(w, o, &t->v, a->v.data, a->v.stride, d->v_type, OF_KEYS);
    o = add_operand(w, o, &t->out, a->out.data, a->out.stride, d->out_type, OF_QUERIES);
    o = add_operand(w, o, &t->lse, a->lse.data, a->lse.stride, HEED_F32, OF_QUERIES);
    o = add_operand(w, o, &t->mask, a->mask.data, a->mask.stride, HEED_U8, OF_PAIRS);
    o = add_operand(w, o, &t->bias, a->bias.data, a->bias.stride, d->bias_type, OF_PAIRS);
    o = add_operand(w, o, &t->weights, a->weights.data, a->weights.stride, HEED_F32, OF_PAIRS);
    o = add_operand(w, o, &t->scores, a->scores.data, a->scores.stride, HEED_F32, OF_PAIRS);
    /* Ranges are pairs of int32_t, key blocks are words: eight bytes each, which no
     * tensor type has. */
    o = add_lists(w, o, &t->ranges, &a->ranges);
    o = add_lists(w, o, &t->key_blocks, &a->key_blocks);
    w->n_operands = (uint32_t)(o - w->operands);
    t->k_page_stride = a->k.stride[0];
    t->v_page_stride = a->v.stride[0];
    t->k_quant = a->k_quant;
    t->v_quant = a->v_quant;
}

/* The offset in floats from a call's scales to those of the bound sequence, head 0. */
static int64_t scales_at(const heed_worker *w, const heed_quant *quant)
{
    const heed_attn_args *a = &w->run->args;
    const int64_t start = w->sequence->kv_start;
    return a->block_table ? 0
           : a->kv_starts ? (quant->key_group ? start / quant->key_group : start) * quant->stride[2]
                          : w->index * quant->stride[0];
}

static void move_quant(heed_quant *to, const heed_quant *from, int64_t floats)
{
    to->scale = from->scale + floats;
    to->zero = from->zero ? from->zero + floats : NULL;
}

void heed_worker_set_run(heed_worker *w, uint32_t run)
{
    const heed_span rows = heed_run_rows(w->plan, w->sequence, run);
    w->run_of_call = w->index * w->plan->layout.mask_runs + run;
    w->tile.q_first = rows.first;
    w->tile.q_count = rows.end - rows.first;
    w->run_keys = w->keys = heed_visible_keys(w->plan, w->sequence, rows);
}

void heed_worker_bind_sequence(heed_worker *w, int64_t tile)
{
    const heed_attn_args *a = &w->run->args;
    heed_tile *t = &w->tile;
    do {
        const int64_t next = ++w->index + 1;
        w->end_tile = next < a->batch ? w->run->sequence[next].first_tile : w->run->head.n_tiles;
    } while (tile >= w->end_tile);
    const heed_sequence *s = w->sequence = &w->run->sequence[w->index];
    w->class_plan = &w->plan->class_plan[s->class_index];
    w->unit = -1;
    t->q_len = s->q_len;
    t->kv_len = s->kv_len;
    t->q_offset = s->q_offset;
    t->mask_from = a->mask_from ? a->mask_from[w->index] : 0;
    if (a->block_table)
        t->pages = a->block_table + w->index * a->block_table_stride;
    for (uint32_t i = 0; i < w->n_operands; i++) {
        heed_operand *o = &w->operands[i];
        const int64_t row = o->kind == OF_QUERIES ? s->q_start
                            : o->kind == OF_KEYS  ? s->kv_start
                                                  : 0;
        o->bound =
            o->data + w->index * o->batch_step + row * o->row_step - t->mask_from * o->column_step;
    }
    if (s->n_runs == 1)
        heed_worker_set_run(w, 0);
}

void heed_worker_bind_heads(heed_worker *w, int64_t g)
{
    const heed_attn_args *a = &w->run->args;
    const int64_t head = g * w->plan->group;
    heed_tile *t = &w->tile;
    w->unit = w->index * w->plan->desc.kv_heads + g;
    t->kv_head = (uint32_t)g;
    t->kv_heads = (uint32_t)heed_min64(w->sequence->kv_heads, w->plan->desc.kv_heads - g);
    t->n_heads = t->kv_heads * w->plan->group;
    t->first_head = (uint32_t)head;
    for (uint32_t i = 0; i < w->n_operands; i++)
        w->operands[i].rows->data = w->operands[i].bound + g * w->operands[i].head_step;
    if (a->k_quant.scale)
        move_quant(&t->k_quant, &a->k_quant, scales_at(w, &a->k_quant) + g * a->k_quant.stride[1]);
    if (a->v_quant.scale)
        move_quant(&t->v_quant, &a->v_quant, scales_at(w, &a->v_quant) + g * a->v_quant.stride[1]);
    t->alibi_slope = a->alibi_slope ? a->alibi_slope + head : NULL;
    t->bias_slope = a->bias_slope ? a->bias_slope + head : NULL;
    t->sink = a->sink ? a->sink + head : NULL;
}

void heed_worker_find_keys(heed_worker *w)
{
    if (w->tile.ranges.data)
        w->keys = heed_ranges_span(&w->class_plan->problem, &w->tile, w->run_keys);
}

void heed_worker_point_state(heed_worker *w, void *base)
{
    heed_tile *t = &w->tile;
    heed_state state = heed_state_at(base, t->n_heads * t->q_count, t->acc_stride);
    t->row_max = state.row_max;
    t->row_sum = state.row_sum;
    t->acc = state.acc;
}
