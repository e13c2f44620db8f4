/* Decodes the keys and values of a KVCache into numbers. */
#include "heed_py.h"

/* Element 0 of key j of a sequence's head. */
static const char *row_of(const cache_object *self, int64_t b, int64_t h, int64_t j, bool values)
{
    const uint32_t type = values ? self->v_type : self->k_type;
    const int64_t *stride = values ? self->v_stride : self->k_stride;
    int64_t page = b, row = j;
    if (self->page_len) {
        page = self->block_table[b * self->table_stride + j / self->page_len];
        row = j % self->page_len;
    }
    return (values ? self->v : self->k) +
           heed_offset_bytes(type, page * stride[0] + h * stride[1] + row * stride[2]);
}

static float element(const cache_object *self, int64_t b, int64_t h, int64_t j, int64_t d,
                     bool values)
{
    const uint32_t type = values ? self->v_type : self->k_type;
    const heed_quant *quant = values ? &self->v_quant : &self->k_quant;
    const char *row = row_of(self, b, h, j, values);
    if (!heed_is_code(type))
        return heed_load(type, row, d);
    if (!quant->scale)
        return heed_decode(type, row, d, 1, 0);
    {
        int64_t page =
            self->page_len ? self->block_table[b * self->table_stride + j / self->page_len] : b;
        int64_t at = heed_scale_at(quant, page, h, self->page_len ? j % self->page_len : j, d);
        return heed_decode(type, row, d, quant->scale[at], quant->zero ? quant->zero[at] : 0);
    }
}

PyObject *cache_decoded(PyObject *object, PyObject *ignored)
{
    cache_object *self = (cache_object *)object;
    PyObject *part[2] = {NULL, NULL}, *both = NULL;
    array like;
    (void)ignored;
    if (cache_begin(self, false) < 0)
        return NULL;
    array_none(&like);
    like.kind = self->kind == KIND_NONE ? default_kind() : self->kind;
    like.api = self->api;
    for (int values = 0; values < 2; values++) {
        int64_t dim = values ? self->v_dim : self->qk_dim, at = 0;
        int64_t shape[4] = {self->batch, self->kv_heads, self->capacity, dim};
        array a;
        if (array_new(&a, &like, HEED_F32, 4, shape) < 0)
            goto end;
        array_fill(&a, 0);
        for (int64_t b = 0; b < shape[0]; b++)
            for (int64_t h = 0; h < shape[1]; h++) {
                for (int64_t j = 0; j < self->lens[b]; j++)
                    for (int64_t d = 0; d < dim; d++)
                        ((float *)a.data)[at + j * dim + d] = element(self, b, h, j, d, values);
                at += shape[2] * dim;
            }
        part[values] = array_result(&a, NULL);
    }
    both = PyTuple_Pack(2, part[0], part[1]);
end:
    cache_end(self, false);
    Py_XDECREF(part[0]);
    Py_XDECREF(part[1]);
    return both;
}
