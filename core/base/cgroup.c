/* The quota of the cgroup that we are in: docs.kernel.org/admin-guide/cgroup-v2.html. */
#include "cgroup.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 4096 };

/* cpu.max holds "QUOTA PERIOD" or "max PERIOD". 0: no limit. */
static uint32_t quota_of(const char *path)
{
    double quota, period;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    int n = fscanf(file, "%lf %lf", &quota, &period);
    fclose(file);
    if (n != 2 || !(quota > 0) || !(period > 0) || quota / period >= MOST)
        return 0;
    uint32_t whole = (uint32_t)(quota / period);
    return whole + (quota / period > whole);
}

uint32_t heed_cgroup_threads(const char *groups, const char *root)
{
    char line[512], path[1024];
    uint32_t least = 0;
    FILE *file = fopen(groups, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::/", 4) != 0) /* a group of cgroup v1: its quota is not read */
            continue;
        char *group = line + 3;
        group[strcspn(group, "\n")] = 0;
        for (;;) {
            const int length = snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
            uint32_t n = length < (int)sizeof path ? quota_of(path) : 0;
            if (n && (!least || n < least))
                least = n;
            char *slash = strrchr(group, '/');
            if (!slash)
                break;
            *slash = 0;
        }
    }
    fclose(file);
    return least;
}
