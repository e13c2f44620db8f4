/*
 * Plugins that break the contract, each in one way: the example plugin with something spoilt.
 * Compiled once for each name below, with HOSTILE set to it; see meson.build.
 */
#define heed_backend_entry example_entry
#include "../../examples/plugin.c"
#undef heed_backend_entry

enum {
    none, /* spoils nothing: a good plugin of another name */
    wrong_abi,
    short_table, /* as of a library that had no run_tile yet */
    long_table,  /* of a later library: works */
    null_member,
    entry_null, /* "cannot serve this host" */
    failing_probe,
    silent_probe,   /* fails and gives no reason */
    duplicate_name, /* of a backend that is linked in */
    bad_name,
    wrong_answers,
    silent_answers, /* claims success and writes nothing */
    failing_tile,
    failing_tiling,
    no_rows,  /* tiles of 0 rows */
    all_rows, /* tiles of UINT32_MAX */
    lone_plan_create,
    lone_linear_plan, /* without linear layers */
};

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static heed_status refusing_probe(const heed_cpu *cpu, heed_error *why)
{
    (void)cpu;
    return HOSTILE == silent_probe ? HEED_ERR_UNSUPPORTED
                                   : heed_refuse(why, "this machine has no %s", "quantum unit");
}

static heed_status spoilt_tiling(const heed_problem *problem, heed_tiling *out)
{
    heed_status status = tiling(problem, out);
    if (HOSTILE == no_rows)
        out->query_rows = 0;
    if (HOSTILE == all_rows)
        out->query_rows = UINT32_MAX;
    return HOSTILE == failing_tiling ? HEED_ERR_BACKEND : status;
}

/* As wrong as a machine would be that lies about its features. */
static heed_status spoilt_tile(const void *state, const heed_problem *problem, heed_tile *tile,
                               void *scratch)
{
    heed_status status = HEED_OK;
    if (HOSTILE != silent_answers)
        status = run_tile(state, problem, tile, scratch);
    for (int64_t r = 0; HOSTILE == wrong_answers && r < tile->n_heads * tile->q_count; r++)
        tile->row_sum[r] *= 2;
    return HOSTILE == failing_tile ? HEED_ERR_BACKEND : status;
}

static heed_status no_linear_plan(const heed_linear_problem *problem, void **state)
{
    (void)problem;
    (void)state;
    return HEED_OK;
}

static heed_status no_plan(const heed_problem *problem, void **state)
{
    (void)problem;
    (void)state;
    return HEED_OK;
}

#ifndef HOSTILE_ENTRY
#define HOSTILE_ENTRY heed_backend_entry
#endif
HEED_API const heed_backend *HOSTILE_ENTRY(uint32_t host_abi, size_t host_struct_size);

const heed_backend *HOSTILE_ENTRY(uint32_t host_abi, size_t host_struct_size)
{
    static struct {
        heed_backend table;
        const char *unknown[4]; /* members of a later version */
    } later;
    heed_backend *table = &later.table;

    *table = *example_entry(host_abi, host_struct_size);
    table->name = TEXT(HOSTILE);
    if (HOSTILE == wrong_abi)
        table->abi++;
    if (HOSTILE == short_table)
        table->struct_size = offsetof(heed_backend, run_tile);
    if (HOSTILE == long_table) {
        table->struct_size = sizeof later;
        later.unknown[0] = "what this library cannot know";
    }
    if (HOSTILE == null_member)
        table->tiling = NULL;
    if (HOSTILE == failing_probe || HOSTILE == silent_probe)
        table->probe = refusing_probe;
    if (HOSTILE == duplicate_name)
        table->name = "naive";
    if (HOSTILE == bad_name)
        table->name = "No Name!";
    if (HOSTILE == lone_plan_create)
        table->plan_create = no_plan;
    if (HOSTILE == lone_linear_plan)
        table->linear_plan_create = no_linear_plan;
    if (HOSTILE == failing_tiling || HOSTILE == no_rows || HOSTILE == all_rows)
        table->tiling = spoilt_tiling;
    if (HOSTILE == wrong_answers || HOSTILE == silent_answers || HOSTILE == failing_tile)
        table->run_tile = spoilt_tile;
    return HOSTILE == entry_null ? NULL : table;
}
