/*
 * slob.c: SLOB: finds, cuts, marks, validates and joins blocks. slob.h has the picture.
 *
 * Invariants under the engine's lock: the free blocks of a page are linked by rising address; no two of them touch,
 * and no mark lies in a free block. Every other unit belongs to one marked block. A page is on the list of its
 * blocks' size iff a unit is free. A page without a marked block goes to the stock, or is freed, at once, except the
 * only page of a list. A page serves requests of one list only, so freed blocks of a page belong to this list. Links
 * and headers lie in memory that a sanitizer hides, so memcheck's reports are off while a block is taken or freed.
 */
#include "slob_marks.h"

#include "page/deferred_free.h"
#include "page/metadata.h"
#include "base/bits.h"
#include "os/die.h"

#define NONE	KM_SLOB_UNITS
#define DAMAGED	(NONE + 1)
#define BATCH	32u			/* objects for one hold of the lock */

struct km_slob km_slob = {
	.lock = KM_LOCK_INIT(KM_RANK_NODE),
	.list = { { &km_slob.list[0], &km_slob.list[0] }, { &km_slob.list[1], &km_slob.list[1] },
		  { &km_slob.list[2], &km_slob.list[2] } },
};

/* A request, in units. */
struct ops {
	unsigned units, align, header;	/* of the block; of the part behind the header; of the header */
	uint32_t bytes;			/* stored in the header */
	enum km_slob_list list;
	int node;
};

/* Only kmalloc's cache has blocks with headers. */
km_inline bool is_sized(const struct kmem_cache *cache)
{
	return cache->layout.flags & SLAB_KMALLOC;
}

static bool has_own_pages(const struct kmem_cache *cache)
{
	return cache->layout.size >= KM_PAGE_SIZE;
}

/* `sized` is a constant in callers for one object. */
km_inline struct ops ops_of(const struct kmem_cache *cache, const struct km_request *request, bool sized)
{
	uint32_t bytes = sized && request->bytes ? request->bytes : cache->layout.size;
	uint32_t align = sized && request->align ? request->align : cache->form.align;

	return (struct ops){
		.units = (bytes + KM_SLOB_UNIT - 1) / KM_SLOB_UNIT + sized, .align = align / KM_SLOB_UNIT,
		.header = sized, .bytes = bytes,
		.list = km_slob_list_of(bytes + sized * KM_SLOB_HEADER), .node = request->node,
	};
}

/* ------------------------------------------------------------------ the free blocks of a page; lock held */

/* Gives up a page with a damaged free block: the page is never used again. Requires: the engine's lock. */
km_cold static void bury(struct kmem_cache *cache, struct km_page *page, char *base)
{
	km_misuse(KM_MISUSE_WRITTEN, "slob", base, cache->registry.name);
	km_bump(&km_slob.pages, -(km_slob_page(page)->free_units != KM_SLOB_UNITS));
	km_bump(&km_slob.units, km_slob_page(page)->free_units - (size_t)KM_SLOB_UNITS);
	km_bump(&km_slob.blocks, -count_marks(km_slob_page(page)->marks));
	if (page->flags & KM_SLAB_PARTIAL)
		km_list_del(&page->list);
	km_slob_forget(page);
	page->flags = KM_SLAB_DEAD;
	km_slob_page(page)->largest = 0;
	km_store(&km_slob_page(page)->free_units, (uint16_t)0);
	km_slob_page(page)->first_free = km_slob_page(page)->passed = NONE;
}

static void link_free(struct km_page *page, char *base, unsigned before, unsigned unit)
{
	if (before == NONE)
		km_slob_page(page)->first_free = (uint16_t)unit;
	else
		free_at(base, before)->next = (uint16_t)unit;
}

/* First fit: cuts a block out of a free block. Returns: the block's unit, NONE or DAMAGED. The next search for as
 * much begins where this search ended, because the blocks passed are too small until a free. */
