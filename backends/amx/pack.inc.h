/*
 * Packing for the tile unit: K transposed in words of two dims, V interleaved by key pairs, Q as it
 * is. Any type and strides; codes are decoded to f32 first; dims and keys that do not exist become
 * zeros. Whole tiles of bf16 in the usual layout take a shorter path, which gives up where a value is
 * odd.
 *
 * A product of 0 with an infinity would be NaN, so a NaN or infinity in V never enters a tile: it
 * is packed as 0 and its key is marked in the header; the kernel adds it to the rows that see it.
 */
#ifndef HEED_AMX_PACK_H
#define HEED_AMX_PACK_H

#include "amx.h"
#include "lanes.h"

#include "../simd/vec/codes.h"

#define AMX_ODD_BF16 ((127 + 50) << 7) /* 2^50: products of two smaller ones cannot overflow */
#define AMX_INF_BF16 (255 << 7)

/* How many keys before its turn a key is fetched into L2, beside the packing of others. On an Emerald
 * Rapids, relative to the CPU's own prefetching, medians of 6 turns: prefill 0.87 to 0.91 of the time,
 * decode of 8 and of 16 rows a kv head 0.79 and 0.72. 64 keys have lower medians, the least times of
 * 32 are the lower ones. */
#define AMX_KEYS_AHEAD 32

/* One element as a high and a low bf16. Where the high part is not finite the low one is 0 (it
 * would be a NaN). */
static inline void split_one(float x, uint16_t *high, uint16_t *low)
{
    *high = heed_bf16_of_f32(x);
    *low = (*high & 0x7fff) >= AMX_INF_BF16 ? 0 : heed_bf16_of_f32(x - heed_f32_of_bf16(*high));
}

/* 16 values of a row, of which n exist. */
static inline vf load_values(uint32_t type, const char *data, int64_t d, int n)
{
    if (n <= 0)
        return v_set1(0);
    const uint16_t mask = n < 16 ? (uint16_t)((1u << n) - 1) : 0xffff;
    return type == HEED_F32    ? v_load_some((const float *)(const void *)data + d, mask)
           : type == HEED_BF16 ? v_load_bf16_some(data + d * 2, mask)
                               : v_load_f16_some(data + d * 2, mask);
}

/* split_one of 16 values: *high and *low in the low halves of words. */
static inline void split_values(vf x, vi *high, vi *low)
{
    const vi half = vi_set1(0x7fff), one = vi_set1(1);
    const vi bits = v_bits(x);
    vi up = vi_add(vi_add(bits, half), vi_and(vi_shr(bits, 16), one)), rest;
    vf rounded = v_from_bits(vi_shl(vi_shr(up, 16), 16));
    /* A NaN keeps its bits, made quiet. A large value may have been rounded to infinity. */
    rounded = v_select(m_nan(x), v_add(x, x), rounded);
    rest =
        v_bits(v_select(m_within(rounded, 0x1.fffffep127f, 0xffff), v_sub(x, rounded), v_set1(0)));
    rest = vi_add(vi_add(rest, half), vi_and(vi_shr(rest, 16), one));
    *high = vi_shr(v_bits(rounded), 16);
    *low = vi_shr(rest, 16);
}

static inline void split_row(vf first, vf second, vi out[2])
{
    vi high[2], low[2];
    split_values(first, &high[0], &low[0]);
    split_values(second, &high[1], &low[1]);
    out[0] = vi_join(high[0], high[1]);
    out[1] = vi_join(low[0], low[1]);
}

/* Dims [d, d + 32) of a row at data, of which n exist, as bf16 in one or two registers: two for
 * codes, whose scales are the key's. */
