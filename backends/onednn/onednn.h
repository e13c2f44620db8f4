/* What the files of the oneDNN backend share. */
#ifndef HEED_ONEDNN_H
#define HEED_ONEDNN_H

#include "products.h"
#include "rows.h"
#include "threads.h"

/* This process's oneDNN, fixed by the first open that finds it usable. */
typedef struct heed_onednn_library {
    heed_onednn_threads threads;
    dnnl_engine_t engine;
    const heed_onednn_rows *rows;
    /* has_bf16: its bf16 products are not emulated, which is enough where the time is memory's.
     * fast_bf16: they are faster than its f32 products. */
    uint32_t has_bf16, fast_bf16;
    float slower;       /* than AVX-512, per operation: for cost */
    uint32_t n_slots;   /* tiles that may run at once on one plan; others wait and yield */
    int32_t rank;       /* of the instruction set that oneDNN uses */
    uint64_t rows_need; /* HEED_ISA_* */
    char isa[32];       /* that instruction set, in oneDNN's words */
    char note[160];     /* for people: the version that runs, and the instruction set */
} heed_onednn_library;

/* Opens oneDNN for this CPU, once per process; why then says what oneDNN uses. A refusal names what
 * failed: oneDNN may already use more than this CPU, or its cap, allows. */
heed_status heed_onednn_open(const heed_cpu *cpu, heed_error *why);

/* Has to be called before products are described or made: from then on oneDNN counts as used.
 * Refuses in a child after fork whose parent had used oneDNN: other threads of the parent may have
 * held its locks, which then stay locked. */
heed_status heed_onednn_use(heed_error *why);

/* True in such a child: nothing of oneDNN's may be called there, not even to destroy what it made. */
int heed_onednn_is_lost(void);

/* Valid after a successful heed_onednn_open. */
const heed_onednn_library *heed_onednn_opened(void);

#define HEED_ONEDNN_MOST_SIZES (HEED_ONEDNN_MOST_PRODUCTS / 2)

/* How a problem is laid out: a function of the problem alone, on one machine. */
typedef struct heed_onednn_layout {
    int64_t query_rows, key_block, key_chunk;
    /* The products exist for these numbers of rows, the largest first; a tile takes the least that
     * holds it. */
    int64_t n_sizes, size[HEED_ONEDNN_MOST_SIZES];
    int32_t bf16;    /* the products take bf16; else f32 */
    int32_t natural; /* scores leave the first product in natural units */
    float factor;    /* from q . k to scores, in natural or log2 units */
    uint32_t reserved;
    /* Bytes from the start of scratch. */
    size_t q_at, s_at, p_at, k_at, v_at, o_at, spoilt_at, rescale_at, listed_at, mask_at, bias_at,
        needed_at, scratchpad_at, bytes;
} heed_onednn_layout;

/* Products of size i: number 2 i is S = Q K^T, 2 i + 1 is O = P V. */
typedef struct heed_onednn_plan {
    heed_onednn_layout layout;
    heed_onednn_products products;
} heed_onednn_plan;

/* Fails where oneDNN has no product of these sizes, with oneDNN's word for it. */
heed_status heed_onednn_lay_out(const heed_problem *problem, heed_onednn_layout *layout,
                                heed_error *why);

/* Members of the kernel of attention. */
heed_status heed_onednn_plan_create(const void *machine, const heed_problem *problem, void **state);
void heed_onednn_plan_destroy(void *state);
heed_status heed_onednn_run_tile(const void *machine, const void *state,
                                 const heed_problem *problem, heed_tile *tile, void *scratch);

#endif
