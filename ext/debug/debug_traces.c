/*
 * debug_traces.c: lists of the allocation sites of live objects, heaviest first: the kernel's alloc_traces for one
 * cache, or a program's leaks over all caches with tracks.
 *
 * Stacks have numbers (debug_stacks.c). A walk counts the stacks of a stretch of numbers, as many as the table has
 * places. The next walk begins at the lowest number found beyond the stretch, so every stack is counted in a single
 * walk. The heaviest stacks are kept between walks, in a heap with the lightest at the root.
 *
 * Invariants: caches are never changed; memory is one mapping of bounded size; no omitted stack is heavier than a
 * printed stack; the total includes every object.
 */
#include <errno.h>

#include <kmem/stats.h>

#include "base/bits.h"
#include "os/os.h"
#include "debug.h"
#include "inspect/stats_print.h"

#define MOST_ROOM	(1u << 14)	/* sites in a table, 72 bytes each */
#define LEAST_ROOM	64u
#define NO_NUMBER	UINT32_MAX

/* Sums over the allocated objects with one stack. */
struct site {
	const struct kmem_record_mark *mark;	/* mark of one object */
	struct km_page *slab;			/* slab of that object, or a large block */
	unsigned long count, bytes;		/* count 0: unused entry */
	uint64_t least, most, sum;		/* ages in ms */
	uint32_t number;			/* of the stack */
	uint32_t first, last;			/* lowest and highest thread ID */
	bool early;				/* no stack: allocated before the program's start, or after its end */
};

struct sites {
	struct kmem_cache *cache;	/* NULL: all caches with tracks */
	struct site *table;		/* of the stacks `from` to `from` + `room` - 1 */
	unsigned room;
	uint32_t from, next;		/* next: the lowest number found beyond the table; NO_NUMBER: none */
	struct site *heaviest;		/* heap with room / 4 entries */
	unsigned kept;
	unsigned long total, bytes;
	unsigned long others, other_sites;	/* objects that are not listed, and the number of their stacks */
	uint64_t now;
};

static bool has_tracks(const struct kmem_cache *cache)
{
	return cache->layout.flags & SLAB_STORE_USER && !cache->layout.engine->shared_pages;
}

/* ------------------------------------------------------------------ a walk */

static uint32_t number_of(const struct kmem_record_mark *mark)
{
	return (uint32_t)km_load(&mark->who);
}

/* The mark of all objects with an overwritten or repaired mark; without a stack. */
static const struct kmem_record_mark no_mark;

static void add(struct sites *sites, struct km_page *slab, const struct kmem_record_mark *mark, size_t bytes)
{
	struct km_stack_track track;

	if (!km_debug_is_sealed(mark) || !mark->when)
		mark = &no_mark;
	const uint32_t number = number_of(mark);
	if (number - sites->from >= sites->room) {
		if (number > sites->from)
			sites->next = km_min(sites->next, number);
		return;
	}
	km_debug_read_mark(mark, &track);
	const uint64_t age = track.when ? sites->now - km_min(track.when, sites->now) : 0;
	struct site *site = &sites->table[number - sites->from];
	km_debug(!site->count || site->number == number, "a site counts the objects of one stack");
	if (!site->count)
		*site = (struct site){
			.mark = mark, .slab = slab, .number = number, .least = UINT64_MAX, .first = track.thread,
			.early = km_stack_is_early(track.frame[0]),
		};
	site->count++;
	site->bytes += bytes;
	site->sum += age;
	site->least = km_min(site->least, age);
	site->most = km_max(site->most, age);
	site->first = km_min(site->first, track.thread);
	site->last = km_max(site->last, track.thread);
}

/* Returns: whether a listing of `wanted` includes `cache`: a cache debugged at run time has its tracks in debug shadow
 * caches. */
static bool is_meant(const struct kmem_cache *wanted, const struct kmem_cache *cache)
{
	return !wanted || cache == wanted || cache->ext.shadow_of == wanted;
}

