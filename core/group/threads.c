/* A transport between threads of one process: mailboxes without locks.
 *
 * From each rank to each other one there is a mailbox of a few slots. The sender posts where its
 * data are, and the receiver copies them. Small messages are copied into the slot by the sender,
 * which is done then. A slot belongs to the sender while it is FREE or, after a small message,
 * TAKEN, and to the receiver while it is POSTED or COPYING; GONE marks a message that its sender
 * took back. Slots are used in turn. */
#define _GNU_SOURCE
#include <heed/group.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/reason.h"

enum { FREE, POSTED, COPYING, TAKEN, GONE };
enum { SLOTS = 4, SMALL = 384, MOST_RANKS = 1024 };

/* How often a wait looks before it lets other threads run, and before it sleeps between looks.
 * On a busy machine a thread that yields may come back after milliseconds; one that sleeps
 * comes back soon. */
enum { SPINS = 500, YIELDS = 520, SLEEP = 20000 };

typedef struct slot {
    atomic_uint state;
    uint32_t tag;
    const void *data;
    size_t bytes;
    int is_small;
    char small[SMALL];
} slot;

typedef struct request request;

/* One rank's messages to another. */
typedef struct mailbox {
    slot slot[SLOTS];
    /* the sender's: messages posted so far, and sends that found no free slot, in their order */
    HEED_ALIGNED(128) uint64_t posted;
    request *first_unposted, *last_unposted;
    /* the receiver's: how many messages have ended without a gap, which of those behind them have,
     * and receives in their order */
    HEED_ALIGNED(128) uint64_t ended;
    unsigned ended_after; /* bit i: message ended + i */
    request *first_receive, *last_receive;
} mailbox;

struct heed_group_threads {
    uint32_t size;
    struct member {
        heed_group_threads *group;
        uint32_t rank;
    } * member;
    mailbox *mailbox; /* [from, to] */
};

/* What a heed_request holds. */
struct request {
    request *next; /* in its mailbox's list of sends or receives */
    mailbox *box;
    slot *slot; /* of a send that was posted */
    void *data;
    size_t bytes; /* of a send; room of a receive, then what has arrived */
    uint32_t tag, is_send;
    uint32_t done, is_listed;
    size_t sent; /* to a receive that had too little room */
};
_Static_assert(sizeof(request) <= sizeof(heed_request), "it has to fit");

/* ---- lists ------------------------------------------------------------------------------------
 */

static void append(request **first, request **last, request *r)
{
    r->next = NULL;
    r->is_listed = 1;
    if (*first)
        (*last)->next = r;
    else
        *first = r;
    *last = r;
}

static void take_out(request **first, request **last, request *r)
{
    request *before = NULL;
    for (request *at = *first; at; before = at, at = at->next) {
        if (at != r)
            continue;
        *(before ? &before->next : first) = r->next;
        if (*last == r)
            *last = before;
        break;
    }
    r->is_listed = 0;
}

/* ---- the sender -------------------------------------------------------------------------------
 */

/* Posts sends that found no slot, the oldest first, as far as there are free ones now. */
static void post(mailbox *box)
{
    request *r;
    while ((r = box->first_unposted) != NULL) {
        slot *s = &box->slot[box->posted % SLOTS];
        const unsigned state = atomic_load_explicit(&s->state, memory_order_acquire);
        if (state != FREE && !(state == TAKEN && s->is_small))
            return;
        s->tag = r->tag;
        s->bytes = r->bytes;
        s->data = r->data;
        s->is_small = r->bytes <= SMALL;
        if (s->is_small) {
            if (r->bytes)
                memcpy(s->small, r->data, r->bytes);
            s->data = s->small;
            r->done = 1;
        } else {
            r->slot = s;
        }
        box->posted++;
        take_out(&box->first_unposted, &box->last_unposted, r);
        atomic_store_explicit(&s->state, POSTED, memory_order_release);
    }
}

static void move_send(request *r)
{
    post(r->box);
    if (r->slot && atomic_load_explicit(&r->slot->state, memory_order_acquire) == TAKEN) {
        atomic_store_explicit(&r->slot->state, FREE, memory_order_release);
        r->slot = NULL;
        r->done = 1;
    }
}

