/* Packed weights, one table for the process.
 *
 * Key     where the tensor lies, its shape, row stride and type. Another tensor may come to lie
 *         there, or its numbers may be changed in place: a sample of them is compared at each call,
 *         and a tensor that differs is packed again. A model's weights are mapped or read once and
 *         stay, so this is for adapters and training, where all numbers change; a change of a few
 *         would not be seen.
 *         The lines of a sample come from memory, one by one from as many pages, in 23 us on an Ice
 *         Lake, a third of what a product of one row and 2 MiB takes there. So quick calls compare a
 *         part of the sample, another one at each of TURNS calls.
 * Bound   on the bytes of all places. A place is taken when an operation is claimed, before
 *         anything is packed.
 *         What no backend has used yet gives way to what is computed, and goes when any backend is
 *         freed: whose it was is not known, and ggml claims again before it computes a new graph.
 * Ends    a layer is freed with the last backend that used it.
 */
#define _DEFAULT_SOURCE /* sysconf's names */
#include "weights.h"

#include "container.h"

#include <heed/kit.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Parts of a sample, and lines of each. */
enum { TURNS = 8, LINES = 32 };

/* A backend that uses a layer. */
typedef struct user {
    struct user *next;
    const void *backend;
} user;

typedef struct place {
    struct place *next;
    const void *data;
    int64_t in, out;
    size_t row_bytes;
    enum ggml_type type;
    uint64_t sample[TURNS]; /* of the numbers that are packed */
    unsigned turn;          /* the part of it that is compared next */
    size_t bytes;
    heed_linear *linear; /* NULL: not packed yet */
    user *users;
} place;

