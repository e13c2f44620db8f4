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

/* The bytes of the character of UTF-8 at text, by table 3-7 of the Unicode Standard; 0 if there is
 * none. */
static int character(const char *text)
{
    const unsigned char *at = (const unsigned char *)text, lead = at[0];
    const int n = lead < 0x80                   ? 1
                  : lead >= 0xc2 && lead < 0xe0 ? 2
                  : (lead & 0xf0) == 0xe0       ? 3
                  : lead >= 0xf0 && lead < 0xf5 ? 4
                                                : 0;
    for (int i = 1; i < n; i++) /* the zero at the end of the text is none of these either */
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    /* Longer forms of a shorter one, halves of UTF-16, and what is beyond U+10FFFF. */
    const int none = (lead == 0xe0 && at[1] < 0xa0) || (lead == 0xed && at[1] > 0x9f) ||
                     (lead == 0xf0 && at[1] < 0x90) || (lead == 0xf4 && at[1] > 0x8f);
    return none ? 0 : n;
}

/* JSON is UTF-8 (RFC 8259, 8.1). Names of files need not be, nor sentences that were cut within a
 * character. */
void heed_put_string(heed_text *b, const char *text)
{
    heed_put(b, "\"");
    for (int n; *text; text += n ? n : 1) {
        n = character(text);
        if (n == 0)
            heed_put(b, "\\ufffd");
        else if ((unsigned char)*text < 0x20)
            heed_put(b, "\\u%04x", (unsigned)*text);
        else if (*text == '"' || *text == '\\')
            heed_put(b, "\\%c", *text);
        else
            heed_put(b, "%.*s", n, text);
    }
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
