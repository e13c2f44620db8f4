/* heed run: computes attention on .npy files. */
#define _POSIX_C_SOURCE 200809L /* readlink */
#include "cli.h"
#include "inputs.h"

#include <heed/cache.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "heed run --query q.npy --key k.npy --value v.npy --out o.npy [OPTIONS]\n\n"
    "Computes softmax(scale * Q K^T + mask) V. Files hold f2, f4 or f8; what is read is named\n"
    "[batch, q_heads, q_len, dim] for q and out, [batch, kv_heads, kv_len, dim] for k and v.\n"
    "out is f4 for f32, f2 for f16, f4 holding bf16 values for bf16; lse, weights and scores f4.\n"
    "Exit status: 0; 1 a run failed; 2 bad usage, files or shapes; 3 the backend refuses.";

/* k and v in the types of --kv-type, and their scales. */
typedef struct codes {
    void *data[2];
    float *scale[2], *zero[2];
} codes;

static void codes_free(codes *c)
{
    for (int i = 0; i < 2; i++) {
        free(c->data[i]);
        free(c->scale[i]);
        free(c->zero[i]);
    }
}

/* The outputs of a run, in their own memory. */
typedef struct outputs {
    float *out_f32; /* out, widened from bf16 */
    void *out;
    float *lse, *weights, *scores;
} outputs;

static void outputs_free(outputs *o)
{
    free(o->out_f32);
    free(o->out);
    free(o->lse);
    free(o->weights);
    free(o->scores);
}

/* Allocates n[0] * ... * n[3] zeroed elements; NULL after a line on stderr if that is too much. */
static void *allocate(const int64_t n[4], size_t element)
{
    int64_t bytes = (int64_t)element;
    int fits = 1;
    for (int d = 0; d < 4; d++)
        fits = fits && heed_npy_multiply(bytes, n[d], &bytes);
    void *data = fits ? calloc(1, (size_t)bytes + 1) : NULL;
    if (!data)
        heed_cli_fail(HEED_EXIT_FAILED, "no memory for an array of %lld x %lld x %lld x %lld",
                      (long long)n[0], (long long)n[1], (long long)n[2], (long long)n[3]);
    return data;
}

static const heed_axes bhsd = {0, 1, 2, 3};

/* Makes a cache of k or v, [batch, kv_heads, kv_len, dim], with a scale and a zero for each key of
 * a head. */
static int prepare_codes(const heed_attn_args *args, uint32_t kv_heads, uint32_t type,
                         const int64_t shape[4], codes *c, int which, heed_view *cache,
                         heed_quant_out *quant)
{
    const int64_t keys[4] = {args->batch, kv_heads, args->kv_len, 1};
    const int64_t len = heed_block_len(type);
    const int64_t blocks[4] = {shape[0], shape[1], shape[2], (shape[3] + len - 1) / len};
    if (!(c->data[which] = allocate(blocks, heed_block_bytes(type))))
        return HEED_EXIT_FAILED;
    *cache = heed_inputs_view(c->data[which], bhsd, shape);
    if (!heed_takes_scale(type))
        return HEED_EXIT_OK;
    if (!(c->scale[which] = allocate(keys, sizeof(float))) ||
        !(c->zero[which] = allocate(keys, sizeof(float))))
        return HEED_EXIT_FAILED;
    const heed_view view = heed_inputs_view(c->scale[which], bhsd, keys);
    quant->scale = c->scale[which];
    quant->zero = type == HEED_F8_E4M3 ? NULL : c->zero[which];
    memcpy(quant->stride, view.stride, sizeof quant->stride);
    quant->stride[3] = 0;
    return HEED_EXIT_OK;
}

