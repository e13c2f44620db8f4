/* Runs a fuzz target without a fuzzer: on random bytes from a seed, or on the named files, to
 * repeat a finding.
 *
 * Usage: fuzz_NAME [--runs N] [--seed S]   runs seeds S, S + 1, ..., S + N - 1
 *        fuzz_NAME FILE...
 *
 * On a finding the seed of the run is the last thing that is printed before the process dies.
 */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kit/random.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 256 };

static const char *program;
static unsigned long long current; /* the seed of the current run */

/* The signal handlers that this program replaces: a sanitizer's, which reports, or the default. */
static struct sigaction other[NSIG];

static void say_seed(int signal_number)
{
    fprintf(stderr, "replay with: %s --runs 1 --seed %llu\n", program, current);
    sigaction(signal_number, &other[signal_number], NULL);
}

static void random_run(unsigned long long seed)
{
    uint64_t state = seed;
    uint8_t bytes[MOST_BYTES];
    size_t n = 16 + kit_next(&state) % (MOST_BYTES - 15);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(kit_next(&state) >> 56);
    LLVMFuzzerTestOneInput(bytes, n);
}

static int replay(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    LLVMFuzzerTestOneInput(bytes, fread(bytes, 1, sizeof bytes, file));
    fclose(file);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long long runs = 10000, seed = 1, done;
    int at = 1;
    program = argc > 0 ? argv[0] : "fuzz";
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--runs") == 0)
            runs = strtoull(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--seed") == 0)
            seed = strtoull(argv[at + 1], NULL, 10);
        else
            break;
    }
    if (at < argc && argv[at][0] == '-') {
        fprintf(stderr, "usage: %s [--runs N] [--seed S] | FILE...\n", program);
        return 2;
    }
    struct sigaction ours = {.sa_handler = say_seed};
    const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        sigaction(fatal[i], &ours, &other[fatal[i]]);
    if (at < argc) {
        for (; at < argc; at++)
            if (replay(argv[at]) != 0)
                return 1;
        return 0;
    }
    for (done = 0; done < runs; done++) {
        current = seed + done;
        random_run(current);
    }
    printf("%llu runs from seed %llu, no finding\n", done, seed);
    return done == 0;
}
