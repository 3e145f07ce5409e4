/*
 * sheaf.c: SLUB as it is since Linux 7.0: CPUs' sheaves (here: blocks, port/pcpu.h) in front, a barn of full and
 * empty ones per node, slabs behind.
 *
 *	CPU shelf (main, partner)  <->  barn (<= 10 full, <= 10 empty)  <->  partial slabs  <->  pages
 *
 * A slab knows its free objects by a bit each, in the descriptors of its pages or, for objects under 32 bytes,
 * behind the last object; a free object's memory is never touched by us, so a refill and a spill stay out of cold
 * memory, and an object that is freed twice is found when it comes back. Kernel: a freelist through the objects.
 *
 * Invariants, under the node's lock: a slab is on the partial list iff it has a free object (bit set); inuse is
 * the number of clear bits; a slab whose objects are all free stays only while there are at most min_partial on the
 * list, or while its memory must keep its type. Under the barn's lock: blocks on `full` hold at least what was a
 * full block when they came, those on `empty` none. The two locks are never held together.
 */
#include <errno.h>

#include "../page/meta.h"
#include "../port/bits.h"
#include "../port/die.h"
#include "engine.h"

#define MAX_FULL_BLOCKS		10u	/* Kernel: MAX_FULL_SHEAVES */
#define MAX_EMPTY_BLOCKS	10u	/* Kernel: MAX_EMPTY_SHEAVES */
#define MAX_BARN_BYTES		((size_t)256 << 10)
#define MANY_SWINGS		64u	/* between two looks of reclaim; a burst of threads makes a few */
#define GIVE_BATCH		32u	/* objects validated before the lock is taken. Kernel: PCS_BATCH_MAX */
#define PROMOTE_MAX		32u	/* Kernel: SHRINK_PROMOTE_MAX */
#define MIN_OBJECTS		16u	/* per slab, where an order <= MAX_SLAB_ORDER can: an object that lies ready
					 * keeps its slab, and with 64 four times the memory stayed (docs/decisions) */
#define MAX_SLAB_ORDER		3u

struct barn {
	struct km_lock lock;
	uint32_t full_count, empty_count;
	void **full, **empty;		/* linked by their headers */
	size_t objects;			/* in the full ones */
	size_t most;			/* objects it may keep; 0: not grown */
	uint32_t swings;		/* from empty to overflowing, since the last reap */
	bool touched;			/* since the last reap */
	bool starved;			/* it was empty since it last overflowed */
	uint64_t gets, puts;		/* events, here because the line is in hand */
};

struct sheaf_node {
	struct km_node_counts counts;	/* protected by lock */
	struct km_lock lock;
	struct km_list partial;		/* protected by lock */
	struct barn barn km_aligned(64);
};
_Static_assert(offsetof(struct sheaf_node, counts) == 0, "readers find it there");

static struct sheaf_node *node_of(const struct kmem_cache *cache, unsigned node)
{
	return cache->node[node];
}

/* ------------------------------------------------------------------ layout */

/*
 * Kernel: 60, 28, 12, 4; ours fill a power of two together with the NULL and the header. A cache that misses often
 * grows to blocks of 16 KiB of objects, one that is used in bulk to 32 KiB (front/miss.c), and comes back when it has
 * been idle.
 */
static unsigned capacity_by_size(uint32_t size)
{
	if (size > 2 * KM_PAGE_SIZE)
		return 2;
	if (size >= KM_PAGE_SIZE)
		return 6;
	if (size >= 1024)
		return 14;
	return size >= 256 ? 30 : 62;
}

/* The largest of 126, 62, 30, ... that keeps a block of objects within `bytes`. */
static unsigned capacity_within(uint32_t size, uint32_t bytes)
{
	unsigned capacity = 126;

	while (capacity > 2 && capacity * size > bytes)
		capacity = (capacity + 2) / 2 - 2;
	return capacity;
}

