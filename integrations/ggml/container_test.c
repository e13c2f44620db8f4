/* The memory limit of a container, read from folders that look like /sys/fs/cgroup. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "container.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char folder[] = "/tmp/ggml_heed_XXXXXX";
static int n_checks, n_bad;

/* The files and folders that are made, in this order. */
static const char *const made[] = {"pod", "pod/own", "memory", "memory/pod"};
static const char *const files[] = {"groups",
                                    "memory.max",
                                    "pod/memory.max",
                                    "pod/own/memory.max",
                                    "memory/memory.limit_in_bytes",
                                    "memory/pod/memory.limit_in_bytes"};

static const char *path_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(path_of(name));
        exit(1);
    }
}

/* Writes what /proc/self/cgroup would say, and checks the limit. */
static void expect(const char *groups, uint64_t bytes)
{
    char path[sizeof folder + 8];
    put("groups", groups);
    snprintf(path, sizeof path, "%s/groups", folder);
    const uint64_t got = container_bytes(path, folder);
    n_checks++;
    if (got != bytes && ++n_bad)
        printf("%s: %llu bytes, should be %llu\n", groups, (unsigned long long)got,
               (unsigned long long)bytes);
}

/* Limits of the topmost group, of one below, and of one in that. */
static void version_2(void)
{
    expect("0::/\n", UINT64_MAX);
    put("memory.max", "max\n");
    expect("0::/\n", UINT64_MAX);
    put("memory.max", "4000\n");
    expect("0::/\n", 4000);
    put("pod/memory.max", "3000\n");
    put("pod/own/memory.max", "max\n");
    expect("0::/\n", 4000);
    expect("0::/pod\n", 3000);
    expect("0::/pod/own\n", 3000);
    put("pod/own/memory.max", "2000\n");
    expect("0::/pod/own\n", 2000);
    expect("0::/pod/of the host\n", 3000);
}

/* The controller memory stands in any line, by itself or with others. */
static void version_1(void)
{
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/pod/memory.limit_in_bytes", "1000\n");
    expect("5:cpu,cpuacct:/pod\n4:memory:/pod\n", 1000);
    expect("4:hugetlb,memory:/pod\n3:pids:/\n", 1000);
    expect("4:memory:/docker/of the host\n", INT64_C(9223372036854771712));
    expect("4:memory_of_another_name:/pod\n", UINT64_MAX);
    expect("1:name=memory:/pod\n", UINT64_MAX);
    expect("4:memory:/pod\n0::/\n", 1000);
    put("memory/pod/memory.limit_in_bytes", "5000\n");
    expect("4:memory:/pod\n0::/pod\n", 3000);
}

int main(void)
{
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (mkdir(path_of(made[i]), 0700) != 0)
            return 1;
    version_2();
    version_1();
    expect("", UINT64_MAX);
    expect("nothing that has a path\n:\n", UINT64_MAX);
    n_bad += container_bytes("/nowhere", folder) != UINT64_MAX;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        remove(path_of(files[i]));
    for (size_t i = sizeof made / sizeof *made; i-- > 0;)
        remove(path_of(made[i]));
    remove(folder);
    printf("%d checks, %d bad\n", n_checks, n_bad);
    return n_bad != 0;
}
