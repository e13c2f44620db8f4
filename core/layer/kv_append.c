/* heed_kv_append: puts new keys and values behind those of a cache, contiguous or in pages. */
#include "kv_append.h"

#include "base/codes.h"
#include "base/fpenv.h"
#include "base/reason.h"
#include "base/rows.h"
#include "hadamard.h"
#include "runtime/encoder.h"

/* What is appended on one side: the keys, or the values. */
typedef struct side {
    const heed_const_view *from;
    const heed_view *to;
    heed_quant quant;
    float *scale, *zero; /* where fresh ones go */
    uint32_t from_type, to_type, hadamard;
    int64_t dim;
    int fresh;
    const heed_append_kernel *encoder;
    int64_t next; /* elements from this key's rows to those that are read after them; 0: none are */
} side;

static side side_of(const heed_kv_append_args *a, int is_v, const heed_append_kernel *encoder)
{
    const heed_quant_out *quant = is_v ? &a->v_quant : &a->k_quant;
    const uint32_t type = is_v ? a->v_cache_type : a->k_cache_type;
    const uint64_t transform = is_v ? HEED_APPEND_HADAMARD_V : HEED_APPEND_HADAMARD_K;
    return (side){.from = is_v ? &a->v : &a->k,
                  .to = is_v ? &a->v_cache : &a->k_cache,
                  .quant = heed_quant_as_const(*quant),
                  .scale = quant->scale,
                  .zero = quant->zero,
                  .from_type = is_v ? a->v_type : a->k_type,
                  .to_type = type,
                  .hadamard = a->options & transform ? a->hadamard : 0,
                  .dim = is_v ? a->v_dim : a->qk_dim,
                  .fresh = a->options & HEED_APPEND_FRESH_SCALES && heed_takes_scale(type),
                  .encoder = encoder};
}

/* ---- checks -----------------------------------------------------------------------------------
 */

static heed_status check_sizes(const heed_kv_append_args *a, heed_error *why)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } size[] = {{"capacity", a->capacity, 0, INT32_MAX},
                {"kv_heads", a->kv_heads, 1, 1 << 20},
                {"qk_dim", a->qk_dim, 1, 1 << 20},
                {"v_dim", a->v_dim, 0, 1 << 20},
                {"page_len", a->page_len, 0, INT32_MAX},
                {"n_pages", a->n_pages, 0, a->page_len ? INT32_MAX : 0},
                {"block_table_stride", a->block_table_stride, 0, a->page_len ? INT32_MAX : 0}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].value < size[i].least || size[i].value > size[i].most)
            INVALID("args.%s is %lld, %lld to %lld is required%s", size[i].name,
                    (long long)size[i].value, (long long)size[i].least, (long long)size[i].most,
                    i > 4 && !a->page_len ? " without args.page_len" : "");
    if (a->page_len && a->capacity > a->block_table_stride * a->page_len)
        INVALID("args.capacity is %lld, at most args.block_table_stride = %lld pages of %u is "
                "required",
                (long long)a->capacity, (long long)a->block_table_stride, a->page_len);
    if (!a->page_len && a->block_table)
        INVALID("args.block_table is given without args.page_len");
    return HEED_OK;
}

/* Any type, whose blocks make up rows. */
static heed_status check_cache_type(const char *name, uint32_t type, const char *dim_name,
                                    uint32_t dim, heed_error *why)
{
    if (type < HEED_F32 || type > HEED_IQ4_NL)
        INVALID("args.%s is %u, HEED_F32, HEED_F16, HEED_BF16 or a type of codes is required", name,
                type);
    if (dim % heed_block_len(type))
        INVALID("args.%s is %u, a multiple of %u is required with args.%s %s", dim_name, dim,
                heed_block_len(type), name, heed_dtype_name(type));
    return HEED_OK;
}

static heed_status check_types(const heed_kv_append_args *a, heed_error *why)
{
    const heed_quant v_quant = heed_quant_as_const(a->v_quant);
    heed_status st = heed_check_type("k_type", a->k_type, why);
    if (st == HEED_OK)
        st = check_cache_type("k_cache_type", a->k_cache_type, "qk_dim", a->qk_dim, why);
    if (st == HEED_OK && a->v_dim)
        st = heed_check_type("v_type", a->v_type, why);
    if (st == HEED_OK && a->v_dim)
        st = check_cache_type("v_cache_type", a->v_cache_type, "v_dim", a->v_dim, why);
    if (st == HEED_OK && !a->v_dim && (a->v.data || a->v_cache.data))
        INVALID("args.%s is given, but args.v_dim is 0", a->v.data ? "v" : "v_cache");
    if (st == HEED_OK && !a->v_dim && !heed_quant_is_absent(&v_quant))
        INVALID("args.v_quant is given, but args.v_dim is 0");
    return st;
}

