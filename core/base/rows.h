/* Rows of sequences, padded or packed, and views of them: what the calls that read or write such
 * memory share. */
#ifndef HEED_CORE_ROWS_H
#define HEED_CORE_ROWS_H

#include <heed/kit.h>

/* lens and starts as in heed_kv_append_args. */
typedef struct heed_row_lists {
    int64_t batch, len, rows;
    const int32_t *lens, *starts;
} heed_row_lists;

/* Checks that every length is in 0 .. len, and every packed row in 0 .. rows. */
heed_status heed_check_rows(const heed_row_lists *lists, heed_error *why);

/* Are the farthest elements, of `bytes` bytes each, addressable? */
int heed_strides_reach(const int64_t *stride, int n_axes, const int64_t *shape, int64_t bytes);

/* Checks a view (const or not) of `shape` with elements of `bytes` bytes: it is there unless it has
 * no elements, its farthest elements are addressable, and no output broadcasts. */
heed_status heed_check_view(const char *name, const void *data, const int64_t stride[4],
                            int64_t bytes, int is_output, const int64_t shape[4], heed_error *why);

/* Checks that y, if it begins where x does and has elements, is x element for element. */
heed_status heed_check_in_place(const heed_const_view *x, uint32_t x_type, const heed_view *y,
                                uint32_t y_type, const int64_t shape[4], heed_error *why);

/* Bytes of an element for heed_check_view; rounded up where elements share bytes. */
static inline int64_t heed_reach_bytes(uint32_t type)
{
    const uint32_t len = heed_block_len(type);
    return len == 1 ? heed_block_bytes(type) : len ? (heed_block_bytes(type) + len - 1) / len : 1;
}

/* Checks the strides of a view in a type whose codes come in blocks: 1 along dim, and multiples of
 * a block along the other axes. */
heed_status heed_check_blocks(const char *name, uint32_t type, const int64_t stride[4],
                              const int64_t shape[4], heed_error *why);

/* Is nothing of it given? */
static inline int heed_quant_is_absent(const heed_quant *q)
{
    return !q->scale && !q->zero && !(q->group | q->key_group) &&
           !(q->stride[0] | q->stride[1] | q->stride[2] | q->stride[3]);
}

/* Checks that the scales of a tensor of that type and shape fit it, and that the farthest are
 * addressable. A tensor may have no scales: then no other member of `quant` may be given. */
heed_status heed_check_quant(const char *name, const heed_quant *quant, uint32_t type,
                             const int64_t shape[4], heed_error *why);

/* Checks that a type is f32, f16 or bf16. */
heed_status heed_check_type(const char *name, uint32_t type, heed_error *why);

/* Elements at one stride, from element `at` of data on. */
typedef struct heed_elements {
    uint32_t type;
    const void *data;
    int64_t at, stride;
} heed_elements;

/* Copies n elements to elements of `type` at a stride, rounding to nearest even. `from` goes by
 * its address: a struct on the stack is copied by vectors as soon as it has been written member by
 * member, and such a load waits until all the stores are done, twice as long as a row's copy takes. */
void heed_convert(const heed_elements *from, uint32_t type, void *to, int64_t at, int64_t stride,
                  int64_t n);

/* Writes x[i] * factor, rounded once, to n elements of `type` at a stride: the same bits as
 * heed_store_f64. -0 becomes 0. x and the elements may not overlap. */
void heed_write_scaled(const float *x, double factor, uint32_t type, void *to, int64_t at,
                       int64_t stride, int64_t n);

static inline int32_t heed_row_count(const int32_t *lens, int64_t b, int64_t len)
{
    return lens ? lens[b] : (int32_t)len;
}

/* Elements of a view from its start to row i of sequence b, head 0. */
static inline int64_t heed_row_at(const int64_t stride[4], const int32_t *starts, int64_t b,
                                  int64_t i)
{
    return starts ? (starts[b] + i) * stride[2] : b * stride[0] + i * stride[2];
}

#endif
