/* A plan: a description, the kernel of each class of sequences, and the layout of the workspace. */
#ifndef HEED_CORE_PLAN_H
#define HEED_CORE_PLAN_H

#include "runtime/context.h"
#include "runtime/select.h"

/* The classes of sequences: by HEED_QUERY_*, and behind these those of them whose rows see no key
 * outside HEED_FEW_KEYS. */
enum { HEED_FEW_KEYS_OF = 3, HEED_CLASSES = 6 };

/* What the sequences of one class use. kernel is NULL for a query class that the plan's maxima rule out,
 * and where few keys are best served as many are. */
typedef struct heed_class_plan {
    const heed_attn_kernel *kernel;
    const void *machine; /* the kernel's two: its backend's, and of this plan */
    void *state;
    const heed_kernel *chosen; /* the same in the context's registry */
    heed_passed *passed;       /* those chosen before it that could not be had */
    heed_problem problem;
    heed_tiling tiling;
    double ns_fixed, ns_per_row, ns_per_pair; /* estimate of a sequence, with all heads; of a query
                                                 row and of a row and key */
} heed_class_plan;

/* Offsets and sizes in the workspace, in bytes; see workspace.h. */
typedef struct heed_layout {
    size_t sequences, groups, units, fixed; /* independent of the number of parts */
    size_t seams, seams_per_part;           /* merges of one open row group; room for them */
    size_t states_per_part;                 /* room for the states of chunks */
    size_t marks_per_part;                  /* which seams and states are taken */
    size_t prepared_per_part;               /* room for prepared keys and values */
    size_t unit_marks;                      /* which pieces of that are taken */
    size_t part, part_state, part_mask;     /* private to a part */
    size_t mask_states, mask_table; /* mask summaries that kv heads share; where they start */
    size_t mask_row;                /* of one sequence's run of rows, in the table */
    size_t mask_bits; /* what rows of the first mask_bit_runs of them see, where bits can say it */
    uint32_t rows;                  /* state rows of the largest tile */
    uint32_t kv_heads;              /* of a tile, at the most */
    int64_t acc_stride, max_groups, max_units, max_blocks;
    int64_t mask_runs, mask_entries; /* runs of one sequence; rows of the table */
    int64_t bit_rows,
        bit_words; /* rows of a run that have bits, words of each; 0: nobody wants them */
    int64_t mask_bit_runs;
} heed_layout;

struct heed_attn {
    heed_cached cached; /* a hold for each of the caller's, and one of the cache's */
    heed_context *context;
    heed_attn_desc desc;
    uint32_t group; /* query heads per kv head */
    uint32_t reserved;
    int64_t window_left, window_right; /* causal folded in; HEED_UNBOUNDED */
    heed_class_plan class_plan[HEED_CLASSES];
    heed_layout layout;
};

/* The class that a sequence of q_len rows has under this plan. */
static inline uint32_t heed_query_class(const heed_attn *plan, int64_t q_len)
{
    if (plan->desc.features & HEED_HAS_REPRODUCIBLE_CHUNKS)
        return HEED_QUERY_MANY;
    return q_len <= 1 ? HEED_QUERY_ONE : q_len <= 16 ? HEED_QUERY_FEW : HEED_QUERY_MANY;
}

/* What runs a sequence whose rows see so many keys between them: the place of its class_plan. */
static inline uint32_t heed_class_index(const heed_attn *plan, int64_t q_len, int64_t n_keys)
{
    const uint32_t query_class = heed_query_class(plan, q_len);
    const uint32_t few = query_class + HEED_FEW_KEYS_OF;
    return plan->class_plan[few].kernel && n_keys <= HEED_FEW_KEYS ? few : query_class;
}

#endif
