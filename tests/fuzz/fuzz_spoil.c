/* What a caller may get wrong. Each of these turns a valid problem into one that has to be refused
 * before anything is read or written, so none needs memory behind it. */
#include <math.h>

#include "fuzz_problem.h"

/* Nothing will be read or written then, and views of no elements need no data. */
static int is_empty(const fuzz_problem *p)
{
    return p->args.batch == 0 || p->args.q_len == 0 || p->args.kv_len == 0;
}

/* ---- the description ---------------------------------------------------------------------------
 */

static int no_heads(fuzz_problem *p, fuzz_bytes *bytes)
{
    uint32_t *size[] = {&p->desc.q_heads, &p->desc.kv_heads, &p->desc.qk_dim, &p->desc.v_dim};
    *size[fuzz_below(bytes, 4)] = 0;
    return 1;
}

static int heads_no_multiple(fuzz_problem *p, fuzz_bytes *bytes)
{
    p->desc.kv_heads = p->desc.q_heads + 1 + fuzz_byte(bytes);
    return 1;
}

static int no_such_type(fuzz_problem *p, fuzz_bytes *bytes)
{
    uint32_t *type[] = {&p->desc.q_type, &p->desc.k_type, &p->desc.v_type, &p->desc.out_type};
    static const uint32_t bad[] = {HEED_DTYPE_NONE, HEED_I8, HEED_Q8_0, 6, UINT32_MAX};
    *type[fuzz_below(bytes, 4)] = bad[fuzz_below(bytes, 5)];
    return 1;
}

static int no_such_choice(fuzz_problem *p, fuzz_bytes *bytes)
{
    uint32_t *choice[] = {&p->desc.position, &p->desc.accuracy, &p->desc.scores_stage,
                          &p->desc.reserved, &p->desc.page_len, &p->desc.bias_type};
    *choice[fuzz_below(bytes, 6)] = 7 + fuzz_byte(bytes);
    return 1;
}

static int feature_without_argument(fuzz_problem *p, fuzz_bytes *bytes)
{
    static const uint64_t needs_one[] = {
        HEED_HAS_ALIBI, HEED_HAS_MASK,   HEED_HAS_BIAS,     HEED_HAS_BIAS_SLOPE, HEED_HAS_SINK,
        HEED_HAS_LSE,   HEED_HAS_SCORES, HEED_HAS_WEIGHTS,  HEED_HAS_LENS,       HEED_HAS_PACKED,
        HEED_HAS_PAGES, HEED_HAS_QUANT,  UINT64_C(1) << 40, UINT64_C(1) << 63};
    uint64_t bit = needs_one[fuzz_below(bytes, 14)];
    if (p->desc.features & bit)
        return 0;
    if (is_empty(p) && (bit & (HEED_HAS_MASK | HEED_HAS_LSE | HEED_HAS_WEIGHTS)))
        return 0;
    p->desc.features |= bit; /* alibi lacks a position too, bias its type, scores their stage */
    return 1;
}

static int argument_without_feature(fuzz_problem *p, fuzz_bytes *bytes)
{
    static const uint64_t shown_by[] = {HEED_HAS_ALIBI, HEED_HAS_MASK,    HEED_HAS_BIAS,
                                        HEED_HAS_SINK,  HEED_HAS_LSE,     HEED_HAS_SCORES,
                                        HEED_HAS_LENS,  HEED_HAS_WEIGHTS, HEED_HAS_BIAS_SLOPE,
                                        HEED_HAS_PAGES, HEED_HAS_PACKED};
    uint64_t bit = shown_by[fuzz_below(bytes, 11)];
    if (!(p->desc.features & bit))
        return 0;
    p->desc.features &= ~bit;
    return 1;
}

static int superfluous_argument(fuzz_problem *p, fuzz_bytes *bytes)
{
    int packed = (p->desc.features & HEED_HAS_PACKED) != 0;
    int paged = (p->desc.features & HEED_HAS_PAGES) != 0;
    switch (fuzz_below(bytes, 7)) {
    case 0:
        p->args.block_table = p->q_lens;
        return !paged;
    case 1:
        p->args.n_pages = 1;
        return !paged;
    case 2:
        p->args.q_starts = p->q_starts;
        return !packed;
    case 3:
        p->args.kv_starts = p->kv_starts;
        return !packed || paged;
    case 4:
        p->args.k_quant.scale = p->sink;
        return 1;
    case 5:
        p->args.v_quant.scale = p->sink;
        return 1;
    default:
        p->desc.max_rows = 1;
        return !packed;
    }
}

