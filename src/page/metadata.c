/*
 * metadata.c: our own memory: power-of-two free lists over ranges that are committed step by step. Invariants: all of
 * meta memory stays readable for ever; a free piece keeps what it held but for the link until it is had again, or its
 * page goes back to the system, which shows zeros then. A page that went back is on no free list, and marked.
 */
#include "deferred_free.h"
#include "metadata.h"

#include "base/bits.h"
#include "os/die.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/sanitizer.h"
#include "commit_ahead.h"

#define MIN_SHIFT	6u
#define MAX_SHIFT	22u
#define COMMIT_STEP	((size_t)256 << 10)
#define UNITS		(KM_PAGE_SIZE >> MIN_SHIFT)	/* smallest pieces of a page */
#define RANGE_BYTES	((size_t)1 << 30)
#define TRIM_PAGES	4096u		/* that go back while the lock is held */
#define TRIM_FROM	((size_t)4 << 20)	/* bytes that must be free for it to be worth a look */
#define MOST_SPANS	128u		/* under a limit a range has a 64th of it */

static struct {
	struct km_lock lock;
	char *base, *at, *committed, *end;	/* the current range */
	size_t committed_bytes;		/* without pages that went back */
	size_t free_bytes;		/* on the lists */
	size_t freed;			/* since the last trim */
	uint8_t *units;			/* for each page of the range: free smallest pieces, while it is trimmed */
	uint64_t *gone;			/* a bit for each page of the range that went back */
	size_t gone_pages;
	char *root;			/* set aside at the start of the first range */
	struct km_span span[MOST_SPANS];
	unsigned spans;
	void *free[MAX_SHIFT + 1];	/* linked by the last word of a smallest piece */
} meta = { .lock = KM_LOCK_INIT(KM_RANK_META) };

static unsigned shift_of(size_t bytes)
{
	return bytes <= (size_t)1 << MIN_SHIFT ? MIN_SHIFT : km_ilog2(bytes - 1) + 1;
}

static void **link_of(void *p)
{
	return (void **)((char *)p + (1u << MIN_SHIFT)) - 1;
}

/* Bytes of the bits for the pages of the largest range. */
static size_t mark_bytes(void)
{
	return RANGE_BYTES / KM_PAGE_SIZE / 8;
}

/* With the lock. */
static void note_span(const char *start, size_t bytes)
{
	if (meta.spans == MOST_SPANS)
		return;
	meta.span[meta.spans] = (struct km_span){ start, start + bytes };
	/* Release: a reader outside of the process that sees the count sees the span. */
	km_store_release(&meta.spans, meta.spans + 1);
}

void km_meta_note_span(const void *start, size_t bytes)
{
	km_busy_scope(was);

	km_lock_scope(&meta.lock);
	note_span(start, bytes);
}

static bool new_range(size_t bytes)
{
	size_t least = km_align_up(bytes * 2, COMMIT_STEP);
	size_t range = km_min(RANGE_BYTES, km_align_down(km_os_address_room() / 64, COMMIT_STEP));
	char *p;

	range = km_max(km_max(range, COMMIT_STEP * 4), least);
	/* Another process may have limited this one. */
	while (!(p = km_os_reserve(range, KM_PAGE_SIZE))) {
		if (range == least)
			return false;
		range = km_max(km_align_down(range / 4, COMMIT_STEP), least);
	}
	km_os_name(p, range, "libkmem: metadata");
	note_span(p, range);
	km_debug(!((uintptr_t)p & (KM_PAGE_SIZE - 1)) && range >= least, "a range begins with a page");
	/* The free rest of the former one is used up, and never goes back. */
	meta.base = p;
	if (meta.gone)
		__builtin_memset(meta.gone, 0, mark_bytes());
	meta.gone_pages = 0;
	/* The first page of the system's stays without access: the mapping after it begins with ours. */
	meta.at = meta.committed = p + km_os_page_bytes();
	meta.end = p + range;
	if (!meta.root) {
		meta.root = meta.at;
		meta.at += KM_META_ROOT_BYTES;
	}
	return true;
}

