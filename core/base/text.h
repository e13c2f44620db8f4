/* Text in a caller's buffer, plain or JSON. */
#ifndef HEED_CORE_TEXT_H
#define HEED_CORE_TEXT_H

#include <heed/kit.h>

/* Grows until the room ends, and goes on counting. text may be NULL. */
typedef struct heed_text {
    char *text;
    size_t room, used;
} heed_text;

HEED_PRINTF(2, 3) void heed_put(heed_text *b, const char *format, ...);

/* A JSON string. */
void heed_put_string(heed_text *b, const char *text);

/* *bytes becomes what the whole text needs, its end included. Fails if there was less room. */
heed_status heed_text_end(const heed_text *b, size_t *bytes, heed_error *why);

#endif
