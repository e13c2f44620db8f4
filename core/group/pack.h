/* Copies of rows, heads inside tokens, the parts of sequences behind each other. */
#ifndef HEED_CORE_PACK_H
#define HEED_CORE_PACK_H

#include "local.h"

/* Every page of the keys that are here is in the pool: all of them travel. */
heed_status heed_pack_check(const heed_group_call *call, heed_error *why);

/* This rank's keys and, heed_values_at behind them, values. */
void heed_pack_keys(const heed_group_call *call, char *to);

/* This rank's rows of q. */
void heed_pack_rows(const heed_group_call *call, char *to);

#endif
