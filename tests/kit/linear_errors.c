/* What a caller of linear layers may get wrong: each mistake has to come back with its status, a
 * sentence that names the argument, and y untouched. */
#include "cases.h"
#include "linear_run.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* A good layer and its call, for a mistake to be made in. */
typedef struct layer {
    kit_linear p;
    heed_const_view weight, bias;
    const heed_const_view *weight_given, *bias_given;
    heed_context *context;
    heed_linear **out;
} layer;

enum { AT_CREATION, AT_RUN };

typedef struct mistake {
    const char *name, *word; /* word: has to be in the sentence */
    int where;
    heed_status status;
    void (*make)(layer *l);
} mistake;

#define SPOIL(name, ...)                                                                           \
    static void name(layer *l)                                                                     \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }

/* clang-format off */
SPOIL(in_dim_0, l->p.desc.in_dim = 0)
SPOIL(in_dim_large, l->p.desc.in_dim = (1u << 24) + 1)
SPOIL(out_dim_0, l->p.desc.out_dim = 0)
SPOIL(out_dim_large, l->p.desc.out_dim = UINT32_MAX)
SPOIL(x_type_none, l->p.desc.x_type = HEED_DTYPE_NONE)
SPOIL(x_type_q8, l->p.desc.x_type = HEED_Q8_0)
SPOIL(w_type_i8, l->p.desc.w_type = HEED_I8)
SPOIL(w_type_unknown, l->p.desc.w_type = 77)
SPOIL(y_type_unknown, l->p.desc.y_type = 6)
SPOIL(bias_type_none, l->p.desc.bias_type = HEED_DTYPE_NONE)
SPOIL(bias_type_alone, l->p.desc.features &= ~HEED_LINEAR_HAS_BIAS)
SPOIL(unknown_bit, l->p.desc.features |= UINT64_C(1) << 33)
SPOIL(layout, l->p.desc.layout = 2)
SPOIL(activation, l->p.desc.activation = 4)
SPOIL(accuracy, l->p.desc.accuracy = 4)
SPOIL(heads, l->p.desc.heads = 7)
SPOIL(desc_size, l->p.desc.struct_size = 4)
SPOIL(weight_none, l->weight_given = NULL)
SPOIL(weight_null, l->weight.data = NULL)
SPOIL(bias_none, l->bias_given = NULL)
SPOIL(bias_null, l->bias.data = NULL)
SPOIL(bias_alone, l->p.desc.features &= ~HEED_LINEAR_HAS_BIAS;
      l->p.desc.bias_type = HEED_DTYPE_NONE)
SPOIL(context_null, l->context = NULL)
SPOIL(out_null, l->out = NULL)
SPOIL(rows_negative, l->p.args.rows = -1)
SPOIL(rows_large, l->p.args.rows = INT64_C(1) << 31)
SPOIL(x_null, l->p.args.x.data = NULL)
SPOIL(y_null, l->p.args.y.data = NULL)
SPOIL(residual_null, l->p.args.residual.data = NULL)
SPOIL(x_far, l->p.args.x.stride[0] = INT64_MAX / 2)
SPOIL(y_far, l->p.args.y.stride[1] = INT64_MIN)
SPOIL(residual_far, l->p.args.residual.stride[0] = INT64_MAX)
SPOIL(y_rows_broadcast, l->p.args.y.stride[0] = 0)
SPOIL(y_columns_broadcast, l->p.args.y.stride[1] = 0)
SPOIL(y_is_x, l->p.args.y.data = l->p.tensor[KIT_LINEAR_X].view.data)
SPOIL(args_size, l->p.args.struct_size = 0)
SPOIL(executor_empty, static const heed_executor e = {.struct_size = sizeof e};
      l->p.args.executor = &e)

