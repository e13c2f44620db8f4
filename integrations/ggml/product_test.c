/* MUL_MAT by ggml's C interface on the backend Heed: the error against float64; what is
 * claimed and what is not; that weights are packed once for all backends, within the bound,
 * again when they were changed, and are freed with the last backend. Prints a line for each;
 * ends with 1 if one fails. */
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ggml-backend-impl.h"

enum { IN = 1031, OUT = 1042, ROWS = 24, BATCH = 3 };

#define MOST_ERROR 1e-6 /* relative to the greatest number of the result */

static ggml_backend_dev_t device;
static uint32_t state = 1;
static int bad;

static void say(int good, const char *what, const char *of)
{
    printf("%-5s %s: %s\n", of, what, good ? "good" : "BAD");
    fflush(stdout);
    bad |= !good;
}

/* Rounds x to a number that the type holds exactly, so that nothing is rounded later. */
static float round_to(enum ggml_type type, float x)
{
    const struct ggml_type_traits *traits = ggml_get_type_traits(type);
    uint16_t half;
    if (type == GGML_TYPE_F32)
        return x;
    traits->from_float_ref(&x, &half, 1);
    traits->to_float(&half, &x, 1);
    return x;
}

static float number(const struct ggml_tensor *t, const char *at)
{
    const struct ggml_type_traits *traits = ggml_get_type_traits(t->type);
    float x;
    if (t->type == GGML_TYPE_F32)
        return memcpy(&x, at, sizeof x), x;
    traits->to_float(at, &x, 1);
    return x;
}

/* New numbers for the rows [first, end) of a tensor without gaps. */
static void fill_rows(struct ggml_tensor *t, int64_t first, int64_t end)
{
    const struct ggml_type_traits *traits = ggml_get_type_traits(t->type);
    for (int64_t i = first * t->ne[0]; i < end * t->ne[0]; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(state >> 8) / (1 << 23) - 1;
        if (t->type == GGML_TYPE_F32)
            ((float *)t->data)[i] = x;
        else
            traits->from_float_ref(&x, (char *)t->data + i * (int64_t)traits->type_size, 1);
    }
}

static void fill(struct ggml_tensor *t)
{
    fill_rows(t, 0, ggml_nrows(t));
}

/* A product: the rows of w and the batches of x have gaps between them; each has its own memory. */
typedef struct problem {
    struct ggml_context *context[2];
    ggml_backend_buffer_t buffer[2];
    struct ggml_tensor *all, *w, *x, *out;
} problem;