static heed_status check_options(const heed_kv_append_args *a, heed_error *why)
{
    const uint64_t known =
        HEED_APPEND_FRESH_SCALES | HEED_APPEND_HADAMARD_K | HEED_APPEND_HADAMARD_V;
    const int k_takes = heed_takes_scale(a->k_cache_type);
    const int v_takes = a->v_dim && heed_takes_scale(a->v_cache_type);
    heed_status st = HEED_OK;
    if (a->options & ~known)
        INVALID("args.options is 0x%llx, bits of HEED_APPEND_* are required",
                (unsigned long long)a->options);
    if (a->reserved)
        INVALID("args.reserved is %u, 0 is required", a->reserved);
    if ((a->options & HEED_APPEND_FRESH_SCALES) && !k_takes && !v_takes)
        INVALID("args.options has HEED_APPEND_FRESH_SCALES, but no cache is of a type that takes "
                "scales");
    if (!(a->options & (HEED_APPEND_HADAMARD_K | HEED_APPEND_HADAMARD_V)) && a->hadamard)
        INVALID("args.hadamard is %u, but args.options has no HEED_APPEND_HADAMARD_*", a->hadamard);
    if ((a->options & HEED_APPEND_HADAMARD_V) && !a->v_dim)
        INVALID("args.options has HEED_APPEND_HADAMARD_V, but args.v_dim is 0");
    if (a->options & HEED_APPEND_HADAMARD_K)
        st = heed_hadamard_check_group("hadamard", a->hadamard, "qk_dim", a->qk_dim, why);
    if (st == HEED_OK && (a->options & HEED_APPEND_HADAMARD_V))
        st = heed_hadamard_check_group("hadamard", a->hadamard, "v_dim", a->v_dim, why);
    return st;
}

/* Scales that are to be written: there, one for each row of a head, and no two of them the same. */
static heed_status check_fresh(const char *name, const heed_quant *quant, uint32_t type,
                               const int64_t shape[4], heed_error *why)
{
    static const char *const axis[] = {"batch", "head", "key"};
    for (int i = 0; i < 3; i++)
        if (shape[i] == 0)
            return HEED_OK;
    if (!quant->scale)
        INVALID("args.%s.scale is NULL, but required with HEED_APPEND_FRESH_SCALES and %s", name,
                heed_dtype_name(type));
    if (!quant->zero && (type == HEED_U8 || type == HEED_U4))
        INVALID("args.%s.zero is NULL, but required with HEED_APPEND_FRESH_SCALES and %s", name,
                heed_dtype_name(type));
    if (quant->zero == quant->scale)
        INVALID("args.%s.zero equals args.%s.scale: zeros would overwrite scales", name, name);
    if (quant->group || quant->key_group > 1)
        INVALID("args.%s.%s is %u, %s is required with HEED_APPEND_FRESH_SCALES", name,
                quant->group ? "group" : "key_group",
                quant->group ? quant->group : quant->key_group, quant->group ? "0" : "0 or 1");
    for (int i = 0; i < 3; i++)
        if (shape[i] != 1 && quant->stride[i] == 0)
            INVALID("args.%s.stride[%d] (%s) is 0 for %lld scales: those that are written cannot "
                    "broadcast",
                    name, i, axis[i], (long long)shape[i]);
    return HEED_OK;
}

static heed_status check_side(const heed_kv_append_args *a, int is_v, heed_error *why)
{
    static const char *const name[][3] = {{"k", "k_cache", "k_quant"}, {"v", "v_cache", "v_quant"}};
    const char *from = name[is_v][0], *to = name[is_v][1], *quant = name[is_v][2];
    const side s = side_of(a, is_v, NULL);
    const int64_t new_batch = a->starts && a->batch ? 1 : a->batch;
    const int64_t new_rows = a->len == 0 ? 0 : a->starts ? a->rows : a->len;
    const int64_t rows = a->page_len ? a->page_len : a->capacity;
    const int64_t batch = !a->len || !a->batch || !rows ? 0 : a->page_len ? a->n_pages : a->batch;
    const int64_t new_shape[] = {new_batch, a->kv_heads, new_rows, s.dim};
    const int64_t shape[] = {batch, a->kv_heads, rows, s.dim};
    heed_status st = heed_check_view(from, s.from->data, s.from->stride,
                                     heed_dtype_bytes(s.from_type), 0, new_shape, why);
    if (st == HEED_OK)
        st = heed_check_view(to, s.to->data, s.to->stride, heed_reach_bytes(s.to_type), 1, shape,
                             why);
    if (st == HEED_OK && batch)
        st = heed_check_blocks(to, s.to_type, s.to->stride, shape, why);
    if (st == HEED_OK)
        st = heed_check_quant(quant, &s.quant, s.to_type, shape, why);
    return st == HEED_OK && s.fresh ? check_fresh(quant, &s.quant, s.to_type, shape, why) : st;
}