static const mistake mistakes[] = {
    {"in_dim_0", "in_dim", AT_CREATION, HEED_ERR_INVALID, in_dim_0},
    {"in_dim_large", "in_dim", AT_CREATION, HEED_ERR_INVALID, in_dim_large},
    {"out_dim_0", "out_dim", AT_CREATION, HEED_ERR_INVALID, out_dim_0},
    {"out_dim_large", "out_dim", AT_CREATION, HEED_ERR_INVALID, out_dim_large},
    {"x_type_none", "x_type", AT_CREATION, HEED_ERR_INVALID, x_type_none},
    {"x_type_q8", "x_type", AT_CREATION, HEED_ERR_UNSUPPORTED, x_type_q8},
    {"w_type_i8", "w_type", AT_CREATION, HEED_ERR_UNSUPPORTED, w_type_i8},
    {"w_type_unknown", "w_type", AT_CREATION, HEED_ERR_INVALID, w_type_unknown},
    {"y_type_unknown", "y_type", AT_CREATION, HEED_ERR_INVALID, y_type_unknown},
    {"bias_type_none", "bias_type", AT_CREATION, HEED_ERR_INVALID, bias_type_none},
    {"bias_type_alone", "bias_type", AT_CREATION, HEED_ERR_INVALID, bias_type_alone},
    {"unknown_bit", "features", AT_CREATION, HEED_ERR_INVALID, unknown_bit},
    {"layout", "layout", AT_CREATION, HEED_ERR_INVALID, layout},
    {"activation", "activation", AT_CREATION, HEED_ERR_INVALID, activation},
    {"accuracy", "accuracy", AT_CREATION, HEED_ERR_INVALID, accuracy},
    {"heads", "heads", AT_CREATION, HEED_ERR_INVALID, heads},
    {"desc_size", "struct_size", AT_CREATION, HEED_ERR_ABI, desc_size},
    {"weight_none", "weight", AT_CREATION, HEED_ERR_INVALID, weight_none},
    {"weight_null", "weight", AT_CREATION, HEED_ERR_INVALID, weight_null},
    {"bias_none", "bias", AT_CREATION, HEED_ERR_INVALID, bias_none},
    {"bias_null", "bias", AT_CREATION, HEED_ERR_INVALID, bias_null},
    {"bias_alone", "bias", AT_CREATION, HEED_ERR_INVALID, bias_alone},
    {"context_null", "context", AT_CREATION, HEED_ERR_INVALID, context_null},
    {"out_null", "out", AT_CREATION, HEED_ERR_INVALID, out_null},
    {"rows_negative", "args.rows", AT_RUN, HEED_ERR_INVALID, rows_negative},
    {"rows_large", "args.rows", AT_RUN, HEED_ERR_INVALID, rows_large},
    {"x_null", "args.x", AT_RUN, HEED_ERR_INVALID, x_null},
    {"y_null", "args.y", AT_RUN, HEED_ERR_INVALID, y_null},
    {"residual_null", "args.residual", AT_RUN, HEED_ERR_INVALID, residual_null},
    {"x_far", "args.x", AT_RUN, HEED_ERR_INVALID, x_far},
    {"y_far", "args.y", AT_RUN, HEED_ERR_INVALID, y_far},
    {"residual_far", "args.residual", AT_RUN, HEED_ERR_INVALID, residual_far},
    {"y_rows_broadcast", "args.y", AT_RUN, HEED_ERR_INVALID, y_rows_broadcast},
    {"y_columns_broadcast", "args.y", AT_RUN, HEED_ERR_INVALID, y_columns_broadcast},
    {"y_is_x", "args.y", AT_RUN, HEED_ERR_INVALID, y_is_x},
    {"args_size", "struct_size", AT_RUN, HEED_ERR_ABI, args_size},
    {"executor_empty", "executor", AT_RUN, HEED_ERR_INVALID, executor_empty},
};
/* clang-format on */

static const kit_linear_spec good = {.rows = 6,
                                     .in_dim = 20,
                                     .out_dim = 30,
                                     .x_type = HEED_F32,
                                     .w_type = HEED_F32,
                                     .y_type = HEED_F32,
                                     .bias_type = HEED_F32,
                                     .residual = KIT_LINEAR_RESIDUAL};

