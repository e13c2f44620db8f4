/* Chunks of keys, taken by parts on threads, on the kernels that run here: the same bits as by
 * simple calls for one sequence after the other. 20000 keys have more chunks than a tree of four
 * levels of states. */
#include "../unit/unit.h"
#include "on_pthreads.h"

enum { MAX_PARTS = 8 };

static void check(heed_context *context, const char *name)
{
    enum { BATCH = 2, HEADS = 2, KV = 20000, DIM = 8 };
    if (!unit_runs_here(context))
        return;
    printf("%s\n", name);
    for (int rows = 1; rows <= 4; rows += 3) {
        unit_problem p = unit_make(BATCH, HEADS, rows, KV, DIM, 7), alone = p;
        heed_attn *plan = NULL;
        float *want = malloc(p.out_bytes);
        /* what to expect: one sequence after the other, by simple calls */
        alone.desc.max_batch = alone.args.batch = 1;
        for (int b = 0; b < BATCH; b++) {
            alone.args.q.data = p.q + b * HEADS * rows * DIM;
            alone.args.k.data = p.k + b * HEADS * KV * DIM;
            alone.args.v.data = p.v + b * HEADS * KV * DIM;
            alone.args.out.data = want + b * HEADS * rows * DIM;
            CHECK(heed_attention(context, &alone.desc, &alone.args) == HEED_OK, "%s: %s", name,
                  heed_last_error());
        }
        p.desc.max_q_len = 16; /* the plan's maxima do not matter */
        p.desc.max_kv_len = 3 * KV;
        CHECK_OK(heed_attn_create(context, &p.desc, &plan));
        for (uint32_t n_parts = 1; n_parts <= MAX_PARTS; n_parts++) {
            size_t bytes;
            job jobs[MAX_PARTS];
            void *workspace = unit_workspace(plan, n_parts, &bytes);
            memset(p.out, 0xff, p.out_bytes);
            CHECK_OK(heed_attn_begin(plan, &p.args, n_parts, workspace, bytes));
            /* every other part, from the last one down: the rest never run */
            uint32_t started = 0;
            for (uint32_t i = n_parts; i-- > 0; i -= i > 0) {
                jobs[started] = (job){.body = run_one_part, .arg = workspace, .index = i};
                pthread_create(&jobs[started].thread, NULL, run_job, &jobs[started]);
                started++;
            }
            for (uint32_t i = 0; i < started; i++)
                pthread_join(jobs[i].thread, NULL);
            CHECK(n_wrong == 0 && memcmp(p.out, want, p.out_bytes) == 0,
                  "%s: %d rows, %u of %u parts: other bits", name, rows, started, n_parts);
            free(workspace);
        }
        heed_attn_release(plan);
        free(want);
        unit_free(&p);
    }
}

int main(void)
{
    unit_each_backend(check);
    return checks_end();
}
