/*
 * slob.c: SLOB: what blocks do: found, cut, marked, validated, joined. slob.h has the picture.
 *
 * Invariants, under the engine's lock: the free blocks of a page are linked by rising address, no two of them
 * touch, and no mark lies in one; every other unit belongs to one marked block; a page is on the list of its blocks'
 * size iff it has a free unit; a page without a marked block is nobody's, and goes to the stock, or back, at once. A
 * page serves requests of one list only, so that what is freed in it belongs to that list.
 */
#include "slob.h"

#include "../page/meta.h"
#include "../port/bits.h"
#include "../port/die.h"

#define NONE	KM_SLOB_UNITS
#define BATCH	32u			/* objects for which the lock is held */

struct km_slob km_slob = {
	.lock = KM_LOCK_INIT(KM_RANK_NODE),
	.list = { { &km_slob.list[0], &km_slob.list[0] }, { &km_slob.list[1], &km_slob.list[1] },
		  { &km_slob.list[2], &km_slob.list[2] } },
	.stock = { &km_slob.stock, &km_slob.stock },
};

/* What is asked for, in units. */
struct shape {
	unsigned units, align, header;	/* of the block; of what follows the header; of the header */
	uint32_t bytes;			/* goes into the header */
	enum km_slob_list list;
	int node;
};

static struct km_slob_node *node_of(const struct kmem_cache *cache)
{
	return cache->node[0];
}

/* The one cache of the engine whose blocks have headers is kmalloc's. */
km_inline bool is_sized(const struct kmem_cache *cache)
{
	return cache->flags & SLAB_KMALLOC;
}

static bool has_own_pages(const struct kmem_cache *cache)
{
	return cache->size >= KM_PAGE_SIZE;
}

static struct shape shape_of(const struct kmem_cache *cache, const struct km_request *request)
{
	unsigned header = is_sized(cache);
	uint32_t bytes = request->bytes ?: cache->size, align = request->align ?: cache->align;
	unsigned units = (bytes + KM_SLOB_UNIT - 1) / KM_SLOB_UNIT + header;

	return (struct shape){
		.units = units, .align = align / KM_SLOB_UNIT, .header = header, .bytes = bytes,
		.list = km_slob_list_of(bytes + header * KM_SLOB_HEADER), .node = request->node,
	};
}

/* The page itself: kept, because to find it takes a search. */
static char *base_of(const struct km_page *page)
{
	return (char *)(uintptr_t)page->owner[0];
}

/* ------------------------------------------------------------------ marks */

static bool marked(const uint64_t *bits, unsigned unit)
{
	return km_load(&bits[unit / 64]) >> unit % 64 & 1;
}

static void mark(uint64_t *bits, unsigned unit)
{
	km_store(&bits[unit / 64], bits[unit / 64] | (uint64_t)1 << unit % 64);
}

static void unmark(uint64_t *bits, unsigned unit)
{
	km_store(&bits[unit / 64], bits[unit / 64] & ~((uint64_t)1 << unit % 64));
}

/* The first unit in [unit, end) at which a marked block begins, or end. */
static unsigned next_marked(const struct km_slob_marks *marks, unsigned unit, unsigned end)
{
	for (unsigned word = unit / 64, skip = unit % 64; word * 64 < end; word++, skip = 0) {
		uint64_t bits = (marks->live[word] | marks->other[word]) >> skip << skip;

		if (bits)
			return km_min(word * 64 + (unsigned)__builtin_ctzll(bits), end);
	}
	return end;
}

/* ------------------------------------------------------------------ the free blocks of a page; lock held */

static struct km_slob_free *free_at(char *base, unsigned unit)
{
	return (struct km_slob_free *)(base + unit * KM_SLOB_UNIT);
}

/* Users write to what they freed: a header that can't be right ends the walk, and the page's use. */
km_inline bool sound(const struct km_slob_free *block, unsigned at)
{
	return block->units && at + block->units <= NONE &&
	       (block->next > at + block->units ? block->next <= NONE : block->next == NONE);
}

