/* Keys and values whose addresses differ by a multiple of 256 MiB are fetched in another way on
 * some CPUs (backends/simd/decode/order.inc.h). That may not change a bit of the result. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <heed/kit.h>
#include <sys/mman.h>

#include "../unit/unit.h"

#define APART ((size_t)256 << 20)
#define KV_LEN 700
#define HEADS 2
#define MOST_ROWS 9
#define MOST_DIM 128

static char queries[HEADS * MOST_ROWS * MOST_DIM * 4];
static float outs[2][HEADS * MOST_ROWS * MOST_DIM];

typedef struct input_kind {
    const char *name;
    uint32_t type, accuracy;
} input_kind;

static const input_kind kinds[] = {{"f32", HEED_F32, HEED_ACCURACY_DEFAULT},
                                   {"f16", HEED_F16, HEED_ACCURACY_DEFAULT},
                                   {"bf16, exact", HEED_BF16, HEED_ACCURACY_EXACT},
                                   {"bf16", HEED_BF16, HEED_ACCURACY_BF16}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void fill(uint32_t type, void *data, int64_t n)
{
    uint64_t state = 2463534242u;
    for (int64_t i = 0; i < n; i++)
        heed_store(type, data, i, 2 * kit_next_float(&state));
}

static heed_view laid(void *data, int64_t rows, int64_t dim)
{
    return (heed_view){data, {0, rows * dim, dim, 1}};
}

static heed_status run(heed_context *context, const input_kind *kind, int64_t group, uint32_t dim,
                       void *k, void *v, float *out)
{
    heed_attn_desc desc = {.struct_size = sizeof desc};
    heed_attn_args args = {.struct_size = sizeof args, .batch = 1, .q_len = 1, .kv_len = KV_LEN};
    desc.q_heads = (uint32_t)(HEADS * group);
    desc.kv_heads = HEADS;
    desc.qk_dim = desc.v_dim = dim;
    desc.q_type = desc.k_type = desc.v_type = kind->type;
    desc.accuracy = kind->accuracy;
    desc.out_type = HEED_F32;
    args.q = heed_as_const(laid(queries, 1, dim));
    args.k = heed_as_const(laid(k, KV_LEN, dim));
    args.v = heed_as_const(laid(v, KV_LEN, dim));
    args.out = laid(out, 1, dim);
    return heed_attention(context, &desc, &args);
}

int main(void)
{
    static const char *const backends[] = {"avx2", "avx512"};
    static const uint32_t dims[] = {64, 128};
    static const int64_t groups[] = {1, 2, 3, 4, 5, MOST_ROWS};
    /* Address space for keys, and for values at that distance and a little further on. */
    char *k = mmap(NULL, APART + ((size_t)4 << 20), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (k == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    char *const places[] = {k + APART, k + APART + ((size_t)2 << 20) + 64 * 1024};
    for (size_t b = 0; b < 2; b++) {
        heed_context *context = unit_context(1, backends[b]);
        const int here = unit_runs_here(context);
        for (const input_kind *kind = kinds; here && kind < kinds + KINDS; kind++) {
            fill(kind->type, queries, (int64_t)(sizeof queries / heed_dtype_bytes(kind->type)));
            fill(kind->type, k, HEADS * KV_LEN * MOST_DIM);
            fill(kind->type, places[0], HEADS * KV_LEN * MOST_DIM);
            fill(kind->type, places[1], HEADS * KV_LEN * MOST_DIM);
            for (size_t d = 0; d < 2; d++)
                for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
                    const size_t bytes = HEADS * (size_t)groups[g] * dims[d] * sizeof(float);
                    heed_status status = HEED_OK;
                    memset(outs, 0xff, sizeof outs);
                    for (int p = 0; p < 2 && !status; p++)
                        status = run(context, kind, groups[g], dims[d], k, places[p], outs[p]);
                    CHECK(!status && !memcmp(outs[0], outs[1], bytes),
                          "%s, %s, %lld rows of %u dims: %s", backends[b], kind->name,
                          (long long)groups[g], dims[d], status ? heed_last_error() : "other bits");
                }
        }
        heed_context_release(context);
    }
    return n_checks ? checks_end() : 77; /* skipped where neither runs */
}
