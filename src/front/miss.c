/*
 * miss.c: a miss: swap, refill, spill, hooks, pressure, failure. Invariants: a block in hand is on no shelf and in
 * no barn; km_front_busy is set whenever an engine is entered, and an engine is never entered while it is set; errno
 * is as the caller left it unless NULL is returned.
 */
#include <errno.h>

#include "../port/bits.h"
#include "../port/chain_hit.h"
#include "../port/die.h"
#include "front.h"

km_tls uint8_t km_front_turn;
uint8_t km_front_looks[KM_MAX_CPUS] km_sparse;
void (*km_front_tick)(void);
bool (*km_front_pressure)(struct kmem_cache *only, unsigned *tries);
km_tls struct obj_cgroup *km_objcg_here;
km_tls bool km_account_here;
bool km_charge_everything;
struct obj_cgroup *km_objcg_default;
bool (*km_front_charge)(struct kmem_cache *cache, bool may_wait) = km_charge_begin;
const struct km_charged_drain *km_front_charged = &km_charge_drain_all;

bool km_front_may_charge(struct kmem_cache *cache, gfp_t gfp)
{
	if (!km_front_charge || !km_objcg_now() || km_front_busy)
		return false;
	bool was = km_calls_begin((gfp & __GFP_DIRECT_RECLAIM) != 0);
	bool busy = km_busy_begin();
	bool begun = km_front_charge(cache, (gfp & __GFP_DIRECT_RECLAIM) != 0);
	km_busy_end(busy);
	km_calls_end(was);
	return begun;
}

bool km_front_relieve(struct kmem_cache *cache, unsigned *tries)
{
	struct kmem_cache *only = km_slab_refused ? cache : NULL;

	km_slab_refused = false;
	return km_front_pressure && km_front_pressure(only, tries);
}

void km_front_tick_now(void)
{
	int saved_errno = errno;

	if (km_front_tick)
		km_front_tick();
	errno = saved_errno;
}

/* Aborted sequences and lost races a verb may suffer before we go to the engine for one object. */
#define TRIES 8

km_inline bool enter(void)
{
	if (km_unlikely(km_front_busy))
		return false;
	km_busy_begin();
	return true;
}

km_inline void leave(void)
{
	km_busy_end(false);
}

/* ------------------------------------------------------------------ deferred frees */

km_cold static void report_double(struct kmem_cache *cache, void *object)
{
	km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->name);
}

/* A nested free that may not enter the engine: linked through the object, finished by the next miss. */
static void defer(struct kmem_cache *cache, void *object)
{
	void **link = (void **)((char *)object + cache->freeptr);
	void *head = km_load(&cache->deferred);

	do
		*link = head;
	while (!km_cas_release(&cache->deferred, &head, object));
}

/* Acquire pairs with the release in defer. */
void km_front_finish_deferred(struct kmem_cache *cache)
{
	if (km_likely(!km_load(&cache->deferred)))
		return;
	void *object = km_swap_acquire(&cache->deferred, NULL), *next;
	/* Before the first is given: that may write over its link. */
	void *twice = km_cut_circle(object, cache->freeptr);

	for (; object; object = next) {
		next = *(void **)((char *)object + cache->freeptr);
		cache->engine->give(cache, &object, 1);
	}
	if (km_unlikely(twice != NULL))
		report_double(cache, twice);
}

/* ------------------------------------------------------------------ one object in */

void km_front_install(struct kmem_cache *cache, void **block)
{
	void **evicted;

	for (int i = 0; i < TRIES; i++)
		if (km_shelf_install(&cache->shelf, block, &evicted)) {
			if (evicted)
				cache->engine->array.retire(cache, evicted);
			return;
		}
	cache->engine->array.retire(cache, block);
}

