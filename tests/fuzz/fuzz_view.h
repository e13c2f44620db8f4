/* A view of either kind where it stands in args, to be changed without regard to its kind. */
#ifndef FUZZ_VIEW_H
#define FUZZ_VIEW_H

#include <heed/tensor.h>

typedef struct fuzz_view {
    const void **in; /* one of the two: where its data stands */
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
