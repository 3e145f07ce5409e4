/*
 * metadata.c: the library's own memory: power-of-two free lists over ranges committed step by step. Invariants: all
 * metadata stays readable for ever. A free piece keeps its content, except the link, until the piece is allocated again
 * or its page is purged; a purged page reads as zeros. A purged page is on no free list, and has a mark in gone.
 */
#include "deferred_free.h"
#include "metadata.h"

#include "base/bits.h"
#include "os/die.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/sanitizer.h"
#include "commit_ahead.h"
#include "zone.h"

#define MIN_SHIFT	6u
#define MAX_SHIFT	22u
#define COMMIT_STEP	((size_t)256 << 10)
#define UNITS		(KM_PAGE_SIZE >> MIN_SHIFT)	/* number of smallest pieces in a page */
#define RANGE_BYTES	((size_t)1 << 30)
#define MARK_BYTES	(RANGE_BYTES / KM_PAGE_SIZE / 8)	/* a bit for each page of the largest range */
#define TRIM_PAGES	4096u		/* most pages purged while the lock is held */
#define TRIM_FROM	((size_t)1 << 20)	/* least free bytes for a trim */

struct km_metadata km_metadata;
static struct {
	struct km_lock lock;
	char *base, *at, *committed, *end;	/* the current range */
	size_t free_bytes;		/* bytes on the free lists */
	size_t freed;			/* bytes freed since the last trim */
	uint8_t *units;			/* during a trim: for each page of the range the number of free smallest
					 * pieces */
	uint64_t *gone;			/* a bit for each page of the range: the page is purged */
	size_t gone_pages;
	bool faulted_in;		/* memory of no piece was made resident for a reservation */
	char *root;			/* the first bytes of the first range (km_metadata_root) */
	/* Linked by the last word of a smallest piece. [spread]: records of km_metadata_alloc_spread() have lists, and
	 * so pages, of their own, because some records stay for ever. */
	void *free[2][MAX_SHIFT + 1];
} metadata = { .lock = KM_LOCK_INIT(KM_RANK_METADATA) };

static unsigned shift_of(size_t bytes)
{
	return bytes <= (size_t)1 << MIN_SHIFT ? MIN_SHIFT : km_ilog2(bytes - 1) + 1;
}

static void **link_of(void *p)
{
	return (void **)((char *)p + (1u << MIN_SHIFT)) - 1;
}

/* Lists a span of metadata. Requires: the lock is held. */
static void note_span(const char *start, size_t bytes)
{
	if (km_metadata.spans == km_array_count(km_metadata.span))
		return;
	km_metadata.span[km_metadata.spans] = (struct km_span){ start, start + bytes };
	/* Release: a reader outside of the process that sees the count sees the span. */
	km_store_release(&km_metadata.spans, km_metadata.spans + 1);
}

void km_metadata_note_span(const void *start, size_t bytes)
{
	km_busy_lock_scope(&metadata.lock);
	note_span(start, bytes);
}

/* Set bytes of metadata. Under ThreadSanitizer by plain stores: the sanitizer intercepts memset, but does not see the
 * lock, and would report a race. */
static void set(void *p, uint8_t value, size_t bytes)
{
	if (km_likely(!km_sanitizer.thread))
		__builtin_memset(p, value, bytes);
	else
		for (volatile uint8_t *at = p; bytes; bytes--)
			*at++ = value;
}

static bool new_range(size_t bytes)
{
	size_t least = km_align_up(bytes * 2, COMMIT_STEP);
	size_t range = km_min(RANGE_BYTES, km_align_down(km_os_address_room() / 64, COMMIT_STEP));
	char *p;

	range = km_max(km_max(range, COMMIT_STEP * 4), least);
	/* After a refusal try a quarter: another process may have limited this process's address space. */
	while (!(p = km_os_reserve(range, KM_PAGE_SIZE))) {
		if (range == least)
			return false;
		range = km_max(km_align_down(range / 4, COMMIT_STEP), least);
	}
	km_os_name(p, range, "libkmem: metadata");
	note_span(p, range);
	km_debug(!((uintptr_t)p & (KM_PAGE_SIZE - 1)) && range >= least, "a range begins with a page");
	/* Free pieces of the former range stay on the lists. Its pages are never purged. */
	metadata.base = p;
	if (metadata.gone)
		set(metadata.gone, 0, MARK_BYTES);
	metadata.gone_pages = 0;
	/* The first system page stays without access, so that a mapping of metadata begins after it. */
	metadata.at = metadata.committed = p + km_os_page_bytes();
	metadata.end = p + range;
	if (!metadata.root) {
		metadata.root = metadata.at;
		metadata.at += KM_METADATA_ROOT_BYTES;
	}
	return true;
}

