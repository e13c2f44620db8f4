/* The heed command: tries out backends. The library's own trial detects wrong numbers, but a crash
 * in it would end the process. So everything here that could run a backend's code runs in a child
 * process. */
#include "trial.h"

#include "child.h"
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* ---- in the child ---------------------------------------------------------------------------- */

enum { MOST_ROWS = 20, KEYS = 5, HEADS = 2, DIM = 8 };

/* Runs attention on ones. The library checks results in its own trial, when the first plan is
 * made. */
static heed_status run_tiny(heed_context *context, uint32_t type, int64_t rows)
{
    char q[HEADS * MOST_ROWS * DIM * 4], k[HEADS * KEYS * DIM * 4], v[HEADS * KEYS * DIM * 4];
    char out[HEADS * MOST_ROWS * DIM * 4] = {0};
    heed_attn_desc desc = {.struct_size = sizeof desc,
                           .q_heads = HEADS,
                           .kv_heads = HEADS,
                           .qk_dim = DIM,
                           .v_dim = DIM,
                           .q_type = type,
                           .k_type = type,
                           .v_type = type,
                           .out_type = type,
                           .max_batch = 1,
                           .max_q_len = rows,
                           .max_kv_len = KEYS};
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = 1,
                           .q_len = rows,
                           .kv_len = KEYS,
                           .q = {q, {0, rows * DIM, DIM, 1}},
                           .k = {k, {0, KEYS * DIM, DIM, 1}},
                           .v = {v, {0, KEYS * DIM, DIM, 1}},
                           .out = {out, {0, rows * DIM, DIM, 1}}};
    for (int i = 0; i < HEADS * MOST_ROWS * DIM; i++)
        heed_store(type, q, i, 1);
    for (int i = 0; i < HEADS * KEYS * DIM; i++) {
        heed_store(type, k, i, 1);
        heed_store(type, v, i, 1);
    }
    return heed_attention(context, &desc, &args);
}

/* The task of a child. */
typedef struct task {
    const char *backend, *plugin_path;
    uint32_t json;
} task;

/* Runs one row, a few and many, since each query class may have its own kernel. */
static heed_status run_classes(heed_context *context, uint32_t type)
{
    heed_status status = run_tiny(context, type, MOST_ROWS);
    for (int64_t rows = 1; status == HEED_OK && rows < MOST_ROWS; rows += 2)
        status = run_tiny(context, type, rows);
    return status;
}

/* Asks for a linear layer, which makes the library try those of the backend; one without them
 * refuses. */
static void ask_linear(heed_context *context)
{
    heed_linear_desc desc = {.struct_size = sizeof desc, .in_dim = DIM, .out_dim = DIM};
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        desc.x_type = desc.w_type = desc.y_type = type;
        (void)heed_linear_supported(context, &desc, NULL);
    }
}

/* Writes the kernels of the backend that failed their trial. */
static void tell_failed(FILE *out, heed_context *context, const char *backend)
{
    heed_backend_info of = {.struct_size = sizeof of};
    heed_trial_info trial = {.struct_size = sizeof trial};
    const char *before = "but for its kernel";
    for (uint32_t b = 0; heed_context_backend(context, b, &of) == HEED_OK; b++)
        for (uint32_t k = 0;
             !strcmp(of.name, backend) && heed_context_trial(context, b, k, &trial) == HEED_OK; k++)
            if (trial.trial == HEED_TRIAL_FAILED) {
                fprintf(out, "%s %s%s: %s", before, trial.kernel,
                        trial.linear ? " of linear layers" : "", trial.reason);
                before = "; and";
            }
}

/* Tries a backend. Returns 0 if it ran the problem in one of its types, and writes to out the
 * kernels that failed, or the reason if it did not. */
