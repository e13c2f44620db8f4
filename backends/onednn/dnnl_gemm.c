/* oneDNN 2.x and 3.x behind one interface. */
#include "dnnl_gemm.h"

#include <string.h>

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t memory_layout;
#else
typedef const dnnl_memory_desc_t *memory_layout;
#endif
#define HAS_MATH_MODES (DNNL_VERSION_MAJOR > 2 || DNNL_VERSION_MINOR >= 6)

static dnnl_status_t describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                              const heed_gemm_shape *shape, dnnl_primitive_attr_t attributes)
{
    const dnnl_dims_t dims[3] = {{shape->m, shape->k}, {shape->k, shape->n}, {shape->m, shape->n}};
    const dnnl_dims_t strides[3] = {
        {shape->k, 1},
        {shape->transposed ? 1 : shape->n, shape->transposed ? shape->k : 1},
        {shape->n, 1}};
    const dnnl_data_type_t type[3] = {shape->type, shape->type, dnnl_f32};
    dnnl_status_t status = dnnl_success;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t layout[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = dnnl_memory_desc_create_with_strides(&layout[i], 2, dims[i], type[i], strides[i]);
    if (status == dnnl_success)
        status = dnnl_matmul_primitive_desc_create(out, engine, layout[0], layout[1], NULL,
                                                   layout[2], attributes);
    for (int i = 0; i < 3; i++)
        if (layout[i])
            dnnl_memory_desc_destroy(layout[i]);
#else
    dnnl_memory_desc_t layout[3];
    dnnl_matmul_desc_t product;
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = dnnl_memory_desc_init_by_strides(&layout[i], 2, dims[i], type[i], strides[i]);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&product, &layout[0], &layout[1], NULL, &layout[2]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &product, attributes, engine, NULL);
#endif
    return status;
}

static memory_layout layout_of(const heed_gemm *gemm, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(gemm->description, what, 0);
}

dnnl_status_t heed_gemm_describe(heed_gemm *gemm, dnnl_engine_t engine,
                                 const heed_gemm_shape *shape)
{
    dnnl_primitive_attr_t attributes;
    memset(gemm, 0, sizeof *gemm);
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
#if HAS_MATH_MODES
    /* The process may allow f32 products to be made of bf16 ones, for layers of its own: by
     * dnnl_set_default_fpmath_mode or ONEDNN_DEFAULT_FPMATH_MODE. Ours have an accuracy that was
     * asked for. */
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict);
#endif
    if (status == dnnl_success)
        status = describe(&gemm->description, engine, shape, attributes);
    dnnl_primitive_attr_destroy(attributes);
    if (status == dnnl_success)
        gemm->scratchpad_bytes =
            dnnl_memory_desc_get_size(layout_of(gemm, dnnl_query_scratchpad_md));
    return status;
}

dnnl_status_t heed_gemm_create(heed_gemm *gemm)
{
    return dnnl_primitive_create(&gemm->primitive, gemm->description);
}

void heed_gemm_destroy(heed_gemm *gemm)
{
    if (gemm->primitive)
        dnnl_primitive_destroy(gemm->primitive);
    if (gemm->description)
        dnnl_primitive_desc_destroy(gemm->description);
    memset(gemm, 0, sizeof *gemm);
}

dnnl_status_t heed_gemm_memory_create(heed_gemm_memory *memory, dnnl_engine_t engine,
                                      const heed_gemm *gemm)
{
    const dnnl_query_t what[4] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md,
                                  dnnl_query_scratchpad_md};
    dnnl_memory_t *to[4] = {&memory->a, &memory->b, &memory->c, &memory->scratchpad};
    dnnl_status_t status = dnnl_success;
    memset(memory, 0, sizeof *memory);
    for (int i = 0; i < (gemm->scratchpad_bytes ? 4 : 3) && status == dnnl_success; i++)
        status = dnnl_memory_create(to[i], layout_of(gemm, what[i]), engine, DNNL_MEMORY_NONE);
    return status;
}

void heed_gemm_memory_destroy(heed_gemm_memory *memory)
{
    dnnl_memory_t all[4] = {memory->a, memory->b, memory->c, memory->scratchpad};
    for (int i = 0; i < 4; i++)
        if (all[i])
            dnnl_memory_destroy(all[i]);
    memset(memory, 0, sizeof *memory);
}

dnnl_status_t heed_gemm_execute(const heed_gemm *gemm, dnnl_stream_t stream,
                                const heed_gemm_memory *memory, const void *a, const void *b,
                                float *c, void *scratchpad)
{
    const dnnl_exec_arg_t arguments[4] = {{DNNL_ARG_SRC, memory->a},
                                          {DNNL_ARG_WEIGHTS, memory->b},
                                          {DNNL_ARG_DST, memory->c},
                                          {DNNL_ARG_SCRATCHPAD, memory->scratchpad}};
    int n = memory->scratchpad ? 4 : 3;
    /* Sources are not written: the interface has no constant handles. */
    void *handle[4] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c, scratchpad};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < n && status == dnnl_success; i++)
        status = dnnl_memory_set_data_handle(arguments[i].memory, handle[i]);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(gemm->primitive, stream, n, arguments);
    return status == dnnl_success ? dnnl_stream_wait(stream) : status;
}

const char *heed_dnnl_status_name(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success:
        return "success";
    case dnnl_out_of_memory:
        return "out_of_memory";
    case dnnl_invalid_arguments:
        return "invalid_arguments";
    case dnnl_unimplemented:
        return "unimplemented";
    case dnnl_runtime_error:
        return "runtime_error";
    default:
        return "an unknown status";
    }
}
