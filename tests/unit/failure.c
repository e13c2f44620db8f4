/* A backend that fails in the middle of a run: the first error wins, parts that end later return it
 * too, the sentence names backend and place, and the same workspace can be begun again at once,
 * with any number of parts, and gives the right result. */
#include <heed/backend.h>

#include "../threads/on_pthreads.h"
#include "changed.h"
#include "unit.h"

enum { MAX_PARTS = 16 };

static const heed_backend *naive; /* does the work */
static int fail_at, n_tiles;

static heed_status run_tile(const void *machine, const void *state, const heed_problem *problem,
                            heed_tile *tile, void *scratch)
{
    if (problem->qk_dim != 8 && __atomic_add_fetch(&n_tiles, 1, __ATOMIC_RELAXED) == fail_at)
        return HEED_ERR_NOMEM;
    return naive->attn[0]->run(machine, state, problem, tile, scratch);
}

typedef struct part {
    void *workspace;
    heed_status status;
    int has_sentence;
} part;

static void run_part(void *parts, uint32_t i)
{
    part *p = (part *)parts + i;
    p->status = heed_run_part(p->workspace, i);
    p->has_sentence = strstr(heed_last_error(), "backend faulty returned HEED_ERR_NOMEM") != NULL;
}

/* Runs the parts at once; returns how many reported the failure. */
static uint32_t run_parts(void *workspace, uint32_t n_parts, int expect_sentence)
{
    part parts[MAX_PARTS];
    uint32_t failed = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        parts[i] = (part){.workspace = workspace};
    on_pthreads(NULL, n_parts, run_part, parts);
    for (uint32_t i = 0; i < n_parts; i++) {
        failed += parts[i].status == HEED_ERR_BACKEND;
        CHECK(parts[i].status == HEED_OK || (expect_sentence && parts[i].has_sentence),
              "part %u: status %d", i, parts[i].status);
    }
    return failed;
}

static void check(heed_context *context, int64_t q_len, int64_t kv_len, uint32_t n_parts)
{
    unit_problem p = unit_make(2, 3, q_len, kv_len, 4, 9);
    heed_attn *plan;
    size_t bytes;
    float *want = malloc(p.out_bytes);
    fail_at = 0;
    CHECK_OK(heed_attention(context, &p.desc, &p.args));
    memcpy(want, p.out, p.out_bytes);
    CHECK_OK(heed_attn_create(context, &p.desc, &plan));
    void *workspace = unit_workspace(plan, n_parts, &bytes);
    heed_error error = {""};
    p.args.error = &error;
    for (int at = 1; at <= 6; at++) {
        n_tiles = 0, fail_at = at;
        error.text[0] = 0;
        CHECK_OK(heed_attn_begin(plan, &p.args, n_parts, workspace, bytes));
        CHECK(run_parts(workspace, n_parts, 1) > 0, "tile %d of %lld x %lld, %u parts: no failure",
              at, (long long)q_len, (long long)kv_len, n_parts);
        CHECK(heed_run_part(workspace, 0) == HEED_ERR_BACKEND, "a late part does not tell");
        CHECK(strstr(error.text, "backend faulty"), "args.error has: %s", error.text);
        fail_at = 0;
        memset(p.out, 0xff, p.out_bytes);
        CHECK_OK(heed_attn_begin(plan, &p.args, n_parts, workspace, bytes));
        CHECK(run_parts(workspace, n_parts, 0) == 0, "a failure is left over");
        CHECK(memcmp(p.out, want, p.out_bytes) == 0, "wrong after a failure at tile %d", at);
    }
    n_tiles = 0, fail_at = 2;
    CHECK(heed_attn_run(plan, &p.args, workspace, bytes) == HEED_ERR_BACKEND &&
              strstr(error.text, "query rows"),
          "args.error has: %s", error.text);
    p.args.kv_len = -1; /* begin fails: a part must not take the old run for a begun one */
    CHECK(heed_attn_begin(plan, &p.args, n_parts, workspace, bytes) == HEED_ERR_INVALID, "begun");
    CHECK(heed_run_part(workspace, 0) == HEED_ERR_INVALID, "a part of a run that never began");
    heed_attn_release(plan);
    free(workspace);
    free(want);
    unit_free(&p);
}

const heed_backend *heed_naive_backend(void);

int main(void)
{
    naive = heed_naive_backend();
    changed_backend faulty;
    change_backend(&faulty, naive, "faulty");
    faulty.attn.run = run_tile;
    heed_context *context = unit_context(1, "faulty");
    CHECK_OK(heed_context_register(context, &faulty.backend));
    for (uint32_t n_parts = 1; n_parts <= MAX_PARTS; n_parts++) {
        check(context, 40, 50, n_parts);  /* whole rows */
        check(context, 2, 5000, n_parts); /* keys cut into chunks, slots lent */
    }
    heed_context_release(context);
    return checks_end();
}
