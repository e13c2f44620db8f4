/* The part of the cache's cases that grows one. See cache_pieces.c. */
#ifndef KIT_CACHE_PIECES_H
#define KIT_CACHE_PIECES_H

#include "case.h"

/** A case's `run`: sequences appended and attended to at once, in pieces of several kinds, and in
 * pages; caches are of the spec's q_type. */
void kit_cache_in_pieces(const kit_env *env, const kit_case *c, kit_outcome *outcome);

#endif
