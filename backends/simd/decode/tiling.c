/* How problems of few query rows are cut: one copy for every instruction set, so that all of them
 * form the same sums. */
#include "../simd.h"
#include "decode.h"

/* The most keys of a chunk where key blocks are given. */
#define DECODE_LISTED_CHUNK 8192

/* Query rows of a tile, each for all heads of a group. Where a single one is already more than a
 * tile should hold, the tile has that one: arithmetic is the limit there anyway. */
static uint32_t query_rows(const heed_problem *problem)
{
    uint32_t most = problem->query_class == HEED_QUERY_ONE ? 1 : 16;
    uint32_t rows = DECODE_MAX_ROWS / (problem->q_heads / problem->kv_heads);
    return rows < 1 ? 1 : rows > most ? most : rows;
}

/* Keys of a chunk: long enough for its state to cost nothing, short enough for parts to share them.
 * A row sees few key blocks as a rule, so a chunk then has 64 of them, a word of their bits, up to
 * a limit that leaves parts something to share: with blocks of 64 keys a row that sees an eighth of
 * 65536 keys is faster by a third (bf16, Zen 4). */
static uint32_t key_chunk(const heed_problem *problem)
{
    const uint32_t most = DECODE_LISTED_CHUNK / HEED_DECODE_CHUNK;
    const uint64_t chunks =
        ((uint64_t)problem->block_keys * 64 + HEED_DECODE_CHUNK - 1) / HEED_DECODE_CHUNK;
    if (!(problem->features & HEED_HAS_KEY_BLOCKS))
        return HEED_DECODE_CHUNK;
    return (chunks < most ? (uint32_t)chunks : most) * HEED_DECODE_CHUNK;
}

void heed_decode_cut(const heed_problem *problem, heed_tiling *out)
{
    size_t rows = (size_t)query_rows(problem) * (problem->q_heads / problem->kv_heads);
    size_t qk = (size_t)decode_padded(problem->qk_dim), v = (size_t)decode_padded(problem->v_dim);
    out->query_rows = query_rows(problem);
    out->key_block = DECODE_KEY_BLOCK;
    out->key_chunk = key_chunk(problem);
    out->state_log2 = 1;
    out->flush = HEED_FLUSH_RESULTS | HEED_FLUSH_INPUTS;
    /* Scaled q, partial sums and reference of the rows of several kv heads (heads.inc.h), weights
     * and visible keys of the rows of one, and 16 keys of K and V. Tiles with fewer query rows may
     * have more rows together, because more heads fit: hence DECODE_MAX_ROWS. */
    const size_t heads =
        problem->kv_heads < DECODE_MOST_HEADS ? problem->kv_heads : DECODE_MOST_HEADS;
    size_t together = heads * rows < DECODE_MAX_ROWS ? heads * rows : DECODE_MAX_ROWS;
    together = together > rows ? together : rows;
    out->scratch_bytes =
        4 * (together * (qk + DECODE_BLOCK) + together + heads * 15 + rows * 2 * DECODE_BLOCK +
             (size_t)decode_padded((int64_t)rows) + DECODE_BLOCK * (qk + v));
    if (problem->accuracy == HEED_ACCURACY_INT8) /* the same rows, and 16 keys, as integers */
        out->scratch_bytes += together * ((problem->qk_dim + 31) / 32) * DECODE_INTEGER_BYTES +
                              (size_t)decode_codes_bytes(problem->qk_dim) +
                              DECODE_BLOCK * sizeof(float);
}

int heed_decode_takes_heads(const heed_simd_tuning *tuning, const heed_problem *problem)
{
    const uint32_t dims = problem->qk_dim;
    const int paged = (problem->features & HEED_HAS_PAGES) != 0;
    const int codes = heed_is_code(problem->k_type);
    /* Codes of 96 and 256 dims in pages take up to 1.3 of the time head by head (Zen 4). */
    const int others =
        (codes ? tuning->any_dims && !paged : heed_simd_reads_runs(tuning, problem)) &&
        dims >= 64 && dims % 16 == 0;
    const uint64_t terms =
        HEED_HAS_WEIGHTS | HEED_HAS_SCORES |
        (paged || codes ? HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS
                        : 0);
    return !(problem->features & terms) && problem->k_type == problem->v_type &&
           dims == problem->v_dim && (dims == 64 || dims == 128 || others);
}
