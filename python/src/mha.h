/* MultiHeadAttention: the object, which mha.c makes and mha_call.c runs. */
#ifndef HEED_PY_MHA_H
#define HEED_PY_MHA_H

#include "layer.h"

#include <pthread.h>

/* What, besides the layer, a heed_mha was made for. Compared as bytes: it has no padding. */
typedef struct made_for {
    uint64_t attn_features, features;
    uint32_t bias_type, k_type, v_type, page_len, position, n_ranges, block_rows, block_keys;
    int64_t max_batch, max_q_len, max_kv_len, max_kv_rows;
} made_for;

enum { KEPT = 8 };

typedef struct mha_object {
    PyObject_HEAD heed_context *context;
    heed_linear *proj[4]; /* q, k, v, out; out may be NULL */
    attn_options options; /* position is held */
    heed_attn_desc desc;
    heed_rotary_desc rotary;
    numbers freq;
    uint32_t d_model, d_kv, x_type, out_dim;
    bool cross;
    pthread_mutex_t lock;
    struct {
        made_for key;
        heed_mha *mha;
    } kept[KEPT];
    int n_kept, next;
} mha_object;

/* A new reference to the heed_mha for this key. */
heed_mha *mha_for(mha_object *self, const made_for *key, const heed_attn_desc *call);
PyObject *mha_call(PyObject *object, PyObject *tuple, PyObject *named);

#endif
