/* The structured fuzz target of linear layers.
 *
 * Valid    the layer is made, its weights go, and a run succeeds in one of the ways that there are,
 *          in whatever floating-point environment the host has: only elements of y are written, and
 *          they are the oracle's. Some of its rows, copied elsewhere, run in another way and have
 *          the same bits; so do all of them on the other vector width.
 * Spoilt   the call is refused with a sentence, and y is not touched.
 *
 * A finding ends the process by abort().
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_host.h"
#include "fuzz_linear.h"
#include "linear_run.h"
#include "tolerance.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const kit_linear *current; /* for the report */

static void finding(const char *what, const char *detail)
{
    fuzz_host_leave();
    fprintf(stderr, "finding: %s: %s\n", what, detail);
    if (current) {
        static const char *const name[] = {"x", "w", "bias", "residual", "y"};
        const kit_linear_spec *s = &current->spec;
        fprintf(stderr,
                "rows %lld in %u out %u heads %u layout %u, types x %u w %u y %u bias %u, "
                "activation %u residual %u accuracy %u values %u\n",
                (long long)s->rows, s->in_dim, s->out_dim, s->heads, s->layout, s->x_type,
                s->w_type, s->y_type, s->bias_type, s->activation, s->residual, s->accuracy,
                s->values);
        for (int i = 0; i < KIT_LINEAR_TENSORS; i++)
            fprintf(stderr, "  %s strides %lld %lld\n", name[i],
                    (long long)current->tensor[i].row_stride,
                    (long long)current->tensor[i].col_stride);
    }
    abort();
}

/* ---- contexts ---------------------------------------------------------------------------------
 */

enum { ANY, NAIVE, AVX2, AVX512, AMX, CONTEXTS };

/* Made once, as an engine does; NULL: the machine cannot run it, or HEED_BACKEND forbids it. */
static heed_context *contexts[CONTEXTS];

static void make_contexts(void)
{
    static const char *const name[CONTEXTS] = {NULL, "naive", "avx2", "avx512", "amx"};
    heed_linear_desc plain = {.struct_size = sizeof plain,
                              .in_dim = 1,
                              .out_dim = 1,
                              .x_type = HEED_BF16,
                              .w_type = HEED_BF16,
                              .y_type = HEED_F32};
    for (int i = 0; i < (getenv("HEED_BACKEND") ? 1 : CONTEXTS); i++) {
        heed_context_options options = {
            .struct_size = sizeof options, .n_threads = 1, .backends = name[i]};
        if (heed_context_create(&options, &contexts[i]) != HEED_OK)
            finding("heed_context_create", heed_last_error());
        if (i != ANY && heed_linear_supported(contexts[i], &plain, NULL) != HEED_OK) {
            heed_context_release(contexts[i]);
            contexts[i] = NULL;
        }
    }
}

/* ---- calls ------------------------------------------------------------------------------------
 */

/* Sometimes the description of an older caller, as far as what that lacks is zero, or of a newer
 * one. */
static heed_status make(int which, fuzz_linear *f, uint32_t age, heed_linear **linear)
{
    struct {
        heed_linear_desc desc;
        char tail[40];
    } room = {f->p.desc, {0}};
    size_t *size = &room.desc.struct_size;
    if (age == 6)
        while (*size > sizeof *size && !((const char *)&room.desc)[*size - 1])
            --*size;
    *size = (*size + sizeof *size - 1) / sizeof *size * sizeof *size; /* words, as any struct has */
    if (age == 7)
        *size = sizeof room;
    return heed_linear_create(contexts[which], &room.desc, f->weight_given, f->bias_given, linear);
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
    const fuzz_host host = fuzz_host_enter(bytes);
    heed_status st = kit_linear_run_made(linear, p, &way);
    if (fuzz_host_read() != host)
        finding(what, "changed the host's floating-point environment");
    fuzz_host_leave();
    if (st != HEED_OK)
        finding(what, p->args.error ? p->args.error->text : heed_last_error());
}

/* ---- judging ----------------------------------------------------------------------------------
 */

static void judge(kit_linear *p)
{
    const kit_tolerance how = kit_tolerance_of(HEED_ACCURACY_EXACT, p->spec.y_type);
    char text[200];
    int64_t where;
    if (!kit_linear_untouched(p, &where))
        finding("a run", "wrote outside the elements of y");
    if (kit_linear_solve(p) != 0)
        return;
    for (int64_t r = 0; r < p->spec.rows; r++)
        for (int64_t c = 0; c < p->spec.out_dim; c++) {
            const int64_t at = r * p->spec.out_dim + c;
            const double got = kit_linear_value(p, KIT_LINEAR_Y, r, c);
            if (!kit_linear_is_right(p, &how, r, c)) {
                snprintf(text, sizeof text, "y[%lld, %lld] is %.9g, should be %.9g +- %.2g",
                         (long long)r, (long long)c, got, p->want[at], p->bound[at]);
                finding("the oracle", text);
            }
        }
}