void km_metadata_fit(size_t limit)
{
	km_lock_scope(&metadata.lock);
	size_t spare = km_align_down(limit / 64, COMMIT_STEP);
	char *end = (char *)km_align_up((uintptr_t)metadata.committed, COMMIT_STEP) + spare;
	if (metadata.committed && end < metadata.end) {
		km_os_unmap(end, (size_t)(metadata.end - end));
		metadata.end = end;
	}
}

/* ------------------------------------------------------------------ pages that went back */

static void push(void *p, unsigned shift, bool spread)
{
	km_debug(km_is_locked(&metadata.lock), "the lists change under their lock");
	km_debug(shift >= MIN_SHIFT && shift <= MAX_SHIFT, "a piece has the size of a list");
	km_debug(!((uintptr_t)p & (km_min((size_t)1 << shift, 2 * KM_PAGE_SIZE) - 1)),
		 "a piece is aligned to its size");
	km_debug(p != metadata.free[spread][shift], "a piece is freed once");
	*link_of(p) = metadata.free[spread][shift];
	metadata.free[spread][shift] = p;
	metadata.free_bytes += (size_t)1 << shift;
}

/* Find `pages` adjacent purged pages, aligned to two pages if more than one. *first: the index of the first. Returns:
 * false if there are none. */
static bool find_gone(size_t pages, size_t *first)
{
	size_t all = (size_t)(metadata.at - metadata.base) >> KM_PAGE_SHIFT, run = 0;

	for (size_t page = 0; page < all; page++) {
		/* Skip 64 pages at a time. */
		if (page % 64 == 0 && !metadata.gone[page / 64]) {
			page += 63;
			run = 0;
			continue;
		}
		const uintptr_t address = (uintptr_t)metadata.base + (page << KM_PAGE_SHIFT);
		bool fits = km_bits_count(metadata.gone, page, 1) &&
			    (run || pages == 1 || !(address & (2 * KM_PAGE_SIZE - 1)));
		run = fits ? run + 1 : 0;
		if (run == pages) {
			*first = page + 1 - pages;
			return true;
		}
	}
	return false;
}

/* Allocate a piece of purged pages; the piece reads as zeros. Returns: NULL if there are not enough adjacent pages. */
static void *take_gone(unsigned shift)
{
	size_t bytes = (size_t)1 << shift, pages = bytes > KM_PAGE_SIZE ? bytes >> KM_PAGE_SHIFT : 1, first;

	if (metadata.gone_pages < pages || !find_gone(pages, &first))
		return NULL;
	char *p = metadata.base + (first << KM_PAGE_SHIFT);
	km_bits_change(metadata.gone, first, pages, false);
	km_debug(metadata.gone_pages >= pages, "returned pages are counted");
	metadata.gone_pages -= pages;
	km_bump(&km_metadata.committed_bytes, pages << KM_PAGE_SHIFT);
	return p;
}

/* Allocate `bytes` (a power of two) from the unused part of the range; without may_wait only from its committed part.
 * Returns: NULL if there is no memory. */
static void *carve(size_t bytes, bool may_wait)
{
	/* A sheaf is aligned to its size, and the largest sheaf has 1024 words. */
	size_t align = km_min(bytes, 2 * KM_PAGE_SIZE);
	char *p = (char *)km_align_up((uintptr_t)metadata.at, align);

	if (!metadata.at || p + bytes > metadata.end) {
		if (!may_wait || !new_range(bytes))
			return NULL;
		p = (char *)km_align_up((uintptr_t)metadata.at, align);
	}
	if (p + bytes > metadata.committed) {
		size_t step = km_align_up((size_t)(p + bytes - metadata.committed), COMMIT_STEP);

		step = km_min(step, (size_t)(metadata.end - metadata.committed));
		if (!may_wait || km_os_commit(metadata.committed, step))
			return NULL;
		metadata.committed += step;
		km_bump(&km_metadata.committed_bytes, step);
	}
	/* Put the bytes skipped by the alignment on the free lists. */
	for (size_t piece; metadata.at < p; metadata.at += piece) {
		piece = (size_t)1 << __builtin_ctzll((uintptr_t)metadata.at);
		push(metadata.at, shift_of(piece), false);
	}
	metadata.at = p + bytes;
	km_debug(metadata.at <= metadata.committed && metadata.committed <= metadata.end,
		 "the split part is committed");
	return p;
}

