/* Checks and opens backends' tables. A backend that cannot be used is listed with the
 * reason. */
#include "registry.h"

#include "base/reason.h"

heed_entry *heed_registry_find(heed_registry *registry, const char *name, size_t length)
{
    for (uint32_t i = 0; i < registry->n; i++)
        if (strlen(registry->entry[i].name) == length &&
            !memcmp(registry->entry[i].name, name, length))
            return &registry->entry[i];
    return NULL;
}

static int name_is_good(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && n <= 31 && name[n] == 0;
}

#define NEED(of, object, member)                                                                   \
    if (!(object)->member)                                                                         \
    INVALID("its required member " of #member " is NULL")

/* Checks the size of a kernel's table, which reaches as far as `run` at least, and its name. */
static heed_status check_head(const char *kind, size_t size, size_t least, const char *const *name,
                              heed_error *why)
{
    if (size < least)
        return heed_fail(why, HEED_ERR_ABI, "its %s kernel has %zu bytes, at least %zu are needed",
                         kind, size, least);
    if (!*name || !name_is_good(*name))
        INVALID("the name of its %s kernel must be 1 to 31 characters of a-z, 0-9 and _", kind);
    return HEED_OK;
}

/* Checks everything that core calls later without a check. */
static heed_status check_attn(const heed_attn_kernel *k, heed_error *why)
{
    if (!k)
        INVALID("one of its n_attn kernels is NULL");
    heed_status st = check_head("attention", k->struct_size,
                                offsetof(heed_attn_kernel, run) + sizeof k->run, &k->name, why);
    if (st != HEED_OK)
        return st;
    NEED("attn.", k, supports);
    NEED("attn.", k, cost);
    NEED("attn.", k, tiling);
    NEED("attn.", k, run);
    if ((HEED_KERNEL_HAS(k, plan_create) != 0) != (HEED_KERNEL_HAS(k, plan_destroy) != 0))
        INVALID("its kernel %s has one of plan_create and plan_destroy without the other", k->name);
    return HEED_OK;
}

static heed_status check_linear(const heed_linear_kernel *k, heed_error *why)
{
    if (!k)
        INVALID("one of its n_linear kernels is NULL");
    heed_status st = check_head("linear", k->struct_size,
                                offsetof(heed_linear_kernel, run) + sizeof k->run, &k->name, why);
    if (st != HEED_OK)
        return st;
    NEED("linear.", k, supports);
    NEED("linear.", k, cost);
    NEED("linear.", k, tiling);
    NEED("linear.", k, pack);
    NEED("linear.", k, run);
    if ((HEED_KERNEL_HAS(k, plan_create) != 0) != (HEED_KERNEL_HAS(k, plan_destroy) != 0))
        INVALID("its kernel %s has one of plan_create and plan_destroy without the other", k->name);
    return HEED_OK;
}

static heed_status check_kernels(const heed_registry *registry, const heed_backend *b,
                                 heed_error *why)
{
    heed_status st = HEED_OK;
    if (b->n_attn == 0 && b->n_linear == 0)
        INVALID("it has no kernels");
    if ((b->n_attn && !b->attn) || (b->n_linear && !b->linear))
        INVALID("its list of kernels %s is NULL", b->n_attn && !b->attn ? "attn" : "linear");
    if (b->n_attn > HEED_MAX_KERNELS - registry->n_kernels ||
        b->n_linear > HEED_MAX_KERNELS - registry->n_kernels - b->n_attn)
        INVALID("it has %llu kernels, and there are %u of at most %d already",
                (unsigned long long)b->n_attn + b->n_linear, registry->n_kernels, HEED_MAX_KERNELS);
    for (uint32_t i = 0; i < b->n_attn && st == HEED_OK; i++)
        st = check_attn(b->attn[i], why);
    for (uint32_t i = 0; i < b->n_linear && st == HEED_OK; i++)
        st = check_linear(b->linear[i], why);
    return st;
}

static heed_status check_append(const heed_append_kernel *k, heed_error *why)
{
    heed_status st = check_head("append", k->struct_size,
                                offsetof(heed_append_kernel, run) + sizeof k->run, &k->name, why);
    if (st != HEED_OK)
        return st;
    NEED("append.", k, supports);
    NEED("append.", k, run);
    return HEED_OK;
}

static heed_status check_table(heed_registry *registry, const heed_backend *b, heed_error *why)
{
    const size_t least = offsetof(heed_backend, n_linear) + sizeof b->n_linear;
    if (b->abi != HEED_BACKEND_ABI)
        return heed_fail(why, HEED_ERR_ABI, "its abi is %u, this library's is %u", b->abi,
                         HEED_BACKEND_ABI);
    if (b->struct_size < least)
        return heed_fail(why, HEED_ERR_ABI, "its table has %u bytes, at least %zu are needed",
                         b->struct_size, least);
    if (!b->name || !name_is_good(b->name))
        INVALID("its name must be 1 to 31 characters of a-z, 0-9 and _");
    NEED("", b, summary);
    heed_status st = check_kernels(registry, b, why);
    if (st == HEED_OK && HEED_KERNEL_HAS(b, append))
        st = check_append(b->append, why);
    if (st != HEED_OK)
        return st;
    if (heed_registry_find(registry, b->name, strlen(b->name)))
        INVALID("the name %s is taken", b->name);
    const uint32_t most = HEED_MAX_BACKENDS - !registry->rest;
    if (registry->n == most)
        INVALID("there are %u backends and files already", most);
    return HEED_OK;
}

static void add_kernel(heed_registry *registry, heed_entry *entry, const heed_attn_kernel *attn,
                       const heed_linear_kernel *linear)
{
    heed_kernel *k = &registry->kernel[registry->n_kernels++];
    memset(k, 0, sizeof *k);
    k->of = entry;
    k->machine = entry->machine;
    k->attn = attn;
    k->linear = linear;
    k->name = attn ? attn->name : linear->name;
    entry->n++;
}

heed_status heed_registry_add(heed_registry *registry, const heed_cpu *cpu,
                              const heed_backend *backend, heed_error *why)
{
    heed_status st = check_table(registry, backend, why);
    if (st != HEED_OK)
        return st;
    heed_entry *entry = &registry->entry[registry->n];
    memset(entry, 0, sizeof *entry);
    if (backend->open)
        st = backend->open(cpu, &entry->machine, &entry->why);
    if (st == HEED_ERR_NOMEM) /* says nothing of the machine, and the next time may be better */
        return heed_fail(why, st, "no memory to open the backend %s", backend->name);
    entry->backend = backend;
    entry->first = registry->n_kernels;
    snprintf(entry->name, sizeof entry->name, "%s", backend->name);
    entry->usable = st == HEED_OK;
    entry->why.text[sizeof entry->why.text - 1] = 0;
    if (!entry->usable && !entry->why.text[0])
        heed_refuse(&entry->why, "its open refuses this machine and gives no reason");
    for (uint32_t i = 0; i < backend->n_attn && entry->usable; i++)
        add_kernel(registry, entry, backend->attn[i], NULL);
    for (uint32_t i = 0; i < backend->n_linear && entry->usable; i++)
        add_kernel(registry, entry, NULL, backend->linear[i]);
    registry->n++;
    return HEED_OK;
}

void heed_registry_close(heed_registry *registry)
{
    for (uint32_t i = 0; i < registry->n; i++)
        if (registry->entry[i].usable && registry->entry[i].backend->close)
            registry->entry[i].backend->close(registry->entry[i].machine);
    registry->n = registry->n_kernels = registry->n_failures = 0;
    registry->rest = NULL;
}

void heed_registry_add_failure(heed_registry *registry, const char *name, const heed_error *why)
{
    if (registry->rest) {
        heed_error *all = &registry->rest->why;
        const size_t n = strlen(all->text);
        snprintf(all->text + n, sizeof all->text - n, ", %s", name);
        return;
    }
    heed_entry *entry = &registry->entry[registry->n++];
    memset(entry, 0, sizeof *entry);
    if (registry->n < HEED_MAX_BACKENDS && registry->n_failures++ < HEED_MAX_FAILURES) {
        snprintf(entry->name, sizeof entry->name, "%s", name);
        entry->why = *why;
        return;
    }
    registry->rest = entry;
    snprintf(entry->name, sizeof entry->name, "more files");
    heed_refuse(&entry->why, "too many are no backends to give the reason of each: %s", name);
}