static inline void load_row(uint32_t type, const char *data, int64_t dim_stride,
                            const code_key *scales, int64_t d, int n, int parts, vi out[2])
{
    uint16_t part[2][32];
    if (heed_is_code(type)) {
        float x[32] = {0};
        code_row(type, data, dim_stride, d, n, scales, x);
        split_row(v_load(x), v_load(x + 16), out);
        return;
    }
    out[1] = vi_zero();
    if (type == HEED_BF16 && dim_stride == 1) {
        out[0] = n == 32 ? vi_load(data + d * 2) : vi_load_halves(data + d * 2, n);
        return;
    }
    if (dim_stride == 1 && parts == 2) {
        split_row(load_values(type, data, d, n), load_values(type, data, d + 16, n - 16), out);
        return;
    }
    memset(part, 0, sizeof part);
    for (int i = 0; i < n; i++) {
        float x = heed_load(type, data, (d + i) * dim_stride);
        if (parts == 2)
            split_one(x, &part[0][i], &part[1][i]);
        else
            part[0][i] = heed_bf16_of_f32(x);
    }
    out[0] = vi_load(part[0]);
    out[1] = vi_load(part[1]);
}

/* Where the keys of a block lie, or its values: NULL where there is none in the tile's range or it is
 * not needed. Only codes have scales. */
typedef struct amx_block_rows {
    const char *row[AMX_BLOCK];
    code_key scales[AMX_BLOCK];
} amx_block_rows;

/* As load_row of row i of the block, but gives zeros where there is none. */
static inline void row_or_zero(uint32_t type, const amx_block_rows *rows, int i, int64_t dim_stride,
                               int d, int n, int parts, vi out[2])
{
    if (rows->row[i]) {
        load_row(type, rows->row[i], dim_stride, &rows->scales[i], d, n < 32 ? n : 32, parts, out);
    } else {
        out[0] = vi_zero();
        out[1] = vi_zero();
    }
}

/* May key n of the block be read? Any key may where needed is NULL. */
static inline int is_needed(const uint64_t *needed, int64_t n)
{
    return !needed || needed[n / 64] >> n % 64 & 1;
}

static inline void rows_of_block(const heed_problem *p, const heed_tile *t, int is_v, int64_t start,
                                 const uint64_t *needed, amx_block_rows *rows)
{
    const heed_rows *from = is_v ? &t->v : &t->k;
    const uint32_t type = is_v ? p->v_type : p->k_type;
    int64_t first = start > t->k_first ? start : t->k_first, end = start + AMX_BLOCK, step;
    const char *at;
    if (end > t->k_end)
        end = t->k_end;
    if (first > start || end < start + AMX_BLOCK)
        memset(rows->row, 0, sizeof rows->row);
    if (t->pages || heed_is_code(type)) {
        for (int64_t j = first; j < end; j++) {
            rows->row[j - start] = NULL;
            if (!is_needed(needed, j - start))
                continue;
            const heed_key key = heed_find_key(p, t, is_v, j);
            rows->row[j - start] = key.row;
            if (heed_is_code(type))
                rows->scales[j - start] = code_key_of(key.quant, key.page, key.at);
        }
        return;
    }
    step = from->row_stride * (int64_t)heed_dtype_bytes(type);
    at = (const char *)from->data + first * step;
    for (int64_t j = first; j < end; j++, at += step)
        rows->row[j - start] = is_needed(needed, j - start) ? at : NULL;
}

/* Are all of keys [first, end), within one half of the block, in the tile's range and needed? */
static inline int all_there(const heed_tile *t, int64_t start, const uint64_t *needed, int first,
                            int end)
{
    const int half = first / 64;
    const uint64_t all = heed_bits_between(first - 64 * half, end - 64 * half);
    return (!needed || (needed[half] & all) == all) && start + first >= t->k_first &&
           start + end <= t->k_end;
}

/* Packs 32 dims of 16 rows, from `at` bytes on, into one tile. Returns whether a value of 2^50 or
 * more is among them. */
static inline int pack_k_tile(const char *const row[16], int64_t at, char *out)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    vi r[4], top = vi_zero();
    for (int words = 0; words < 4; words++, at += 16) {
        for (int i = 0; i < 4; i++) {
            r[i] =
                vi_load_quarters(row[i] + at, row[4 + i] + at, row[8 + i] + at, row[12 + i] + at);
            top = vi_max16(top, vi_and(r[i], magnitude));
        }
        vi_transpose_quarters(r);
        for (int i = 0; i < 4; i++)
            vi_store(out + (4 * words + i) * 64, r[i]);
    }
    return vi_halves_from(top, AMX_ODD_BF16) != 0;
}

