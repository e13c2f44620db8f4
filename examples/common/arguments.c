/* Command lines of the engines. */
#define _GNU_SOURCE
#include "arguments.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

const char *take_option(arguments *a, const char *name)
{
    for (int i = 0; i + 1 < a->n; i++)
        if (strcmp(a->word[i], name) == 0) {
            const char *value = a->word[i + 1];
            a->n -= 2;
            memmove(a->word + i, a->word + i + 2, (size_t)(a->n - i) * sizeof *a->word);
            return value;
        }
    return NULL;
}

heed_status take_integer(arguments *a, const char *name, int64_t least, int64_t most,
                         int64_t otherwise, int64_t *out, heed_error *why)
{
    const char *text = take_option(a, name);
    char *end = NULL;
    errno = 0;
    long long value = text ? strtoll(text, &end, 10) : otherwise;
    if (text && (end == text || *end != '\0' || errno != 0 || value < least || value > most))
        return refuse(why, "%s takes an integer from %lld to %lld, not %.40s", name,
                      (long long)least, (long long)most, text);
    *out = value;
    return HEED_OK;
}

heed_status take_rest(const arguments *a, int n, const char *what, heed_error *why)
{
    for (int i = 0; i < a->n; i++)
        if (strncmp(a->word[i], "--", 2) == 0)
            return refuse(why, "%.60s is no option here, or is given twice or without its value",
                          a->word[i]);
    if (a->n != n)
        return refuse(why, "give %s (there are %d words)", what, a->n);
    return HEED_OK;
}

int cpu_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int exit_status(heed_status status)
{
    return status == HEED_OK                ? 0
           : status == HEED_ERR_INVALID     ? 2
           : status == HEED_ERR_UNSUPPORTED ? 3
                                            : 1;
}
