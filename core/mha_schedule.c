/* Beginning a run of a layer: the rows of the call, where every step reads and writes, and the
 * schedules of all of them. */
#include "checked.h"
#include "compiler.h"
#include "kv_append.h"
#include "mha.h"
#include "reason.h"
#include "rotary.h"
#include "rows.h"
#include "schedule.h"

#define INVALID(...) return heed_fail(why, HEED_ERR_INVALID, __VA_ARGS__)

/* A matrix of rows, compact or the caller's. */
typedef struct matrix {
    void *data;
    int64_t row_stride, col_stride;
} matrix;

typedef struct builder {
    const heed_mha *mha;
    heed_mha_run_state *run;
    char *base;
    int32_t *all_lens, *q_offsets; /* keys of each sequence; position of its first row */
    heed_error *why;
} builder;

/* ---- what the caller gives --------------------------------------------------------------------
 */

static heed_status check_sizes(const heed_mha *m, const heed_mha_args *a, heed_error *why)
{
    const struct {
        const char *name;
        int64_t value, most;
    } size[] = {
        {"batch", a->batch, m->attn.max_batch},
        {"q_len", a->q_len, m->attn.max_q_len},
        {"kv_len", a->kv_len, m->cross ? m->attn.max_kv_len : 0},
        {"capacity", a->capacity, m->cache ? m->attn.max_kv_len : 0},
    };
    for (int i = 0; i < 4; i++)
        if (size[i].value < 0 || size[i].value > size[i].most)
            INVALID("args.%s is %lld, 0 to %lld is required", size[i].name,
                    (long long)size[i].value, (long long)size[i].most);
    return HEED_OK;
}

/* What may be there by the layer's features. The rest is attention's to check. */
static heed_status check_presence(const heed_mha *m, const heed_mha_args *a, heed_error *why)
{
    const int lens = (m->attn.features & HEED_HAS_LENS) != 0;
    const int packed = (m->attn.features & HEED_HAS_PACKED) != 0;
    const int pages = (m->attn.features & HEED_HAS_PAGES) != 0;
    const int residual =
        m->desc.out_proj && (m->desc.out_proj->problem.features & HEED_LINEAR_HAS_RESIDUAL) != 0;
    const struct {
        const char *name;
        const void *data;
        int allowed;
    } given[] = {
        {"x_kv", a->x_kv.data, (int)m->cross},
        {"residual", a->residual.data, residual},
        {"k_cache", a->k_cache.data, (int)m->cache},
        {"v_cache", a->v_cache.data, (int)m->cache},
        {"cache_lens", a->cache_lens, (int)m->cache},
        {"q_lens", a->q_lens, lens},
        {"kv_lens", a->kv_lens, lens && m->cross},
        {"q_starts", a->q_starts, packed},
        {"kv_starts", a->kv_starts, packed && m->cross},
        {"block_table", a->block_table, pages},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].data && !given[i].allowed)
            INVALID("args.%s is given, but the layer does not use it", given[i].name);
    if (lens && !a->q_lens && !a->kv_lens)
        INVALID("args.q_lens is NULL, but the layer has HEED_HAS_LENS");
    if (packed && !a->q_starts && !a->kv_starts)
        INVALID("args.q_starts is NULL, but the layer has HEED_HAS_PACKED");
    if (!pages && (a->block_table_stride || a->n_pages))
        INVALID("args.%s is given, but the layer's attention lacks HEED_HAS_PAGES",
                a->n_pages ? "n_pages" : "block_table_stride");
    return HEED_OK;
}

/* Rows of one side. *reach: rows of a view that holds them. */
static heed_status read_rows(const char *side, int64_t batch, int64_t len, const int32_t *lens,
                             const int32_t *starts, int64_t most, heed_mha_rows *r, int64_t *reach,
                             heed_error *why)
{
    r->total = r->n_units = 0;
    *reach = starts ? 0 : len;
    for (int64_t b = 0; b < batch; b++) {
        const int32_t n = heed_row_count(lens, b, len);
        if (n < 0 || n > len)
            INVALID("args.%s_lens[%lld] is %d, 0 to args.%s_len = %lld is required", side,
                    (long long)b, n, side, (long long)len);
        if (starts && starts[b] < 0)
            INVALID("args.%s_starts[%lld] is %d, at least 0 is required", side, (long long)b,
                    starts[b]);
        if (r->total + n > most)
            INVALID("sequences 0 to %lld have %lld rows of %s, at most %lld are possible with this "
                    "layer",
                    (long long)b, (long long)r->total + n, side, (long long)most);
        if (starts && n)
            *reach = heed_max64(*reach, starts[b] + (int64_t)n);
        r->lens[b] = n;
        r->starts[b] = (int32_t)r->total;
        r->first_unit[b] = r->n_units;
        r->total += n;
        r->n_units += heed_ceil_div(n, HEED_MHA_UNIT_ROWS);
    }
    return HEED_OK;
}

