/* Backends from shared objects. */
#ifndef HEED_CORE_PLUGIN_H
#define HEED_CORE_PLUGIN_H

#include "registry.h"

/* Loads every *.so of one folder, in the order of their names. A file that is no plugin becomes an
 * entry with the reason; a folder that does not exist is an empty one. */
void heed_plugins_load(heed_registry *registry, const heed_cpu *cpu, const char *folder);

/* The same for each folder of a ':'-separated list, which the user gave as `from`. All of them must
 * be absolute, so that nobody's current directory decides what code runs. */
heed_status heed_plugins_load_path(heed_registry *registry, const heed_cpu *cpu, const char *path,
                                   const char *from, heed_error *why);

#endif
