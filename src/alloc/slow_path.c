/*
 * slow_path.c: the miss: fast paths of freelists and charged sheaves, the jump to the cache's alloc ops, and helpers
 * of all alloc ops: notes, deferred frees, nodes, memory pressure, failure. Invariant: a fast path found here has no
 * stack frame; everything else is one jump to the cache's alloc ops.
 *
 * A call comes here because its sequence did not commit. An empty sheaf is only one of the reasons. The kernel may
 * have interrupted the thread, or a drain may have closed the sheaves. The cache may have no public sheaves (a cache
 * with a freelist, charged or observed). The thread may have no CPU, or gfp may ask for more than a cached object. A
 * request passes four stages:
 *
 *	fast path	fast_path.c, cid_fast_path.c,	one sequence, no frame
 *			kmalloc/kmalloc.c, malloc/malloc.c
 *	slow path	this file			fast paths of freelists, of charged sheaves and of
 *							validated sheaves; else a jump
 *	alloc ops	sheaf_ops.c, freelist_ops.c,	cached objects of this CPU; above are validate.c,
 *			direct_ops.c			observed_ops.c, sampled_ops.c, memcg/charge.c
 *	engine		engines				objects from slabs and back
 *
 * Signal handlers. An engine takes locks. A handler that interrupted its own thread inside an engine would deadlock.
 * So km_miss_enter sets km_thread.busy before an engine is entered, and a handler that finds km_thread.busy set
 * enters no engine. Beyond the two sheaves of the CPU, an allocation of the handler fails, and a free links the
 * object to cache->state.deferred. The deferred list needs no lock. A free adds by compare-and-swap; the miss that
 * finishes the frees takes the whole list by one exchange, so a head that returns with another successor (ABA) is
 * harmless.
 *
 * System calls. A request that may not wait makes no system call, and neither do the frees that the request causes.
 * km_calls_begin keeps the engine from system calls. The tick, which frees memory, is left to a call that may wait.
 */
#include <errno.h>

#include "page/guard_range.h"
#include "percpu/cpu_freelist_hit.h"
#include "alloc_ops.h"

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
	const size_t id = km_load(&km_hot.caches[cache->fast.id]) == cache ? cache->fast.id : 0;
	const uint64_t bit = (uint64_t)1 << id % 64;

	if (ready)
		__atomic_fetch_or(&km_alloc_ready[id / 64], bit, __ATOMIC_SEQ_CST);
	else if (id)
		__atomic_fetch_and(&km_alloc_ready[id / 64], ~bit, __ATOMIC_SEQ_CST);
}

bool km_alloc_begin_charging(struct kmem_cache *cache, gfp_t gfp)
{
	if (!km_has_accounting() || !km_objcg_now() || km_thread.busy)
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

/* If the cache's own limit refused the slab, objects of other caches do not help: only this cache is drained. */
bool km_alloc_relieve(struct kmem_cache *cache, unsigned *tries)
{
	struct kmem_cache *only = km_thread.slab_refused ? cache->ext.shadow_of ?: cache : NULL;

	km_thread.slab_refused = false;
	/* More memory does not help if the constructor must not run now. */
	if (cache->form.ctor && !km_may_construct(cache, false))
		return false;
	return km_alloc_pressure && km_alloc_pressure(only, (size_t)cache->form.slab_pages << KM_PAGE_SHIFT, tries);
}

/* The tick leaves errno alone, because every system call of the library does (os/os_linux.c). */
void km_alloc_tick_now(void)
{
	if (km_alloc_tick)
		km_alloc_tick();
}

km_cold void km_alloc_note_request(struct kmem_cache *cache, bool may_wait)
{
	if (!may_wait || km_thread.no_calls || !km_miss_enter())
		return;
	km_alloc_tick_now();
	if (!km_load(&km_gate_kept)) {
		if (km_way_is_shut(km_load(&cache->fast.pcs.front.rseq)))
			km_store(&cache->fast.pcs.front.rseq, km_gate.open[1]);
		km_gate_open();
	}
	km_busy_end_clear();
}

/* ------------------------------------------------------------------ deferred frees */

void km_miss_free_twice(struct kmem_cache *cache, void *object)
{
	km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->registry.name);
}

void km_miss_defer(struct kmem_cache *cache, void *object)
{
	/* Free a guarded object at once: the free takes no lock, and a guarded object has no room for a link. */
	if (km_is_guarded(object)) {
		km_guard_ops->free(cache, object, "kmem_cache_free");
		return;
	}
	km_defer(cache, object);
	km_alloc_touch(cache);
}

