/* Copies of a rank's rows: all heads of a token, token by token, the parts of sequences
 * behind each other. */
#ifndef HEED_CORE_PACK_H
#define HEED_CORE_PACK_H

#include "local.h"

/* Checks that every page with keys of this rank is in the pool, because all of them travel. */
heed_status heed_pack_check(const heed_group_call *call, heed_error *why);

/* Copies this rank's keys to `to`, and its values heed_values_at behind that. */
void heed_pack_keys(const heed_group_call *call, char *to);

/* Copies this rank's rows of q. */
void heed_pack_rows(const heed_group_call *call, char *to);

#endif