km_inline unsigned take_units(struct km_page *page, const struct ops *ops)
{
	unsigned before = NONE, largest = 0, at = km_slob_page(page)->first_free, start, stop, end, next;
	char *base = km_slob_page(page)->base;
	struct kmem_record_slob_free *block;

	if (km_slob_page(page)->passed != NONE && km_slob_page(page)->passed_units < ops->units) {
		before = km_slob_page(page)->passed;
		largest = km_slob_page(page)->passed_units;
		at = free_at(base, before)->next;
		/* Validated again, because users may have written to the block since. */
		if (km_unlikely(at <= before || at > NONE))
			return DAMAGED;
	}
	for (;; before = at, at = next) {
		if (km_unlikely(at == NONE)) {
			km_slob_page(page)->largest = (uint16_t)largest;
			return NONE;
		}
		block = free_at(base, at);
		end = at + block->units;
		next = block->next;
		if (km_unlikely(!sound(at, end, next)))
			return DAMAGED;
		if (end - at >= ops->units) {
			start = ((at + ops->header + ops->align - 1) & -ops->align) - ops->header;
			stop = start + ops->units;
			if (km_likely(stop <= end))
				break;
		}
		largest = km_max(largest, end - at);
	}
	km_debug(ops->units <= km_slob_page(page)->free_units, "a page has at least the free units of a free block");
	km_slob_page(page)->passed = (uint16_t)before;
	km_slob_page(page)->passed_units = (uint16_t)largest;
	/* The rest on both sides stays free. */
	if (stop < end) {
		*free_at(base, stop) = (struct kmem_record_slob_free){ (uint16_t)(end - stop), (uint16_t)next };
		next = stop;
	}
	if (start > at)
		*block = (struct kmem_record_slob_free){ (uint16_t)(start - at), (uint16_t)next };
	else
		link_free(page, base, before, next);
	km_bump(&km_slob_page(page)->free_units, -ops->units);
	return start;
}

/* Inserts [unit, end) between the free blocks `before` and `after`, joined with adjacent free blocks. */
km_inline void join(struct km_page *page, char *base, unsigned before, unsigned unit, unsigned end, unsigned after)
{
	unsigned next = after;

	km_debug((before == NONE || before < unit) && unit < end && end <= after,
		 "the free blocks of a page are linked by rising address");
	km_bump(&km_slob_page(page)->free_units, end - unit);
	if (after == end && after != NONE) {
		end += free_at(base, after)->units;
		next = free_at(base, after)->next;
	}
	km_debug(km_slob_page(page)->free_units <= KM_SLOB_UNITS, "a page has at most its number of free units");
	if (before != NONE && before + free_at(base, before)->units == unit)
		unit = before;
	else
		link_free(page, base, before, unit);
	*free_at(base, unit) = (struct kmem_record_slob_free){ (uint16_t)(end - unit), (uint16_t)next };
	if (unit <= km_slob_page(page)->passed)
		km_slob_page(page)->passed = NONE;
	if (km_slob_page(page)->largest < end - unit)
		km_slob_page(page)->largest = (uint16_t)(end - unit);
}

/* Finds the free blocks on both sides of `unit`. Returns: false if a damaged block is in between. */
km_inline bool neighbours(const struct km_page *page, char *base, unsigned unit, unsigned *before, unsigned *after)
{
	const struct km_slob_page *of = km_slob_page(page);
	unsigned last = NONE, at = of->passed < unit ? of->passed : of->first_free;

	while (at != NONE) {
		const struct kmem_record_slob_free *block = free_at(base, at);

		if (km_unlikely(!sound(at, at + block->units, block->next)))
			return false;
		if (at >= unit)
			break;
		last = at;
		at = block->next;
	}
	*before = last;
	*after = at;
	return true;
}

/* ------------------------------------------------------------------ pages */