/* Elements of rows [first, first + rows) one after the other, at an odd address if slack is. */
static unsigned char *gather(const kit_linear *p, int tensor, int64_t first, int64_t rows,
                             size_t slack)
{
    const kit_matrix *m = &p->tensor[tensor];
    unsigned char *memory = malloc((size_t)(rows * m->cols) * m->bytes + slack + 1), *to;
    if (!memory)
        return NULL;
    to = memory + slack;
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t c = 0; c < m->cols; c++, to += m->bytes)
            memcpy(to, m->buffer.data + kit_linear_at(m, r, c), m->bytes);
    return memory;
}

/* Some rows, dense: the same bits. */
static void some_rows(const heed_linear *linear, const kit_linear *p, fuzz_bytes *bytes,
                      const char *what)
{
    const int64_t first = fuzz_below(bytes, (uint32_t)p->spec.rows);
    const int64_t rows = 1 + fuzz_below(bytes, (uint32_t)(p->spec.rows - first));
    const size_t slack = fuzz_below(bytes, 8), slack_2 = fuzz_below(bytes, 8);
    const kit_matrix *y = &p->tensor[KIT_LINEAR_Y];
    const size_t n = (size_t)(rows * y->cols) * y->bytes;
    unsigned char *x = gather(p, KIT_LINEAR_X, first, rows, slack);
    unsigned char *want = gather(p, KIT_LINEAR_Y, first, rows, 0);
    unsigned char *residual = p->spec.residual ? gather(p, KIT_LINEAR_R, first, rows, slack) : NULL;
    unsigned char *got = malloc(n + slack_2 + 1);
    if (x && want && got && (residual || !p->spec.residual)) {
        const int in_place = residual && fuzz_byte(bytes) & 1;
        kit_linear part = *p;
        memset(got, 0x77, n + slack_2 + 1);
        if (in_place)
            memcpy(got + slack_2, residual + slack, n);
        part.args.rows = rows;
        part.args.x = (heed_const_view){x + slack, {p->spec.in_dim, 1}};
        part.args.y = (heed_view){got + slack_2, {p->spec.out_dim, 1}};
        if (residual)
            part.args.residual = in_place
                                     ? heed_as_const(part.args.y)
                                     : (heed_const_view){residual + slack, {p->spec.out_dim, 1}};
        run_made(linear, &part, bytes, what);
        if (memcmp(want, got + slack_2, n) != 0)
            finding(what, "other bits than the whole");
    }
    free(x);
    free(want);
    free(residual);
    free(got);
}

/* ---- the target -------------------------------------------------------------------------------
 */

static void valid(int which, fuzz_linear *f, fuzz_bytes *bytes)
{
    kit_linear *p = &f->p;
    heed_linear *linear = NULL, *other = NULL;
    const uint32_t age = fuzz_below(bytes, 8);
    const int other_width = which == AVX2 ? AVX512 : which == AVX512 ? AVX2 : ANY;
    const int in_f32 = p->spec.accuracy == HEED_ACCURACY_EXACT ||
                       (p->spec.accuracy != HEED_ACCURACY_SPLIT &&
                        (p->spec.x_type != HEED_BF16 || p->spec.w_type != HEED_BF16));
    kit_linear_seal(p, 0);
    heed_status st = make(which, f, age, &linear);
    if (st == HEED_ERR_UNSUPPORTED && (which != ANY || getenv("HEED_BACKEND"))) {
        kit_linear_open(p);
        return; /* a backend alone may refuse */
    }
    if (st != HEED_OK)
        finding("heed_linear_create", heed_last_error());
    if (other_width != ANY && contexts[other_width] && in_f32 && fuzz_rarely(bytes, 4) &&
        make(other_width, f, age, &other) != HEED_OK)
        finding("the other width", heed_last_error());
    kit_linear_seal(p, 1);
    run_made(linear, p, bytes, "a run");
    kit_linear_open(p);
    judge(p);
    if (p->spec.rows)
        some_rows(linear, p, bytes, "some rows");
    if (p->spec.rows && other)
        some_rows(other, p, bytes, "the other width");
    heed_linear_release(linear);
    heed_linear_release(other);
}

static void spoilt(int which, fuzz_linear *f, fuzz_bytes *bytes)
{
    fuzz_linear_refusal r = fuzz_linear_spoil(contexts[which], f, bytes);
    if (!r.what)
        return;
    if (r.status == HEED_OK || r.status == HEED_ERR_BACKEND)
        finding(r.what, r.status == HEED_OK ? "accepted" : "left to the backend");
    if (r.sentence.text[0] == '\0')
        finding(r.what, "refused without a sentence");
    if (r.touched)
        finding(r.what, "refused, but something was written");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_bytes bytes = {data, data + size};
    fuzz_linear layer;
    int spoil = fuzz_rarely(&bytes, 4);
    int which = (int)fuzz_below(&bytes, CONTEXTS);

    if (!contexts[ANY])
        make_contexts();
    if (!contexts[which])
        which = ANY;
    if (fuzz_linear_build(&layer, &bytes) == 0) {
        current = &layer.p;
        if (spoil)
            spoilt(which, &layer, &bytes);
        else
            valid(which, &layer, &bytes);
        current = NULL;
    }
    kit_linear_free(&layer.p);
    return 0;
}
