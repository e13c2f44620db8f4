/* See crew.h. */
#include "crew.h"

#include <stdatomic.h>

#include "base/checked.h"
#include "base/fpenv.h"

/* Each part takes this many pieces if all are equally fast. A part that comes late, or not at all,
 * as OpenMP's may, leaves its pieces to the others. */
enum { PIECES_PER_PART = 4 };

typedef struct work {
    heed_crew_rows *rows;
    void *arg;
    int64_t n, piece;
    atomic_llong next;
} work;

static void take(void *arg, uint32_t part)
{
    work *w = arg;
    int64_t first;
    (void)part;
    heed_fpenv saved = heed_fpenv_enter();
    while ((first = atomic_fetch_add_explicit(&w->next, w->piece, memory_order_relaxed)) < w->n)
        w->rows(w->arg, first, heed_min64(first + w->piece, w->n));
    heed_fpenv_leave(saved);
}

void heed_crew_do(const heed_crew *crew, int64_t n, int64_t nanoseconds, heed_crew_rows *rows,
                  void *arg)
{
    if (n <= 0)
        return;
    const heed_fpenv saved = heed_fpenv_enter();
    const uint32_t parts =
        heed_parts_worth((double)n * (double)nanoseconds, crew->limit, n, crew->n_threads);
    heed_fpenv_leave(saved);
    work w = {.rows = rows, .arg = arg, .n = n, .piece = n};
    if (parts > 1)
        w.piece = heed_ceil_div(n, (int64_t)parts * PIECES_PER_PART);
    atomic_init(&w.next, 0);
    heed_parallel(crew->executor, parts, take, &w);
    if (atomic_load(&w.next) < n) /* an executor that has run nothing, as one that is shut down */
        take(&w, 0);
}