static void judge(const kit_linear *p, const char *call, heed_status status, const char *sentence,
                  heed_status wanted, const char *word, kit_outcome *outcome)
{
    const guard_buffer *y = &p->tensor[KIT_LINEAR_Y].buffer;
    if (status != wanted)
        kit_fail(outcome, "%s returned %s, should return %s", call, heed_status_string(status),
                 heed_status_string(wanted));
    else if (!strstr(sentence, word))
        kit_fail(outcome, "%s's sentence does not name %s: %s", call, word, sentence);
    for (size_t i = 0; i < y->bytes; i++)
        if (y->data[i] != 0xff) {
            kit_fail(outcome, "%s failed and yet wrote to y", call);
            return;
        }
}

static int begin(const kit_env *env, layer *l, kit_outcome *outcome)
{
    memset(l, 0, sizeof *l);
    if (kit_linear_build(&l->p, &good, GUARD_HIGH) != 0) {
        kit_fail(outcome, "out of memory");
        return -1;
    }
    l->weight = heed_as_const(l->p.tensor[KIT_LINEAR_W].view);
    l->bias = heed_as_const(l->p.tensor[KIT_LINEAR_BIAS].view);
    l->weight_given = &l->weight;
    l->bias_given = &l->bias;
    l->context = env->context;
    return 0;
}

static void at_creation(const mistake *m, layer *l, kit_outcome *outcome)
{
    static const char *const also[] = {"weight", "bias", "out"}; /* not of the description */
    heed_linear *linear = NULL;
    heed_error why = {""};
    l->out = &linear;
    m->make(l);
    judge(&l->p, "heed_linear_create",
          heed_linear_create(l->context, &l->p.desc, l->weight_given, l->bias_given, l->out),
          heed_last_error(), m->status, m->word, outcome);
    if (linear)
        kit_fail(outcome, "heed_linear_create failed and yet gave a layer");
    for (size_t i = 0; i < COUNT(also); i++)
        if (strcmp(m->word, also[i]) == 0)
            return;
    judge(&l->p, "heed_linear_supported", heed_linear_supported(l->context, &l->p.desc, &why),
          why.text, m->status, m->word, outcome);
}

static void at_run(const mistake *m, layer *l, heed_linear *linear, kit_outcome *outcome)
{
    heed_error why = {""};
    guard_buffer workspace;
    const size_t bytes = (heed_linear_workspace_bytes(linear, 2) + 63) / 64 * 64;
    m->make(l);
    judge(&l->p, "heed_linear_run", heed_linear_run(linear, &l->p.args, NULL, 0), heed_last_error(),
          m->status, m->word, outcome);
    if (m->make == executor_empty || guard_map(&workspace, bytes, GUARD_HIGH, 0, 0xff) != 0)
        return; /* parts need no executor */
    l->p.args.error = &why;
    heed_status status = heed_linear_begin(linear, &l->p.args, 2, workspace.data, bytes);
    /* args of an unknown size: where its `error` is cannot be known either. */
    judge(&l->p, "heed_linear_begin", status,
          m->status == HEED_ERR_ABI ? heed_last_error() : why.text, m->status, m->word, outcome);
    if (heed_run_part(workspace.data, 0) == HEED_OK)
        kit_fail(outcome, "heed_run_part succeeds on a run that did not begin");
    guard_unmap(&workspace);
}

static void run_mistake(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const mistake *m = &mistakes[c->variant];
    heed_linear *linear = NULL;
    layer l;
    if (begin(env, &l, outcome) == 0) {
        heed_status status = heed_linear_create(l.context, &l.p.desc, &l.weight, &l.bias, &linear);
        if (kit_status(outcome, status, heed_last_error(), "heed_linear_create") != 0)
            ;
        else if (m->where == AT_CREATION)
            at_creation(m, &l, outcome);
        else
            at_run(m, &l, linear, outcome);
    }
    heed_linear_release(linear);
    kit_linear_free(&l.p);
}