void km_meta_fit(size_t limit)
{
	km_lock_scope(&meta.lock);
	size_t spare = km_align_down(limit / 64, COMMIT_STEP);
	char *end = (char *)km_align_up((uintptr_t)meta.committed, COMMIT_STEP) + spare;
	if (meta.committed && end < meta.end) {
		km_os_unmap(end, (size_t)(meta.end - end));
		meta.end = end;
	}
}

/* ------------------------------------------------------------------ pages that went back */

static bool is_gone(size_t page)
{
	return meta.gone[page / 64] >> page % 64 & 1;
}

static void push(void *p, unsigned shift)
{
	km_debug(km_is_locked(&meta.lock), "the lists change under their lock");
	km_debug(shift >= MIN_SHIFT && shift <= MAX_SHIFT, "a piece has the size of a list");
	km_debug(!((uintptr_t)p & (km_min((size_t)1 << shift, 2 * KM_PAGE_SIZE) - 1)),
		 "a piece is aligned to its size");
	km_debug(p != meta.free[shift], "a piece is freed once");
	*link_of(p) = meta.free[shift];
	meta.free[shift] = p;
	meta.free_bytes += (size_t)1 << shift;
}

/* So many in a row, the first of them at a multiple of two, where it is more than one: its number. False: none. */
static bool find_gone(size_t pages, size_t *first)
{
	size_t all = (size_t)(meta.at - meta.base) >> KM_PAGE_SHIFT, run = 0;

	for (size_t page = 0; page < all; page++) {
		/* 64 at a time, where there are none. */
		if (page % 64 == 0 && !meta.gone[page / 64]) {
			page += 63;
			run = 0;
			continue;
		}
		bool fits = is_gone(page) && (run || pages == 1 || !((uintptr_t)(meta.base + (page << KM_PAGE_SHIFT)) &
								     (2 * KM_PAGE_SIZE - 1)));
		run = fits ? run + 1 : 0;
		if (run == pages) {
			*first = page + 1 - pages;
			return true;
		}
	}
	return false;
}

/* A piece out of pages that went back, which are zeros. NULL: there are none, or not so many in a row. */
static void *take_gone(unsigned shift)
{
	size_t bytes = (size_t)1 << shift, pages = bytes > KM_PAGE_SIZE ? bytes >> KM_PAGE_SHIFT : 1, first;

	if (meta.gone_pages < pages || !find_gone(pages, &first))
		return NULL;
	char *p = meta.base + (first << KM_PAGE_SHIFT);
	for (size_t page = first; page < first + pages; page++)
		meta.gone[page / 64] &= ~((uint64_t)1 << page % 64);
	km_debug(meta.gone_pages >= pages, "the pages that went back are counted");
	meta.gone_pages -= pages;
	km_bump(&meta.committed_bytes, pages << KM_PAGE_SHIFT);
	return p;
}

/* Cut `bytes`, a power of two, off the range, or, without may_wait, off what is committed of it. */
static void *carve(size_t bytes, bool may_wait)
{
	/* A shelf's block is aligned to its size, and the largest has 1024 words. */
	size_t align = km_min(bytes, 2 * KM_PAGE_SIZE);
	char *p = (char *)km_align_up((uintptr_t)meta.at, align);

	if (!meta.at || p + bytes > meta.end) {
		if (!may_wait || !new_range(bytes))
			return NULL;
		p = (char *)km_align_up((uintptr_t)meta.at, align);
	}
	if (p + bytes > meta.committed) {
		size_t step = km_align_up((size_t)(p + bytes - meta.committed), COMMIT_STEP);

		step = km_min(step, (size_t)(meta.end - meta.committed));
		if (!may_wait || km_os_commit(meta.committed, step))
			return NULL;
		meta.committed += step;
		km_bump(&meta.committed_bytes, step);
	}
	/* The bytes that alignment skips are for smaller pieces. */
	for (size_t piece; meta.at < p; meta.at += piece) {
		piece = (size_t)1 << __builtin_ctzll((uintptr_t)meta.at);
		push(meta.at, shift_of(piece));
	}
	meta.at = p + bytes;
	km_debug(meta.at <= meta.committed && meta.committed <= meta.end, "what is cut off is committed");
	return p;
}

