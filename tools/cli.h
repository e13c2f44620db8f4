/* What the commands of heed share: exit statuses, messages, options and the arguments of a
 * problem. */
#ifndef HEED_TOOLS_CLI_H
#define HEED_TOOLS_CLI_H

#include <heed/backend.h>
#include <stdio.h>

/** Exit statuses. */
enum {
    HEED_EXIT_OK = 0,
    HEED_EXIT_FAILED = 1,  /* a run failed */
    HEED_EXIT_USAGE = 2,   /* wrong usage, files or shapes */
    HEED_EXIT_REFUSED = 3, /* the backend refuses */
    HEED_EXIT_HELP = -1    /* from heed_cli_parse alone: help was printed, the command succeeds */
};

/** Prints "heed: MESSAGE" on stderr, always as one line, and returns status. */
HEED_PRINTF(2, 3) int heed_cli_fail(int status, const char *format, ...);

/** Prints the error message of a library call on stderr and returns the exit status. backends are
 * those that were asked for (NULL: the library chooses); if it is one, the line names it as the one
 * that refuses. */
int heed_cli_report(heed_status status, const char *backends, const char *sentence);

/** The reason in an error message of the library, without the words around it and without the name
 * of the one backend that was asked for (NULL: there are several, and each is named): "it has no
 * mask" from "no backend runs this problem: example: it has no mask;". The text is static and valid
 * until the next call. */
#define HEED_CLI_NAME 31 /* the most characters of a backend's name */
const char *heed_cli_reason(const char *name, const char *sentence);

/** How an option takes its values. */
enum { HEED_CLI_FLAG, HEED_CLI_VALUE, HEED_CLI_PAIR, HEED_CLI_MAYBE };

/**
 * One option. The kinds are: --name; --name VALUE or --name=VALUE; --name VALUE SECOND; --name or
 * --name=VALUE. A value may begin with a minus. A table ends with a name of NULL.
 */
typedef struct heed_cli_option {
    const char *name, *values, *help; /* values are shown in the help */
    int kind;
    int given; /* heed_cli_parse sets it and the next two */
    const char *value, *second;
} heed_cli_option;

/**
 * Fills the table from the arguments after the command's name, which must all be options. `command`
 * is how a person calls it, such as "heed run", for messages that point to its --help.
 * Returns HEED_EXIT_OK; HEED_EXIT_HELP after --help, which prints usage and the table;
 * HEED_EXIT_USAGE after one line on stderr.
 */
int heed_cli_parse(const char *command, const char *usage, heed_cli_option *options, int argc,
                   char **argv);

/** The option of that name, which must be in the table. */
const heed_cli_option *heed_cli_option_of(const heed_cli_option *options, const char *name);
int heed_cli_given(const heed_cli_option *options, const char *name);
/** The value of an option, or NULL. */
const char *heed_cli_value(const heed_cli_option *options, const char *name);

/** Reads a whole argument as a number in [least, most]. Returns 0 if it is not one. */
int heed_cli_integer(const char *text, int64_t least, int64_t most, int64_t *value);

/** The names of the types of keys and values, as the help shows them and shells complete them. */
#define HEED_CLI_KV_TYPES "f32|f16|bf16|i8|u8|u4|f8_e4m3|q8_0|q4_0|q4_1|q5_0|q5_1|iq4_nl"

/** The options that heed run and heed explain have in common, for their tables. */
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
         .values = HEED_CLI_KV_TYPES,                                                              \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "what k and v are encoded to before they are attended to; i8 to f8_e4m3\n"        \
                 "have a scale for each key of a head"},                                           \
        {.name = "k-type",                                                                         \
         .values = HEED_CLI_KV_TYPES,                                                              \
         .kind = HEED_CLI_VALUE,                                                                   \
         .help = "the same of k alone"},                                                           \
        {.name = "v-type",                                                                         \
         .values = HEED_CLI_KV_TYPES,                                                              \
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
        .help = "only this backend, or the first of a list that serves the problem; all of a\n"    \
                "list have to run on this machine"                                                 \
    }

/** Sets in desc what HEED_CLI_PROBLEM_OPTIONS give: features, scale, softcap, window, position and
 * accuracy. Returns HEED_EXIT_OK, or HEED_EXIT_USAGE after a line on stderr. */
int heed_cli_problem(const heed_cli_option *options, heed_attn_desc *desc);

/** Sets k_type and v_type of desc to those of --kv-type, --k-type and --v-type, and HEED_HAS_QUANT
 * if one of them has scales. Heads have to be whole blocks of them, if desc has their dims. Returns
 * HEED_EXIT_OK, or HEED_EXIT_USAGE after a line on stderr. */
int heed_cli_kv_types(const heed_cli_option *options, heed_attn_desc *desc);

/** Reads --block ROWSxKEYS; 0 and 0 if it is not given. Returns HEED_EXIT_OK, or HEED_EXIT_USAGE
 * after a line on stderr. */
int heed_cli_block(const heed_cli_option *options, int64_t *rows, int64_t *keys);

/** The places of the axes [batch, head, row, dim] in a file: bhsd or bshd. */
typedef struct heed_axes {
    int batch, head, row, dim;
} heed_axes;

/** Checks that the shapes of --query, --key and --value go together. Returns HEED_EXIT_OK, or
 * HEED_EXIT_USAGE after a line on stderr. */
int heed_cli_shapes(heed_axes axes, const int64_t *q, const int64_t *k, const int64_t *v);

/** Makes the context that --threads and --backend ask for. Returns an exit status, after a line on
 * stderr if it is not 0. */
int heed_cli_context(const heed_cli_option *options, heed_context **context);

/** The element type of "f32", "f16" or "bf16"; 0 for any other name. */
uint32_t heed_cli_dtype(const char *name);

/** The HEED_SCORES_* of "raw", "softcapped" or "biased"; 0 for any other name. */
uint32_t heed_cli_scores_stage(const char *name);

/** The texts of heed_attn_explain and heed_context_backends, from malloc; NULL after a line on
 * stderr if that fails. */
char *heed_cli_explanation(const heed_attn *plan, uint32_t json);
char *heed_cli_backends(heed_context *context, uint32_t json);

/** Prints weights [q_len, kv_len] as a map of characters, at most `columns` wide. Rows and keys
 * that do not fit share a character, which shows their largest weight. */
void heed_cli_heatmap(FILE *out, const float *weights, int64_t q_len, int64_t kv_len,
                      int64_t columns);

/** The commands; argv[0] is the command's name. They return an exit status. */
int heed_cli_run(int argc, char **argv);
int heed_cli_explain(int argc, char **argv);
int heed_cli_info(int argc, char **argv);
int heed_cli_check(int argc, char **argv);

#endif
