/*
 * debug_look.c: what lies around an object of a cache that is debugged (slab/engine.h has the drawing), and whether
 * it is as it should be. Bytes, words and texts are the kernel's, but for the two that have a seal.
 *
 *	red zones		0xbb while the object is free, 0xcc while it is taken
 *	object, while free	0x6b ... 0x6b 0xa5 with SLAB_POISON, but for one that has a constructor or is typesafe
 *	link			the engine's, where it links free objects; else, and while the object is taken, 0x5a
 *	state, tracks		what they say, and a seal over that
 *	padding			0x5a
 *
 * Invariants: a damage is told once, by the thread that comes upon it first: then the bytes are as they should be.
 * Nothing that lies beside an object is believed before it was looked at: a user may have written it.
 */
#include "base/bits.h"
#include "os/os.h"
#include "debug.h"

#define ZONE_FREE	0xbb
#define ZONE_TAKEN	0xcc
#define POISON		0x6b
#define POISON_END	0xa5
#define PADDING		0x5a
_Static_assert(KM_DEBUG_NO_LINK == PADDING * 0x0101010101010101u, "the place of the link is a region of padding");

#define FACTOR 0x9e3779b97f4a7c15u

/* ------------------------------------------------------------------ the word of the state */

static const uint32_t states[] = {
	[KM_DEBUG_FREE] = 0x6b6b0f1e, [KM_DEBUG_TAKEN] = 0xcccc0a1d, [KM_DEBUG_CHANGES] = 0x5a5a0c2b,
};

uint64_t km_debug_sealed(const void *object, enum km_debug_state state, uint32_t asked)
{
	uint64_t seal = ((uintptr_t)object ^ asked) * FACTOR >> 32;

	km_debug(state < KM_DEBUG_DAMAGED, "no word says that it is damaged");
	return (uint64_t)asked << 32 | (seal ^ states[state]);
}

struct km_debug_seen km_debug_judge(const struct kmem_cache *cache, const void *object, uint64_t word)
{
	struct km_debug_seen seen = { word, KM_DEBUG_FREE, (uint32_t)(word >> 32), false };

	while (seen.state < KM_DEBUG_DAMAGED && km_debug_sealed(object, seen.state, seen.asked) != word)
		seen.state++;
	if (km_unlikely(seen.state == KM_DEBUG_DAMAGED || seen.asked > cache->object_size))
		return (struct km_debug_seen){ word, KM_DEBUG_DAMAGED, cache->object_size, false };
	return seen;
}

/* Acquire pairs with those who change it: what they say of the object is so. */
struct km_debug_seen km_debug_look(const struct kmem_cache *cache, const void *object)
{
	return km_debug_judge(cache, object, km_load_acquire(km_debug_word(cache, object)));
}

/* ------------------------------------------------------------------ tracks */

/* Each step can be undone, so that no change of one word is lost on the way. */
static uint64_t seal_of(const struct km_debug_track *track)
{
	const uint64_t *word = (const uint64_t *)track;
	uint64_t seal = (uintptr_t)track;

	for (size_t i = 0; i < offsetof(struct km_debug_track, seal) / sizeof(*word); i++) {
		seal = (seal ^ km_load(&word[i])) * FACTOR;
		seal ^= seal >> 32;
	}
	return seal;
}

void km_debug_seal(struct km_debug_track *track)
{
	track->seal = seal_of(track);
}

bool km_debug_is_sealed(const struct km_debug_track *track)
{
	return track->seal == seal_of(track);
}

static unsigned tracks_of(const struct kmem_cache *cache)
{
	return cache->flags & SLAB_STORE_USER ? 2 : 0;
}

/* ------------------------------------------------------------------ regions */

static bool is_poisoned(const struct kmem_cache *cache)
{
	return cache->flags & SLAB_POISON && !(cache->flags & SLAB_TYPESAFE_BY_RCU) && !cache->ctor;
}

/* The regions of one value of an object that is free, or taken; returns how many. waits: its link may be anybody's. */
static unsigned regions_of(const struct kmem_cache *cache, void *object, bool taken, uint32_t asked, bool waits,
			   struct km_debug_region *regions)
{
	/* Of a free object the place of the link is the engine's, if it is one that has links. */
	const bool linked = !taken && (waits || cache->engine->links_free);
	unsigned char *at = object, *end = (unsigned char *)(km_debug_tracks(cache, object) + tracks_of(cache));
	unsigned char *slot = at + cache->size - cache->left, zone = taken ? ZONE_TAKEN : ZONE_FREE;
	uint32_t size = cache->object_size;
	unsigned n = 0;
#define REGION(name, from, count, all, ...)                                                        \
	regions[n++] = (struct km_debug_region){ .what = (name), .at = (from), .bytes = (count), .value = (all),   \
						 __VA_ARGS__ }

