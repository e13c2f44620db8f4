/* The parts of a layer, each as it explains itself. */
#include "explain.h"

#include "attention/explain.h"
#include "base/fpenv.h"
#include "linear/explain.h"

heed_status heed_explain_mha(const heed_mha *mha, int json, char *text, size_t *bytes,
                             heed_error *why)
{
    const heed_mha_desc *d = &mha->desc;
    const struct {
        const char *name;
        const heed_linear *linear;
    } part[] = {{"q_proj", d->q_proj},     {"k_proj", d->k_proj},   {"v_proj", d->v_proj},
                {"qkv_proj", d->qkv_proj}, {"kv_proj", d->kv_proj}, {"out_proj", d->out_proj}};
    heed_text b = {text, *bytes, 0};
    heed_put(&b, json ? "{\"attention\": " : "attention\n");
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = heed_put_plan(&b, json, mha->plan, why);
    for (size_t i = 0; i < sizeof part / sizeof *part && st == HEED_OK; i++) {
        if (!part[i].linear)
            continue;
        heed_put(&b, json ? ", \"%s\": " : "%s\n", part[i].name);
        st = heed_put_linear(&b, json, part[i].linear, why);
    }
    heed_fpenv_leave(saved);
    heed_put(&b,
             json ? ", \"workspace_bytes_1\": %zu, \"workspace_bytes_2\": %zu}"
                  : "workspace of the layer: %zu bytes with one part, %zu with two\n",
             heed_mha_bytes(mha, 1), heed_mha_bytes(mha, 2));
    return st == HEED_OK ? heed_text_end(&b, bytes, why) : st;
}
