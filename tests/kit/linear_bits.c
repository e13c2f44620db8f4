/* The bits of linear layers (heed/linear.h, "Bits"): a row of y depends on its row of x and of the
 * residual, the weights, the bias and the description. Each case runs a layer once, plainly, and
 * then again with everything changed that may not matter. */
#include "cases.h"
#include "linear_run.h"

#include <stdio.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const kit_linear_way plainly = {.how = KIT_BY_WORKSPACE, .n_parts = 1};

static int run(heed_context *context, const kit_linear_spec *spec, int side,
               const kit_linear_way *way, kit_linear *to, kit_outcome *outcome)
{
    heed_error why = {""};
    if (kit_linear_build(to, spec, side) != 0)
        return kit_fail(outcome, "out of memory"), -1;
    return kit_status(outcome, kit_linear_run(context, to, way, &why), why.text, "a linear layer");
}

static int same(heed_context *context, const kit_linear *first, int64_t row,
                const kit_linear_spec *spec, int side, const kit_linear_way *way, const char *what,
                kit_outcome *outcome)
{
    kit_linear again;
    int bad = run(context, spec, side, way, &again, outcome) != 0 ||
              kit_linear_differ(what, first, row, &again, outcome);
    kit_linear_free(&again);
    return bad;
}

/* ---- what is changed ------------------------------------------------------------------------- */

/* Rows alone, in pairs, at other places: they give the same bits as in a call with all rows. */
static void rows(const kit_env *env, const kit_linear_spec *spec, const kit_linear *first,
                 kit_outcome *outcome)
{
    static const int64_t together[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 65};
    char what[60];
    for (size_t n = 0; n < COUNT(together) && together[n] < spec->rows; n++)
        for (int64_t r = 0; r + together[n] <= spec->rows; r += 1 + spec->rows / 5) {
            kit_linear_spec some = *spec;
            some.rows = together[n];
            some.first_row = spec->first_row + r;
            snprintf(what, sizeof what, "%lld rows from row %lld", (long long)some.rows,
                     (long long)r);
            if (same(env->context, first, r, &some, GUARD_LOW, &plainly, what, outcome))
                return;
        }
}

static void threads(const kit_env *env, const kit_linear_spec *spec, const kit_linear *first,
                    kit_outcome *outcome)
{
    static const uint32_t count[] = {1, 2, 3, 8};
    char what[40];
    for (size_t n = 0; n < COUNT(count); n++) {
        heed_context *context = kit_context(env, count[n], NULL, outcome);
        const kit_linear_way own = {.how = KIT_BY_WORKSPACE, .n_parts = count[n], .garbage = 0xff};
        const kit_linear_way lent = {.how = KIT_BY_CONTEXT};
        snprintf(what, sizeof what, "%u threads", count[n]);
        int bad = !context || same(context, first, 0, spec, GUARD_HIGH, &own, what, outcome) ||
                  same(context, first, 0, spec, GUARD_HIGH, &lent, what, outcome);
        heed_context_release(context);
        if (bad)
            return;
    }
}

static void parts(const kit_env *env, const kit_linear_spec *spec, const kit_linear *first,
                  kit_outcome *outcome)
{
    static const int how[] = {KIT_BY_PARTS, KIT_BY_ONE_PART, KIT_BY_THREADS, KIT_BY_EXECUTOR};
    static const char *const name[] = {"in turn", "the last alone", "at once", "by an executor"};
    char what[40];
    for (uint32_t n = 1; n <= 16; n += n < 4 ? 1 : 4)
        for (size_t at = 0; at < COUNT(how); at++) {
            const kit_linear_way way = {
                .how = how[at], .n_parts = n, .garbage = n & 1 ? 0xff : 0x5a};
            snprintf(what, sizeof what, "%u parts, %s", n, name[at]);
            if (same(env->context, first, 0, spec, GUARD_HIGH, &way, what, outcome))
                return;
        }
}

