/* What is asked of a backend before it may run a problem: features, its own word, its trial. */
#include "select.h"

#include "base/reason.h"
#include "trial.h"

const int64_t heed_class_q_len[3] = {1, 8, 256}, heed_class_kv_len[3] = {1024, 1024, 1024};

static const char *const feature_names[] = {
    "SCALE",
    "SOFTCAP",
    "CAUSAL",
    "WINDOW",
    "ALIBI",
    "MASK",
    "BIAS",
    "BIAS_SLOPE",
    "SINK",
    "LSE",
    "WEIGHTS",
    "SCORES",
    "LENS",
    "PACKED",
    "PAGES",
    "QUANT",
    "REPRODUCIBLE_CHUNKS",
};

static heed_status consider(heed_context *context, heed_entry *entry, const void *of,
                            heed_error *why)
{
    const heed_problem *problem = of;
    const heed_backend *b = entry->backend;
    uint64_t unknown = problem->features & ~b->features;
    for (unsigned bit = 0; bit < 64; bit++)
        if (unknown >> bit & 1)
            return heed_refuse(why, "it does not know HEED_HAS_%s",
                               bit < 17 ? feature_names[bit] : "?");
    why->text[0] = 0;
    if (b->supports(problem, why) != HEED_OK)
        return heed_refused(why);
    return heed_trial(context, entry, why);
}

static double cost(const heed_backend *backend, const void *of)
{
    const heed_problem *problem = of;
    return backend->cost(problem, heed_class_q_len[problem->query_class],
                         heed_class_kv_len[problem->query_class]);
}

heed_status heed_select(heed_context *context, const heed_problem *problem,
                        const heed_passed *passed, const heed_backend **chosen,
                        heed_verdict verdict[HEED_MAX_BACKENDS], heed_error *why)
{
    const heed_question question = {consider, cost, problem, "problem", passed};
    return heed_choose(context, &question, chosen, verdict, why);
}
