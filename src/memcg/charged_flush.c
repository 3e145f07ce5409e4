/*
 * charged_flush.c: gives the charged cached objects of a group, and of the groups below, back to the engines; and
 * tells whether a flush and drain would make room. Invariant: nothing is drained for a look.
 */
#include "charged_sheaf.h"
#include "memcg_group.h"
#include "child_cache.h"

/* Charged caches that share a fence. Guarded by the registry lock. */
static struct {
	struct kmem_cache *cache[128];
	size_t count;
} gathered;

static void flush_gathered(struct mem_cgroup *root)
{
	if (gathered.count)
		km_charged_drain_group(gathered.cache, gathered.count, root);
	gathered.count = 0;
}

/* Returns the bytes on the cache's charged sheaves. All objects of a mixed sheaf count: the sheaf does not name their
 * owners. Another thread may make the sheaves mixed meanwhile, so each owner word is read once, and tells by itself.
 * For the root an empty sheaf counts, too: with charged sheaves off no sheaf may be used. */
static uint64_t ready_on_blocks(struct kmem_cache *cache, struct mem_cgroup *root)
{
	uint64_t bytes = 0;

	/* A thread that makes a sheaf counts the sheaf before setting the bit. */
	if (!km_load(&cache->memcg.charged_sheaves)) {
		km_alloc_set_ready(cache, false);
		if (km_load(&cache->memcg.charged_sheaves))
			km_alloc_set_ready(cache, true);
	}
	if (km_pcs_slot(&cache->memcg.charged))
		km_for_each_cpu(cpu) {
			uintptr_t owner = km_owned_owner_cpu(&cache->memcg.charged, cpu);
			size_t count = owner ? km_pcs_count_cpu(&cache->memcg.charged, cpu) : 0;

			bytes += owner && km_memcg_is_root(root);
			if (count && (owner == KM_OBJCGS_DIFFER || km_memcg_below((struct obj_cgroup *)owner, root)))
				bytes += count * cache->memcg.charge;
		}
	return bytes;
}

/* Returns the bytes that whole slabs may give back. A slab of the smallest order has at least its share of a usual
 * slab's objects, less one. */
static uint64_t ready_in_child(struct kmem_cache *child)
{
	const size_t objects = km_max(child->layout.objects >> (child->layout.order - child->layout.min_order), 2u) - 1;
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(child, &stats);
	const bool may = km_load(&child->state.deferred) || stats.total_objects >= stats.active_objects + objects;
	return may ? km_load(&child->state.slab_bytes) : 0;
}

struct flush {
	struct mem_cgroup *root;
	bool look;			/* only sum up the bytes */
	uint64_t bytes;			/* an upper bound of the bytes that would come back */
	unsigned children;
};
/* At most so many child caches are looked at in vain at each flush; further child caches are drained, and then
 * skipped until their next miss. */
#define MOST_CHILDREN	32u

static int flush_cache(struct kmem_cache *cache, void *arg)
{
	struct flush *flush = arg;

	if (cache->memcg.child_of && !km_memcg_below(km_private_owner(cache), flush->root))
		return 0;
	uint64_t bytes = cache->memcg.child_of ? ready_in_child(cache) : ready_on_blocks(cache, flush->root);
	flush->bytes += bytes;
	if ((flush->look || !bytes) && !(cache->memcg.child_of && ++flush->children > MOST_CHILDREN))
		return 0;
	if (cache->memcg.child_of)
		km_private_flush(cache);
	else
		gathered.cache[gathered.count++] = cache;
	if (gathered.count == km_array_count(gathered.cache))
		flush_gathered(flush->root);
	return 0;
}

/* Flushes, or looks at, all caches with cached objects. A mixed sheaf is given back whole if one of its objects is the
 * group's: to pick out single objects would take a look at each, with the sheaf closed to all threads. */
