/* Errors of the engines: Heed's own status and sentence, so that one kind of error reaches main. */
#ifndef COMMON_REFUSE_H
#define COMMON_REFUSE_H

#include <heed/heed.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

/** Writes the sentence and returns HEED_ERR_INVALID. */
PRINTF_LIKE(2, 3)
heed_status refuse(heed_error *why, const char *format, ...);

/** The same for memory that cannot be had; what: for what. Returns HEED_ERR_NOMEM. */
heed_status no_memory(heed_error *why, const char *what);

#endif
