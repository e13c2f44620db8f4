/* The attention layer: its parts, the layout of its workspace, and a run of it. */
#ifndef HEED_CORE_MHA_H
#define HEED_CORE_MHA_H

#include <heed/cache.h>
#include <heed/layer.h>

#include "attention/plan.h"
#include "attention/workspace.h"
#include "linear/linear.h"

/* Projections in the order in which they run: q or all of qkv, k or both of kv, v. */
enum { HEED_SLOT_Q, HEED_SLOT_K, HEED_SLOT_V, HEED_SLOTS };

/* Where q, k or v is found: columns from `column` on of a slot's output, or of the input. */
typedef struct heed_mha_source {
    uint32_t slot; /* HEED_SLOTS: the input */
    uint32_t type, heads, dim;
    int64_t column;
} heed_mha_source;

/* Offsets of the parts of a workspace that do not depend on n_parts, in bytes. */
typedef struct heed_mha_layout {
    size_t lists, x_q, x_kv, slot[HEED_SLOTS], turned_q, turned_k, o, y, lse, fixed;
} heed_mha_layout;

struct heed_mha {
    atomic_uint refs;
    uint32_t cross, cache, listed; /* features; listed: rows have lengths or starts of their own */
    uint32_t y_cols, y_type, reserved;
    heed_context *context;
    heed_attn *plan;
    const heed_append_kernel *encoder; /* of new keys and values; NULL: core's own */
    heed_mha_desc desc;  /* attn points to this struct's, rotary.freq to a copy */
    heed_attn_desc attn; /* as the caller gave it */
    heed_linear *slot[HEED_SLOTS];
    int64_t slot_width[HEED_SLOTS];  /* columns of its output, all heads together */
    uint32_t slot_heads[HEED_SLOTS]; /* rows of its x per row of the layer: 1, or all heads */
    heed_mha_source source[3];       /* of q, k, v */
    float *freq;
    size_t freq_bytes;
    int64_t max_q_rows, max_kv_rows;
    heed_mha_layout layout;
};

/* The rows of a call on the side of q or of k and v: compact, sequence by sequence. */
typedef struct heed_mha_rows {
    int64_t total, n_units;     /* a unit is up to UNIT_ROWS rows of one sequence */
    int32_t *lens, *starts;     /* [batch]; a sequence's first row */
    int64_t *first_unit;        /* [batch] */
    int64_t user_len;           /* in the caller's memory: of a sequence, at the most, ... */
    const int32_t *user_starts; /* ... and where each begins; NULL: not packed */
} heed_mha_rows;

/* Rows copied between the caller's memory and compact ones: gathered before the projections, or
 * scattered behind the last one. */
typedef struct heed_mha_copy {
    const heed_mha_rows *rows;
    const void *from;
    void *to;
    int64_t width;
    int64_t user_stride[3]; /* [batch, row, column] */
    uint32_t type, reserved;
} heed_mha_copy;

enum {
    HEED_PHASE_GATHER,
    HEED_PHASE_PROJECT,
    HEED_PHASE_TURN, /* rotary, append */
    HEED_PHASE_ATTEND,
    HEED_PHASE_OUT,
    HEED_PHASE_SCATTER,
    HEED_PHASES
};

/* What parts share of a phase. */
typedef struct heed_mha_phase {
    atomic_llong next;  /* unit to take, in phases of units */
    atomic_uint active; /* parts that may hold some of its work */
    uint32_t busy;      /* whether the phase has any */
    int64_t n_units;
    char apart[104];
} heed_mha_phase;

/* At the start of a run's workspace. */
typedef struct heed_mha_run_state {
    heed_run_head head;
    const heed_mha *mha;
    heed_mha_args args;
    uint32_t n_gathers, n_scatters;
    heed_mha_rows q_rows, kv_rows; /* kv_rows: the new ones */
    int32_t *all_lens, *q_offsets; /* [batch]; keys of a sequence, position of its first row */
    heed_mha_copy gather[3], scatter[2];
    heed_rotary_args turn_q, turn_k;
    heed_kv_append_args append;
    heed_run_head *project[HEED_SLOTS], *out, *attention; /* runs within; NULL: none */
    char apart[64];
    heed_mha_phase phase[HEED_PHASES];
} heed_mha_run_state;

#define HEED_MHA_UNIT_ROWS 16

/* Fills in everything of a layer that its description says, and checks that the parts fit together.
 * The plan has not been made; *plan_desc receives its description. */
heed_status heed_mha_resolve(heed_mha *mha, heed_attn_desc *plan_desc, heed_error *why);

/* The layout of the workspace. */
heed_status heed_mha_lay_out(heed_mha *mha, heed_error *why);

/* A layer's heed_operation.bytes. */
size_t heed_mha_bytes(const void *of, uint32_t n_parts);

/* Checks the args that the run holds, and fills in its rows, their lengths and positions. */
heed_status heed_mha_read_args(heed_mha_run_state *run, heed_error *why);

/* A layer's heed_operation.begin: checks and copies the args, and schedules every phase. */
heed_status heed_mha_schedule(const void *of, const void *args, uint32_t n_parts, void *workspace,
                              heed_error *why);

/* A layer's heed_operation.part: walks through the phases. */
void heed_mha_take(heed_run_head *head, uint32_t part);

#endif
