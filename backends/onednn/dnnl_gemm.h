/* Matrix products by oneDNN: the one place that knows that 2.x and 3.x create a primitive in two
 * ways. Scratchpads come from the caller: one that the library manages belongs to the thread that
 * created the primitive. Some allocations in a run cannot be avoided: dnnl_primitive_execute puts
 * its arguments into maps of its own, 6 allocations of at most 104 bytes in 2.6 and 8 in 3.2 with a
 * scratchpad, 4 and 6 without. Below AVX-512 a product has no scratchpad, but takes a lock, and
 * from about 8 rows on allocates room for what it packs (tests/onednn/memory.c counts all of it).
 * Both creating and executing ask OpenMP for its number of threads: see threads.h. */
#ifndef HEED_ONEDNN_DNNL_GEMM_H
#define HEED_ONEDNN_DNNL_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include <dnnl.h>

/* c [m, n] in f32 = a [m, k] times b, which is [k, n], or [n, k] where it is transposed. */
typedef struct heed_gemm_shape {
    int64_t m, n, k;
    dnnl_data_type_t type; /* of a and b */
    int32_t transposed;
} heed_gemm_shape;

typedef struct heed_gemm {
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    size_t scratchpad_bytes;
} heed_gemm;

/* What one thread at a time needs to execute a heed_gemm. */
typedef struct heed_gemm_memory {
    dnnl_memory_t a, b, c, scratchpad;
} heed_gemm_memory;

/* Finds an implementation and the size of its scratchpad. */
dnnl_status_t heed_gemm_describe(heed_gemm *gemm, dnnl_engine_t engine,
                                 const heed_gemm_shape *shape);

/* Generates the code of what was described. */
dnnl_status_t heed_gemm_create(heed_gemm *gemm);

/* Safe on one that is zeroed or half made. */
void heed_gemm_destroy(heed_gemm *gemm);

dnnl_status_t heed_gemm_memory_create(heed_gemm_memory *memory, dnnl_engine_t engine,
                                      const heed_gemm *gemm);
void heed_gemm_memory_destroy(heed_gemm_memory *memory);

dnnl_status_t heed_gemm_execute(const heed_gemm *gemm, dnnl_stream_t stream,
                                const heed_gemm_memory *memory, const void *a, const void *b,
                                float *c, void *scratchpad);

/* oneDNN's own word for a status. */
const char *heed_dnnl_status_name(dnnl_status_t status);

#endif
