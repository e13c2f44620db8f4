/* The backends that a new context has: those that are linked in, then plugins. */
#include "load.h"

#include "plugin.h"

heed_status heed_load_backends(heed_registry *registry, const heed_cpu *cpu,
                               const char *plugin_path, const char *path_from, heed_error *why)
{
    heed_status st = HEED_OK;
#define HEED_BUILTIN(name)                                                                         \
    if (st == HEED_OK)                                                                             \
        st = heed_registry_add(registry, cpu, heed_##name##_backend(), why);
    HEED_BUILTIN_LIST
#undef HEED_BUILTIN
    const uint32_t n_builtin = registry->n;
    /* The user's plugins come first, so that an installed one does not keep a newer
     * build of it out. */
    if (st == HEED_OK && plugin_path)
        st = heed_plugins_load_path(registry, cpu, plugin_path, path_from, why);
    char room[HEED_PLUGINS_PATH];
    const int no_plugins = plugin_path && !*plugin_path;
    if (st == HEED_OK && !no_plugins)
        heed_plugins_load(registry, cpu, heed_plugins_installed(HEED_PLUGIN_FOLDER, room),
                          n_builtin);
    return st;
}