/* Strides, alignment, the weight's layout: the numbers are the same. */
static void memory(const kit_env *env, const kit_linear_spec *spec, const kit_linear *first,
                   kit_outcome *outcome)
{
    char what[40];
    for (uint32_t m = KIT_LINEAR_DENSE; m < KIT_LINEAR_BROADCAST; m++)
        for (uint32_t layout = 0; layout < 2; layout++) {
            kit_linear_spec other = *spec;
            other.memory = m;
            other.layout = layout;
            snprintf(what, sizeof what, "memory %u, layout %u", m, layout);
            if (same(env->context, first, 0, &other, m & 1 ? GUARD_LOW : GUARD_HIGH, &plainly, what,
                     outcome))
                return;
        }
    kit_linear_spec heads = *spec;
    for (heads.heads = 1; heads.heads <= spec->out_dim; heads.heads++)
        if (spec->out_dim % heads.heads == 0 &&
            same(env->context, first, 0, &heads, GUARD_HIGH, &plainly, "other heads", outcome))
            return;
    kit_linear_spec place = *spec;
    place.residual = spec->residual ? KIT_LINEAR_IN_PLACE + KIT_LINEAR_RESIDUAL - spec->residual
                                    : KIT_LINEAR_NO_RESIDUAL;
    same(env->context, first, 0, &place, GUARD_HIGH, &plainly, "the residual elsewhere", outcome);
}

/* 0x8040 flushes results and inputs to zero, 0x6000 holds the rounding mode, and without 0x0280
 * invalid operations and divisions by zero trap. */
static void host_state(const kit_env *env, const kit_linear_spec *spec, const kit_linear *first,
                       kit_outcome *outcome)
{
#if defined(__x86_64__) || defined(__i386__)
    static const unsigned int state[] = {0x9fc0, 0x3f80, 0x5f80, 0x7f80, 0xffc0, 0x1d00};
    const unsigned int before = _mm_getcsr();
    for (size_t n = 0; n < COUNT(state); n++) {
        kit_linear p = {0};
        heed_error why = {""};
        if (kit_linear_build(&p, spec, GUARD_HIGH) != 0) {
            kit_fail(outcome, "out of memory");
        } else {
            _mm_setcsr(state[n]);
            heed_status status = kit_linear_run(env->context, &p, &plainly, &why);
            const unsigned int after = _mm_getcsr();
            _mm_setcsr(before);
            if (kit_status(outcome, status, why.text, "a linear layer") == 0)
                kit_linear_differ("another MXCSR", first, 0, &p, outcome);
            /* The flags of exceptions that were raised may change: no result depends on them. */
            if ((after ^ state[n]) & ~0x3fu)
                kit_fail(outcome, "MXCSR was %#x and is %#x after the call", state[n], after);
        }
        kit_linear_free(&p);
    }
#else
    (void)env, (void)spec, (void)first, (void)outcome;
#endif
}

typedef void (*change)(const kit_env *, const kit_linear_spec *, const kit_linear *, kit_outcome *);

static const struct {
    const char *name;
    change change;
} changes[] = {{"rows", rows},
               {"threads", threads},
               {"parts", parts},
               {"memory", memory},
               {"host_state", host_state}};

static void run_change(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    kit_linear first;
    kit_linear_spec spec = c->linear;
    spec.seed = c->spec.seed;
    if (run(env->context, &spec, GUARD_HIGH, &plainly, &first, outcome) == 0)
        changes[c->variant].change(env, &spec, &first, outcome);
    kit_linear_free(&first);
}

void kit_linear_bits_cases(kit_list *list)
{
    static const struct {
        const char *name;
        kit_linear_spec spec;
    } layer[] = {
        {"plain", {.rows = 70, .in_dim = 300, .out_dim = 100}},
        {"fused",
         {.rows = 33,
          .in_dim = 520,
          .out_dim = 60,
          .bias_type = HEED_F32,
          .activation = HEED_ACT_GELU,
          .residual = KIT_LINEAR_RESIDUAL}},
        {"wide", {.rows = 9, .in_dim = 17, .out_dim = 900, .activation = HEED_ACT_SILU}},
        {"denormal", {.rows = 12, .in_dim = 40, .out_dim = 50, .values = KIT_LINEAR_DENORMAL}},
    };
    for (size_t n = 0; n < COUNT(layer); n++)
        for (size_t v = 0; v < COUNT(changes); v++)
            for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
                kit_case c = {
                    .run = run_change, .quick = n == 1, .variant = (int)v, .linear = layer[n].spec};
                c.linear.x_type = c.linear.w_type = c.linear.y_type = type;
                snprintf(c.name, sizeof c.name, "linear/bits_%s_%s/%s", changes[v].name,
                         layer[n].name, kit_type_name(type));
                kit_add(list, &c);
                /* Weights in fewer bits than what they are multiplied with. */
                if (type == HEED_F32)
                    continue;
                c.linear.x_type = c.linear.y_type = HEED_F32;
                snprintf(c.name, sizeof c.name, "linear/bits_%s_%s_w_%s/f32", changes[v].name,
                         layer[n].name, kit_type_name(type));
                kit_add(list, &c);
            }
}
