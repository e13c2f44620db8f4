/* What a caller of linear layers may get wrong: each mistake has to come back with its status, a
 * sentence that names the argument, and y untouched. */
#include "linear_errors.h"

#include "cases.h"
#include "linear_run.h"
#include "mistake.h"
#include "ways.h"

#include <stdio.h>
#include <string.h>

/* A good layer and its call, for a mistake to be made in. */
typedef struct layer {
    kit_linear p;
    heed_const_view weight, bias;
    const heed_const_view *weight_given, *bias_given;
    heed_context *context;
    heed_linear **out;
    kit_mistaken_workspace room;
} layer;

/* Where a mistake is found: by heed_linear_create and, if it is one of the description, by
 * heed_linear_supported; by heed_linear_run and heed_linear_begin, or one of them. */
enum { IN_DESC, AT_CREATION, AT_RUN, AT_RUN_ALONE, AT_BEGIN_ALONE };

/* Required by mistakes that are none where there are no rows. */
#define ROWS (UINT64_C(1) << 62)

/* ---- mistakes that are more than a field ----------------------------------------------------- */

static const char *broken_stride(void *call, int arg, uint32_t pick)
{
    layer *l = call;
    const kit_linear_spec *s = &l->p.spec;
    const int64_t heads = s->heads > 1 ? s->heads : 1, cols = s->out_dim / heads;
    const int transposed = s->layout == HEED_LINEAR_OUT_IN, first = heads > 1;
    const int64_t weight[3] = {heads, transposed ? cols : s->in_dim, transposed ? s->in_dim : cols};
    const int64_t x[2] = {s->rows, s->in_dim}, y[2] = {s->rows, s->out_dim};
    static const char *const name[] = {"args.x", "weight", "bias", "args.residual", "args.y"};
    int64_t *const stride[] = {l->p.args.x.stride, l->weight.stride, l->bias.stride,
                               l->p.args.residual.stride, l->p.args.y.stride};
    const int64_t *const shape[] = {x, weight + 1 - first, y + 1, y, y};
    const int n_axes[] = {2, 2 + first, 1, 2, 2};
    const kit_matrix *t = &l->p.tensor[arg];
    return t->bytes && kit_break_stride(stride[arg], shape[arg], n_axes[arg], t->bytes,
                                        arg == KIT_LINEAR_Y, pick)
               ? name[arg]
               : NULL;
}

/* A stride of an axis that the matrix does not have: of a view made for something else, as weights of
 * several heads are where desc.heads is forgotten. */
static const char *one_axis_more(void *call, int arg, uint32_t pick)
{
    layer *l = call;
    const int axes = arg == KIT_LINEAR_BIAS                       ? 1
                     : arg == KIT_LINEAR_W && l->p.spec.heads > 1 ? 3
                                                                  : 2;
    const int axis = axes + (int)pick % (4 - axes);
    static char word[40];
    static const char *const name[] = {"args.x", "weight", "bias", "args.residual", "args.y"};
    int64_t *const stride[] = {l->p.args.x.stride, l->weight.stride, l->bias.stride,
                               l->p.args.residual.stride, l->p.args.y.stride};
    stride[arg][axis] = pick & 4 ? -1 : 1;
    snprintf(word, sizeof word, "%s.stride[%d]", name[arg], axis);
    return word;
}

static const char *bias_alone(void *call, int arg, uint32_t pick)
{
    layer *l = call;
    (void)arg;
    (void)pick;
    l->bias = l->weight;
    l->bias_given = &l->bias;
    l->p.desc.features &= ~HEED_LINEAR_HAS_BIAS;
    l->p.desc.bias_type = HEED_DTYPE_NONE;
    return "bias";
}

static const char *uneven_heads(void *call, int arg, uint32_t pick)
{
    layer *l = call;
    (void)arg;
    l->p.desc.heads = l->p.desc.out_dim + 1 + pick;
    return "heads";
}

