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

int main(void)
{
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
