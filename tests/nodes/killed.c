/* When a rank is lost in the middle of a call, the calls of the others end with an error message
 * within their deadline. The rank is killed where mpirun then lets the others live on (Open MPI
 * does, with --enable-recovery; MPICH's fails too), or it hangs, which looks the same to them.
 *
 * Usage: killed_MPI FOLDER kill|hang split|ring
 *
 * Each rank that survives writes its status, the seconds that its call took and the error message
 * to FOLDER/RANK. See killed.py. */
#include "ranks.h"

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

static void report(const char *folder, uint32_t rank, const rank_call *call, double seconds)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%u", folder, rank);
    FILE *file = fopen(path, "w");
    if (!file)
        _exit(3);
    fprintf(file, "%s\n%.3f\n%s\n", heed_status_string(call->status), seconds, call->why.text);
    fclose(file);
}

int main(int argc, char **argv)
{
    static const ranks_way ring = {"ring", HEED_GROUP_RING, 0, 0, 0};
    static const ranks_way split = {"split", HEED_GROUP_SPLIT, HEED_WANT_ALL, 0, 0};
    static ranks_case c;
    heed_mpi mpi;
    heed_transport t;
    heed_error why;
    heed_context *context;
    rank_call call;
    MPI_Init(&argc, &argv);
    if (argc < 4 || heed_mpi_open(MPI_COMM_WORLD, &mpi, &t, &why) != HEED_OK)
        return 2;
    if (heed_context_create(NULL, &context) != HEED_OK ||
        ranks_of_way(&c, strcmp(argv[3], "ring") == 0 ? &ring : &split, t.size, 200) != 0 ||
        rank_make(&call, &c, t.rank) != 0)
        return 2;
    c.partition.timeout_ns = deadline;
    hangs = strcmp(argv[2], "hang") == 0;
    real = t;
    if (t.rank == t.size - 1)
        t.send = deadly_send;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    double begun;
    do { /* a few calls go well */
        begun = MPI_Wtime();
        rank_run(&call, &c, context, &t, 1);
    } while (call.status == HEED_OK && MPI_Wtime() - start < 30);
    report(argv[1], t.rank, &call, MPI_Wtime() - begun);
    sleep(2); /* time for the other reports: mpirun ends all ranks when one ends like this */
    _exit(0); /* MPI_Finalize would wait for the lost rank */
}