static uint32_t objects_with_tail_bits(uint32_t slab_bytes, uint32_t size)
{
	uint32_t objects = (uint32_t)((uint64_t)slab_bytes * 8 / (size * 8 + 1));

	while (objects * size + (objects + 63) / 64 * 8 > slab_bytes)
		objects--;
	return objects;
}

static int sheaf_layout(struct kmem_cache *cache, const struct kmem_cache_args *args)
{
	unsigned max_order = km_layout_options.max_order ?: MAX_SLAB_ORDER;

	cache->order = (uint8_t)km_layout_order(cache->size,
						km_layout_options.min_objects ?: MIN_OBJECTS,
						max_order);
	/* Objects of more than half of a largest slab: a larger slab still, if that wastes less. */
	uint32_t bytes = (uint32_t)(KM_PAGE_SIZE << cache->order);
	while (cache->size > KM_PAGE_SIZE && cache->order < km_min(max_order + 2, KM_MAX_ORDER) &&
	       bytes % cache->size > bytes / 8)
		bytes = (uint32_t)(KM_PAGE_SIZE << ++cache->order);
	cache->tail_bits = cache->size < 32;
	cache->objects = cache->tail_bits ? objects_with_tail_bits(bytes, cache->size) :
					    bytes / cache->size;
	/* A slab of the lowest order is cut by the same rule as one of the usual order, or not at all. */
	if (cache->tail_bits)
		cache->min_order = cache->order;
	cache->capacity = (uint16_t)km_max(capacity_by_size(cache->size), args->sheaf_capacity);
	cache->busy_capacity = (uint16_t)km_max(capacity_within(cache->size, 16u << 10),
						(unsigned)cache->capacity);
	/* The memory of a block follows this, and many blocks of 1 KiB have their tops in the same few lines of a
	 * cache: a program's sizes, used together and seldom in bulk, do with less. */
	cache->max_capacity = cache->flags & SLAB_KMALLOC ? cache->busy_capacity :
			      (uint16_t)km_max(capacity_within(cache->size, 32u << 10),
					       (unsigned)cache->capacity);
	return 0;
}

static int sheaf_node_init(struct kmem_cache *cache, unsigned node)
{
	struct sheaf_node *n = cache->node[node];

	km_lock_init(&n->barn.lock, KM_RANK_BARN);
	km_lock_init(&n->lock, KM_RANK_NODE);
	km_list_init(&n->partial);
	n->counts.barn_objects = &n->barn.objects;
	return 0;
}

static void sheaf_node_fini(struct kmem_cache *cache, unsigned node)
{
	(void)cache;
	(void)node;
}

/* ------------------------------------------------------------------ slabs and their bits */

static uint64_t *bits_of(const struct kmem_cache *cache, struct km_page *slab, const char *address,
			 unsigned word)
{
	if (cache->tail_bits) {
		const char *end = address + (KM_PAGE_SIZE << slab->order);

		return (uint64_t *)end - (slab->objects + 63) / 64 + word;
	}
	return &slab[word / 2].bits[word % 2];
}

static struct km_page *new_slab(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_page *slab = km_slab_new(cache, request);

	if (!slab)
		return NULL;
	char *address = km_page_address(slab);
	for (unsigned left = slab->objects, word = 0; left; word++) {
		unsigned here = km_min(left, 64u);

		*bits_of(cache, slab, address, word) = here == 64 ? UINT64_MAX :
								    ((uint64_t)1 << here) - 1;
		left -= here;
	}
	return slab;
}

/* Move up to `want` free objects of the slab to `objects`, lowest address first. */
static unsigned take_from(struct kmem_cache *cache, struct km_page *slab, void **objects,
			  unsigned want)
{
	char *address = km_page_address(slab);
	unsigned got = 0, words = (slab->objects + 63u) / 64;

	for (unsigned word = 0; word < words && got < want; word++) {
		uint64_t *bits = bits_of(cache, slab, address, word), left = *bits;

		for (; left && got < want; left &= left - 1) {
			unsigned index = word * 64 + (unsigned)__builtin_ctzll(left);

			objects[got++] = address + (size_t)index * cache->size;
		}
		*bits = left;
	}
	slab->inuse = (uint16_t)(slab->inuse + got);
	return got;
}

