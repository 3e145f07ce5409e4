/*
 * bulk.c: many objects of one cache at once: copies between the caller's array and the shelf, a block at a time,
 * and only what is beyond the CPU's blocks goes to the engine. Invariant: objects[0, left) are still to be had (or
 * still to be freed), objects[left, n) are done, whatever interrupts us.
 */
#include <errno.h>

#include "../port/chain_hit.h"
#include "front.h"

/* Aborted sequences before the engine is asked for the rest. */
#define TRIES 8

/* A block should hold what comes or goes at once: then one sequence serves it. Whole pages have bounds of their own. */
static void fit_bulk(struct kmem_cache *cache, size_t n)
{
	unsigned capacity = km_mask_capacity(km_front_mask(cache));

	if (n > capacity && capacity < cache->max_capacity && cache->shelf.slot && !cache->engine->whole_pages)
		km_front_resize(cache, (unsigned)km_min(n, (size_t)cache->max_capacity));
}

/* ------------------------------------------------------------------ a chain: no blocks, the engine has the rest */

/* Fill objects[got, n) from the engine; returns how many there are then. */
static size_t chain_take(struct kmem_cache *cache, const struct km_request *request, size_t got,
			 size_t n, void **objects)
{
	while (got < n) {
		unsigned now = cache->engine->take(cache, request, objects + got,
						   (unsigned)km_min(n - got, (size_t)4096));

		if (!now)
			break;
		got += now;
	}
	return got;
}

km_inline bool chain_may(const struct kmem_cache *cache, gfp_t gfp)
{
	return !cache->hooks && !km_load(&cache->charging) && !cache->dead &&
	       !(gfp & KMEM_GFP_ODD);
}

/* The CPU's chain had but `got`. */
static km_noinline bool chain_alloc_rest(struct kmem_cache *cache, gfp_t gfp, size_t got, size_t n, void **objects)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	unsigned tries = 0;

	km_front_enter_thread(request.may_wait);
	bool was = km_calls_begin(request.may_wait);
	if (!km_front_busy) {
		km_busy_begin();
		km_store(&cache->touched, true);
		km_front_finish_deferred(cache);
		got = chain_take(cache, &request, got, n, objects);
		while (km_unlikely(got < n) && request.may_wait && km_front_relieve(cache, &tries))
			got = chain_take(cache, &request, got, n, objects);
		if (request.may_wait)
			km_front_tick_rarely();
		km_busy_end(false);
	}
	if (got && got < n)
		km_plain_free_bulk(cache, got, objects);
	km_calls_end(was);
	if (km_likely(got == n))
		return true;
	return km_front_failed(cache->name, cache->object_size, gfp, ENOMEM) != NULL;
}

static bool chain_alloc(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	size_t got = km_chain_pop_n(&cache->chain, objects, n);

	if (km_unlikely(km_layout_options.count_events))
		cache->engine->hit(cache, KMEM_ALLOC_FASTPATH, got);
	return km_likely(got == n) || chain_alloc_rest(cache, gfp, got, n, objects);
}

km_inline bool chain_enter(struct kmem_cache *cache)
{
	if (km_unlikely(cache->hooks || km_load(&cache->charging) || cache->checked || km_front_busy))
		return false;
	km_front_enter_thread(true);
	km_busy_begin();
	km_store(&cache->touched, true);
	return true;
}

km_inline void chain_leave(void)
{
	km_front_tick_rarely();
	km_busy_end(false);
}

bool km_front_free_chain(struct kmem_cache *cache, size_t n, void **objects)
{
	if (!chain_enter(cache))
		return false;
	for (unsigned count; n; n -= count) {
		count = (unsigned)km_min(n, (size_t)4096);
		cache->engine->give(cache, objects + n - count, count);
	}
	chain_leave();
	return true;
}

size_t km_front_free_last(struct kmem_cache *cache, size_t n, void **objects)
{
	unsigned count = (unsigned)km_min(n, (size_t)4096);

	if (!chain_enter(cache))
		return n;
	n -= count;
	n += cache->engine->chain.give_last(cache, objects + n, count);
	chain_leave();
	return n;
}

/* ------------------------------------------------------------------ in */

/* Copy out of the CPU's two blocks; returns how many are still to be had. */
static size_t from_shelf(struct kmem_cache *cache, size_t left, void **objects)
{
	for (int tries = 0; left && tries < TRIES;) {
		size_t moved = km_shelf_pop_n(&cache->shelf, objects, left);

		km_front_hit(cache, KMEM_ALLOCHIT, moved);
		left -= moved;
		tries += !moved;
		if (!left || !km_shelf_swap(&cache->shelf, true, false))
			break;
		km_front_note_swap(cache);
	}
	return left;
}

