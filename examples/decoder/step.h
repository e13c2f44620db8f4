/* A step of the decoder: some new tokens of each of several sequences, of any age. */
#ifndef DECODER_STEP_H
#define DECODER_STEP_H

#include "cache.h"

/** n new tokens of a sequence: a prompt, part of a prompt, or the token that was chosen last. */
typedef struct turn {
    sequence *s;
    const int32_t *tokens;
    int32_t n;
} turn;

/** Memory for steps of up to `rows` tokens in all, of up to `batch` sequences. */
typedef struct stepper stepper;

/**
 * positions      the tokens of the longest sequence
 * reproducible   the bits do not depend on the number of steps in which a prompt comes
 */
heed_status stepper_create(const llama *m, cache *c, int64_t rows, int64_t batch, int64_t positions,
                           int reproducible, stepper **out, heed_error *why);
void stepper_free(stepper *s);

/**
 * Appends the tokens to their sequences and computes logits.
 *
 * every    0: logits are [batch, vocabulary], for the last token of each sequence; 1: they are
 *          [rows, vocabulary], for all new tokens, one turn after another
 */
heed_status stepper_run(stepper *s, const turn *turns, int32_t batch, int every, float *logits,
                        heed_error *why);

#endif
