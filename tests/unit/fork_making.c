/* A process forks while other threads of it make plans and layers. The child uses the context that
 * it inherits: plans that were cached, new plans and new layers, to the parent's bits, and it does
 * not wait for threads that it does not have. Nor does the fork wait for a thread that waits for
 * what the forking one holds. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layer_setup.h"

enum { FORKS = 60, DEADLINE = 10 /* seconds: a child has less than a millisecond's work */ };

static heed_context *context;
static atomic_int stop, made, refused; /* by threads, which do not count checks */

/* Each description is a new one: the cache forgets the older ones. */
static void *make_plans(void *arg)
{
    unit_problem p = unit_make(1, 1, 1, 1, 8, 1);
    (void)arg;
    for (int64_t n = 1; !atomic_load(&stop); n++) {
        heed_attn *plan;
        p.desc.max_kv_len = n % 100000;
        p.desc.max_q_len = 1 + n % 40;
        if (heed_attn_create(context, &p.desc, &plan) != HEED_OK)
            atomic_fetch_add(&refused, 1);
        else
            heed_attn_release(plan);
        atomic_fetch_add(&made, 1);
    }
    unit_free(&p);
    return NULL;
}

static void *make_layers(void *arg)
{
    layer_setup *s = layer_prepare();
    (void)arg;
    for (int64_t n = 1; !atomic_load(&stop); n++) {
        heed_mha *mha;
        s->attn.max_q_len = ROWS + n % 1000;
        if (layer_create(context, s, &mha) != HEED_OK)
            atomic_fetch_add(&refused, 1);
        else
            heed_mha_release(mha);
        atomic_fetch_add(&made, 1);
    }
    free(s);
    return NULL;
}

static void *make_contexts(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        heed_context_release(unit_context(1, NULL));
    return NULL;
}

/* Does in a child what its parent has done. Returns 0, or the step that failed. */
static int use(const unit_problem *p, const layer_setup *wanted, const float *want)
{
    heed_mha *mha;
    heed_linear *linear;
    unit_problem mine = *p;
    layer_setup *s = layer_prepare();
    memset(p->out, 0xff, p->out_bytes);
    if (heed_attention(context, &p->desc, &p->args) != HEED_OK ||
        memcmp(p->out, want, p->out_bytes) != 0)
        return 1;
    mine.desc.scale = 0.5F; /* no such plan exists yet */
    mine.desc.features |= HEED_HAS_SCALE;
    if (heed_attention(context, &mine.desc, &mine.args) != HEED_OK)
        return 2;
    linear = layer_linear(context, s);
    if (!linear || heed_linear_run(linear, &s->linear_args, NULL, 0) != HEED_OK)
        return 3;
    heed_linear_release(linear);
    if (layer_create(context, s, &mha) != HEED_OK ||
        heed_mha_run(mha, &s->args, NULL, 0) != HEED_OK ||
        (wanted && memcmp(s->y, wanted->y, sizeof s->y) != 0))
        return 4;
    heed_mha_release(mha);
    heed_context_release(unit_context(1, NULL));
    free(s);
    return 0;
}

static void check_child(pid_t pid, const char *what, int n)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "%s, fork %d: the child died: %x",
          what, n, (unsigned)status);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) == 0,
          "%s, fork %d: step %d of the child failed", what, n, WEXITSTATUS(status));
}

static layer_setup *layer_result(void)
{
    layer_setup *s = layer_prepare();
    heed_mha *mha;
    CHECK(layer_create(context, s, &mha) == HEED_OK &&
              heed_mha_run(mha, &s->args, NULL, 0) == HEED_OK,
          "%s", heed_last_error());
    heed_mha_release(mha);
    return s;
}