static problem make_batch(ggml_backend_t backend, enum ggml_type type, int64_t rows, int64_t batch,
                          int are_weights)
{
    problem p;
    for (int i = 0; i < 2; i++)
        p.context[i] = ggml_init((struct ggml_init_params){1 << 22, NULL, 1});
    p.all = ggml_new_tensor_2d(p.context[0], type, IN + 9, OUT);
    p.buffer[0] = ggml_backend_alloc_ctx_tensors(p.context[0], backend);
    if (are_weights)
        ggml_backend_buffer_set_usage(p.buffer[0], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    p.w = ggml_view_2d(p.context[0], p.all, IN, OUT, p.all->nb[1], 0);
    ggml_backend_view_init(p.w);
    struct ggml_tensor *x = ggml_new_tensor_3d(p.context[1], GGML_TYPE_F32, IN, rows + 1, batch);
    p.x = ggml_view_3d(p.context[1], x, IN, rows, batch, x->nb[1], x->nb[2], 0);
    p.out = ggml_mul_mat(p.context[1], p.w, p.x);
    p.buffer[1] = ggml_backend_alloc_ctx_tensors(p.context[1], backend);
    fill(p.all);
    fill(x);
    return p;
}

static problem make(ggml_backend_t backend, enum ggml_type type, int64_t rows, int are_weights)
{
    return make_batch(backend, type, rows, BATCH, are_weights);
}

static int compute(ggml_backend_t backend, const problem *p)
{
    struct ggml_cgraph *graph = ggml_new_graph(p->context[1]);
    ggml_build_forward_expand(graph, p->out);
    memset(p->out->data, 0xff, ggml_nbytes(p->out));
    return ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS;
}

static void release(problem *p)
{
    for (int i = 0; i < 2; i++) {
        ggml_backend_buffer_free(p->buffer[i]);
        ggml_free(p->context[i]);
    }
}

/* Is the product right, in every column of some rows? */
static int is_right(const problem *p)
{
    double error = 0, size = 0;
    for (int64_t n = 0; n < BATCH * p->x->ne[1]; n += 7)
        for (int64_t c = 0; c < OUT; c++) {
            const int64_t b = n / p->x->ne[1], r = n % p->x->ne[1];
            const char *x = (const char *)p->x->data + (size_t)b * p->x->nb[2];
            const char *w = (const char *)p->w->data + (size_t)c * p->w->nb[1];
            double sum = 0;
            for (int64_t i = 0; i < IN; i++)
                sum += (double)round_to(p->w->type, ((const float *)(const void *)x)[r * IN + i]) *
                       (double)number(p->w, w + (size_t)i * p->w->nb[0]);
            error = fmax(error, fabs(sum - (double)((const float *)p->out->data)[n * OUT + c]));
            size = fmax(size, fabs(sum));
        }
    return error <= MOST_ERROR * size;
}

static size_t in_use(void)
{
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* Checks that weights that change in part are packed again: a 256th of the rows before a product of
 * many rows, a 32nd before one of a row, a 256th before the last eight of those. */
static void check_changes(ggml_backend_t backend, problem *many, problem *few)
{
    const char *name = ggml_type_name(many->w->type);
    for (int64_t first = 0; first + OUT / 32 + 2 <= OUT; first += OUT / 3) {
        fill_rows(many->all, first, first + OUT / 256 + 1);
        say(!compute(backend, many) && is_right(many), "a 256th of its rows changed", name);
        fill_rows(few->all, first, first + OUT / 32 + 2);
        say(!compute(backend, few) && is_right(few), "a 32nd changed before one row", name);
        fill_rows(few->all, first, first + OUT / 256 + 1);
        int failed = 0;
        for (int call = 0; call < 8; call++)
            failed |= compute(backend, few);
        say(!failed && is_right(few), "a 256th changed eight rows ago", name);
    }
}

/* Checks that weights give right products, are packed once for two backends, packed again when
 * changed, and freed with the backends. */
static void check_packing(enum ggml_type type)
{
    const char *name = ggml_type_name(type);
    ggml_backend_t backend[2];
    for (int i = 0; i < 2; i++)
        backend[i] = ggml_backend_dev_init(device, NULL);
    problem p = make(backend[0], type, ROWS, 1), few = make(backend[0], type, 1, 1);
    setenv("HEED_GGML", "matmul:all", 1);
    say(ggml_backend_supports_op(backend[0], p.out) &&
            ggml_backend_supports_op(backend[0], few.out),
        "is claimed", name);
    say(!compute(backend[0], &few) && is_right(&few), "a row is right", name);
    say(!compute(backend[1], &few) && is_right(&few), "by a second backend, too", name);
    const size_t packed = IN * OUT * ggml_type_size(type), none = in_use();
    say(!compute(backend[0], &p) && is_right(&p), "rows are right", name);
    const size_t once = in_use();
    say(once >= none + packed, "weights are packed", name);
    say(!compute(backend[0], &p) && !compute(backend[1], &p) && is_right(&p),
        "once more, and by the other", name);
    say(in_use() < once + packed, "they are packed once", name);
    fill(p.all);
    say(!compute(backend[1], &p) && is_right(&p), "other weights in the same place", name);
    check_changes(backend[1], &p, &few);
    ggml_backend_free(backend[0]);
    const size_t left = in_use();
    say(!compute(backend[1], &p) && is_right(&p) && in_use() < left + packed / 2,
        "they stay with the second", name);
    const size_t before = in_use();
    ggml_backend_free(backend[1]);
    say(in_use() + 2 * packed < before, "they are gone with both", name);
    release(&p);
    release(&few);
}

/* Checks that weights that do not stay are packed for each call. */
static void check_passing(ggml_backend_t backend, enum ggml_type type)
{
    problem p = make(backend, type, ROWS, 0);
    setenv("HEED_GGML", "matmul:all", 1);
    say(ggml_backend_supports_op(backend, p.out) && !compute(backend, &p) && is_right(&p),
        "of a passing matrix", ggml_type_name(type));
    const size_t before = in_use();
    say(!compute(backend, &p) && in_use() < before + 4096, "nothing of it is kept",
        ggml_type_name(type));
    unsetenv("HEED_GGML");
    say(!ggml_backend_supports_op(backend, p.out), "which is left to ggml", ggml_type_name(type));
    release(&p);
}

static int claims(ggml_backend_t backend, const problem *p, const char *wanted, const char *mib)
{
    setenv("HEED_GGML", wanted, 1);
    setenv("HEED_GGML_PACK_MIB", mib, 1);
    const int claimed = ggml_backend_supports_op(backend, p->out);
    unsetenv("HEED_GGML_PACK_MIB");
    return claimed;
}

/* The most rows, up to 15, of weights of 2 MiB (f32: 4) that Heed is to claim on this CPU if it claims
 * many. one: is one row among them? */
static int most_few(enum ggml_type type, int *one)
{
    *one = type == GGML_TYPE_F16;
#if defined(__x86_64__)
    if (__builtin_cpu_is("intel") && *one) /* an Ice Lake, its followers */
        return __builtin_cpu_supports("avx512f") && !__builtin_cpu_supports("avx512bf16") ? 7 : 3;
    if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512vp2intersect")) /* a Zen 5 */
        return 15;
#endif
    *one = 0;
    return 0;
}

/* Checks which numbers of rows are claimed that are too little work to be claimed everywhere. */
static void check_few(enum ggml_type type)
{
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem many = make(backend, type, ROWS, 1);
    int one = 0, wrong = 0;
    const int most = claims(backend, &many, "matmul", "100") ? most_few(type, &one) : 0;
    for (int rows = 1; rows <= 15; rows++) {
        problem few = make_batch(backend, type, rows, 1, 1);
        const int wanted = rows <= most && (rows > 1 || one);
        wrong += claims(backend, &few, "matmul", "100") != wanted;
        release(&few);
    }
    say(!wrong, "few rows are claimed where they gain", ggml_type_name(type));
    release(&many);
    ggml_backend_free(backend);
}

/* Checks options and the bound: 6 MiB have room for one of two matrices of 5 MiB. */
static void check_claims(void)
{
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(backend, GGML_TYPE_F32, ROWS, 1), q = make(backend, GGML_TYPE_F32, ROWS, 1);
    say(!claims(backend, &p, "off", "100") && !claims(backend, &p, "attention", "100"),
        "is left to ggml where HEED_GGML says so", "f32");
    say(!claims(backend, &p, "matmul:all", "0"), "there is a bound", "f32");
    say(claims(backend, &p, "matmul:all", "6") && claims(backend, &p, "matmul:all", "6"),
        "one has room", "f32");
    say(!claims(backend, &q, "matmul:all", "6"), "two have not", "f32");
    say(!compute(backend, &p) && is_right(&p) && !compute(backend, &q) && is_right(&q),
        "both are right", "f32");
    ggml_backend_free(backend);
    backend = ggml_backend_dev_init(device, NULL);
    say(claims(backend, &q, "matmul:all", "6"), "its room is free again", "f32");
    ggml_backend_free(backend);
    release(&p);
    release(&q);
}

/* Checks that what is claimed and never computed keeps no room: not from claims after a backend was
 * freed, nor from what is computed. The same bound. */
static void check_unused(void)
{
    ggml_backend_t gone = ggml_backend_dev_init(device, NULL);
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(backend, GGML_TYPE_F32, ROWS, 1), q = make(backend, GGML_TYPE_F32, ROWS, 1);
    const size_t packed = IN * OUT * sizeof(float);
    say(claims(gone, &p, "matmul:all", "6") && !claims(backend, &q, "matmul:all", "6"),
        "a claim has room", "f32");
    ggml_backend_free(gone);
    say(claims(backend, &q, "matmul:all", "6"), "until a backend goes", "f32");
    setenv("HEED_GGML_PACK_MIB", "0", 1); /* memory for work alone */
    compute(backend, &p);
    const size_t none = in_use();
    setenv("HEED_GGML_PACK_MIB", "6", 1);
    say(!compute(backend, &p) && is_right(&p) && in_use() >= none + packed,
        "what is computed has it first", "f32");
    const size_t once = in_use();
    say(!compute(backend, &q) && is_right(&q) && in_use() < once + packed / 2,
        "the other is packed for a call", "f32");
    unsetenv("HEED_GGML_PACK_MIB");
    ggml_backend_free(backend);
    release(&p);
    release(&q);
}

/* What is written to stderr from here on is kept in a file. */
typedef struct listener {
    FILE *said;
    int kept;
} listener;

static listener listen_on(void)
{
    const listener to = {tmpfile(), dup(STDERR_FILENO)};
    if (!to.said || to.kept < 0)
        exit(1);
    fflush(stderr);
    dup2(fileno(to.said), STDERR_FILENO);
    return to;
}

/* In how many lines is the text? Ends listening. */
static int count_said(const listener *from, const char *text)
{
    char line[512];
    int n = 0;
    fflush(stderr);
    dup2(from->kept, STDERR_FILENO);
    close(from->kept);
    rewind(from->said);
    while (fgets(line, sizeof line, from->said))
        n += strstr(line, text) != NULL;
    fclose(from->said);
    return n;
}

/* Checks that a bound that is no number is said once and ignored, and an empty one is as none. */
static void check_wrong_bound(void)
{
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(backend, GGML_TYPE_F32, ROWS, 1);
    const listener to = listen_on();
    say(claims(backend, &p, "matmul:all", ""), "an empty bound is as none", "f32");
    ggml_backend_free(backend);
    backend = ggml_backend_dev_init(device, NULL);
    say(claims(backend, &p, "matmul:all", "1k"), "a wrong bound is ignored", "f32");
    ggml_backend_free(backend);
    backend = ggml_backend_dev_init(device, NULL);
    claims(backend, &p, "matmul:all", "1k");
    ggml_backend_free(backend);
    say(count_said(&to, "HEED_GGML_PACK_MIB is '1k'") == 1, "it is said once", "f32");
    release(&p);
}

/* Checks what is said of a matrix of 4.6 MiB that a bound of 4 has no room for. */
static void check_said_bound(void)
{
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(backend, GGML_TYPE_F32, ROWS, 1);
    setenv("HEED_VERBOSE", "plan", 1);
    const listener to = listen_on();
    claims(backend, &p, "matmul:all", "4");
    say(count_said(&to, "would take 5 MiB with it, HEED_GGML_PACK_MIB allows 4") == 1,
        "a bound that is too small is said", "f32");
    unsetenv("HEED_VERBOSE");
    ggml_backend_free(backend);
    release(&p);
}

/* Checks that weights in a memory that is not the host's have no room kept for them, and their products
 * are left to ggml, which would bring a copy of them for each. */
static void check_device_weights(void)
{
    struct ggml_backend_buffer_type type = *ggml_backend_cpu_buffer_type();
    type.iface.is_host = NULL;
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(backend, GGML_TYPE_F32, ROWS, 1), q = make(backend, GGML_TYPE_F32, ROWS, 1);
    ggml_backend_buffer_type_t usual = p.buffer[0]->buft;
    p.buffer[0]->buft = &type;
    claims(backend, &p, "matmul:all", "6");
    say(claims(backend, &q, "matmul:all", "6"), "weights of a device take no room", "f32");
    say(!claims(backend, &p, "matmul", "100"), "nor are their products claimed", "f32");
    p.buffer[0]->buft = usual;
    ggml_backend_free(backend);
    release(&p);
    release(&q);
}

/* Checks that products whose x may not be rounded to the weights' type are left to ggml. */
static void check_precision(enum ggml_type type)
{
    static const enum ggml_prec precisions[] = {GGML_PREC_UNDEFINED, GGML_PREC_F32, GGML_PREC_BF16,
                                                GGML_PREC_F16, GGML_PREC_Q8};
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(backend, type, ROWS, 1);
    const int first = type == GGML_TYPE_F32 ? 1 : type == GGML_TYPE_BF16 ? 2 : 3;
    int wrong = 0;
    for (int i = 0; i < 5; i++) {
        wrong += !ggml_prec_set_src(p.out, precisions[i], 1);
        wrong += claims(backend, &p, "matmul:all", "100") != (!i || i >= first);
    }
    say(!wrong, "what is asked of x's precision", ggml_type_name(type));
    ggml_backend_free(backend);
    release(&p);
}

/* Checks a product in a child of a process that had OpenMP's threads, whose child has none of them,
 * and no product of Heed's. */
static void check_child(void)
{
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(cpu, GGML_TYPE_F16, ROWS, 1);
    int status = 1;
    const int failed = compute(cpu, &p);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60); /* it would wait for ever */
        _exit(compute(backend, &p) || !is_right(&p));
    }
    say(!failed && child > 0 && waitpid(child, &status, 0) == child && status == 0,
        "in a child process", "f16");
    ggml_backend_free(backend);
    ggml_backend_free(cpu);
    release(&p);
}

int main(void)
{
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
    ggml_backend_load_all();
    device = ggml_backend_dev_by_name("Heed");
    if (!device) {
        fprintf(stderr, "the backend Heed is not loaded: set GGML_BACKEND_PATH\n");
        return 1;
    }
    check_child(); /* before any product */
    for (int i = 0; i < 3; i++)
        check_packing(types[i]);
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    for (int i = 0; i < 3; i++)
        check_passing(backend, types[i]);
    ggml_backend_free(backend);
    check_claims();
    for (int i = 0; i < 3; i++) {
        check_few(types[i]);
        check_precision(types[i]);
    }
    check_unused();
    check_wrong_bound();
    check_said_bound();
    check_device_weights();
    return bad;
}
