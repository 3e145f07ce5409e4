/*
 * slub_cache.c: the engine slub's functions on caches: layout, creation, destruction, drain, shrink, statistics and
 * checks. slub.c has the functions on objects. Invariant: statistics validate each pointer as one of this cache
 * before following the pointer, because other threads may be running.
 */
#include <errno.h>

#include "base/bits.h"
#include "os/die.h"
#include "slub.h"

#define MAX_ORDER	3u	/* largest order of slabs; kernel: slab_max_order */
#define MOST_CPU_PARTIAL 1048576u
/* Bytes of the event counters of each CPU: up to the last event of this engine. */
#define EVENT_BYTES	256u
_Static_assert((KMEM_CPU_PARTIAL_DRAIN + 1) * sizeof(uint64_t) <= EVENT_BYTES, "room to count");

/* ------------------------------------------------------------------ coming and going */

/* Returns: the least number of objects in a slab, as in the kernel 4 * (fls(CPUs) + 1), so that larger machines take
 * locks less often. */
static unsigned min_objects(void)
{
	unsigned cpus = km_max(km_percpu.cpus, 1u);

	return 4 * (km_ilog2(cpus) + 2);
}

static int slub_layout(struct kmem_cache *cache, const struct kmem_cache_args *args)
{
	unsigned max_order = km_layout_options.max_order ?: MAX_ORDER;

	(void)args;
	cache->layout.order = (uint8_t)km_layout_order(cache->layout.size,
						km_layout_options.min_objects ?: min_objects(),
						max_order);
	/* Larger slabs for large objects of kmalloc; the kernel has no kmalloc caches of these sizes. */
	if (cache->layout.flags & SLAB_KMALLOC)
		cache->layout.order = (uint8_t)km_layout_larger(cache->layout.size, cache->layout.order,
							 km_min(max_order + 2, KM_MAX_ORDER));
	cache->layout.objects = (uint32_t)km_min((KM_PAGE_SIZE << cache->layout.order) / cache->layout.size,
					  (size_t)SLUB_MAX_OBJECTS);
	cache->fast.capacity = 0;
	return 0;
}

/* Returns: the number of free objects that a CPU may keep in partial slabs, as in the kernel. */
static uint32_t cpu_partial_of(uint32_t size)
{
	if (size >= KM_PAGE_SIZE)
		return 6;
	if (size >= 1024)
		return 24;
	return size >= 256 ? 52 : 120;
}

static void keep_partial(const struct kmem_cache *cache, uint32_t objects)
{
	struct slub_node *n = slub_node(cache, 0);

	km_store(&n->cpu_partial, objects);
	km_store(&n->cpu_partial_slabs, (objects * 2 + cache->layout.objects - 1) / cache->layout.objects);
}

/* Surplus slabs on CPUs leave with the next drain. Kernel: at once. */
static int set_cpu_partial(struct kmem_cache *cache, unsigned long objects)
{
	if (objects > MOST_CPU_PARTIAL)
		return -EINVAL;
	keep_partial(cache, (uint32_t)objects);
	return 0;
}

static int slub_node_init(struct kmem_cache *cache, unsigned node)
{
	struct slub_node *n = cache->state.node[node];

	km_slabs_init(cache, node);
	km_lock_init(&n->drain, KM_RANK_DRAIN);
	n->slabs.counts.taken = KM_NOT_KEPT;
	if (node)
		return 0;
	n->range = km_arena_range(0);
	/* The quotient rounded up, and one more if the division is exact, so that e is not 0. */
	n->factor = -(uint64_t)cache->layout.size / cache->layout.size + 2;
	/* With objects that do not start at the slab's address, slub_aligned must always fail. */
	n->bound = cache->form.first ? 0 : cache->layout.objects * (n->factor * cache->layout.size);
	n->slab_mask = (uint32_t)((KM_PAGE_SIZE << cache->layout.order) - 1);
	keep_partial(cache, cpu_partial_of(cache->layout.size));
	/* Without per-CPU words the cache works from the node's lists, slowly. */
	km_chain_init(&cache->fast.chain, cache->layout.freeptr);
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		cache->state.percpu_offset = km_percpu_alloc(EVENT_BYTES);
	cache->state.percpu_bytes = cache->state.percpu_offset ? EVENT_BYTES : 0;
	return 0;
}

/* Clears the counters word by word, because other threads count meanwhile. */
static void clear_counters(void *events, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
		km_store((uint64_t *)events + i, (uint64_t)0);
}

