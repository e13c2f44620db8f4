/* heed/mpi.h when something goes wrong: late and missing messages, one that is too long, requests
 * that are cancelled, wrong arguments, and an MPI that fails. Each ends in time with a status and a
 * message, on the rank that can know about it, and nothing is written outside the buffer of a
 * receive. */
#include "counted.h"
#include "nodes.h"

enum { ROOM = 4096, LONG = 1 << 22 }; /* LONG is more than any MPI sends before a receive */
static const unsigned char untouched = 0x5a;
static unsigned char in[ROOM + 64], out[LONG], late[LONG];

static size_t changed(const unsigned char *data, size_t from, size_t to)
{
    size_t n = 0;
    for (; from < to; from++)
        n += data[from] != untouched;
    return n;
}

/* When no message comes, the wait ends when its time has passed, not much later, and the receive is
 * cancelled; what is sent afterwards arrives at the next receive. */
static void late_message(const heed_transport *t)
{
    const uint32_t to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size;
    heed_error why = {""};
    heed_request given_up, request, sending;
    uint32_t done = 1;
    size_t bytes = 0;
    memset(in, untouched, sizeof in);
    CHECK(t->receive(t->user, from, 1, in, ROOM, &given_up, &why) == HEED_OK, "%s", why.text);
    const double start = MPI_Wtime();
    CHECK(t->wait(t->user, &given_up, SECOND / 10, &done, &bytes, &why) == HEED_OK && !done, "%s",
          why.text);
    const double waited = MPI_Wtime() - start;
    CHECK(waited >= 0.1 && waited < 2, "waited %g s for 0.1", waited);
    CHECK(t->cancel(t->user, &given_up, &why) == HEED_OK, "%s", why.text);
    MPI_Barrier(MPI_COMM_WORLD);
    memset(out, 1, ROOM);
    CHECK(t->receive(t->user, from, 1, late, ROOM, &request, &why) == HEED_OK, "%s", why.text);
    CHECK(t->send(t->user, to, 1, out, ROOM, &sending, &why) == HEED_OK, "%s", why.text);
    CHECK(t->wait(t->user, &request, PATIENCE, &done, &bytes, &why) == HEED_OK && done, "%s",
          why.text);
    CHECK(bytes == ROOM && late[ROOM - 1] == 1, "%zu bytes", bytes);
    CHECK(t->wait(t->user, &sending, PATIENCE, &done, &bytes, &why) == HEED_OK && done, "%s",
          why.text);
    CHECK(changed(in, 0, sizeof in) == 0, "a receive that was given up wrote");
}

/* A message that is longer than the buffer is a failure, whose text has the number of bytes, and
 * nothing is written beyond the buffer. With pieces of 64 bytes it is noticed in the first piece or
 * in a later one. */
static void too_long(const heed_transport *t, uint32_t tag, size_t room, size_t bytes)
{
    const uint32_t to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size;
    heed_error why = {""};
    heed_request receiving, sending;
    uint32_t done = 1;
    size_t got = 0;
    memset(in, untouched, sizeof in);
    memset(out, 1, bytes);
    CHECK(t->receive(t->user, from, tag, in, room, &receiving, &why) == HEED_OK, "%s", why.text);
    CHECK(t->send(t->user, to, tag, out, bytes, &sending, &why) == HEED_OK, "%s", why.text);
    CHECK(t->wait(t->user, &receiving, PATIENCE, &done, &got, &why) == HEED_ERR_TRANSPORT && !done,
          "%zu bytes into %zu", got, room);
    CHECK(strstr(why.text, "a receive from") && strstr(why.text, "the message is longer"), "%s",
          why.text);
    CHECK(changed(in, room, sizeof in) == 0, "%zu bytes behind the room",
          changed(in, room, sizeof in));
    /* The pieces after the one that failed are never received, so each call has its own tag. */
    if (bytes / HEED_MPI_PIECE == room / HEED_MPI_PIECE)
        CHECK(t->wait(t->user, &sending, PATIENCE, &done, &got, &why) == HEED_OK && done, "%s",
              why.text);
    else
        t->cancel(t->user, &sending, &why);
}

/* Cancelling receives that wait for the last piece of another rank, and sends that nobody receives.
 * Where MPI cannot cancel a request, the status says so; either way it takes no longer than
 * promised. */