/* ThreadSanitizer sees libc's function, and not the lock: it would call it a race. */
static void clear(void *p, size_t bytes)
{
	if (km_likely(!km_sanitizer.thread))
		__builtin_memset(p, 0, bytes);
	else
		for (volatile uint64_t *at = p; bytes; bytes -= sizeof(*at))
			*at++ = 0;
}

void *km_meta_alloc(size_t bytes, bool may_wait)
{
	may_wait &= !km_no_calls;
	unsigned shift = shift_of(bytes);
	void *p = NULL;

	if (shift > MAX_SHIFT)
		return NULL;
	struct km_busy_was was = km_busy_begin();
	if (km_lock_may(&meta.lock, may_wait)) {
		p = meta.free[shift];
		if (p) {
			meta.free[shift] = *link_of(p);
			km_debug(meta.free_bytes >= (size_t)1 << shift, "the bytes on the lists are counted");
			meta.free_bytes -= (size_t)1 << shift;
			clear(p, (size_t)1 << shift);
		} else {
			/* A page has pieces of one size: it goes back when all things of their kind are gone. */
			p = take_gone(shift) ?: carve(km_max((size_t)1 << shift, (size_t)KM_PAGE_SIZE), may_wait);
			for (size_t at = KM_PAGE_SIZE >> shift; p && at > 1; at--)
				push((char *)p + ((at - 1) << shift), shift);
		}
		km_unlock_may(&meta.lock, may_wait);
	}
	km_busy_end(was);
	if (!p && !may_wait)
		km_ahead_note(0, false);
	return p;
}

bool km_meta_ahead(size_t bytes)
{
	km_busy_scope(was);

	km_lock_scope(&meta.lock);
	bool ready = meta.at && (size_t)(meta.committed - meta.at) >= bytes;
	/* A range has little left: the next one is begun by the thread that needs it. */
	size_t left = (size_t)(meta.end - meta.committed);
	km_debug(meta.committed <= meta.end, "no more of a range is committed than it has");
	size_t step = ready || !meta.at ? 0 : km_min(km_align_up(bytes, COMMIT_STEP), left);
	if (step && !km_os_commit(meta.committed, step)) {
		meta.committed += step;
		km_bump(&meta.committed_bytes, step);
		ready = true;
	}
	return ready;
}

/* The next page from *page on that went back; NULL: there is none. */
static char *next_gone(size_t *page)
{
	size_t unit = km_os_page_bytes() >> KM_PAGE_SHIFT;
	char *found = NULL;

	km_lock_scope(&meta.lock);
	size_t all = meta.gone_pages ? (size_t)(meta.at - meta.base) >> KM_PAGE_SHIFT : 0;
	for (; *page < all && !found; *page += unit)
		if (is_gone(*page))
			found = meta.base + (*page << KM_PAGE_SHIFT);
	return found;
}

/*
 * Pages that went back are the first that are taken; they count as such until then. The lock is held while they are
 * looked for, and not while they come: what lies here stays mapped and readable, and to one that is in use, or went
 * back, meanwhile nothing happens.
 */
bool km_meta_fault_in(size_t bytes)
{
	size_t unit = km_os_page_bytes(), page = 0;
	km_busy_scope(was);
	bool done = true;

	bytes = km_align_up(bytes, unit);
	for (char *gone; done && bytes && (gone = next_gone(&page)); bytes -= unit)
		done = !km_os_fault_in(gone, unit);
	km_lock(&meta.lock);
	char *first = (char *)km_align_down((uintptr_t)meta.at, unit);
	size_t most = (size_t)(meta.committed - first);
	km_debug(first <= meta.committed, "what is not used yet is committed");
	km_unlock(&meta.lock);
	if (done && most && bytes)
		done = !km_os_fault_in(first, km_min(bytes, most));
	return done;
}

