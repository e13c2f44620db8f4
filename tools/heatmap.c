/* The heed command: prints attention weights as a map of characters. */
#include "cli.h"

/* The characters for weights from 0 to 1; the blank is for weights of 0 alone. */
static const char shades[] = " .:-=+*#%@";

static char shade_of(float weight)
{
    int last = (int)sizeof shades - 2;
    if (!(weight == weight))
        return '?';
    if (weight == 0)
        return shades[0];
    /* By the square root, since most weights of a softmax over many keys are near 0 and would be
     * blank. */
    int shade = 1 + (int)(sqrtf(weight) * (float)last);
    return shades[shade < last ? shade : last];
}

/* The largest weight of rows [i, i_end) and keys [j, j_end), or NaN if there is one. */
static float largest(const float *weights, int64_t kv_len, int64_t i, int64_t i_end, int64_t j,
                     int64_t j_end)
{
    float most = 0;
    for (int64_t row = i; row < i_end; row++)
        for (int64_t key = j; key < j_end; key++) {
            float weight = weights[row * kv_len + key];
            if (!(weight <= most))
                most = weight;
            if (most != most)
                return most;
        }
    return most;
}

void heed_cli_heatmap(FILE *out, const float *weights, int64_t q_len, int64_t kv_len,
                      int64_t columns)
{
    const int64_t most_rows = 48, margin = 8; /* the margin has the number of the row */
    int64_t room = columns - margin - 2;
    int64_t rows_each = (q_len + most_rows - 1) / most_rows, keys_each = (kv_len + room - 1) / room;
    if (q_len == 0 || kv_len == 0) {
        fprintf(out, "(empty)\n");
        return;
    }
    for (int64_t i = 0; i < q_len; i += rows_each) {
        fprintf(out, "%7lld |", (long long)i);
        for (int64_t j = 0; j < kv_len; j += keys_each)
            fputc(
                shade_of(largest(weights, kv_len, i, i + rows_each < q_len ? i + rows_each : q_len,
                                 j, j + keys_each < kv_len ? j + keys_each : kv_len)),
                out);
        fprintf(out, "|\n");
    }
    if (rows_each > 1 || keys_each > 1)
        fprintf(out, "a character is the largest weight of %lld rows x %lld keys\n",
                (long long)rows_each, (long long)keys_each);
    fprintf(out, "shades '%s' by the square root of the weight, 0 to 1; blank is hidden\n", shades);
}
