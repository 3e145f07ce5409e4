/*
 * layout.c: layout of objects and slabs, and allocation and freeing of slabs, for all engines. Invariant: every page
 * of a live slab has type SLAB or TAIL and the slab's order. Its map entry is the cache's id, or KM_MAP_DESC for a
 * slab of another order than the cache's. Type and entry are set before an object is handed out, and cleared before
 * the pages are freed.
 */
#include <errno.h>

#include "page/guard_range.h"
#include "page/alloc_map.h"
#include "page/deferred_free.h"
#include "page/metadata.h"
#include "page/nodump.h"
#include "page/addr_reuse.h"
#include "page/obj_cgroups.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/secret.h"
#include "os/probe.h"
#include "engine.h"

const struct km_grace *km_grace;
bool km_some_debugged;
struct km_layout_options km_layout_options = { .lookahead = 3, .defrag_ratio = 100 };

uint32_t km_layout_align(slab_flags_t flags, uint32_t align, uint32_t size)
{
	if (flags & SLAB_HWCACHE_ALIGN) {
		uint32_t line = KM_CACHE_LINE;

		while (size <= line / 2)
			line /= 2;
		align = km_max(align, line);
	}
	return (uint32_t)km_align_up(km_max(align, (uint32_t)ARCH_SLAB_MINALIGN), sizeof(void *));
}

uint32_t km_reciprocal(uint32_t size)
{
	return (uint32_t)((((uint64_t)1 << 32) + size - 1) / size);
}

uint32_t km_layout_debugged_bytes(uint32_t object_size, slab_flags_t flags)
{
	uint32_t inuse = (uint32_t)km_align_up(object_size, sizeof(void *));

	/* Kernel: also one more word where rounding up leaves no red zone. */
	if (flags & SLAB_RED_ZONE && inuse == object_size)
		inuse += (uint32_t)sizeof(void *);
	return inuse + (uint32_t)sizeof(void *) + KM_DEBUG_WORD + (flags & SLAB_STORE_USER ? 2 * KM_DEBUG_TRACK : 0) +
	       KM_DEBUG_PAD;
}

uint32_t km_layout_debugged(struct kmem_cache *cache)
{
	uint32_t tracks = cache->layout.flags & SLAB_STORE_USER ? 2 * KM_DEBUG_TRACK : 0;
	uint32_t bytes = km_layout_debugged_bytes(cache->layout.object_size, cache->layout.flags);

	km_store(&km_some_debugged, true);
	cache->layout.freeptr = bytes - KM_DEBUG_PAD - tracks - KM_DEBUG_WORD - (uint32_t)sizeof(void *);
	return bytes;
}

/* Sets size, freeptr and align. Kernel: the free pointer is in the middle of a free object, out of reach of a
 * small overrun, and outside of an object whose content must survive a free. */
int km_layout_common(struct kmem_cache *cache, const struct kmem_cache_args *args)
{
	uint32_t object = cache->layout.object_size;
	uint32_t inuse = (uint32_t)km_align_up(object, sizeof(void *));
	bool keeps_content = (cache->layout.flags & SLAB_TYPESAFE_BY_RCU) || cache->form.ctor;

	cache->form.align = km_layout_align(cache->layout.flags, args->align, object);
	if (km_is_observed(cache)) {
		cache->layout.freeptr = inuse + KM_RED_ZONE;
		inuse += KM_RED_ZONE + (uint32_t)sizeof(void *);
	} else if (keeps_content && args->use_freeptr_offset) {
		cache->layout.freeptr = args->freeptr_offset;
	} else if (keeps_content) {
		cache->layout.freeptr = inuse;
		inuse += (uint32_t)sizeof(void *);
	} else {
		cache->layout.freeptr = (uint32_t)km_align_down(object / 2, sizeof(void *));
	}
	if (km_unlikely(km_hardening.canary) && km_hardening.live && cache->ext.may_have_canary &&
	    !km_is_observed(cache) && !cache->layout.engine->shared_pages && !cache->layout.engine->whole_pages) {
		cache->ext.canary = inuse;
		inuse += (uint32_t)sizeof(uint64_t);
	}
	cache->layout.size = (uint32_t)km_align_up(inuse, cache->form.align);
	if (km_is_debugged(cache)) {
		cache->ext.canary = 0;
		inuse = km_layout_debugged(cache);
		cache->ext.left = cache->form.first = cache->layout.flags & SLAB_RED_ZONE ? cache->form.align : 0;
		cache->layout.size = (uint32_t)km_align_up(cache->ext.left + inuse, cache->form.align);
	}
	cache->layout.reciprocal = km_reciprocal(cache->layout.size);
	cache->layout.min_order = (uint8_t)km_order_of(cache->layout.size);
	km_debug(cache->layout.freeptr + sizeof(void *) <= cache->layout.size &&
			 cache->layout.size % cache->form.align == 0,
		 "the freelist link is inside of the object");
	return cache->layout.min_order > KM_MAX_ORDER ? -EINVAL : 0;
}

