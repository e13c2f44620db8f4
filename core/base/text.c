/* Appends to a text whose length goes on being counted where it does not fit. */
#include "text.h"

#include "reason.h"

void heed_put(heed_text *b, const char *format, ...)
{
    size_t left = b->text && b->used < b->room ? b->room - b->used : 0;
    va_list list;
    va_start(list, format);
    int n = vsnprintf(left ? b->text + b->used : NULL, left, format, list);
    va_end(list);
    b->used += n > 0 ? (size_t)n : 0;
}

void heed_put_string(heed_text *b, const char *text)
{
    heed_put(b, "\"");
    for (; *text; text++)
        if ((unsigned char)*text < 0x20)
            heed_put(b, "\\u%04x", (unsigned)*text);
        else
            heed_put(b, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    heed_put(b, "\"");
}

heed_status heed_text_end(const heed_text *b, size_t *bytes, heed_error *why)
{
    *bytes = b->used + 1;
    if (b->text && b->used >= b->room)
        return heed_fail(why, HEED_ERR_NOMEM, "the text has %zu bytes, there is room for %zu",
                         b->used + 1, b->room);
    return HEED_OK;
}