/* Makes the page one free block. */
static void clear_page(struct km_page *page, char *base)
{
	km_slob_page(page)->first_free = 0;
	km_slob_page(page)->passed = NONE;
	km_slob_page(page)->largest = KM_SLOB_UNITS;
	km_store(&km_slob_page(page)->free_units, (uint16_t)KM_SLOB_UNITS);
	*free_at(base, 0) = (struct kmem_record_slob_free){ KM_SLOB_UNITS, NONE };
}

/* Allocates a page, on no list. */
static struct km_page *new_page(const struct km_request *request)
{
	struct km_page *page = km_pages_alloc(0, km_request_place(request), request->may_wait, NULL);
	struct kmem_record_slob_marks *marks;

	if (!page)
		return NULL;
	marks = km_metadata_alloc(sizeof(*marks), request->may_wait);
	if (!marks) {
		km_deferred_or_free(page, 0);
		return NULL;
	}
	km_shared_page_comes(page);
	page->flags = 0;
	km_slob_page(page)->marks = marks;
	km_slob_page(page)->base = km_page_address(page);
	km_list_init(&page->list);
	clear_page(page, km_slob_page(page)->base);
	return page;
}

/* Frees a page that is hidden, or was never shown. Context: without the lock. */
static void free_page(struct km_page *page)
{
	km_metadata_free(km_slob_page(page)->marks, sizeof(*km_slob_page(page)->marks));
	km_tell(handed_out, km_slob_page(page)->base, KM_PAGE_SIZE);
	km_deferred_or_free(page, 0);
}

/* Counts under the lock, so no atomic addition is needed. */
static void count(struct kmem_cache *cache, enum kmem_event event)
{
	km_store(&cache->state.events->count[event], km_load(&cache->state.events->count[event]) + 1);
}

static void list_page(struct km_page *page, struct km_list *list)
{
	km_debug(!(page->flags & (KM_SLAB_PARTIAL | KM_SLAB_DEAD)), "a page added to a list is on no list");
	page->flags |= KM_SLAB_PARTIAL;
	km_list_add_head(&page->list, list);
}

static void unlist_page(struct km_page *page)
{
	km_debug(page->flags & KM_SLAB_PARTIAL, "a page removed from a list is on a list");
	page->flags &= (uint8_t)~KM_SLAB_PARTIAL;
	km_list_del(&page->list);
	km_slob_forget(page);
}

/* Count a page as a new slab with its first block, and as a freed slab with its last. Requires: the engine's lock. */
static void page_comes(struct kmem_cache *cache)
{
	count(cache, KMEM_ALLOC_SLAB);
	km_bump(&km_slob_node(cache)->counts.new_slabs, 1);
	km_bump(&km_slob.pages, 1);
}

static void page_goes(struct kmem_cache *cache)
{
	count(cache, KMEM_FREE_SLAB);
	km_bump(&km_slob_node(cache)->counts.freed_slabs, 1);
	km_debug(km_slob.pages, "a freed page was counted");
	km_bump(&km_slob.pages, -1);
}

/* Lists a page of the stock; NULL: none of that node. Requires: the engine's lock. */
km_inline struct km_page *add_stocked(enum km_slob_list list, int node)
{
	size_t stocked = km_slob.stocked;

	if (!stocked || (node != NUMA_NO_NODE && km_slob.stock[stocked - 1]->node != node))
		return NULL;
	km_store(&km_slob.stocked, stocked - 1);
	list_page(km_slob.stock[stocked - 1], &km_slob.list[list]);
	return km_slob.stock[stocked - 1];
}

/* Stocks a free, unlisted page, or returns the page for the caller to free. Requires: the engine's lock. */
static struct km_page *drop_page(struct km_page *page, char *base)
{
	km_debug(!count_marks(km_slob_page(page)->marks), "a freed page has no marked block");
	clear_page(page, base);
	if (km_slob.stocked >= KM_SLOB_STOCK) {
		hide_page(page);
		return page;
	}
	km_slob.stock[km_slob.stocked] = page;
	km_bump(&km_slob.stocked, 1);
	return NULL;
}