static heed_status check_matrix(const char *name, const heed_view *view, uint32_t type,
                                int is_output, const heed_mha_rows *rows, int64_t batch,
                                int64_t reach, int64_t columns, heed_error *why)
{
    const int64_t shape[] = {rows->total ? batch : 0, reach, columns, 1};
    if (view->stride[3])
        INVALID("args.%s.stride[3] is %lld, 0 is required: it has three axes", name,
                (long long)view->stride[3]);
    return heed_check_view(name, view, heed_dtype_bytes(type), is_output, shape, why);
}

static heed_status read_lists(builder *b)
{
    const heed_mha *m = b->mha;
    heed_mha_run_state *run = b->run;
    heed_mha_args *a = &run->args;
    int64_t *wide = (int64_t *)(void *)(b->base + m->layout.lists);
    const int64_t most = m->attn.max_batch;
    int32_t *narrow = (int32_t *)(void *)(wide + 2 * most);
    int64_t q_reach, kv_reach = 0;
    run->q_rows = (heed_mha_rows){.lens = narrow, .starts = narrow + most, .first_unit = wide};
    run->kv_rows = (heed_mha_rows){
        .lens = narrow + 2 * most, .starts = narrow + 3 * most, .first_unit = wide + most};
    b->all_lens = narrow + 4 * most;
    b->q_offsets = narrow + 5 * most;
    heed_status st = read_rows("q", a->batch, a->q_len, a->q_lens, a->q_starts, m->max_q_rows,
                               &run->q_rows, &q_reach, b->why);
    if (st == HEED_OK && m->cross)
        st = read_rows("kv", a->batch, a->kv_len, a->kv_lens, a->kv_starts, m->max_kv_rows,
                       &run->kv_rows, &kv_reach, b->why);
    if (st == HEED_OK && !m->cross)
        run->kv_rows = run->q_rows;
    const int64_t q_batch = a->q_starts ? 1 : a->batch, kv_batch = a->kv_starts ? 1 : a->batch;
    if (st == HEED_OK)
        st = check_matrix("x_q", &a->x_q, m->desc.x_type, 0, &run->q_rows, q_batch, q_reach,
                          m->desc.d_model, b->why);
    if (st == HEED_OK && m->cross)
        st = check_matrix("x_kv", &a->x_kv, m->desc.kv_type, 0, &run->kv_rows, kv_batch, kv_reach,
                          m->desc.d_kv, b->why);
    if (st == HEED_OK)
        st = check_matrix("y", &a->y, m->y_type, 1, &run->q_rows, q_batch, q_reach, m->y_cols,
                          b->why);
    if (st == HEED_OK && m->desc.out_proj &&
        (m->desc.out_proj->problem.features & HEED_LINEAR_HAS_RESIDUAL))
        st = check_matrix("residual", &a->residual, m->y_type, 0, &run->q_rows, q_batch, q_reach,
                          m->y_cols, b->why);
    /* Attention would check it too, but not where it is scattered from compact rows. */
    const int64_t lse_shape[] = {run->q_rows.total ? q_batch : 0, m->attn.q_heads, q_reach, 1};
    if (st == HEED_OK && (m->attn.features & HEED_HAS_LSE))
        st = heed_check_view("lse", &a->lse, sizeof(float), 1, lse_shape, b->why);
    return st;
}

