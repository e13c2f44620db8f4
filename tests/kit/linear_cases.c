/* Cases of linear layers: dims, rows, types, layouts, activations, values, against the oracle. */
#include "cases.h"
#include "linear_run.h"

#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

#define NO_ROWS (-1) /* 0 is for what a case did not choose */

static const char *const act_name[] = {"none", "gelu", "gelu_tanh", "silu"};

static void complete(kit_linear_spec *s)
{
    if (!s->in_dim)
        s->in_dim = 70;
    if (!s->out_dim)
        s->out_dim = 60;
    if (!s->rows)
        s->rows = 13;
    if (s->rows == NO_ROWS)
        s->rows = 0;
}

/* linear/what/type for f32, f16 and bf16, all tensors of one type. With HEED_F32 as bias_type there
 * is a bias, of that type. */
static void add_types(kit_list *list, const char *what, const kit_linear_spec *spec, int quick)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        kit_case c = {.quick = quick, .run = kit_linear_conform, .linear = *spec};
        kit_linear_spec *s = &c.linear;
        s->x_type = s->w_type = s->y_type = type;
        if (s->bias_type)
            s->bias_type = type;
        complete(s);
        snprintf(c.name, sizeof c.name, "linear/%s/%s", what, kit_type_name(type));
        kit_add(list, &c);
    }
}

/* Every dim alone and with every number of rows around a kernel's step. */
static void add_dims(kit_list *list)
{
    static const uint32_t dim[] = {1,  2,  3,  7,  8,  15, 16,  17,  24,
                                   31, 47, 48, 49, 64, 97, 255, 256, 257};
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 17, 31, 33, 64, 127, 129};
    char name[80];
    for (size_t n = 0; n < COUNT(dim); n++) {
        snprintf(name, sizeof name, "in_%u", dim[n]);
        add_types(list, name, &(kit_linear_spec){.in_dim = dim[n], .out_dim = 50}, n % 4 == 0);
        snprintf(name, sizeof name, "out_%u", dim[n]);
        add_types(list, name, &(kit_linear_spec){.in_dim = 40, .out_dim = dim[n]}, n % 4 == 1);
        snprintf(name, sizeof name, "in_%u_out_%u_one_row", dim[n], dim[COUNT(dim) - 1 - n]);
        add_types(
            list, name,
            &(kit_linear_spec){.rows = 1, .in_dim = dim[n], .out_dim = dim[COUNT(dim) - 1 - n]},
            n % 4 == 2);
        snprintf(name, sizeof name, "rows_%lld", (long long)rows[n]);
        add_types(list, name,
                  &(kit_linear_spec){.rows = rows[n],
                                     .in_dim = 37,
                                     .out_dim = 101,
                                     .bias_type = HEED_F32,
                                     .residual = KIT_LINEAR_RESIDUAL},
                  n % 4 == 3);
    }
    static const struct {
        int64_t rows;
        uint32_t in, out;
    } large[] = {{1, 2049, 2049}, {1, 2049, 17}, {3, 17, 2049}, {17, 2049, 3}, {2, 768, 768},
                 {1, 4500, 70},   {3, 8200, 20}, {9, 513, 385}, {5, 4099, 1},  {140, 300, 400}};
    for (size_t n = 0; n < COUNT(large); n++) {
        snprintf(name, sizeof name, "large_%lld_%u_%u", (long long)large[n].rows, large[n].in,
                 large[n].out);
        add_types(list, name,
                  &(kit_linear_spec){.rows = large[n].rows,
                                     .in_dim = large[n].in,
                                     .out_dim = large[n].out,
                                     .bias_type = HEED_F32,
                                     .layout = HEED_LINEAR_OUT_IN},
                  0);
    }
    /* Up to 8 panels of 48 columns, and 16 of 24, are one tile. */
    for (int64_t r = 1; r <= 3; r++)
        for (uint32_t out = 43; out < 16 * 24; out += 24) {
            snprintf(name, sizeof name, "rows_%lld_out_%u", (long long)r, out);
            add_types(list, name, &(kit_linear_spec){.rows = r, .in_dim = 259, .out_dim = out},
                      r == 1);
        }
    add_types(list, "no_rows", &(kit_linear_spec){.rows = NO_ROWS}, 1);
}

