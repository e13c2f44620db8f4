/* BERT's tokenizer, which turns text into the ids of word pieces.
 *
 * Special tokens are found in the raw text. The rest is cleaned up and gets spaces around CJK
 * ideographs, loses its accents, becomes lower case, is split into words at white space and
 * punctuation, and each word into the longest matches in the vocabulary.
 * Source: the tokenizer of Devlin et al. 2018 (arXiv:1810.04805) as the Rust library tokenizers has
 * it: there the last large block of ideographs begins at U+2B920, in the original at U+2B820.
 * Greedy longest match after Wu et al. 2016 (arXiv:1609.08144).
 */
#ifndef MINILM_TOKENIZER_H
#define MINILM_TOKENIZER_H

#include <stdint.h>

#include "../common/file.h"

typedef struct tokenizer tokenizer;

/**
 * Makes a tokenizer from a vocabulary with a token on each line, whose id is the number of the
 * line, from 0.
 *
 * vocabulary   is not copied and must outlive the tokenizer
 * n_ids        the number of ids for which the model has embeddings; a larger vocabulary is refused
 */
heed_status tokenizer_create(file vocabulary, int64_t n_ids, tokenizer **out, heed_error *why);
void tokenizer_free(tokenizer *t);

/**
 * Writes the ids of a text, with [CLS] first and [SEP] last; text that does not fit between them is
 * cut off. Bytes that are not valid UTF-8 count as U+FFFD, which the clean-up removes.
 *
 * ids    has room for `most` ids; most >= 2
 * n      receives the number of ids, at least 2
 */
heed_status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, int32_t *ids,
                             int most, int *n, heed_error *why);

/** The text of a token and its length; id must be in the vocabulary. */
const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *bytes);

#endif
