/* The sentence that goes with a status. */
#ifndef HEED_CORE_REASON_H
#define HEED_CORE_REASON_H

#include <heed/kit.h>

/* Writes the sentence and returns the status, so that a check is one line. */
HEED_PRINTF(3, 4)
heed_status heed_fail(heed_error *why, heed_status status, const char *format, ...);

/* Hands a sentence to the caller: to his heed_error, or to heed_last_error. */
heed_status heed_report(heed_error *user, heed_status status, const heed_error *why);

/* Copies a caller's struct, of which this library knows `known` bytes, to out. Older callers, whose
 * struct is shorter, are served: the rest is zeroed; newer ones as long as they ask for nothing
 * new: what is behind the known bytes has to be zero. */
heed_status heed_read_struct(const char *name, const void *in, size_t known, void *out,
                             heed_error *why);

/* The first `head` bytes of a caller's struct, of which this library knows `known`, for a look at
 * them before it is read; zero where it ends before them. */
heed_status heed_read_head(const char *name, const void *in, size_t known, size_t head, void *out,
                           heed_error *why);

/* The pointer at offset `at` of a caller's struct that has not been read yet, to say what is wrong
 * with it; NULL where the struct is NULL, ends before it or has a size that none can have. */
void *heed_struct_pointer(const void *in, size_t at);

#endif
