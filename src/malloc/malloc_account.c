/*
 * malloc_account.c: charge malloc's blocks to the thread's group while mem_cgroup_account_malloc is on. Invariant: a
 * block is charged if and only if it was allocated while accounting was on, in a thread with a group. Charged blocks
 * are objects of separate caches with SLAB_ACCOUNT, or pages whose owner word names the objcg. So a free needs no
 * lookup of the mode, and accounting can be switched at any time: each allocated block is refunded if and only if it
 * was charged.
 *
 * While accounting is on, the fast path finds nothing in malloc's table of sizes, and misses come here first, by
 * km_malloc_first, which every miss reads. While accounting is off, misses read only km_account_asks.
 */
#include "os/die.h"
#include "malloc.h"

/* The entries that malloc's table of sizes has while accounting is off: fast paths of threads without an objcg. */
uint16_t km_malloc_uncharged_id[KM_MALLOC_STEPS + 1] km_sparse;

/* Allocates after a miss while malloc is charged. Every path ends with a tail call, because callees identify malloc's
 * caller by the return address. */
km_hit_path void *km_malloc_by_objcg(struct kmem_cache *cache, size_t size)
{
	struct obj_cgroup *objcg = km_malloc_objcg();

	if (!objcg) {
		void *p = km_alloc_id(km_malloc_uncharged_id, km_malloc_step(size));

		return km_likely(p) ? p : km_malloc_missed(size);
	}
	/* Take the slow path where the requested bytes must be recorded. */
	if (km_unlikely(!(cache->layout.flags & SLAB_ACCOUNT)) || km_unlikely(km_alloc_has_out(cache)) ||
	    km_unlikely(km_load(&km_alloc_probing)))
		return km_malloc_missed(size);
	km_debug(cache->layout.size >= size, "a size is served by a cache with larger objects");
	return km_charged_alloc(cache, KM_MALLOC_GFP, objcg, cache->fast.pcs.front.rseq);
}

/* Returns: whether p is an uncharged large block; false for objects. A signal handler can't tell, and resizes
 * nothing in place. */
bool km_malloc_is_uncharged(const void *p)
{
	struct km_busy_was was = km_busy_begin();
	size_t bytes = km_was_busy(was) ? 0 : km_large_bytes(p);

	km_busy_end(was);
	return bytes && !km_large_owner(p);
}

/* Switch accounting. On: first misses check the mode, then all calls miss; off: the reverse order. A call under way in
 * another thread ends either way. Context: registry locked; a class made meanwhile follows the mode. */
static void account(bool on)
{
	km_debug(km_thread.busy, "a lock is held by a busy thread");
	km_debug(!km_options.account && !km_kmalloc_sized, "blocks are charged to groups only with size classes");
	if (on)
		km_store(&km_account_asks, km_account_asks | KM_ASKS_MALLOC);
	else
		km_store(&km_account_asks, km_account_asks & ~(uint32_t)KM_ASKS_MALLOC);
	km_malloc_show_first();
	km_alloc_shut_sizes(km_malloc_id, km_malloc_uncharged_id, KM_MALLOC_STEPS, on);
}

const struct km_malloc_ops km_malloc_door = { .account = account };
KM_REGISTER(km_malloc_ops, km_malloc_door);
