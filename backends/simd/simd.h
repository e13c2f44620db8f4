/* The x86 backends' kernels, as their baseline code (backend.c) and each other see them.
 *
 * A kernel's source is written over vec/vec.h and compiled once per instruction set; the functions
 * that it exports carry the set's name: heed_attn_prefill_avx2. What is not a kernel (tiling, cost)
 * is compiled once, for the baseline CPU, and serves all of them.
 *
 *     vec/         vectors of each instruction set; exp2, tanh, products of pairs of bf16
 *     prefill/     many query rows, and every problem that no other kernel covers
 *     decode/      few query rows against long keys, cut into chunks
 *     small/       few query rows against few keys of few dims
 *     linear/      linear layers
 *     append/      encodes numbers to rows of a cache
 *
 * f32 problems get the same bits from AVX2 and AVX-512, with keys and values of codes as without,
 * so that a call may go to either: every decision that affects a sum (blocks, chunks, order) is
 * made here, from the problem alone.
 */
#ifndef HEED_SIMD_H
#define HEED_SIMD_H

#include <heed/backend.h>

/* Decode reads crosswise (decode/cross.inc.h) where a kv head has at least so many rows; 0: never.
 * One number for each way in which the rows of a head may lie. */
typedef struct heed_cross {
    uint32_t apart;  /* one behind the other */
    uint32_t beside; /* among those of the other heads */
    uint32_t paged;
} heed_cross;

/* The products of decode with runs of one type of codes: decode/coded_products.inc.h. */
typedef struct heed_simd_coded heed_simd_coded;

/* Of which dims runs are read as they lie: of 64 and 128 alone, of others too, those that are multiples of
 * 64 in pages alone, or of all. */
enum { HEED_RUNS_USUAL, HEED_RUNS_UNEVEN, HEED_RUNS_ANY };

/* What is worth doing on this CPU: tuning.c says why. It is the `machine` of the backends' kernels.
 * None of it changes a bit of an f32 problem's results. */
typedef struct heed_simd_tuning {
    uint32_t lanes;          /* floats of a vector: 8 or 16 */
    uint32_t prefetch_l1;    /* vector loops prefetch to L1, if that gains (48 KiB, AMD), else L2 */
    uint32_t fetched_l2;     /* decode reads runs in order, with lines fetched into L2 */
    uint32_t any_dims;       /* so it reads runs of dims other than 64 and 128, too: HEED_RUNS_* */
    uint32_t fetched;        /* the same into L1, which has to be large enough for it */
    uint32_t fetched_beside; /* heads side by side too, from so many rows of 64 dims of each on; 0: never */
    uint32_t fetched_paged;  /* 16-bit in pages from so many rows of 64 dims on, twice as many of 128; 0: any */
    uint32_t hops;           /* short runs are read so in any case: decode/order.inc.h */
    heed_cross cross_f32, cross_half; /* keys of f32; of f16 and bf16 */
    heed_cross cross_pairs;           /* keys of bf16, by vdpbf16ps */
    uint32_t pack_v;                  /* rows of V that share few cache sets are worth a copy */
    uint32_t x_any_sets;              /* linear: rows of x in one cache set are read as they lie */
    uint32_t linear_blocks;  /* linear: rows meet all blocks of a panel, up to so many, at once */
    uint32_t linear_streams; /* linear of few rows: panels that are read at once, if registers do */
    int64_t linear_far_bytes;   /* of 2 rows and more: layers of which a whole block is fetched ahead */
    uint32_t linear_ahead_word; /* linear of few rows: how far ahead w is fetched, of 4 bytes */
    uint32_t linear_ahead_half; /* and of 2: bytes in each of its streams */
    uint32_t linear_ahead_of;   /* of so many; fewer are fetched as much further ahead, 0: no further */
    uint32_t dot_bf16;          /* vdpbf16ps is fast, and its kernels are built */
    uint32_t dot_int8;          /* so are integer products of codes */
    uint32_t dot_vnni;          /* so are those by vpdpbusd of AVX-VNNI */
    uint32_t small_avx2;        /* heavy AVX-512 after scalar code stalls: small tiles go to AVX2 */
    uint32_t factors_first;     /* factors of runs of Q formats are read before their codes */
    const heed_simd_coded *coded; /* what these and f8_e4m3 are decoded by; NULL: as other codes */
} heed_simd_tuning;

