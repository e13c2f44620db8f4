/* The ggml backend of Heed: what its files share. */
#ifndef GGML_HEED_H
#define GGML_HEED_H

#include <heed/heed.h>

#include "ggml-backend-impl.h"
#include "ggml.h"

/* HEED_GGML: which operations are served. */
#define GGML_HEED_ATTENTION 1u
#define GGML_HEED_MATMUL 2u     /* where Heed is faster */
#define GGML_HEED_MATMUL_ALL 4u /* wherever it can, for tests */

/* A backend instance of ggml's: contexts of Heed, one for each number of threads that was asked for, and
 * memory for calls. Used by one thread at a time, as ggml does. */
typedef struct ggml_heed ggml_heed;

heed_context *ggml_heed_context(ggml_heed *backend);
/* How many threads ggml has asked for; 0 if it has not asked. */
int ggml_heed_threads(const ggml_heed *backend);
/* Memory of at least so many bytes, aligned to 64, with any contents; NULL if there is none. */
void *ggml_heed_memory(ggml_heed *backend, size_t bytes);
/* With HEED_VERBOSE set, prints the memory that a call takes if a plan's workspace makes it more
 * than that of any call before. */
void ggml_heed_tell_memory(ggml_heed *backend, const heed_attn_desc *desc,
                           const heed_attn_args *args);

/* Could this FLASH_ATTN_EXT be served, whatever the tensors hold? Writes the reason if not. */
int ggml_heed_attention_supported(heed_context *context, const struct ggml_tensor *op,
                                  heed_error *why);
/* Computes that operation. */
heed_status ggml_heed_attention(ggml_heed *backend, struct ggml_tensor *op, heed_error *why);

/* Called once, when the module is loaded: a process may fork before its first product. */
void ggml_heed_matmul_open(void);
/* The same for MUL_MAT. wanted: GGML_HEED_* bits. The weights of a supported product have a place
 * among the packed weights. */
int ggml_heed_matmul_supported(const struct ggml_tensor *op, unsigned wanted, heed_error *why);
heed_status ggml_heed_matmul(ggml_heed *backend, struct ggml_tensor *op, heed_error *why);

#endif
