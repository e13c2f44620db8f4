/* heed_strides_reach: strides are too far if sum((length - 1) * |stride|) * bytes exceeds half the
 * address space. Here that is computed in 128 bits, for strides and lengths around every power of
 * two. And a refusal tells for how many rows that is, which with packed rows no argument says; and
 * strides of tensors without elements, which are not looked at, are put away. */
#include "attention/validate.h"
#include "base/rows.h"
#include "unit.h"

__extension__ typedef unsigned __int128 wide;

static int64_t near_power(uint64_t *state, int least, int most)
{
    const int64_t power = INT64_C(1) << (least + kit_below(state, most - least + 1));
    return power - 2 + kit_below(state, 5);
}

static int64_t stride_of(uint64_t *state)
{
    const int64_t far = near_power(state, 1, 62);
    switch (kit_below(state, 16)) {
    case 0:
        return INT64_MIN;
    case 1:
        return INT64_MAX;
    default:
        return kit_below(state, 2) ? far : -far;
    }
}

/* Packed rows count as many as there can be: of q and out max_rows, of k and v 2^31 - 1. */
static void check_sentences(void)
{
    static const int32_t start[] = {0};
    static const char *const said[] = {"args.q has strides 0, 16, 2147483648, 1 that reach beyond "
                                       "the address space with a shape of "
                                       "1, 1, 1073741824, 8",
                                       "args.k has strides 0, 16, 2147483648, 1 that reach beyond "
                                       "the address space with a shape of "
                                       "1, 1, 2147483647, 8",
                                       "args.v has strides 0, 16, 2147483648, 1 that reach beyond "
                                       "the address space with a shape of "
                                       "1, 1, 2147483647, 8",
                                       "args.out has strides 0, 16, 2147483648, 1 that reach "
                                       "beyond the address space with a shape "
                                       "of 1, 1, 1073741824, 8"};
    const int64_t far[] = {0, 16, INT64_C(1) << 31, 1};
    heed_context *context = unit_context(1, "naive");
    for (int n = 0; n < 4; n++) {
        unit_problem p = unit_make(1, 1, 2, 2, 8, 3);
        int64_t *const stride[] = {p.args.q.stride, p.args.k.stride, p.args.v.stride,
                                   p.args.out.stride};
        p.desc.features = HEED_HAS_PACKED;
        p.desc.max_rows = 1 << 30;
        p.args.q_starts = p.args.kv_starts = start;
        memcpy(stride[n], far, sizeof far);
        const heed_status st = heed_attention(context, &p.desc, &p.args);
        CHECK(st == HEED_ERR_INVALID && strstr(heed_last_error(), said[n]), "'%s', not '%s'",
              heed_last_error(), said[n]);
        unit_free(&p);
    }
    heed_context_release(context);
}

static void check_settled(const char *name, const int64_t stride[4], int64_t dim)
{
    CHECK(!stride[0] && !stride[1] && !stride[2] && stride[3] == dim,
          "%s keeps strides %lld, %lld, %lld, %lld", name, (long long)stride[0],
          (long long)stride[1], (long long)stride[2], (long long)stride[3]);
}

/* Where there are no keys, tensors of keys may have any strides, and core is to multiply by none of
 * them. */
