/* BERT's tokenizer: text to the ids of word pieces.
 *
 * Clean-up, spaces around CJK ideographs, accents removed, lower case, words split at white space
 * and punctuation, longest match in the vocabulary; special tokens are found in the raw text.
 * Source: the BertTokenizer of Devlin et al. 2018 (arXiv:1810.04805), greedy longest match after Wu
 * et al. 2016 (arXiv:1609.08144).
 */
#ifndef MINILM_TOKENIZER_H
#define MINILM_TOKENIZER_H

#include <stdint.h>

#include "../common/file.h"

typedef struct tokenizer tokenizer;

/**
 * Makes a tokenizer of a vocabulary: a token a line, its id is the number of the line from 0.
 *
 * vocabulary   kept, not copied: must outlive the tokenizer
 * n_ids        how many ids the model has embeddings for; a larger vocabulary is refused
 */
heed_status tokenizer_create(file vocabulary, int64_t n_ids, tokenizer **out, heed_error *why);
void tokenizer_free(tokenizer *t);

/**
 * ids of text, [CLS] first and [SEP] last; what does not fit between them is cut off. Bytes that
 * are no UTF-8 count as U+FFFD, which the clean-up removes.
 *
 * ids    room for `most` of them; most >= 2
 * n      receives how many there are, at least 2
 */
heed_status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, int32_t *ids,
                             int most, int *n, heed_error *why);

/** The text of a token and its length; id is one that the vocabulary has. */
const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *bytes);

#endif
