/* heed_rotary: turns pairs of elements by the angle that their row's position gives. */
#include "rotary.h"

#include "base/fpenv.h"
#include "base/reason.h"
#include "base/rows.h"

/* Pairs that are turned at once: their sines and cosines are shared by all heads of a row. */
enum { PAIRS = 64 };

/* ---- checks -----------------------------------------------------------------------------------
 */

heed_status heed_rotary_check_desc(const char *name, const heed_rotary_desc *r, uint32_t dim,
                                   heed_error *why)
{
    const struct {
        const char *name;
        double value;
    } number[] = {{"base", (double)r->base}, {"scale", (double)r->scale}};
    if (r->style > HEED_ROTARY_INTERLEAVED)
        INVALID("%s.style is %u, HEED_ROTARY_* is required", name, r->style);
    if (r->reserved)
        INVALID("%s.reserved is %u, 0 is required", name, r->reserved);
    if (r->style == HEED_ROTARY_NONE) {
        if (r->dims || r->base != 0 || r->scale != 0 || r->mscale != 0 || r->freq)
            INVALID("%s.style is HEED_ROTARY_NONE, but other members are given", name);
        return HEED_OK;
    }
    if (r->dims == 0 || r->dims % 2 || r->dims > dim)
        INVALID("%s.dims is %u, an even number up to the head's %u is required", name, r->dims,
                dim);
    for (int i = 0; i < 2; i++)
        if (!(number[i].value >= 0 && isfinite(number[i].value)))
            INVALID("%s.%s is %g, a finite value above 0, or 0 for the default, is required", name,
                    number[i].name, number[i].value);
    if (!isfinite(r->mscale))
        INVALID("%s.mscale is %g, a finite value is required", name, (double)r->mscale);
    if (r->freq && r->base != 0)
        INVALID("%s.base is %g, but freq takes its place", name, (double)r->base);
    return HEED_OK;
}

heed_status heed_rotary_check_positions(const int32_t *positions, int64_t stride, int64_t batch,
                                        int64_t len, heed_error *why)
{
    const int64_t strides[] = {stride, 1}, shape[] = {batch, len};
    if (!positions && stride)
        INVALID("args.positions_stride is %lld without args.positions", (long long)stride);
    if (positions && batch && len && !heed_strides_reach(strides, 2, shape, sizeof *positions))
        INVALID("args.positions_stride is %lld, which reaches beyond the address space",
                (long long)stride);
    return HEED_OK;
}

static heed_status check(const heed_rotary_args *a, heed_error *why)
{
    const heed_row_lists lists = {
        .batch = a->batch, .len = a->len, .rows = a->rows, .lens = a->lens, .starts = a->starts};
    const int64_t batch = a->starts && a->batch ? 1 : a->batch;
    const int64_t rows = a->len == 0 ? 0 : a->starts ? a->rows : a->len;
    const int64_t shape[] = {batch, a->heads, rows, a->dim};
    const heed_number size[] = {{"args.heads", a->heads, 1, 1 << 20},
                                {"args.dim", a->dim, 1, 1 << 20}};
    heed_status st = heed_check_numbers(size, 2, why);
    if (st == HEED_OK)
        st = heed_rotary_check_desc("args.rotary", &a->rotary, a->dim, why);
    if (st == HEED_OK)
        st = heed_check_type("x_type", a->x_type, why);
    if (st == HEED_OK)
        st = heed_check_type("y_type", a->y_type, why);
    if (st == HEED_OK)
        st = heed_check_rows(&lists, why);
    if (st == HEED_OK)
        st = heed_check_view("x", a->x.data, a->x.stride, heed_dtype_bytes(a->x_type), 0, shape,
                             why);
    if (st == HEED_OK)
        st = heed_check_view("y", a->y.data, a->y.stride, heed_dtype_bytes(a->y_type), 1, shape,
                             why);
    if (st != HEED_OK)
        return st;
    if (a->positions && a->offsets)
        INVALID("args.offsets and args.positions are given, one of them is required");
    st = heed_rotary_check_positions(a->positions, a->positions_stride, a->batch, rows ? a->len : 0,
                                     why);
    if (st != HEED_OK)
        return st;
    return heed_check_in_place(&a->x, a->x_type, &a->y, a->y_type, shape, why);
}

/* ---- turning ----------------------------------------------------------------------------------
 */

typedef struct turn {
    float cosine[PAIRS], sine[PAIRS];
} turn;

/* Radians per position of pairs [first, first + n). */
static void find_frequencies(const heed_rotary_desc *r, int64_t first, int64_t n, double *freq)
{
    const double base = r->base != 0 ? (double)r->base : 10000;
    const double scale = r->scale != 0 ? (double)r->scale : 1;
    for (int64_t i = 0; i < n; i++)
        freq[i] = (r->freq ? (double)r->freq[first + i]
                           : pow(base, -2.0 * (double)(first + i) / (double)r->dims)) /
                  scale;
}

static void find_angles(const heed_rotary_desc *r, int64_t position, const double *freq, int64_t n,
                        turn *t)
{
    const double mscale = r->mscale != 0 ? (double)r->mscale : 1;
    for (int64_t i = 0; i < n; i++) {
        double angle = (double)position * freq[i];
        t->cosine[i] = (float)(cos(angle) * mscale);
        t->sine[i] = (float)(sin(angle) * mscale);
    }
}