static void slub_clear_events(struct kmem_cache *cache)
{
	struct slub_node *n = slub_node(cache, 0);

	clear_counters(n->events, sizeof(n->events));
	km_chain_clear_failures(&cache->fast.chain);
	if (cache->state.percpu_offset)
		km_for_each_cpu(cpu)
			clear_counters(km_area(cpu) + cache->state.percpu_offset, EVENT_BYTES);
}

static void slub_node_fini(struct kmem_cache *cache, unsigned node)
{
	if (node)
		return;
	slub_clear_events(cache);
	km_chain_fini(&cache->fast.chain);
	km_percpu_free(cache->state.percpu_offset, cache->state.percpu_bytes);
	cache->state.percpu_offset = cache->state.percpu_bytes = 0;
}

static void slub_hit(struct kmem_cache *cache, enum kmem_event event, size_t count)
{
	slub_count_n(cache, event, count);
}

/* A free to a frozen slab is counted once, as KMEM_FREE_FROZEN, and is also a slow-path free. */
static unsigned long slub_event(struct kmem_cache *cache, enum kmem_event event)
{
	unsigned long count = km_load(&slub_node(cache, 0)->events[event]);

	if (event == KMEM_FREE_SLOWPATH)
		count += slub_event(cache, KMEM_FREE_FROZEN);
	if (event == KMEM_CMPXCHG_DOUBLE_CPU_FAIL)
		count += km_chain_failures(&cache->fast.chain);
	if (cache->state.percpu_offset && event * sizeof(uint64_t) < EVENT_BYTES)
		km_for_each_cpu(cpu)
			count += km_load((uint64_t *)(km_area(cpu) + cache->state.percpu_offset) + event);
	return count;
}

/* ------------------------------------------------------------------ taking and giving back */

/* Moves the slab taken off a CPU to its node. */
static void flush(struct kmem_cache *cache, const struct km_chain_top *top)
{
	slub_count(cache, KMEM_CPUSLAB_FLUSH);
	km_slub_deactivate(cache, slub_tagged(top->slab), top->freelist, true);
}

/* Moves a CPU's slabs to their nodes. Requires: the chain is closed and fenced, or the cache is unused. */
static void drain_cpu(struct kmem_cache *cache, unsigned cpu)
{
	struct km_chain_link *partial;
	struct km_chain_top top;

	km_chain_take_cpu(&cache->fast.chain, cpu, &top, &partial);
	if (top.slab)
		flush(cache, &top);
	km_slub_put_partials(cache, partial);
}

/* Drains this CPU by the per-CPU operations of misses, which need no fence. */
static void drain_own(struct kmem_cache *cache)
{
	struct km_chain_link *partial;
	struct km_chain_top top;

	if (km_chain_swap(&cache->fast.chain, (struct km_chain_top){ NULL, 0 }, &top) && top.slab)
		flush(cache, &top);
	while ((partial = km_chain_partial_pop(&cache->fast.chain))) {
		km_store(&partial->next, NULL);
		km_slub_put_partials(cache, partial);
	}
}

/* Takes all slabs off the CPUs. Returns: false if the system refused the fence. */
static bool slub_drain(struct kmem_cache *cache, bool unused)
{
	struct slub_node *n = slub_node(cache, 0);

	if (!cache->fast.chain.slot)
		return true;
	km_lock(&n->drain);
	km_chain_close(&cache->fast.chain);
	/* If the fence is refused, all objects stay, because no chain was read yet. In an unused cache no thread
	 * uses the CPUs' slabs, so draining is safe. */
	bool fenced = km_pcs_fence();
	if (fenced || unused)
		km_for_each_cpu(cpu)
			drain_cpu(cache, cpu);
	km_debug(km_is_locked(&n->drain), "the closing drain opens the chain again");
	km_chain_open(&cache->fast.chain);
	km_unlock(&n->drain);
	/* Without a fence take at least this CPU's objects. */
	if (!fenced && !unused)
		drain_own(cache);
	return fenced;
}

/* Frees a slab on the node's list, or a full slab, on no list. */
static void discard(struct kmem_cache *cache, struct km_page *slab)
{
	struct slub_node *n = slub_node(cache, slab->node);

	km_lock(&n->slabs.lock);
	if (slab->flags & KM_SLAB_PARTIAL)
		km_slabs_unlist(&n->slabs, slab);
	km_unlock(&n->slabs.lock);
	km_slub_free_slab(cache, slab);
}

