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

/* Returns the bytes of objects on the cache's charged sheaves of `root` and groups below. All objects of a mixed sheaf
 * count, whoever is charged. For the tree's root each sheaf adds one byte, so that empty sheaves are flushed, too. */
static uint64_t ready_on_blocks(struct kmem_cache *cache, struct mem_cgroup *root)
{
	uint64_t bytes = 0;

	/* Look again after clearing the bit: a thread that installs a sheaf counts the sheaf, then sets the bit. */
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

/* Returns the bytes of a child cache's slabs if a flush may free a slab: frees are deferred, or the free objects are as
 * many as a slab of the smallest order has; else 0. */
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
	bool look;			/* true: only sum up the bytes; nothing is flushed */
	uint64_t bytes;			/* an upper bound of the bytes that would come back */
	unsigned children;
};
/* A flush skips the first MOST_CHILDREN child caches without bytes to give back. Later child caches are drained anyway,
 * so that the next flush does not visit them before their next miss. */
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

/* Flushes all caches with cached objects of `root` and groups below; with `look` only sums up the bytes. All objects of
 * a mixed sheaf are flushed if one is charged to such a group. Returns: an upper bound of the bytes. */
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

#define LOOKS	3		/* attempts to sum up while no other thread moves bytes */

/*
 * Returns the charged, unused bytes of all objcgs that point to the group: the byte stocks of all CPUs, and
 * nr_charged_bytes. Of a byte stock that was left behind (`words`), bytes already given back (`left`) do not count.
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

/* Returns the bytes in page stocks and byte stocks of `root`, and with `below` of all groups below; stops early at
 * `most` bytes. Requires: tree lock held, because mem_cgroup_offline frees the words. */
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

/* Returns the sum of `moves` of all page stocks; UINT64_MAX: a stock is locked, so bytes are moving now. */
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
 * Saves a drain, which stops all CPUs, where a drain would be in vain. Sums up sheaves first, then stocks, then the
 * counter's free bytes: the order in which bytes go back. The sum is repeated if bytes moved meanwhile (moves).
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
