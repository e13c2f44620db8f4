/* heed-mpi-run: attention on .npy files by the ranks of an MPI program. Each reads only its own
 * keys (and, where rows are apart, rows), and all write what they have of out into one file. */
#include "cli.h"
#include "slice.h"

#include <heed/mpi.h>
#include <stdlib.h>

static const char usage[] =
    "mpirun -np N heed-mpi-run --query q.npy --key k.npy --value v.npy --out o.npy [OPTIONS]\n\n"
    "What heed run computes, by N ranks of which each holds a part of the keys. Files hold f2, f4 "
    "or\n"
    "f8 in C order, [batch, q_heads, q_len, dim] for q and out, [batch, kv_heads, kv_len, dim] for "
    "k\n"
    "and v. Exit status: 0; 1 a run failed; 2 bad usage, files or shapes; 3 the backend refuses.";

static const heed_cli_option known[] = {
    {.name = "query", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "q"},
    {.name = "key", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "k"},
    {.name = "value", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "v"},
    {.name = "out", .values = "FILE", .kind = HEED_CLI_VALUE, .help = "where out goes"},
    {.name = "dtype",
     .values = "f32|f16|bf16",
     .kind = HEED_CLI_VALUE,
     .help = "what q, k and v are converted to; f32 without it. With bf16, u2 files are its bits.\n"
             "out is f4 for f32 and bf16, f2 for f16"},
    {.name = "scheme",
     .values = "split|ring|rows|auto",
     .kind = HEED_CLI_VALUE,
     .help = "split: every rank has all rows, results travel (without the option)\n"
             "ring: rows are apart, too, and keys travel; two parts a rank, one of each end\n"
             "rows: rows are apart, and they and their results travel\n"
             "auto: rows are apart, and what takes fewer bytes is done"},
    {.name = "want",
     .values = "all|root|heads",
     .kind = HEED_CLI_VALUE,
     .help = "of split: who gets the result; whichever, all of it is written"},
    {.name = "timeout",
     .values = "SECONDS",
     .kind = HEED_CLI_VALUE,
     .help = "of the call; 60 without it"},
    {.name = "scale",
     .values = "X",
     .kind = HEED_CLI_VALUE,
     .help = "as in heed run, as are the following"},
    {.name = "softcap", .values = "X", .kind = HEED_CLI_VALUE, .help = ""},
    {.name = "causal", .values = "bottom-right", .kind = HEED_CLI_MAYBE, .help = ""},
    {.name = "q-offset",
     .values = "N",
     .kind = HEED_CLI_VALUE,
     .help = "the same of every sequence"},
    {.name = "window", .values = "L,R", .kind = HEED_CLI_VALUE, .help = ""},
    {.name = "accuracy", .values = "exact|bf16|split|int8", .kind = HEED_CLI_VALUE, .help = ""},
    {.name = "threads", .values = "N", .kind = HEED_CLI_VALUE, .help = "of each rank"},
    {.name = "backend", .values = "NAME", .kind = HEED_CLI_VALUE, .help = ""},
    {.name = NULL},
};

enum { Q, K, V, TENSORS };

/* What a rank has of the problem. */
typedef struct job {
    heed_cli_option options[sizeof known / sizeof *known];
    heed_transport transport;
    heed_attn_desc desc;
    heed_attn_args args;
    heed_partition partition;
    int rows_apart;
    uint32_t *owner;
    int32_t *key_first, *row_first, *q_offsets;
    slice_file file[TENSORS];
    void *data[TENSORS], *out;
} job;

static const char *const tensor_name[TENSORS] = {"query", "key", "value"};

static int bad_file(const char *option, const heed_error *why)
{
    return heed_cli_fail(HEED_EXIT_USAGE, "--%s %s", option, why->text);
}

static int choice(const job *j, const char *option, const char *const *words, uint32_t *value)
{
    const char *text = heed_cli_value(j->options, option);
    for (*value = 0; text && words[*value]; ++*value)
        if (strcmp(words[*value], text) == 0)
            break;
    return !text || words[*value]
               ? HEED_EXIT_OK
               : heed_cli_fail(HEED_EXIT_USAGE, "--%s %s is not known; see --help", option, text);
}

