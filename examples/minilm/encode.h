/* Runs one batch of texts through the encoder; their tokens follow one another, without padding. */
#ifndef MINILM_ENCODE_H
#define MINILM_ENCODE_H

#include "model.h"

/** The tokens of n texts: those of text i are ids[starts[i]] to ids[starts[i] + lens[i] - 1]. */
typedef struct batch {
    int32_t n, rows, longest;
    int32_t *ids, *starts, *lens;
} batch;

/** Memory for batches of up to `rows` tokens; only one thread may use it at a time. */
typedef struct encoder encoder;

/**
 * n_parts    the most threads that compute a batch. 1: only the calling thread, so that each of an
 *            engine's own threads can have an encoder
 * weights    0: for encoder_embed; 1: for encoder_weights
 */
heed_status encoder_create(const model *m, int64_t rows, uint32_t n_parts, int weights,
                           encoder **out, heed_error *why);
void encoder_free(encoder *e);

/** Computes embeddings [n, width], for each text the mean of its last hidden states, scaled to
 * length 1. */
heed_status encoder_embed(encoder *e, const batch *b, float *embeddings, heed_error *why);

/** Computes the attention weights [heads, rows, rows] of a single text (b->n is 1) in one layer. */
heed_status encoder_weights(encoder *e, const batch *b, int64_t layer, float *weights,
                            heed_error *why);

#endif
