/*
 * slab_cache.c: the engine slab's functions on caches: layout, creation, destruction, looks for idle arrays, tuning,
 * shrink, statistics and checks. slab.c has the functions on objects. Invariant: an idle array frees its oldest
 * objects, a share at a time, and an array in use keeps all objects.
 */
#include <errno.h>

#include "page/metadata.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/secret.h"
#include "slab.h"

#define MAX_ORDER	1u	/* Kernel: slab_max_order, with more than 32 MiB of memory */
#define MALLOC_ORDER	5u	/* for malloc's classes, with sizes between the sizes of the kernel's kmalloc */
#define MIN_SIZE	16u	/* Kernel: SLAB_OBJ_MIN_SIZE, so that an index fits into a byte */

/* ------------------------------------------------------------------ layout */

/* Returns the array's limit. Kernel: fewer objects where objects are larger. */
static unsigned limit_by_size(uint32_t size)
{
	if (size > 128u << 10)
		return 1;
	if (size > KM_PAGE_SIZE)
		return 8;
	if (size > 1024)
		return 24;
	return size > 256 ? 54 : 120;
}

/* Returns the objects of a slab of `bytes` bytes; 0: none, or too many. */
static unsigned objects_in(const struct kmem_cache *cache, enum slab_freelist freelist, size_t bytes)
{
	size_t objects = bytes / cache->layout.size;

	if (freelist == SLAB_ON_SLAB) {
		objects = km_min(bytes / (cache->layout.size + 1), (size_t)SLAB_MAX_OBJECTS);
		while (objects && objects * cache->layout.size + slab_list_bytes((unsigned)objects) > bytes)
			objects--;
	}
	return objects > SLAB_MAX_OBJECTS ? 0 : (unsigned)objects;
}

/* Returns the bytes of a slab not used by objects. */
static size_t left_over(const struct kmem_cache *cache, enum slab_freelist freelist)
{
	size_t bytes = (KM_PAGE_SIZE << cache->layout.order) - (size_t)cache->layout.objects * cache->layout.size;

	return freelist == SLAB_ON_SLAB ? bytes - slab_list_bytes(cache->layout.objects) : bytes;
}

/* Chooses the lowest order that wastes at most an eighth of a slab, or the highest wanted order. */
static bool fill_order(struct kmem_cache *cache, enum slab_freelist freelist)
{
	unsigned most = km_layout_options.max_order ?: cache->layout.flags & SLAB_KMALLOC ? MALLOC_ORDER : MAX_ORDER;

	for (unsigned order = km_order_of(cache->layout.size); order <= KM_MAX_ORDER; order++) {
		size_t bytes = KM_PAGE_SIZE << order;

		cache->layout.objects = objects_in(cache, freelist, bytes);
		cache->layout.order = cache->layout.min_order = (uint8_t)order;
		if (cache->layout.objects && (order >= most || (cache->layout.flags & SLAB_RECLAIM_ACCOUNT) ||
				       left_over(cache, freelist) * 8 <= bytes))
			break;
		/* Too many objects for a byte index; a larger slab has more. */
		if (!cache->layout.objects && bytes / cache->layout.size > SLAB_MAX_OBJECTS)
			return false;
	}
	cache->layout.freelist = freelist;
	return cache->layout.objects != 0;
}

/* Chooses the place of the indices. In a free object, if its content may be lost and the object is large enough.
 * Outside, if the list is small beside an object and does not fit into the rest of the slab. Else behind the
 * objects. */
static bool choose_freelist(struct kmem_cache *cache)
{
	bool keeps_content = (cache->layout.flags & SLAB_TYPESAFE_BY_RCU) || cache->form.ctor;

	/* Hardening: away from memory that users can write. */
	if (km_is_hardened() && fill_order(cache, SLAB_OFF_SLAB) && cache->layout.objects <= SLAB_DESCRIPTOR_BITS)
		return true;
	/* A free object that is debugged or tracked by a sanitizer must not be written. */
	if (!keeps_content && !km_is_observed(cache) && !km_is_debugged(cache) && fill_order(cache, SLAB_IN_OBJECT) &&
	    cache->layout.objects <= cache->layout.object_size)
		return true;
	if (fill_order(cache, SLAB_OFF_SLAB) &&
	    km_max(km_pow2_up(cache->layout.objects), (size_t)32) <= cache->layout.size / 2 &&
	    left_over(cache, SLAB_OFF_SLAB) < slab_list_bytes(cache->layout.objects))
		return true;
	return fill_order(cache, SLAB_ON_SLAB);
}

