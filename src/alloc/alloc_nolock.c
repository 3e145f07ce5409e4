/*
 * alloc_nolock.c: allocations and frees that never wait, whatever the thread was doing: for signal handlers, and for
 * threads with deadlines. Kernel: kmalloc_nolock, for any context, NMI included. Invariant: the call takes a lock
 * only if the lock is free, and makes no system call. Unfinished work is left to the next miss of another call.
 *
 * First the call behaves as a call in a signal handler inside the allocator: km_thread.busy is set, so the call uses
 * the CPU's sheaves and enters no engine. A free without room in the sheaves is linked to cache->state.deferred.
 * Then, if the thread was not inside, an allocation asks the engine for one object, as a request that may not wait.
 * An engine only tries its locks then. Pages and metadata whose lock is taken are deferred as well
 * (page/deferred_free.h).
 */
#include <errno.h>

#include "page/deferred_free.h"
#include "alloc_ops.h"

static void *refused(int error)
{
	errno = error;
	return NULL;
}

/* Returns: true if the call may enter the engine. False for objects observed one by one, charged objects, objects in
 * separate memory, and caches with address reuse: then only a cached object can serve. */
static bool may_enter(const struct kmem_cache *cache, gfp_t gfp)
{
	return !(gfp & __GFP_ACCOUNT) && !km_charges_all(cache) && !km_account_here && !cache->memcg.slab_charge &&
	       !(cache->layout.flags & (SLAB_NODUMP | SLAB_FAILSLAB)) && !km_hardening.own_addresses &&
	       !km_alloc_has_out(cache) && km_plain_ops(cache) == km_layer(cache, KM_LAYER_VALIDATE);
}

/* Takes one object from the engine. Requires: km_thread.busy is set, and was clear before the call. */
static void *from_engine(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	void *object = NULL;

	request.bytes = (uint32_t)bytes;
	request.align = (uint32_t)align;
	if (!km_request_resolve_node(&request, node))
		return NULL;
	bool was = km_calls_begin(false), late = km_deferred_begin();
	if (cache->layout.engine->take(cache, &request, &object, 1) != 1)
		object = NULL;
	km_deferred_end(late);
	km_calls_end(was);
	if (object && km_unlikely(cache->layout.live_shift) && !km_validated_hand_out(cache, object))
		object = NULL;
	return object ? km_miss_zeroed(cache, object, gfp, bytes) : NULL;
}

void *km_alloc_nolock(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	int saved_errno = errno;
	struct km_busy_was was = km_busy_begin();

	gfp |= __GFP_NOWARN | __GFP_NOMEMALLOC;
	void *object = bytes ? km_alloc_ops(cache)->alloc_sized(cache, bytes, align, gfp, node) :
			       kmem_cache_alloc_node(cache, gfp, node);
	if (!object && !km_was_busy(was) && may_enter(cache, gfp))
		object = from_engine(cache, bytes, align, gfp, node);
	km_busy_end(was);
	errno = object ? saved_errno : ENOMEM;
	return object;
}

/* Returns: true if gfp has only bits allowed for a call that never waits. Kernel: warns about other bits. */
bool km_alloc_is_nolock(gfp_t gfp)
{
	return !(gfp & ~(__GFP_ACCOUNT | __GFP_ZERO));
}

void *kmem_cache_alloc_nolock(struct kmem_cache *cache, gfp_t gfp, int node)
{
	if (!km_alloc_is_nolock(gfp))
		return refused(EINVAL);
	return km_alloc_nolock(cache, 0, 0, gfp, node);
}

void kmem_cache_free_nolock(struct kmem_cache *cache, void *object)
{
	km_busy_scope(was);

	kmem_cache_free(cache, object);
}
