/* Errors of the engines: a status and message of the same kind as Heed's, so that main has to
 * handle only one kind. */
#ifndef COMMON_REFUSE_H
#define COMMON_REFUSE_H

#include <heed/heed.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

/** Writes the error message and returns HEED_ERR_INVALID. */
PRINTF_LIKE(2, 3)
heed_status refuse(heed_error *why, const char *format, ...);

/** Passes a status of Heed's on, with Heed's message if it is a failure. */
heed_status pass_on(heed_status status, heed_error *why);

/** The same as refuse if memory runs out; `what` tells for what it was needed. Returns HEED_ERR_NOMEM. */
heed_status no_memory(heed_error *why, const char *what);

#endif
