/* A backend of ggml, loaded by GGML_BACKEND_PATH into a program that uses ggml as it is: a device
 * of type ACCEL on host memory, which claims single operations by supports_op and leaves all others
 * to ggml's own CPU backend. attention.c and matmul.c describe the operations to Heed. */
#include "ggml_heed.h"
#include "weights.h"

#include <heed/kit.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 1024 };

struct ggml_heed {
    heed_context *context[MOST_THREADS + 1]; /* by the number of threads; 0: Heed's choice */
    int n_threads;
    void *memory;
    size_t bytes, told;
};

/* ---- options --------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    unsigned bits;
} words[] = {{"off", 0},
             {"attention", GGML_HEED_ATTENTION},
             {"matmul", GGML_HEED_MATMUL},
             {"matmul:all", GGML_HEED_MATMUL | GGML_HEED_MATMUL_ALL}};

/* What HEED_GGML asks for, words with commas between them. Unset or empty: everything. *bad: where
 * in it a part begins that is no such word, or NULL. */
static unsigned wanted(const char **bad)
{
    const char *list = getenv("HEED_GGML");
    unsigned bits = 0;
    *bad = NULL;
    if (!list || !*list)
        return GGML_HEED_ATTENTION | GGML_HEED_MATMUL;
    for (const char *at = list;;) {
        const size_t length = strcspn(at, ",");
        size_t i = 0;
        while (i < sizeof words / sizeof *words &&
               (strlen(words[i].word) != length || strncmp(words[i].word, at, length)))
            i++;
        if (i < sizeof words / sizeof *words)
            bits |= words[i].bits;
        else
            *bad = at;
        if (!at[length])
            return bits;
        at += length + 1;
    }
}

static int is_verbose(void)
{
    const char *verbose = getenv("HEED_VERBOSE");
    return verbose && *verbose;
}

/* Says why an operation is left to ggml. ggml asks again for each graph, so each sentence is
 * printed once, as long as there is room to remember them. */
static void tell_left(const struct ggml_tensor *op, const heed_error *why)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t told[4096];
    char line[sizeof why->text + 2 * GGML_MAX_NAME];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    snprintf(line, sizeof line, "%s %s: %s", ggml_op_name(op->op), op->name, why->text);
    for (const char *c = line; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    pthread_mutex_lock(&lock);
    uint64_t *at = &told[hash >> 52];
    if (*at != hash)
        fprintf(stderr, "heed: left to ggml: %s\n", line);
    *at = hash;
    pthread_mutex_unlock(&lock);
}

/* ---- a backend ------------------------------------------------------------------------------- */

heed_context *ggml_heed_context(ggml_heed *backend)
{
    heed_context **at = &backend->context[backend->n_threads];
    /* ggml keeps the lengths of its tensors right, and there are no others. */
    const heed_context_options options = {.struct_size = sizeof options,
                                          .n_threads = (uint32_t)backend->n_threads,
                                          .flags = HEED_CONTEXT_TRUST_LENGTHS};
    if (!*at && heed_context_create(&options, at) != HEED_OK)
        *at = NULL;
    return *at;
}

int ggml_heed_threads(const ggml_heed *backend)
{
    return backend->n_threads;
}

void *ggml_heed_memory(ggml_heed *backend, size_t bytes)
{
    if (bytes > backend->bytes) {
        const size_t rounded = (bytes + 4095) / 4096 * 4096;
        free(backend->memory);
        backend->memory = aligned_alloc(64, rounded);
        backend->bytes = backend->memory ? rounded : 0;
    }
    return backend->memory;
}

/* What heed_attention makes of the lengths of a call, so that they find the plan that it ran. */
static int64_t roomy(int64_t length)
{
    int64_t room = 16;
    while (room < length && room < INT64_C(1) << 30)
        room *= 2;
    return room < length ? INT32_MAX : room;
}

/* The threads of the backend's context: what ggml asked for, or else what Heed chose, which only its
 * description of the machine says, at the beginning. */
static unsigned threads_of(ggml_heed *backend)
{
    static const char name[] = "\"threads\": ";
    char text[1024] = "";
    size_t bytes = sizeof text;
    if (backend->n_threads)
        return (unsigned)backend->n_threads;
    heed_context_backends(ggml_heed_context(backend), 1, text, &bytes);
    const char *at = strstr(text, name);
    return at ? (unsigned)strtoul(at + sizeof name - 1, NULL, 10) : 1;
}

void ggml_heed_tell_memory(ggml_heed *backend, const heed_attn_desc *desc,
                           const heed_attn_args *args)
{
    heed_attn_desc sized = *desc;
    heed_attn *plan = NULL;
    sized.max_batch = roomy(args->batch);
    sized.max_q_len = args->q_len > 1 ? roomy(args->q_len) : 1; /* as heed_attention does */
    sized.max_kv_len = roomy(args->kv_len);
    if (!is_verbose() || heed_attn_create(ggml_heed_context(backend), &sized, &plan) != HEED_OK)
        return;
    const unsigned threads = threads_of(backend);
    const size_t bytes = heed_attn_workspace_bytes(plan, threads);
    heed_attn_release(plan);
    if (bytes + backend->bytes <= backend->told)
        return;
    backend->told = bytes + backend->bytes;
    fprintf(
        stderr,
        "heed: memory of calls: workspace %zu bytes on %u threads, %zu for masks and products\n",
        bytes, threads, backend->bytes);
}