static int64_t position_of(const heed_rotary_args *a, int64_t b, int64_t i)
{
    return a->positions ? a->positions[b * a->positions_stride + i]
                        : (a->offsets ? a->offsets[b] : 0) + i;
}

/* Moves the elements of pairs [first, first + n) of one head's row to f32 or back: of HEED_ROTARY_HALF the
 * first of all pairs and then the second of all, else pair after pair. */
static void read_pairs(const heed_rotary_args *a, int64_t from, int64_t first, int64_t n, float *z)
{
    const int64_t step = a->x.stride[3], half = a->rotary.style == HEED_ROTARY_HALF;
    const int64_t count = half ? n : 2 * n, other = a->rotary.dims / 2;
    from += (half ? first : 2 * first) * step;
    heed_convert(&(heed_elements){a->x_type, a->x.data, from, step}, HEED_F32, z, 0, 1, count);
    if (half)
        heed_convert(&(heed_elements){a->x_type, a->x.data, from + other * step, step}, HEED_F32, z,
                     n, 1, count);
}

static void write_pairs(const heed_rotary_args *a, const float *z, int64_t to, int64_t first,
                        int64_t n)
{
    const int64_t step = a->y.stride[3], half = a->rotary.style == HEED_ROTARY_HALF;
    const int64_t count = half ? n : 2 * n, other = a->rotary.dims / 2;
    to += (half ? first : 2 * first) * step;
    heed_convert(&(heed_elements){HEED_F32, z, 0, 1}, a->y_type, a->y.data, to, step, count);
    if (half)
        heed_convert(&(heed_elements){HEED_F32, z, n, 1}, a->y_type, a->y.data, to + other * step,
                     step, count);
}

static inline void turn_pair(float *x, float *y, float cosine, float sine)
{
    const float turned = *x * cosine - *y * sine;
    *y = *y * cosine + *x * sine;
    *x = turned;
}

/* Turns pairs [first, first + n) of one head's row. */
static void turn_pairs(const heed_rotary_args *a, int64_t from, int64_t to, int64_t first,
                       int64_t n, const turn *t)
{
    float z[2 * PAIRS];
    read_pairs(a, from, first, n, z);
    if (a->rotary.style == HEED_ROTARY_HALF)
        for (int64_t i = 0; i < n; i++)
            turn_pair(&z[i], &z[n + i], t->cosine[i], t->sine[i]);
    else
        for (int64_t i = 0; i < n; i++)
            turn_pair(&z[2 * i], &z[2 * i + 1], t->cosine[i], t->sine[i]);
    write_pairs(a, z, to, first, n);
}

static void copy_rest(const heed_rotary_args *a, int64_t from, int64_t to)
{
    const uint32_t dims = a->rotary.dims;
    for (uint32_t h = 0; h < a->heads; h++)
        heed_convert(&(heed_elements){a->x_type, a->x.data,
                                      from + h * a->x.stride[1] + dims * a->x.stride[3],
                                      a->x.stride[3]},
                     a->y_type, a->y.data, to + h * a->y.stride[1] + dims * a->y.stride[3],
                     a->y.stride[3], a->dim - dims);
}

void heed_rotary_rows(const heed_rotary_args *a, int64_t b, int64_t first, int64_t end)
{
    const int64_t pairs = a->rotary.dims / 2;
    double freq[PAIRS];
    turn t;
    for (int64_t pair = 0; pair < pairs; pair += PAIRS) {
        const int64_t n = pairs - pair < PAIRS ? pairs - pair : PAIRS;
        find_frequencies(&a->rotary, pair, n, freq);
        for (int64_t i = first; i < end; i++) {
            const int64_t from = heed_row_at(a->x.stride, a->starts, b, i);
            const int64_t to = heed_row_at(a->y.stride, a->starts, b, i);
            find_angles(&a->rotary, position_of(a, b, i), freq, n, &t);
            for (uint32_t h = 0; h < a->heads; h++)
                turn_pairs(a, from + h * a->x.stride[1], to + h * a->y.stride[1], pair, n, &t);
        }
    }
    for (int64_t i = first; i < end && a->x.data != a->y.data; i++)
        copy_rest(a, heed_row_at(a->x.stride, a->starts, b, i),
                  heed_row_at(a->y.stride, a->starts, b, i));
}

HEED_CHECK_ARGS_ERROR(heed_rotary_args);
heed_status heed_rotary(const heed_rotary_args *args)
{
    heed_rotary_args a;
    heed_error why = {""};
    heed_status st = heed_read_struct("args", args, sizeof a, &a, &why);
    heed_fpenv saved = heed_fpenv_enter();
    if (st == HEED_OK)
        st = check(&a, &why);
    for (int64_t b = 0; st == HEED_OK && b < a.batch; b++)
        heed_rotary_rows(&a, b, 0, heed_row_count(a.lens, b, a.len));
    heed_fpenv_leave(saved);
    return heed_report_call(args, st, &why);
}