static int slab_layout(struct kmem_cache *cache, const struct kmem_cache_args *args)
{
	cache->layout.size = (uint32_t)km_align_up(km_max(cache->layout.size, MIN_SIZE), cache->form.align);
	cache->layout.reciprocal = km_reciprocal(cache->layout.size);
	if (!choose_freelist(cache))
		return -EINVAL;
	uint32_t colour = km_max((uint32_t)KM_CACHE_LINE, cache->form.align);
	size_t colours = km_min(left_over(cache, (enum slab_freelist)cache->layout.freelist) / colour,
				(size_t)UINT16_MAX);
	/* kfree knows an object by its offset in the slab, so no colours. Kernel: its sizes leave no room either. */
	if (colours > 1 && !(cache->layout.flags & SLAB_KMALLOC) && !km_is_debugged(cache)) {
		cache->form.colours = (uint16_t)colours;
		cache->form.colour_bytes = (uint16_t)colour;
	}
	if (cache->layout.freelist == SLAB_ON_SLAB)
		cache->form.slab_tail = (uint32_t)slab_list_bytes(cache->layout.objects);
	cache->fast.capacity = (uint16_t)km_max(limit_by_size(cache->layout.size), args->sheaf_capacity);
	cache->tune.max_capacity = (uint16_t)km_max(SLAB_MOST_LIMIT, (unsigned)cache->fast.capacity);
	cache->tune.batchcount = (uint16_t)((cache->fast.capacity + 1) / 2);
	cache->tune.shared = cache->layout.size <= KM_PAGE_SIZE && km_percpu.cpus > 1 ? 8 : 0;
	return 0;
}

/* ------------------------------------------------------------------ coming and going */

/* Kernel: the same. */
static size_t free_limit(const struct kmem_cache *cache, unsigned batchcount, unsigned node)
{
	size_t cpus = 0;

	for (unsigned cpu = 0; cpu < km_percpu.cpus; cpu++)
		cpus += km_node_of_cpu(cpu) == node;
	return (1 + cpus) * batchcount + cache->layout.objects;
}

static int slab_node_init(struct kmem_cache *cache, unsigned node)
{
	struct slab_node *n = slab_node(cache, node);

	km_slabs_init(cache, node);
	km_list_init(&n->full);
	km_list_init(&n->free);
	n->slabs.counts.ready[0] = &n->ready;
	n->free_limit = free_limit(cache, cache->tune.batchcount, node);
	n->shared_limit = (unsigned)cache->tune.shared * cache->tune.batchcount;
	if (node == 0 && cache->fast.capacity)
		cache->state.percpu_offset = km_percpu_alloc(sizeof(struct slab_cpu));
	return 0;
}

static void slab_node_fini(struct kmem_cache *cache, unsigned node)
{
	struct slab_node *n = slab_node(cache, node);

	km_metadata_free(n->shared, n->shared_limit * sizeof(*n->shared));
	km_metadata_free(n->alien, km_node_count * sizeof(*n->alien));
	if (node || !cache->state.percpu_offset)
		return;
	km_for_each_cpu(cpu)
		*slab_cpu(cache, cpu) = (struct slab_cpu){ 0 };
	km_percpu_free(cache->state.percpu_offset, sizeof(struct slab_cpu));
	cache->state.percpu_offset = 0;
}

/* ------------------------------------------------------------------ what is idle */

