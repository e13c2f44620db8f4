/* Holds a result against the float64 reference. */
#ifndef FUZZ_JUDGE_H
#define FUZZ_JUDGE_H

#include "fuzz_problem.h"

/** 1: out, lse and weights are within the derived tolerance; 0: not, and stderr says where. */
int fuzz_judge(const fuzz_problem *problem);

#endif