/* Takes a posted message back, unless the receiver has it already or is copying it now. */
static void cancel_send(request *r)
{
    unsigned state = POSTED;
    if (r->is_listed)
        take_out(&r->box->first_unposted, &r->box->last_unposted, r);
    if (!r->slot || atomic_compare_exchange_strong(&r->slot->state, &state, GONE))
        return;
    while (atomic_load_explicit(&r->slot->state, memory_order_acquire) == COPYING)
        sched_yield();
    atomic_store_explicit(&r->slot->state, FREE, memory_order_release);
}

/* ---- the receiver -----------------------------------------------------------------------------
 */

static void end_message(mailbox *box, unsigned after)
{
    box->ended_after |= 1u << after;
    while (box->ended_after & 1) {
        box->ended_after >>= 1;
        box->ended++;
    }
}

/* Looks for the message `after` places behind the ended ones. If it is there its slot is taken for
 * copying. Sets *more to 0 if no later message can be there. */
static slot *claim(mailbox *box, unsigned after, uint32_t tag, int *more)
{
    slot *s = &box->slot[(box->ended + after) % SLOTS];
    unsigned state = atomic_load_explicit(&s->state, memory_order_acquire);
    if (box->ended_after >> after & 1)
        return NULL;
    if (state == POSTED && s->tag != tag)
        return NULL;
    if (state == POSTED && atomic_compare_exchange_strong(&s->state, &state, COPYING))
        return s;
    if (state == GONE) {
        end_message(box, after);
        atomic_store_explicit(&s->state, FREE, memory_order_release);
        *more = 2; /* the places have moved */
        return NULL;
    }
    *more = 0;
    return NULL;
}

static slot *find(mailbox *box, uint32_t tag, unsigned *after)
{
    int more = 1;
    for (*after = 0; *after < SLOTS && more; *after = more == 2 ? 0 : *after + 1) {
        more = 1;
        slot *s = claim(box, *after, tag, &more);
        if (s)
            return s;
    }
    return NULL;
}

/* Does an older receive of its tag wait? A message that was posted since the look for that one is
 * not for this one. */
static int is_second(const mailbox *box, const request *r)
{
    const request *at = box->first_receive;
    while (at != r && at->tag != r->tag)
        at = at->next;
    return at != r;
}

/* Gives receives the messages that are there, the oldest receive first. */
static void fetch(mailbox *box)
{
    for (request *r = box->first_receive, *next; r; r = next) {
        unsigned after;
        slot *s = is_second(box, r) ? NULL : find(box, r->tag, &after);
        next = r->next;
        if (!s)
            continue;
        const size_t n = s->bytes;
        if (n && n <= r->bytes)
            memcpy(r->data, s->data, n);
        r->sent = n;
        r->done = 1;
        take_out(&box->first_receive, &box->last_receive, r);
        end_message(box, after);
        atomic_store_explicit(&s->state, TAKEN, memory_order_release);
    }
}

/* ---- the table --------------------------------------------------------------------------------
 */

static heed_status check_peer(const struct member *me, uint32_t peer, heed_error *why)
{
    if (peer < me->group->size && peer != me->rank)
        return HEED_OK;
    INVALID("there is no other rank %u among %u", peer, me->group->size);
}

static heed_status send_to(void *user, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                           heed_request *room, heed_error *why)
{
    const struct member *me = user;
    request *r = (request *)(void *)room;
    heed_status st = check_peer(me, to, why);
    if (st != HEED_OK)
        return st;
    mailbox *box = &me->group->mailbox[(size_t)me->rank * me->group->size + to];
    *r = (request){.box = box, .data = (void *)data, .bytes = bytes, .tag = tag, .is_send = 1};
    append(&box->first_unposted, &box->last_unposted, r);
    post(box);
    return HEED_OK;
}

