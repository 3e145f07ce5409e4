/*
 * malloc_account.c: malloc's blocks follow the thread's group while mem_cgroup_account_malloc says so. Invariant: a
 * block has a payer if and only if it came while that was on, in a thread that had a group: such blocks are objects of
 * caches of their own, with SLAB_ACCOUNT, or of pages whose word names the payer. So a free asks nobody, and it can be
 * switched on and off at any time: what is out then is paid back by who paid, or by nobody.
 *
 * While it is on hits find nothing in malloc's table of sizes, and misses come here first, by a table which they look
 * into anyhow (km_malloc_first). While it is off nothing here is looked at, but km_account_asks by misses.
 */
#include "os/die.h"
#include "malloc.h"

/* The entries that malloc's table of sizes has else: hits of threads that nobody pays for. */
uint16_t km_malloc_unpaid_id[KM_MALLOC_STEPS + 1] km_sparse;

/* It ends with its calls: the function that malloc was called by is known by its return address. */
km_hit_path void *km_malloc_by_objcg(struct kmem_cache *cache, size_t size)
{
	struct obj_cgroup *objcg = km_malloc_objcg();

	if (!objcg) {
		void *p = km_alloc_id(km_malloc_unpaid_id, km_malloc_step(size));

		return km_likely(p) ? p : km_malloc_missed(size);
	}
	/* Where somebody looks closer the bytes are to be said. */
	if (km_unlikely(!(cache->flags & SLAB_ACCOUNT)) || km_unlikely(km_alloc_has_out(cache)) ||
	    km_unlikely(km_load(&km_alloc_probing)))
		return km_malloc_missed(size);
	km_debug(cache->size >= size, "a size is served by a cache that has room for it");
	return km_charged_alloc(cache, KM_MALLOC_GFP, objcg, cache->pcs.front.rseq);
}

/* An object is no large block, whatever its size. A handler can't tell, and grows nothing in place. */
bool km_malloc_is_unpaid(const void *p)
{
	struct km_busy_was was = km_busy_begin();
	size_t bytes = km_was_busy(was) ? 0 : km_large_bytes(p);

	km_busy_end(was);
	return bytes && !km_large_owner(p);
}

/*
 * On: misses ask, then all calls miss; off: the other way round. A call that is under way in another thread meanwhile
 * ends the one way or the other. With the registry locked: a class that is made just then shows itself as this says.
 */
static void account(bool on)
{
	km_debug(km_thread_busy, "a lock is held by a thread that is busy");
	km_debug(!km_options.account && !km_kmalloc_sized, "blocks follow groups where classes serve them");
	if (on)
		km_store(&km_account_asks, km_account_asks | KM_ASKS_MALLOC);
	else
		km_store(&km_account_asks, km_account_asks & ~(uint32_t)KM_ASKS_MALLOC);
	km_malloc_show_first();
	km_alloc_shut_sizes(km_malloc_id, km_malloc_unpaid_id, KM_MALLOC_STEPS, on);
}

const struct km_malloc_ops km_malloc_door = { .account = account };
KM_REGISTER(km_malloc_ops, km_malloc_door);
