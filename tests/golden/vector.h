/* A golden vector: a problem of golden_attention/golden.json, described once for the library and
 * once for the oracle, and the results that PyTorch computed for it. */
#ifndef GOLDEN_VECTOR_H
#define GOLDEN_VECTOR_H

#include <cjson/cJSON.h>
#include <heed/heed.h>

#include "npy.h"
#include "reference_f64.h"

enum { VECTOR_BATCH = 8 };
enum {
    VECTOR_Q,
    VECTOR_K,
    VECTOR_V,
    VECTOR_MASK,
    VECTOR_BIAS,
    VECTOR_ALIBI,
    VECTOR_SINK,
    VECTOR_INPUTS
};
enum {
    VECTOR_OUT,
    VECTOR_LSE,
    VECTOR_WEIGHTS,
    VECTOR_RAW,
    VECTOR_SOFTCAPPED,
    VECTOR_BIASED,
    VECTOR_RESULTS
};

typedef struct vector {
    const char *name;
    heed_npy input[VECTOR_INPUTS], expected[VECTOR_RESULTS]; /* data is NULL if absent */
    int32_t q_offsets[VECTOR_BATCH], kv_lens[VECTOR_BATCH];
    int64_t offset[VECTOR_BATCH];
    heed_attn_desc desc; /* without outputs, accuracy and out_type */
    heed_attn_args args; /* points into the vector, which must not be moved */
    reference_problem reference;
} vector;

/** Reads one element of "cases". Returns 0, or -1 after a line on stderr. Call vector_free in
 * either case. */
int vector_load(const char *folder, const cJSON *json, vector *v);
void vector_free(vector *v);

/** Parses a JSON file. The caller frees the result with cJSON_Delete; NULL after a line on
 * stderr. */
cJSON *vector_json(const char *path);

#endif
