/* Errors of the engines. */
#include "refuse.h"

#include <stdarg.h>
#include <stdio.h>

heed_status refuse(heed_error *why, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why->text, sizeof why->text, format, list);
    va_end(list);
    return HEED_ERR_INVALID;
}

heed_status pass_on(heed_status status, heed_error *why)
{
    if (status != HEED_OK)
        snprintf(why->text, sizeof why->text, "%s", heed_last_error());
    return status;
}

heed_status no_memory(heed_error *why, const char *what)
{
    snprintf(why->text, sizeof why->text, "no memory for %s", what);
    return HEED_ERR_NOMEM;
}
