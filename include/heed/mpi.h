/** @file
 * Heed: a transport of heed/group.h over MPI. All static inline and compiled by the caller's mpicc,
 * so that libheed itself knows of no MPI and one build of it serves programs of Open MPI, MPICH and
 * others. Only calls of MPI 3.1 are used. heed/heed.h does not include this file.
 *
 *     heed_mpi mpi;
 *     heed_transport transport;
 *     heed_error why;
 *     if (heed_mpi_open(MPI_COMM_WORLD, &mpi, &transport, &why) != HEED_OK) ...
 *     heed_group_attention(plan, &args, &partition, &transport, NULL, 0);
 *     heed_mpi_close(&mpi);
 *
 * Errors   of MPI are returned with MPI's own sentence; nothing here aborts. For that
 *          MPI_COMM_WORLD has the error handler MPI_ERRORS_RETURN while a request is tested, and
 *          its own again afterwards. (Open MPI 4.1 cuts a message of a rank to itself that is
 *          longer than its room, and says nothing.)
 * Threads  MPI is called by the threads that heed_transport names. If MPI was initialised below
 *          MPI_THREAD_SERIALIZED, that has to be its main thread.
 * Pieces   a message of more than HEED_MPI_PIECE bytes moves on only while its rank calls functions
 *          of the transport, any of them. A rank that works with two transports in turn on one
 *          thread has to end the requests of the one before it waits for the other, or test both.
 * Failure  MPI 3.1 knows no way to go on after a lost rank. After HEED_ERR_TRANSPORT do not close,
 *          say what happened and end by MPI_Abort: MPI_Finalize may wait for the lost one. mpirun
 *          itself ends all ranks when one dies, before they can say anything, unless it is given
 *          `--enable-recovery` (Open MPI) or `-disable-auto-cleanup` (MPICH).
 * Source   MPI: A Message-Passing Interface Standard, version 3.1, chapters 3 and 8.
 */
#ifndef HEED_MPI_H
#define HEED_MPI_H

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>

#include "group.h"

HEED_BEGIN_C

#ifndef HEED_MPI_PIECE
/** Bytes of the pieces in which longer messages travel, at most INT_MAX, which is what MPI's counts hold.
 * The same in every rank. Tests lower it. */
#define HEED_MPI_PIECE (1 << 30)
#endif

#ifndef HEED_MPI_CANCEL_NS
/** How long to wait for MPI to give up a request, in nanoseconds. */
#define HEED_MPI_CANCEL_NS 10000000
#endif

/** What one transport needs. It lies in the caller's memory, is opened by heed_mpi_open, and may
 * not move until it is closed. */
typedef struct heed_mpi {
    MPI_Comm comm; /**< a duplicate of the caller's, whose messages meet no others */
    int tag_limit; /**< the greatest tag that this MPI has */
    /** messages of which pieces are still to be started, and those that wait behind one; oldest first */
    void *unfinished;
} heed_mpi;

/** @cond */

/* A message, in its heed_request. Pieces of one message follow each other under its tag; a piece
 * shorter than HEED_MPI_PIECE is the last, so that a receiver with more room than there are bytes
 * knows the end. A channel is a direction, a rank and a tag. A message holds its channel while
 * further pieces may follow the one under way: later messages wait, because their first pieces
 * would come before its last. */
typedef struct heed_mpi_message {
    struct heed_mpi_message *next; /* in heed_mpi.unfinished */
    char *data;
    size_t left;         /* bytes to be sent, or room */
    size_t moved;        /* bytes that were sent or received */
    MPI_Request request; /* of the piece under way; MPI_REQUEST_NULL: none is */
    int peer, tag, is_send;
    int piece; /* bytes of the piece under way */
    int error; /* of MPI */
    int ended; /* with or without error */
} heed_mpi_message;

