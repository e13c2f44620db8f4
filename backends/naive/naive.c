/*
 * The naive backend: attention in plain loops. The one to read first, and to copy from.
 *
 * Serves     everything in heed/attention.h that is not reserved there: any type, codes too, any
 *            stride, any alignment, contiguous or paged keys. The other backends are tested for doing
 *            the same.
 * Numerics   q . k and the sums over keys are f64: a product of two f32 is exact there, so their
 *            error vanishes beside the rounding of the results, and no order of summation has to be
 *            clever. A score is rounded to f32 once, and compared and subtracted as such, so
 *            that huge scores give a row that is exactly one-hot.
 * Bits       A row is computed alone, from its visible keys in ascending order, and its maximum
 *            moves at multiples of KEY_BLOCK, counted from key 0 of the sequence. So neither the
 *            tile that a row falls into nor keys that it does not see change a bit of it: that is
 *            all HEED_HAS_REPRODUCIBLE_CHUNKS asks for, as long as core does not cut the keys.
 * NaN        What a row does not see is skipped, never multiplied by 0. What it sees goes through
 *            the arithmetic, in which a NaN survives.
 * Source     running maximum and sum after Milakov & Gimelshein 2018, arXiv:1805.02867.
 */
#include "naive.h"

/* Large enough that the sums are rarely rescaled to a new maximum, small enough for the stack. */
#define KEY_BLOCK 64

/* Many rows to a tile would save nothing here, since no row shares work with another; few make a
 * small problem divisible among threads. */
#define QUERY_ROWS 16

/* One long row is shared among threads by cutting its keys. So long a chunk is worth the merge. */
#define KEY_CHUNK 1024

/* One query row of one head against the keys of a tile. */
typedef struct naive_row {
    const heed_problem *problem;
    const heed_tile *tile;
    const double *q; /* [qk_dim], the query in f64 */
    int64_t head;    /* of the tile */
    int64_t i;       /* of the sequence */
} naive_row;

static int64_t element(const heed_rows *rows, int64_t head, int64_t row, int64_t dim)
{
    return head * rows->head_stride + row * rows->row_stride + dim * rows->dim_stride;
}

static float bias_of(const naive_row *row, int64_t j)
{
    const heed_rows *bias = &row->tile->bias;
    if (j < row->tile->mask_from)
        return 0;
    return heed_load(row->problem->bias_type, bias->data, element(bias, row->head, row->i, j));
}

/* Do ranges and key blocks let the row see key j? */
static int listed(const naive_row *row, int64_t j)
{
    int64_t first = j, end = j + 1;
    return heed_next_listed(row->problem, row->tile, row->head, row->i, &first, &end);
}

/* Do mask and bias let the row see key j? */
static int visible(const naive_row *row, int64_t j)
{
    const heed_rows *mask = &row->tile->mask;
    if (j < row->tile->mask_from)
        return 1;
    if (mask->data && !((const uint8_t *)mask->data)[element(mask, row->head, row->i, j)])
        return 0;
    return !row->tile->bias.data || bias_of(row, j) != -INFINITY;
}

/* The score of key j at a stage, in the order of the formula in heed/attention.h. */
static float score(const naive_row *row, int64_t j, uint32_t stage)
{
    const heed_problem *problem = row->problem;
    const heed_tile *tile = row->tile;
    const heed_key key = heed_find_key(problem, tile, 0, j);
    double sum = 0;
    if (heed_is_code(key.type))
        for (int64_t d = 0; d < problem->qk_dim; d++)
            sum += row->q[d] * (double)heed_load_key(&key, d);
    else /* the same, but compilers look at the type once */
        for (int64_t d = 0; d < problem->qk_dim; d++)
            sum += row->q[d] * (double)heed_load(key.type, key.row, d * key.dim_stride);

    double s = (double)problem->scale * sum;
    if (stage == HEED_SCORES_RAW)
        return (float)s;
    if (problem->features & HEED_HAS_SOFTCAP)
        s = (double)problem->softcap * tanh(s / (double)problem->softcap);
    if (stage == HEED_SCORES_SOFTCAPPED)
        return (float)s;
    if (tile->alibi_slope)
        s += (double)tile->alibi_slope[row->head] * (double)(j - (row->i + tile->q_offset));
    if (tile->bias.data) {
        double slope = tile->bias_slope ? (double)tile->bias_slope[row->head] : 1;
        s += slope * (double)bias_of(row, j);
    }
    return (float)s;
}

