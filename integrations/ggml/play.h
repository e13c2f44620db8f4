/* What the programs that run models of llama.cpp on Heed share: models.c, sequences.c. */
#ifndef GGML_HEED_PLAY_H
#define GGML_HEED_PLAY_H

#include <llama.h>
#include <stddef.h>
#include <stdint.h>

/* How many operations Heed's backend has computed. */
typedef uint64_t play_counter(void);
typedef struct play_counters {
    play_counter *attentions, *products;
} play_counters;

/* Loads ggml's backends without their messages. Returns 0, with a message, if Heed's is missing. */
int play_begin(play_counters *to);

/* A context of 2 threads with flash attention and caches of f32. */
struct llama_context_params play_params(uint32_t n_ctx, uint32_t n_batch);

/* A token of a sequence, by its position. */
typedef struct play_token {
    int32_t token, position, sequence;
} play_token;

/* Decodes n tokens as one batch; logits [n, n_vocab] of all of them. */
int play_decode(struct llama_context *context, const play_token *tokens, int32_t n, float *logits);

/* The index of the greatest number. */
int32_t play_best(const float *logits, int32_t n);

/* Mean squared difference of n numbers relative to the mean square of a. */
double play_nmse(const float *a, const float *b, size_t n);

#endif
