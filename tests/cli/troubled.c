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
    lying,    /* has a second kernel, which is wrong: its trial leaves it the first */
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

static heed_status wrong_tile(const void *machine, const void *state, const heed_problem *problem,
                              heed_tile *tile, void *scratch)
{
    const heed_status status = run(machine, state, problem, tile, scratch);
    tile->acc[0] += 1;
    return status;
}

HEED_API const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size);

const heed_backend *heed_backend_entry(uint32_t host_abi, size_t host_struct_size)
{
    static changed_backend table;
    static heed_attn_kernel wrong;
    static const heed_attn_kernel *both[] = {&table.attn, &wrong};
    change_backend(&table, example_entry(host_abi, host_struct_size), TEXT(TROUBLED));
    table.attn.run = troubled_tile;
    wrong = table.attn;
    wrong.name = "wrong";
    wrong.run = wrong_tile;
    if (TROUBLED == lying) {
        table.backend.attn = both;
        table.backend.n_attn = 2;
    }
    return &table.backend;
}