typedef char heed_mpi_message_fits[sizeof(heed_mpi_message) <= sizeof(heed_request) ? 1 : -1];
typedef char heed_mpi_piece_fits[HEED_MPI_PIECE >= 1 && HEED_MPI_PIECE <= INT_MAX ? 1 : -1];

/* Writes `what` and the sentence of MPI's error, or `what` alone if the error is 0. A sentence that
 * is too long loses its end. */
static inline heed_status heed_mpi_fail(heed_error *why, heed_status status, const char *what,
                                        int error)
{
    char text[MPI_MAX_ERROR_STRING + 1];
    int length = 0;
    text[0] = '\0';
    if (error != MPI_SUCCESS && MPI_Error_string(error, text, &length) != MPI_SUCCESS)
        length = 0;
    text[length] = '\0';
    if (why && snprintf(why->text, sizeof why->text, "%s%s%s", what, length ? ": " : "", text) < 0)
        why->text[0] = '\0';
    return status;
}

/* The same for a message. */
static inline heed_status heed_mpi_fail_message(heed_error *why, const heed_mpi_message *m,
                                                const char *what, int error)
{
    char text[160];
    int kind = MPI_SUCCESS;
    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &kind);
    snprintf(text, sizeof text, "%s %s rank %d under tag %d, %lu bytes done of %lu%s",
             m->is_send ? "a send to" : "a receive from", what, m->peer, m->tag,
             (unsigned long)m->moved, (unsigned long)(m->moved + m->left),
             kind == MPI_ERR_TRUNCATE ? ": the message is longer" : "");
    return heed_mpi_fail(why, HEED_ERR_TRANSPORT, text, error);
}

/* The caller's communicators have their own error handlers, which abort unless chosen otherwise.
 * They are put aside during calls of MPI: that of the communicator while it is duplicated, and that
 * of MPI_COMM_WORLD while requests are tested, since MPICH 4.0 has forgotten by then which
 * communicator a request belongs to. */
static inline int heed_mpi_errors_return(MPI_Comm comm, MPI_Errhandler *before)
{
    int error = MPI_Comm_get_errhandler(comm, before);
    if (error == MPI_SUCCESS && *before != MPI_ERRORS_RETURN)
        error = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return error;
}

static inline void heed_mpi_errors_as_before(MPI_Comm comm, MPI_Errhandler *before)
{
    if (*before != MPI_ERRORS_RETURN)
        MPI_Comm_set_errhandler(comm, *before);
    if (*before != MPI_ERRHANDLER_NULL)
        MPI_Errhandler_free(before);
}

/* Whether further pieces may follow the one under way. */
static inline int heed_mpi_holds_channel(const heed_mpi_message *m)
{
    return !m->ended && (m->request == MPI_REQUEST_NULL || m->piece == HEED_MPI_PIECE);
}

static inline void heed_mpi_start_piece(heed_mpi *mpi, heed_mpi_message *m)
{
    m->piece = m->left < HEED_MPI_PIECE ? (int)m->left : HEED_MPI_PIECE;
    m->error = m->is_send ? MPI_Isend(m->data + m->moved, m->piece, MPI_BYTE, m->peer, m->tag,
                                      mpi->comm, &m->request)
                          : MPI_Irecv(m->data + m->moved, m->piece, MPI_BYTE, m->peer, m->tag,
                                      mpi->comm, &m->request);
    if (m->error != MPI_SUCCESS) {
        m->request = MPI_REQUEST_NULL;
        m->ended = 1;
    }
}