/* An empty main block with a partner is exchanged; alone it becomes the new one's partner. */
static void *refill_shelf(struct kmem_cache *cache, const struct km_request *request)
{
	void **empty = km_shelf_detach(&cache->shelf, true, km_front_lone(cache));
	void **block = cache->engine->array.refill(cache, request, empty);

	if (!block) {
		if (empty)
			km_front_install(cache, empty);
		return NULL;
	}
	void *object = *block++;
	/* Another CPU may have freed them: their lines come all at once, not one by one as each is first written. */
	for (void **next = block; *next; next++)
		km_prefetch_write(*next);
	km_front_install(cache, block);
	return object;
}

/* The shelf serves the CPU's own node, and no other. */
static bool may_refill(const struct kmem_cache *cache, const struct km_request *request)
{
	return km_load(&cache->shelf.inner.shelf) && km_thread_has_cpu() &&
	       (km_likely(request->node < 0) || (unsigned)request->node == km_node_here());
}

/* A chain's engine looks at nodes itself. */
static bool on_own_shelf(const struct kmem_cache *cache, const struct km_request *request)
{
	return cache->engine->front == KM_FRONT_ARRAY && may_refill(cache, request);
}

static void *serve(struct kmem_cache *cache, const struct km_request *request)
{
	void *object = NULL;

	switch (cache->engine->front) {
	case KM_FRONT_ARRAY:
		if (may_refill(cache, request))
			return refill_shelf(cache, request);
		break;
	case KM_FRONT_CHAIN:
	case KM_FRONT_NONE:
		return cache->engine->alloc(cache, request);
	}
	cache->engine->take(cache, request, &object, 1);
	return object;
}

/* Who names a node gets its memory as long as it has some, before what other nodes have ready. */
static void *from_engine(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_request only = *request;

	if (km_likely(request->node < 0) || request->gfp & __GFP_THISNODE)
		return serve(cache, request);
	only.gfp |= __GFP_THISNODE;
	return serve(cache, &only) ?: serve(cache, request);
}

/* Between two looks of reclaim (half a second), so many points ask for blocks twice as large. */
#define GROW_POINTS	256u
#define MISS_POINTS	8u	/* the engine was needed */
#define SWAP_POINTS	1u	/* it was not, but the block was too small */

/* A rough count. Idle caches come back to what they began with. */
static void note(struct kmem_cache *cache, unsigned points)
{
	unsigned capacity = km_mask_capacity(km_front_mask(cache));

	/* Once it has grown, two CPUs that miss don't write the same line. */
	if (km_unlikely(!km_load(&cache->touched)))
		km_store(&cache->touched, true);
	if (km_likely(capacity >= cache->busy_capacity))
		return;
	points += km_load(&cache->misses);
	if (points >= GROW_POINTS) {
		km_front_resize(cache, km_min(capacity * 2 + 2, (unsigned)cache->busy_capacity));
		points = 0;
	}
	km_store(&cache->misses, (uint16_t)points);
}

void km_front_note_miss(struct kmem_cache *cache)
{
	uint8_t *looks = &km_front_looks[km_cpu()];

	if (km_unlikely(km_load(looks)))
		km_store(looks, (uint8_t)0);
	note(cache, MISS_POINTS);
}

void km_front_note_swap(struct kmem_cache *cache)
{
	note(cache, SWAP_POINTS);
}

/* ------------------------------------------------------------------ a chain's hits */

/* With KMEM_OPTIONS=stats:1. */
km_cold static void *count_pop(struct kmem_cache *cache, void *object)
{
	cache->engine->hit(cache, KMEM_ALLOC_FASTPATH, 1);
	return object;
}

/* For all but alloc_ordinary. */
static km_noinline void *chain_pop(struct kmem_cache *cache)
{
	void *object = km_chain_pop(&cache->chain);

	return km_unlikely(km_layout_options.count_events) && object ? count_pop(cache, object) : object;
}

/* ------------------------------------------------------------------ one object back */

static void spill_shelf(struct kmem_cache *cache, void *object)
{
	void **full = km_shelf_detach(&cache->shelf, false, km_front_lone(cache));
	void **room = cache->engine->array.spill(cache, full);

	if (!room) {
		cache->engine->give(cache, &object, 1);
		return;
	}
	*--room = object;
	km_front_install(cache, room);
}

