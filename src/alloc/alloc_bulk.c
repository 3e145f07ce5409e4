/*
 * alloc_bulk.c: bulk requests on one cache: copies between the caller's array and the CPU's sheaves; the rest is a
 * miss, served by the cache's alloc ops. Invariant: objects[0, left) are still to be allocated or freed, and
 * objects[left, n) are done, whatever interrupts the call.
 *
 * Both directions work from the end of the array to the front. So one number gives the progress of a call, for the
 * sequences, the alloc ops and the engines; each of them may stop at any object, and the next continues there. An
 * engine fills from the front (take), and km_bulk_take moves the objects to the end.
 *
 * All or nothing: if memory runs out, the objects so far are freed, and their frees make no system call if the
 * request may not (km_calls_begin). Uncharged objects are freed by the plain ops, charged objects by the ops of the
 * layer CHARGE.
 *
 * The copy of a sequence moves all objects that the sheaf has or takes, at once. The whole stretch of pointers is
 * copied before the one committing store. Objects copied without a commit stay in the sheaf, because the caller
 * counts none of them.
 */
#include <errno.h>
#include <limits.h>

#include "page/guard_range.h"
#include "alloc_ops.h"

/* ------------------------------------------------------------------ in */

/* Takes objects from the engine, at most KM_BULK_MOST at once, because the engine holds a lock meanwhile, and counts in
 * 32 bits. */
size_t km_bulk_take(struct kmem_cache *cache, const struct km_request *request, size_t left, void **objects)
{
	while (left) {
		unsigned want = (unsigned)km_min(left, KM_BULK_MOST);
		unsigned got = cache->layout.engine->take(cache, request, objects + left - want, want);

		km_debug(got <= want, "an engine returns at most the requested objects");
		/* The engine filled the piece from its front: move the objects to the end, where the invariant wants
		 * them. */
		if (got < want)
			__builtin_memmove(objects + left - got, objects + left - want, got * sizeof(*objects));
		left -= got;
		if (got < want)
			break;
	}
	return left;
}

/* Ends a bulk allocation: returns n if `left` is 0; else frees all objects, reports the failure, returns 0. seen: the
 * objects passed OBSERVE and VALIDATE, and are freed through these layers. */
static int bulk_done(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects, bool seen)
{
	km_debug(left <= n, "objects[left, n) are allocated");
	if (km_likely(!left))
		return (int)n;
	if (left < n) {
		km_calls_scope(was, km_gfp_may_wait(gfp));

		if (seen)
			km_plain_free_bulk(cache, n - left, objects + left);
		else
			km_unseen_free_bulk(cache, n - left, objects + left);
	}
	km_alloc_failed(cache->registry.name, cache->layout.object_size, gfp, ENOMEM);
	return 0;
}

int km_bulk_refill(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects,
		   km_bulk_refill_fn *refill)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	unsigned tries = 0;

	km_miss_prepare(cache, &request, NUMA_NO_NODE);
	/* A request for a named node uses no sheaf, because a sheaf may hold objects of other nodes. */
	if (km_unlikely(request.node >= 0))
		refill = km_bulk_take;
	int entry = km_miss_begin(cache, request.may_wait);
	if (km_likely(entry != KM_NO_ENTRY)) {
		do
			left = refill(cache, &request, left, objects);
		while (km_unlikely(left) && request.may_wait && km_alloc_relieve(cache, &tries));
		km_miss_end(cache, entry, request.may_wait, !km_plain_ops(cache)->pcs);
	}
	return bulk_done(cache, gfp, left, n, objects, false);
}

/* Allocates each object alone, for objects that must be observed or zeroed. */
int km_bulk_one_by_one(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	for (; left; left--) {
		objects[left - 1] = km_plain_alloc(cache, gfp, NUMA_NO_NODE);
		if (!objects[left - 1])
			break;
	}
	return bulk_done(cache, gfp, left, n, objects, true);
}

/* Frees each guarded object in the array, and allocates an unguarded one in its place. Returns: false after a failure;
 * then all objects are freed. */
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
	       (km_likely(!km_load(&cache->ext.guarded)) || unguard(cache, gfp, n, objects));
}

/* Continues after the fast path: objects[0, left) are still to be allocated. */
static int bulk_miss(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	return km_ops_for(cache, gfp)->alloc_bulk(cache, gfp, left, n, objects);
}

#ifdef KMEM_HAVE_RSEQ
/* Pops charged objects of the mixed sheaf to the end of objects[0, *left), and transfers them to the caller's objcg.
 * Returns: false if the request must fail. */