/* True if p may be the next object of the deferred list: a free object of this cache. */
static bool could_be_deferred(const struct kmem_cache *cache, const struct km_hooks *hooks, const void *p)
{
	const struct km_page *page = km_page_of(p);

	if (page && page->type == KM_PAGE_SHARED)
		return cache->layout.engine->shared_pages && (uintptr_t)p % sizeof(void *) == 0;
	return km_is_object(cache, p) && hooks->may_be_free(cache, p);
}

/* Cuts the deferred list of a debugged cache before a link that a user overwrote; objects behind stay allocated. */
static km_cold void cut_damaged(struct kmem_cache *cache, void *object)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);
	void *slow = object, *next;
	bool turn = false;

	/* The loop ends on a circle; km_cut_circle cuts the circle afterwards. */
	for (; (next = *(void **)((char *)object + cache->layout.freeptr)) && next != slow;
	     object = next, turn = !turn) {
		if (!could_be_deferred(cache, hooks, next)) {
			*(void **)((char *)object + cache->layout.freeptr) = NULL;
			hooks->broken(cache, km_page_head(km_page_of(object)), object, "Freechain corrupt",
				      "Freelist cleared");
			return;
		}
		if (turn)
			slow = *(void **)((char *)slow + cache->layout.freeptr);
	}
}

/* Acquire pairs with the release in km_defer. */
void km_alloc_finish_deferred(struct kmem_cache *cache)
{
	if (km_likely(!km_load(&cache->state.deferred)))
		return;
	km_debug(km_thread.busy, "work left by signal handlers is finished with handlers kept out");
	void *object = km_swap_acquire(&cache->state.deferred, NULL), *next, **link;
	if (km_is_debugged(cache) && object)
		cut_damaged(cache, object);
	/* Before the first object is freed, because the free may overwrite the link of the object. */
	void *twice = km_cut_circle(object, cache->layout.freeptr);

	for (; object; object = next) {
		link = (void **)((char *)object + cache->layout.freeptr);
		next = *link;
		if (km_is_debugged(cache))
			*link = (void *)KM_DEBUG_NO_LINK;
		cache->layout.engine->give(cache, &object, 1);
	}
	if (km_unlikely(twice != NULL))
		km_miss_free_twice(cache, twice);
}

/* ------------------------------------------------------------------ the steps */

/* Points between two looks of reclaim (half a second) that double the sheaf capacity. */
#define GROW_POINTS	256u

/* Counts misses roughly: two threads that miss at once may lose a point, and a sheaf that is too small costs only time.
 * Reclaim shrinks the sheaves of idle caches to the initial capacity (cache/reclaim.c). */