static void *alloc_piece(size_t bytes, bool may_wait, bool spread)
{
	may_wait &= !km_thread.no_calls;
	unsigned shift = shift_of(bytes);
	void *p = NULL;

	if (shift > MAX_SHIFT)
		return NULL;
	struct km_busy_was was = km_busy_begin();
	if (km_lock_may(&metadata.lock, may_wait)) {
		p = metadata.free[spread][shift];
		if (p) {
			metadata.free[spread][shift] = *link_of(p);
			km_debug(metadata.free_bytes >= (size_t)1 << shift, "the bytes on the lists are counted");
			metadata.free_bytes -= (size_t)1 << shift;
			set(p, 0, (size_t)1 << shift);
		} else {
			/* A page is cut into pieces of one list: so the page can be purged when all records of one kind
			 * are free. */
			p = take_gone(shift) ?: carve(km_max((size_t)1 << shift, (size_t)KM_PAGE_SIZE), may_wait);
			for (size_t at = KM_PAGE_SIZE >> shift; p && at > 1; at--)
				push((char *)p + ((at - 1) << shift), shift, spread);
		}
		km_unlock_may(&metadata.lock, may_wait);
	}
	km_busy_end(was);
	if (!p && !may_wait)
		km_ahead_note(0, false);
	return p;
}

void *km_metadata_alloc(size_t bytes, bool may_wait)
{
	return alloc_piece(bytes, may_wait, false);
}

bool km_metadata_ahead(size_t bytes)
{
	km_busy_lock_scope(&metadata.lock);
	bool ready = metadata.at && (size_t)(metadata.committed - metadata.at) >= bytes;
	/* Commit no more than the rest of the range: a thread that needs more begins the next range. */
	size_t left = (size_t)(metadata.end - metadata.committed);
	km_debug(metadata.committed <= metadata.end, "at most the whole range is committed");
	size_t step = ready || !metadata.at ? 0 : km_min(km_align_up(bytes, COMMIT_STEP), left);
	if (step && !km_os_commit(metadata.committed, step)) {
		metadata.committed += step;
		km_bump(&km_metadata.committed_bytes, step);
		ready = true;
	}
	return ready;
}

/* Returns: the next purged page from *page on, or NULL. */
static char *next_gone(size_t *page)
{
	size_t unit = km_os_page_bytes() >> KM_PAGE_SHIFT;
	char *found = NULL;

	km_lock_scope(&metadata.lock);
	size_t all = metadata.gone_pages ? (size_t)(metadata.at - metadata.base) >> KM_PAGE_SHIFT : 0;
	for (; *page < all && !found; *page += unit)
		if (km_bits_count(metadata.gone, *page, 1))
			found = metadata.base + (*page << KM_PAGE_SHIFT);
	return found;
}

/* Make memory of future allocations resident. Purged pages are allocated first, so start with these pages. Purged pages
 * still count as purged until the allocation. The lock is held for the search, not for the faults: metadata stays
 * mapped and readable, so a fault on a page allocated or purged meanwhile is harmless. */
bool km_metadata_fault_in(size_t bytes)
{
	size_t unit = km_os_page_bytes(), page = 0;
	km_busy_scope(was);
	bool done = true;

	bytes = km_align_up(bytes, unit);
	for (char *gone; done && bytes && (gone = next_gone(&page)); bytes -= unit)
		done = !km_os_fault_in(gone, unit);
	km_lock(&metadata.lock);
	char *first = (char *)km_align_down((uintptr_t)metadata.at, unit);
	size_t most = (size_t)(metadata.committed - first);
	km_store(&metadata.faulted_in, true);
	km_debug(first <= metadata.committed, "the unused part of the range is committed");
	km_unlock(&metadata.lock);
	if (done && most && bytes)
		done = !km_os_fault_in(first, km_min(bytes, most));
	return done;
}

static void free_piece(void *p, size_t bytes, bool spread)
{
	unsigned shift = shift_of(bytes);

	if (!p)
		return;
	km_debug(shift <= MAX_SHIFT, "a piece has the size of a list");
	if (km_unlikely(km_thread.late)) {
		km_deferred_piece(p, bytes);
		return;
	}
	km_busy_lock_scope(&metadata.lock);
	push(p, shift, spread);
	metadata.freed += (size_t)1 << shift;
}

void km_metadata_free(void *p, size_t bytes)
{
	free_piece(p, bytes, false);
}

