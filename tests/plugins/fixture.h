/* Shared by the tests of this folder: a small problem with a known answer. */
#ifndef HEED_TESTS_PLUGINS_FIXTURE_H
#define HEED_TESTS_PLUGINS_FIXTURE_H

#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"

enum { HEADS = 2, ROWS = 3, KEYS = 5, DIM = 4 };

static const heed_attn_desc SMALL = {
    .struct_size = sizeof SMALL,
    .q_heads = HEADS,
    .kv_heads = HEADS,
    .qk_dim = DIM,
    .v_dim = DIM,
    .q_type = HEED_F32,
    .k_type = HEED_F32,
    .v_type = HEED_F32,
    .out_type = HEED_F32,
    .max_batch = 1,
    .max_q_len = ROWS,
    .max_kv_len = KEYS,
};

/* Runs SMALL and compares with three loops. Returns the status, or HEED_ERR_BACKEND if the answer
 * is wrong. 1e-6 is 8 units in the last place of the outputs, which are below 1: more than the
 * roundings over 5 keys amount to. */
static inline heed_status run_small(heed_context *context)
{
    float q[HEADS * ROWS * DIM], k[HEADS * KEYS * DIM], v[HEADS * KEYS * DIM];
    float out[HEADS * ROWS * DIM];
    for (int i = 0; i < HEADS * ROWS * DIM; i++) {
        q[i] = (float)sin(1 + i);
        out[i] = NAN;
    }
    for (int i = 0; i < HEADS * KEYS * DIM; i++) {
        k[i] = (float)sin(100 + i);
        v[i] = (float)sin(200 + i);
    }
    heed_attn_args args = {
        .struct_size = sizeof args,
        .batch = 1,
        .q_len = ROWS,
        .kv_len = KEYS,
        .q = {q, {0, ROWS * DIM, DIM, 1}},
        .k = {k, {0, KEYS * DIM, DIM, 1}},
        .v = {v, {0, KEYS * DIM, DIM, 1}},
        .out = {out, {0, ROWS * DIM, DIM, 1}},
    };
    heed_status status = heed_attention(context, &SMALL, &args);
    for (int r = 0; r < HEADS * ROWS && status == HEED_OK; r++) {
        double sum = 0, want[DIM] = {0};
        for (int j = 0; j < KEYS; j++) {
            int key = r / ROWS * KEYS + j;
            double s = 0;
            for (int d = 0; d < DIM; d++)
                s += (double)q[r * DIM + d] * (double)k[key * DIM + d] / sqrt(DIM);
            sum += exp(s);
            for (int d = 0; d < DIM; d++)
                want[d] += exp(s) * (double)v[key * DIM + d];
        }
        for (int d = 0; d < DIM; d++)
            if (!(fabs((double)out[r * DIM + d] - want[d] / sum) <= 1e-6))
                status = HEED_ERR_BACKEND;
    }
    return status;
}

/* The text of heed_context_backends, as a string to be freed. */
static inline char *listing(heed_context *context, uint32_t json)
{
    size_t bytes = 0;
    char *text;
    CHECK(heed_context_backends(context, json, NULL, &bytes) == HEED_OK, "no size of the listing");
    text = malloc(bytes + 1);
    if (!text)
        abort();
    memset(text, '?', bytes + 1);
    CHECK(heed_context_backends(context, json, text, &bytes) == HEED_OK, "no listing");
    return text;
}

#endif