enum { BUCKETS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static place *bucket[BUCKETS];
static size_t taken;

int weights_stay(const struct ggml_tensor *w)
{
    ggml_backend_buffer_t buffer = w->view_src ? w->view_src->buffer : w->buffer;
    return buffer && w->data && ggml_backend_buffer_is_host(buffer) &&
           ggml_backend_buffer_get_usage(buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

/* ---- the bound ------------------------------------------------------------------------------- */

/* A quarter of the memory: ggml's own copy of those weights takes as much, which leaves half for
 * everything else. */
static uint64_t usual_bound(void)
{
    static uint64_t most; /* asked for once, under the lock */
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    if (!most)
        most = container_bytes("/proc/self/cgroup", "/sys/fs/cgroup");
    return (all < most ? all : most) / 4;
}

/* HEED_GGML_PACK_MIB. */
static uint64_t bound(void)
{
    static int told;
    const char *text = getenv("HEED_GGML_PACK_MIB");
    if (!text || !*text)
        return usual_bound();
    if (text[strspn(text, "0123456789")]) {
        if (!told++)
            fprintf(
                stderr,
                "heed: HEED_GGML_PACK_MIB is '%s', a number of MiB is required: it is ignored\n",
                text);
        return usual_bound();
    }
    const unsigned long long mib = strtoull(text, NULL, 10);
    return mib > UINT64_MAX >> 20 ? UINT64_MAX : (uint64_t)mib << 20;
}

/* At least what the panels of any kernel take, which are rounded up to whole vectors or tiles in
 * both directions. */
static size_t packed_bytes(const struct ggml_tensor *w)
{
    return (size_t)(w->ne[0] + 64) * (size_t)(w->ne[1] + 64) * ggml_type_size(w->type);
}

/* ---- places ---------------------------------------------------------------------------------- */

static place **find(const struct ggml_tensor *w)
{
    const uint64_t hash = (uint64_t)(uintptr_t)w->data * UINT64_C(0x9e3779b97f4a7c15);
    place **at = &bucket[hash >> 54];
    while (*at && ((*at)->data != w->data || (*at)->in != w->ne[0] || (*at)->out != w->ne[1] ||
                   (*at)->row_bytes != w->nb[1] || (*at)->type != w->type))
        at = &(*at)->next;
    return at;
}

static void free_unused(void)
{
    for (int i = 0; i < BUCKETS; i++)
        for (place **at = &bucket[i]; *at;) {
            place *p = *at;
            if (p->users) {
                at = &p->next;
                continue;
            }
            *at = p->next;
            taken -= p->bytes;
            heed_linear_release(p->linear);
            free(p);
        }
}

/* The place of a weight, newly taken if it has none; NULL if there is no room. */
static place *take(const struct ggml_tensor *w, int is_computed, heed_error *why)
{
    place **at = find(w);
    if (*at)
        return *at;
    const size_t bytes = packed_bytes(w);
    const uint64_t most = bound();
    if (is_computed && bytes <= most && taken > most - bytes) {
        free_unused();
        at = find(w);
    }
    if (bytes > most || taken > most - bytes) {
        heed_refuse(why,
                    "packed weights would take %zu MiB with it, HEED_GGML_PACK_MIB allows %llu",
                    (taken + bytes + (1 << 20) - 1) >> 20, (unsigned long long)(most >> 20));
        return NULL;
    }
    *at = calloc(1, sizeof **at);
    if (!*at) {
        heed_refuse(why, "no memory for its place");
        return NULL;
    }
    **at = (place){.data = w->data,
                   .in = w->ne[0],
                   .out = w->ne[1],
                   .row_bytes = w->nb[1],
                   .type = w->type,
                   .bytes = bytes};
    taken += bytes;
    return *at;
}

static int add_user(place *p, const void *backend)
{
    const user *u = p->users;
    while (u && u->backend != backend)
        u = u->next;
    if (u)
        return 1;
    user *added = malloc(sizeof *added);
    if (added) {
        *added = (user){p->users, backend};
        p->users = added;
    }
    return added != NULL;
}

static void remove_user(place *p, const void *backend)
{
    user **at = &p->users;
    while (*at && (*at)->backend != backend)
        at = &(*at)->next;
    if (*at) {
        user *gone = *at;
        *at = gone->next;
        free(gone);
    }
}

void weights_leave(const void *backend)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BUCKETS; i++)
        for (place *p = bucket[i]; p; p = p->next)
            remove_user(p, backend);
    free_unused();
    pthread_mutex_unlock(&lock);
}

int weights_reserve(const struct ggml_tensor *w, heed_error *why)
{
    pthread_mutex_lock(&lock);
    const int good = take(w, 0, why) != NULL;
    pthread_mutex_unlock(&lock);
    return good;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* FNV-1a over LINES lines of 64 bytes (shorter in short rows), spread over the whole tensor. Those of
 * other turns lie between them. */
static uint64_t sample_of(const struct ggml_tensor *w, unsigned turn)
{
    const size_t bytes = ggml_row_size(w->type, w->ne[0]), rows = (size_t)w->ne[1];
    const size_t all = LINES * TURNS, line = bytes < 64 ? bytes : 64;
    const char *at[LINES];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < LINES; i++) {
        const size_t n = i * TURNS + turn;
        at[i] = (const char *)w->data + n * rows / all * w->nb[1] + (bytes - line) * n / all;
        __builtin_prefetch(at[i]);
        __builtin_prefetch(at[i] + line - 1);
    }
    for (size_t i = 0; i < LINES; i++)
        for (size_t from = 0; from < line; from += 8) {
            uint64_t word = 0;
            memcpy(&word, at[i] + from, line - from < sizeof word ? line - from : sizeof word);
            hash = (hash ^ word) * UINT64_C(0x100000001b3);
        }
    return hash;
}

/* Has a part of the sample changed, of so many that are compared? */
static int differs(place *p, const struct ggml_tensor *w, int parts)
{
    int found = 0;
    for (int i = 0; i < parts && !found; i++) {
        found = p->sample[p->turn] != sample_of(w, p->turn);
        p->turn = (p->turn + 1) % TURNS;
    }
    return found;
}

static heed_status pack(heed_context *context, const heed_linear_desc *desc,
                        const struct ggml_tensor *w, heed_linear **out, heed_error *why)
{
    const int64_t row = (int64_t)(w->nb[1] / ggml_type_size(w->type));
    const heed_const_view view = {w->data, {row, 1}};
    const heed_status st = heed_linear_create(context, desc, &view, NULL, out);
    if (st != HEED_OK)
        heed_refuse(why, "%s", heed_last_error());
    return st;
}

static heed_status get_kept(place *p, heed_context *context, const heed_linear_desc *desc,
                            const struct ggml_tensor *w, int is_quick, heed_linear **out,
                            heed_error *why)
{
    const char *verbose = getenv("HEED_VERBOSE");
    if (p->linear && differs(p, w, is_quick ? 1 : TURNS)) {
        heed_linear_release(p->linear);
        p->linear = NULL;
    }
    if (!p->linear) {
        const heed_status st = pack(context, desc, w, &p->linear, why);
        if (st != HEED_OK)
            return st;
        for (unsigned turn = 0; turn < TURNS; turn++)
            p->sample[turn] = sample_of(w, turn);
        if (verbose && *verbose)
            fprintf(stderr, "heed: packed %s, %zu KiB; %zu of %llu MiB are taken\n", w->name,
                    p->bytes >> 10, taken >> 20, (unsigned long long)(bound() >> 20));
    }
    heed_linear_retain(p->linear);
    *out = p->linear;
    return HEED_OK;
}

heed_status weights_get(const void *backend, heed_context *context, const heed_linear_desc *desc,
                        const struct ggml_tensor *w, int is_quick, heed_linear **out,
                        heed_error *why)
{
    place *p = NULL;
    heed_status st = HEED_OK;
    if (weights_stay(w)) {
        pthread_mutex_lock(&lock);
        p = take(w, 1, NULL);
        if (p && !add_user(p, backend))
            p = NULL;
        if (p)
            st = get_kept(p, context, desc, w, is_quick, out, why);
        pthread_mutex_unlock(&lock);
    }
    return p ? st : pack(context, desc, w, out, why);
}