void *km_metadata_alloc_spread(size_t bytes, bool may_wait)
{
	km_debug(bytes <= KM_PAGE_SIZE, "a piece lies in a page");
	char *piece = alloc_piece(bytes, may_wait, true);
	/* number of cache lines of the piece at which the record may begin */
	size_t places = (((size_t)1 << shift_of(bytes)) - bytes) / KM_CACHE_LINE + 1;

	return piece ? piece + ((uintptr_t)piece >> KM_PAGE_SHIFT) % places * KM_CACHE_LINE : NULL;
}

void km_metadata_free_spread(void *p, size_t bytes)
{
	free_piece((void *)km_align_down((uintptr_t)p, (uintptr_t)1 << shift_of(bytes)), bytes, true);
}

/* ------------------------------------------------------------------ giving back */

/* Allocate the arrays gone and units, at the first trim. Returns: false if there is no memory. */
static bool have_marks(void)
{
	/* units has a byte for each page, and one byte behind the last page. */
	size_t bytes = MARK_BYTES + RANGE_BYTES / KM_PAGE_SIZE + KM_PAGE_SIZE;

	if (metadata.gone)
		return true;
	char *p = km_os_reserve(bytes, KM_PAGE_SIZE);
	if (!p)
		return false;
	if (km_os_commit(p, bytes)) {
		km_os_unmap(p, bytes);
		return false;
	}
	km_os_name(p, bytes, "libkmem: metadata");
	note_span(p, bytes);
	metadata.gone = (uint64_t *)p;
	metadata.units = (uint8_t *)p + MARK_BYTES;
	return true;
}

/* Returns: the entries in `units` of a piece's pages; NULL if the piece lies in a former range. */
static uint8_t *units_of(const void *piece, unsigned shift, size_t *pages)
{
	uintptr_t offset = (uintptr_t)piece - (uintptr_t)metadata.base;

	*pages = shift > KM_PAGE_SHIFT ? (size_t)1 << (shift - KM_PAGE_SHIFT) : 1;
	return offset < (uintptr_t)(metadata.at - metadata.base) ? &metadata.units[offset >> KM_PAGE_SHIFT] : NULL;
}

static void count_list(void *p, unsigned shift)
{
	size_t pages;

	for (; p; p = *link_of(p)) {
		uint8_t *units = units_of(p, shift, &pages);

		for (size_t i = 0; units && i < pages; i++)
			units[i] = (uint8_t)(units[i] + km_min((1u << shift) >> MIN_SHIFT, (unsigned)UNITS));
	}
}

/* Choose the pages to purge: the first TRIM_PAGES entirely free pages, by whole system pages. units becomes UNITS for
 * chosen pages, 0 for other pages. A piece of several pages goes only with all its pages. Returns: the number of chosen
 * pages. */
static size_t choose(size_t all)
{
	size_t chosen = 0, unit = km_os_page_bytes() >> KM_PAGE_SHIFT;

	for (size_t page = 0, end; page < all; page = end) {
		bool goes = page + unit <= all && chosen < TRIM_PAGES;

		end = km_min(page + unit, all);
		for (size_t at = page; at < end; at++)
			goes &= metadata.units[at] == UNITS;
		set(metadata.units + page, goes ? UNITS : 0, end - page);
		chosen += goes ? unit : 0;
	}
	return chosen;
}

/* Returns: true if all pages of the piece are chosen, and the piece leaves the free list. */
static bool goes(const void *piece, unsigned shift)
{
	size_t pages;
	uint8_t *units = units_of(piece, shift, &pages);
	bool all = units;

	for (size_t i = 0; all && i < pages; i++)
		all = units[i] == UNITS;
	if (units && !all)
		set(units, 0, pages);
	return all;
}

static void take_off_list(void **at, unsigned shift)
{
	for (void *p; (p = *at);)
		if (goes(p, shift)) {
			*at = *link_of(p);
			km_debug(metadata.free_bytes >= (size_t)1 << shift, "the bytes on the lists are counted");
			metadata.free_bytes -= (size_t)1 << shift;
		} else {
			at = link_of(p);
		}
}

/* Purge chosen pages by whole system pages. Parts of system pages at the two ends belong to pieces that stay. Memory
 * that is not purged is zeroed here, so all chosen pages read as zeros. */
static void purge(char *p, size_t bytes)
{
	char *from = (char *)km_align_up((uintptr_t)p, km_os_page_bytes());
	char *to = (char *)km_align_down((uintptr_t)p + bytes, km_os_page_bytes());

	if (from >= to || km_os_purge(from, (size_t)(to - from)))
		from = to = p;
	set(p, 0, (size_t)(from - p));
	set(to, 0, (size_t)(p + bytes - to));
}

