/* A pointer to a view inside args, const or not, so that both kinds can be changed by the same
 * code. */
#ifndef FUZZ_VIEW_H
#define FUZZ_VIEW_H

#include <heed/tensor.h>

typedef struct fuzz_view {
    const void **in; /* one of the two points to the view's data pointer */
    void **out;
    int64_t *stride;
} fuzz_view;

/* clang-format off */
#define FUZZ_IN(view) {.in = &(view).data, .stride = (view).stride}
#define FUZZ_OUT(view) {.out = &(view).data, .stride = (view).stride}
/* clang-format on */

static inline void fuzz_view_point(fuzz_view view, void *data)
{
    if (view.in)
        *view.in = data;
    else
        *view.out = data;
}

static inline const void *fuzz_view_data(fuzz_view view)
{
    return view.in ? *view.in : *view.out;
}

#endif
