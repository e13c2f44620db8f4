/* A process may let oneDNN make f32 products of bf16 ones, as a default for all that it creates from
 * then on. Products of plans and layers do not follow: their accuracy is what was asked for. Few
 * CPUs have such products, so the attributes of what is created are looked at, not numbers. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "../check.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <heed/heed.h>

enum { DIM = 64, SKIPPED = 77 };

#if DNNL_VERSION_MAJOR > 2 || DNNL_VERSION_MINOR >= 6

static int n_created, n_loose;

/* The program exports this function, so the plugin finds it before oneDNN's. */
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *primitive,
                                    const_dnnl_primitive_desc_t description)
{
    static dnnl_status_t (*real)(dnnl_primitive_t * primitive,
                                 const_dnnl_primitive_desc_t description);
    const_dnnl_primitive_attr_t attributes;
    dnnl_fpmath_mode_t mode = dnnl_fpmath_mode_any;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dnnl_primitive_create");
    if (dnnl_primitive_desc_get_attr(description, &attributes) == dnnl_success)
        dnnl_primitive_attr_get_fpmath_mode(attributes, &mode);
    n_created++;
    n_loose += mode != dnnl_fpmath_mode_strict;
    return real(primitive, description);
}

static void attention(heed_context *context)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .qk_dim = DIM,
                                 .v_dim = DIM,
                                 .q_type = HEED_F32,
                                 .k_type = HEED_F32,
                                 .v_type = HEED_F32,
                                 .out_type = HEED_F32,
                                 .max_batch = 1,
                                 .max_q_len = DIM,
                                 .max_kv_len = DIM};
    heed_attn *plan = NULL;
    CHECK_OK(heed_attn_create(context, &desc, &plan));
    heed_attn_release(plan);
}

static void linear(heed_context *context)
{
    static const float w[DIM * DIM];
    const heed_linear_desc desc = {.struct_size = sizeof desc,
                                   .in_dim = DIM,
                                   .out_dim = DIM,
                                   .x_type = HEED_F32,
                                   .w_type = HEED_F32,
                                   .y_type = HEED_F32};
    const heed_const_view weight = {w, {DIM, 1}};
    heed_linear *layer = NULL;
    CHECK_OK(heed_linear_create(context, &desc, &weight, NULL, &layer));
    heed_linear_release(layer);
}

int main(void)
{
    const heed_context_options options = {
        .struct_size = sizeof options, .n_threads = 1, .backends = "onednn"};
    heed_context *context;
    CHECK(dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_bf16) == dnnl_success, "no such default");
    if (heed_context_create(&options, &context) != HEED_OK) {
        printf("%s\n", heed_last_error());
        return 1;
    }
    attention(context);
    CHECK(n_created > 0 && n_loose == 0, "attention: %d of %d products are loose", n_loose,
          n_created);
    n_created = n_loose = 0;
    linear(context);
    CHECK(n_created > 0 && n_loose == 0, "linear: %d of %d products are loose", n_loose, n_created);
    heed_context_release(context);
    return checks_end();
}

#else

int main(void)
{
    return SKIPPED; /* there is one mode */
}

#endif
