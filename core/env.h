/* What the environment says, read once per context. */
#ifndef HEED_CORE_ENV_H
#define HEED_CORE_ENV_H

#include <stdint.h>

/* The variable's value, or NULL if it is unset or empty. */
const char *heed_env(const char *name);

/* The same, but NULL in a set-uid process: for what could load code. */
const char *heed_env_secure(const char *name);

/* HEED_NUM_THREADS, or else the least of OMP_NUM_THREADS, the affinity mask and the cgroup's
 * cpu.max, rounded up. At least 1. */
uint32_t heed_env_threads(void);

#endif
