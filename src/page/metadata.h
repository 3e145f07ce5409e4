/*
 * metadata.h: memory for ourselves. It never comes from a cache, so nothing recurses; its addresses are never given
 * back, so a stale pointer into it may always be read.
 */
#ifndef KM_PAGE_METADATA_H
#define KM_PAGE_METADATA_H

#include "base/cc.h"

/* Zeroed memory of at least `bytes`, aligned to the next power of two (at most 8 KiB, the largest block of a shelf);
 * NULL: none left. may_wait: for the system, unless this thread makes no calls (km_no_calls). */
void *km_meta_alloc(size_t bytes, bool may_wait);
/* The program has limited its address space: what is reserved beyond a small part of that goes back. */
void km_meta_fit(size_t limit);
void km_meta_free(void *p, size_t bytes);
/*
 * The same for records of which many are wanted in turn, up to a page each, aligned to a line: where in its piece one
 * begins goes by the page. At one place of pieces of 1024 bytes they had four of the 64 sets of lines that a
 * processor's first cache has, and one in sixteen of the second's.
 */
void *km_meta_alloc_spread(size_t bytes, bool may_wait);
void km_meta_free_spread(void *p, size_t bytes);
/* So many bytes are committed and not yet cut off, for requests that may not wait, unless the range ends. False: the
 * system refuses. */
bool km_meta_ahead(size_t bytes);
/* So many of those bytes are resident from then on. False: the system refuses. */
bool km_meta_fault_in(size_t bytes);
/* Pages of it that are free as a whole go back to the system: if there may be many, or `always`. It takes time by free
 * pieces, some with the lock held. */
void km_meta_trim(bool always);
/* Purge whole system pages of an allocated piece: the pages read as zeros afterwards. False: nothing changed.
 * km_meta_came_back: the owner writes to so many purged bytes again. */
bool km_meta_purge(void *p, size_t bytes);
void km_meta_came_back(size_t bytes);
/* None is had or freed meanwhile: for some hundred instructions, with km_thread_busy set. */
void km_meta_hold(void);
void km_meta_let_go(void);
size_t km_meta_committed_bytes(void);
/*
 * Address space in which our own memory lies: its ranges, and what others have mapped for themselves and say here. A
 * piece that there is no room for is not listed.
 */
struct km_span {
	const char *start, *end;
};
void km_meta_note_span(const void *start, size_t bytes);
/* Where these and the bytes are kept, for readers outside of the process. */
void km_meta_expose(const size_t **bytes, const struct km_span **spans, const unsigned **count);
/* The first bytes of the first range, zero until the caller writes them; NULL before the first
 * allocation. They begin a mapping: whoever looks from outside finds them in /proc/PID/maps. */
#define KM_META_ROOT_BYTES 512u
void *km_meta_root(void);
void km_meta_fork(bool before, bool child);

#endif
