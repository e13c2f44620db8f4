/* FLASH_ATTN_EXT by ggml's C interface on the backend Heed: the error against float64, to 131072
 * keys whose values have mean 1, where sums of f16 lose all their digits; that a backend which
 * is made, used and freed a hundred times leaks no memory; that the memory of calls is told of
 * the plans that ran; and that what is not supported fails. Prints a line for each; ends with 1 if one fails.
 *
 * Usage: op_test [few]     few: only the error, of small problems, for backends of few features */
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIM = 64, HEADS = 4, KV_HEADS = 2 };

#define MOST_ERROR 1e-6 /* relative to the greatest number of the result */

static ggml_backend_dev_t device;
static uint32_t state = 1;

static float draw(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / (1 << 23) - 1;
}

/* The operation on random numbers of `type`, its causal mask, and memory that holds all of them. */
typedef struct problem {
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *q, *k, *v, *mask, *out;
} problem;

/* Fills t with numbers that its type holds exactly, so that nothing is rounded later. */
static void fill(struct ggml_tensor *t, float mean)
{
    const struct ggml_type_traits *traits = ggml_get_type_traits(t->type);
    const int64_t n = ggml_nelements(t);
    for (int64_t i = 0; i < n; i++) {
        const float x = mean + draw();
        if (t->type == GGML_TYPE_F32)
            ((float *)t->data)[i] = x;
        else
            traits->from_float_ref(&x, (char *)t->data + i * (int64_t)traits->type_size, 1);
    }
}

static float read_one(const struct ggml_tensor *t, int64_t i)
{
    const struct ggml_type_traits *traits = ggml_get_type_traits(t->type);
    float x = 0;
    if (t->type == GGML_TYPE_F32)
        return ((const float *)t->data)[i];
    traits->to_float((const char *)t->data + i * (int64_t)traits->type_size, &x, 1);
    return x;
}

static problem make(ggml_backend_t backend, enum ggml_type type, int64_t rows, int64_t keys)
{
    problem p = {.context = ggml_init((struct ggml_init_params){1 << 20, NULL, 1})};
    p.q = ggml_new_tensor_3d(p.context, GGML_TYPE_F32, DIM, rows, HEADS);
    p.k = ggml_new_tensor_3d(p.context, type, DIM, keys, KV_HEADS);
    p.v = ggml_new_tensor_3d(p.context, type, DIM, keys, KV_HEADS);
    p.mask = ggml_new_tensor_2d(p.context, GGML_TYPE_F16, keys, rows);
    p.out = ggml_flash_attn_ext(p.context, p.q, p.k, p.v, p.mask, 0.125f, 0, 0);
    p.buffer = ggml_backend_alloc_ctx_tensors(p.context, backend);
    fill(p.q, 0);
    fill(p.k, 0);
    fill(p.v, 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < keys; j++)
            ((uint16_t *)p.mask->data)[i * keys + j] = j <= keys - rows + i ? 0 : 0xfc00;
    return p;
}

static int compute(ggml_backend_t backend, const problem *p)
{
    struct ggml_cgraph *graph = ggml_new_graph(p->context);
    ggml_build_forward_expand(graph, p->out);
    return ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS;
}

static void release(problem *p)
{
    ggml_backend_buffer_free(p->buffer);
    ggml_free(p->context);
}

/* Computes row i of head h in f64. weight has room for a number for each key. */
static void by_hand(const problem *p, int64_t h, int64_t i, double *weight, double *out)
{
    const int64_t keys = p->k->ne[1], rows = p->q->ne[1], kv = h / (HEADS / KV_HEADS);
    const int64_t seen = keys - rows + i + 1;
    double top = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < seen; j++) {
        double s = 0;
        for (int64_t d = 0; d < DIM; d++)
            s += (double)read_one(p->q, (h * rows + i) * DIM + d) *
                 (double)read_one(p->k, (kv * keys + j) * DIM + d);
        weight[j] = s * 0.125;
        top = fmax(top, weight[j]);
    }
    for (int64_t d = 0; d < DIM; d++)
        out[d] = 0;
    for (int64_t j = 0; j < seen; j++) {
        const double w = exp(weight[j] - top);
        sum += w;
        for (int64_t d = 0; d < DIM; d++)
            out[d] += w * (double)read_one(p->v, (kv * keys + j) * DIM + d);
    }
    for (int64_t d = 0; d < DIM; d++)
        out[d] /= sum;
}

