/*
 * slob_cache.c: SLOB's functions on caches: layout, statistics, shrink and checks. A cache is only a size, an
 * alignment and a count of live objects. Invariant: pages change only by the functions of slob.c.
 */
#include <errno.h>

#include "base/bits.h"
#include "os/die.h"
#include "slab/partial.h"
#include "slob_marks.h"

/* Blocks are as long as their content. Alignment costs a free gap, not a larger object. */
static int slob_layout(struct kmem_cache *cache, const struct kmem_cache_args *args)
{
	uint32_t size = (uint32_t)km_align_up(cache->layout.object_size, KM_SLOB_UNIT);

	/* The header in front of a block of kmalloc serves as red zone. */
	if (km_is_observed(cache) && !(cache->layout.flags & SLAB_KMALLOC))
		size += KM_RED_ZONE;
	cache->layout.freeptr = 0;
	/* No left red zone: an object is at the start of its block. */
	if (km_is_debugged(cache)) {
		cache->ext.left = cache->form.first = 0;
		size = km_layout_debugged(cache);
	}
	/* A freed type-stable object is linked behind its content, or at the user's offset. Kernel: also a footer. */
	if (cache->layout.flags & SLAB_TYPESAFE_BY_RCU && !km_is_debugged(cache)) {
		cache->layout.freeptr = args->use_freeptr_offset ? args->freeptr_offset : size;
		size += args->use_freeptr_offset ? 0 : (uint32_t)sizeof(void *);
	}
	km_debug(!(cache->layout.flags & SLAB_TYPESAFE_BY_RCU) || cache->layout.freeptr + sizeof(void *) <= size,
		 "the link of a free object lies in the object");
	/* Pages with SLAB_NODUMP must not be shared. */
	if (cache->layout.flags & SLAB_NODUMP)
		size = (uint32_t)km_align_up(size, KM_PAGE_SIZE);
	cache->layout.size = size;
	cache->layout.reciprocal = km_reciprocal(size);
	cache->layout.order = cache->layout.min_order = (uint8_t)km_order_of(size);
	cache->layout.objects = size < KM_PAGE_SIZE ? (uint32_t)(KM_PAGE_SIZE / size) : 1;
	return cache->layout.order > KM_MAX_ORDER ? -EINVAL : 0;
}

/* ------------------------------------------------------------------ where a sanitizer is in the process */

/* Tells a sanitizer about a new page shared by caches, and makes the page inaccessible: free units and headers are
 * hidden from the program. */
void km_shared_page_comes(struct km_page *page)
{
	void *base = km_page_address(page);

	if (km_likely(!km_sanitizer.objects))
		return;
	km_tell(handed_in, base, KM_PAGE_SIZE);
	km_tell(memory_on, base, KM_PAGE_SIZE);
	km_tell(memory_off, base, KM_PAGE_SIZE);
}

struct km_page *km_slob_new_slab(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_page *slab = km_slab_new_raw(cache, request);

	if (slab && km_is_observed(cache))
		km_tell(memory_off, km_page_address(slab), KM_PAGE_SIZE << slab->order);
	return slab;
}

/* Runs the constructor, which may write to the object before the sanitizer knows the object. Other bad accesses of
 * the constructor are reported. */
void km_slob_construct(struct kmem_cache *cache, void *object)
{
	if (km_is_observed(cache))
		km_tell(memory_on, object, cache->layout.object_size);
	km_tell(reports_on);
	km_construct(cache, object, 1);
	km_tell(reports_off);
}

/* With a sanitizer: the requested size. The sanitizer hides the header. */
static size_t usable(const void *p)
{
	km_unreported_scope();
	const uint32_t bytes = *(const uint32_t *)((const char *)p - KM_SLOB_HEADER);
	return km_unlikely(km_sanitizer.objects) ? bytes : km_align_up(bytes, KM_SLOB_UNIT);
}

static bool owns(const struct km_page *page, const void *p)
{
	unsigned offset = (uintptr_t)p & (KM_PAGE_SIZE - 1), unit = offset / KM_SLOB_UNIT - 1;

	return offset && offset % KM_SLOB_UNIT == 0 && is_live(km_slob_page(page)->marks, unit, true);
}

/* Returns the first free block behind `unit`. A damaged link ends the search. Requires: the engine's lock. */
static unsigned next_free(const struct km_page *page, unsigned unit)
{
	char *base = km_slob_page(page)->base;
	unsigned at = km_slob_page(page)->first_free;

	while (at <= unit) {
		const struct kmem_record_slob_free *block = free_at(base, at);

		if (!sound(at, at + block->units, block->next))
			return KM_SLOB_UNITS;
		at = block->next;
	}
	return at;
}

/* Is `object` the start of a live object that ends where an object of this cache ends? With pages of its own: is
 * it the cache's live object? */