static heed_status receive_from(void *user, uint32_t from, uint32_t tag, void *data, size_t bytes,
                                heed_request *room, heed_error *why)
{
    const struct member *me = user;
    request *r = (request *)(void *)room;
    heed_status st = check_peer(me, from, why);
    if (st != HEED_OK)
        return st;
    mailbox *box = &me->group->mailbox[(size_t)from * me->group->size + me->rank];
    *r = (request){.box = box, .data = data, .bytes = bytes, .tag = tag};
    append(&box->first_receive, &box->last_receive, r);
    return HEED_OK;
}

static heed_status test(void *user, heed_request *room, uint32_t *done, size_t *bytes,
                        heed_error *why)
{
    request *r = (request *)(void *)room;
    (void)user;
    if (r->is_send)
        move_send(r);
    else
        fetch(r->box);
    *done = r->done;
    *bytes = r->sent;
    if (r->done && !r->is_send && r->sent > r->bytes)
        INVALID("a message has %zu bytes, there is room for %zu", r->sent, r->bytes);
    return HEED_OK;
}

static heed_status wait(void *user, heed_request *room, int64_t timeout_ns, uint32_t *done,
                        size_t *bytes, heed_error *why)
{
    const struct timespec nap = {0, SLEEP};
    const int64_t start = heed_now();
    for (int n = 0;; n += n < YIELDS) { /* it may go on for days */
        heed_status st = test(user, room, done, bytes, why);
        if (st != HEED_OK || *done || (n >= SPINS && heed_now() - start >= timeout_ns))
            return st;
        if (n < SPINS)
            HEED_PAUSE();
        else if (n < YIELDS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

static heed_status cancel(void *user, heed_request *room, heed_error *why)
{
    request *r = (request *)(void *)room;
    (void)user;
    (void)why;
    if (r->is_send)
        cancel_send(r);
    else if (r->is_listed)
        take_out(&r->box->first_receive, &r->box->last_receive, r);
    return HEED_OK;
}

/* ---- the calls --------------------------------------------------------------------------------
 */

heed_status heed_group_threads_create(uint32_t size, heed_group_threads **out)
{
    heed_error why;
    if (!out || size == 0 || size > MOST_RANKS)
        return heed_report(NULL,
                           heed_fail(&why, HEED_ERR_INVALID,
                                     out ? "size is %u, 1 to %d is required" : "out is NULL", size,
                                     MOST_RANKS),
                           &why);
    heed_group_threads *group = calloc(1, sizeof *group);
    const size_t boxes = (size_t)size * size;
    if (group) {
        group->size = size;
        group->member = malloc(size * sizeof *group->member);
        group->mailbox = aligned_alloc(_Alignof(mailbox), boxes * sizeof(mailbox));
    }
    if (!group || !group->member || !group->mailbox) {
        heed_group_threads_release(group);
        return heed_report(
            NULL, heed_fail(&why, HEED_ERR_NOMEM, "no memory for mailboxes of %u ranks", size),
            &why);
    }
    memset(group->mailbox, 0, boxes * sizeof(mailbox));
    for (uint32_t r = 0; r < size; r++)
        group->member[r] = (struct member){group, r};
    *out = group;
    return HEED_OK;
}

heed_status heed_group_threads_transport(heed_group_threads *group, uint32_t rank,
                                         heed_transport *out)
{
    heed_error why;
    if (!group)
        return heed_report(NULL, heed_fail(&why, HEED_ERR_INVALID, "group is NULL"), &why);
    if (rank >= group->size)
        return heed_report(NULL,
                           heed_fail(&why, HEED_ERR_INVALID, "rank is %u, less than %u is required",
                                     rank, group->size),
                           &why);
    const heed_transport made = {.user = &group->member[rank],
                                 .rank = rank,
                                 .size = group->size,
                                 .send = send_to,
                                 .receive = receive_from,
                                 .test = test,
                                 .wait = wait,
                                 .cancel = cancel};
    return heed_report(NULL, heed_write_struct("out", out, sizeof made, &made, &why), &why);
}

void heed_group_threads_release(heed_group_threads *group)
{
    if (!group)
        return;
    free(group->member);
    free(group->mailbox);
    free(group);
}
