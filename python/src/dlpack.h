/* DLPack: its structs, declared after its specification, version 1.3, and functions that map its
 * types to ours. */
#ifndef HEED_PY_DLPACK_H
#define HEED_PY_DLPACK_H

#include "heed_py.h"

enum {
    DL_CPU = 1,
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_BOOL = 6,
    DL_E4M3FN = 10
};
#define DL_READ_ONLY UINT64_C(1)
#define DL_IS_COPIED UINT64_C(2)

typedef struct dl_device {
    int32_t type, id;
} dl_device;

typedef struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
} dl_type;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_type dtype;
    int64_t *shape, *strides; /* strides NULL: C-contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed { /* what a capsule "dltensor" holds */
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_versioned { /* what a capsule "dltensor_versioned" holds */
    dl_version version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

typedef struct exchange_api { /* what type(x).__dlpack_c_exchange_api__ holds */
    dl_version version;
    struct exchange_api *previous;
    int (*allocate)(dl_tensor *prototype, dl_versioned **out, void *error,
                    void (*set_error)(void *error, const char *kind, const char *message));
    int (*managed_of)(void *object, dl_versioned **out);
    int (*to_object)(dl_versioned *tensor, void **out);
    int (*tensor_of)(void *object, dl_tensor *out); /* may be NULL */
    int (*stream)(int32_t device_type, int32_t device, void **out);
} exchange_api;

/* ---- elements.c */
uint32_t type_of_dl(dl_type t);
dl_type dl_of_type(uint32_t type);
/* of a buffer */
uint32_t type_of_format(const char *format, Py_ssize_t bytes);
const char *format_of_type(uint32_t type);

/* ---- array_in.c: read what a buffer or a tensor says; from_tensor also checks the device */
int from_tensor(array *a, const dl_tensor *t, const char *name);
int from_buffer(array *a, PyObject *object, const char *name);

/* ---- array_kind.c */
int kind_of(PyObject *object, const exchange_api **api);
/* numpy.empty, borrowed, and numpy's dtype of a type that has one, else NULL */
PyObject *numpy_maker(void);
PyObject *numpy_dtype_of(uint32_t type);
uint32_t type_of_numpy_dtype(const PyObject *dtype);

/* ---- array_object.c */
typedef struct array_object {
    PyObject_HEAD void *memory;
    uint32_t type;
    int axes;
    int64_t shape[MAX_AXES], stride[MAX_AXES];                  /* in elements */
    Py_ssize_t buffer_shape[MAX_AXES], buffer_stride[MAX_AXES]; /* in bytes, for buffers */
} array_object;

/* C-contiguous */
array_object *array_object_new(uint32_t type, int axes, const int64_t *shape);
/* An Array of bf16, whose buffer has it as uint16. */
bool array_is_bf16(PyObject *object);
PyObject *tuple_of(int axes, const int64_t *entries);

/* Names that are looked up, interned. */
extern PyObject *word_dlpack, *word_api, *word_max_version, *word_dtype, *word_is_neg,
    *word_requires_grad;

#endif