/* One block from the engine, copied out; the rest of it goes on the shelf. */
static size_t from_block(struct kmem_cache *cache, const struct km_request *request, size_t left,
			 void **objects)
{
	void **empty = km_shelf_detach(&cache->shelf, true, km_front_lone(cache));
	void **block = cache->engine->array.refill(cache, request, empty);

	if (!block) {
		if (empty)
			km_front_install(cache, empty);
		return left;
	}
	size_t moved = km_min(km_block_count(&cache->shelf, block), left);
	__builtin_memcpy(objects + left - moved, block, moved * sizeof(*block));
	km_front_install(cache, block + moved);
	return left - moved;
}

static size_t from_slabs(struct kmem_cache *cache, const struct km_request *request, size_t left,
			 void **objects)
{
	while (left) {
		unsigned want = (unsigned)km_min(left, (size_t)4096);
		unsigned got = cache->engine->take(cache, request, objects + left - want, want);

		/* take fills from the front: keep the invariant that the end is done. */
		if (got < want)
			__builtin_memmove(objects + left - got, objects + left - want,
					  got * sizeof(*objects));
		left -= got;
		if (got < want)
			break;
	}
	return left;
}

static size_t from_engine(struct kmem_cache *cache, const struct km_request *request, size_t left,
			  void **objects)
{
	while (left && km_load(&cache->shelf.inner.shelf) && km_thread_has_cpu()) {
		size_t before = left;

		left = from_block(cache, request, left, objects);
		if (left == before)
			return left;
		left = from_shelf(cache, left, objects);
	}
	return from_slabs(cache, request, left, objects);
}

/* Who insists on a node gets its objects; a shelf may hold others. */
static bool has_strangers(const struct km_request *request, size_t n, void **objects)
{
	for (size_t i = 0; km_unlikely(request->node >= 0) && i < n; i++)
		if (km_page_node(objects[i]) != (unsigned)request->node)
			return true;
	return false;
}

/* What the shelf had of other nodes goes home; returns how many are to be had then. */
static size_t send_home(struct kmem_cache *cache, unsigned node, size_t left, size_t n, void **objects)
{
	size_t strangers = left;

	for (size_t i = left; i < n; i++)
		if (km_unlikely(km_page_node(objects[i]) != node)) {
			void *stranger = objects[i];

			objects[i] = objects[strangers];
			objects[strangers++] = stranger;
		}
	for (unsigned now; left < strangers; left += now) {
		now = (unsigned)km_min(strangers - left, (size_t)4096);
		cache->engine->give(cache, objects + left, now);
	}
	return left;
}

static size_t from_own_node(struct kmem_cache *cache, const struct km_request *request, size_t left,
			    size_t n, void **objects)
{
	left = from_engine(cache, request, left, objects);
	left = send_home(cache, (unsigned)request->node, left, n, objects);
	return from_slabs(cache, request, left, objects);
}

static size_t get_rest(struct kmem_cache *cache, const struct km_request *request, size_t left,
			size_t n, void **objects)
{
	return km_likely(request->node < 0) ? from_engine(cache, request, left, objects) :
					      from_own_node(cache, request, left, n, objects);
}

/* Where there is no shelf every call comes here. */
static void tick(const struct kmem_cache *cache)
{
	if (cache->engine->front == KM_FRONT_NONE)
		km_front_tick_rarely();
	else if (km_front_tick)
		km_front_tick();
}

/* With watchers, or where the gfp bits change each object. */
static size_t one_by_one(struct kmem_cache *cache, gfp_t gfp, size_t left, void **objects)
{
	for (; left; left--) {
		objects[left - 1] = km_plain_alloc(cache, gfp, NUMA_NO_NODE);
		if (!objects[left - 1])
			break;
	}
	return left;
}