/* Marks an array as idle if unused since the last look and not empty. Returns: true if the CPU should be trimmed. */
static bool look_at_cpu(struct kmem_cache *cache, unsigned cpu)
{
	struct slab_cpu *state = slab_cpu(cache, cpu);
	uint64_t top = km_pcs_top_cpu(&cache->fast.pcs, cpu);
	bool busy = km_load(&state->touched) || top != km_load(&state->seen);
	bool idle = !busy && km_pcs_count_cpu(&cache->fast.pcs, cpu);

	km_store(&state->touched, 0u);
	km_store(&state->seen, top);
	km_store(&state->idle, (uint32_t)idle);
	return idle || km_pcs_has_spare_cpu(&cache->fast.pcs, cpu);
}

/* Drains one alien array; every SLAB_REAP_NODE_MS also an idle shared array and unused free slabs. */
static void look_at_node(struct kmem_cache *cache, struct slab_node *n, uint64_t now_ms)
{
	km_slab_drain_alien(cache, n, n->alien_next++ % km_node_count);
	if (!n->next_reap_ms || now_ms < n->next_reap_ms) {
		n->next_reap_ms = n->next_reap_ms ?: now_ms + SLAB_REAP_NODE_MS;
		return;
	}
	n->next_reap_ms = now_ms + SLAB_REAP_NODE_MS;
	km_slab_drain_shared(cache, n, false);
	km_lock(&n->slabs.lock);
	bool touched = n->free_touched;
	size_t slabs = (n->free_limit + 5 * cache->layout.objects - 1) / (5 * cache->layout.objects);
	n->free_touched = false;
	km_unlock(&n->slabs.lock);
	if (!touched)
		km_add(&cache->state.events->count[KMEM_REAPED], km_slab_free_slabs(cache, n, slabs));
}

static bool slab_look(struct kmem_cache *cache, uint64_t now_ms)
{
	struct slab_node *n;
	bool due = false;

	if (cache->fast.pcs.slot && cache->state.percpu_offset)
		km_for_each_cpu(cpu)
			due |= look_at_cpu(cache, cpu);
	km_for_each_node(n, cache)
		look_at_node(cache, n, now_ms);
	return due;
}

static void **slab_trim(struct kmem_cache *cache, unsigned cpu, void **sheaf)
{
	struct slab_cpu *state = slab_cpu(cache, cpu);
	size_t count = km_sheaf_objects(&cache->fast.pcs, sheaf);

	if (!state || !km_load(&state->idle))
		return sheaf;
	km_debug(!km_load(&cache->fast.pcs.inner.pcs) || km_percpu.discipline != KM_DISCIPLINE_RSEQ,
		 "an array is trimmed while the per-CPU array is closed");
	km_store(&state->idle, 0u);
	sheaf = km_slab_give_oldest(cache, sheaf, km_slab_idle_share(km_load(&cache->fast.capacity), count));
	km_store(&state->seen, (uint64_t)((uintptr_t)sheaf - (uintptr_t)km_area(cpu)));
	if (km_sheaf_objects(&cache->fast.pcs, sheaf))
		return sheaf;
	/* Kernel: an empty array stays. */
	km_slab_retire(cache, sheaf);
	return NULL;
}

static size_t slab_shrink(struct kmem_cache *cache)
{
	struct slab_node *n;
	size_t freed = 0;

	km_for_each_node(n, cache)
		for (unsigned other = 0; other < km_node_count; other++)
			km_slab_drain_alien(cache, n, other);
	km_for_each_node(n, cache) {
		km_slab_drain_shared(cache, n, true);
		freed += km_slab_free_slabs(cache, n, SIZE_MAX);
	}
	return freed;
}

/* ------------------------------------------------------------------ tuning */

