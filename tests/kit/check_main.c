/* `heed check`: arguments, the backends to check, the loop over the cases. See check_main.h. */
#include "check_main.h"

#include "cases.h"
#include "random.h"
#include "report.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILTERS = 16 };

typedef struct arguments {
    const char *backend, *plugin_path, *dtype, *may_refuse, *filter[MAX_FILTERS];
    int n_filters, list, quick, brief, no_refusals;
    uint32_t n_threads, at_least, accuracy;
    uint64_t seed;
} arguments;

static const char help[] =
    "usage: heed check [OPTIONS]\n"
    "Runs the conformance suite: every case against a float64 reference, in memory between\n"
    "unmapped pages, and the bits of the results under changed threads, batches and addresses.\n"
    "  --backend NAME      check this backend; without it each one that can run here, whatever\n"
    "                      HEED_BACKEND says\n"
    "  --plugin-path DIR   look for plugins there (absolute; beats HEED_PLUGIN_PATH)\n"
    "  --filter TEXT       only cases whose name contains TEXT, or matches it if it has * ? or [;\n"
    "                      may be given several times\n"
    "  --dtype T           only the cases of one type: f32, f16 or bf16\n"
    "  --accuracy A        exact, bf16, split or int8, for the cases that leave it open\n"
    "  --quick             a part of the cases that takes seconds\n"
    "  --seed N            other random numbers (0: the usual ones); a failing case prints its "
    "seed\n"
    "  --threads N         threads of the library in plain cases (default 1)\n"
    "  --no-refusals       a refusal is a failure\n"
    "  --may-refuse TEXT   but not of cases whose name contains TEXT\n"
    "  --at-least N        fewer than N passed cases are a failure\n"
    "  --brief             print failures, refusals' reasons and the summary alone\n"
    "  --list              print the names of the cases, run nothing\n"
    "Exit status: 0 if nothing failed; 1 if a case failed or none ran; 2 for bad usage.\n";

/* ---- what the cases use ---------------------------------------------------------------------- */

int kit_fail(kit_outcome *outcome, const char *format, ...)
{
    va_list list;
    if (outcome->verdict == KIT_FAILED)
        return KIT_FAILED;
    outcome->verdict = KIT_FAILED;
    va_start(list, format);
    vsnprintf(outcome->text, sizeof outcome->text, format, list);
    va_end(list);
    return KIT_FAILED;
}

int kit_status(kit_outcome *outcome, heed_status status, const char *sentence, const char *call)
{
    if (status == HEED_OK)
        return 0;
    if (status != HEED_ERR_UNSUPPORTED) {
        kit_fail(outcome, "%s returned %s: %s", call, heed_status_string(status), sentence);
    } else if (!*sentence) {
        kit_fail(outcome, "%s was refused without a reason", call);
    } else if (outcome->verdict == KIT_PASSED) {
        outcome->verdict = KIT_REFUSED;
        snprintf(outcome->text, sizeof outcome->text, "%s", sentence);
    }
    return -1;
}

heed_context *kit_context(const kit_env *env, uint32_t n_threads, const heed_executor *executor,
                          kit_outcome *outcome)
{
    heed_context_options options = {.struct_size = sizeof options,
                                    .n_threads = n_threads,
                                    .executor = executor,
                                    .backends = env->backend,
                                    .plugin_path = env->plugin_path};
    heed_context *context = NULL;
    heed_status status = heed_context_create(&options, &context);
    if (status != HEED_OK)
        kit_fail(outcome, "heed_context_create returned %s: %s", heed_status_string(status),
                 heed_last_error());
    return context;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int usage(const char *format, const char *what)
{
    fputs("heed check: ", stderr);
    fprintf(stderr, format, what); /* the formats are this file's */
    fputs(" (--help lists the options)\n", stderr);
    return 2;
}

/* The value of option `name` at argv[*at], "--name value" or "--name=value"; NULL for another
 * one. */
static const char *value_of(const char *name, int argc, char **argv, int *at)
{
    size_t n = strlen(name);
    if (strncmp(argv[*at], name, n) != 0)
        return NULL;
    if (argv[*at][n] == '=')
        return argv[*at] + n + 1;
    if (argv[*at][n] || *at + 1 >= argc)
        return NULL;
    return argv[++*at];
}

static int number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    *out = strtoull(text, &end, 0);
    return *end || errno == ERANGE || *out > most ? -1 : 0;
}

/* The options that take a value. Of the first ONCE all but one would be ignored. */
enum { ONCE = 7, VALUED = 9 };
static const char *const valued[VALUED] = {"--backend",    "--plugin-path", "--dtype",
                                           "--accuracy",   "--seed",        "--threads",
                                           "--may-refuse", "--filter",      "--at-least"};

