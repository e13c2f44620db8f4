/* Sentences: written by whoever finds the fault, handed to the caller at the edge of the API. */
#include "reason.h"

#include "compiler.h"

static HEED_THREAD_LOCAL heed_error last_error;

heed_status heed_fail(heed_error *why, heed_status status, const char *format, ...)
{
    if (why) {
        va_list list;
        va_start(list, format);
        vsnprintf(why->text, sizeof why->text, format, list);
        va_end(list);
    }
    return status;
}

heed_status heed_report(heed_error *user, heed_status status, const heed_error *why)
{
    if (status != HEED_OK)
        *(user ? user : &last_error) = *why;
    return status;
}

const char *heed_last_error(void)
{
    return last_error.text;
}

const char *heed_status_string(heed_status status)
{
    static const char *const name[] = {"HEED_OK",        "HEED_ERR_INVALID", "HEED_ERR_UNSUPPORTED",
                                       "HEED_ERR_NOMEM", "HEED_ERR_BACKEND", "HEED_ERR_ABI"};
    return status >= 0 && status <= HEED_ERR_ABI ? name[status] : "unknown status";
}

heed_status heed_read_struct(const char *name, const void *in, size_t known, void *out,
                             heed_error *why)
{
    size_t size;
    if (!in)
        return heed_fail(why, HEED_ERR_INVALID, "%s is NULL", name);
    memcpy(&size, in, sizeof size);
    if (size < sizeof size || size > 65536)
        return heed_fail(why, HEED_ERR_ABI, "%s.struct_size is %zu, sizeof *%s is %zu", name, size,
                         name, known);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)in)[i])
            return heed_fail(why, HEED_ERR_ABI,
                             "%s.struct_size is %zu and byte %zu is not zero: this library knows "
                             "%zu bytes",
                             name, size, i, known);
    memcpy(out, in, size < known ? size : known);
    if (size < known)
        memset((char *)out + size, 0, known - size);
    memcpy(out, &known, sizeof known);
    return HEED_OK;
}