/* Are runs of this problem's keys, not of 64 or 128 dims, read as they lie? */
static inline int heed_simd_reads_runs(const heed_simd_tuning *tuning, const heed_problem *problem)
{
    const int paged = (problem->features & HEED_HAS_PAGES) != 0;
    return tuning->any_dims == HEED_RUNS_ANY ||
           (tuning->any_dims == HEED_RUNS_UNEVEN && (paged || problem->qk_dim % 64));
}

/* Kernels that a compiler may be unable to build: by vdpbf16ps, by integer products of codes with
 * what the backend's kernels need anyway, and by those of AVX-VNNI. */
enum { HEED_BUILT_DOT = 1, HEED_BUILT_INT8 = 2, HEED_BUILT_VNNI = 4 };

/* A backend's open, which fills *machine, and close. built: HEED_BUILT_*. coded: what
 * this CPU can decode runs of codes by beside what all CPUs of the backend have; NULL: nothing. */
heed_status heed_simd_open(const heed_cpu *cpu, uint32_t lanes, uint32_t built,
                           const heed_simd_coded *coded, const void **machine);
void heed_simd_close(const void *machine);

/* Every HEED_HAS_* bit that the kernels know between them. */
#define HEED_SIMD_FEATURES                                                                         \
    (HEED_HAS_SCALE | HEED_HAS_SOFTCAP | HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI |      \
     HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE | HEED_HAS_SINK | HEED_HAS_LSE |          \
     HEED_HAS_WEIGHTS | HEED_HAS_SCORES | HEED_HAS_LENS | HEED_HAS_PACKED | HEED_HAS_PAGES |       \
     HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_QUANT | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS |       \
     HEED_HAS_MASK_FROM)

/* ---- kernels of attention ---------------------------------------------------------------------
 *
 * Members of the tables of kernels that the backends share. A query class is served by prefill or
 * by decode, few query rows of many heads by prefill, and few keys of few dims by small. Kernels by
 * bf16 products are for accuracy bf16, and those by integer products of codes for accuracy int8,
 * where they are fast.
 */
heed_status heed_simd_prefill_supports(const void *machine, const heed_problem *problem,
                                       heed_error *why);
heed_status heed_simd_prefill_bf16_supports(const void *machine, const heed_problem *problem,
                                            heed_error *why);
heed_status heed_simd_decode_supports(const void *machine, const heed_problem *problem,
                                      heed_error *why);
heed_status heed_simd_decode_bf16_supports(const void *machine, const heed_problem *problem,
                                           heed_error *why);
heed_status heed_simd_decode_int8_supports(const void *machine, const heed_problem *problem,
                                           heed_error *why);
heed_status heed_simd_decode_vnni_supports(const void *machine, const heed_problem *problem,
                                           heed_error *why);
heed_status heed_simd_small_supports(const void *machine, const heed_problem *problem,
                                     heed_error *why);

double heed_simd_prefill_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                              int64_t kv_len);
double heed_simd_prefill_bf16_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                   int64_t kv_len);
double heed_simd_decode_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                             int64_t kv_len);
double heed_simd_decode_bf16_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                  int64_t kv_len);
double heed_simd_decode_int8_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                  int64_t kv_len);
double heed_simd_decode_vnni_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                                  int64_t kv_len);
double heed_simd_small_cost(const void *machine, const heed_problem *problem, int64_t q_len,
                            int64_t kv_len);

heed_status heed_simd_prefill_tiling(const void *machine, const heed_problem *problem,
                                     heed_tiling *out);
/* Scratch memory is enough for prefill too: in the second pass, over tiles flagged OUTPUTS, it
 * writes scores and weights before decode writes its own weights. */