static void list_partial(struct sheaf_node *n, struct km_page *slab)
{
	slab->flags |= KM_SLAB_PARTIAL;
	km_list_add_head(&slab->list, &n->partial);
	km_bump(&n->counts.partial, 1);
}

static void unlist_partial(struct sheaf_node *n, struct km_page *slab)
{
	slab->flags &= (uint8_t)~KM_SLAB_PARTIAL;
	km_list_del(&slab->list);
	km_bump(&n->counts.partial, -1);
}

static unsigned take_partial(struct kmem_cache *cache, struct sheaf_node *n, void **objects,
			     unsigned want)
{
	unsigned got = 0;

	while (got < want && !km_list_empty(&n->partial)) {
		struct km_page *slab = km_list_first(&n->partial, struct km_page, list);

		got += take_from(cache, slab, objects + got, want - got);
		if (slab->inuse == slab->objects)
			unlist_partial(n, slab);
	}
	km_bump(&n->counts.taken, got);
	return got;
}

static unsigned sheaf_take(struct kmem_cache *cache, const struct km_request *request,
			   void **objects, unsigned want)
{
	struct sheaf_node *n = node_of(cache, 0);
	unsigned got = 0;

	while (got < want) {
		if (!km_lock_may(&n->lock, request->may_wait))
			break;
		got += take_partial(cache, n, objects + got, want - got);
		km_unlock_may(&n->lock, request->may_wait);
		if (got == want)
			break;
		/* The lock is not held while pages are got; the slab is ours until it is listed. */
		struct km_page *slab = new_slab(cache, request);
		if (!slab)
			break;
		if (!km_lock_may(&n->lock, request->may_wait)) {
			km_slab_free(cache, slab);
			break;
		}
		km_bump(&n->counts.slabs, 1);
		km_bump(&n->counts.new_slabs, 1);
		km_bump(&n->counts.objects, slab->objects);
		unsigned from_new = take_from(cache, slab, objects + got, want - got);
		km_bump(&n->counts.taken, from_new);
		got += from_new;
		if (slab->inuse < slab->objects)
			list_partial(n, slab);
		km_unlock_may(&n->lock, request->may_wait);
	}
	return got;
}

/* An all-free slab goes if there are enough partial ones without it; lock held. True: the caller frees it. */
static bool drop_if_empty(struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab,
			  unsigned long keep)
{
	if (slab->inuse || n->counts.partial <= keep || (cache->flags & SLAB_TYPESAFE_BY_RCU))
		return false;
	unlist_partial(n, slab);
	km_bump(&n->counts.slabs, -1);
	km_bump(&n->counts.freed_slabs, 1);
	km_bump(&n->counts.objects, -(slab->objects));
	return true;
}

/* Put one object back; lock held. False: it was free already. */
static bool put_back(struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab,
		     unsigned index)
{
	uint64_t bit = (uint64_t)1 << index % 64, *bits;

	bits = bits_of(cache, slab, cache->tail_bits ? km_page_address(slab) : NULL, index / 64);
	if (km_unlikely(*bits & bit))
		return false;
	*bits |= bit;
	km_bump(&n->counts.taken, -1);
	if (slab->inuse-- == slab->objects)
		list_partial(n, slab);
	return true;
}

struct candidate {
	struct km_page *slab;
	void *object;
	unsigned index;
};

static void give_batch(struct kmem_cache *cache, struct candidate *candidates, unsigned count)
{
	struct sheaf_node *n = node_of(cache, 0);
	struct km_page *empty[GIVE_BATCH];
	unsigned empty_count = 0, twice = 0;

	km_lock(&n->lock);
	for (unsigned i = 0; i < count; i++) {
		struct km_page *slab = candidates[i].slab;

		if (!put_back(cache, n, slab, candidates[i].index))
			candidates[twice++] = candidates[i];
		else if (drop_if_empty(cache, n, slab, km_load(&cache->min_partial)))
			empty[empty_count++] = slab;
	}
	km_unlock(&n->lock);
	for (unsigned i = 0; i < empty_count; i++)
		km_slab_free(cache, empty[i]);
	for (unsigned i = 0; i < twice; i++)
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", candidates[i].object,
			  cache->name);
}

