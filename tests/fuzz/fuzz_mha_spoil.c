/* What a caller of attention layers may get wrong. Each of these turns a valid layer or run into
 * one that has to be refused before anything is written, so none needs memory behind it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_mha.h"
#include "view.h"

#define N(array) ((uint32_t)(sizeof(array) / sizeof *(array)))
#define DRAW(list) (list)[fuzz_below(bytes, N(list))]

static const int64_t bad_size[] = {-1, INT64_C(1) << 31, INT64_MAX, INT64_MIN};
static const size_t bad_struct[] = {0, 7, 8, 20, 65537, SIZE_MAX};
static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 2};

/* ---- making the layer -------------------------------------------------------------------------
 */

static const char *spoil_desc(layer *l, heed_mha_desc *d, heed_attn_desc *attn, fuzz_bytes *bytes)
{
    const layer_spec *s = &l->spec;
    const uint32_t bad_type[] = {HEED_DTYPE_NONE, HEED_I8, HEED_Q8_0, UINT32_MAX};
    const uint32_t bad_dim[] = {0, d->d_model + 1, UINT32_MAX};
    d->attn = attn;
    switch (fuzz_below(bytes, 14)) {
    case 0:
        return d->struct_size = DRAW(bad_struct), "desc.struct_size";
    case 1:
        return attn->struct_size = DRAW(bad_struct), "attn.struct_size";
    case 2:
        return d->attn = NULL, "no attn";
    case 3:
        return d->features |= UINT64_C(8) << fuzz_below(bytes, 60), "an unknown feature";
    case 4:
        return d->d_model = DRAW(bad_dim), "d_model";
    case 5:
        return d->x_type = DRAW(bad_type), "x_type";
    case 6:
        d->d_kv = s->d_kv ? 0 : d->d_model;
        return "d_kv";
    case 7:
        d->features ^= HEED_MHA_HAS_CROSS; /* d_kv is there, or is not */
        return "HEED_MHA_HAS_CROSS";
    case 8:
        d->features &= ~HEED_MHA_HAS_CACHE;
        return s->cache == LAYER_PAGES ? "pages without a cache" : NULL;
    case 9:
        d->qkv_proj = l->linear[0] ? l->linear[0] : l->linear[4];
        return d->qkv_proj ? "projections beside qkv_proj" : NULL;
    case 10:
        d->kv_proj = l->linear[1] ? l->linear[1] : l->linear[3];
        return d->kv_proj ? "projections beside kv_proj" : NULL;
    case 11:
        if (fuzz_byte(bytes) & 1)
            attn->q_heads = 0;
        else
            attn->page_len = 16 * (attn->page_len == 0);
        return "attn";
    case 12:
        d->rotary.style = 3 + fuzz_byte(bytes);
        return "rotary";
    default:
        return *(fuzz_byte(bytes) & 1 ? &attn->max_batch : &attn->max_q_len) = DRAW(bad_size),
                                                           "max_batch or max_q_len";
    }
}

/* ---- a run ------------------------------------------------------------------------------------
 */

typedef struct call {
    heed_mha_args args;
    char tail[64];
    heed_executor executor;
    int32_t list[LAYER_BATCH];
    uint32_t n_parts, begins;
    void *workspace;
    size_t bytes;
} call;

static const char *spoil_view(const layer *l, heed_mha_args *a, fuzz_bytes *bytes)
{
    const layer_spec *s = &l->spec;
    const kit_view view[] = {
        KIT_IN_VIEW(a->x_q),      KIT_IN_VIEW(a->x_kv),     KIT_OUT_VIEW(a->y),
        KIT_IN_VIEW(a->residual), KIT_IN_VIEW(a->mask),     KIT_OUT_VIEW(a->k_cache),
        KIT_OUT_VIEW(a->v_cache), KIT_OUT_VIEW(a->weights), KIT_OUT_VIEW(a->lse)};
    static const char *const name[] = {"x_q",     "x_kv",    "y",       "residual", "mask",
                                       "k_cache", "v_cache", "weights", "lse"};
    const uint32_t which = fuzz_below(bytes, N(view));
    /* a cache that nothing is appended to is read alone */
    const int is_output = which == 2 || which >= 7 || (which >= 5 && !s->no_new);
    const int64_t columns[] = {s->d_model,
                               s->d_kv,
                               s->out ? s->out : (int64_t)s->q_heads * s->v_dim,
                               s->out,
                               s->q_len,
                               s->cache == LAYER_PAGES ? 16 : s->capacity,
                               s->cache == LAYER_PAGES ? 16 : s->capacity,
                               s->q_len,
                               0};
    /* an axis that surely has more than one element */
    int axis = 2;
    int64_t n = columns[which];
    if (which == 8) /* rows, of which packed ones may be few */
        axis = 1, n = s->q_heads;
    if (!kit_view_data(view[which]))
        return NULL;
    if (fuzz_byte(bytes) & 1)
        return kit_view_point(view[which], NULL), name[which];
    view[which].stride[axis] = is_output && fuzz_byte(bytes) & 1 ? 0 : DRAW(far);
    return n > 1 ? name[which] : NULL;
}

