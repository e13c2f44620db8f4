/** @file
 * Heed: one attention over keys that live apart, in processes on several nodes or sockets.
 *
 * A group is `size` ranks, 0 to size - 1. Every rank calls heed_group_attention at the same time
 * with the same description and the same partition, and holds a part of the keys. Two schemes:
 *
 *     split   every rank computes all rows over its own keys; the partial results travel, out and
 *             lse in f32, and are merged. For decode and short queries. Every rank has all rows.
 *             Or, with row_first, it has a part of them, sends them first to all ranks that have
 *             keys, and gets their results: for a chunk of a prompt, or many short queries, over
 *             long caches.
 *     ring    every rank has a part of the rows and a part of the keys; the keys travel, from rank
 *             r to r + 1, size - 1 times, while those at hand are computed. For prefill.
 *
 * Partial results of split are merged in rank order with one maximum and one rounding, those of
 * ring in the order in which keys arrive, which depends on the rank alone. So results depend on the
 * partition, never on timing, and are the same bits over every transport.
 *
 * Source   split: flash-decoding's cut of the keys over workers (Dao et al. 2023); rows that travel
 *          in the place of keys: Yang et al. 2024, arXiv:2411.01783 (pass-Q beside pass-KV); ring:
 *          Liu et al. 2023, arXiv:2310.01889; two parts a rank, one of each end, so that causal
 *          work is even: Brandon et al. 2023, arXiv:2311.09431. docs/nodes.md says how many bytes
 *          and steps each scheme takes, and when it pays.
 */
#ifndef HEED_GROUP_H
#define HEED_GROUP_H

#include "attention.h"

HEED_BEGIN_C

/** Room of a transport for one send or receive that is under way. Frozen. */
typedef union heed_request {
    unsigned char bytes[128]; /**< the transport's own */
    void *pointer;            /**< for alignment */
    int64_t number;           /**< for alignment */
    double real;              /**< for alignment */
} heed_request;

/**
 * How a rank reaches the others: a table of the caller's, as heed_executor is one of
 * threads. heed/mpi.h fills it from an MPI communicator, heed_group_threads_transport for
 * threads of a process.
 *
 * Order    messages from one rank to another under one tag arrive in the order in which they were
 *          sent; a receive takes no message of another tag.
 * Threads  the functions are called by the thread that called heed_group_attention, and by the
 *          thread that does part 0 of its runs: the same one, unless an executor gives part 0 to
 *          another. Never by two at once.
 * Errors   a status other than HEED_OK ends the call on this rank with HEED_ERR_TRANSPORT and the
 *          sentence in why. A request whose start, test or wait failed has ended.
 * Requests do not move, and their memory is the transport's until they have ended.
 */
typedef struct heed_transport {
    size_t struct_size; /**< sizeof(heed_transport) */
    void *user;         /**< handed to the functions */
    uint32_t rank;      /**< of this caller, less than size */
    uint32_t size;      /**< ranks; 1 to 2^20 */
    /** Starts to send; data stays as it is until the request has ended. bytes may be 0 */
    heed_status (*send)(void *user, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                        heed_request *request, heed_error *why);
    /** Starts to receive a message of at most `bytes` */
    heed_status (*receive)(void *user, uint32_t from, uint32_t tag, void *data, size_t bytes,
                           heed_request *request, heed_error *why);
    /** Moves things on without waiting. *done becomes 1 when the request has ended, and for a
     * receive *bytes what has arrived; a message longer than its room is a failure. Not called
     * again after the end */
    heed_status (*test)(void *user, heed_request *request, uint32_t *done, size_t *bytes,
                        heed_error *why);
    /** As test, but waits for the end at most timeout_ns nanoseconds; *done stays 0 if they pass */
    heed_status (*wait)(void *user, heed_request *request, int64_t timeout_ns, uint32_t *done,
                        size_t *bytes, heed_error *why);
    /** Gives up a request that has not ended: afterwards its memory is not touched any more. A
     * transport that cannot do so says that in why and returns a failure: a workspace that the
     * context had lent is then left to the transport, and never used again nor freed */
    heed_status (*cancel)(void *user, heed_request *request, heed_error *why);
} heed_transport;

