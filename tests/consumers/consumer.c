/* A program outside the project: attention of three query rows over four keys, whose results were
 * computed by hand.
 *
 * The first query has the same score for all keys, so its output is the mean of V. The second and
 * third have so high a score for one key that the softmax is one-hot, and their outputs are the
 * value of that key.
 */
#include <math.h>
#include <stdio.h>

#include <heed/heed.h>

enum { Q_LEN = 3, KV_LEN = 4, DIM = 2 };

int main(void)
{
    const float q[Q_LEN][DIM] = {{0, 0}, {1e4f, 0}, {0, -1e4f}};
    const float k[KV_LEN][DIM] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    const float v[KV_LEN][DIM] = {{1, 8}, {2, 6}, {3, 4}, {6, -2}};
    const float want[Q_LEN][DIM] = {{3, 4}, {1, 8}, {6, -2}};
    float out[Q_LEN][DIM] = {{0}};
    heed_context *context = NULL;
    heed_attn_desc desc = {sizeof desc};
    heed_attn_args args = {sizeof args};

    if (heed_version() != HEED_VERSION_NUMBER) {
        printf("library %x, headers %x\n", heed_version(), HEED_VERSION_NUMBER);
        return 1;
    }
    desc.q_heads = desc.kv_heads = 1;
    desc.qk_dim = desc.v_dim = DIM;
    desc.q_type = desc.k_type = desc.v_type = desc.out_type = HEED_F32;
    args.batch = 1;
    args.q_len = Q_LEN;
    args.kv_len = KV_LEN;
    args.q = (heed_const_view){q, {0, 0, DIM, 1}};
    args.k = (heed_const_view){k, {0, 0, DIM, 1}};
    args.v = (heed_const_view){v, {0, 0, DIM, 1}};
    args.out = (heed_view){out, {0, 0, DIM, 1}};

    if (heed_context_create(NULL, &context) != HEED_OK ||
        heed_attention(context, &desc, &args) != HEED_OK) {
        printf("%s\n", heed_last_error());
        return 1;
    }
    heed_context_release(context);

    int bad = 0;
    for (int i = 0; i < Q_LEN; i++) {
        for (int d = 0; d < DIM; d++) {
            /* Four keys with a weight of 1/4: at most 8 roundings of numbers up to 8. */
            int close = fabsf(out[i][d] - want[i][d]) <= 8 * 8 * 0x1p-24f;
            printf("out[%d][%d] = %g%s\n", i, d, (double)out[i][d], close ? "" : ", wrong");
            bad += !close;
        }
    }
    return bad != 0;
}
