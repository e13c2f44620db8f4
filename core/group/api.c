/* The public calls of groups: what is given is checked here, before anything travels. */
#include <heed/kit.h>

#include "agree.h"
#include "attention/planning.h"
#include "attention/validate.h"
#include "base/checked.h"
#include "base/reason.h"
#include "base/rows.h"
#include "read.h"
#include "ring.h"
#include "runtime/parallel.h"
#include "runtime/run.h"
#include "runtime/spare.h"
#include "split.h"

/* ---- checks -----------------------------------------------------------------------------------
 */

/* The most ranks: no count of their messages overflows 32 bits. */
#define MOST_RANKS (1u << 20)

static heed_status read_transport(const heed_transport *given, heed_transport *t, heed_error *why)
{
    heed_status st = heed_read_struct("transport", given, sizeof *t, t, why);
    if (st != HEED_OK)
        return st;
    if (t->size == 0 || t->size > MOST_RANKS)
        INVALID("transport.size is %u, 1 to %u is required", t->size, MOST_RANKS);
    if (t->rank >= t->size)
        INVALID("transport.rank is %u, less than its size = %u is required", t->rank, t->size);
    if (t->size > 1 && (!t->send || !t->receive || !t->test || !t->wait || !t->cancel))
        INVALID("transport.%s is NULL", !t->send      ? "send"
                                        : !t->receive ? "receive"
                                        : !t->test    ? "test"
                                        : !t->wait    ? "wait"
                                                      : "cancel");
    return HEED_OK;
}

/* Checks that this rank has no more rows and keys than the args have room for. */
static heed_status check_lengths(const heed_group_call *call, heed_error *why)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    const int apart = heed_rows_apart(s);
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t keys = heed_held_before(s, s->part.key_first, b, s->rank, s->part.n_parts);
        if (keys > a->kv_len)
            INVALID("partition.key_first gives rank %u %lld keys of sequence %lld, and args.kv_len "
                    "is %lld",
                    s->rank, (long long)keys, (long long)b, (long long)a->kv_len);
        if (a->kv_starts && (a->kv_starts[b] < 0 || a->kv_starts[b] + keys > INT32_MAX))
            INVALID("args.kv_starts[%lld] is %d: with %lld keys, 0 to %lld is required",
                    (long long)b, a->kv_starts[b], (long long)keys, (long long)INT32_MAX - keys);
        const int64_t rows =
            apart ? heed_held_before(s, s->part.row_first, b, s->rank, s->part.n_parts) : 0;
        if (rows > a->q_len)
            INVALID("partition.row_first gives rank %u %lld rows of sequence %lld, and args.q_len "
                    "is %lld",
                    s->rank, (long long)rows, (long long)b, (long long)a->q_len);
        if (a->mask_from &&
            (a->mask_from[b] < 0 ||
             a->mask_from[b] > heed_first_of(s, s->part.key_first, b, s->part.n_parts)))
            INVALID("args.mask_from[%lld] is %d, 0 to the sequence's keys is required",
                    (long long)b, a->mask_from[b]);
        const int32_t q = a->q_lens ? a->q_lens[b] : apart ? (int32_t)rows : (int32_t)a->q_len;
        if (q < 0 || q > a->q_len)
            INVALID("args.q_lens[%lld] is %d, 0 to args.q_len = %lld is required", (long long)b, q,
                    (long long)a->q_len);
        if (a->q_starts && (a->q_starts[b] < 0 || a->q_starts[b] + (int64_t)q > s->desc->max_rows))
            INVALID("args.q_starts[%lld] is %d: with %d rows, 0 to %lld is required", (long long)b,
                    a->q_starts[b], q, (long long)s->desc->max_rows - q);
    }
    return HEED_OK;
}

/* Checks how far mask, bias and lists reach: over the keys of whole sequences, and over their rows
 * where rows travel. Ranges are read before a local run could ask whether they are there, and only
 * for a rank's own keys. */