/* Returns the lowest order that holds min_objects and wastes at most 1/16 of the slab, else 1/8, 1/4 or 1/2.
 * Kernel: the option for the lowest order outranks the highest order, and a slab has at most KM_SLAB_MAX_OBJECTS
 * objects. */
unsigned km_layout_order(uint32_t size, unsigned min_objects, unsigned max_order)
{
	unsigned lowest = km_order_of(size), least = km_layout_options.min_order;
	unsigned countable = km_order_of((size_t)size * KM_SLAB_MAX_OBJECTS + 1) - 1;

	max_order = km_min(km_max(max_order, least), countable);
	least = km_min(least, max_order);
	size_t most = (KM_PAGE_SIZE << max_order) / size;

	if (lowest >= max_order)
		return lowest;
	min_objects = (unsigned)km_min((size_t)min_objects, most);
	unsigned start = km_max(km_order_of((size_t)min_objects * size), least);
	for (unsigned fraction = 16; fraction > 1; fraction /= 2)
		for (unsigned order = km_max(start, lowest); order <= max_order; order++) {
			size_t slab = KM_PAGE_SIZE << order;

			if (slab % size <= slab / fraction)
				return order;
		}
	return lowest;
}

unsigned km_layout_larger(uint32_t size, unsigned order, unsigned most)
{
	while (size > KM_PAGE_SIZE && order < most && (KM_PAGE_SIZE << order) % size > (KM_PAGE_SIZE << order) / 8)
		order++;
	return order;
}

const char *const km_min_partial_names[3] = { "half", "size", "static" };

int km_min_partial_rule(const char *name)
{
	for (int i = 0; i < 3; i++)
		if (__builtin_strcmp(km_min_partial_names[i], name) == 0)
			return i;
	return -1;
}

unsigned long km_min_partial_of(uint32_t size, enum km_min_partial rule)
{
	unsigned long log = km_ilog2(size);

	if (rule == KM_MIN_PARTIAL_STATIC)
		return 5;
	if (rule == KM_MIN_PARTIAL_HALF)
		log /= 2;
	return km_min(km_max(log, 5ul), 10ul);
}

/* Kernel: compares the low bits of a clock with the ratio. Here: a counter times an odd number visits all 1024
 * values evenly, so the share is exact and the result is predictable. */
bool km_may_look_elsewhere(struct kmem_cache *cache, const struct km_request *request)
{
	if (km_likely(km_node_count == 1) || request->gfp & __GFP_THISNODE)
		return false;
	return km_add(&cache->state.defrag_looks, 1u) * 619u % 1024 < km_load(&cache->tune.defrag_ratio);
}

/* Hides the objects of a new slab from the program, and all red zones. Objects of SLAB_TYPESAFE_BY_RCU stay
 * readable. The engine may use the word behind the red zone. */
static km_cold void hide_objects(struct kmem_cache *cache, struct km_page *slab)
{
	bool readable = cache->layout.flags & SLAB_TYPESAFE_BY_RCU;
	size_t hidden = readable ? km_align_up(cache->layout.object_size, sizeof(void *)) : 0;
	char *object = km_slab_first(cache, slab);

	for (unsigned i = 0; i < slab->objects; i++, object += cache->layout.size) {
		km_tell(memory_off, object + hidden, cache->layout.freeptr - hidden);
		*km_observed_word(cache, object) = 0;
		km_tell(handed_out, object, 1);
	}
}

