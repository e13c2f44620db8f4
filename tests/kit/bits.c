/* The numerics contract, bit for bit (heed/attention.h, "Bits"): an output row depends on its own
 * problem alone. Each case runs a problem once, plainly, and then again with everything changed
 * that may not matter. */
#include "bits.h"
#include "cases.h"
#include "random.h"
#include "run.h"

#include <heed/kit.h>

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const kit_way plainly = {.how = KIT_BY_WORKSPACE, .n_parts = 1, .garbage = 0};

/* The problem as it is first run, and its results. */
typedef struct base {
    kit_problem p;
    kit_result x;
} base;

static int begin(const kit_env *env, const kit_case *c, base *first, kit_outcome *outcome)
{
    return kit_run_once(env->context, &first->p, &c->spec, GUARD_HIGH, NULL, &plainly, &first->x,
                        outcome);
}

static void end(base *first)
{
    kit_drop(&first->x);
    kit_free(&first->p);
}

/* Runs spec in another way and compares all results. Returns 0 if the bits are the same. */
static int same(heed_context *context, const base *first, const kit_spec *spec, int side,
                const kit_way *way, const char *what, kit_outcome *outcome)
{
    base again = {0};
    int bad = kit_run_once(context, &again.p, spec, side, &first->p, way, &again.x, outcome) != 0 ||
              kit_all_differ(outcome, what, &first->p, &first->x, &again.p, &again.x);
    end(&again);
    return bad;
}

/* ---- who computes ---------------------------------------------------------------------------- */

static void threads(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const uint32_t count[] = {1, 2, 3, 8};
    base first = {0};
    if (begin(env, c, &first, outcome) == 0)
        for (size_t n = 0; n < COUNT(count) && outcome->verdict == KIT_PASSED; n++) {
            heed_context *context = kit_context(env, count[n], NULL, outcome);
            kit_way plan = {.how = KIT_BY_WORKSPACE, .n_parts = count[n], .garbage = 0xff};
            kit_way call = {.how = KIT_BY_CALL};
            char what[40];
            snprintf(what, sizeof what, "%u threads", count[n]);
            if (context && !same(context, &first, &c->spec, GUARD_HIGH, &plan, what, outcome))
                same(context, &first, &c->spec, GUARD_HIGH, &call, what, outcome);
            heed_context_release(context);
        }
    end(&first);
}

static void parts(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const int how[] = {KIT_BY_PARTS, KIT_BY_ONE_PART, KIT_BY_THREADS};
    static const char *const name[] = {"in turn", "the last alone", "at once"};
    base first = {0};
    if (begin(env, c, &first, outcome) == 0)
        for (uint32_t n = 1; n <= 16 && outcome->verdict == KIT_PASSED; n++)
            for (size_t at = 0; at < COUNT(how); at++) {
                kit_way way = {.how = how[at], .n_parts = n, .garbage = n & 1 ? 0xff : 0x5a};
                char what[40];
                snprintf(what, sizeof what, "%u parts, %s", n, name[at]);
                if (same(env->context, &first, &c->spec, GUARD_HIGH, &way, what, outcome))
                    break;
            }
    end(&first);
}

static void forwards(void *user, uint32_t n, void (*body)(void *arg, uint32_t i), void *arg)
{
    (void)user;
    for (uint32_t i = 0; i < n; i++)
        body(arg, i);
}

static void executors(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    base first = {0};
    if (begin(env, c, &first, outcome) == 0)
        for (uint32_t n = 1; n <= 5 && outcome->verdict == KIT_PASSED; n++) {
            heed_executor executor = {
                .struct_size = sizeof executor, .n_threads = n, .parallel_for = forwards};
            heed_context *context = kit_context(env, 0, &executor, outcome);
            kit_way call = {.how = KIT_BY_EXECUTOR, .n_parts = n, .garbage = 0xff};
            kit_way own = {.how = KIT_BY_CALL};
            char what[40];
            snprintf(what, sizeof what, "an executor of %u", n);
            if (context && !same(env->context, &first, &c->spec, GUARD_HIGH, &call, what, outcome))
                same(context, &first, &c->spec, GUARD_HIGH, &own, what, outcome);
            heed_context_release(context);
        }
    end(&first);
}

