/* Runs a test problem in one of the ways that the API has, and takes its results as bits. */
#ifndef KIT_RUN_H
#define KIT_RUN_H

#include "case.h"
#include "ways.h"

typedef struct kit_way {
    int how;            /* KIT_BY_* */
    uint32_t n_parts;   /* of KIT_BY_PARTS and the like; the executor's threads */
    int64_t more;       /* added to the plan's maxima */
    int64_t more_keys;  /* added to the maximum of keys as well */
    unsigned int mxcsr; /* state of the calling thread; 0: as it is. x86 only */
    int garbage;        /* byte that fills the workspace before */
    int error;          /* error messages are requested by args.error */
} kit_way;

/** Runs it. *sentence is a failure's. *changed: NULL, or what the call left different in the thread's
 * registers, as a sentence. */
heed_status kit_run(heed_context *context, kit_problem *problem, const kit_way *way,
                    heed_error *sentence, const char **changed);

/** The results of the rows i < q_lens[b] as bits, dense by b, h, i, dim or key; others are 0. */
typedef struct kit_result {
    uint32_t *out, *lse, *weights, *scores; /* NULL: not computed */
    size_t n[4];
    uint32_t *memory;
} kit_result;

/** Takes them from the problem's outputs. Returns 0, or -1 when out of memory. */
int kit_take(const kit_problem *problem, kit_result *result);
void kit_drop(kit_result *result);

/** Rows of a result: those of sequence b, from `first` on. */
typedef struct kit_rows {
    const kit_problem *problem;
    const kit_result *result;
    int64_t b, first;
} kit_rows;

/** Compares n_rows of what both have, where one NaN is as good as another; keys up to the shorter
 * width. Says the first difference, by where it is in x, and returns 1. */
int kit_differ(kit_outcome *outcome, const char *what, int64_t n_rows, kit_rows x, kit_rows y);

/** The same for all sequences of two problems of one shape. */
int kit_all_differ(kit_outcome *outcome, const char *what, const kit_problem *p,
                   const kit_result *x, const kit_problem *q, const kit_result *y);

/** Checks a run's outputs against the oracle, which reads the problem's own memory (not sealed). */
void kit_check(kit_problem *problem, kit_outcome *outcome);

/** Checks each element separately, in the rows that problem->reference wants: for results too
 * few or too odd for the L2 norm of the whole. */
void kit_check_elements(kit_problem *problem, kit_outcome *outcome);

/** Checks that nothing but elements of the outputs was written. */
void kit_check_memory(kit_problem *problem, kit_outcome *outcome);

/** Builds a problem on one side of memory, makes inaccessible what may not be read, runs it and
 * takes its bits; afterwards all its memory is accessible. With `first` it is built by
 * kit_build_again, else (NULL) by kit_build. Returns 0, or -1 with the outcome set. In any case
 * kit_free the problem and kit_drop the result. */
int kit_run_once(heed_context *context, kit_problem *problem, const kit_spec *spec, int side,
                 const kit_problem *first, const kit_way *way, kit_result *result,
                 kit_outcome *outcome);

/** Makes all of a problem's memory readable and writable. */
void kit_open(kit_problem *problem);

/** A problem, and the same again on the other side of memory. */
typedef struct kit_twice {
    kit_spec spec[2]; /* of the same rows; one may lack outputs of the other */
    kit_way way[2];
    int side;                                                  /* of the first */
    void (*check)(kit_problem *problem, kit_outcome *outcome); /* of the first's results */
} kit_twice;

/** Runs both. The first has to pass `check`, the second to have the same bits, and neither may
 * write anything but its outputs. */
void kit_conform_twice(heed_context *context, const kit_twice *twice, kit_outcome *outcome);

/** Takes the optional outputs out of a spec: lse, weights and scores. */
void kit_without_optional(kit_spec *spec);

/** Runs a case against the oracle in both placements: kit_case.run of plain cases. */
void kit_conform(const kit_env *env, const kit_case *c, kit_outcome *outcome);

/** The accuracy that the results of a spec are held to. */
uint32_t kit_accuracy(const kit_spec *spec);

#endif