/* exp(s - m), and 0 for a score that overflowed to -inf even where m is -inf too. */
static double weight(float s, float m)
{
    return s == -INFINITY ? 0 : exp((double)s - (double)m);
}

/* Has core found that masks of any kind hide the whole block that begins at `block`? */
static int hidden(const naive_row *row, int64_t block)
{
    const heed_tile *tile = row->tile;
    int64_t index = block / KEY_BLOCK - tile->k_first / KEY_BLOCK;
    return tile->mask_blocks &&
           tile->mask_blocks[row->head * tile->mask_block_stride + index] == HEED_BLOCK_NONE;
}

/* First pass: the state of tile row r. acc is f64 [v_dim] of scratch. */
static void attend(const naive_row *row, int64_t r, double *acc)
{
    const heed_problem *problem = row->problem;
    const heed_tile *tile = row->tile;
    int64_t first, end, v_dim = problem->v_dim;
    float m = -INFINITY;
    double sum = 0;
    memset(acc, 0, (size_t)v_dim * sizeof *acc);

    heed_row_keys(tile, row->i, &first, &end);
    for (int64_t block = first - first % KEY_BLOCK; block < end; block += KEY_BLOCK) {
        int64_t last = block + KEY_BLOCK < end ? block + KEY_BLOCK : end;
        int64_t key[KEY_BLOCK];
        float s[KEY_BLOCK], top = m;
        int n = 0;
        if (hidden(row, block))
            continue;
        for (int64_t j = block > first ? block : first; j < last; j++) {
            if (!listed(row, j) || !visible(row, j))
                continue;
            key[n] = j;
            s[n] = score(row, j, HEED_SCORES_BIASED);
            if (s[n] > top) /* never a NaN: its weight is NaN whatever the maximum is */
                top = s[n];
            n++;
        }

        if (top > m) { /* what was summed so far is relative to the old maximum */
            double scale = exp((double)m - (double)top);
            sum *= scale;
            for (int64_t d = 0; d < v_dim; d++)
                acc[d] *= scale;
            m = top;
        }
        for (int n_done = 0; n_done < n; n_done++) {
            double w = weight(s[n_done], m);
            const heed_key value = heed_find_key(problem, tile, 1, key[n_done]);
            sum += w;
            if (heed_is_code(value.type))
                for (int64_t d = 0; d < v_dim; d++)
                    acc[d] += w * (double)heed_load_key(&value, d);
            else
                for (int64_t d = 0; d < v_dim; d++)
                    acc[d] += w * (double)heed_load(value.type, value.row, d * value.dim_stride);
        }
    }

    tile->row_max[r] = m;
    tile->row_sum[r] = (float)sum; /* 0 if the row saw no key, or only scores of -inf */
    for (int64_t d = 0; d < v_dim; d++)
        tile->acc[r * tile->acc_stride + d] = (float)acc[d];
}

/* Second pass, only where asked for: weights and scores of tile row r, whose maximum and sum are
 * final. A raw or softcapped score is shown where mask and bias hide the key, too. */
static void write_outputs(const naive_row *row, int64_t r)
{
    const heed_tile *tile = row->tile;
    const heed_rows *weights = &tile->weights, *scores = &tile->scores;
    uint32_t stage = row->problem->scores_stage;
    int64_t first, end;

    heed_row_keys(tile, row->i, &first, &end);
    for (int64_t j = tile->k_first; j < tile->k_end; j++) {
        int in_range = j >= first && j < end && listed(row, j), seen = in_range && visible(row, j);
        if (weights->data) {
            double w = 0;
            if (seen && tile->row_sum[r] != 0)
                w = weight(score(row, j, HEED_SCORES_BIASED), tile->row_max[r]) /
                    (double)tile->row_sum[r];
            heed_store(HEED_F32, weights->data, element(weights, row->head, row->i, j), (float)w);
        }
        if (scores->data) {
            int shown = stage == HEED_SCORES_BIASED ? seen : in_range;
            heed_store(HEED_F32, scores->data, element(scores, row->head, row->i, j),
                       shown ? score(row, j, stage) : -INFINITY);
        }
    }
}

