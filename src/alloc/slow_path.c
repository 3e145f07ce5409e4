/*
 * slow_path.c: a miss: hits of chains and charged shelves, the jump to the cache's shape; what the shapes share:
 * the notes, the frees of handlers, the nodes, pressure, failure. Invariant: what is a hit after all is found here
 * without a frame; all else is one jump to the cache's shape.
 *
 * A call comes here because its sequence did not commit. That has many reasons, of which an empty shelf is only one:
 * the kernel interrupted the thread, a drain has closed the shelf, the cache has no public shelf (it has a chain, a
 * payer or a watcher), the thread has no CPU, or gfp asks for more than a hit gives. The frames from here on have four
 * names:
 *
 *	hit	fast_path.c, cid_fast_path.c, kmalloc/kmalloc.c,	one sequence, no frame
 *		malloc/malloc.c
 *	miss	this file			a hit of a chain, of a charged or of a proved shelf; else a jump
 *	shape	sheaf_ops.c, freelist_ops.c,	what lies on this CPU; validate.c, observed_ops.c and sampled_ops.c
 *		direct_ops.c			stand before one of these, and memcg/charge.c before all
 *	engine	engine/NAME.c			objects out of slabs and back
 *
 * Signal handlers. An engine takes locks, and a handler that struck its own thread there would wait for itself. So
 * km_thread_busy is set before an engine is entered (km_miss_enter), and a handler that finds it set is not let in:
 * what its CPU's two blocks can't serve fails, if it is an allocation, and a free links the object to
 * cache->deferred. That list needs no lock: a free adds by compare-and-swap, and the miss that finishes the frees
 * takes the whole list by one exchange, so that a head which comes back with another successor does no harm.
 *
 * System calls. A request that may not wait makes none, and neither do the frees that it causes: km_calls_begin keeps
 * the engine from them, and the tick, which gives memory back, is left to a call that may wait.
 */
#include <errno.h>

#include "page/guard_range.h"
#include "base/bits.h"
#include "percpu/cpu_freelist_hit.h"
#include "os/die.h"
#include "alloc_ops.h"

km_tls uint8_t km_alloc_turn;
uint8_t km_alloc_looks[KM_MAX_CPUS] km_sparse;
uint64_t km_alloc_ready[KM_IDS / 64] km_sparse;
void (*km_alloc_tick)(void);
bool (*km_alloc_pressure)(struct kmem_cache *only, size_t bytes, unsigned *tries);
km_tls struct obj_cgroup *km_objcg_here;
km_tls bool km_account_here;
uint32_t km_account_asks;
struct obj_cgroup *km_objcg_default;
const struct km_charge_ops *km_charge_ops;
const struct km_malloc_ops *km_malloc_ops;

void km_alloc_set_ready(const struct kmem_cache *cache, bool ready)
{
	const size_t id = km_load(&km_hot.caches[cache->id]) == cache ? cache->id : 0;
	const uint64_t bit = (uint64_t)1 << id % 64;

	if (ready)
		__atomic_fetch_or(&km_alloc_ready[id / 64], bit, __ATOMIC_SEQ_CST);
	else if (id)
		__atomic_fetch_and(&km_alloc_ready[id / 64], ~bit, __ATOMIC_SEQ_CST);
}

bool km_alloc_begin_charging(struct kmem_cache *cache, gfp_t gfp)
{
	if (!km_has_accounting() || !km_objcg_now() || km_thread_busy)
		return false;
	km_calls_scope(was, km_gfp_may_wait(gfp));
	km_busy_scope(busy);
	return km_charge_ops->begin(cache, km_gfp_may_wait(gfp));
}

const struct km_alloc_ops *km_ops_for_account(struct kmem_cache *cache, gfp_t gfp)
{
	if (!km_ops_charges(km_layer(cache, KM_LAYER_CHARGE)))
		km_alloc_begin_charging(cache, gfp);
	return km_alloc_ops(cache);
}

/* Where the cache's own limit refused the slab, what other caches have ready would not help: it alone is asked. */
bool km_alloc_relieve(struct kmem_cache *cache, unsigned *tries)
{
	struct kmem_cache *only = km_slab_refused ? cache->shadow_of ?: cache : NULL;

	km_slab_refused = false;
	/* More memory does not help if the constructor must not run now. */
	if (cache->ctor && !km_may_construct(cache, false))
		return false;
	return km_alloc_pressure && km_alloc_pressure(only, (size_t)cache->slab_pages << KM_PAGE_SHIFT, tries);
}

/* The tick leaves errno alone, because every system call of ours does (os/os_linux.c). */
void km_alloc_tick_now(void)
{
	if (km_alloc_tick)
		km_alloc_tick();
}

