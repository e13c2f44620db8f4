/* heed/mpi.h alone: messages of every size, in every communicator, arrive whole and in order. It is
 * compiled twice: as it is, and with pieces of 64 bytes. */
#include "counted.h"
#include "nodes.h"

enum { MOST = 5000, N_SIZES = 16 };
static const size_t sizes[N_SIZES] = {0,   1,   3,   63,  64,  65,   127,  128,
                                      129, 191, 192, 193, 640, 1000, 4097, MOST};
static const unsigned char untouched = 0xa5;

/* Byte i of message `number` from one rank to another. */
static unsigned char byte_of(uint32_t from, uint32_t to, size_t number, size_t i)
{
    return (unsigned char)(i * 31 + i / 251 + number * 101 + from * 17 + to * 7);
}

/* A message and its request. */
typedef struct letter {
    unsigned char data[MOST + 600];
    size_t bytes, room, number;
    uint32_t peer, tag;
    heed_request request;
} letter;

static letter *letters_of(size_t n)
{
    letter *all = calloc(n + 1, sizeof *all);
    if (!all)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return all;
}

static void post(const heed_transport *t, letter *l, uint32_t to, uint32_t tag, size_t number,
                 size_t bytes)
{
    heed_error why = {""};
    *l = (letter){.bytes = bytes, .number = number, .peer = to, .tag = tag};
    for (size_t i = 0; i < bytes; i++)
        l->data[i] = byte_of(t->rank, to, number, i);
    CHECK(t->send(t->user, to, tag, l->data, bytes, &l->request, &why) == HEED_OK, "%s", why.text);
}

static void expect(const heed_transport *t, letter *l, uint32_t from, uint32_t tag, size_t number,
                   size_t bytes, size_t room)
{
    heed_error why = {""};
    *l = (letter){.bytes = bytes, .room = room, .number = number, .peer = from, .tag = tag};
    memset(l->data, untouched, sizeof l->data);
    CHECK(t->receive(t->user, from, tag, l->data, room, &l->request, &why) == HEED_OK, "%s",
          why.text);
}

static void finish(const heed_transport *t, letter *l, size_t *bytes)
{
    heed_error why = {""};
    uint32_t done = 7;
    CHECK(t->wait(t->user, &l->request, PATIENCE, &done, bytes, &why) == HEED_OK, "%s", why.text);
    CHECK(done == 1, "peer %u tag %u: not done in time", l->peer, l->tag);
}

static void sent(const heed_transport *t, letter *l)
{
    size_t unused = 0;
    finish(t, l, &unused);
}

static void compare(const heed_transport *t, const letter *l, size_t bytes)
{
    size_t wrong = 0, behind = 0;
    CHECK(bytes == l->bytes, "%zu bytes of %zu, room %zu", bytes, l->bytes, l->room);
    for (size_t i = 0; i < l->bytes; i++)
        wrong += l->data[i] != byte_of(l->peer, t->rank, l->number, i);
    for (size_t i = l->room; i < sizeof l->data; i++)
        behind += l->data[i] != untouched;
    CHECK(wrong == 0, "%zu of %zu bytes from %u are wrong", wrong, l->bytes, l->peer);
    CHECK(behind == 0, "%zu bytes behind the room were written", behind);
}

static void arrived(const heed_transport *t, letter *l)
{
    size_t bytes = 12345;
    finish(t, l, &bytes);
    compare(t, l, bytes);
}

/* Messages of every size to every rank, oneself included, into buffers of just that size and
 * greater ones. MPI's messages are counted: n bytes take n / piece whole pieces and a shorter
 * one. */
static void every_size(const heed_transport *t)
{
    letter *two = letters_of(2);
    for (uint32_t d = 0; d < t->size; d++) {
        const uint32_t to = (t->rank + d) % t->size, from = (t->rank + t->size - d) % t->size;
        for (size_t n = 0; n < N_SIZES; n++) {
            const int before = calls.sends;
            expect(t, &two[0], from, 5, n, sizes[n], sizes[n] + n % 4 * 150);
            post(t, &two[1], to, 5, n, sizes[n]);
            arrived(t, &two[0]);
            sent(t, &two[1]);
            CHECK(calls.sends - before == (int)(sizes[n] / HEED_MPI_PIECE) + 1, "%d messages",
                  calls.sends - before);
        }
    }
    free(two);
}