static const char *name_of(ggml_backend_t backend)
{
    (void)backend;
    return "Heed";
}

static void free_backend(ggml_backend_t backend)
{
    ggml_heed *own = backend->context;
    weights_leave(own);
    for (int i = 0; i <= MOST_THREADS; i++)
        heed_context_release(own->context[i]);
    free(own->memory);
    free(own);
    free(backend);
}

/* Does the operation only say where numbers lie? */
static int does_nothing(const struct ggml_tensor *op)
{
    return op->op == GGML_OP_NONE || op->op == GGML_OP_RESHAPE || op->op == GGML_OP_VIEW ||
           op->op == GGML_OP_PERMUTE || op->op == GGML_OP_TRANSPOSE;
}

static atomic_ullong n_attentions, n_products;

/* How many operations have been computed in this process, for tests. */
static uint64_t count_attentions(void)
{
    return atomic_load(&n_attentions);
}

static uint64_t count_products(void)
{
    return atomic_load(&n_products);
}

static heed_status compute(ggml_heed *own, struct ggml_tensor *node, heed_error *why)
{
    switch (node->op) {
    case GGML_OP_FLASH_ATTN_EXT:
        atomic_fetch_add(&n_attentions, 1);
        return ggml_heed_attention(own, node, why);
    case GGML_OP_MUL_MAT:
        atomic_fetch_add(&n_products, 1);
        return ggml_heed_matmul(own, node, why);
    default:
        if (does_nothing(node))
            return HEED_OK;
        heed_refuse(why, "%s is an operation that Heed has not", ggml_op_name(node->op));
        return HEED_ERR_UNSUPPORTED;
    }
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        heed_error why = {{0}};
        if (!(node->flags & GGML_TENSOR_FLAG_COMPUTE))
            continue;
        const heed_status st = compute(backend->context, node, &why);
        if (st != HEED_OK) {
            fprintf(stderr, "heed: %s: %s\n", node->name,
                    *why.text ? why.text : "there is not enough memory");
            return st == HEED_ERR_NOMEM ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
}

static void set_n_threads(ggml_backend_t backend, int n_threads)
{
    ggml_heed *own = backend->context;
    own->n_threads = n_threads < 0 ? 0 : n_threads > MOST_THREADS ? MOST_THREADS : n_threads;
}

/* ---- the device ------------------------------------------------------------------------------ */

static const char *device_name(ggml_backend_dev_t device)
{
    (void)device;
    return "Heed";
}

static const char *device_description(ggml_backend_dev_t device)
{
    (void)device;
    return "attention and products on CPUs by Heed";
}

static void device_memory(ggml_backend_dev_t device, size_t *available, size_t *total)
{
    (void)device;
    *available = *total = 0; /* it is the host's memory, which the CPU device reports */
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device)
{
    (void)device;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props)
{
    memset(props, 0, sizeof *props);
    props->name = device_name(device);
    props->description = device_description(device);
    props->type = device_type(device);
    props->caps.buffer_from_host_ptr = true;
}

static ggml_backend_t device_init(ggml_backend_dev_t device, const char *params)
{
    static ggml_guid guid = {0x48, 0x65, 0x65, 0x64, 0x2d, 0x67, 0x67, 0x6d,
                             0x6c, 0x2d, 0x62, 0x61, 0x63, 0x6b, 0x65, 0x6e};
    struct ggml_backend *backend = calloc(1, sizeof *backend);
    ggml_heed *own = calloc(1, sizeof *own);
    (void)params;
    if (!backend || !own) {
        free(backend);
        free(own);
        return NULL;
    }
    backend->guid = &guid;
    backend->iface.get_name = name_of;
    backend->iface.free = free_backend;
    backend->iface.graph_compute = graph_compute;
    backend->device = device;
    backend->context = own;
    return backend;
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device)
{
    (void)device;
    return ggml_backend_cpu_buffer_type();
}

static ggml_backend_buffer_t device_buffer(ggml_backend_dev_t device, void *at, size_t size,
                                           size_t most)
{
    (void)device, (void)most;
    return ggml_backend_cpu_buffer_from_ptr(at, size);
}

/* Asks the device's context, by which nothing is run. */
static bool supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
    heed_error why = {{0}};
    const char *bad;
    const unsigned bits = wanted(&bad);
    int good = 0;
    if (does_nothing(op))
        return true;
    switch (op->op) {
    case GGML_OP_FLASH_ATTN_EXT:
        if (!(bits & GGML_HEED_ATTENTION))
            return false;
        good = ggml_heed_attention_supported(device->context, op, &why);
        break;
    case GGML_OP_MUL_MAT:
        if (!(bits & GGML_HEED_MATMUL))
            return false;
        good = ggml_heed_matmul_supported(op, bits, &why);
        break;
    default:
        return false;
    }
    if (!good && is_verbose())
        tell_left(op, &why);
    return good;
}

