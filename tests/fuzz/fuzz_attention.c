/* The structured fuzz target of the whole call.
 *
 * Valid    the call succeeds in two of the five ways to run it, drawn from the bytes, with the same
 *          bits; nothing but rows of outputs is written; the numbers are the oracle's.
 * Spoilt   the call is refused with a sentence, and no output is touched.
 *
 * A finding ends the process by abort().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_judge.h"
#include "fuzz_problem.h"
#include "ways.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ATTENTION, PLAN, WORKSPACE, PARTS, EXECUTOR, WAYS };
static const char *const way_name[WAYS] = {"heed_attention", "heed_attn_run",
                                           "heed_attn_run with a workspace", "parts", "executor"};

#define WORKSPACE_LIMIT ((size_t)64 << 20)

static heed_context *context; /* for the process's life: made once, as an engine does */

static const fuzz_problem *current; /* for the report */

static void finding(const char *what, const char *detail)
{
    fprintf(stderr, "finding: %s: %s\n", what, detail);
    if (current)
        fuzz_describe(current, stderr);
    abort();
}

static heed_status run_parts(const heed_attn *plan, const heed_attn_args *args, uint32_t n_parts,
                             uint32_t first, void *workspace, size_t bytes)
{
    heed_status st = heed_attn_begin(plan, args, n_parts, workspace, bytes), one;
    if (st != HEED_OK)
        return st;
    if (heed_run_part(workspace, n_parts) != HEED_ERR_INVALID)
        finding("parts", "a part out of range was accepted");
    for (uint32_t i = 0; i < n_parts; i++) {
        one = heed_run_part(workspace, (first + i) % n_parts);
        st = st == HEED_OK ? one : st;
    }
    return st;
}

static heed_status run_plan(fuzz_problem *p, const heed_attn *plan, int way, fuzz_bytes *bytes)
{
    heed_executor executor = {.struct_size = sizeof executor, .parallel_for = kit_backwards};
    uint32_t n_parts = 1 + fuzz_below(bytes, 5), first = fuzz_byte(bytes);
    uint32_t held = 1 + fuzz_below(bytes, n_parts); /* a run takes as many as the workspace holds */
    size_t room = heed_attn_workspace_bytes(plan, way == PARTS ? n_parts : held);
    heed_attn_args args = p->args;
    void *workspace;
    heed_status st;

    executor.n_threads = n_parts;
    if (way == EXECUTOR && !args.executor)
        args.executor = &executor;
    if (way == PLAN || room > WORKSPACE_LIMIT)
        return heed_attn_run(plan, &args, NULL, 0);
    workspace = aligned_alloc(64, (room + 63) / 64 * 64);
    if (!workspace)
        return heed_attn_run(plan, &args, NULL, 0);
    memset(workspace, (int)first, room);
    st = way == PARTS ? run_parts(plan, &args, n_parts, first, workspace, room)
                      : heed_attn_run(plan, &args, workspace, room);
    free(workspace);
    return st;
}

static heed_status run(fuzz_problem *p, int way, fuzz_bytes *bytes)
{
    heed_attn *plan;
    heed_status st;
    if (way == ATTENTION)
        return heed_attention(context, &p->desc, &p->args);
    st = heed_attn_create(context, &p->desc, &plan);
    if (st != HEED_OK) {
        snprintf(p->error.text, sizeof p->error.text, "%s", heed_last_error());
        return st;
    }
    st = run_plan(p, plan, way, bytes);
    /* args of a wrong size do not say where to write */
    if (st != HEED_OK && (!p->args.error || p->args.struct_size != sizeof p->args))
        snprintf(p->error.text, sizeof p->error.text, "%s", heed_last_error());
    heed_attn_release(plan);
    return st;
}

static int refusal(heed_status st)
{
    return st == HEED_ERR_INVALID || st == HEED_ERR_UNSUPPORTED || st == HEED_ERR_ABI;
}

static void spoilt(fuzz_problem *p, fuzz_bytes *bytes)
{
    const char *what = fuzz_spoil(p, bytes);
    if (!what)
        return;
    /* Not by heed_attention, where the plan's maxima mean nothing. Parts need no executor. */
    int way = PLAN + (int)fuzz_below(bytes, WAYS - 1);
    heed_status st = run(p, way == PARTS && p->args.executor ? WORKSPACE : way, bytes);
    if (!refusal(st))
        finding(what, st == HEED_OK ? "accepted" : heed_status_string(st));
    if (p->error.text[0] == '\0')
        finding(what, "refused without a sentence");
    if (!fuzz_nothing_written(p))
        finding(what, "refused, but an output was written");
}

/* Copies all outputs one after the other; NULL when out of memory. */
static unsigned char *outputs(const fuzz_problem *p, size_t *bytes)
{
    unsigned char *copy;
    size_t at = 0;
    *bytes = 0;
    for (int t = FUZZ_OUT; t < FUZZ_TENSORS; t++)
        *bytes += p->tensor[t].memory ? p->tensor[t].bytes : 0;
    copy = malloc(*bytes + 1);
    for (int t = FUZZ_OUT; copy && t < FUZZ_TENSORS; t++) {
        if (!p->tensor[t].memory)
            continue;
        memcpy(copy + at, p->tensor[t].memory, p->tensor[t].bytes);
        at += p->tensor[t].bytes;
    }
    return copy;
}

static void valid(fuzz_problem *p, fuzz_bytes *bytes)
{
    int way = (int)fuzz_below(bytes, WAYS);
    int other = (way + 1 + (int)fuzz_below(bytes, WAYS - 1)) % WAYS;
    heed_status st = run(p, way, bytes);
    unsigned char *once, *again;
    size_t n;

    if (st != HEED_OK && getenv("HEED_BACKEND") && st == HEED_ERR_UNSUPPORTED)
        return; /* a backend alone may refuse */
    if (st != HEED_OK)
        finding(way_name[way], p->error.text[0] ? p->error.text : heed_last_error());
    if (!fuzz_only_rows_written(p))
        finding(way_name[way], "wrote outside the rows of its outputs");
    if (p->tame && !fuzz_judge(p))
        finding(way_name[way], "is not what the reference says");

    once = outputs(p, &n);
    fuzz_reset_outputs(p);
    if (run(p, other, bytes) != HEED_OK)
        finding(way_name[other], "failed where another way did not");
    again = outputs(p, &n);
    if (once && again && memcmp(once, again, n) != 0)
        finding(way_name[other], way_name[way]);
    free(once);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_bytes bytes = {data, data + size};
    fuzz_problem problem;
    int spoil = fuzz_rarely(&bytes, 4);

    if (!context &&
        heed_context_create(
            &(heed_context_options){.struct_size = sizeof(heed_context_options), .n_threads = 1},
            &context) != HEED_OK)
        finding("heed_context_create", heed_last_error());
    if (fuzz_build(&problem, &bytes) != 0)
        return 0;
    current = &problem;
    if (spoil)
        spoilt(&problem, &bytes);
    else
        valid(&problem, &bytes);
    current = NULL;
    fuzz_free(&problem);
    return 0;
}