static heed_status check_pairs(const heed_group_call *call, heed_error *why)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    const int64_t keys = heed_longest(s, s->part.key_first);
    const int all_rows = heed_rows_apart(s) && s->part.scheme == HEED_GROUP_SPLIT;
    const int64_t rows = all_rows ? heed_longest(s, s->part.row_first) : a->q_len;
    const int64_t shape[] = {s->batch, s->desc->q_heads, rows, keys};
    heed_status st = HEED_OK;
    if (a->mask.data)
        st = heed_check_view("mask", a->mask.data, a->mask.stride, 1, 0, shape, why);
    if (a->bias.data && st == HEED_OK)
        st = heed_check_view("bias", a->bias.data, a->bias.stride, 4, 0, shape, why);
    if (s->desc->features & HEED_HAS_RANGES && heed_has_keys(s, s->rank) && st == HEED_OK)
        st = heed_check_view("ranges", a->ranges.data, a->ranges.stride, 8, 0,
                             (int64_t[]){s->batch, s->desc->q_heads, rows, s->desc->n_ranges}, why);
    if (a->key_blocks.data && st == HEED_OK)
        st = heed_check_view("key_blocks", a->key_blocks.data, a->key_blocks.stride, 8, 0,
                             (int64_t[]){s->batch, s->desc->q_heads,
                                         heed_ceil_div(rows, s->desc->block_rows),
                                         heed_ceil_div(keys, 64 * (int64_t)s->desc->block_keys)},
                             why);
    return st;
}

/* Checks the args as heed_attn_run would, but takes lengths from the partition. */
static heed_status check_args(heed_group_call *call, heed_error *why)
{
    const heed_shape *s = &call->shape;
    heed_attn_args *a = &call->args;
    heed_attn_desc d = *s->desc;
    float nowhere;
    if (a->kv_lens)
        INVALID("args.kv_lens is given, but partition.key_first says lengths");
    if (a->q_lens && heed_rows_apart(s))
        INVALID("args.q_lens is given, but partition.row_first says lengths");
    if (!a->q_lens)
        d.features &= ~HEED_HAS_LENS;
    heed_attn_args checked = *a;
    if (!heed_merges(s, s->rank)) { /* its out and lse are not looked at */
        d.features &= ~HEED_HAS_LSE;
        checked.lse = (heed_view){0};
        checked.out = (heed_view){&nowhere, {1, 1, 1, 1}};
    }
    heed_status st = heed_validate_args(&d, &checked, why);
    /* Strides of axes of one element are settled here: a local plan has other lengths, and would
     * refuse some of them. */
    a->q = checked.q;
    a->k = checked.k;
    a->v = checked.v;
    if (st == HEED_OK)
        st = check_lengths(call, why);
    return st == HEED_OK ? check_pairs(call, why) : st;
}

/* ---- one rank ---------------------------------------------------------------------------------
 */

/* Are all sequences as long as the args say without a list of lengths? */
static int says_lengths(const heed_shape *s, const int32_t *first, int64_t len)
{
    for (int64_t b = 0; b < s->batch; b++)
        if (heed_first_of(s, first, b, s->part.n_parts) != len)
            return 0;
    return 1;
}

/* Makes the args and the plan of heed_attn_run for a group of one rank. `room` is [2, batch]. *plan
 * becomes NULL, or another plan than the call's with a hold on it. */
static heed_status alone(const heed_group_call *call, int32_t *room, heed_attn_args *a,
                         heed_attn **plan, heed_error *why)
{
    const heed_shape *s = &call->shape;
    const int apart = heed_rows_apart(s);
    heed_attn_desc d = *s->desc;
    const int all_keys = says_lengths(s, s->part.key_first, a->kv_len);
    const int all_rows = !apart || says_lengths(s, s->part.row_first, a->q_len);
    for (int64_t b = 0; b < s->batch; b++) {
        room[b] = heed_first_of(s, s->part.key_first, b, s->part.n_parts);
        room[s->batch + b] = apart ? heed_first_of(s, s->part.row_first, b, s->part.n_parts) : 0;
    }
    a->kv_lens = all_keys ? NULL : room;
    a->q_lens = all_rows ? a->q_lens : room + s->batch;
    d.features &= ~HEED_HAS_LENS;
    d.features |= a->kv_lens || a->q_lens ? HEED_HAS_LENS : 0;
    *plan = NULL;
    return d.features == s->desc->features ? HEED_OK
                                           : heed_plan_get(call->plan->context, &d, plan, why);
}

