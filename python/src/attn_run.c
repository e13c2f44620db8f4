/*
 * Python's arguments as one heed_attention call: attention, varlen, a Plan's run and a KVCache's
 * attention all come here.
 *
 * The GIL is released while Heed computes, so other threads of Python run; they leave the arrays of the
 * call alone meanwhile, as with numpy.
 */
#include "problem.h"

static void problem_start(problem *p)
{
    memset(&p->desc, 0, sizeof p->desc);
    memset(&p->args, 0, sizeof p->args);
    p->desc.struct_size = sizeof p->desc;
    p->args.struct_size = sizeof p->args;
    p->packed = false;
    p->cache = NULL;
    array_none(&p->q), array_none(&p->k), array_none(&p->v), array_none(&p->out);
    array_none(&p->lse), array_none(&p->weights), array_none(&p->mask), array_none(&p->bias);
    array_none(&p->ranges), array_none(&p->key_blocks), array_none(&p->block_table);
    array_none(&p->k_scale), array_none(&p->k_zero), array_none(&p->v_scale),
        array_none(&p->v_zero);
    numbers_none(&p->q_lens), numbers_none(&p->kv_lens), numbers_none(&p->offsets);
    numbers_none(&p->q_starts), numbers_none(&p->kv_starts), numbers_none(&p->mask_from);
    numbers_none(&p->alibi), numbers_none(&p->sinks);
}

static void problem_release(problem *p)
{
    if (p->cache)
        cache_end(p->cache, false);
    array_release(&p->q), array_release(&p->k), array_release(&p->v), array_release(&p->out);
    array_release(&p->lse), array_release(&p->weights), array_release(&p->mask);
    array_release(&p->bias), array_release(&p->ranges), array_release(&p->key_blocks);
    array_release(&p->block_table), array_release(&p->k_scale), array_release(&p->k_zero);
    array_release(&p->v_scale), array_release(&p->v_zero);
    numbers_release(&p->q_lens), numbers_release(&p->kv_lens), numbers_release(&p->offsets);
    numbers_release(&p->q_starts), numbers_release(&p->kv_starts), numbers_release(&p->mask_from);
    numbers_release(&p->alibi), numbers_release(&p->sinks);
}

/* dtype converts nothing: one that no array has is a mistake. */
static int dtype_is_there(const problem *p, const attn_options *o)
{
    const heed_attn_desc *desc = &p->desc;
    if (o->dtype == HEED_DTYPE_NONE || o->dtype == desc->q_type || o->dtype == desc->bias_type ||
        o->dtype == desc->out_type || o->dtype == p->alibi.type || o->dtype == p->sinks.type ||
        (!p->cache && (o->dtype == desc->k_type || o->dtype == desc->v_type)))
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "dtype is %s, which none of the arrays has: q is of %s, and nothing is converted",
                 element_name(o->dtype), element_name(desc->q_type));
    return -1;
}

static heed_status run(heed_context *context, const problem *p, const attn_call *call)
{
    heed_attn *plan;
    heed_status status;
    if (!call->max_q_len)
        return heed_attention(context, &p->desc, &p->args);
    status = heed_attn_create(context, &p->desc, &plan);
    if (status == HEED_OK) {
        status = heed_attn_run(plan, &p->args, NULL, 0);
        heed_attn_release(plan);
    }
    return status;
}

static heed_status explain_text(const void *plan, uint32_t json, char *text, size_t *bytes)
{
    return heed_attn_explain(plan, json, text, bytes);
}

static PyObject *explain(heed_context *context, problem *p, bool json)
{
    heed_attn *plan;
    PyObject *text;
    p->desc.max_batch = p->args.batch;
    p->desc.max_q_len = p->args.q_len;
    p->desc.max_kv_len = p->args.kv_len;
    if (check(heed_attn_create(context, &p->desc, &plan)) < 0)
        return NULL;
    text = text_of(explain_text, plan, json);
    heed_attn_release(plan);
    return text;
}

PyObject *attn_call_run(const attn_options *o, const attn_call *call)
{
    problem p;
    PyObject *result = NULL;
    heed_context *context = current_context();
    int64_t q_shape[4];
    if (!context)
        return NULL;
    problem_start(&p);
    if (read_inputs(&p, o, call, q_shape) < 0)
        goto end;
    if (read_scales(&p, call) < 0)
        goto end;
    if (read_masks(&p, o, call) < 0 || read_numbers(&p, o, call) < 0)
        goto end;
    p.desc.max_batch = call->max_batch;
    p.desc.max_q_len = call->max_q_len;
    p.desc.max_kv_len = call->max_kv_len;
    if (call->explain) {
        if (describe_outputs(&p, o, call, q_shape) == 0 && dtype_is_there(&p, o) == 0)
            result = explain(context, &p, call->json);
        goto end;
    }
    if (make_outputs(&p, o, call, q_shape) < 0 || dtype_is_there(&p, o) < 0)
        goto end;
    {
        heed_status status;
        PyThreadState *state = PyEval_SaveThread();
        status = run(context, &p, call);
        PyEval_RestoreThread(state);
        if (check(status) < 0)
            goto end;
    }
    result = problem_results(&p, call);
end:
    problem_release(&p);
    return result;
}