static void sheaf_give(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct candidate candidates[GIVE_BATCH];
	unsigned ready = 0;

	for (unsigned i = 0; i < count; i++) {
		struct candidate *c = &candidates[ready];
		int index;

		c->slab = km_slab_of(cache, objects[i], &index, "kmem_cache_free");
		if (!c->slab)
			continue;
		__builtin_prefetch(c->slab, 1);
		c->object = objects[i];
		c->index = (unsigned)index;
		if (++ready == GIVE_BATCH) {
			give_batch(cache, candidates, ready);
			ready = 0;
		}
	}
	if (ready)
		give_batch(cache, candidates, ready);
}

/* ------------------------------------------------------------------ the barn */

static void **new_block(struct kmem_cache *cache, bool may_wait)
{
	/* A bulk that may not call the system gives back what it got without. */
	may_wait &= !km_no_calls;
	char *base = km_meta_alloc((size_t)cache->shelf.block_mask + 1, may_wait);

	/* Zero, so the NULL at the bottom of the stack is there. */
	return base ? km_block_bottom(&cache->shelf, (void **)base) : NULL;
}

static void free_block(struct kmem_cache *cache, void **block)
{
	km_meta_free(km_block_base(&cache->shelf, block), (size_t)cache->shelf.block_mask + 1);
}

static void **pop_block(const struct kmem_cache *cache, void ***list)
{
	void **block = *list;

	if (block)
		*list = (void **)(uintptr_t)*km_block_header(&cache->shelf, block);
	return block;
}

static void push_block(const struct kmem_cache *cache, void ***list, void **block)
{
	km_store(km_block_header(&cache->shelf, block), (uint64_t)(uintptr_t)*list);
	*list = block;
}

/* Under the barn's lock. */
static void **pop_full(const struct kmem_cache *cache, struct barn *barn)
{
	void **block = pop_block(cache, &barn->full);

	if (block) {
		km_bump(&barn->full_count, -1);
		km_bump(&barn->objects, -(km_block_count(&cache->shelf, block)));
	}
	return block;
}

/* Ten full blocks of the size that the cache began with, of large objects one or two. */
static size_t barn_most_at_first(const struct kmem_cache *cache)
{
	return km_min((size_t)MAX_FULL_BLOCKS * cache->capacity,
		      km_max(MAX_BARN_BYTES / cache->size, (size_t)cache->capacity));
}

static bool barn_has_room(const struct kmem_cache *cache, const struct barn *barn)
{
	return barn->objects < (barn->most ?: barn_most_at_first(cache));
}

/*
 * It overflows, and ran empty not long ago: objects that one CPU frees in bursts and another takes go through the slabs
 * and back. Where that keeps happening twice as many may wait, up to 256 KiB, until the cache is idle. Kernel: ten,
 * always.
 */
static void barn_overflows(const struct kmem_cache *cache, struct barn *barn)
{
	size_t most = barn->most ?: barn_most_at_first(cache);

	km_store(&barn->swings, barn->swings + km_load(&barn->starved));
	km_store(&barn->starved, false);
	if (barn->swings < MANY_SWINGS)
		return;
	km_store(&barn->swings, 0u);
	if (most * cache->size < MAX_BARN_BYTES)
		barn->most = most * 2;
}

static bool push_full(const struct kmem_cache *cache, struct barn *barn, void **block)
{
	if (!barn_has_room(cache, barn))
		return false;
	push_block(cache, &barn->full, block);
	km_bump(&barn->full_count, 1);
	km_bump(&barn->objects, km_block_count(&cache->shelf, block));
	return true;
}

static void **pop_empty(const struct kmem_cache *cache, struct barn *barn)
{
	void **block = pop_block(cache, &barn->empty);

	km_bump(&barn->empty_count, -(block != NULL));
	return block;
}

