/* A caller's struct ends where its struct_size says, and nothing behind that is read or written. The
 * missing bytes of a shorter struct count as 0, and those of a longer one have to be 0; of one whose size no
 * version has, only struct_size is read.
 * Each struct here lies at the end of a page that no accessible memory follows. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include <heed/backend.h>

#include "layer_setup.h"

static char *guarded; /* the end of accessible memory */

static void map_guard(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (two == MAP_FAILED || mprotect(two + page, page, PROT_NONE) != 0)
        exit(1);
    guarded = two + page;
}

/* The first `size` bytes of a struct, and nothing behind. */
static void *cut(const void *of, size_t size)
{
    return memcpy(guarded - size, of, size);
}

static heed_context *context;
static layer_setup *layer;
static heed_attn *plan;
static heed_linear *linear;
static heed_mha *mha;
static unit_problem problem;
static void *workspace;
static size_t workspace_bytes;
static float memory[128];

/* ---- the calls: each takes one struct -------------------------------------------------------- */

static heed_status make_context(void *options)
{
    heed_context *made = NULL;
    heed_status st = heed_context_create(options, &made);
    heed_context_release(made);
    return st;
}

static heed_status make_plan(void *desc)
{
    heed_attn *made = NULL;
    heed_status st = heed_attn_create(context, desc, &made);
    heed_attn_release(made);
    return st;
}

static heed_status ask_attention(void *desc)
{
    return heed_attn_supported(context, desc, NULL);
}

static heed_status attend_desc(void *desc)
{
    return heed_attention(context, desc, &problem.args);
}

static heed_status attend(void *args)
{
    return heed_attention(context, &problem.desc, args);
}

static heed_status run_plan(void *args)
{
    return heed_attn_run(plan, args, NULL, 0);
}

static heed_status run_plan_here(void *args)
{
    return heed_attn_run(plan, args, workspace, workspace_bytes);
}

static heed_status begin_plan(void *args)
{
    heed_status st = heed_attn_begin(plan, args, 1, workspace, workspace_bytes);
    return st == HEED_OK ? heed_run_part(workspace, 0) : st;
}

static heed_status ask_linear(void *desc)
{
    return heed_linear_supported(context, desc, NULL);
}

static heed_status make_linear(void *desc)
{
    const heed_const_view weight = {layer->w_in, {3 * DIM, 1}}, bias = {layer->bias, {1}};
    heed_linear *made = NULL;
    heed_status st = heed_linear_create(context, desc, &weight, &bias, &made);
    heed_linear_release(made);
    return st;
}

static heed_status run_linear(void *args)
{
    return heed_linear_run(linear, args, NULL, 0);
}

static heed_status begin_linear(void *args)
{
    heed_status st = heed_linear_begin(linear, args, 1, workspace, workspace_bytes);
    return st == HEED_OK ? heed_run_part(workspace, 0) : st;
}

static heed_status make_mha(void *desc)
{
    heed_mha *made = NULL;
    heed_status st = heed_mha_create(context, desc, &made);
    heed_mha_release(made);
    return st;
}

static heed_status make_mha_of(void *attn)
{
    heed_mha_desc desc = layer->desc;
    desc.attn = attn;
    return make_mha(&desc);
}

static heed_status run_mha(void *args)
{
    return heed_mha_run(mha, args, NULL, 0);
}

static heed_status begin_mha(void *args)
{
    heed_status st = heed_mha_begin(mha, args, 1, workspace, workspace_bytes);
    return st == HEED_OK ? heed_run_part(workspace, 0) : st;
}

static heed_status append_keys(void *args)
{
    return heed_kv_append(args);
}

static heed_status rotate(void *args)
{
    return heed_rotary(args);
}

static heed_status join(void *args)
{
    return heed_merge(args);
}

static heed_status run_on(void *executor)
{
    heed_attn_args args = problem.args;
    args.executor = executor;
    return heed_attn_run(plan, &args, NULL, 0);
}

static heed_status run_linear_on(void *executor)
{
    heed_linear_args args = layer->linear_args;
    args.executor = executor;
    return heed_linear_run(linear, &args, NULL, 0);
}

static heed_status make_context_on(void *executor)
{
    heed_context_options options = {.struct_size = sizeof options, .executor = executor};
    return make_context(&options);
}

/* ---- what each is given ---------------------------------------------------------------------- */

