/* Checks the description of a layer, derives the rest of the layer from it, and lays
 * out its workspace. */
#include "attention/validate.h"
#include "base/checked.h"
#include "base/compiler.h"
#include "base/reason.h"
#include "base/text.h"
#include "mha.h"
#include "rotary.h"

/* ---- the plan of its attention ----------------------------------------------------------------
 */

static heed_status count_rows(const char *what, int64_t batch, int64_t len, int64_t *out,
                              heed_error *why)
{
    *out = batch * len; /* both below 2^31 */
    if (*out > INT32_MAX)
        INVALID("%s is %lld x %lld, at most %d rows are possible", what, (long long)batch,
                (long long)len, INT32_MAX);
    return HEED_OK;
}

/* What is said of a description, where that is the attn of another one, which has features of its own. */
static heed_status name_as_attn(heed_status st, heed_error *why)
{
    const heed_error said = *why;
    heed_text text = {why->text, sizeof why->text, 0};
    for (const char *at = said.text; st != HEED_OK && *at;) {
        const int is_name = !strncmp(at, "desc.", 5);
        heed_put(&text, "%.*s", is_name ? 11 : 1, is_name ? "desc.attn->" : at);
        at += is_name ? 5 : 1;
    }
    return st;
}

static heed_status resolve_attention(heed_mha *m, heed_attn_desc *plan, heed_error *why)
{
    heed_problem problem;
    const uint64_t has = m->attn.features, mha_has = m->desc.features;
    if (mha_has & ~(HEED_MHA_HAS_CROSS | HEED_MHA_HAS_CACHE | HEED_MHA_HAS_SHARED_PROJ))
        INVALID("desc.features has the unknown bits 0x%llx",
                (unsigned long long)(mha_has & ~UINT64_C(7)));
    m->cross = (mha_has & HEED_MHA_HAS_CROSS) != 0;
    m->cache = (mha_has & HEED_MHA_HAS_CACHE) != 0;
    m->listed = (has & (HEED_HAS_LENS | HEED_HAS_PACKED)) != 0;
    if ((has & HEED_HAS_PAGES) && !m->cache)
        INVALID("desc.attn->features has HEED_HAS_PAGES, but desc.features lacks "
                "HEED_MHA_HAS_CACHE");
    if (m->attn.max_rows && !(has & HEED_HAS_PACKED))
        INVALID("desc.attn->max_rows is %lld without HEED_HAS_PACKED", (long long)m->attn.max_rows);
    *plan = m->attn;
    if (m->listed)
        plan->features |= HEED_HAS_LENS | HEED_HAS_PACKED;
    if (m->cache)
        plan->features |= HEED_HAS_LENS;
    heed_status st = name_as_attn(heed_validate_desc(plan, &problem, why), why);
    m->max_q_rows = m->attn.max_rows;
    if (st == HEED_OK && !m->max_q_rows)
        st = count_rows("desc.attn->max_batch x max_q_len", m->attn.max_batch, m->attn.max_q_len,
                        &m->max_q_rows, why);
    if (st != HEED_OK)
        return st;
    if (m->listed)
        plan->max_rows = m->max_q_rows;
    if (!m->cross && !m->cache)
        plan->max_kv_len = m->attn.max_q_len;
    m->max_kv_rows = m->cross ? m->desc.max_kv_rows : m->max_q_rows;
    if (m->desc.max_kv_rows < 0 || m->desc.max_kv_rows > INT32_MAX ||
        (!m->cross && m->desc.max_kv_rows))
        INVALID("desc.max_kv_rows is %lld, 0 to %d is required", (long long)m->desc.max_kv_rows,
                m->cross ? INT32_MAX : 0);
    if (m->cross && !m->max_kv_rows)
        st = count_rows("desc.attn->max_batch x max_kv_len", m->attn.max_batch, m->attn.max_kv_len,
                        &m->max_kv_rows, why);
    return st;
}

/* ---- projections ------------------------------------------------------------------------------
 */