/* Ends the live objects of a slab that is freed, as when a whole group is destroyed. */
static km_cold void end_objects(struct kmem_cache *cache, struct km_page *slab)
{
	char *object = km_slab_first(cache, slab);

	for (unsigned i = 0; i < slab->objects && !cache->layout.engine->shared_pages;
	     i++, object += cache->layout.size) {
		size_t bytes = *km_observed_word(cache, object);

		km_tell(handed_in, object, 1);
		if (bytes - 1 < KM_OBSERVED_MOST && !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU))
			km_tell(object_ends, object, bytes);
	}
	km_tell(handed_out, km_page_address(slab), KM_PAGE_SIZE << slab->order);
}

/* Returns the cache known to the program: the root of a child cache or of a debug shadow cache. */
static const struct kmem_cache *asked_by(const struct kmem_cache *cache)
{
	while (cache->memcg.child_of || cache->ext.shadow_of)
		cache = cache->memcg.child_of ?: cache->ext.shadow_of;
	return cache;
}

bool km_may_construct(const struct kmem_cache *cache, bool tell)
{
	for (unsigned i = 0; i < km_thread.constructing.count; i++)
		if (km_thread.constructing.cache[i] == asked_by(cache)) {
			if (tell)
				km_misuse(KM_MISUSE_CONSTRUCTOR, "kmem_cache_alloc", NULL, cache->registry.name);
			return false;
		}
	return km_thread.constructing.count < KM_CTORS_NESTED && !km_thread.late;
}

/* Run the constructor over `count` objects, outside of the busy section. The stack of constructors changes inside of
 * the busy section, so a signal handler never sees half an entry. errno is kept, because the request for the slab
 * succeeds. The constructor may call the system, whatever the gfp of the request. */
void km_construct(const struct kmem_cache *cache, void *object, unsigned count)
{
	struct km_busy_was was = km_busy_begin();
	const bool no_calls = km_thread.no_calls;
	km_errno_scope(saved_errno);

	km_debug(km_thread.constructing.count < KM_CTORS_NESTED, "constructors nest to a bound");
	km_thread.constructing.cache[km_thread.constructing.count++] = asked_by(cache);
	km_thread.no_calls = false;
	km_busy_end_clear();
	for (char *at = object; count--; at += cache->layout.size)
		cache->form.ctor(at);
	km_busy_begin();
	km_thread.no_calls = no_calls;
	km_thread.constructing.cache[--km_thread.constructing.count] = NULL;
	km_busy_end(was);
}

void km_slab_construct(struct kmem_cache *cache, struct km_page *slab)
{
	if (cache->form.ctor)
		km_construct(cache, km_slab_first(cache, slab), slab->objects);
	if (km_is_observed(cache))
		hide_objects(cache, slab);
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);
	if (km_unlikely(hooks && hooks->slab_comes))
		hooks->slab_comes(cache, slab);
}

/* Counts the bytes against the cache's limit. Returns: false if the limit refuses. */
static bool count_in(struct kmem_cache *cache, size_t bytes)
{
	uint64_t have = km_load(&cache->state.slab_bytes);

	do
		if (km_unlikely(have + bytes > km_load(&cache->tune.limit))) {
			km_count(cache, KMEM_LIMIT);
			km_thread.slab_limited = cache;
			return false;
		}
	while (!km_cas_acquire(&cache->state.slab_bytes, &have, have + bytes));
	return true;
}

/* Undoes admit. The bytes of a debug shadow cache are in both sums, because the limit is for the cache's name. */
static void count_out(struct kmem_cache *cache, size_t bytes)
{
	km_sub(&cache->state.slab_bytes, (uint64_t)bytes);
	if (km_unlikely(cache->ext.shadow_of != NULL))
		km_sub(&cache->ext.shadow_of->state.slab_bytes, (uint64_t)bytes);
}

static bool admit(struct kmem_cache *cache, size_t bytes)
{
	if (km_unlikely(cache->ext.shadow_of != NULL) && !count_in(cache->ext.shadow_of, bytes))
		return false;
	if (!count_in(cache, bytes)) {
		if (cache->ext.shadow_of)
			km_sub(&cache->ext.shadow_of->state.slab_bytes, (uint64_t)bytes);
		return false;
	}
	if (km_likely(!cache->memcg.slab_charge) || cache->memcg.slab_charge->admit(cache, bytes))
		return true;
	count_out(cache, bytes);
	return false;
}