static bool push_empty(const struct kmem_cache *cache, struct barn *barn, void **block)
{
	if (barn->empty_count >= MAX_EMPTY_BLOCKS && !barn->most)
		return false;
	push_block(cache, &barn->empty, block);
	km_bump(&barn->empty_count, 1);
	return true;
}

static void keep_empty(struct kmem_cache *cache, struct barn *barn, void **block, bool may_wait)
{
	if (!block || !km_lock_may(&barn->lock, may_wait))
		goto release;
	bool keep = push_empty(cache, barn, block);
	km_unlock_may(&barn->lock, may_wait);
	if (keep)
		return;
release:
	if (block)
		free_block(cache, block);
}

/* Fill an empty block from slabs; NULL where there is nothing, and the block is still the caller's. */
static void **fill(struct kmem_cache *cache, const struct km_request *request, void **block)
{
	void **bottom = km_block_bottom(&cache->shelf, block);
	unsigned capacity = km_mask_capacity(km_front_mask(cache));
	unsigned got = sheaf_take(cache, request, bottom - capacity, capacity);

	if (!got)
		return NULL;
	if (got < capacity)
		__builtin_memmove(bottom - got, bottom - capacity, got * sizeof(*bottom));
	km_count(cache, KMEM_SHEAF_REFILL);
	return bottom - got;
}

static void **sheaf_refill(struct kmem_cache *cache, const struct km_request *request, void **empty)
{
	struct barn *barn = &node_of(cache, 0)->barn;
	void **block = NULL;

	if (km_load(&barn->full_count) && km_lock_may(&barn->lock, request->may_wait)) {
		km_store(&barn->touched, true);
		block = pop_full(cache, barn);
		barn->gets += block != NULL;
		if (block && empty && push_empty(cache, barn, empty))
			empty = NULL;
		km_unlock_may(&barn->lock, request->may_wait);
	}
	if (block) {
		if (empty)
			free_block(cache, empty);
		return block;
	}
	km_store(&barn->starved, true);
	km_count(cache, KMEM_BARN_GET_FAIL);
	void **room = empty;
	if (!room && km_load(&barn->empty_count) && km_lock_may(&barn->lock, request->may_wait)) {
		room = pop_empty(cache, barn);
		km_unlock_may(&barn->lock, request->may_wait);
	}
	if (!room)
		room = new_block(cache, request->may_wait);
	if (!room)
		return NULL;
	block = fill(cache, request, room);
	if (!block && !empty)
		keep_empty(cache, barn, room, request->may_wait);
	return block;
}

static void **any_empty(struct kmem_cache *cache, struct barn *barn)
{
	km_lock(&barn->lock);
	void **empty = pop_empty(cache, barn);
	km_unlock(&barn->lock);
	return empty ?: new_block(cache, true);
}

static void **sheaf_spill(struct kmem_cache *cache, void **full)
{
	struct barn *barn = &node_of(cache, 0)->barn;
	void **empty = NULL;
	bool kept = false;

	if (!full)
		return any_empty(cache, barn);
	km_lock(&barn->lock);
	km_store(&barn->touched, true);
	if (barn_has_room(cache, barn)) {
		empty = pop_empty(cache, barn);
		kept = empty && push_full(cache, barn, full);
	}
	bool room = barn_has_room(cache, barn);
	barn->puts += kept;
	if (!kept && !room)
		barn_overflows(cache, barn);
	km_unlock(&barn->lock);
	if (kept)
		return empty;
	if (room && (empty = new_block(cache, true))) {
		km_lock(&barn->lock);
		kept = push_full(cache, barn, full);
		barn->puts += kept;
		km_unlock(&barn->lock);
		if (kept)
			return empty;
		free_block(cache, empty);
	}
	km_count(cache, KMEM_BARN_PUT_FAIL);
	km_count(cache, KMEM_SHEAF_FLUSH);
	sheaf_give(cache, full, (unsigned)km_block_count(&cache->shelf, full));
	return km_block_bottom(&cache->shelf, full);
}