/** Where a call's keys and rows go. */
enum {
    /** SPLIT if the partition has no row_first. If it has, the scheme in which the rank that sends
     * most sends fewer bytes, as heed_group_count counts them, and RING if they are equal. But SPLIT
     * with HEED_HAS_QUANT, which RING refuses, and else RING with HEED_HAS_MASK, _BIAS, _RANGES or
     * _KEY_BLOCKS, of which args hold all rows with SPLIT. One rank: RING. The choice, and with it the bits of results, depends on
     * description, partition and batch alone */
    HEED_GROUP_AUTO,
    HEED_GROUP_SPLIT, /**< partial results travel; with row_first rows travel before them */
    HEED_GROUP_RING   /**< rows and keys are both spread over the ranks, and keys travel */
};

/** Who gets the result of split. (With row_first, each rank gets its own rows.) */
enum {
    HEED_WANT_ALL,  /**< every rank all of it */
    HEED_WANT_ROOT, /**< rank `root` alone; out and lse of others are not looked at */
    /** rank r the query heads from r * q_heads / size to (r + 1) * q_heads / size, as an engine wants them
     * whose next layer is cut by heads; other heads of its out and lse are not written */
    HEED_WANT_HEADS
};

/**
 * Which keys and rows lie where. It is the same on every rank. Its arrays are the caller's and are
 * read during the call only.
 *
 * Keys of sequence b are cut into n_parts parts that follow each other: part p has the keys from
 * key_first[b][p] to key_first[b][p + 1]; any may be empty. A rank owns any number of parts.
 */
typedef struct heed_partition {
    size_t struct_size;    /**< sizeof(heed_partition) */
    uint32_t scheme;       /**< HEED_GROUP_* */
    uint32_t want;         /**< HEED_WANT_*; with row_first 0 */
    uint32_t root;         /**< with HEED_WANT_ROOT, else 0 */
    uint32_t n_parts;      /**< 1 to 2^20 */
    const uint32_t *owner; /**< [n_parts] ranks; NULL: part p is rank p's, and n_parts is size */
    /** [batch, n_parts + 1] ascending, the first of each sequence 0, the last its length */
    const int32_t *key_first;
    /** [batch, n_parts + 1], the same for rows; NULL, but not with ring: every rank has all rows */
    const int32_t *row_first;
    int64_t timeout_ns; /**< above 0: no wait lasts longer, and a call waits at most this long in all */
} heed_partition;

/**
 * Attention by a group; every rank calls it.
 *
 * plan     of the whole problem, the same on every rank but for max_batch, max_q_len and
 *          max_kv_len, which cover what this rank holds, and with row_first max_rows. Positions,
 *          causality, windows and ALiBi are those of whole sequences. Refused with
 *          HEED_ERR_UNSUPPORTED and the reason: HEED_HAS_WEIGHTS and HEED_HAS_SCORES, and what
 *          docs/nodes.md lists for ring.
 * args     as in heed_attn_run, of this rank:
 *          k, v          its keys: of each sequence its parts behind each other, in the order of
 *                        the parts. Paged: parts start at multiples of page_len. kv_len is the most
 *                        that one sequence has here; kv_lens is NULL: key_first says lengths
 *          q, out, lse   all rows: q_lens, and q_starts but for a distance that all of a rank's starts
 *                        share, are the same on every rank. With row_first: its rows, of each sequence
 *                        its parts behind each other, q_len the most that one sequence has here; q_lens
 *                        is NULL, and q_starts are its own
 *          mask, bias, ranges, key_blocks
 *                        split: of all rows, with row_first too, and all keys, by their index in the whole
 *                        sequence; only what concerns keys that are here is read
 *                        ring: of the rows that are here, and all keys; block_rows divides the rows that
 *                        a rank has before each of its parts
 *          q_offsets, mask_from, sinks, slopes: of the whole problem, the same on every rank
 *          With ring all keys that are here travel, and so are read: with HEED_HAS_PAGES every page
 *          has to be there
 * workspace, bytes   64-byte aligned, heed_group_workspace_bytes of this partition; NULL and 0: the context
 *          lends one
 * Errors   those of heed_attn_run, and HEED_ERR_TRANSPORT: another rank failed (the sentence says
 *          which and why), or says otherwise what has to be the same (of sinks and slopes, which ranks may
 *          have computed, that is not noticed), a message was lost, late or of the wrong size, or the
 *          transport failed.
 *          Every rank that can know of a failure returns one; outputs are then unspecified, and
 *          nothing else was written. A rank that has its results, and of which the others have taken
 *          all that they wait for, cannot: it returns HEED_OK and right results whatever becomes of
 *          another rank afterwards. The next call in which it needs that rank fails, at the latest
 *          when its time has passed. A failure of a rank for a reason of its own, such as its args
 *          or its memory, is told to the others. Messages may be left under way then: the transport
 *          is not to be used again after any failure but that of plan, partition or batch, which
 *          all ranks refuse alike, and so without a word: where one rank alone refuses them (its plan
 *          has a smaller max_batch, its args are NULL or of an unknown size), the others return when
 *          their time has passed. "... cannot give up a message with rank n": the transport may
 *          still read and write a workspace of the caller's, for as long as it exists.
 * Cost     one rank: heed_attn_run and nothing more.
 */
