/* heed explain: tells which backend would run a problem, and why the others would not. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "heed explain [--q-heads N] [--q-len N] [OPTIONS]\n\n"
    "Tells which backend and kernel would run a problem, how it would be cut, and for every other\n"
    "backend the one condition that excludes it, or that it costs more: estimates for one core\n"
    "and a sequence of the lengths that are said, not of yours. Nothing is computed.\n"
    "Exit status: 0; 1 what it says cannot be written; 2 bad usage; 3 every backend refuses.";

/* Reads a count; `otherwise` is its value if the option is absent. */
static int count_option(const heed_cli_option *options, const char *name, int64_t otherwise,
                        int64_t *value)
{
    const char *text = heed_cli_value(options, name);
    *value = otherwise;
    if (!text || heed_cli_integer(text, 0, INT32_MAX, value))
        return HEED_EXIT_OK;
    return heed_cli_fail(HEED_EXIT_USAGE, "--%s %s is not a count", name, text);
}

static int read_shape(const heed_cli_option *options, heed_attn_desc *desc)
{
    int64_t q_heads, kv_heads, qk_dim, v_dim;
    int failed = count_option(options, "q-heads", 8, &q_heads);
    if (!failed)
        failed = count_option(options, "kv-heads", q_heads, &kv_heads);
    if (!failed)
        failed = count_option(options, "qk-dim", 64, &qk_dim);
    if (!failed)
        failed = count_option(options, "v-dim", qk_dim, &v_dim);
    if (!failed)
        failed = count_option(options, "batch", 1, &desc->max_batch);
    if (!failed)
        failed = count_option(options, "q-len", 512, &desc->max_q_len);
    if (!failed)
        failed = count_option(options, "kv-len", desc->max_q_len, &desc->max_kv_len);
    if (failed)
        return failed;
    desc->q_heads = (uint32_t)q_heads;
    desc->kv_heads = (uint32_t)kv_heads;
    desc->qk_dim = (uint32_t)qk_dim;
    desc->v_dim = (uint32_t)v_dim;
    return HEED_EXIT_OK;
}

static int read_lists(const heed_cli_option *options, heed_attn_desc *desc)
{
    int64_t n = 0, rows = 0, keys = 0;
    int failed = heed_cli_given(options, "ranges") ? count_option(options, "ranges", 0, &n) : 0;
    if (!failed)
        failed = heed_cli_block(options, &rows, &keys);
    desc->n_ranges = (uint32_t)n;
    desc->block_rows = (uint32_t)rows;
    desc->block_keys = (uint32_t)keys;
    return failed;
}

static int read_types(const heed_cli_option *options, heed_attn_desc *desc)
{
    const char *dtype = heed_cli_value(options, "dtype");
    const char *stage = heed_cli_value(options, "scores");
    uint32_t type = dtype ? heed_cli_dtype(dtype) : HEED_F32;
    if (!type)
        return heed_cli_fail(HEED_EXIT_USAGE, "--dtype %s is none of f32, f16, bf16", dtype);
    desc->q_type = desc->k_type = desc->v_type = desc->out_type = type;
    if (heed_cli_given(options, "bias")) {
        const char *bias = heed_cli_value(options, "bias");
        desc->bias_type = bias ? heed_cli_dtype(bias) : HEED_F32;
        if (!desc->bias_type)
            return heed_cli_fail(HEED_EXIT_USAGE, "--bias=%s is none of f32, f16, bf16", bias);
    }
    if (stage && !(desc->scores_stage = heed_cli_scores_stage(stage)))
        return heed_cli_fail(HEED_EXIT_USAGE, "--scores %s is none of raw, softcapped, biased",
                             stage);
    return HEED_EXIT_OK;
}