/* Keys of each sequence, and where its rows stand among them. */
static heed_status find_positions(builder *b)
{
    const heed_mha *m = b->mha;
    const heed_mha_args *a = &b->run->args;
    for (int64_t i = 0; i < a->batch; i++) {
        const int32_t there = a->cache_lens ? a->cache_lens[i] : 0;
        const int64_t all = (int64_t)there + b->run->kv_rows.lens[i];
        if (there < 0 || all > INT32_MAX)
            return heed_fail(b->why, HEED_ERR_INVALID,
                             "args.cache_lens[%lld] is %d, 0 to args.capacity = %lld is required",
                             (long long)i, there, (long long)a->capacity);
        b->all_lens[i] = (int32_t)all;
        const int32_t behind = (int32_t)all - b->run->q_rows.lens[i];
        b->q_offsets[i] = m->attn.position == HEED_POS_GIVEN ? a->q_offsets ? a->q_offsets[i] : 0
                          : m->attn.position == HEED_POS_BOTTOM_RIGHT       ? behind
                          : m->attn.position == HEED_POS_UNSET && !m->cross ? behind
                                                                            : 0;
    }
    return HEED_OK;
}

/* ---- where rows lie ---------------------------------------------------------------------------
 */

static matrix compact_at(const builder *b, size_t offset, int64_t columns)
{
    return (matrix){b->base + offset, columns, 1};
}

/* The caller's rows as a matrix of compact rows, if they lie evenly: without gaps between the
 * sequences. */
static int lies_evenly(const builder *b, const heed_mha_rows *r, const heed_view *view,
                       uint32_t type, int64_t len, const int32_t *starts, matrix *out)
{
    const int64_t batch = b->run->args.batch;
    int64_t row_stride = view->stride[1], first = 0, at = -1;
    if (starts) {
        for (int64_t i = 0; i < batch; i++) {
            if (r->lens[i] == 0)
                continue;
            if (at >= 0 && starts[i] != at)
                return 0;
            if (at < 0)
                first = starts[i] * row_stride;
            at = starts[i] + (int64_t)r->lens[i];
        }
    } else if (batch > 1 && r->total != batch * len) {
        return 0;
    } else if (batch > 1 && len == 1) {
        row_stride = view->stride[0];
    } else if (batch > 1 && view->stride[0] != len * row_stride) {
        return 0;
    }
    *out =
        (matrix){view->data ? (char *)view->data + first * (int64_t)heed_dtype_bytes(type) : NULL,
                 row_stride, view->stride[2]};
    return 1;
}

static void add_copy(heed_mha_copy *list, uint32_t *n, const heed_mha_rows *rows,
                     const heed_view *user, const int32_t *starts, void *compact, int64_t width,
                     uint32_t type)
{
    list[(*n)++] = (heed_mha_copy){.rows = rows,
                                   .user = *user,
                                   .user_starts = starts,
                                   .compact = compact,
                                   .width = width,
                                   .type = type};
}

/* x_q or x_kv, gathered if it must be. A projection per head sees heads as rows: they have to
 * follow each other too. */
static matrix find_input(builder *b, int is_kv)
{
    const heed_mha *m = b->mha;
    heed_mha_run_state *run = b->run;
    const heed_mha_args *a = &run->args;
    const heed_mha_rows *rows = is_kv ? &run->kv_rows : &run->q_rows;
    const heed_view *view = is_kv ? &a->x_kv : &a->x_q;
    const int32_t *starts = is_kv ? a->kv_starts : a->q_starts;
    const uint32_t type = is_kv ? m->desc.kv_type : m->desc.x_type;
    const int64_t columns = is_kv ? m->desc.d_kv : m->desc.d_model;
    const int per_head = (m->desc.features & HEED_MHA_HAS_SHARED_PROJ) != 0;
    matrix x;
    if (lies_evenly(b, rows, view, type, is_kv ? a->kv_len : a->q_len, starts, &x) &&
        (!per_head || x.row_stride == columns * x.col_stride))
        return x;
    x = compact_at(b, is_kv ? m->layout.x_kv : m->layout.x_q, columns);
    add_copy(run->gather, &run->n_gathers, rows, view, starts, x.data, columns, type);
    return x;
}

/* Matrix x as what attention reads or writes: heads of `dim` columns. */
static heed_view heads_of(const builder *b, matrix x, int64_t dim, int64_t len)
{
    return (heed_view){
        x.data,
        {b->mha->listed ? 0 : len * x.row_stride, dim * x.col_stride, x.row_stride, x.col_stride}};
}

