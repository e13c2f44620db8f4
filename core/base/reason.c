/* Error sentences: whoever finds a fault writes one, and the public functions hand
 * it to the caller. */
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

heed_status heed_check_numbers(const heed_number *numbers, int n, heed_error *why)
{
    for (const heed_number *at = numbers; at < numbers + n; at++)
        if (at->value < at->least || at->value > at->most)
            INVALID("%s is %lld, %lld to %lld is required", at->name, (long long)at->value,
                    (long long)at->least, (long long)at->most);
    return HEED_OK;
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
    static const char *const name[] = {
        "HEED_OK",          "HEED_ERR_INVALID", "HEED_ERR_UNSUPPORTED", "HEED_ERR_NOMEM",
        "HEED_ERR_BACKEND", "HEED_ERR_ABI",     "HEED_ERR_TRANSPORT"};
    return status >= 0 && status <= HEED_ERR_TRANSPORT ? name[status] : "unknown status";
}

/* Public structs are aligned as size_t is and have a member behind struct_size. So the size of a
 * pointer, passed by mistake, is refused. */
static int size_is_possible(size_t size)
{
    return size > sizeof size && size % sizeof size == 0 && size <= 65536;
}

/* Reads and checks the caller's struct_size. */
static heed_status read_size(const char *name, const void *in, size_t known, size_t *size,
                             heed_error *why)
{
    if (!in)
        return heed_fail(why, HEED_ERR_INVALID, "%s is NULL", name);
    memcpy(size, in, sizeof *size);
    if (!size_is_possible(*size))
        return heed_fail(why, HEED_ERR_ABI, "%s.struct_size is %zu, sizeof *%s is %zu", name, *size,
                         name, known);
    return HEED_OK;
}

static void copy_struct(const void *in, size_t size, size_t wanted, void *out)
{
    memcpy(out, in, size < wanted ? size : wanted);
    if (size < wanted)
        memset((char *)out + size, 0, wanted - size);
}

heed_status heed_read_struct(const char *name, const void *in, size_t known, void *out,
                             heed_error *why)
{
    size_t size = 0;
    heed_status st = read_size(name, in, known, &size, why);
    if (st != HEED_OK)
        return st;
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)in)[i])
            return heed_fail(why, HEED_ERR_ABI,
                             "%s.struct_size is %zu and byte %zu is not zero: this library knows "
                             "%zu bytes",
                             name, size, i, known);
    copy_struct(in, size, known, out);
    memcpy(out, &known, sizeof known);
    return HEED_OK;
}

heed_status heed_read_head(const char *name, const void *in, size_t known, size_t head, void *out,
                           heed_error *why)
{
    size_t size = 0;
    heed_status st = read_size(name, in, known, &size, why);
    if (st == HEED_OK)
        copy_struct(in, size, head, out);
    return st;
}

heed_status heed_write_struct(const char *name, void *out, size_t known, const void *made,
                              heed_error *why)
{
    size_t size = 0;
    heed_status st = read_size(name, out, known, &size, why);
    if (st == HEED_OK) {
        copy_struct(made, known, size, out);
        memcpy(out, &size, sizeof size);
    }
    return st;
}

heed_args_head heed_read_args_head(const void *args)
{
    heed_args_head head = {0};
    if (args)
        memcpy(&head.struct_size, args, sizeof head.struct_size);
    if (!size_is_possible(head.struct_size))
        return (heed_args_head){0};
    if (head.struct_size >= sizeof head) /* of constant size: a few moves */
        memcpy(&head, args, sizeof head);
    else
        copy_struct(args, head.struct_size, sizeof head, &head);
    return head;
}

heed_status heed_report_call(const void *args, heed_status status, const heed_error *why)
{
    return status == HEED_OK ? status : heed_report(heed_read_args_head(args).error, status, why);
}
