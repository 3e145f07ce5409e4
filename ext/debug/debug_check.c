/*
 * debug_check.c: the bytes around an object of a debugged cache (drawing: slab/engine.h), and their checks. Bytes,
 * words and texts are the kernel's, except the two sealed regions: state and tracks.
 *
 *	red zones		0xbb while the object is free, 0xcc while it is taken
 *	object, while free	0x6b ... 0x6b 0xa5 with SLAB_POISON, without a constructor or typesafe
 *	link			the engine's, where it links free objects; else, and while the object is taken, 0x5a
 *	state, tracks		the content, and a seal over the content
 *	padding			0x5a
 *
 * Invariants: each damage is reported once, by the first thread to find the damage; then the bytes are repaired.
 * Bytes beside an object are never trusted before a check, because a user may have overwritten them.
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

/* ------------------------------------------------------------------ marks */

static bool marks_are_sealed(const struct kmem_cache *cache, const void *object)
{
	const struct kmem_record_mark *mark = km_debug_marks(cache, object);

	return !(cache->layout.flags & SLAB_STORE_USER) ||
	       (km_debug_is_sealed(&mark[0]) && km_debug_is_sealed(&mark[1]));
}

static unsigned marks_of(const struct kmem_cache *cache)
{
	return cache->layout.flags & SLAB_STORE_USER ? 2 : 0;
}

/* ------------------------------------------------------------------ regions */

static bool is_poisoned(const struct kmem_cache *cache)
{
	return cache->layout.flags & SLAB_POISON && !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU) && !cache->form.ctor;
}

static const char link_region[] = "Freepointer";

static uint64_t word_at(const unsigned char *at)
{
	uint64_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	return word;
}

/* Compare by words, without branches: most regions are short and intact. */
km_inline bool has_all(const unsigned char *at, size_t bytes, unsigned char value)
{
	uint64_t word = value * 0x0101010101010101u, differ = 0;

	if (bytes < sizeof(word)) {
		while (bytes)
			differ |= (uint64_t)(at[--bytes] ^ value);
		return !differ;
	}
	for (bytes -= sizeof(word); bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word))
		differ |= word_at(at) ^ word;
	return !(differ | (word_at(at) ^ word) | (word_at(at + bytes) ^ word));
}

/* Call `see` for each region of an object with one expected value, in a fixed order, until `see` returns false.
 * waits: the link of a free object may hold anything. Inline, because most objects are intact and then need no list
 * of regions. */
typedef bool see_fn(unsigned char *at, size_t bytes, unsigned char value, const char *what, void *arg);
km_inline bool each_region(const struct kmem_cache *cache, void *object, bool taken, uint32_t asked, bool waits,
			   see_fn *see, void *arg)
{
	/* The link is the engine's while the object is free, if the engine links free objects. */
	const bool linked = !taken && (waits || cache->layout.engine->links_free);
	unsigned char *at = object, *end = (unsigned char *)(km_debug_marks(cache, object) + marks_of(cache));
	unsigned char *slot = at + cache->layout.size - cache->ext.left, zone = taken ? ZONE_TAKEN : ZONE_FREE;
	const uint32_t size = cache->layout.object_size, right = cache->layout.freeptr - size;

	km_debug(slot >= end, "the regions of an object are inside of its place");
	if (taken && km_debug_is_narrowed(cache) && asked < size &&
	    !see(at + asked, size - asked, ZONE_TAKEN, "kmalloc Redzone", arg))
		return false;
	if (!(cache->layout.flags & SLAB_RED_ZONE) ? !see(at + size, right, PADDING, "Alignment padding", arg) :
	    !see(at - cache->ext.left, cache->ext.left, zone, "Left Redzone", arg) ||
	    !see(at + size, right, zone, "Right Redzone", arg))
		return false;
	if (!taken && is_poisoned(cache) &&
	    (!see(at, size - 1, POISON, "Poison", arg) || !see(at + size - 1, 1, POISON_END, "End Poison", arg)))
		return false;
	if (!linked && !see(at + cache->layout.freeptr, sizeof(void *), PADDING, link_region, arg))
		return false;
	return see(end, (size_t)(slot - end), PADDING, "Object padding", arg);
}

struct listing {
	struct km_debug_region *regions;
	unsigned n;
};

