/* What the environment says, read once per context. */
#ifndef HEED_CORE_ENV_H
#define HEED_CORE_ENV_H

#include <heed/status.h>

/* The variable's value, or NULL if it is unset or empty. */
const char *heed_env(const char *name);

/* The same, but NULL in a set-uid process: for variables that could load code. */
const char *heed_env_secure(const char *name);

/* HEED_NUM_THREADS, or else the least of OMP_NUM_THREADS, the affinity mask and the cgroup's
 * cpu.max, rounded up. At least 1. Fails if HEED_NUM_THREADS is set to anything else than a number
 * of at least 1. */
heed_status heed_env_threads(uint32_t *n, heed_error *why);

/* Does OMP_WAIT_POLICY send OpenMP's workers to sleep between two regions? */
int heed_env_workers_sleep(void);

#endif
