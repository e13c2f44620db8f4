/* What a caller may get wrong, as rows of a table: what to change in a good call, and what has to
 * come back. The conformance kit makes every change of every row in a small good call; the fuzz
 * targets make any of them in any call. */
#ifndef KIT_MISTAKE_H
#define KIT_MISTAKE_H

#include "case.h"

enum { KIT_PUT, KIT_OR, KIT_ADD }; /* how the field is changed */

typedef struct kit_mistake {
    const char *name;
    const char *word; /* has to be in the sentence */
    int where;        /* the calls that meet it; each table has its own */
    heed_status status;
    /* The change: of a field of the good call, to one of some values (as bits, whatever the field's
     * type is), or by a function. */
    int how;
    size_t at, bytes;
    const int64_t *value;
    uint32_t n; /* of the values; of what the function tells apart */
    /* Returns the word, or NULL where this call cannot have the mistake; it may be changed then. */
    const char *(*make)(void *call, int arg, uint32_t pick);
    int arg;
    uint64_t with, without; /* features that the good call has, and has not */
} kit_mistake;

/** A value that stands for the address of some memory, which holds zeros. */
#define KIT_SOMETHING INT64_C(0x5afe5afe5afe)
#define KIT_BITS_NAN INT64_C(0x7fc00000) /* of floats */
#define KIT_BITS_INF INT64_C(0x7f800000)
#define KIT_BITS_MINUS_INF INT64_C(0xff800000)
#define KIT_BITS_1 INT64_C(0x3f800000)
#define KIT_BITS_MINUS_1 INT64_C(0xbf800000)

/* The fields of a row that say its change; `type` is that of the good call. */
#define KIT_CHANGE(type, what, field, ...)                                                         \
    .how = (what), .at = offsetof(type, field), .bytes = sizeof(((type *)0)->field),               \
    .value = (const int64_t[]){__VA_ARGS__},                                                       \
    .n = sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)
#define KIT_COUNT(list) (sizeof(list) / sizeof *(list))

/* Sizes and lengths that cannot be, sizes that no version of a struct has, numbers that are no type
 * of an element, and the types of codes. */
#define KIT_BAD_SIZES -1, INT64_MIN, INT64_MAX, INT64_C(1) << 31
#define KIT_BAD_STRUCTS 0, 1, 7, 8, 20, 65537, -1
#define KIT_BAD_TYPES HEED_DTYPE_NONE, 14, 99, UINT32_MAX
#define KIT_CODES                                                                                  \
    HEED_I8, HEED_U8, HEED_U4, HEED_F8_E4M3, HEED_Q8_0, HEED_Q4_0, HEED_Q4_1, HEED_Q5_0,           \
        HEED_Q5_1, HEED_IQ4_NL

/** Makes the mistake. Returns the word, or NULL where it does not exist. */
const char *kit_make_mistake(const kit_mistake *mistake, void *call, uint32_t pick);

/** Gives an axis a stride of 0 (for outputs) or one whose farthest element has no address; `pick`
 * chooses the axis and the stride. Returns whether that is a mistake: the axis has more than one
 * element. */
int kit_break_stride(int64_t *stride, const int64_t *shape, int n_axes, uint32_t element,
                     int is_output, uint32_t pick);

/** Fails unless a call came back with the mistake's status and a sentence that has `word` in it. */
void kit_judge_refusal(const kit_mistake *mistake, const char *word, const char *call,
                       heed_status status, const char *sentence, kit_outcome *outcome);

/** A workspace to be made wrong: misaligned, too small, or for an impossible number of parts.
 * kit_map_workspace makes a good one, for KIT_MISTAKEN_PARTS. */
enum { KIT_CROOKED, KIT_SMALL, KIT_NO_PARTS, KIT_MANY_PARTS };
enum { KIT_MISTAKEN_PARTS = 3 };
typedef struct kit_mistaken_workspace {
    guard_buffer memory;
    uint32_t n_parts;
    size_t shift, less, most; /* bytes */
} kit_mistaken_workspace;

int kit_map_workspace(kit_mistaken_workspace *workspace, size_t bytes);
const char *kit_spoil_workspace(kit_mistaken_workspace *workspace, int mistake, uint32_t pick);
void *kit_workspace(const kit_mistaken_workspace *workspace);
/** How many of the bytes that it needs a call is given. */
size_t kit_bytes_left(const kit_mistaken_workspace *workspace, size_t bytes);

/** Whether all bytes of an output still are the canary. */
int kit_is_canary(const guard_buffer *buffer);

#endif
