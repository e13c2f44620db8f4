/* A BERT encoder with mean pooling, such as all-MiniLM-L6-v2, as its files give it. */
#ifndef MINILM_MODEL_H
#define MINILM_MODEL_H

#include "../common/safetensors.h"
#include "tokenizer.h"

/** The files of a model. The last three may be missing: all zero. */
typedef struct model_files {
    file config, vocabulary, weights; /* config.json, vocab.txt, model.safetensors */
    file tokenizer, sentence, pooling;
} model_files;

typedef struct model_norm {
    float *weight, *bias;
} model_norm;

typedef struct model_layer {
    heed_linear *qkv, *out, *up, *down; /* up has the GELU, out and down add to what is there */
    model_norm after_attention, after_inner;
} model_layer;

/** Read-only once it is open: threads share it. */
typedef struct model {
    int64_t width, heads, n_layers, inner, positions, segments_size, vocabulary_size;
    int64_t most_tokens; /* of a text, [CLS] and [SEP] included */
    double eps;
    uint32_t type; /* of activations and weights: HEED_F32 or HEED_BF16 */

    heed_context *context;
    model_files files; /* words are looked up where they lie */
    safetensors weights;
    const tensor *words;    /* [vocabulary_size, width] */
    const tensor *places;   /* [positions, width] */
    const tensor *segments; /* [segments_size, width]; the first is ours */
    model_norm embedding_norm;
    model_layer *layers;
    tokenizer *tokenizer;
} model;

/**
 * Makes a model of its files. What is not as the engine computes it is refused.
 *
 * files       become the model's, on failure they are closed
 * type        HEED_F32, or HEED_BF16: half the memory, rounded weights and activations
 * n_threads   0: Heed's default
 */
heed_status model_read(const model_files *files, uint32_t type, uint32_t n_threads, model *out,
                       heed_error *why);

/** The same of a folder: config.json, vocab.txt, model.safetensors; where they exist
 * tokenizer_config.json, sentence_bert_config.json and 1_Pooling/config.json. */
heed_status model_open(const char *folder, uint32_t type, uint32_t n_threads, model *out,
                       heed_error *why);

/** Gives all of it back; a model that is all zero is allowed. */
void model_close(model *m);

#endif
