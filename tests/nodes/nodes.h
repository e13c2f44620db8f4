/* What the programs of the tests over MPI share. A check that fails prints its place and its rank,
 * and the program goes on, so that the other ranks are not left waiting. */
#ifndef NODES_NODES_H
#define NODES_NODES_H

#include <heed/mpi.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000000)
#define PATIENCE (60 * SECOND) /* longer than any wait of a test that passes */

static int bad, checks;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(condition)) {                                                                        \
            int rank_ = -1;                                                                        \
            bad++;                                                                                 \
            MPI_Comm_rank(MPI_COMM_WORLD, &rank_);                                                 \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, rank_, #condition);        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)

/* Adds up the checks and failures of all ranks; rank 0 prints them on one line. Returns what main
 * should: 0 if there were checks and none failed. */
static inline int nodes_verdict(const char *name)
{
    int all[2] = {bad, checks}, sum[2] = {0, 0}, rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(all, sum, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: %d ranks, %d checks, %d failed\n", name, size, sum[1], sum[0]);
    return sum[0] != 0 || sum[1] == 0;
}

#endif
