/* The backends of a context: built in, from plugins, and registered by the engine; and their kernels. */
#ifndef HEED_CORE_REGISTRY_H
#define HEED_CORE_REGISTRY_H

#include <heed/backend.h>
#include <heed/context.h>
#include <stdatomic.h>

/* Entries in all; kernels; and files with entries of their own, so that they keep no backend out. */
enum { HEED_MAX_BACKENDS = 32, HEED_MAX_KERNELS = 64, HEED_MAX_FAILURES = 16 };

/* A backend, or a file that failed to be one. */
typedef struct heed_entry {
    const heed_backend *backend; /* NULL if it never got as far as a table */
    const void *machine;         /* what its open made for this context */
    char name[64];               /* the table's, or the plugin's file */
    int usable;                  /* table accepted and opened */
    uint32_t first, n;           /* its kernels in the registry; none unless usable */
    heed_error why;              /* if not usable */
} heed_entry;

/* A kernel of a usable backend. */
typedef struct heed_kernel {
    const heed_entry *of;
    const void *machine;          /* the entry's */
    const heed_attn_kernel *attn; /* one of the two: what it is a kernel of */
    const heed_linear_kernel *linear;
    const char *name;
    atomic_int trial; /* HEED_TRIAL_*: what the known-answer trial at first use found */
    heed_error trial_why;
} heed_kernel;

typedef struct heed_registry {
    uint32_t n, n_kernels, n_failures;
    heed_entry *rest; /* that of the failures without one, or NULL: then one is left for it */
    heed_entry entry[HEED_MAX_BACKENDS];
    heed_kernel kernel[HEED_MAX_KERNELS];
} heed_registry;

/* Adds a table and opens it; the entry says whether it is usable. An error if the table cannot be
 * accepted, or if its open had no memory: then there is no entry. */
heed_status heed_registry_add(heed_registry *registry, const heed_cpu *cpu,
                              const heed_backend *backend, heed_error *why);

/* Adds a name with the reason why it is no backend. Where there is no room for more of them, one entry
 * names all that follow. */
void heed_registry_add_failure(heed_registry *registry, const char *name, const heed_error *why);

/* Closes what was opened. */
void heed_registry_close(heed_registry *registry);

/* The usable or refused entry of that name, or NULL. `length` bytes of name count. */
heed_entry *heed_registry_find(heed_registry *registry, const char *name, size_t length);

#endif