static void to_engine(struct kmem_cache *cache, void *object)
{
	if (cache->engine->front != KM_FRONT_ARRAY)
		cache->engine->free(cache, object);
	else if (km_load(&cache->shelf.inner.shelf) && km_thread_has_cpu())
		spill_shelf(cache, object);
	else
		cache->engine->give(cache, &object, 1);
}

static bool second_try(struct kmem_cache *cache, void *object)
{
	/* A plain chain was tried before; one with watchers goes by its engine. */
	if (cache->engine->front != KM_FRONT_ARRAY)
		return false;
	for (int i = 0; i < TRIES; i++) {
		if (km_shelf_push(&cache->shelf, object)) {
			km_front_hit(cache, KMEM_FREEHIT, 1);
			return true;
		}
		if (!km_shelf_swap(&cache->shelf, false, !km_front_lone(cache)))
			break;
		km_front_note_swap(cache);
	}
	return false;
}

/* All that a free is, once the watchers have seen it. */
static void put_back(struct kmem_cache *cache, void *object)
{
	km_front_enter_thread(true);
	if (second_try(cache, object))
		return;
	if (!enter()) {
		defer(cache, object);
		return;
	}
	km_front_note_miss(cache);
	km_front_finish_deferred(cache);
	to_engine(cache, object);
	if (km_front_tick)
		km_front_tick();
	leave();
}

/* ------------------------------------------------------------------ one object in, without a shelf */

/* A hit that the public shelf did not serve: the inner shelf, or the engine's chain. */
static void *second_look(struct kmem_cache *cache)
{
	if (cache->engine->front == KM_FRONT_CHAIN)
		return chain_pop(cache);
	if (cache->engine->front == KM_FRONT_NONE)
		return NULL;
	for (int i = 0; i < TRIES; i++) {
		void *object = km_shelf_pop(&cache->shelf);

		if (object) {
			km_front_hit(cache, KMEM_ALLOCHIT, 1);
			return object;
		}
		if (!km_shelf_swap(&cache->shelf, true, !km_front_lone(cache)))
			break;
		km_front_note_swap(cache);
	}
	return NULL;
}

static void send_home(struct kmem_cache *cache, void **objects, unsigned count, bool may_wait)
{
	if (!enter()) {
		while (count)
			put_back(cache, objects[--count]);
		return;
	}
	bool was = km_calls_begin(may_wait);
	cache->engine->give(cache, objects, count);
	km_calls_end(was);
	leave();
}

/*
 * For a request that names the CPU's own node: the shelf may hold objects of others. Those that lie in the way go home.
 */
static void *look_for_node(struct kmem_cache *cache, const struct km_request *request)
{
	void *strangers[TRIES], *object = NULL;
	unsigned count = 0;

	while (count < TRIES && (object = second_look(cache)) &&
	       km_page_node(object) != (unsigned)request->node) {
		strangers[count++] = object;
		object = NULL;
	}
	if (km_unlikely(count))
		send_home(cache, strangers, count, request->may_wait);
	return object;
}

static void *alloc_one(struct kmem_cache *cache, const struct km_request *request)
{
	bool named = km_unlikely(request->node >= 0);
	void *object = !named ? second_look(cache) :
		       on_own_shelf(cache, request) ? look_for_node(cache, request) : NULL;
	unsigned tries = 0;

	if (object || !enter())
		return object;
	bool was = km_calls_begin(request->may_wait);
	km_front_note_miss(cache);
	km_front_finish_deferred(cache);
	object = from_engine(cache, request);
	while (km_unlikely(!object) && request->may_wait && km_front_relieve(cache, &tries))
		object = from_engine(cache, request);
	/* Another node's objects come one by one. */
	if (request->may_wait && named)
		km_front_tick_rarely();
	else if (request->may_wait && km_front_tick)
		km_front_tick();
	km_calls_end(was);
	leave();
	return object;
}