HEED_API heed_status heed_group_attention(const heed_attn *plan, const heed_attn_args *args,
                                          const heed_partition *partition,
                                          const heed_transport *transport, void *workspace,
                                          size_t bytes);

/** The workspace of heed_group_attention on rank `rank` of `size` with as many threads as the plan's
 * context has, in bytes; 0 if that overflows or an argument is wrong. */
HEED_API size_t heed_group_workspace_bytes(const heed_attn *plan, const heed_partition *partition,
                                           int64_t batch, uint32_t rank, uint32_t size);

/** What a call costs one rank. */
typedef struct heed_group_cost {
    size_t struct_size; /**< the caller's: sizeof(heed_group_cost) */
    uint32_t scheme;    /**< HEED_GROUP_SPLIT or HEED_GROUP_RING */
    uint32_t steps;     /**< one after the other: the messages of one step travel at once */
    uint64_t messages;  /**< that the rank sends */
    uint64_t bytes;     /**< that the rank sends, with their headers */
} heed_group_cost;

/**
 * Counts what heed_group_attention would send, by the formulas of docs/nodes.md.
 *
 * q_len    rows of the longest sequence, as in the args; for plans with max_rows all rows from the
 *          first to the last one of any sequence, gaps included; not looked at with row_first
 * out      receives it; written on success only
 * Errors   HEED_ERR_INVALID; HEED_ERR_UNSUPPORTED as heed_group_attention, and if the bytes overflow
 * Threads  safe.
 */
HEED_API heed_status heed_group_count(const heed_attn *plan, const heed_partition *partition,
                                      int64_t batch, int64_t q_len, uint32_t rank, uint32_t size,
                                      heed_group_cost *out);

/** Ranks that are threads of one process, each with a context, a cache and memory of its own. */
typedef struct heed_group_threads heed_group_threads;

/**
 * Makes the mailboxes of `size` ranks: one from each to each, of some 2 KiB, so 8 MiB for 64 ranks and
 * 2 GiB for 1024.
 *
 * out      receives them; written on success only
 * Errors   HEED_ERR_INVALID size is 0 or above 1024, or out is NULL; HEED_ERR_NOMEM
 */
HEED_API heed_status heed_group_threads_create(uint32_t size, heed_group_threads **out);

/**
 * Fills the transport of one rank. Data are copied once, by the receiver.
 *
 * out      its struct_size is the caller's; receives the rest, written on success only
 * Errors   HEED_ERR_INVALID an argument is NULL or rank is not below the size; HEED_ERR_ABI an
 *          impossible struct_size
 * Threads  safe; one thread at a time uses a rank's transport.
 */
HEED_API heed_status heed_group_threads_transport(heed_group_threads *group, uint32_t rank,
                                                  heed_transport *out);

/** Frees the mailboxes; NULL is allowed. No rank may use them any more. */
HEED_API void heed_group_threads_release(heed_group_threads *group);

HEED_END_C

#endif
