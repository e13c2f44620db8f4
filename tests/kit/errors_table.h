/* The tables of errors_desc.c and errors_args.c, and the macros that they are written in. For
 * errors*.c alone. */
#ifndef KIT_ERRORS_TABLE_H
#define KIT_ERRORS_TABLE_H

#include "mistake.h"

/** In the order of the cases: first those of descriptions. */
extern const kit_mistake kit_desc_mistakes[], kit_args_mistakes[];
extern const size_t kit_n_desc_mistakes, kit_n_args_mistakes;

/* Which calls find a mistake. AT_PLAN: heed_attention does not look at it. IN_RUN: heed_attn_run
 * and heed_attention do, heed_attn_begin does not. IN_CALL: heed_attention alone, since the
 * description is good by itself. */
enum { IN_DESC, IN_DESC_AT_PLAN, IN_ARGS, IN_ARGS_AT_PLAN, IN_RUN, IN_CALL };

/* Required by mistakes that are none in an empty problem. */
#define ELEMENTS (UINT64_C(1) << 62)
/* Required by mistakes with keys or values whose codes lie in blocks, or with some in E4M3. */
#define K_BLOCKS (UINT64_C(1) << 61)
#define V_BLOCKS (UINT64_C(1) << 60)
#define F8 (UINT64_C(1) << 59)

/* clang-format off */
#define INVALID HEED_ERR_INVALID
#define REFUSED HEED_ERR_UNSUPPORTED
#define SOME_KEYS                                                                              \
    (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_RANGES | HEED_HAS_KEY_BLOCKS)
#define RANGE (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI)
#define PUT(field, ...) KIT_CHANGE(kit_problem, KIT_PUT, field, __VA_ARGS__)
#define OR(field, ...) KIT_CHANGE(kit_problem, KIT_OR, field, __VA_ARGS__)
#define ADD(field, ...) KIT_CHANGE(kit_problem, KIT_ADD, field, __VA_ARGS__)
#define DO(function, of, kinds) .make = (function), .arg = (of), .n = (kinds)
#define WITH(bits) .with = (bits)
#define WITHOUT(bits) .without = (bits)
/* clang-format on */

/* errors_codes.c: mistakes with keys and values in codes; arg 0 is k, 1 is v. */
const char *kit_torn_block(void *call, int arg, uint32_t pick);
const char *kit_part_of_none(void *call, int arg, uint32_t pick);
const char *kit_scales_of_none(void *call, int arg, uint32_t pick);
const char *kit_zeros_of_f8(void *call, int arg, uint32_t pick);
const char *kit_stride_of_no_group(void *call, int arg, uint32_t pick);
const char *kit_no_scales(void *call, int arg, uint32_t pick);
const char *kit_start_in_group(void *call, int arg, uint32_t pick);

#endif
