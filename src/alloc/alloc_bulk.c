/*
 * alloc_bulk.c: many objects of one cache at once: copies between the caller's array and the shelf, and what those
 * can't do is a miss, which the cache's shape serves. Invariant: objects[0, left) are still to be had (or still to be
 * freed), objects[left, n) are done, whatever interrupts us.
 *
 * Both directions work from the array's end to its front. So one number says how far a call has come, for the
 * sequences, for the shapes and for the engines alike; each of them may stop at any object, and the next goes on from
 * there. An engine fills from the front (take), and km_bulk_take moves what it got to the end.
 *
 * All or nothing: where memory ends, the objects that were had go back, and none of their frees calls the system where
 * the request may not (km_calls_begin). The frees are plain ones for objects that nobody pays for, and the charged
 * shape's for those that are paid for.
 *
 * The copy of a sequence moves what the block has, or what it takes, at once: the block's whole stretch of pointers is
 * read before the one committing store, and objects that were copied and not committed stay on the block, because the
 * caller counts none of them.
 */
#include <errno.h>
#include <limits.h>

#include "page/guard_range.h"
#include "alloc_ops.h"

/* ------------------------------------------------------------------ in */

/* In pieces of KM_BULK_MOST: an engine holds a lock while it fills one, and counts in 32 bits. */
size_t km_bulk_take(struct kmem_cache *cache, const struct km_request *request, size_t left, void **objects)
{
	while (left) {
		unsigned want = (unsigned)km_min(left, KM_BULK_MOST);
		unsigned got = cache->engine->take(cache, request, objects + left - want, want);

		km_debug(got <= want, "an engine gives no more than is wanted");
		/* take fills from the front: keep the invariant that the end is done. */
		if (got < want)
			__builtin_memmove(objects + left - got, objects + left - want, got * sizeof(*objects));
		left -= got;
		if (got < want)
			break;
	}
	return left;
}

/* `seen`: they have come by what stands before the shape, and go back that way. */
static int is_done(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects, bool seen)
{
	km_debug(left <= n, "objects[left, n) are those that were had");
	if (km_likely(!left))
		return (int)n;
	if (left < n) {
		km_calls_scope(was, km_gfp_may_wait(gfp));

		if (seen)
			km_plain_free_bulk(cache, n - left, objects + left);
		else
			km_unseen_free_bulk(cache, n - left, objects + left);
	}
	km_alloc_failed(cache->name, cache->object_size, gfp, ENOMEM);
	return 0;
}

int km_bulk_done(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	return is_done(cache, gfp, left, n, objects, true);
}

int km_bulk_refill(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects,
		   km_bulk_refill_fn *refill)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	unsigned tries = 0;

	km_miss_prepare(cache, &request, NUMA_NO_NODE);
	/* Not by a shelf, which may hold other nodes' objects. */
	if (km_unlikely(request.node >= 0))
		refill = km_bulk_take;
	int entry = km_miss_begin(cache, request.may_wait);
	if (km_likely(entry != KM_NO_ENTRY)) {
		do
			left = refill(cache, &request, left, objects);
		while (km_unlikely(left) && request.may_wait && km_alloc_relieve(cache, &tries));
		km_miss_end(cache, entry, request.may_wait, !km_plain_ops(cache)->pcs);
	}
	return is_done(cache, gfp, left, n, objects, false);
}

/* Where each object must be seen or cleared: the miss of one, n times. */
int km_bulk_one_by_one(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	for (; left; left--) {
		objects[left - 1] = km_plain_alloc(cache, gfp, NUMA_NO_NODE);
		if (!objects[left - 1])
			break;
	}
	return km_bulk_done(cache, gfp, left, n, objects);
}

/* As km_plain_alloc does. False: all went back. */
static km_noinline bool unguard(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	for (size_t i = 0; i < n; i++) {
		if (!km_is_guarded(objects[i]))
			continue;
		km_guard_ops->free(cache, objects[i], NULL);
		objects[i] = km_plain_alloc(cache, gfp, NUMA_NO_NODE);
		if (objects[i])
			continue;
		objects[i] = objects[0];
		km_plain_free_bulk(cache, n - 1, objects + 1);
		return false;
	}
	return true;
}

bool km_plain_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	return km_plain_ops(cache)->alloc_bulk(cache, gfp, n, n, objects) &&
	       (km_likely(!km_load(&cache->guarded)) || unguard(cache, gfp, n, objects));
}

/* The shelf had no more: objects[0, left) are to be had. */
static int bulk_miss(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	return km_ops_for(cache, gfp)->alloc_bulk(cache, gfp, left, n, objects);
}

#ifdef KMEM_HAVE_RSEQ
/* The objects on a block of many owners, into the end of objects[0, *left). False: refused; nothing is to be had. */
km_inline bool take_mixed(struct kmem_cache *cache, gfp_t gfp, uint32_t mask, size_t *left, void **objects)
{
	size_t n = km_rseq_pop_n(&cache->charged.front.back, mask, cache->pcs.front.percpu,
				 cache->pcs.front.rseq, objects, *left * sizeof(*objects)) / sizeof(*objects);

	if (km_unlikely(!n))
		return true;
	n = km_layer(cache, KM_LAYER_CHARGE)->recharge_bulk(cache, gfp, km_objcg_here, n, objects + *left - n);
	if (km_unlikely(n == SIZE_MAX))
		return false;
	*left -= n;
	return true;
}

