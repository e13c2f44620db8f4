/* What a kernel is told of keys and values in codes: it is not asked for them unless it knows
 * HEED_HAS_QUANT, its problem has the accuracy that applies to the types, and in any storage every
 * tile, every head of a tile and every block to prepare reads the numbers and scales of its own
 * keys. The backend here looks at what it gets instead of computing. */
#include "stub.h"
#include "unit.h"

enum { BATCH = 2, HEADS = 3, KEYS = 24, ROWS = 5, DIM = 32, PAGE = 8, PAGES = BATCH * KEYS / PAGE };
enum { CONTIGUOUS, PACKED, PAGED, STORAGES };

static const int32_t kv_lens[BATCH] = {KEYS, KEYS - 3}; /* by which a tile tells its sequence */
static uint32_t asked_accuracy, n_tiles, n_prepared, n_together;
static int n_wrong, prepares;

/* A number for each key, small enough for f16. */
static float number_of(int64_t b, int64_t g, int64_t j)
{
    return (float)((b * HEADS + g) * KEYS + j + 1);
}

static int64_t code_of(uint32_t type, int64_t d)
{
    return type == HEED_U4 ? d % 15 : d;
}

/* Writes a row of Q8_0 or of U4, whose scale lies elsewhere. */
static void put(uint32_t type, unsigned char *row, float number)
{
    if (type == HEED_Q8_0)
        heed_store(HEED_F16, row, 0, number);
    for (int64_t d = 0; d < DIM; d++)
        if (type == HEED_Q8_0)
            row[2 + d] = (unsigned char)code_of(type, d);
        else if (d % 2)
            row[d / 2] |= (unsigned char)(code_of(type, d) << 4);
        else
            row[d / 2] = (unsigned char)code_of(type, d);
}

static void look(const heed_problem *problem, const heed_tile *tile)
{
    const int64_t b = tile->kv_len == kv_lens[1];
    for (int64_t j = tile->k_first; j < tile->k_end; j++) {
        const heed_key k = heed_find_key(problem, tile, 0, j);
        const heed_key v = heed_find_key(problem, tile, 1, j);
        const float want = number_of(b, tile->kv_head, j);
        for (int64_t d = 0; d < DIM; d++)
            n_wrong += heed_load_key(&k, d) != want * (float)code_of(problem->k_type, d) ||
                       heed_load_key(&v, d) != want * (float)code_of(problem->v_type, d);
    }
}

static heed_status supports(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine;
    asked_accuracy = problem->accuracy;
    return problem->qk_dim == DIM ? HEED_OK : heed_refuse(why, "takes problems of qk_dim 32 alone");
}

static heed_status tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine, (void)problem;
    out->query_rows = 2;
    out->key_block = 4;
    out->kv_heads = out->kv_heads_beside = HEADS;
    out->prepare_bytes = prepares ? 64 : 0;
    return HEED_OK;
}

static heed_status prepare(const void *machine, const void *state, const heed_problem *problem,
                           const heed_tile *kv, void *prepared)
{
    (void)machine, (void)state, (void)prepared;
    look(problem, kv);
    n_prepared++;
    return HEED_OK;
}

static heed_status run_tile(const void *machine, const void *state, const heed_problem *problem,
                            heed_tile *tile, void *scratch)
{
    (void)machine, (void)state, (void)scratch;
    n_tiles++;
    n_together += tile->kv_heads > 1;
    for (uint32_t g = 0; g < tile->kv_heads; g++) {
        heed_tile one;
        heed_tile_of_head(problem, tile, g, &one);
        look(problem, &one);
    }
    for (int64_t r = 0; r < tile->n_heads * tile->q_count; r++) {
        tile->row_max[r] = 0;
        tile->row_sum[r] = 1;
        memset(tile->acc + r * tile->acc_stride, 0, DIM * sizeof(float));
    }
    return HEED_OK;
}

static heed_attn_kernel kernel = {
    .struct_size = sizeof kernel,
    .name = "looks",
    .features = HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_QUANT,
    .supports = supports,
    .cost = stub_cost,
    .tiling = tiling,
    .run = run_tile,
    .prepare = prepare,
};