/* q, k or v as it comes out of its projection, or in. */
static matrix source_of(const builder *b, int which, const matrix input[2])
{
    const heed_mha *m = b->mha;
    const heed_mha_source *s = &m->source[which];
    if (s->slot == HEED_SLOTS)
        return input[which > 0 && m->cross];
    matrix x = compact_at(b, m->layout.slot[s->slot], m->slot_width[s->slot]);
    x.data = (char *)x.data + s->column * (int64_t)heed_dtype_bytes(s->type);
    return x;
}

/* ---- the steps --------------------------------------------------------------------------------
 */

/* The next `n_parts` workspace of a step. */
static void *step_at(size_t *at, char *base, size_t bytes)
{
    void *here = base + *at;
    heed_round_size(bytes, HEED_CACHE_LINES, &bytes); /* checked when the layer was made */
    *at += bytes;
    return here;
}

static heed_status schedule_linear(builder *b, const heed_linear *l, matrix x, matrix y,
                                   const matrix *residual, int64_t rows, size_t *at,
                                   heed_linear_run_state **out)
{
    heed_linear_args args = {.struct_size = sizeof args,
                             .rows = rows,
                             .x = {x.data, {x.row_stride, x.col_stride, 0, 0}},
                             .y = {y.data, {y.row_stride, y.col_stride, 0, 0}}};
    if (residual)
        args.residual =
            (heed_view){residual->data, {residual->row_stride, residual->col_stride, 0, 0}};
    void *workspace = step_at(at, b->base, heed_linear_workspace_bytes(l, b->run->n_parts));
    heed_status st = heed_linear_schedule(l, &args, b->run->n_parts, workspace, out, b->why);
    if (st == HEED_OK)
        b->run->estimate += (*out)->estimate;
    return st;
}

static heed_status schedule_projections(builder *b, const matrix input[2], size_t *at)
{
    const heed_mha *m = b->mha;
    heed_status st = HEED_OK;
    for (int i = 0; i < HEED_SLOTS && st == HEED_OK; i++) {
        const int is_kv = i != HEED_SLOT_Q;
        const heed_mha_rows *rows = is_kv ? &b->run->kv_rows : &b->run->q_rows;
        const int64_t heads = m->slot_heads[i];
        if (!m->slot[i])
            continue;
        matrix x = input[is_kv && m->cross], y = compact_at(b, m->layout.slot[i], m->slot_width[i]);
        if (heads > 1) {
            x.row_stride = m->slot[i]->problem.in_dim * x.col_stride;
            y.row_stride = m->slot[i]->problem.out_dim;
        }
        st = schedule_linear(b, m->slot[i], x, y, NULL, rows->total * heads, at,
                             &b->run->project[i]);
    }
    return st;
}

/* Rotates what `which` (0: q, 1: k) is, in place or into rows of its own. */
static void schedule_turn(builder *b, int which, matrix *x, heed_rotary_args *turn)
{
    const heed_mha *m = b->mha;
    const heed_mha_source *s = &m->source[which];
    const heed_mha_rows *rows = which ? &b->run->kv_rows : &b->run->q_rows;
    matrix y = *x;
    if (s->slot == HEED_SLOTS)
        y = compact_at(b, which ? m->layout.turned_k : m->layout.turned_q,
                       (int64_t)s->heads * s->dim);
    *turn = (heed_rotary_args){
        .struct_size = sizeof *turn,
        .rotary = m->desc.rotary,
        .batch = b->run->args.batch,
        .heads = s->heads,
        .dim = s->dim,
        .x_type = s->type,
        .y_type = s->type,
        .x = {x->data, {0, s->dim * x->col_stride, x->row_stride, x->col_stride}},
        .y = {y.data, {0, s->dim * y.col_stride, y.row_stride, y.col_stride}},
        .offsets = which ? b->run->args.cache_lens : b->q_offsets,
        .lens = rows->lens,
        .starts = rows->starts,
        .rows = rows->total};
    *x = y;
}

