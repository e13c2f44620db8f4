/* When a rank is lost in the middle of a call, the calls of the others end with an error message
 * within their deadline. The rank is killed where mpirun then lets the others live on (Open MPI
 * does, with --enable-recovery; MPICH's fails too), or it hangs, which looks the same to them.
 *
 * Usage: killed_MPI FOLDER kill|hang split|ring
 *
 * Each rank that survives writes its status, the seconds that its call took and the error message
 * to FOLDER/RANK. See killed.py. */
#include "problem.h"

#include <heed/mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static const int64_t deadline = INT64_C(1000000000);

/* The last rank's transport ends its process, or hangs, after a number of sends: by then some calls
 * have gone well. */
static heed_transport real;
static int sends_left = 50, hangs;

static heed_status deadly_send(void *user, uint32_t to, uint32_t tag, const void *data,
                               size_t bytes, heed_request *request, heed_error *why)
{
    if (--sends_left <= 0 && hangs) {
        alarm(5);
        for (;;)
            pause();
    }
    if (sends_left <= 0)
        raise(SIGKILL);
    return real.send(user, to, tag, data, bytes, request, why);
}

static void report(const char *folder, const heed_transport *t, heed_status status, double seconds)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%u", folder, t->rank);
    FILE *file = fopen(path, "w");
    if (!file)
        _exit(3);
    fprintf(file, "%s\n%.3f\n%s\n", heed_status_string(status), seconds, heed_last_error());
    fclose(file);
}

int main(int argc, char **argv)
{
    heed_mpi mpi;
    heed_transport t;
    heed_error why;
    heed_context *context;
    heed_attn *plan;
    problem p;
    cut c;
    memory l;
    heed_status status = HEED_OK;
    MPI_Init(&argc, &argv);
    if (argc < 4 || heed_mpi_open(MPI_COMM_WORLD, &mpi, &t, &why) != HEED_OK)
        return 2;
    for (int n = 0; n < problems(); n++) {
        const spec s = problem_spec(n);
        if (strcmp(s.name, strcmp(argv[3], "ring") == 0 ? "ring causal" : "causal") == 0)
            problem_make(&p, &s);
    }
    problem_cut(&p, &c, CUT_EVEN, t.size);
    c.partition.timeout_ns = deadline;
    problem_local(&p, &c, t.rank, &l);
    heed_attn_args a = problem_args(&p, &l);
    if (heed_context_create(NULL, &context) || heed_attn_create(context, &p.desc, &plan))
        return 2;
    hangs = strcmp(argv[2], "hang") == 0;
    real = t;
    if (t.rank == t.size - 1)
        t.send = deadly_send;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    double begun = start;
    while (status == HEED_OK && MPI_Wtime() - start < 30) { /* a few calls go well */
        begun = MPI_Wtime();
        status = heed_group_attention(plan, &a, &c.partition, &t, NULL, 0);
    }
    report(argv[1], &t, status, MPI_Wtime() - begun);
    sleep(2); /* time for the other reports: mpirun ends all ranks when one ends like this */
    _exit(0); /* MPI_Finalize would wait for the lost rank */
}