static const char *spoil_list(const layer *l, call *c, fuzz_bytes *bytes)
{
    heed_mha_args *a = &c->args;
    const layer_spec *s = &l->spec;
    const uint32_t b = fuzz_below(bytes, s->batch);
    const int32_t **const list[] = {&a->q_lens, &a->kv_lens, &a->q_starts, &a->kv_starts,
                                    &a->cache_lens};
    static const char *const name[] = {"q_lens", "kv_lens", "q_starts", "kv_starts", "cache_lens"};
    const uint32_t which = fuzz_below(bytes, N(list));
    const int32_t beyond[] = {(int32_t)s->q_len + 1, (int32_t)a->kv_len + 1, -1, INT32_MIN,
                              (int32_t)s->capacity + 1};
    if (!*list[which]) {
        *list[which] = c->list;
        if (which == 4 && s->cache)
            return NULL;
        /* without the feature it is superfluous, with it the other side's is allowed */
        return which == 4 || (s->rows != LAYER_LENS && s->rows < LAYER_PACKED) ||
                       (which >= 2 && s->rows < LAYER_PACKED) || (which % 2 && !s->d_kv)
                   ? name[which]
                   : NULL;
    }
    memcpy(c->list, *list[which], s->batch * sizeof *c->list);
    c->list[b] = fuzz_byte(bytes) & 1 ? -1 : beyond[which];
    *list[which] = c->list;
    return name[which];
}

static const char *spoil_workspace(const layer *l, call *c, fuzz_bytes *bytes)
{
    switch (fuzz_below(bytes, 4)) {
    case 0:
        return c->workspace = (char *)c->workspace + 1 + fuzz_below(bytes, 63), "its alignment";
    case 1:
        c->bytes = heed_mha_workspace_bytes(l->mha, c->begins ? c->n_parts : 1) - 1;
        return "a workspace that is a byte too small";
    case 2:
        c->bytes = fuzz_byte(bytes);
        return "a workspace that is much too small";
    default:
        c->begins = 1;
        return c->n_parts = fuzz_byte(bytes) & 1 ? 0 : UINT32_MAX, "n_parts";
    }
}

static const char *spoil_run(layer *l, call *c, fuzz_bytes *bytes)
{
    heed_mha_args *a = &c->args;
    const layer_spec *s = &l->spec;
    int64_t *const size[] = {&a->batch, &a->q_len, &a->kv_len, &a->capacity};
    switch (fuzz_below(bytes, 10)) {
    case 0:
        return a->struct_size = DRAW(bad_struct), "args.struct_size";
    case 1:
        return *size[fuzz_below(bytes, 4)] = DRAW(bad_size), "a size";
    case 2:
    case 3:
        return spoil_view(l, a, bytes);
    case 4:
        return spoil_list(l, c, bytes);
    case 5:
        c->executor.n_threads = 0;
        a->executor = &c->executor;
        c->begins = 0; /* parts need no executor */
        return "executor.n_threads";
    case 6:
        return spoil_workspace(l, c, bytes);
    case 7:
        a->n_pages = s->cache == LAYER_PAGES ? -1 : 1;
        return "n_pages";
    case 8:
        a->x_kv = a->x_q;
        return s->d_kv ? NULL : "a second input";
    default:
        if (s->cache) {
            a->k_cache.data = NULL;
            return s->no_new ? NULL : "no cache";
        }
        a->k_cache = a->y;
        return "a cache";
    }
}

/* ---- calling ----------------------------------------------------------------------------------
 */

const char *fuzz_mha_spoil(heed_context *context, layer *l, fuzz_bytes *bytes, heed_status *status,
                           heed_error *error)
{
    const char *what;
    if (fuzz_rarely(bytes, 3)) {
        heed_mha_desc desc = l->desc;
        heed_attn_desc attn = l->attn;
        heed_mha *mha = NULL;
        what = spoil_desc(l, &desc, &attn, bytes);
        if (what) {
            *status = heed_mha_create(context, &desc, &mha);
            memcpy(error->text, heed_last_error(), sizeof error->text);
            if (mha) /* written on success only */
                *status = HEED_OK;
            heed_mha_release(mha);
        }
        return what;
    }
    call c = {.args = l->args, .n_parts = 1 + fuzz_below(bytes, 4), .begins = fuzz_byte(bytes) & 1};
    const size_t all = heed_mha_workspace_bytes(l->mha, c.n_parts);
    char *memory = aligned_alloc(64, (all + 63) / 64 * 64 + 64);
    if (!memory)
        return NULL;
    memset(memory, 0xa5, all);
    c.workspace = memory;
    c.bytes = all;
    what = spoil_run(l, &c, bytes);
    if (what) {
        *status = c.begins ? heed_mha_begin(l->mha, &c.args, c.n_parts, c.workspace, c.bytes)
                           : heed_mha_run(l->mha, &c.args, c.workspace, c.bytes);
        memcpy(error->text, heed_last_error(), sizeof error->text);
        if (c.begins && c.bytes == all && *status != HEED_OK &&
            heed_run_part(memory, 0) == HEED_OK) {
            *status = HEED_OK;
            what = "a part of a run that never began";
        }
    }
    free(memory);
    return what;
}
