/*
 * Plugins for the tests of the command line: the example plugin, renamed, and in trouble.
 * Compiled once for each name below, with TROUBLED set to it; see meson.build.
 */
#define heed_backend_entry example_entry
#include "../../examples/plugin.c"
#undef heed_backend_entry

#include "../unit/changed.h"

#include <signal.h>

enum {
    faulting, /* dies of an illegal instruction, as on a machine that lies about what it has */
    stumbling /* passes its trial, and fails on heads of 7 values */
};

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static heed_status troubled_tile(const void *machine, const void *state,
                                 const heed_problem *problem, heed_tile *tile, void *scratch)
{
    if (TROUBLED == faulting)
        raise(SIGILL);
    if (TROUBLED == stumbling && problem->v_dim == 7)
        return HEED_ERR_BACKEND;
    return run(machine, state, problem, tile, scratch);
}

HEED_API const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size);

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    static changed_backend table;
    change_backend(&table, example_entry(host_abi, host_struct_size), TEXT(TROUBLED));
    table.attn.run = troubled_tile;
    return &table.backend;
}
