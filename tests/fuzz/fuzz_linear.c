/* The fuzz target of linear layers: the input bytes choose a problem of the conformance kit.
 *
 * Valid    the layer is made, its weights are freed, and it runs in one of the possible ways, in
 *          whatever floating-point environment the host has: only elements of y are written, and
 *          they are those of the oracle. Some of its rows, at another place and run in another way,
 *          have the same bits; so do they with the other vector width.
 * Spoilt   one mistake of the kit's table is made: the call is refused with the mistake's status
 *          and a message that names the argument, and y is not touched.
 *
 * A finding ends the process with abort().
 */
#include "fuzz.h"

#include <stdlib.h>

#include "linear_errors.h"
#include "linear_run.h"

enum { MOST_PRODUCTS = 1 << 21 }; /* the oracle is slow */

/* ---- a layer --------------------------------------------------------------------------------- */

/* Lengths around those of the kernels: blocks of 256 inputs, chunks of 4096, tiles of 128 rows and
 * of 768 columns (384 with AVX2). */
static void draw_shape(kit_linear_spec *s, fuzz_bytes *bytes)
{
    const uint32_t rare = fuzz_below(bytes, 64);
    s->rows = fuzz_length(bytes, 20, 300);
    s->in_dim = 1 + (uint32_t)fuzz_length(bytes, 40, 700);
    uint32_t columns = 1 + (uint32_t)fuzz_length(bytes, 120, 900);
    if (rare == 1)
        s->in_dim = 4000 + fuzz_below(bytes, 300), s->rows %= 12;
    const int large = fuzz_rarely(bytes, 100);
    if (large)
        s->rows = 1 + fuzz_below(bytes, 700), s->in_dim = 1 + fuzz_below(bytes, 3000);
    s->heads = fuzz_rarely(bytes, 3) ? fuzz_below(bytes, 6) : 0;
    if (s->heads > 1)
        columns = (columns + s->heads - 1) / s->heads * s->heads;
    while (!large && (int64_t)columns * s->in_dim > MOST_PRODUCTS / 8)
        s->in_dim = (s->in_dim + 1) / 2;
    while (large && s->rows * columns * s->in_dim > 16 * MOST_PRODUCTS)
        columns = s->heads > 1 ? (columns / 2 / s->heads + 1) * s->heads : (columns + 1) / 2;
    while (s->rows * columns * s->in_dim > (large ? 32 : 1) * MOST_PRODUCTS)
        s->rows /= 2;
    s->out_dim = columns;
}

static kit_linear_spec draw(fuzz_bytes *bytes)
{
    kit_linear_spec s = {.rows = 0};
    draw_shape(&s, bytes);
    s.layout = fuzz_below(bytes, 2);
    s.x_type = s.w_type = s.y_type = fuzz_type(bytes);
    if (fuzz_rarely(bytes, 3)) {
        s.w_type = fuzz_type(bytes);
        s.y_type = fuzz_type(bytes);
    }
    s.bias_type = fuzz_byte(bytes) & 1 ? fuzz_type(bytes) : HEED_DTYPE_NONE;
    s.residual = fuzz_below(bytes, 3);
    s.activation = fuzz_below(bytes, 4);
    s.accuracy = fuzz_below(bytes, 4);
    s.values = fuzz_rarely(bytes, 3) ? fuzz_below(bytes, KIT_LINEAR_OVERFLOW + 1) : 0;
    s.seed = fuzz_word(bytes);
    s.places = fuzz_byte(bytes);
    s.memory = fuzz_rarely(bytes, 8) ? fuzz_below(bytes, KIT_LINEAR_MEMORIES) : KIT_LINEAR_DRAWN;
    return s;
}

static const kit_linear_spec *current;