size_t km_slob_drop_stock(void)
{
	struct km_page *page[KM_SLOB_STOCK + KM_SLOB_LISTS];

	km_lock(&km_slob.lock);
	size_t pages = km_slob.stocked;
	__builtin_memcpy(page, km_slob.stock, pages * sizeof(*page));
	for (unsigned i = 0; i < KM_SLOB_LISTS; i++)
		km_list_for_each_safe(entry, &km_slob.list[i]) {
			page[pages] = km_container_of(entry, struct km_page, list);
			if (km_slob_page(page[pages])->free_units != KM_SLOB_UNITS)
				continue;
			unlist_page(page[pages++]);
			break;
		}
	for (size_t i = 0; i < pages; i++)
		hide_page(page[i]);
	km_store(&km_slob.stocked, (size_t)0);
	km_unlock(&km_slob.lock);
	for (size_t i = 0; i < pages; i++)
		free_page(page[i]);
	return pages;
}

struct place {
	struct km_page *page;
	unsigned unit;			/* NONE: no room */
};

/* Searches all pages of the list, then the stock. The arguments are registers, because a struct stored in parts
 * can't be loaded whole quickly. */
static km_noinline struct place in_list(struct kmem_cache *cache, enum km_slob_list list, unsigned units,
					unsigned align, unsigned header, int node)
{
	const struct ops ops = { .units = units, .align = align, .header = header, .list = list, .node = node };
	struct km_page *page;

	km_list_for_each_safe(entry, &km_slob.list[list]) {
		page = km_container_of(entry, struct km_page, list);
		if (!km_slob_may_have(page, units, node))
			continue;
		unsigned unit = take_units(page, &ops);
		if (km_likely(unit < NONE))
			return (struct place){ page, unit };
		if (km_unlikely(unit == DAMAGED))
			bury(cache, page, km_slob_page(page)->base);
	}
	page = add_stocked(list, node);
	return (struct place){ page, page ? take_units(page, &ops) : NONE };
}

/* Takes a block from the pages of its list, or the stock; NULL: no room. Requires: the engine's lock. */
km_inline void *take_block(struct kmem_cache *cache, const struct ops *ops)
{
	struct km_list *list = &km_slob.list[ops->list];
	unsigned unit = NONE;

	/* Usually the page that served last has room. */
	bool any = !km_list_empty(list) || add_stocked(ops->list, ops->node);
	struct km_page *page = km_container_of(list->next, struct km_page, list);
	if (km_likely(any && km_slob_may_have(page, ops->units, ops->node)))
		unit = take_units(page, ops);
	if (km_unlikely(unit >= NONE)) {
		struct place place = in_list(cache, ops->list, ops->units, ops->align, ops->header, ops->node);

		page = place.page;
		unit = place.unit;
		if (km_unlikely(unit >= NONE))
			return NULL;
	}
	char *block = km_slob_page(page)->base + unit * KM_SLOB_UNIT;

	if (km_unlikely(km_slob_page(page)->free_units + ops->units == KM_SLOB_UNITS))
		page_comes(cache);
	km_debug(page->flags & KM_SLAB_PARTIAL, "a page of an allocation is on the list of its block size");
	km_debug(mark_at(km_slob_page(page)->marks, unit) == NO_MARK, "no mark lies in a free block");
	if (km_likely(km_slob_page(page)->free_units))
		km_slob_begin_at(list, page);
	else
		unlist_page(page);
	if (ops->header)
		*(uint32_t *)block = ops->bytes;
	flip_mark(km_slob_page(page)->marks, unit, mark_of(ops->header));
	km_bump(&km_slob.units, ops->units);
	km_bump(&km_slob.blocks, 1);
	return block + ops->header * KM_SLOB_HEADER;
}

/* ------------------------------------------------------------------ take */