/* What the CPU's main block could not serve: objects[0, left) of n. */
static km_noinline bool alloc_rest(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n,
				   void **objects)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	bool was = km_calls_begin(request.may_wait);
	unsigned tries = 0;

	fit_bulk(cache, n);
	if (km_unlikely(gfp & __GFP_THISNODE))
		km_front_place(&request, NUMA_NO_NODE);
	if (km_unlikely((gfp & (__GFP_ZERO | ~__GFP_BITS_MASK)) || cache->hooks ||
			cache->dead)) {
		left = one_by_one(cache, gfp, left, objects);
	} else {
		/* Inside of a handler strangers can't be sent home. */
		if (cache->engine->front == KM_FRONT_ARRAY && (request.node < 0 || !km_front_busy))
			left = from_shelf(cache, left, objects);
		km_front_enter_thread(request.may_wait);
		if ((left || has_strangers(&request, n - left, objects + left)) && !km_front_busy) {
			km_busy_begin();
			km_front_note_miss(cache);
			left = get_rest(cache, &request, left, n, objects);
			while (km_unlikely(left) && request.may_wait && km_front_relieve(cache, &tries))
				left = get_rest(cache, &request, left, n, objects);
			if (request.may_wait)
				tick(cache);
			km_busy_end(false);
		}
	}
	if (left && left < n)
		km_plain_free_bulk(cache, n - left, objects + left);
	km_calls_end(was);
	if (km_likely(!left))
		return true;
	return km_front_failed(cache->name, cache->object_size, gfp, ENOMEM) != NULL;
}

/* Straight from the engine, to the end of objects[0, n); returns how many there are. */
static size_t take_last(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	unsigned want = (unsigned)km_min(n, (size_t)4096);
	unsigned got = km_front_take(cache, &request, objects + n - want, want);

	/* What is missing is missing at the front. */
	if (got < want)
		__builtin_memmove(objects + n - got, objects + n - want, got * sizeof(*objects));
	return got;
}

/* The public shelf had no more: objects[0, left) are to be had. */
static bool bulk_plain(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	if (cache->engine->front == KM_FRONT_NONE)
		left -= take_last(cache, gfp, left, objects);
	if (!left)
		return true;
	return alloc_rest(cache, gfp, left, n, objects);
}

static bool bulk_missed(struct kmem_cache *cache, gfp_t gfp, size_t left, size_t n, void **objects)
{
	if (km_likely(!km_load(&cache->charging))) {
		if (km_likely(!(gfp & __GFP_ACCOUNT)) || !km_front_may_charge(cache, gfp))
			return bulk_plain(cache, gfp, left, n, objects);
	}
	/* What we have is paid for; or it began to be while we had a part of it: that part is nobody's. */
	if (km_likely(km_charging(cache)->alloc_bulk(cache, gfp, left, objects)))
		return true;
	if (left < n) {
		bool was = km_calls_begin((gfp & __GFP_DIRECT_RECLAIM) != 0);

		km_front_free_bulk(cache, n - left, objects + left);
		km_calls_end(was);
	}
	return false;
}

bool km_plain_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	return bulk_plain(cache, gfp, n, n, objects);
}

#ifdef KMEM_HAVE_RSEQ
/* What there is on a block of many owners, into the end of objects[0, *left). False: refused; nothing is to be had. */
km_inline bool take_mixed(struct kmem_cache *cache, gfp_t gfp, uint32_t mask, size_t *left, void **objects)
{
	size_t n = km_rseq_pop_n(&cache->charged.front.back, mask, cache->shelf.front.percpu,
				 cache->shelf.front.rseq, objects, *left * sizeof(*objects)) / sizeof(*objects);

	if (km_unlikely(!n))
		return true;
	n = km_charging(cache)->take_bulk(cache, gfp, km_objcg_here, n, objects + *left - n);
	if (km_unlikely(n == SIZE_MAX))
		return false;
	*left -= n;
	return true;
}
#endif

bool km_front_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	size_t left = n;

	/* The copy of a sequence moves one object at least, and its bytes can be counted. */
	if (km_unlikely(n - 1 >= PTRDIFF_MAX / sizeof(*objects))) {
		km_front_check_gfp("kmem_cache_alloc_bulk", gfp, cache->name);
		return n && km_front_failed(cache->name, SIZE_MAX, gfp, ENOMEM);
	}
	/* A closed chain goes on below, and finds its engine in the end. */
	if (km_unlikely(km_load(&cache->chain.open)) && chain_may(cache, gfp))
		return chain_alloc(cache, gfp, n, objects);
