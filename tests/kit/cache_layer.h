/* The part of the cache's cases in which a layer appends. See cache_layer.c. */
#ifndef KIT_CACHE_LAYER_H
#define KIT_CACHE_LAYER_H

#include "case.h"

/** A case's `run`: rows of every type of numbers, appended by a layer to caches of the spec's k_type. */
void kit_cache_by_layer(const kit_env *env, const kit_case *c, kit_outcome *outcome);

#endif
