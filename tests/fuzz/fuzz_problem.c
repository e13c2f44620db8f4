/* Bytes to a valid problem. See fuzz_problem.h. */
#include "fuzz_problem.h"

#include <stdlib.h>
#include <string.h>

#include "decode.h"

int32_t fuzz_q_len(const fuzz_problem *problem, int64_t b)
{
    return problem->args.q_lens ? problem->args.q_lens[b] : (int32_t)problem->args.q_len;
}

int32_t fuzz_kv_len(const fuzz_problem *problem, int64_t b)
{
    return problem->args.kv_lens ? problem->args.kv_lens[b] : (int32_t)problem->args.kv_len;
}

int64_t fuzz_at(const fuzz_problem *problem, int tensor, int64_t b, int64_t h, int64_t i, int64_t d)
{
    const int64_t *stride = problem->tensor[tensor].view.stride;
    const heed_attn_args *a = &problem->args;
    int of_keys = tensor == FUZZ_K || tensor == FUZZ_V;
    if (of_keys && a->block_table) {
        b = a->block_table[b * a->block_table_stride + i / problem->desc.page_len];
        i %= problem->desc.page_len;
    } else if (of_keys && a->kv_starts) {
        i += a->kv_starts[b];
        b = 0;
    } else if (a->q_starts && (tensor == FUZZ_Q || tensor == FUZZ_OUT || tensor == FUZZ_LSE)) {
        i += a->q_starts[b];
        b = 0;
    }
    return b * stride[0] + h * stride[1] + i * stride[2] + d * stride[3];
}

/* ---- memory ------------------------------------------------------------------------------------
 */

/* Axes in any order, with gaps, backwards, and for inputs broadcast. */
static int lay_out(fuzz_tensor *t, fuzz_bytes *bytes, fuzz_view view, uint32_t element,
                   const int64_t dim[4], int input)
{
    static const uint8_t orders[6][4] = {{3, 2, 1, 0}, {3, 1, 2, 0}, {2, 3, 1, 0},
                                         {3, 2, 0, 1}, {1, 3, 2, 0}, {0, 3, 1, 2}};
    const uint8_t *order = orders[fuzz_below(bytes, 6)];
    uint32_t odd = fuzz_byte(bytes); /* bits: backwards, gap; broadcast if both are rare */
    uint32_t broadcast = input && fuzz_rarely(bytes, 4) ? fuzz_byte(bytes) : 0;
    size_t slack = fuzz_rarely(bytes, 8) ? 1 + fuzz_below(bytes, 3) : 0;
    int64_t step = 1, low = 0, high = 0;
    for (int a = 0; a < 4; a++) {
        int axis = order[a];
        int64_t n = dim[axis] > 0 ? dim[axis] : 1, stride = step;
        t->dim[axis] = dim[axis];
        if (broadcast >> axis & 1)
            stride = 0;
        else if (odd >> (axis + 4) & 1)
            stride = step + (odd & 7);
        step = stride ? stride * n : step;
        if (odd >> axis & 1)
            stride = -stride;
        if (stride < 0)
            low += stride * (n - 1);
        else
            high += stride * (n - 1);
        view.stride[axis] = stride;
    }
    t->element = element;
    t->bytes = (size_t)(high - low + 1) * element + slack;
    t->memory = malloc(t->bytes);
    t->view = view;
    if (!t->memory)
        return -1;
    t->first = t->memory + slack + (size_t)-low * element;
    fuzz_view_point(view, t->first);
    return 0;
}

/* ---- the problem -------------------------------------------------------------------------------
 */

/* Many rows and keys: dims that kernels are written for, windows that reach over blocks and chunks,
 * and no outputs of a number for each pair. */
