/* Heed command line: what its commands share: exit statuses, messages, options, arguments of a
 * problem. */
#ifndef HEED_TOOLS_CLI_H
#define HEED_TOOLS_CLI_H

#include <heed/backend.h>
#include <stdio.h>

/** Exit statuses. */
enum {
    HEED_EXIT_OK = 0,
    HEED_EXIT_FAILED = 1,  /* a run failed */
    HEED_EXIT_USAGE = 2,   /* bad usage, files or shapes */
    HEED_EXIT_REFUSED = 3, /* the backend refuses */
    HEED_EXIT_HELP = -1    /* of heed_cli_parse alone: help was printed, end well */
};

/** Prints "heed: MESSAGE" as one line on stderr, whatever newlines the message has, and returns
 * status. */
HEED_PRINTF(2, 3) int heed_cli_fail(int status, const char *format, ...);

/** The exit status of a library call, with its sentence on stderr. backends is what was asked for
 * (NULL: whatever the library chooses) and names the one that refuses. */
int heed_cli_report(heed_status status, const char *backends, const char *sentence);

/** The reason in a sentence of the library's, without the words around it and without the name of
 * the one backend that was asked for (NULL: of several, each is named): "it has no mask" of "no
 * backend runs this problem: example: it has no mask;". The text is static, until the next call. */
#define HEED_CLI_NAME 31 /* characters of a backend's name */
const char *heed_cli_reason(const char *name, const char *sentence);

/** How an option takes its values. */
enum { HEED_CLI_FLAG, HEED_CLI_VALUE, HEED_CLI_PAIR, HEED_CLI_MAYBE };

/**
 * One option. Kinds: --name; --name VALUE or --name=VALUE; --name VALUE SECOND; --name or
 * --name=VALUE. A value may begin with a minus. A table ends with a NULL name.
 */
typedef struct heed_cli_option {
    const char *name, *values, *help; /* values is what the help shows */
    int kind;
    int given; /* filled by heed_cli_parse, as are the next two */
    const char *value, *second;
} heed_cli_option;

/**
 * Fills the table from the arguments after the command's name; nothing else is allowed among them.
 * Returns HEED_EXIT_OK; HEED_EXIT_HELP after --help, which prints usage and the table;
 * HEED_EXIT_USAGE after one line on stderr.
 */
int heed_cli_parse(const char *usage, heed_cli_option *options, int argc, char **argv);

/** The option of that name, which must be in the table. */
const heed_cli_option *heed_cli_option_of(const heed_cli_option *options, const char *name);
int heed_cli_given(const heed_cli_option *options, const char *name);
/** Its value, or NULL. */
const char *heed_cli_value(const heed_cli_option *options, const char *name);

/** A whole argument as a number of [least, most]; 0 if it is not one. */
int heed_cli_integer(const char *text, int64_t least, int64_t most, int64_t *value);

/** Options that heed run and heed explain have in common, for their tables. */
#define HEED_CLI_PROBLEM_OPTIONS                                                                   \
    {.name = "scale",                                                                              \
     .values = "X",                                                                                \
     .kind = HEED_CLI_VALUE,                                                                       \
     .help = "factor of q k; without it 1 / sqrt(qk_dim)"},                                        \
        {.name = "softcap",                                                                        \
         .values = "X",                                                                            \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "scores become X * tanh(score / X); 0 is off"},                                   \
        {.name = "causal",                                                                         \
         .values = "bottom-right",                                                                 \
         .kind = HEED_CLI_MAYBE,                                                                   \
         .help = "row i sees keys up to i + offset: the offset is 0 or --q-offset, or with\n"      \
                 "=bottom-right each sequence's kv length - q_len"},                               \
        {.name = "window",                                                                         \
         .values = "L,R",                                                                          \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "keys seen before and after row i + offset; -1 is unbounded"},                    \
        {.name = "kv-type",                                                                        \
         .values = "f32|f16|bf16|i8|u8|u4|f8_e4m3|q8_0|q4_0|q4_1|q5_0|q5_1|iq4_nl",                \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "what k and v are encoded to before they are attended to; i8 to f8_e4m3\n"        \
                 "have a scale for each key of a head"},                                           \
        {.name = "k-type",                                                                         \
         .values = "TYPE",                                                                         \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "the same of k alone"},                                                           \
        {.name = "v-type",                                                                         \
         .values = "TYPE",                                                                         \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "the same of v alone"},                                                           \
        {.name = "accuracy",                                                                       \
         .values = "exact|bf16|split|int8",                                                        \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "how the products are formed; without it the library's default"},                 \
        {.name = "threads",                                                                        \
         .values = "N",                                                                            \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "without it HEED_NUM_THREADS or what the machine has"},                           \
    {                                                                                              \
        .name = "backend", .values = "NAME", .kind = HEED_CLI_VALUE,                               \
        .help = "only this backend, or the first of a list that serves the problem"                \
    }

/** Fills what HEED_CLI_PROBLEM_OPTIONS says into desc: features, scale, softcap, window, position,
 * accuracy. Returns HEED_EXIT_OK or HEED_EXIT_USAGE after a line. */
int heed_cli_problem(const heed_cli_option *options, heed_attn_desc *desc);

/** Puts what --kv-type, --k-type and --v-type say in the place of desc's k_type and v_type, and
 * HEED_HAS_QUANT where one of them has scales. Returns HEED_EXIT_OK or HEED_EXIT_USAGE after a line. */
int heed_cli_kv_types(const heed_cli_option *options, heed_attn_desc *desc);

/** --block ROWSxKEYS; 0 and 0 where it is not given. Returns HEED_EXIT_OK or HEED_EXIT_USAGE after a
 * line. */
int heed_cli_block(const heed_cli_option *options, int64_t *rows, int64_t *keys);

/** A context as --threads and --backend ask for. Returns an exit status, after a line if not 0. */
int heed_cli_context(const heed_cli_option *options, heed_context **context);

/** "f32", "f16" or "bf16" to the element type; 0 if it is none of them. */
uint32_t heed_cli_dtype(const char *name);

/** "raw", "softcapped" or "biased" to HEED_SCORES_*; 0 if it is none of them. */
uint32_t heed_cli_scores_stage(const char *name);

/** The text that heed_attn_explain and heed_context_backends give, malloc'd; NULL and a line on
 * stderr if that fails. */
char *heed_cli_explanation(const heed_attn *plan, uint32_t json);
char *heed_cli_backends(heed_context *context, uint32_t json);

/** Prints weights [q_len, kv_len] as a map of characters at most `columns` wide; rows and keys that
 * do not fit share a character, which shows their largest weight. */
void heed_cli_heatmap(FILE *out, const float *weights, int64_t q_len, int64_t kv_len,
                      int64_t columns);

/** The commands. argv[0] is the command's name. They return an exit status. */
int heed_cli_run(int argc, char **argv);
int heed_cli_explain(int argc, char **argv);
int heed_cli_info(int argc, char **argv);
int heed_cli_check(int argc, char **argv);

#endif
