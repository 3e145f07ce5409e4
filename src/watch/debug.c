/*
 * debug.c: what lies around an object of a cache that is debugged (engine/engine.h has the drawing), and who looks at
 * it: as the object comes and goes, and when it is asked for. Bytes, words and texts are the kernel's.
 *
 *	red zones		0xbb while the object is free, 0xcc while it is taken
 *	object, while free	0x6b ... 0x6b 0xa5 with SLAB_POISON, but for one that has a constructor or is typesafe
 *	padding			0x5a
 *
 * Invariants: the bytes are those of the object's state, but while that says CHANGES: then the object is the changing
 * thread's alone. A damage is told once, by whoever comes upon it first: then the bytes are as they should be.
 */
#include <errno.h>

#include <kmem/stats.h>

#include "../port/bits.h"
#include "../port/os.h"
#include "guard.h"

#define ZONE_FREE	0xbb
#define ZONE_TAKEN	0xcc
#define POISON		0x6b
#define POISON_END	0xa5
#define PADDING		0x5a

/* ------------------------------------------------------------------ regions */

static bool is_poisoned(const struct kmem_cache *cache)
{
	return cache->flags & SLAB_POISON && !(cache->flags & SLAB_TYPESAFE_BY_RCU) && !cache->ctor;
}

/* kmalloc's red zone begins where the user's bytes end. */
static bool is_narrowed(const struct kmem_cache *cache)
{
	return (cache->flags & (SLAB_KMALLOC | SLAB_RED_ZONE)) == (SLAB_KMALLOC | SLAB_RED_ZONE);
}

static unsigned char *end_of_tracks(const struct kmem_cache *cache, void *object)
{
	return (unsigned char *)(km_debug_tracks(cache, object) + (cache->flags & SLAB_STORE_USER ? 2 : 0));
}

unsigned km_debug_regions(const struct kmem_cache *cache, void *object, bool taken, struct km_debug_region *regions)
{
	unsigned char *at = object, zone = taken ? ZONE_TAKEN : ZONE_FREE, *end = end_of_tracks(cache, object);
	uint32_t size = cache->object_size, asked = km_debug_word(cache, object)->asked;
	unsigned char *slot = at + cache->size - cache->left;
	unsigned n = 0;

	if (taken && is_narrowed(cache) && asked < size)
		regions[n++] = (struct km_debug_region){ "kmalloc Redzone", at + asked, size - asked, ZONE_TAKEN };
	if (cache->flags & SLAB_RED_ZONE) {
		regions[n++] = (struct km_debug_region){ "Left Redzone", at - cache->left, cache->left, zone };
		regions[n++] = (struct km_debug_region){ "Right Redzone", at + size, cache->freeptr - size, zone };
	} else {
		regions[n++] = (struct km_debug_region){ "Alignment padding", at + size, cache->freeptr - size,
							 PADDING };
	}
	if (!taken && is_poisoned(cache)) {
		regions[n++] = (struct km_debug_region){ "Poison", at, size - 1, POISON };
		regions[n++] = (struct km_debug_region){ "End Poison", at + size - 1, 1, POISON_END };
	}
	regions[n++] = (struct km_debug_region){ "Object padding", end, (size_t)(slot - end), PADDING };
	km_debug(n <= KM_DEBUG_REGIONS && slot >= end, "an object's regions lie in its slot");
	return n;
}

bool km_debug_differs(const struct km_debug_region *region, unsigned char **from, unsigned char **to)
{
	unsigned char *at = region->at, *end = at + region->bytes;

	while (at < end && *at == region->value)
		at++;
	if (at == end)
		return false;
	*from = at;
	while (end[-1] == region->value)
		end--;
	*to = end;
	return true;
}

struct km_debug_region km_debug_slab_padding(const struct kmem_cache *cache, const struct km_page *slab)
{
	size_t used = (size_t)slab->objects * cache->size, bytes = (KM_PAGE_SIZE << slab->order) - cache->slab_tail;
	unsigned char *first = km_page_address(slab);

	km_debug(used <= bytes, "a slab has room for its objects");
	return (struct km_debug_region){ "Padding", first + used, bytes - used, PADDING };
}

static void fill(const struct km_debug_region *regions, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		__builtin_memset(regions[i].at, regions[i].value, regions[i].bytes);
}