static void describe_large(fuzz_problem *p, fuzz_bytes *bytes)
{
    static const uint32_t dims[] = {64, 64, 128, 32, 40, 80};
    heed_attn_desc *d = &p->desc;
    p->large = 1;
    d->kv_heads = 1;
    d->q_heads = 1 + (fuzz_byte(bytes) & 1);
    d->qk_dim = d->v_dim = dims[fuzz_below(bytes, 6)];
    d->features &= ~(HEED_HAS_WEIGHTS | HEED_HAS_SCORES);
    d->scores_stage = HEED_SCORES_NONE;
    if (fuzz_byte(bytes) & 1) { /* of which the most paths are */
        d->q_type = d->k_type = d->v_type = d->out_type = HEED_BF16;
        d->accuracy = HEED_ACCURACY_DEFAULT;
    }
    const uint32_t plain = fuzz_byte(bytes);
    if (plain & 1) { /* without what keeps kernels from their fastest ways */
        d->features &= ~(HEED_HAS_SOFTCAP | HEED_HAS_ALIBI | HEED_HAS_BIAS | HEED_HAS_BIAS_SLOPE);
        d->softcap = 0;
        d->bias_type = HEED_DTYPE_NONE;
        d->features |= plain & 2 ? HEED_HAS_WINDOW : HEED_HAS_MASK;
        if (d->features & (HEED_HAS_WINDOW | HEED_HAS_CAUSAL))
            d->position = d->position ? d->position : HEED_POS_BOTTOM_RIGHT;
        else
            d->position = HEED_POS_UNSET;
    }
    if (d->features & HEED_HAS_WINDOW) {
        d->window_left = fuzz_below(bytes, 1200);
        d->window_right = (int64_t)fuzz_below(bytes, 100) - 1;
    }
    if (d->features & HEED_HAS_PAGES)
        d->page_len = 16 + fuzz_below(bytes, 113);
}

static void describe(fuzz_problem *p, fuzz_bytes *bytes)
{
    heed_attn_desc *d = &p->desc;
    uint32_t some = fuzz_byte(bytes) | fuzz_byte(bytes) << 8;
    d->struct_size = sizeof *d;
    d->kv_heads = 1 + fuzz_below(bytes, 3);
    d->q_heads = d->kv_heads * (1 + fuzz_below(bytes, FUZZ_MAX_HEADS / 3));
    d->qk_dim = 1 + (uint32_t)fuzz_length(bytes, 20, 140);
    d->v_dim = fuzz_rarely(bytes, 3) ? 1 + (uint32_t)fuzz_length(bytes, 20, 140) : d->qk_dim;
    d->q_type = fuzz_type(bytes);
    d->k_type = d->v_type = d->out_type = d->q_type;
    if (fuzz_rarely(bytes, 4)) {
        d->k_type = fuzz_type(bytes);
        d->v_type = fuzz_type(bytes);
        d->out_type = fuzz_type(bytes);
    }
    /* Bits 0 to 12 of `some` stand for the features of those bits; each is rarer than one in two.
     */
    d->features = some & (fuzz_byte(bytes) | fuzz_byte(bytes) << 8) & 0x1fffu;
    if (!(d->features & HEED_HAS_BIAS))
        d->features &= ~HEED_HAS_BIAS_SLOPE;
    if (fuzz_rarely(bytes, 8))
        d->features |= HEED_HAS_REPRODUCIBLE_CHUNKS;
    if (d->features & HEED_HAS_SCALE)
        d->scale = ((float)fuzz_byte(bytes) - 100) / 64;
    if (d->features & HEED_HAS_SOFTCAP)
        d->softcap = (float)fuzz_byte(bytes) / 16;
    if (d->features & HEED_HAS_WINDOW) {
        d->window_left = (int64_t)fuzz_below(bytes, 24) - 1;
        d->window_right = (int64_t)fuzz_below(bytes, 24) - 1;
        if (fuzz_rarely(bytes, 16))
            d->window_left = INT64_MAX;
    }
    if (d->features & HEED_HAS_BIAS)
        d->bias_type = fuzz_type(bytes);
    if (d->features & (HEED_HAS_CAUSAL | HEED_HAS_WINDOW | HEED_HAS_ALIBI))
        d->position = HEED_POS_TOP_LEFT + fuzz_below(bytes, 3);
    if (d->features & HEED_HAS_SCORES)
        d->scores_stage = HEED_SCORES_RAW + fuzz_below(bytes, 3);
    if (d->features & HEED_HAS_PAGES)
        d->page_len = 1 + fuzz_below(bytes, 20);
    d->accuracy = fuzz_below(bytes, 4);
    if (fuzz_rarely(bytes, 100))
        describe_large(p, bytes);
}