void km_meta_free(void *p, size_t bytes)
{
	unsigned shift = shift_of(bytes);

	if (!p)
		return;
	km_debug(shift <= MAX_SHIFT, "a piece has the size of a list");
	if (km_unlikely(km_late)) {
		km_deferred_piece(p, bytes);
		return;
	}
	km_busy_scope(was);
	km_lock_scope(&meta.lock);
	push(p, shift);
	meta.freed += (size_t)1 << shift;
}

/* A piece has so many lines at which that many bytes may begin. */
static size_t places(size_t bytes)
{
	return (((size_t)1 << shift_of(bytes)) - bytes) / KM_CACHE_LINE + 1;
}

void *km_meta_alloc_spread(size_t bytes, bool may_wait)
{
	km_debug(bytes <= KM_PAGE_SIZE, "a piece lies in a page");
	char *piece = km_meta_alloc(bytes, may_wait);
	size_t place = ((uintptr_t)piece >> KM_PAGE_SHIFT) % places(bytes);

	return piece ? piece + place * KM_CACHE_LINE : NULL;
}

void km_meta_free_spread(void *p, size_t bytes)
{
	km_meta_free((void *)km_align_down((uintptr_t)p, (uintptr_t)1 << shift_of(bytes)), bytes);
}

/* ------------------------------------------------------------------ giving back */

/* Memory for the marks: address space, until a range is trimmed. */
static bool have_marks(void)
{
	/* A byte for each page, and one behind the last. */
	size_t bytes = mark_bytes() + RANGE_BYTES / KM_PAGE_SIZE + KM_PAGE_SIZE;

	if (meta.gone)
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
	meta.gone = (uint64_t *)p;
	meta.units = (uint8_t *)p + mark_bytes();
	return true;
}

/* Pages of a piece in the current range; none where it lies in a former one. */
static size_t pages_of(const void *piece, unsigned shift, size_t *first)
{
	uintptr_t offset = (uintptr_t)piece - (uintptr_t)meta.base;

	*first = offset >> KM_PAGE_SHIFT;
	if (offset >= (uintptr_t)(meta.at - meta.base))
		return 0;
	return shift > KM_PAGE_SHIFT ? (size_t)1 << (shift - KM_PAGE_SHIFT) : 1;
}

static void count_free(void)
{
	size_t first;

	for (unsigned shift = MIN_SHIFT; shift <= MAX_SHIFT; shift++)
		for (void *p = meta.free[shift]; p; p = *link_of(p))
			for (size_t pages = pages_of(p, shift, &first); pages; pages--)
				meta.units[first + pages - 1] =
					(uint8_t)(meta.units[first + pages - 1] +
						  km_min((1u << shift) >> MIN_SHIFT, (unsigned)UNITS));
}

/* The first pages that are free as a whole, and with them the system's page that they are in, are to go, the others
 * stay; a piece of several goes with all of them. */
static size_t choose(size_t all)
{
	size_t chosen = 0, unit = km_os_page_bytes() >> KM_PAGE_SHIFT;

	for (size_t page = 0, end; page < all; page = end) {
		bool goes = page + unit <= all && chosen < TRIM_PAGES;

		end = km_min(page + unit, all);
		for (size_t at = page; at < end; at++)
			goes &= meta.units[at] == UNITS;
		__builtin_memset(meta.units + page, goes ? UNITS : 0, end - page);
		chosen += goes ? unit : 0;
	}
	return chosen;
}

static bool goes(const void *piece, unsigned shift)
{
	size_t first, pages = pages_of(piece, shift, &first);
	bool all = pages;

	for (; pages && all; pages--)
		all = meta.units[first + pages - 1] == UNITS;
	return all;
}

/* A piece that is cut by the bound keeps its pages. */
static void keep_pages(const void *piece, unsigned shift)
{
	size_t first;

	for (size_t pages = pages_of(piece, shift, &first); pages; pages--)
		meta.units[first + pages - 1] = 0;
}

