/* Begins a run of a layer: finds where every step reads and writes, and schedules all steps. */
#include "base/checked.h"
#include "base/compiler.h"
#include "base/reason.h"
#include "base/rows.h"
#include "kv_append.h"
#include "mha.h"

/* A matrix of rows, compact or the caller's. An input is only read. */
typedef struct matrix {
    void *data;
    int64_t row_stride, col_stride;
} matrix;

typedef struct builder {
    const heed_mha *mha;
    heed_mha_run_state *run;
    char *base;
    heed_error *why;
} builder;

/* ---- where rows lie ---------------------------------------------------------------------------
 */

static matrix compact_at(const builder *b, size_t offset, int64_t columns)
{
    return (matrix){b->base + offset, columns, 1};
}

/* The caller's rows as a matrix of compact rows, if they lie evenly: without gaps between the
 * sequences. Attention sees a matrix of as many rows as there can be, so that one row gets a stride
 * that suits it, the caller's being any, and rows that are none, which may lie nowhere, are taken
 * for compact ones. */
static int lies_evenly(const builder *b, const heed_mha_rows *r, const void *data,
                       const int64_t *stride, uint32_t type, matrix *out)
{
    const int64_t batch = b->run->args.batch, len = r->user_len;
    const int32_t *starts = r->user_starts;
    int64_t row_stride = stride[1], first = 0, at = -1;
    if (r->total == 0)
        return 0;
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
        row_stride = stride[0];
    } else if (batch > 1 && stride[0] != len * row_stride) {
        return 0;
    }
    *out = (matrix){data ? (char *)data + first * (int64_t)heed_dtype_bytes(type) : NULL,
                    r->total == 1 ? 1 : row_stride, stride[2]};
    return 1;
}

/* May attention take such a matrix? Where rows have lists it does not know which of them there are,
 * and asks that as many as there can be were addressable, in terms of its own arguments. The caller's
 * are: heed_mha_read_args has looked. Rows that lie so far apart, 2 GB and more, are copied. */
static int is_near(const builder *b, const heed_mha_rows *r, const matrix *x, int64_t columns,
                   uint32_t type)
{
    const int64_t stride[] = {x->row_stride, x->col_stride}, most[] = {INT32_MAX, columns};
    return !b->mha->listed || r->total == 1 ||
           heed_strides_reach(stride, 2, most, heed_dtype_bytes(type));
}

static heed_mha_copy copy_of(const heed_mha_rows *rows, const int64_t *user_stride,
                             const void *from, void *to, int64_t width, uint32_t type)
{
    return (heed_mha_copy){.rows = rows,
                           .from = from,
                           .to = to,
                           .width = width,
                           .user_stride = {user_stride[0], user_stride[1], user_stride[2]},
                           .type = type};
}

/* Does attention read this input as it is, without a projection? */
static int attention_reads(const heed_mha *m, int is_kv)
{
    for (int which = 0; which < 3; which++)
        if (m->source[which].slot == HEED_SLOTS && (which > 0 && m->cross) == is_kv)
            return 1;
    return 0;
}

/* Finds x_q or x_kv, gathered if it has to be. A projection per head sees heads as rows, so that
 * heads have to follow each other, too. Where attention reads columns that are not adjacent, it may
 * run other kernels, with other bits, than where they are: so it never does, since it would depend on
 * the other sequences whether it does. */
static matrix find_input(builder *b, int is_kv)
{
    const heed_mha *m = b->mha;
    heed_mha_run_state *run = b->run;
    const heed_mha_rows *rows = is_kv ? &run->kv_rows : &run->q_rows;
    const heed_const_view *view = is_kv ? &run->args.x_kv : &run->args.x_q;
    const uint32_t type = is_kv ? m->desc.kv_type : m->desc.x_type;
    const int64_t columns = is_kv ? m->desc.d_kv : m->desc.d_model;
    const int per_head = (m->desc.features & HEED_MHA_HAS_SHARED_PROJ) != 0;
    matrix x;
    if (!(view->stride[2] != 1 && attention_reads(m, is_kv)) &&
        lies_evenly(b, rows, view->data, view->stride, type, &x) &&
        is_near(b, rows, &x, columns, type) &&
        (!per_head || rows->total == 1 || x.row_stride == columns * x.col_stride))
        return x;
    x = compact_at(b, is_kv ? m->layout.x_kv : m->layout.x_q, columns);
    run->gather[run->n_gathers++] = copy_of(rows, view->stride, view->data, x.data, columns, type);
    return x;
}

