/* A plan: a description, the kernel of each class of sequences, and the layout of the workspace. */
#ifndef HEED_CORE_PLAN_H
#define HEED_CORE_PLAN_H

#include "runtime/context.h"
#include "select.h"

/* The classes of sequences: by HEED_QUERY_*, and behind these the same again for sequences whose
 * rows see HEED_FEW_KEYS keys or fewer between them. */
enum { HEED_FEW_KEYS_OF = HEED_QUERY_CLASSES, HEED_CLASSES = 2 * HEED_QUERY_CLASSES };

/* What the sequences of one class use. kernel is NULL for a query class that the plan's maxima rule
 * out, and for few keys if these are served best by the kernel for many. */
typedef struct heed_class_plan {
    const heed_attn_kernel *kernel;
    const void *machine; /* of the kernel's backend */
    void *state;         /* what the kernel keeps for this plan */
    const heed_kernel *chosen; /* the same in the context's registry */
    heed_passed *passed;       /* kernels chosen before it that could not be had */
    heed_problem problem;
    heed_tiling tiling;
    double ns_fixed, ns_per_row, ns_per_pair; /* nanoseconds, of all heads: for a sequence, for each
                                                 query row, for each row and key */
} heed_class_plan;

/* Offsets and sizes in the workspace, in bytes; see workspace.h. */
typedef struct heed_layout {
    size_t sequences, groups, units, fixed; /* independent of the number of parts */
    size_t seams, seams_per_part;           /* for one open row group; room for them */
    size_t states_per_part;                 /* room for the states of chunks */
    size_t marks_per_part;                  /* which seams and states are taken */
    size_t prepared_per_part;               /* room for prepared keys and values */
    size_t unit_marks;                      /* which pieces of that are taken */
    size_t part, part_state, part_mask;     /* private to a part */
    size_t mask_states, mask_table; /* mask summaries that kv heads share; where they start */
    size_t mask_row;                /* of one run of rows, in the table */
    size_t mask_bits; /* where the bits of the first mask_bit_runs runs start: heed_tile.seen */
    uint32_t rows;                  /* state rows of the largest tile */
    uint32_t kv_heads;              /* of a tile, at the most */
    int64_t acc_stride, max_groups, max_units, max_blocks;
    int64_t mask_runs, mask_entries; /* runs of one sequence; rows of the table */
    /* Rows of a run that have bits, and words of each row; 0: no kernel wants them. */
    int64_t bit_rows, bit_words;
    int64_t mask_bit_runs;
} heed_layout;

struct heed_attn {
    heed_cached cached; /* a hold for each of the caller's, and one of the cache's */
    heed_context *context;
    heed_attn_desc desc;
    uint32_t group; /* query heads per kv head */
    uint32_t reserved;
    int64_t window_left, window_right; /* with causal folded in; HEED_UNBOUNDED: none */
    heed_class_plan class_plan[HEED_CLASSES];
    heed_layout layout;
};

/* The class that a sequence of q_len rows has under this plan. few: it has few keys. */
static inline uint32_t heed_query_class(const heed_attn *plan, int64_t q_len, int few)
{
    if (plan->desc.features & HEED_HAS_REPRODUCIBLE_CHUNKS)
        return HEED_QUERY_MANY;
    if (q_len <= 1 || q_len > 16)
        return q_len <= 1 ? HEED_QUERY_ONE : HEED_QUERY_MANY;
    return q_len * plan->group < heed_several_rows(&plan->desc, few) ? HEED_QUERY_FEW
                                                                     : HEED_QUERY_SEVERAL;
}

/* The index of the class_plan for a sequence whose rows see n_keys keys between them. */
static inline uint32_t heed_class_index(const heed_attn *plan, int64_t q_len, int64_t n_keys)
{
    const int few = n_keys <= HEED_FEW_KEYS;
    const uint32_t query_class = heed_query_class(plan, q_len, few);
    const uint32_t own = query_class + HEED_FEW_KEYS_OF;
    return few && plan->class_plan[own].kernel ? own : query_class;
}

#endif