km_inline bool list(unsigned char *at, size_t bytes, unsigned char value, const char *what, void *arg)
{
	struct listing *listing = arg;

	listing->regions[listing->n++] = (struct km_debug_region){
		.what = what, .at = at, .bytes = bytes, .value = value,
		.title = what == link_region ? "Freepointer corrupt" : NULL,
	};
	return true;
}

/* List the regions with an invalid seal. */
static unsigned unsealed(const struct kmem_cache *cache, void *object, bool taken, const struct km_debug_seen *seen,
			 struct km_debug_region *regions)
{
	struct kmem_record_mark *mark = km_debug_marks(cache, object);
	unsigned n = 0;

	if (seen->state == KM_DEBUG_DAMAGED)
		regions[n++] = (struct km_debug_region){
			.what = "Object state", .at = (unsigned char *)km_debug_word(cache, object),
			.bytes = KM_DEBUG_WORD, .unsealed = true, .found = seen->word,
			.wanted = km_debug_sealed(object, taken ? KM_DEBUG_TAKEN : KM_DEBUG_FREE, seen->asked),
		};
	for (unsigned i = 0; i < marks_of(cache); i++)
		if (!km_debug_is_sealed(&mark[i]))
			regions[n++] = (struct km_debug_region){
				.what = i ? "Free track" : "Alloc track", .at = (unsigned char *)&mark[i],
				.bytes = sizeof(*mark), .unsealed = true,
			};
	return n;
}

bool km_debug_differs(const struct km_debug_region *region, unsigned char **from, unsigned char **to)
{
	unsigned char *at = region->at, *end = at + region->bytes;

	if (!region->unsealed && has_all(at, region->bytes, region->value))
		return false;
	while (!region->unsealed && at < end && *at == region->value)
		at++;
	/* No wrong byte any more: another thread has repaired the region. */
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
	size_t used = (size_t)slab->objects * cache->layout.size,
	       bytes = (KM_PAGE_SIZE << slab->order) - cache->form.slab_tail;
	unsigned char *first = km_page_address(slab);

	km_debug(used <= bytes, "a slab has room for its objects");
	return (struct km_debug_region){ .what = "Padding", .at = first + used, .bytes = bytes - used,
					 .value = PADDING };
}

/* ------------------------------------------------------------------ filling */

km_inline bool fill(unsigned char *at, size_t bytes, unsigned char value, const char *what km_unused,
		    void *arg km_unused)
{
	__builtin_memset(at, value, bytes);
	return true;
}

void km_debug_fill(const struct kmem_cache *cache, void *object, bool taken, uint32_t asked)
{
	each_region(cache, object, taken, asked, false, fill, NULL);
}

void km_debug_fill_asked(const struct kmem_cache *cache, void *object, size_t bytes)
{
	__builtin_memset((char *)object + bytes, ZONE_TAKEN, cache->layout.object_size - bytes);
}

void km_debug_fill_padding(const struct kmem_cache *cache, const struct km_page *slab)
{
	struct km_debug_region padding = km_debug_slab_padding(cache, slab);

	__builtin_memset(padding.at, padding.value, padding.bytes);
}

/* ------------------------------------------------------------------ the engine's record */

uint64_t km_debug_taken(struct kmem_cache *cache, struct km_page *slab, unsigned word)
{
	uint64_t bits = 0;

	if (cache->layout.engine->taken)
		return cache->layout.engine->taken(cache, slab, word);
	for (unsigned i = word * 64; i < slab->objects && i < word * 64 + 64; i++)
		bits |= (uint64_t)cache->layout.engine->is_taken(cache, slab, i) << i % 64;
	return bits;
}

void *km_debug_first_free(struct kmem_cache *cache, struct km_page *slab, unsigned *used)
{
	char *first = NULL;

	*used = slab->inuse;
	if (cache->layout.engine->shared_pages)
		return NULL;
	*used = 0;
	for (unsigned word = 0; word * 64 < slab->objects; word++) {
		uint64_t taken = km_debug_taken(cache, slab, word), free = ~taken & km_object_bits(slab->objects, word);

		*used += (unsigned)__builtin_popcountll(taken);
		if (free && !first)
			first = km_slab_first(cache, slab) +
				(size_t)(word * 64 + __builtin_ctzll(free)) * cache->layout.size;
	}
	return first;
}