/* Encodes k and v in the types of --kv-type, with heed_kv_append, which fills caches. */
static int encode(const heed_cli_option *options, heed_attn_desc *desc, heed_attn_args *args,
                  codes *c)
{
    const int64_t k_shape[] = {args->batch, desc->kv_heads, args->kv_len, desc->qk_dim};
    const int64_t v_shape[] = {args->batch, desc->kv_heads, args->kv_len, desc->v_dim};
    heed_kv_append_args append = {.struct_size = sizeof append,
                                  .batch = args->batch,
                                  .len = args->kv_len,
                                  .capacity = args->kv_len,
                                  .kv_heads = desc->kv_heads,
                                  .qk_dim = desc->qk_dim,
                                  .v_dim = desc->v_dim,
                                  .k_type = desc->k_type,
                                  .v_type = desc->v_type,
                                  .k = args->k,
                                  .v = args->v};
    if (!heed_cli_given(options, "kv-type") && !heed_cli_given(options, "k-type") &&
        !heed_cli_given(options, "v-type"))
        return HEED_EXIT_OK;
    int failed = heed_cli_kv_types(options, desc);
    if (!failed)
        failed = prepare_codes(args, desc->kv_heads, desc->k_type, k_shape, c, 0, &append.k_cache,
                               &append.k_quant);
    if (!failed)
        failed = prepare_codes(args, desc->kv_heads, desc->v_type, v_shape, c, 1, &append.v_cache,
                               &append.v_quant);
    if (failed)
        return failed;
    append.k_cache_type = desc->k_type;
    append.v_cache_type = desc->v_type;
    append.options = desc->features & HEED_HAS_QUANT ? HEED_APPEND_FRESH_SCALES : 0;
    if (heed_kv_append(&append) != HEED_OK)
        return heed_cli_fail(HEED_EXIT_USAGE, "%s", heed_last_error());
    args->k = heed_as_const(append.k_cache);
    args->v = heed_as_const(append.v_cache);
    args->k_quant = heed_quant_as_const(append.k_quant);
    args->v_quant = heed_quant_as_const(append.v_quant);
    return HEED_EXIT_OK;
}

/* Allocates the requested outputs and sets their views. */
static int prepare_outputs(const heed_cli_option *options, heed_axes axes, heed_attn_desc *desc,
                           heed_attn_args *args, outputs *o)
{
    const int64_t pairs[4] = {args->batch, desc->q_heads, args->q_len, args->kv_len};
    const int64_t rows[4] = {args->batch, desc->q_heads, args->q_len, 1};
    int64_t shape[4];
    shape[axes.batch] = args->batch;
    shape[axes.head] = desc->q_heads;
    shape[axes.row] = args->q_len;
    shape[axes.dim] = desc->v_dim;
    desc->out_type = desc->q_type;
    o->out = allocate(shape, heed_dtype_bytes(desc->out_type));
    if (!o->out)
        return HEED_EXIT_FAILED;
    args->out = heed_inputs_view(o->out, axes, shape);
    if (heed_cli_given(options, "lse")) {
        if (!(o->lse = allocate(rows, sizeof *o->lse)))
            return HEED_EXIT_FAILED;
        args->lse = heed_inputs_view(o->lse, bhsd, rows);
        args->lse.stride[3] = 0;
        desc->features |= HEED_HAS_LSE;
    }
    if (heed_cli_given(options, "weights") || heed_cli_given(options, "heatmap")) {
        if (!(o->weights = allocate(pairs, sizeof *o->weights)))
            return HEED_EXIT_FAILED;
        args->weights = heed_inputs_view(o->weights, bhsd, pairs);
        desc->features |= HEED_HAS_WEIGHTS;
    }
    if (heed_cli_given(options, "scores")) {
        if (!(o->scores = allocate(pairs, sizeof *o->scores)))
            return HEED_EXIT_FAILED;
        args->scores = heed_inputs_view(o->scores, bhsd, pairs);
        desc->features |= HEED_HAS_SCORES;
    }
    return HEED_EXIT_OK;
}

static int save(const char *name, const char *path, int type, int n_dims, const int64_t *shape,
                void *data)
{
    heed_error why;
    heed_npy array = {.type = type, .n_dims = n_dims, .count = 1, .data = data};
    if (!path)
        return HEED_EXIT_OK;
    for (int d = 0; d < n_dims; d++) {
        array.shape[d] = shape[d];
        array.count *= shape[d];
    }
    if (heed_npy_write(path, &array, &why) != HEED_OK)
        return heed_cli_fail(HEED_EXIT_USAGE, "--%s %s", name, why.text);
    return HEED_EXIT_OK;
}

