/* What heed_mha refuses, in the kit's layer with pages and packed rows: every mistake of
 * mha_mistakes.c, one row more than it was made for, workspaces that are too small. And that
 * heed_mha_explain names every part of the layer. */
#include "layer_case.h"
#include "mha_mistakes.h"

#include <stdlib.h>
#include <string.h>

/* Every mistake that there is in a layer with pages and packed rows. */
static void refuses(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const layer_spec spec = layer_complete(c);
    int n_made = 0;
    for (size_t n = 0; n < layer_mistakes() && outcome->verdict == KIT_PASSED; n++) {
        const kit_mistake *m = layer_mistake(n);
        int made = 0;
        for (uint32_t pick = 0; pick < m->n && outcome->verdict == KIT_PASSED; pick++) {
            layer l;
            if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0)
                made += layer_refuses(env->context, &l, 1, n, pick, outcome);
            layer_free(&l);
        }
        if (!made && m->with & LAYER_KNOWN)
            kit_fail(outcome, "%s: the mistake was not made", m->name);
        n_made += made > 0;
    }
    if (n_made < 60 && outcome->verdict == KIT_PASSED)
        kit_fail(outcome, "of %zu mistakes only %d were made", layer_mistakes(), n_made);
}

/* Positions that no rotary embedding turns by, and strides of them that nothing has. */
static void refuses_positions(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const char *const layers[] = {"fused", "rotary_half", "rotary_positions"};
    static const char *const wrong[] = {"positions alone", "positions_stride alone",
                                        "positions_stride"};
    kit_case of = *c;
    for (size_t n = 0; n < layer_mistakes(); n++) {
        const char *name = layer_mistake(n)->name;
        for (int i = 0; i < 3 && outcome->verdict == KIT_PASSED; i++) {
            layer l;
            of.variant = layer_variant(layers[i]);
            const layer_spec spec = layer_complete(&of);
            if (strcmp(name, wrong[i]) != 0)
                continue;
            if (layer_build(env->context, &l, &spec, GUARD_HIGH, outcome) == 0 &&
                !layer_refuses(env->context, &l, 0, n, 0, outcome))
                kit_fail(outcome, "%s: the mistake was not made", name);
            layer_free(&l);
        }
    }
}

/* As many packed rows as the layer was made for are taken; one more, for which its workspace has no
 * room, is refused. */
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

/* Workspaces that are too small, and parts that do not exist. */
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
                 heed_mha_run(l.mha, &l.args, workspace.data + 1, two) != HEED_ERR_INVALID ||
                 heed_mha_run(l.mha, &l.args, NULL, two) != HEED_ERR_INVALID)
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

/* What heed_mha_explain returns names every part of the layer. */
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
        {.name = "mha/mistakes/f32", .run = refuses},
        {.name = "mha/mistakes_in_positions/f32", .run = refuses_positions},
        {.name = "mha/mistakes_in_rows/f32", .run = refuses_rows},
        {.name = "mha/mistakes_in_workspace/f32", .run = refuses_workspace},
        {.name = "mha/explain/f32", .run = explains},
    };
    for (size_t n = 0; n < KIT_COUNT(single); n++) {
        kit_case c = single[n];
        c.quick = 1;
        c.variant = layer_variant("pages_packed");
        kit_add(list, &c);
    }
}