/* ------------------------------------------------------------------ checks */

km_inline bool is_whole(unsigned char *at, size_t bytes, unsigned char value, const char *what km_unused,
			void *arg km_unused)
{
	return has_all(at, bytes, value);
}

static bool fits(const struct kmem_cache *cache, void *object, bool taken, uint32_t asked, bool waits)
{
	return each_region(cache, object, taken, asked, waits, is_whole, NULL);
}

/* Returns: true if the left red zone, rarely hit by overruns, has the value of a free object. Without red zones the
 * poison decides. */
static bool looks_free(const struct kmem_cache *cache, void *object)
{
	const uint32_t poison = cache->layout.object_size - 1;

	if (cache->ext.left)
		return has_all((unsigned char *)object - cache->ext.left, cache->ext.left, ZONE_FREE);
	return is_poisoned(cache) && poison && has_all(object, poison, POISON);
}

/* Returns: true if the object counts as allocated, by the engine's record (engine_says) and by the object's bytes. An
 * object recorded as allocated counts as free if all bytes match a free object, because a signal handler may have freed
 * the object, with the free deferred (km_miss_defer). An object recorded as free by an engine that follows links counts
 * as allocated if the bytes do not look free: a damaged link may lead to an object in use, which is lost rather than
 * given out twice. */
bool km_debug_seems_taken(const struct kmem_cache *cache, void *object, bool engine_says)
{
	if (!engine_says)
		return cache->layout.engine->links_free && !looks_free(cache, object);
	return !looks_free(cache, object) || fits(cache, object, true, cache->layout.object_size, false) ||
	       !fits(cache, object, false, cache->layout.object_size, true);
}

/* Repair a region. An overwritten track becomes empty. The state word is left to the caller. */
static void restore(const struct kmem_cache *cache, const struct km_debug_region *region)
{
	km_debug_report_restored(cache, region);
	if (!region->unsealed) {
		__builtin_memset(region->at, region->value, region->bytes);
	} else if (region->bytes == sizeof(struct kmem_record_mark)) {
		__builtin_memset(region->at, 0, region->bytes);
		struct kmem_record_mark *mark = (struct kmem_record_mark *)region->at;

		mark->seal = km_debug_mark_seal(mark);
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
		km_debug_report_region(&regions[i], km_page_address(about->slab));
	}
	if (km_likely(!damages))
		return 0;
	km_debug_report_end(about);
	km_debug_misuse(about, function);
	for (unsigned i = 0; i < n; i++)
		if (km_debug_differs(&regions[i], &from, &to))
			restore(about->cache, &regions[i]);
	return damages;
}

struct km_page *km_debug_slab(const void *object)
{
	struct km_page *page = km_page_of(object);

	return page ? km_page_head(page) ?: page : NULL;
}

static km_noinline unsigned check_each(struct kmem_cache *cache, struct km_page *slab, void *object,
				       const struct km_debug_seen *seen, bool taken, const char *function)
{
	struct km_debug_about about = { cache, slab ?: km_debug_slab(object), object };
	struct km_debug_region regions[KM_DEBUG_REGIONS];
	struct listing listing = { regions, 0 };

	each_region(cache, object, taken, seen->asked, seen->waits, list, &listing);
	listing.n += unsealed(cache, object, taken, seen, regions + listing.n);
	km_debug(listing.n <= KM_DEBUG_REGIONS, "there is room for all regions of an object");
	return check(&about, regions, listing.n, function);
}

unsigned km_debug_check(struct kmem_cache *cache, struct km_page *slab, void *object, struct km_debug_seen seen,
			bool taken, const char *function)
{
	const bool sealed = marks_are_sealed(cache, object) && seen.state != KM_DEBUG_DAMAGED;

	if (km_likely(sealed && fits(cache, object, taken, seen.asked, seen.waits)))
		return 0;
	return check_each(cache, slab, object, &seen, taken, function);
}

unsigned km_debug_check_padding(struct kmem_cache *cache, struct km_page *slab, const char *function)
{
	struct km_debug_about about = { cache, slab, NULL };
	struct km_debug_region padding = km_debug_slab_padding(cache, slab);

	if (km_likely(has_all(padding.at, padding.bytes, padding.value)))
		return 0;
	return check(&about, &padding, 1, function);
}