static void bury(struct kmem_cache *cache, struct km_page *page, char *base)
{
	km_misuse(KM_MISUSE_WRITTEN, "slob", base, cache->name);
	km_bump(&km_slob.pages, -1);
	km_bump(&km_slob.units, page->free_units - (size_t)KM_SLOB_UNITS);
	for (unsigned i = 0; i < KM_SLOB_UNITS / 64; i++)
		km_bump(&km_slob.blocks,
			-__builtin_popcountll(page->marks->live[i] | page->marks->other[i]));
	if (page->flags & KM_SLAB_PARTIAL)
		km_list_del(&page->list);
	page->flags = KM_SLAB_DEAD;
	page->free_units = page->largest = 0;
	page->first_free = NONE;
}

static void link_free(struct km_page *page, char *base, unsigned before, unsigned unit)
{
	if (before == NONE)
		page->first_free = (uint16_t)unit;
	else
		free_at(base, before)->next = (uint16_t)unit;
}

/* Cut shape->units at `start` out of the free block at `at`; what is left on either side stays free. */
static void cut(struct km_page *page, char *base, const struct shape *shape, unsigned before,
		unsigned at, unsigned start)
{
	struct km_slob_free *block = free_at(base, at);
	unsigned end = start + shape->units, tail = at + block->units - end, next = block->next;

	if (tail) {
		*free_at(base, end) = (struct km_slob_free){ (uint16_t)tail, (uint16_t)next };
		next = end;
	}
	if (start > at)
		*block = (struct km_slob_free){ (uint16_t)(start - at), (uint16_t)next };
	else
		link_free(page, base, before, next);
	page->free_units = (uint16_t)(page->free_units - shape->units);
}

/* First fit. Returns the unit of the block, or NONE. */
static unsigned take_units(struct kmem_cache *cache, struct km_page *page, char *base,
			   const struct shape *shape)
{
	unsigned before = NONE, largest = 0;

	for (unsigned at = page->first_free; at != NONE;) {
		const struct km_slob_free *block = free_at(base, at);
		unsigned start = (unsigned)km_align_up(at + shape->header, shape->align) -
				 shape->header;

		if (km_unlikely(!sound(block, at))) {
			bury(cache, page, base);
			return NONE;
		}
		if (start + shape->units <= at + block->units) {
			cut(page, base, shape, before, at, start);
			return start;
		}
		before = at;
		largest = km_max(largest, (unsigned)block->units);
		at = block->next;
	}
	page->largest = (uint16_t)largest;
	return NONE;
}

/* Put [unit, unit + units) between the free blocks at `before` and `after`, joined with those that it touches. */
static void join(struct km_page *page, char *base, unsigned before, unsigned unit, unsigned units,
		 unsigned after)
{
	unsigned next = after, end = unit + units;

	if (after == end && after != NONE) {
		end += free_at(base, after)->units;
		next = free_at(base, after)->next;
	}
	if (before != NONE && before + free_at(base, before)->units == unit)
		unit = before;
	else
		link_free(page, base, before, unit);
	*free_at(base, unit) = (struct km_slob_free){ (uint16_t)(end - unit), (uint16_t)next };
	page->free_units = (uint16_t)(page->free_units + units);
	page->largest = (uint16_t)km_max((unsigned)page->largest, end - unit);
}

/* The free blocks on either side of `unit`; false: a damaged one is in the way. */
km_inline bool neighbours(const struct km_page *page, char *base, unsigned unit, unsigned *before,
		       unsigned *after)
{
	*before = NONE;
	for (*after = page->first_free; *after < unit; *after = free_at(base, *before)->next) {
		*before = *after;
		if (km_unlikely(!sound(free_at(base, *after), *after)))
			return false;
	}
	return *after == NONE || sound(free_at(base, *after), *after);
}

/* ------------------------------------------------------------------ pages */

/* All of it is one free block. */
static void clear_page(struct km_page *page, char *base)
{
	page->first_free = 0;
	page->free_units = page->largest = KM_SLOB_UNITS;
	page->flags = 0;
	*free_at(base, 0) = (struct km_slob_free){ KM_SLOB_UNITS, NONE };
}

/* On no list. */
static struct km_page *new_page(const struct km_request *request)
{
	struct km_page *page = km_pages_alloc(0, km_request_place(request), request->may_wait, NULL);
	struct km_slob_marks *marks;

