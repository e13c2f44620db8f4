/* What a caller of heed_mha may get wrong: each mistake has to come back with its status and a
 * sentence that names the argument, with outputs and cache untouched. */
#include "layer_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static int32_t bad_list[LAYER_BATCH];

/* Spoils the args of a layer with pages and packed rows; returns what the sentence has to name. */
static const char *spoil_args(layer *l, int n)
{
    heed_mha_args *a = &l->args;
    switch (n) {
    case 0:
        return a->batch = -1, "args.batch";
    case 1:
        return a->q_len = l->attn.max_q_len + 1, "args.q_len";
    case 2:
        return a->kv_len = 1, "args.kv_len is 1, 0 is required without HEED_MHA_HAS_CROSS";
    case 3:
        return a->capacity = l->attn.max_kv_len + 1, "args.capacity";
    case 4:
        return a->x_q.data = NULL, "args.x_q";
    case 5:
        return a->y.data = NULL, "args.y";
    case 6:
        return a->residual.data = NULL, "residual";
    case 7:
        return a->x_kv = a->x_q, "args.x_kv";
    case 8:
        return bad_list[0] = -1, a->q_lens = bad_list, "args.q_lens[0]";
    case 9:
        return bad_list[2] = (int32_t)a->q_len + 1, a->q_lens = bad_list, "args.q_lens[2]";
    case 10:
        return bad_list[1] = -5, a->q_starts = bad_list, "args.q_starts[1]";
    case 11:
        return bad_list[0] = (int32_t)a->capacity, a->cache_lens = bad_list, "capacity";
    case 12:
        return bad_list[0] = -1, a->cache_lens = bad_list, "args.cache_lens[0]";
    case 13:
        return l->table[l->cache_lens[0] / 16] = -1, "args.block_table[0]";
    case 14:
        return l->table[0] = INT32_MAX, "args.block_table[0][0]";
    case 15:
        return a->block_table = NULL, "block_table";
    case 16:
        return a->k_cache.data = NULL, "k_cache";
    case 17:
        return a->v_cache.stride[2] = 0, "v_cache";
    case 18:
        return a->q_starts = NULL, "q_starts";
    case 19:
        return a->kv_starts = bad_list, "kv_starts";
    case 20:
        return a->y.stride[1] = 0, "args.y";
    case 21:
        return a->x_q.stride[3] = 1, "args.x_q";
    case 22:
        return a->mask = a->x_q, "mask";
    case 23:
        return a->sink = l->sink, "sink";
    default:
        return a->n_pages = 0, "n_pages";
    }
}

static void refuses_args(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    for (int n = 0; n <= 24 && outcome->verdict == KIT_PASSED; n++) {
        layer l;
        heed_error why = {""};
        guard_buffer workspace = {0};
        if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0) {
            const int32_t *usual = n == 10              ? l.q_starts
                                   : n == 11 || n == 12 ? l.cache_lens
                                                        : l.q_lens;
            memcpy(bad_list, usual, sizeof bad_list);
            const char *word = spoil_args(&l, n);
            for (int b = LAYER_Y; b <= LAYER_V; b++) /* a write is a crash */
                if (l.buffer[b].map)
                    guard_read_only(&l.buffer[b]);
            l.args.error = &why;
            heed_status status = heed_mha_run(l.mha, &l.args, NULL, 0);
            if (status != HEED_ERR_INVALID || !strstr(why.text, word))
                kit_fail(outcome, "mistake %d, a bad %s: %s, '%s'", n, word,
                         heed_status_string(status), why.text);
            size_t bytes = (heed_mha_workspace_bytes(l.mha, 2) + 63) / 64 * 64;
            if (guard_map(&workspace, bytes, GUARD_HIGH, 0, 0xff) == 0 &&
                (heed_mha_begin(l.mha, &l.args, 2, workspace.data, bytes) != HEED_ERR_INVALID ||
                 heed_run_part(workspace.data, 0) == HEED_OK))
                kit_fail(outcome, "mistake %d: a run begins, or a part of it runs", n);
            guard_unmap(&workspace);
        }
        layer_free(&l);
    }
}

static const char *spoil_desc(layer *l, int n)
{
    heed_mha_desc *d = &l->desc;
    switch (n) {
    case 0:
        return d->features |= 8, "features";
    case 1:
        return d->attn = NULL, "attn";
    case 2:
        return d->d_model = 22, "in_dim";
    case 3:
        return d->d_kv = 7, "d_kv";
    case 4:
        return d->x_type = HEED_F16, "x_type";
    case 5:
        return d->kv_proj = d->qkv_proj, "qkv_proj";
    case 6:
        return d->qkv_proj = NULL, "d_model";
    case 7:
        return l->attn.q_heads = 8, "out_dim";
    case 8:
        return l->attn.q_heads = 3, "q_heads";
    case 9:
        return l->attn.out_type = HEED_BF16, "out_proj";
    case 10:
        return d->rotary.dims = 14, "rotary";
    case 11:
        return d->features = 0, "HEED_HAS_PAGES";
    case 12:
        return d->features |= HEED_MHA_HAS_CROSS, d->d_kv = 23, d->kv_type = HEED_F32, "qkv_proj";
    case 13:
        return d->features |= HEED_MHA_HAS_SHARED_PROJ, "SHARED_PROJ";
    case 14:
        return d->max_kv_rows = 5, "max_kv_rows";
    case 15:
        return l->attn.max_q_len = INT32_MAX, l->attn.max_batch = 2, "max_q_len";
    default:
        return d->struct_size = 4, "struct_size";
    }
}