static bool supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t type)
{
    (void)device;
    return ggml_backend_buft_is_host(type);
}

/* ---- what ggml finds ------------------------------------------------------------------------- */

static const char *registry_name(ggml_backend_reg_t registry)
{
    (void)registry;
    return "Heed";
}

static size_t device_count(ggml_backend_reg_t registry)
{
    (void)registry;
    return 1;
}

static ggml_backend_dev_t registry_device(ggml_backend_reg_t registry, size_t index)
{
    static struct ggml_backend_device device = {
        .iface = {.get_name = device_name,
                  .get_description = device_description,
                  .get_memory = device_memory,
                  .get_type = device_type,
                  .get_props = device_props,
                  .init_backend = device_init,
                  .get_buffer_type = device_buffer_type,
                  .buffer_from_host_ptr = device_buffer,
                  .supports_op = supports_op,
                  .supports_buft = supports_buft},
    };
    (void)index;
    device.reg = registry;
    device.context = registry->context;
    return &device;
}

static void *proc_address(ggml_backend_reg_t registry, const char *name)
{
    void (*set)(ggml_backend_t, int) = set_n_threads;
    uint64_t (*count)(void) =
        strcmp(name, "ggml_heed_products") ? count_attentions : count_products;
    void *address = NULL;
    (void)registry;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0)
        memcpy(&address, &set, sizeof address); /* C has no cast for it */
    else if (strcmp(name, "ggml_heed_attentions") == 0 || strcmp(name, "ggml_heed_products") == 0)
        memcpy(&address, &count, sizeof address);
    return address;
}

/* Does the context serve attention with caches of this type? */
static heed_status can_attend(heed_context *context, uint32_t cache, heed_error *why)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .qk_dim = 64,
                                 .v_dim = 64,
                                 .q_type = HEED_F32,
                                 .k_type = cache,
                                 .v_type = cache,
                                 .out_type = HEED_F32};
    return heed_attn_supported(context, &desc, why);
}

/* Does it serve attention with caches of any other type, or products? */
static int serves_others(heed_context *context)
{
    static const uint32_t caches[] = {HEED_F16,  HEED_BF16, HEED_Q8_0, HEED_Q4_0,
                                      HEED_Q4_1, HEED_Q5_0, HEED_Q5_1, HEED_IQ4_NL};
    static const uint32_t weights[] = {HEED_F32, HEED_F16, HEED_BF16};
    heed_error why;
    int found = 0;
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
        found |= can_attend(context, caches[i], &why) == HEED_OK;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        const heed_linear_desc desc = {.struct_size = sizeof desc,
                                       .in_dim = 64,
                                       .out_dim = 64,
                                       .x_type = weights[i],
                                       .w_type = weights[i],
                                       .y_type = HEED_F32,
                                       .layout = HEED_LINEAR_OUT_IN};
        found |= heed_linear_supported(context, &desc, &why) == HEED_OK;
    }
    return found;
}

/* Makes the context. Plain attention is asked for because a HEED_BACKEND that is wrong, or cannot run
 * here, is noticed only then: every operation would be left to ggml, with a reason that nobody sees
 * without HEED_VERBOSE. A backend that refuses it may serve other types. */
static heed_context *open_context(void)
{
    heed_context *context = NULL;
    heed_error why = {{0}};
    if (heed_context_create(NULL, &context) != HEED_OK) {
        fprintf(stderr, "heed: %s\n", heed_last_error());
        return NULL;
    }
    const heed_status st = can_attend(context, HEED_F32, &why);
    if (st == HEED_OK || (st != HEED_ERR_INVALID && serves_others(context)))
        return context;
    fprintf(stderr, "heed: %s\n", why.text);
    heed_context_release(context);
    return NULL;
}

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);

/* Called once, when the module is loaded. */
ggml_backend_reg_t ggml_backend_init(void)
{
    static struct ggml_backend_reg registry = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = registry_name,
                  .get_device_count = device_count,
                  .get_device = registry_device,
                  .get_proc_address = proc_address},
    };
    const char *bad;
    wanted(&bad);
    if (bad) {
        fprintf(stderr,
                "heed: HEED_GGML has '%.*s': off, attention, matmul and matmul:all are known, with "
                "commas between them\n",
                (int)strcspn(bad, ","), bad);
        return NULL;
    }
    if (!registry.context) { /* kept to the process's end, as the module is */
        ggml_heed_matmul_open();
        registry.context = open_context();
    }
    return registry.context ? &registry : NULL;
}
