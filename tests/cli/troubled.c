/*
 * Plugins for the tests of the command: the example plugin under other names, with faults. It is
 * compiled once for each name below, with TROUBLED set to the name; see meson.build.
 */
#define heed_backend_entry example_entry
#include "../../examples/plugin.c"
#undef heed_backend_entry

#include "../unit/changed.h"

#include <signal.h>
#include <unistd.h>

enum {
    leaving,  /* ends the process, as a tool that watches it may */
    faulting, /* crashes with an illegal instruction, as where CPUID claims what the CPU lacks */
    lying, /* has a second kernel with wrong results, and one of linear layers that does nothing */
    stumbling /* passes its trial, but fails with a head dim of 7 */
};

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static heed_status troubled_tile(const void *machine, const void *state,
                                 const heed_problem *problem, heed_tile *tile, void *scratch)
{
    if (TROUBLED == faulting)
        raise(SIGILL);
    if (TROUBLED == leaving)
        _exit(99);
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

static heed_status linear_supports(const void *machine, const heed_linear_problem *problem,
                                   heed_error *why)
{
    (void)machine;
    return problem->x_type == HEED_F32 ? HEED_OK : heed_refuse(why, "x_type is not f32");
}

static double linear_cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    (void)machine, (void)problem;
    return (double)rows;
}

static heed_status linear_tiling(const void *machine, const heed_linear_problem *problem,
                                 heed_linear_tiling *out)
{
    (void)machine, (void)problem;
    out->rows = out->cols = out->panel_cols = 1;
    out->panel_bytes = 64;
    return HEED_OK;
}

static heed_status linear_pack(const void *machine, const heed_linear_problem *problem,
                               const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                               void *panel)
{
    (void)machine, (void)problem, (void)weight, (void)col_first, (void)col_end;
    memset(panel, 0, 64);
    return HEED_OK;
}

static heed_status linear_nothing(const void *machine, const void *state,
                                  const heed_linear_problem *problem, const heed_linear_tile *tile,
                                  void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_OK;
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
        table.linear = (heed_linear_kernel){.struct_size = sizeof table.linear,
                                            .name = "nothing",
                                            .supports = linear_supports,
                                            .cost = linear_cost,
                                            .tiling = linear_tiling,
                                            .pack = linear_pack,
                                            .run = linear_nothing};
        table.backend.n_linear = 1;
    }
    return &table.backend;
}
