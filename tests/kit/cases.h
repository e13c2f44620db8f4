/* The named cases. Each part of the list is a function that adds its own. */
#ifndef KIT_CASES_H
#define KIT_CASES_H

#include "case.h"

/** All of them, in the order in which they run. */
void kit_cases(kit_list *list);

void kit_feature_cases(kit_list *list);     /* cases.c: every option alone, forms, layouts, types */
void kit_edge_cases(kit_list *list);        /* cases_edge.c: dims, lengths, values, hidden memory */
void kit_rising_cases(kit_list *list);      /* cases_rising.c: scores that rise late, and spread */
void kit_pairwise_cases(kit_list *list);    /* pairwise.c: every pair of options */
void kit_ragged_cases(kit_list *list);      /* cases_ragged.c: packed rows and pages */
void kit_mask_cases(kit_list *list);        /* cases_masks.c: ranges, key blocks, late masks */
void kit_codes_cases(kit_list *list);       /* cases_codes.c: keys and values of codes */
void kit_bits_cases(kit_list *list);        /* bits.c: the numerics contract */
void kit_property_cases(kit_list *list);    /* property.c: what must hold without an oracle */
void kit_merge_cases(kit_list *list);       /* merge.c: heed_merge */
void kit_cache_cases(kit_list *list);       /* cache.c: heed_kv_append */
void kit_rotary_cases(kit_list *list);      /* rotary.c: heed_rotary */
void kit_mha_cases(kit_list *list);         /* mha.c: attention layers */
void kit_error_cases(kit_list *list);       /* errors.c: what is refused, and how */
void kit_linear_cases(kit_list *list);      /* linear_cases.c: linear layers against the oracle */
void kit_linear_bits_cases(kit_list *list); /* linear_bits.c: their numerics contract */
void kit_linear_error_cases(kit_list *list); /* linear_errors.c: what they refuse, and how */

/** Walks those pairwise cases that bring a value of an option which no case before them had. Writes
 * the specification, without types, of the first one after row `after` (-1: from the start).
 * Returns its row, or -1 at the end. */
int kit_each_value(int after, kit_spec *spec);

/** A short name of a layout. */
const char *kit_layout_name(uint32_t layout);

/** Counts the pairs of option values that go together, and those that the pairwise cases cover. */
void kit_coverage(int *covered, int *pairs);

/** Prints how many pairs of option values the pairwise cases cover. */
void kit_print_coverage(void);

/** Fills in what a case did not choose: 2 sequences, 4 heads over 2, 19 rows, 37 keys, dims 24. */
void kit_complete(kit_spec *spec);

/** Adds group/what/type for f32, f16 and bf16, all tensors of one type (a bias_type is kept). */
void kit_add_types(kit_list *list, const char *group, const char *what, const kit_spec *spec,
                   int quick);

#endif