	if (!page)
		return NULL;
	marks = km_meta_alloc(sizeof(*marks), request->may_wait);
	if (!marks) {
		km_pages_free(page, 0);
		return NULL;
	}
	page->marks = marks;
	page->owner[0] = (uint64_t)(uintptr_t)km_page_address(page);
	km_list_init(&page->list);
	clear_page(page, base_of(page));
	km_map_set(page, 1, KM_MAP_DESC);
	/* Release pairs with the acquire of those who look at a page's type before its marks. */
	km_store_release(&page->type, (uint8_t)KM_PAGE_SLOB);
	return page;
}

static void free_page(struct km_page *page)
{
	km_map_set(page, 1, KM_MAP_NONE);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
	km_meta_free(page->marks, sizeof(*page->marks));
	km_pages_free(page, 0);
}

/* Events are counted under the lock: no atomic addition. */
static void count(struct kmem_cache *cache, enum kmem_event event)
{
	km_bump(&cache->events->count[event], 1);
}

static void list_page(struct km_page *page, struct km_list *list)
{
	page->flags |= KM_SLAB_PARTIAL;
	km_list_add_head(&page->list, list);
}

static void unlist_page(struct km_page *page)
{
	page->flags &= (uint8_t)~KM_SLAB_PARTIAL;
	km_list_del(&page->list);
}

/* A page for blocks of this list; lock held. */
static void add_page(struct kmem_cache *cache, struct km_page *page, enum km_slob_list list)
{
	count(cache, KMEM_ALLOC_SLAB);
	km_bump(&node_of(cache)->counts.new_slabs, 1);
	km_bump(&km_slob.pages, 1);
	list_page(page, &km_slob.list[list]);
}

/* One of the stock. False: there is none, of that node. Lock held. */
static bool add_stocked(struct kmem_cache *cache, const struct shape *shape)
{
	if (km_list_empty(&km_slob.stock))
		return false;
	struct km_page *page = km_list_first(&km_slob.stock, struct km_page, list);
	if (shape->node != NUMA_NO_NODE && page->node != shape->node)
		return false;
	km_list_del(&page->list);
	km_bump(&km_slob.stocked, -1);
	add_page(cache, page, shape->list);
	return true;
}

/* A page that is on no list and wholly free: it is kept, or the caller gives it back. Lock held. */
static struct km_page *drop_page(struct kmem_cache *cache, struct km_page *page, char *base)
{
	count(cache, KMEM_FREE_SLAB);
	km_bump(&node_of(cache)->counts.freed_slabs, 1);
	km_bump(&km_slob.pages, -1);
	clear_page(page, base);
	if (km_slob.stocked >= KM_SLOB_STOCK)
		return page;
	km_list_add_head(&page->list, &km_slob.stock);
	km_bump(&km_slob.stocked, 1);
	return NULL;
}

size_t km_slob_drop_stock(void)
{
	struct km_page *page[KM_SLOB_STOCK];
	unsigned pages = 0;

	km_lock(&km_slob.lock);
	for (; !km_list_empty(&km_slob.stock); pages++) {
		page[pages] = km_list_first(&km_slob.stock, struct km_page, list);
		km_list_del(&page[pages]->list);
	}
	km_store(&km_slob.stocked, (size_t)0);
	km_unlock(&km_slob.lock);
	for (unsigned i = 0; i < pages; i++)
		free_page(page[i]);
	return pages;
}

/* Next fit: the next search begins at this page. The head of the ring moves, not the page. */
static void begin_at(struct km_list *list, struct km_page *page)
{
	if (list->next == &page->list)
		return;
	km_list_del(list);
	km_list_insert(list, page->list.prev, &page->list);
}

/* A block from the pages of its list; NULL: none has room. Lock held. */
static void *take_block(struct kmem_cache *cache, const struct shape *shape)
{
	struct km_list *list = &km_slob.list[shape->list];

	km_list_for_each_safe(entry, list) {
		struct km_page *page = km_container_of(entry, struct km_page, list);

		/* Kernel: looks into every page that has the units. The same block is found. */
		if (page->largest < shape->units ||
		    (shape->node != NUMA_NO_NODE && page->node != shape->node))
			continue;
		char *base = base_of(page);
		unsigned unit = take_units(cache, page, base, shape);
		if (unit == NONE)
			continue;
		if (page->free_units)
			begin_at(list, page);
		else
			unlist_page(page);
		mark(page->marks->live, unit);
		if (shape->header) {
			mark(page->marks->other, unit);
			*(uint32_t *)(base + unit * KM_SLOB_UNIT) = shape->bytes;
		}
		km_bump(&km_slob.units, shape->units);
		km_bump(&km_slob.blocks, 1);
		return base + (unit + shape->header) * KM_SLOB_UNIT;
	}
	return NULL;
}

