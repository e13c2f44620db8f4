/*
 * Plugins that break the contract, each in one way: the example plugin with something spoilt.
 * Compiled once for each name below, with HOSTILE set to it; see meson.build.
 */
#define heed_backend_entry example_entry
#include "../../examples/plugin.c"
#undef heed_backend_entry

#include "../unit/changed.h"

enum {
    none, /* spoils nothing: a good plugin of another name */
    wrong_abi,
    short_table, /* as made for a library without linear layers */
    long_table,  /* made for a later library: works */
    null_member,
    entry_null, /* "cannot serve this host" */
    failing_open,
    silent_open,    /* fails and gives no reason */
    duplicate_name, /* of a backend that is linked in */
    bad_name,
    wrong_answers,
    silent_answers, /* claims success and writes nothing */
    failing_tile,
    failing_tiling,
    no_rows,  /* tiles of 0 rows */
    all_rows, /* tiles of UINT32_MAX */
    lone_plan_create,
    lone_linear_plan,
    no_kernels,
};

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static heed_status refusing_open(const heed_cpu *cpu, const void **machine, heed_error *why)
{
    (void)machine, (void)cpu;
    return HOSTILE == silent_open ? HEED_ERR_UNSUPPORTED
                                  : heed_refuse(why, "this machine has no %s", "quantum unit");
}

static heed_status spoilt_tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine;
    heed_status status = tiling(machine, problem, out);
    if (HOSTILE == no_rows)
        out->query_rows = 0;
    if (HOSTILE == all_rows)
        out->query_rows = UINT32_MAX;
    return HOSTILE == failing_tiling ? HEED_ERR_BACKEND : status;
}

/* Wrong in the ways of a machine that lies about its features. */
static heed_status spoilt_tile(const void *machine, const void *state, const heed_problem *problem,
                               heed_tile *tile, void *scratch)
{
    (void)machine;
    heed_status status = HEED_OK;
    if (HOSTILE != silent_answers)
        status = run(machine, state, problem, tile, scratch);
    for (int64_t r = 0; HOSTILE == wrong_answers && r < tile->n_heads * tile->q_count; r++)
        tile->row_sum[r] *= 2;
    return HOSTILE == failing_tile ? HEED_ERR_BACKEND : status;
}

static heed_status no_linear_plan(const void *machine, const heed_linear_problem *problem,
                                  void **state)
{
    (void)machine, (void)problem, (void)state;
    return HEED_OK;
}

/* None of these is called: the table is refused before. */
static heed_status any_layer(const void *machine, const heed_linear_problem *problem,
                             heed_error *why)
{
    (void)machine, (void)problem, (void)why;
    return HEED_OK;
}

static double any_cost(const void *machine, const heed_linear_problem *problem, int64_t rows)
{
    (void)machine, (void)problem, (void)rows;
    return 0;
}

static heed_status any_tiling(const void *machine, const heed_linear_problem *problem,
                              heed_linear_tiling *out)
{
    (void)machine, (void)problem, (void)out;
    return HEED_OK;
}

static heed_status any_pack(const void *machine, const heed_linear_problem *problem,
                            const heed_linear_weight *weight, int64_t col_first, int64_t col_end,
                            void *panel)
{
    (void)machine, (void)problem, (void)weight, (void)col_first, (void)col_end, (void)panel;
    return HEED_OK;
}

static heed_status any_run(const void *machine, const void *state,
                           const heed_linear_problem *problem, const heed_linear_tile *tile,
                           void *scratch)
{
    (void)machine, (void)state, (void)problem, (void)tile, (void)scratch;
    return HEED_OK;
}

static heed_status no_plan(const void *machine, const heed_problem *problem, void **state)
{
    (void)machine, (void)problem;
    (void)state;
    return HEED_OK;
}

#ifndef HOSTILE_ENTRY
#define HOSTILE_ENTRY heed_backend_entry
#endif
HEED_API const heed_backend *HOSTILE_ENTRY(uint32_t host_abi, size_t host_struct_size);

const heed_backend *HOSTILE_ENTRY(uint32_t host_abi, size_t host_struct_size)
{
    static changed_backend changed;
    static struct {
        heed_backend table;
        const char *unknown[4]; /* members of a later version */
    } later;
    heed_backend *table = &changed.backend;
    heed_attn_kernel *attn = &changed.attn;

    change_backend(&changed, example_entry(host_abi, host_struct_size), TEXT(HOSTILE));
    if (HOSTILE == wrong_abi)
        table->abi++;
    if (HOSTILE == short_table)
        table->struct_size = offsetof(heed_backend, linear);
    if (HOSTILE == null_member)
        attn->tiling = NULL;
    if (HOSTILE == failing_open || HOSTILE == silent_open)
        table->open = refusing_open;
    if (HOSTILE == duplicate_name)
        table->name = "naive";
    if (HOSTILE == bad_name)
        table->name = "No Name!";
    if (HOSTILE == no_kernels)
        table->n_attn = 0;
    if (HOSTILE == lone_plan_create)
        attn->plan_create = no_plan;
    if (HOSTILE == lone_linear_plan) {
        changed.linear = (heed_linear_kernel){.struct_size = sizeof changed.linear,
                                              .name = "lone",
                                              .supports = any_layer,
                                              .cost = any_cost,
                                              .tiling = any_tiling,
                                              .pack = any_pack,
                                              .run = any_run,
                                              .plan_create = no_linear_plan};
        table->n_linear = 1;
    }
    if (HOSTILE == failing_tiling || HOSTILE == no_rows || HOSTILE == all_rows)
        attn->tiling = spoilt_tiling;
    if (HOSTILE == wrong_answers || HOSTILE == silent_answers || HOSTILE == failing_tile)
        attn->run = spoilt_tile;
    if (HOSTILE == long_table) {
        later.table = *table;
        later.table.struct_size = sizeof later;
        later.unknown[0] = "what this library cannot know";
        table = &later.table;
    }
    return HOSTILE == entry_null ? NULL : table;
}
