/* How many CPUs' worth of time the cgroup of a process may use. */
#ifndef HEED_CORE_CGROUP_H
#define HEED_CORE_CGROUP_H

#include <stdint.h>

/* The tightest cpu.max, in whole threads rounded up, of the cgroup (v2) that the file `groups`
 * names (normally /proc/self/cgroup) and of all cgroups above it. `root` is where the hierarchy is
 * mounted: /sys/fs/cgroup. 0 means that no limit is known. */
uint32_t heed_cgroup_threads(const char *groups, const char *root);

#endif
