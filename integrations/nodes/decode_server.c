/* A server's decode loop whose cache is spread over the ranks of an MPI program: a continuous
 * batch in which sequences come and go. Pages are dealt to the ranks in turn, beginning at a
 * different rank for each sequence; new keys are appended on the rank that has their page, and each
 * step is one heed_group_attention (split). Every rank takes the same decisions from the same
 * numbers, like the ranks of an engine that run one model.
 *
 *     mpirun -np 4 decode_server [slots=4 sequences=12 prompt=1000 count=64 page=64 --check]
 *
 * Instead of a model, queries, keys and values are numbers made of sequence and position. --check
 * has rank 0 compute every step by itself, too, over keys that lie behind each other. */
#include <heed/heed.h>
#include <heed/mpi.h>

#include <math.h>
#include <stdlib.h>

#include "numbers.h"

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, MOST_SLOTS = 64 };

enum { SLOTS, SEQUENCES, PROMPT, COUNT, PAGE, N_NUMBERS };
static const number numbers[N_NUMBERS] = {{"slots", 4, 1, MOST_SLOTS, 1},
                                          {"sequences", 12, 1, 1000000, 1},
                                          {"prompt", 1000, 1, 1000000, 1},
                                          {"count", 64, 1, 1000000, 1},
                                          {"page", 64, 1, 1000000, 1}};

static const char usage[] =
    "usage: mpirun -np N decode_server [slots=4 sequences=12 prompt=1000 count=64 page=64 "
    "--check]\n"
    "slots, which are sequences at a time, from 1 to 64, the others from 1 to 1000000\n";

typedef struct sequence {
    int id; /* of the sequence, -1: none */
    int32_t len, end;
    int32_t here; /* its keys on this rank */
} sequence;

typedef struct server {
    int64_t number[N_NUMBERS];
    int check;
    heed_transport transport;
    heed_context *context;
    heed_attn *plan;
    sequence slots[MOST_SLOTS];
    int next;        /* the next sequence to admit */
    int64_t pages;   /* of a sequence, on this rank */
    int64_t n_pages; /* of this rank's pool */
    int32_t *free_page, *table, *key_first;
    int64_t n_free;
    uint32_t *owner, n_parts;
    float *k, *v, *q, *out;
    double worst; /* of --check */
    int64_t tokens;
} server;

static int die(const char *what)
{
    fprintf(stderr, "decode_server: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

static void *get(int64_t count, size_t bytes)
{
    void *data = calloc((size_t)count + 1, bytes);
    if (!data)
        die("no memory");
    return data;
}

/* A number in [-1, 1) that depends on all arguments, by the finaliser of MurmurHash3. */
static float number_at(int id, int64_t position, int what, int64_t at)
{
    uint64_t x = (uint64_t)id * 1000003 + (uint64_t)position * 31337 + (uint64_t)what * 7919 +
                 (uint64_t)at * 104729;
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (float)((double)(x >> 40) / (1 << 23) - 1);
}

enum { QUERY, KEY, VALUE };

/* Fills one row of [heads, rows, dim] with the numbers of a sequence's position. */
static void fill(float *to, int id, int64_t position, int what, int64_t heads, int64_t row,
                 int64_t rows)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t d = 0; d < DIM; d++)
            to[(h * rows + row) * DIM + d] = number_at(id, position, what, h * DIM + d);
}

/* The rank of a key: pages are dealt round, from another rank on for each sequence. */
static uint32_t rank_of(const server *s, const sequence *slot, int32_t position)
{
    return (uint32_t)(position / s->number[PAGE] + slot->id) % s->transport.size;
}

