/* One batch of texts through the encoder: their tokens lie behind each other, without padding. */
#ifndef MINILM_ENCODE_H
#define MINILM_ENCODE_H

#include "model.h"

/** Tokens of n texts: text i is ids[starts[i]] to ids[starts[i] + lens[i] - 1]. */
typedef struct batch {
    int32_t n, rows, longest;
    int32_t *ids, *starts, *lens;
} batch;

/** Memory for batches of up to `rows` tokens; one thread uses it at a time. */
typedef struct encoder encoder;

/**
 * n_parts    threads that one batch's computations are spread over at most. 1: they stay on the
 *            calling thread, so that an engine's own threads can each have an encoder
 * weights    0: for encoder_embed; 1: for encoder_weights
 */
heed_status encoder_create(const model *m, int64_t rows, uint32_t n_parts, int weights,
                           encoder **out, heed_error *why);
void encoder_free(encoder *e);

/** embeddings[i] of text i, [n, width]: the mean of its last hidden states, scaled to length 1. */
heed_status encoder_embed(encoder *e, const batch *b, float *embeddings, heed_error *why);

/** Attention weights of one text (b->n is 1) in one layer: weights [heads, rows, rows]. */
heed_status encoder_weights(encoder *e, const batch *b, int64_t layer, float *weights,
                            heed_error *why);

#endif