void km_alloc_note(struct kmem_cache *cache, unsigned points)
{
	unsigned capacity = km_mask_capacity(km_alloc_mask(cache));
	uint8_t *looks = points == KM_MISS_POINTS ? &km_alloc_looks[km_cpu()] : NULL;

	if (looks && km_unlikely(km_load(looks)))
		km_store(looks, (uint8_t)0);
	km_alloc_touch(cache);
	unsigned busy_capacity = km_load(&cache->tune.busy_capacity);
	if (km_likely(capacity >= busy_capacity))
		return;
	km_debug(busy_capacity <= cache->tune.max_capacity, "sheaves grow within the bounds of the cache");
	points += km_load(&cache->state.misses);
	if (points >= GROW_POINTS) {
		km_alloc_resize(cache, km_min(capacity * 2 + 2, busy_capacity));
		points = 0;
	}
	km_store(&cache->state.misses, (uint16_t)points);
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

/* Touches the cache again, as km_miss_leave_quick. */
void km_miss_end(struct kmem_cache *cache, int entry, bool may_wait, bool rarely)
{
	km_alloc_touch(cache);
	if (may_wait && rarely)
		km_alloc_tick_rarely();
	else if (may_wait)
		km_alloc_tick_now();
	km_debug(entry != KM_NO_ENTRY && km_thread.busy, "a miss ends after its begin");
	km_calls_end(entry);
	km_busy_end_clear();
}

/* On a machine with one node, request->node stays unset, so that engines skip the check of nodes. */
bool km_request_resolve_node(struct km_request *request, int id)
{
	bool only = request->gfp & __GFP_THISNODE;

	if (id == NUMA_NO_NODE) {
		if (km_unlikely(only && km_node_count > 1))
			request->node = (int)km_node_here();
		return true;
	}
	int node = km_node_of_id(id, only);
	km_debug(node < (int)km_node_count, "a request names an existing node");
	if (km_node_count > 1)
		request->node = node;
	return node >= 0 || (!only && id > NUMA_NO_NODE);
}

bool km_miss_prepare(const struct kmem_cache *cache, struct km_request *request, int node)
{
	if (km_unlikely(request->gfp & KMEM_GFP_ODD) || km_unlikely(node != NUMA_NO_NODE)) {
		km_alloc_check_gfp("kmem_cache_alloc", request->gfp, cache->registry.name);
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

	/* Two rounds, because an engine tries its partial slabs of other nodes before fresh pages. */
	km_debug(request->node >= 0, "a node is named by libkmem's number");
	only.gfp |= __GFP_THISNODE;
	object = refill(cache, &only);
	return object || request->gfp & __GFP_THISNODE ? object : refill(cache, request);
}

void *km_miss_take(struct kmem_cache *cache, const struct km_request *request, gfp_t only)
{
	struct km_request once = *request;
	void *object = NULL;

	if (!request->may_wait || !km_miss_enter_quick(cache))
		return NULL;
	km_debug(!only || request->node >= 0, "a node is named by libkmem's number");
	once.gfp |= only;
	cache->layout.engine->take(cache, &once, &object, 1);
	km_miss_leave_quick(cache);
	return object;
}

static void give_one(struct kmem_cache *cache, void *object)
{
	cache->layout.engine->give(cache, &object, 1);
}

void km_miss_give_past(struct kmem_cache *cache, void *object)
{
	km_errno_scope(saved_errno);

	km_debug(object, "only an object returns to its slab");
	km_alloc_enter_thread(true);
	if (km_miss_enter_quick(cache)) {
		give_one(cache, object);
		km_miss_leave_quick(cache);
	} else {
		km_miss_spill(cache, object, give_one);
	}
}

/* Warns once, because a constructed object must keep its content. Kernel: warns, too. */
void *km_constructed(const struct kmem_cache *cache, void *object)
{
	static uint32_t said;

	if (!km_swap_acquire(&said, 1u))
		km_warn("kmem_cache_alloc(%s): __GFP_ZERO is ignored, because the cache has a constructor",
			cache->registry.name);
	return object;
}

void *km_miss_clear(const struct kmem_cache *cache, void *object, size_t bytes)
{
	size_t unit = km_unlikely(km_sanitizer.objects) ? 1 : ARCH_KMALLOC_MINALIGN;

	return bytes ? __builtin_memset(object, 0, km_align_up(bytes, unit)) : km_cleared(cache, object);
}

void *km_miss_one(struct kmem_cache *cache, size_t bytes, size_t align, gfp_t gfp, int node)
{
	struct km_request request = km_request_of(gfp, NUMA_NO_NODE);
	void *object = NULL;

	request.bytes = (uint32_t)bytes;
	request.align = (uint32_t)align;
	if (!km_miss_prepare(cache, &request, node))
		return NULL;
	if (km_unlikely(request.node >= 0) && !bytes)
		object = km_miss_take(cache, &request, __GFP_THISNODE);
	return object ? km_miss_zeroed(cache, object, gfp, 0)
		      : km_miss_refill(cache, &request, cache->layout.engine->alloc);
}

void km_miss_one_back(struct kmem_cache *cache, void *object)
{
	km_errno_scope(saved_errno);

	if (km_unlikely(!object)) {
		km_miss_free_null(cache);
		return;
	}
	km_alloc_enter_thread(true);
	km_miss_spill(cache, object, cache->layout.engine->free);
}

void km_miss_free_null(struct kmem_cache *cache)
{
	km_misuse(KM_MISUSE_NULL_FREE, "kmem_cache_free", NULL, cache->registry.name);
}

/* ------------------------------------------------------------------ one object in, and out */

/* Every fast path of a freelist ends in one of the next two functions. All other cases are a jump at the end, so that
 * the fast path has no frame. tests/rseq/abort interrupts each instruction of each copy. */
static km_hit_path km_noinline void *chain_alloc_hit(struct kmem_cache *cache, gfp_t gfp)
{
	void *object = km_chain_rseq_pop(&cache->fast.chain);

	if (km_likely(object) && km_likely(!km_layout_options.count_events))
		return object;
	if (object)
		return km_chain_popped(cache, object);
	return km_ops_chain.alloc(cache, gfp, NUMA_NO_NODE);
}

km_inline void chain_free_hit(struct kmem_cache *cache, void *object)
{
	enum km_chain_push pushed = km_chain_rseq_push(&cache->fast.chain, object);

	if (km_unlikely(pushed != KM_CHAIN_PUSHED || km_layout_options.count_events))
		km_chain_pushed(cache, object, pushed);
}

/* Replaces guarded objects, which a fast-path free may push onto a sheaf after the sampling window (sampled_ops.c): a
 * guarded object has no owner word and cannot be charged. */
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
	/* The fast path of charged objects, if the objcg is the default and not the thread's own. */
	if (objcg && km_likely(!(gfp & KM_CHARGED_ODD)))
		return km_charged_alloc(cache, gfp, objcg, cache->fast.pcs.front.rseq);
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
