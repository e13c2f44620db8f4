/* The Walsh-Hadamard transform of rows, for those that are appended to a cache. */
#ifndef HEED_CORE_HADAMARD_H
#define HEED_CORE_HADAMARD_H

#include <heed/hadamard.h>

enum { HEED_HADAMARD_MOST = 4096 }; /* of a group */

/* Checks that args.NAME is a size of groups for rows of args.DIM_NAME = `dim` elements. */
heed_status heed_hadamard_check_group(const char *name, uint32_t group, const char *dim_name,
                                      uint32_t dim, heed_error *why);

/* Transforms n numbers, whole groups, in the library's floating-point environment. */
void heed_hadamard_groups(float *x, int64_t n, uint32_t group);

#endif