static void choose_lengths(fuzz_problem *p, fuzz_bytes *bytes)
{
    heed_attn_args *a = &p->args;
    a->batch = fuzz_rarely(bytes, 3) ? fuzz_below(bytes, FUZZ_MAX_BATCH + 1) : 1;
    a->q_len = fuzz_rarely(bytes, 3) ? 1 : fuzz_length(bytes, 20, 70);
    a->kv_len = fuzz_length(bytes, 40, 300);
    if (p->large) { /* by few heads, so that it stays a matter of milliseconds */
        a->q_len = 1 + fuzz_below(bytes, 700) * (fuzz_byte(bytes) + 1) / 256;
        a->kv_len = 1 + fuzz_below(bytes, 3000);
        a->batch = 1;
    } else if (a->q_len < 3 && fuzz_rarely(bytes, 32)) { /* long enough to be cut into chunks */
        a->kv_len = fuzz_below(bytes, 2600);
    }
    p->desc.max_batch = a->batch + fuzz_below(bytes, 3);
    p->desc.max_q_len = a->q_len + fuzz_below(bytes, 3);
    p->desc.max_kv_len = a->kv_len + (fuzz_rarely(bytes, 4) ? fuzz_below(bytes, 4000) : 0);
    for (int b = 0; b < FUZZ_MAX_BATCH; b++) {
        p->q_lens[b] = (int32_t)fuzz_below(bytes, (uint32_t)a->q_len + 1);
        p->kv_lens[b] = (int32_t)fuzz_below(bytes, (uint32_t)a->kv_len + 1);
        p->q_offsets[b] = (int32_t)fuzz_below(bytes, 64) - 24;
        if (p->large)
            p->q_offsets[b] += (int32_t)fuzz_below(bytes, (uint32_t)a->kv_len + 1);
        if (fuzz_rarely(bytes, 32))
            p->q_offsets[b] = fuzz_byte(bytes) & 1 ? INT32_MIN : INT32_MAX;
    }
    if (p->desc.features & HEED_HAS_LENS) {
        uint32_t which = fuzz_below(bytes, 3);
        a->q_lens = which != 0 ? p->q_lens : NULL;
        a->kv_lens = which != 1 ? p->kv_lens : NULL;
    }
    if (p->desc.position == HEED_POS_GIVEN)
        a->q_offsets = p->q_offsets;
}

/* Rows of sequences behind each other, with gaps; returns how many rows that makes. */
static int64_t pack(fuzz_problem *p, fuzz_bytes *bytes, int32_t *starts,
                    int32_t (*length_of)(const fuzz_problem *p, int64_t b))
{
    uint32_t gaps = fuzz_byte(bytes);
    int64_t rows = gaps & 3;
    for (int64_t b = 0; b < p->args.batch; b++) {
        starts[b] = (int32_t)rows;
        rows += length_of(p, b) + (gaps >> (2 + 2 * b) & 3);
    }
    return rows;
}

/* Pages are drawn, so that sequences share some; entries that nobody needs name none. */
static int choose_pages(fuzz_problem *p, fuzz_bytes *bytes)
{
    heed_attn_args *a = &p->args;
    int64_t page_len = p->desc.page_len, pages = (a->kv_len + page_len - 1) / page_len;
    a->n_pages = 1 + fuzz_below(bytes, 24);
    a->block_table_stride = pages + fuzz_below(bytes, 3);
    p->table = malloc((size_t)(a->batch * a->block_table_stride + 1) * sizeof *p->table);
    if (!p->table)
        return -1;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t i = 0; i < a->block_table_stride; i++)
            p->table[b * a->block_table_stride + i] =
                i * page_len < fuzz_kv_len(p, b) ? (int32_t)fuzz_below(bytes, (uint32_t)a->n_pages)
                                                 : INT32_MIN;
    a->block_table = p->table;
    return 0;
}