void *km_front_failed(const char *name, size_t size, gfp_t gfp, int error)
{
	static uint32_t said;

	if (gfp & __GFP_NOFAIL)
		km_panic("%s: out of memory, %lu bytes with __GFP_NOFAIL", name, (unsigned long)size);
	if (!(gfp & __GFP_NOWARN) && (gfp & __GFP_DIRECT_RECLAIM) && km_add(&said, 1u) < 10)
		km_warn("%s: unable to allocate %lu bytes, gfp=0x%x", name, (unsigned long)size,
			gfp);
	errno = error;
	return NULL;
}

/* Kernel: warns, too. */
void *km_constructed(const struct kmem_cache *cache, void *object)
{
	static uint32_t said;

	if (!km_swap_acquire(&said, 1u))
		km_warn("kmem_cache_alloc(%s): __GFP_ZERO, but its objects are constructed: they stay so", cache->name);
	return object;
}

/* With __GFP_ZERO zeros; of a block that is served by size, so many as its user has of it. */
km_inline void *as_asked(const struct kmem_cache *cache, void *object, const struct km_request *request)
{
	size_t unit = km_unlikely(km_sanitizer.objects) ? 1 : ARCH_KMALLOC_MINALIGN;

	if (km_likely(!(request->gfp & __GFP_ZERO)))
		return object;
	if (request->bytes)
		return __builtin_memset(object, 0, km_align_up(request->bytes, unit));
	return km_cleared(cache, object);
}

/* Show it to the watchers, zero it. */
static void *finish(struct kmem_cache *cache, void *object, const struct km_request *request)
{
	gfp_t gfp = request->gfp;

	if (km_unlikely(cache->hooks && cache->hooks->on_alloc)) {
		void *shown = cache->hooks->on_alloc(cache, object, gfp);

		if (!shown) {
			bool was = km_calls_begin((gfp & __GFP_DIRECT_RECLAIM) != 0);

			put_back(cache, object);
			km_calls_end(was);
			return NULL;
		}
		object = shown;
	}
	return as_asked(cache, object, request);
}

bool km_front_place(struct km_request *request, int id)
{
	bool only = request->gfp & __GFP_THISNODE;

	if (id == NUMA_NO_NODE) {
		if (km_unlikely(only && km_node_count > 1))
			request->node = (int)km_node_here();
		return true;
	}
	int node = km_node_of_id(id, only);
	if (km_node_count > 1)
		request->node = node;
	return node >= 0 || (!only && id > NUMA_NO_NODE);
}

/* The node in the request is the caller's, by its number to the system; then it is ours. */
km_cold static void *miss(struct kmem_cache *cache, struct km_request *request)
{
	gfp_t gfp = request->gfp;
	int node = request->node;
	size_t bytes = request->bytes ?: cache->object_size;

	request->node = NUMA_NO_NODE;
	if (km_unlikely(cache->dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_alloc", cache, cache->name);
		errno = EINVAL;
		return NULL;
	}
	km_front_check_gfp("kmem_cache_alloc", gfp, cache->name);
	if (km_unlikely(!km_front_place(request, node)))
		return km_front_failed(cache->name, bytes, gfp, ENOMEM);
	km_front_enter_thread(request->may_wait);
	void *object = alloc_one(cache, request);
	if (km_likely(object))
		object = finish(cache, object, request);
	return km_likely(object) ? object : km_front_failed(cache->name, bytes, gfp, ENOMEM);
}

/* Its hits are a chain's, by a soft discipline. */
km_inline bool soft_chain(const struct kmem_cache *cache)
{
	return cache->engine->front == KM_FRONT_CHAIN && !cache->chain_hits && !cache->hooks && !cache->checked;
}

/* Without a shelf each call meets the engine: the ordinary ones by the shortest way. */
km_inline bool enter_direct(struct kmem_cache *cache)
{
	if (km_unlikely(cache->hooks || cache->dead || km_load(&cache->deferred) || !enter()))
		return false;
	if (km_unlikely(!km_load(&cache->touched)))
		km_store(&cache->touched, true);
	return true;
}

km_inline bool alloc_enter_direct(struct kmem_cache *cache, const struct km_request *request)
{
	return km_likely(!(request->gfp & (KMEM_GFP_ODD & ~__GFP_ZERO)) && request->may_wait) && enter_direct(cache);
}

km_inline void leave_direct(void)
{
	km_front_tick_rarely();
	leave();
}

/* Returns how many it got; what is missing is to be had by the long way, or not at all. */
unsigned km_front_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		       unsigned want)
{
	if (request->gfp & __GFP_ZERO || !alloc_enter_direct(cache, request))
		return 0;
	unsigned got = cache->engine->take(cache, request, objects, want);
	leave_direct();
	return got;
}

