/* A row of a call gives the bits that it gives alone, with HEED_HAS_REPRODUCIBLE_CHUNKS. */
#include "unit.h"

/* Runs each row of a causal call alone, over keys that end where the row stands: the keys that
 * follow in the whole call may change no bit. Among so many rows some have sums that round to other
 * bits if blocks of keys are cut elsewhere. */
static void rows_alone(const char *backend)
{
    enum { SEEDS = 60, HEADS_ALONE = 8, ROWS_ALONE = 96, KEYS_ALONE = 300, DIM_ALONE = 64 };
    heed_context *context = unit_context(1, backend);
    int wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        unit_problem p = unit_make(1, HEADS_ALONE, ROWS_ALONE, KEYS_ALONE, DIM_ALONE, seed * 1000);
        p.desc.features = HEED_HAS_CAUSAL | HEED_HAS_REPRODUCIBLE_CHUNKS | HEED_HAS_SCALE;
        p.desc.scale = (float)(1 + seed % 6) / 4; /* from even weights to almost one-hot */
        p.desc.position = HEED_POS_BOTTOM_RIGHT;
        float *whole = malloc(p.out_bytes);
        heed_attn_args args = p.args;
        args.out.data = whole;
        heed_status st = heed_attention(context, &p.desc, &args);
        for (int64_t i = 0; i < ROWS_ALONE && st == HEED_OK; i++) {
            args = p.args;
            args.q_len = 1;
            args.kv_len = KEYS_ALONE - ROWS_ALONE + i + 1;
            args.q.data = p.q + i * DIM_ALONE;
            args.out.data = p.out + i * DIM_ALONE;
            st = heed_attention(context, &p.desc, &args);
        }
        CHECK_OK(st);
        for (size_t i = 0; i < p.out_bytes / sizeof(float) && st == HEED_OK; i++)
            wrong += memcmp(&whole[i], &p.out[i], sizeof(float)) != 0;
        free(whole);
        unit_free(&p);
    }
    CHECK(wrong == 0, "%s: %d elements of rows alone have other bits", backend ? backend : "any",
          wrong);
    heed_context_release(context);
}

int main(void)
{
    rows_alone(NULL);
    return checks_end();
}