static void put_pages(const struct kmem_cache *cache, struct km_page *slab, unsigned order)
{
	if (km_unlikely(cache->layout.flags & SLAB_NODUMP))
		km_nodump_free(slab, order);
	else if (km_unlikely(km_hardening.own_addresses))
		km_addr_reuse_free(cache->registry.name, slab, order);
	else
		km_deferred_or_free(slab, order);
}

static struct km_page *get_pages(struct kmem_cache *cache, unsigned order, const struct km_request *request)
{
	size_t bytes = KM_PAGE_SIZE << order;

	km_thread.slab_limited = NULL;
	km_thread.slab_refused = !admit(cache, bytes);
	if (km_unlikely(km_thread.slab_refused))
		return NULL;
	struct km_page *slab = km_unlikely(cache->layout.flags & SLAB_NODUMP) ?
		km_nodump_alloc(order, km_request_place(request), request->may_wait) :
		km_unlikely(km_hardening.own_addresses) ?
		km_addr_reuse_alloc(cache->registry.name, order, km_request_place(request), request->may_wait) :
		km_pages_alloc(order, km_request_place(request), request->may_wait, NULL);
	if (km_likely(slab && (!cache->memcg.slab_charge ||
			       cache->memcg.slab_charge->came(cache, slab, request->may_wait)))) {
		km_debug(slab->type == KM_PAGE_NONE && km_load(&cache->state.slab_bytes) >= bytes,
			 "a slab begins in free, admitted pages");
		return slab;
	}
	if (slab)
		put_pages(cache, slab, order);
	if (cache->memcg.slab_charge)
		cache->memcg.slab_charge->dismiss(cache, bytes);
	count_out(cache, bytes);
	return NULL;
}

struct km_page *km_slab_new_raw(struct kmem_cache *cache, const struct km_request *request)
{
	unsigned order = cache->layout.order;

	if (km_unlikely(cache->form.ctor != NULL) && !km_may_construct(cache, request->may_wait))
		return NULL;
	struct km_page *slab = get_pages(cache, order, request);
	if (!slab && cache->layout.min_order < order) {
		order = cache->layout.min_order;
		slab = get_pages(cache, order, request);
		if (slab)
			km_count(cache, KMEM_ORDER_FALLBACK);
	}
	if (!slab)
		return NULL;
	if (km_unlikely(km_sanitizer.objects)) {
		km_tell(handed_in, km_page_address(slab), KM_PAGE_SIZE << order);
		km_tell(memory_on, km_page_address(slab), KM_PAGE_SIZE << order);
	}
	km_store(&slab->cache, cache);
	slab->inuse = 0;
	slab->objects = (uint16_t)(order == cache->layout.order ? cache->layout.objects :
							   (KM_PAGE_SIZE << order) / cache->layout.size);
	km_debug(slab->objects && (size_t)slab->objects * cache->layout.size <= KM_PAGE_SIZE << order,
		 "a slab has room for its objects");
	/* The objects are linked through themselves, and are read while other threads own the objects. */
	if (km_unlikely(cache->layout.engine->front == KM_PERCPU_FREELIST))
		km_page_pin(slab);
	if (km_unlikely(cache->layout.live_shift) && !km_alloc_map_clear(slab, order, cache->layout.live_shift))
		km_store(&cache->ext.comes_slowly, true);
	slab->flags = 0;
	__builtin_memset(slab->engine, 0, sizeof(slab->engine));
	km_list_init(&slab->list);
	/* Release pairs with walks over pages (memcg/memcg_caches.c): a page of type SLAB has valid fields. */
	for (size_t i = 0; i < (size_t)1 << order; i++) {
		km_store(&slab[i].order, (uint8_t)order);
		km_store_release(&slab[i].type, (uint8_t)(i ? KM_PAGE_TAIL : KM_PAGE_SLAB));
	}
	/* A hit validates an address by the cache's order. Any other slab is found by its descriptor. */
	km_map_set(slab, (size_t)1 << order, order == cache->layout.order ? cache->fast.id : KM_MAP_DESC);
	km_count(cache, KMEM_ALLOC_SLAB);
	KM_PROBE4(slab_alloc, cache->registry.name, km_page_address(slab), order, slab->objects);
	return slab;
}