/* Tests the pieces under way until one is not done. */
static inline void heed_mpi_move(heed_mpi *mpi, heed_mpi_message *m)
{
    int done = 1, count;
    MPI_Status status;
    while (!m->ended && m->request != MPI_REQUEST_NULL) {
        m->error = MPI_Test(&m->request, &done, &status);
        if (m->error == MPI_SUCCESS && !done)
            return;
        count = m->piece;
        if (m->error == MPI_SUCCESS && !m->is_send)
            m->error = MPI_Get_count(&status, MPI_BYTE, &count);
        if (m->error != MPI_SUCCESS) {
            if (m->request != MPI_REQUEST_NULL)
                MPI_Request_free(&m->request);
            m->request = MPI_REQUEST_NULL;
            m->ended = 1;
            return;
        }
        m->moved += (size_t)count;
        m->left -= (size_t)count;
        if (count < HEED_MPI_PIECE)
            m->ended = 1;
        else
            heed_mpi_start_piece(mpi, m);
    }
}

/* Starts a message unless an earlier one holds its channel. */
static inline void heed_mpi_start(heed_mpi *mpi, heed_mpi_message *m)
{
    const heed_mpi_message *other = (const heed_mpi_message *)mpi->unfinished;
    for (; other && other != m; other = other->next)
        if (other->is_send == m->is_send && other->peer == m->peer && other->tag == m->tag &&
            heed_mpi_holds_channel(other))
            return;
    heed_mpi_start_piece(mpi, m);
}

static inline void heed_mpi_unlink(heed_mpi *mpi, heed_mpi_message *m)
{
    heed_mpi_message *other = (heed_mpi_message *)mpi->unfinished;
    if (other == m) {
        mpi->unfinished = m->next;
        return;
    }
    while (other && other->next != m)
        other = other->next;
    if (other)
        other->next = m->next;
}

/* Moves messages of several pieces on, the oldest first, and starts those that had to
 * wait and can go. */
static inline void heed_mpi_move_all(heed_mpi *mpi)
{
    heed_mpi_message *m = (heed_mpi_message *)mpi->unfinished, *next;
    for (; m; m = next) {
        next = m->next;
        if (!m->ended && m->request == MPI_REQUEST_NULL)
            heed_mpi_start(mpi, m);
        heed_mpi_move(mpi, m);
        if (!heed_mpi_holds_channel(m))
            heed_mpi_unlink(mpi, m);
    }
}

static inline heed_status heed_mpi_begin(heed_mpi *mpi, int is_send, uint32_t peer, uint32_t tag,
                                         void *data, size_t bytes, heed_request *request,
                                         heed_error *why)
{
    heed_mpi_message *m = (heed_mpi_message *)(void *)request, *last;
    if (tag > (uint32_t)mpi->tag_limit)
        return heed_mpi_fail(why, HEED_ERR_TRANSPORT, "the tag is above MPI's greatest", 0);
    memset(m, 0, sizeof *m);
    m->data = (char *)data;
    m->left = bytes;
    m->request = MPI_REQUEST_NULL;
    m->peer = (int)peer;
    m->tag = (int)tag;
    m->is_send = is_send;
    heed_mpi_start(mpi, m);
    if (heed_mpi_holds_channel(m)) {
        for (last = (heed_mpi_message *)mpi->unfinished; last && last->next;)
            last = last->next;
        if (last)
            last->next = m;
        else
            mpi->unfinished = m;
    }
    return m->error == MPI_SUCCESS ? HEED_OK
                                   : heed_mpi_fail_message(why, m, "did not start with", m->error);
}

static inline heed_status heed_mpi_send(void *user, uint32_t to, uint32_t tag, const void *data,
                                        size_t bytes, heed_request *request, heed_error *why)
{
    /* MPI does not write through it. */
    return heed_mpi_begin((heed_mpi *)user, 1, to, tag, (void *)(uintptr_t)data, bytes, request,
                          why);
}

static inline heed_status heed_mpi_receive(void *user, uint32_t from, uint32_t tag, void *data,
                                           size_t bytes, heed_request *request, heed_error *why)
{
    return heed_mpi_begin((heed_mpi *)user, 0, from, tag, data, bytes, request, why);
}