/* Add the objects of one page. The slab is held, because other threads may keep running during a leak report. */
static int add_slab(struct km_page *slab, void *arg)
{
	struct sites *sites = arg;

	km_page_hold(slab);
	struct kmem_cache *cache = slab->type == KM_PAGE_SLAB ? slab->cache : NULL;
	size_t asked;
	const struct kmem_record_mark *block = sites->cache ? NULL : km_debug_block_mark(slab, &asked);

	if (block)
		add(sites, slab, block, asked);
	if (cache && has_tracks(cache) && is_meant(sites->cache, cache)) {
		char *object = km_slab_first(cache, slab);

		for (unsigned i = 0; i < slab->objects; i++, object += cache->layout.size)
			if (km_debug_look(cache, object).state == KM_DEBUG_TAKEN)
				add(sites, slab, &km_debug_marks(cache, object)[0], km_debug_bytes(cache, object));
	}
	km_page_let_go(slab);
	return 0;
}

/* ------------------------------------------------------------------ the heaviest */

/* Returns: the weight of a site: objects in the list of one cache, as in the kernel; bytes in a list of leaks. */
static unsigned long weight(const struct sites *sites, const struct site *site)
{
	return sites->cache ? site->count : site->bytes;
}

static void sink(const struct sites *sites, unsigned count, unsigned at)
{
	struct site *heap = sites->heaviest, site = heap[at];

	for (unsigned below; (below = 2 * at + 1) < count; at = below) {
		below += below + 1 < count && weight(sites, &heap[below + 1]) < weight(sites, &heap[below]);
		if (weight(sites, &heap[below]) >= weight(sites, &site))
			break;
		heap[at] = heap[below];
	}
	heap[at] = site;
}

static void rise(const struct sites *sites, unsigned at)
{
	struct site *heap = sites->heaviest, site = heap[at];

	for (; at && weight(sites, &heap[(at - 1) / 2]) > weight(sites, &site); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = site;
}

static void leave_out(struct sites *sites, const struct site *site)
{
	sites->others += site->count;
	sites->other_sites++;
}

static void keep(struct sites *sites, const struct site *site)
{
	struct site *heap = sites->heaviest;

	/* The dynamic linker's allocations before the program's first function are no leaks. */
	if (!sites->cache && site->early)
		return;
	sites->total += site->count;
	sites->bytes += site->bytes;
	km_debug(sites->kept <= sites->room / 4, "the heaviest stacks lie behind the table");
	if (sites->kept < sites->room / 4) {
		heap[sites->kept] = *site;
		rise(sites, sites->kept++);
	} else if (weight(sites, site) > weight(sites, heap)) {
		leave_out(sites, heap);
		*heap = *site;
		sink(sites, sites->kept, 0);
	} else {
		leave_out(sites, site);
	}
}

/* Heap sort: move the root to the end, repeatedly. */
static void sort(const struct sites *sites)
{
	for (unsigned count = sites->kept; count > 1;) {
		struct site least = sites->heaviest[0];

		sites->heaviest[0] = sites->heaviest[--count];
		sites->heaviest[count] = least;
		sink(sites, count, 0);
	}
}

/* ------------------------------------------------------------------ all walks */

/* Count all stacks, one stretch of numbers after the other. */
static void gather(struct sites *sites)
{
	do {
		sites->from = sites->next;
		sites->next = NO_NUMBER;
		__builtin_memset(sites->table, 0, sites->room * sizeof(*sites->table));
		km_pages_walk(add_slab, sites);
		km_debug(sites->next - sites->from >= sites->room, "the next stretch lies beyond the table");
		for (unsigned i = 0; i < sites->room; i++)
			if (sites->table[i].count)
				keep(sites, &sites->table[i]);
	} while (sites->next != NO_NUMBER);
	sort(sites);
	km_debug(!sites->others || sites->kept == sites->room / 4, "stacks are left out only without room");
}

static size_t bytes_of_room(unsigned room)
{
	return (room + room / 4) * sizeof(struct site);
}

/* Maps the table of sites, as large as the system allows. Returns: false without memory. */
static bool begin(struct sites *sites)
{
	for (sites->room = MOST_ROOM; sites->room >= LEAST_ROOM; sites->room /= 2) {
		sites->table = km_os_map(bytes_of_room(sites->room), KM_PAGE_SIZE);
		if (sites->table) {
			sites->heaviest = sites->table + sites->room;
			return true;
		}
	}
	return false;
}

/* ------------------------------------------------------------------ lines */

/* Read the stack of a site. Returns: false if the object was freed meanwhile and its track replaced. */
static bool stack_of(const struct site *site, struct km_stack_track *track)
{
	bool stays = false;

	km_page_hold(site->slab);
	if (site->slab->type == KM_PAGE_SLAB || site->slab->type == KM_PAGE_LARGE) {
		stays = number_of(site->mark) == site->number;
		km_debug_read_mark(site->mark, track);
	}
	km_page_let_go(site->slab);
	return stays;
}

static void print_site(struct km_writer *writer, const struct sites *sites, const struct site *site)
{
	struct km_stack_track track;
	char place[320], bytes[32] = "";
	bool known = stack_of(site, &track);

	km_debug(site->count && site->least <= site->most, "a printed stack has objects with ages");
	if (!sites->cache)
		km_format(bytes, sizeof(bytes), " bytes=%lu", site->bytes);
	km_print(writer, "%7lu %s%s age=%lu/%lu/%lu pid=%u-%u\n", site->count,
		 known ? km_stack_place(track.frame[0], place, sizeof(place)) :
		 site->mark == &no_mark ? "(track was overwritten)" : "(gone meanwhile)", bytes,
		 (unsigned long)site->least, (unsigned long)(site->sum / site->count), (unsigned long)site->most,
		 site->first, site->last);
	for (unsigned i = 0; known && i < KM_STACK_FRAMES && track.frame[i]; i++)
		km_print(writer, "        %s\n", km_stack_place(track.frame[i], place, sizeof(place)));
}

static void print_sites(struct km_writer *writer, const struct sites *sites)
{
	for (unsigned i = 0; i < sites->kept; i++)
		print_site(writer, sites, &sites->heaviest[i]);
	if (sites->others)
		km_print(writer, "%7lu of %lu other stacks\n", sites->others, sites->other_sites);
}

/* Prints the bytes of large blocks without tracks: blocks in mappings of their own have none. */
static void print_untracked(struct km_writer *writer)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	if (stats.mapped_blocks)
		km_print(writer, "%7lu of more than 4 MiB bytes=%lu: stacks are not recorded\n", stats.mapped_blocks,
			 stats.mapped_bytes);
}