static bool has(struct kmem_cache *cache, const void *object)
{
	const struct km_page *page = km_page_of(object);
	unsigned offset = (uintptr_t)object & (KM_PAGE_SIZE - 1), unit = offset / KM_SLOB_UNIT;
	unsigned end = unit +
		       (unsigned)km_align_up(cache->layout.size, KM_SLOB_UNIT) / KM_SLOB_UNIT,
		 behind = KM_SLOB_UNITS;
	/* A signal handler inside of the engine can't take the lock; the marks alone are nearly exact. */
	km_busy_scope(was);
	bool known = false;

	if (!km_was_busy(was))
		km_lock(&km_slob.lock);
	if (page && page->type == KM_PAGE_SHARED && offset % KM_SLOB_UNIT == 0 && end <= KM_SLOB_UNITS &&
	    is_live(km_slob_page(page)->marks, unit, false)) {
		if (!km_was_busy(was) && !(page->flags & KM_SLAB_DEAD))
			behind = next_free(page, unit);
		behind = km_min(behind, next_marked(km_slob_page(page)->marks, unit, behind));
		known = km_was_busy(was) || page->flags & KM_SLAB_DEAD ? behind >= end : behind == end;
	} else if (page) {
		known = page->type == KM_PAGE_SLAB && page->cache == cache && !offset && page->inuse;
	}
	if (!km_was_busy(was))
		km_unlock(&km_slob.lock);
	return known;
}

/* ------------------------------------------------------------------ shrinking, statistics */

/* Frees the type-stable objects that were kept. */
static void give_typed(struct kmem_cache *cache)
{
	struct km_slob_node *n = km_slob_node(cache);

	for (;;) {
		km_lock(&km_slob.lock);
		void *object = km_slob_take_typed(cache, n);
		km_bump(&n->counts.taken, object != NULL);
		km_unlock(&km_slob.lock);
		if (!object)
			return;
		km_slob_give(cache, &object, 1);
	}
}

/* Kernel: does nothing. Here frees the stock; and type-stable objects, when their cache is destroyed. */
static size_t slob_shrink(struct kmem_cache *cache)
{
	size_t before = km_load(&km_slob_node(cache)->counts.slabs);

	km_unreported_scope();
	if (!(cache->layout.flags & SLAB_TYPESAFE_BY_RCU))
		give_typed(cache);
	size_t dropped = km_slob_drop_stock();
	return before - km_load(&km_slob_node(cache)->counts.slabs) + dropped;
}

/* Valid for objects in their own pages; the start of other objects is unknown. */
static bool slob_is_taken(struct kmem_cache *cache, struct km_page *slab, unsigned index)
{
	(void)cache;
	(void)index;
	return slab->inuse;
}

static int slob_check_cache(struct kmem_cache *cache)
{
	struct km_slob_node *n = km_slob_node(cache);
	size_t typed = 0, most = n->counts.objects - n->counts.taken;

	km_unreported_scope();
	for (void *object = n->typed; object && typed <= most; typed++)
		object = *(void **)((char *)object + cache->layout.freeptr);
	if (n->counts.taken <= n->counts.objects && typed == most)
		return 0;
	km_warn("check: %s: %lu of %lu objects are allocated, but the list of type-safe free objects has "
		"%lu", cache->registry.name,
		n->counts.taken, n->counts.objects, typed);
	return 1;
}

/* ------------------------------------------------------------------ all pages */

struct totals {
	size_t pages, units, blocks, listed;
	int damages;
};

/* Returns the free units of a page by its links; SIZE_MAX: damaged. Each free block must be unmarked, followed by
 * a marked block, and within the bounds of `largest` and `passed`. */
static size_t count_free(const struct km_page *page, char *base)
{
	const struct km_slob_page *of = km_slob_page(page);
	size_t units = 0;

	for (unsigned at = of->first_free; at != KM_SLOB_UNITS;) {
		const struct kmem_record_slob_free *block = free_at(base, at);
		unsigned behind = at + block->units;

		if (!sound(at, behind, block->next) || block->units > of->largest)
			return SIZE_MAX;
		if (of->passed != KM_SLOB_UNITS && at <= of->passed && block->units > of->passed_units)
			return SIZE_MAX;
		for (unsigned unit = at; unit < behind; unit++)
			if (mark_at(km_slob_page(page)->marks, unit) != NO_MARK)
				return SIZE_MAX;
		if (behind < KM_SLOB_UNITS && mark_at(km_slob_page(page)->marks, behind) == NO_MARK)
			return SIZE_MAX;
		units += block->units;
		at = block->next;
	}
	return units;
}