static int read_options(job *j)
{
    static const uint32_t scheme[] = {HEED_GROUP_SPLIT, HEED_GROUP_RING, HEED_GROUP_SPLIT,
                                      HEED_GROUP_AUTO};
    static const char *const schemes[] = {"split", "ring", "rows", "auto", NULL}, *const wants[] = {
                                                                                      "all", "root",
                                                                                      "heads",
                                                                                      NULL};
    const char *dtype = heed_cli_value(j->options, "dtype"),
               *seconds = heed_cli_value(j->options, "timeout");
    int64_t timeout = 60;
    uint32_t n = 0;
    int failed = choice(j, "scheme", schemes, &n);
    if (!failed)
        failed = choice(j, "want", wants, &j->partition.want);
    if (!failed && n && j->partition.want)
        return heed_cli_fail(HEED_EXIT_USAGE, "--want is of split");
    if (!failed && seconds && !heed_cli_integer(seconds, 1, 1000000, &timeout))
        return heed_cli_fail(HEED_EXIT_USAGE, "--timeout %s is not a number of seconds", seconds);
    if (!failed && dtype && !heed_cli_dtype(dtype))
        return heed_cli_fail(HEED_EXIT_USAGE, "--dtype %s is none of f32, f16, bf16", dtype);
    j->partition.struct_size = sizeof j->partition;
    j->partition.scheme = failed ? 0 : scheme[n];
    j->rows_apart = n > 0;
    j->partition.timeout_ns = timeout * INT64_C(1000000000);
    j->desc.struct_size = sizeof j->desc;
    j->desc.q_type = j->desc.k_type = j->desc.v_type = j->desc.out_type =
        dtype ? heed_cli_dtype(dtype) : HEED_F32;
    return failed ? failed : heed_cli_problem(j->options, &j->desc);
}

static int open_files(job *j)
{
    heed_error why = {""};
    for (int i = 0; i < TENSORS; i++) {
        const char *path = heed_cli_value(j->options, tensor_name[i]);
        if (!path || !heed_cli_given(j->options, "out"))
            return heed_cli_fail(HEED_EXIT_USAGE, "--%s is required; see --help",
                                 path ? "out" : tensor_name[i]);
        if (slice_open(&j->file[i], path, &why) != HEED_OK)
            return bad_file(tensor_name[i], &why);
        if (j->file[i].kind.type == HEED_NPY_U2 && j->desc.q_type != HEED_BF16)
            return heed_cli_fail(HEED_EXIT_USAGE,
                                 "--%s holds u2: f2, f4 or f8 is required; u2 is read as the bits "
                                 "of bf16 with --dtype bf16",
                                 tensor_name[i]);
    }
    const int64_t *q = j->file[Q].kind.shape, *k = j->file[K].kind.shape,
                  *v = j->file[V].kind.shape;
    const int failed = heed_cli_shapes((heed_axes){0, 1, 2, 3}, q, k, v);
    if (failed)
        return failed;
    j->desc.q_heads = (uint32_t)q[1];
    j->desc.kv_heads = (uint32_t)k[1];
    j->desc.qk_dim = (uint32_t)q[3];
    j->desc.v_dim = (uint32_t)v[3];
    return HEED_EXIT_OK;
}

/* Divides into even parts: one for each rank, or, where rows are apart, two: the p-th from the
 * start and the p-th from the end. */
static int divide(job *j)
{
    const uint32_t size = j->transport.size, n = j->rows_apart ? 2 * size : size;
    const int64_t batch = j->file[Q].kind.shape[0], rows = j->file[Q].kind.shape[2],
                  keys = j->file[K].kind.shape[2];
    int64_t offset = 0;
    const char *text = heed_cli_value(j->options, "q-offset");
    if (text && !heed_cli_integer(text, INT32_MIN, INT32_MAX, &offset))
        return heed_cli_fail(HEED_EXIT_USAGE, "--q-offset %s is not a number of 32 bits", text);
    j->owner = calloc(n, sizeof *j->owner);
    j->key_first = calloc(((size_t)batch + 1) * (n + 1), sizeof *j->key_first);
    j->row_first = calloc(((size_t)batch + 1) * (n + 1), sizeof *j->row_first);
    j->q_offsets = calloc((size_t)batch + 1, sizeof *j->q_offsets);
    if (!j->owner || !j->key_first || !j->row_first || !j->q_offsets)
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for the partition");
    for (uint32_t p = 0; p < n; p++)
        j->owner[p] = p < size ? p : 2 * size - 1 - p;
    /* One more, which is the first in a batch of none: held() counts rows of the first sequence. */
    for (int64_t b = 0; b <= batch; b++) {
        j->q_offsets[b] = (int32_t)offset;
        for (uint32_t p = 0; p <= n; p++) {
            j->key_first[b * (n + 1) + p] = (int32_t)(keys * p / n);
            j->row_first[b * (n + 1) + p] = (int32_t)(rows * p / n);
        }
    }
    j->partition.n_parts = n;
    j->partition.owner = j->owner;
    j->partition.key_first = j->key_first;
    j->partition.row_first = j->rows_apart ? j->row_first : NULL;
    return HEED_EXIT_OK;
}