static int save_outputs(const heed_cli_option *options, heed_axes axes, const heed_attn_desc *desc,
                        const heed_attn_args *args, outputs *o)
{
    const int64_t pairs[4] = {args->batch, desc->q_heads, args->q_len, args->kv_len};
    int64_t shape[4];
    void *out = o->out;
    shape[axes.batch] = args->batch;
    shape[axes.head] = desc->q_heads;
    shape[axes.row] = args->q_len;
    shape[axes.dim] = desc->v_dim;
    if (desc->out_type == HEED_BF16) {
        if (!(o->out_f32 = allocate(shape, sizeof *o->out_f32)))
            return HEED_EXIT_FAILED;
        int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
        for (int64_t i = 0; i < count; i++)
            o->out_f32[i] = heed_load(HEED_BF16, o->out, i);
        out = o->out_f32;
    }
    int failed = save("out", heed_cli_value(options, "out"),
                      desc->out_type == HEED_F16 ? HEED_NPY_F2 : HEED_NPY_F4, 4, shape, out);
    if (!failed)
        failed = save("lse", heed_cli_value(options, "lse"), HEED_NPY_F4, 3, pairs, o->lse);
    if (!failed)
        failed =
            save("weights", heed_cli_value(options, "weights"), HEED_NPY_F4, 4, pairs, o->weights);
    if (!failed)
        failed = save("scores", heed_cli_option_of(options, "scores")->second, HEED_NPY_F4, 4,
                      pairs, o->scores);
    return failed;
}

/* The sequence and head of --heatmap or --heatmap=SEQUENCE,HEAD. */
static int heatmap_head(const heed_cli_option *options, const heed_attn_desc *desc,
                        const heed_attn_args *args, int64_t *b, int64_t *h)
{
    const char *text = heed_cli_value(options, "heatmap");
    const char *comma = text ? strchr(text, ',') : NULL;
    char first[24] = "";
    *b = *h = 0;
    if (!text)
        return HEED_EXIT_OK;
    if (comma && (size_t)(comma - text) < sizeof first)
        memcpy(first, text, (size_t)(comma - text));
    if (heed_cli_integer(first, 0, args->batch - 1, b) &&
        heed_cli_integer(comma + 1, 0, (int64_t)desc->q_heads - 1, h))
        return HEED_EXIT_OK;
    return heed_cli_fail(HEED_EXIT_USAGE, "--heatmap=%s is not SEQUENCE,HEAD below %lld,%u", text,
                         (long long)args->batch, desc->q_heads);
}

static void show_heatmap(const heed_attn_desc *desc, const heed_attn_args *args, const outputs *o,
                         int64_t b, int64_t h)
{
    const char *text = getenv("COLUMNS");
    int64_t columns = 80;
    if (!text || !heed_cli_integer(text, 20, 1000, &columns))
        columns = 80;
    printf("weights of sequence %lld, head %lld: %lld rows x %lld keys\n", (long long)b,
           (long long)h, (long long)args->q_len, (long long)args->kv_len);
    heed_cli_heatmap(stdout, o->weights + (b * desc->q_heads + h) * args->q_len * args->kv_len,
                     args->batch > 0 ? args->q_len : 0, args->kv_len, columns);
}

/* Plans and runs; with --explain prints what runs it. */
static int attend(const heed_cli_option *options, const heed_attn_desc *desc,
                  const heed_attn_args *args)
{
    const char *backend = heed_cli_value(options, "backend");
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    int failed = heed_cli_context(options, &context);
    if (!failed)
        failed =
            heed_cli_report(heed_attn_create(context, desc, &plan), backend, heed_last_error());
    if (!failed)
        failed = heed_cli_report(heed_attn_run(plan, args, NULL, 0), backend, heed_last_error());
    if (!failed && heed_cli_given(options, "explain")) {
        char *text = heed_cli_explanation(plan, 0);
        if (text)
            fputs(text, stdout);
        else
            failed = HEED_EXIT_FAILED;
        free(text);
    }
    heed_attn_release(plan);
    heed_context_release(context);
    return failed;
}

/* Where a path leads to. For a file that does not exist yet it is the folder, and the name in it. */
typedef struct place {
    struct stat at;
    char path[4096];
    const char *last;
} place;