static inline heed_status heed_mpi_test(void *user, heed_request *request, uint32_t *done,
                                        size_t *bytes, heed_error *why)
{
    heed_mpi *mpi = (heed_mpi *)user;
    heed_mpi_message *m = (heed_mpi_message *)(void *)request;
    MPI_Errhandler world;
    heed_mpi_errors_return(MPI_COMM_WORLD, &world);
    heed_mpi_move(mpi, m);
    /* If the message has ended by that, it leaves the list here: its memory is the
     * caller's again. */
    heed_mpi_move_all(mpi);
    heed_mpi_errors_as_before(MPI_COMM_WORLD, &world);
    *done = 0;
    if (!m->ended)
        return HEED_OK;
    if (m->error != MPI_SUCCESS)
        return heed_mpi_fail_message(why, m, "failed,", m->error);
    *done = 1;
    if (bytes)
        *bytes = m->moved;
    return HEED_OK;
}

/* Lets others run: at first without sleeping, which would add to short waits, later by sleeping for
 * an eighth of the time waited so far, at most 100 us. MPI moves data only while it is called, a
 * few thousand bytes at a time through shared memory, so callers take off the time that a message
 * needs at half a gigabyte a second. */
static inline void heed_mpi_pause(double waited)
{
    struct timeval pause;
    double us = waited * 1e6 / 8;
    if (us < 10) {
        sched_yield();
        return;
    }
    pause.tv_sec = 0;
    pause.tv_usec = us < 100 ? (int)us : 100;
    select(0, NULL, NULL, NULL, &pause);
}

static inline heed_status heed_mpi_wait(void *user, heed_request *request, int64_t timeout_ns,
                                        uint32_t *done, size_t *bytes, heed_error *why)
{
    const heed_mpi_message *m = (const heed_mpi_message *)(const void *)request;
    const double start = MPI_Wtime(), bytes_of = (double)(m->left + m->moved);
    for (;;) {
        const double waited = MPI_Wtime() - start;
        const heed_status status = heed_mpi_test(user, request, done, bytes, why);
        if (status != HEED_OK || *done || waited * 1e9 >= (double)timeout_ns)
            return status;
        heed_mpi_pause(waited - 2e-9 * bytes_of);
    }
}

/* A receive that has met no message is given up at once, which MPI promises. A receive whose
 * message has begun to arrive ends when the rest is there, and the same may hold for a send, which
 * Open MPI never gives up: if the other rank is lost, they never end. Such a send may read its
 * memory at some later time, and such a receive write it, and the caller is told so. */
static inline heed_status heed_mpi_cancel(void *user, heed_request *request, heed_error *why)
{
    heed_mpi *mpi = (heed_mpi *)user;
    heed_mpi_message *m = (heed_mpi_message *)(void *)request;
    const double start = MPI_Wtime();
    int done = 0, error;
    MPI_Errhandler world;
    heed_mpi_unlink(mpi, m);
    if (m->ended || m->request == MPI_REQUEST_NULL)
        return HEED_OK;
    heed_mpi_errors_return(MPI_COMM_WORLD, &world);
    error = MPI_Cancel(&m->request);
    while (error == MPI_SUCCESS && !done) {
        const double waited = MPI_Wtime() - start;
        error = MPI_Test(&m->request, &done, MPI_STATUS_IGNORE);
        if (done || error != MPI_SUCCESS || waited * 1e9 >= HEED_MPI_CANCEL_NS)
            break;
        heed_mpi_pause(waited);
    }
    m->ended = 1;
    if (m->request != MPI_REQUEST_NULL)
        MPI_Request_free(&m->request);
    heed_mpi_errors_as_before(MPI_COMM_WORLD, &world);
    /* A request that failed has ended, too. */
    if (done || error != MPI_SUCCESS)
        return HEED_OK;
    return heed_mpi_fail_message(why, m, "cannot be given up with", error);
}