static void give_back(size_t all)
{
	size_t given = 0;

	for (size_t page = 0, end; page < all; page = end) {
		char *p = metadata.base + (page << KM_PAGE_SHIFT);

		for (end = page; end < all && metadata.units[end] == UNITS;)
			end++;
		if (end == page) {
			end++;
			continue;
		}
		km_debug(km_metadata.committed_bytes >= (end - page) << KM_PAGE_SHIFT,
			 "returned metadata was committed");
		purge(p, (end - page) << KM_PAGE_SHIFT);
		km_bits_change(metadata.gone, page, end - page, true);
		given += end - page;
	}
	metadata.gone_pages += given;
	km_bump(&km_metadata.committed_bytes, -(given << KM_PAGE_SHIFT));
}

/* Purge entirely free pages. Requires: the lock is held. Returns: the number of chosen pages. */
static size_t trim(void)
{
	size_t all = (size_t)(metadata.at - metadata.base) >> KM_PAGE_SHIFT;

	metadata.freed = 0;
	if (!have_marks() || all > RANGE_BYTES >> KM_PAGE_SHIFT)
		return 0;
	set(metadata.units, 0, all + 1);
	for (unsigned shift = MIN_SHIFT; shift <= MAX_SHIFT; shift++) {
		count_list(metadata.free[0][shift], shift);
		count_list(metadata.free[1][shift], shift);
	}
	size_t chosen = choose(all);
	if (chosen) {
		for (unsigned shift = MAX_SHIFT; shift >= MIN_SHIFT; shift--) {
			take_off_list(&metadata.free[0][shift], shift);
			take_off_list(&metadata.free[1][shift], shift);
		}
		give_back(all);
	}
	purge((char *)metadata.units, (all + 1) * sizeof(*metadata.units));
	return chosen;
}

/* Purge the memory of no piece: purged pages made resident again, and the end of the committed part. Requires: the lock
 * is held. */
static void purge_unused(void)
{
	size_t all = metadata.gone_pages ? (size_t)(metadata.at - metadata.base) >> KM_PAGE_SHIFT : 0;

	for (size_t page = 0, end; page < all; page = end + 1) {
		for (end = page; end < all && km_bits_count(metadata.gone, end, 1);)
			end++;
		purge(metadata.base + (page << KM_PAGE_SHIFT), (end - page) << KM_PAGE_SHIFT);
	}
	km_debug(metadata.at <= metadata.committed, "the unused end of the range is committed");
	purge(metadata.at, (size_t)(metadata.committed - metadata.at));
}

/* After the last reservation. */
static void end_reservations(void)
{
	km_busy_scope(was);

	km_lock_scope(&metadata.lock);
	km_store(&metadata.faulted_in, false);
	purge_unused();
}

void km_metadata_came_back(size_t bytes)
{
	km_busy_lock_scope(&metadata.lock);
	km_bump(&km_metadata.committed_bytes, bytes);
}

bool km_metadata_purge(void *p, size_t bytes)
{
	if ((uintptr_t)p % km_os_page_bytes() || km_os_purge(p, bytes))
		return false;
	km_metadata_came_back(-bytes);
	return true;
}

void km_metadata_trim(bool always)
{
	size_t chosen = TRIM_PAGES;

	if (km_unlikely(km_load(&metadata.faulted_in)) && !km_pages_reserve(0))
		end_reservations();
	while (chosen == TRIM_PAGES) {
		struct km_busy_was was = km_busy_begin();

		chosen = 0;
		km_lock(&metadata.lock);
		if (metadata.free_bytes >= (always ? 2 * KM_PAGE_SIZE : TRIM_FROM) &&
		    (always || metadata.freed >= km_metadata.committed_bytes / 4))
			chosen = trim();
		km_unlock(&metadata.lock);
		km_busy_end(was);
		/* Go on after TRIM_PAGES pages, until nothing is left to trim. */
		always = true;
	}
}

void km_metadata_hold(void)
{
	km_lock(&metadata.lock);
}

void km_metadata_let_go(void)
{
	km_unlock(&metadata.lock);
}

void *km_metadata_root(void)
{
	return km_metadata.committed_bytes ? metadata.root : NULL;
}

void km_metadata_fork(bool before, bool child)
{
	km_lock_around_fork(&metadata.lock, before, child);
}