/* Replaces path by what it is a link to, link after link, while there are such. */
static int follow_links(char *path, size_t room)
{
    char target[4096];
    ssize_t n;
    for (int links = 0; (n = readlink(path, target, sizeof target - 1)) > 0; links++) {
        const char *slash = strrchr(path, '/');
        const size_t folder = target[0] == '/' || !slash ? 0 : (size_t)(slash + 1 - path);
        if (links == 40 || folder + (size_t)n >= room)
            return 0;
        target[n] = '\0';
        memcpy(path + folder, target, (size_t)n + 1);
    }
    return 1;
}

static int find_place(const char *path, place *p)
{
    char folder[sizeof p->path + 1];
    p->last = "";
    if (stat(path, &p->at) == 0)
        return 1;
    if (snprintf(p->path, sizeof p->path, "%s", path) >= (int)sizeof p->path ||
        !follow_links(p->path, sizeof p->path))
        return 0;
    const char *slash = strrchr(p->path, '/');
    p->last = slash ? slash + 1 : p->path;
    snprintf(folder, sizeof folder, "%.*s.", (int)(p->last - p->path), p->path);
    return stat(folder, &p->at) == 0;
}

/* Devices take any number of outputs. */
static int same_file(const char *a, const char *b)
{
    place of_a, of_b;
    return find_place(a, &of_a) && find_place(b, &of_b) && of_a.at.st_dev == of_b.at.st_dev &&
           of_a.at.st_ino == of_b.at.st_ino && strcmp(of_a.last, of_b.last) == 0 &&
           !S_ISCHR(of_a.at.st_mode);
}

/* Refuses two outputs to the same file, where only the last would remain. */
static int check_outputs(const heed_cli_option *options)
{
    static const char *const name[] = {"out", "lse", "weights", "scores"};
    const char *path[] = {heed_cli_value(options, "out"), heed_cli_value(options, "lse"),
                          heed_cli_value(options, "weights"),
                          heed_cli_option_of(options, "scores")->second};
    int n = 0, count = (int)(sizeof path / sizeof *path);
    for (int i = 0; i < count; i++) {
        n += path[i] != NULL;
        for (int j = 0; path[i] && j < i; j++)
            if (path[j] && same_file(path[j], path[i]))
                return heed_cli_fail(HEED_EXIT_USAGE, "--%s and --%s name the same file %s",
                                     name[j], name[i], path[i]);
    }
    if (n == 0 && !heed_cli_given(options, "heatmap"))
        return heed_cli_fail(HEED_EXIT_USAGE, "--out is required; see heed run --help");
    return HEED_EXIT_OK;
}

/* Checks what depends on the options alone, before any file is read. */
static int check_options(const heed_cli_option *options, heed_axes *axes, heed_attn_desc *desc)
{
    static const char *const needed[] = {"query", "key", "value"};
    const char *layout = heed_cli_value(options, "layout");
    const char *dtype = heed_cli_value(options, "dtype");
    const heed_cli_option *scores = heed_cli_option_of(options, "scores");
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!heed_cli_given(options, needed[i]))
            return heed_cli_fail(HEED_EXIT_USAGE, "--%s is required; see heed run --help",
                                 needed[i]);
    if (layout && strcmp(layout, "bhsd") != 0 && strcmp(layout, "bshd") != 0)
        return heed_cli_fail(HEED_EXIT_USAGE, "--layout %s is neither bhsd nor bshd", layout);
    *axes = layout && strcmp(layout, "bshd") == 0 ? (heed_axes){0, 2, 1, 3} : bhsd;
    if (dtype && !heed_cli_dtype(dtype))
        return heed_cli_fail(HEED_EXIT_USAGE, "--dtype %s is none of f32, f16, bf16", dtype);
    if (scores->given && !(desc->scores_stage = heed_cli_scores_stage(scores->value)))
        return heed_cli_fail(HEED_EXIT_USAGE, "--scores %s is none of raw, softcapped, biased",
                             scores->value);
    int failed = check_outputs(options);
    return failed ? failed : heed_cli_problem(options, desc);
}