static void refuses_desc(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    for (int n = 0; n <= 16 && outcome->verdict == KIT_PASSED; n++) {
        layer l;
        heed_mha *mha = NULL;
        if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0) {
            const char *word = spoil_desc(&l, n);
            heed_status status = heed_mha_create(env->context, &l.desc, &mha);
            if (status != (n == 16 ? HEED_ERR_ABI : HEED_ERR_INVALID) || mha ||
                !strstr(heed_last_error(), word))
                kit_fail(outcome, "mistake %d, a bad %s: %s, '%s'", n, word,
                         heed_status_string(status), heed_last_error());
        }
        layer_free(&l);
    }
}

/* Packed rows, as many as the layer was made for, and one more: its workspace has no room for it.
 */
static void refuses_rows(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    layer l;
    int64_t total = 0;
    if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0) {
        for (uint32_t b = 0; b < spec.batch; b++)
            total += l.q_lens[b];
        for (int more = 0; more < 2; more++) {
            heed_mha *tight = NULL;
            l.attn.max_rows = total - more;
            if (kit_status(outcome, heed_mha_create(env->context, &l.desc, &tight),
                           heed_last_error(), "a layer of few rows") != 0)
                break;
            for (int b = LAYER_Y; b <= LAYER_V && more; b++) /* a write is a crash */
                if (l.buffer[b].map)
                    guard_read_only(&l.buffer[b]);
            heed_status status = heed_mha_run(tight, &l.args, NULL, 0);
            if (more ? status != HEED_ERR_INVALID || !strstr(heed_last_error(), "rows of q")
                     : status != HEED_OK)
                kit_fail(outcome, "%lld rows for a layer of %lld: %s, '%s'", (long long)total,
                         (long long)l.attn.max_rows, heed_status_string(status), heed_last_error());
            else if (!more)
                layer_check(&l, outcome);
            heed_mha_release(tight);
        }
    }
    layer_free(&l);
}

/* Workspaces that are too small, and parts that there are not. */
static void refuses_workspace(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    layer l;
    guard_buffer workspace = {0};
    if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0) {
        const size_t one = heed_mha_workspace_bytes(l.mha, 1);
        const size_t two = heed_mha_workspace_bytes(l.mha, 2);
        if (one == 0 || two <= one || heed_mha_workspace_bytes(l.mha, 0) != 0 ||
            guard_map(&workspace, (two + 63) / 64 * 64, GUARD_HIGH, 0, 0x5a) != 0)
            kit_fail(outcome, "heed_mha_workspace_bytes of 1, 2 parts: %zu, %zu", one, two);
        else if (heed_mha_run(l.mha, &l.args, workspace.data, one - 1) != HEED_ERR_NOMEM ||
                 heed_mha_begin(l.mha, &l.args, 2, workspace.data, two - 1) != HEED_ERR_NOMEM ||
                 heed_mha_run(l.mha, &l.args, workspace.data + 1, two) != HEED_ERR_INVALID)
            kit_fail(outcome, "a bad workspace is taken");
        else if (heed_run_part(workspace.data, 0) != HEED_ERR_INVALID ||
                 heed_mha_begin(l.mha, &l.args, 0, workspace.data, two) != HEED_ERR_INVALID)
            kit_fail(outcome,
                     "a part runs in a workspace that was not begun, or there are 0 parts");
        else if (heed_mha_begin(l.mha, &l.args, 2, workspace.data, two) != HEED_OK ||
                 heed_run_part(workspace.data, 2) != HEED_ERR_INVALID ||
                 heed_run_part(workspace.data, 1) != HEED_OK)
            kit_fail(outcome, "a good run fails, or part 2 of 2 runs: %s", heed_last_error());
        else
            layer_check(&l, outcome);
    }
    guard_unmap(&workspace);
    layer_free(&l);
}

/* What heed_mha_explain gives names every part. */
static void explains(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    layer l;
    if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0)
        for (uint32_t json = 0; json < 2; json++) {
            size_t bytes = 0, less;
            heed_mha_explain(l.mha, json, NULL, &bytes);
            char *text = malloc(bytes + 1);
            less = bytes / 2;
            if (!text || heed_mha_explain(l.mha, json, text, &bytes) != HEED_OK ||
                !strstr(text, "qkv_proj") || !strstr(text, "out_proj") ||
                !strstr(text, "attention") || !strstr(text, env->backend) ||
                heed_mha_explain(l.mha, json, text, &less) != HEED_ERR_NOMEM || less != bytes)
                kit_fail(outcome, "heed_mha_explain: %s", text ? text : "");
            free(text);
        }
    layer_free(&l);
}

void layer_refusal_cases(kit_list *list)
{
    const kit_case single[] = {
        {.name = "mha/mistakes_in_args/f32", .run = refuses_args},
        {.name = "mha/mistakes_in_desc/f32", .run = refuses_desc},
        {.name = "mha/mistakes_in_rows/f32", .run = refuses_rows},
        {.name = "mha/mistakes_in_workspace/f32", .run = refuses_workspace},
        {.name = "mha/explain/f32", .run = explains},
    };
    for (size_t n = 0; n < COUNT(single); n++) {
        kit_case c = single[n];
        c.quick = 1;
        c.variant = layer_variant("pages_packed");
        kit_add(list, &c);
    }
}
