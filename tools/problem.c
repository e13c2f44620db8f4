/* The heed command: turns options into a description and a context, and statuses into exit
 * statuses. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t heed_cli_dtype(const char *name)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++)
        if (strcmp(name, heed_dtype_name(type)) == 0)
            return type;
    return HEED_DTYPE_NONE;
}

uint32_t heed_cli_scores_stage(const char *name)
{
    return strcmp(name, "raw") == 0          ? HEED_SCORES_RAW
           : strcmp(name, "softcapped") == 0 ? HEED_SCORES_SOFTCAPPED
           : strcmp(name, "biased") == 0     ? HEED_SCORES_BIASED
                                             : HEED_SCORES_NONE;
}

/* Reads the number of an option into *value, which is not changed if the option is absent. NaN and
 * inf are passed on: the library decides about them. What f32 rounds to 0 is refused, since a softcap
 * of 0 is none. */
static int number_option(const heed_cli_option *options, const char *name, float *value)
{
    const char *text = heed_cli_value(options, name);
    char *end;
    if (!text)
        return HEED_EXIT_OK;
    errno = 0;
    *value = strtof(text, &end);
    if (end == text || *end != '\0')
        return heed_cli_fail(HEED_EXIT_USAGE, "--%s %s is not a number", name, text);
    if (*value == 0 && errno == ERANGE)
        return heed_cli_fail(HEED_EXIT_USAGE, "--%s %s is nearer to 0 than any f32", name, text);
    return HEED_EXIT_OK;
}

/* Reads a window, "L,R". */
static int window_option(const char *text, heed_attn_desc *desc)
{
    const char *comma = strchr(text, ',');
    char left[32] = "";
    if (comma && (size_t)(comma - text) < sizeof left) {
        memcpy(left, text, (size_t)(comma - text));
        if (heed_cli_integer(left, INT64_MIN, INT64_MAX, &desc->window_left) &&
            heed_cli_integer(comma + 1, INT64_MIN, INT64_MAX, &desc->window_right))
            return HEED_EXIT_OK;
    }
    return heed_cli_fail(HEED_EXIT_USAGE, "--window %s is not two integers as L,R", text);
}

int heed_cli_problem(const heed_cli_option *options, heed_attn_desc *desc)
{
    const char *accuracy = heed_cli_value(options, "accuracy");
    const char *window = heed_cli_value(options, "window");
    const heed_cli_option *causal = heed_cli_option_of(options, "causal");
    int failed = number_option(options, "scale", &desc->scale);
    if (!failed)
        failed = number_option(options, "softcap", &desc->softcap);
    if (!failed && window)
        failed = window_option(window, desc);
    if (failed)
        return failed;
    desc->features |= heed_cli_given(options, "scale") ? HEED_HAS_SCALE : 0;
    desc->features |= heed_cli_given(options, "softcap") ? HEED_HAS_SOFTCAP : 0;
    desc->features |= window ? HEED_HAS_WINDOW : 0;
    desc->features |= causal->given ? HEED_HAS_CAUSAL : 0;

    if (causal->value && strcmp(causal->value, "bottom-right") != 0)
        return heed_cli_fail(HEED_EXIT_USAGE, "--causal=%s: what is served is bottom-right",
                             causal->value);
    if (causal->value && heed_cli_given(options, "q-offset"))
        return heed_cli_fail(HEED_EXIT_USAGE, "--causal=bottom-right has its own offset: it cannot "
                                              "be given together with --q-offset");
    desc->position = causal->value                         ? HEED_POS_BOTTOM_RIGHT
                     : heed_cli_given(options, "q-offset") ? HEED_POS_GIVEN
                                                           : HEED_POS_TOP_LEFT;

    if (accuracy && strcmp(accuracy, "exact") == 0)
        desc->accuracy = HEED_ACCURACY_EXACT;
    else if (accuracy && strcmp(accuracy, "bf16") == 0)
        desc->accuracy = HEED_ACCURACY_BF16;
    else if (accuracy && strcmp(accuracy, "split") == 0)
        desc->accuracy = HEED_ACCURACY_SPLIT;
    else if (accuracy && strcmp(accuracy, "int8") == 0)
        desc->accuracy = HEED_ACCURACY_INT8;
    else if (accuracy)
        return heed_cli_fail(HEED_EXIT_USAGE, "--accuracy %s is none of exact, bf16, split, int8",
                             accuracy);
    return HEED_EXIT_OK;
}

