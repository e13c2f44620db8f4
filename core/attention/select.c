/* Before a kernel may run a problem it has to know its features, its `supports` has to agree and
 * its trial to pass. */
#include "select.h"

#include "trial.h"

#include <stdio.h>

const int64_t heed_class_q_len[HEED_QUERY_CLASSES] = {1, 8, 12, 256},
              heed_class_kv_len[HEED_QUERY_CLASSES] = {1024, 1024, 1024, 1024};

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
    "RANGES",
    "KEY_BLOCKS",
    "MASK_FROM",
};

typedef struct asked {
    const heed_problem *problem;
    int few;
} asked;

static heed_status consider(heed_context *context, heed_kernel *kernel, const void *of,
                            heed_error *why)
{
    const asked *a = of;
    const heed_attn_kernel *k = kernel->attn;
    uint64_t unknown = a->problem->features & ~k->features;
    for (unsigned bit = 0; bit < 64; bit++)
        if (unknown >> bit & 1)
            return heed_refuse(
                why, "it does not know HEED_HAS_%s",
                bit < sizeof feature_names / sizeof *feature_names ? feature_names[bit] : "?");
    if (!(k->features & HEED_HAS_QUANT)) { /* it may be older than the types of codes */
        const uint32_t type[] = {a->problem->k_type, a->problem->v_type};
        for (int i = 0; i < 2; i++)
            if (heed_is_code(type[i]))
                return heed_refuse(why, "%s_type %s: it has f32, f16 and bf16 at the most",
                                   i ? "v" : "k", heed_dtype_name(type[i]));
    }
    if (k->flags & HEED_KERNEL_FEW_KEYS && !a->few)
        return heed_refuse(why, "it serves sequences of up to %d keys alone", HEED_FEW_KEYS);
    why->text[0] = 0;
    const heed_status st = k->supports(kernel->machine, a->problem, why);
    return st == HEED_OK ? heed_trial(context, kernel, why) : heed_refused(kernel, st, why);
}

/* Of the sequence that costs are of, which has the length of its class, not the caller's. */
static int64_t n_rows(const asked *a)
{
    return heed_class_q_len[a->problem->query_class];
}

static int64_t n_keys(const asked *a)
{
    return a->few ? HEED_FEW_KEYS : heed_class_kv_len[a->problem->query_class];
}

static double cost(const heed_kernel *kernel, const void *of)
{
    const asked *a = of;
    return kernel->attn->cost(kernel->machine, a->problem, n_rows(a), n_keys(a));
}

heed_status heed_select(heed_context *context, const heed_problem *problem, int few,
                        const heed_passed *passed, const heed_kernel **chosen,
                        heed_verdicts *verdicts, heed_error *why)
{
    const asked of = {problem, few};
    char sample[96];
    snprintf(sample, sizeof sample, "one sequence of %lld row%s and %lld keys on one core",
             (long long)n_rows(&of), n_rows(&of) == 1 ? "" : "s", (long long)n_keys(&of));
    const heed_question question = {0, consider, cost, &of, "problem", sample, passed};
    return heed_choose(context, &question, chosen, verdicts, why);
}