static void while_others_make(void)
{
    static void *(*const maker[])(void *) = {make_plans, make_plans, make_layers, make_contexts};
    enum { MAKERS = sizeof maker / sizeof *maker };
    pthread_t thread[MAKERS];
    unit_problem p = unit_make(1, 2, 3, 40, 16, 3);
    float *want = malloc(p.out_bytes);
    context = unit_context(1, NULL);
    layer_setup *s = layer_result();
    CHECK_OK(heed_attention(context, &p.desc, &p.args));
    memcpy(want, p.out, p.out_bytes);
    for (int i = 0; i < MAKERS; i++)
        pthread_create(&thread[i], NULL, maker[i], NULL);
    for (int n = 0; n < FORKS && n_failures < 4; n++) {
        const int before = atomic_load(&made);
        while (atomic_load(&made) < before + 3)
            usleep(100);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(DEADLINE);
            _exit(use(&p, s, want));
        }
        check_child(pid, "others make plans", n);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < MAKERS; i++)
        pthread_join(thread[i], NULL);
    CHECK(use(&p, s, want) == 0, "the parent computes something else afterwards");
    heed_context_release(context);
    free(s);
    free(want);
    unit_free(&p);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static pthread_mutex_t callers = PTHREAD_MUTEX_INITIALIZER; /* a lock of the program's own */
static atomic_int in_callback;
static pid_t forked_there = -1;

static void log_with_lock(void *user, int32_t level, const char *line)
{
    (void)user, (void)level, (void)line;
    atomic_store(&in_callback, 1);
    pthread_mutex_lock(&callers);
    pthread_mutex_unlock(&callers);
}

static void log_by_child(void *user, int32_t level, const char *line)
{
    (void)user, (void)level, (void)line;
    if (forked_there < 0)
        forked_there = fork();
}

static void logging_context(void (*log)(void *user, int32_t level, const char *line))
{
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .verbose = "plan", .log = log};
    CHECK_OK(heed_context_create(&options, &context));
}

static void *make_one(void *arg)
{
    unit_problem *p = arg;
    heed_attn *plan = NULL;
    if (heed_attn_create(context, &p->desc, &plan) != HEED_OK)
        atomic_fetch_add(&refused, 1);
    heed_attn_release(plan);
    return NULL;
}

/* A thread that makes a plan logs, and its callback waits for a lock that the forking one holds. */
static void holding_what_a_maker_needs(void)
{
    pthread_t thread;
    unit_problem p = unit_make(1, 2, 3, 40, 16, 3), other = unit_make(1, 1, 1, 1, 8, 1);
    float *want = malloc(p.out_bytes);
    logging_context(log_with_lock);
    CHECK_OK(heed_attention(context, &p.desc, &p.args));
    memcpy(want, p.out, p.out_bytes);
    atomic_store(&in_callback, 0);
    pthread_mutex_lock(&callers);
    pthread_create(&thread, NULL, make_one, &other);
    while (!atomic_load(&in_callback))
        usleep(100);
    alarm(DEADLINE);
    pid_t pid = fork();
    pthread_mutex_unlock(&callers);
    if (pid == 0) {
        alarm(DEADLINE);
        _exit(use(&p, NULL, want));
    }
    alarm(0);
    check_child(pid, "holding what a maker needs", 0);
    pthread_join(thread, NULL);
    CHECK(use(&p, NULL, want) == 0, "the parent computes something else afterwards");
    heed_context_release(context);
    free(want);
    unit_free(&p);
    unit_free(&other);
}

/* The thread that makes a plan forks in its own callback: parent and child go on making it. */
static void within_a_callback(void)
{
    unit_problem p = unit_make(1, 2, 3, 40, 16, 3);
    logging_context(log_by_child);
    alarm(DEADLINE);
    CHECK_OK(heed_attention(context, &p.desc, &p.args));
    float *want = malloc(p.out_bytes);
    memcpy(want, p.out, p.out_bytes);
    int outcome = use(&p, NULL, want);
    if (forked_there == 0)
        _exit(outcome);
    alarm(0);
    CHECK(outcome == 0, "step %d of the parent failed", outcome);
    check_child(forked_there, "within a callback", 0);
    heed_context_release(context);
    free(want);
    unit_free(&p);
}

int main(void)
{
    while_others_make();
    holding_what_a_maker_needs();
    within_a_callback();
    CHECK(atomic_load(&refused) == 0, "%d plans and layers were not made", atomic_load(&refused));
    return checks_end();
}
