/* The rows of mha_mistakes.c, for the kit's case that makes all of them; see layer_case.h. */
#ifndef KIT_MHA_MISTAKES_H
#define KIT_MHA_MISTAKES_H

#include "mistake.h"

/** A bit of kit_mistake.with: the layer is the one of the kit's own cases. */
#define LAYER_KNOWN (UINT64_C(1) << 63)

/** Mistake `which` of layer_mistakes(). */
const kit_mistake *layer_mistake(size_t which);

#endif