static int check(ggml_backend_t backend, enum ggml_type type, int64_t rows, int64_t keys)
{
    problem p = make(backend, type, rows, keys);
    double *weight = malloc((size_t)keys * sizeof *weight), want[DIM], error = 0, size = 0;
    const int failed = !ggml_backend_supports_op(backend, p.out) || compute(backend, &p);
    for (int64_t h = 0; h < HEADS && !failed; h++)
        for (int64_t i = 0; i<rows; i += rows> 1 ? rows - 1 : 1) {
            by_hand(&p, h, i, weight, want);
            for (int64_t d = 0; d < DIM; d++) { /* [dim, head, row] */
                const float is = ((const float *)p.out->data)[(i * HEADS + h) * DIM + d];
                error = fmax(error, fabs((double)is - want[d]));
                size = fmax(size, fabs(want[d]));
            }
        }
    const int bad = failed || !(error <= MOST_ERROR * size);
    printf("%-5s %4d rows %7d keys: %s %.1e\n", ggml_type_name(type), (int)rows, (int)keys,
           bad ? "BAD" : "good", error / size);
    fflush(stdout);
    free(weight);
    release(&p);
    return bad;
}

static size_t in_use(void)
{
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* Measures after the first few backends, since those make what stays for the process. A block of
 * malloc's is 32 bytes at least, and blocks that it keeps in the thread's lists for the next call
 * count as in use: less than one block for each backend is no leak. */
static int check_leaks(void)
{
    size_t before = 0;
    int bad = 0;
    for (int i = 0; i < 105 && !bad; i++) {
        ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
        problem p = make(backend, GGML_TYPE_F16, 3, 300);
        bad = compute(backend, &p);
        release(&p);
        ggml_backend_free(backend);
        before = i == 4 ? in_use() : before;
    }
    const size_t after = in_use();
    bad |= after >= before + 100 * 32;
    printf("100 backends made, used and freed: %s, %lld bytes more\n", bad ? "BAD" : "good",
           (long long)after - (long long)before);
    return bad;
}

/* What a backend says of the memory of its calls. */
typedef struct told {
    int plans, lines;                /* of plans and of memory */
    unsigned long workspace, beside; /* bytes */
    unsigned threads;
} told;

static told read_told(FILE *said)
{
    char line[512];
    told t = {0};
    while (fgets(line, sizeof line, said)) {
        t.plans += strncmp(line, "heed: plan ", 11) == 0;
        t.lines += sscanf(line, "heed: memory of calls: workspace %lu bytes on %u threads, %lu for",
                          &t.workspace, &t.threads, &t.beside) == 3;
    }
    return t;
}

/* What is written to stderr from here on is kept in a file. */
static FILE *listen_on(int *kept)
{
    FILE *said = tmpfile();
    *kept = dup(STDERR_FILENO);
    if (!said || *kept < 0)
        exit(1);
    fflush(stderr);
    dup2(fileno(said), STDERR_FILENO);
    return said;
}

static void end_listening(FILE *said, int kept)
{
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(said);
}

/* Has a new backend compute a call of so many rows, on as many threads as are asked for, 0: none are. The
 * mask, with a 1 in each row, is no form that Heed has, so that there is one plan. */
static int tell(int64_t rows, int threads, told *to)
{
    void (*set)(ggml_backend_t, int) = NULL;
    void *address = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                      "ggml_backend_set_n_threads");
    int kept;
    FILE *said = listen_on(&kept);
    memcpy(&set, &address, sizeof set); /* C has no cast for it */
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    if (threads)
        set(backend, threads);
    problem p = make(backend, GGML_TYPE_F16, rows, 1300);
    for (int64_t i = 0; i < rows; i++)
        ((uint16_t *)p.mask->data)[i * 1300] = 0x3c00;
    const int bad = compute(backend, &p);
    release(&p);
    ggml_backend_free(backend);
    end_listening(said, kept);
    *to = read_told(said);
    fclose(said);
    return bad;
}

/* Checks that a call says why there is no context for it, such as a variable that was set since. */
static int check_no_context(void)
{
    char line[512] = "";
    int kept, bad = 1;
    FILE *said = listen_on(&kept);
    setenv("HEED_MAX_ISA", "none", 1);
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    problem p = make(backend, GGML_TYPE_F16, 1, 30);
    const int failed = compute(backend, &p);
    release(&p);
    ggml_backend_free(backend);
    unsetenv("HEED_MAX_ISA");
    end_listening(said, kept);
    while (fgets(line, sizeof line, said))
        bad &= !strstr(line, "HEED_MAX_ISA is 'none'");
    fclose(said);
    bad |= !failed;
    printf("a variable that is wrong later: %s\n", bad ? "BAD" : "good");
    return bad;
}