/* May this communicator carry a group? */
static inline heed_status heed_mpi_check(MPI_Comm comm, heed_error *why)
{
    int initialized = 0, finalized = 0, inter = 0, error;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return heed_mpi_fail(why, HEED_ERR_INVALID,
                             initialized ? "MPI has been finalized" : "MPI is not initialized", 0);
    if (comm == MPI_COMM_NULL)
        return heed_mpi_fail(why, HEED_ERR_INVALID, "comm is MPI_COMM_NULL", 0);
    error = MPI_Comm_test_inter(comm, &inter);
    if (error != MPI_SUCCESS || inter)
        return heed_mpi_fail(why, HEED_ERR_INVALID, "comm is no intracommunicator", error);
    return HEED_OK;
}

/* Makes a duplicate that returns its errors. */
static inline int heed_mpi_duplicate(MPI_Comm comm, MPI_Comm *out)
{
    MPI_Errhandler handler;
    int error = heed_mpi_errors_return(comm, &handler);
    *out = MPI_COMM_NULL;
    if (error != MPI_SUCCESS)
        return error;
    error = MPI_Comm_dup(comm, out);
    heed_mpi_errors_as_before(comm, &handler);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    if (error != MPI_SUCCESS && *out != MPI_COMM_NULL)
        MPI_Comm_free(out);
    return error;
}

/** @endcond */

/**
 * Duplicates a communicator and fills the transport of this rank in it. Collective: every rank of
 * comm calls it.
 *
 * comm     an intracommunicator; it may be freed while the transport is used
 * mpi      the caller's memory, of which the transport keeps the address
 * out      receives the transport, its struct_size included; written on success only
 * why      receives the sentence of a failure; NULL: there is none
 * Errors   HEED_ERR_INVALID   an argument is NULL, comm is MPI_COMM_NULL or joins two groups, or
 *          MPI is not initialised;
 *          HEED_ERR_TRANSPORT MPI could not duplicate it, and why.
 * Requests of the transport stay where they are until they have ended.
 */
static inline heed_status heed_mpi_open(MPI_Comm comm, heed_mpi *mpi, heed_transport *out,
                                        heed_error *why)
{
    int error, rank = 0, size = 0, found = 0;
    int *limit = NULL;
    heed_status status;
    if (!mpi || !out)
        return heed_mpi_fail(why, HEED_ERR_INVALID, "mpi and out have to be given", 0);
    status = heed_mpi_check(comm, why);
    if (status != HEED_OK)
        return status;
    error = heed_mpi_duplicate(comm, &mpi->comm);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_rank(mpi->comm, &rank);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_size(mpi->comm, &size);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&limit, &found);
    if (error != MPI_SUCCESS) {
        if (mpi->comm != MPI_COMM_NULL)
            MPI_Comm_free(&mpi->comm);
        return heed_mpi_fail(why, HEED_ERR_TRANSPORT, "the communicator cannot be duplicated",
                             error);
    }
    mpi->tag_limit = found ? *limit : 32767; /* MPI promises as much */
    mpi->unfinished = NULL;
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->user = mpi;
    out->rank = (uint32_t)rank;
    out->size = (uint32_t)size;
    out->send = heed_mpi_send;
    out->receive = heed_mpi_receive;
    out->test = heed_mpi_test;
    out->wait = heed_mpi_wait;
    out->cancel = heed_mpi_cancel;
    return HEED_OK;
}

/** Frees the duplicate; the transport may not be used any more, and every request of it has
 * ended. Collective. NULL and a closed one are allowed. Returns HEED_OK, or
 * HEED_ERR_TRANSPORT if MPI refuses. */
static inline heed_status heed_mpi_close(heed_mpi *mpi)
{
    if (!mpi || mpi->comm == MPI_COMM_NULL)
        return HEED_OK;
    return MPI_Comm_free(&mpi->comm) == MPI_SUCCESS ? HEED_OK : HEED_ERR_TRANSPORT;
}

HEED_END_C

#endif
