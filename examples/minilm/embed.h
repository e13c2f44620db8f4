/* Many texts to embeddings: batches of texts of about one length, spread over threads. */
#ifndef MINILM_EMBED_H
#define MINILM_EMBED_H

#include "model.h"

/** A text, not NUL-terminated. */
typedef struct text {
    const char *at;
    size_t bytes;
} text;

/**
 * embeddings[i] of text i, [n, width], each of length 1; the same bits whatever n_threads, the
 * other texts and their order are.
 *
 * progress   called now and then, from any thread, with the number of texts done; may be NULL
 */
heed_status embed_texts(const model *m, const text *texts, int64_t n, int n_threads,
                        float *embeddings, void (*progress)(int64_t done, int64_t n),
                        heed_error *why);

/** The lines of a file; the last one need not end. *out is for free(), and points into the file. */
heed_status split_lines(file f, text **out, int64_t *n, heed_error *why);

#endif
