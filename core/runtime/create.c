/* The public calls that make, fill and release a context; the version. */
#include "context.h"

#include "base/env.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "fork.h"
#include "load.h"
#include "parallel.h"
#include "spare.h"

uint32_t heed_version(void)
{
    return HEED_VERSION_NUMBER;
}

/* ---- options ----------------------------------------------------------------------------------
 */

/* Where a setting comes from, for sentences: the option beats the environment. */
typedef struct setting {
    const char *text; /* NULL: not given. "" is given, and means nothing */
    const char *from;
} setting;

static setting setting_of(const char *option, const char *name, const char *environment,
                          const char *variable)
{
    return option ? (setting){option, name} : (setting){environment, variable};
}

static heed_status parse_verbose(setting words, uint32_t *verbose, heed_error *why)
{
    for (const char *at = words.text; *at;) {
        size_t n = strcspn(at, ",");
        if (n == 4 && !memcmp(at, "plan", 4))
            *verbose |= HEED_VERBOSE_PLAN;
        else if (n == 3 && !memcmp(at, "run", 3))
            *verbose |= HEED_VERBOSE_RUN;
        else if (n)
            INVALID("%s has the word '%.*s', known are plan and run", words.from,
                    (int)(n < 80 ? n : 80), at);
        at += n + (at[n] == ',');
    }
    return HEED_OK;
}

/* Options beat the environment. */
static heed_status read_options(heed_context *context, heed_error *why)
{
    heed_context_options *o = &context->user;
    heed_status st = HEED_OK;
    if (o->flags & ~HEED_CONTEXT_TRUST_LENGTHS)
        INVALID("options.flags is 0x%x, known is 0x%x", o->flags, HEED_CONTEXT_TRUST_LENGTHS);
    if (o->executor) {
        st = heed_check_executor(o->executor, &context->executor, why);
        o->executor = &context->executor;
    }
    const setting verbose =
        setting_of(o->verbose, "options.verbose", heed_env("HEED_VERBOSE"), "HEED_VERBOSE");
    if (st == HEED_OK && verbose.text)
        st = parse_verbose(verbose, &context->verbose, why);
    context->n_threads = o->n_threads;
    if (st == HEED_OK && !context->n_threads)
        st = heed_env_threads(&context->n_threads, why);
    context->workers_sleep = heed_env_workers_sleep();
    heed_cpu_detect(&context->cpu);
    const setting max_isa =
        setting_of(o->max_isa, "options.max_isa", heed_env("HEED_MAX_ISA"), "HEED_MAX_ISA");
    if (st == HEED_OK && max_isa.text && *max_isa.text && heed_cpu_cap(&context->cpu, max_isa.text))
        st = heed_fail(why, HEED_ERR_INVALID,
                       "%s is '%.40s', known are baseline, avx2, avx512 and amx", max_isa.from,
                       max_isa.text);
    const char *wanted = o->backends ? o->backends : heed_env("HEED_BACKEND");
    if (st == HEED_OK && wanted && *wanted) {
        size_t bytes = strlen(wanted) + 1;
        context->wanted = heed_alloc(context, bytes, 1);
        if (!context->wanted)
            return heed_fail(why, HEED_ERR_NOMEM, "no memory for a list of backends");
        memcpy(context->wanted, wanted, bytes);
        context->wanted_by_variable = !o->backends;
    }
    const setting path = setting_of(o->plugin_path, "options.plugin_path",
                                    heed_env_secure("HEED_PLUGIN_PATH"), "HEED_PLUGIN_PATH");
    if (st == HEED_OK)
        st = heed_load_backends(&context->registry, &context->cpu, path.text, path.from, why);
    o->backends = o->max_isa = o->plugin_path = o->verbose = NULL; /* not ours to keep */
    return st;
}

/* ---- life -------------------------------------------------------------------------------------
 */

static void destroy(heed_context *context)
{
    heed_fork_remove(context);
    heed_cache_clear(&context->plans);
    heed_spare_drop(context);
    heed_registry_close(&context->registry);
    if (context->wanted)
        heed_free(context, context->wanted, strlen(context->wanted) + 1);
    pthread_mutex_destroy(&context->lock);
    heed_free(context, context, sizeof *context);
}

heed_status heed_context_create(const heed_context_options *options, heed_context **out)
{
    heed_error why = {""};
    heed_context seed; /* the caller's alloc is known only after reading options */
    memset(&seed, 0, sizeof seed);
    heed_status st = HEED_OK;
    if (!out)
        st = heed_fail(&why, HEED_ERR_INVALID, "out is NULL");
    else if (options)
        st = heed_read_struct("options", options, sizeof seed.user, &seed.user, &why);
    if (st == HEED_OK && !seed.user.alloc != !seed.user.release)
        st =
            heed_fail(&why, HEED_ERR_INVALID, "options.%s is NULL, alloc and release come together",
                      seed.user.alloc ? "release" : "alloc");
    if (st != HEED_OK)
        return heed_report(NULL, st, &why);
    heed_context *context = heed_alloc(&seed, sizeof *context, _Alignof(heed_context));
    if (!context)
        return heed_report(NULL, heed_fail(&why, HEED_ERR_NOMEM, "no memory for a context"), &why);
    memset(context, 0, sizeof *context);
    context->user = seed.user;
    atomic_init(&context->refs, 1);
    pthread_mutex_init(&context->lock, NULL);
    heed_fpenv saved = heed_fpenv_enter();
    heed_make_begin(); /* the loader has locks, and plugins have what they will */
    st = read_options(context, &why);
    heed_make_end();
    heed_fpenv_leave(saved);
    if (st != HEED_OK) {
        destroy(context);
        return heed_report(NULL, st, &why);
    }
    heed_fork_add(context);
    *out = context;
    return HEED_OK;
}

void heed_context_release(heed_context *context)
{
    if (context && atomic_fetch_sub(&context->refs, 1) == 1)
        destroy(context);
}

heed_status heed_context_register(heed_context *context, const heed_backend *backend)
{
    heed_error why = {""};
    heed_status st;
    if (!context || !backend)
        return heed_report(
            NULL, heed_fail(&why, HEED_ERR_INVALID, "%s is NULL", context ? "backend" : "context"),
            &why);
    heed_fpenv saved = heed_fpenv_enter();
    heed_context_lock(context);
    st = heed_registry_add(&context->registry, &context->cpu, backend, &why);
    if (st == HEED_OK)
        heed_cache_clear(&context->plans);
    heed_context_unlock(context);
    heed_fpenv_leave(saved);
    return heed_report(NULL, st, &why);
}
