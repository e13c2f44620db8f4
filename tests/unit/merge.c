/* Softmax over a key range must not depend on where the range is cut: the property that lets core
 * give parts of one row to different threads. Both units of the reference, empty parts included. */
#include <heed/kit.h>

#include "attention/softmax_state.h"
#include "unit.h"

enum { KEYS = 13, DIM = 3, STRIDE = 16, STATE = 18 };

/* The state of keys [first, end), with reference `m` = the maximum, rounded up in log2 units. */
static void state_of(float *at, const double *s, float v[KEYS][DIM], int first, int end, int log2)
{
    heed_state state = heed_state_at(at, 1, STRIDE);
    const double unit = log2 ? 1.4426950408889634 : 1;
    double m = -(double)INFINITY, sum = 0, acc[DIM] = {0};
    for (int j = first; j < end; j++)
        m = s[j] * unit > m ? s[j] * unit : m;
    if (log2)
        m = ceil(m);
    for (int j = first; j < end; j++) {
        double p = m == -(double)INFINITY ? 0 : log2 ? exp2(s[j] * unit - m) : exp(s[j] - m);
        sum += p;
        for (int d = 0; d < DIM; d++)
            acc[d] += p * (double)v[j][d];
    }
    *state.row_max = sum == 0 ? 3e38F : (float)m; /* that of an empty part does not matter */
    *state.row_sum = (float)sum;
    for (int d = 0; d < DIM; d++)
        state.acc[d] = (float)acc[d];
}

static void every_cut(const double *s, const char *name)
{
    float v[KEYS][DIM];
    uint64_t r = 7;
    double want[DIM] = {0}, m = -(double)INFINITY, sum = 0;
    for (int j = 0; j < KEYS; j++)
        for (int d = 0; d < DIM; d++)
            v[j][d] = unit_number(&r);
    for (int j = 0; j < KEYS; j++)
        m = s[j] > m ? s[j] : m;
    for (int j = 0; j < KEYS && m != -(double)INFINITY; j++) {
        sum += exp(s[j] - m);
        for (int d = 0; d < DIM; d++)
            want[d] += exp(s[j] - m) * (double)v[j][d];
    }
    for (int way = 0; way < 4; way++)
        for (int i = 0; i <= KEYS; i++)
            for (int j = i; j <= KEYS; j++) { /* equal cuts make an empty part */
                const int log2 = way % 2, late = way / 2;
                _Alignas(64) float parts[3][STATE + 14];
                state_of(parts[0], s, v, 0, i, log2);
                state_of(parts[1], s, v, i, j, log2);
                state_of(parts[2], s, v, j, KEYS, log2);
                const heed_state part[] = {heed_state_at(parts[0], 1, STRIDE),
                                           heed_state_at(parts[1], 1, STRIDE),
                                           heed_state_at(parts[2], 1, STRIDE)};
                /* parts 0 and 1 first, or 1 and 2 */
                heed_state_merge(&part[late], &part[late + 1], 1, DIM, STRIDE, log2);
                heed_state_merge(&part[0], &part[2 - late], 1, DIM, STRIDE, log2);
                const heed_state out = part[0];
                CHECK((*out.row_sum == 0) == (sum == 0), "%s: cut %d %d: sum %g", name, i, j,
                      (double)*out.row_sum);
                if (sum == 0)
                    continue;
                double lse = (double)*out.row_max * (log2 ? 0.6931471805599453 : 1) +
                             log((double)*out.row_sum);
                double bound = 4 * KEYS * 0x1p-24, want_lse = m + log(sum);
                CHECK(fabs(lse - want_lse) <= bound * (1 + fabs(want_lse)),
                      "%s: cut %d %d, log2 %d: lse %g for %g", name, i, j, log2, lse, want_lse);
                for (int d = 0; d < DIM; d++)
                    CHECK(fabs((double)out.acc[d] / (double)*out.row_sum - want[d] / sum) <= bound,
                          "%s: cut %d %d, log2 %d: out", name, i, j, log2);
            }
}

/* A NaN that a row has seen must survive the merge, whichever part held it. */
static void nan_survives(void)
{
    for (int where = 0; where < 2; where++)
        for (int what = 0; what < 4; what++) { /* 3: in the v of a key that has no weight */
            _Alignas(64) float parts[2][32] = {{0}};
            for (int n = 0; n < 2; n++) {
                heed_state part = heed_state_at(parts[n], 1, STRIDE);
                *part.row_max = n == where ? 0 : 400; /* the other part outweighs it entirely */
                *part.row_sum = 1;
                part.acc[0] = 1;
            }
            heed_state with = heed_state_at(parts[where], 1, STRIDE);
            *(what == 0 ? with.row_sum : what == 2 ? with.row_max : with.acc) = NAN;
            if (what == 3)
                *with.row_sum = 0;
            const heed_state out = heed_state_at(parts[0], 1, STRIDE);
            const heed_state last = heed_state_at(parts[1], 1, STRIDE);
            heed_state_merge(&out, &last, 1, DIM, STRIDE, 0);
            CHECK(isnan(out.acc[0]) || isnan(*out.row_sum), "NaN in part %d, member %d, is lost",
                  where, what);
        }
}

int main(void)
{
    double near[KEYS], far[KEYS], gone[KEYS], none[KEYS];
    for (int j = 0; j < KEYS; j++) {
        near[j] = (j * 5 % 7 - 3) * 0.7;
        far[j] = (j % 3 - 1) * 1e4;
        gone[j] = j % 4 ? -(double)INFINITY : j * 0.3;
        none[j] = -(double)INFINITY;
    }
    every_cut(near, "scores around 0");
    every_cut(far, "scores 1e4 apart");
    every_cut(gone, "most keys masked");
    every_cut(none, "all keys masked");
    nan_survives();
    return checks_end();
}