/* Checks that the memory of a call is told of the plan that it ran: no other is made for that; and of
 * its threads, whether ggml has asked for some or not. Beside it there are 8 spans of 8 bytes a row. */
static int check_told(void)
{
    told chosen, asked, one;
    setenv("HEED_VERBOSE", "plan", 1);
    setenv("HEED_NUM_THREADS", "3", 1);
    int bad = tell(100, 0, &chosen) | tell(100, 2, &asked) | tell(1, 2, &one);
    unsetenv("HEED_VERBOSE");
    unsetenv("HEED_NUM_THREADS");
    bad |=
        chosen.plans != 4 || chosen.lines != 1; /* a line of the plan for each class of queries */
    bad |= one.plans != 1 || one.lines != 1 || one.workspace >= asked.workspace;
    bad |= chosen.threads != 3 || asked.threads != 2 || chosen.workspace <= asked.workspace;
    bad |= chosen.beside < 6400 || chosen.beside > 16384;
    printf("the memory of a call: %s, %d lines of plans, %d of memory, %lu bytes on %u threads, "
           "%lu on %u, %lu beside it; of a row %d lines of plans, %lu bytes\n",
           bad ? "BAD" : "good", chosen.plans, chosen.lines, chosen.workspace, chosen.threads,
           asked.workspace, asked.threads, chosen.beside, one.plans, one.workspace);
    return bad;
}

/* Computes one operation. Returns 1 if that succeeds. */
static int computes(ggml_backend_t backend, struct ggml_context *context, struct ggml_tensor *op)
{
    const problem p = {.context = context, .out = op};
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    ggml_backend_buffer_clear(buffer, 0);
    const int good = !compute(backend, &p);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    return good;
}

/* Checks that what a program has computed without having asked whether it is supported fails if it is not. */
static int check_refused(ggml_backend_t backend)
{
    struct ggml_context *c[3];
    struct ggml_tensor *op[3];
    for (int i = 0; i < 3; i++) {
        c[i] = ggml_init((struct ggml_init_params){1 << 20, NULL, 1});
        struct ggml_tensor *q = ggml_new_tensor_3d(c[i], GGML_TYPE_F32, DIM, 3, HEADS);
        struct ggml_tensor *k = ggml_new_tensor_3d(c[i], GGML_TYPE_F16, DIM, 20, 1);
        struct ggml_tensor *mask = ggml_new_tensor_3d(c[i], GGML_TYPE_F16, 20, 3, HEADS / 2);
        struct ggml_tensor *w = ggml_new_tensor_3d(c[i], GGML_TYPE_F16, DIM, 20, HEADS);
        op[i] = i == 0   ? ggml_add(c[i], q, q)
                : i == 1 ? ggml_flash_attn_ext(c[i], q, k, k, mask, 0.125f, 0, 0)
                         : ggml_mul_mat(c[i], w, q);
    }
    int good = 0;
    for (int i = 0; i < 3; i++)
        good += computes(backend, c[i], op[i]);
    printf("operations that are not supported: %s\n", good ? "BAD" : "good");
    return good != 0;
}

int main(int argc, char **argv)
{
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
    int bad = 0;
    ggml_backend_load_all();
    device = ggml_backend_dev_by_name("Heed");
    ggml_backend_t backend = device ? ggml_backend_dev_init(device, NULL) : NULL;
    if (!backend) {
        fprintf(stderr, "the backend Heed is not loaded: set GGML_BACKEND_PATH\n");
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "few") == 0)
        return check(backend, GGML_TYPE_F32, 1, 300) | check(backend, GGML_TYPE_F16, 20, 300);
    for (int64_t keys = 4096; keys <= 131072; keys = keys == 4096 ? 16384 : keys * 8)
        for (int type = 0; type < 3; type++) {
            bad |= check(backend, types[type], 1, keys);
            bad |= check(backend, types[type], 64, keys);
        }
    bad |= check_refused(backend);
    ggml_backend_free(backend);
    bad |= check_leaks();
    bad |= check_told();
    bad |= check_no_context();
    return bad;
}