/* ------------------------------------------------------------------ looking */

/* The damages of these regions are told, and mended unless that ends the process. Returns how many there are. */
static unsigned look_at(const struct km_debug_about *about, const struct km_debug_region *regions, unsigned n,
			const char *function)
{
	unsigned char *from, *to;
	unsigned damages = 0;

	for (unsigned i = 0; i < n; i++) {
		if (km_likely(!km_debug_differs(&regions[i], &from, &to)))
			continue;
		char title[48];

		km_format(title, sizeof(title), "%s overwritten", regions[i].what);
		if (!damages++)
			km_debug_report_begin(about, title);
		km_debug_report_region(about, &regions[i]);
	}
	if (km_likely(!damages))
		return 0;
	km_debug_report_end(about);
	km_misuse(KM_MISUSE_OVERWRITTEN, function, about->object ?: km_page_address(about->slab), about->cache->name);
	for (unsigned i = 0; i < n; i++)
		if (km_debug_differs(&regions[i], &from, &to))
			km_debug_restore(about->cache, &regions[i]);
	return damages;
}

static struct km_page *slab_of(const void *object)
{
	struct km_page *page = km_page_of(object);

	return page ? km_page_head(page) ?: page : NULL;
}

static bool is_state(uint32_t word)
{
	return word == KM_DEBUG_FREE || word == KM_DEBUG_TAKEN || word == KM_DEBUG_CHANGES;
}

static unsigned look_at_object(struct kmem_cache *cache, struct km_page *slab, void *object, bool taken,
			       const char *function)
{
	struct km_debug_about about = { cache, slab, object };
	struct km_debug_region regions[KM_DEBUG_REGIONS];

	unsigned damages = look_at(&about, regions, km_debug_regions(cache, object, taken, regions), function);
	struct km_debug_word *word = km_debug_word(cache, object);

	if (damages || is_state(km_load(&word->state)))
		return damages;
	km_debug_report_begin(&about, "Freepointer corrupt");
	km_debug_report_end(&about);
	km_misuse(KM_MISUSE_OVERWRITTEN, function, object, cache->name);
	*word = (struct km_debug_word){ taken ? KM_DEBUG_TAKEN : KM_DEBUG_FREE, cache->object_size };
	return 1;
}

static unsigned look_at_slab(struct kmem_cache *cache, struct km_page *slab, const char *function)
{
	struct km_debug_about about = { cache, slab, NULL };
	struct km_debug_region padding = km_debug_slab_padding(cache, slab);

	return look_at(&about, &padding, 1, function);
}

/* ------------------------------------------------------------------ objects come and go */

static void trace(const struct kmem_cache *cache, const char *what, const void *object)
{
	if (km_likely(!(cache->flags & SLAB_TRACE)))
		return;
	const struct km_page *slab = slab_of(object);
	const bool linked = km_is_debugged(cache) && !cache->engine->shared_pages;

	km_warn("TRACE %s %s %p inuse=%u fp=%p", cache->name, what, object, slab ? slab->inuse : 0,
		linked ? *(void **)((char *)object + cache->freeptr) : NULL);
}

static void become(struct kmem_cache *cache, void *object, enum km_debug_state state)
{
	struct km_debug_region regions[KM_DEBUG_REGIONS];

	km_debug(km_load(&km_debug_word(cache, object)->state) == KM_DEBUG_CHANGES,
		 "an object's bytes change while it says so");
	fill(regions, km_debug_regions(cache, object, state == KM_DEBUG_TAKEN, regions));
	/* Release pairs with who asks whether the object may be freed: what it says of it is so. */
	km_store_release(&km_debug_word(cache, object)->state, (uint32_t)state);
}

/* Nothing is there of what should be. */
static void begin(struct kmem_cache *cache, void *object)
{
	*km_debug_word(cache, object) = (struct km_debug_word){ KM_DEBUG_CHANGES, cache->object_size };
	if (cache->flags & SLAB_STORE_USER)
		__builtin_memset(km_debug_tracks(cache, object), 0, 2 * sizeof(struct km_debug_track));
	become(cache, object, KM_DEBUG_FREE);
}

/*
 * Where caches share pages a free object's memory is anybody's: only the bytes around one that is taken are looked at,
 * and is this one at all, as far as the page and its state say? Else the engine knows better, and tells.
 */