static heed_status check_projection(const char *name, const heed_linear *l, int64_t in_dim,
                                    int64_t out_dim, uint32_t x_type, heed_error *why)
{
    if (l->problem.in_dim != in_dim)
        INVALID("desc.%s has in_dim %u, %lld is required", name, l->problem.in_dim,
                (long long)in_dim);
    if (l->problem.out_dim != out_dim)
        INVALID("desc.%s has out_dim %u, %lld is required", name, l->problem.out_dim,
                (long long)out_dim);
    if (l->problem.x_type != x_type)
        INVALID("desc.%s has x_type %s, %s is required", name, heed_dtype_name(l->problem.x_type),
                heed_dtype_name(x_type));
    if (l->problem.features & HEED_LINEAR_HAS_RESIDUAL)
        INVALID("desc.%s has HEED_LINEAR_HAS_RESIDUAL, which is for out_proj", name);
    return HEED_OK;
}

/* Puts projection `name` into a slot. Its columns [0, width) are those of `parts` consecutive ones
 * of q, k and v, from `first` on. A shared projection is applied per head. */
static heed_status place(heed_mha *m, const char *name, heed_linear *l, uint32_t slot, int first,
                         int parts, heed_error *why)
{
    const int is_kv = slot != HEED_SLOT_Q;
    const uint32_t x_type = is_kv && m->cross ? m->desc.kv_type : m->desc.x_type;
    int64_t in = is_kv && m->cross ? m->desc.d_kv : m->desc.d_model, width = 0;
    for (int i = first; i < first + parts; i++) {
        heed_mha_source *s = &m->source[i];
        s->slot = slot;
        s->column = width;
        s->type = l->problem.y_type;
        width += (int64_t)s->heads * s->dim;
    }
    m->slot[slot] = l;
    m->slot_width[slot] = width;
    m->slot_heads[slot] = 1;
    if (m->desc.features & HEED_MHA_HAS_SHARED_PROJ) {
        const uint32_t heads = m->source[first].heads;
        if (in % heads)
            INVALID(
                "desc.%s is %lld, a multiple of its %u heads is required for a shared projection",
                is_kv && m->cross ? "d_kv" : "d_model", (long long)in, heads);
        m->slot_heads[slot] = heads;
        return check_projection(name, l, in / heads, width / heads, x_type, why);
    }
    return check_projection(name, l, in, width, x_type, why);
}

/* Takes the input itself as q, k or v. */
static heed_status take_input(heed_mha *m, int which, heed_error *why)
{
    static const char *const name[] = {"q", "k", "v"};
    heed_mha_source *s = &m->source[which];
    const int other = which > 0 && m->cross;
    const int64_t columns = other ? m->desc.d_kv : m->desc.d_model;
    s->slot = HEED_SLOTS;
    s->column = 0;
    s->type = other ? m->desc.kv_type : m->desc.x_type;
    if (columns % s->heads)
        INVALID("desc.%s is %lld, a multiple of its %u heads is required",
                other ? "d_kv" : "d_model", (long long)columns, s->heads);
    if (columns != (int64_t)s->heads * s->dim)
        INVALID("desc.%s is %lld, %u heads of %u are required without %s_proj",
                other ? "d_kv" : "d_model", (long long)columns, s->heads, s->dim, name[which]);
    return HEED_OK;
}

static heed_status resolve_projections(heed_mha *m, heed_error *why)
{
    const heed_mha_desc *d = &m->desc;
    heed_linear *const one[] = {d->q_proj, d->k_proj, d->v_proj};
    static const char *const name[] = {"q_proj", "k_proj", "v_proj"};
    const int fused = d->qkv_proj != NULL, pair = d->kv_proj != NULL;
    heed_status st = HEED_OK;
    if (fused && (pair || d->q_proj || d->k_proj || d->v_proj))
        INVALID("desc.qkv_proj is given, and other projections of q, k or v beside it");
    if (pair && (d->k_proj || d->v_proj))
        INVALID("desc.kv_proj is given, and %s beside it", d->k_proj ? "k_proj" : "v_proj");
    if (fused && m->cross)
        INVALID("desc.qkv_proj is given, but HEED_MHA_HAS_CROSS has two inputs");
    if ((d->features & HEED_MHA_HAS_SHARED_PROJ) && (fused || pair))
        INVALID("desc.%s is given, but HEED_MHA_HAS_SHARED_PROJ is about q_proj, k_proj and v_proj",
                fused ? "qkv_proj" : "kv_proj");
    if (fused)
        return place(m, "qkv_proj", d->qkv_proj, HEED_SLOT_Q, 0, 3, why);
    for (int i = 0; i < 3 && st == HEED_OK; i++) {
        if (i == 1 && pair)
            return place(m, "kv_proj", d->kv_proj, HEED_SLOT_K, 1, 2, why);
        st = one[i] ? place(m, name[i], one[i], (uint32_t)i, i, 1, why) : take_input(m, i, why);
    }
    return st;
}