static void sheaf_retire(struct kmem_cache *cache, void **block)
{
	struct barn *barn = &node_of(cache, 0)->barn;
	size_t count = km_block_count(&cache->shelf, block);
	bool kept = false;

	if (count >= km_mask_capacity(km_front_mask(cache))) {
		km_lock(&barn->lock);
		kept = push_full(cache, barn, block);
		km_unlock(&barn->lock);
		if (kept)
			return;
	}
	if (count) {
		km_count(cache, KMEM_SHEAF_FLUSH);
		sheaf_give(cache, block, (unsigned)count);
	}
	keep_empty(cache, barn, km_block_bottom(&cache->shelf, block), true);
}

static bool sheaf_has_room(struct kmem_cache *cache)
{
	struct barn *barn = &node_of(cache, 0)->barn;

	km_lock(&barn->lock);
	bool room = barn_has_room(cache, barn);
	km_unlock(&barn->lock);
	return room;
}

static void flush_barn(struct kmem_cache *cache, struct barn *barn)
{
	km_lock(&barn->lock);
	void **full = barn->full, **empty = barn->empty;
	barn->full = barn->empty = NULL;
	km_store(&barn->full_count, 0u);
	km_store(&barn->empty_count, 0u);
	km_store(&barn->objects, (size_t)0);
	km_unlock(&barn->lock);

	for (void **block; (block = pop_block(cache, &full));) {
		sheaf_give(cache, block, (unsigned)km_block_count(&cache->shelf, block));
		free_block(cache, block);
	}
	for (void **block; (block = pop_block(cache, &empty));)
		free_block(cache, block);
}

/* ------------------------------------------------------------------ shrinking and looking */

/* Take empty slabs beyond `keep` off and free them, a few at a time; returns how many. */
static size_t free_empty(struct kmem_cache *cache, struct sheaf_node *n, unsigned long keep)
{
	size_t total = 0;
	unsigned count;

	do {
		struct km_page *empty[64];

		count = 0;
		km_lock(&n->lock);
		km_list_for_each_safe(entry, &n->partial) {
			struct km_page *slab = km_container_of(entry, struct km_page, list);

			if (count < km_array_count(empty) && drop_if_empty(cache, n, slab, keep))
				empty[count++] = slab;
		}
		km_unlock(&n->lock);
		for (unsigned i = 0; i < count; i++)
			km_slab_free(cache, empty[i]);
		total += count;
	} while (count == 64);
	return total;
}

/* Kernel: slabs with at most 32 free objects to the head, fullest first. */
static void sort_partial(struct sheaf_node *n)
{
	struct km_list promote[PROMOTE_MAX];

	for (unsigned i = 0; i < PROMOTE_MAX; i++)
		km_list_init(&promote[i]);
	km_lock(&n->lock);
	km_list_for_each_safe(entry, &n->partial) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);
		unsigned free = (unsigned)(slab->objects - slab->inuse);

		if (free <= PROMOTE_MAX) {
			km_list_del(entry);
			km_list_add_head(entry, &promote[free - 1]);
		}
	}
	for (unsigned i = PROMOTE_MAX; i-- > 0;)
		km_list_for_each_safe(entry, &promote[i]) {
			km_list_del(entry);
			km_list_add_head(entry, &n->partial);
		}
	km_unlock(&n->lock);
}

static size_t sheaf_shrink(struct kmem_cache *cache)
{
	struct sheaf_node *n = node_of(cache, 0);

	flush_barn(cache, &n->barn);
	size_t freed = free_empty(cache, n, 0);
	sort_partial(n);
	return freed;
}

/* Kernel: nothing of the kind; SLAB's reaping is the model. What lay untouched since the last call goes. */
static size_t sheaf_reap(struct kmem_cache *cache)
{
	struct sheaf_node *n = node_of(cache, 0);
	bool idle = !km_load(&n->barn.touched);

	km_store(&n->barn.touched, false);
	km_store(&n->barn.swings, 0u);
	if (idle) {
		km_store(&n->barn.most, (size_t)0);
		flush_barn(cache, &n->barn);
	}
	return free_empty(cache, n, idle ? 0 : km_load(&cache->min_partial));
}

