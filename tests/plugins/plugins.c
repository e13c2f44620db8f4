/* Plugins as a user meets them: a folder with the hostile ones, and one with the example. Each
 * plugin that cannot serve is listed with its reason, and none disturbs the others.
 *
 * Usage: plugins HOSTILE_FOLDER EXAMPLE_FOLDER */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "fixture.h"

#include <errno.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

static heed_context *context_of(const char *plugin_path, const char *backends)
{
    heed_context_options options = {
        .struct_size = sizeof options, .plugin_path = plugin_path, .backends = backends};
    heed_context *context = NULL;
    heed_status status = heed_context_create(&options, &context);
    CHECK(status == HEED_OK, "no context with plugins %s and backends %s: %s", plugin_path,
          backends ? backends : "(any)", heed_last_error());
    if (!context)
        exit(1);
    return context;
}

/* Does some line of the text hold both words? */
static int line_with(const char *text, const char *a, const char *b)
{
    char line[1024];
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, at);
        if (strstr(line, a) && strstr(line, b))
            return 1;
        at += n + (at[n] == '\n');
    }
    return 0;
}

/* Plugins that are refused as they are loaded: their names, and a word of the reason. */
static void refused_when_loaded(heed_context *context)
{
    static const char *const expect[][2] = {
        {"wrong_abi", "abi"},
        {"short_table", "bytes"},
        {"no_symbol", "heed_backend_entry"},
        {"no_object", "loaded"},
        {"null_member", "tiling"},
        {"entry_null", "abi"},
        {"failing_open", "this machine has no quantum unit"},
        {"silent_open", "no reason"},
        {"duplicate_name", "naive"},
        {"bad_name", "name"},
        {"lone_plan_create", "plan_destroy"},
        {"lone_linear_plan", "plan_destroy"},
        {"no_kernels", "no kernels"},
    };
    char *text = listing(context, 0), *json = listing(context, 1);
    for (size_t i = 0; i < sizeof expect / sizeof *expect; i++) {
        CHECK(line_with(text, expect[i][0], expect[i][1]),
              "%s is not listed with a reason that says '%s':\n%s", expect[i][0], expect[i][1],
              text);
        CHECK(strstr(json, expect[i][0]) != NULL, "%s is not in the JSON", expect[i][0]);
    }
    free(text);
    free(json);
}

/* Plugins that load and are found out at the first plan. If they are named as the only backend,
 * that is an error with the reason; the listing then shows the reason too. */
static void refused_when_tried(const char *folder)
{
    static const char *const expect[][2] = {
        {"wrong_answers", "trial"}, {"silent_answers", "trial"}, {"failing_tile", "trial"},
        {"failing_tiling", ""},     {"no_rows", "query_rows"},   {"all_rows", "query_rows"},
    };
    for (size_t i = 0; i < sizeof expect / sizeof *expect; i++) {
        const char *name = expect[i][0];
        heed_context *context = context_of(folder, name);
        heed_status status = run_small(context);
        char *text;
        CHECK(status == HEED_ERR_UNSUPPORTED, "%s forced gives %s", name,
              heed_status_string(status));
        CHECK(strstr(heed_last_error(), name) && strstr(heed_last_error(), expect[i][1]),
              "%s forced says: %s", name, heed_last_error());
        text = listing(context, 0);
        CHECK(line_with(text, name, expect[i][1]) && line_with(text, name, "trial"),
              "%s is not listed with what its trial found:\n%s", name, text);
        free(text);
        heed_context_release(context);
    }
}

/* The trial of a plugin that writes nothing must not find right answers that a trial before it
 * left. */
static void tried_after_a_good_one(const char *folder)
{
    heed_context *context = context_of(folder, "none,silent_answers");
    CHECK(run_small(context) == HEED_OK, "none before silent_answers: %s", heed_last_error());
    char *text = listing(context, 0);
    CHECK(line_with(text, "silent_answers", "trial"), "silent_answers passes its trial:\n%s", text);
    free(text);
    heed_context_release(context);
}