/* `room` is [2, batch], in front of `bytes` bytes at `rest`. */
static heed_status run_alone(const heed_group_call *call, int32_t *room, void *rest, size_t bytes)
{
    heed_attn_args a = call->args;
    heed_attn *other;
    heed_status st = alone(call, room, &a, &other, call->why);
    a.error = NULL;
    if (st == HEED_OK)
        st = heed_run_in(&heed_attn_operation, call->plan->context, other ? other : call->plan, &a,
                         NULL, rest, bytes, call->why);
    heed_attn_release(other);
    return st;
}

/* Do the args alone describe the call? Then it is an ordinary run. */
static int is_plain(const heed_group_call *call)
{
    const heed_shape *s = &call->shape;
    const heed_attn_args *a = &call->args;
    const int apart = heed_rows_apart(s);
    return s->size == 1 && !a->kv_lens && (!a->q_lens || !apart) &&
           !(s->desc->features & HEED_HAS_LENS) == !a->q_lens &&
           says_lengths(s, s->part.key_first, a->kv_len) &&
           (!apart || says_lengths(s, s->part.row_first, a->q_len));
}

/* ---- the call ---------------------------------------------------------------------------------
 */

/* Either scheme, zeroed for a call. What it needs is placed in the workspace, in front of the room for
 * local runs. */
typedef union heed_scheme {
    heed_split split;
    heed_ring ring;
} heed_scheme;

static size_t place(heed_scheme *scheme, const heed_shape *s, int64_t q_len, void *workspace)
{
    if (s->size == 1)
        return ((size_t)s->batch * 2 * sizeof(int32_t) + 63) / 64 * 64 + 64; /* 0 is overflow */
    return s->part.scheme == HEED_GROUP_RING
               ? heed_ring_place(&scheme->ring, s, workspace)
               : heed_split_place(&scheme->split, s, q_len, workspace);
}

/* Gets the plan of local runs, with a hold on it. */
static heed_status get_local(const heed_attn *plan, const heed_shape *s, heed_attn **local,
                             heed_error *why)
{
    const int ring = s->part.scheme == HEED_GROUP_RING;
    heed_attn_desc d = ring ? heed_ring_desc(s) : heed_split_desc(s);
    if (s->size == 1) { /* the largest of those that may run */
        d = *s->desc;
        d.features |= HEED_HAS_LENS;
    }
    return heed_plan_get(plan->context, &d, local, why);
}

static heed_wire *wire_of(const heed_group_call *call, heed_scheme *scheme)
{
    return call->shape.part.scheme == HEED_GROUP_RING ? &scheme->ring.wire : &scheme->split.wire;
}

static heed_status run_scheme(heed_group_call *call, heed_scheme *scheme, size_t used,
                              void *workspace, size_t bytes)
{
    const heed_shape *s = &call->shape;
    const int ring = s->part.scheme == HEED_GROUP_RING;
    heed_wire *w = wire_of(call, scheme);
    char *rest = (char *)workspace + used;
    if (s->size == 1)
        return run_alone(call, workspace, rest, bytes - used);
    place(scheme, s, call->args.q_len, workspace);
    w->context = call->plan->context;
    w->transport = call->transport;
    w->call = heed_agreed_call(call);
    w->left = w->limit = s->part.timeout_ns;
    w->why = call->why;
    return ring ? heed_ring_run(&scheme->ring, call, rest, bytes - used)
                : heed_split_run(&scheme->split, call, rest, bytes - used);
}