/* The type of that name among those that keys and values may have; HEED_DTYPE_NONE if none is. */
static uint32_t kv_type(const char *name)
{
    for (uint32_t type = HEED_F32; type <= HEED_IQ4_NL; type++)
        if (strcmp(name, heed_dtype_name(type)) == 0)
            return type;
    return HEED_DTYPE_NONE;
}

int heed_cli_kv_types(const heed_cli_option *options, heed_attn_desc *desc)
{
    const char *both = heed_cli_value(options, "kv-type");
    uint32_t *const type[] = {&desc->k_type, &desc->v_type};
    const uint32_t dim[] = {desc->qk_dim, desc->v_dim};
    for (int i = 0; i < 2; i++) {
        const char *name = heed_cli_value(options, i ? "v-type" : "k-type");
        const char *option = name ? (i ? "v-type" : "k-type") : "kv-type";
        name = name ? name : both;
        if (!name)
            continue;
        const uint32_t found = kv_type(name);
        if (!found)
            return heed_cli_fail(HEED_EXIT_USAGE,
                                 "--%s %s is none of f32, f16, bf16, i8, u8, u4, f8_e4m3, q8_0, "
                                 "q4_0, q4_1, q5_0, q5_1, iq4_nl",
                                 option, name);
        if (dim[i] % heed_block_len(found) != 0)
            return heed_cli_fail(HEED_EXIT_USAGE,
                                 "--%s %s: a head has %u elements, a multiple of %u is required",
                                 option, name, dim[i], heed_block_len(found));
        *type[i] = found;
        if (heed_takes_scale(found))
            desc->features |= HEED_HAS_QUANT;
    }
    return HEED_EXIT_OK;
}

int heed_cli_block(const heed_cli_option *options, int64_t *rows, int64_t *keys)
{
    const char *text = heed_cli_value(options, "block"), *x = text ? strchr(text, 'x') : NULL;
    char first[24] = "";
    *rows = *keys = 0;
    if (x && (size_t)(x - text) < sizeof first)
        memcpy(first, text, (size_t)(x - text));
    if (!text || (heed_cli_integer(first, 1, INT32_MAX, rows) &&
                  heed_cli_integer(x + 1, 1, INT32_MAX, keys)))
        return HEED_EXIT_OK;
    return heed_cli_fail(HEED_EXIT_USAGE, "--block %s is not ROWSxKEYS", text);
}

/* Checks that two files have the same length on an axis. */
static int check_axis(const char *name, int64_t length, const char *other, int64_t of_other,
                      const char *what)
{
    if (length == of_other)
        return HEED_EXIT_OK;
    return heed_cli_fail(HEED_EXIT_USAGE, "--%s has %lld %s where --%s has %lld", name,
                         (long long)length, what, other, (long long)of_other);
}

int heed_cli_shapes(heed_axes axes, const int64_t *q, const int64_t *k, const int64_t *v)
{
    int failed = check_axis("key", k[axes.batch], "query", q[axes.batch], "sequences");
    if (!failed)
        failed = check_axis("key", k[axes.dim], "query", q[axes.dim], "elements in a head");
    if (!failed)
        failed = check_axis("value", v[axes.batch], "key", k[axes.batch], "sequences");
    if (!failed)
        failed = check_axis("value", v[axes.head], "key", k[axes.head], "heads");
    if (!failed)
        failed = check_axis("value", v[axes.row], "key", k[axes.row], "rows");
    return failed;
}

