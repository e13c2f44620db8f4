/* Causal self-attention of 8 heads over 128 tokens, as an engine would call it. */
#include <heed/heed.h>
#include <stdio.h>

enum { HEADS = 8, LEN = 128, DIM = 64 };
static float q[HEADS][LEN][DIM], k[HEADS][LEN][DIM], v[HEADS][LEN][DIM], out[HEADS][LEN][DIM];

int main(void)
{
    heed_context *context; /* once per engine: threads, backends, cached plans */
    heed_attn_desc desc = {.struct_size = sizeof desc, .features = HEED_HAS_CAUSAL};
    heed_attn_args args = {.struct_size = sizeof args, .batch = 1, .q_len = LEN, .kv_len = LEN};

    desc.position = HEED_POS_TOP_LEFT;
    desc.q_heads = desc.kv_heads = HEADS;
    desc.qk_dim = desc.v_dim = DIM;
    desc.q_type = desc.k_type = desc.v_type = desc.out_type = HEED_F32;
    args.q = (heed_const_view){q, {0, LEN * DIM, DIM, 1}}; /* strides of [batch, head, row, dim] */
    args.k = (heed_const_view){k, {0, LEN * DIM, DIM, 1}};
    args.v = (heed_const_view){v, {0, LEN * DIM, DIM, 1}};
    args.out = (heed_view){out, {0, LEN * DIM, DIM, 1}};

    v[0][0][0] = 1; /* the first row sees the first key alone, so its output is that key's value */
    if (heed_context_create(NULL, &context) || heed_attention(context, &desc, &args)) {
        fprintf(stderr, "%s\n", heed_last_error());
        return 1;
    }
    printf("%g\n", (double)out[0][0][0]);
    heed_context_release(context);
    return out[0][0][0] != 1;
}
