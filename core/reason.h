/* The sentence that goes with a status. */
#ifndef HEED_CORE_REASON_H
#define HEED_CORE_REASON_H

#include <heed/kit.h>

/* Writes the sentence and returns the status, so that a check is one line. */
HEED_PRINTF(3, 4)
heed_status heed_fail(heed_error *why, heed_status status, const char *format, ...);

/* Hands a sentence to the caller: to his heed_error, or to heed_last_error. */
heed_status heed_report(heed_error *user, heed_status status, const heed_error *why);

/* True when a struct of `got` bytes, of which this library knows `known`, has nothing behind that.
 * Copies what is known to out and zeroes the rest: older callers are served, newer ones as long as
 * they ask for nothing new. `first` is the least size of any version, up to the first member. */
heed_status heed_read_struct(const char *name, const void *in, size_t known, void *out,
                             heed_error *why);

#endif
