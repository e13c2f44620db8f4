/* What calls that work in a workspace have in common, whatever they compute: where their sentence
 * goes, whose threads they use, how many parts a workspace holds, and who lends one. */
#ifndef HEED_CORE_CALL_H
#define HEED_CORE_CALL_H

#include "context.h"

/* An operation: its object (a plan, a layer) is `of`, its args begin with their struct_size, and a
 * begun workspace begins with `magic`. */
typedef struct heed_operation {
    const char *name; /* of the object, in sentences */
    uint64_t magic;
    size_t executor_at, error_at;      /* in args */
    size_t n_parts_at, begun_error_at; /* in a begun workspace: a uint32_t, a heed_error */
    size_t (*bytes)(const void *of, uint32_t n_parts); /* of a workspace; 0 on overflow */
    uint32_t (*parts)(const void *of, size_t bytes, uint32_t limit); /* that it holds */
    heed_status (*begin)(const void *of, const void *args, uint32_t n_parts, void *workspace,
                         heed_error *why);
    heed_status (*part)(void *workspace, uint32_t part);
    /* All of it, on up to n_parts threads. */
    heed_status (*run)(const void *of, const void *args, const heed_executor *executor,
                       uint32_t n_parts, void *workspace, heed_error *why);
    /* What a begun workspace computes, for HEED_VERBOSE. */
    void (*describe)(const void *workspace, heed_error *text);
} heed_operation;

/* Hands a sentence to where the args of a call say. */
heed_status heed_call_report(const heed_operation *op, const void *args, heed_status status,
                             const heed_error *why);

/* A run in the caller's workspace, or in one that the context lends. */
heed_status heed_call_in(const heed_operation *op, heed_context *context, const void *of,
                         const void *args, void *workspace, size_t bytes, heed_error *why);

/* The public calls: checked and reported. `of` may be NULL, and so may args and workspace. */
heed_status heed_call_run(const heed_operation *op, heed_context *context, const void *of,
                          const void *args, void *workspace, size_t bytes);
heed_status heed_call_begin(const heed_operation *op, const void *of, const void *args,
                            uint32_t n_parts, void *workspace, size_t bytes);
heed_status heed_call_part(const heed_operation *op, void *workspace, uint32_t part);

#endif
