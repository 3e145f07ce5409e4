/*
 * debug_traces.c: lists of the allocation sites of live objects, heaviest first: the kernel's alloc_traces for one
 * cache, or a program's leaks over all caches with tracks.
 *
 * A walk counts stacks in a table of fixed size. If the table overflows, the walk repeats for only the stacks with a
 * hash ending in 0, then for the hashes ending in 1. Each half is halved again until the stacks fit, so every stack
 * is counted in a single walk. The heaviest stacks are kept between walks, in a heap with the lightest at the root.
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

#define MOST_ROOM	(1u << 14)	/* most and fewest sites in a table, 80 bytes each; powers of two */
#define LEAST_ROOM	64u
#define MOST_HALVINGS	16u

/* Sums over the allocated objects with one stack. */
struct site {
	const struct kmem_record_mark *mark;	/* mark of one object; NULL: unused entry */
	struct km_page *slab;			/* first page of this object's slab or large block */
	uint64_t hash;				/* hash of the stack's number */
	unsigned long count, bytes;
	uint64_t least, most, sum;		/* ages of the objects in ms */
	uint32_t first, last;			/* lowest and highest id of the allocating threads */
	bool early;				/* allocated before the program's first function, or after its end: no
						 * stack */
};

struct sites {
	struct kmem_cache *cache;	/* cache to list; NULL: all caches with tracks */
	struct site *table;
	unsigned room, used;
	bool too_many;			/* there are too many stacks for the table */
	unsigned halvings;		/* a walk counts only stacks whose lowest `halvings` bits of the hash ... */
	uint64_t part;			/* ... are equal to `part` */
	struct site *heaviest;		/* the heaviest sites so far: a heap with room / 4 entries, the lightest
					 * first */
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

static uint64_t hash_of(const struct kmem_record_mark *mark)
{
	uint64_t hash = (uint32_t)km_load(&mark->who) * KM_DEBUG_FACTOR;

	return hash ^ hash >> 32;
}

/* Find or add the site of a mark. Returns: NULL if the table is full. */
static struct site *site_of(struct sites *sites, struct km_page *slab, const struct kmem_record_mark *mark,
			    uint64_t hash)
{
	struct km_stack_track track;

	for (uint64_t i = hash >> 40;; i++) {
		struct site *site = &sites->table[i & (sites->room - 1)];

		if (site->mark && site->hash == hash)
			return site;
		if (site->mark)
			continue;
		/* Keep a quarter of the table free, so that searches end soon. */
		if (sites->used >= sites->room / 4 * 3)
			return NULL;
		sites->used++;
		km_debug(sites->used < sites->room, "a search for a stack finds a free place");
		km_debug_read_mark(mark, &track);
		*site = (struct site){
			.mark = mark, .slab = slab, .hash = hash, .least = UINT64_MAX, .first = track.thread,
			.early = km_stack_is_early(track.frame[0]),
		};
		return site;
	}
}

static bool is_in_part(const struct sites *sites, uint64_t hash)
{
	return (hash & (((uint64_t)1 << sites->halvings) - 1)) == sites->part;
}

/* The mark of all objects with an overwritten or repaired mark; without a stack. */
static const struct kmem_record_mark no_mark;

static void add(struct sites *sites, struct km_page *slab, const struct kmem_record_mark *mark, size_t bytes)
{
	struct km_stack_track track;

	if (!km_debug_is_sealed(mark) || !mark->when)
		mark = &no_mark;
	km_debug_read_mark(mark, &track);
	uint64_t hash = hash_of(mark), age = track.when ? sites->now - km_min(track.when, sites->now) : 0;
	struct site *site;

	if (!is_in_part(sites, hash))
		return;
	site = site_of(sites, slab, mark, hash);
	if (!site) {
		sites->too_many = true;
		return;
	}
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
	return sites->too_many;
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

static void walk(struct sites *sites)
{
	km_debug(!(sites->part >> sites->halvings), "a part has one bit of its name for each halving");
	__builtin_memset(sites->table, 0, sites->room * sizeof(*sites->table));
	sites->used = 0;
	sites->too_many = false;
	km_pages_walk(add_slab, sites);
}

/* Select the next part. Returns: false after the last part. */
static bool next_part(struct sites *sites)
{
	while (sites->halvings && sites->part >> (sites->halvings - 1))
		sites->part &= ((uint64_t)1 << --sites->halvings) - 1;
	if (!sites->halvings)
		return false;
	sites->part |= (uint64_t)1 << (sites->halvings - 1);
	km_debug(is_in_part(sites, sites->part), "the name of a part is the low bits of its hashes");
	return true;
}

/* Count all stacks, part by part. Returns: false if even the smallest parts overflow. */
static bool gather(struct sites *sites)
{
	do {
		for (walk(sites); sites->too_many && sites->halvings < MOST_HALVINGS; walk(sites))
			sites->halvings++;
		if (sites->too_many)
			return false;
		for (unsigned i = 0; i < sites->room; i++)
			if (sites->table[i].count)
				keep(sites, &sites->table[i]);
	} while (next_part(sites));
	sort(sites);
	km_debug(!sites->others || sites->kept == sites->room / 4, "stacks are left out only without room");
	return true;
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
		stays = hash_of(site->mark) == site->hash;
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
		if (gather(&sites)) {
			print_sites(&writer, &sites);
			if (!cache)
				print_untracked(&writer);
			km_print(&writer, "TOTAL %lu\n", sites.total);
			error = km_print_end(&writer);
		}
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