static int print(struct kmem_cache *cache, int fd)
{
	struct km_writer writer = { .fd = fd, .no_signal = true };
	struct sites sites = { .cache = cache, .now = km_os_now_ms() };
	int error = -ENOMEM;
	km_busy_scope(was);

	if (begin(&sites)) {
		gather(&sites);
		print_sites(&writer, &sites);
		if (!cache)
			print_untracked(&writer);
		km_print(&writer, "TOTAL %lu\n", sites.total);
		error = km_print_end(&writer);
		km_os_unmap(sites.table, bytes_of_room(sites.room));
	}
	return error;
}

int km_debug_print_leaks(int fd)
{
	return print(NULL, fd);
}

static int find_tracks(struct kmem_cache *cache, void *arg)
{
	*(bool *)arg |= has_tracks(cache);
	return 0;
}

static bool some_cache_has_tracks(void)
{
	bool tracks = false;
	km_busy_scope(was);

	km_registry_visit(find_tracks, &tracks);
	return tracks;
}

int kmem_print_leaks(int fd)
{
	if (!km_boot())
		return -ENOMEM;
	return km_debug_blocks_have_tracks() || some_cache_has_tracks() ? km_debug_print_leaks(fd) : -EINVAL;
}

/* Skip an empty shadow cache no longer in service: the shadow has no tracks. */
static int find_tracks_now(struct kmem_cache *cache, void *arg)
{
	const struct kmem_cache *of = cache->ext.shadow_of;

	*(bool *)arg |= cache->layout.flags & SLAB_STORE_USER &&
			(!of || of->ext.carried & SLAB_STORE_USER || km_load(&cache->state.slab_bytes));
	return 0;
}

bool km_debug_has_tracks(void)
{
	bool tracks = km_debug_blocks_have_tracks();

	km_registry_each(find_tracks_now, &tracks);
	return tracks;
}

int km_debug_print_all_leaks(int fd)
{
	return some_cache_has_tracks() ? km_debug_print_leaks(fd) : -EINVAL;
}

int kmem_cache_print_traces(struct kmem_cache *cache, int fd)
{
	const struct kmem_cache *at = km_alloc_shadows(cache);

	while (at && !has_tracks(at))
		at = at->ext.next_shadow;
	return at || has_tracks(cache) ? print(cache, fd) : -EINVAL;
}