/* ---- around the row's own problem ------------------------------------------------------------ */

/* Compares sequence b of the first run with sequence `at` of another batch. Returns 0 if the bits
 * are the same. */
static int one_of(const kit_env *env, const base *first, const kit_spec *spec, uint32_t b,
                  uint32_t at, const char *what, kit_outcome *outcome)
{
    base again = {0};
    int bad = kit_run_once(env->context, &again.p, spec, GUARD_LOW, &first->p, &plainly, &again.x,
                           outcome) != 0 ||
              kit_differ(outcome, what, first->p.q_lens[b], (kit_rows){&first->p, &first->x, b, 0},
                         (kit_rows){&again.p, &again.x, at, 0});
    end(&again);
    return bad;
}

static void batches(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    base first = {0};
    if (begin(env, c, &first, outcome) != 0) {
        end(&first);
        return;
    }
    for (uint32_t b = 0; b < c->spec.batch && outcome->verdict == KIT_PASSED; b++) {
        kit_spec alone = c->spec, moved = c->spec;
        alone.batch = 1;
        alone.sequence[0] = c->spec.sequence[b];
        alone.q_len = alone.sequence[0].q_len;
        alone.kv_len = alone.sequence[0].kv_len;
        if (one_of(env, &first, &alone, b, 0, "a sequence alone", outcome))
            break;
        /* The sequence twice in a batch, between another one and an empty one, in wider tensors. */
        moved.batch = 4;
        moved.q_len += 5;
        moved.kv_len += 29;
        moved.sequence[0] = (kit_sequence){.id = 99, .q_len = (int32_t)moved.q_len, .kv_len = 3};
        moved.sequence[1] = moved.sequence[2] = c->spec.sequence[b];
        moved.sequence[3] = (kit_sequence){.id = 98};
        if (!one_of(env, &first, &moved, b, 1, "a sequence in another batch", outcome))
            one_of(env, &first, &moved, b, 2, "a sequence at another place", outcome);
    }
    end(&first);
}

/* Gives every head but one other rows of q, slopes and a sink. */
static void change_others(kit_problem *p, int64_t kept)
{
    const kit_tensor *q = &p->tensor[KIT_Q];
    char *data = (char *)p->buffer[q->buffer].data;
    for (int64_t h = 0; h < q->dim[1]; h++) {
        if (h == kept)
            continue;
        p->alibi_slope[h] = -3;
        p->bias_slope[h] = 2.5F;
        p->sink[h] = 9;
        for (int64_t b = 0; b < q->dim[0]; b++)
            for (int64_t i = 0; i < p->q_lens[b]; i++)
                for (int64_t d = 0; d < q->dim[3]; d++) {
                    char *at = data + kit_at(q, b, h, i, d);
                    heed_store(q->type, at, 0, 0.5F - 3 * heed_load(q->type, at, 0));
                }
    }
}

/* Puts into a result what another has of all heads but one. */
static void take_others(const kit_problem *p, kit_result *to, const kit_result *from, int64_t kept)
{
    uint32_t *const into[4] = {to->out, to->lse, to->weights, to->scores};
    const uint32_t *const of[4] = {from->out, from->lse, from->weights, from->scores};
    const int64_t heads = p->spec.q_heads;
    for (int o = 0; o < 4; o++) {
        const size_t each = to->n[o] / (p->spec.batch * (size_t)heads);
        for (int64_t n = 0; n < p->spec.batch * heads && each; n++)
            if (n % heads != kept)
                memcpy(into[o] + (size_t)n * each, of[o] + (size_t)n * each, 4 * each);
    }
}