#ifdef KMEM_HAVE_RSEQ
	/* The public shelf: closed where each object must be seen. */
	if (km_likely(!(gfp & KMEM_GFP_ODD)))
		left -= km_rseq_pop_n(&cache->shelf.front.open, cache->shelf.block_mask,
				      cache->shelf.front.percpu, cache->shelf.front.rseq, objects,
				      n * sizeof(*objects)) / sizeof(*objects);
	if (km_likely(!left))
		return true;
	/* What is paid for already: front.h. No copy begins with the mask of a shelf that another thread is making. */
	const uint32_t mask = km_load(&cache->charged.block_mask);

	if (!km_objcg_here || km_unlikely(!mask))
		return bulk_missed(cache, gfp, left, n, objects);
	if (km_likely(!(gfp & km_load(&cache->charged_odd))))
		left -= km_rseq_owned_pop_n(&cache->charged.front.open, mask, cache->shelf.front.percpu,
					    cache->shelf.front.rseq, (uintptr_t)km_objcg_here, objects,
					    left * sizeof(*objects)) / sizeof(*objects);
	else if (!(gfp & KM_CHARGED_ODD) && !take_mixed(cache, gfp, mask, &left, objects))
		return false;
	if (km_likely(!left))
		return true;
#endif
	return bulk_missed(cache, gfp, left, n, objects);
}

/* ------------------------------------------------------------------ out */

static size_t to_shelf(struct kmem_cache *cache, size_t left, void **objects)
{
	for (int tries = 0; left && tries < TRIES;) {
		size_t moved = km_shelf_push_n(&cache->shelf, objects, left);

		km_front_hit(cache, KMEM_FREEHIT, moved);
		left -= moved;
		tries += !moved;
		if (!left || !km_shelf_swap(&cache->shelf, false, false))
			break;
		km_front_note_swap(cache);
	}
	return left;
}

static size_t to_block(struct kmem_cache *cache, size_t left, void **objects)
{
	void **full = km_shelf_detach(&cache->shelf, false, km_front_lone(cache));
	void **room = cache->engine->array.spill(cache, full);

	if (!room)
		return left;
	/* Not all of it: a block that was spilt in part has its older objects still. */
	size_t moved = km_min(km_block_room(&cache->shelf, room), left);
	__builtin_memcpy(room - moved, objects + left - moved, moved * sizeof(*objects));
	km_front_install(cache, room - moved);
	return left - moved;
}

/* What the CPU's main block had no room for: objects[0, left). */
static km_noinline void free_rest(struct kmem_cache *cache, size_t left, void **objects)
{
	if (km_unlikely(cache->hooks || (cache->checked && !cache->engine->shared_pages) || cache->dead)) {
		while (left)
			km_plain_free(cache, objects[--left]);
		return;
	}
	if (cache->engine->front == KM_FRONT_ARRAY)
		left = to_shelf(cache, left, objects);
	if (km_likely(!left))
		return;
	int saved_errno = errno;
	if (km_front_busy) {
		while (left)
			km_plain_free(cache, objects[--left]);
		return;
	}
	km_front_enter_thread(true);
	km_busy_begin();
	km_front_note_miss(cache);
	while (left && km_load(&cache->shelf.inner.shelf) && km_thread_has_cpu()) {
		size_t before = left;

		left = to_block(cache, left, objects);
		if (left == before)
			break;
		left = to_shelf(cache, left, objects);
	}
	while (left) {
		unsigned count = (unsigned)km_min(left, (size_t)4096);

		cache->engine->give(cache, objects + left - count, count);
		left -= count;
	}
	tick(cache);
	km_busy_end(false);
	errno = saved_errno;
}

/* n of `all` are left. */
static void free_plain(struct kmem_cache *cache, size_t n, size_t all, void **objects)
{
	if (cache->engine->front == KM_FRONT_CHAIN && km_front_free_chain(cache, n, objects))
		return;
	if (cache->engine->front == KM_FRONT_NONE && km_front_give(cache, objects, n))
		return;
	fit_bulk(cache, all);
	free_rest(cache, n, objects);
}

void km_plain_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	free_plain(cache, n, n, objects);
}

void km_front_free_bulk(struct kmem_cache *cache, size_t n, void **objects)
{
	const size_t all = n;

#ifdef KMEM_HAVE_RSEQ
	n -= km_rseq_push_n(&cache->shelf.front.back, cache->shelf.front.percpu,
			    cache->shelf.front.rseq, objects, n * sizeof(*objects)) / sizeof(*objects);
	if (km_likely(!n))
		return;
#endif
	if (km_unlikely(km_load(&cache->charging) != NULL))
		km_charging(cache)->free_bulk(cache, n, objects);
	else
		free_plain(cache, n, all, objects);
}

bool kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects)
{
	/* A hit for one object is shorter than one for many. */
	if (n == 1)
		return (objects[0] = (kmem_cache_alloc)(cache, gfp)) != NULL;
	return km_front_alloc_bulk(cache, gfp, n, objects);
}