static void add_memories(kit_list *list)
{
    static const char *const name[KIT_LINEAR_MEMORIES] = {"dense",    "padded",   "odd_address",
                                                          "negative", "strided",  "reversed",
                                                          "columns",  "broadcast"};
    static const char *const residual[] = {"", "_residual", "_in_place"};
    char what[80];
    for (uint32_t memory = 0; memory < KIT_LINEAR_MEMORIES; memory++)
        for (uint32_t layout = 0; layout < 2; layout++)
            for (uint32_t r = 0; r < 3; r++)
                for (int one = 0; one < 2; one++) {
                    kit_linear_spec spec = {.rows = one ? 1 : 21,
                                            .in_dim = 261,
                                            .out_dim = 66,
                                            .heads = layout ? 3 : 0,
                                            .layout = layout,
                                            .bias_type = HEED_F32,
                                            .residual = r,
                                            .memory = memory};
                    snprintf(what, sizeof what, "memory_%s%s%s%s", name[memory],
                             layout ? "_out_in_heads" : "", residual[r], one ? "_one_row" : "");
                    add_types(list, what, &spec, !layout && r == 2);
                }
}

static void add_activations(kit_list *list)
{
    static const char *const size[] = {"", "_small", "_large"};
    char what[80];
    for (uint32_t act = HEED_ACT_NONE; act <= HEED_ACT_SILU; act++) {
        for (uint32_t values = KIT_LINEAR_NORMAL; values <= KIT_LINEAR_LARGE; values++)
            for (int full = 0; full < 2; full++) {
                kit_linear_spec spec = {.activation = act,
                                        .values = values,
                                        .bias_type = full ? HEED_F32 : HEED_DTYPE_NONE,
                                        .residual =
                                            full ? KIT_LINEAR_IN_PLACE : KIT_LINEAR_NO_RESIDUAL};
                snprintf(what, sizeof what, "act_%s%s%s", act_name[act], size[values],
                         full ? "_bias_residual" : "");
                add_types(list, what, &spec, full);
            }
        snprintf(what, sizeof what, "act_%s_minus_inf", act_name[act]);
        add_types(list, what,
                  &(kit_linear_spec){
                      .activation = act, .values = KIT_LINEAR_MINUS_INF, .bias_type = HEED_F32},
                  1);
    }
}

static void add_values(kit_list *list)
{
    static const struct {
        const char *name;
        uint32_t values;
    } kind[] = {{"denormal", KIT_LINEAR_DENORMAL},
                {"nan_x", KIT_LINEAR_NAN_X},
                {"nan_w", KIT_LINEAR_NAN_W},
                {"inf_x", KIT_LINEAR_INF_X},
                {"overflow", KIT_LINEAR_OVERFLOW}};
    char what[80];
    for (size_t n = 0; n < COUNT(kind); n++)
        for (int shape = 0; shape < 3; shape++) {
            /* even: whole vectors and tiles */
            static const char *const suffix[] = {"", "_one_row", "_even"};
            static const int64_t rows[] = {20, 1, 64};
            kit_linear_spec spec = {.values = kind[n].values, .rows = rows[shape]};
            if (shape == 2)
                spec.in_dim = spec.out_dim = 128;
            snprintf(what, sizeof what, "values_%s%s", kind[n].name, suffix[shape]);
            add_types(list, what, &spec, 1);
        }
}

/* Every mix of the types of x, w, y and bias. */
static void add_mixed(kit_list *list)
{
    for (uint32_t n = 0; n < 81; n++)
        for (int one = 0; one < 2; one++) {
            kit_case c = {.run = kit_linear_conform, .quick = n % 20 == 5};
            kit_linear_spec *s = &c.linear;
            s->x_type = HEED_F32 + n % 3;
            s->w_type = HEED_F32 + n / 3 % 3;
            s->y_type = HEED_F32 + n / 9 % 3;
            s->bias_type = HEED_F32 + n / 27;
            s->rows = one ? 1 : 10;
            s->residual = KIT_LINEAR_RESIDUAL;
            s->activation = n % 4;
            complete(s);
            snprintf(c.name, sizeof c.name, "linear/types%s_x_%s_w_%s_bias_%s/%s",
                     one ? "_one_row" : "", kit_type_name(s->x_type), kit_type_name(s->w_type),
                     kit_type_name(s->bias_type), kit_type_name(s->y_type));
            kit_add(list, &c);
        }
    for (uint32_t accuracy = HEED_ACCURACY_EXACT; accuracy <= HEED_ACCURACY_INT8; accuracy++) {
        static const char *const name[] = {"default", "exact", "bf16", "split", "int8"};
        char what[80];
        snprintf(what, sizeof what, "accuracy_%s", name[accuracy]);
        add_types(list, what, &(kit_linear_spec){.accuracy = accuracy, .in_dim = 600}, 1);
    }
}

void kit_linear_cases(kit_list *list)
{
    add_dims(list);
    add_memories(list);
    add_activations(list);
    add_values(list);
    add_mixed(list);
}