static void neighbours(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    base first = {0};
    int go_on = begin(env, c, &first, outcome) == 0;
    for (int64_t kept = 0; kept < c->spec.q_heads && go_on; kept += 3) {
        heed_error sentence = {""};
        const char *changed = NULL;
        base again = {0};
        go_on = kit_build_again(&again.p, &c->spec, GUARD_LOW, &first.p) == 0;
        if (go_on) {
            change_others(&again.p, kept);
            kit_seal(&again.p);
            const heed_status st = kit_run(env->context, &again.p, &plainly, &sentence, &changed);
            kit_open(&again.p);
            go_on = kit_status(outcome, st, sentence.text, "the run") == 0;
        }
        go_on = go_on && kit_take(&again.p, &again.x) == 0;
        if (!go_on && outcome->verdict == KIT_PASSED)
            kit_fail(outcome, "out of memory");
        if (go_on) {
            take_others(&again.p, &again.x, &first.x, kept);
            go_on = !kit_all_differ(outcome, "a head among others", &first.p, &first.x, &again.p,
                                    &again.x);
        }
        end(&again);
    }
    end(&first);
}

static void maxima(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const int64_t more[] = {1, 15, 500, 20000};
    base first = {0};
    if (begin(env, c, &first, outcome) == 0)
        for (size_t n = 0; n < COUNT(more); n++) {
            kit_way way = {.how = KIT_BY_WORKSPACE, .n_parts = 1, .more = more[n], .garbage = 0xff};
            if (same(env->context, &first, &c->spec, GUARD_HIGH, &way, "a larger plan", outcome))
                break;
        }
    end(&first);
}

static void widths(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const int64_t more[][2] = {{0, 1}, {1, 0}, {7, 64}, {100, 300}};
    base first = {0};
    if (begin(env, c, &first, outcome) == 0)
        for (size_t n = 0; n < COUNT(more); n++) {
            kit_spec wide = c->spec;
            wide.q_len += more[n][0];
            wide.kv_len += more[n][1];
            if (same(env->context, &first, &wide, GUARD_HIGH, &plainly, "wider tensors", outcome))
                break;
        }
    end(&first);
}

static void addresses(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    base first = {0};
    kit_spec spec = c->spec;
    kit_case padded = *c;
    padded.spec.layout = KIT_PADDED;
    spec.layout = KIT_ODD; /* the same strides, at odd addresses */
    if (begin(env, &padded, &first, outcome) == 0 &&
        !same(env->context, &first, &padded.spec, GUARD_LOW, &plainly, "other addresses",
              outcome) &&
        !same(env->context, &first, &spec, GUARD_LOW, &plainly, "odd addresses", outcome))
        same(env->context, &first, &spec, GUARD_HIGH, &plainly, "odd addresses, high", outcome);
    end(&first);
}

/* States of MXCSR that a host may call us in. 0x1f80 is the default: all exceptions masked,
 * rounding to nearest. 0x8040 flushes results and inputs to zero, 0x6000 holds the rounding mode,
 * and without 0x0280 invalid operations and divisions by zero trap. */
static void host_state(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const unsigned int state[] = {0x9fc0, 0x1fc0, 0x9f80, 0x3f80,
                                         0x5f80, 0x7f80, 0xffc0, 0x1d00};
    static const int how[] = {KIT_BY_WORKSPACE, KIT_BY_PARTS, KIT_BY_CALL};
    base first = {0};
    if (begin(env, c, &first, outcome) == 0)
        for (size_t n = 0; n < COUNT(state) && outcome->verdict == KIT_PASSED; n++)
            for (size_t at = 0; at < COUNT(how); at++) {
                kit_way way = {.how = how[at], .n_parts = 2, .mxcsr = state[n]};
                char what[40];
                snprintf(what, sizeof what, "a host with MXCSR %#x", state[n]);
                if (same(env->context, &first, &c->spec, GUARD_HIGH, &way, what, outcome))
                    break;
            }
    end(&first);
}

