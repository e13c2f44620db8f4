/* Cases that bring every pair of option values together at least once.
 *
 * A greedy covering array: each new row is the best of some random candidates by the number of
 * pairs that no row before it had (Cohen et al. 1997, The AETG system, gives rows that grow with
 * the logarithm of the number of options). Values that cannot go together are named in `conflict`;
 * their pairs are not counted. Fixed seed, so that a case's name always means the same.
 */
#include "cases.h"
#include "decode.h"
#include "random.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

enum {
    HEADS,
    SHAPE,
    DIMS,
    LAYOUT,
    RANGE,
    WINDOWS,
    SOFTCAP,
    ALIBI,
    MASK,
    BIAS,
    SLOPE,
    SINK,
    LENS,
    OUTPUTS,
    SCALE,
    CHUNKS,
    VALUES,
    OPTIONS,
    /* of keys and values in codes, besides */
    KEYS_OF = OPTIONS,
    VALUES_OF,
    QUERIES_OF,
    K_SCALES,
    V_SCALES,
    ZEROS,
    STORED,
    ALL_OPTIONS
};
enum { MOST = 14, MAX_ROWS = 400 };

/* clang-format off */
static const struct {
    const char *name;
    int n;
    const char *value[MOST];
} option[ALL_OPTIONS] = {
    {"heads", 4, {"mha", "gqa2", "gqa3", "mqa"}},
    {"shape", 6, {"1x50", "1x9", "6x31", "16x16", "40x70", "33x10"}},
    {"dims", 6, {"64", "20", "33_17", "1_8", "80", "128"}},
    {"layout",
     12,
     {"bhsd", "bshd", "packed", "packed_out", "kv_pairs", "padded", "negative", "dim_major",
      "dim_reversed", "shared", "v_in_k", "odd"}},
    {"range", 5, {"full", "causal_top", "causal_bottom", "causal_given", "causal_negative"}},
    {"window", 5, {"none", "left", "right", "both", "self"}},
    {"softcap", 2, {"off", "on"}},
    {"alibi", 2, {"off", "on"}},
    {"mask", 5, {"none", "full", "keys", "rows", "empty_rows"}},
    {"bias", 6, {"none", "f32", "f16_heads", "bf16_keys", "f32_inf", "f32_empty_rows"}},
    {"slope", 2, {"off", "on"}},
    {"sink", 3, {"none", "on", "some_off"}},
    {"lens", 5, {"full", "kv", "q", "both", "zeros"}},
    {"outputs", 6, {"none", "lse", "weights", "raw", "softcapped", "all"}},
    {"scale", 3, {"default", "given", "negative"}},
    {"chunks", 2, {"any", "reproducible"}},
    {"values", 3, {"normal", "nan_v", "nan_k"}},
    {"keys_of", 11, {"f16", "i8", "u8", "u4", "f8", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"}},
    {"values_of",
     13,
     {"as_keys", "f32", "bf16", "i8", "u8", "u4", "f8", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"}},
    {"queries_of", 3, {"f32", "f16", "bf16"}},
    {"k_scales", 9, {"none", "tensor", "head", "token", "channels", "groups", "key_groups", "in_line", "pairs"}},
    {"v_scales", 9, {"none", "tensor", "head", "token", "channels", "groups", "key_groups", "in_line", "pairs"}},
    {"zeros", 2, {"off", "on"}},
    {"stored", 6, {"padded", "packed", "packed_kv", "page3", "page16", "page16_shared"}},
};
/* clang-format on */

static int conflict(int a, int x, int b, int y)
{
    /* A slope needs a bias. With v inside k, v has no values of its own, k's type, and no more
     * columns than k. */
    if (a == BIAS && b == SLOPE)
        return x == 0 && y == 1;
    if (a == DIMS && b == LAYOUT)
        return y == 10 && x == 3;
    if (a == LAYOUT && b == VALUES_OF)
        return x == 10 && y != 0;
    return a == LAYOUT && b == VALUES && x == 10 && y == 1;
}

/* Rows over the first n_options, as many as it takes. */
typedef struct covering {
    int n_options, rows[MAX_ROWS][ALL_OPTIONS], n_rows, n_pairs, n_covered;
    unsigned char seen[ALL_OPTIONS][MOST][ALL_OPTIONS][MOST];
} covering;

static covering plain = {.n_options = OPTIONS}, of_codes = {.n_options = ALL_OPTIONS};

static int bad_row(const covering *c, const int *row)
{
    for (int a = 0; a < c->n_options; a++)
        for (int b = a + 1; b < c->n_options; b++)
            if (conflict(a, row[a], b, row[b]))
                return 1;
    return 0;
}

static int count_new(covering *c, const int *row, int take)
{
    int n = 0;
    for (int a = 0; a < c->n_options; a++)
        for (int b = a + 1; b < c->n_options; b++) {
            n += !c->seen[a][row[a]][b][row[b]];
            if (take)
                c->seen[a][row[a]][b][row[b]] = 1;
        }
    return n;
}

static void cover(covering *c)
{
    uint64_t random = 20240607;
    if (c->n_rows)
        return;
    for (int a = 0; a < c->n_options; a++)
        for (int b = a + 1; b < c->n_options; b++)
            for (int x = 0; x < option[a].n; x++)
                for (int y = 0; y < option[b].n; y++)
                    c->n_pairs += !conflict(a, x, b, y);
    while (c->n_covered < c->n_pairs && c->n_rows < MAX_ROWS) {
        int best = 0;
        /* Each candidate gets a pair that is still missing, if 2000 draws find one: so the loop
         * ends. */
        for (int candidate = 0; candidate < 60; candidate++) {
            int row[ALL_OPTIONS] = {0}, a, b, x, y, tries = 0;
            for (a = 0; a < c->n_options; a++)
                row[a] = (int)kit_below(&random, option[a].n);
            do {
                a = (int)kit_below(&random, c->n_options - 1);
                b = a + 1 + (int)kit_below(&random, c->n_options - 1 - a);
                x = (int)kit_below(&random, option[a].n);
                y = (int)kit_below(&random, option[b].n);
            } while ((c->seen[a][x][b][y] || conflict(a, x, b, y)) && tries++ < 2000);
            row[a] = x;
            row[b] = y;
            int gain = bad_row(c, row) ? 0 : count_new(c, row, 0);
            if (gain > best) {
                best = gain;
                memcpy(c->rows[c->n_rows], row, sizeof row);
            }
        }
        if (best > 0)
            c->n_covered += count_new(c, c->rows[c->n_rows++], 1);
    }
}

void kit_coverage(int *covered, int *pairs)
{
    cover(&plain);
    cover(&of_codes);
    *covered = plain.n_covered + of_codes.n_covered;
    *pairs = plain.n_pairs + of_codes.n_pairs;
}

void kit_print_coverage(void)
{
    const covering *of[] = {&plain, &of_codes};
    cover(&plain);
    cover(&of_codes);
    for (int n = 0; n < 2; n++)
        printf("pairwise coverage%s: %d of %d pairs of %d options in %d combinations\n",
               n ? " with codes" : "", of[n]->n_covered, of[n]->n_pairs, of[n]->n_options,
               of[n]->n_rows);
}

static void shape_of(const int *row, kit_spec *s)
{
    static const uint32_t heads[][2] = {{3, 3}, {4, 2}, {6, 2}, {5, 1}};
    static const int64_t length[][2] = {{1, 50}, {1, 9}, {6, 31}, {16, 16}, {40, 70}, {33, 10}};
    static const uint32_t dims[][2] = {{64, 64}, {20, 20}, {33, 17}, {1, 8}, {80, 80}, {128, 128}};
    s->q_heads = heads[row[HEADS]][0];
    s->kv_heads = heads[row[HEADS]][1];
    s->q_len = length[row[SHAPE]][0];
    s->kv_len = length[row[SHAPE]][1];
    s->qk_dim = dims[row[DIMS]][0];
    s->v_dim = dims[row[DIMS]][1];
    s->layout = (uint32_t)row[LAYOUT];
    s->lens = (uint32_t)row[LENS];
    s->batch = s->lens ? 4 : 2;
    s->values = row[VALUES] == 1 ? KIT_NAN_V : row[VALUES] == 2 ? KIT_NAN_K : KIT_NORMAL;
}

static void range_of(const int *row, kit_spec *s)
{
    static const int64_t sees[][2] = {{0, 0}, {9, -1}, {-1, 6}, {11, 2}, {0, 0}};
    static const uint32_t position[] = {HEED_POS_UNSET, HEED_POS_TOP_LEFT, HEED_POS_BOTTOM_RIGHT,
                                        HEED_POS_GIVEN, HEED_POS_GIVEN};
    s->position = position[row[RANGE]];
    s->offsets = row[RANGE] == 4 ? KIT_OFFSET_NEGATIVE : KIT_OFFSET_MIXED;
    if (row[RANGE])
        s->features |= HEED_HAS_CAUSAL;
    if (row[WINDOWS]) {
        s->features |= HEED_HAS_WINDOW;
        s->window_left = sees[row[WINDOWS]][0];
        s->window_right = sees[row[WINDOWS]][1];
    }
    if (row[ALIBI])
        s->features |= HEED_HAS_ALIBI;
    if (!row[RANGE] && (row[WINDOWS] || row[ALIBI]))
        s->position = HEED_POS_BOTTOM_RIGHT;
}

static kit_spec spec_of(const int *row)
{
    static const uint32_t bias_type[] = {0, HEED_F32, HEED_F16, HEED_BF16, HEED_F32, HEED_F32};
    static const uint32_t bias_form[] = {0, 0, 1, 7, 2, 3};
    static const uint32_t mask_form[] = {0, 0, 7, 10, 3};
    kit_spec s = {0};
    shape_of(row, &s);
    range_of(row, &s);
    if (row[SOFTCAP])
        s.features |= HEED_HAS_SOFTCAP, s.softcap = 2.5F;
    if (row[MASK]) {
        s.features |= HEED_HAS_MASK;
        s.mask_form = mask_form[row[MASK]];
        s.mask_kind = row[MASK] == 4 ? KIT_MASK_EMPTY_ROWS : KIT_MASK_RANDOM;
    }
    if (row[BIAS]) {
        s.features |= HEED_HAS_BIAS;
        s.bias_type = bias_type[row[BIAS]];
        s.bias_form = bias_form[row[BIAS]];
        s.bias_kind = row[BIAS] == 4 ? KIT_BIAS_INF : row[BIAS] == 5 ? KIT_BIAS_EMPTY_ROWS : 0;
    }
    if (row[SLOPE])
        s.features |= HEED_HAS_BIAS_SLOPE;
    if (row[SINK]) {
        s.features |= HEED_HAS_SINK;
        s.sinks = row[SINK] == 2 ? KIT_SINK_SOME_OFF : KIT_SINK_NORMAL;
    }
    if (row[OUTPUTS] == 1 || row[OUTPUTS] == 5)
        s.features |= HEED_HAS_LSE;
    if (row[OUTPUTS] == 2 || row[OUTPUTS] == 5)
        s.features |= HEED_HAS_WEIGHTS;
    if (row[OUTPUTS] >= 3) {
        s.features |= HEED_HAS_SCORES;
        s.scores_stage = (uint32_t)row[OUTPUTS] - 2;
    }
    if (row[SCALE])
        s.features |= HEED_HAS_SCALE, s.scale = row[SCALE] == 1 ? 0.2F : -0.2F;
    if (row[CHUNKS])
        s.features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    return s;
}

int kit_each_value(int after, kit_spec *spec)
{
    unsigned char seen[OPTIONS][MOST] = {{0}};
    cover(&plain);
    for (int n = 0; n < plain.n_rows; n++) {
        int gain = 0;
        for (int a = 0; a < OPTIONS; a++) {
            gain += !seen[a][plain.rows[n][a]];
            seen[a][plain.rows[n][a]] = 1;
        }
        if (gain && n > after) {
            *spec = spec_of(plain.rows[n]);
            return n;
        }
    }
    return -1;
}

/* Types, scales and storage of keys and values in codes. Dims are rounded up to whole blocks. */
static void code_of(const int *row, kit_spec *s)
{
    static const uint32_t keys[] = {HEED_F16,     HEED_I8,   HEED_U8,    HEED_U4,
                                    HEED_F8_E4M3, HEED_Q8_0, HEED_Q4_0,  HEED_Q4_1,
                                    HEED_Q5_0,    HEED_Q5_1, HEED_IQ4_NL};
    static const struct {
        uint32_t storage, page_len, pages;
    } stored[] = {{KIT_PADDED_ROWS, 0, 0},
                  {KIT_RAGGED, 0, 0},
                  {KIT_RAGGED_KV, 0, 0},
                  {KIT_PAGED_RAGGED, 3, KIT_PAGES_SHUFFLED},
                  {KIT_PAGED, 16, KIT_PAGES_SHUFFLED},
                  {KIT_PAGED, 16, KIT_PAGES_SHARED}};
    const int of = row[VALUES_OF];
    s->k_type = keys[row[KEYS_OF]];
    s->v_type = of == 0 ? s->k_type : of == 1 ? HEED_F32 : of == 2 ? HEED_BF16 : keys[of - 2];
    s->q_type = s->out_type = HEED_F32 + (uint32_t)row[QUERIES_OF];
    const uint32_t k_len = heed_block_len(s->k_type), v_len = heed_block_len(s->v_type);
    s->qk_dim = (s->qk_dim + k_len - 1) / k_len * k_len;
    s->v_dim = (s->v_dim + v_len - 1) / v_len * v_len;
    if (s->layout == KIT_V_IN_K && s->v_dim > s->qk_dim)
        s->v_dim = s->qk_dim;
    s->k_scales = (kit_scales){(uint32_t)row[K_SCALES], (uint32_t)row[ZEROS]};
    s->v_scales = (kit_scales){(uint32_t)row[V_SCALES], (uint32_t)row[ZEROS]};
    s->storage = stored[row[STORED]].storage;
    s->page_len = stored[row[STORED]].page_len;
    s->pages = stored[row[STORED]].pages;
}

/* The name lists the values that are not the first of their option, as far as there is room. */
static void name_of(const covering *c, int n, int first, char name[100])
{
    const int *row = c->rows[n];
    int at = snprintf(name, 100, "%03d", n);
    for (int a = first; a < c->n_options && at < 64; a++)
        if (row[a])
            at += snprintf(name + at, 100 - (size_t)at, "_%s",
                           option[a].n == 2 ? option[a].name : option[a].value[row[a]]);
}

void kit_pairwise_cases(kit_list *list)
{
    char name[100];
    cover(&plain);
    cover(&of_codes);
    for (int n = 0; n < plain.n_rows; n++) {
        kit_spec spec = spec_of(plain.rows[n]);
        name_of(&plain, n, RANGE, name);
        kit_add_types(list, "pair", name, &spec, n % 10 == 0);
    }
    for (int n = 0; n < of_codes.n_rows; n++) {
        kit_case c = {.quick = n % 10 == 0, .run = kit_conform, .spec = spec_of(of_codes.rows[n])};
        code_of(of_codes.rows[n], &c.spec);
        kit_complete(&c.spec);
        name_of(&of_codes, n, KEYS_OF, name);
        snprintf(c.name, sizeof c.name, "codes/pair_%s/%s", name, kit_type_name(c.spec.q_type));
        kit_add(list, &c);
    }
}
