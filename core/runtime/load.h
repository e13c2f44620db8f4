/* Filling the registry of a new context. */
#ifndef HEED_CORE_LOAD_H
#define HEED_CORE_LOAD_H

#include "registry.h"

/* Fills in the built-in backends and the plugins of `plugin_path` (absolute folders, ':' between them;
 * NULL: none), which the user gave as `path_from`, and of the installed folder. Of two that have one
 * name the first is taken. */
heed_status heed_load_backends(heed_registry *registry, const heed_cpu *cpu,
                               const char *plugin_path, const char *path_from, heed_error *why);

#endif
