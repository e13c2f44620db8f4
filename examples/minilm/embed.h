/* Turns many texts into embeddings, in batches of texts of similar length, spread over threads. */
#ifndef MINILM_EMBED_H
#define MINILM_EMBED_H

#include "model.h"

/**
 * Computes embeddings [n, width], embeddings[i] for text i, each of length 1. Their bits do not
 * depend on n_threads, the other texts or their order.
 *
 * progress   called now and then, from any thread, with the number of texts done; may be NULL
 */
heed_status embed_texts(const model *m, const slice *texts, int64_t n, int n_threads,
                        float *embeddings, void (*progress)(int64_t done, int64_t n),
                        heed_error *why);

#endif