static void optional(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    const uint64_t all = HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES;
    base first = {0};
    kit_case none = *c;
    none.spec.features &= ~all;
    none.spec.scores_stage = HEED_SCORES_NONE;
    if (begin(env, &none, &first, outcome) == 0)
        for (uint32_t n = 1; n < 16; n++) {
            kit_spec spec = none.spec;
            spec.scores_stage = n >> 2;
            spec.features |= (n & 1 ? HEED_HAS_LSE : 0) | (n & 2 ? HEED_HAS_WEIGHTS : 0) |
                             (n >> 2 ? HEED_HAS_SCORES : 0);
            if (same(env->context, &first, &spec, GUARD_HIGH, &plainly, "optional outputs",
                     outcome))
                break;
        }
    end(&first);
}

/* ---- HEED_HAS_REPRODUCIBLE_CHUNKS ------------------------------------------------------------ */

static void strides(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    base first = {0};
    kit_case chunks = *c;
    chunks.spec.features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    chunks.spec.layout = KIT_BHSD;
    if (begin(env, &chunks, &first, outcome) == 0)
        for (uint32_t layout = KIT_BSHD; layout < KIT_LAYOUTS; layout++) {
            kit_spec spec = chunks.spec;
            spec.layout = layout;
            if (layout != KIT_SHARED && layout != KIT_V_IN_K && /* which hold other values */
                same(env->context, &first, &spec, GUARD_HIGH, &plainly, "other strides", outcome))
                break;
        }
    end(&first);
}

/* The same problem in packed rows and in pages. */
static void storages(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const uint32_t page_len[] = {1, 3, 16, 17, 64, 1000};
    base first = {0};
    kit_case chunks = *c;
    chunks.spec.features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    chunks.spec.storage = KIT_PADDED_ROWS;
    if (begin(env, &chunks, &first, outcome) == 0)
        for (uint32_t storage = KIT_RAGGED_Q; storage < KIT_STORAGES; storage++)
            for (size_t n = 0; n < (storage < KIT_PAGED ? 1 : COUNT(page_len)); n++) {
                kit_spec spec = chunks.spec;
                char what[60];
                spec.storage = storage;
                spec.page_len = page_len[n];
                spec.layout = n % 2 ? KIT_BHSD : KIT_BSHD;
                snprintf(what, sizeof what, "storage %u, pages of %u", storage,
                         storage < KIT_PAGED ? 0 : page_len[n]);
                if (same(env->context, &first, &spec, n % 2 ? GUARD_LOW : GUARD_HIGH, &plainly,
                         what, outcome))
                    break;
            }
    end(&first);
}

/* Computes rows [row, row + n) of every sequence in a call of their own and compares them with the
 * whole. With grown != 0 the keys end where the last of these rows stands, as in a cache that
 * grows. */
static int chunk(const kit_env *env, const base *first, int32_t row, int32_t n, int grown,
                 uint32_t layout, uint32_t storage, kit_outcome *outcome)
{
    kit_spec spec = first->p.spec;
    base again = {0};
    char what[60];
    int bad;
    spec.layout = layout;
    spec.storage = storage;
    spec.page_len = 16;
    spec.q_len = n;
    for (uint32_t b = 0; b < spec.batch; b++) {
        kit_sequence *s = &spec.sequence[b];
        int32_t left = s->q_len - row, end = row + n + s->offset;
        s->first_row += row;
        s->q_len = left < 0 ? 0 : left < n ? left : n;
        s->offset += row;
        if (grown && end < s->kv_len)
            s->kv_len = end < 0 ? 0 : end;
    }
    snprintf(what, sizeof what, "rows [%d, %d) in a call of their own%s", row, row + n,
             grown ? ", on a growing cache" : "");
    bad = kit_run_once(env->context, &again.p, &spec, GUARD_HIGH, &first->p, &plainly, &again.x,
                       outcome) != 0;
    for (uint32_t b = 0; b < spec.batch && !bad; b++)
        bad = kit_differ(outcome, what, again.p.q_lens[b], (kit_rows){&again.p, &again.x, b, 0},
                         (kit_rows){&first->p, &first->x, b, row});
    end(&again);
    return bad;
}

