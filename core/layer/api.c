/* The public calls of attention layers, in the order in which they are used. No mathematics. */
#include "mha.h"

#include "attention/planning.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "explain.h"
#include "runtime/encoder.h"

/* ---- layers -----------------------------------------------------------------------------------
 */

static heed_linear *const *parts_of(const heed_mha_desc *desc)
{
    return &desc->q_proj; /* six pointers, up to out_proj */
}
enum { PARTS = 6 };
_Static_assert(offsetof(heed_mha_desc, out_proj) ==
                   offsetof(heed_mha_desc, q_proj) + (PARTS - 1) * sizeof(heed_linear *),
               "the projections follow each other");

static void destroy(heed_mha *m)
{
    for (int i = 0; i < PARTS; i++)
        heed_linear_release(parts_of(&m->desc)[i]);
    heed_attn_release(m->plan);
    heed_free(m->context, m->freq, m->freq_bytes);
    heed_free(m->context, m, sizeof *m);
}

static heed_status copy_frequencies(heed_mha *m, heed_error *why)
{
    if (!m->desc.rotary.freq)
        return HEED_OK;
    m->freq_bytes = m->desc.rotary.dims / 2 * sizeof(float);
    m->freq = heed_alloc(m->context, m->freq_bytes, _Alignof(float));
    if (!m->freq)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for rotary frequencies");
    memcpy(m->freq, m->desc.rotary.freq, m->freq_bytes);
    m->desc.rotary.freq = m->freq;
    return HEED_OK;
}

static heed_status create(heed_context *context, const heed_mha_desc *desc, heed_mha **out,
                          heed_error *why)
{
    heed_attn_desc plan_desc;
    heed_mha *m = heed_alloc(context, sizeof *m, _Alignof(heed_mha));
    if (!m)
        return heed_fail(why, HEED_ERR_NOMEM, "no memory for a layer");
    memset(m, 0, sizeof *m);
    atomic_init(&m->refs, 1);
    m->context = context;
    heed_status st = heed_read_struct("desc", desc, sizeof m->desc, &m->desc, why);
    for (int i = 0; st == HEED_OK && i < PARTS; i++)
        if (parts_of(&m->desc)[i])
            heed_linear_retain(parts_of(&m->desc)[i]);
    if (st == HEED_OK)
        st = heed_read_struct("desc.attn", m->desc.attn, sizeof m->attn, &m->attn, why);
    if (st == HEED_OK) {
        m->desc.attn = &m->attn;
        st = heed_mha_resolve(m, &plan_desc, why);
    }
    if (st == HEED_OK)
        st = copy_frequencies(m, why);
    if (st == HEED_OK)
        st = heed_plan_get(context, &plan_desc, &m->plan, why);
    if (st == HEED_OK)
        st = heed_mha_lay_out(m, why);
    if (st == HEED_OK && m->cache)
        m->encoder = heed_encoder_of(context);
    if (st != HEED_OK) {
        destroy(m);
        return st;
    }
    heed_context_hold(context);
    *out = m;
    return HEED_OK;
}

heed_status heed_mha_create(heed_context *context, const heed_mha_desc *desc, heed_mha **out)
{
    heed_error why = {""};
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = !context || !out ? heed_fail(&why, HEED_ERR_INVALID, "%s is NULL",
                                                  context ? "out" : "context")
                                      : create(context, desc, out, &why);
    heed_fpenv_leave(saved);
    return heed_report(NULL, st, &why);
}

void heed_mha_retain(heed_mha *mha)
{
    atomic_fetch_add(&mha->refs, 1);
}

void heed_mha_release(heed_mha *mha)
{
    if (!mha || atomic_fetch_sub(&mha->refs, 1) != 1)
        return;
    heed_context *context = mha->context;
    destroy(mha);
    heed_context_release(context);
}

heed_status heed_mha_explain(const heed_mha *mha, uint32_t json, char *text, size_t *bytes)
{
    heed_error why = {""};
    heed_status st = mha && bytes
                         ? heed_explain_mha(mha, json != 0, text, bytes, &why)
                         : heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", mha ? "bytes" : "mha");
    return heed_report(NULL, st, &why);
}

size_t heed_mha_workspace_bytes(const heed_mha *mha, uint32_t n_parts)
{
    return mha ? heed_mha_bytes(mha, n_parts) : 0;
}

/* ---- runs -------------------------------------------------------------------------------------
 */

/* Searches by halves, because the size of each step is rounded up. */
static uint32_t most_parts(const void *of, size_t bytes, uint32_t limit)
{
    uint32_t low = 0, high = limit; /* low parts fit, more than high are not asked for */
    while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        const size_t need = heed_mha_bytes(of, middle);
        if (need && need <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void describe(const heed_run_head *head, heed_error *text)
{
    const heed_mha_run_state *run = (const heed_mha_run_state *)(const void *)head;
    snprintf(text->text, sizeof text->text, "mha batch %lld q_len %lld %s %lld",
             (long long)run->args.batch, (long long)run->args.q_len,
             run->mha->cache ? "capacity" : "kv_len",
             (long long)(run->mha->cache   ? run->args.capacity
                         : run->mha->cross ? run->args.kv_len
                                           : run->args.q_len));
}

HEED_CHECK_ARGS_HEAD(heed_mha_args);
static const heed_operation attention_layer = {
    .name = "mha",
    .bytes = heed_mha_bytes,
    .parts = most_parts,
    .begin = heed_mha_schedule,
    .part = heed_mha_take,
    .describe = describe,
};

heed_status heed_mha_run(const heed_mha *mha, const heed_mha_args *args, void *workspace,
                         size_t bytes)
{
    return heed_run_whole(&attention_layer, mha ? mha->context : NULL, mha, args, workspace, bytes);
}

heed_status heed_mha_begin(const heed_mha *mha, const heed_mha_args *args, uint32_t n_parts,
                           void *workspace, size_t bytes)
{
    return heed_run_begin_by(&attention_layer, mha, args, n_parts, workspace, bytes);
}