	if (taken && km_debug_is_narrowed(cache) && asked < size)
		REGION("kmalloc Redzone", at + asked, size - asked, ZONE_TAKEN);
	if (cache->flags & SLAB_RED_ZONE) {
		REGION("Left Redzone", at - cache->left, cache->left, zone);
		REGION("Right Redzone", at + size, cache->freeptr - size, zone);
	} else {
		REGION("Alignment padding", at + size, cache->freeptr - size, PADDING);
	}
	if (!taken && is_poisoned(cache)) {
		REGION("Poison", at, size - 1, POISON);
		REGION("End Poison", at + size - 1, 1, POISON_END);
	}
	if (!linked)
		REGION("Freepointer", at + cache->freeptr, sizeof(void *), PADDING, .title = "Freepointer corrupt");
	REGION("Object padding", end, (size_t)(slot - end), PADDING);
#undef REGION
	km_debug(n <= KM_DEBUG_REGIONS && slot >= end, "an object's regions lie in its slot");
	return n;
}

/* Those whose seals don't fit. */
static unsigned unsealed(const struct kmem_cache *cache, void *object, bool taken, const struct km_debug_seen *seen,
			 struct km_debug_region *regions)
{
	struct km_debug_track *track = km_debug_tracks(cache, object);
	unsigned n = 0;

	if (seen->state == KM_DEBUG_DAMAGED)
		regions[n++] = (struct km_debug_region){
			.what = "Object state", .at = (unsigned char *)km_debug_word(cache, object),
			.bytes = KM_DEBUG_WORD, .unsealed = true, .found = seen->word,
			.wanted = km_debug_sealed(object, taken ? KM_DEBUG_TAKEN : KM_DEBUG_FREE, seen->asked),
		};
	for (unsigned i = 0; i < tracks_of(cache); i++)
		if (!km_debug_is_sealed(&track[i]))
			regions[n++] = (struct km_debug_region){
				.what = i ? "Free track" : "Alloc track", .at = (unsigned char *)&track[i],
				.bytes = sizeof(*track), .unsealed = true,
			};
	return n;
}

bool km_debug_differs(const struct km_debug_region *region, unsigned char **from, unsigned char **to)
{
	unsigned char *at = region->at, *end = at + region->bytes;

	while (!region->unsealed && at < end && *at == region->value)
		at++;
	if (at == end)
		return false;
	*from = at;
	while (!region->unsealed && end[-1] == region->value)
		end--;
	*to = end;
	return true;
}

struct km_debug_region km_debug_slab_padding(const struct kmem_cache *cache, const struct km_page *slab)
{
	size_t used = (size_t)slab->objects * cache->size, bytes = (KM_PAGE_SIZE << slab->order) - cache->slab_tail;
	unsigned char *first = km_page_address(slab);

	km_debug(used <= bytes, "a slab has room for its objects");
	return (struct km_debug_region){ .what = "Padding", .at = first + used, .bytes = bytes - used,
					 .value = PADDING };
}

/* ------------------------------------------------------------------ making them so */

static void fill(const struct km_debug_region *regions, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		__builtin_memset(regions[i].at, regions[i].value, regions[i].bytes);
}

void km_debug_fill(const struct kmem_cache *cache, void *object, bool taken, uint32_t asked)
{
	struct km_debug_region regions[KM_DEBUG_REGIONS];

	fill(regions, regions_of(cache, object, taken, asked, false, regions));
}

void km_debug_fill_asked(const struct kmem_cache *cache, void *object, size_t bytes)
{
	__builtin_memset((char *)object + bytes, ZONE_TAKEN, cache->object_size - bytes);
}

void km_debug_fill_padding(const struct kmem_cache *cache, const struct km_page *slab)
{
	struct km_debug_region padding = km_debug_slab_padding(cache, slab);

	fill(&padding, 1);
}

/* ------------------------------------------------------------------ the engine's word */

uint64_t km_debug_taken(struct kmem_cache *cache, struct km_page *slab, unsigned word)
{
	uint64_t bits = 0;

	if (cache->engine->taken)
		return cache->engine->taken(cache, slab, word);
	for (unsigned i = word * 64; i < slab->objects && i < word * 64 + 64; i++)
		bits |= (uint64_t)cache->engine->is_taken(cache, slab, i) << i % 64;
	return bits;
}

