/* A view of either kind where it stands in args, to be changed without regard to its kind. */
#ifndef HEED_KIT_VIEW_H
#define HEED_KIT_VIEW_H

#include <heed/tensor.h>

typedef struct kit_view {
    const void **in; /* one of the two: where its data stands */
    void **out;
    int64_t *stride;
} kit_view;

/* clang-format off */
#define KIT_IN_VIEW(view) {.in = &(view).data, .stride = (view).stride}
#define KIT_OUT_VIEW(view) {.out = &(view).data, .stride = (view).stride}
/* clang-format on */

static inline void kit_view_point(kit_view view, void *data)
{
    if (view.in)
        *view.in = data;
    else
        *view.out = data;
}

static inline const void *kit_view_data(kit_view view)
{
    return view.in ? *view.in : *view.out;
}

#endif