static void give_up(const heed_transport *t)
{
    const uint32_t to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size;
    heed_request receiving[3], sending;
    heed_error why = {""};
    heed_status status;
    memset(in, untouched, sizeof in);
    for (int i = 0; i < 3; i++)
        CHECK(t->receive(t->user, from, 3, in, ROOM, &receiving[i], &why) == HEED_OK, "%s",
              why.text);
    for (int i = 0; i < 3; i++) /* begins with the middle one */
        CHECK(t->cancel(t->user, &receiving[(i + 1) % 3], &why) == HEED_OK, "%s", why.text);
    CHECK(changed(in, 0, sizeof in) == 0, "written");
    if (t->size == 1)
        return; /* MPI may complete a send to oneself at once: then there is nothing to cancel */
    const double start = MPI_Wtime();
    CHECK(t->send(t->user, to, 4, out, LONG, &sending, &why) == HEED_OK, "%s", why.text);
    why.text[0] = '\0';
    status = t->cancel(t->user, &sending, &why);
    CHECK(MPI_Wtime() - start < 5, "took %g s", MPI_Wtime() - start);
    CHECK(status == HEED_OK || (status == HEED_ERR_TRANSPORT &&
                                strstr(why.text, "a send to cannot be given up with rank")),
          "%d %s", status, why.text);
    /* A send that MPI could not cancel needs a receiver now: it may never end otherwise. */
    int mine = status != HEED_OK, theirs = 0;
    MPI_Sendrecv(&mine, 1, MPI_INT, (int)to, 0, &theirs, 1, MPI_INT, (int)from, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (theirs) {
        heed_mpi *mpi = t->user;
        MPI_Recv(late, HEED_MPI_PIECE < LONG ? HEED_MPI_PIECE : LONG, MPI_BYTE, (int)from, 4,
                 mpi->comm, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* When a call into MPI fails once, the caller gets a status and MPI's error message, and the
 * transport works as before. */
static void mpi_fails(const heed_transport *t)
{
    heed_request request, other;
    heed_error why = {""};
    uint32_t done = 0;
    size_t bytes;
    char words[MPI_MAX_ERROR_STRING];
    int length;
    calls.fail_isend = 1;
    CHECK(t->send(t->user, 0, 5, out, 3, &request, &why) == HEED_ERR_TRANSPORT, "no failure");
    MPI_Error_string(MPI_ERR_OTHER, words, &length);
    CHECK(strstr(why.text, "a send to did not start with rank 0") && strstr(why.text, words), "%s",
          why.text);
    calls.fail_irecv = 1;
    CHECK(t->receive(t->user, 0, 5, in, 3, &request, &why) == HEED_ERR_TRANSPORT, "no failure");
    CHECK(strstr(why.text, "a receive from did not start"), "%s", why.text);
    CHECK(t->receive(t->user, t->rank, 5, in, 3, &request, &why) == HEED_OK, "%s", why.text);
    calls.fail_test = 1;
    CHECK(t->test(t->user, &request, &done, &bytes, &why) == HEED_ERR_TRANSPORT && !done, "%u",
          done);
    CHECK(strstr(why.text, "a receive from failed, rank"), "%s", why.text);
    /* MPI may still complete that receive, so a message is sent for it to take. */
    CHECK(t->send(t->user, t->rank, 5, out, 3, &other, &why) == HEED_OK, "%s", why.text);
    CHECK(t->wait(t->user, &other, PATIENCE, &done, &bytes, &why) == HEED_OK && done, "%s",
          why.text);
}

/* Wrong arguments are refused with a status: neither MPI nor the caller's error handler ends the
 * program. */
static void wrong_arguments(const heed_transport *t)
{
    MPI_Comm half, inter;
    heed_mpi mpi;
    heed_transport none = {.rank = 99};
    heed_error why = {""};
    heed_request request;
    CHECK(heed_mpi_open(MPI_COMM_NULL, &mpi, &none, &why) == HEED_ERR_INVALID, "NULL");
    CHECK(strstr(why.text, "comm is MPI_COMM_NULL"), "%s", why.text);
    CHECK(heed_mpi_open(MPI_COMM_WORLD, NULL, &none, &why) == HEED_ERR_INVALID, "mpi");
    CHECK(heed_mpi_open(MPI_COMM_WORLD, &mpi, NULL, NULL) == HEED_ERR_INVALID, "out");
    CHECK(heed_mpi_close(NULL) == HEED_OK, "close of NULL");
    calls.fail_dup = 1;
    CHECK(heed_mpi_open(MPI_COMM_WORLD, &mpi, &none, &why) == HEED_ERR_TRANSPORT, "no failure");
    CHECK(strstr(why.text, "the communicator cannot be duplicated: "), "%s", why.text);
    CHECK(none.rank == 99, "out was written");
    const uint32_t limit = (uint32_t)((heed_mpi *)t->user)->tag_limit;
    CHECK(limit >= 32767, "%u", limit);
    CHECK(t->send(t->user, 0, limit + 1, out, 1, &request, &why) == HEED_ERR_TRANSPORT, "tag");
    CHECK(strstr(why.text, "the tag is above MPI's greatest"), "%s", why.text);
    if (t->size == 1)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, (int)t->rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, !(t->rank % 2), 6, &inter);
    CHECK(heed_mpi_open(inter, &mpi, &none, &why) == HEED_ERR_INVALID, "two groups");
    CHECK(strstr(why.text, "comm is no intracommunicator"), "%s", why.text);
    PMPI_Comm_free(&inter);
    PMPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    heed_mpi mpi, unused;
    heed_transport t;
    heed_error why = {""};
    if (heed_mpi_open(MPI_COMM_WORLD, &unused, &t, &why) != HEED_ERR_INVALID ||
        strcmp(why.text, "MPI is not initialized") != 0)
        return 1;
    MPI_Errhandler before, after;
    MPI_Init(&argc, &argv);
    PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    CHECK(heed_mpi_open(MPI_COMM_WORLD, &mpi, &t, &why) == HEED_OK, "%s", why.text);
    wrong_arguments(&t);
    late_message(&t);
    give_up(&t);
    mpi_fails(&t);
    if (t.size > 1) { /* Open MPI 4.1 truncates messages that a rank sends to itself */
        too_long(&t, 20, 63, 64);
        too_long(&t, 21, 40, 50);
        too_long(&t, 22, 0, 1);
        too_long(&t, 23, 100, 120);
        too_long(&t, 24, 64, 65);
    }
    PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    CHECK(before == after && before != MPI_ERRORS_RETURN, "the caller's error handler is another");
    CHECK(calls.started == calls.ended, "%d requests, %d ended", calls.started, calls.ended);
    CHECK(heed_mpi_close(&mpi) == HEED_OK, "close");
    CHECK(calls.duplicates == calls.freed && calls.handlers == 0, "%d duplicates, %d freed",
          calls.duplicates, calls.freed);
    const int verdict = nodes_verdict("failing");
    MPI_Finalize();
    why.text[0] = '\0';
    if (heed_mpi_open(MPI_COMM_WORLD, &unused, &t, &why) != HEED_ERR_INVALID ||
        strcmp(why.text, "MPI has been finalized") != 0)
        return 1;
    return verdict;
}
