/*
 * sheaf_cache.c: the engine sheaf's functions on caches: layout, creation, destruction, shrink, statistics and
 * checks. sheaf.c has the functions on objects. Invariant: a node's lists and counts change under the node's
 * locks; a loop over nodes holds the locks of one node at a time, except around fork.
 */
#include <errno.h>

#include "page/metadata.h"
#include "base/bits.h"
#include "os/die.h"
#include "sheaf.h"

#define MIN_OBJECTS		16u	/* least objects of a slab, if an order up to MAX_SLAB_ORDER allows. A cached
					 * object keeps its slab: with 64, four times the memory stayed
					 * (docs/theory.md) */
#define MAX_SLAB_ORDER		3u

/* ------------------------------------------------------------------ layout */

/* Returns: the first capacity of sheaves for objects of this size (kernel: 60, 28, 12, 4). Objects, the NULL and the
 * header fill a power of two. After many misses or bulk requests the capacity grows to 32 KiB of objects, 128 KiB for
 * objects above two pages (alloc/slow_path.c). An idle cache shrinks to this capacity again. */
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

/* Returns the first capacity of the row `most`, (most - 2) / 2, ... whose objects fit into `bytes`. */
static unsigned capacity_within(unsigned most, uint32_t size, uint32_t bytes)
{
	while (most > 2 && most * size > bytes)
		most = (most + 2) / 2 - 2;
	return most;
}

static uint32_t objects_with_tail_bits(uint32_t slab_bytes, uint32_t size)
{
	uint32_t objects = (uint32_t)((uint64_t)slab_bytes * 8 / (size * 8 + 1));

	while (objects * size + (objects + 63) / 64 * 8 > slab_bytes)
		objects--;
	return objects;
}

/* Returns the lowest order that wastes at most a 64th of the slab, else the order that wastes the smallest part. */
static unsigned dense_order(uint32_t size, unsigned order, unsigned most)
{
	unsigned best = order;

	most = km_min(most + (size > 2 * KM_PAGE_SIZE ? 4u : 2u), KM_MAX_ORDER);
	for (; order <= most; order++) {
		size_t bytes = KM_PAGE_SIZE << order;

		if (bytes % size <= bytes / 64)
			return order;
		if (bytes % size < ((KM_PAGE_SIZE << best) % size) << (order - best))
			best = order;
	}
	return best;
}

static int sheaf_layout(struct kmem_cache *cache, const struct kmem_cache_args *args)
{
	const unsigned max_order = km_layout_options.max_order ?: MAX_SLAB_ORDER;
	const uint32_t size = cache->layout.size;
	unsigned order = km_layout_order(size, km_layout_options.min_objects ?: MIN_OBJECTS, max_order);
	uint32_t bytes = (uint32_t)(KM_PAGE_SIZE << order), left = bytes % size;

	/* If more than a 64th of a slab is wasted, twice the slab mostly wastes half of this part or less. */
	if (order < max_order && left > bytes / 64 && 2 * bytes % size <= left + left / 4)
		order++;
	/* Objects of more than half of the largest slab get a still larger slab, if the larger slab wastes less. */
	order = km_layout_larger(size, order, km_min(max_order + 2, KM_MAX_ORDER));
	if (km_cache_is(cache, KM_CACHE_DENSE))
		order = dense_order(size, order, max_order);
	bytes = (uint32_t)(KM_PAGE_SIZE << order);
	cache->layout.order = (uint8_t)order;
	cache->layout.tail_bits = size < 32;
	cache->layout.objects = cache->layout.tail_bits ? objects_with_tail_bits(bytes, size) : bytes / size;
	/* With free bits behind the objects allocate no slabs of a lower order, which would be cut in another way. */
	if (cache->layout.tail_bits) {
		cache->layout.min_order = cache->layout.order;
		cache->form.slab_tail = (cache->layout.objects + 63) / 64 * 8;
	}
	/* Many misses may grow the capacity to `busy`, bulk requests to about twice of that. With large objects 32 KiB
	 * would be too few objects for bulk requests. */
	unsigned capacity = km_max(capacity_by_size(size), (unsigned)args->sheaf_capacity);
	unsigned busy = km_max(capacity, capacity_within(510, size, size > 2 * KM_PAGE_SIZE ? 128u << 10 : 32u << 10));
	cache->fast.capacity = (uint16_t)capacity;
	cache->tune.busy_capacity = (uint16_t)busy;
	cache->tune.max_capacity = (uint16_t)(km_cache_is(cache, KM_CACHE_SINGLY) ? busy :
					      km_max(busy, capacity_within(254, size, 64u << 10)));
	return 0;
}

static int node_init(struct kmem_cache *cache, unsigned node)
{
	struct sheaf_node *n = cache->state.node[node];

	km_lock_init(&n->barn.lock, KM_RANK_BARN);
	km_lock_init(&n->look, KM_RANK_LOOK);
	km_slabs_init(cache, node);
	km_list_init(&n->going);
	n->slabs.counts.ready[0] = &n->barn.objects;
	if (km_node_count == 1 || !cache->fast.capacity)
		return 0;
	n->remote = km_metadata_alloc(sizeof(*n->remote), true);
	if (!n->remote)
		return -ENOMEM;
	km_lock_init(&n->remote->lock, KM_RANK_BARN);
	n->slabs.counts.ready[1] = &n->remote->objects;
	return 0;
}