/* The same of rows `step` bytes apart, with those AMX_KEYS_AHEAD behind them fetched. */
static inline int pack_k_apart(const char *row, int64_t step, char *out)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    const char *row4 = row + 4 * step, *row8 = row + 8 * step, *row12 = row + 12 * step;
    vi top = vi_zero();
    for (int words = 0; words < 4; words++) {
        vi r[4];
        for (int i = 0; i < 4; i++) {
            const int64_t at = i * step + 16 * words;
            V_PREFETCH_L2(row + (4 * words + i + AMX_KEYS_AHEAD) * step);
            r[i] = vi_load_quarters(row + at, row4 + at, row8 + at, row12 + at);
            top = vi_max16(top, vi_and(r[i], magnitude));
        }
        vi_transpose_quarters(r);
        for (int i = 0; i < 4; i++)
            vi_store(out + (4 * words + i) * 64, r[i]);
    }
    return vi_halves_from(top, AMX_ODD_BF16) != 0;
}

/* Packs 32 columns of 32 rows, from `at` bytes on, into two tiles. Returns whether a NaN or an
 * infinity is among them. */
static inline int pack_v_tiles(const char *const row[AMX_UNIT], int64_t at, char *out)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    vi top = vi_zero();
    for (int w = 0; w < 16; w++) {
        int key = w / 4 * 4 + w % 2 * 2 + (w % 4 >= 2 ? 16 : 0); /* the order of vi_pack */
        vi a = vi_load(row[key] + at), b = vi_load(row[key + 1] + at), low, high;
        top = vi_max16(top, vi_max16(vi_and(a, magnitude), vi_and(b, magnitude)));
        vi_interleave(a, b, &low, &high);
        vi_store(out + w * 64, low);
        vi_store(out + w * 64 + 1024, high);
    }
    return vi_halves_from(top, AMX_INF_BF16) != 0;
}

/* The same of rows `step` bytes apart, with those AMX_KEYS_AHEAD behind them fetched. */
static inline int pack_v_apart(const char *row, int64_t step, char *out)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    vi top = vi_zero();
    for (int w = 0; w < 16; w += 4, row += 4 * step)
        for (int i = 0; i < 4; i++) {
            const char *from = row + (i % 2 * 2 + (i >= 2 ? 16 : 0)) * step;
            vi a = vi_load(from), b = vi_load(from + step), low, high;
            V_PREFETCH_L2(from + AMX_KEYS_AHEAD * step);
            V_PREFETCH_L2(from + (AMX_KEYS_AHEAD + 1) * step);
            top = vi_max16(top, vi_max16(vi_and(a, magnitude), vi_and(b, magnitude)));
            vi_interleave(a, b, &low, &high);
            vi_store(out + (w + i) * 64, low);
            vi_store(out + (w + i) * 64 + 1024, high);
        }
    return vi_halves_from(top, AMX_INF_BF16) != 0;
}

/* Has the unit a key in the tile's range? Only such units are multiplied and have to be packed. */
static inline int unit_is_used(const heed_tile *t, int64_t start, int unit)
{
    const int64_t first = start + unit * AMX_UNIT;
    return first < t->k_end && first + AMX_UNIT > t->k_first;
}

