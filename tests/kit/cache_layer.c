/* What a layer appends, byte for byte. A layer asks the backends of its context to encode rows, those
 * of plugins too; heed_kv_append, which cache.c tests, asks only backends that are linked in. */
#include "cache_layer.h"

#include "encode.h"
#include "random.h"

#include <heed/formats.h>
#include <heed/layer.h>

/* 64 dims are two blocks; ROWS are more than a backend would take at once by pairs or fours. */
enum { BATCH = 2, HEADS = 2, ROWS = 7, CAPACITY = 12, DIM = 64, MODEL = HEADS * DIM };

static const int32_t cache_lens[BATCH] = {3, 0};

/* A cache, of keys or of values, with room for the widest type. */
typedef struct side {
    unsigned char row[BATCH * HEADS * CAPACITY * DIM * 4];
    float scale[BATCH][HEADS][CAPACITY], zero[BATCH][HEADS][CAPACITY];
} side;

/* Element c of row i: rows 1 to 4 are 0, all the same, and for codes hold an infinity and a NaN. */
static double element(int64_t b, int64_t i, int64_t c, int is_code, uint64_t seed)
{
    if (i == 1 || i == 2)
        return i == 1 ? 0 : -0.75;
    if (is_code && (i == 3 || i == 4) && c % DIM == 5)
        return i == 3 ? HUGE_VAL : NAN;
    return kit_normal(kit_hash(seed, (b * ROWS + i) * MODEL + c));
}

static void fill(side *s)
{
    memset(s, 0x3a, sizeof *s); /* as floats some 7e-4, which serve as given scales */
}

/* Writes what the rows x of x_type have to become. */
static void expect(side *s, uint32_t type, uint32_t x_type, const unsigned char *x, int fresh)
{
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t h = 0; h < HEADS; h++) {
                const int64_t j = cache_lens[b] + i, at = ((b * HEADS + h) * CAPACITY + j) * DIM;
                const int has_zero = type == HEED_U8 || type == HEED_U4;
                float row[DIM], *scale = &s->scale[b][h][j], zero = 0;
                for (int64_t d = 0; d < DIM; d++)
                    row[d] = heed_load(x_type, x, (b * ROWS + i) * MODEL + h * DIM + d);
                if (fresh) {
                    heed_fresh_scale(type, row, DIM, scale, &zero);
                    if (has_zero)
                        s->zero[b][h][j] = zero;
                }
                if (heed_is_code(type))
                    heed_encode(type, row, DIM, s->row + heed_offset_bytes(type, at), *scale,
                                has_zero ? s->zero[b][h][j] : 0);
                for (int64_t d = 0; d < DIM && !heed_is_code(type); d++)
                    heed_store(type, s->row, at + d, row[d]);
            }
}

static heed_quant_out scales_of(side *s, uint32_t type)
{
    const heed_quant_out quant = {s->scale[0][0],
                                  type == HEED_U8 || type == HEED_U4 ? s->zero[0][0] : NULL,
                                  {HEADS * CAPACITY, CAPACITY, 1, 0},
                                  0,
                                  0};
    return heed_takes_scale(type) ? quant : (heed_quant_out){NULL, NULL, {0, 0, 0, 0}, 0, 0};
}

static heed_status make_layer(heed_context *context, uint32_t type, uint32_t x_type,
                              heed_mha **layer)
{
    const heed_attn_desc attn = {.struct_size = sizeof attn,
                                 .features = heed_takes_scale(type) ? HEED_HAS_QUANT : 0,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .qk_dim = DIM,
                                 .v_dim = DIM,
                                 .q_type = x_type,
                                 .k_type = type,
                                 .v_type = type,
                                 .out_type = x_type,
                                 .max_batch = BATCH,
                                 .max_q_len = ROWS,
                                 .max_kv_len = CAPACITY};
    const heed_mha_desc desc = {.struct_size = sizeof desc,
                                .features = HEED_MHA_HAS_CACHE,
                                .attn = &attn,
                                .d_model = MODEL,
                                .x_type = x_type};
    return heed_mha_create(context, &desc, layer);
}

/* Appends rows of x_type, by scales that are there or by fresh ones. */
static void append(const kit_env *env, const kit_case *c, uint32_t x_type, int fresh,
                   kit_outcome *outcome)
{
    static unsigned char x[BATCH * ROWS * MODEL * 4], y[sizeof x];
    static side got[2], want;
    const uint32_t type = c->spec.k_type;
    const int64_t head = CAPACITY * DIM;
    heed_mha *layer = NULL;
    for (int64_t n = 0; n < BATCH * ROWS * MODEL; n++)
        kit_encode(x_type, x, n,
                   element(n / (ROWS * MODEL), n / MODEL % ROWS, n % MODEL, heed_is_code(type),
                           c->spec.seed));
    fill(&got[0]), fill(&got[1]), fill(&want);
    expect(&want, type, x_type, x, fresh);
    const heed_mha_args args = {.struct_size = sizeof args,
                                .batch = BATCH,
                                .q_len = ROWS,
                                .capacity = CAPACITY,
                                .x_q = {x, {ROWS * MODEL, MODEL, 1, 0}},
                                .y = {y, {ROWS * MODEL, MODEL, 1, 0}},
                                .k_cache = {got[0].row, {HEADS * head, head, DIM, 1}},
                                .v_cache = {got[1].row, {HEADS * head, head, DIM, 1}},
                                .cache_lens = cache_lens,
                                .k_quant = scales_of(&got[0], type),
                                .v_quant = scales_of(&got[1], type),
                                .append = fresh ? HEED_APPEND_FRESH_SCALES : 0};
    heed_status status = make_layer(env->context, type, x_type, &layer);
    if (status == HEED_OK)
        status = heed_mha_run(layer, &args, NULL, 0);
    if (kit_status(outcome, status, heed_last_error(), "the layer") == 0)
        for (int s = 0; s < 2; s++)
            if (memcmp(got[s].row, want.row, sizeof want.row) != 0 ||
                memcmp(got[s].scale, want.scale, sizeof want.scale) != 0 ||
                memcmp(got[s].zero, want.zero, sizeof want.zero) != 0)
                kit_fail(outcome, "x of %s, %s scales: the %s cache is not what it should be",
                         heed_dtype_name(x_type), fresh ? "fresh" : "given", s ? "value" : "key");
    heed_mha_release(layer);
}

void kit_cache_by_layer(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    for (uint32_t x_type = HEED_F32; x_type <= HEED_BF16; x_type++)
        for (int fresh = 0; fresh <= heed_takes_scale(c->spec.k_type); fresh++)
            append(env, c, x_type, fresh, outcome);
}