void *km_slob_take_typed(struct kmem_cache *cache, struct km_slob_node *n)
{
	void *object = n->typed;

	if (!object)
		return NULL;
	n->typed = *(void **)((char *)object + cache->layout.freeptr);
	struct km_page *page = km_page_of(object);
	if (page->type == KM_PAGE_SHARED) {
		unsigned unit = ((uintptr_t)object & (KM_PAGE_SIZE - 1)) / KM_SLOB_UNIT;

		km_debug(mark_at(km_slob_page(page)->marks, unit) == KEEPS_TYPE, "a type-safe block is marked");
		flip_mark(km_slob_page(page)->marks, unit, CACHES | KEEPS_TYPE);
	} else {
		km_store(&page->inuse, (uint16_t)1);
	}
	return object;
}

/* Takes one object without a new page; NULL: a page is needed. Requires: the engine's lock. */
km_inline void *take_object(struct kmem_cache *cache, struct km_slob_node *n, const struct ops *ops)
{
	if (km_unlikely(n->typed))
		return km_slob_take_typed(cache, n);
	void *object = take_block(cache, ops);
	if (km_likely(object))
		km_bump(&n->counts.objects, 1);
	return object;
}

static unsigned take_some(struct kmem_cache *cache, const struct ops *ops, void **objects, unsigned want)
{
	struct km_slob_node *n = km_slob_node(cache);
	unsigned got = 0;

	while (got < want && (objects[got] = take_object(cache, n, ops)))
		got++;
	km_bump(&n->counts.taken, got);
	return got;
}

/* Takes an object in its own pages, a slab of one object. */
static void *take_pages(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_slob_node *n = km_slob_node(cache);

	if (!km_lock_may(&km_slob.lock, request->may_wait))
		return NULL;
	void *object = km_slob_take_typed(cache, n);
	km_bump(&n->counts.taken, object != NULL);
	km_unlock_quick(&km_slob.lock);
	if (object)
		return object;
	struct km_page *slab = km_slob_new_slab(cache, request);
	if (!slab)
		return NULL;
	if (!km_lock_may(&km_slob.lock, request->may_wait)) {
		km_slab_free(cache, slab);
		return NULL;
	}
	km_store(&slab->inuse, (uint16_t)1);
	km_bump(&n->counts.slabs, 1);
	km_bump(&n->counts.new_slabs, 1);
	km_bump(&n->counts.objects, 1);
	km_bump(&n->counts.taken, 1);
	km_debug(n->counts.taken <= n->counts.objects, "at most the free objects are taken");
	km_unlock_quick(&km_slob.lock);
	return km_page_address(slab);
}

/* Takes up to BATCH objects; fewer without memory, or if the lock must not be waited for. If the preferred node
 * has no room and no page, room in any page comes before a page of another node. */
static unsigned take_batch(struct kmem_cache *cache, const struct km_request *request,
			   struct ops ops, void **objects, unsigned want)
{
	struct km_request now = *request;
	struct km_page *page = NULL;
	unsigned got = 0;

	now.gfp |= now.node == NUMA_NO_NODE ? 0 : __GFP_THISNODE;
	for (;;) {
		if (!km_lock_may(&km_slob.lock, request->may_wait))
			break;
		if (page) {
			show_page(page);
			list_page(page, &km_slob.list[ops.list]);
		}
		got += take_some(cache, &ops, objects + got, want - got);
		km_unlock_quick(&km_slob.lock);
		if (got == want)
			return got;
		/* The lock is not held while a page is allocated; only this thread knows the unlisted page. */
		page = new_page(&now);
		if (!page && now.gfp == request->gfp)
			break;
		if (!page) {
			ops.node = NUMA_NO_NODE;
			now = *request;
		}
	}
	if (page)
		free_page(page);
	return got;
}

