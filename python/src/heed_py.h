/*
 * What the files of the module share. The module is written for CPython's limited API of 3.11, so one
 * file serves every later version; nothing here knows numpy, torch or another library of arrays.
 *
 * elements.c   types of elements; dlpack.h: the structs of DLPack
 * array_*.c    arrays in (DLPack, buffers) and out, made or given, their kinds, the type Array
 * options.c    arguments of calls: keywords, lists of numbers, names
 * context.c    contexts, threads() and backend()
 * attn_*.c     one problem from Python's arguments to heed_attention, in the order of problem.h
 * attention.c  attention, varlen, explain; merge.c
 * plan.c       Plan
 * cache.c, cache_decoded.c   KVCache
 * linear.c, rotary.c, mha.c, mha_call.c   Linear, rotary, MultiHeadAttention, which share layer.h
 * masks.c      ranges and key blocks
 * _heed.c      the module
 */
#ifndef HEED_PY_H
#define HEED_PY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <heed/formats.h>
#include <heed/heed.h>

/* Element types of arrays beyond those of enum HEED_F32 ..; int8 and uint8 are HEED_I8 and HEED_U8, E4M3
 * is HEED_F8_E4M3. */
enum { EL_BOOL = 64, EL_I16, EL_U16, EL_I32, EL_U32, EL_I64, EL_U64, EL_F64, EL_OTHER };

#define MAX_AXES 8

/* The kind of an array that came in; results are of the same kind. */
enum { KIND_NONE, KIND_NUMPY, KIND_EXCHANGE, KIND_DLPACK, KIND_BUFFER };

struct exchange_api;

/* An array of the caller's. Before it is read, only object, has_view and managed are set. */
typedef struct array {
    PyObject *object; /* held; NULL: there is none */
    char *data;
    int64_t shape[MAX_AXES], stride[MAX_AXES]; /* in elements */
    int axes;
    uint32_t type; /* HEED_F32 .. or EL_* */
    int kind;
    bool has_view, read_only;
    bool copied; /* the elements are a copy that the library made of its own */
    const struct exchange_api *api;
    Py_buffer view;
    void *managed; /* a DLPack tensor that we own */
    bool versioned;
} array;

static inline void array_none(array *a)
{
    a->object = NULL;
    a->data = NULL;
    a->managed = NULL;
    a->has_view = false;
    a->axes = 0;
    a->type = HEED_DTYPE_NONE;
}

/* ---- elements.c, array_*.c: all return 0, or -1 with an exception set ------------------------------------------ */

/* Reads an array of the caller's. name is used in error messages; with as_bf16, uint16 is
 * taken for bf16. */
int array_of(array *a, PyObject *object, const char *name, bool writable, bool as_bf16);
void array_release(array *a);
/* Refuses numbers that a run reads as what they are, in place, but that are not aligned to their size. */
int alignment_needed(const array *a, const char *name);
/* Gives an empty array, which may have no address, one that is not NULL: NULL means no array. */
void *address_of(const array *a);
/* A new array of the kind of `like` (NULL: an Array of ours), C-contiguous, of `type`. */
int array_new(array *a, const array *like, uint32_t type, int axes, const int64_t *shape);
/* The kind of results of calls without arrays: numpy's if numpy is loaded, else ours. */
int default_kind(void);
/* The new array as the caller gets it. Takes over the reference to it. */
PyObject *array_result(array *a, const array *like);
/* The same where the caller gave an array for it: that one, which has been written to. */
PyObject *result_of(array *a, PyObject *given, const array *like);
/* Refuses an out that has elements of `in`, which may have no array; in_place: all of them, each in its
 * place, are allowed. */
int given_apart(const array *out, const array *in, const char *name, bool in_place);
/* Refuses a tensor of torch's that requires a gradient while gradients are recorded. */
int given_without_gradient(PyObject *object, const char *name);
void array_fill(array *a, float value);
/* Elements of an array of that shape; -1: more than 2^60, for which there is no memory. */
int64_t array_count(int axes, const int64_t *shape);
const char *element_name(uint32_t type);
int element_bytes(uint32_t type);
static inline bool is_float(uint32_t type)
{
    return type >= HEED_F32 && type <= HEED_BF16;
}
/* bool, or a byte that is 0 or not */
bool is_truth(uint32_t type);
/* "[2, 3]" in a buffer of the caller's */
const char *shape_text(char *text, size_t bytes, int axes, const int64_t *shape);
int arrays_init(PyObject *module);
extern PyObject *array_type;