/* Appends key and value of the next position of a slot, if they are this rank's. */
static void append(server *s, int n)
{
    sequence *slot = &s->slots[n];
    const int32_t position = slot->len++;
    const int64_t page = s->number[PAGE];
    float k[KV_HEADS * DIM], v[KV_HEADS * DIM];
    int32_t *table = s->table + n * s->pages;
    if (rank_of(s, slot, position) != s->transport.rank)
        return;
    if (slot->here % page == 0) {
        if (s->n_free == 0 || slot->here / page >= s->pages)
            die("no page is free");
        table[slot->here / page] = s->free_page[--s->n_free];
    }
    fill(k, slot->id, position, KEY, KV_HEADS, 0, 1);
    fill(v, slot->id, position, VALUE, KV_HEADS, 0, 1);
    const int64_t strides[4] = {KV_HEADS * page * DIM, page * DIM, DIM, 1};
    heed_kv_append_args a = {.struct_size = sizeof a,
                             .batch = 1,
                             .len = 1,
                             .capacity = s->pages * page,
                             .kv_heads = KV_HEADS,
                             .qk_dim = DIM,
                             .v_dim = DIM,
                             .page_len = (uint32_t)page,
                             .k_type = HEED_F32,
                             .v_type = HEED_F32,
                             .k_cache_type = HEED_F32,
                             .v_cache_type = HEED_F32,
                             .k = {k, {0, DIM, DIM, 1}},
                             .v = {v, {0, DIM, DIM, 1}},
                             .k_cache.data = s->k,
                             .v_cache.data = s->v,
                             .cache_lens = &slot->here,
                             .block_table = table,
                             .block_table_stride = s->pages,
                             .n_pages = s->n_pages};
    memcpy(a.k_cache.stride, strides, sizeof strides);
    memcpy(a.v_cache.stride, strides, sizeof strides);
    if (heed_kv_append(&a) != HEED_OK)
        die(heed_last_error());
    slot->here++;
}

/* Ends the sequences that are complete and admits others in their place, with their prompts in
 * the cache. */
static int admit(server *s)
{
    int active = 0;
    for (int n = 0; n < s->number[SLOTS]; n++) {
        sequence *slot = &s->slots[n];
        if (slot->id >= 0 && slot->len >= slot->end) {
            for (int64_t i = 0; i * s->number[PAGE] < slot->here; i++)
                s->free_page[s->n_free++] = s->table[n * s->pages + i];
            *slot = (sequence){.id = -1};
        }
        if (slot->id < 0 && s->next < s->number[SEQUENCES]) {
            slot->id = s->next++;
            const int32_t prompt =
                (int32_t)(1 + s->number[PROMPT] * (slot->id % 5 + 1) / 5); /* of any length */
            slot->end = prompt + (int32_t)(1 + s->number[COUNT] * (slot->id % 3 + 1) / 3);
            while (slot->len < prompt)
                append(s, n);
        }
        active += slot->id >= 0;
    }
    return active;
}

/* Says which keys lie where: one part for each page. Each sequence begins as many parts later as
 * the number of its first rank. */
static heed_partition divide(server *s)
{
    const heed_partition p = {.struct_size = sizeof p,
                              .scheme = HEED_GROUP_SPLIT,
                              .want = HEED_WANT_ALL,
                              .n_parts = s->n_parts,
                              .owner = s->owner,
                              .key_first = s->key_first,
                              .timeout_ns = INT64_C(30000000000)};
    for (int n = 0; n < s->number[SLOTS]; n++) {
        const sequence *slot = &s->slots[n];
        const int64_t late = slot->id < 0 ? 0 : slot->id % (int)s->transport.size;
        for (int64_t i = 0; i <= s->n_parts; i++) {
            const int64_t at = (i - late) * s->number[PAGE];
            s->key_first[n * (s->n_parts + 1) + i] = (int32_t)(at < 0           ? 0
                                                               : at < slot->len ? at
                                                                                : slot->len);
        }
    }
    return p;
}

