/* Environment variables and the affinity mask. */
#define _GNU_SOURCE
#include "env.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/auxv.h>
#endif

#include "cgroup.h"
#include "reason.h"

enum { MAX_THREADS = 4096 };

const char *heed_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *heed_env_secure(const char *name)
{
#if defined(__linux__)
    if (getauxval(AT_SECURE))
        return NULL;
#endif
    return heed_env(name);
}

/* A positive count at the start of the text; 0 if there is none. OMP_NUM_THREADS may be a list, of
 * which the first is the outer level. */
static uint32_t count_of(const char *text)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;
    return n < 1 ? 0 : n > MAX_THREADS ? MAX_THREADS : (uint32_t)n;
}

static uint32_t affinity_count(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (uint32_t)n;
}

heed_status heed_env_threads(uint32_t *out, heed_error *why)
{
    const char *wish = heed_env("HEED_NUM_THREADS");
    if (wish) {
        *out = strspn(wish, "0123456789") == strlen(wish) ? count_of(wish) : 0;
        if (*out)
            return HEED_OK;
        INVALID("HEED_NUM_THREADS is '%.40s', a number of at least 1 is required", wish);
    }
    uint32_t n = affinity_count();
    const uint32_t limits[] = {count_of(heed_env("OMP_NUM_THREADS")),
                               heed_cgroup_threads("/proc/self/cgroup", "/sys/fs/cgroup")};
    for (int i = 0; i < 2; i++)
        if (limits[i] && limits[i] < n)
            n = limits[i];
    *out = n ? n : 1;
    return HEED_OK;
}

int heed_env_workers_sleep(void)
{
    const char *policy = heed_env("OMP_WAIT_POLICY");
    return policy && strncasecmp(policy + strspn(policy, " \t"), "passive", 7) == 0;
}