int heed_cli_context(const heed_cli_option *options, heed_context **context)
{
    heed_context_options with = {.struct_size = sizeof with};
    const char *threads = heed_cli_value(options, "threads");
    int64_t n_threads = 0;
    if (threads && !heed_cli_integer(threads, 1, INT32_MAX, &n_threads))
        return heed_cli_fail(HEED_EXIT_USAGE, "--threads %s is not a number of threads", threads);
    with.n_threads = (uint32_t)n_threads;
    with.backends = heed_cli_value(options, "backend");
    heed_status status = heed_context_create(&with, context);
    return heed_cli_report(status, with.backends, heed_last_error());
}

static const char none_runs[] = "no backend runs this problem: "; /* of core/runtime/select.c */

/* The text after a prefix; the whole text if it does not begin with that. */
static const char *after(const char *prefix, const char *text)
{
    size_t length = strlen(prefix);
    return strncmp(text, prefix, length) == 0 ? text + length : text;
}

const char *heed_cli_reason(const char *name, const char *sentence)
{
    static char text[sizeof(heed_error)];
    char prefix[HEED_CLI_NAME + 16];
    const char *reason = after(none_runs, sentence);
    if (name) {
        snprintf(prefix, sizeof prefix, "%.*s: ", HEED_CLI_NAME, name);
        reason = after(prefix, reason);
        snprintf(prefix, sizeof prefix, "backend '%.*s' ", HEED_CLI_NAME, name);
        reason = after("of HEED_BACKEND ", after(prefix, reason));
    }
    snprintf(text, sizeof text, "%s", reason);
    char *others = strstr(text, "; there are");
    size_t length = others ? (size_t)(others - text) : strlen(text);
    if (length > 0 && text[length - 1] == ';')
        length--;
    text[length] = '\0';
    return text;
}

int heed_cli_report(heed_status status, const char *backends, const char *sentence)
{
    if (status == HEED_OK)
        return HEED_EXIT_OK;
    if (status == HEED_ERR_INVALID)
        return heed_cli_fail(HEED_EXIT_USAGE, "%s", sentence);
    if (status != HEED_ERR_UNSUPPORTED)
        return heed_cli_fail(HEED_EXIT_FAILED, "%s: %s", heed_status_string(status), sentence);
    const char *name = backends ? backends : getenv("HEED_BACKEND");
    if (name && !strchr(name, ','))
        return heed_cli_fail(HEED_EXIT_REFUSED, "refused: %s: %s", name,
                             heed_cli_reason(name, sentence));
    /* With several backends, each has its name before its reason. */
    return heed_cli_fail(HEED_EXIT_REFUSED, "refused: %s%s",
                         !name && after(none_runs, sentence) == sentence ? "auto: " : "",
                         heed_cli_reason(NULL, sentence));
}

/* Calls `describe` for the size and then for the text. */
static char *described(heed_status (*describe)(const void *of, uint32_t json, char *text,
                                               size_t *bytes),
                       const void *of, uint32_t json)
{
    size_t bytes = 0;
    char *text = NULL;
    heed_status status = describe(of, json, NULL, &bytes);
    if (status == HEED_OK) {
        text = malloc(bytes + 1);
        if (!text) {
            heed_cli_fail(HEED_EXIT_FAILED, "no memory for an explanation of %zu bytes", bytes);
            return NULL;
        }
        status = describe(of, json, text, &bytes);
    }
    if (status != HEED_OK) {
        heed_cli_report(status, NULL, heed_last_error());
        free(text);
        return NULL;
    }
    return text;
}

static heed_status describe_plan(const void *plan, uint32_t json, char *text, size_t *bytes)
{
    return heed_attn_explain(plan, json, text, bytes);
}

static heed_status describe_context(const void *context, uint32_t json, char *text, size_t *bytes)
{
    return heed_context_backends((heed_context *)context, json, text, bytes);
}

char *heed_cli_explanation(const heed_attn *plan, uint32_t json)
{
    return described(describe_plan, plan, json);
}

char *heed_cli_backends(heed_context *context, uint32_t json)
{
    return described(describe_context, context, json);
}
