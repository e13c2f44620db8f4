/* For the tests over MPI: counts the calls of heed/mpi.h into MPI, and lets one fail where a test
 * asks for it. It uses MPI's own profiling interface: an MPI_x that is defined here replaces that
 * of the library, and the library's own is PMPI_x. */
#ifndef NODES_COUNTED_H
#define NODES_COUNTED_H

#include <mpi.h>

/** Counts since the start of the program. Requests are those of MPI_Isend and MPI_Irecv. */
typedef struct counted {
    int duplicates, freed;                           /* communicators */
    int handlers;                                    /* obtained, not yet freed */
    int started, ended;                              /* requests */
    int sends;                                       /* how many of them were sends */
    int fail_dup, fail_isend, fail_irecv, fail_test; /* 1: the next call fails */
} counted;

static counted calls;

static int fails(int *which)
{
    const int now = *which;
    *which = 0;
    return now;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    if (fails(&calls.fail_dup)) {
        MPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    calls.duplicates++;
    return PMPI_Comm_dup(comm, out);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    calls.freed++;
    return PMPI_Comm_free(comm);
}

int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *handler)
{
    calls.handlers++;
    return PMPI_Comm_get_errhandler(comm, handler);
}

int MPI_Errhandler_free(MPI_Errhandler *handler)
{
    calls.handlers--;
    return PMPI_Errhandler_free(handler);
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (fails(&calls.fail_isend))
        return MPI_ERR_OTHER;
    calls.started++;
    calls.sends++;
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (fails(&calls.fail_irecv))
        return MPI_ERR_OTHER;
    calls.started++;
    return PMPI_Irecv(data, n, type, from, tag, comm, request);
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    const int there = *request != MPI_REQUEST_NULL;
    const int error = fails(&calls.fail_test) ? MPI_ERR_OTHER : PMPI_Test(request, done, status);
    calls.ended += there && *request == MPI_REQUEST_NULL;
    return error;
}

int MPI_Request_free(MPI_Request *request)
{
    calls.ended++;
    return PMPI_Request_free(request);
}

#endif
