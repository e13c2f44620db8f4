/* Text and JSON. Nothing is kept for this: selection is asked again. */
#include "explain.h"

#include "fork.h"
#include "fpenv.h"
#include "reason.h"
#include "select.h"
#include "workspace.h"

/* Text that grows until the room ends, and goes on counting. */
typedef struct builder {
    char *text;
    size_t room, used;
} builder;

HEED_PRINTF(2, 3) static void put(builder *b, const char *format, ...)
{
    size_t left = b->text && b->used < b->room ? b->room - b->used : 0;
    va_list list;
    va_start(list, format);
    int n = vsnprintf(left ? b->text + b->used : NULL, left, format, list);
    va_end(list);
    b->used += n > 0 ? (size_t)n : 0;
}

/* A JSON string. */
static void put_string(builder *b, const char *text)
{
    put(b, "\"");
    for (; *text; text++)
        if ((unsigned char)*text < 0x20)
            put(b, "\\u%04x", (unsigned)*text);
        else
            put(b, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    put(b, "\"");
}

static heed_status end(const builder *b, size_t *bytes, heed_error *why)
{
    *bytes = b->used + 1;
    if (b->text && b->used >= b->room)
        return heed_fail(why, HEED_ERR_NOMEM, "the text has %zu bytes, there is room for %zu",
                         b->used + 1, b->room);
    return HEED_OK;
}

/* ---- a plan -----------------------------------------------------------------------------------
 */

static const char *const class_name[] = {"one query row", "2 to 16 query rows", "more query rows"};
static const char *const class_key[] = {"one", "few", "many"};
static const char *const accuracy_name[] = {"default", "exact", "bf16", "split"};

/* The backends that are not `used`, each with its reason. Selection is asked again, and may have another
 * answer by now: one that was registered later. */
static void put_others(builder *b, int json, const char *used, const heed_verdict *verdict,
                       uint32_t n)
{
    for (uint32_t i = 0, first = 1; i < n; i++) {
        const heed_verdict *v = &verdict[i];
        const char *reason = v->chosen ? "it was registered later" : v->why.text;
        if (!strcmp(v->name, used))
            continue;
        if (json) {
            put(b, "%s{\"backend\": ", first ? "" : ", ");
            put_string(b, v->name);
            put(b, ", \"can\": %s, \"reason\": ", v->can ? "true" : "false");
            put_string(b, reason);
            put(b, "}");
        } else {
            put(b, "  not %s: %s\n", v->name, reason);
        }
        first = 0;
    }
}

static void put_class(builder *b, int json, const heed_class_plan *c, const heed_verdict *verdict,
                      uint32_t n)
{
    const heed_tiling *t = &c->tiling;
    const char *kernel = t->kernel ? t->kernel : "";
    if (json) {
        put(b, "{\"query_class\": \"%s\", \"backend\": ", class_key[c->problem.query_class]);
        put_string(b, c->backend->name);
        put(b, ", \"kernel\": ");
        put_string(b, kernel);
        put(b,
            ", \"accuracy\": \"%s\", \"query_rows\": %u, \"key_block\": %u, \"key_chunk\": %u, "
            "\"scratch_bytes\": %zu, \"prepare_bytes\": %zu, \"others\": [",
            accuracy_name[c->problem.accuracy], t->query_rows, t->key_block, t->key_chunk,
            t->scratch_bytes, t->prepare_bytes);
    } else {
        put(b, "%s: %s%s%s, %s accuracy\n", class_name[c->problem.query_class], c->backend->name,
            *kernel ? " " : "", kernel, accuracy_name[c->problem.accuracy]);
        put(b, "  tiles of %u query rows, key blocks of %u", t->query_rows, t->key_block);
        if (t->key_chunk)
            put(b, ", keys cut every %u", t->key_chunk);
        put(b, ", scratch %zu bytes a part\n", t->scratch_bytes);
    }
    put_others(b, json, c->backend->name, verdict, n);
    if (json)
        put(b, "]}");
}

static heed_status put_plan(builder *b, int json, const heed_plan *plan, heed_error *why)
{
    heed_context *context = plan->context;
    heed_status st = HEED_OK;
    if (json)
        put(b, "{\"classes\": [");
    heed_context_lock(context);
    for (uint32_t i = 0, first = 1; i < 3 && st == HEED_OK; i++) {
        const heed_class_plan *c = &plan->class_plan[i];
        const heed_backend *chosen;
        heed_verdict verdict[HEED_MAX_BACKENDS];
        if (!c->backend)
            continue;
        st = heed_select(context, &c->problem, c->passed, &chosen, verdict, why);
        if (st != HEED_OK)
            break;
        put(b, "%s", json && !first ? ", " : "");
        put_class(b, json, c, verdict, context->registry.n);
        first = 0;
    }
    heed_context_unlock(context);
    put(b,
        json ? "], \"workspace_bytes_1\": %zu, \"workspace_bytes_2\": %zu}"
             : "workspace: %zu bytes with one part, %zu with two\n",
        heed_workspace_bytes(plan, 1), heed_workspace_bytes(plan, 2));
    return st;
}

heed_status heed_explain_plan(const heed_plan *plan, int json, char *text, size_t *bytes,
                              heed_error *why)
{
    builder b = {text, *bytes, 0};
    heed_fpenv saved = heed_fpenv_enter(); /* selection must answer as it did */
    heed_status st = put_plan(&b, json, plan, why);
    heed_fpenv_leave(saved);
    return st == HEED_OK ? end(&b, bytes, why) : st;
}

/* ---- a linear layer ---------------------------------------------------------------------------
 */

static void put_linear(builder *b, int json, const heed_linear *l)
{
    const heed_linear_tiling *t = &l->tiling;
    const heed_linear_problem *p = &l->problem;
    const char *kernel = t->kernel ? t->kernel : "";
    if (json) {
        put(b, "{\"backend\": ");
        put_string(b, l->backend->name);
        put(b, ", \"kernel\": ");
        put_string(b, kernel);
        put(b,
            ", \"accuracy\": \"%s\", \"rows\": %u, \"cols\": %u, \"panel_cols\": %u, "
            "\"packed_bytes\": %zu, \"scratch_bytes\": %zu, \"others\": [",
            accuracy_name[p->accuracy], t->rows, t->cols, t->panel_cols, l->bytes,
            t->scratch_bytes);
    } else {
        put(b, "linear, %u in, %u out: %s%s%s, %s accuracy\n", p->in_dim, p->out_dim,
            l->backend->name, *kernel ? " " : "", kernel, accuracy_name[p->accuracy]);
        put(b, "  tiles of %u rows and %u columns, panels of %u, %zu bytes of packed weights\n",
            t->rows, t->cols, t->panel_cols, l->bytes);
    }
}

static heed_status put_whole_linear(builder *b, int json, const heed_linear *linear,
                                    heed_error *why)
{
    heed_context *context = linear->context;
    const heed_backend *chosen;
    heed_verdict verdict[HEED_MAX_BACKENDS];
    heed_context_lock(context);
    heed_status st =
        heed_select_linear(context, &linear->problem, linear->passed, &chosen, verdict, why);
    if (st == HEED_OK) {
        put_linear(b, json, linear);
        put_others(b, json, linear->backend->name, verdict, context->registry.n);
    }
    heed_context_unlock(context);
    put(b,
        json ? "], \"workspace_bytes_1\": %zu, \"workspace_bytes_2\": %zu}"
             : "workspace: %zu bytes with one part, %zu with two\n",
        heed_linear_workspace_bytes(linear, 1), heed_linear_workspace_bytes(linear, 2));
    return st;
}

heed_status heed_explain_linear(const heed_linear *linear, int json, char *text, size_t *bytes,
                                heed_error *why)
{
    builder b = {text, *bytes, 0};
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = put_whole_linear(&b, json, linear, why);
    heed_fpenv_leave(saved);
    return st == HEED_OK ? end(&b, bytes, why) : st;
}

/* ---- an attention layer -----------------------------------------------------------------------
 */

heed_status heed_explain_mha(const heed_mha *mha, int json, char *text, size_t *bytes,
                             heed_error *why)
{
    const heed_mha_desc *d = &mha->desc;
    const struct {
        const char *name;
        const heed_linear *linear;
    } part[] = {{"q_proj", d->q_proj},     {"k_proj", d->k_proj},   {"v_proj", d->v_proj},
                {"qkv_proj", d->qkv_proj}, {"kv_proj", d->kv_proj}, {"out_proj", d->out_proj}};
    builder b = {text, *bytes, 0};
    put(&b, json ? "{\"attention\": " : "attention\n");
    heed_fpenv saved = heed_fpenv_enter();
    heed_status st = put_plan(&b, json, mha->plan, why);
    for (size_t i = 0; i < sizeof part / sizeof *part && st == HEED_OK; i++) {
        if (!part[i].linear)
            continue;
        put(&b, json ? ", \"%s\": " : "%s\n", part[i].name);
        st = put_whole_linear(&b, json, part[i].linear, why);
    }
    heed_fpenv_leave(saved);
    put(&b,
        json ? ", \"workspace_bytes_1\": %zu, \"workspace_bytes_2\": %zu}"
             : "workspace of the layer: %zu bytes with one part, %zu with two\n",
        heed_mha_bytes(mha, 1), heed_mha_bytes(mha, 2));
    return st == HEED_OK ? end(&b, bytes, why) : st;
}

/* ---- the context ------------------------------------------------------------------------------
 */

static void put_isa(builder *b, int json, const char *title, uint64_t bits)
{
    if (!json && !bits)
        return;
    put(b, json ? ", \"%s\": [" : "%s:", title);
    for (unsigned bit = 0, first = 1; heed_cpu_isa_name(bit); bit++) {
        if (!(bits >> bit & 1))
            continue;
        put(b, json ? "%s\"%s\"" : "%s%s", json ? (first ? "" : ", ") : " ",
            heed_cpu_isa_name(bit));
        first = 0;
    }
    put(b, json ? "]" : "\n");
}

static void put_machine(builder *b, int json, const heed_context *context)
{
    const heed_cpu *cpu = &context->cpu;
    if (json) {
        put(b, "{\"version\": \"%d.%d.%d\", \"vendor\": ", HEED_VERSION_MAJOR, HEED_VERSION_MINOR,
            HEED_VERSION_PATCH);
        put_string(b, cpu->vendor);
        put(b,
            ", \"family\": %u, \"model\": %u, \"cores\": %u, \"threads\": %u, \"l1d_bytes\": %u, "
            "\"l2_bytes\": %u, \"l3_bytes\": %u",
            cpu->family, cpu->model, cpu->n_cores, context->n_threads, cpu->l1d_bytes,
            cpu->l2_bytes, cpu->l3_bytes);
    } else {
        put(b,
            "heed %d.%d.%d\nmachine: %s family %u model %u, %u cores, %u threads used by default\n",
            HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH,
            *cpu->vendor ? cpu->vendor : "unknown vendor", cpu->family, cpu->model, cpu->n_cores,
            context->n_threads);
        put(b, "caches: L1d %u KiB, L2 %u KiB, L3 %u KiB\n", cpu->l1d_bytes >> 10,
            cpu->l2_bytes >> 10, cpu->l3_bytes >> 10);
    }
    put_isa(b, json, "isa", cpu->isa);
    put_isa(b, json, json ? "slow" : "exists, but slow here", cpu->isa & ~cpu->fast);
}

heed_status heed_explain_backends(heed_context *context, int json, char *text, size_t *bytes,
                                  heed_error *why)
{
    builder b = {text, *bytes, 0};
    put_machine(&b, json, context);
    if (json)
        put(&b, ", \"backends\": [");
    heed_context_lock(context);
    for (uint32_t i = 0; i < context->registry.n; i++) {
        const heed_entry *e = &context->registry.entry[i];
        const char *summary = e->backend && e->backend->summary ? e->backend->summary : "";
        int failed = atomic_load(&e->trial) == HEED_TRIAL_FAILED, can = e->usable && !failed;
        const char *reason = can ? "" : failed ? e->trial_why.text : e->why.text;
        const char *note = can ? e->why.text : ""; /* what probe decided for this machine */
        if (json) {
            put(&b, "%s{\"name\": ", i ? ", " : "");
            put_string(&b, e->name);
            put(&b, ", \"summary\": ");
            put_string(&b, summary);
            put(&b, ", \"usable\": %s, \"reason\": ", can ? "true" : "false");
            put_string(&b, reason);
            put(&b, ", \"note\": ");
            put_string(&b, note);
            put(&b, "}");
        } else if (can) {
            put(&b, "backend %s: %s%s%s\n", e->name, summary, *note ? "; " : "", note);
        } else {
            put(&b, "backend %s cannot run here: %s\n", e->name, reason);
        }
    }
    heed_context_unlock(context);
    if (json)
        put(&b, "]}");
    return end(&b, bytes, why);
}