static unsigned take_many(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	struct ops ops = ops_of(cache, request, is_sized(cache));
	unsigned got = 0;

	km_unreported_scope();
	while (got < want && (!cache->form.ctor || km_may_construct(cache, request->may_wait))) {
		unsigned some = km_min(want - got, BATCH), now;

		if (has_own_pages(cache))
			now = some = (objects[got] = take_pages(cache, request)) != NULL;
		else
			now = take_batch(cache, request, ops, objects + got, some);
		got += now;
		if (!now || now < some)
			break;
	}
	/* As in the kernel, at every allocation, because the content of a free object is lost. */
	for (unsigned i = 0; km_unlikely(cache->form.ctor) && i < got; i++)
		km_slob_construct(cache, objects[i]);
	return got;
}

static km_noinline void *take_general(struct kmem_cache *cache, const struct km_request *request)
{
	void *object;

	return take_many(cache, request, &object, 1) ? object : NULL;
}

/* Takes one object on the common path: a lock, and a page with room. */
km_inline void *take_one(struct kmem_cache *cache, const struct km_request *request, bool sized)
{
	struct ops ops = ops_of(cache, request, sized);
	struct km_slob_node *n = km_slob_node(cache);

	km_unreported_scope();
	if (!km_lock_may(&km_slob.lock, request->may_wait))
		return NULL;
	if (km_unlikely(request->gfp & __GFP_FULLEST))
		km_slob_choose(ops.list, ops.units, ops.node);
	void *object = take_object(cache, n, &ops);
	km_bump(&n->counts.taken, object != NULL);
	km_unlock_quick(&km_slob.lock);
	return km_likely(object) ? object : take_general(cache, request);
}

/* Compiled separately for each value of `sized`. */
static km_noinline void *take_sized(struct kmem_cache *cache, const struct km_request *request)
{
	return take_one(cache, request, true);
}

static km_noinline void *take_plain(struct kmem_cache *cache, const struct km_request *request)
{
	return take_one(cache, request, false);
}

void *km_slob_alloc(struct kmem_cache *cache, const struct km_request *request)
{
	if (is_sized(cache))
		return take_sized(cache, request);
	if (km_likely(!has_own_pages(cache) && !cache->form.ctor))
		return take_plain(cache, request);
	return take_general(cache, request);
}

unsigned km_slob_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	return want == 1 ? (objects[0] = km_slob_alloc(cache, request)) != NULL :
			   take_many(cache, request, objects, want);
}

/* ------------------------------------------------------------------ what is wrong with an address */

/* Is the unit in a free block? Requires: the engine's lock. */
static bool is_free(const struct km_page *page, char *base, unsigned unit)
{
	unsigned before, after;

	if (page->flags & KM_SLAB_DEAD || !neighbours(page, base, unit, &before, &after))
		return false;
	return after == unit || (before != NONE && before + free_at(base, before)->units > unit);
}

/* Returns the misuse: why p can't be freed as a block of kmalloc (sized) or a cache's object. Lock held. */
static enum km_misuse mistake(struct km_page *page, const void *p, bool sized)
{
	unsigned offset = (uintptr_t)p & (KM_PAGE_SIZE - 1), unit = offset / KM_SLOB_UNIT;
	char *base = (char *)((uintptr_t)p - offset);

	if (page->type != KM_PAGE_SHARED)
		return KM_MISUSE_FOREIGN;
	if (offset % KM_SLOB_UNIT)
		return KM_MISUSE_INTERIOR;
	enum mark mark = mark_at(km_slob_page(page)->marks, unit);
	if (mark == KEEPS_TYPE || is_free(page, base, unit))
		return KM_MISUSE_DOUBLE_FREE;
	if (mark == CACHES && sized)
		return KM_MISUSE_NOT_KMALLOC;
	if (!(mark & CACHES) && !sized && unit && mark_at(km_slob_page(page)->marks, unit - 1) == KMALLOCS)
		return KM_MISUSE_WRONG_CACHE;
	return KM_MISUSE_INTERIOR;
}

enum km_misuse km_slob_mistake(struct km_page *page, const void *p)
{
	km_lock_scope(&km_slob.lock);
	return mistake(page, p, true);
}

/* ------------------------------------------------------------------ give */

