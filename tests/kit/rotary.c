/* heed_rotary against the definition in float64, and what it refuses. */
#include "cache_errors.h"
#include "cases.h"
#include "decode.h"
#include "encode.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { BATCH = 2, HEADS = 3, LEN = 7, DIM = 140, ROWS = 15 };

typedef struct turning {
    heed_rotary_args args;
    guard_buffer x, y;
    heed_view in_place; /* x, to write */
} turning;

static const int32_t offsets[BATCH] = {0, 100000}, lens[BATCH] = {7, 5}, starts[BATCH] = {8, 2};
static const int32_t positions[BATCH * LEN] = {0, 1, 1, 2, 3, 3, 40, 9, 8, 7, -6, 5, 0, 0};

static void drop(turning *t)
{
    guard_unmap(&t->x);
    guard_unmap(&t->y);
}

/* Bits of variant: 0 rows packed and token-major, 1 in place, 2 positions given, 3 dims apart. */
static int make(turning *t, const heed_rotary_desc *rotary, int variant, uint32_t x_type,
                uint32_t y_type)
{
    const int packed = variant & 1, in_place = variant & 2, apart = variant & 8 ? 2 : 1;
    const size_t n = (size_t)(packed ? ROWS : BATCH * LEN) * HEADS * DIM * (size_t)apart;
    const uint32_t bytes[] = {kit_bytes_of(x_type), kit_bytes_of(y_type)};
    memset(t, 0, sizeof *t);
    if (guard_map(&t->x, n * bytes[0], GUARD_HIGH, 0, 0xff) != 0 ||
        guard_map(&t->y, n * bytes[1], GUARD_LOW, 0, 0xff) != 0)
        return drop(t), -1;
    for (size_t i = 0; i < n; i++)
        kit_encode(x_type, t->x.data, (int64_t)i, kit_normal(kit_hash(5, (int64_t)i)));
    heed_view x = {t->x.data, {HEADS * LEN * DIM, LEN * DIM, DIM, 1}};
    if (packed)
        x.stride[1] = DIM, x.stride[2] = HEADS * DIM;
    for (int i = 0; i < 4; i++)
        x.stride[i] *= apart;
    t->args = (heed_rotary_args){.struct_size = sizeof t->args,
                                 .rotary = *rotary,
                                 .batch = BATCH,
                                 .len = LEN,
                                 .heads = HEADS,
                                 .dim = DIM,
                                 .x_type = x_type,
                                 .y_type = y_type,
                                 .x = heed_as_const(x),
                                 .y = x,
                                 .lens = lens,
                                 .rows = packed ? ROWS : 0,
                                 .starts = packed ? starts : NULL,
                                 .offsets = variant & 4 ? NULL : offsets,
                                 .positions = variant & 4 ? positions : NULL,
                                 .positions_stride = variant & 4 ? LEN : 0};
    t->in_place = x;
    if (in_place && packed)
        t->args.y.stride[0] = -1; /* of an axis that has one element */
    if (!in_place) {
        t->args.y.data = t->y.data;
        guard_read_only(&t->x);
    }
    return 0;
}

/* Element d of a rotated row, before rounding, and the magnitude that errors are relative to. */
static double turned(const heed_rotary_desc *r, const double *row, int64_t d, int64_t position,
                     double *magnitude)
{
    const int64_t half = r->dims / 2;
    *magnitude = 0;
    if (d >= r->dims)
        return row[d];
    int64_t pair = r->style == HEED_ROTARY_HALF ? d % half : d / 2;
    int second = r->style == HEED_ROTARY_HALF ? d >= half : d % 2 != 0;
    double x = row[r->style == HEED_ROTARY_HALF ? pair : 2 * pair];
    double y = row[r->style == HEED_ROTARY_HALF ? pair + half : 2 * pair + 1];
    double base = r->base > 0 ? (double)r->base : 10000;
    double freq = r->freq ? (double)r->freq[pair] : pow(base, -2.0 * (double)pair / r->dims);
    double angle = (double)position / (r->scale > 0 ? (double)r->scale : 1) * freq;
    double m = r->mscale > 0 ? (double)r->mscale : 1;
    *magnitude = m * (fabs(x) + fabs(y)); /* sine and cosine are at most 1 */
    return second ? m * (y * cos(angle) + x * sin(angle)) : m * (x * cos(angle) - y * sin(angle));
}

/* Roundings of sine or cosine, of a product and of the sum: 3 u of the magnitude; the angle's own
 * error, some 2^-50 of at most 1e5, is nothing beside them. Then the type's own rounding. */
static double bound_of(uint32_t type, double want, double magnitude)
{
    double out = type == HEED_F32 ? 0x1p-24 : type == HEED_F16 ? 0x1p-11 : 0x1p-8;
    double error = 3 * 0x1p-24 * magnitude;
    return magnitude > 0 || type != HEED_F32
               ? error + out * (fabs(want) + error) + 0x1p-25 * (type == HEED_F16)
               : 0;
}