static uint64_t flush_ready(struct mem_cgroup *root, bool look)
{
	struct flush flush = { root, look, 0, 0 };
	km_busy_scope(was);

	km_large_finish_deferred();
	km_registry_hold_scope(within);
	km_registry_visit_ready(flush_cache, &flush);
	flush_gathered(root);
	return flush.bytes;
}

void km_memcg_flush_pcs(struct mem_cgroup *root)
{
	flush_ready(root, false);
}

/* ------------------------------------------------------------------ unused bytes */

#define LOOKS	3		/* looks, until no other thread disturbs one */

/*
 * Returns the bytes charged and unused in the words of all CPUs, and on no CPU, of the group's objcg and of orphans
 * that point to the group. Left-behind words (make_good) count only for bytes not yet given back.
 */
static uint64_t in_words(const struct mem_cgroup *group)
{
	int64_t bytes = 0;

	km_list_for_each(entry, &group->objcgs) {
		const struct obj_cgroup *objcg = km_container_of(entry, struct obj_cgroup, link);
		const uint32_t words = objcg->stock ?: objcg->words;

		bytes += (int64_t)(km_load(&objcg->nr_charged_bytes) - km_load(&objcg->left));
		if (words)
			km_for_each_cpu(cpu)
				bytes += (int64_t)km_load((uint64_t *)(km_area(cpu) + words));
	}
	return (uint64_t)km_max(bytes, (int64_t)0);
}

/* Returns the bytes in stocks, at least `most` or all. Each word is read by itself. Requires the tree lock: going
 * offline frees the words. */
static uint64_t in_stocks(const struct mem_cgroup *root, bool below, uint64_t most)
{
	const struct km_stock *stocks = *km_memcg_view.stocks;
	uint64_t bytes = 0;

	for (unsigned i = 0; stocks && i < *km_memcg_view.stock_count * KM_STOCK_SLOTS; i++) {
		const struct km_stock *stock = &stocks[i / KM_STOCK_SLOTS];
		const struct mem_cgroup *group = km_load(&stock->groups[i % KM_STOCK_SLOTS]);

		if (group == root || (below && km_memcg_in(group, root)))
			bytes += (uint64_t)km_load(&stock->pages[i % KM_STOCK_SLOTS]) << KM_PAGE_SHIFT;
	}
	for (const struct mem_cgroup *at = root; at && bytes < most;
	     at = below ? km_memcg_next(root, (struct mem_cgroup *)at) : NULL)
		bytes += in_words(at);
	return bytes;
}

uint64_t km_stock_bytes(const struct mem_cgroup *group)
{
	km_memcg_scope();
	return in_stocks(group, false, UINT64_MAX);
}

/* Returns how often bytes moved from or to a stock, except on fast paths; UINT64_MAX: bytes are moving now. */
static uint64_t moves(void)
{
	const struct km_stock *stocks = *km_memcg_view.stocks;
	uint64_t sum = 0;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (unsigned i = 0; stocks && i < *km_memcg_view.stock_count + KM_STOCK_SPARES; i++) {
		if (km_load_acquire(&stocks[i].lock.state))
			return UINT64_MAX;
		sum += km_load(&stocks[i].moves);
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return sum;
}

/*
 * A drain stops all CPUs; this look needs no fence. Sheaves are read first, then stocks, then the counter: the order in
 * which bytes go back. A look may miss bytes moving meanwhile, and is then repeated.
 */
bool km_memcg_could_give(struct mem_cgroup *root, uint64_t bytes)
{
	uint64_t ready = flush_ready(root, true), have = ready;
	const struct km_counter *counter = &root->memory;
	bool settled = false;

	km_memcg_scope();
	for (int tries = LOOKS; tries && have < bytes && !settled; tries--) {
		uint64_t before = moves();

		have = ready + in_stocks(root, true, bytes);
		have += km_load(&counter->max) - km_min(km_load(&counter->usage), km_load(&counter->max));
		settled = before != UINT64_MAX && moves() == before && !km_memcg_modes[MEM_CGROUP_DRAIN];
	}
	return have >= bytes || !settled;
}
