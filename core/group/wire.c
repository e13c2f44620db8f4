/* Sending, receiving, waiting and giving up. See wire.h. */
#define _GNU_SOURCE
#include "wire.h"

#include <stdatomic.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "runtime/context.h"

#define MAGIC UINT64_C(0x6865656467727031)

/* The tag of all messages, so that what a rank sends to another arrives in order. Only what a rank
 * is told of a failure while it waits for no message has another tag. */
#define TAG 0x4865u
#define TAG_OF_FAILURE 0x4866u

/* Nanoseconds for which one message is waited for before the others are looked at: in
 * the beginning, and at most. The others matter because a failure that any rank tells of
 * ends the call. */
#define GLANCE INT64_C(200000)
#define LONGEST_GLANCE INT64_C(4000000)

/* Records a failure, unless there is one already. */
static heed_status failed(heed_wire *w, uint32_t origin, const heed_error *plain)
{
    if (w->status != HEED_OK)
        return w->status;
    w->status = HEED_ERR_TRANSPORT;
    w->origin = origin;
    w->plain = *plain;
    if (origin == w->transport->rank)
        *w->why = *plain;
    else
        heed_fail(w->why, w->status, "rank %u failed: %.220s", origin, plain->text);
    return w->status;
}

HEED_PRINTF(2, 3)
static heed_status broken(heed_wire *w, const char *format, ...)
{
    heed_error plain;
    va_list list;
    va_start(list, format);
    vsnprintf(plain.text, sizeof plain.text, format, list);
    va_end(list);
    return failed(w, w->transport->rank, &plain);
}

/* Records a failure of the transport itself. */
static heed_status refused(heed_wire *w, const char *what, uint32_t rank, heed_status st,
                           const heed_error *why)
{
    return broken(w, "the transport %s rank %u: %s%s%.150s", what, rank, heed_status_string(st),
                  why->text[0] ? ": " : "", why->text);
}

static heed_wire_message *begin(heed_wire *w, uint32_t rank, uint32_t kind, uint32_t step,
                                void *data, size_t bytes)
{
    uint32_t under_way = 0;
    for (uint32_t i = 0; i < w->n; i++)
        under_way += w->message[i].under_way;
    w->n = under_way ? w->n : 0;
    uint32_t i = 0;
    while (i < w->n && w->message[i].under_way)
        i++;
    w->n = i == w->n ? i + 1 : w->n;
    heed_wire_message *m = &w->message[i];
    memset(m, 0, sizeof *m);
    m->data = data;
    m->bytes = bytes;
    m->rank = rank;
    m->kind = kind;
    m->step = step;
    return m;
}

void heed_wire_address(const heed_wire *w, uint32_t kind, uint32_t step, void *data, size_t bytes)
{
    const heed_wire_header header = {
        .magic = MAGIC, .call = w->call, .bytes = bytes, .kind = kind, .step = step};
    memcpy(data, &header, sizeof header);
}

heed_status heed_wire_send(heed_wire *w, uint32_t to, uint32_t kind, uint32_t step, void *data,
                           size_t bytes)
{
    const heed_transport *t = w->transport;
    heed_error why = {""};
    if (w->status != HEED_OK)
        return w->status;
    heed_wire_message *m = begin(w, to, kind, step, data, bytes);
    heed_status st =
        t->send(t->user, to, TAG, data, sizeof(heed_wire_header) + bytes, &m->request, &why);
    if (st != HEED_OK)
        return refused(w, "cannot send to", to, st, &why);
    m->sends = m->under_way = 1;
    return HEED_OK;
}

static heed_status receive(heed_wire *w, uint32_t from, uint32_t tag, uint32_t kind, uint32_t step,
                           void *data, size_t bytes)
{
    const heed_transport *t = w->transport;
    heed_error why = {""};
    if (w->status != HEED_OK)
        return w->status;
    heed_wire_message *m = begin(w, from, kind, step, data, bytes);
    heed_status st = t->receive(t->user, from, tag, data, heed_wire_room(bytes), &m->request, &why);
    if (st != HEED_OK)
        return refused(w, "cannot receive from", from, st, &why);
    m->under_way = 1;
    m->listens = tag == TAG_OF_FAILURE;
    return HEED_OK;
}