static const struct km_slab_kind kind = {
	.free_objects = slub_free_objects,
	.unlist = km_slabs_unlist,
	.discard = km_slub_discard,
};

static size_t slub_shrink(struct kmem_cache *cache)
{
	struct slub_node *n;
	size_t freed = 0;

	km_for_each_node(n, cache)
		freed += km_slabs_shrink(cache, &n->slabs, &kind);
	return freed;
}

/* Frees empty slabs of a bounded part of each list, while more than `keep` slabs are listed. */
static size_t reap_but(struct kmem_cache *cache, unsigned long keep)
{
	struct slub_node *n;
	size_t freed = 0;

	km_for_each_node(n, cache)
		freed += km_slabs_reap(cache, &n->slabs, keep, &kind);
	return freed;
}

/* Kernel: no such function. If no slow path ran since the last call, no empty slabs are kept. */
static size_t slub_reap(struct kmem_cache *cache)
{
	struct slub_node *first = slub_node(cache, 0);
	const unsigned long keep = km_load(&first->touched) ? km_load(&cache->tune.min_partial) : 0;

	km_store(&first->touched, false);
	return reap_but(cache, keep);
}

static size_t slub_rest(struct kmem_cache *cache)
{
	return reap_but(cache, 0);
}

/* ------------------------------------------------------------------ looking */

/* Walks a freelist up to a bad link or slab->objects, and clears the bits of listed objects among the 64 objects from
 * 64 * word on. Returns: number of listed objects. */
#define NO_WORD UINT32_MAX
static unsigned clear_free(const struct kmem_cache *cache, const struct km_page *slab, const void *freelist,
			   unsigned word, uint64_t *bits)
{
	const char *base = km_page_address(slab), *first = base + cache->form.first;
	uint64_t tag = km_chain_tag(base, KM_PAGE_SHIFT + km_load_speculative(&slab->order));
	const struct km_page seen = { .objects = km_load_speculative(&slab->objects) };
	unsigned count = 0;
	int index;

	for (; freelist && count < seen.objects && km_chain_tag_fits(tag, freelist); count++) {
		if ((index = km_object_index(cache, &seen, first, freelist)) < 0)
			break;
		if ((unsigned)index / 64 == word)
			*bits &= ~((uint64_t)1 << index % 64);
		freelist = km_free_next(cache, freelist);
	}
	return count;
}

static unsigned count_free(const struct kmem_cache *cache, const struct km_page *slab, const void *freelist)
{
	return clear_free(cache, slab, freelist, NO_WORD, NULL);
}

/* Returns the slab named by a CPU if the slab belongs to this cache, else NULL. */
static struct km_page *own_slab(const struct kmem_cache *cache, struct km_page *slab)
{
	return slab && km_load_speculative(&slab->type) == KM_PAGE_SLAB && km_load_speculative(&slab->cache) == cache ?
		       slab : NULL;
}

/* Returns the slab of a link read during concurrent changes, or NULL if the link is in no descriptor. */
static struct km_page *own_link(const struct kmem_cache *cache, struct km_chain_link *link)
{
	const struct km_range *range;

	for (unsigned i = 0; link && (range = km_arena_range(i)); i++) {
		struct km_page *slab = slub_linked(link);
		uintptr_t offset = (uintptr_t)slab - (uintptr_t)range->page;

		if (offset % sizeof(*slab) == 0 && offset / sizeof(*slab) < km_load_acquire(&range->ready))
			return own_slab(cache, slab);
	}
	return NULL;
}

static uint64_t slub_taken(struct kmem_cache *cache, struct km_page *slab, unsigned word)
{
	char *base = km_page_address(slab);
	uint64_t seen = slub_look(slab), tag = slub_tag(slab, base);
	uint64_t bits = km_object_bits(slab->objects, word);
	struct km_chain_link *partial;
	struct km_chain_top top;

	clear_free(cache, slab, slub_head(seen, base), word, &bits);
	if (!(seen & SLUB_FROZEN) || !cache->fast.chain.slot)
		return bits;
	km_for_each_cpu(cpu) {
		km_chain_look_cpu(&cache->fast.chain, cpu, &top, &partial);
		if (top.slab == tag)
			clear_free(cache, slab, top.freelist, word, &bits);
	}
	return bits;
}

/* In a checked cache the lock keeps the freelist; if the lock is taken, the object counts as taken, and
 * km_slub_free_checked reports a concurrent double free. */
