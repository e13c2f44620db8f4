/* Filling the registry of a new context. */
#ifndef HEED_CORE_LOAD_H
#define HEED_CORE_LOAD_H

#include "heed_config.h"
#include "registry.h"

#define HEED_BUILTIN(name) const heed_backend *heed_##name##_backend(void);
HEED_BUILTIN_LIST
#undef HEED_BUILTIN

/* Fills in the built-in backends, then the plugins of `plugin_path` (absolute folders, ':' between
 * them; NULL: none), then those of the installed folder (heed_plugins_installed) unless the path is
 * "". Of backends with the same name the first is taken; the others are listed with that reason,
 * except an installed one that the path replaces.
 * `path_from` names the option or variable that the path comes from. */
heed_status heed_load_backends(heed_registry *registry, const heed_cpu *cpu,
                               const char *plugin_path, const char *path_from, heed_error *why);

#endif