km_cold void km_alloc_note_request(struct kmem_cache *cache, bool may_wait)
{
	if (!may_wait || km_no_calls || !km_miss_enter())
		return;
	km_alloc_tick_now();
	if (!km_load(&km_gate_kept)) {
		if (km_way_is_shut(km_load(&cache->pcs.front.rseq)))
			km_store(&cache->pcs.front.rseq, km_gate.open[1]);
		km_gate_open();
	}
	km_busy_end_clear();
}

/* ------------------------------------------------------------------ deferred frees */

void km_miss_free_twice(struct kmem_cache *cache, void *object)
{
	km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->name);
}

void km_miss_defer(struct kmem_cache *cache, void *object)
{
	/* That takes no lock, and has no room for a link. */
	if (km_is_guarded(object)) {
		km_guard_ops->free(cache, object, "kmem_cache_free");
		return;
	}
	km_defer(cache, object);
	km_alloc_touch(cache);
}

/* May p be the next of the deferred list: a free object of this cache? */
static bool could_be_deferred(const struct kmem_cache *cache, const struct km_hooks *hooks, const void *p)
{
	struct km_page *page = km_page_of(p), *slab = page ? km_page_head(page) : NULL;

	if (page && page->type == KM_PAGE_SHARED)
		return cache->engine->shared_pages && (uintptr_t)p % sizeof(void *) == 0;
	return slab && slab->type == KM_PAGE_SLAB && slab->cache == cache &&
	       km_object_index(cache, slab, km_slab_first(cache, slab), p) >= 0 && hooks->may_be_free(cache, p);
}

/* Where objects are debugged a link that a user wrote over is not followed: what was behind it stays in use. */
static km_cold void cut_damaged(struct kmem_cache *cache, void *object)
{
	const struct km_hooks *hooks = km_load(&cache->hooks);
	void *slow = object, *next;
	bool turn = false;

	/* A circle is cut after this. */
	for (; (next = *(void **)((char *)object + cache->freeptr)) && next != slow; object = next, turn = !turn) {
		if (!could_be_deferred(cache, hooks, next)) {
			*(void **)((char *)object + cache->freeptr) = NULL;
			hooks->broken(cache, km_page_head(km_page_of(object)), object, "Freechain corrupt",
				      "Freelist cleared");
			return;
		}
		if (turn)
			slow = *(void **)((char *)slow + cache->freeptr);
	}
}

/* Acquire pairs with the release in km_defer. */
void km_alloc_finish_deferred(struct kmem_cache *cache)
{
	if (km_likely(!km_load(&cache->deferred)))
		return;
	km_debug(km_thread_busy, "what handlers left is finished where no handler gets in");
	void *object = km_swap_acquire(&cache->deferred, NULL), *next, **link;
	if (km_is_debugged(cache) && object)
		cut_damaged(cache, object);
	/* Before the first is given: that may write over its link. */
	void *twice = km_cut_circle(object, cache->freeptr);

	for (; object; object = next) {
		link = (void **)((char *)object + cache->freeptr);
		next = *link;
		if (km_is_debugged(cache))
			*link = (void *)KM_DEBUG_NO_LINK;
		cache->engine->give(cache, &object, 1);
	}
	if (km_unlikely(twice != NULL))
		km_miss_free_twice(cache, twice);
}

/* ------------------------------------------------------------------ the steps */

/* Between two looks of reclaim (half a second), so many points ask for blocks twice as large. */
#define GROW_POINTS	256u

/*
 * A rough count: two threads that miss at once may lose a point, and no harm is done, because a block that is too small
 * costs time and nothing else. Idle caches come back to what they began with (cache/reclaim.c).
 */
void km_alloc_note(struct kmem_cache *cache, unsigned points)
{
	unsigned capacity = km_mask_capacity(km_alloc_mask(cache));
	uint8_t *looks = points == KM_MISS_POINTS ? &km_alloc_looks[km_cpu()] : NULL;

	if (looks && km_unlikely(km_load(looks)))
		km_store(looks, (uint8_t)0);
	km_alloc_touch(cache);
	unsigned busy_capacity = km_load(&cache->busy_capacity);
	if (km_likely(capacity >= busy_capacity))
		return;
	km_debug(busy_capacity <= cache->max_capacity, "blocks grow within the cache's bounds");
	points += km_load(&cache->misses);
	if (points >= GROW_POINTS) {
		km_alloc_resize(cache, km_min(capacity * 2 + 2, busy_capacity));
		points = 0;
	}
	km_store(&cache->misses, (uint16_t)points);
}

int km_miss_begin(struct kmem_cache *cache, bool may_wait)
{
	if (!km_miss_enter())
		return KM_NO_ENTRY;
	bool was = km_calls_begin(may_wait);
	km_alloc_note(cache, KM_MISS_POINTS);
	km_alloc_finish_deferred(cache);
	return was;
}