/* ------------------------------------------------------------------ take */

/* A freed object that kept its type; lock held. */
static void *take_typed(struct kmem_cache *cache, struct km_slob_node *n)
{
	void *object = n->typed;

	if (!object)
		return NULL;
	n->typed = *(void **)((char *)object + cache->freeptr);
	struct km_page *page = km_page_of(object);
	if (page->type == KM_PAGE_SLOB) {
		unsigned unit = ((uintptr_t)object & (KM_PAGE_SIZE - 1)) / KM_SLOB_UNIT;

		unmark(page->marks->other, unit);
		mark(page->marks->live, unit);
	} else {
		page->inuse = 1;
	}
	return object;
}

static unsigned take_some(struct kmem_cache *cache, const struct shape *shape, void **objects,
			  unsigned want)
{
	struct km_slob_node *n = node_of(cache);
	unsigned got = 0;

	for (; got < want; got++) {
		bool again = n->typed != NULL;

		objects[got] = again ? take_typed(cache, n) : take_block(cache, shape);
		if (!objects[got] && add_stocked(cache, shape))
			objects[got] = take_block(cache, shape);
		if (!objects[got])
			break;
		if (!again)
			km_bump(&n->counts.objects, 1);
	}
	km_bump(&n->counts.taken, got);
	return got;
}

/* One object in pages of its own, as the only one of a slab. */
static void *take_pages(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_slob_node *n = node_of(cache);

	if (!km_lock_may(&km_slob.lock, request->may_wait))
		return NULL;
	void *object = take_typed(cache, n);
	km_bump(&n->counts.taken, object != NULL);
	km_unlock_quick(&km_slob.lock);
	if (object)
		return object;
	struct km_page *slab = km_slab_new_raw(cache, request);
	if (!slab)
		return NULL;
	if (!km_lock_may(&km_slob.lock, request->may_wait)) {
		km_slab_free(cache, slab);
		return NULL;
	}
	slab->inuse = 1;
	km_bump(&n->counts.slabs, 1);
	km_bump(&n->counts.new_slabs, 1);
	km_bump(&n->counts.objects, 1);
	km_bump(&n->counts.taken, 1);
	km_unlock_quick(&km_slob.lock);
	return km_page_address(slab);
}

/* Up to BATCH objects; fewer: there is no memory, or no lock without waiting. */
static unsigned take_batch(struct kmem_cache *cache, const struct km_request *request,
			   const struct shape *shape, void **objects, unsigned want)
{
	struct km_page *page = NULL;
	unsigned got = 0;

	for (;;) {
		if (!km_lock_may(&km_slob.lock, request->may_wait))
			break;
		if (page)
			add_page(cache, page, shape->list);
		page = NULL;
		got += take_some(cache, shape, objects + got, want - got);
		km_unlock_quick(&km_slob.lock);
		if (got == want)
			break;
		/* The lock is not held while a page is got; it is ours until it is listed. */
		page = new_page(request);
		if (!page)
			break;
	}
	if (page)
		free_page(page);
	return got;
}

unsigned km_slob_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		      unsigned want)
{
	struct shape shape = shape_of(cache, request);
	unsigned got = 0;

	while (got < want) {
		unsigned some = km_min(want - got, BATCH), now;

		if (has_own_pages(cache))
			now = some = (objects[got] = take_pages(cache, request)) != NULL;
		else
			now = take_batch(cache, request, &shape, objects + got, some);
		got += now;
		if (!now || now < some)
			break;
	}
	/* Kernel: so, too, at every allocation: a free object's content is lost. */
	if (km_unlikely(cache->ctor))
		for (unsigned i = 0; i < got; i++)
			cache->ctor(objects[i]);
	return got;
}