static heed_status schedule_append(builder *b, matrix k, matrix v)
{
    const heed_mha *m = b->mha;
    const heed_mha_args *a = &b->run->args;
    const heed_mha_rows *rows = &b->run->kv_rows;
    heed_kv_append_args *append = &b->run->append;
    *append = (heed_kv_append_args){
        .struct_size = sizeof *append,
        .batch = a->batch,
        .len = rows->total ? (m->cross ? a->kv_len : a->q_len) : 0,
        .capacity = a->capacity,
        .kv_heads = m->attn.kv_heads,
        .qk_dim = m->attn.qk_dim,
        .v_dim = m->attn.v_dim,
        .page_len = m->attn.page_len,
        .k_type = m->source[1].type,
        .v_type = m->source[2].type,
        .k_cache_type = m->attn.k_type,
        .v_cache_type = m->attn.v_type,
        .k = {k.data, {0, m->attn.qk_dim * k.col_stride, k.row_stride, k.col_stride}},
        .v = {v.data, {0, m->attn.v_dim * v.col_stride, v.row_stride, v.col_stride}},
        .k_cache = a->k_cache,
        .v_cache = a->v_cache,
        .lens = rows->lens,
        .starts = rows->starts,
        .cache_lens = a->cache_lens,
        .block_table = a->block_table,
        .block_table_stride = a->block_table_stride,
        .n_pages = a->n_pages,
        .rows = rows->total};
    return heed_kv_append_check(append, b->why);
}

/* o, y and what is scattered to them; the residual. */
typedef struct outputs {
    matrix o, y, lse, residual;
} outputs;

static void find_outputs(builder *b, outputs *out)
{
    const heed_mha *m = b->mha;
    heed_mha_run_state *run = b->run;
    const heed_mha_args *a = &run->args;
    const heed_mha_rows *rows = &run->q_rows;
    const heed_view lse = {a->lse.data, {a->lse.stride[0], a->lse.stride[2], a->lse.stride[1], 0}};
    if (!lies_evenly(b, rows, &a->y, m->y_type, a->q_len, a->q_starts, &out->y)) {
        out->y = compact_at(b, m->layout.y, m->y_cols);
        add_copy(run->scatter, &run->n_scatters, rows, &a->y, a->q_starts, out->y.data, m->y_cols,
                 m->y_type);
    }
    if (a->residual.data &&
        !lies_evenly(b, rows, &a->residual, m->y_type, a->q_len, a->q_starts, &out->residual)) {
        out->residual = compact_at(b, m->layout.y, m->y_cols);
        add_copy(run->gather, &run->n_gathers, rows, &a->residual, a->q_starts, out->residual.data,
                 m->y_cols, m->y_type);
    }
    if ((m->attn.features & HEED_HAS_LSE) &&
        !lies_evenly(b, rows, &lse, HEED_F32, a->q_len, a->q_starts, &out->lse)) {
        out->lse = compact_at(b, m->layout.lse, m->attn.q_heads);
        add_copy(run->scatter, &run->n_scatters, rows, &lse, a->q_starts, out->lse.data,
                 m->attn.q_heads, HEED_F32);
    }
    out->o =
        m->desc.out_proj ? compact_at(b, m->layout.o, m->desc.out_proj->problem.in_dim) : out->y;
}

static heed_status schedule_attention(builder *b, matrix q, matrix k, matrix v, const outputs *out,
                                      size_t *at)
{
    const heed_mha *m = b->mha;
    heed_mha_run_state *run = b->run;
    const heed_mha_args *a = &run->args;
    const int64_t kv_len = m->cross ? a->kv_len : a->q_len;
    heed_attn_args args = {
        .struct_size = sizeof args,
        .batch = a->batch,
        .q_len = a->q_len,
        .kv_len = m->cache ? a->capacity : kv_len,
        .q = heads_of(b, q, m->attn.qk_dim, a->q_len),
        .k = m->cache ? a->k_cache : heads_of(b, k, m->attn.qk_dim, kv_len),
        .v = m->cache ? a->v_cache : heads_of(b, v, m->attn.v_dim, kv_len),
        .out = heads_of(b, out->o, m->attn.v_dim, a->q_len),
        .mask = a->mask,
        .bias = a->bias,
        .lse = m->attn.features & HEED_HAS_LSE ? heads_of(b, out->lse, 1, a->q_len) : a->lse,
        .weights = a->weights,
        .scores = a->scores,
        .q_lens = m->listed ? run->q_rows.lens : NULL,
        .kv_lens = m->listed || m->cache ? b->all_lens : NULL,
        .q_offsets = a->q_offsets,
        .q_starts = m->listed ? run->q_rows.starts : NULL,
        .kv_starts = m->listed && !m->cache ? run->kv_rows.starts : NULL,
        .block_table = a->block_table,
        .block_table_stride = a->block_table_stride,
        .n_pages = a->n_pages,
        .alibi_slope = a->alibi_slope,
        .bias_slope = a->bias_slope,
        .sink = a->sink};
    args.lse.stride[3] = 0;
    void *workspace = step_at(at, b->base, heed_workspace_bytes(m->plan, run->n_parts));
    heed_status st =
        heed_schedule(m->plan, &args, run->n_parts, workspace, &run->attention, b->why);
    if (st == HEED_OK)
        run->estimate += run->attention->estimate;
    return st;
}