static bool sheaf_is_taken(struct kmem_cache *cache, struct km_page *slab, unsigned index)
{
	uint64_t *bits = bits_of(cache, slab, km_page_address(slab), index / 64);

	return !(km_load(bits) >> index % 64 & 1);
}

static void sheaf_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	struct sheaf_node *n = node_of(cache, 0);

	stats->total_slabs = km_load(&n->counts.slabs);
	stats->total_objects = km_load(&n->counts.objects);
	stats->partial_slabs = km_load(&n->counts.partial);
	stats->shelf_objects += km_load(&n->barn.objects);
	stats->active_objects = km_load(&n->counts.taken);
	stats->alloc_slab = km_load(&n->counts.new_slabs);
	stats->free_slab = km_load(&n->counts.freed_slabs);
}

static int check_slab(struct kmem_cache *cache, struct km_page *slab)
{
	unsigned free = 0;

	for (unsigned i = 0; i < slab->objects; i++)
		free += !sheaf_is_taken(cache, slab, i);
	if (free == (unsigned)(slab->objects - slab->inuse) && slab->cache == cache &&
	    slab->type == KM_PAGE_SLAB && free)
		return 0;
	km_warn("check: %s: slab %p says %u of %u taken, bits say %u free", cache->name,
		km_page_address(slab), slab->inuse, slab->objects, free);
	return 1;
}

static int sheaf_check(struct kmem_cache *cache)
{
	struct sheaf_node *n = node_of(cache, 0);
	size_t partial = 0;
	int damages = 0;

	km_list_for_each(entry, &n->partial) {
		damages += check_slab(cache, km_container_of(entry, struct km_page, list));
		partial++;
	}
	if (partial != n->counts.partial || n->counts.taken > n->counts.objects) {
		km_warn("check: %s: %lu partial slabs, kept %lu; %lu of %lu objects taken",
			cache->name, partial, n->counts.partial, n->counts.taken, n->counts.objects);
		damages++;
	}
	return damages;
}

static unsigned long sheaf_event(struct kmem_cache *cache, enum kmem_event event)
{
	struct barn *barn = &node_of(cache, 0)->barn;

	return event == KMEM_BARN_GET ? km_load(&barn->gets) :
	       event == KMEM_BARN_PUT ? km_load(&barn->puts) : 0;
}

static void sheaf_clear_events(struct kmem_cache *cache)
{
	struct barn *barn = &node_of(cache, 0)->barn;

	km_lock(&barn->lock);
	barn->gets = barn->puts = 0;
	km_unlock(&barn->lock);
}

static void sheaf_fork(struct kmem_cache *cache, bool before, bool child)
{
	struct sheaf_node *n = node_of(cache, 0);
	struct km_lock *locks[] = { &n->lock, &n->barn.lock };

	for (unsigned i = 0; i < km_array_count(locks); i++) {
		if (before)
			km_lock_fork(locks[i]);
		else if (child)
			locks[i]->state = 0;
		else
			km_unlock_fork(locks[i]);
	}
}

const struct km_engine km_engine_sheaf = {
	.name = "sheaf",
	.front = KM_FRONT_ARRAY,
	.node_bytes = sizeof(struct sheaf_node),
	.layout = sheaf_layout,
	.node_init = sheaf_node_init,
	.node_fini = sheaf_node_fini,
	.take = sheaf_take,
	.give = sheaf_give,
	.refill = sheaf_refill,
	.spill = sheaf_spill,
	.retire = sheaf_retire,
	.has_room = sheaf_has_room,
	.shrink = sheaf_shrink,
	.reap = sheaf_reap,
	.is_taken = sheaf_is_taken,
	.stats = sheaf_stats,
	.check = sheaf_check,
	.fork = sheaf_fork,
	.event = sheaf_event,
	.clear_events = sheaf_clear_events,
};
