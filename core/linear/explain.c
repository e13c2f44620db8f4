/* Explains a linear layer. Nothing is kept for this: selection is asked again. */
#include "explain.h"

#include "base/fpenv.h"
#include "runtime/explain.h"
#include "runtime/fork.h"
#include "select.h"

static void put_tiling(heed_text *b, int json, const heed_linear *l)
{
    const heed_linear_tiling *t = &l->tiling;
    const heed_linear_problem *p = &l->problem;
    const char *kernel = l->kernel->name;
    if (json) {
        heed_put(b, "{\"backend\": ");
        heed_put_string(b, l->kernel->of->name);
        heed_put(b, ", \"kernel\": ");
        heed_put_string(b, kernel);
        heed_put(b,
                 ", \"accuracy\": \"%s\", \"rows\": %u, \"cols\": %u, \"panel_cols\": %u, "
                 "\"packed_bytes\": %zu, \"scratch_bytes\": %zu, \"others\": [",
                 heed_accuracy_name[p->accuracy], t->rows, t->cols, t->panel_cols, l->bytes,
                 t->scratch_bytes);
    } else {
        heed_put(b, "linear, %u in, %u out: %s %s, %s accuracy\n", p->in_dim, p->out_dim,
                 l->kernel->of->name, kernel, heed_accuracy_name[p->accuracy]);
        heed_put(b,
                 "  tiles of %u rows and %u columns, panels of %u, %zu bytes of packed weights\n",
                 t->rows, t->cols, t->panel_cols, l->bytes);
    }
}

heed_status heed_put_linear(heed_text *b, int json, const heed_linear *linear, heed_error *why)
{
    heed_context *context = linear->context;
    const heed_kernel *chosen;
    heed_verdicts verdicts;
    heed_context_lock(context);
    heed_status st =
        heed_select_linear(context, &linear->problem, linear->passed, &chosen, &verdicts, why);
    if (st == HEED_OK) {
        put_tiling(b, json, linear);
        heed_put_others(b, json, linear->kernel, &verdicts);
    }
    heed_context_unlock(context);
    heed_put(b,
             json ? "], \"workspace_bytes_1\": %zu, \"workspace_bytes_2\": %zu}"
                  : "workspace: %zu bytes with one part, %zu with two\n",
             heed_linear_workspace_bytes(linear, 1), heed_linear_workspace_bytes(linear, 2));
    return st;
}

heed_status heed_explain_linear(const heed_linear *linear, int json, char *text, size_t *bytes,
                                heed_error *why)
{
    heed_text b = {text, *bytes, 0};
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = heed_put_linear(&b, json, linear, why);
    heed_fpenv_leave(saved);
    return st == HEED_OK ? heed_text_end(&b, bytes, why) : st;
}