/* Keeps a freed type-stable object for the next allocation of its cache. Requires: the engine's lock. */
static void put_typed(struct kmem_cache *cache, void *object)
{
	struct km_slob_node *n = km_slob_node(cache);

	*(void **)((char *)object + cache->layout.freeptr) = n->typed;
	n->typed = object;
	km_bump(&n->counts.taken, -1);
}

/* Frees [unit, end), a block of `bytes` bytes. Returns: a page for the caller to free, or NULL. */
km_inline struct km_page *put_units(struct kmem_cache *cache, struct km_page *page, char *base,
				    unsigned before, unsigned unit, unsigned end, unsigned after,
				    uint32_t bytes)
{
	km_debug(km_slob.blocks && km_slob.units >= end - unit, "a freed block was counted");
	km_bump(&km_slob.units, -(size_t)(end - unit));
	km_bump(&km_slob.blocks, -1);
	bool listed = km_slob_page(page)->free_units != 0;

	if (km_slob_page(page)->free_units + (end - unit) == KM_SLOB_UNITS) {
		page_goes(cache);
		/* Not the only page of its list. */
		if (!listed || page->list.next != page->list.prev) {
			if (listed)
				unlist_page(page);
			return drop_page(page, base);
		}
	} else if (!listed) {
		count(cache, KMEM_FREE_ADD_PARTIAL);
		list_page(page, &km_slob.list[km_slob_list_of(bytes)]);
	}
	join(page, base, before, unit, end, after);
	return NULL;
}

/* Gives up the page if not done yet, and clears the block's mark. Requires: the engine's lock. */
km_cold static void put_dead(struct kmem_cache *cache, struct km_page *page, char *base, unsigned unit)
{
	if (!(page->flags & KM_SLAB_DEAD))
		bury(cache, page, base);
	flip_mark(km_slob_page(page)->marks, unit, mark_of(is_sized(cache)));
	km_bump(&km_slob_node(cache)->counts.taken, -1);
	km_bump(&km_slob_node(cache)->counts.objects, -1);
}

/* Frees a block. Requires: the engine's lock. Returns: KM_NO_MISUSE or the misuse. *empty: a page to free. */
km_inline enum km_misuse put_block(struct kmem_cache *cache, void *object, bool sized, struct km_page **empty)
{
	struct km_page *page = km_page_of(object);
	unsigned offset = (uintptr_t)object & (KM_PAGE_SIZE - 1), before, after;
	unsigned unit = offset / KM_SLOB_UNIT - sized;
	char *base = (char *)object - offset;

	if (km_unlikely(!page || page->type != KM_PAGE_SHARED))
		return KM_MISUSE_FOREIGN;
	if (km_unlikely(offset % KM_SLOB_UNIT || unit >= KM_SLOB_UNITS ||
			!is_live(km_slob_page(page)->marks, unit, sized)))
		return mistake(page, object, sized);
	uint32_t bytes = sized ? *(uint32_t *)(base + unit * KM_SLOB_UNIT) + KM_SLOB_HEADER :
				 cache->layout.size;
	uint64_t end = unit + ((uint64_t)bytes + KM_SLOB_UNIT - 1) / KM_SLOB_UNIT;
	if (km_unlikely(page->flags & KM_SLAB_DEAD || !neighbours(page, base, unit, &before, &after))) {
		put_dead(cache, page, base, unit);
		return KM_NO_MISUSE;
	}
	/* A block must end at a live block, a free block or the end of the page. */
	if (km_unlikely(km_min(next_marked(km_slob_page(page)->marks, unit, after), after) != end))
		return sized ? KM_MISUSE_HEADER : KM_MISUSE_WRONG_CACHE;
	if (km_unlikely(cache->layout.flags & SLAB_TYPESAFE_BY_RCU)) {
		flip_mark(km_slob_page(page)->marks, unit, CACHES | KEEPS_TYPE);
		put_typed(cache, object);
		return KM_NO_MISUSE;
	}
	flip_mark(km_slob_page(page)->marks, unit, mark_of(sized));
	*empty = put_units(cache, page, base, before, unit, (unsigned)end, after, bytes);
	km_bump(&km_slob_node(cache)->counts.taken, -1);
	km_bump(&km_slob_node(cache)->counts.objects, -1);
	return KM_NO_MISUSE;
}