void *km_debug_first_free(struct kmem_cache *cache, struct km_page *slab, unsigned *used)
{
	char *first = NULL;

	*used = slab->inuse;
	if (cache->engine->shared_pages)
		return NULL;
	*used = 0;
	for (unsigned word = 0; word * 64 < slab->objects; word++) {
		uint64_t taken = km_debug_taken(cache, slab, word), free = ~taken & km_object_bits(slab->objects, word);

		*used += (unsigned)__builtin_popcountll(taken);
		if (free && !first)
			first = km_slab_first(cache, slab) + (size_t)(word * 64 + __builtin_ctzll(free)) * cache->size;
	}
	return first;
}

/* ------------------------------------------------------------------ looking */

static bool fits(const struct kmem_cache *cache, void *object, bool taken)
{
	struct km_debug_region regions[KM_DEBUG_REGIONS];
	unsigned n = regions_of(cache, object, taken, cache->object_size, !taken, regions);
	unsigned char *from, *to;

	for (unsigned i = 0; i < n; i++)
		if (km_debug_differs(&regions[i], &from, &to))
			return false;
	return true;
}

/* The zone in front of it, where most overruns do not come, is that of a free object; without zones, it is poison. */
static bool looks_free(const struct kmem_cache *cache, void *object)
{
	unsigned char *from, *to;
	struct km_debug_region region = { .at = (unsigned char *)object - cache->left, .bytes = cache->left,
					  .value = ZONE_FREE };

	if (!cache->left)
		region = (struct km_debug_region){ .at = object, .bytes = cache->object_size - 1, .value = POISON };
	return (cache->left || (is_poisoned(cache) && region.bytes)) && !km_debug_differs(&region, &from, &to);
}

/*
 * The engine knows by what lies elsewhere, and is asked first. An object that is taken, as far as it knows, may have
 * been freed by a handler, and wait for it (km_miss_defer): where all bytes are those of a free one, that is believed.
 * An engine that follows links may be led astray to what a user has: there a free object must look so, and one that
 * does not is lost rather than had twice.
 */
bool km_debug_seems_taken(const struct kmem_cache *cache, void *object, bool engine_says)
{
	if (!engine_says)
		return cache->engine->links_free && !looks_free(cache, object);
	return !looks_free(cache, object) || fits(cache, object, true) || !fits(cache, object, false);
}

/* A track that was written over says nothing any more; the word is the caller's. */
static void restore(const struct kmem_cache *cache, const struct km_debug_region *region)
{
	km_debug_report_restored(cache, region);
	if (!region->unsealed) {
		fill(region, 1);
	} else if (region->bytes == sizeof(struct km_debug_track)) {
		__builtin_memset(region->at, 0, region->bytes);
		km_debug_seal((struct km_debug_track *)region->at);
	}
}

static unsigned check(const struct km_debug_about *about, const struct km_debug_region *regions, unsigned n,
		      const char *function)
{
	unsigned char *from, *to;
	unsigned damages = 0;
	char title[48];

	for (unsigned i = 0; i < n; i++) {
		if (km_likely(!km_debug_differs(&regions[i], &from, &to)))
			continue;
		km_format(title, sizeof(title), "%s overwritten", regions[i].what);
		if (!damages++)
			km_debug_report_begin(about, regions[i].title ?: title);
		km_debug_report_region(about, &regions[i]);
	}
	if (km_likely(!damages))
		return 0;
	km_debug_report_end(about);
	km_misuse(KM_MISUSE_OVERWRITTEN, function, about->object ?: km_page_address(about->slab), about->cache->name);
	for (unsigned i = 0; i < n; i++)
		if (km_debug_differs(&regions[i], &from, &to))
			restore(about->cache, &regions[i]);
	return damages;
}

unsigned km_debug_check(struct kmem_cache *cache, struct km_page *slab, void *object, struct km_debug_seen seen,
			bool taken, const char *function)
{
	struct km_debug_about about = { cache, slab, object };
	struct km_debug_region regions[KM_DEBUG_REGIONS];
	unsigned n = regions_of(cache, object, taken, seen.asked, seen.waits, regions);

	n += unsealed(cache, object, taken, &seen, regions + n);
	km_debug(n <= KM_DEBUG_REGIONS, "there is room for all regions of an object");
	return check(&about, regions, n, function);
}

unsigned km_debug_check_padding(struct kmem_cache *cache, struct km_page *slab, const char *function)
{
	struct km_debug_about about = { cache, slab, NULL };
	struct km_debug_region padding = km_debug_slab_padding(cache, slab);

	return check(&about, &padding, 1, function);
}
