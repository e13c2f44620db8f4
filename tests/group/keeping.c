/* A transport that cannot give a request up may use its memory later, and that of its message. So
 * that memory is neither freed nor lent to another call, a result that is there is no success, and
 * the sentence says it. Where there is no memory, other ranks are told of a failure all the same. */
#include "../check.h"
#include "threads.h"

#include <string.h>
#include <time.h>

enum { RANKS = 3, MOST = 256 };

/* ---- memory that remembers what was freed ------------------------------------------------------ */

typedef struct block {
    char *at;
    size_t bytes;
    int freed;
} block;
static block blocks[MOST];
static int n_blocks;

static void *take(void *user, size_t bytes, size_t align)
{
    const size_t to = align < 16 ? 16 : align, all = (bytes + to - 1) / to * to;
    (void)user;
    if (n_blocks == MOST)
        return NULL;
    block *b = &blocks[n_blocks++];
    *b = (block){aligned_alloc(to, all), bytes, 0};
    return b->at;
}

static void give(void *user, void *p, size_t bytes)
{
    (void)user, (void)bytes;
    for (int i = 0; i < n_blocks; i++)
        if (blocks[i].at == p)
            blocks[i].freed = 1;
}

/* The block that has all of these bytes; NULL: none has. */
static const block *block_of(const void *p, size_t bytes)
{
    const char *at = p;
    for (int i = 0; i < n_blocks; i++)
        if (at >= blocks[i].at && at + bytes <= blocks[i].at + blocks[i].bytes)
            return &blocks[i];
    return NULL;
}

/* ---- a transport that keeps everything --------------------------------------------------------- */

typedef struct message {
    const heed_request *request;
    const char *data;
    size_t bytes;
    int kept;
    char then[64]; /* its first bytes when the transport kept it */
} message;
static message messages[MOST];
static int n_messages;

static heed_status begin(const heed_request *request, const void *data, size_t bytes)
{
    if (n_messages < MOST)
        messages[n_messages++] = (message){.request = request, .data = data, .bytes = bytes};
    return HEED_OK;
}

static heed_status send_none(void *user, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                             heed_request *request, heed_error *why)
{
    (void)user, (void)to, (void)tag, (void)why;
    return begin(request, data, bytes);
}

static heed_status receive_none(void *user, uint32_t from, uint32_t tag, void *data, size_t bytes,
                                heed_request *request, heed_error *why)
{
    (void)user, (void)from, (void)tag, (void)why;
    return begin(request, data, bytes);
}

static heed_status test_none(void *user, heed_request *request, uint32_t *done, size_t *bytes,
                             heed_error *why)
{
    (void)user, (void)request, (void)bytes, (void)why;
    *done = 0;
    return HEED_OK;
}

static heed_status wait_none(void *user, heed_request *request, int64_t timeout_ns, uint32_t *done,
                             size_t *bytes, heed_error *why)
{
    const struct timespec nap = {0, timeout_ns < 1000000 ? (long)timeout_ns : 1000000};
    nanosleep(&nap, NULL);
    return test_none(user, request, done, bytes, why);
}

static heed_status keep(void *user, heed_request *request, heed_error *why)
{
    (void)user;
    strcpy(why->text, "it stays");
    for (int i = n_messages; i-- > 0;)
        if (messages[i].request == request) {
            const size_t n = messages[i].bytes < 64 ? messages[i].bytes : 64;
            messages[i].kept = 1;
            memcpy(messages[i].then, messages[i].data, n);
            break;
        }
    return HEED_ERR_BACKEND;
}

/* Messages that nobody takes. */
static heed_transport silent(heed_status (*cancel)(void *, heed_request *, heed_error *))
{
    return (heed_transport){.struct_size = sizeof(heed_transport),
                            .size = RANKS,
                            .send = send_none,
                            .receive = receive_none,
                            .test = test_none,
                            .wait = wait_none,
                            .cancel = cancel};
}

/* A context whose memory is blocks[]. NULL: none could be made. */
static heed_context *counted(void)
{
    const heed_context_options options = {.struct_size = sizeof options,
                                          .n_threads = 1,
                                          .backends = "naive",
                                          .alloc = take,
                                          .release = give};
    heed_context *context = NULL;
    return heed_context_create(&options, &context) == HEED_OK ? context : NULL;
}

/* A call of rank 0, the only one that calls. spoiled: it fails before it begins. */
static void keeps(const ranks_way *way, int spoiled)
{
    const heed_transport transport = silent(keep);
    ranks_case *c = malloc(sizeof *c);
    heed_context *context = NULL;
    rank_call r[2];
    n_blocks = n_messages = 0;
    if (!c || ranks_of_way(c, way, RANKS, 12) != 0 || !(context = counted()) ||
        rank_make(&r[0], c, 0) != 0 || rank_make(&r[1], c, 0) != 0)
        exit(1);
    c->partition.timeout_ns = 5000000;
    if (spoiled)
        r[0].args.kv_lens = r[0].starts; /* the partition says lengths */
    rank_run(&r[0], c, context, &transport, 1);
    CHECK(r[0].status == (spoiled ? HEED_ERR_INVALID : HEED_ERR_TRANSPORT), "%s: %s", way->name,
          heed_status_string(r[0].status));
    CHECK(spoiled || (strstr(r[0].why.text, "within") &&
                      strstr(r[0].why.text, "cannot give up a message with rank") &&
                      strstr(r[0].why.text, "it stays")),
          "%s: '%s'", way->name, r[0].why.text);
    const int n = n_messages;
    rank_run(&r[1], c, context, &transport, 1); /* wants a workspace of the same size */
    heed_context_release(context);
    int n_kept = 0;
    for (int i = 0; i < n; i++) {
        const message *m = &messages[i];
        if (!m->kept)
            continue;
        const block *request = block_of(m->request, sizeof *m->request);
        const block *data = block_of(m->data, m->bytes);
        n_kept++;
        CHECK(request && !request->freed, "%s: the memory of request %d is %s", way->name, i,
              request ? "freed" : "none of the context's");
        CHECK(data && !data->freed, "%s: the memory of message %d is %s", way->name, i,
              data ? "freed" : "none of the context's");
        CHECK(!data || memcmp(m->data, m->then, m->bytes < 64 ? m->bytes : 64) == 0,
              "%s: message %d was overwritten", way->name, i);
    }
    CHECK(n_kept > 1, "%s: %d messages were kept", way->name, n_kept);
    for (int i = 0; i < n_blocks; i++)
        free(blocks[i].at);
    rank_free(&r[0]);
    rank_free(&r[1]);
    ranks_free(c);
    free(c);
}