static int bad_number(fuzz_problem *p, fuzz_bytes *bytes)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    uint32_t which = fuzz_below(bytes, 8);
    if (which < 3) {
        p->desc.scale = bad[which];
    } else if (which < 6) {
        p->desc.softcap = bad[which - 3];
    } else {
        p->desc.features |= HEED_HAS_SOFTCAP;
        p->desc.softcap = -0.5f;
    }
    return 1;
}

static int bad_window(fuzz_problem *p, fuzz_bytes *bytes)
{
    int64_t *side = fuzz_byte(bytes) & 1 ? &p->desc.window_left : &p->desc.window_right;
    *side = fuzz_byte(bytes) & 1 ? INT64_MIN : -2;
    return 1;
}

static int bad_maximum(fuzz_problem *p, fuzz_bytes *bytes)
{
    int64_t *size[] = {&p->desc.max_batch, &p->desc.max_q_len, &p->desc.max_kv_len};
    static const int64_t bad[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 31};
    *size[fuzz_below(bytes, 3)] = bad[fuzz_below(bytes, 4)];
    return 1;
}

/* An old caller's struct may end behind any pair of words; what it lacks is then zero. No struct is
 * as short as a pointer, or ends within a word. */
static int bad_struct_size(fuzz_problem *p, fuzz_bytes *bytes)
{
    static const size_t bad[] = {0, 1, 8, 20, 65537, SIZE_MAX};
    if (fuzz_byte(bytes) & 1)
        p->desc.struct_size = bad[fuzz_below(bytes, 6)];
    else
        p->args.struct_size = bad[fuzz_below(bytes, 6)];
    return 1;
}

/* ---- the args ----------------------------------------------------------------------------------
 */

static int bad_size(fuzz_problem *p, fuzz_bytes *bytes)
{
    int64_t *size[] = {&p->args.batch, &p->args.q_len, &p->args.kv_len};
    static const int64_t bad[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 31};
    *size[fuzz_below(bytes, 3)] = bad[fuzz_below(bytes, 4)];
    return 1;
}

static int bad_length(fuzz_problem *p, fuzz_bytes *bytes)
{
    int kv = fuzz_byte(bytes) & 1;
    const int32_t *given = kv ? p->args.kv_lens : p->args.q_lens;
    int32_t *lens = kv ? p->kv_lens : p->q_lens;
    int32_t most = (int32_t)(kv ? p->args.kv_len : p->args.q_len);
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, most + 1};
    if (!given || is_empty(p))
        return 0;
    lens[fuzz_below(bytes, (uint32_t)p->args.batch)] = bad[fuzz_below(bytes, 4)];
    return 1;
}

static int bad_start(fuzz_problem *p, fuzz_bytes *bytes)
{
    static const int32_t bad[] = {-1, INT32_MIN, INT32_MAX};
    int kv = fuzz_byte(bytes) & 1;
    if (is_empty(p) || !(kv ? p->args.kv_starts : p->args.q_starts))
        return 0;
    int64_t b = fuzz_below(bytes, (uint32_t)p->args.batch);
    int32_t value = bad[fuzz_below(bytes, 3)];
    if (value > 0 && (kv ? fuzz_kv_len(p, b) : fuzz_q_len(p, b)) == 0)
        return 0; /* no row there, however far */
    (kv ? p->kv_starts : p->q_starts)[b] = value;
    return 1;
}

static int bad_page(fuzz_problem *p, fuzz_bytes *bytes)
{
    const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, (int32_t)p->args.n_pages};
    const uint64_t hiding =
        HEED_HAS_CAUSAL | HEED_HAS_WINDOW; /* a page that nobody sees may be bad */
    if (is_empty(p) || !p->table || p->desc.features & hiding)
        return 0;
    int64_t b = fuzz_below(bytes, (uint32_t)p->args.batch), pages = 0;
    if (fuzz_q_len(p, b) == 0 || fuzz_kv_len(p, b) == 0)
        return 0;
    pages = (fuzz_kv_len(p, b) + p->desc.page_len - 1) / p->desc.page_len;
    p->table[b * p->args.block_table_stride + fuzz_below(bytes, (uint32_t)pages)] =
        bad[fuzz_below(bytes, 4)];
    return 1;
}

