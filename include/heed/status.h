/** @file
 * Heed: what a call returns, and the sentence that goes with it. */
#ifndef HEED_STATUS_H
#define HEED_STATUS_H

#include "version.h"

HEED_BEGIN_C

/** What every call returns. Anything but HEED_OK comes with a sentence that names the argument,
 * its value and what was required: see heed_error. */
typedef int32_t heed_status;
/** The values of heed_status. */
enum {
    HEED_OK = 0,          /**< done */
    HEED_ERR_INVALID = 1, /**< the caller's mistake; outputs untouched */
    /** every permitted backend refuses, and says why; outputs untouched */
    HEED_ERR_UNSUPPORTED = 2,
    HEED_ERR_NOMEM = 3, /**< no memory, or too small a workspace; outputs untouched */
    /** a backend failed while running, which leaves outputs unspecified, or while a plan or a layer
     * was made */
    HEED_ERR_BACKEND = 4,
    HEED_ERR_ABI = 5, /**< a struct or table of a version that this library cannot read */
    /** ranks of a group did not reach each other in time; outputs unspecified */
    HEED_ERR_TRANSPORT = 6
};

/** What went wrong, for a person. Frozen: embedded in others, never grows. */
typedef struct heed_error {
    char text[256]; /**< a sentence, NUL-terminated */
} heed_error;

/** The name of a status, such as "HEED_ERR_INVALID"; "unknown status" for any other value. The
 * string is static. Thread-safe. */
HEED_API const char *heed_status_string(heed_status status);

/**
 * The sentence of the last call on this thread that failed and had no heed_error of its own to
 * write to; "" if there was none. A successful call leaves it as it is.
 *
 * Ownership  the library's, valid until the thread's next failing call or its end.
 * Threads    each thread has its own. A failing run's sentence also goes to the args.error that it was
 *            begun with, and to every thread whose part returns the failure.
 */
HEED_API const char *heed_last_error(void);

HEED_END_C

#endif