static int choose_storage(fuzz_problem *p, fuzz_bytes *bytes)
{
    uint64_t f = p->desc.features;
    uint32_t which = f & HEED_HAS_PAGES ? 1 : 1 + fuzz_below(bytes, 3); /* pages are not packed */
    if (f & HEED_HAS_PACKED && which & 1) {
        p->q_rows = p->desc.max_rows = pack(p, bytes, p->q_starts, fuzz_q_len);
        p->args.q_starts = p->q_starts;
    }
    if (f & HEED_HAS_PACKED && which & 2) {
        p->kv_rows = pack(p, bytes, p->kv_starts, fuzz_kv_len);
        p->args.kv_starts = p->kv_starts;
    }
    return f & HEED_HAS_PAGES ? choose_pages(p, bytes) : 0;
}

static int place(fuzz_problem *p, fuzz_bytes *bytes)
{
    const heed_attn_desc *d = &p->desc;
    heed_attn_args *a = &p->args;
    int64_t nb = a->batch, nq = a->q_len, nk = a->kv_len, h = d->q_heads, g = d->kv_heads;
    const int64_t map[4] = {nb, h, nq, nk};
    /* q, out and lse; k and v */
    int64_t qb = a->q_starts && nb ? 1 : nb, qr = a->q_starts ? p->q_rows : nq, kb = nb, kr = nk;
    if (a->kv_starts) {
        kb = nb && nk ? 1 : 0;
        kr = p->kv_rows;
    } else if (a->block_table) {
        kb = nb && nk ? a->n_pages : 0;
        kr = d->page_len;
    }
    const struct {
        int tensor;
        uint64_t feature;
        fuzz_view view;
        uint32_t element;
        int64_t dim[4];
        int input;
    } list[] = {
        {FUZZ_Q, 0, FUZZ_IN(a->q), kit_bytes_of(d->q_type), {qb, h, qr, d->qk_dim}, 1},
        {FUZZ_K, 0, FUZZ_IN(a->k), kit_bytes_of(d->k_type), {kb, g, kr, d->qk_dim}, 1},
        {FUZZ_V, 0, FUZZ_IN(a->v), kit_bytes_of(d->v_type), {kb, g, kr, d->v_dim}, 1},
        {FUZZ_OUT, 0, FUZZ_OUT(a->out), kit_bytes_of(d->out_type), {qb, h, qr, d->v_dim}, 0},
        {FUZZ_MASK, HEED_HAS_MASK, FUZZ_IN(a->mask), 1, {map[0], map[1], map[2], map[3]}, 1},
        {FUZZ_BIAS,
         HEED_HAS_BIAS,
         FUZZ_IN(a->bias),
         kit_bytes_of(d->bias_type),
         {map[0], map[1], map[2], map[3]},
         1},
        {FUZZ_LSE, HEED_HAS_LSE, FUZZ_OUT(a->lse), 4, {qb, h, qr, 1}, 0},
        {FUZZ_WEIGHTS,
         HEED_HAS_WEIGHTS,
         FUZZ_OUT(a->weights),
         4,
         {map[0], map[1], map[2], map[3]},
         0},
        {FUZZ_SCORES, HEED_HAS_SCORES, FUZZ_OUT(a->scores), 4, {map[0], map[1], map[2], map[3]}, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].feature && !(d->features & list[i].feature))
            continue;
        if (lay_out(&p->tensor[list[i].tensor], bytes, list[i].view, list[i].element, list[i].dim,
                    list[i].input) != 0)
            return -1;
    }
    if (d->features & HEED_HAS_LSE)
        a->lse.stride[3] = 0; /* lse has three axes */
    return 0;
}

int fuzz_build(fuzz_problem *problem, fuzz_bytes *bytes)
{
    memset(problem, 0, sizeof *problem);
    describe(problem, bytes);
    problem->args.struct_size = sizeof problem->args;
    choose_lengths(problem, bytes);
    if (fuzz_byte(bytes) & 1)
        problem->args.error = &problem->error;
    if (choose_storage(problem, bytes) != 0 || place(problem, bytes) != 0) {
        fuzz_free(problem);
        return -1;
    }
    if (fuzz_fill(problem, bytes) != 0) {
        fuzz_free(problem);
        return -1;
    }
    return 0;
}

void fuzz_free(fuzz_problem *problem)
{
    for (int t = 0; t < FUZZ_TENSORS; t++)
        free(problem->tensor[t].memory);
    free(problem->table);
}