void fuzz_describe(FILE *out)
{
    const kit_linear_spec *s = current;
    if (s)
        fprintf(
            out,
            "rows %lld in %u out %u heads %u layout %u, types x %u w %u y %u bias %u, "
            "activation %u residual %u accuracy %u values %u, memory %u places %llu seed %llu\n",
            (long long)s->rows, s->in_dim, s->out_dim, s->heads, s->layout, s->x_type, s->w_type,
            s->y_type, s->bias_type, s->activation, s->residual, s->accuracy, s->values, s->memory,
            (unsigned long long)s->places, (unsigned long long)s->seed);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Sometimes the description is that of an older caller, if the members that it lacks are zero, or
 * that of a newer one. */
static heed_status make(heed_context *context, const kit_linear *p, uint32_t age,
                        heed_linear **linear)
{
    struct {
        heed_linear_desc desc;
        char tail[40];
    } room = {p->desc, {0}};
    size_t *size = &room.desc.struct_size;
    if (age == 6)
        while (*size > sizeof *size && !((const char *)&room.desc)[*size - 1])
            --*size;
    *size = (*size + sizeof *size - 1) / sizeof *size * sizeof *size; /* whole words, as structs */
    if (age == 7)
        *size = sizeof room;
    const heed_const_view weight = heed_as_const(p->tensor[KIT_LINEAR_W].view);
    const heed_const_view bias = heed_as_const(p->tensor[KIT_LINEAR_BIAS].view);
    return heed_linear_create(context, &room.desc, &weight, p->spec.bias_type ? &bias : NULL,
                              linear);
}

static kit_linear_way draw_way(fuzz_bytes *bytes)
{
    static const int ways[] = {KIT_BY_WORKSPACE, KIT_BY_CONTEXT, KIT_BY_PARTS, KIT_BY_ONE_PART,
                               KIT_BY_EXECUTOR};
    kit_linear_way way = {.how = ways[fuzz_below(bytes, 5)],
                          .n_parts = 1 + fuzz_below(bytes, 5),
                          .garbage = (int)fuzz_byte(bytes)};
    if (fuzz_rarely(bytes, 32))
        way.how = KIT_BY_THREADS;
    return way;
}

static void run_made(const heed_linear *linear, kit_linear *p, fuzz_bytes *bytes, const char *what)
{
    const kit_linear_way way = draw_way(bytes);
    heed_error why = {""};
    p->args.error = fuzz_byte(bytes) & 1 ? &why : NULL;
    kit_linear_seal(p, 1);
    const fuzz_host host = fuzz_host_enter(bytes);
    heed_status st = kit_linear_run_made(linear, p, &way);
    if (fuzz_host_read() != host)
        fuzz_finding(what, "changed the host's floating-point environment");
    fuzz_host_leave();
    kit_linear_open(p);
    if (st != HEED_OK)
        fuzz_finding(what, p->args.error ? why.text : heed_last_error());
}

static void check(kit_linear *p, kit_outcome *outcome)
{
    const kit_tolerance how = kit_tolerance_of(HEED_ACCURACY_EXACT, p->spec.y_type);
    int64_t where;
    if (!kit_linear_untouched(p, &where))
        kit_fail(outcome, "wrote outside the elements of y");
    if (kit_linear_solve(p) != 0)
        return;
    for (int64_t r = 0; r < p->spec.rows; r++)
        for (int64_t c = 0; c < p->spec.out_dim; c++)
            if (!kit_linear_is_right(p, &how, r, c))
                kit_fail(outcome, "y[%lld, %lld] is %.9g, should be %.9g +- %.2g", (long long)r,
                         (long long)c, kit_linear_value(p, KIT_LINEAR_Y, r, c),
                         p->want[r * p->spec.out_dim + c], p->bound[r * p->spec.out_dim + c]);
}

/* Some of the rows, at another place, have the same bits. */
static void some_rows(const heed_linear *linear, const kit_linear *p, fuzz_bytes *bytes,
                      const char *what, kit_outcome *outcome)
{
    kit_linear part = {.args = {0}};
    kit_linear_spec s = p->spec;
    s.first_row = fuzz_below(bytes, (uint32_t)p->spec.rows);
    s.rows = 1 + fuzz_below(bytes, (uint32_t)(p->spec.rows - s.first_row));
    s.places += 1 + fuzz_byte(bytes);
    if (s.residual)
        s.residual = fuzz_byte(bytes) & 1 ? KIT_LINEAR_RESIDUAL : KIT_LINEAR_IN_PLACE;
    if (s.memory == KIT_LINEAR_BROADCAST) /* one row shared by all cannot be moved */
        s.residual = p->spec.residual;
    if (kit_linear_build(&part, &s, fuzz_byte(bytes) & 1) == 0) {
        run_made(linear, &part, bytes, what);
        kit_linear_differ(what, p, s.first_row, &part, outcome);
    }
    kit_linear_free(&part);
}

/* ---- the target ------------------------------------------------------------------------------ */

static void valid(heed_context *context, kit_linear *p, fuzz_bytes *bytes, kit_outcome *outcome)
{
    heed_linear *linear = NULL, *other = NULL;
    heed_context *const avx2 = fuzz_context_of(FUZZ_AVX2), *const avx512 =
                                                               fuzz_context_of(FUZZ_AVX512);
    heed_context *other_width = !avx2 || !avx512    ? NULL
                                : context == avx2   ? avx512
                                : context == avx512 ? avx2
                                                    : NULL;
    const uint32_t age = fuzz_below(bytes, 8);
    const int in_f32 = p->spec.accuracy == HEED_ACCURACY_EXACT ||
                       (p->spec.accuracy != HEED_ACCURACY_SPLIT &&
                        (p->spec.x_type != HEED_BF16 || p->spec.w_type != HEED_BF16));
    kit_linear_seal(p, 0);
    if (kit_status(outcome, make(context, p, age, &linear), heed_last_error(),
                   "heed_linear_create") != 0) {
        kit_linear_open(p);
        return;
    }
    if (other_width && in_f32 && fuzz_rarely(bytes, 4) &&
        make(other_width, p, age, &other) != HEED_OK)
        fuzz_finding("the other width", heed_last_error());
    run_made(linear, p, bytes, "a run");
    check(p, outcome);
    if (p->spec.rows)
        some_rows(linear, p, bytes, "some rows", outcome);
    if (p->spec.rows && other)
        some_rows(other, p, bytes, "the other width", outcome);
    heed_linear_release(linear);
    heed_linear_release(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_bytes bytes = {data, data + size};
    kit_outcome outcome = {.verdict = KIT_PASSED};
    kit_linear p = {.args = {0}};
    const int spoil = fuzz_rarely(&bytes, 4);
    heed_context *context = fuzz_context(&bytes);
    const kit_linear_spec spec = draw(&bytes);
    current = &spec;
    if (kit_linear_build(&p, &spec, fuzz_byte(&bytes) & 1) == 0) {
        if (spoil) {
            const uint32_t which = fuzz_below(&bytes, (uint32_t)kit_linear_mistakes());
            kit_linear_refuses(context, &p, which, fuzz_word(&bytes), &outcome);
        } else {
            valid(context, &p, &bytes, &outcome);
        }
    }
    fuzz_judge(&outcome, context);
    kit_linear_free(&p);
    current = NULL;
    return 0;
}