static bool seems_taken(const struct kmem_cache *cache, const void *object)
{
	const struct km_page *page = km_page_of(object);
	uintptr_t offset = (uintptr_t)object & (KM_PAGE_SIZE - 1);

	if (!page || offset % sizeof(void *))
		return false;
	if (page->type != KM_PAGE_SHARED ? page->type != KM_PAGE_SLAB || page->cache != cache || offset :
					   offset + cache->size > KM_PAGE_SIZE)
		return false;
	return km_load_acquire(&km_debug_word(cache, object)->state) == KM_DEBUG_TAKEN;
}

static void *comes(struct kmem_cache *cache, void *object, gfp_t gfp km_unused)
{
	if (cache->engine->shared_pages && km_is_debugged(cache))
		begin(cache, object);
	trace(cache, "alloc", object);
	if (!km_is_debugged(cache))
		return object;
	struct km_debug_word *word = km_debug_word(cache, object);
	km_debug(slab_of(object) && (cache->engine->shared_pages || slab_of(object)->cache == cache),
		 "an object that comes is the cache's");
	look_at_object(cache, slab_of(object), object, false, "kmem_cache_alloc");
	km_store(&word->state, (uint32_t)KM_DEBUG_CHANGES);
	word->asked = cache->object_size;
	if (cache->flags & SLAB_STORE_USER)
		km_debug_track(&km_debug_tracks(cache, object)[0]);
	become(cache, object, KM_DEBUG_TAKEN);
	km_debug(!cache->shelf.front.open.shelf, "a cache that is debugged has no shelf");
	return object;
}

/* Its slab, cache and boundary were looked at before, and that it is taken. */
static bool goes(struct kmem_cache *cache, void *object)
{
	const bool shared = cache->engine->shared_pages;

	trace(cache, "free", object);
	if (!km_is_debugged(cache) || (shared && !seems_taken(cache, object)))
		return true;
	struct km_debug_word *word = km_debug_word(cache, object);
	struct km_page *slab = slab_of(object);
	uint32_t taken = KM_DEBUG_TAKEN;
	/* Two threads may free it at once: one of them has it. Any other value was written by a user. */
	if (!km_cas_both(&word->state, &taken, (uint32_t)KM_DEBUG_CHANGES) &&
	    (taken == KM_DEBUG_FREE || taken == KM_DEBUG_CHANGES)) {
		km_tell_of(slab, object, KM_MISUSE_DOUBLE_FREE);
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->name);
		return false;
	}
	look_at_object(cache, slab, object, true, "kmem_cache_free");
	if (!shared)
		look_at_slab(cache, slab, "kmem_cache_free");
	*word = (struct km_debug_word){ KM_DEBUG_CHANGES, cache->object_size };
	if (cache->flags & SLAB_STORE_USER)
		km_debug_track(&km_debug_tracks(cache, object)[1]);
	become(cache, object, KM_DEBUG_FREE);
	return true;
}

static void slab_comes(struct kmem_cache *cache, struct km_page *slab)
{
	struct km_debug_region padding = km_debug_slab_padding(cache, slab);
	char *object = km_slab_first(cache, slab);

	if (!km_is_debugged(cache))
		return;
	km_debug(slab->type != KM_PAGE_SHARED, "a slab that comes is of one cache");
	fill(&padding, 1);
	for (unsigned i = 0; i < slab->objects; i++, object += cache->size)
		begin(cache, object);
}

static void slab_goes(struct kmem_cache *cache, struct km_page *slab)
{
	if (km_is_debugged(cache) && !cache->engine->shared_pages)
		look_at_slab(cache, slab, "kmem_cache_free");
}

/* ------------------------------------------------------------------ bytes asked for */

static void asked(struct kmem_cache *cache, void *object, size_t bytes)
{
	struct km_debug_word *word = km_debug_word(cache, object);

	if (!is_narrowed(cache))
		return;
	km_debug(bytes <= cache->object_size, "nobody has more of an object than there is");
	__builtin_memset((char *)object + bytes, ZONE_TAKEN, cache->object_size - bytes);
	km_store(&word->asked, (uint32_t)bytes);
}