static void compare(turning *t, const unsigned char *before, const char *what, kit_outcome *outcome)
{
    const heed_rotary_args *a = &t->args;
    const unsigned char *got = a->y.data;
    size_t y_bytes = kit_bytes_of(a->y_type), n_bytes = got == t->x.data ? t->x.bytes : t->y.bytes;
    unsigned char *owned = calloc(n_bytes, 1);
    double row[DIM], magnitude;
    for (int64_t b = 0; owned && b < BATCH; b++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < lens[b]; i++) {
                int64_t at = (a->starts ? (a->starts[b] + i) * a->x.stride[2]
                                        : b * a->x.stride[0] + i * a->x.stride[2]) +
                             h * a->x.stride[1];
                int64_t position = a->positions ? positions[b * LEN + i] : offsets[b] + i;
                for (int64_t d = 0; d < DIM; d++)
                    row[d] = kit_decode(a->x_type, before, at + d * a->x.stride[3]);
                for (int64_t d = 0; d < DIM; d++) {
                    double want = turned(&a->rotary, row, d, position, &magnitude);
                    double have = kit_decode(a->y_type, got, at + d * a->x.stride[3]);
                    memset(owned + (size_t)(at + d * a->x.stride[3]) * y_bytes, 1, y_bytes);
                    if (!(fabs(have - want) <= bound_of(a->y_type, want, magnitude)))
                        kit_fail(outcome, "%s: [%lld, %lld, %lld, %lld] is %.9g, should be %.9g",
                                 what, (long long)b, (long long)h, (long long)i, (long long)d, have,
                                 want);
                }
            }
    for (size_t i = 0; owned && i < n_bytes; i++)
        if (!owned[i] && got[i] != (got == t->x.data ? before[i] : 0xff))
            kit_fail(outcome, "%s: byte %zu is no element of a row, and was written", what, i);
    free(owned);
}

static void against_f64(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const float freq[32] = {1, 0.5F, 0.25F};
    static const heed_rotary_desc rotary[] = {
        {.style = HEED_ROTARY_HALF, .dims = DIM},
        {.style = HEED_ROTARY_INTERLEAVED, .dims = DIM},
        {.style = HEED_ROTARY_HALF, .dims = 64, .base = 500000, .scale = 4},
        {.style = HEED_ROTARY_INTERLEAVED, .dims = 34, .mscale = 1.2F},
        {.style = HEED_ROTARY_HALF, .dims = 64, .freq = freq},
        {.style = HEED_ROTARY_NONE},
    };
    (void)env;
    for (size_t n = 0; n < COUNT(rotary); n++)
        for (int variant = 0; variant < 16; variant++)
            for (uint32_t y_type = HEED_F32; y_type <= HEED_BF16; y_type++) {
                turning t;
                char what[60];
                if ((variant & 2) && y_type != c->spec.q_type)
                    continue;
                snprintf(what, sizeof what, "rotary %zu, variant %d, to %s", n, variant,
                         kit_type_name(y_type));
                unsigned char *before = NULL;
                if (make(&t, &rotary[n], variant, c->spec.q_type, y_type) != 0 ||
                    !(before = malloc(t.x.bytes))) {
                    kit_fail(outcome, "out of memory");
                    return;
                }
                memcpy(before, t.x.data, t.x.bytes);
                if (heed_rotary(&t.args) != HEED_OK)
                    kit_fail(outcome, "%s: %s", what, heed_last_error());
                else
                    compare(&t, before, what, outcome);
                free(before);
                drop(&t);
            }
}

static void refuses(const kit_env *env, const kit_case *c, kit_outcome *outcome)
{
    static const heed_rotary_desc rotary[] = {{.style = HEED_ROTARY_HALF, .dims = 64},
                                              {.style = HEED_ROTARY_NONE}};
    (void)env;
    (void)c;
    for (size_t n = 0; n < kit_rotary_mistakes(); n++) {
        int n_made = 0;
        for (uint32_t pick = 0; pick < 100; pick++) {
            turning t; /* packed rows with a style; padded ones without */
            const int plain = (int)pick & 1;
            if (make(&t, &rotary[plain], !plain, HEED_F32, HEED_F32) != 0) {
                kit_fail(outcome, "out of memory");
                return;
            }
            guard_read_only(&t.y); /* a write is a crash */
            n_made += kit_rotary_refuses(&t.args, !plain, n, pick / 2, outcome);
            drop(&t);
        }
        if (n_made == 0)
            kit_fail(outcome, "mistake %zu was not made", n);
    }
}

void kit_rotary_cases(kit_list *list)
{
    for (uint32_t type = HEED_F32; type <= HEED_BF16; type++) {
        kit_case c = {.quick = 1, .run = against_f64, .spec.q_type = type};
        snprintf(c.name, sizeof c.name, "rotary/against_f64/%s", kit_type_name(type));
        kit_add(list, &c);
    }
    kit_case mistakes = {.name = "rotary/mistakes/f32", .quick = 1, .run = refuses};
    kit_add(list, &mistakes);
}