static void node_fini(struct kmem_cache *cache, unsigned node)
{
	km_debug(!sheaf_node(cache, node)->barn.full, "a released node has an empty barn");
	km_metadata_free(sheaf_node(cache, node)->remote, sizeof(struct remote));
}

/* ------------------------------------------------------------------ shrinking and looking */

static const struct km_slab_kind kind = {
	.free_objects = km_slab_free_objects,
	.unlist = km_sheaf_drop,
};

/* Lowers the barn's limit to the initial limit. */
static void forget_amplitude(const struct kmem_cache *cache, struct barn *barn)
{
	km_lock_scope(&barn->lock);
	km_sheaf_learn(cache, barn, -(long)barn->more);
	km_store(&barn->missed, (size_t)0);
}

/* Returns all cached objects to their slabs. */
static void send_home(struct kmem_cache *cache)
{
	struct sheaf_node *n;

	km_for_each_node(n, cache)
		km_sheaf_flush_remote(cache, n);
	km_for_each_node(n, cache)
		km_sheaf_flush_barn(cache, &n->barn);
}

static size_t sheaf_shrink(struct kmem_cache *cache)
{
	struct sheaf_node *n;
	size_t freed = 0;

	send_home(cache);
	km_for_each_node(n, cache) {
		forget_amplitude(cache, &n->barn);
		km_sheaf_adopt(cache, n);
		freed += km_slabs_shrink(cache, &n->slabs, &kind);
	}
	return freed;
}

static size_t reap_node(struct kmem_cache *cache, struct sheaf_node *n)
{
	struct barn *barn = &n->barn;

	const bool idle = !km_load(&barn->touched);

	km_store(&barn->touched, false);
	if (idle) {
		km_sheaf_flush_barn(cache, barn);
		forget_amplitude(cache, barn);
	} else {
		km_sheaf_shed_barn(cache, barn);
	}
	if (n->remote && !km_load(&n->remote->touched))
		km_sheaf_flush_remote(cache, n);
	else if (n->remote)
		km_store(&n->remote->touched, false);
	return km_sheaf_reap(cache, n, idle, false);
}

/* Flushes a barn unused since the last call, and frees idle empty slabs. Kernel: no such function; the model is SLAB's
 * reaping. */
static size_t sheaf_reap(struct kmem_cache *cache)
{
	struct sheaf_node *n;
	size_t freed = 0;

	km_for_each_node(n, cache)
		freed += reap_node(cache, n);
	return freed;
}

static size_t sheaf_rest(struct kmem_cache *cache)
{
	struct sheaf_node *n;
	size_t freed = 0;

	send_home(cache);
	km_for_each_node(n, cache)
		freed += km_sheaf_reap(cache, n, true, true);
	return freed;
}

static size_t sheaf_hollow(struct kmem_cache *cache)
{
	struct sheaf_node *n;
	size_t pages = 0;

	km_for_each_node(n, cache)
		pages += km_sheaf_hollow(cache, n);
	return pages;
}

static bool sheaf_fill(struct kmem_cache *cache)
{
	struct sheaf_node *n;

	km_for_each_node(n, cache)
		if (!km_sheaf_fill(cache, n))
			return false;
	return true;
}

static bool sheaf_is_taken(struct kmem_cache *cache, struct km_page *slab, unsigned index)
{
	uint64_t *bits = sheaf_bits(cache, slab, km_page_address(slab), index / 64);

	return !(km_load(bits) >> index % 64 & 1);
}

static uint64_t sheaf_taken(struct kmem_cache *cache, struct km_page *slab, unsigned word)
{
	return ~km_load(sheaf_bits(cache, slab, km_page_address(slab), word)) & km_object_bits(slab->objects, word);
}

static int check_slab(struct kmem_cache *cache, struct km_page *slab)
{
	unsigned free = 0;

	for (unsigned i = 0; i < slab->objects; i++)
		free += !sheaf_is_taken(cache, slab, i);
	if (free == km_slab_free_objects(slab) && slab->cache == cache && slab->type == KM_PAGE_SLAB)
		return km_sheaf_check_holes(cache, slab);
	km_warn("check: %s: slab %p counts %u of %u objects as allocated, but its bits mark %u as "
		"free", cache->registry.name,
		km_page_address(slab), slab->inuse, slab->objects, free);
	return 1;
}

/* Counts a sheaf's objects in *objects, and the objects of other nodes in *strangers. */
static void count_sheaf(const struct kmem_cache *cache, void **sheaf, unsigned node, size_t *objects,
			size_t *strangers)
{
	size_t count = km_sheaf_objects(&cache->fast.pcs, sheaf);

	for (size_t i = 0; i < count; i++)
		*strangers += km_page_node(sheaf[i]) != node;
	*objects += count;
}

