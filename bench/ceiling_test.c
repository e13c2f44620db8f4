/* Tests how a ceiling is timed, with a clock and a loop of its own: if another process takes the
 * CPU during the measurement, the ceiling must not become lower. */
#define _GNU_SOURCE
#include <time.h>

static int fake_clock(clockid_t id, struct timespec *t);
#define clock_gettime fake_clock
#include "ceiling.c"

static double at;            /* the seconds that ceiling.c reads from its clock */
static unsigned calls, torn; /* batches done; the one (from 1) in which others take the CPU */
static const double iteration_seconds = 1e-9, pause_seconds = 20e-3;

static int fake_clock(clockid_t id, struct timespec *t)
{
    (void)id;
    t->tv_sec = (time_t)at;
    t->tv_nsec = (long)((at - (double)t->tv_sec) * 1e9);
    return 0;
}

static float run(size_t iterations)
{
    at += (double)iterations * iteration_seconds;
    if (++calls == torn)
        at += pause_seconds;
    return 0;
}

static double rate_with(unsigned which)
{
    static const kind steady = {"steady", 0, NULL, run, 1, NULL};
    worker one = {.kind = &steady, .seconds = 5e-3};
    at = 1;
    calls = 0;
    torn = which;
    measure(&one);
    return one.rate;
}

int main(void)
{
    const double quiet = rate_with(0), want = 1 / iteration_seconds;
    int failed = 0;
    if (!(quiet > 0.99 * want && quiet < 1.01 * want)) {
        fprintf(stderr, "undisturbed: %g, not %g\n", quiet, want);
        failed++;
    }
    const unsigned n = calls;
    for (unsigned which = 1; which <= n; which++) {
        const double rate = rate_with(which);
        if (!(rate > 0.99 * want && rate < 1.01 * want)) {
            fprintf(stderr, "disturbed in batch %u of %u: %g, not %g\n", which, n, rate, want);
            failed++;
        }
    }
    printf("%u places of disturbance, %d failed\n", n, failed);
    return failed != 0 || n < 20;
}