heed_status heed_simd_decode_tiling(const void *machine, const heed_problem *problem,
                                    heed_tiling *out);
/* Decode's tiling with more kv heads, because decode serves tiles that small does not cover. */
heed_status heed_simd_small_tiling(const void *machine, const heed_problem *problem,
                                   heed_tiling *out);

/* A kernel. */
typedef heed_status heed_simd_run(const heed_simd_tuning *tuning, const heed_problem *problem,
                                  heed_tile *tile, void *scratch);

/* ---- prefill ----------------------------------------------------------------------------------
 *
 * dot: by vdpbf16ps, for accuracy bf16.
 */
heed_simd_run heed_attn_prefill_avx2, heed_attn_prefill_avx512, heed_attn_prefill_dot_avx512;

/* ---- decode -----------------------------------------------------------------------------------
 */

/* How problems of few query rows are cut, so that all instruction sets form the same sums. It
 * leaves the other members of *out alone. */
void heed_decode_cut(const heed_problem *problem, heed_tiling *out);
/* May tiles of several kv heads gain, where these lie side by side? */
int heed_decode_takes_heads(const heed_simd_tuning *tuning, const heed_problem *problem);

/* One kv head. dot: by vdpbf16ps, for accuracy bf16 and adjacent dims of keys and values; int8 and
 * vnni: by integer products of q and codes, for accuracy int8 and keys of codes. */
heed_simd_run heed_attn_decode_avx2, heed_attn_decode_avx512, heed_attn_decode_dot_avx512,
    heed_attn_decode_int8_avx2, heed_attn_decode_int8_avx512, heed_attn_decode_vnni_avx2;
/* All kv heads of a tile at once. HEED_ERR_UNSUPPORTED says that one by one they are not slower. */
heed_simd_run heed_attn_decode_heads_avx2, heed_attn_decode_heads_avx512,
    heed_attn_decode_heads_dot_avx512, heed_attn_decode_heads_int8_avx2,
    heed_attn_decode_heads_int8_avx512, heed_attn_decode_heads_vnni_avx2;
/* The second pass: weights of the visible keys, by the first pass's arithmetic. */
heed_simd_run heed_attn_decode_weights_avx2, heed_attn_decode_weights_avx512,
    heed_attn_decode_weights_dot_avx512, heed_attn_decode_weights_int8_avx2,
    heed_attn_decode_weights_int8_avx512, heed_attn_decode_weights_vnni_avx2;

/* The products with runs of codes by VBMI and VNNI: of f8_e4m3 and the Q formats. */
extern const heed_simd_coded *const heed_attn_coded_avx512;

/* What a backend's kernel of decode is made of. For tiles flagged OUTPUTS, `pairs` first writes
 * scores and weights of every row and key, and `weights` then those of visible keys anew. */
typedef struct heed_simd_decode {
    heed_simd_run *head, *heads, *pairs, *weights;
} heed_simd_decode;

/* Runs a tile of any number of kv heads, which is not flagged FINISHED. */
heed_status heed_simd_run_decode(const heed_simd_decode *by, const heed_simd_tuning *tuning,
                                 const heed_problem *problem, heed_tile *tile, void *scratch);

/* Defines the run of a kernel that is made of these parts. */
#define HEED_SIMD_RUN_DECODE(name, ...)                                                            \
    static heed_status name(const void *machine, const void *state, const heed_problem *problem,   \
                            heed_tile *tile, void *scratch)                                        \
    {                                                                                              \
        static const heed_simd_decode by = {__VA_ARGS__};                                          \
        (void)state;                                                                               \
        return heed_simd_run_decode(&by, machine, problem, tile, scratch);                         \
    }

/* Keys of a chunk in decode; with key blocks a chunk may be longer (decode/tiling.c). */
#define HEED_DECODE_CHUNK 1024

/* ---- small problems ---------------------------------------------------------------------------
 *
 * Tiles of decode that are not worth its preparations, of every type, in f32 arithmetic. Scores are
 * formed as decode forms those of f32, because decode's second pass writes the weights.
 */
