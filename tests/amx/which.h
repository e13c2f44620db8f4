/* Which of the AMX kernels a test runs: those on the model or, with the argument `emulated` or
 * `hardware`, those compiled for the unit. */
#ifndef HEED_TESTS_AMX_WHICH_H
#define HEED_TESTS_AMX_WHICH_H

#include "amx.h"
#include "base/cpu.h"
#include "emulate.h"

#include "../unit/unit.h"

/* A context that has them alone, as backend `name`; NULL, with a line printed, if they cannot
 * run. */
static inline heed_context *which_context(int argc, char **argv, const char *name)
{
    const int emulated = argc > 1 && !strcmp(argv[1], "emulated");
    const int hardware = argc > 1 && !strcmp(argv[1], "hardware");
    static heed_backend table;
    heed_context *context;
    heed_error why = {""};
    const void *machine = NULL;
    heed_cpu cpu;
    heed_cpu_detect(&cpu);
    table = emulated || hardware ? *heed_amx_backend() : *heed_amx_model_backend();
    table.name = name;
    if (emulated)
        table.open = heed_amx_emulate;
    if ((emulated || hardware) && table.open(&cpu, &machine, &why) != HEED_OK) {
        printf("cannot run here: %s\n", why.text);
        return NULL;
    }
    context = unit_context(1, name);
    CHECK_OK(heed_context_register(context, &table));
    return context;
}

#endif