km_inline void *alloc_direct(struct kmem_cache *cache, const struct km_request *request)
{
	if (!alloc_enter_direct(cache, request))
		return NULL;
	void *object = cache->engine->alloc(cache, request);
	leave_direct();
	return km_likely(object) ? as_asked(cache, object, request) : NULL;
}

void *km_front_alloc_sized(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	struct km_request request = km_request_of(gfp, node);

	request.bytes = (uint32_t)bytes;
	request.align = (uint32_t)align;
	return (node == NUMA_NO_NODE ? alloc_direct(cache, &request) : NULL) ?:
	       miss(cache, &request);
}

static void *alloc_without_shelf(struct kmem_cache *cache, gfp_t gfp)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);

	return alloc_direct(cache, &request) ?: miss(cache, &request);
}

/* The CPU's shelf is of no use. */
static void *take_named(struct kmem_cache *cache, struct km_request request)
{
	void *object = NULL;

	if (!request.may_wait || !enter_direct(cache))
		return NULL;
	request.gfp |= __GFP_THISNODE;
	cache->engine->take(cache, &request, &object, 1);
	leave_direct();
	return object;
}

/* The node that is named is the CPU's, and so is what lies on top of its shelf, mostly: a hit, and a look behind it. */
static void *own_pop(struct kmem_cache *cache, gfp_t gfp, int id)
{
	unsigned here = km_node_here();

	if (cache->engine->front != KM_FRONT_ARRAY || km_node_of_id(id, gfp & __GFP_THISNODE) != (int)here)
		return NULL;
	void *object = km_shelf_pop(&cache->shelf);
	if (km_likely(object) && km_likely(km_page_node(object) == here)) {
		km_front_hit(cache, KMEM_ALLOCHIT, 1);
		return object;
	}
	/* Who comes the long way sends it home. */
	if (object && !km_shelf_push(&cache->shelf, object))
		send_home(cache, &object, 1, (gfp & __GFP_DIRECT_RECLAIM) != 0);
	return NULL;
}

/* What lies ready here may be of the node that is named, or there is only one; and it may be cleared. */
static void *alloc_named(struct kmem_cache *cache, gfp_t gfp, int id)
{
	const gfp_t odd = __GFP_ACCOUNT | ~__GFP_BITS_MASK;
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	void *object = NULL;

	if (km_likely(!(gfp & odd) && !cache->hooks) && id >= 0 && (object = own_pop(cache, gfp, id)))
		return as_asked(cache, object, &request);
	if (km_likely(!(gfp & odd) && !cache->hooks) && km_front_place(&request, id))
		object = request.node < 0		   ? second_look(cache) :
			 on_own_shelf(cache, &request) ? look_for_node(cache, &request) :
							 take_named(cache, request);
	if (km_likely(object != NULL))
		return as_asked(cache, object, &request);
	request.node = id;
	return miss(cache, &request);
}

/* In a function of its own: a chain's hit has no request on its stack. */
static km_noinline void *miss_ordinary(struct kmem_cache *cache, gfp_t gfp)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);

	if (km_unlikely(gfp & (__GFP_THISNODE | __GFP_ZERO)))
		return alloc_named(cache, gfp, NUMA_NO_NODE);
	return miss(cache, &request);
}

