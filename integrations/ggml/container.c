/* See container.h. Both versions of cgroups have a line "NUMBER:CONTROLLERS:PATH" for each hierarchy, version
 * 2 without controllers: docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html. */
#include "container.h"

#include <stdio.h>
#include <string.h>

/* "max", as any other text, is no limit. */
static uint64_t limit_of(const char *path)
{
    unsigned long long bytes = 0;
    FILE *file = fopen(path, "re");
    const int found = file && fscanf(file, "%llu", &bytes) == 1;
    if (file)
        fclose(file);
    return found ? bytes : UINT64_MAX;
}

/* The least limit of a group and of all above it. In a container the group may be the host's name for it,
 * and only the topmost be there. Cuts the text. */
static uint64_t least_above(const char *root, const char *hierarchy, char *group, const char *file)
{
    char path[8192];
    uint64_t least = UINT64_MAX;
    for (;;) {
        const int length = snprintf(path, sizeof path, "%s%s%s/%s", root, hierarchy, group, file);
        const uint64_t bytes = length < (int)sizeof path ? limit_of(path) : UINT64_MAX;
        least = bytes < least ? bytes : least;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

static int has_memory(const char *controllers)
{
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "memory", 6) == 0 && (at[6] == ',' || !at[6]))
            return 1;
    }
    return 0;
}

uint64_t container_bytes(const char *groups, const char *root)
{
    char line[4096];
    uint64_t least = UINT64_MAX;
    FILE *file = fopen(groups, "re");
    while (file && fgets(line, sizeof line, file)) {
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        uint64_t bytes = UINT64_MAX;
        if (!group)
            continue;
        *list++ = *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (!*list)
            bytes = least_above(root, "", group, "memory.max");
        else if (has_memory(list))
            bytes = least_above(root, "/memory", group, "memory.limit_in_bytes");
        least = bytes < least ? bytes : least;
    }
    if (file)
        fclose(file);
    return least;
}