static void check_size(const char *name, heed_status (*call)(void *), const void *whole,
                       size_t whole_size, size_t size)
{
    unsigned char bytes[4096] = {0};
    memcpy(bytes, whole, size < whole_size ? size : whole_size);
    memcpy(bytes, &whole_size, sizeof whole_size);
    heed_status want = call(bytes); /* all of it, zeros where it would have ended */
    memcpy(bytes, &size, sizeof size);
    heed_status got = call(cut(bytes, size));
    CHECK(got == want, "%s cut to %zu bytes: %s, with zeros behind %s", name, size,
          heed_status_string(got), heed_status_string(want));
}

static void check_struct(const char *name, heed_status (*call)(void *), const void *whole,
                         size_t whole_size)
{
    static const size_t impossible[] = {0, 1, sizeof(void *), 17, 65544, SIZE_MAX, SIZE_MAX - 7};
    for (size_t size = 16; size <= whole_size + 32; size += 8)
        check_size(name, call, whole, whole_size, size);
    /* Of a newer caller, who sets what this library does not know. */
    unsigned char later[4096] = {0};
    const size_t more = whole_size + 32;
    memcpy(later, whole, whole_size);
    memcpy(later, &more, sizeof more);
    later[more - 1] = 1;
    CHECK(call(cut(later, more)) == HEED_ERR_ABI, "%s with something behind what is known", name);
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        heed_status st = call(cut(&impossible[i], sizeof *impossible));
        CHECK(st == HEED_ERR_ABI, "%s with a struct_size of %zu: %s", name, impossible[i],
              heed_status_string(st));
    }
}

#define CHECK_STRUCT(call, whole) check_struct(#call, call, &(whole), sizeof(whole))

static void structs_of_calls(void)
{
    const heed_context_options options = {.struct_size = sizeof options, .n_threads = 1};
    const heed_executor executor = {
        .struct_size = sizeof executor, .n_threads = 1, .parallel_for = unit_forwards};
    const heed_const_view one = {memory, {8, 8, 8, 1}};
    const heed_view other = {memory + 32, {8, 8, 8, 1}};
    const heed_kv_append_args append = {.struct_size = sizeof append,
                                        .batch = 1,
                                        .len = 1,
                                        .capacity = 1,
                                        .kv_heads = 1,
                                        .qk_dim = 8,
                                        .k_type = HEED_F32,
                                        .k_cache_type = HEED_F32,
                                        .k = one,
                                        .k_cache = other};
    const heed_rotary_args rotary = {.struct_size = sizeof rotary,
                                     .rotary = {.style = HEED_ROTARY_HALF, .dims = 8},
                                     .batch = 1,
                                     .len = 1,
                                     .heads = 1,
                                     .dim = 8,
                                     .x_type = HEED_F32,
                                     .y_type = HEED_F32,
                                     .x = one,
                                     .y = other};
    const heed_merge_args merge = {.struct_size = sizeof merge,
                                   .rows = 1,
                                   .heads = 1,
                                   .dim = 8,
                                   .a = one,
                                   .a_lse = one,
                                   .b = one,
                                   .b_lse = one,
                                   .out = other,
                                   .out_type = HEED_F32};
    CHECK_STRUCT(make_context, options);
    CHECK_STRUCT(make_plan, problem.desc);
    CHECK_STRUCT(ask_attention, problem.desc);
    CHECK_STRUCT(attend_desc, problem.desc);
    CHECK_STRUCT(attend, problem.args);
    CHECK_STRUCT(run_plan, problem.args);
    CHECK_STRUCT(run_plan_here, problem.args);
    CHECK_STRUCT(begin_plan, problem.args);
    CHECK_STRUCT(ask_linear, layer->in);
    CHECK_STRUCT(make_linear, layer->in);
    CHECK_STRUCT(run_linear, layer->linear_args);
    CHECK_STRUCT(begin_linear, layer->linear_args);
    CHECK_STRUCT(make_mha, layer->desc);
    CHECK_STRUCT(make_mha_of, layer->attn);
    CHECK_STRUCT(run_mha, layer->args);
    CHECK_STRUCT(begin_mha, layer->args);
    CHECK_STRUCT(append_keys, append);
    CHECK_STRUCT(rotate, rotary);
    CHECK_STRUCT(join, merge);
    CHECK_STRUCT(run_on, executor);
    CHECK_STRUCT(run_linear_on, executor);
    CHECK_STRUCT(make_context_on, executor);
}

/* ---- structs that a call fills --------------------------------------------------------------- */

static heed_group_threads *group;

static heed_status tell_backend(void *out)
{
    return heed_context_backend(context, 0, out);
}

static heed_status tell_trial(void *out)
{
    return heed_context_trial(context, 0, 0, out);
}

static heed_status tell_kernel(void *out)
{
    return heed_attn_kernel_of(plan, 1, 1, out);
}

static heed_status tell_layer(void *out)
{
    return heed_linear_kernel_of(linear, out);
}