static int bad_table(fuzz_problem *p, fuzz_bytes *bytes)
{
    if (is_empty(p) || !p->table)
        return 0;
    switch (fuzz_below(bytes, 4)) {
    case 0:
        p->args.block_table = NULL;
        break;
    case 1:
        p->args.block_table_stride = -1;
        break;
    case 2:
        p->args.n_pages = -1;
        break;
    default:
        p->desc.page_len = 0;
        break;
    }
    return 1;
}

static fuzz_tensor *tensor_with_elements(fuzz_problem *p, fuzz_bytes *bytes, int first)
{
    fuzz_tensor *t = &p->tensor[first + (int)fuzz_below(bytes, (uint32_t)(FUZZ_TENSORS - first))];
    return t->memory && t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3] > 0 ? t : NULL;
}

static int missing_data(fuzz_problem *p, fuzz_bytes *bytes)
{
    fuzz_tensor *t = tensor_with_elements(p, bytes, 0);
    if (!t)
        return 0;
    fuzz_view_point(t->view, NULL);
    return 1;
}

static int output_broadcast(fuzz_problem *p, fuzz_bytes *bytes)
{
    fuzz_tensor *t = tensor_with_elements(p, bytes, FUZZ_OUT);
    uint32_t axis = fuzz_below(bytes, 4);
    if (!t || t->dim[axis] < 2)
        return 0;
    t->view.stride[axis] = 0;
    return 1;
}

static int stride_out_of_reach(fuzz_problem *p, fuzz_bytes *bytes)
{
    fuzz_tensor *t = tensor_with_elements(p, bytes, 0);
    uint32_t axis = fuzz_below(bytes, 4);
    if (!t || t->dim[axis] < 2)
        return 0;
    t->view.stride[axis] = fuzz_byte(bytes) & 1 ? INT64_MAX : INT64_MIN;
    return 1;
}

static int out_is_an_input(fuzz_problem *p, fuzz_bytes *bytes)
{
    fuzz_tensor *t = tensor_with_elements(p, bytes, 0);
    if (!t || t->view.out == &p->args.out.data || p->args.out.data == NULL || p->args.batch == 0 ||
        p->args.q_len == 0)
        return 0;
    fuzz_view_point(t->view, p->args.out.data);
    return 1;
}

static int bad_executor(fuzz_problem *p, fuzz_bytes *bytes)
{
    /* Lacks parallel_for, or threads too. */
    static const heed_executor executors[] = {
        {.struct_size = sizeof(heed_executor), .n_threads = 2},
        {.struct_size = sizeof(heed_executor)},
        {.struct_size = 0}};
    p->args.executor = &executors[fuzz_below(bytes, 3)];
    return 1;
}

const char *fuzz_spoil(fuzz_problem *problem, fuzz_bytes *bytes)
{
    static const struct {
        const char *name;
        int (*spoil)(fuzz_problem *p, fuzz_bytes *bytes); /* 0: not here */
    } list[] = {
        {"no heads or dims", no_heads},
        {"heads no multiple", heads_no_multiple},
        {"no such type", no_such_type},
        {"no such choice", no_such_choice},
        {"feature without argument", feature_without_argument},
        {"argument without feature", argument_without_feature},
        {"superfluous argument", superfluous_argument},
        {"bad number", bad_number},
        {"bad window", bad_window},
        {"bad maximum", bad_maximum},
        {"bad struct_size", bad_struct_size},
        {"bad size", bad_size},
        {"bad length", bad_length},
        {"bad start", bad_start},
        {"bad page", bad_page},
        {"bad table", bad_table},
        {"missing data", missing_data},
        {"output broadcast", output_broadcast},
        {"stride out of reach", stride_out_of_reach},
        {"out is an input", out_is_an_input},
        {"bad executor", bad_executor},
    };
    uint32_t which = fuzz_below(bytes, sizeof list / sizeof *list);
    return list[which].spoil(problem, bytes) ? list[which].name : NULL;
}