/* How many rows or keys of a sequence this rank has. */
static int64_t held(const job *j, const int32_t *first)
{
    int64_t n = 0;
    for (uint32_t p = 0; p < j->partition.n_parts; p++)
        n += j->owner[p] == j->transport.rank ? first[p + 1] - first[p] : 0;
    return n;
}

/* Reads this rank's parts of a file, or all of it if `first` is NULL, as [batch, heads, rows, dim]
 * of the plan's type. */
static int read_tensor(job *j, int i, const int32_t *first, int64_t strides[4])
{
    const int64_t *shape = j->file[i].kind.shape;
    const int64_t rows = first ? held(j, first) : shape[2];
    const uint32_t n = j->partition.n_parts, type = j->desc.q_type;
    const size_t bytes = (size_t)(shape[1] * rows * shape[3] * heed_dtype_bytes(type));
    heed_error why = {""};
    heed_status status = HEED_OK;
    strides[0] = shape[1] * rows * shape[3];
    strides[1] = rows * shape[3];
    strides[2] = shape[3];
    strides[3] = 1;
    j->data[i] = calloc((size_t)shape[0] + 1, bytes + 1);
    if (!j->data[i])
        return heed_cli_fail(HEED_EXIT_FAILED, "no memory for a part of %s", j->file[i].path);
    for (int64_t b = 0; b < shape[0] && status == HEED_OK; b++) {
        slice_rows to = {
            .data = (char *)j->data[i] + (size_t)b * bytes, .rows = rows, .type = type};
        if (!first)
            status = slice_read(&j->file[i], b, 0, rows, &to, &why);
        for (uint32_t p = 0; first && p < n && status == HEED_OK; p++) {
            const int64_t count = first[p + 1] - first[p];
            if (j->owner[p] != j->transport.rank)
                continue;
            status = slice_read(&j->file[i], b, first[p], count, &to, &why);
            to.at += count;
        }
    }
    return status == HEED_OK ? HEED_EXIT_OK : bad_file(tensor_name[i], &why);
}

static int prepare(job *j)
{
    const int apart = j->rows_apart;
    heed_attn_args *a = &j->args;
    int failed = read_tensor(j, Q, apart ? j->row_first : NULL, a->q.stride);
    if (!failed)
        failed = read_tensor(j, K, j->key_first, a->k.stride);
    if (!failed)
        failed = read_tensor(j, V, j->key_first, a->v.stride);
    if (failed)
        return failed;
    a->struct_size = sizeof *a;
    a->batch = j->desc.max_batch = j->file[Q].kind.shape[0];
    a->q_len = j->desc.max_q_len = apart ? held(j, j->row_first) : j->file[Q].kind.shape[2];
    a->kv_len = j->desc.max_kv_len = held(j, j->key_first);
    a->q.data = j->data[Q];
    a->k.data = j->data[K];
    a->v.data = j->data[V];
    a->q_offsets = j->desc.position == HEED_POS_GIVEN ? j->q_offsets : NULL;
    const int64_t rows = j->desc.q_heads * a->q_len, dim = j->desc.v_dim;
    a->out = (heed_view){j->out = calloc((size_t)(a->batch * rows * dim) + 1, 4),
                         {rows * dim, a->q_len * dim, dim, 1}};
    return j->out ? HEED_EXIT_OK : heed_cli_fail(HEED_EXIT_FAILED, "no memory for out");
}