static inline void pack_k(const heed_problem *p, const heed_tile *t, const amx_layout *l,
                          int64_t start, const uint64_t *needed, char *packed)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    const int parts = l->parts, steps = l->k_steps;
    const uint32_t type = p->k_type;
    const int64_t dim_stride = t->k.dim_stride;
    const int usual = type == HEED_BF16 && dim_stride == 1 && parts == 1;
    amx_header *header = (amx_header *)packed;
    char *out = packed + AMX_HEADER_BYTES;
    const int64_t step_bytes = t->k.row_stride * (int64_t)heed_dtype_bytes(type);
    amx_block_rows rows;
    int known = 0; /* rows has been filled */
    for (int g = 0; g < AMX_BLOCK / 16; g++) {
        if (!unit_is_used(t, start, g / 2)) {
            out += steps * parts * 1024;
            continue;
        }
        for (int step = 0; step < steps; step++, out += parts * 1024) {
            vi high[16], low[16], top = vi_zero(), part[2];
            int n = (int)p->qk_dim - 32 * step;
            const int whole = usual && n >= 32 && all_there(t, start, needed, 16 * g, 16 * g + 16);
            if (whole && !t->pages &&
                !pack_k_apart((const char *)t->k.data + (start + 16 * g) * step_bytes + 64 * step,
                              step_bytes, out))
                continue;
            if (!known) {
                rows_of_block(p, t, 0, start, needed, &rows);
                known = 1;
            }
            if (whole && t->pages && !pack_k_tile(rows.row + 16 * g, 64 * step, out))
                continue;
            for (int i = 0; i < 16; i++) {
                row_or_zero(type, &rows, 16 * g + i, dim_stride, 32 * step, n, parts, part);
                high[i] = part[0];
                low[i] = part[1];
                top = vi_max16(top, vi_and(part[0], magnitude));
            }
            if (vi_halves_from(top, AMX_ODD_BF16))
                for (int i = 0; i < 16; i++)
                    if (vi_halves_from(vi_and(high[i], magnitude), AMX_ODD_BF16))
                        header->odd_k[g / 2] |= 1u << (g % 2 * 16 + i);
            vi_transpose(high);
            for (int i = 0; i < 16; i++)
                vi_store(out + i * 64, high[i]);
            if (parts == 2) {
                vi_transpose(low);
                for (int i = 0; i < 16; i++)
                    vi_store(out + 1024 + i * 64, low[i]);
            }
        }
    }
}

static inline void pack_v(const heed_problem *p, const heed_tile *t, const amx_layout *l,
                          int64_t start, const uint64_t *needed, char *packed)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    const int parts = l->parts, pairs = l->v_pairs;
    const uint32_t type = p->v_type;
    const int64_t dim_stride = t->v.dim_stride;
    const int usual = type == HEED_BF16 && dim_stride == 1 && parts == 1;
    amx_header *header = (amx_header *)packed;
    const int64_t step_bytes = t->v.row_stride * (int64_t)heed_dtype_bytes(type);
    amx_block_rows rows;
    int known = 0;
    for (int unit = 0; unit < AMX_BLOCK_UNITS; unit++)
        for (int pair = 0; pair < pairs && unit_is_used(t, start, unit); pair++) {
            char *out = packed + l->v_at + ((int64_t)unit * parts * pairs + pair) * 2048;
            int n = (int)p->v_dim - 32 * pair;
            const int whole =
                usual && n >= 32 &&
                all_there(t, start, needed, unit * AMX_UNIT, unit * AMX_UNIT + AMX_UNIT);
            if (whole && !t->pages &&
                !pack_v_apart((const char *)t->v.data + (start + unit * AMX_UNIT) * step_bytes +
                                  64 * pair,
                              step_bytes, out))
                continue;
            if (!known) {
                rows_of_block(p, t, 1, start, needed, &rows);
                known = 1;
            }
            if (whole && t->pages && !pack_v_tiles(rows.row + unit * AMX_UNIT, 64 * pair, out))
                continue;
            for (int w = 0; w < 16; w++) {
                int key = w / 4 * 4 + w % 2 * 2 + (w % 4 >= 2 ? 16 : 0); /* the order of vi_pack */
                vi part[2][2], low, high, top;
                for (int side = 0; side < 2; side++)
                    row_or_zero(type, &rows, unit * AMX_UNIT + key + side, dim_stride, 32 * pair, n,
                                parts, part[side]);
                top = vi_max16(vi_and(part[0][0], magnitude), vi_and(part[1][0], magnitude));
                if (vi_halves_from(top, AMX_INF_BF16))
                    for (int side = 0; side < 2; side++) {
                        uint32_t odd =
                            vi_halves_from(vi_and(part[side][0], magnitude), AMX_INF_BF16);
                        part[side][0] = vi_clear_halves(part[side][0], odd);
                        header->odd_v[unit] |= (uint32_t)(odd != 0) << (key + side);
                    }
                for (int half = 0; half < parts; half++) {
                    char *at = out + (int64_t)half * pairs * 2048 + w * 64;
                    vi_interleave(part[0][half], part[1][half], &low, &high);
                    vi_store(at, low);
                    vi_store(at + 1024, high);
                }
            }
        }
}

