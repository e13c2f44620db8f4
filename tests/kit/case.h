/* What a named case is, and what it needs to run. */
#ifndef KIT_CASE_H
#define KIT_CASE_H

#include "linear.h"
#include "problem.h"

/** How the kit runs: one backend of one context. */
typedef struct kit_env {
    const char *backend, *plugin_path;
    uint32_t n_threads; /* of `context`; the checks of threads make their own */
    uint64_t seed;
    heed_context *context;
} kit_env;

enum { KIT_PASSED, KIT_REFUSED, KIT_FAILED };

typedef struct kit_outcome {
    int verdict;
    char text[600]; /* the reason of a refusal, or what went wrong */
} kit_outcome;

typedef struct kit_case kit_case;
struct kit_case {
    char name[120]; /* group/what/types */
    int quick;      /* in the quick subset */
    void (*run)(const kit_env *env, const kit_case *c, kit_outcome *outcome);
    kit_spec spec;          /* its seed is the case's */
    kit_linear_spec linear; /* of the cases of linear layers */
    int variant;            /* for run */
};

/** The growing list of cases. */
typedef struct kit_list {
    kit_case *item;
    size_t n, room;
} kit_list;

/** Adds a case; its seed is a function of its name. */
void kit_add(kit_list *list, const kit_case *c);

/** Says what went wrong; the first failure of a case is kept. Returns KIT_FAILED. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int kit_fail(kit_outcome *outcome, const char *format, ...);

/** Takes the status of a call that may be refused. Returns 0 if it was HEED_OK. */
int kit_status(kit_outcome *outcome, heed_status status, const char *sentence, const char *call);

/** A context for env's backend with n_threads threads (0: the default); NULL after a failure. */
heed_context *kit_context(const kit_env *env, uint32_t n_threads, const heed_executor *executor,
                          kit_outcome *outcome);

/** A short name of a type: f32, f16, bf16, i8 ... */
const char *kit_type_name(uint32_t type);

#endif
