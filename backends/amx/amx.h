/* Internals of the AMX backend: how blocks are packed, what the scratch of a part holds, and the
 * three builds of the kernels (one for the tile unit, two on its model for tests). */
#ifndef HEED_AMX_H
#define HEED_AMX_H

#include <heed/backend.h>

#define AMX_BLOCK 128       /* keys of a block, the unit of prepare, masks and a row's reference */
#define AMX_CHUNK_BLOCKS 16 /* most of a chunk, which all groups finish before the next one */
#define AMX_UNIT 32         /* keys of one tile product with V */
#define AMX_BLOCK_UNITS (AMX_BLOCK / AMX_UNIT)
#define AMX_CHUNK_UNITS (AMX_CHUNK_BLOCKS * AMX_BLOCK_UNITS)
#define AMX_GROUP 32           /* most rows worked on together: two tiles */
#define AMX_SCORES_BYTES 24576 /* scores of 32 rows x 192 keys, or of 16 rows x 384 */
#define AMX_HEADER_BYTES 64    /* of a packed block */

/* The header of a packed block. Bit j of an array stands for key j of the block. */
typedef struct amx_header {
    uint32_t odd_k[AMX_BLOCK / 32]; /* K has a NaN, an infinity or a value of 2^50 or more */
    uint32_t odd_v[AMX_BLOCK / 32]; /* V has a NaN or an infinity: packed as 0, added separately */
} amx_header;

/*
 * Sizes that follow from the problem alone. parts is 1 (bf16) or 2 (split: a value is the sum of a
 * high and a low bf16).
 *
 * packed block   header, K tiles [16 keys][32 dims][part], V tiles [32 keys][part][16 columns]
 * K tile         16 rows of dim pairs x 16 keys: word = dims 2r and 2r + 1 of one key
 * V tile         16 rows of key pairs in the order of vi_pack (vec/words.h) x 16 columns; 32
 *                columns are divided between two tiles in the order of vi_interleave
 * group          rows worked on together: 16 where the four tiles of their O can stay in registers
 *                (fast_resident.inc.h), else 32
 * Q              per group: [row tile][32 dims][part] tiles of 16 rows x 32 dims
 * P              per unit of 32 keys: [part][row tile] tiles of 16 rows x 32 keys
 * O              per group: [32 columns][row tile][2] tiles of f32, with V's order of columns
 */
typedef struct amx_layout {
    int32_t parts, k_steps, v_pairs; /* v_pairs: 32 columns of V each */
    int32_t heads, query_rows, group, groups, chunk_blocks;
    int64_t v_at, block_bytes, q_group_bytes, o_group_bytes;
    int64_t packed_at, q_at, s_at, p_at, o_at, rows_at, scratch_bytes;
} amx_layout;

/* What the kernels keep of a group's rows. */
typedef struct amx_rows {
    float
        reference[AMX_GROUP]; /* integers in log2 units; AMX_UNSEEN before the row's first score */
    float sum[AMX_GROUP][16]; /* lanes of the sum of weights */
    float exact[AMX_GROUP][16]; /* the same of unrounded weights, where that is asked for */
    uint32_t odd_q;             /* bit r: row r has a NaN, an infinity or a value of 2^50 or more */
    uint32_t fresh;             /* O in memory holds nothing yet: it counts as 0 */
    uint32_t reserved[14];
} amx_rows;
#define AMX_UNSEEN (-0x1p127f)

static inline amx_layout amx_layout_of(const heed_problem *p)
{
    amx_layout l = {.parts = p->accuracy == HEED_ACCURACY_SPLIT ? 2 : 1};
    int64_t wide = p->qk_dim > p->v_dim ? p->qk_dim : p->v_dim, rows;
    l.k_steps = (int32_t)((p->qk_dim + 31) / 32);
    l.v_pairs = (int32_t)((p->v_dim + 31) / 32);
    l.heads = (int32_t)(p->q_heads / p->kv_heads);
    rows = wide * l.parts <= 256 ? 512 : 256;
    l.query_rows = (int32_t)(rows > l.heads ? rows / l.heads : 1);
    l.group = l.parts == 1 && l.k_steps == l.v_pairs && l.k_steps <= 2 ? 16 : AMX_GROUP;
    /* Of 128 dims, K and V of a chunk, Q and O of 512 rows take 1.4 of the 2 MiB of L2 that CPUs with
     * tiles have, and would take twice that of 256 dims. */
    l.chunk_blocks =
        l.parts == 1 && l.k_steps <= 4 && l.v_pairs <= 4 ? AMX_CHUNK_BLOCKS : AMX_CHUNK_BLOCKS / 4;
    l.groups = (l.query_rows * l.heads + l.group - 1) / l.group;
    l.v_at = AMX_HEADER_BYTES + (int64_t)l.parts * l.k_steps * (AMX_BLOCK / 16) * 1024;
    l.block_bytes = l.v_at + (int64_t)l.parts * l.v_pairs * AMX_BLOCK_UNITS * 2048;
    l.q_group_bytes = (int64_t)l.parts * l.k_steps * l.group * 64;
    l.o_group_bytes = (int64_t)l.v_pairs * 4096;
    l.packed_at = 0;
    l.q_at = l.packed_at + l.chunk_blocks * l.block_bytes;
    l.s_at = l.q_at + l.groups * l.q_group_bytes;
    l.p_at = l.s_at + AMX_SCORES_BYTES;
    l.o_at = l.p_at + (int64_t)l.parts * l.chunk_blocks * AMX_BLOCK_UNITS * 2048;
    l.rows_at = l.o_at + l.groups * l.o_group_bytes;
    l.scratch_bytes = l.rows_at + l.groups * (int64_t)sizeof(amx_rows);
    return l;
}