static inline void pack_block(const heed_problem *p, const heed_tile *t, const amx_layout *l,
                              int64_t start, char *packed)
{
    uint64_t bits[AMX_BLOCK / 64];
    const uint64_t *needed = NULL; /* keys that no row may see are not read: zeros */
    if (heed_has_lists(t) &&
        heed_listed_keys(p, t, start, start + AMX_BLOCK, bits, AMX_BLOCK / 64) != HEED_BLOCK_ALL)
        needed = bits;
    memset(packed, 0, AMX_HEADER_BYTES);
    pack_k(p, t, l, start, needed, packed);
    pack_v(p, t, l, start, needed, packed);
}

/* Packs 16 rows, `step` bytes apart, of `steps` times 32 dims. Returns whether a value of 2^50 or
 * more is among them. */
static inline int pack_q_apart(const char *row, int64_t step, int steps, char *out)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    vi top = vi_zero();
    for (int s = 0; s < steps; s++)
        for (int i = 0; i < 16; i++) {
            vi x = vi_load(row + i * step + s * 64);
            top = vi_max16(top, vi_and(x, magnitude));
            vi_store(out + s * 1024 + i * 64, x);
        }
    return vi_halves_from(top, AMX_ODD_BF16) != 0;
}

/* Packs the rows of group g of the tile. Returns which rows have a value of 2^50 or more. */
static inline uint32_t pack_q(const heed_problem *p, const heed_tile *t, const amx_layout *l,
                              int64_t g, char *out)
{
    const vi magnitude = vi_set1(0x7fff7fff);
    const int usual = p->q_type == HEED_BF16 && t->q.dim_stride == 1 && l->parts == 1;
    int64_t rows = t->n_heads * t->q_count;
    uint32_t odd_rows = 0;
    int64_t head = l->group * g / t->q_count, q = l->group * g % t->q_count;
    if (usual && p->qk_dim % 32 == 0 && q + l->group <= t->q_count) { /* of one head */
        const int64_t step = t->q.row_stride * 2;
        const char *from = (const char *)t->q.data +
                           (head * t->q.head_stride + (t->q_first + q) * t->q.row_stride) * 2;
        int odd = 0;
        for (int i = 0; i < l->group; i += 16)
            odd |= pack_q_apart(from + i * step, step, l->k_steps, out + i * l->k_steps * 64);
        if (!odd)
            return 0;
    }
    for (int i = 0; i < l->group; i++) {
        int64_t r = l->group * g + i;
        int64_t at = head * t->q.head_stride + (t->q_first + q) * t->q.row_stride;
        const char *data = (const char *)t->q.data + at * heed_dtype_bytes(p->q_type);
        vi top = vi_zero();
        for (int step = 0; step < l->k_steps; step++) {
            int n = (int)p->qk_dim - 32 * step;
            char *to =
                out + (((int64_t)(i / 16) * l->k_steps + step) * l->parts) * 1024 + i % 16 * 64;
            vi row[2] = {vi_zero(), vi_zero()};
            if (r < rows && usual && n >= 32)
                row[0] = vi_load(data + 64 * step);
            else if (r < rows)
                load_row(p->q_type, data, t->q.dim_stride, NULL, 32 * step, n < 32 ? n : 32,
                         l->parts, row);
            top = vi_max16(top, vi_and(row[0], magnitude));
            vi_store(to, row[0]);
            if (l->parts == 2)
                vi_store(to + 1024, row[1]);
        }
        if (vi_halves_from(top, AMX_ODD_BF16))
            odd_rows |= 1u << i;
        if (++q == t->q_count) {
            q = 0;
            head++;
        }
    }
    return odd_rows;
}

#endif