#define HEED_SMALL_DIM 32 /* of v; qk_dim is 8 or 16 */

/* Do all keys that the tile's sequence sees lie in one chunk? Then its first pass
 * had the flag WHOLE. */
static inline int heed_simd_one_chunk(const heed_tile *t)
{
    const int64_t low = t->q_offset - t->window_left;
    const int64_t high = t->q_len + t->q_offset + t->window_right;
    const int64_t first = low > 0 ? low : 0, end = high < t->kv_len ? high : t->kv_len;
    return first / HEED_DECODE_CHUNK == (end - 1) / HEED_DECODE_CHUNK;
}

/* What small asks of a problem. */
static inline int heed_simd_small_has_shape(const heed_problem *p)
{
    const uint64_t terms = HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_MASK | HEED_HAS_BIAS |
                           HEED_HAS_SINK | HEED_HAS_PAGES | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS;
    return (p->qk_dim == 8 || p->qk_dim == 16) && p->v_dim <= HEED_SMALL_DIM && p->v_dim % 8 == 0 &&
           !(p->features & terms);
}

/* Does small serve this tile of such a problem, or did it in the first pass? Else decode does. */
static inline int heed_simd_small_covers(const heed_tile *t)
{
    return t->k_end - t->k_first <= HEED_FEW_KEYS && t->q.dim_stride == 1 && t->k.dim_stride == 1 &&
           t->v.dim_stride == 1 && t->out.dim_stride == 1 &&
           (t->flags & HEED_TILE_WHOLE || (t->flags & HEED_TILE_OUTPUTS && heed_simd_one_chunk(t)));
}

/* Runs a tile with all its kv heads, and finishes its rows. */
heed_status heed_attn_small_avx2(const heed_problem *problem, heed_tile *tile);
heed_status heed_attn_small_avx512(const heed_problem *problem, heed_tile *tile);

/* ---- linear layers ----------------------------------------------------------------------------
 */

/* word: inputs that lie side by side, 2 for pairs. */
size_t heed_simd_linear_panel_bytes(const heed_linear_problem *problem, uint32_t lanes,
                                    uint32_t word);
/* Members of the tables of both kernels: of f32 arithmetic, for every layer, and by vdpbf16ps. */
heed_status heed_simd_linear_supports(const void *machine, const heed_linear_problem *problem,
                                      heed_error *why);
heed_status heed_simd_linear_bf16_supports(const void *machine, const heed_linear_problem *problem,
                                           heed_error *why);
double heed_simd_linear_cost(const void *machine, const heed_linear_problem *problem, int64_t rows);
double heed_simd_linear_bf16_cost(const void *machine, const heed_linear_problem *problem,
                                  int64_t rows);
heed_status heed_simd_linear_tiling(const void *machine, const heed_linear_problem *problem,
                                    heed_linear_tiling *out);
heed_status heed_simd_linear_bf16_tiling(const void *machine, const heed_linear_problem *problem,
                                         heed_linear_tiling *out);
heed_status heed_simd_linear_pack(const void *machine, const heed_linear_problem *problem,
                                  const heed_linear_weight *weight, int64_t col_first,
                                  int64_t col_end, void *panel);
heed_status heed_simd_linear_bf16_pack(const void *machine, const heed_linear_problem *problem,
                                       const heed_linear_weight *weight, int64_t col_first,
                                       int64_t col_end, void *panel);

typedef heed_status heed_simd_linear_run(const void *machine, const void *state,
                                         const heed_linear_problem *problem,
                                         const heed_linear_tile *tile, void *scratch);
heed_simd_linear_run heed_linear_tile_avx2, heed_linear_tile_avx512, heed_linear_tile_dot_avx512;

/* ---- rows of a cache --------------------------------------------------------------------------
 */

heed_status heed_append_rows_avx2(const heed_append_rows *rows);
heed_status heed_append_rows_avx512(const heed_append_rows *rows);

#endif