heed_status heed_wire_receive(heed_wire *w, uint32_t from, uint32_t kind, uint32_t step, void *data,
                              size_t bytes)
{
    return receive(w, from, TAG, kind, step, data, bytes);
}

heed_status heed_wire_listen(heed_wire *w, uint32_t from, void *data)
{
    return receive(w, from, TAG_OF_FAILURE, 0, 0, data, 0);
}

/* Is that the header of a notice, as tell() writes them? Else what lies behind it may be numbers,
 * which nobody could read as a sentence. */
static int is_notice(const heed_wire *w, const heed_wire_header *h)
{
    return h->status > HEED_OK && h->status <= HEED_ERR_TRANSPORT && h->kind == 0 && h->step == 0 &&
           h->origin < w->transport->size && h->bytes < sizeof(heed_error);
}

/* Checks a message that has arrived. */
static heed_status check(heed_wire *w, const heed_wire_message *m, size_t bytes)
{
    heed_wire_header h = {0};
    heed_error plain = {""};
    if (bytes < sizeof h)
        return broken(w, "rank %u sent %zu bytes, a header has %zu", m->rank, bytes, sizeof h);
    memcpy(&h, m->data, sizeof h);
    if (h.magic != MAGIC || (h.status != HEED_OK && !is_notice(w, &h)))
        return broken(w, "rank %u sent something that is no message of a group", m->rank);
    if (bytes - sizeof h != h.bytes)
        return broken(w, "rank %u sent %llu bytes behind the header, and %zu arrived", m->rank,
                      (unsigned long long)h.bytes, bytes - sizeof h);
    if (h.status != HEED_OK) {
        const size_t n = h.bytes < sizeof plain - 1 ? (size_t)h.bytes : sizeof plain - 1;
        memcpy(plain.text, (const char *)m->data + sizeof h, n);
        return failed(w, h.origin, &plain);
    }
    if (h.call != w->call)
        return broken(w,
                      "rank %u is in another call: description, partition, or lengths, starts or "
                      "offsets of sequences differ",
                      m->rank);
    if (h.kind != m->kind || h.step != m->step)
        return broken(w, "rank %u sent message %u of step %u where %u of step %u was expected",
                      m->rank, h.kind, h.step, m->kind, m->step);
    if (h.bytes != m->bytes)
        return broken(w, "rank %u sent %llu bytes where %zu were expected", m->rank,
                      (unsigned long long)h.bytes, m->bytes);
    return HEED_OK;
}

static heed_status test(heed_wire *w, heed_wire_message *m);

/* A rank that sends nothing unless it fails has told of a failure: of this call? Once it has taken
 * all that it is owed, it may be in the next call, which may look just as this one, and this one
 * does not need it any more. What it has taken may be known only when asked for. A notice of the next
 * call is lost here, and may leave that call to its time limit: nothing is kept between calls. */
static int is_of_this_call(heed_wire *w, uint32_t rank)
{
    for (uint32_t i = 0; i < w->n && w->status == HEED_OK; i++)
        if (w->message[i].under_way && w->message[i].sends && w->message[i].rank == rank)
            test(w, &w->message[i]);
    return w->owed[rank] > 0;
}

/* Acts on what test or wait said of a message. */
static heed_status take(heed_wire *w, heed_wire_message *m, heed_status st, uint32_t done,
                        size_t bytes, const heed_error *why)
{
    if (st != HEED_OK) {
        m->under_way = 0; /* a request that failed has ended */
        return refused(w, m->sends ? "failed to send to" : "failed to receive from", m->rank, st,
                       why);
    }
    if (!done)
        return HEED_OK;
    m->under_way = 0;
    if (m->listens && !is_of_this_call(w, m->rank))
        return w->status;
    if (!m->sends)
        return check(w, m, bytes);
    w->owed[m->rank]--;
    return HEED_OK;
}

static heed_status test(heed_wire *w, heed_wire_message *m)
{
    const heed_transport *t = w->transport;
    heed_error why = {""};
    uint32_t done = 0;
    size_t bytes = 0;
    heed_status st = t->test(t->user, &m->request, &done, &bytes, &why);
    return take(w, m, st, done, bytes, &why);
}