/* n messages between each two ranks with one tag arrive in the order in which they were sent,
 * although they are waited for from the last to the first. The receives are all posted before, or
 * all after, the sends. */
static void in_order(const heed_transport *t, int sends_first, size_t n)
{
    const size_t all = n * t->size;
    letter *in = letters_of(all), *out = letters_of(all);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < all; i++) {
            const uint32_t peer = (uint32_t)(i % t->size);
            const size_t number = i / t->size, bytes = sizes[number * 7 % N_SIZES];
            if (turn == sends_first)
                expect(t, &in[i], peer, 9, number, bytes, MOST);
            else
                post(t, &out[i], peer, 9, number, bytes);
        }
    for (size_t i = all; i-- > 0;)
        arrived(t, &in[i]);
    for (size_t i = all; i-- > 0;)
        sent(t, &out[i]);
    free(in);
    free(out);
}

/* With several tags at once, messages of each tag arrive in order, in whichever order the receives
 * of the tags are posted. */
static void tags_apart(const heed_transport *t)
{
    enum { TAGS = 5, EACH = 6 };
    const uint32_t to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size;
    letter *in = letters_of(TAGS * EACH), *out = letters_of(TAGS * EACH);
    for (uint32_t i = 0; i < TAGS * EACH; i++)
        post(t, &out[i], to, i % TAGS, i, sizes[i % N_SIZES]);
    for (uint32_t tag = TAGS; tag-- > 0;)
        for (uint32_t i = tag; i < TAGS * EACH; i += TAGS)
            expect(t, &in[i], from, tag, i, sizes[i % N_SIZES], MOST);
    for (uint32_t i = 0; i < TAGS * EACH; i++)
        arrived(t, &in[i]);
    for (uint32_t i = 0; i < TAGS * EACH; i++)
        sent(t, &out[i]);
    free(in);
    free(out);
}

static void everything(const heed_transport *t)
{
    every_size(t);
    in_order(t, 0, 40);
    in_order(t, 1, 40);
    tags_apart(t);
}

/* Opens a transport and frees its communicator at once: the transport works on a duplicate. */
static void open_and_free(MPI_Comm *comm, heed_mpi *mpi, heed_transport *t)
{
    heed_error why = {""};
    CHECK(heed_mpi_open(*comm, mpi, t, &why) == HEED_OK, "%s", why.text);
    if (*comm != MPI_COMM_WORLD)
        MPI_Comm_free(comm);
}

/* One process is in two groups at once: messages of the two with the same tag are kept apart. */
static void two_at_once(const heed_transport *a, const heed_transport *b)
{
    letter *l = letters_of(4);
    const heed_transport *t[2] = {a, b};
    heed_error why = {""};
    for (size_t n = 0; n < N_SIZES; n++) {
        for (int i = 0; i < 2; i++) /* the sends in the opposite order of the receives */
            post(t[!i], &l[2 + !i], (t[!i]->rank + 1) % t[!i]->size, 3, n + 50 * (size_t)!i,
                 sizes[n]);
        for (int i = 0; i < 2; i++)
            expect(t[i], &l[i], (t[i]->rank + t[i]->size - 1) % t[i]->size, 3, n + 50 * (size_t)i,
                   sizes[n], MOST);
        uint32_t done[4] = {0};
        size_t bytes[4] = {0};
        const double start = MPI_Wtime();
        while (!(done[0] && done[1] && done[2] && done[3]) && MPI_Wtime() - start < 60)
            for (int i = 0; i < 4; i++)
                if (!done[i])
                    CHECK(t[i % 2]->test(t[i % 2]->user, &l[i].request, &done[i], &bytes[i],
                                         &why) == HEED_OK,
                          "%s", why.text);
        CHECK(done[0] && done[1] && done[2] && done[3], "not done in time");
        for (int i = 0; i < 2; i++)
            compare(t[i], &l[i], bytes[i]);
    }
    free(l);
}

