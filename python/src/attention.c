/* attention, explain and varlen: each turns the arguments from Python into an attn_call. */
#include "heed_py.h"

enum {
    A_Q,
    A_K,
    A_V,
    A_MASK,
    A_BIAS,
    A_CAUSAL,
    A_WINDOW,
    A_SCALE,
    A_SOFTCAP,
    A_ALIBI,
    A_SINKS,
    A_Q_LENS,
    A_KV_LENS,
    A_POSITION,
    A_RANGES,
    A_KEY_BLOCKS,
    A_MASK_FROM,
    A_LAYOUT,
    A_ACCURACY,
    A_OUT,
    A_RETURN_LSE,
    A_RETURN_WEIGHTS,
    A_DTYPE,
    A_JSON,
    N_A
};

static PyObject *attention(signature *sig, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames, bool explain_it)
{
    PyObject *value[N_A] = {NULL};
    attn_options o;
    attn_call call;
    if (read_call(sig, args, nargs, kwnames, value) < 0 || arrays_needed(sig, value, A_V + 1) < 0)
        return NULL;
    const attn_given given = {.causal = value[A_CAUSAL],
                              .window = value[A_WINDOW],
                              .scale = value[A_SCALE],
                              .softcap = value[A_SOFTCAP],
                              .position = value[A_POSITION],
                              .accuracy = value[A_ACCURACY],
                              .order = value[A_LAYOUT],
                              .dtype = value[A_DTYPE]};
    if (attn_options_of(&o, &given) < 0)
        return NULL;
    memset(&call, 0, sizeof call);
    call.q = value[A_Q], call.k = value[A_K], call.v = value[A_V];
    call.mask = value[A_MASK], call.bias = value[A_BIAS];
    call.alibi = value[A_ALIBI], call.sinks = value[A_SINKS];
    call.q_lens = value[A_Q_LENS], call.kv_lens = value[A_KV_LENS];
    call.ranges = value[A_RANGES], call.key_blocks = value[A_KEY_BLOCKS];
    call.mask_from = value[A_MASK_FROM], call.out = value[A_OUT];
    call.explain = explain_it;
    if (truth_of(value[A_RETURN_LSE], "return_lse", &call.return_lse) < 0 ||
        truth_of(value[A_RETURN_WEIGHTS], "return_weights", &call.return_weights) < 0 ||
        truth_of(value[A_JSON], "json", &call.json) < 0)
        return NULL;
    return attn_call_run(&o, &call);
}

PyObject *py_attention(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "attention", 3, 3, "q", "k", "v", "mask", "bias", "causal", "window", "scale",
              "softcap", "alibi", "sinks", "q_lens", "kv_lens", "position", "ranges", "key_blocks",
              "mask_from", "layout", "accuracy", "out", "return_lse", "return_weights", "dtype");
    (void)self;
    return attention(&sig, args, nargs, kwnames, false);
}

PyObject *py_explain_arrays(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames)
{
    SIGNATURE(sig, "explain", 3, 3, "q", "k", "v", "mask", "bias", "causal", "window", "scale",
              "softcap", "alibi", "sinks", "q_lens", "kv_lens", "position", "ranges", "key_blocks",
              "mask_from", "layout", "accuracy", "out", "return_lse", "return_weights", "dtype",
              "json");
    (void)self;
    return attention(&sig, args, nargs, kwnames, true);
}

PyObject *py_varlen(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    SIGNATURE(sig, "varlen", 5, 5, "q", "k", "v", "cu_q", "cu_k", "mask", "bias", "causal",
              "window", "scale", "softcap", "alibi", "sinks", "position", "ranges", "key_blocks",
              "mask_from", "accuracy", "out", "return_lse", "return_weights", "dtype");
    PyObject *value[22];
    attn_options o;
    attn_call call;
    (void)self;
    if (read_call(&sig, args, nargs, kwnames, value) < 0 || arrays_needed(&sig, value, 5) < 0)
        return NULL;
    const attn_given given = {.causal = value[7],
                              .window = value[8],
                              .scale = value[9],
                              .softcap = value[10],
                              .position = value[13],
                              .accuracy = value[17],
                              .dtype = value[21]};
    if (attn_options_of(&o, &given) < 0)
        return NULL;
    o.axes = (layout){{-1, 1, 0, 2}, 3};
    memset(&call, 0, sizeof call);
    call.q = value[0], call.k = value[1], call.v = value[2];
    call.cu_q = value[3], call.cu_k = value[4];
    call.mask = value[5], call.bias = value[6];
    call.alibi = value[11], call.sinks = value[12];
    call.ranges = value[14], call.key_blocks = value[15], call.mask_from = value[16];
    call.out = value[18];
    if (truth_of(value[19], "return_lse", &call.return_lse) < 0 ||
        truth_of(value[20], "return_weights", &call.return_weights) < 0)
        return NULL;
    return attn_call_run(&o, &call);
}