static heed_context *context_of(heed_backend *backend)
{
    static const heed_attn_kernel *const attn[] = {&kernel};
    heed_context *context = unit_context(1, "looks");
    *backend = (heed_backend){.abi = HEED_BACKEND_ABI,
                              .struct_size = sizeof *backend,
                              .name = "looks",
                              .summary = "looks at keys and values",
                              .attn = attn,
                              .n_attn = 1};
    CHECK_OK(heed_context_register(context, backend));
    return context;
}

static heed_attn_desc desc_of(uint32_t k_type, uint32_t v_type)
{
    return (heed_attn_desc){.struct_size = sizeof(heed_attn_desc),
                            UNIT_SHAPE(HEADS, HEADS, DIM, DIM),
                            UNIT_TYPES(HEED_F32, k_type, v_type, HEED_F32),
                            .max_batch = BATCH,
                            .max_q_len = ROWS,
                            .max_kv_len = KEYS};
}

/* Runs it once, and looks at what the tiles were given. */
static void run_counting(heed_context *context, int storage, const heed_attn_desc *desc,
                         const heed_attn_args *args)
{
    heed_attn *plan = NULL;
    size_t bytes;
    n_wrong = 0;
    n_tiles = n_prepared = n_together = 0;
    heed_status st = heed_attn_create(context, desc, &plan);
    CHECK(st == HEED_OK, "storage %d: %s", storage, heed_last_error());
    void *workspace = unit_workspace(plan, 1, &bytes);
    st = heed_attn_run(plan, args, workspace, bytes);
    CHECK(st == HEED_OK, "storage %d: %s", storage, heed_last_error());
    CHECK(n_wrong == 0 && n_tiles > 0 && (n_prepared > 0) == prepares &&
              (n_together > 0) == !prepares,
          "storage %d, prepare %d: %d wrong numbers in %u tiles (%u of several heads), %u blocks "
          "prepared",
          storage, prepares, n_wrong, n_tiles, n_together, n_prepared);
    free(workspace);
    heed_attn_release(plan);
}

/* k is of U4 with a scale for each key and v of Q8_0, or the other way round. The keys of a
 * sequence lie by themselves, or behind those of the other sequence, or in pages. */
static void check_storage(heed_context *context, int storage, uint32_t k_type, uint32_t v_type)
{
    static const int32_t starts[BATCH] = {KEYS + 1, 1}, lens[BATCH] = {ROWS, ROWS - 1};
    static const int32_t page_of[BATCH][KEYS / PAGE] = {{4, 0, 5}, {1, 3, 2}};
    static unsigned char k[HEADS * BATCH * (KEYS + 1) * 34], v[HEADS * BATCH * (KEYS + 1) * 34];
    static float scale[HEADS * BATCH * (KEYS + 1)], q[BATCH * HEADS * ROWS * DIM];
    static float out[BATCH * HEADS * ROWS * DIM];
    const int64_t rows = storage == CONTIGUOUS ? KEYS
                         : storage == PACKED   ? BATCH * (KEYS + 1)
                                               : PAGE;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t g = 0; g < HEADS; g++)
            for (int64_t j = 0; j < KEYS; j++) {
                const int64_t plane = storage == CONTIGUOUS ? b
                                      : storage == PACKED   ? 0
                                                            : page_of[b][j / PAGE];
                const int64_t at = (plane * HEADS + g) * rows + (storage == PAGED    ? j % PAGE
                                                                 : storage == PACKED ? starts[b] + j
                                                                                     : j);
                scale[at] = number_of(b, g, j);
                put(k_type, k + heed_offset_bytes(k_type, at * DIM), number_of(b, g, j));
                put(v_type, v + heed_offset_bytes(v_type, at * DIM), number_of(b, g, j));
            }
    heed_attn_desc desc = desc_of(k_type, v_type);
    desc.features = HEED_HAS_QUANT | HEED_HAS_LENS |
                    (storage == PACKED  ? HEED_HAS_PACKED
                     : storage == PAGED ? HEED_HAS_PAGES
                                        : 0);
    desc.page_len = storage == PAGED ? PAGE : 0;
    const int64_t head = rows * DIM, all = HEADS * head;
    heed_attn_args args = {.struct_size = sizeof args,
                           .batch = BATCH,
                           .q_len = ROWS,
                           .kv_len = KEYS,
                           .q = {q, {HEADS * ROWS * DIM, ROWS * DIM, DIM, 1}},
                           .k = {k, {all, head, DIM, 1}},
                           .v = {v, {all, head, DIM, 1}},
                           .out = {out, {HEADS * ROWS * DIM, ROWS * DIM, DIM, 1}},
                           .q_lens = lens,
                           .kv_lens = kv_lens,
                           .kv_starts = storage == PACKED ? starts : NULL,
                           .block_table = storage == PAGED ? page_of[0] : NULL,
                           .block_table_stride = storage == PAGED ? KEYS / PAGE : 0,
                           .n_pages = storage == PAGED ? PAGES : 0};
    *(k_type == HEED_U4 ? &args.k_quant : &args.v_quant) =
        (heed_quant){.scale = scale, .stride = {HEADS * rows, rows, 1, 0}};
    for (prepares = 0; prepares < 2; prepares++) {
        desc.max_q_len++; /* another plan, whose tiling depends on `prepares` */
        run_counting(context, storage, &desc, &args);
    }
}

