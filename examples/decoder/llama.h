/* A Llama-style decoder, read from its files: RMSNorm, rotary positions, grouped heads, SwiGLU.
 * Source: Touvron et al. 2023, arXiv:2302.13971; grouped heads after Ainslie et al. 2023,
 * arXiv:2305.13245; SwiGLU after Shazeer 2020, arXiv:2002.05202.
 */
#ifndef DECODER_LLAMA_H
#define DECODER_LLAMA_H

#include "../common/safetensors.h"

typedef struct llama_layer {
    float *attention_norm, *inner_norm;
    heed_linear *qkv, *out;        /* out adds a residual */
    heed_linear *gate, *up, *down; /* gate includes the SiLU; down adds a residual */
} llama_layer;

/** A model, which is read-only once it is open. */
typedef struct llama {
    int64_t width, heads, kv_heads, head_dim, n_layers, inner, positions, vocabulary_size;
    double eps, rope_base;
    uint32_t type; /* of activations, weights and cache: HEED_F32 or HEED_BF16 */
    uint32_t n_threads;

    heed_context *context;
    file config, file_of_weights;
    safetensors weights;
    const tensor *words; /* [vocabulary_size, width] */
    llama_layer *layers;
    float *norm;
    heed_linear *head; /* turns rows into logits, in f32 */
} llama;

/** Opens a folder with config.json and model.safetensors in the form that transformers writes. */
heed_status llama_open(const char *folder, uint32_t type, uint32_t n_threads, llama *out,
                       heed_error *why);

/** The same from two files, which become the model's; on failure they are closed. */
heed_status llama_read(file config, file weights, uint32_t type, uint32_t n_threads, llama *out,
                       heed_error *why);

/** Frees everything in the model, which may be all zero. */
void llama_close(llama *m);

#endif