static const char *y_is_x(void *call, int arg, uint32_t pick)
{
    layer *l = call;
    (void)arg;
    (void)pick;
    l->p.args.y.data = l->p.tensor[KIT_LINEAR_X].view.data;
    return "args.y";
}

/* The residual is y, but its rows or columns run backwards. */
static const char *residual_backwards(void *call, int arg, uint32_t pick)
{
    layer *l = call;
    const kit_linear_spec *s = &l->p.spec;
    (void)arg;
    (void)pick;
    l->p.args.residual = heed_as_const(l->p.args.y);
    l->p.args.residual.stride[s->out_dim > 1] *= -1;
    return s->rows > (s->out_dim == 1) ? "residual" : NULL;
}

static const char *bad_executor(void *call, int arg, uint32_t pick)
{
    static const heed_executor executors[] = {
        {.struct_size = sizeof(heed_executor), .n_threads = 2},
        {.struct_size = sizeof(heed_executor), .parallel_for = kit_backwards},
        {.struct_size = sizeof(heed_executor)}};
    (void)arg;
    ((layer *)call)->p.args.executor = &executors[pick % 3];
    return "executor";
}

static const char *bad_workspace(void *call, int arg, uint32_t pick)
{
    return kit_spoil_workspace(&((layer *)call)->room, arg, pick);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* clang-format off */
#define INVALID HEED_ERR_INVALID
#define REFUSED HEED_ERR_UNSUPPORTED
#define BIAS HEED_LINEAR_HAS_BIAS
#define RESIDUAL HEED_LINEAR_HAS_RESIDUAL
#define PUT(field, ...) KIT_CHANGE(layer, KIT_PUT, field, __VA_ARGS__)
#define OR(field, ...) KIT_CHANGE(layer, KIT_OR, field, __VA_ARGS__)
#define DO(function, of, kinds) .make = (function), .arg = (of), .n = (kinds)

static const kit_mistake mistakes[] = {
    {"in_dim", "in_dim", IN_DESC, INVALID, PUT(p.desc.in_dim, 0, (1u << 24) + 1, UINT32_MAX)},
    {"out_dim", "out_dim", IN_DESC, INVALID, PUT(p.desc.out_dim, 0, (1u << 24) + 1, UINT32_MAX)},
    {"x_type", "x_type", IN_DESC, INVALID, PUT(p.desc.x_type, KIT_BAD_TYPES)},
    {"x_type_reserved", "x_type", IN_DESC, REFUSED, PUT(p.desc.x_type, KIT_CODES)},
    {"w_type", "w_type", IN_DESC, INVALID, PUT(p.desc.w_type, KIT_BAD_TYPES)},
    {"w_type_reserved", "w_type", IN_DESC, REFUSED, PUT(p.desc.w_type, KIT_CODES)},
    {"y_type", "y_type", IN_DESC, INVALID, PUT(p.desc.y_type, KIT_BAD_TYPES)},
    {"y_type_reserved", "y_type", IN_DESC, REFUSED, PUT(p.desc.y_type, KIT_CODES)},
    {"bias_type", "bias_type", IN_DESC, INVALID, PUT(p.desc.bias_type, KIT_BAD_TYPES), .with = BIAS},
    {"bias_type_reserved", "bias_type", IN_DESC, REFUSED, PUT(p.desc.bias_type, KIT_CODES),
     .with = BIAS},
    {"bias_type_alone", "bias_type", IN_DESC, INVALID, PUT(p.desc.features, 0), .with = BIAS},
    {"bias_type_without_bias", "bias_type", IN_DESC, INVALID,
     PUT(p.desc.bias_type, HEED_F16, 14, UINT32_MAX, KIT_CODES), .without = BIAS},
    {"unknown_bit", "features", IN_DESC, INVALID,
     OR(p.desc.features, 4, INT64_C(1) << 32, INT64_C(1) << 33, INT64_MIN)},
    {"layout", "layout", IN_DESC, INVALID, PUT(p.desc.layout, 2, 77, 257, UINT32_MAX)},
    {"activation", "activation", IN_DESC, INVALID, PUT(p.desc.activation, 4, 77, 259, UINT32_MAX)},
    {"accuracy", "accuracy", IN_DESC, INVALID, PUT(p.desc.accuracy, 5, 77, 259, UINT32_MAX)},
    {"heads", "heads", IN_DESC, INVALID, DO(uneven_heads, 0, 2)},
    {"desc_size", "struct_size", IN_DESC, HEED_ERR_ABI,
     PUT(p.desc.struct_size, KIT_BAD_STRUCTS, 4)},
    {"weight_none", "weight", AT_CREATION, INVALID, PUT(weight_given, 0)},
    {"weight_null", "weight", AT_CREATION, INVALID, PUT(weight.data, 0)},
    {"weight_strides", "weight", AT_CREATION, INVALID, DO(broken_stride, KIT_LINEAR_W, 24)},
    {"weight_axes", "weight", AT_CREATION, INVALID, DO(one_axis_more, KIT_LINEAR_W, 8)},
    {"bias_none", "bias", AT_CREATION, INVALID, PUT(bias_given, 0), .with = BIAS},
    {"bias_null", "bias", AT_CREATION, INVALID, PUT(bias.data, 0), .with = BIAS},
    {"bias_stride", "bias", AT_CREATION, INVALID, DO(broken_stride, KIT_LINEAR_BIAS, 8),
     .with = BIAS},
    {"bias_axes", "bias", AT_CREATION, INVALID, DO(one_axis_more, KIT_LINEAR_BIAS, 8),
     .with = BIAS},
    {"bias_alone", "bias", AT_CREATION, INVALID, DO(bias_alone, 0, 1)},
    {"context_null", "context", AT_CREATION, INVALID, PUT(context, 0)},
    {"out_null", "out", AT_CREATION, INVALID, PUT(out, 0)},
    {"rows", "args.rows", AT_RUN, INVALID, PUT(p.args.rows, KIT_BAD_SIZES)},
    {"x_null", "args.x", AT_RUN, INVALID, PUT(p.args.x.data, 0), .with = ROWS},
    {"y_null", "args.y", AT_RUN, INVALID, PUT(p.args.y.data, 0), .with = ROWS},
    {"residual_null", "args.residual", AT_RUN, INVALID, PUT(p.args.residual.data, 0),
     .with = RESIDUAL | ROWS},
    {"residual_alone", "residual", AT_RUN, INVALID, PUT(p.args.residual.data, KIT_SOMETHING),
     .without = RESIDUAL},
    {"x_strides", "args.x", AT_RUN, INVALID, DO(broken_stride, KIT_LINEAR_X, 16), .with = ROWS},
    {"y_strides", "args.y", AT_RUN, INVALID, DO(broken_stride, KIT_LINEAR_Y, 16), .with = ROWS},
    {"residual_strides", "args.residual", AT_RUN, INVALID, DO(broken_stride, KIT_LINEAR_R, 16),
     .with = RESIDUAL | ROWS},
    {"x_axes", "args.x", AT_RUN, INVALID, DO(one_axis_more, KIT_LINEAR_X, 8), .with = ROWS},
    {"y_axes", "args.y", AT_RUN, INVALID, DO(one_axis_more, KIT_LINEAR_Y, 8), .with = ROWS},
    {"residual_axes", "args.residual", AT_RUN, INVALID, DO(one_axis_more, KIT_LINEAR_R, 8),
     .with = RESIDUAL | ROWS},
    {"y_is_x", "args.y", AT_RUN, INVALID, DO(y_is_x, 0, 1), .with = ROWS},
    {"residual_is_y_backwards", "residual", AT_RUN, INVALID, DO(residual_backwards, 0, 1),
     .with = RESIDUAL | ROWS},
    {"args_size", "struct_size", AT_RUN, HEED_ERR_ABI, PUT(p.args.struct_size, KIT_BAD_STRUCTS)},
    {"executor", "executor", AT_RUN_ALONE, INVALID, DO(bad_executor, 0, 3)},
    {"workspace_crooked", "workspace", AT_RUN, INVALID, DO(bad_workspace, KIT_CROOKED, 63)},
    {"workspace_small", "workspace", AT_RUN, HEED_ERR_NOMEM, DO(bad_workspace, KIT_SMALL, 2)},
    {"no_parts", "n_parts", AT_BEGIN_ALONE, INVALID, DO(bad_workspace, KIT_NO_PARTS, 1)},
    {"too_many_parts", "workspace", AT_BEGIN_ALONE, HEED_ERR_NOMEM,
     DO(bad_workspace, KIT_MANY_PARTS, 1)},
};
/* clang-format on */

size_t kit_linear_mistakes(void)
{
    return KIT_COUNT(mistakes);
}

/* ---- what comes back ------------------------------------------------------------------------- */

static void at_creation(const kit_mistake *m, const char *word, layer *l, kit_outcome *outcome)
{
    heed_linear *linear = NULL;
    heed_error why = {""};
    l->out = l->out ? &linear : NULL;
    kit_judge_refusal(
        m, word, "heed_linear_create",
        heed_linear_create(l->context, &l->p.desc, l->weight_given, l->bias_given, l->out),
        heed_last_error(), outcome);
    if (linear)
        kit_fail(outcome, "%s: heed_linear_create failed and yet gave a layer", m->name);
    if (m->where == IN_DESC)
        kit_judge_refusal(m, word, "heed_linear_supported",
                          heed_linear_supported(l->context, &l->p.desc, &why), why.text, outcome);
}

static void at_run(const kit_mistake *m, const char *word, layer *l, const heed_linear *linear,
                   kit_outcome *outcome)
{
    kit_mistaken_workspace *room = &l->room;
    heed_error why = {""};
    if (m->where != AT_BEGIN_ALONE) {
        const size_t bytes = heed_linear_workspace_bytes(linear, 1);
        kit_judge_refusal(
            m, word, "heed_linear_run",
            heed_linear_run(linear, &l->p.args, kit_workspace(room), kit_bytes_left(room, bytes)),
            heed_last_error(), outcome);
    }
    if (m->where == AT_RUN_ALONE)
        return; /* parts need no executor */
    const size_t bytes = heed_linear_workspace_bytes(linear, KIT_MISTAKEN_PARTS);
    l->p.args.error = &why;
    heed_status status = heed_linear_begin(linear, &l->p.args, room->n_parts, kit_workspace(room),
                                           kit_bytes_left(room, bytes));
    /* args of an unknown size: where its `error` is cannot be known either. */
    kit_judge_refusal(m, word, "heed_linear_begin", status,
                      m->status == HEED_ERR_ABI ? heed_last_error() : why.text, outcome);
    if (heed_run_part(room->memory.data, 0) == HEED_OK)
        kit_fail(outcome, "%s: heed_run_part succeeds on a run that did not begin", m->name);
}

int kit_linear_refuses(heed_context *context, const kit_linear *p, size_t which, uint32_t pick,
                       kit_outcome *outcome)
{
    const kit_mistake *m = &mistakes[which];
    const uint64_t has = p->desc.features | (p->spec.rows ? ROWS : 0);
    const kit_matrix *y = &p->tensor[KIT_LINEAR_Y];
    const char *word = NULL;
    heed_linear *linear = NULL;
    layer l = {.p = *p,
               .weight = heed_as_const(p->tensor[KIT_LINEAR_W].view),
               .bias = heed_as_const(p->tensor[KIT_LINEAR_BIAS].view),
               .weight_given = &l.weight,
               .bias_given = p->spec.bias_type ? &l.bias : NULL,
               .context = context,
               .out = &linear};
    if ((has & m->with) != m->with || has & m->without)
        return 0;
    if (kit_status(outcome,
                   heed_linear_create(context, &l.p.desc, l.weight_given, l.bias_given, &linear),
                   heed_last_error(), "heed_linear_create") == 0 &&
        kit_map_workspace(&l.room, heed_linear_workspace_bytes(linear, KIT_MISTAKEN_PARTS)) == 0 &&
        (word = kit_make_mistake(m, &l, pick)) != NULL) {
        guard_read_only((guard_buffer *)&y->buffer); /* a write is a crash */
        if (m->where == IN_DESC || m->where == AT_CREATION)
            at_creation(m, word, &l, outcome);
        else
            at_run(m, word, &l, linear, outcome);
        guard_open((guard_buffer *)&y->buffer);
    }
    guard_unmap(&l.room.memory);
    heed_linear_release(linear);
    return word != NULL;
}

/* ---- the cases ------------------------------------------------------------------------------- */

static kit_linear_spec good_layer(const kit_mistake *m)
{
    return (kit_linear_spec){.rows = 6,
                             .in_dim = 20,
                             .out_dim = 30,
                             .x_type = HEED_F32,
                             .w_type = HEED_F32,
                             .y_type = HEED_F32,
                             .bias_type = m && m->without & BIAS ? HEED_DTYPE_NONE : HEED_F32,
                             .residual = m && m->without & RESIDUAL ? KIT_LINEAR_NO_RESIDUAL
                                                                    : KIT_LINEAR_RESIDUAL};
}

static void run_mistake(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const kit_mistake *m = &mistakes[c->variant];
    const kit_linear_spec spec = good_layer(m);
    int n_made = 0;
    for (uint32_t pick = 0; pick < m->n; pick++) {
        kit_linear p = {0};
        if (kit_linear_build(&p, &spec, GUARD_HIGH) != 0)
            kit_fail(outcome, "out of memory");
        else
            n_made += kit_linear_refuses(env->context, &p, (size_t)c->variant, pick, outcome);
        kit_linear_free(&p);
    }
    if (n_made == 0 && outcome->verdict == KIT_PASSED)
        kit_fail(outcome, "the mistake was not made");
}

static void judge(const kit_linear *p, const char *call, heed_status status, const char *sentence,
                  heed_status wanted, const char *word, kit_outcome *outcome)
{
    const kit_mistake m = {.name = "workspace and parts", .status = wanted};
    kit_judge_refusal(&m, word, call, status, sentence, outcome);
    if (!kit_is_canary(&p->tensor[KIT_LINEAR_Y].buffer))
        kit_fail(outcome, "%s failed and yet wrote to y", call);
}

/* Workspaces that are too small or misaligned, parts that do not exist, one hold of two given back,
 * and a good call after all of that. */
static void run_workspace(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    heed_linear *linear = NULL;
    guard_buffer workspace = {0};
    const kit_linear_spec spec = good_layer(NULL);
    kit_linear good = {0}, *p = &good;
    (void)c;
    const int built = kit_linear_build(p, &spec, GUARD_HIGH) == 0 && kit_linear_solve(p) == 0;
    const heed_const_view weight = heed_as_const(p->tensor[KIT_LINEAR_W].view);
    const heed_const_view bias = heed_as_const(p->tensor[KIT_LINEAR_BIAS].view);
    if (!built ||
        kit_status(outcome, heed_linear_create(env->context, &p->desc, &weight, &bias, &linear),
                   heed_last_error(), "heed_linear_create") != 0) {
        kit_linear_free(p);
        return;
    }
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
    kit_linear_free(p);
}

void kit_linear_error_cases(kit_list *list)
{
    for (size_t n = 0; n < KIT_COUNT(mistakes); n++) {
        kit_case c = {.quick = 1, .run = run_mistake, .variant = (int)n};
        snprintf(c.name, sizeof c.name, "linear/error_%s/f32", mistakes[n].name);
        kit_add(list, &c);
    }
    kit_case c = {.name = "linear/error_workspace_and_parts/f32", .quick = 1, .run = run_workspace};
    kit_add(list, &c);
}
