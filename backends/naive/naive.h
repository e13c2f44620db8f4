/* The parts of the naive backend. */
#ifndef HEED_NAIVE_H
#define HEED_NAIVE_H

#include <heed/backend.h>

extern const heed_linear_kernel heed_naive_linear; /* linear.c */

#endif