static void chunked(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const int32_t length[] = {1, 5, 16, 17, 29};
    base first = {0};
    kit_case whole = *c;
    whole.spec.features |= HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_CAUSAL;
    whole.spec.position = HEED_POS_GIVEN;
    if (begin(env, &whole, &first, outcome) == 0)
        for (size_t n = 0; n < COUNT(length) && outcome->verdict == KIT_PASSED; n++)
            for (int32_t row = 0; row < c->spec.q_len; row += length[n])
                if (chunk(env, &first, row, length[n], 0, KIT_BHSD, 0, outcome) ||
                    chunk(env, &first, row, length[n], 1, n & 1 ? KIT_BSHD : KIT_PADDED, 0,
                          outcome))
                    break;
    end(&first);
}

/* The same with caches in pages, against a whole prefill in contiguous memory. */
static void chunked_pages(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const int32_t length[] = {1, 7, 16, 33};
    base first = {0};
    kit_case whole = *c;
    whole.spec.features |= HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_CAUSAL;
    whole.spec.position = HEED_POS_GIVEN;
    whole.spec.storage = KIT_PADDED_ROWS;
    if (begin(env, &whole, &first, outcome) == 0)
        for (size_t n = 0; n < COUNT(length) && outcome->verdict == KIT_PASSED; n++)
            for (int32_t row = 0; row < c->spec.q_len; row += length[n])
                if (chunk(env, &first, row, length[n], 1, n & 1 ? KIT_BSHD : KIT_BHSD,
                          n & 1 ? KIT_PAGED_RAGGED : KIT_PAGED, outcome))
                    break;
    end(&first);
}

/* ---- the list -------------------------------------------------------------------------------- */

const kit_bits_check kit_bits_checks[KIT_BITS_CHECKS] = {{"threads", threads},
                                                         {"parts", parts},
                                                         {"executors", executors},
                                                         {"batches", batches},
                                                         {"maxima", maxima},
                                                         {"widths", widths},
                                                         {"addresses", addresses},
                                                         {"host_state", host_state},
                                                         {"optional", optional},
                                                         {"strides", strides},
                                                         {"chunked", chunked},
                                                         {"storages", storages},
                                                         {"chunked_pages", chunked_pages},
                                                         {"neighbours", neighbours}};

void kit_bits_sequences(kit_spec *s, int32_t rows, int32_t keys)
{
    const int32_t fewer = rows > 1 ? rows - 3 : 1;
    s->q_len = rows;
    s->kv_len = keys;
    s->lens = KIT_LENS_GIVEN;
    s->position = HEED_POS_GIVEN;
    s->sequence[0] = (kit_sequence){1, 0, rows, keys, keys - rows};
    s->sequence[1] = (kit_sequence){2, 0, fewer, keys / 3 + 1, keys / 3 + 1 - fewer};
    s->sequence[2] = (kit_sequence){3, 0, rows / 2 + 1, keys - 1, 3};
}