static int attend(job *j)
{
    const char *backend = heed_cli_value(j->options, "backend");
    heed_context *context = NULL;
    heed_attn *plan = NULL;
    int failed = heed_cli_context(j->options, &context);
    if (!failed)
        failed =
            heed_cli_report(heed_attn_create(context, &j->desc, &plan), backend, heed_last_error());
    if (!failed)
        failed = heed_cli_report(
            heed_group_attention(plan, &j->args, &j->partition, &j->transport, NULL, 0), backend,
            heed_last_error());
    heed_attn_release(plan);
    heed_context_release(context);
    return failed;
}

/* Rank 0 creates the file; each rank writes its heads or rows, with WANT_ALL only rank 0. */
static int save(job *j)
{
    const uint32_t rank = j->transport.rank, size = j->transport.size, want = j->partition.want;
    const int rows_apart = j->rows_apart, apart = want == HEED_WANT_HEADS;
    const int64_t *q = j->file[Q].kind.shape, rows = j->args.q_len;
    const int64_t heads[2] = {apart ? rank * q[1] / size : 0,
                              apart ? (rank + 1) * q[1] / size : q[1]};
    const uint32_t type = j->desc.out_type;
    const size_t bytes = (size_t)(q[1] * rows * j->desc.v_dim * heed_dtype_bytes(type));
    const char *path = heed_cli_value(j->options, "out");
    heed_npy kind = {.type = j->desc.out_type == HEED_F16 ? HEED_NPY_F2 : HEED_NPY_F4,
                     .n_dims = 4,
                     .shape = {q[0], q[1], q[2], j->desc.v_dim}};
    slice_file out = {.file = NULL};
    heed_error why = {""};
    long start = -1;
    if (rank == 0 && slice_create(path, &kind, &start, &why) != HEED_OK)
        start = -1;
    MPI_Bcast(&start, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (start < 0)
        return rank == 0 ? bad_file("out", &why) : HEED_EXIT_USAGE;
    if (!rows_apart && !apart && rank != 0)
        return HEED_EXIT_OK;
    heed_status status = slice_open_made(&out, path, &kind, start, &why);
    for (int64_t b = 0; b < q[0] && status == HEED_OK; b++) {
        slice_rows from = {.data = (char *)j->out + (size_t)b * bytes, .rows = rows, .type = type};
        if (!rows_apart)
            status = slice_write(&out, b, heads, 0, rows, &from, &why);
        for (uint32_t p = 0; rows_apart && p < j->partition.n_parts && status == HEED_OK; p++) {
            const int64_t n = j->row_first[p + 1] - j->row_first[p];
            if (j->owner[p] != rank)
                continue;
            status = slice_write(&out, b, heads, j->row_first[p], n, &from, &why);
            from.at += n;
        }
    }
    heed_error closing = {""};
    const heed_status closed = slice_close(&out, &closing);
    return status != HEED_OK   ? bad_file("out", &why)
           : closed != HEED_OK ? bad_file("out", &closing)
                               : HEED_EXIT_OK;
}

static int run(job *j)
{
    int failed = read_options(j), all = 0;
    if (!failed)
        failed = open_files(j);
    if (!failed)
        failed = divide(j);
    if (!failed)
        failed = prepare(j);
    /* A rank that cannot begin would keep the others waiting. */
    MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (all)
        return all;
    failed = attend(j);
    if (failed) /* the others have been told, or time out; nothing is sure to be received any more */
        MPI_Abort(MPI_COMM_WORLD, failed);
    return save(j);
}

int main(int argc, char **argv)
{
    static job j;
    heed_mpi mpi;
    heed_error why = {""};
    heed_error none = {""};
    MPI_Init(&argc, &argv);
    if (heed_mpi_open(MPI_COMM_WORLD, &mpi, &j.transport, &why) != HEED_OK)
        return heed_cli_fail(HEED_EXIT_FAILED, "%s", why.text);
    memcpy(j.options, known, sizeof known);
    int failed = heed_cli_parse("heed-mpi-run", usage, j.options, argc, argv);
    const int help = failed == HEED_EXIT_HELP;
    if (!failed)
        failed = run(&j);
    for (int i = 0; i < TENSORS; i++) {
        slice_close(&j.file[i], &none);
        free(j.data[i]);
    }
    free(j.out);
    free(j.owner);
    free(j.key_first);
    free(j.row_first);
    free(j.q_offsets);
    heed_mpi_close(&mpi);
    MPI_Finalize();
    return help ? HEED_EXIT_OK : failed;
}