/* A kernel that does not know HEED_HAS_QUANT is asked for codes of no type, as k or as v. */
static void check_features(void)
{
    heed_backend backend;
    heed_error why;
    kernel.features &= ~HEED_HAS_QUANT;
    heed_context *context = context_of(&backend);
    for (uint32_t type = HEED_I8; type <= HEED_IQ4_NL; type++)
        for (int is_v = 0; is_v < 2; is_v++) {
            const heed_attn_desc desc =
                desc_of(is_v ? HEED_F16 : type, is_v ? type : (uint32_t)HEED_BF16);
            char word[40];
            snprintf(word, sizeof word, "%s_type %s", is_v ? "v" : "k", heed_dtype_name(type));
            CHECK(heed_attn_supported(context, &desc, &why) == HEED_ERR_UNSUPPORTED &&
                      strstr(why.text, word),
                  "a kernel that does not know codes is asked for %s: %s", word, why.text);
        }
    heed_context_release(context);
    kernel.features |= HEED_HAS_QUANT;
}

static void check_accuracy(heed_context *context)
{
    static const struct {
        uint32_t q, k, v, accuracy, is;
    } of[] = {
        {HEED_F32, HEED_Q8_0, HEED_F16, HEED_ACCURACY_DEFAULT, HEED_ACCURACY_EXACT},
        {HEED_BF16, HEED_I8, HEED_BF16, HEED_ACCURACY_DEFAULT, HEED_ACCURACY_EXACT},
        {HEED_BF16, HEED_BF16, HEED_Q4_0, HEED_ACCURACY_BF16, HEED_ACCURACY_EXACT},
        {HEED_F32, HEED_Q8_0, HEED_F16, HEED_ACCURACY_INT8, HEED_ACCURACY_INT8},
        {HEED_BF16, HEED_U4, HEED_Q4_0, HEED_ACCURACY_INT8, HEED_ACCURACY_INT8},
        {HEED_BF16, HEED_BF16, HEED_Q4_0, HEED_ACCURACY_INT8, HEED_ACCURACY_EXACT},
        {HEED_BF16, HEED_BF16, HEED_BF16, HEED_ACCURACY_INT8, HEED_ACCURACY_BF16},
        {HEED_F16, HEED_F16, HEED_F16, HEED_ACCURACY_INT8, HEED_ACCURACY_EXACT},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        heed_attn_desc desc = desc_of(of[i].k, of[i].v);
        heed_attn *plan = NULL;
        char text[4096] = "";
        size_t bytes = sizeof text;
        desc.q_type = of[i].q;
        desc.accuracy = of[i].accuracy;
        CHECK(heed_attn_create(context, &desc, &plan) == HEED_OK && asked_accuracy == of[i].is,
              "row %zu: accuracy %u, should be %u", i, asked_accuracy, of[i].is);
        CHECK(heed_attn_explain(plan, 0, text, &bytes) == HEED_OK &&
                  (strstr(text, "int8 accuracy") != NULL) == (of[i].is == HEED_ACCURACY_INT8),
              "row %zu is explained as %s", i, text);
        heed_attn_release(plan);
    }
}

int main(void)
{
    heed_backend backend;
    check_features();
    heed_context *context = context_of(&backend);
    check_accuracy(context);
    for (int storage = CONTIGUOUS; storage < STORAGES; storage++) {
        check_storage(context, storage, HEED_U4, HEED_Q8_0);
        check_storage(context, storage, HEED_Q8_0, HEED_U4);
    }
    heed_context_release(context);
    return checks_end();
}