/* Pushes the object onto the cache's list of deferred frees. Release: the user's writes to the object come before the
 * link, for the thread that finishes the free. */
km_cold void km_defer(struct kmem_cache *cache, void *object)
{
	void **link = (void **)((char *)object + cache->layout.freeptr);
	void *head = km_load(&cache->state.deferred);

	do
		*link = head;
	while (!km_cas_release(&cache->state.deferred, &head, object));
}

struct km_page *km_slab_new(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_page *slab = km_slab_new_raw(cache, request);

	if (slab)
		km_slab_construct(cache, slab);
	return slab;
}

/* Removes a slab from the map. A later free of its objects is a free of a foreign pointer. */
static void leave(struct kmem_cache *cache, struct km_page *slab)
{
	unsigned order = slab->order;

	km_debug(slab->cache == cache && slab->type == KM_PAGE_SLAB, "a slab is freed once, by its cache");
	km_debug(km_list_empty(&slab->list), "a freed slab is on no list");
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);
	if (km_unlikely(hooks && hooks->slab_goes))
		hooks->slab_goes(cache, slab);
	km_map_set(slab, (size_t)1 << order, KM_MAP_NONE);
	for (size_t i = 0; i < (size_t)1 << order; i++)
		km_store(&slab[i].type, (uint8_t)KM_PAGE_NONE);
}

void km_slab_release(struct kmem_cache *cache, struct km_page *slab)
{
	unsigned order = slab->order;

	km_debug(slab->cache == cache && slab->type == KM_PAGE_NONE, "a released slab is in no page map");
	if (km_is_observed(cache))
		end_objects(cache, slab);
	km_store(&slab->cache, NULL);
	if (km_unlikely(cache->memcg.slab_charge != NULL))
		cache->memcg.slab_charge->goes(cache, slab);
	if (km_unlikely(km_is_charged(cache)))
		km_owner_clear(km_owner_of_page(slab), order, cache->memcg.owner_shift);
	km_count(cache, KMEM_FREE_SLAB);
	KM_PROBE3(slab_free, cache->registry.name, km_page_address(slab), order);
	put_pages(cache, slab, order);
	km_debug(km_load(&cache->state.slab_bytes) >= KM_PAGE_SIZE << order, "a slab's bytes were admitted");
	if (km_unlikely(cache->ext.shadow_of != NULL))
		km_add_both(&cache->ext.shadow_of->state.slab_bytes, -((uint64_t)KM_PAGE_SIZE << order));
	/* Last, because the limit may now admit another slab. Release pairs with memcg/child_cache.c, where all
	 * writes above are visible. */
	km_add_both(&cache->state.slab_bytes, -((uint64_t)KM_PAGE_SIZE << order));
}

void km_slab_free(struct kmem_cache *cache, struct km_page *slab)
{
	leave(cache, slab);
	/* A cache being destroyed lost the flag, and has no readers. */
	if (km_unlikely(cache->layout.flags & SLAB_TYPESAFE_BY_RCU) && !km_slabs_stay(cache))
		km_grace->slab(slab);
	else
		km_slab_release(cache, slab);
}

void km_slab_remains(struct kmem_cache *cache, struct km_page *slab, bool tell)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);

	if (hooks && hooks->remains)
		hooks->remains(cache, slab, tell);
}

void km_tell_of(struct km_page *slab, const void *p, enum km_misuse what)
{
	struct kmem_cache *cache = slab->cache;
	const struct km_hooks *hooks = cache ? km_load(&cache->ext.hooks) : NULL;

	if (hooks && hooks->tell)
		hooks->tell(cache, slab, p, what);
}

void km_refuse(struct km_page *slab, const void *p, enum km_misuse what, const char *function, const char *name)
{
	struct kmem_cache *cache = slab->cache;
	const struct km_hooks *hooks = cache ? km_load(&cache->ext.hooks) : NULL;

	km_tell_of(slab, p, what);
	km_misuse_of(what, function, p, name, cache && what == KM_MISUSE_WRONG_CACHE ? cache->registry.name : NULL,
		     hooks && hooks->tell && cache->layout.flags & SLAB_STORE_USER);
	if (hooks && hooks->refused)
		hooks->refused(cache, p, function);
}