/* ------------------------------------------------------------------ what is wrong with an address */

/* Is the unit in a free block? Lock held. */
static bool is_free(const struct km_page *page, char *base, unsigned unit)
{
	unsigned before, after;

	if (page->flags & KM_SLAB_DEAD || !neighbours(page, base, unit, &before, &after))
		return false;
	return after == unit || (before != NONE && before + free_at(base, before)->units > unit);
}

/* Why p can't be freed: as kmalloc's (sized), or as an object of a cache. Lock held. */
static enum km_misuse mistake(struct km_page *page, const void *p, bool sized)
{
	unsigned offset = (uintptr_t)p & (KM_PAGE_SIZE - 1), unit = offset / KM_SLOB_UNIT;
	char *base = (char *)((uintptr_t)p - offset);

	if (page->type != KM_PAGE_SLOB)
		return KM_MISUSE_FOREIGN;
	if (offset % KM_SLOB_UNIT)
		return KM_MISUSE_INTERIOR;
	bool live = marked(page->marks->live, unit), other = marked(page->marks->other, unit);
	if ((other && !live) || is_free(page, base, unit))
		return KM_MISUSE_DOUBLE_FREE;
	if (live && !other && sized)
		return KM_MISUSE_NOT_KMALLOC;
	if (!live && !sized && unit && marked(page->marks->live, unit - 1) &&
	    marked(page->marks->other, unit - 1))
		return KM_MISUSE_WRONG_CACHE;
	return KM_MISUSE_INTERIOR;
}

bool km_slob_is_sized(const struct km_page *page, const void *p)
{
	unsigned offset = (uintptr_t)p & (KM_PAGE_SIZE - 1), unit = offset / KM_SLOB_UNIT - 1;

	return offset % KM_SLOB_UNIT == 0 && offset && marked(page->marks->live, unit) &&
	       marked(page->marks->other, unit);
}

enum km_misuse km_slob_mistake(struct km_page *page, const void *p)
{
	km_lock(&km_slob.lock);
	enum km_misuse what = mistake(page, p, true);
	km_unlock(&km_slob.lock);
	return what;
}

/* ------------------------------------------------------------------ give */

#define NO_MISTAKE KM_NR_MISUSES

/* Its memory keeps its type, and waits for the next of its cache; lock held. */
static void put_typed(struct kmem_cache *cache, void *object)
{
	struct km_slob_node *n = node_of(cache);

	*(void **)((char *)object + cache->freeptr) = n->typed;
	n->typed = object;
	km_bump(&n->counts.taken, -1);
}

/* [unit, unit + units) is free from now on. Returns a page for the caller to give back. */
static struct km_page *put_units(struct kmem_cache *cache, struct km_page *page, char *base,
				 unsigned before, unsigned unit, unsigned units, unsigned after,
				 enum km_slob_list list)
{
	unmark(page->marks->live, unit);
	if (is_sized(cache))
		unmark(page->marks->other, unit);
	km_bump(&km_slob.units, -(size_t)units);
	km_bump(&km_slob.blocks, -1);
	if (page->free_units + units == KM_SLOB_UNITS) {
		if (page->free_units)
			unlist_page(page);
		return drop_page(cache, page, base);
	}
	if (!page->free_units) {
		count(cache, KMEM_FREE_ADD_PARTIAL);
		list_page(page, &km_slob.list[list]);
	}
	join(page, base, before, unit, units, after);
	return NULL;
}

/* Take a block back. Lock held; NO_MISTAKE, or what is wrong with it. */
static enum km_misuse put_block(struct kmem_cache *cache, struct km_page *page, void *object,
				struct km_page **empty)
{
	bool sized = is_sized(cache);
	unsigned offset = (uintptr_t)object & (KM_PAGE_SIZE - 1), before, after;
	unsigned unit = offset / KM_SLOB_UNIT - sized;
	char *base = (char *)object - offset;

