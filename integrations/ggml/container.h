/* The memory that a container leaves to the process. */
#ifndef GGML_HEED_CONTAINER_H
#define GGML_HEED_CONTAINER_H

#include <stdint.h>

/* The least of the limits of the cgroups that a process is in and of those above them; UINT64_MAX if there
 * is none. groups: /proc/self/cgroup; root: where cgroups are mounted, /sys/fs/cgroup. */
uint64_t container_bytes(const char *groups, const char *root);

#endif