static heed_status make_transport(void *out)
{
    return heed_group_threads_transport(group, 1, out);
}

static heed_status count_cost(void *out)
{
    static const int32_t first[] = {0, 3, 5};
    const heed_partition two = {
        .struct_size = sizeof two, .n_parts = 2, .key_first = first, .timeout_ns = 1};
    return heed_group_count(plan, &two, 1, 1, 0, 2, out);
}

/* A longer struct is of a newer caller, and gets zeros for what this library does not know. */
static void check_filled(const char *name, heed_status (*call)(void *), size_t whole_size)
{
    unsigned char whole[256], bytes[256], other[256];
    memset(whole, 0xa5, sizeof whole);
    memcpy(whole, &whole_size, sizeof whole_size);
    CHECK(call(whole) == HEED_OK, "%s: %s", name, heed_last_error());
    memset(whole + whole_size, 0, sizeof whole - whole_size);
    for (size_t size = 16; size <= whole_size + 16; size += 8) {
        memset(bytes, 0xa5, sizeof bytes);
        memcpy(bytes, &size, sizeof size);
        unsigned char *out = cut(bytes, size);
        heed_status st = call(out);
        memcpy(other, whole, size);
        memcpy(other, &size, sizeof size);
        CHECK(st == HEED_OK && !memcmp(out, other, size), "%s of %zu bytes: %s", name, size,
              st == HEED_OK ? "it differs" : heed_last_error());
    }
    memset(bytes, 0xa5, sizeof bytes);
    memset(bytes, 0, sizeof(size_t));
    memcpy(other, bytes, sizeof other);
    CHECK(call(bytes) == HEED_ERR_ABI && !memcmp(bytes, other, sizeof bytes), "%s of 0 bytes",
          name);
}

#define CHECK_FILLED(call, type) check_filled(#call, call, sizeof(type))

static void structs_of_results(void)
{
    CHECK(heed_group_threads_create(2, &group) == HEED_OK, "%s", heed_last_error());
    CHECK_FILLED(tell_backend, heed_backend_info);
    CHECK_FILLED(tell_trial, heed_trial_info);
    CHECK_FILLED(tell_kernel, heed_kernel_info);
    CHECK_FILLED(tell_layer, heed_kernel_info);
    CHECK_FILLED(make_transport, heed_transport);
    CHECK_FILLED(count_cost, heed_group_cost);
    heed_group_threads_release(group);
}

/* A backend's table tells its size as 32 bits behind its abi, and what is too short is refused. */
static void tables(void)
{
    for (size_t size = 8; size < offsetof(heed_backend, n_linear); size += 8) {
        unsigned char bytes[sizeof(heed_backend)] = {0};
        ((heed_backend *)cut(bytes, size))->abi = HEED_BACKEND_ABI;
        heed_backend *table = (void *)(guarded - size);
        table->struct_size = (uint32_t)size;
        heed_status st = heed_context_register(context, table);
        CHECK(st == HEED_ERR_ABI, "a table of %zu bytes: %s", size, heed_status_string(st));
    }
}

int main(void)
{
    map_guard();
    context = unit_context(1, NULL);
    layer = layer_prepare();
    problem = unit_make(2, 2, 3, 5, 8, 7);
    linear = layer_linear(context, layer);
    CHECK_OK(layer_create(context, layer, &mha));
    const heed_const_view weight = {layer->w_in, {3 * DIM, 1}}, out = {layer->w_out, {DIM, 1}};
    const heed_const_view bias = {layer->bias, {1}};
    CHECK_OK(heed_linear_create(context, &layer->in, &weight, &bias, &layer->desc.qkv_proj));
    CHECK_OK(heed_linear_create(context, &layer->out, &out, NULL, &layer->desc.out_proj));
    CHECK_OK(heed_attn_create(context, &problem.desc, &plan));
    const size_t needs[] = {heed_attn_workspace_bytes(plan, 1), heed_mha_workspace_bytes(mha, 1),
                            heed_linear_workspace_bytes(linear, 1)};
    for (int i = 0; i < 3; i++)
        if (needs[i] > workspace_bytes)
            workspace_bytes = needs[i];
    workspace = aligned_alloc(64, (workspace_bytes + 63) / 64 * 64);
    if (!workspace)
        return 1;
    structs_of_calls();
    structs_of_results();
    tables();
    free(workspace);
    heed_attn_release(plan);
    heed_linear_release(linear);
    heed_linear_release(layer->desc.qkv_proj);
    heed_linear_release(layer->desc.out_proj);
    heed_mha_release(mha);
    heed_context_release(context);
    unit_free(&problem);
    free(layer);
    return checks_end();
}
