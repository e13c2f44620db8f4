/* How many CPUs' time the cgroup has. */
#ifndef HEED_CORE_CGROUP_H
#define HEED_CORE_CGROUP_H

#include <stdint.h>

/* The tightest cpu.max of the cgroup (v2) that the file `groups` names, /proc/self/cgroup say, and of
 * those above it, in whole threads, rounded up. `root` is where cgroups lie: /sys/fs/cgroup. 0: no limit
 * is known. */
uint32_t heed_cgroup_threads(const char *groups, const char *root);

#endif