	if (km_unlikely(page->type != KM_PAGE_SLOB || offset % KM_SLOB_UNIT || unit >= KM_SLOB_UNITS ||
			!marked(page->marks->live, unit) ||
			marked(page->marks->other, unit) != sized))
		return mistake(page, object, sized);
	uint32_t bytes = sized ? *(uint32_t *)(base + unit * KM_SLOB_UNIT) + KM_SLOB_HEADER :
				 cache->size;
	unsigned units = (unsigned)(((uint64_t)bytes + KM_SLOB_UNIT - 1) / KM_SLOB_UNIT);
	if (km_unlikely(page->flags & KM_SLAB_DEAD)) {
		unmark(page->marks->live, unit);
	} else if (km_unlikely(!neighbours(page, base, unit, &before, &after))) {
		bury(cache, page, base);
		unmark(page->marks->live, unit);
	} else {
		/* It ends where a live block begins, or a free one, or the page ends: nowhere else. */
		if (km_unlikely(unit + units != next_marked(page->marks, unit + 1, after)))
			return sized ? KM_MISUSE_HEADER : KM_MISUSE_WRONG_CACHE;
		if (km_unlikely(cache->flags & SLAB_TYPESAFE_BY_RCU)) {
			unmark(page->marks->live, unit);
			mark(page->marks->other, unit);
			put_typed(cache, object);
			return NO_MISTAKE;
		}
		*empty = put_units(cache, page, base, before, unit, units, after,
				   km_slob_list_of(bytes));
	}
	km_bump(&node_of(cache)->counts.taken, -1);
	km_bump(&node_of(cache)->counts.objects, -1);
	return NO_MISTAKE;
}

static const char *freed_by(const struct kmem_cache *cache)
{
	return is_sized(cache) ? "kfree" : "kmem_cache_free";
}

/* Up to BATCH objects under one lock; pages and complaints when it is free again. */
static void give_batch(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct { enum km_misuse what; void *object; } wrong[BATCH];
	struct km_page *empty[BATCH];
	unsigned pages = 0, mistakes = 0;

	km_lock(&km_slob.lock);
	for (unsigned i = 0; i < count; i++) {
		struct km_page *page = km_page_of(objects[i]), *emptied = NULL;
		enum km_misuse what = page && page->type == KM_PAGE_SLOB ?
					      put_block(cache, page, objects[i], &emptied) :
					      KM_MISUSE_FOREIGN;

		if (emptied)
			empty[pages++] = emptied;
		if (km_unlikely(what != NO_MISTAKE)) {
			wrong[mistakes].what = what;
			wrong[mistakes++].object = objects[i];
		}
	}
	km_unlock_quick(&km_slob.lock);
	for (unsigned i = 0; i < pages; i++)
		free_page(empty[i]);
	for (unsigned i = 0; i < mistakes; i++) {
		int index;

		/* Not in a page of slob: whose it is then, is what layout.c finds out. */
		if (wrong[i].what == KM_MISUSE_FOREIGN)
			km_slab_of(cache, wrong[i].object, &index, freed_by(cache));
		else
			km_misuse(wrong[i].what, freed_by(cache), wrong[i].object, cache->name);
	}
}

static void give_pages(struct kmem_cache *cache, void *object)
{
	struct km_slob_node *n = node_of(cache);
	int index;
	struct km_page *slab = km_slab_of(cache, object, &index, "kmem_cache_free");

	if (!slab)
		return;
	bool keep = cache->flags & SLAB_TYPESAFE_BY_RCU;
	km_lock(&km_slob.lock);
	bool live = slab->inuse;
	slab->inuse = 0;
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
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->name);
	else if (!keep)
		km_slab_free(cache, slab);
}

void km_slob_give(struct kmem_cache *cache, void **objects, unsigned count)
{
	if (has_own_pages(cache)) {
		for (unsigned i = 0; i < count; i++)
			give_pages(cache, objects[i]);
		return;
	}
	for (unsigned now; count; count -= now, objects += now) {
		now = km_min(count, BATCH);
		give_batch(cache, objects, now);
	}
}

void km_slob_give_typed(struct kmem_cache *cache)
{
	struct km_slob_node *n = node_of(cache);

	for (;;) {
		km_lock(&km_slob.lock);
		void *object = take_typed(cache, n);
		km_bump(&n->counts.taken, object != NULL);
		km_unlock(&km_slob.lock);
		if (!object)
			return;
		km_slob_give(cache, &object, 1);
	}
}