/* ---- a context without memory ------------------------------------------------------------------- */

static heed_status let_go(void *user, heed_request *request, heed_error *why)
{
    (void)user, (void)request, (void)why;
    return HEED_OK;
}

/* What no transport keeps is given back. */
static void gives_back(const ranks_way *way)
{
    const heed_transport transport = silent(let_go);
    ranks_case *c = malloc(sizeof *c);
    heed_context *context = NULL;
    rank_call r;
    n_blocks = n_messages = 0;
    if (!c || ranks_of_way(c, way, RANKS, 12) != 0 || !(context = counted()) ||
        rank_make(&r, c, 0) != 0)
        exit(1);
    c->partition.timeout_ns = 5000000;
    rank_run(&r, c, context, &transport, 1);
    CHECK(r.status == HEED_ERR_TRANSPORT && n_messages > 0, "%s: %s", way->name,
          heed_status_string(r.status));
    heed_context_release(context);
    for (int i = 0; i < n_blocks; i++) {
        CHECK(blocks[i].freed, "%s: block %d of %zu bytes is lost", way->name, i, blocks[i].bytes);
        free(blocks[i].at);
    }
    rank_free(&r);
    ranks_free(c);
    free(c);
}

/* The others are told of a failure though there is no memory for that. */
static void tells_starved(const ranks_way *way)
{
    const heed_transport transport = silent(let_go);
    ranks_case *c = malloc(sizeof *c);
    heed_context *context = NULL;
    int told[2] = {0, 0};
    n_blocks = 0;
    if (!c || ranks_of_way(c, way, RANKS, 12) != 0 || !(context = counted()))
        exit(1);
    c->partition.timeout_ns = 5000000;
    for (int i = 0; i < 2; i++) { /* the second time the plan is there, and nothing to be had */
        const int before = n_blocks;
        rank_call r;
        if (rank_make(&r, c, 0) != 0)
            exit(1);
        n_messages = 0;
        r.args.kv_lens = r.starts; /* the partition says lengths */
        n_blocks = i ? MOST : n_blocks;
        rank_run(&r, c, context, &transport, 1);
        n_blocks = i ? before : n_blocks;
        told[i] = n_messages;
        CHECK(r.status == HEED_ERR_INVALID, "%s: %s", way->name, heed_status_string(r.status));
        rank_free(&r);
    }
    CHECK(told[0] > 0 && told[1] == told[0], "%s: %d messages tell of a failure, starved %d",
          way->name, told[0], told[1]);
    heed_context_release(context);
    for (int i = 0; i < n_blocks; i++)
        free(blocks[i].at);
    ranks_free(c);
    free(c);
}

/* ---- a call that would have succeeded ---------------------------------------------------------- */

static heed_status (*real_cancel)(void *user, heed_request *request, heed_error *why);

static heed_status refuse(void *user, heed_request *request, heed_error *why)
{
    real_cancel(user, request, why);
    strcpy(why->text, "it stays");
    return HEED_ERR_BACKEND;
}

static void around(heed_transport *transport, void *user)
{
    (void)user;
    real_cancel = transport->cancel;
    if (transport->rank == 1)
        transport->cancel = refuse;
}

/* With ring each rank listens to the next one until it ends. */
static void listener_stays(void)
{
    static const ranks_way ring = {"ring", HEED_GROUP_RING, 0, 0, 0};
    ranks_case *c = malloc(sizeof *c);
    rank_thread *t = calloc(RANKS, sizeof *t);
    heed_context *context[RANKS];
    for (int r = 0; r < RANKS; r++)
        context[r] = threads_context(NULL, 1);
    if (!c || !t || ranks_of_way(c, &ring, RANKS, 12) != 0 ||
        threads_run(c, t, context, 0, around, NULL) != 0)
        exit(1);
    for (uint32_t r = 0; r < RANKS; r++)
        CHECK(t[r].call.status == (r == 1 ? HEED_ERR_TRANSPORT : HEED_OK), "rank %u: %s, '%s'", r,
              heed_status_string(t[r].call.status), t[r].call.why.text);
    CHECK(strstr(t[1].call.why.text, "cannot give up a message with rank 2"), "'%s'",
          t[1].call.why.text);
    threads_free(c, t);
    for (int r = 0; r < RANKS; r++)
        heed_context_release(context[r]);
    ranks_free(c);
    free(c);
    free(t);
}

int main(void)
{
    static const ranks_way way[] = {{"all", HEED_GROUP_SPLIT, HEED_WANT_ALL, 0, 0},
                                    {"rows", HEED_GROUP_SPLIT, 0, 0, 1},
                                    {"ring", HEED_GROUP_RING, 0, 0, 0}};
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        keeps(&way[i], 0);
        keeps(&way[i], 1);
        gives_back(&way[i]);
        tells_starved(&way[i]);
    }
    listener_stays();
    return checks_end();
}
