/* The backends of a context: built in, from plugins, and registered by the engine. */
#ifndef HEED_CORE_REGISTRY_H
#define HEED_CORE_REGISTRY_H

#include <heed/backend.h>
#include <stdatomic.h>

enum { HEED_MAX_BACKENDS = 32 };
enum { HEED_TRIAL_NOT_YET, HEED_TRIAL_PASSED, HEED_TRIAL_FAILED };

/* Something that is or wanted to be a backend. */
typedef struct heed_entry {
    const heed_backend *backend; /* NULL if it never got as far as a table */
    char name[64];               /* the table's, or the plugin's file */
    int usable;                  /* table accepted and probe passed */
    heed_error why;              /* if not */
    atomic_int trial;            /* HEED_TRIAL_*: the known-answer trial, at first use */
    atomic_int linear_trial;     /* that of linear layers */
    heed_error trial_why, linear_trial_why;
} heed_entry;

typedef struct heed_registry {
    uint32_t n;
    heed_entry entry[HEED_MAX_BACKENDS];
} heed_registry;

/* Adds a table; the entry says whether it is usable. An error if the table cannot be accepted. */
heed_status heed_registry_add(heed_registry *registry, const heed_cpu *cpu,
                              const heed_backend *backend, heed_error *why);

/* Adds a name with the reason why it is no backend. */
void heed_registry_add_failure(heed_registry *registry, const char *name, const heed_error *why);

/* The usable or refused entry of that name, or NULL. `length` bytes of name count. */
heed_entry *heed_registry_find(heed_registry *registry, const char *name, size_t length);

#endif