/* Tells the other ranks that this one cannot take part. */
static heed_status give_up(heed_group_call *call, heed_status st)
{
    const heed_shape *s = &call->shape;
    heed_wire w = {.context = call->plan->context,
                   .transport = call->transport,
                   .left = s->part.timeout_ns,
                   .why = call->why};
    if (s->part.scheme == HEED_GROUP_RING) {
        w.waiter = (s->rank + 1) % s->size;
        w.listener = (s->rank + s->size - 1) % s->size;
    } else {
        w.waiter = s->part.want != HEED_WANT_ROOT ? HEED_WIRE_EVERYONE
                   : s->rank == s->part.root      ? HEED_WIRE_NOBODY
                                                  : s->part.root;
        w.listener = heed_split_listener(s);
    }
    return s->size > 1 ? heed_wire_end(&w, st) : st;
}

static heed_status run_placed(heed_group_call *call, heed_scheme *scheme, void *workspace,
                              size_t bytes)
{
    heed_context *context = call->plan->context;
    const size_t used = place(scheme, &call->shape, call->args.q_len, NULL);
    heed_executor copy;
    const heed_executor *executor;
    heed_status st = heed_executor_of(context, call->args.executor, &copy, &executor, call->why);
    if (st != HEED_OK)
        return give_up(call, st);
    const uint32_t threads = heed_threads_for(context, executor);
    call->crew = (heed_crew){executor, threads, heed_serial_limit(context, executor)};
    const size_t least = heed_attn_workspace_bytes(call->local, 1);
    size_t most = heed_attn_workspace_bytes(call->local, threads);
    if (!used || !least || heed_add_size(most, used, &most))
        return give_up(call, heed_fail(call->why, HEED_ERR_NOMEM, "the workspace overflows"));
    st = heed_check_workspace(workspace, bytes, call->why);
    if (st != HEED_OK)
        return give_up(call, st);
    if (workspace && bytes < used + least)
        return give_up(call, heed_fail(call->why, HEED_ERR_NOMEM,
                                       "workspace has %zu bytes, at least %zu are needed", bytes,
                                       used + least));
    if (workspace)
        return run_scheme(call, scheme, used, workspace, bytes);
    workspace = heed_spare_borrow(context, most, &bytes);
    if (!workspace)
        return give_up(call, heed_fail(call->why, HEED_ERR_NOMEM,
                                       "no memory for a workspace of %zu bytes", most));
    st = run_scheme(call, scheme, used, workspace, bytes);
    if (!wire_of(call, scheme)->kept) /* else it is left to the transport for good */
        heed_spare_return(context, workspace, bytes);
    return st;
}

static heed_status run_checked(heed_group_call *call, void *workspace, size_t bytes)
{
    heed_scheme scheme;
    int64_t first_token;
    heed_status st = check_args(call, call->why);
    if (st == HEED_OK)
        st = get_local(call->plan, &call->shape, &call->local, call->why);
    if (st != HEED_OK)
        return give_up(call, st);
    memset(&scheme, 0, sizeof scheme);
    const int64_t tokens = heed_agreed_tokens(call, &first_token);
    if (!heed_rows_apart(&call->shape)) {
        call->shape.tokens = tokens;
        scheme.split.first_token = first_token;
    }
    st = run_placed(call, &scheme, workspace, bytes);
    heed_attn_release(call->local);
    return st;
}

static heed_status read_call(heed_group_call *call, const heed_attn *plan,
                             const heed_attn_args *args, const heed_partition *partition,
                             const heed_transport *transport)
{
    heed_error *why = call->why;
    if (!plan)
        INVALID("plan is NULL");
    heed_status st = heed_read_struct("args", args, sizeof call->args, &call->args, why);
    if (st != HEED_OK)
        return st;
    if (call->args.batch < 0 || call->args.batch > plan->desc.max_batch)
        INVALID("args.batch is %lld, 0 to the plan's max_batch = %lld is required",
                (long long)call->args.batch, (long long)plan->desc.max_batch);
    call->plan = plan;
    call->shape.rank = transport->rank;
    call->shape.size = transport->size;
    return heed_shape_read(&call->shape, plan, partition, call->args.batch, why);
}