heed_status heed_wire_poll(heed_wire *w)
{
    for (uint32_t i = 0; i < w->n && w->status == HEED_OK; i++)
        if (w->message[i].under_way)
            test(w, &w->message[i]);
    return w->status;
}

static heed_wire_message *first_of(heed_wire *w, int all)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->message[i].under_way && !w->message[i].listens && (all || !w->message[i].sends))
            return &w->message[i];
    return NULL;
}

/* Waits for one message, at most `most` nanoseconds. */
static void glance(heed_wire *w, heed_wire_message *m, int64_t most)
{
    const heed_transport *t = w->transport;
    heed_error why = {""};
    uint32_t done = 0;
    size_t bytes = 0;
    const int64_t start = heed_now();
    heed_status st = t->wait(t->user, &m->request, heed_min64(w->left, most), &done, &bytes, &why);
    w->left -= heed_now() - start;
    take(w, m, st, done, bytes, &why);
}

static heed_status too_late(heed_wire *w, const heed_wire_message *m)
{
    const heed_fpenv saved = heed_fpenv_enter(); /* a host may let inexact results trap */
    const heed_status st =
        broken(w, "rank %u %s within %.3g s", m->rank,
               m->sends ? "took no message" : "sent nothing", (double)w->limit * 1e-9);
    heed_fpenv_leave(saved);
    return st;
}

heed_status heed_wire_wait(heed_wire *w, int all)
{
    heed_wire_message *m;
    int64_t most = GLANCE;
    while (w->status == HEED_OK && (m = first_of(w, all)) != NULL) {
        if (w->left > 0)
            glance(w, m, most);
        most = heed_min64(2 * most, LONGEST_GLANCE);
        const int64_t start = heed_now();
        if (w->status == HEED_OK && m->under_way) {
            heed_wire_poll(w);
            w->left -= heed_now() - start;
        }
        if (w->status == HEED_OK && m->under_way && w->left <= 0)
            return too_late(w, m);
    }
    return w->status;
}

heed_status heed_wire_finish(heed_wire *w, char **notice)
{
    const uint32_t n = w->n;
    heed_wire_poll(w);
    for (uint32_t i = 0; i < n && w->status == HEED_OK; i++) {
        const heed_wire_message *m = &w->message[i];
        const uint32_t rank = m->rank;
        if (!m->under_way || !m->sends || !notice[rank])
            continue;
        heed_wire_listen(w, rank, notice[rank]);
        notice[rank] = NULL;
    }
    return heed_wire_wait(w, 1);
}

/* ---- giving up --------------------------------------------------------------------------------
 */

/* Gives up a request. Returns 1 and writes why if the transport cannot: then it may use the memory of
 * the request and of its message at any later time. Waiting for the end of that may last for ever,
 * as the other rank may be lost. */
static int cancel_one(const heed_wire *w, heed_request *request, uint32_t rank, heed_error *plain)
{
    const heed_transport *t = w->transport;
    heed_error why = {""};
    heed_status st = t->cancel(t->user, request, &why);
    if (st == HEED_OK)
        return 0;
    heed_fail(plain, st, "the transport cannot give up a message with rank %u: %s%s%.100s", rank,
              heed_status_string(st), why.text[0] ? ": " : "", why.text);
    return 1;
}

static void cancel_all(heed_wire *w, heed_error *plain)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->message[i].under_way) {
            w->kept |= cancel_one(w, &w->message[i].request, w->message[i].rank, plain);
            w->message[i].under_way = 0;
        }
    w->n = 0;
}

static int is_among(uint32_t rank, uint32_t one_or_all)
{
    return one_or_all == HEED_WIRE_EVERYONE || one_or_all == rank;
}

/* Is a rank told of a failure under that tag? A message that is owed may have arrived already, so a
 * rank that may be listening is told under both. */
static int is_told(const heed_wire *w, uint32_t rank, uint32_t tag)
{
    const int waits = w->owed ? w->owed[rank] > 0 : is_among(rank, w->waiter);
    if (rank == w->transport->rank)
        return 0;
    return tag == TAG ? waits : is_among(rank, w->listener);
}