static bool slub_is_taken(struct kmem_cache *cache, struct km_page *slab, unsigned index)
{
	struct km_lock *lock = cache->layout.checked ? &slub_node(cache, slab->node)->slabs.lock : NULL;

	if (lock && !km_lock_may(lock, false))
		return true;
	bool taken = slub_taken(cache, slab, index / 64) >> index % 64 & 1;
	if (lock)
		km_unlock_may(lock, false);
	return taken;
}

/* Counts free objects of CPUs: on their freelists, and on the freelists of their slabs. */
static void look_at_cpus(struct kmem_cache *cache, unsigned long *on_top, unsigned long *behind)
{
	if (!cache->fast.chain.slot)
		return;
	km_for_each_cpu(cpu) {
		struct km_chain_link *link;
		struct km_chain_top top;
		struct km_page *slab;

		km_chain_look_cpu(&cache->fast.chain, cpu, &top, &link);
		slab = top.slab ? own_slab(cache, slub_tagged(top.slab)) : NULL;
		if (slab) {
			*on_top += count_free(cache, slab, top.freelist);
			*behind += slub_free_count(km_load_speculative(&slub_slab(slab)->word));
		}
		for (unsigned i = 0; i < 4096 && (slab = own_link(cache, link)); i++) {
			*behind += slub_free_count(km_load_speculative(&slub_slab(slab)->word));
			link = km_load_speculative(&slub_slab(slab)->link.next);
		}
	}
}

/* active_objects: objects that slabs count as taken; shelf_objects: those on CPUs' freelists. */
static void slub_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	unsigned long on_top = 0, free = 0;
	struct slub_node *n;

	km_slabs_stats(cache, stats);
	km_for_each_node(n, cache) {
		km_lock_scope(&n->slabs.lock);
		km_list_for_some(entry, &n->slabs.partial, n->slabs.counts.partial)
			free += slub_free_objects(km_container_of(entry, struct km_page, list));
	}
	look_at_cpus(cache, &on_top, &free);
	stats->shelf_objects += on_top;
	stats->active_objects = stats->total_objects > free ? stats->total_objects - free : 0;
}

/* A frozen slab counts as current: a CPU allocates from it now or soon. */
static void slub_fullness(const struct kmem_cache *cache, const struct km_page *slab, struct km_fullness *fullness)
{
	uint64_t word = slub_look(slab);

	fullness->objects = slub_objects(word);
	fullness->inuse = slub_inuse(word);
	fullness->current = word & SLUB_FROZEN || km_load(&slub_node(cache, slab->node)->slabs.packed) == slab;
}

/* Counts free objects of slabs at both ends of the list. *looked: number of slabs. Requires: the node's lock. */
#define PARTIAL_LOOKS 32u
static size_t free_at_ends(const struct km_slabs *n, size_t *looked)
{
	const struct km_list *first = n->partial.next, *last = n->partial.prev;
	size_t free = 0;

	for (*looked = 0; *looked < PARTIAL_LOOKS && *looked < n->counts.partial; first = first->next, ++*looked)
		free += slub_free_objects(km_container_of(first, struct km_page, list));
	for (size_t i = 0; i < PARTIAL_LOOKS && *looked < n->counts.partial; last = last->prev, i++, ++*looked)
		free += slub_free_objects(km_container_of(last, struct km_page, list));
	return free;
}

/* Estimates the node's free objects from some slabs, because no count of taken objects exists. If the lock is
 * taken, uses the last estimate. Kernel: count_partial_free_approx, from 10000 slabs. */
static void slub_partial(struct kmem_cache *cache, struct km_fullness *of_all)
{
	struct slub_node *n;
	size_t looked;

	*of_all = (struct km_fullness){ 0 };
	km_for_each_node(n, cache) {
		size_t slabs = km_load(&n->slabs.counts.partial), most = slabs * cache->layout.objects;

		if (slabs && km_trylock(&n->slabs.lock)) {
			size_t free = free_at_ends(&n->slabs, &looked);

			km_store(&n->free_each, (uint32_t)(free * 16 / km_max(looked, (size_t)1)));
			km_unlock_quick(&n->slabs.lock);
		}
		of_all->slabs += slabs;
		of_all->objects += most;
		of_all->inuse += most - km_min(most, slabs * km_load(&n->free_each) / 16);
	}
}