static int check_page(struct km_page *page, void *arg)
{
	struct totals *totals = arg;
	size_t blocks, free_units;

	if (page->type != KM_PAGE_SHARED || page->flags & KM_SLAB_DEAD)
		return 0;
	blocks = count_marks(km_slob_page(page)->marks);
	free_units = count_free(page, km_page_address(page));
	bool listed = page->flags & KM_SLAB_PARTIAL;
	/* In the stock, the only page of a list, or, in the child of a fork, in hand of a lost thread. */
	if (free_units == KM_SLOB_UNITS && !blocks) {
		totals->listed += listed;
		return 0;
	}
	if (free_units != km_slob_page(page)->free_units || !blocks || listed != (free_units != 0)) {
		km_warn("check: slob: page %p counts %u units as free, but its free blocks have %lu; %lu blocks are "
			"allocated",
			km_page_address(page), km_slob_page(page)->free_units, free_units, blocks);
		totals->damages++;
	}
	totals->pages++;
	totals->units += KM_SLOB_UNITS - free_units;
	totals->blocks += blocks;
	totals->listed += listed;
	return 0;
}

static int check_pages(void)
{
	struct totals totals = { 0 };
	size_t listed = 0;

	km_unreported_scope();
	km_pages_walk(check_page, &totals);
	for (unsigned i = 0; i < KM_SLOB_LISTS; i++)
		km_list_for_some(entry, &km_slob.list[i], totals.listed + 1)
			listed++;
	if (totals.pages != km_slob.pages || totals.units != km_slob.units ||
	    totals.blocks != km_slob.blocks || totals.listed != listed) {
		km_warn("check: slob: %lu pages, %lu units, %lu blocks; counted: %lu, %lu, %lu",
			totals.pages, totals.units, totals.blocks, km_slob.pages, km_slob.units,
			km_slob.blocks);
		km_warn("check: slob: %lu of %lu pages with free units are on lists", listed, totals.listed);
		totals.damages++;
	}
	return totals.damages;
}

/* Returns the page with the fewest free units among the pages looked at. Turns the ring, so that the next look
 * sees other pages. */
static struct km_page *turn(struct km_list *list, unsigned units, int node)
{
	struct km_page *best = NULL, *page = NULL;
	unsigned looks = 0;

	km_list_for_each_safe(entry, list) {
		page = km_container_of(entry, struct km_page, list);
		if (km_slob_may_have(page, units, node) &&
		    (!best || km_slob_page(page)->free_units < km_slob_page(best)->free_units))
			best = page;
		if (++looks == KM_SLOB_FULLEST_LOOKS)
			break;
	}
	if (best && page != best)
		km_slob_begin_at(list, page);
	return best;
}

void km_slob_choose(enum km_slob_list which, unsigned units, int node)
{
	struct km_list *list = &km_slob.list[which];
	struct km_page *page = km_slob.packed[which];

	km_debug(km_is_locked(&km_slob.lock), "a page is chosen under the engine's lock");
	if (!page || !km_slob_may_have(page, units, node))
		page = turn(list, units, node);
	km_store(&km_slob.packed[which], page);
	if (!page || list->next == &page->list)
		return;
	km_debug(page->flags & KM_SLAB_PARTIAL, "a chosen page is on a list");
	km_list_del(&page->list);
	km_list_add_head(&page->list, list);
}

static void fullness_of_page(const struct km_page *page, struct km_fullness *fullness)
{
	fullness->objects = KM_SLOB_UNITS;
	fullness->inuse = KM_SLOB_UNITS - km_min((unsigned)km_load(&km_slob_page(page)->free_units), KM_SLOB_UNITS);
	fullness->current = false;
	for (unsigned i = 0; i < KM_SLOB_LISTS; i++)
		fullness->current |= km_load(&km_slob.packed[i]) == page;
}

/* Events are counted under the lock, without atomic additions. */
static void slob_clear_events(struct kmem_cache *cache)
{
	km_lock_scope(&km_slob.lock);
	for (size_t i = 0; i < KMEM_NR_EVENTS; i++)
		km_store(&cache->state.events->count[i], 0ul);
}

static void fork_all(bool before, bool child)
{
	km_lock_around_fork(&km_slob.lock, before, child);
}

const struct km_engine km_engine_slob = {
	.name = "slob",
	.front = KM_PERCPU_NONE,
	.shared_pages = true,
	.node_bytes = sizeof(struct km_slob_node),
	.layout = slob_layout,
	.take = km_slob_take,
	.give = km_slob_give,
	.alloc = km_slob_alloc,
	.free = km_slob_free,
	.shrink = slob_shrink,
	.is_taken = slob_is_taken,
	.stats = km_slabs_stats,
	.check = slob_check_cache,
	.has = has,
	.clear_events = slob_clear_events,
	.check_all = check_pages,
	.fork_all = fork_all,

	.sized = {
		.free = km_slob_free_sized,
		.owns = owns,
		.mistake = km_slob_mistake,
		.usable = usable,
		.pages = &km_slob.pages,
		.units = &km_slob.units,
		.fullness = fullness_of_page,
	},
};
