/* Text in a caller's buffer, plain or JSON. */
#ifndef HEED_CORE_TEXT_H
#define HEED_CORE_TEXT_H

#include <heed/kit.h>

/* The text grows until `room` bytes are full; `used` goes on counting. text may be NULL. */
typedef struct heed_text {
    char *text;
    size_t room, used;
} heed_text;

HEED_PRINTF(2, 3) void heed_put(heed_text *b, const char *format, ...);

/* Appends a JSON string, with its quotes: U+FFFD for each byte that is no part of UTF-8. */
void heed_put_string(heed_text *b, const char *text);

/* Sets *bytes to what the whole text needs, with the zero at its end. Fails if a buffer was given
 * that has less room. */
heed_status heed_text_end(const heed_text *b, size_t *bytes, heed_error *why);

#endif