/* No hit of a chain under rseq, or one that is to be cleared. */
km_noinline void *km_alloc_no_hit(struct kmem_cache *cache, gfp_t gfp)
{
	bool zeroed = (gfp & __GFP_ZERO) && cache->chain_hits && !cache->hooks;

	if ((soft_chain(cache) || zeroed) && km_likely(!(gfp & KMEM_GFP_ODD & ~__GFP_ZERO))) {
		void *object = chain_pop(cache);

		if (km_likely(object))
			return km_likely(!(gfp & __GFP_ZERO)) ? object : km_cleared(cache, object);
	}
	return cache->engine->front == KM_FRONT_NONE ? alloc_without_shelf(cache, gfp) : miss_ordinary(cache, gfp);
}

/*
 * A chain's every hit ends here: what is not one is a call at the end, so that a hit has no frame. Its sequence stands
 * here once: tests/rseq/abort strikes each instruction of each copy.
 */
static km_hit_path km_noinline void *alloc_ordinary(struct kmem_cache *cache, gfp_t gfp)
{
	if (km_likely(cache->chain_hits && !cache->hooks) && km_likely(!(gfp & KMEM_GFP_ODD))) {
		void *object = km_chain_rseq_pop(&cache->chain);

		if (km_likely(object))
			return km_likely(!km_layout_options.count_events) ? object : count_pop(cache, object);
	}
	return km_unlikely(km_percpu.index == KM_INDEX_CID) ? km_alloc_by_cid(cache, gfp) : km_alloc_no_hit(cache, gfp);
}

void *km_plain_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	return km_likely(node == NUMA_NO_NODE) ? alloc_ordinary(cache, gfp) : alloc_named(cache, gfp, node);
}

km_hit_path void *km_alloc_miss(struct kmem_cache *cache, gfp_t gfp)
{
	/* A chain's every hit comes by here. */
	if (km_likely(!km_load(&cache->charging)) && km_likely(!(gfp & __GFP_ACCOUNT)))
		return alloc_ordinary(cache, gfp);
	if (km_unlikely(gfp & KM_CHARGED_ODD))
		return km_alloc_missed(cache, gfp);
	return km_charged_alloc(cache, gfp, km_objcg_now(), cache->shelf.front.rseq);
}

/* Nobody pays here yet; maybe from now on. */
static km_noinline void *alloc_uncharged(struct kmem_cache *cache, gfp_t gfp)
{
	if (km_unlikely(gfp & __GFP_ACCOUNT) && km_front_may_charge(cache, gfp))
		return km_charging(cache)->alloc(cache, gfp, NUMA_NO_NODE);
	return alloc_ordinary(cache, gfp);
}

void *km_alloc_missed(struct kmem_cache *cache, gfp_t gfp)
{
	if (km_likely(km_load(&cache->charging) != NULL))
		return km_charging(cache)->alloc(cache, gfp, NUMA_NO_NODE);
	return alloc_uncharged(cache, gfp);
}

void *km_alloc_miss_node(struct kmem_cache *cache, gfp_t gfp, int node)
{
	if (km_likely(node == NUMA_NO_NODE))
		return km_alloc_miss(cache, gfp);
	if (km_unlikely(km_load(&cache->charging) != NULL) ||
	    (km_unlikely(gfp & __GFP_ACCOUNT) && km_front_may_charge(cache, gfp)))
		return km_charging(cache)->alloc(cache, gfp, node);
	return km_plain_alloc(cache, gfp, node);
}

/* ------------------------------------------------------------------ one object out */