/* The option among those ONCE that is given again, or NULL. */
static const char *given_twice(int argc, char **argv)
{
    unsigned seen = 0;
    for (int at = 1; at < argc; at++) {
        const size_t length = strcspn(argv[at], "=");
        int n = 0;
        while (n < VALUED && (strlen(valued[n]) != length || strncmp(valued[n], argv[at], length)))
            n++;
        if (n == VALUED)
            continue;
        if (n < ONCE && seen >> n & 1)
            return valued[n];
        seen |= 1u << n;
        at += !argv[at][length]; /* its value */
    }
    return NULL;
}

/* Says what is wrong with an argument that is none of the options with what they take. */
static int not_an_option(const char *argument)
{
    static const char *const flags[] = {"--list", "--quick", "--brief", "--no-refusals"};
    for (size_t n = 0; n < sizeof flags / sizeof *flags; n++)
        if (strncmp(argument, flags[n], strlen(flags[n])) == 0 && argument[strlen(flags[n])] == '=')
            return usage("%s takes no value", flags[n]);
    for (size_t n = 0; n < VALUED; n++)
        if (strcmp(argument, valued[n]) == 0)
            return usage("%s needs a value", valued[n]);
    return usage("what is '%s'?", argument);
}

/* Returns 0 to go on, else 1 + the exit status. */
static int parse(int argc, char **argv, arguments *o)
{
    for (int at = 1; at < argc; at++) {
        const char *value;
        uint64_t n = 0;
        if (!strcmp(argv[at], "--help") || !strcmp(argv[at], "-h")) {
            fputs(help, stdout);
            return 1;
        }
        if (!strcmp(argv[at], "--list")) {
            o->list = 1;
        } else if (!strcmp(argv[at], "--quick")) {
            o->quick = 1;
        } else if (!strcmp(argv[at], "--brief")) {
            o->brief = 1;
        } else if (!strcmp(argv[at], "--no-refusals")) {
            o->no_refusals = 1;
        } else if ((value = value_of("--may-refuse", argc, argv, &at))) {
            o->may_refuse = value;
        } else if ((value = value_of("--backend", argc, argv, &at))) {
            if (!*value || strchr(value, ','))
                return 1 + usage("--backend takes one name, not '%s'", value);
            o->backend = value;
        } else if ((value = value_of("--plugin-path", argc, argv, &at))) {
            o->plugin_path = value;
        } else if ((value = value_of("--dtype", argc, argv, &at))) {
            if (strcmp(value, "f32") && strcmp(value, "f16") && strcmp(value, "bf16"))
                return 1 + usage("--dtype is f32, f16 or bf16, not '%s'", value);
            o->dtype = value;
        } else if ((value = value_of("--filter", argc, argv, &at))) {
            if (o->n_filters == MAX_FILTERS)
                return 1 + usage("too many filters at '%s'", value);
            o->filter[o->n_filters++] = value;
        } else if ((value = value_of("--accuracy", argc, argv, &at))) {
            o->accuracy = !strcmp(value, "exact")   ? HEED_ACCURACY_EXACT
                          : !strcmp(value, "bf16")  ? HEED_ACCURACY_BF16
                          : !strcmp(value, "split") ? HEED_ACCURACY_SPLIT
                          : !strcmp(value, "int8")  ? HEED_ACCURACY_INT8
                                                    : HEED_ACCURACY_DEFAULT;
            if (!o->accuracy)
                return 1 + usage("--accuracy is exact, bf16, split or int8, not '%s'", value);
        } else if ((value = value_of("--seed", argc, argv, &at))) {
            if (number(value, UINT64_MAX, &o->seed))
                return 1 + usage("--seed takes a number, not '%s'", value);
        } else if ((value = value_of("--threads", argc, argv, &at))) {
            if (number(value, 1024, &n) || n == 0)
                return 1 + usage("--threads takes 1 to 1024, not '%s'", value);
            o->n_threads = (uint32_t)n;
        } else if ((value = value_of("--at-least", argc, argv, &at))) {
            if (number(value, UINT32_MAX, &n))
                return 1 + usage("--at-least takes a number, not '%s'", value);
            o->at_least = (uint32_t)n;
        } else {
            return 1 + not_an_option(argv[at]);
        }
    }
    return 0;
}

static int matches(const char *filter, const char *name)
{
    return strpbrk(filter, "*?[") ? fnmatch(filter, name, 0) == 0 : strstr(name, filter) != NULL;
}

/* A filter that no name matches is a mistake, even beside others that match. Returns an
 * exit status. */
static int check_filters(const arguments *o, const kit_list *cases)
{
    for (int f = 0; f < o->n_filters; f++) {
        size_t n = 0;
        while (n < cases->n && !matches(o->filter[f], cases->item[n].name))
            n++;
        if (n == cases->n)
            return usage("no case has a name like '%s'", o->filter[f]);
    }
    return 0;
}