/* ---- options.c -------------------------------------------------------------------------------------- */

typedef struct signature {
    const char *function;
    int n, n_positional, n_required;
    const char *const *names;
    PyObject **interned; /* [n] */
} signature;

#define SIGNATURE(id, function_, n_positional_, n_required_, ...)                                  \
    static const char *const id##_names[] = {__VA_ARGS__};                                         \
    static PyObject *id##_interned[sizeof id##_names / sizeof id##_names[0]];                      \
    static signature id = {function_,     (int)(sizeof id##_names / sizeof id##_names[0]),         \
                           n_positional_, n_required_,                                             \
                           id##_names,    id##_interned}

/* Sorts the arguments of a call into values[sig->n], borrowed; NULL where none or None was given. */
int read_call(signature *sig, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
              PyObject **values);
/* The same from a tuple and a dict, for constructors. */
int read_tuple(signature *sig, PyObject *args, PyObject *kwargs, PyObject **values);

/* Refuses None for one of the first n arguments, which are arrays. */
int arrays_needed(const signature *sig, PyObject *const *values, int n);

/* Numbers of an argument, copied for the call. */
typedef struct numbers {
    void *data; /* int32_t or float */
    int64_t n;
    uint32_t type; /* of the array of floats that they came from, else HEED_DTYPE_NONE */
    union {
        int32_t i[64];
        float f[64];
    } room;
} numbers;

static inline void numbers_none(numbers *x)
{
    x->data = NULL;
    x->n = 0;
    x->type = HEED_DTYPE_NONE;
}
void numbers_release(numbers *x);
int numbers_room(numbers *x, int64_t n);
/* A list, a tuple or another sequence, but no str and no array */
bool is_list(PyObject *object);
/* An int, or what has __index__ and no axes, such as numpy.int64 and arrays of one number */
bool is_number(PyObject *object);
/* A number, a list or an array, as far as the object's type says */
bool are_numbers(PyObject *object);
/* A sequence or 1-D array of integers as int32_t; a single integer counts n times where n >= 0. */
int int32s_of(numbers *x, PyObject *object, const char *name, int64_t n);
int floats_of(numbers *x, PyObject *object, const char *name, int64_t n, bool as_bf16);
int int64_of(PyObject *object, const char *name, int64_t least, int64_t *out);
int float_of(PyObject *object, const char *name, float *out);
/* True for True, numpy.True_, 1 and the like, false for NULL, too; refuses words and what has no truth. */
int truth_of(PyObject *object, const char *name, bool *out);
/* Refuses a number that is more than 2^31 - 1, before it is cut. */
int positive_int32(int64_t value, const char *name);
/* The characters of a str, which it keeps; NULL with an exception, also where one of them is NUL. */
const char *characters_of(PyObject *text);
/* index in words[] of a str, -1 with ValueError that lists them */
int word_of(PyObject *object, const char *name, const char *const *words);
/* HEED_F32 .. of "f32", "float32", numpy.float32, torch.float32, ...; codes if allowed */
int dtype_of(PyObject *object, const char *name, bool codes, uint32_t *out);

/* axes of a layout such as "bhsd": where each of b, h, s, d is among the array's, -1 if not there */
typedef struct layout {
    int axis[4], axes;
} layout;
int layout_of(PyObject *object, layout *out);
/* Writes lengths and strides in the order [b, h, s, d]: 1 and 0 for an axis that is not there. */
int in_layout(const array *a, const layout *l, const char *name, int64_t shape[4],
              int64_t stride[4]);

/* ---- context.c -------------------------------------------------------------------------------------- */

heed_context *current_context(void); /* NULL with an exception set */
/* Within a call of hint_threads: heed.torch is calling, which gives memory that it has just made. */
bool threads_hinted(void);
int context_init(PyObject *module);
PyObject *hint_threads(PyObject *self, PyObject *arg);
PyObject *setting_now(PyObject *self, PyObject *ignored);
PyObject *setting_threads(PyObject *self, PyObject *arg);
PyObject *setting_backend(PyObject *self, PyObject *arg);
PyObject *backends_json(PyObject *self, PyObject *ignored);

/* Raises what a status means, with Heed's sentence; returns -1, or 0 for HEED_OK. */
int check(heed_status status);
/* text of a function such as heed_attn_explain */
typedef heed_status (*text_function)(const void *object, uint32_t json, char *text, size_t *bytes);
PyObject *text_of(text_function function, const void *object, bool json);

/* ---- attn_*.c, attention.c, merge.c ------------------------------------------------------------------------------------ */

/* The options that are the same from call to call: those of a plan. */
typedef struct attn_options {
    bool causal, has_window, has_scale, has_softcap, has_accuracy;
    int64_t window_left, window_right;
    float scale, softcap;
    uint32_t accuracy;
    PyObject *position; /* borrowed; NULL: "end" */
    layout axes;
    bool as_bf16;
    uint32_t dtype; /* that one of the arrays has; HEED_DTYPE_NONE: not given */
} attn_options;

/* What a call brings; all borrowed, NULL where not given. */
typedef struct attn_call {
    PyObject *q, *k, *v;
    PyObject *mask, *bias, *alibi, *sinks, *q_lens, *kv_lens, *ranges, *key_blocks, *mask_from,
        *out;
    PyObject *cu_q, *cu_k, *block_table;
    PyObject *k_scale, *k_zero, *v_scale, *v_zero, *k_key_group, *v_key_group;
    bool return_lse, return_weights;
    uint32_t k_code, v_code; /* HEED_DTYPE_NONE: the types of the arrays */
    uint32_t page_len;
    const heed_attn_desc *plan; /* what the arrays have to fit */
    /* keys and values of a cache of ours, in place of k and v */
    struct cache_object *cache;
    /* returns a text about the call in place of running it */
    bool explain, json;
    /* a plan's maxima; 0: those of this call */
    int64_t max_batch, max_q_len, max_kv_len;
} attn_call;

/* Options as the caller gave them; all borrowed, NULL where not given. */
typedef struct attn_given {
    PyObject *causal, *window, *scale, *softcap, *position, *accuracy, *order, *dtype;
} attn_given;

int attn_options_of(attn_options *o, const attn_given *given);
/* Sets the position, borrowed; refuses words that are none. */
int attn_position_of(attn_options *o, PyObject *given);
/* Holds the position for an object that keeps it, NULL after a failure: a word, or a copy of the whole
 * numbers, which the caller may change; how many there are to be is known with a batch. */
int attn_position_keep(attn_options *o);
/* HEED_POS_* of the position that was given, or of "end" */
uint32_t attn_position(const attn_options *o);
/* Fills a desc's features, position and numbers. */
void attn_options_into(const attn_options *o, bool alibi, heed_attn_desc *desc);
PyObject *attn_call_run(const attn_options *o, const attn_call *call);
PyObject *py_attention(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *py_explain_arrays(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames);
PyObject *py_varlen(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *py_merge(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int broadcast(const array *a, const char *name, const int64_t want[4], int64_t stride[4]);

/* ---- cache.c ---------------------------------------------------------------------------------------- */

typedef struct cache_object cache_object;
struct cache_object {
    PyObject_HEAD int64_t batch, capacity, n_pages, table_stride, pages_used;
    uint32_t kv_heads, qk_dim, v_dim, k_type, v_type, page_len;
    void *memory;
    char *k, *v;
    int64_t k_stride[4], v_stride[4]; /* in elements */
    heed_quant k_quant, v_quant;
    int32_t *lens, *block_table;
    int kind; /* of the arrays that were appended last */
    const struct exchange_api *api;
    int readers;  /* calls that read it now */
    bool written; /* a call writes to it now */
};
extern PyObject *cache_type;
int cache_init(PyObject *module);
/* Calls that read a cache run side by side, one that writes runs alone: RuntimeError where they meet.
 * Held from before lengths are read until they are counted, for the GIL is released in between, and
 * other code of Python runs where arrays are read. */
int cache_begin(cache_object *cache, bool writes);
void cache_end(cache_object *cache, bool writes);
/* Takes pages for more[b] keys (len if more is NULL), which the caller calls `name`, after those of every
 * sequence; ValueError beyond the capacity. */
int cache_make_room(cache_object *cache, const char *name, const int32_t *more, int64_t len);
/* The same scales as an append writes them. */
heed_quant_out cache_written_scales(const heed_quant *quant);
PyObject *cache_decoded(PyObject *object, PyObject *ignored);

int plan_init(PyObject *module);
int layer_init(PyObject *module);
PyObject *py_rotary(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

PyObject *masks_segments(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
PyObject *masks_chunks(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *masks_prefix(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *masks_tree(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *masks_blocks(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* A function as the void * of a slot; ISO C has no direct conversion. */
#define SLOT(f) ((void *)(uintptr_t)(f))
#define METHOD(f) ((PyCFunction)(void (*)(void))(f))

#endif