/* Where both caches are the same memory, as where values are a view of the keys, values would take the
 * place of keys that are others. */
static heed_status check_apart(const heed_kv_append_args *a, heed_error *why)
{
    const uint64_t both = HEED_APPEND_HADAMARD_K | HEED_APPEND_HADAMARD_V;
    const uint64_t transformed = a->options & both;
    const int same = a->k.data == a->v.data && a->k_type == a->v_type &&
                     memcmp(a->k.stride, a->v.stride, sizeof a->k.stride) == 0 &&
                     a->k_cache_type == a->v_cache_type && !heed_is_code(a->k_cache_type) &&
                     memcmp(a->k_cache.stride, a->v_cache.stride, sizeof a->k_cache.stride) == 0 &&
                     (!transformed || transformed == both);
    const int empty = !a->v_dim || !a->batch || !a->len || !a->capacity;
    if (!empty && a->v_cache.data == a->k_cache.data && !same)
        INVALID("args.v_cache.data equals args.k_cache.data: values would overwrite keys");
    if (!empty && side_of(a, 0, NULL).fresh && side_of(a, 1, NULL).fresh) {
        const float *const k[] = {a->k_quant.scale, a->k_quant.zero};
        const float *const v[] = {a->v_quant.scale, a->v_quant.zero};
        for (int i = 0; i < 4; i++)
            if (k[i / 2] && k[i / 2] == v[i % 2])
                INVALID("args.v_quant.%s equals args.k_quant.%s: those of values would overwrite "
                        "those of keys",
                        i % 2 ? "zero" : "scale", i / 2 ? "zero" : "scale");
    }
    return HEED_OK;
}

/* Checks where the rows of sequence b go: below capacity, and into pages that exist. */
static heed_status check_room(const heed_kv_append_args *a, int64_t b, heed_error *why)
{
    const int64_t there = a->cache_lens ? a->cache_lens[b] : 0;
    const int64_t n = heed_row_count(a->lens, b, a->len);
    if (there < 0 || there > a->capacity)
        INVALID("args.cache_lens[%lld] is %lld, 0 to args.capacity = %lld is required",
                (long long)b, (long long)there, (long long)a->capacity);
    if (there + n > a->capacity)
        INVALID("sequence %lld has %lld keys and %lld new ones: args.capacity is %lld",
                (long long)b, (long long)there, (long long)n, (long long)a->capacity);
    if (!a->page_len || n == 0)
        return HEED_OK;
    if (!a->block_table)
        INVALID("args.block_table is NULL, but required with args.page_len");
    for (int64_t i = there / a->page_len; i * a->page_len < there + n; i++) {
        const int32_t page = a->block_table[b * a->block_table_stride + i];
        if (page < 0 || page >= a->n_pages)
            INVALID("args.block_table[%lld][%lld] is %d, 0 to args.n_pages - 1 = %lld is required",
                    (long long)b, (long long)i, page, (long long)a->n_pages - 1);
    }
    return HEED_OK;
}

