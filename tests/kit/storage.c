/* How the rows of a test problem's sequences follow each other: packed rows with their starts,
 * pages with their block tables. See problem.h. */
#include "problem.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Lays the rows of sequences one after another, the last one's first, with unused rows between
 * them, each beginning at a multiple. Returns how many rows there are. */
static int64_t start_rows(const kit_spec *s, const int32_t *lens, const int32_t *others,
                          int64_t multiple, int32_t *starts)
{
    int64_t at = 0;
    for (uint32_t n = 0; n < s->batch; n++) {
        uint32_t b = (n + s->batch - 1) % s->batch;
        at += kit_hash(s->seed, 91 + (int64_t)n) % 3;
        starts[b] = (int32_t)(at = (at + multiple - 1) / multiple * multiple);
        at += larger(lens[b], others[b]);
    }
    return at + 1; /* never 0, which means that rows are not packed */
}

static void shuffle(int32_t *order, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t other = (int64_t)(kit_hash(seed, i) % (uint64_t)(i + 1));
        order[i] = order[other];
        order[other] = (int32_t)i;
    }
}

/* How many pages sequence b has in common with sequence 0. */
static int64_t shared_pages(const kit_problem *p, int64_t b)
{
    int64_t common = p->kv_lens[b] < p->kv_lens[0] ? p->kv_lens[b] : p->kv_lens[0];
    return b > 0 && p->spec.pages == KIT_PAGES_SHARED ? common / p->spec.page_len : 0;
}

/* Numbers that a library which looks at them would trip over. */
static int32_t garbage(int64_t at)
{
    static const int32_t number[] = {-1, INT32_MAX, INT32_MIN, 1 << 24};
    return number[at & 3];
}

static int make_pages(kit_problem *p)
{
    const kit_spec *s = &p->spec;
    const int64_t len = s->page_len, most = (s->kv_len + len - 1) / len;
    /* One entry more than keys need, but not of the last sequence, behind whose last one the memory ends; and
     * an unused page for every five in use. */
    p->table_stride = most + 1;
    p->n_pages = s->batch * most + (s->batch * most) / 5 + 1;
    const int64_t entries = s->batch * p->table_stride, given = larger(entries - 1, 0);
    int32_t *order = malloc((size_t)p->n_pages * sizeof *order);
    p->true_table = calloc((size_t)entries + 1, sizeof *p->true_table);
    if (!order || !p->true_table ||
        guard_map(&p->table, (size_t)given * sizeof *p->block_table, GUARD_HIGH, 0, KIT_CANARY) !=
            0) {
        free(order);
        return -1;
    }
    p->block_table = (int32_t *)(void *)p->table.data;
    shuffle(order, p->n_pages, kit_hash(s->seed, 90));
    int64_t used = 0;
    for (int64_t b = 0; b < s->batch; b++) {
        int32_t *to_library = p->block_table + b * p->table_stride;
        int32_t *all = p->true_table + b * p->table_stride;
        int64_t first, end;
        kit_reach(p, b, &first, &end);
        for (int64_t n = 0; n < p->table_stride; n++) {
            if (n * len < p->kv_lens[b]) {
                all[n] = n < shared_pages(p, b) ? p->true_table[n] : order[used++];
                if (s->pages == KIT_PAGES_IN_ORDER)
                    all[n] = (int32_t)used - 1;
                if (s->pages == KIT_PAGES_DRAWN)
                    all[n] = order[kit_hash(kit_hash(s->seed, 92), b * most + n) % 24 %
                                   (uint64_t)p->n_pages];
            }
            int reached = n * len < end && (n + 1) * len > first && first < end;
            for (int64_t j = larger(first, n * len), any = 0; reached && p->reached && !any; j++) {
                any = kit_reaches(p, b, j);
                if (!any && (j + 1 >= end || j + 1 >= (n + 1) * len))
                    reached = 0;
            }
            if (b * p->table_stride + n < given)
                to_library[n] = reached ? all[n] : garbage(n);
        }
    }
    free(order);
    return 0;
}

int kit_store(kit_problem *p)
{
    static const int32_t none[KIT_MAX_BATCH];
    const kit_spec *s = &p->spec;
    const int all = s->storage == KIT_RAGGED; /* a token of q may lie beside its k and v */
    /* Where keys share scales, a sequence begins at a whole group; all such groups here have 4
     * keys. */
    const int64_t multiple =
        kit_scaling_of(s, 0).key_group || kit_scaling_of(s, 1).key_group ? 4 : 1;
    if (s->storage == KIT_RAGGED_Q || s->storage == KIT_PAGED_RAGGED || all)
        p->q_rows = start_rows(s, p->q_lens, all ? p->kv_lens : none, multiple, p->q_starts);
    if (s->storage == KIT_RAGGED_KV || all)
        p->kv_rows = start_rows(s, p->kv_lens, all ? p->q_lens : none, multiple, p->kv_starts);
    if (s->storage >= KIT_PAGED && make_pages(p) != 0) {
        kit_free(p);
        return -1;
    }
    return 0;
}

/* Offset in elements of row i of sequence b. */
static int64_t place_of(const kit_problem *p, int which, int64_t b, int64_t i)
{
    const kit_tensor *t = &p->tensor[which];
    const int64_t len = p->spec.page_len;
    if (which != KIT_K && which != KIT_V)
        return (p->q_starts[b] + i) * t->stride[2];
    if (p->kv_rows)
        return (p->kv_starts[b] + i) * t->stride[2];
    return p->true_table[b * p->table_stride + i / len] * t->stride[0] + i % len * t->stride[2];
}

int kit_place(kit_problem *p)
{
    static const int which[] = {KIT_Q, KIT_K, KIT_V, KIT_OUT, KIT_LSE};
    const kit_spec *s = &p->spec;
    if (s->storage == KIT_PADDED_ROWS)
        return 0;
    int64_t *at = p->places =
        calloc((size_t)(s->batch * (3 * s->q_len + 2 * s->kv_len) + 1), sizeof *at);
    if (!at)
        return -1;
    for (int n = 0; n < 5; n++) {
        int is_kv = which[n] == KIT_K || which[n] == KIT_V;
        kit_tensor *t = &p->tensor[which[n]];
        if (!t->bytes || !(is_kv ? p->kv_rows || p->n_pages : p->q_rows))
            continue;
        t->place = at;
        for (int64_t b = 0; b < s->batch; b++)
            for (int64_t i = 0; i < (is_kv ? p->kv_lens[b] : p->q_lens[b]); i++)
                at[b * t->dim[2] + i] = place_of(p, which[n], b, i);
        at += s->batch * t->dim[2];
    }
    return 0;
}