/* Compares a slot's result with that of one process. */
static void compare(server *s, int n)
{
    const sequence *slot = &s->slots[n];
    const int64_t len = slot->len;
    float *k = get(KV_HEADS * len * DIM, sizeof *k), *v = get(KV_HEADS * len * DIM, sizeof *v);
    float out[HEADS * DIM];
    heed_attn_desc d = {.struct_size = sizeof d,
                        .q_heads = HEADS,
                        .kv_heads = KV_HEADS,
                        .qk_dim = DIM,
                        .v_dim = DIM,
                        .q_type = HEED_F32,
                        .k_type = HEED_F32,
                        .v_type = HEED_F32,
                        .out_type = HEED_F32};
    heed_attn_args a = {.struct_size = sizeof a,
                        .batch = 1,
                        .q_len = 1,
                        .kv_len = len,
                        .q = {s->q + n * HEADS * DIM, {0, DIM, DIM, 1}},
                        .k = {k, {0, len * DIM, DIM, 1}},
                        .v = {v, {0, len * DIM, DIM, 1}},
                        .out = {out, {0, DIM, DIM, 1}}};
    for (int64_t i = 0; i < len; i++) {
        fill(k, slot->id, i, KEY, KV_HEADS, i, len);
        fill(v, slot->id, i, VALUE, KV_HEADS, i, len);
    }
    if (heed_attention(s->context, &d, &a) != HEED_OK)
        die(heed_last_error());
    for (int i = 0; i < HEADS * DIM; i++) {
        const double off = fabs((double)out[i] - (double)s->out[n * HEADS * DIM + i]);
        s->worst = off > s->worst || isnan(off) ? off : s->worst;
    }
    free(k);
    free(v);
}

/* Decodes one token of every sequence. */
static void step(server *s)
{
    const int64_t slots = s->number[SLOTS], page = s->number[PAGE];
    int32_t longest = 0;
    for (int n = 0; n < slots; n++) {
        if (s->slots[n].id < 0)
            continue;
        fill(s->q + n * HEADS * DIM, s->slots[n].id, s->slots[n].len, QUERY, HEADS, 0, 1);
        append(s, n);
        longest = s->slots[n].here > longest ? s->slots[n].here : longest;
        s->tokens++;
    }
    const heed_partition p = divide(s);
    heed_attn_args a = {.struct_size = sizeof a,
                        .batch = slots,
                        .q_len = 1,
                        .kv_len = longest,
                        .q = {s->q, {HEADS * DIM, DIM, DIM, 1}},
                        .out = {s->out, {HEADS * DIM, DIM, DIM, 1}},
                        .k = {s->k, {KV_HEADS * page * DIM, page * DIM, DIM, 1}},
                        .block_table = s->table,
                        .block_table_stride = s->pages,
                        .n_pages = s->n_pages};
    a.v = a.k;
    a.v.data = s->v;
    if (heed_group_attention(s->plan, &a, &p, &s->transport, NULL, 0) != HEED_OK)
        die(heed_last_error());
    for (int n = 0; n < slots && s->check && s->transport.rank == 0; n++)
        if (s->slots[n].id >= 0)
            compare(s, n);
}

