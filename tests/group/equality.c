/* Ranks compute together what one computes alone: against the oracle, for every family of problems,
 * every way to cut it and every wanted result; a second run has the same bits.
 *
 * Usage: equality BACKENDS SEEDS [FIRST_SEED [FAMILY]]    backends "best": the default */
#include "../check.h"
#include "threads.h"

#include <string.h>

static void run_case(ranks_case *c, heed_context *const *context)
{
    kit_outcome outcome = {KIT_PASSED, ""};
    uint64_t bits[2] = {0, 0};
    rank_thread *t = calloc(RANKS_MOST, sizeof *t);
    for (int again = 0; again < 2 && t && outcome.verdict == KIT_PASSED; again++) {
        kit_reset_outputs(&c->problem);
        if (threads_run(c, t, context, again, NULL, NULL) != 0)
            kit_fail(&outcome, "out of memory");
        for (uint32_t r = 0; r < c->size; r++)
            if (t[r].call.status != HEED_OK)
                kit_fail(&outcome, "rank %u: %s, '%s'", r, heed_status_string(t[r].call.status),
                         t[r].call.why.text);
        for (uint32_t r = 0; r < c->size && outcome.verdict == KIT_PASSED; r++)
            rank_collect(&t[r].call, c, r, &outcome);
        threads_free(c, t);
        if (outcome.verdict == KIT_PASSED && !again)
            ranks_check(c, &outcome);
        bits[again] = ranks_bits(c);
    }
    if (outcome.verdict == KIT_PASSED && bits[0] != bits[1])
        kit_fail(&outcome, "the second run has other bits");
    CHECK(outcome.verdict == KIT_PASSED, "%s: %s", c->name, outcome.text);
    free(t);
}

int main(int argc, char **argv)
{
    const char *backends = argc > 1 && strcmp(argv[1], "best") ? argv[1] : NULL;
    const int seeds = argc > 2 ? atoi(argv[2]) : 4, first = argc > 3 ? atoi(argv[3]) : 1;
    const int only = argc > 4 ? atoi(argv[4]) : -1;
    heed_context *context[RANKS_MOST];
    ranks_case *c = malloc(sizeof *c);
    for (int r = 0; r < RANKS_MOST; r++)
        context[r] = threads_context(backends, r % 3 == 2 ? 2 : 1);
    for (int seed = first; seed < first + seeds && c; seed++)
        for (int f = 0; f < ranks_families(); f++) {
            if (only >= 0 && f != only)
                continue;
            if (ranks_draw(c, f, (uint64_t)seed) != 0)
                return 1;
            run_case(c, context);
            ranks_free(c);
        }
    for (int r = 0; r < RANKS_MOST; r++)
        heed_context_release(context[r]);
    free(c);
    return checks_end();
}