/* Kernel: every CPU gets a new array at once. Here at its next miss, because the caller drains the CPUs. */
static int slab_tune(struct kmem_cache *cache, unsigned limit, unsigned batchcount, unsigned shared)
{
	void **arrays[KM_MAX_NODES] = { NULL };
	unsigned shared_limit = shared * batchcount;
	const size_t bytes = shared_limit * sizeof(**arrays);

	if (!cache->fast.capacity)
		return -EOPNOTSUPP;
	if (limit > cache->tune.max_capacity || shared > UINT16_MAX)
		return -ERANGE;
	for (unsigned node = 0; node < km_node_count && shared_limit; node++) {
		arrays[node] = km_metadata_alloc(bytes, true);
		if (arrays[node])
			continue;
		while (node--)
			km_metadata_free(arrays[node], bytes);
		return -ENOMEM;
	}
	km_store(&cache->tune.batchcount, (uint16_t)batchcount);
	km_store(&cache->tune.shared, (uint16_t)shared);
	for (unsigned node = 0; node < km_node_count; node++) {
		struct slab_node *n = slab_node(cache, node);

		km_lock(&n->slabs.lock);
		void **old = n->shared;
		unsigned old_limit = n->shared_limit, count = (unsigned)n->slabs.counts.shared;
		km_store(&n->shared, arrays[node]);
		km_debug(count <= old_limit && (old || !count), "a shared array has at most as many objects as fit");
		km_store(&n->shared_limit, shared_limit);
		km_store(&n->slabs.counts.shared, (size_t)0);
		n->free_limit = free_limit(cache, batchcount, node);
		km_sub(&n->ready, (size_t)count);
		km_unlock(&n->slabs.lock);
		if (count)
			km_slab_give(cache, old + old_limit - count, count);
		km_metadata_free(old, old_limit * sizeof(*old));
	}
	return 0;
}

/* ------------------------------------------------------------------ looking */

static bool slab_is_taken(struct kmem_cache *cache, struct km_page *slab, unsigned index)
{
	(void)cache;
	return !slab_is_free(slab, index);
}

static uint64_t slab_taken(struct kmem_cache *cache, struct km_page *slab, unsigned word)
{
	(void)cache;
	return ~km_load(&slab_bits(slab)[word]) & km_object_bits(slab->objects, word);
}

static unsigned long slab_event(struct kmem_cache *cache, enum kmem_event event)
{
	struct slab_node *n;
	unsigned long sum = 0;

	km_for_each_node(n, cache)
		sum += event == KMEM_ALLOCS	  ? km_load(&n->allocs) :
		       event == KMEM_HIGH	  ? km_load(&n->high) :
		       event == KMEM_MAX_FREEABLE ? km_load(&n->max_freeable) : 0;
	return sum;
}

static void slab_clear_events(struct kmem_cache *cache)
{
	struct slab_node *n;

	km_for_each_node(n, cache) {
		km_lock_scope(&n->slabs.lock);
		km_store(&n->allocs, (uint64_t)0);
		km_store(&n->high, (uint64_t)0);
		km_store(&n->max_freeable, (uint64_t)0);
	}
}

static void slab_hit(struct kmem_cache *cache, enum kmem_event event, size_t count)
{
	km_add(&cache->state.events->count[event], count);
}

/* ------------------------------------------------------------------ checks */

/* Checks the indices and the count against the bits, which are authoritative. */
static int check_slab(struct kmem_cache *cache, struct km_page *slab)
{
	const char *first = km_slab_first(cache, slab);
	uint64_t met[4] = { 0 };
	unsigned free = 0, listed = 0;

	for (unsigned i = 0; i < slab->objects; i++)
		free += slab_is_free(slab, i);
	for (unsigned i = slab->inuse; slab_slab(slab)->freelist && i < slab->objects; i++) {
		if (!slab_entry_sound(cache, slab, first, i))
			break;
		unsigned index = slab_slab(slab)->freelist[i];

		listed += !(met[index / 64] >> index % 64 & 1);
		met[index / 64] |= (uint64_t)1 << index % 64;
	}
	if (free == (unsigned)(slab->objects - slab->inuse) && listed == free &&
	    slab->cache == cache && slab->type == KM_PAGE_SLAB)
		return 0;
	km_warn("check: %s: slab %p counts %u of %u objects as allocated, but its bits mark %u as free and its list "
		"has %u", cache->registry.name,
		km_page_address(slab), slab->inuse, slab->objects, free, listed);
	return 1;
}

struct tally {
	size_t slabs, objects, taken;
};

/* Checks at most `most` slabs of the list. */
static int check_list(struct kmem_cache *cache, const struct km_list *list, const char *name, size_t most,
		      struct tally *tally)
{
	int damages = 0;