heed_status heed_kv_append_check(const heed_kv_append_args *a, heed_error *why)
{
    const heed_row_lists lists = {
        .batch = a->batch, .len = a->len, .rows = a->rows, .lens = a->lens, .starts = a->starts};
    heed_status st = check_sizes(a, why);
    if (st == HEED_OK)
        st = check_types(a, why);
    if (st == HEED_OK)
        st = check_options(a, why);
    if (st == HEED_OK)
        st = heed_check_rows(&lists, why);
    for (int is_v = 0; is_v < (a->v_dim ? 2 : 1) && st == HEED_OK; is_v++)
        st = check_side(a, is_v, why);
    if (st == HEED_OK)
        st = check_apart(a, why);
    for (int64_t b = 0; b < a->batch && st == HEED_OK; b++)
        st = check_room(a, b, why);
    return st;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

/* Elements that are read, transformed and encoded at a time: whole blocks and groups. */
enum { CHUNK = HEED_HADAMARD_MOST };

/* Reads elements [d, d + n) of the row at element `from`, transformed if that is
 * wanted. Returns n. */
static int64_t read_chunk(const side *s, int64_t from, int64_t d, float x[CHUNK])
{
    const int64_t n = s->dim - d < CHUNK ? s->dim - d : CHUNK;
    const int64_t stride = s->from->stride[3];
    heed_convert(&(heed_elements){s->from_type, s->from->data, from + d * stride, stride}, HEED_F32,
                 x, 0, 1, n);
    if (s->hadamard)
        heed_hadamard_groups(x, n, s->hadamard);
    return n;
}

/* Encodes n numbers from dim d on, by the scales at `at`, to a byte each. */
static void codes_of(const side *s, const float *x, int64_t d, int64_t n, int64_t at, uint8_t *code)
{
    const heed_quant *q = &s->quant;
    for (int64_t i = 0, left; i < n; i += left) {
        int64_t place = at;
        left = n - i;
        if (q->group) {
            const int64_t rest = q->group - (d + i) % q->group;
            left = rest < left ? rest : left;
            place += (d + i) / q->group * q->stride[3];
        }
        heed_codes_by(s->to_type, x + i, left, q->scale ? q->scale[place] : 1,
                      q->zero ? q->zero[place] : 0, code + i);
    }
}

/* Writes n numbers from dim d on to the row at element `to` of the cache. */
static void write_chunk(const side *s, const float *x, int64_t d, int64_t n, int64_t to, int64_t at)
{
    const uint32_t type = s->to_type;
    const int64_t stride = s->to->stride[3];
    uint8_t code[CHUNK];
    if (!heed_is_code(type)) {
        heed_convert(&(heed_elements){HEED_F32, x, 0, 1}, type, s->to->data, to + d * stride,
                     stride, n);
        return;
    }
    uint8_t *row = (uint8_t *)s->to->data + heed_offset_bytes(type, to + d * stride);
    if (!heed_takes_scale(type)) {
        heed_encode_blocks(type, x, n, row);
    } else if (type == HEED_U4) {
        codes_of(s, x, d, n, at, code);
        for (int64_t i = 0; i < n / 2; i++)
            row[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    } else if (stride == 1) {
        codes_of(s, x, d, n, at, row);
    } else {
        codes_of(s, x, d, n, at, code);
        for (int64_t i = 0; i < n; i++)
            row[i * stride] = code[i];
    }
}

/* Appends one head's row: from element `from` to element `to` of the cache, whose
 * scales are at `at`. */
static void append_head(const side *s, int64_t from, int64_t to, int64_t at)
{
    float x[CHUNK];
    int64_t n = 0;
    if (!heed_is_code(s->to_type) && !s->hadamard) {
        heed_convert(&(heed_elements){s->from_type, s->from->data, from, s->from->stride[3]},
                     s->to_type, s->to->data, to, s->to->stride[3], s->dim);
        return;
    }
    if (s->fresh) {
        float least = INFINITY, most = -INFINITY, scale, zero;
        for (int64_t d = 0; d < s->dim; d += n) {
            n = read_chunk(s, from, d, x);
            heed_widen_range_fast(x, n, &least, &most);
        }
        heed_scale_of_range(s->to_type, least, most, &scale, &zero);
        s->scale[at] = scale;
        if (s->zero)
            s->zero[at] = zero;
    }
    for (int64_t d = 0; d < s->dim; d += n) {
        if (!s->fresh || s->dim > CHUNK)
            n = read_chunk(s, from, d, x);
        write_chunk(s, x, d, n, to, at);
    }
}

/* Has the side's encoder write the rows of n_heads heads of one key: from adjacent elements
 * of `type` to element `to` on of the cache, with the scales at `at`. Returns 0 if the
 * encoder leaves them. The strides of heads may be anything where there is one, and an encoder
 * multiplies them. */
static int encode_heads(const side *s, uint32_t n_heads, uint32_t type, const void *from,
                        int64_t from_stride, int64_t to, int64_t at)
{
    const heed_quant *q = &s->quant;
    const uint32_t to_type = s->to_type;
    const int64_t piece = q->group ? q->group : s->dim, many = n_heads > 1;
    if (piece % heed_block_len(to_type))
        return 0; /* of U4: a group begins within a byte */
    for (int64_t d = 0, n; d < s->dim; d += n) {
        const int64_t place = at + d / piece * q->stride[3];
        n = s->dim - d < piece ? s->dim - d : piece;
        const heed_append_rows rows = {.struct_size = sizeof rows,
                                       .from_type = type,
                                       .to_type = to_type,
                                       .n_rows = n_heads,
                                       .dim = n,
                                       .from = (const char *)from + d * heed_dtype_bytes(type),
                                       .to =
                                           (char *)s->to->data + heed_offset_bytes(to_type, to + d),
                                       .from_stride = many ? from_stride : 0,
                                       .to_stride = many ? s->to->stride[1] : 0,
                                       .scale = q->scale && !s->fresh ? q->scale + place : NULL,
                                       .zero = q->zero && !s->fresh ? q->zero + place : NULL,
                                       .fresh_scale = s->fresh ? s->scale + place : NULL,
                                       .fresh_zero = s->fresh && s->zero ? s->zero + place : NULL,
                                       .scale_stride = many ? q->stride[1] : 0,
                                       .next = s->next};
        if (s->encoder->run(&rows) != HEED_OK)
            return 0; /* what has been written is written again */
    }
    return 1;
}

/* Has the side's encoder write rows that it can read where they are. */
static int encode_in_place(const side *s, uint32_t n_heads, int64_t from, int64_t to, int64_t at)
{
    const int64_t *stride = s->from->stride;
    return !s->hadamard && stride[3] == 1 && s->from_type != s->to_type &&
           encode_heads(s, n_heads, s->from_type,
                        (const char *)s->from->data + from * heed_dtype_bytes(s->from_type),
                        stride[1], to, at);
}

/* The same of rows that have to be transformed or, for codes, brought together before, as f32. */
static int encode_copies(const side *s, uint32_t n_heads, int64_t from, int64_t to, int64_t at)
{
    float x[CHUNK];
    const int64_t most = CHUNK / s->dim;
    const int apart = heed_is_code(s->to_type) && s->from->stride[3] != 1;
    if (most == 0 || s->to_type == HEED_F32 || !(s->hadamard || apart))
        return 0;
    for (int64_t h = 0, n; h < n_heads; h += n) {
        n = n_heads - h < most ? n_heads - h : most;
        for (int64_t i = 0; i < n; i++)
            read_chunk(s, from + (h + i) * s->from->stride[1], 0, x + i * s->dim);
        if (!encode_heads(s, (uint32_t)n, HEED_F32, x, s->dim, to + (h ? h * s->to->stride[1] : 0),
                          at + (h && s->quant.scale ? h * s->quant.stride[1] : 0)))
            return 0;
    }
    return 1;
}

/* Appends all heads' rows of one key: from element `from` on to element `to` on, with
 * the scales at `at`. */
static void append_heads(const side *s, uint32_t n_heads, int64_t from, int64_t to, int64_t at)
{
    if (s->encoder && s->to->stride[3] == 1 &&
        (encode_in_place(s, n_heads, from, to, at) || encode_copies(s, n_heads, from, to, at)))
        return;
    for (uint32_t h = 0; h < n_heads; h++)
        append_head(s, from + h * s->from->stride[1], to + h * s->to->stride[1],
                    at + (s->quant.scale ? h * s->quant.stride[1] : 0));
}

void heed_kv_append_rows(const heed_kv_append_args *a, const heed_append_kernel *encoder, int64_t b,
                         int64_t first, int64_t end)
{
    const int64_t there = a->cache_lens ? a->cache_lens[b] : 0;
    side sides[] = {side_of(a, 0, encoder), side_of(a, 1, encoder)};
    for (int64_t i = first; i < end; i++) {
        int64_t page = b, key = there + i;
        if (a->page_len) {
            page = a->block_table[b * a->block_table_stride + key / a->page_len];
            key %= a->page_len;
        }
        for (side *s = sides; s < sides + (a->v_dim ? 2 : 1); s++) {
            s->next = i + 1 < end ? s->from->stride[2] : 0;
            const int64_t from = heed_row_at(s->from->stride, a->starts, b, i);
            const int64_t to = page * s->to->stride[0] + key * s->to->stride[2];
            append_heads(s, a->kv_heads, from, to,
                         s->quant.scale ? heed_scale_at(&s->quant, page, 0, key, 0) : 0);
        }
    }
}

HEED_CHECK_ARGS_ERROR(heed_kv_append_args);
heed_status heed_kv_append(const heed_kv_append_args *args)
{
    heed_kv_append_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    if (st == HEED_OK)
        st = heed_kv_append_check(&a, &why);
    if (st != HEED_OK)
        return heed_report_call(args, st, &why);
    heed_fpenv saved = heed_fpenv_enter();
    const heed_append_kernel *encoder = heed_encoder_here();
    for (int64_t b = 0; b < a.batch; b++)
        heed_kv_append_rows(&a, encoder, b, 0, heed_row_count(a.lens, b, a.len));
    heed_fpenv_leave(saved);
    return HEED_OK;
}