/* Workspaces that are too small or crooked, parts that do not exist, holds, and a good call after
 * all of that. */
static void run_workspace(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    heed_linear *linear = NULL;
    guard_buffer workspace = {0};
    layer l;
    (void)c;
    if (begin(env, &l, outcome) != 0 || kit_linear_solve(&l.p) != 0 ||
        kit_status(outcome, heed_linear_create(l.context, &l.p.desc, &l.weight, &l.bias, &linear),
                   heed_last_error(), "heed_linear_create") != 0) {
        kit_linear_free(&l.p);
        return;
    }
    const kit_linear *p = &l.p;
    heed_linear_retain(linear);
    heed_linear_release(linear); /* one hold is left */
    const size_t one = heed_linear_workspace_bytes(linear, 1);
    const size_t two = heed_linear_workspace_bytes(linear, 2);
    if (heed_linear_workspace_bytes(linear, 0) != 0 || one == 0 || two < one)
        kit_fail(outcome, "heed_linear_workspace_bytes of 1 and 2 parts: %zu, %zu", one, two);
    if (guard_map(&workspace, (two + 63) / 64 * 64 + 64, GUARD_HIGH, 0, 0x5a) == 0) {
        void *w = workspace.data;
        judge(p, "heed_linear_run", heed_linear_run(linear, &p->args, w, one - 1),
              heed_last_error(), HEED_ERR_NOMEM, "workspace", outcome);
        judge(p, "heed_linear_run", heed_linear_run(linear, &p->args, workspace.data + 1, two),
              heed_last_error(), HEED_ERR_INVALID, "workspace", outcome);
        judge(p, "heed_linear_begin", heed_linear_begin(linear, &p->args, 2, w, two - 1),
              heed_last_error(), HEED_ERR_NOMEM, "workspace", outcome);
        judge(p, "heed_linear_begin", heed_linear_begin(linear, &p->args, 0, w, two),
              heed_last_error(), HEED_ERR_INVALID, "n_parts", outcome);
        judge(p, "heed_linear_begin", heed_linear_begin(linear, &p->args, 1, NULL, 0),
              heed_last_error(), HEED_ERR_INVALID, "workspace", outcome);
        judge(p, "heed_linear_begin", heed_linear_begin(NULL, &p->args, 1, w, two),
              heed_last_error(), HEED_ERR_INVALID, "linear", outcome);
        judge(p, "heed_linear_run", heed_linear_run(linear, NULL, w, two), heed_last_error(),
              HEED_ERR_INVALID, "args", outcome);
        judge(p, "heed_run_part", heed_run_part(w, 0), heed_last_error(), HEED_ERR_INVALID,
              "workspace", outcome);
        if (heed_linear_begin(linear, &p->args, 2, w, two) != HEED_OK)
            kit_fail(outcome, "heed_linear_begin fails: %s", heed_last_error());
        judge(p, "heed_run_part", heed_run_part(w, 2), heed_last_error(), HEED_ERR_INVALID,
              "part", outcome);
        if (heed_run_part(w, 1) != HEED_OK)
            kit_fail(outcome, "heed_run_part fails: %s", heed_last_error());
        kit_linear_check(p, outcome);
        guard_unmap(&workspace);
    }
    heed_linear_release(linear);
    heed_linear_release(NULL);
    kit_linear_free(&l.p);
}

void kit_linear_error_cases(kit_list *list)
{
    for (size_t n = 0; n < COUNT(mistakes); n++) {
        kit_case c = {.quick = 1, .run = run_mistake, .variant = (int)n};
        snprintf(c.name, sizeof c.name, "linear/error_%s/f32", mistakes[n].name);
        kit_add(list, &c);
    }
    kit_case c = {.name = "linear/error_workspace_and_parts/f32", .quick = 1, .run = run_workspace};
    kit_add(list, &c);
}
