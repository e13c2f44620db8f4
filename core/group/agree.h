/* What all ranks of a call have to say alike: its rows, and a hash that each message carries. */
#ifndef HEED_CORE_AGREE_H
#define HEED_CORE_AGREE_H

#include "local.h"

/* Rows of one head that a partial result of split has, unless rows are apart: all that lie between
 * the first and the last one. */
int64_t heed_agreed_tokens(const heed_group_call *call, int64_t *first_token);

/* The hash of description, partition and lengths. */
uint64_t heed_agreed_call(const heed_group_call *call);

#endif