static heed_status check_types(const heed_mha *m, heed_error *why)
{
    static const char *const name[] = {"q", "k", "v"};
    const uint32_t wanted[] = {m->attn.q_type, m->attn.k_type, m->attn.v_type};
    if ((m->attn.features & HEED_HAS_QUANT) && !m->cache)
        INVALID("desc.attn->features has HEED_HAS_QUANT without HEED_MHA_HAS_CACHE");
    for (int i = 0; i < (m->cache ? 1 : 3); i++)
        if (m->source[i].type != wanted[i])
            INVALID("%s comes as %s, but desc.attn->%s_type is %s", name[i],
                    heed_dtype_name(m->source[i].type), name[i], heed_dtype_name(wanted[i]));
    return HEED_OK;
}

static heed_status resolve_out(heed_mha *m, heed_error *why)
{
    const heed_linear *l = m->desc.out_proj;
    const int64_t columns = (int64_t)m->attn.q_heads * m->attn.v_dim;
    m->y_cols = l ? l->problem.out_dim : (uint32_t)columns;
    m->y_type = l ? l->problem.y_type : m->attn.out_type;
    if (l && l->problem.in_dim != columns)
        INVALID("desc.out_proj has in_dim %u, %u heads of v_dim %u make %lld", l->problem.in_dim,
                m->attn.q_heads, m->attn.v_dim, (long long)columns);
    if (l && l->problem.x_type != m->attn.out_type)
        INVALID("desc.out_proj has x_type %s, but desc.attn->out_type is %s",
                heed_dtype_name(l->problem.x_type), heed_dtype_name(m->attn.out_type));
    if (!l && columns > 1 << 24)
        INVALID("%u heads of v_dim %u make more than %d columns", m->attn.q_heads, m->attn.v_dim,
                1 << 24);
    return HEED_OK;
}

/* What is said of x_q and x_kv. */
static heed_status check_inputs(const heed_mha *m, heed_error *why)
{
    const heed_mha_desc *d = &m->desc;
    const uint32_t type[] = {d->x_type, d->kv_type};
    if (d->d_model == 0 || d->d_model > 1u << 24)
        INVALID("desc.d_model is %u, 1 to %d is required", d->d_model, 1 << 24);
    if (m->cross ? d->d_kv == 0 || d->d_kv > 1u << 24 : d->d_kv != 0)
        INVALID("desc.d_kv is %u, %s is required", d->d_kv,
                m->cross ? "1 to 16777216" : "0 without HEED_MHA_HAS_CROSS");
    if (!m->cross && d->kv_type)
        INVALID("desc.kv_type is %u without HEED_MHA_HAS_CROSS", d->kv_type);
    for (uint32_t i = 0; i < 1 + m->cross; i++)
        if (type[i] < HEED_F32 || type[i] > HEED_BF16)
            INVALID("desc.%s is %u, HEED_F32, HEED_F16 or HEED_BF16 is required",
                    i ? "kv_type" : "x_type", type[i]);
    return HEED_OK;
}

heed_status heed_mha_resolve(heed_mha *m, heed_attn_desc *plan, heed_error *why)
{
    heed_status st = resolve_attention(m, plan, why);
    if (st != HEED_OK)
        return st;
    for (int i = 0; i < 3; i++) {
        m->source[i].heads = i == 0 ? m->attn.q_heads : m->attn.kv_heads;
        m->source[i].dim = i == 2 ? m->attn.v_dim : m->attn.qk_dim;
    }
    /* Before projections are asked for an x_type that is one of these */
    st = check_inputs(m, why);
    if (st == HEED_OK)
        st = resolve_projections(m, why);
    if (st == HEED_OK)
        st = check_types(m, why);
    if (st == HEED_OK)
        st = resolve_out(m, why);
    if (st == HEED_OK)
        st = heed_rotary_check_desc("desc.rotary", &m->desc.rotary, m->attn.qk_dim, why);
    return st;
}

