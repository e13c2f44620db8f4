/* Draws the attention of one layer. */
#ifndef MINILM_MAP_H
#define MINILM_MAP_H

#include "encode.h"

/** Writes an SVG file: a panel with the mean over the heads and one for each head, with tokens on
 * both axes. A row is a token that attends; its darkest cells are the tokens that it attends to
 * most. */
heed_status map_write(const char *path, const model *m, const batch *b, int64_t layer,
                      const float *weights, heed_error *why);

#endif