static void read_features(const heed_cli_option *options, heed_attn_desc *desc)
{
    static const struct {
        const char *option;
        uint64_t bit;
    } features[] = {{"mask", HEED_HAS_MASK},
                    {"bias", HEED_HAS_BIAS},
                    {"mask-from", HEED_HAS_MASK_FROM},
                    {"ranges", HEED_HAS_RANGES},
                    {"block", HEED_HAS_KEY_BLOCKS},
                    {"alibi", HEED_HAS_ALIBI},
                    {"sinks", HEED_HAS_SINK},
                    {"lens", HEED_HAS_LENS},
                    {"lse", HEED_HAS_LSE},
                    {"weights", HEED_HAS_WEIGHTS},
                    {"scores", HEED_HAS_SCORES},
                    {"reproducible-chunks", HEED_HAS_REPRODUCIBLE_CHUNKS}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (heed_cli_given(options, features[i].option))
            desc->features |= features[i].bit;
}

static int explain(const heed_cli_option *options, const heed_attn_desc *desc)
{
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    int failed = heed_cli_context(options, &context);
    if (!failed)
        failed = heed_cli_report(heed_attn_create(context, desc, &plan),
                                 heed_cli_value(options, "backend"), heed_last_error());
    if (!failed) {
        uint32_t json = heed_cli_given(options, "json") != 0;
        char *text = heed_cli_explanation(plan, json);
        if (text)
            printf("%s%s", text, json ? "\n" : "");
        else
            failed = HEED_EXIT_FAILED;
        free(text);
    }
    heed_attn_release(plan);
    heed_context_release(context);
    return failed;
}

static const heed_cli_option known[] = {
    {.name = "batch", .values = "N", .kind = HEED_CLI_VALUE, .help = "sequences; 1"},
    {.name = "q-heads", .values = "N", .kind = HEED_CLI_VALUE, .help = "query heads; 8"},
    {.name = "kv-heads",
     .values = "N",
     .kind = HEED_CLI_VALUE,
     .help = "key and value heads; as many as query heads"},
    {.name = "q-len", .values = "N", .kind = HEED_CLI_VALUE, .help = "query rows; 512"},
    {.name = "kv-len", .values = "N", .kind = HEED_CLI_VALUE, .help = "keys; as many as rows"},
    {.name = "qk-dim", .values = "N", .kind = HEED_CLI_VALUE, .help = "of a q and k head; 64"},
    {.name = "v-dim", .values = "N", .kind = HEED_CLI_VALUE, .help = "of a v head; as q and k"},
    {.name = "dtype",
     .values = "f32|f16|bf16",
     .kind = HEED_CLI_VALUE,
     .help = "of q, k, v and out; f32"},
    HEED_CLI_PROBLEM_OPTIONS,
    {.name = "q-offset", .kind = HEED_CLI_FLAG, .help = "each sequence has its own offset"},
    {.name = "lens", .kind = HEED_CLI_FLAG, .help = "each sequence has its own lengths"},
    {.name = "mask", .kind = HEED_CLI_FLAG, .help = "a bool mask"},
    {.name = "bias",
     .values = "f32|f16|bf16",
     .kind = HEED_CLI_MAYBE,
     .help = "a bias, f32 unless said"},
    {.name = "mask-from", .kind = HEED_CLI_FLAG, .help = "mask and bias begin at a later key"},
    {.name = "ranges",
     .values = "N",
     .kind = HEED_CLI_VALUE,
     .help = "rows see the keys of N intervals"},
    {.name = "block",
     .values = "ROWSxKEYS",
     .kind = HEED_CLI_VALUE,
     .help = "blocks of so many keys are switched off for blocks of so many rows"},
    {.name = "alibi", .kind = HEED_CLI_FLAG, .help = "ALiBi slopes"},
    {.name = "sinks", .kind = HEED_CLI_FLAG, .help = "sink logits"},
    {.name = "lse", .kind = HEED_CLI_FLAG, .help = "lse is asked for"},
    {.name = "weights", .kind = HEED_CLI_FLAG, .help = "the weights are asked for"},
    {.name = "scores",
     .values = "raw|softcapped|biased",
     .kind = HEED_CLI_VALUE,
     .help = "the scores of that stage are asked for"},
    {.name = "reproducible-chunks",
     .kind = HEED_CLI_FLAG,
     .help = "the same bits however the queries are cut into calls"},
    {.name = "json", .kind = HEED_CLI_FLAG, .help = "one JSON object instead of text"},
    {.name = NULL},
};

int heed_cli_explain(int argc, char **argv)
{
    heed_cli_option options[sizeof known / sizeof *known];
    heed_attn_desc desc = {.struct_size = sizeof desc};
    memcpy(options, known, sizeof options);
    int failed = heed_cli_parse("heed explain", usage, options, argc, argv);
    if (failed)
        return failed == HEED_EXIT_HELP ? HEED_EXIT_OK : failed;
    failed = read_shape(options, &desc);
    if (!failed)
        failed = read_types(options, &desc);
    if (!failed)
        failed = read_lists(options, &desc);
    if (!failed)
        failed = heed_cli_kv_types(options, &desc);
    if (!failed)
        failed = heed_cli_problem(options, &desc);
    read_features(options, &desc);
    return failed ? failed : explain(options, &desc);
}