static const heed_cli_option known[] = {
    {.name = "query", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "q"},
    {.name = "key", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "k"},
    {.name = "value", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "v"},
    {.name = "out", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "where out goes"},
    {.name = "layout",
     .values = "bhsd|bshd",
     .kind = HEED_CLI_VALUE,
     .help = "order of the axes of q, k, v and out; bhsd unless given"},
    {.name = "dtype",
     .values = "f32|f16|bf16",
     .kind = HEED_CLI_VALUE,
     .help = "what q, k and v are converted to; without it f2 files are f16, f4 and f8\n"
             "files f32. With bf16, u2 files are its bits"},
    HEED_CLI_PROBLEM_OPTIONS,
    {.name = "q-offset",
     .values = "N|FILE",
     .kind = HEED_CLI_VALUE,
     .help = "row i stands at key i + N, for causal, window and ALiBi; a file holds one\n"
             "i4 or i8 for each sequence"},
    {.name = "kv-len",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "keys of each sequence, i4 or i8"},
    {.name = "mask",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "b1, true = attend; 2 to 4 dimensions, broadcast from the right to\n"
             "[batch, q_heads, q_len, kv_len]"},
    {.name = "bias",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "added to the scores; -inf masks; dimensions as --mask"},
    {.name = "mask-from",
     .values = "N|FILE",
     .kind = HEED_CLI_VALUE,
     .help = "mask and bias begin at key N, hide nothing before it and have kv_len - N columns;\n"
             "a file holds one i4 or i8 for each sequence, and the least of them is that N"},
    {.name = "segments",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "i4 or i8 [kv_len] or [batch, kv_len], the document of each key: row i sees that\n"
             "of key i + kv_len - q_len"},
    {.name = "ranges",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "i4 or i8 [batch, q_heads, q_len, n, 2], intervals of keys that a row sees; the\n"
             "first two axes may lack or be 1"},
    {.name = "key-blocks",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "b1 [batch, q_heads, row blocks, key blocks], true = attend; the first two axes\n"
             "may lack or be 1"},
    {.name = "block",
     .values = "ROWSxKEYS",
     .kind = HEED_CLI_VALUE,
     .help = "rows and keys of a block of --key-blocks, such as 64x64"},
    {.name = "alibi",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "ALiBi slopes, one for each query head"},
    {.name = "sinks",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "sink logits, one for each query head"},
    {.name = "lse",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "where the log-sum-exp of the scores goes"},
    {.name = "weights",
     .values = "FILE",
     .kind = HEED_CLI_VALUE,
     .help = "where the attention weights go"},
    {.name = "scores",
     .values = "raw|softcapped|biased FILE",
     .kind = HEED_CLI_PAIR,
     .help = "where the scores of that stage go"},
    {.name = "heatmap",
     .values = "SEQUENCE,HEAD",
     .kind = HEED_CLI_MAYBE,
     .help = "print the weights of a head (0,0 unless given) as a map, COLUMNS wide"},
    {.name = "explain",
     .kind = HEED_CLI_FLAG,
     .help = "print which backend ran, and why not the others"},
    {.name = NULL},
};

int heed_cli_run(int argc, char **argv)
{
    heed_cli_option options[sizeof known / sizeof *known];
    heed_attn_desc desc = {.struct_size = sizeof desc};
    heed_attn_args args = {.struct_size = sizeof args};
    heed_inputs inputs = {0};
    outputs o = {0};
    codes c = {0};
    heed_attn_desc types = desc; /* checks --kv-type before any file is read */
    heed_axes axes = bhsd;
    int64_t map_b, map_h;

    memcpy(options, known, sizeof options);
    int failed = heed_cli_parse("heed run", usage, options, argc, argv);
    if (failed)
        return failed == HEED_EXIT_HELP ? HEED_EXIT_OK : failed;
    failed = check_options(options, &axes, &desc);
    if (!failed)
        failed = heed_cli_kv_types(options, &types);
    if (!failed)
        failed = heed_inputs_read(options, axes, &inputs, &desc, &args);
    if (!failed)
        failed = encode(options, &desc, &args, &c);
    if (!failed)
        failed = heatmap_head(options, &desc, &args, &map_b, &map_h);
    if (!failed)
        failed = prepare_outputs(options, axes, &desc, &args, &o);
    if (!failed)
        failed = attend(options, &desc, &args);
    if (!failed)
        failed = save_outputs(options, axes, &desc, &args, &o);
    if (!failed && heed_cli_given(options, "heatmap"))
        show_heatmap(&desc, &args, &o, map_b, map_h);
    outputs_free(&o);
    codes_free(&c);
    heed_inputs_free(&inputs);
    return failed;
}