km_inline bool take_mixed(struct kmem_cache *cache, gfp_t gfp, uint32_t mask, size_t *left, void **objects)
{
	size_t n = km_rseq_pop_n(&cache->memcg.charged.front.back, mask, cache->fast.pcs.front.percpu,
				 cache->fast.pcs.front.rseq, objects, *left * sizeof(*objects)) / sizeof(*objects);

	if (km_unlikely(!n))
		return true;
	n = km_layer(cache, KM_LAYER_CHARGE)->recharge_bulk(cache, gfp, km_objcg_here, n, objects + *left - n);
	if (km_unlikely(n == SIZE_MAX))
		return false;
	*left -= n;
	return true;
}

/* Allocates from the charged or mixed sheaf of the CPU; the rest is a miss. */
km_line_start static km_noinline int bulk_charged(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n,
					     void **objects)
{
	/* Another thread may be making the charged sheaves: while the mask is 0 they must not be used. */
	const uint32_t mask = km_load(&cache->memcg.charged.sheaf_mask);

	if (!km_objcg_here || km_unlikely(!mask))
		return bulk_miss(cache, gfp, left, n, objects);
	if (km_likely(!(gfp & km_load(&cache->memcg.charged_odd))))
		left -= km_rseq_owned_pop_n(&cache->memcg.charged.front.open, mask, cache->fast.pcs.front.percpu,
					    cache->fast.pcs.front.rseq, (uintptr_t)km_objcg_here, objects,
					    left * sizeof(*objects)) / sizeof(*objects);
	else if (!(gfp & KM_CHARGED_ODD) && !take_mixed(cache, gfp, mask, &left, objects))
		return 0;
	if (km_likely(!left))
		return (int)n;
	return bulk_miss(cache, gfp, left, n, objects);
}

/* Fast path of a bulk allocation: copies objects from the main sheaf by one sequence. A function of its own, so that
 * other paths save no registers. */
km_line_start static km_noinline int bulk_public(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	const size_t left = n - km_rseq_pop_n(&cache->fast.pcs.front.open, cache->fast.pcs.sheaf_mask,
					      cache->fast.pcs.front.percpu, cache->fast.pcs.front.rseq, objects,
					      n * sizeof(*objects)) / sizeof(*objects);

	return km_likely(!left) ? (int)n : bulk_charged(cache, gfp, left, n, objects);
}
#endif

/* Handles a bulk allocation of 0 objects, or of more than INT_MAX. */
km_cold static int bulk_of_none(const struct kmem_cache *cache, gfp_t gfp, size_t n)
{
	km_alloc_check_gfp("kmem_cache_alloc_bulk", gfp, cache->registry.name);
	if (n)
		km_alloc_failed(cache->registry.name, SIZE_MAX, gfp, ENOMEM);
	return 0;
}

km_inline int alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	/* The copy of a sequence moves at least one object, and the result is an int. */
	if (km_unlikely(n - 1 >= INT_MAX))
		return bulk_of_none(cache, gfp, n);
#ifdef KMEM_HAVE_RSEQ
	/* The public sheaves: closed for observed and for charged caches; a cache with a freelist has none. */
	if (km_likely(km_load(&cache->fast.pcs.front.open.pcs)) && km_likely(!(gfp & KMEM_GFP_ODD)))
		return bulk_public(cache, gfp, n, objects);
	if (!km_load(&cache->memcg.charged.sheaf_mask) && km_likely(!(gfp & KMEM_GFP_ODD)))
		return km_alloc_ops(cache)->alloc_bulk(cache, gfp, n, n, objects);
	return bulk_charged(cache, gfp, n, n, objects);
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
		cache->layout.engine->give(cache, objects + left - now, now);
	}
}

void km_bulk_free_one_by_one(struct kmem_cache *cache, size_t n, size_t all km_unused, void **objects)
{
	while (n)
		km_plain_free(cache, objects[--n]);
}

/* In a signal handler inside an engine, each object is deferred (km_miss_defer), because the handler has little
 * stack. */
void km_bulk_spill(struct kmem_cache *cache, size_t left, void **objects, km_bulk_spill_fn *spill)
{
	int saved_errno = errno, entry;

	km_alloc_enter_thread(true);
	entry = km_miss_begin(cache, true);
	if (km_unlikely(entry == KM_NO_ENTRY)) {
		/* The objects have passed the layers down to VALIDATE, so they must enter BASE. */
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

/* Frees objects[0, n), the last ones first. Objects that do not fit on the CPU's sheaf are freed by one miss. */
km_line_start void km_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	const size_t all = n;

#ifdef KMEM_HAVE_RSEQ
	n -= km_rseq_push_n(&cache->fast.pcs.front.back, cache->fast.pcs.front.percpu,
			    cache->fast.pcs.front.rseq, objects, n * sizeof(*objects)) / sizeof(*objects);
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
	/* The fast path for one object is shorter than the path for many. */
	if (n == 1)
		return bulk_of_one(cache, gfp, objects);
	return alloc_bulk(cache, gfp, n, objects);
}