static int try_backend(FILE *out, void *arg)
{
    const task *t = arg;
    const char *reason = "";
    heed_context_options options = {
        .struct_size = sizeof options, .backends = t->backend, .plugin_path = t->plugin_path};
    heed_context *context = NULL;
    heed_status status = heed_context_create(&options, &context);
    int ran = 0, failed = status != HEED_OK;
    /* Refusing a type is not a failure, but a failed trial in any type is. */
    for (uint32_t type = HEED_F32;
         !failed && type <= HEED_BF16 && !strstr(reason, "known-answer trial"); type++) {
        status = run_classes(context, type);
        ran |= status == HEED_OK;
        failed = status != HEED_OK && status != HEED_ERR_UNSUPPORTED;
        reason = status == HEED_OK ? "" : heed_cli_reason(t->backend, heed_last_error());
    }
    if (ran && !failed) {
        ask_linear(context);
        tell_failed(out, context, t->backend);
    } else {
        fputs(heed_cli_reason(t->backend, heed_last_error()), out);
    }
    heed_context_release(context);
    return ran && !failed ? 0 : 1;
}

/* Writes the library's list of backends. */
static int list_backends(FILE *out, void *arg)
{
    const task *t = arg;
    heed_context_options options = {.struct_size = sizeof options, .plugin_path = t->plugin_path};
    heed_context *context = NULL;
    heed_status status = heed_context_create(&options, &context);
    int failed = heed_cli_report(status, NULL, heed_last_error());
    if (failed)
        return failed;
    char *text = heed_cli_backends(context, t->json);
    if (text)
        fputs(text, out);
    else
        failed = HEED_EXIT_FAILED;
    free(text);
    heed_context_release(context);
    return failed;
}

/* ---- in the parent --------------------------------------------------------------------------- */

static int list_in_child(task t, char **text)
{
    heed_child child;
    const int failed = heed_child_run(list_backends, &t, &child);
    if (failed)
        return failed;
    if (!child.signal && child.status == 0) {
        *text = child.text;
        return HEED_EXIT_OK;
    }
    free(child.text);
    return child.signal ? heed_cli_fail(HEED_EXIT_FAILED, "listing the backends: killed by %s",
                                        heed_signal_name(child.signal))
                        : child.status;
}

static int try_in_child(task t, heed_trial_result *result)
{
    heed_child child;
    t.backend = result->name;
    const int failed = heed_child_run(try_backend, &t, &child);
    if (failed)
        return failed;
    result->passed = !child.signal && child.status == 0;
    result->faulted = child.signal || child.status > 1; /* try_backend returns 0 or 1 */
    if (child.signal)
        snprintf(result->why, sizeof result->why, "killed by %s in its trial",
                 heed_signal_name(child.signal));
    else if (result->faulted) /* code of the backend, or what watches the process, called exit */
        snprintf(result->why, sizeof result->why, "ended with status %d in its trial",
                 child.status);
    else
        snprintf(result->why, sizeof result->why, "%s", child.text);
    free(child.text);
    return HEED_EXIT_OK;
}

/* Finds the names of backends in the library's JSON: the strings after "name": within "backends".
 * It needs no parser, because the library writes it and names are [a-z0-9_]+. */
static void find_names(heed_trials *trials)
{
    static const char key[] = "\"name\":";
    const char *at = strstr(trials->json, "\"backends\"");
    while (at && (at = strstr(at, key)) && trials->n < HEED_TRIAL_MOST) {
        at += sizeof key - 1;
        at += strspn(at, " \n");
        size_t length = *at == '"' ? strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
        if (length > 0 && length < HEED_TRIAL_NAME && at[1 + length] == '"') {
            heed_trial_result *result = &trials->result[trials->n++];
            memcpy(result->name, at + 1, length);
            result->name[length] = '\0';
        }
    }
}

int heed_trials_run(const char *only, const char *plugin_path, heed_trials *trials)
{
    task t = {.plugin_path = plugin_path};
    *trials = (heed_trials){0};
    int failed = list_in_child(t, &trials->text);
    t.json = 1;
    if (!failed)
        failed = list_in_child(t, &trials->json);
    if (failed)
        return failed;
    if (only) {
        snprintf(trials->result[0].name, HEED_TRIAL_NAME, "%s", only);
        trials->n = 1;
    } else {
        find_names(trials);
    }
    for (int i = 0; i < trials->n && !failed; i++)
        failed = try_in_child(t, &trials->result[i]);
    return failed;
}

void heed_trials_free(heed_trials *trials)
{
    free(trials->text);
    free(trials->json);
}