/* The object's slab, cache and boundary, and that it is taken; a bad call is reported. */
static bool valid(struct kmem_cache *cache, void *object)
{
	int index;

	if (km_unlikely(cache->dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_free", object, cache->name);
		return false;
	}
	/* There give does it, at once, and for every cache. */
	if (cache->engine->shared_pages)
		return true;
	struct km_page *slab = km_slab_of(cache, object, &index, "kmem_cache_free");

	if (!slab)
		return false;
	/* The engine may take a lock for it: not in a handler that struck inside of one; there give looks again. */
	if (!enter())
		return true;
	bool taken = cache->engine->is_taken(cache, slab, (unsigned)index);
	leave();
	if (taken)
		return true;
	report_double(cache, object);
	return false;
}

km_cold static void free_miss(struct kmem_cache *cache, void *object)
{
	int saved_errno = errno;

	if (km_unlikely(!object)) {
		km_misuse(KM_MISUSE_NULL_FREE, "kmem_cache_free", object, cache->name);
		return;
	}
	if (km_unlikely(cache->checked) && !valid(cache, object))
		return;
	if (km_unlikely(cache->hooks && cache->hooks->on_free) &&
	    !cache->hooks->on_free(cache, object))
		return;
	put_back(cache, object);
	errno = saved_errno;
}

/* A chain meets its engine at every free to another slab than the CPU's. */
static km_noinline void chain_missed(struct kmem_cache *cache, void *object)
{
	km_front_enter_thread(true);
	if (km_unlikely(!object) || km_load(&cache->deferred) || !enter()) {
		free_miss(cache, object);
		return;
	}
	km_store(&cache->touched, true);
	cache->engine->free(cache, object);
	km_front_tick_rarely();
	leave();
}

/* The same without a shelf. */
bool km_front_give(struct kmem_cache *cache, void **objects, size_t n)
{
	if (!enter_direct(cache))
		return false;
	for (unsigned now; n; n -= now, objects += now) {
		now = (unsigned)km_min(n, (size_t)4096);
		cache->engine->give(cache, objects, now);
	}
	leave_direct();
	return true;
}

km_inline bool free_direct(struct kmem_cache *cache, void *object)
{
	if (!enter_direct(cache))
		return false;
	cache->engine->free(cache, object);
	leave_direct();
	return true;
}

/* What a push to a chain left to do: to count it, to say what is wrong, or everything. */
static km_noinline void chain_pushed(struct kmem_cache *cache, void *object, enum km_chain_push pushed)
{
	if (pushed == KM_CHAIN_MISS)
		chain_missed(cache, object);
	else if (pushed == KM_CHAIN_TWICE && object)
		report_double(cache, object);
	else if (pushed == KM_CHAIN_TWICE)
		free_miss(cache, object);	/* NULL, on a CPU with no slab */
	else
		cache->engine->hit(cache, KMEM_FREE_FASTPATH, 1);
}

/* No free to a chain under rseq. */
km_noinline void km_free_no_hit(struct kmem_cache *cache, void *object)
{
	if (soft_chain(cache) && object) {
		enum km_chain_push pushed = km_chain_push_no_hit(&cache->chain, object);

		if (km_unlikely(pushed != KM_CHAIN_PUSHED || km_layout_options.count_events))
			chain_pushed(cache, object, pushed);
	} else if (cache->engine->front != KM_FRONT_NONE || !object || !free_direct(cache, object)) {
		free_miss(cache, object);
	}
}

bool km_front_free_sized(struct kmem_cache *cache, void *object)
{
	if (!enter_direct(cache))
		return false;
	enum km_misuse what = cache->engine->sized.free(cache, object);
	leave_direct();
	return km_likely(what == KM_NO_MISUSE);
}

/* As alloc_ordinary. */
km_hit_path void km_plain_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(!cache->chain_hits || cache->hooks)) {
		if (km_unlikely(km_percpu.index == KM_INDEX_CID))
			km_free_by_cid(cache, object);
		else
			km_free_no_hit(cache, object);
		return;
	}
	enum km_chain_push pushed = km_chain_rseq_push(&cache->chain, object);
	if (km_unlikely(pushed != KM_CHAIN_PUSHED || km_layout_options.count_events))
		chain_pushed(cache, object, pushed);
}

km_hit_path void km_free_miss(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(km_load(&cache->charging) != NULL))
		km_charging(cache)->free(cache, object);
	else
		km_plain_free(cache, object);
}