/* As km_miss_leave_quick. */
void km_miss_end(struct kmem_cache *cache, int entry, bool may_wait, bool rarely)
{
	km_alloc_touch(cache);
	if (may_wait && rarely)
		km_alloc_tick_rarely();
	else if (may_wait)
		km_alloc_tick_now();
	km_debug(entry != KM_NO_ENTRY && km_thread_busy, "a miss that ends has begun");
	km_calls_end(entry);
	km_busy_end_clear();
}

/* Where there is one node every request is of it, so that request->node stays unnamed and no engine looks. */
bool km_request_resolve_node(struct km_request *request, int id)
{
	bool only = request->gfp & __GFP_THISNODE;

	if (id == NUMA_NO_NODE) {
		if (km_unlikely(only && km_node_count > 1))
			request->node = (int)km_node_here();
		return true;
	}
	int node = km_node_of_id(id, only);
	km_debug(node < (int)km_node_count, "a request names a node that there is");
	if (km_node_count > 1)
		request->node = node;
	return node >= 0 || (!only && id > NUMA_NO_NODE);
}

bool km_miss_prepare(const struct kmem_cache *cache, struct km_request *request, int node)
{
	if (km_unlikely(request->gfp & KMEM_GFP_ODD) || km_unlikely(node != NUMA_NO_NODE)) {
		km_alloc_check_gfp("kmem_cache_alloc", request->gfp, cache->name);
		if (km_unlikely(!km_request_resolve_node(request, node)))
			return km_miss_failed(cache, request);
	}
	km_alloc_enter_thread(request->may_wait);
	return true;
}

void *km_miss_refill_named(struct kmem_cache *cache, const struct km_request *request, km_refill_fn *refill)
{
	struct km_request only = *request;
	void *object;

	/* Two rounds, because an engine looks at its partial slabs of other nodes before it asks for fresh pages. */
	km_debug(request->node >= 0, "a node is named by its number among ours");
	only.gfp |= __GFP_THISNODE;
	object = refill(cache, &only);
	return object || request->gfp & __GFP_THISNODE ? object : refill(cache, request);
}

void *km_miss_take_named(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_request only = *request;
	void *object = NULL;

	if (!request->may_wait || !km_miss_enter_quick(cache))
		return NULL;
	km_debug(request->node >= 0, "a node is named by its number among ours");
	only.gfp |= __GFP_THISNODE;
	cache->engine->take(cache, &only, &object, 1);
	km_miss_leave_quick(cache);
	return object;
}

void *km_miss_take_past(struct kmem_cache *cache, const struct km_request *request)
{
	void *object = NULL;

	if (!request->may_wait || !km_miss_enter_quick(cache))
		return NULL;
	cache->engine->take(cache, request, &object, 1);
	km_miss_leave_quick(cache);
	return object;
}

static void give_one(struct kmem_cache *cache, void *object)
{
	cache->engine->give(cache, &object, 1);
}

void km_miss_give_past(struct kmem_cache *cache, void *object)
{
	km_errno_scope(saved_errno);

	km_debug(object, "what goes back to its slab is an object");
	km_alloc_enter_thread(true);
	if (km_miss_enter_quick(cache)) {
		give_one(cache, object);
		km_miss_leave_quick(cache);
	} else {
		km_miss_spill(cache, object, give_one);
	}
}

/* Kernel: warns, too. */
void *km_constructed(const struct kmem_cache *cache, void *object)
{
	static uint32_t said;

	if (!km_swap_acquire(&said, 1u))
		km_warn("kmem_cache_alloc(%s): __GFP_ZERO, but its objects are constructed: they stay so", cache->name);
	return object;
}

void *km_miss_clear(const struct kmem_cache *cache, void *object, size_t bytes)
{
	size_t unit = km_unlikely(km_sanitizer.objects) ? 1 : ARCH_KMALLOC_MINALIGN;

	return bytes ? __builtin_memset(object, 0, km_align_up(bytes, unit)) : km_cleared(cache, object);
}

/* The long way. Callers tried the shortest (direct_ops.c, freelist_ops.c): its NULL said only that the call was not
 * ordinary. */
void *km_miss_one(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	void *object = NULL;

	request.bytes = (uint32_t)bytes;
	request.align = (uint32_t)align;
	if (!km_miss_prepare(cache, &request, node))
		return NULL;
	if (km_unlikely(request.node >= 0) && !bytes)
		object = km_miss_take_named(cache, &request);
	return object ? km_miss_zeroed(cache, object, gfp, 0) : km_miss_refill(cache, &request, cache->engine->alloc);
}

void km_miss_one_back(struct kmem_cache *cache, void *object)
{
	int saved_errno = errno;

	if (km_unlikely(!object)) {
		km_miss_free_null(cache);
		return;
	}
	km_alloc_enter_thread(true);
	km_miss_spill(cache, object, cache->engine->free);
	errno = saved_errno;
}