/* Objects that are paid for already (fast_path.h). */
km_line_start static km_noinline int bulk_paid(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n,
					     void **objects)
{
	/* No copy begins with the mask of a shelf that another thread is making. */
	const uint32_t mask = km_load(&cache->charged.sheaf_mask);

	if (!km_objcg_here || km_unlikely(!mask))
		return bulk_miss(cache, gfp, left, n, objects);
	if (km_likely(!(gfp & km_load(&cache->charged_odd))))
		left -= km_rseq_owned_pop_n(&cache->charged.front.open, mask, cache->pcs.front.percpu,
					    cache->pcs.front.rseq, (uintptr_t)km_objcg_here, objects,
					    left * sizeof(*objects)) / sizeof(*objects);
	else if (!(gfp & KM_CHARGED_ODD) && !take_mixed(cache, gfp, mask, &left, objects))
		return 0;
	if (km_likely(!left))
		return (int)n;
	return bulk_miss(cache, gfp, left, n, objects);
}

/* The hit of many is one copy. In a function of its own: no other saves registers for it. */
km_line_start static km_noinline int bulk_public(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	const size_t left = n - km_rseq_pop_n(&cache->pcs.front.open, cache->pcs.sheaf_mask,
					      cache->pcs.front.percpu, cache->pcs.front.rseq, objects,
					      n * sizeof(*objects)) / sizeof(*objects);

	return km_likely(!left) ? (int)n : bulk_paid(cache, gfp, left, n, objects);
}
#endif

/* None, or more than can be counted. */
km_cold static int bulk_of_none(const struct kmem_cache *cache, gfp_t gfp, size_t n)
{
	km_alloc_check_gfp("kmem_cache_alloc_bulk", gfp, cache->name);
	if (n)
		km_alloc_failed(cache->name, SIZE_MAX, gfp, ENOMEM);
	return 0;
}

km_inline int alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	/* The copy of a sequence moves one object at least, and the answer is an int. */
	if (km_unlikely(n - 1 >= INT_MAX))
		return bulk_of_none(cache, gfp, n);
#ifdef KMEM_HAVE_RSEQ
	/* The public shelf: closed where each object must be seen, and where objects are paid for; a chain has none. */
	if (km_likely(km_load(&cache->pcs.front.open.pcs)) && km_likely(!(gfp & KMEM_GFP_ODD)))
		return bulk_public(cache, gfp, n, objects);
	if (!km_load(&cache->charged.sheaf_mask) && km_likely(!(gfp & KMEM_GFP_ODD)))
		return km_alloc_ops(cache)->alloc_bulk(cache, gfp, n, n, objects);
	return bulk_paid(cache, gfp, n, n, objects);
#else
	return bulk_miss(cache, gfp, n, n, objects);
#endif
}

km_line_start int km_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	return alloc_bulk(cache, gfp, n, objects);
}

/* ------------------------------------------------------------------ out */

void km_bulk_give(struct kmem_cache *cache, size_t left, void **objects)
{
	for (unsigned now; left; left -= now) {
		now = (unsigned)km_min(left, KM_BULK_MOST);
		cache->engine->give(cache, objects + left - now, now);
	}
}

void km_bulk_free_one_by_one(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	while (n)
		km_plain_free(cache, objects[--n]);
}

/* A handler that struck inside of the engine defers each of them (km_miss_defer), in constant room. */
void km_bulk_spill(struct kmem_cache *cache, size_t left, void **objects, km_bulk_spill_fn *spill)
{
	int saved_errno = errno, entry;

	km_alloc_enter_thread(true);
	entry = km_miss_begin(cache, true);
	if (km_unlikely(entry == KM_NO_ENTRY)) {
		/* They have passed by what stands before the shape. */
		while (left)
			km_layer_below(cache, KM_LAYER_VALIDATE)->free(cache, objects[--left]);
		return;
	}
	spill(cache, left, objects);
	km_miss_end(cache, entry, true, !km_plain_ops(cache)->pcs);
	errno = saved_errno;
}

void km_plain_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	km_plain_ops(cache)->free_bulk(cache, n, n, objects);
}

/* The last objects of the array go first; those that the block does not take go the way of a miss, all at once. */
km_line_start void km_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	const size_t all = n;

#ifdef KMEM_HAVE_RSEQ
	n -= km_rseq_push_n(&cache->pcs.front.back, cache->pcs.front.percpu,
			    cache->pcs.front.rseq, objects, n * sizeof(*objects)) / sizeof(*objects);
	if (km_likely(!n))
		return;
#endif
	bool entered = km_child_enter(cache);
	km_alloc_ops(cache)->free_bulk(cache, n, all, objects);
	km_child_leave(cache, entered);
}

static km_noinline int bulk_of_one(struct kmem_cache *cache, gfp_t gfp, void **objects)
{
	return (objects[0] = kmem_cache_alloc(cache, gfp)) != NULL;
}

km_line_start int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	/* A hit for one object is shorter than one for many. */
	if (n == 1)
		return bulk_of_one(cache, gfp, objects);
	return alloc_bulk(cache, gfp, n, objects);
}
