/* Backends from shared objects. */
#ifndef HEED_CORE_PLUGIN_H
#define HEED_CORE_PLUGIN_H

#include "registry.h"

/* Loads every *.so of one folder, in the order of their names. A file that is no plugin becomes an
 * entry with the reason, and so does a folder that cannot be read; one that does not exist is empty.
 * A backend is passed over whose name the registry has from another folder, that is among its
 * entries from `others` on. */
void heed_plugins_load(heed_registry *registry, const heed_cpu *cpu, const char *folder,
                       uint32_t others);

/* The same for each folder of a ':'-separated list, which the user gave as `from`; a name that two of
 * them give is an entry with that reason. All of them must be absolute, so that nobody's current
 * directory decides what code runs. */
heed_status heed_plugins_load_path(heed_registry *registry, const heed_cpu *cpu, const char *path,
                                   const char *from, heed_error *why);

enum { HEED_PLUGINS_PATH = 4096 };

/* The folder of installed plugins: heed/backends beside libheed.so, wherever that lies now (`room`
 * holds it); `folder` where this code is in a program or in another module, or nobody can tell. */
const char *heed_plugins_installed(const char *folder, char room[HEED_PLUGINS_PATH]);

#endif