/* clang-format off */
static const struct {
    const char *name;
    int64_t rows, keys;
    kit_spec spec;
} problems[] = {
    {"prefill",
     41,
     67,
     {.features = HEED_HAS_CAUSAL | HEED_HAS_SINK | HEED_HAS_LSE | HEED_HAS_WEIGHTS}},
    {"decode", 1, 2309, {.features = HEED_HAS_LSE, .layout = KIT_BSHD}},
    {"decode_window",
     1,
     1300,
     {.features = HEED_HAS_WINDOW | HEED_HAS_SINK | HEED_HAS_LSE,
      .window_left = 900,
      .window_right = -1}},
    {"few", 5, 1201, {.features = HEED_HAS_MASK | HEED_HAS_CAUSAL | HEED_HAS_LSE}},
    {"biased",
     70,
     201,
     {.features = HEED_HAS_ALIBI | HEED_HAS_BIAS | HEED_HAS_SOFTCAP | HEED_HAS_LSE,
      .softcap = 3,
      .bias_kind = KIT_BIAS_INF,
      .layout = KIT_BSHD}},
    {"sloped",
     70,
     201,
     {.features = HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE | HEED_HAS_LSE, .bias_kind = KIT_BIAS_INF}},
    {"denormal", 19, 37, {.values = KIT_DENORMAL, .features = HEED_HAS_LSE}},
    {"ragged",
     33,
     90,
     {.features = HEED_HAS_CAUSAL | HEED_HAS_LSE, .storage = KIT_RAGGED, .layout = KIT_BSHD}},
    {"paged",
     33,
     90,
     {.features = HEED_HAS_CAUSAL | HEED_HAS_LSE, .storage = KIT_PAGED_RAGGED, .page_len = 5}},
    {"paged_decode",
     1,
     1500,
     {.features = HEED_HAS_LSE, .storage = KIT_PAGED, .page_len = 16, .layout = KIT_BSHD}},
    /* A group of so many heads that its rows are prefill's on some backends. */
    {"decode_many_heads", 1, 1100, {.q_heads = 49, .kv_heads = 1, .features = HEED_HAS_LSE}},
    {"few_many_heads", 4, 1100, {.q_heads = 49, .kv_heads = 1, .features = HEED_HAS_CAUSAL}},
    /* Dims for which backends take several kv heads at once. */
    {"decode_heads", 1, 2309, {.qk_dim = 64, .layout = KIT_BSHD}},
    {"paged_heads", 5, 1500, {.qk_dim = 64, .storage = KIT_PAGED, .page_len = 16}},
    /* Windows that begin on both sides of key 512, and scores that rise after it. */
    {"rising_window",
     40,
     1100,
     {.qk_dim = 64,
      .features = HEED_HAS_WINDOW | HEED_HAS_CAUSAL | HEED_HAS_LSE,
      .window_left = 560,
      .window_right = -1,
      .values = KIT_SAW,
      .rise = 5,
      .period = 128}},
    {"rising_islands",
     40,
     1700,
     {.qk_dim = 64,
      .features = HEED_HAS_MASK | HEED_HAS_CAUSAL | HEED_HAS_LSE,
      .mask_kind = KIT_MASK_ISLANDS,
      .values = KIT_ONCE,
      .rise = 11,
      .period = 512}},
};
/* clang-format on */

void kit_bits_cases(kit_list *list)
{
    for (size_t n = 0; n < COUNT(problems); n++)
        for (size_t k = 0; k < KIT_BITS_CHECKS; k++)
            for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
                kit_case c = {.run = kit_bits_checks[k].run, .spec = problems[n].spec};
                kit_spec *s = &c.spec;
                int32_t rows = (int32_t)problems[n].rows, keys = (int32_t)problems[n].keys;
                int late = s->values >= KIT_STEPS; /* only where tiles hold other rows */
                if (late && kit_bits_checks[k].run != chunked &&
                    kit_bits_checks[k].run != batches &&
                    !(kit_bits_checks[k].run == chunked_pages && type == HEED_BF16))
                    continue;
                s->q_type = s->k_type = s->v_type = s->out_type = s->bias_type = type;
                s->batch = 3;
                if (!s->q_heads) {
                    s->q_heads = keys > 2000 || late ? 2 : 4; /* these run up to 48 times */
                    s->kv_heads = late ? 1 : 2;
                }
                if (!s->qk_dim)
                    s->qk_dim = keys > 1000 ? 12 : 24;
                s->v_dim = s->qk_dim;
                kit_bits_sequences(s, rows, keys);
                c.quick = n == 0 && (k == 0 || k == 1 || k == 3 || k >= 9);
                snprintf(c.name, sizeof c.name, "bits/%s_%s/%s", kit_bits_checks[k].name,
                         problems[n].name, kit_type_name(type));
                kit_add(list, &c);
            }
    kit_bits_codes_cases(list);
}
