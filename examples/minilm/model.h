/* A BERT encoder with mean pooling, such as all-MiniLM-L6-v2, which is read from its files. */
#ifndef MINILM_MODEL_H
#define MINILM_MODEL_H

#include "../common/safetensors.h"
#include "tokenizer.h"

/** The files of a model. The last four may be missing, and are then all zero. */
typedef struct model_files {
    file config, vocabulary, weights; /* config.json, vocab.txt, model.safetensors */
    file tokenizer, sentence, pooling, modules;
} model_files;

typedef struct model_norm {
    float *weight, *bias;
} model_norm;

typedef struct model_layer {
    heed_linear *qkv, *out, *up, *down; /* up includes the GELU; out and down add a residual */
    model_norm after_attention, after_inner;
} model_layer;

/** A model. It is read-only once it is open, and threads share it. */
typedef struct model {
    int64_t width, heads, n_layers, inner, positions, segments_size, vocabulary_size;
    int64_t most_tokens; /* of a text, [CLS] and [SEP] included */
    double eps;
    uint32_t type; /* of activations and weights: HEED_F32 or HEED_BF16 */

    heed_context *context;
    model_files files; /* words are read from them directly */
    safetensors weights;
    const tensor *words;    /* [vocabulary_size, width] */
    const tensor *places;   /* [positions, width] */
    const tensor *segments; /* [segments_size, width]; the first is used */
    model_norm embedding_norm;
    model_layer *layers;
    tokenizer *tokenizer;
} model;

/**
 * Makes a model from its files. A setting, a module, or a tensor of the encoder that the engine does
 * not support is refused.
 *
 * files       become the model's; on failure they are closed
 * type        HEED_F32, or HEED_BF16: half the memory, rounded weights and activations
 * n_threads   0: Heed's default
 */
heed_status model_read(const model_files *files, uint32_t type, uint32_t n_threads, model *out,
                       heed_error *why);

/** The same from a folder: config.json, vocab.txt and model.safetensors; also
 * tokenizer_config.json, sentence_bert_config.json, 1_Pooling/config.json and modules.json if they
 * exist. */
heed_status model_open(const char *folder, uint32_t type, uint32_t n_threads, model *out,
                       heed_error *why);

/** Frees everything in the model, which may be all zero. */
void model_close(model *m);

#endif