/* Naming a plugin that cannot run here is an error that says why. */
static void forced_though_refused(const char *folder)
{
    heed_context *context = context_of(folder, "failing_open");
    heed_status status = run_small(context);
    CHECK(status == HEED_ERR_UNSUPPORTED && strstr(heed_last_error(), "quantum unit"),
          "failing_open forced gives %s: %s", heed_status_string(status), heed_last_error());
    heed_context_release(context);

    context = context_of(folder, "nobody");
    status = run_small(context);
    CHECK(status == HEED_ERR_INVALID && strstr(heed_last_error(), "nobody"),
          "a name that does not exist gives %s: %s", heed_status_string(status), heed_last_error());
    heed_context_release(context);
}

/* A good plugin that is chosen by name is what runs. */
static void good_by_name(const char *folder, const char *name)
{
    heed_context *context = context_of(folder, name);
    heed_attn *plan = NULL;
    heed_status status = run_small(context);
    CHECK(status == HEED_OK, "%s gives %s: %s", name, heed_status_string(status),
          heed_last_error());
    CHECK(heed_attn_create(context, &SMALL, &plan) == HEED_OK, "%s makes no plan", name);
    if (plan) {
        char text[8192] = "";
        size_t bytes = sizeof text;
        CHECK(heed_attn_explain(plan, 0, text, &bytes) == HEED_OK && strstr(text, name),
              "the plan does not speak of %s:\n%s", name, text);
        CHECK(line_with(text, "naive", "not among the permitted"),
              "the plan does not say why not naive:\n%s", text);
    }
    heed_attn_release(plan);
    heed_context_release(context);
}

/* A problem that the plugin refuses goes to another permitted backend; without one it is an error
 * that names the plugin's condition. */
static void refused_problem(const char *folder)
{
    heed_attn_desc half = SMALL;
    heed_context *context = context_of(folder, "example");
    heed_error why = {""};
    half.k_type = HEED_BF16;
    CHECK(heed_attn_supported(context, &half, &why) == HEED_ERR_UNSUPPORTED &&
              strstr(why.text, "not f32, bf16 and f32"),
          "the example's refusal reads: %s", why.text);
    heed_context_release(context);

    context = context_of(folder, "example,naive");
    CHECK(heed_attn_supported(context, &half, &why) == HEED_OK, "naive does not take over: %s",
          why.text);
    heed_context_release(context);
}

static void bad_paths(const char *hostile, const char *example)
{
    heed_context_options options = {.struct_size = sizeof options, .plugin_path = "plugins"};
    heed_context *context = NULL;
    char path[4096];
    CHECK(heed_context_create(&options, &context) == HEED_ERR_INVALID &&
              strstr(heed_last_error(), "absolute"),
          "a relative folder gives: %s", heed_last_error());
    snprintf(path, sizeof path, "%s:.", example);
    options.plugin_path = path;
    CHECK(heed_context_create(&options, &context) == HEED_ERR_INVALID && !context,
          "a relative folder behind an absolute one is accepted");

    context = context_of("/does/not/exist", NULL);
    CHECK(run_small(context) == HEED_OK, "a folder that does not exist does harm");
    heed_context_release(context);

    snprintf(path, sizeof path, "%s/no_object.so", hostile);
    context = context_of(path, NULL);
    char *text = listing(context, 0);
    CHECK(line_with(text, "as a folder of plugins it cannot be read", strerror(ENOTDIR)),
          "a file in place of a folder is not listed with the reason:\n%s", text);
    CHECK(run_small(context) == HEED_OK, "it does harm: %s", heed_last_error());
    free(text);
    heed_context_release(context);

    /* Two folders, and the same one twice: the second time every name is taken. */
    snprintf(path, sizeof path, "%s::%s:", example, example);
    good_by_name(path, "example");
    snprintf(path, sizeof path, "%s:%s", hostile, example);
    good_by_name(path, "example");
}

/* Writes the first `bytes` bytes of a file to another one, of which there may be none. */
static void copy_start(const char *from, long bytes, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    for (int c; in && out && bytes > 0 && (c = fgetc(in)) != EOF; bytes--)
        fputc(c, out);
    CHECK(in && out && bytes == 0, "%s could not be copied to %s", from, to);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
}

/* Where the part of a plugin ends that is loaded: names for debuggers and the table of sections lie behind. */
static long loaded_end(const char *path)
{
    FILE *file = fopen(path, "rb");
    ElfW(Ehdr) head;
    ElfW(Phdr) part;
    long end = 0;
    if (file && fread(&head, sizeof head, 1, file) == 1 &&
        !fseek(file, (long)head.e_phoff, SEEK_SET))
        for (int i = 0; i < head.e_phnum && fread(&part, sizeof part, 1, file) == 1; i++)
            if (part.p_type == PT_LOAD && (long)(part.p_offset + part.p_filesz) > end)
                end = (long)(part.p_offset + part.p_filesz);
    if (file)
        fclose(file);
    return end;
}