static int wanted(const arguments *o, const kit_case *c)
{
    const char *type = strrchr(c->name, '/');
    int match = o->n_filters == 0;
    if ((o->quick && !c->quick) || (o->dtype && strcmp(type + 1, o->dtype) != 0))
        return 0;
    for (int n = 0; n < o->n_filters; n++)
        match |= matches(o->filter[n], c->name);
    return match;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* A kernel that fails its trial is not chosen, and the cases pass on other kernels: report the
 * failed trial as a failure of its own. */
static void check_trials(const kit_env *env, kit_report *report)
{
    heed_backend_info of = {.struct_size = sizeof of};
    heed_trial_info trial = {.struct_size = sizeof trial};
    for (uint32_t b = 0; heed_context_backend(env->context, b, &of) == HEED_OK; b++)
        for (uint32_t k = 0; !strcmp(of.name, env->backend) &&
                             heed_context_trial(env->context, b, k, &trial) == HEED_OK;
             k++)
            if (trial.trial == HEED_TRIAL_FAILED)
                kit_report_trial(report, &trial);
}

/* Returns how many cases failed, or -1 when nothing ran. */
static int check_backend(const arguments *o, const kit_list *cases, const char *backend)
{
    kit_env env = {.backend = backend,
                   .plugin_path = o->plugin_path,
                   .n_threads = o->n_threads ? o->n_threads : 1,
                   .seed = o->seed};
    kit_report report = {.backend = backend, .seed = o->seed, .brief = o->brief};
    kit_outcome start = {0};
    env.context = kit_context(&env, env.n_threads, NULL, &start);
    if (!env.context) {
        printf("%s: %s\n", backend, start.text);
        return 1;
    }
    for (size_t n = 0; n < cases->n; n++) {
        kit_case c = cases->item[n];
        kit_outcome outcome = {0};
        if (!wanted(o, &c))
            continue;
        if (o->seed)
            c.spec.seed = kit_hash(c.spec.seed, (int64_t)o->seed);
        if (c.spec.accuracy == HEED_ACCURACY_DEFAULT)
            c.spec.accuracy = o->accuracy;
        kit_report_running(backend, c.name, o->seed);
        c.run(&env, &c, &outcome);
        const int may_refuse = o->may_refuse && strstr(c.name, o->may_refuse);
        if (o->no_refusals && !may_refuse && outcome.verdict == KIT_REFUSED)
            outcome.verdict = KIT_FAILED;
        kit_report_case(&report, c.name, &outcome);
    }
    check_trials(&env, &report);
    heed_context_release(env.context);
    kit_report_end(&report);
    free(report.refusal);
    if (report.n_passed + report.n_refused + report.n_failed == 0) {
        printf("%s: 0 cases ran, and that is an error\n", backend);
        return -1;
    }
    if (report.n_passed < o->at_least) {
        printf("%s: %u cases passed, at least %u have to\n", backend, report.n_passed, o->at_least);
        return -1;
    }
    return (int)report.n_failed;
}

/* Returns the exit status. */
static int run_all(const arguments *o, const kit_list *cases)
{
    heed_context_options options = {.struct_size = sizeof options, .plugin_path = o->plugin_path};
    heed_backend_info of = {.struct_size = sizeof of};
    heed_context *context = NULL;
    int bad = 0, checked = 0;
    if (heed_context_create(&options, &context) != HEED_OK) {
        fprintf(stderr, "heed check: %s\n", heed_last_error());
        return 1;
    }
    for (uint32_t n = 0; heed_context_backend(context, n, &of) == HEED_OK; n++) {
        if (o->backend && strcmp(o->backend, of.name) != 0)
            continue;
        checked++;
        if (of.usable) {
            bad |= check_backend(o, cases, of.name) != 0;
        } else {
            /* A backend that was asked for by name has to run. Without a name, those that cannot
             * run here are skipped. */
            printf("%s: cannot run here: %s\n", of.name, of.reason);
            bad |= o->backend != NULL;
            checked -= o->backend == NULL;
        }
    }
    if (o->backend && !checked) {
        fprintf(stderr, "heed check: there is no backend '%s'; there are", o->backend);
        for (uint32_t n = 0; heed_context_backend(context, n, &of) == HEED_OK; n++)
            fprintf(stderr, "%s %s", n ? "," : "", of.name);
        fputs("\n", stderr);
        heed_context_release(context);
        return 2;
    }
    if (!checked)
        puts("0 cases ran, and that is an error");
    heed_context_release(context);
    return bad || !checked;
}

static int list(const arguments *o, const kit_list *cases)
{
    size_t shown = 0;
    for (size_t n = 0; n < cases->n; n++)
        if (wanted(o, &cases->item[n]))
            shown++, puts(cases->item[n].name);
    return shown ? 0 : usage("no case is all that%s", "");
}

int heed_check_main(int argc, char **argv)
{
    arguments o = {0};
    kit_list cases = {0};
    int stop = parse(argc, argv, &o);
    if (stop)
        return stop - 1;
    const char *twice = given_twice(argc, argv);
    if (twice)
        return usage("%s is given twice", twice);
    kit_cases(&cases);
    int status = check_filters(&o, &cases);
    if (!status && o.list) {
        status = list(&o, &cases);
    } else if (!status) {
        if (!o.n_filters && !o.brief)
            kit_print_coverage();
        kit_report_crashes();
        status = run_all(&o, &cases);
    }
    free(cases.item);
    return status;
}
