/* A child after fork computes, although its parent has used OpenMP (whose threads are gone in the
 * child): serially, by an executor, and by parts, to the same bits. */
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static int child(heed_context *context, unit_problem *p, const float *want)
{
    const heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = 2, .parallel_for = unit_forwards};
    for (int with_executor = 0; with_executor < 2; with_executor++) {
        memset(p->out, 0xff, p->out_bytes);
        p->args.executor = with_executor ? &executor : NULL;
        if (heed_attention(context, &p->desc, &p->args) != HEED_OK ||
            memcmp(p->out, want, p->out_bytes) != 0)
            return 1 + with_executor;
    }
    heed_context *fresh = unit_context(2, NULL); /* made after the fork */
    memset(p->out, 0xff, p->out_bytes);
    p->args.executor = NULL;
    return heed_attention(fresh, &p->desc, &p->args) != HEED_OK ||
                   memcmp(p->out, want, p->out_bytes) != 0
               ? 3
               : 0;
}

/* The parent has used OpenMP, and the library through no context: the first one is the child's. */
static void child_has_the_first_context(void)
{
    unit_problem p = unit_make(2, 4, 200, 200, 32, 3);
    int status = 0;
#ifdef _OPENMP
    int n = 0;
#pragma omp parallel num_threads(2)
    __atomic_add_fetch(&n, 1, __ATOMIC_RELAXED);
    CHECK(n > 0, "OpenMP ran nothing");
#endif
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30); /* as below */
        _exit(heed_attention(unit_context(2, NULL), &p.desc, &p.args) != HEED_OK);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0,
          "a child that makes the first context: status %x", status);
    unit_free(&p);
}

int main(void)
{
    child_has_the_first_context();
    unit_problem p = unit_make(2, 4, 200, 200, 32, 3);
    heed_context *context = unit_context(2, NULL);
    float *want = malloc(p.out_bytes);
    int status = 0;
    CHECK_OK(heed_attention(context, &p.desc, &p.args));
    memcpy(want, p.out, p.out_bytes);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* a child that hangs must not hang the suite */
        _exit(child(context, &p, want));
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "the child died: status %x",
          status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's step %d failed",
          WEXITSTATUS(status));
    CHECK(heed_attention(context, &p.desc, &p.args) == HEED_OK && !memcmp(p.out, want, p.out_bytes),
          "the parent computes something else after the fork");
    heed_context_release(context);
    unit_free(&p);
    free(want);
    return checks_end();
}
