/* heed_cgroup_threads: how many threads the quota of a cgroup is worth, read from folders that look
 * like /sys/fs/cgroup. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "base/cgroup.h"

#include "../check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char folder[] = "/tmp/heed_cgroup_XXXXXX";

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

/* Writes what /proc/self/cgroup would say, and checks the threads. */
static void expect(const char *groups, uint32_t threads)
{
    char path[sizeof folder + 8];
    put("groups", groups);
    snprintf(path, sizeof path, "%s/groups", folder);
    const uint32_t got = heed_cgroup_threads(path, folder);
    CHECK(got == threads, "%.60s: %u threads, should be %u", groups, got, threads);
}

/* Checks one text of cpu.max, in the root cgroup. */
static void quota(const char *text, uint32_t threads)
{
    put("cpu.max", text);
    expect("0::/\n", threads);
}

static void quotas(void)
{
    quota("max 100000\n", 0);
    quota("100000 100000\n", 1);
    quota("100001 100000\n", 2);
    quota("150000 50000\n", 3);
    quota("1000 100000\n", 1);
    quota("409500000 100000\n", 4095);
    quota("409600000 100000\n", 0);
    quota("0 100000\n", 0);
    quota("-100000 100000\n", 0);
    quota("100000 0\n", 0);
    quota("100000 -100000\n", 0);
    quota("nan 100000\n", 0);
    quota("100000\n", 0);
    quota("", 0);
}

/* A pod's cgroup lies below its node's: the tightest of all of them holds. */
static void above(void)
{
    mkdir(path_of("pod"), 0700);
    mkdir(path_of("pod/box"), 0700);
    mkdir(path_of("pod/box/run"), 0700);
    put("cpu.max", "900000 100000\n");
    put("pod/cpu.max", "300000 100000\n");
    put("pod/box/cpu.max", "500000 100000\n");
    expect("0::/pod/box/run\n", 3); /* which has no file itself */
    expect("0::/pod/box\n", 3);
    expect("0::/pod", 3);
    expect("0::/\n", 9);
    put("pod/box/cpu.max", "100000 100000\n");
    expect("0::/pod/box/run\n", 1);
    put("pod/cpu.max", "max 100000\n");
    put("pod/box/cpu.max", "max 100000\n");
    expect("0::/pod/box/run\n", 9);
    expect("0::/nowhere/at/all\n", 9);
    expect("0::/../../elsewhere\n", 9); /* as it looks from within a namespace */
}

/* Lines of cgroup version 1 are skipped, wherever they stand. */
static void other_lines(void)
{
    expect("", 0);
    expect("4:cpu,cpuacct:/pod/box\n1:name=systemd:/\n", 0);
    put("pod/cpu.max", "200000 100000\n");
    expect("4:cpu,cpuacct:/nowhere\n0::/pod\n", 2);
    expect("0::/pod\n4:cpu,cpuacct:/nowhere\n", 2);
    CHECK(heed_cgroup_threads(path_of("no such file"), folder) == 0, "no groups");
}

/* A path that is too long for the buffer gives no limit, and overruns nothing. */
static void long_paths(void)
{
    char groups[3000] = "0::/";
    memset(groups + 4, 'x', sizeof groups - 6);
    groups[sizeof groups - 2] = '\n';
    put("cpu.max", "max 100000\n");
    expect(groups, 0);
}

static int open_files(void)
{
    int n = 0;
    for (int file = 0; file < 1024; file++)
        n += fcntl(file, F_GETFD) >= 0;
    return n;
}

int main(void)
{
    const int before = open_files();
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    quotas();
    above();
    other_lines();
    long_paths();
    CHECK(open_files() == before, "%d files are open, %d were", open_files(), before);
    static const char *const made[] = {"groups",      "cpu.max", "pod/cpu.max", "pod/box/cpu.max",
                                       "pod/box/run", "pod/box", "pod",         ""};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        remove(path_of(made[i]));
    return checks_end();
}