/* ---- the workspace ----------------------------------------------------------------------------
 */

/* Appends rows x columns elements to *total and says where they start. */
static int append(size_t *total, int64_t rows, int64_t columns, uint32_t bytes, size_t *at)
{
    size_t n;
    *at = *total;
    return heed_mul_size((size_t)rows, (size_t)columns, &n) || heed_mul_size(n, bytes, &n) ||
           heed_add_size(*total, n, total) || heed_round_size(*total, HEED_CACHE_LINES, total);
}

heed_status heed_mha_lay_out(heed_mha *m, heed_error *why)
{
    heed_mha_layout *l = &m->layout;
    const heed_mha_desc *d = &m->desc;
    const int turns = d->rotary.style != HEED_ROTARY_NONE;
    const int64_t q_rows = m->max_q_rows, kv_rows = m->max_kv_rows;
    size_t *total = &l->fixed, at;
    int bad = append(total, 1, 1, sizeof(heed_mha_run_state), &at);
    /* two lists of units; lengths and starts of both sides, all keys, offsets */
    bad |= append(total, m->attn.max_batch, 2 * 8 + 6 * 4, 1, &l->lists);
    bad |= append(total, q_rows, d->d_model, heed_dtype_bytes(d->x_type), &l->x_q);
    if (m->cross)
        bad |= append(total, kv_rows, d->d_kv, heed_dtype_bytes(d->kv_type), &l->x_kv);
    for (int i = 0; i < HEED_SLOTS; i++)
        if (m->slot[i])
            bad |= append(total, i == HEED_SLOT_Q ? q_rows : kv_rows, m->slot_width[i],
                          heed_dtype_bytes(m->slot[i]->problem.y_type), &l->slot[i]);
    if (turns && m->source[0].slot == HEED_SLOTS)
        bad |= append(total, q_rows, (int64_t)m->source[0].heads * m->source[0].dim,
                      heed_dtype_bytes(m->source[0].type), &l->turned_q);
    if (turns && m->source[1].slot == HEED_SLOTS)
        bad |= append(total, kv_rows, (int64_t)m->source[1].heads * m->source[1].dim,
                      heed_dtype_bytes(m->source[1].type), &l->turned_k);
    if (d->out_proj)
        bad |= append(total, q_rows, d->out_proj->problem.in_dim,
                      heed_dtype_bytes(m->attn.out_type), &l->o);
    bad |= append(total, q_rows, m->y_cols, heed_dtype_bytes(m->y_type), &l->y);
    if (m->attn.features & HEED_HAS_LSE)
        bad |= append(total, q_rows, m->attn.q_heads, sizeof(float), &l->lse);
    if (bad || !heed_mha_bytes(m, 1))
        return heed_fail(why, HEED_ERR_NOMEM,
                         "the workspace of a layer with %lld rows of q and %lld of k and v exceeds "
                         "the address space",
                         (long long)q_rows, (long long)kv_rows);
    return HEED_OK;
}

size_t heed_mha_bytes(const void *of, uint32_t n_parts)
{
    const heed_mha *m = of;
    size_t bytes = m->layout.fixed, one = heed_workspace_bytes(m->plan, n_parts);
    int bad = one == 0 || heed_round_size(one, HEED_CACHE_LINES, &one) ||
              heed_add_size(bytes, one, &bytes);
    for (int i = 0; i <= HEED_SLOTS; i++) {
        const heed_linear *l = i < HEED_SLOTS ? m->slot[i] : m->desc.out_proj;
        if (!l)
            continue;
        one = heed_linear_workspace_bytes(l, n_parts);
        bad |= one == 0 || heed_round_size(one, HEED_CACHE_LINES, &one) ||
               heed_add_size(bytes, one, &bytes);
    }
    return bad || bytes > PTRDIFF_MAX ? 0 : bytes;
}