static void check_empty(void)
{
    static const float scale = 1;
    static const uint64_t word;
    const int64_t far = INT64_MAX / 2;
    unit_problem p = unit_make(2, 2, 3, 0, 8, 4);
    const heed_const_view any = {&word, {far, -far, INT64_MIN, far}};
    heed_error why;
    p.desc.features = HEED_HAS_MASK | HEED_HAS_BIAS | HEED_HAS_KEY_BLOCKS | HEED_HAS_QUANT;
    p.desc.k_type = p.desc.v_type = HEED_I8;
    p.desc.bias_type = HEED_F32;
    p.desc.block_rows = p.desc.block_keys = 1;
    p.args.k = p.args.v = p.args.mask = p.args.bias = p.args.key_blocks = any;
    p.args.k_quant = p.args.v_quant = (heed_quant){&scale, NULL, {far, far, far, 0}, 0, 0};
    p.desc.max_batch = p.args.batch;
    p.desc.max_q_len = p.args.q_len;
    CHECK(heed_validate_args(&p.desc, &p.args, &why) == HEED_OK, "%s", why.text);
    check_settled("k", p.args.k.stride, 1);
    check_settled("v", p.args.v.stride, 1);
    check_settled("mask", p.args.mask.stride, 1);
    check_settled("bias", p.args.bias.stride, 1);
    check_settled("key_blocks", p.args.key_blocks.stride, 1);
    check_settled("k_quant", p.args.k_quant.stride, 0);
    check_settled("v_quant", p.args.v_quant.stride, 0);
    unit_free(&p);
}

/* A cache that has no page yet has no element either: nothing is asked of its strides and address. */
static void check_no_pages(void)
{
    static const int32_t table[2] = {-1, -1}, lens[2] = {0, 0};
    static const float scale = 1;
    const int64_t far = INT64_MAX / 2;
    unit_problem p = unit_make(2, 2, 3, 5, 32, 4);
    heed_error why;
    p.desc.features = HEED_HAS_PAGES | HEED_HAS_LENS;
    p.desc.k_type = p.desc.v_type = HEED_Q8_0;
    p.desc.page_len = 8;
    p.args.block_table = table;
    p.args.block_table_stride = 1;
    p.args.kv_lens = lens;
    p.args.k = p.args.v = (heed_const_view){p.out, {0}};
    heed_attn_args args = p.args;
    CHECK(heed_validate_args(&p.desc, &args, &why) == HEED_OK, "%s", why.text);
    p.desc.features |= HEED_HAS_QUANT;
    p.desc.k_type = p.desc.v_type = HEED_I8;
    p.args.k_quant = p.args.v_quant = (heed_quant){&scale, NULL, {far, far, far, 0}, 0, 0};
    CHECK(heed_validate_args(&p.desc, &p.args, &why) == HEED_OK, "%s", why.text);
    check_settled("k", p.args.k.stride, 1);
    check_settled("v", p.args.v.stride, 1);
    check_settled("k_quant", p.args.k_quant.stride, 0);
    check_settled("v_quant", p.args.v_quant.stride, 0);
    unit_free(&p);
}

int main(void)
{
    static const int64_t width[] = {1, 2, 4, 8};
    const wide most = PTRDIFF_MAX / 2;
    uint64_t state = 25;
    int n_far = 0, n_near = 0;
    for (int i = 0; i < 400000; i++) {
        int64_t stride[4], shape[4];
        wide sum = 0;
        const int axes = 1 + (int)kit_below(&state, 4);
        const int64_t bytes = width[kit_below(&state, 4)];
        /* Every other time all axes have one stride, so that the sum may be too far though no
         * single term of it is. */
        const int64_t one = near_power(&state, 20, 31);
        for (int a = 0; a < axes; a++) {
            stride[a] = i % 2 ? one : stride_of(&state);
            shape[a] = i % 4 == 3 ? INT32_MAX : near_power(&state, 2, 40);
            const uint64_t size = stride[a] < 0 ? 0 - (uint64_t)stride[a] : (uint64_t)stride[a];
            sum += (wide)size * (wide)(shape[a] - 1);
        }
        const int near = sum * (wide)bytes <= most;
        n_near += near, n_far += !near;
        CHECK(heed_strides_reach(stride, axes, shape, bytes) == near,
              "%d axes of %lld bytes, first of stride %lld and length %lld: %s", axes,
              (long long)bytes, (long long)stride[0], (long long)shape[0],
              near ? "said to be too far" : "said to be near");
    }
    CHECK(n_near > 10000 && n_far > 10000, "%d are near, %d are far", n_near, n_far);
    check_sentences();
    check_empty();
    check_no_pages();
    return checks_end();
}