heed_status heed_group_attention(const heed_attn *plan, const heed_attn_args *args,
                                 const heed_partition *partition, const heed_transport *transport,
                                 void *workspace, size_t bytes)
{
    heed_error why;
    heed_transport table;
    heed_group_call call;
    why.text[0] = 0;
    call.why = &why;
    call.transport = &table;
    heed_status st = read_transport(transport, &table, &why);
    if (st == HEED_OK)
        st = read_call(&call, plan, args, partition, &table);
    if (st == HEED_OK)
        st = is_plain(&call) ? heed_run_in(&heed_attn_operation, plan->context, plan, args, NULL,
                                           workspace, bytes, &why)
                             : run_checked(&call, workspace, bytes);
    return heed_report_call(args, st, &why);
}

/* ---- sizes ------------------------------------------------------------------------------------
 */

static heed_status read_shape(heed_shape *shape, const heed_attn *plan,
                              const heed_partition *partition, int64_t batch, heed_error *why)
{
    if (!plan)
        INVALID("plan is NULL");
    if (shape->size == 0 || shape->size > MOST_RANKS)
        INVALID("size is %u, 1 to %u is required", shape->size, MOST_RANKS);
    if (shape->rank >= shape->size)
        INVALID("rank is %u, less than size = %u is required", shape->rank, shape->size);
    if (batch < 0 || batch > plan->desc.max_batch)
        INVALID("batch is %lld, 0 to the plan's max_batch = %lld is required", (long long)batch,
                (long long)plan->desc.max_batch);
    return heed_shape_read(shape, plan, partition, batch, why);
}

size_t heed_group_workspace_bytes(const heed_attn *plan, const heed_partition *partition,
                                  int64_t batch, uint32_t rank, uint32_t size)
{
    heed_shape shape = {.rank = rank, .size = size};
    heed_scheme scheme;
    heed_attn *local;
    heed_error why;
    if (read_shape(&shape, plan, partition, batch, &why) != HEED_OK)
        return 0;
    const heed_attn_desc *d = &plan->desc;
    if (!heed_rows_apart(&shape))
        shape.tokens = d->max_rows ? d->max_rows : batch * d->max_q_len;
    if (get_local(plan, &shape, &local, &why) != HEED_OK)
        return 0;
    const size_t own = place(&scheme, &shape, d->max_q_len, NULL);
    size_t bytes = heed_attn_workspace_bytes(
        local, heed_threads_for(plan->context, plan->context->user.executor));
    heed_attn_release(local);
    return own && bytes && !heed_add_size(own, bytes, &bytes) ? bytes : 0;
}

/* ---- costs ------------------------------------------------------------------------------------
 */

heed_status heed_group_count(const heed_attn *plan, const heed_partition *partition, int64_t batch,
                             int64_t q_len, uint32_t rank, uint32_t size, heed_group_cost *out)
{
    heed_shape shape = {.rank = rank, .size = size};
    heed_group_cost cost = {0};
    heed_error why = {""};
    heed_status st = HEED_OK;
    if (q_len < 0 || q_len > INT32_MAX)
        st = heed_fail(&why, HEED_ERR_INVALID, "q_len is %lld, 0 to %d is required",
                       (long long)q_len, INT32_MAX);
    if (st == HEED_OK)
        st = read_shape(&shape, plan, partition, batch, &why);
    if (st == HEED_OK && !heed_rows_apart(&shape)) {
        shape.tokens = plan->desc.max_rows ? q_len : batch * q_len;
        if (!heed_bytes_fit(&shape))
            st = heed_fail(&why, HEED_ERR_UNSUPPORTED,
                           "the results of %lld rows take more bytes than 62 bits count",
                           (long long)shape.tokens);
    }
    if (st != HEED_OK)
        return heed_report(NULL, st, &why);
    const heed_tally tally = heed_rows_apart(&shape) ? heed_tally_of(&shape) : (heed_tally){0};
    heed_count(&shape, &tally, &cost);
    return heed_report(NULL, heed_write_struct("out", out, sizeof cost, &cost, &why), &why);
}
