/* The sentence that goes with a status. */
#ifndef HEED_CORE_REASON_H
#define HEED_CORE_REASON_H

#include <heed/kit.h>

#include "compiler.h"

/* Writes the sentence and returns the status, so that a check is one line. */
HEED_PRINTF(3, 4)
HEED_COLD heed_status heed_fail(heed_error *why, heed_status status, const char *format, ...);

/* In a check, whose heed_error is `why`: leaves it with the sentence. */
#define INVALID(...) return heed_fail(why, HEED_ERR_INVALID, __VA_ARGS__)

/* A number that a caller gave, and its bounds. */
typedef struct heed_number {
    const char *name; /* as sentences have it: "args.batch" */
    int64_t value, least, most;
} heed_number;

/* Checks n numbers. */
heed_status heed_check_numbers(const heed_number *numbers, int n, heed_error *why);

/* Hands a sentence to the caller: to his heed_error, or to heed_last_error. */
heed_status heed_report(heed_error *user, heed_status status, const heed_error *why);

/* Copies a caller's struct, of which this library knows `known` bytes, to out. An older caller's
 * struct is shorter: the rest of out is zeroed. A newer caller's is longer: the bytes behind the
 * known ones have to be zero, so that it asks for nothing that this library does not know. */
heed_status heed_read_struct(const char *name, const void *in, size_t known, void *out,
                             heed_error *why);

/* Copies the first `head` bytes of a caller's struct, of which this library knows `known`, for a
 * look at them before the whole is read. Where the struct is shorter the rest of out is zeroed. */
heed_status heed_read_head(const char *name, const void *in, size_t known, size_t head, void *out,
                           heed_error *why);

/* Fills a caller's struct, of which this library knows `known` bytes, with the members of `made`.
 * An older caller's struct is shorter and gets fewer of them. What a newer caller's has beyond
 * becomes 0. Its struct_size stays. */
heed_status heed_write_struct(const char *name, void *out, size_t known, const void *made,
                              heed_error *why);

/* What the args of every call begin with. Those of calls that run on the calling thread alone have no
 * executor. */
typedef struct heed_args_head {
    size_t struct_size;
    heed_error *error;
    const heed_executor *executor;
} heed_args_head;

#define HEED_CHECK_ARGS_ERROR(type)                                                                \
    _Static_assert(offsetof(type, error) == offsetof(heed_args_head, error), #type)
#define HEED_CHECK_ARGS_HEAD(type)                                                                 \
    HEED_CHECK_ARGS_ERROR(type);                                                                   \
    _Static_assert(offsetof(type, executor) == offsetof(heed_args_head, executor), #type)

/* The head of args that have not been read yet, to run them or to say what is wrong with them;
 * zeros for what they lack, and all zeros where they are NULL or their size is impossible. */
heed_args_head heed_read_args_head(const void *args);

/* Hands a sentence to the heed_error that the args of a call name, or else to heed_last_error. The
 * args may be NULL, or wrong in any way. */
heed_status heed_report_call(const void *args, heed_status status, const heed_error *why);

#endif
