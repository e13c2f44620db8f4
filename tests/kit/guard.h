/* Memory between two unmapped pages, so that a read or write one byte past it ends the program.
 *
 * A buffer that is no whole number of pages can touch only one of the two: HIGH puts its last byte
 * in front of the upper page, LOW its first byte behind the lower one. Run a case with both.
 */
#ifndef KIT_GUARD_H
#define KIT_GUARD_H

#include <stddef.h>
#include <stdint.h>

enum { GUARD_HIGH, GUARD_LOW };

typedef struct guard_buffer {
    unsigned char *data; /* the caller's memory: `bytes` of it */
    size_t bytes;
    unsigned char *map; /* the whole mapping, with both unmapped pages */
    size_t map_bytes;
    size_t page;
} guard_buffer;

/** Maps a buffer. slack moves it that many bytes away from its page, for odd addresses; the slack
 * and the rest of the mapped pages hold fill. Returns 0, or -1 with everything zero. */
int guard_map(guard_buffer *buffer, size_t bytes, int side, size_t slack, int fill);

/** Unmaps. A zeroed buffer is allowed. */
void guard_unmap(guard_buffer *buffer);

/** Makes all of it readable only. */
void guard_read_only(guard_buffer *buffer);

/** Makes all of it readable and writable again. */
void guard_open(guard_buffer *buffer);

/** Makes every page inaccessible whose byte in `used` is 0 (one byte for each of guard_pages; see
 * guard_mark), those of the slack as well. */
void guard_seal(guard_buffer *buffer, const unsigned char *used);

/** Number of pages that guard_seal looks at. */
size_t guard_pages(const guard_buffer *buffer);

/** Marks the pages of bytes [at, at + bytes) of data as used. */
void guard_mark(const guard_buffer *buffer, unsigned char *used, int64_t at, size_t bytes);

/** Whether all bytes in the mapped pages but not in the buffer still hold fill. */
int guard_slack_is(const guard_buffer *buffer, int fill);

#endif
