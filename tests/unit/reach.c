/* heed_strides_reach: strides are too far if sum((length - 1) * |stride|) * bytes exceeds half the
 * address space. Here that is computed in 128 bits, for strides and lengths around every power of
 * two. */
#include "base/rows.h"
#include "unit.h"

__extension__ typedef unsigned __int128 wide;

static int64_t near_power(uint64_t *state, int least, int most)
{
    const int64_t power = INT64_C(1) << (least + unit_below(state, most - least + 1));
    return power - 2 + unit_below(state, 5);
}

static int64_t stride_of(uint64_t *state)
{
    const int64_t far = near_power(state, 1, 62);
    switch (unit_below(state, 16)) {
    case 0:
        return INT64_MIN;
    case 1:
        return INT64_MAX;
    default:
        return unit_below(state, 2) ? far : -far;
    }
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
        const int axes = 1 + (int)unit_below(&state, 4);
        const int64_t bytes = width[unit_below(&state, 4)];
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
    return checks_end();
}
