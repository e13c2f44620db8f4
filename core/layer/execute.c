/* A part's walk through the phases of a layer. */
#include "base/compiler.h"
#include "base/rows.h"
#include "kv_append.h"
#include "mha.h"
#include "rotary.h"

/* ---- units of rows ----------------------------------------------------------------------------
 */

typedef struct unit {
    int64_t b, first, end; /* rows of sequence b */
} unit;

static unit find_unit(const heed_mha_rows *rows, int64_t batch, int64_t n)
{
    int64_t low = 0, high = batch; /* low: the last with first_unit <= n, which has rows */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (rows->first_unit[middle] <= n)
            low = middle;
        else
            high = middle;
    }
    const int64_t first = (n - rows->first_unit[low]) * HEED_MHA_UNIT_ROWS;
    const int64_t end = first + HEED_MHA_UNIT_ROWS;
    return (unit){low, first, end < rows->lens[low] ? end : rows->lens[low]};
}

static void copy_unit(const heed_mha_copy *c, int64_t batch, int64_t n, int scatter)
{
    const unit u = find_unit(c->rows, batch, n);
    for (int64_t i = u.first; i < u.end; i++) {
        const int64_t compact = (c->rows->starts[u.b] + i) * c->width;
        const int64_t *stride = c->user_stride;
        const int64_t user = c->rows->user_starts ? (c->rows->user_starts[u.b] + i) * stride[1]
                                                  : u.b * stride[0] + i * stride[1];
        if (scatter)
            heed_convert(&(heed_elements){c->type, c->from, compact, 1}, c->type, c->to, user,
                         stride[2], c->width);
        else
            heed_convert(&(heed_elements){c->type, c->from, user, stride[2]}, c->type, c->to,
                         compact, 1, c->width);
    }
}

static void copy_units(heed_mha_run_state *run, const heed_mha_copy *copies, uint32_t n_copies,
                       int64_t n, int scatter)
{
    for (uint32_t i = 0; i < n_copies; i++) {
        if (n < copies[i].rows->n_units) {
            copy_unit(&copies[i], run->args.batch, n, scatter);
            return;
        }
        n -= copies[i].rows->n_units;
    }
}

/* Units of q come first, then those of the new keys and values. */
static void turn_unit(heed_mha_run_state *run, int64_t n)
{
    const int turns = run->turn_q.rotary.style != HEED_ROTARY_NONE;
    if (turns && n < run->q_rows.n_units) {
        const unit u = find_unit(&run->q_rows, run->args.batch, n);
        heed_rotary_rows(&run->turn_q, u.b, u.first, u.end);
        return;
    }
    const unit u = find_unit(&run->kv_rows, run->args.batch, n - (turns ? run->q_rows.n_units : 0));
    if (turns)
        heed_rotary_rows(&run->turn_k, u.b, u.first, u.end);
    if (run->mha->cache)
        heed_kv_append_rows(&run->append, run->mha->encoder, u.b, u.first, u.end);
}

static void run_units(heed_mha_run_state *run, int phase)
{
    heed_mha_phase *p = &run->phase[phase];
    for (;;) {
        int64_t n = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (n >= p->n_units)
            break;
        if (phase == HEED_PHASE_TURN)
            turn_unit(run, n);
        else if (phase == HEED_PHASE_GATHER)
            copy_units(run, run->gather, run->n_gathers, n, 0);
        else
            copy_units(run, run->scatter, run->n_scatters, n, 1);
    }
}

/* ---- phases -----------------------------------------------------------------------------------
 */

/* Does a part of a run within this one. An error of that run becomes this one's. */
static void run_inner(heed_mha_run_state *run, heed_run_head *inner, uint32_t part)
{
    heed_status st = inner ? heed_run_take(inner, part) : HEED_OK;
    if (st == HEED_OK || !heed_run_claims_error(&run->head))
        return;
    run->head.error = inner->error;
    heed_run_failed(&run->head, st);
}

static void run_phase(heed_mha_run_state *run, int phase, uint32_t part)
{
    switch (phase) {
    case HEED_PHASE_PROJECT:
        for (int i = 0; i < HEED_SLOTS; i++)
            run_inner(run, run->project[i], part);
        break;
    case HEED_PHASE_ATTEND:
        run_inner(run, run->attention, part);
        break;
    case HEED_PHASE_OUT:
        run_inner(run, run->out, part);
        break;
    default:
        run_units(run, phase);
    }
}

/* A part counts itself active before it takes any of a phase's work, and counts itself out when it
 * finds none left. So a part that has found none, and then sees no part active, knows that all of
 * the work is done: each part that took some was counted before. The fences order this count
 * against the counters from which work is taken, which are relaxed. No part waits for one that has
 * not come, so a part that is alone comes to an end. */
void heed_mha_take(heed_run_head *head, uint32_t part)
{
    heed_mha_run_state *run = (heed_mha_run_state *)(void *)head; /* its first member */
    for (int i = 0; i < HEED_PHASES; i++) {
        heed_mha_phase *p = &run->phase[i];
        if (!p->busy)
            continue;
        if (atomic_load_explicit(&head->status, memory_order_acquire) != HEED_OK)
            break;
        atomic_fetch_add_explicit(&p->active, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        run_phase(run, i, part);
        atomic_thread_fence(memory_order_seq_cst);
        atomic_fetch_sub_explicit(&p->active, 1, memory_order_release);
        while (atomic_load_explicit(&p->active, memory_order_acquire))
            HEED_PAUSE();
    }
}