	km_list_for_some(entry, list, most) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);
		const char *state = !slab->inuse ? "free" : slab->inuse < slab->objects ? "partial" : "full";

		if (__builtin_strcmp(state, name) != 0) {
			km_warn("check: %s: a %s slab is on the list of %s slabs", cache->registry.name, state, name);
			damages++;
		}
		damages += check_slab(cache, slab);
		tally->slabs++;
		tally->objects += slab->objects;
		tally->taken += slab->inuse;
	}
	return damages;
}

static int check_node(struct kmem_cache *cache, const struct slab_node *n)
{
	const struct km_node_counts *kept = &n->slabs.counts;
	struct tally tally = { 0, 0, 0 };
	const size_t most = kept->slabs + 1;
	int damages = check_list(cache, &n->slabs.partial, "partial", most, &tally);
	size_t partial = tally.slabs;

	damages += check_list(cache, &n->free, "free", most, &tally);
	size_t free = tally.slabs - partial;
	damages += check_list(cache, &n->full, "full", most, &tally);
	if (partial == kept->partial && free == kept->free_slabs && tally.slabs == kept->slabs &&
	    tally.objects == kept->objects && tally.taken == kept->taken && n->ready >= kept->shared &&
	    kept->shared <= n->shared_limit)
		return damages;
	km_warn("check: %s: %lu slabs, %lu partial, %lu free, %lu of %lu objects allocated; counted: %lu, %lu, %lu, "
		"%lu of %lu",
		cache->registry.name, tally.slabs, partial, free, tally.taken, tally.objects,
		kept->slabs, kept->partial, kept->free_slabs, kept->taken, kept->objects);
	return damages + 1;
}

static int slab_check(struct kmem_cache *cache)
{
	struct slab_node *n;
	int damages = 0;

	km_for_each_node(n, cache)
		damages += check_node(cache, n);
	return damages;
}

/* Alien arrays are created under the node's lock. */
static void slab_fork(struct kmem_cache *cache, bool before, bool child)
{
	struct slab_node *n;

	if (before)
		km_slabs_fork(cache, before, child);
	km_for_each_node(n, cache)
		for (unsigned i = 0; n->alien && (child || km_fork_has(&n->slabs.lock)) && i < km_node_count; i++)
			km_lock_around_fork(&n->alien[i].lock, before, child);
	if (!before)
		km_slabs_fork(cache, before, child);
}

static const struct kmem_record_field fields[] = {
	KM_FIELD_STRUCT("slab", struct slab_node),
	KM_FIELD_IN("slab", struct slab_node, shared), KM_FIELD_IN("slab", struct slab_node, shared_limit),
	KM_FIELD_IN("slab", struct slab_node, slabs.counts.shared), KM_FIELD_IN("slab", struct slab_node, alien),
	KM_FIELD_IN("slab", struct slab_node, allocs), KM_FIELD_IN("slab", struct slab_node, high),
	KM_FIELD_IN("slab", struct slab_node, max_freeable),
	KM_FIELD_STRUCT("alien", struct slab_alien),
	KM_FIELD_IN("alien", struct slab_alien, avail), KM_FIELD_ARRAY("alien", struct slab_alien, objects),
};

const struct km_engine km_engine_slab = {
	.name = "slab",
	.front = KM_PERCPU_SHEAVES,
	.node_bytes = sizeof(struct slab_node),
	.layout = slab_layout,
	.node_init = slab_node_init,
	.node_fini = slab_node_fini,
	.take = km_slab_take,
	.give = km_slab_give,
	.hit = slab_hit,
	.shrink = slab_shrink,
	.reap = slab_shrink,
	.discard = km_slab_drop,
	.is_taken = slab_is_taken,
	.taken = slab_taken,
	.stats = km_slabs_stats,
	.fullness = km_slabs_fullness,
	.partial = km_slabs_partial,
	.check = slab_check,
	.fork = slab_fork,
	.event = slab_event,
	.clear_events = slab_clear_events,
	.fields = fields,
	.field_count = km_array_count(fields),
	.array = {
		.lone = true,
		.refill = km_slab_refill,
		.spill = km_slab_spill,
		.retire = km_slab_retire,
		.look = slab_look,
		.trim = slab_trim,
		.tune = slab_tune,
	},
};