/* Transports of several communicators beside the world: halves, all ranks in reverse, and each rank
 * alone. Meanwhile a receive of the caller, from any rank and with any tag, gets none of their
 * messages. */
static void communicators(const heed_transport *world)
{
    MPI_Comm half, reversed, alone, own;
    MPI_Request request;
    heed_mpi mpi[3];
    heed_transport t[3];
    int word = 0, done = 0, rank = (int)world->rank;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &alone);
    own = MPI_COMM_WORLD;
    PMPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, own, &request);
    open_and_free(&half, &mpi[0], &t[0]);
    open_and_free(&reversed, &mpi[1], &t[1]);
    open_and_free(&alone, &mpi[2], &t[2]);
    CHECK(t[0].rank == world->rank / 2 && t[0].size == (world->size + 1 - world->rank % 2) / 2,
          "rank %u of %u in its half", t[0].rank, t[0].size);
    CHECK(t[1].rank == world->size - 1 - world->rank && t[1].size == world->size, "%u of %u",
          t[1].rank, t[1].size);
    CHECK(t[2].rank == 0 && t[2].size == 1, "%u of %u", t[2].rank, t[2].size);
    for (int i = 0; i < 3; i++)
        everything(&t[i]);
    two_at_once(world, &t[1]);
    two_at_once(&t[0], world);
    two_at_once(&t[2], &t[1]);
    PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
    CHECK(!done, "the caller's own receive took a message");
    PMPI_Cancel(&request);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++) {
        CHECK(heed_mpi_close(&mpi[i]) == HEED_OK, "close");
        CHECK(mpi[i].comm == MPI_COMM_NULL && heed_mpi_close(&mpi[i]) == HEED_OK, "close again");
    }
}

/* A message of more bytes than MPI's counts can express, from rank 0 to the last. */
static void beyond_int(const heed_transport *t, size_t bytes)
{
    unsigned char *data = malloc(bytes + 64);
    heed_request request;
    heed_error why = {""};
    uint32_t done = 0;
    size_t got = 0, wrong = 0;
    const int sends = t->rank == 0, receives = t->rank == t->size - 1;
    if (!data)
        MPI_Abort(MPI_COMM_WORLD, 3);
    for (size_t i = 0; sends && i < bytes; i++)
        data[i] = (unsigned char)(i ^ i >> 9 ^ i >> 17 ^ i >> 30);
    if (sends)
        CHECK(t->send(t->user, t->size - 1, 2, data, bytes, &request, &why) == HEED_OK, "%s",
              why.text);
    if (receives)
        CHECK(t->receive(t->user, 0, 2, data, bytes + 64, &request, &why) == HEED_OK, "%s",
              why.text);
    if (sends || receives)
        CHECK(t->wait(t->user, &request, PATIENCE, &done, &got, &why) == HEED_OK && done, "%s",
              why.text);
    for (size_t i = 0; receives && i < bytes; i++)
        wrong += data[i] != (unsigned char)(i ^ i >> 9 ^ i >> 17 ^ i >> 30);
    if (receives)
        CHECK(got == bytes && wrong == 0, "%zu bytes, %zu wrong", got, wrong);
    free(data);
}

int main(int argc, char **argv)
{
    heed_mpi mpi;
    heed_transport t;
    heed_error why = {""};
    MPI_Init(&argc, &argv);
    CHECK(heed_mpi_open(MPI_COMM_WORLD, &mpi, &t, &why) == HEED_OK, "%s", why.text);
    if (argc > 1 && t.size > 1) {
        beyond_int(&t, strtoull(argv[1], NULL, 10));
    } else {
        everything(&t);
        communicators(&t);
    }
    CHECK(heed_mpi_close(&mpi) == HEED_OK, "close");
    CHECK(calls.started > 0 && calls.started == calls.ended, "%d requests, %d ended", calls.started,
          calls.ended);
    CHECK(calls.duplicates > 0 && calls.freed == calls.duplicates + (argc > 1 ? 0 : 3),
          "%d duplicates and 3 communicators, %d freed", calls.duplicates, calls.freed);
    CHECK(calls.handlers == 0, "%d error handlers are still held", calls.handlers);
    const int verdict = nodes_verdict("transport");
    MPI_Finalize();
    return verdict;
}