/* Checks a slab of an unused cache: free count, and the frozen bit required by its place. */
static int check_slab(struct kmem_cache *cache, struct km_page *slab, bool frozen, const char *place)
{
	uint64_t word = slub_look(slab);
	unsigned free = count_free(cache, slab, slub_head(word, km_page_address(slab)));

	if (own_slab(cache, slab) && free == slub_free_count(word) &&
	    slub_objects(word) == slab->objects && !(word & SLUB_FROZEN) == !frozen)
		return 0;
	km_warn("check: %s: slab %p %s counts %u of %u objects as allocated, frozen %d, but its freelist has %u "
		"objects", cache->registry.name,
		km_page_address(slab), place, slub_inuse(word), slub_objects(word),
		(word & SLUB_FROZEN) != 0, free);
	return 1;
}

/* Checks a CPU's slab and partial list, in an unused cache. Returns: number of damages. */
static int check_cpu(struct kmem_cache *cache, unsigned cpu)
{
	struct km_chain_link *link;
	struct km_chain_top top;
	struct km_page *slab;
	uint64_t count = 0;
	int damages = 0;

	km_chain_look_cpu(&cache->fast.chain, cpu, &top, &link);
	slab = top.slab ? slub_tagged(top.slab) : NULL;
	if (slab)
		damages += check_slab(cache, slab, true, "of a CPU");
	if ((top.slab && !own_slab(cache, slab)) || (top.freelist && !slab)) {
		km_warn("check: %s: CPU %u has freelist %p and no slab", cache->registry.name, cpu, top.freelist);
		damages++;
	}
	for (struct km_chain_link *at = link; (slab = own_link(cache, at)); at = at->next) {
		damages += check_slab(cache, slab, true, "on a CPU's partial list");
		if (++count > link->count)
			break;
	}
	if (link && count != link->count) {
		km_warn("check: %s: CPU %u has %lu partial slabs, but %lu are counted", cache->registry.name, cpu,
			count, link->count);
		damages++;
	}
	return damages;
}

static int check_listed(struct kmem_cache *cache, struct km_page *slab)
{
	return check_slab(cache, slab, false, "on the partial list");
}

static int slub_check(struct kmem_cache *cache)
{
	int damages = km_slabs_check(cache, &kind, check_listed);

	if (cache->fast.chain.slot)
		km_for_each_cpu(cpu)
			damages += check_cpu(cache, cpu);
	return damages;
}

/* Holds the locks of the cache around a fork, and repairs the CPUs' slabs in the child. Slabs in another thread's hand
 * stay there: in the child their free objects are lost, at most one slab for each thread inside of a slow path. */
static void slub_fork(struct kmem_cache *cache, bool before, bool child)
{
	struct km_lock *drain = &slub_node(cache, 0)->drain;
	/* Only one fork at a time holds the CPUs' words, and records this in them (for_fork). */
	bool chain = child || (!before && km_fork_has(drain));

	km_lock_around_fork(drain, before, child);
	chain |= before && km_fork_has(drain);
	km_slabs_fork(cache, before, child);
	if (chain)
		km_chain_fork(&cache->fast.chain, before, child);
}

static const struct kmem_record_field fields[] = {
	KM_FIELD_STRUCT("slub", struct slub_node),
	KM_FIELD_IN("slub", struct slub_node, cpu_partial), KM_FIELD_ARRAY("slub", struct slub_node, events),
};

const struct km_engine km_engine_slub = {
	.name = "slub",
	.front = KM_PERCPU_FREELIST, .links_free = true,
	.node_bytes = sizeof(struct slub_node),
	.layout = slub_layout,
	.node_init = slub_node_init,
	.node_fini = slub_node_fini,
	.take = km_slub_take,
	.give = km_slub_give,
	.hit = slub_hit,
	.alloc = km_slub_alloc,
	.free = km_slub_free,
	.shrink = slub_shrink,
	.reap = slub_reap,
	.rest = slub_rest,
	.discard = discard,
	.is_taken = slub_is_taken,
	.taken = slub_taken,
	.stats = slub_stats,
	.fullness = slub_fullness,
	.partial = slub_partial,
	.check = slub_check,
	.mend = km_slub_mend,
	.fork = slub_fork,
	.event = slub_event,
	.clear_events = slub_clear_events,
	.fields = fields,
	.field_count = km_array_count(fields),
	.chain = {
		.give_last = km_slub_give_last,
		.drain = slub_drain, .set_cpu_partial = set_cpu_partial,
	},
};
