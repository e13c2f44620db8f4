/* heed info: shows this machine and its backends, which is chosen, and why the others are not. */
#include "child.h"
#include "cli.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "heed info [--json]\n\n"
    "Shows this machine, every backend with what came of trying it, and which one the library\n"
    "chooses for a common problem. heed explain does the last for a problem of your own.";

/* A layer of a common language model, for which heed info shows the choice: its query classes are
 * decoding, a few rows and prefill. */
static const heed_attn_desc common = {.struct_size = sizeof common,
                                      .features = HEED_HAS_CAUSAL,
                                      .q_heads = 32,
                                      .kv_heads = 8,
                                      .qk_dim = 128,
                                      .v_dim = 128,
                                      .q_type = HEED_F32,
                                      .k_type = HEED_F32,
                                      .v_type = HEED_F32,
                                      .out_type = HEED_F32,
                                      .position = HEED_POS_BOTTOM_RIGHT,
                                      .max_batch = 1,
                                      .max_q_len = 512,
                                      .max_kv_len = 4096};

static const char common_in_words[] =
    "causal f32 attention, 32 query heads on 8 kv heads, head dim 128";

/* Writes the library's explanation for the common problem, or the reason why there is none. */
static int explain_choice(FILE *out, void *arg)
{
    const uint32_t *json = arg;
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    heed_status status = heed_context_create(NULL, &context);
    if (status == HEED_OK)
        status = heed_attn_create(context, &common, &plan);
    if (status != HEED_OK)
        fputs(heed_last_error(), out);
    char *text = plan ? heed_cli_explanation(plan, *json) : NULL;
    if (text)
        fputs(text, out);
    free(text);
    heed_attn_release(plan);
    heed_context_release(context);
    return text ? 0 : 1;
}

/* *text receives what explain_choice writes, and *chosen whether that is an explanation. The library
 * tries all backends that it may choose. If one crashes here, it does so in every program: then that
 * is the reason. */
static int choose(uint32_t json, int *chosen, char **text)
{
    enum { ROOM = 160 };
    heed_child child;
    const int failed = heed_child_run(explain_choice, &json, &child);
    if (failed)
        return failed;
    *chosen = !child.signal && child.status == 0;
    *text = child.text;
    if (!child.signal && child.status <= 1)
        return HEED_EXIT_OK;
    free(child.text);
    if (!(*text = malloc(ROOM)))
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for a sentence");
    if (child.signal)
        snprintf(*text, ROOM, "killed by %s", heed_signal_name(child.signal));
    else
        snprintf(*text, ROOM, "ended with status %d", child.status);
    strcat(*text, " in a backend's trial, as a program would; HEED_BACKEND can name others");
    return HEED_EXIT_OK;
}

/* The bytes of the character of UTF-8 at text, 0 if there is none, as in core/base/text.c. */
static int character(const char *text)
{
    const unsigned char *at = (const unsigned char *)text, lead = at[0];
    const int n = lead < 0x80                   ? 1
                  : lead >= 0xc2 && lead < 0xe0 ? 2
                  : (lead & 0xf0) == 0xe0       ? 3
                  : lead >= 0xf0 && lead < 0xf5 ? 4
                                                : 0;
    for (int i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    const int none = (lead == 0xe0 && at[1] < 0xa0) || (lead == 0xed && at[1] > 0x9f) ||
                     (lead == 0xf0 && at[1] < 0x90) || (lead == 0xf4 && at[1] > 0x8f);
    return none ? 0 : n;
}

/* Prints a string in JSON; control characters become spaces, bytes that are no UTF-8 U+FFFD. */
static void print_json_string(const char *text)
{
    putchar('"');
    for (int n; *text; text += n ? n : 1) {
        n = character(text);
        if (n == 0)
            printf("\\ufffd");
        else if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < ' ')
            putchar(' ');
        else
            printf("%.*s", n, text);
    }
    putchar('"');
}

static void print_json(const heed_trials *trials, int chosen, const char *text)
{
    printf("{\"library\": %s, \"trials\": [", trials->json);
    for (int i = 0; i < trials->n; i++) {
        printf("%s{\"name\": \"%s\", \"passed\": %s, \"why\": ", i ? ", " : "",
               trials->result[i].name, trials->result[i].passed ? "true" : "false");
        print_json_string(trials->result[i].why);
        putchar('}');
    }
    printf("], \"problem\": \"%s\", \"chosen\": %s", common_in_words, chosen ? text : "null");
    if (!chosen) {
        printf(", \"why_none\": ");
        print_json_string(text);
    }
    printf("}\n");
}

static void print_text(const heed_trials *trials, int chosen, const char *text)
{
    printf("%s\ntrials\n", trials->text);
    for (int i = 0; i < trials->n; i++) {
        const heed_trial_result *of = &trials->result[i];
        printf("  %-10s %s%s%s\n", of->name, of->passed ? "passed" : "",
               of->passed && *of->why ? ", " : "", of->why);
    }
    printf("\nchosen for %s\n", common_in_words);
    printf(chosen ? "%s" : "nothing: %s\n", text);
}

int heed_cli_info(int argc, char **argv)
{
    heed_cli_option options[] = {
        {.name = "json", .kind = HEED_CLI_FLAG, .help = "one JSON object instead of text"},
        {.name = NULL},
    };
    heed_trials trials;
    int failed = heed_cli_parse("heed info", usage, options, argc, argv);
    if (failed)
        return failed == HEED_EXIT_HELP ? HEED_EXIT_OK : failed;
    const uint32_t json = heed_cli_given(options, "json") != 0;
    char *text = NULL;
    int chosen;
    failed = heed_trials_run(NULL, NULL, &trials);
    if (!failed)
        failed = choose(json, &chosen, &text);
    if (!failed && json)
        print_json(&trials, chosen, text);
    else if (!failed)
        print_text(&trials, chosen, text);
    free(text);
    heed_trials_free(&trials);
    return failed;
}