/* Every byte of text belongs to a character of ASCII or to one of the two that the test puts into it. */
static int is_utf8(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80) {
            if (strncmp(text, "\xc3\xa4", 2) != 0)
                return 0;
            text++;
        }
    return 1;
}

/* Files that dlopen would die of or wait for, and names that JSON cannot hold as they are: one whose
 * characters are cut where the room for it ends, and one that is not UTF-8. */
static void odd_files(const char *example)
{
    char folder[] = "/tmp/heed-plugins-XXXXXX", plugin[4096], path[4][256], name[80] = "x";
    for (size_t n = 1; n + 2 < sizeof name; n += 2)
        memcpy(name + n, "\xc3\xa4", 3);
    CHECK(mkdtemp(folder) != NULL, "no folder");
    snprintf(plugin, sizeof plugin, "%s/heed_example.so", example);
    const long end = loaded_end(plugin);
    CHECK(end > 0, "%s is not there", plugin);
    snprintf(path[1], sizeof path[1], "%s/pipe.so", folder);
    snprintf(path[2], sizeof path[2], "%s/%s.so", folder, name);
    snprintf(path[3], sizeof path[3], "%s/\xe4.so", folder);
    CHECK(mkfifo(path[1], 0600) == 0, "no pipe");
    copy_start(plugin, 0, path[2]);
    copy_start(plugin, 0, path[3]);
    for (long part = 0; part <= 8; part++) {
        const long bytes =
            part < 7 ? end * part / 7 : end - 8 + part; /* the last but one lacks a byte */
        /* Each in a file of its own: the one before may still be mapped, and would change under the loader. */
        snprintf(path[0], sizeof path[0], "%s/%ld-cut.so", folder, part);
        copy_start(plugin, bytes, path[0]);
        heed_context *context = context_of(folder, NULL);
        char *text = listing(context, 0), *json = listing(context, 1);
        CHECK(bytes < end ? line_with(text, "cut.so cannot run here", "")
                          : line_with(text, "backend example:", ""),
              "%ld of %ld bytes of a plugin:\n%s", bytes, end, text);
        CHECK(line_with(text, "pipe.so", "no regular file"), "a pipe is not refused:\n%s", text);
        CHECK(is_utf8(json) && strstr(json, "\\ufffd.so"), "not UTF-8: %s", json);
        free(text);
        free(json);
        heed_context_release(context);
        unlink(path[0]);
    }
    for (int i = 1; i < 4; i++)
        unlink(path[i]);
    rmdir(folder);
}

/* The environment does the same, and options beat it. */
static void by_environment(const char *hostile, const char *example)
{
    heed_context *context = NULL;
    setenv("HEED_PLUGIN_PATH", example, 1);
    setenv("HEED_BACKEND", "example", 1);
    CHECK(heed_context_create(NULL, &context) == HEED_OK && run_small(context) == HEED_OK,
          "the example is not found through the environment: %s", heed_last_error());
    heed_context_release(context);
    good_by_name(hostile, "none");
    context = context_of(hostile, NULL);
    CHECK(run_small(context) == HEED_ERR_INVALID,
          "the option's path does not replace the variable");
    heed_context_release(context);
    unsetenv("HEED_PLUGIN_PATH");
    unsetenv("HEED_BACKEND");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: plugins HOSTILE_FOLDER EXAMPLE_FOLDER\n");
        return 2;
    }
    const char *hostile = argv[1], *example = argv[2];
    heed_context *context = context_of(hostile, NULL);
    refused_when_loaded(context);
    CHECK(run_small(context) == HEED_OK, "among hostile plugins no backend is right: %s",
          heed_last_error());
    heed_context_release(context);

    refused_when_tried(hostile);
    tried_after_a_good_one(hostile);
    forced_though_refused(hostile);
    good_by_name(hostile, "none");
    good_by_name(hostile, "long_table");
    good_by_name(example, "example");
    refused_problem(example);
    bad_paths(hostile, example);
    odd_files(example);
    by_environment(hostile, example);
    return checks_end();
}