/* Linear layers: rows of a tile, inputs of a block, most columns of a tile, columns of a packed
 * panel. The scratch of a part holds x of one block and then the sums: those of all columns, or,
 * for a layer with a single block of inputs, two buffers of 32 rows x 32 columns. */
#define AMX_LINEAR_ROWS 256
#define AMX_LINEAR_BLOCK 2048
#define AMX_LINEAR_COLS 1024
#define AMX_PANEL 32

static inline int64_t heed_amx_linear_steps(const heed_linear_problem *p)
{
    return ((int64_t)p->in_dim + 31) / 32;
}

static inline size_t heed_amx_linear_x_bytes(const heed_linear_problem *p)
{
    const int64_t steps = heed_amx_linear_steps(p), most = AMX_LINEAR_BLOCK / 32;
    return AMX_LINEAR_ROWS * (size_t)(steps < most ? steps : most) * 64;
}

/* What open has found out about this CPU. */
typedef struct heed_amx_machine {
    double cost_scale; /* multiplies estimates, which are for a tile unit of usual speed */
} heed_amx_machine;

/* The kernels are built three times: for the hardware; on the model of the tile unit with plain
 * loops; and on the model with AVX-512, which runs most of the first build's code on machines
 * without a tile unit. activate works in place on n values, rounded up to a multiple of 16. */
#define AMX_KERNELS(name)                                                                          \
    heed_status name(prepare)(const void *machine, const void *state, const heed_problem *problem, \
                              const heed_tile *kv, void *prepared);                                \
    heed_status name(run_tile)(const void *machine, const void *state,                             \
                               const heed_problem *problem, heed_tile *tile, void *scratch);       \
    heed_status name(linear_pack)(const void *machine, const heed_linear_problem *problem,         \
                                  const heed_linear_weight *weight, int64_t col_first,             \
                                  int64_t col_end, void *panel);                                   \
    heed_status name(linear_tile)(const void *machine, const void *state,                          \
                                  const heed_linear_problem *problem,                              \
                                  const heed_linear_tile *tile, void *scratch);                    \
    void name(activate)(uint32_t activation, float *s, int64_t n);
#define AMX_HARDWARE(name) heed_amx_##name
#define AMX_MODEL(name) heed_amx_model_##name
#define AMX_LANES(name) heed_amx_lanes_##name
AMX_KERNELS(AMX_HARDWARE)
AMX_KERNELS(AMX_MODEL)
AMX_KERNELS(AMX_LANES)

#if defined(HEED_AMX_MODEL) && defined(HEED_AMX_LANES)
#define AMX_NAME(name) heed_amx_lanes_##name
#elif defined(HEED_AMX_MODEL)
#define AMX_NAME(name) heed_amx_model_##name
#else
#define AMX_NAME(name) heed_amx_##name
#endif

/* Measures the time of a tile product and of a fused multiply-add of 16 floats. */
void heed_rates_amx(double *product_ns, double *fma_ns);
/* The factor for costs that follows from these times; note receives the decision in words. */
double heed_amx_judge(double product_ns, double fma_ns, heed_error *note);

/* Does the CPU have what the kernels are compiled for? */
heed_status heed_amx_isa(const heed_cpu *cpu, heed_error *why);
/* Are tiles and products as large as the kernels need, by CPUID leaves 1DH (palette 1) and 1EH?
 * Hypervisors may leave those leaves empty: the CPU is then assumed to be like all others, and
 * core's trial of a kernel would show if it is not. */
heed_status heed_amx_palette(const uint32_t tiles[4], const uint32_t products[4], heed_error *why);
const heed_backend *heed_amx_backend(void);
const heed_backend *heed_amx_model_backend(void);

#endif