/* Bytes that were red zone become the user's. */
static bool grow(struct kmem_cache *cache, void *object, size_t bytes)
{
	if (!is_narrowed(cache) || bytes > cache->object_size)
		return false;
	look_at_object(cache, slab_of(object), object, true, "krealloc");
	km_store(&km_debug_word(cache, object)->asked, (uint32_t)bytes);
	return true;
}

static size_t bytes_of(const struct kmem_cache *cache, const void *object)
{
	if (!km_is_debugged(cache))
		return 0;
	return is_narrowed(cache) ? km_min(km_load(&km_debug_word(cache, object)->asked), cache->object_size) :
				    cache->object_size;
}

/* ------------------------------------------------------------------ who asks */

static const char *title_of(enum km_misuse what, const void *p, char *text, size_t bytes)
{
	if (what == KM_MISUSE_DOUBLE_FREE)
		return "Object already free";
	if (what == KM_MISUSE_WRONG_CACHE)
		return "Object belongs to different cache";
	km_format(text, bytes, "Invalid object pointer %p", p);
	return text;
}

/* Of a pointer into the middle, the object that it points into. */
static void tell(struct kmem_cache *cache, struct km_page *slab, const void *p, enum km_misuse what)
{
	size_t offset = (size_t)((const char *)p - (const char *)km_page_address(slab));
	struct km_debug_about about = { cache, slab, NULL };
	char text[64];

	if (!km_is_debugged(cache))
		return;
	if (offset / cache->size < slab->objects)
		about.object = km_slab_first(cache, slab) + offset / cache->size * cache->size;
	km_debug_report_begin(&about, title_of(what, p, text, sizeof(text)));
	km_debug_report_end(&about);
}

struct looking {
	struct kmem_cache *cache;
	long damages;
};

static int check_slab(struct km_page *slab, void *arg)
{
	struct looking *at = arg;

	if (slab->type != KM_PAGE_SLAB || slab->cache != at->cache)
		return 0;
	char *object = km_slab_first(at->cache, slab);
	for (unsigned i = 0; i < slab->objects; i++, object += at->cache->size) {
		uint32_t state = km_load_acquire(&km_debug_word(at->cache, object)->state);

		if (state != KM_DEBUG_CHANGES)
			at->damages += look_at_object(at->cache, slab, object, state == KM_DEBUG_TAKEN,
						      "kmem_cache_validate");
	}
	at->damages += look_at_slab(at->cache, slab, "kmem_cache_validate");
	return 0;
}

static int check(struct kmem_cache *cache)
{
	struct looking at = { cache, 0 };

	if (km_is_debugged(cache) && !cache->engine->shared_pages)
		km_pages_walk(check_slab, &at);
	return (int)at.damages;
}

static const struct km_hooks hooks = {
	.on_alloc = comes, .on_free = goes, .slab_comes = slab_comes, .slab_goes = slab_goes,
	.asked = asked, .grow = grow, .bytes = bytes_of, .tell = tell, .check = check,
};

int kmem_cache_validate(struct kmem_cache *cache)
{
	const struct km_hooks *own = km_load(&cache->hooks);
	bool was = km_busy_begin();
	int damages = cache->engine->check(cache) + (own && own->check ? own->check(cache) : 0) +
		      km_guard_check(cache);

	km_busy_end(was);
	return damages;
}

/* ------------------------------------------------------------------ the way up */

static slab_flags_t flags_of(const char *name, uint32_t size, uint32_t align, slab_flags_t flags)
{
	bool low;
	slab_flags_t all = km_debug_flags_of(name, flags, &low), laid_out = all & KM_DEBUG_LAYOUT;
	uint32_t aligned = km_layout_align(all, align, size);
	uint32_t bytes = km_layout_debugged_bytes(size, all) + (all & SLAB_RED_ZONE ? aligned : 0);

	/* The longest slab has no room for it. */
	if (km_order_of(km_align_up(bytes, aligned)) > KM_MAX_ORDER)
		return all & ~KM_DEBUG_LAYOUT;
	if (low && laid_out && km_order_of(km_align_up(bytes, aligned)) > km_order_of(km_align_up(size, aligned)))
		all &= ~KM_DEBUG_LAYOUT;
	return all;
}

const struct km_debugging km_debugging = {
	.read = km_debug_read, .flags = flags_of, .ready = km_debug_stack_ready, .hooks = &hooks,
};
