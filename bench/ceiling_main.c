/* heed-ceiling: prints every ceiling of this machine, for those who tune kernels.
 *
 *     heed-ceiling [threads [MiB]]
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ceiling.h"
#include "program.h"

static const char usage[] = "usage: heed-ceiling [threads [MiB]]\n"
                            "  threads  at most as many as it may use CPUs; 1\n"
                            "  MiB      of memory that is read, at least 16; 1024\n";

/* Less is read in no time. */
enum { LEAST_MIB = 16, MOST_MIB = SIZE_MAX >> 20 < 1 << 24 ? SIZE_MAX >> 20 : 1 << 24 };

/* Threads wait for each other in a loop: more than CPUs would wait for ever. */
static long usable_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int measure(int argc, char **argv)
{
    const long many = argc > 1 ? program_number(argv[1], 1, usable_cpus()) : 1;
    const long mib = argc > 2 ? program_number(argv[2], LEAST_MIB, MOST_MIB) : 1024;
    if (many < 1 || mib < LEAST_MIB || argc > 3) {
        fputs(usage, stderr);
        return 2;
    }
    const unsigned threads = (unsigned)many;
    const size_t bytes = (size_t)mib << 20;
    for (int kind = 0; kind < HEED_CEILING_COUNT; kind++) {
        const char *refusal = heed_ceiling_refusal(kind);
        if (refusal) {
            printf("%-16s refused: %s\n", heed_ceiling_name(kind), refusal);
            continue;
        }
        printf("%-16s", heed_ceiling_name(kind));
        for (int run = 0; run < 5; run++)
            printf(" %8.1f", heed_ceiling_gflops(kind, threads, 20e-3));
        printf(" GFLOP/s\n");
    }
    char *buffer = malloc(bytes);
    if (!buffer) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        return 1;
    }
    memset(buffer, 1, bytes);
    heed_ceiling_read_gbps(buffer, bytes, threads, 1e-3);
    printf("%-16s", "read");
    for (int run = 0; run < 5; run++)
        printf(" %8.1f", heed_ceiling_read_gbps(buffer, bytes, threads, 50e-3));
    printf(" GB/s (%s)\n", heed_ceiling_read_form(threads));
    free(buffer);
    return 0;
}

int main(int argc, char **argv)
{
    return program_main("heed-ceiling", usage, measure, argc, argv);
}