bool km_is_object(const struct kmem_cache *cache, const void *p)
{
	struct km_page *page = km_page_of(p), *slab = page ? km_page_head(page) : NULL;

	return slab && slab->type == KM_PAGE_SLAB && slab->cache == cache &&
	       km_object_index(cache, slab, km_slab_first(cache, slab), p) >= 0;
}

struct km_page *km_slab_of(struct kmem_cache *cache, void *object, int *index, const char *function)
{
	struct km_page *page = km_page_of(object);
	struct km_page *slab = page ? km_page_head(page) : NULL;
	bool shared = page && page->type == KM_PAGE_SHARED;

	if (km_is_guarded(object)) {
		km_guard_ops->free(cache, object, km_sees_frees(cache) ? function : NULL);
		return NULL;
	}
	if (km_unlikely((!slab || slab->type != KM_PAGE_SLAB) && !shared)) {
		km_misuse(object ? KM_MISUSE_FOREIGN : KM_MISUSE_NULL_FREE, function, object,
			  cache->registry.name);
		return NULL;
	}
	/* A shared page names no cache. */
	if (km_unlikely(shared || slab->cache != cache)) {
		km_refuse(shared ? page : slab, object, KM_MISUSE_WRONG_CACHE, function, cache->registry.name);
		return NULL;
	}
	*index = km_object_index(cache, slab, km_slab_first(cache, slab), object);
	if (km_unlikely(*index < 0)) {
		km_refuse(slab, object, KM_MISUSE_INTERIOR, function, cache->registry.name);
		return NULL;
	}
	return slab;
}

/* ------------------------------------------------------------------ the order of fresh objects */

static unsigned common_factor(unsigned a, unsigned b)
{
	while (b) {
		unsigned rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

struct km_slab_order km_slab_order(unsigned count)
{
	struct km_slab_order order = { count, 0, 1 };

	if (km_likely(!km_hardening.random_order) || count < 2)
		return order;
	order.at = km_random_below(count);
	/* Found soon: at least a fifth of all numbers are coprime to the count. */
	do
		order.step = 1 + km_random_below(count - 1);
	while (common_factor(count, order.step) != 1);
	km_debug(order.at < count && order.step < count, "a random order starts with an object and has a step");
	return order;
}

void km_order_shuffle(void **objects, unsigned count)
{
	if (km_likely(!km_hardening.random_order))
		return;
	while (count > 1) {
		unsigned other = km_random_below(count--);
		void *object = objects[count];

		objects[count] = objects[other];
		objects[other] = object;
	}
}

/* ------------------------------------------------------------------ sheaves */

void **km_sheaf_new(const struct kmem_cache *cache, bool may_wait)
{
	void **sheaf = km_metadata_alloc((size_t)cache->fast.pcs.sheaf_mask + 1, may_wait);

	/* The memory is zeros, so the NULL at the bottom of the stack is set. */
	return sheaf ? km_sheaf_bottom(&cache->fast.pcs, sheaf) : NULL;
}

void km_sheaf_free(const struct kmem_cache *cache, void **sheaf)
{
	km_metadata_free(km_sheaf_base(&cache->fast.pcs, sheaf), (size_t)cache->fast.pcs.sheaf_mask + 1);
}

/* Floyd's tortoise and hare meet inside of the circle. The way from there to the circle's start, modulo the
 * circle, is the way from the head to the start. */
void *km_cut_circle(void *head, size_t at)
{
#define NEXT(p) (*(void **)((char *)(p) + at))
	void *slow = head, *fast = head, *last;

	do {
		fast = fast ? NEXT(fast) : NULL;
		if (!fast || !NEXT(fast))
			return NULL;
		fast = NEXT(fast);
		slow = NEXT(slow);
	} while (slow != fast);
	for (slow = head; slow != fast; slow = NEXT(slow))
		fast = NEXT(fast);
	for (last = slow; NEXT(last) != slow; last = NEXT(last))
		;
	NEXT(last) = NULL;
	return slow;
#undef NEXT
}