static void set_phases(heed_mha_run_state *run)
{
    const heed_mha *m = run->mha;
    const int turns = run->turn_q.rotary.style != HEED_ROTARY_NONE;
    int64_t units[HEED_PHASES] = {0};
    for (uint32_t i = 0; i < run->n_gathers; i++)
        units[HEED_PHASE_GATHER] += run->gather[i].rows->n_units;
    for (uint32_t i = 0; i < run->n_scatters; i++)
        units[HEED_PHASE_SCATTER] += run->scatter[i].rows->n_units;
    units[HEED_PHASE_TURN] =
        (turns ? run->q_rows.n_units : 0) + (turns || m->cache ? run->kv_rows.n_units : 0);
    for (int i = 0; i < HEED_PHASES; i++) {
        heed_mha_phase *p = &run->phase[i];
        atomic_init(&p->next, 0);
        atomic_init(&p->active, 0);
        p->n_units = units[i];
        p->busy = units[i] > 0;
    }
    run->phase[HEED_PHASE_PROJECT].busy = m->slot[0] || m->slot[1] || m->slot[2];
    run->phase[HEED_PHASE_ATTEND].busy = 1;
    run->phase[HEED_PHASE_OUT].busy = run->out != NULL;
}

static heed_status schedule_steps(builder *b)
{
    const heed_mha *m = b->mha;
    heed_mha_run_state *run = b->run;
    size_t at = m->layout.fixed;
    matrix input[2] = {find_input(b, 0), {0}}, qkv[3];
    outputs out = {0};
    if (m->cross)
        input[1] = find_input(b, 1);
    find_outputs(b, &out);
    heed_status st = schedule_projections(b, input, &at);
    for (int i = 0; i < 3; i++)
        qkv[i] = source_of(b, i, input);
    if (m->desc.rotary.style != HEED_ROTARY_NONE) {
        schedule_turn(b, 0, &qkv[0], &run->turn_q);
        schedule_turn(b, 1, &qkv[1], &run->turn_k);
    }
    if (st == HEED_OK && m->cache)
        st = schedule_append(b, qkv[1], qkv[2]);
    if (st == HEED_OK)
        st = schedule_attention(b, qkv[0], qkv[1], qkv[2], &out, &at);
    if (st == HEED_OK && m->desc.out_proj)
        st = schedule_linear(b, m->desc.out_proj, out.o, out.y,
                             run->args.residual.data ? &out.residual : NULL, run->q_rows.total, &at,
                             &run->out);
    return st;
}

heed_status heed_mha_schedule(const heed_mha *mha, const heed_mha_args *args, uint32_t n_parts,
                              void *workspace, heed_mha_run_state **out, heed_error *why)
{
    heed_mha_run_state *run = workspace;
    builder b = {.mha = mha, .run = run, .base = workspace, .why = why};
    memset(run, 0, sizeof *run);
    heed_status st = heed_read_struct("args", args, sizeof run->args, &run->args, why);
    run->mha = mha;
    run->n_parts = n_parts;
    if (st == HEED_OK)
        st = check_sizes(mha, &run->args, why);
    if (st == HEED_OK)
        st = check_presence(mha, &run->args, why);
    if (st == HEED_OK)
        st = read_lists(&b);
    if (st == HEED_OK)
        st = find_positions(&b);
    if (st == HEED_OK)
        st = schedule_steps(&b);
    if (st != HEED_OK)
        return st;
    set_phases(run);
    run->magic = HEED_MHA_RUN_MAGIC;
    *out = run;
    return HEED_OK;
}