/* Checks the barn's count of full-sheaf objects, and the node of each object. */
static int check_barn(const struct kmem_cache *cache, const struct barn *barn, unsigned node)
{
	size_t objects = 0, strangers = 0, most = barn->full_count + 1;

	for (void **sheaf = barn->full; sheaf && most; most--,
	     sheaf = (void **)(uintptr_t)*km_sheaf_header(&cache->fast.pcs, sheaf))
		count_sheaf(cache, sheaf, node, &objects, &strangers);
	if (objects == barn->objects && !strangers)
		return 0;
	km_warn("check: %s: the barn of node %u has %lu objects, but %lu are counted; %lu objects are of other "
		"nodes", cache->registry.name,
		node, objects, barn->objects, strangers);
	return 1;
}

/* Checks the counts of the node's sheaves with objects of other nodes. */
static int check_remote(const struct kmem_cache *cache, const struct remote *remote, unsigned node)
{
	size_t objects = 0, strangers = 0;

	for (unsigned i = 0; remote && i < km_node_count; i++)
		if (remote->sheaf[i])
			count_sheaf(cache, remote->sheaf[i], i, &objects, &strangers);
	if (!remote || (objects == remote->objects && !strangers))
		return 0;
	km_warn("check: %s: the remote sheaves of node %u have %lu objects, but %lu are counted; %lu objects are of "
		"a wrong node",
		cache->registry.name, node, objects, remote->objects, strangers);
	return 1;
}

static int sheaf_check(struct kmem_cache *cache)
{
	int damages = km_slabs_check(cache, &kind, check_slab);

	for (unsigned i = 0; i < km_node_count; i++) {
		struct sheaf_node *n = sheaf_node(cache, i);

		damages += check_barn(cache, &n->barn, i) + check_remote(cache, n->remote, i);
		if (n->slabs.counts.taken > n->slabs.counts.objects) {
			km_warn("check: %s: %lu of %lu objects are counted as "
				"allocated", cache->registry.name, n->slabs.counts.taken,
				n->slabs.counts.objects);
			damages++;
		}
	}
	return damages;
}

static unsigned long sheaf_event(struct kmem_cache *cache, enum kmem_event event)
{
	unsigned long count = 0;
	struct sheaf_node *n;

	km_for_each_node(n, cache)
		count += event == KMEM_BARN_GET ? km_load(&n->barn.gets) :
			 event == KMEM_BARN_PUT ? km_load(&n->barn.puts) : 0;
	return count;
}

static void sheaf_clear_events(struct kmem_cache *cache)
{
	struct sheaf_node *n;

	km_for_each_node(n, cache) {
		km_lock_scope(&n->barn.lock);
		km_store(&n->barn.gets, (uint64_t)0);
		km_store(&n->barn.puts, (uint64_t)0);
	}
}

static void sheaf_fork(struct kmem_cache *cache, bool before, bool child)
{
	struct sheaf_node *n;

	/* Before the locks are released, because km_sheaf_fork_holes asks whether this fork has the node's lock. */
	km_for_each_node(n, cache)
		km_sheaf_fork_holes(n, child);
	km_slabs_fork(cache, before, child);
	km_for_each_node(n, cache) {
		km_lock_around_fork(&n->barn.lock, before, child);
		if (n->remote)
			km_lock_around_fork(&n->remote->lock, before, child);
	}
}

static const struct kmem_record_field fields[] = {
	KM_FIELD_STRUCT("sheaf", struct sheaf_node),
	KM_FIELD_IN("sheaf", struct sheaf_node, barn.full), KM_FIELD_IN("sheaf", struct sheaf_node, barn.full_count),
	KM_FIELD_IN("sheaf", struct sheaf_node, barn.gets), KM_FIELD_IN("sheaf", struct sheaf_node, barn.puts),
	KM_FIELD_IN("sheaf", struct sheaf_node, remote),
	KM_FIELD_STRUCT("remote", struct remote),
	{ "remote.block", offsetof(struct remote, sheaf), sizeof(void **), KM_MAX_NODES },
};

const struct km_engine km_engine_sheaf = {
	.name = "sheaf",
	.front = KM_PERCPU_SHEAVES,
	.node_bytes = sizeof(struct sheaf_node),
	.layout = sheaf_layout,
	.node_init = node_init,
	.node_fini = node_fini,
	.take = km_sheaf_take,
	.give = km_sheaf_give,
	.shrink = sheaf_shrink,
	.reap = sheaf_reap,
	.rest = sheaf_rest,
	.hollow = sheaf_hollow,
	.fill = sheaf_fill,
	.discard = km_slabs_discard,
	.is_taken = sheaf_is_taken,
	.taken = sheaf_taken,
	.stats = km_slabs_stats,
	.fullness = km_slabs_fullness,
	.partial = km_slabs_partial,
	.check = sheaf_check,
	.fork = sheaf_fork,
	.event = sheaf_event,
	.clear_events = sheaf_clear_events,
	.fields = fields,
	.field_count = km_array_count(fields),
	.array = {
		.refill = km_sheaf_refill,
		.spill = km_sheaf_spill,
		.retire = km_sheaf_retire,
		.has_room = km_sheaf_has_room,
	},
};
