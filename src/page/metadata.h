/* metadata.h: metadata: the library's own memory. Metadata never comes from a cache, so allocations do not recurse.
 * Metadata addresses are never unmapped, so a stale pointer into metadata may always be read. */
#ifndef KM_PAGE_METADATA_H
#define KM_PAGE_METADATA_H

#include "base/atomic.h"

/* Allocate at least `bytes` zeroed bytes, aligned to the next power of two (at most 8 KiB, the largest sheaf).
 * may_wait: system calls and waiting are allowed, unless this thread makes no calls (km_thread.no_calls). Returns: NULL
 * if there is no memory. */
void *km_metadata_alloc(size_t bytes, bool may_wait);
/* Give reserved address space back beyond a 64th of limit, because the program has limited its address space. */
void km_metadata_fit(size_t limit);
void km_metadata_free(void *p, size_t bytes);
/* Allocate or free records that are used in turn by the thousand, up to a page each, aligned to a cache line. The page
 * decides the place of a record in its piece. Otherwise records in pieces of 1024 bytes would use four of the 64 sets
 * of a first-level cache, and a sixteenth of the second-level cache. */
void *km_metadata_alloc_spread(size_t bytes, bool may_wait);
void km_metadata_free_spread(void *p, size_t bytes);
/* Commit `bytes` bytes ahead of requests that may not wait, up to the end of the range. Returns: false if the system
 * refuses. */
bool km_metadata_ahead(size_t bytes);
/* Make `bytes` of the free committed bytes resident. Returns: false if the system refuses. */
bool km_metadata_fault_in(size_t bytes);
/* Give entirely free pages back to the system, if there may be many, or `always`. Takes time in proportion to the
 * free pieces, partly with the lock held. */
void km_metadata_trim(bool always);
/* Purge whole system pages of an allocated piece: the pages read as zeros afterwards. Returns: false if nothing
 * changed. The owner must report bytes written again by km_metadata_came_back(). */
bool km_metadata_purge(void *p, size_t bytes);
void km_metadata_came_back(size_t bytes);
/* Lock the metadata: no piece is allocated or freed until km_metadata_let_go(). Context: for some hundred instructions,
 * with km_thread.busy set. */
void km_metadata_hold(void);
void km_metadata_let_go(void);
/* Address space of metadata: its ranges, and mappings that other files report here. Beyond the last span no span is
 * listed. Under an address space limit a range takes a 64th of the limit. */
struct km_span {
	const char *start, *end;
};
void km_metadata_note_span(const void *start, size_t bytes);
/* Changed under the lock; read without, also from outside of the process. */
extern km_hidden struct km_metadata {
	size_t committed_bytes;		/* without purged pages */
	unsigned spans;
	struct km_span span[128];
} km_metadata;
km_inline size_t km_metadata_committed_bytes(void)
{
	return km_load(&km_metadata.committed_bytes);
}
/* Returns: the first bytes of the first range, zeros until the caller writes them; NULL before the first allocation.
 * The bytes begin a mapping, so a reader outside of the process finds them in /proc/PID/maps. */
#define KM_METADATA_ROOT_BYTES 512u
void *km_metadata_root(void);
void km_metadata_fork(bool before, bool child);

#endif