static heed_status run(const void *machine, const void *state, const heed_problem *problem,
                       heed_tile *tile, void *scratch)
{
    double *q = scratch, *acc = q + problem->qk_dim;
    (void)machine, (void)state;
    for (int64_t r = 0; r < tile->n_heads * tile->q_count; r++) {
        naive_row row = {problem, tile, q, r / tile->q_count, tile->q_first + r % tile->q_count};
        for (int64_t d = 0; d < problem->qk_dim; d++)
            q[d] = (double)heed_load(problem->q_type, tile->q.data,
                                     element(&tile->q, row.head, row.i, d));
        if (tile->flags & HEED_TILE_OUTPUTS)
            write_outputs(&row, r);
        else
            attend(&row, r, acc); /* core adds the sink, divides and rounds: heed_finish_row */
    }
    return HEED_OK;
}

static heed_status tiling(const void *machine, const heed_problem *problem, heed_tiling *out)
{
    (void)machine;
    out->query_rows = QUERY_ROWS;
    out->key_block = KEY_BLOCK;
    if (problem->query_class != HEED_QUERY_MANY)
        out->key_chunk = KEY_CHUNK;
    out->scratch_bytes = ((size_t)problem->qk_dim + problem->v_dim) * sizeof(double);
    return HEED_OK;
}

/* Nanoseconds per key and element of k or v; f16 is unpacked bit by bit. These, and the 15 in
 * cost(), were measured on one core near 3 GHz with dims of 8 to 512. */
static double element_cost(uint32_t type)
{
    return heed_is_code(type) ? 3.0 : type == HEED_F16 ? 2.0 : 0.7;
}

static double cost(const void *machine, const heed_problem *problem, int64_t q_len, int64_t kv_len)
{
    (void)machine;
    return problem->q_heads * (double)q_len * heed_average_keys(problem, q_len, kv_len) *
           (15 + element_cost(problem->k_type) * problem->qk_dim +
            element_cost(problem->v_type) * problem->v_dim);
}

static heed_status supports(const void *machine, const heed_problem *problem, heed_error *why)
{
    (void)machine, (void)problem, (void)why; /* core has compared its features with ours */
    return HEED_OK;
}

static const heed_attn_kernel loops = {
    .struct_size = sizeof loops,
    .name = "loops",
    .features = HEED_HAS_SCALE | HEED_HAS_SOFTCAP | HEED_HAS_CAUSAL | HEED_HAS_WINDOW |
                HEED_HAS_ALIBI | HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE |
                HEED_HAS_SINK | HEED_HAS_LSE | HEED_HAS_WEIGHTS | HEED_HAS_SCORES | HEED_HAS_LENS |
                HEED_HAS_PACKED | HEED_HAS_PAGES | HEED_HAS_QUANT | HEED_HAS_REPRODUCIBLE_CHUNKS |
                HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS | HEED_HAS_MASK_FROM,
    .supports = supports,
    .cost = cost,
    .tiling = tiling,
    .run = run,
};

const heed_backend *heed_naive_backend(void); /* declared by whoever lists the built-in backends */

const heed_backend *heed_naive_backend(void)
{
    static const heed_attn_kernel *const attn[] = {&loops};
    static const heed_linear_kernel *const layers[] = {&heed_naive_linear};
    static const heed_backend backend = {
        .abi = HEED_BACKEND_ABI,
        .struct_size = sizeof backend,
        .name = "naive",
        .summary = "plain loops for every problem and machine; the reference for the others",
        .attn = attn,
        .n_attn = sizeof attn / sizeof *attn,
        .linear = layers,
        .n_linear = sizeof layers / sizeof *layers,
    };
    return &backend;
}