void km_miss_free_null(struct kmem_cache *cache)
{
	km_misuse(KM_MISUSE_NULL_FREE, "kmem_cache_free", NULL, cache->name);
}

/* ------------------------------------------------------------------ one object in, and out */

/*
 * A chain's every hit ends in one of these two: what is none is a jump at the end, so that a hit has no frame.
 * tests/rseq/abort strikes each instruction of each copy.
 */
static km_hit_path km_noinline void *chain_alloc_hit(struct kmem_cache *cache, gfp_t gfp)
{
	void *object = km_chain_rseq_pop(&cache->chain);

	if (km_likely(object) && km_likely(!km_layout_options.count_events))
		return object;
	if (object)
		return km_chain_popped(cache, object);
	return km_ops_chain.alloc(cache, gfp, NUMA_NO_NODE);
}

km_inline void chain_free_hit(struct kmem_cache *cache, void *object)
{
	enum km_chain_push pushed = km_chain_rseq_push(&cache->chain, object);

	if (km_unlikely(pushed != KM_CHAIN_PUSHED || km_layout_options.count_events))
		km_chain_pushed(cache, object, pushed);
}

/* After its window (sampled_ops.c) a guarded object may be pushed by a hit, and popped here. It has no owner word, so
 * that nobody can pay for it: it is freed, and another is had. */
km_inline void *km_unguarded(struct kmem_cache *cache, void *object, gfp_t gfp, int node)
{
	while (km_is_guarded(object)) {
		km_guard_ops->free(cache, object, NULL);
		object = km_plain_ops(cache)->alloc(cache, gfp, node);
	}
	return object;
}

void *km_plain_alloc(struct kmem_cache *cache, gfp_t gfp, int node)
{
	const struct km_alloc_ops *plain = km_plain_ops(cache);

	if (plain == &km_ops_chain && km_likely(!(gfp & KMEM_GFP_ODD)) && km_likely(node == NUMA_NO_NODE))
		return chain_alloc_hit(cache, gfp);
	return km_unguarded(cache, plain->alloc(cache, gfp, node), gfp, node);
}

void km_plain_free(struct kmem_cache *cache, void *object)
{
	const struct km_alloc_ops *plain = km_plain_ops(cache);

	if (plain == &km_ops_chain)
		km_free_chained(cache, object);
	else
		plain->free(cache, object);
}

km_hit_path void *km_charged_miss(struct kmem_cache *cache, gfp_t gfp)
{
	const struct km_alloc_ops *ops = km_alloc_ops(cache);

	if (km_likely(km_ops_charges(ops)))
		return ops->alloc(cache, gfp, NUMA_NO_NODE);
	if (ops == &km_ops_chain && km_likely(!(gfp & KMEM_GFP_ODD)))
		return chain_alloc_hit(cache, gfp);
	return km_ops_for(cache, gfp)->alloc(cache, gfp, NUMA_NO_NODE);
}

km_hit_path void *km_alloc_miss(struct kmem_cache *cache, gfp_t gfp)
{
	const struct km_alloc_ops *ops = km_alloc_ops(cache);

	if (km_likely(ops == &km_ops_chain) && km_likely(!(gfp & KMEM_GFP_ODD)))
		return chain_alloc_hit(cache, gfp);
	if (ops == &km_ops_validated && km_likely(!(gfp & KMEM_GFP_ODD)))
		return km_validated_alloc(cache, gfp);
	if (!km_ops_charges(ops))
		return km_ops_for(cache, gfp)->alloc(cache, gfp, NUMA_NO_NODE);
	struct obj_cgroup *objcg = km_objcg_now();
	/* The hit of what is paid for, where this thread has not named the payer. */
	if (objcg && km_likely(!(gfp & KM_CHARGED_ODD)))
		return km_charged_alloc(cache, gfp, objcg, cache->pcs.front.rseq);
	return ops->alloc(cache, gfp, NUMA_NO_NODE);
}

void *km_alloc_miss_node(struct kmem_cache *cache, gfp_t gfp, int node)
{
	return km_ops_for(cache, gfp)->alloc(cache, gfp, node);
}

km_hit_path void km_free_chained(struct kmem_cache *cache, void *object)
{
	chain_free_hit(cache, object);
}

void km_child_free(const struct km_alloc_ops *ops, struct kmem_cache *cache, void *object)
{
	bool entered = km_child_enter(cache);

	ops->free(cache, object);
	km_child_leave(cache, entered);
}

km_hit_path void km_free_miss(struct kmem_cache *cache, void *object)
{
	const struct km_alloc_ops *ops = km_alloc_ops(cache);

	if (km_likely(ops == &km_ops_chain))
		chain_free_hit(cache, object);
	else if (km_likely(ops == &km_ops_validated))
		km_validated_free(cache, object);
	else
		km_ops_free(ops, cache, object);
}