void fuzz_describe(const fuzz_problem *p, FILE *out)
{
    static const char *const name[] = {"q",   "k",   "v",       "mask",  "bias",
                                       "out", "lse", "weights", "scores"};
    const heed_attn_desc *d = &p->desc;
    const heed_attn_args *a = &p->args;
    fprintf(out, "features 0x%llx heads %u/%u dims %u, %u types %u %u %u %u, bias %u\n",
            (unsigned long long)d->features, d->q_heads, d->kv_heads, d->qk_dim, d->v_dim,
            d->q_type, d->k_type, d->v_type, d->out_type, d->bias_type);
    fprintf(out, "scale %g softcap %g window %lld, %lld position %u stage %u accuracy %u%s%s\n",
            (double)d->scale, (double)d->softcap, (long long)d->window_left,
            (long long)d->window_right, d->position, d->scores_stage, d->accuracy,
            p->tame ? "" : " wild", p->large ? " large" : "");
    fprintf(out, "batch %lld of %lld, q_len %lld of %lld, kv_len %lld of %lld\n",
            (long long)a->batch, (long long)d->max_batch, (long long)a->q_len,
            (long long)d->max_q_len, (long long)a->kv_len, (long long)d->max_kv_len);
    for (int b = 0; b < a->batch && b < FUZZ_MAX_BATCH; b++)
        fprintf(out, "  sequence %d: q_len %s%d, kv_len %s%d, offset %d\n", b,
                a->q_lens ? "" : "not given, ", p->q_lens[b], a->kv_lens ? "" : "not given, ",
                p->kv_lens[b], p->q_offsets[b]);
    if (a->q_starts || a->kv_starts)
        fprintf(out, "packed%s%s: starts of q %d %d %d, of k %d %d %d\n", a->q_starts ? " q" : "",
                a->kv_starts ? " k" : "", p->q_starts[0], p->q_starts[1], p->q_starts[2],
                p->kv_starts[0], p->kv_starts[1], p->kv_starts[2]);
    if (a->block_table)
        fprintf(out, "%lld pages of %u\n", (long long)a->n_pages, d->page_len);
    for (int t = 0; t < FUZZ_TENSORS; t++) {
        const int64_t *stride = p->tensor[t].view.stride;
        if (stride)
            fprintf(out, "  %s strides %lld %lld %lld %lld\n", name[t], (long long)stride[0],
                    (long long)stride[1], (long long)stride[2], (long long)stride[3]);
    }
}

/* ---- outputs -----------------------------------------------------------------------------------
 */

void fuzz_reset_outputs(fuzz_problem *problem)
{
    for (int t = FUZZ_OUT; t < FUZZ_TENSORS; t++) {
        if (problem->tensor[t].memory)
            memset(problem->tensor[t].memory, FUZZ_CANARY, problem->tensor[t].bytes);
    }
}

static int all_canary(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i] != FUZZ_CANARY)
            return 0;
    }
    return 1;
}

int fuzz_nothing_written(const fuzz_problem *problem)
{
    for (int t = FUZZ_OUT; t < FUZZ_TENSORS; t++) {
        if (problem->tensor[t].memory &&
            !all_canary(problem->tensor[t].memory, problem->tensor[t].bytes))
            return 0;
    }
    return 1;
}

int fuzz_only_rows_written(const fuzz_problem *problem)
{
    for (int t = FUZZ_OUT; t < FUZZ_TENSORS; t++) {
        const fuzz_tensor *tensor = &problem->tensor[t];
        unsigned char *rest;
        int clean;
        if (!tensor->memory)
            continue;
        rest = malloc(tensor->bytes);
        if (!rest)
            return 1;
        memcpy(rest, tensor->memory, tensor->bytes);
        for (int64_t b = 0; b < problem->args.batch; b++)
            for (int64_t h = 0; h < tensor->dim[1]; h++)
                for (int64_t i = 0; i < fuzz_q_len(problem, b); i++)
                    for (int64_t d = 0; d < tensor->dim[3]; d++)
                        memset(rest + (tensor->first - tensor->memory) +
                                   fuzz_at(problem, t, b, h, i, d) * (int64_t)tensor->element,
                               FUZZ_CANARY, tensor->element);
        clean = all_canary(rest, tensor->bytes);
        free(rest);
        if (!clean)
            return 0;
    }
    return 1;
}