/* A notice and the requests that send it. It is no part of a workspace, because there may be none
 * yet, nor on the stack, because it may have to stay. */
enum { AT_ONCE = 16 };
typedef struct notices {
    heed_wire_header header;
    heed_error text;
    heed_request request[AT_ONCE];
    unsigned char state[AT_ONCE];
    uint32_t first, n, under_way; /* of ranks first to first + n - 1 */
    int kept;                     /* the transport cannot give one of them up */
} notices;

/* For those that their context has no memory for: one rank of the process at a time. */
static notices last_resort;
static atomic_flag is_lent = ATOMIC_FLAG_INIT;

static notices *lend_notices(heed_context *context)
{
    notices *all = heed_alloc(context, sizeof *all, _Alignof(notices));
    if (!all && !atomic_flag_test_and_set(&is_lent))
        all = &last_resort;
    return all;
}

static void return_notices(heed_context *context, notices *all)
{
    if (all->kept)
        return;
    if (all == &last_resort)
        atomic_flag_clear(&is_lent);
    else
        heed_free(context, all, sizeof *all);
}

/* Waits until all notices are taken, or the time is over. */
static void wait_for(heed_wire *w, notices *all)
{
    const heed_transport *t = w->transport;
    while (all->under_way) {
        const int64_t start = heed_now();
        for (uint32_t i = 0; i < all->n; i++) {
            heed_error why = {""};
            uint32_t done = 0;
            size_t got;
            if (!all->state[i])
                continue;
            heed_status st =
                t->wait(t->user, &all->request[i], w->left > 0 ? GLANCE : 0, &done, &got, &why);
            if (st == HEED_OK && !done && w->left <= 0)
                all->kept |= cancel_one(w, &all->request[i], all->first + i, &why);
            if (st != HEED_OK || done || w->left <= 0)
                all->state[i] = 0, all->under_way--;
        }
        w->left -= heed_now() - start;
    }
}

/* Tells some ranks. */
static void tell_some(heed_wire *w, const notices *notice, uint32_t first, uint32_t tag)
{
    const heed_transport *t = w->transport;
    const size_t bytes = sizeof notice->header + notice->header.bytes;
    notices *all = lend_notices(w->context);
    if (!all)
        return;
    *all = *notice;
    all->first = first;
    all->n = t->size - first < AT_ONCE ? t->size - first : AT_ONCE;
    for (uint32_t i = 0; i < all->n; i++) {
        heed_error why;
        all->state[i] =
            is_told(w, first + i, tag) && t->send(t->user, first + i, tag, &all->header, bytes,
                                                  &all->request[i], &why) == HEED_OK;
        all->under_way += all->state[i];
    }
    wait_for(w, all);
    return_notices(w->context, all);
}

/* Tells the ranks that still wait for a message of this one, or listen to it, of its failure. A
 * rank that does not take the notice in time, or to which it cannot be sent, waits in vain: nothing
 * better can be done. */
static void tell(heed_wire *w, heed_status status)
{
    const uint32_t size = w->transport->size;
    const notices notice = {.header = {.magic = MAGIC,
                                       .call = w->call,
                                       .bytes = strnlen(w->plain.text, sizeof w->plain.text - 1),
                                       .status = status,
                                       .origin = w->origin},
                            .text = w->plain};
    for (uint32_t tag = TAG; tag <= TAG_OF_FAILURE; tag++)
        for (uint32_t first = 0; first < size; first += AT_ONCE)
            tell_some(w, &notice, first, tag);
}

heed_status heed_wire_end(heed_wire *w, heed_status status)
{
    heed_error kept, first;
    cancel_all(w, &kept);
    if (status == HEED_OK && w->kept)
        return failed(w, w->transport->rank, &kept);
    if (status == HEED_OK)
        return status;
    if (w->status == HEED_OK) { /* this rank's own failure */
        w->origin = w->transport->rank;
        w->plain = *w->why;
    }
    tell(w, status);
    if (w->kept) { /* with a workspace of the caller's he has to know */
        first = *w->why;
        heed_fail(w->why, status, "%.120s; %.130s", first.text, kept.text);
    }
    return status;
}
