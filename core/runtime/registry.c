/* Accepting tables: a backend is listed with the reason if it cannot be used, never dropped. */
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

/* Everything that core will call without asking again. */
static heed_status check_table(heed_registry *registry, const heed_backend *b, heed_error *why)
{
    const size_t least = offsetof(heed_backend, run_tile) + sizeof b->run_tile;
    if (b->abi != HEED_BACKEND_ABI)
        return heed_fail(why, HEED_ERR_ABI, "its abi is %u, this library's is %u", b->abi,
                         HEED_BACKEND_ABI);
    if (b->struct_size < least)
        return heed_fail(why, HEED_ERR_ABI, "its table has %u bytes, at least %zu are needed",
                         b->struct_size, least);
    if (!b->name || !name_is_good(b->name))
        return heed_fail(why, HEED_ERR_INVALID,
                         "its name must be 1 to 31 characters of a-z, 0-9 and _");
#define NEED(member)                                                                               \
    if (!b->member)                                                                                \
    return heed_fail(why, HEED_ERR_INVALID, "its required member " #member " is NULL")
    NEED(summary);
    NEED(probe);
    NEED(supports);
    NEED(cost);
    NEED(tiling);
    NEED(run_tile);
#undef NEED
    if (!b->plan_create != !b->plan_destroy)
        return heed_fail(why, HEED_ERR_INVALID,
                         "it has one of plan_create and plan_destroy without the other");
    const int linear = !!HEED_BACKEND_HAS(b, linear_supports) + !!HEED_BACKEND_HAS(b, linear_cost) +
                       !!HEED_BACKEND_HAS(b, linear_tiling) + !!HEED_BACKEND_HAS(b, linear_pack) +
                       !!HEED_BACKEND_HAS(b, linear_tile);
    if (linear != 0 && linear != 5)
        return heed_fail(why, HEED_ERR_INVALID, "it has %d of the 5 linear_ members, all or none",
                         linear);
    const int plan = HEED_BACKEND_HAS(b, linear_plan_create) != 0;
    if (plan != (HEED_BACKEND_HAS(b, linear_plan_destroy) != 0) || plan > linear)
        return heed_fail(why, HEED_ERR_INVALID,
                         "it has linear_plan_create or linear_plan_destroy without %s",
                         linear ? "the other" : "linear layers");
    if (heed_registry_find(registry, b->name, strlen(b->name)))
        return heed_fail(why, HEED_ERR_INVALID, "the name %s is taken", b->name);
    if (registry->n == HEED_MAX_BACKENDS)
        return heed_fail(why, HEED_ERR_INVALID, "there are %d backends already", HEED_MAX_BACKENDS);
    return HEED_OK;
}

heed_status heed_registry_add(heed_registry *registry, const heed_cpu *cpu,
                              const heed_backend *backend, heed_error *why)
{
    heed_status st = check_table(registry, backend, why);
    if (st != HEED_OK)
        return st;
    heed_entry *entry = &registry->entry[registry->n];
    memset(entry, 0, sizeof *entry);
    entry->backend = backend;
    snprintf(entry->name, sizeof entry->name, "%s", backend->name);
    entry->usable = backend->probe(cpu, &entry->why) == HEED_OK;
    entry->why.text[sizeof entry->why.text - 1] = 0;
    if (!entry->usable && !entry->why.text[0])
        heed_refuse(&entry->why, "its probe refuses this machine and gives no reason");
    registry->n++;
    return HEED_OK;
}

void heed_registry_add_failure(heed_registry *registry, const char *name, const heed_error *why)
{
    if (registry->n == HEED_MAX_BACKENDS)
        return;
    heed_entry *entry = &registry->entry[registry->n++];
    memset(entry, 0, sizeof *entry);
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->why = *why;
}
