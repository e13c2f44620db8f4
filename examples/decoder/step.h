/* One step of the decoder: some new tokens of each of several sequences, whatever their age. */
#ifndef DECODER_STEP_H
#define DECODER_STEP_H

#include "cache.h"

/** n new tokens of a sequence: a prompt, a part of one, or the token that was chosen last. */
typedef struct turn {
    sequence *s;
    const int32_t *tokens;
    int32_t n;
} turn;

/** Memory for steps of up to `rows` tokens in all and `batch` sequences. */
typedef struct stepper stepper;

/**
 * positions      of the longest sequence
 * reproducible   a prompt gives the same bits in however many steps it comes
 */
heed_status stepper_create(const llama *m, cache *c, int64_t rows, int64_t batch, int64_t positions,
                           int reproducible, stepper **out, heed_error *why);
void stepper_free(stepper *s);

/**
 * Appends the tokens to their sequences.
 *
 * every    0: logits are [batch, vocabulary], of the last token of each; 1: [rows, vocabulary], of
 * all new tokens one turn after another
 */
heed_status stepper_run(stepper *s, const turn *turns, int32_t batch, int every, float *logits,
                        heed_error *why);

#endif