static void prepare(server *s)
{
    const int64_t slots = s->number[SLOTS], page = s->number[PAGE], size = s->transport.size;
    const int64_t longest = 2 + s->number[PROMPT] + s->number[COUNT],
                  pages = (longest + page - 1) / page;
    heed_attn_desc d = {.struct_size = sizeof d,
                        .features = HEED_HAS_PAGES,
                        .q_heads = HEADS,
                        .kv_heads = KV_HEADS,
                        .qk_dim = DIM,
                        .v_dim = DIM,
                        .q_type = HEED_F32,
                        .k_type = HEED_F32,
                        .v_type = HEED_F32,
                        .out_type = HEED_F32,
                        .page_len = (uint32_t)page,
                        .max_batch = slots,
                        .max_q_len = 1};
    s->pages = (pages + size - 1) / size;
    s->n_pages = s->pages * slots;
    d.max_kv_len = s->pages * page;
    s->n_parts = (uint32_t)(pages + size);
    s->owner = get(s->n_parts, sizeof *s->owner);
    s->key_first = get(slots * (s->n_parts + 1), sizeof *s->key_first);
    s->table = get(slots * s->pages, sizeof *s->table);
    s->free_page = get(s->n_pages, sizeof *s->free_page);
    s->k = get(s->n_pages * KV_HEADS * page * DIM, sizeof *s->k);
    s->v = get(s->n_pages * KV_HEADS * page * DIM, sizeof *s->v);
    s->q = get(slots * HEADS * DIM, sizeof *s->q);
    s->out = get(slots * HEADS * DIM, sizeof *s->out);
    for (uint32_t i = 0; i < s->n_parts; i++)
        s->owner[i] = i % (uint32_t)size;
    for (s->n_free = 0; s->n_free < s->n_pages; s->n_free++)
        s->free_page[s->n_free] = (int32_t)s->n_free;
    for (int n = 0; n < slots; n++)
        s->slots[n].id = -1;
    if (heed_context_create(NULL, &s->context) != HEED_OK ||
        heed_attn_create(s->context, &d, &s->plan) != HEED_OK)
        die(heed_last_error());
}

static void release(server *s)
{
    void *data[] = {s->owner, s->key_first, s->table, s->free_page, s->k, s->v, s->q, s->out};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
    heed_attn_release(s->plan);
    heed_context_release(s->context);
}

/* Rank 0 reads the words, so that it alone prints, and tells the others. Returns whether the
 * program goes on; *status is what else it ends with. */
static int read_words(server *s, int argc, char **argv, int *status)
{
    enum { GO_ON = N_NUMBERS, STATUS, CHECK, N_TOLD };
    int64_t told[N_TOLD] = {0};
    double x[N_NUMBERS];
    int rank, n = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
    } else if (rank == 0) {
        for (int i = 1; i < argc; i++)
            if (strcmp(argv[i], "--check") == 0)
                told[CHECK] = 1;
            else
                argv[n++] = argv[i];
        told[STATUS] = read_numbers("decode_server", numbers, N_NUMBERS, n, argv, x);
        told[GO_ON] = told[STATUS] == 0;
        for (int i = 0; i < N_NUMBERS && told[GO_ON]; i++)
            told[i] = (int64_t)x[i];
    }
    MPI_Bcast(told, N_TOLD, MPI_INT64_T, 0, MPI_COMM_WORLD);
    memcpy(s->number, told, sizeof s->number);
    s->check = told[CHECK] != 0;
    *status = (int)told[STATUS];
    return told[GO_ON] != 0;
}

int main(int argc, char **argv)
{
    static server s;
    heed_mpi mpi;
    heed_error why = {""};
    int steps = 0, status;
    double seconds = 0;
    MPI_Init(&argc, &argv);
    if (!read_words(&s, argc, argv, &status)) {
        MPI_Finalize();
        return status;
    }
    if (heed_mpi_open(MPI_COMM_WORLD, &mpi, &s.transport, &why) != HEED_OK)
        return die(why.text);
    prepare(&s);
    while (admit(&s) > 0) {
        const double start = MPI_Wtime();
        step(&s);
        seconds += MPI_Wtime() - start;
        steps++;
    }
    if (s.transport.rank == 0) {
        printf("%u ranks, %lld sequences, %d steps, %lld tokens", s.transport.size,
               (long long)s.number[SEQUENCES], steps, (long long)s.tokens);
        if (s.check)
            printf(", off by %.2g from one process\n", s.worst);
        else
            printf(", %.0f tokens/s\n", (double)s.tokens / seconds);
    }
    /* Values are below 1, and so is out: 16 roundings of f32 at most between the two. */
    const int bad = !(s.worst <= 16 * 0x1p-24) || s.n_free != s.n_pages || s.tokens == 0;
    release(&s);
    heed_mpi_close(&mpi);
    MPI_Finalize();
    return bad;
}