static void take_off_lists(void)
{
	for (unsigned shift = MAX_SHIFT; shift >= MIN_SHIFT; shift--)
		for (void **at = &meta.free[shift], *p; (p = *at);)
			if (goes(p, shift)) {
				*at = *link_of(p);
				km_debug(meta.free_bytes >= (size_t)1 << shift,
					 "the bytes on the lists are counted");
				meta.free_bytes -= (size_t)1 << shift;
			} else {
				keep_pages(p, shift);
				at = link_of(p);
			}
}

/* A piece that stayed may have kept a part of a page of the system's: that page is not the system's to take. Pages that
 * it does not take back are zeroed here: it is as if it had, but for its memory. */
static void purge(char *p, size_t bytes)
{
	char *from = (char *)km_align_up((uintptr_t)p, km_os_page_bytes());
	char *to = (char *)km_align_down((uintptr_t)p + bytes, km_os_page_bytes());

	if (from >= to || km_os_purge(from, (size_t)(to - from)))
		from = to = p;
	__builtin_memset(p, 0, (size_t)(from - p));
	__builtin_memset(to, 0, (size_t)(p + bytes - to));
}

static void give_back(size_t all)
{
	size_t given = 0;

	for (size_t page = 0, end; page < all; page = end) {
		char *p = meta.base + (page << KM_PAGE_SHIFT);

		for (end = page; end < all && meta.units[end] == UNITS; end++)
			meta.gone[end / 64] |= (uint64_t)1 << end % 64;
		if (end == page) {
			end++;
			continue;
		}
		km_debug(meta.committed_bytes >= (end - page) << KM_PAGE_SHIFT, "what goes back was committed");
		purge(p, (end - page) << KM_PAGE_SHIFT);
		given += end - page;
	}
	meta.gone_pages += given;
	km_bump(&meta.committed_bytes, -(given << KM_PAGE_SHIFT));
}

/* With the lock. How many pages were to go. */
static size_t trim(void)
{
	size_t all = (size_t)(meta.at - meta.base) >> KM_PAGE_SHIFT;

	meta.freed = 0;
	if (!have_marks() || all > RANGE_BYTES >> KM_PAGE_SHIFT)
		return 0;
	__builtin_memset(meta.units, 0, all + 1);
	count_free();
	size_t chosen = choose(all);
	if (chosen) {
		take_off_lists();
		give_back(all);
	}
	purge((char *)meta.units, (all + 1) * sizeof(*meta.units));
	return chosen;
}

static void count_committed(size_t bytes)
{
	km_busy_scope(was);

	km_lock_scope(&meta.lock);
	km_bump(&meta.committed_bytes, bytes);
}

bool km_meta_purge(void *p, size_t bytes)
{
	if ((uintptr_t)p % km_os_page_bytes() || km_os_purge(p, bytes))
		return false;
	count_committed(-bytes);
	return true;
}

void km_meta_came_back(size_t bytes)
{
	count_committed(bytes);
}

void km_meta_trim(bool always)
{
	size_t chosen = TRIM_PAGES;

	while (chosen == TRIM_PAGES) {
		struct km_busy_was was = km_busy_begin();

		chosen = 0;
		km_lock(&meta.lock);
		if (meta.free_bytes >= (always ? 2 * KM_PAGE_SIZE : TRIM_FROM) &&
		    (always || meta.freed >= meta.committed_bytes / 4))
			chosen = trim();
		km_unlock(&meta.lock);
		km_busy_end(was);
		/* The thread that began it sees it through. */
		always = true;
	}
}

void km_meta_hold(void)
{
	km_lock(&meta.lock);
}

void km_meta_let_go(void)
{
	km_unlock(&meta.lock);
}

size_t km_meta_committed_bytes(void)
{
	return km_load(&meta.committed_bytes);
}

void km_meta_expose(const size_t **bytes, const struct km_span **spans, const unsigned **count)
{
	*bytes = &meta.committed_bytes;
	*spans = meta.span;
	*count = &meta.spans;
}

void *km_meta_root(void)
{
	return meta.committed_bytes ? meta.root : NULL;
}

void km_meta_fork(bool before, bool child)
{
	km_lock_around_fork(&meta.lock, before, child);
}