km_cold static void report(struct kmem_cache *cache, void *object, enum km_misuse what)
{
	const char *by = is_sized(cache) ? "kfree" : "kmem_cache_free";
	int index;

	/* Not in a page of slob: layout.c finds the cause. */
	if (what == KM_MISUSE_FOREIGN)
		km_slab_of(cache, object, &index, by);
	else
		km_misuse(what, by, object, cache->registry.name);
}

/* Frees up to BATCH objects under one lock, then their empty pages. */
static void give_batch(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct km_page *empty[BATCH];
	unsigned pages = 0;

	km_unreported_scope();
	km_lock(&km_slob.lock);
	for (unsigned i = 0; i < count; i++) {
		empty[pages] = NULL;
		enum km_misuse what = put_block(cache, objects[i], is_sized(cache), &empty[pages]);

		pages += empty[pages] != NULL;
		if (km_unlikely(what != KM_NO_MISUSE)) {
			km_unlock(&km_slob.lock);
			report(cache, objects[i], what);
			km_lock(&km_slob.lock);
		}
	}
	km_unlock_quick(&km_slob.lock);
	while (pages)
		free_page(empty[--pages]);
}

static void give_pages(struct kmem_cache *cache, void *object)
{
	struct km_slob_node *n = km_slob_node(cache);
	int index;
	struct km_page *slab = km_slab_of(cache, object, &index, "kmem_cache_free");

	if (!slab)
		return;
	km_unreported_scope();
	bool keep = cache->layout.flags & SLAB_TYPESAFE_BY_RCU;
	km_lock(&km_slob.lock);
	bool live = slab->inuse;
	km_store(&slab->inuse, (uint16_t)0);
	if (live && keep)
		put_typed(cache, object);
	if (live && !keep) {
		km_bump(&n->counts.slabs, -1);
		km_bump(&n->counts.freed_slabs, 1);
		km_bump(&n->counts.objects, -1);
		km_bump(&n->counts.taken, -1);
	}
	km_unlock(&km_slob.lock);
	if (!live)
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->registry.name);
	else if (!keep)
		km_slab_free(cache, slab);
}

km_inline enum km_misuse put_one(struct kmem_cache *cache, void *object, bool sized)
{
	struct km_page *empty = NULL;

	km_unreported_scope();
	km_lock(&km_slob.lock);
	enum km_misuse what = put_block(cache, object, sized, &empty);
	km_unlock_quick(&km_slob.lock);
	if (km_unlikely(empty))
		free_page(empty);
	return what;
}

enum km_misuse km_slob_free_sized(struct kmem_cache *cache, void *p)
{
	return put_one(cache, p, true);
}

static km_noinline void put_plain(struct kmem_cache *cache, void *object)
{
	enum km_misuse what = put_one(cache, object, false);

	if (km_unlikely(what != KM_NO_MISUSE))
		report(cache, object, what);
}

void km_slob_free(struct kmem_cache *cache, void *object)
{
	if (is_sized(cache)) {
		enum km_misuse what = km_slob_free_sized(cache, object);

		if (km_unlikely(what != KM_NO_MISUSE))
			report(cache, object, what);
	} else if (km_likely(!has_own_pages(cache))) {
		put_plain(cache, object);
	} else {
		give_pages(cache, object);
	}
}

void km_slob_give(struct kmem_cache *cache, void **objects, unsigned count)
{
	if (count == 1 || has_own_pages(cache)) {
		for (unsigned i = 0; i < count; i++)
			km_slob_free(cache, objects[i]);
		return;
	}
	for (unsigned now; count; count -= now, objects += now)
		give_batch(cache, objects, now = km_min(count, BATCH));
}