/* Matrix x as what attention reads or writes: heads of `dim` columns. */
static heed_view heads_of(const builder *b, matrix x, int64_t dim, int64_t len)
{
    return (heed_view){
        x.data,
        {b->mha->listed ? 0 : len * x.row_stride, dim * x.col_stride, x.row_stride, x.col_stride}};
}

/* q, k or v as it comes out of its projection, or from the input. */
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

/* The place of the next step's workspace, which has `bytes` bytes. */
static void *step_at(size_t *at, char *base, size_t bytes)
{
    void *here = base + *at;
    heed_round_size(bytes, HEED_CACHE_LINES, &bytes); /* checked when the layer was made */
    *at += bytes;
    return here;
}

/* Begins a run within this one. */
static heed_status start(builder *b, const heed_operation *op, const void *of, const void *args,
                         heed_run_head *workspace, heed_run_head **out)
{
    heed_status st = heed_run_start(op, of, args, b->run->head.n_parts, workspace, b->why);
    if (st != HEED_OK)
        return st;
    b->run->head.estimate += workspace->estimate;
    *out = workspace;
    return HEED_OK;
}

static heed_status schedule_linear(builder *b, const heed_linear *l, matrix x, matrix y,
                                   const matrix *residual, int64_t rows, size_t *at,
                                   heed_run_head **out)
{
    heed_linear_args args = {.struct_size = sizeof args,
                             .rows = rows,
                             .x = {x.data, {x.row_stride, x.col_stride, 0, 0}},
                             .y = {y.data, {y.row_stride, y.col_stride, 0, 0}}};
    if (residual)
        args.residual =
            (heed_const_view){residual->data, {residual->row_stride, residual->col_stride, 0, 0}};
    void *workspace = step_at(at, b->base, heed_linear_workspace_bytes(l, b->run->head.n_parts));
    return start(b, &heed_linear_operation, l, &args, workspace, out);
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

/* Schedules the rotation of q (`which` is 0) or k (1), in place or into rows of its own. */
static void schedule_turn(builder *b, int which, matrix *x, heed_rotary_args *turn)
{
    const heed_mha *m = b->mha;
    const heed_mha_args *a = &b->run->args;
    const int placed = which == 0 || !m->cross; /* positions are those of x_q's rows */
    const heed_mha_source *s = &m->source[which];
    const heed_mha_rows *rows = which ? &b->run->kv_rows : &b->run->q_rows;
    matrix y = *x;
    if (s->slot == HEED_SLOTS)
        y = compact_at(b, which ? m->layout.turned_k : m->layout.turned_q,
                       (int64_t)s->heads * s->dim);
    *turn = (heed_rotary_args){
        .struct_size = sizeof *turn,
        .rotary = m->desc.rotary,
        .batch = a->batch,
        .heads = s->heads,
        .dim = s->dim,
        .x_type = s->type,
        .y_type = s->type,
        .x = {x->data, {0, s->dim * x->col_stride, x->row_stride, x->col_stride}},
        .y = {y.data, {0, s->dim * y.col_stride, y.row_stride, y.col_stride}},
        .offsets = which ? a->cache_lens : b->run->q_offsets,
        .positions = placed ? a->positions : NULL,
        .positions_stride = placed ? a->positions_stride : 0,
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
        .rows = rows->total,
        .k_quant = a->k_quant,
        .v_quant = a->v_quant,
        .options = a->append};
    return heed_kv_append_check(append, b->why);
}

/* Where o, y and lse are written, compact or to the caller, and where the residual is read. */
typedef struct outputs {
    matrix o, y, lse, residual;
} outputs;

static void find_outputs(builder *b, outputs *out)
{
    const heed_mha *m = b->mha;
    heed_mha_run_state *run = b->run;
    const heed_mha_args *a = &run->args;
    const heed_mha_rows *rows = &run->q_rows;
    const int64_t lse_stride[] = {a->lse.stride[0], a->lse.stride[2], a->lse.stride[1]};
    if ((!m->desc.out_proj && a->y.stride[2] != 1) || /* as in find_input */
        !lies_evenly(b, rows, a->y.data, a->y.stride, m->y_type, &out->y) ||
        !is_near(b, rows, &out->y, m->y_cols, m->y_type)) {
        out->y = compact_at(b, m->layout.y, m->y_cols);
        run->scatter[run->n_scatters++] =
            copy_of(rows, a->y.stride, out->y.data, a->y.data, m->y_cols, m->y_type);
    }
    if (a->residual.data &&
        !lies_evenly(b, rows, a->residual.data, a->residual.stride, m->y_type, &out->residual)) {
        out->residual = compact_at(b, m->layout.y, m->y_cols);
        run->gather[run->n_gathers++] = copy_of(rows, a->residual.stride, a->residual.data,
                                                out->residual.data, m->y_cols, m->y_type);
    }
    if ((m->attn.features & HEED_HAS_LSE) &&
        (!lies_evenly(b, rows, a->lse.data, lse_stride, HEED_F32, &out->lse) ||
         !is_near(b, rows, &out->lse, m->attn.q_heads, HEED_F32))) {
        out->lse = compact_at(b, m->layout.lse, m->attn.q_heads);
        run->scatter[run->n_scatters++] =
            copy_of(rows, lse_stride, out->lse.data, a->lse.data, m->attn.q_heads, HEED_F32);
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
        .q = heed_as_const(heads_of(b, q, m->attn.qk_dim, a->q_len)),
        .k = heed_as_const(m->cache ? a->k_cache : heads_of(b, k, m->attn.qk_dim, kv_len)),
        .v = heed_as_const(m->cache ? a->v_cache : heads_of(b, v, m->attn.v_dim, kv_len)),
        .out = heads_of(b, out->o, m->attn.v_dim, a->q_len),
        .mask = a->mask,
        .bias = a->bias,
        .lse = m->attn.features & HEED_HAS_LSE ? heads_of(b, out->lse, 1, a->q_len) : a->lse,
        .weights = a->weights,
        .scores = a->scores,
        .q_lens = m->listed ? run->q_rows.lens : NULL,
        .kv_lens = m->listed || m->cache ? run->all_lens : NULL,
        .q_offsets = a->q_offsets,
        .q_starts = m->listed ? run->q_rows.starts : NULL,
        .kv_starts = m->listed && !m->cache ? run->kv_rows.starts : NULL,
        .block_table = a->block_table,
        .block_table_stride = a->block_table_stride,
        .n_pages = a->n_pages,
        .k_quant = heed_quant_as_const(a->k_quant),
        .v_quant = heed_quant_as_const(a->v_quant),
        .alibi_slope = a->alibi_slope,
        .bias_slope = a->bias_slope,
        .sink = a->sink,
        .ranges = a->ranges,
        .key_blocks = a->key_blocks,
        .mask_from = a->mask_from};
    args.lse.stride[3] = 0;
    void *workspace = step_at(at, b->base, heed_workspace_bytes(m->plan, run->head.n_parts));
    return start(b, &heed_attn_operation, m->plan, &args, workspace, &run->attention);
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

heed_status heed_mha_schedule(const void *of, const void *args, uint32_t n_parts, void *workspace,
                              heed_error *why)
{
    const heed_mha *mha = of;
    heed_mha_run_state *run = workspace;
    builder b = {.mha = mha, .run = run, .base = workspace, .why = why};
    memset(run, 0, sizeof *run);
    heed_status st = heed_read_struct("args", args, sizeof run->args, &run->args, why);
    run->mha = mha;
    run->head.n_parts = n_parts;
    if (st == HEED_OK)
        st = heed_mha_read_args(run, why);
    if (st == HEED_OK)
        st = schedule_steps(&b);
    if (st != HEED_OK)
        return st;
    set_phases(run);
    run->head.n_tiles = INT64_MAX;
    return HEED_OK;
}
