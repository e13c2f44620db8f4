/* Messages between ranks: each begins with a header, all waits of a call share its time, and a rank
 * that fails tells those that wait for it. */
#ifndef HEED_CORE_WIRE_H
#define HEED_CORE_WIRE_H

#include <heed/group.h>

enum { HEED_WIRE_PARTIAL = 1, HEED_WIRE_RESULT, HEED_WIRE_KEYS, HEED_WIRE_ROWS };

#define HEED_WIRE_EVERYONE UINT32_MAX
#define HEED_WIRE_NOBODY (UINT32_MAX - 1)

/* What a message begins with. */
typedef struct heed_wire_header {
    uint64_t magic;
    uint64_t call;  /* heed_agreed_call; not looked at in a notice of a failure */
    uint64_t bytes; /* behind the header */
    uint32_t kind, step;
    int32_t status;  /* of the sender: unless HEED_OK, a sentence is behind the header */
    uint32_t origin; /* the rank that failed */
    char zero[24];
} heed_wire_header;
_Static_assert(sizeof(heed_wire_header) == 64, "as docs/nodes.md counts");

/* The least room of a receive, because the sentence of a failure has to fit, too. */
#define HEED_WIRE_LEAST (sizeof(heed_wire_header) + sizeof(heed_error))

/* The room of a message with so many bytes behind its header. */
static inline size_t heed_wire_room(size_t bytes)
{
    bytes += sizeof(heed_wire_header);
    return bytes < HEED_WIRE_LEAST ? HEED_WIRE_LEAST : bytes;
}

/* A message that is under way. It stays where it is, because its request may not move. */
typedef struct heed_wire_message {
    heed_request request;
    void *data;   /* its header */
    size_t bytes; /* behind the header */
    uint32_t rank, kind, step;
    uint16_t sends, under_way;
    uint32_t listens; /* to what only a rank that fails sends */
} heed_wire_message;

typedef struct heed_wire {
    heed_context *context; /* its memory is for notices of a failure */
    const heed_transport *transport;
    heed_wire_message *message;
    uint32_t n;        /* messages that are in use */
    uint32_t *owed;    /* [size] messages that a rank still waits for; NULL: see waiter */
    uint32_t waiter;   /* the rank that waits for this one, or HEED_WIRE_EVERYONE or _NOBODY */
    uint32_t listener; /* the one that only listens to this one, in the same way */
    uint64_t call;
    int64_t left, limit; /* nanoseconds that may still be waited, and at first */
    heed_status status;  /* of the first failure; why then has its sentence */
    uint32_t origin;
    heed_error *why;  /* as the caller reads it */
    heed_error plain; /* and without "rank n failed:" */
    int kept;         /* set at the end: the transport may still use the messages' memory */
} heed_wire;

/* Writes the header of a message of `bytes` bytes, which lie behind it. */
void heed_wire_address(const heed_wire *w, uint32_t kind, uint32_t step, void *data, size_t bytes);

/* Starts to send such a message. It may be sent to several ranks. */
heed_status heed_wire_send(heed_wire *w, uint32_t to, uint32_t kind, uint32_t step, void *data,
                           size_t bytes);

/* Starts to receive such a message; data has room for it, and for HEED_WIRE_LEAST bytes. */
heed_status heed_wire_receive(heed_wire *w, uint32_t from, uint32_t kind, uint32_t step, void *data,
                              size_t bytes);

/* Starts to receive from a rank that sends nothing unless it fails; data has HEED_WIRE_LEAST bytes.
 * heed_wire_wait does not wait for that, and the end of the call gives it up. The message has a tag
 * of its own, because that rank may be in the next call already, and what it sends there is not for
 * this one; nor is what it says when it has taken all that it is owed. */
heed_status heed_wire_listen(heed_wire *w, uint32_t from, void *data);

/* Moves on what is under way, without waiting. */
heed_status heed_wire_poll(heed_wire *w);

/* Waits for the receives that are under way (all: for sends, too). */
heed_status heed_wire_wait(heed_wire *w, int all);

/* Waits for the last sends of a call. Meanwhile this rank listens to those that have not taken
 * theirs. notice: [size] of HEED_WIRE_LEAST bytes each; those that are used become NULL. */
heed_status heed_wire_finish(heed_wire *w, char **notice);

/* Ends a call with that status, whose sentence is in why: gives up what is under way and, after a
 * failure, tells those that still wait for this rank. Returns the status, or HEED_ERR_TRANSPORT if
 * that was HEED_OK and something cannot be given up: it may write to its memory, now or later. */
heed_status heed_wire_end(heed_wire *w, heed_status status);

#endif
