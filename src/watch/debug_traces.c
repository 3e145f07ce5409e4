/*
 * debug_traces.c: by whom a cache's objects were allocated, most of them first: the kernel's alloc_traces. Invariant:
 * changes nothing of the cache; what it needs it has from our own memory, and of more stacks than there is room for the
 * objects are counted together.
 */
#include <errno.h>

#include <kmem/stats.h>

#include "../page/meta.h"
#include "../port/bits.h"
#include "../port/os.h"
#include "debug.h"
#include "print.h"

#define SITES 1024u		/* a power of two */

/* The objects of one stack. */
struct site {
	const struct km_debug_track *track;	/* of one of them; NULL: there is none */
	unsigned long count;
	uint64_t least, most, sum;		/* ages, ms */
	uint32_t first, last;			/* threads */
};

struct sites {
	struct kmem_cache *cache;
	struct site *site;
	unsigned used;
	unsigned long total, others;
	uint64_t now;
};

static bool is_same(const struct km_debug_track *a, const struct km_debug_track *b)
{
	return __builtin_memcmp(a->frame, b->frame, sizeof(a->frame)) == 0;
}

/* NULL: there are too many. */
static struct site *site_of(struct sites *sites, const struct km_debug_track *track)
{
	uintptr_t hash = 0;

	for (unsigned i = 0; i < KM_DEBUG_FRAMES; i++)
		hash = (hash ^ track->frame[i]) * 0x9e3779b97f4a7c15u;
	for (unsigned i = (unsigned)(hash >> 40);; i++) {
		struct site *site = &sites->site[i & (SITES - 1)];

		if (site->track && is_same(site->track, track))
			return site;
		if (site->track)
			continue;
		/* A quarter stays free, so that this ends soon. */
		if (sites->used >= SITES / 4 * 3)
			return NULL;
		sites->used++;
		km_debug(sites->used < SITES, "a search for a stack finds a free place");
		*site = (struct site){ .track = track, .least = UINT64_MAX, .first = track->thread };
		return site;
	}
}

static void add(struct sites *sites, const struct km_debug_track *track)
{
	struct site *site = site_of(sites, track);
	uint64_t age = sites->now - track->when;

	km_debug(!site || is_same(site->track, track), "objects of one stack are counted together");
	sites->total++;
	if (!site) {
		sites->others++;
		return;
	}
	site->count++;
	site->sum += age;
	site->least = km_min(site->least, age);
	site->most = km_max(site->most, age);
	site->first = km_min(site->first, track->thread);
	site->last = km_max(site->last, track->thread);
}

static int add_slab(struct km_page *slab, void *arg)
{
	struct sites *sites = arg;

	if (slab->type != KM_PAGE_SLAB || slab->cache != sites->cache)
		return 0;
	char *object = km_slab_first(sites->cache, slab);
	for (unsigned i = 0; i < slab->objects; i++, object += sites->cache->size)
		if (km_load_acquire(&km_debug_word(sites->cache, object)->state) == KM_DEBUG_TAKEN)
			add(sites, &km_debug_tracks(sites->cache, object)[0]);
	return 0;
}

static struct site *most_frequent(struct sites *sites)
{
	struct site *most = NULL;

	for (unsigned i = 0; i < SITES; i++)
		if (sites->site[i].count > (most ? most->count : 0))
			most = &sites->site[i];
	return most;
}

static void print_site(struct km_writer *writer, const struct site *site)
{
	char place[320];

	km_debug(site->count && site->least <= site->most, "a stack that is printed has objects, and their ages");
	km_print(writer, "%7lu %s age=%lu/%lu/%lu pid=%u-%u\n", site->count,
		 km_debug_place(site->track->frame[0], place, sizeof(place)), (unsigned long)site->least,
		 (unsigned long)(site->sum / site->count), (unsigned long)site->most, site->first, site->last);
	for (unsigned i = 0; i < KM_DEBUG_FRAMES && site->track->frame[i]; i++)
		km_print(writer, "        %s\n", km_debug_place(site->track->frame[i], place, sizeof(place)));
}

int kmem_cache_print_traces(struct kmem_cache *cache, int fd)
{
	struct km_writer writer = { .fd = fd };
	struct sites sites = { .cache = cache, .now = km_os_now_ms() };
	struct site *site;

	if (!(cache->flags & SLAB_STORE_USER) || cache->engine->shared_pages)
		return -EINVAL;
	bool was = km_busy_begin();
	sites.site = km_meta_alloc(SITES * sizeof(*sites.site), true);
	if (sites.site) {
		km_pages_walk(add_slab, &sites);
		for (; (site = most_frequent(&sites)); site->count = 0)
			print_site(&writer, site);
		if (sites.others)
			km_print(&writer, "%7lu of other stacks\n", sites.others);
		km_print(&writer, "TOTAL %lu\n", sites.total);
		km_meta_free(sites.site, SITES * sizeof(*sites.site));
	}
	int error = sites.site ? km_print_end(&writer) : -ENOMEM;
	km_busy_end(was);
	return error;
}
