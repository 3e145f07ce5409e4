/*
 * partial.c: a node's partial slabs: freeing, sorting, checks, statistics and fork, for every engine with partial
 * slabs. Invariant: a slab taken off the list here is empty, and only this thread knows the slab until the slab is
 * freed.
 */
#include "partial.h"

#include "base/bits.h"
#include "os/die.h"

#define PROMOTE_MAX	32u	/* slabs with up to so many free objects are sorted; kernel: SHRINK_PROMOTE_MAX */
#define REAP_LOOKS	256u	/* slabs looked at in vain before the lock is released */

int km_slabs_init(struct kmem_cache *cache, unsigned node)
{
	struct km_slabs *n = cache->state.node[node];

	km_lock_init(&n->lock, KM_RANK_NODE);
	km_list_init(&n->partial);
	return 0;
}

void km_slabs_discard(struct kmem_cache *cache, struct km_page *slab)
{
	struct km_slabs *n = cache->state.node[slab->node];

	km_lock(&n->lock);
	if (slab->flags & KM_SLAB_PARTIAL)
		km_slabs_unlist(n, slab);
	km_slabs_went(n, slab);
	km_bump(&n->counts.taken, -slab->inuse);
	km_unlock_quick(&n->lock);
	km_slab_free(cache, slab);
}

/* Moves slabs with at most PROMOTE_MAX free objects to the head of the list, fullest first, as the kernel does.
 * Requires: the node's lock. */
static void sort_partial(struct km_slabs *n, const struct km_slab_kind *kind)
{
	struct km_list promote[PROMOTE_MAX];

	for (unsigned i = 0; i < PROMOTE_MAX; i++)
		km_list_init(&promote[i]);
	km_list_for_some_safe(entry, &n->partial, n->counts.partial) {
		unsigned free = kind->free_objects(km_container_of(entry, struct km_page, list));

		km_debug(free <= km_container_of(entry, struct km_page, list)->objects,
			 "a slab has no more free objects than objects");
		if (free - 1 < PROMOTE_MAX) {
			km_list_del(entry);
			km_list_add_head(entry, &promote[free - 1]);
		}
	}
	for (unsigned i = PROMOTE_MAX; i-- > 0;)
		km_list_for_each_safe(entry, &promote[i]) {
			km_list_del(entry);
			km_list_add_head(entry, &n->partial);
		}
}

unsigned km_slab_free_objects(const struct km_page *slab)
{
	return (unsigned)(slab->objects - km_load(&slab->inuse));
}

/* Returns the slab with the fewest free objects among the first KM_FULLEST_LOOKS; NULL: the list is empty. *sum,
 * *count: free objects of the slabs seen; number of these slabs. */
static struct km_page *fewest_free(struct km_slabs *n, km_free_objects_fn *free_objects, size_t *sum, unsigned *count)
{
	struct km_page *best = NULL;
	unsigned fewest = UINT32_MAX;

	*sum = *count = 0;
	km_list_for_each_safe(entry, &n->partial) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);
		unsigned free = free_objects(slab);

		*sum += free;
		if (free < fewest) {
			fewest = free;
			best = slab;
		}
		if (++*count == KM_FULLEST_LOOKS)
			break;
	}
	return best;
}

/* Moves slabs at the head that are emptier than the average to the end, so that the next search sees other slabs beside
 * the fuller ones. */
static void rotate(struct km_slabs *n, km_free_objects_fn *free_objects, size_t sum, unsigned count)
{
	unsigned left = count;

	km_list_for_each_safe(entry, &n->partial) {
		if (!left--)
			break;
		if ((size_t)free_objects(km_container_of(entry, struct km_page, list)) * count <= sum)
			continue;
		km_list_del(entry);
		km_list_add_tail(entry, &n->partial);
	}
}

struct km_page *km_slabs_fullest(struct km_slabs *n, km_free_objects_fn *free_objects)
{
	struct km_page *slab = n->packed;
	size_t sum;
	unsigned count;

	km_debug(km_is_locked(&n->lock), "a slab is chosen under its node's lock");
	/* Choose again if objects were freed: the chosen slab may be among the emptiest now. */
	if (slab && free_objects(slab) > n->packed_free)
		slab = NULL;
	if (!slab && (slab = fewest_free(n, free_objects, &sum, &count)))
		rotate(n, free_objects, sum, count);
	km_store(&n->packed, slab);
	if (!slab)
		return NULL;
	n->packed_free = free_objects(slab);
	km_debug(n->packed_free, "a slab of the list has a free object");
	km_list_del(&slab->list);
	km_list_add_head(&slab->list, &n->partial);
	return slab;
}

void km_slabs_fullness(const struct kmem_cache *cache, const struct km_page *slab, struct km_fullness *fullness)
{
	const struct km_slabs *n = cache->state.node[slab->node];

	fullness->objects = slab->objects;
	fullness->inuse = km_load(&slab->inuse);
	fullness->current = km_load(&n->packed) == slab;
}

/* Counts the partial slabs. Free objects in partial slabs are all objects, minus taken objects, minus objects of
 * slabs on a list of free slabs. Each count is read separately, so concurrent changes may make the sum inexact. */
void km_slabs_partial(struct kmem_cache *cache, struct km_fullness *of_all)
{
	const struct km_node_counts *n;
	size_t free = 0;

	*of_all = (struct km_fullness){ 0 };
	km_for_each_node(n, cache) {
		size_t objects = km_load(&n->objects), taken = km_load(&n->taken);

		of_all->slabs += km_load(&n->partial);
		free += objects - km_min(objects, taken + km_load(&n->free_slabs) * cache->layout.objects);
	}
	of_all->objects = of_all->slabs * cache->layout.objects;
	of_all->inuse = of_all->objects - km_min(free, of_all->objects);
}

struct km_page *km_slabs_next(struct km_slabs *n)
{
	struct km_page *slab = n->looked;

	if (km_list_empty(&n->partial))
		return NULL;
	if (!slab)
		slab = km_list_last(&n->partial, struct km_page, list);
	km_debug(slab->flags & KM_SLAB_PARTIAL, "a visit continues at a slab of the list");
	n->looked = km_slabs_before(n, slab);
	return slab;
}

/* Moves empty slabs to `empty` until `keep` slabs are listed or `looks` slabs that stay were seen. Requires: the
 * node's lock. */
static void take_empty(struct km_slabs *n, unsigned long keep, size_t looks, const struct km_slab_kind *kind,
		       struct km_list *empty)
{
	struct km_page *slab;

	for (size_t left = n->counts.partial; left && looks && n->counts.partial > keep; left--) {
		slab = km_slabs_next(n);
		/* An object is freed under this lock, so an empty slab stays empty. */
		if (kind->free_objects(slab) != slab->objects) {
			looks--;
			continue;
		}
		(kind->unlist ?: km_slabs_drop)(n, slab);
		km_debug(km_list_empty(&slab->list), "a removed slab is on no list");
		km_list_add_tail(&slab->list, empty);
	}
}

static size_t discard_all(struct kmem_cache *cache, struct km_list *slabs, const struct km_slab_kind *kind)
{
	size_t freed = 0;

	km_list_for_each_safe(entry, slabs) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);

		km_list_del(entry);
		if (!kind->discard)
			km_slab_free(cache, slab);
		freed += !kind->discard || kind->discard(cache, slab);
	}
	return freed;
}

static size_t free_empty(struct kmem_cache *cache, struct km_slabs *n, unsigned long keep, size_t looks, bool sort,
			 const struct km_slab_kind *kind)
{
	struct km_list empty;

	km_list_init(&empty);
	km_lock(&n->lock);
	if (!km_slabs_stay(cache))
		take_empty(n, keep, looks, kind, &empty);
	if (sort)
		sort_partial(n, kind);
	km_unlock(&n->lock);
	return discard_all(cache, &empty, kind);
}

size_t km_slabs_shrink(struct kmem_cache *cache, struct km_slabs *n, const struct km_slab_kind *kind)
{
	return free_empty(cache, n, 0, SIZE_MAX, true, kind);
}

size_t km_slabs_reap(struct kmem_cache *cache, struct km_slabs *n, unsigned long keep, const struct km_slab_kind *kind)
{
	return free_empty(cache, n, keep, REAP_LOOKS, false, kind);
}

int km_slabs_check(struct kmem_cache *cache, const struct km_slab_kind *kind,
		   int (*check_slab)(struct kmem_cache *cache, struct km_page *slab))
{
	struct km_slabs *n;
	unsigned node = 0;
	int damages = 0;

	km_for_each_node(n, cache) {
		size_t partial = 0;

		km_list_for_some(entry, &n->partial, n->counts.partial + 1) {
			struct km_page *slab = km_container_of(entry, struct km_page, list);

			damages += check_slab(cache, slab);
			if (!kind->free_objects(slab) || slab->node != node) {
				km_warn("check: %s: a slab without free objects or of node %u is on the partial list "
					"of node %u",
					cache->registry.name, slab->node, node);
				damages++;
			}
			partial++;
		}
		if (partial != n->counts.partial) {
			km_warn("check: %s: the partial list has %s%lu slabs, but %lu are "
				"counted", cache->registry.name,
				partial > n->counts.partial ? "at least " : "", partial, n->counts.partial);
			damages++;
		}
		node++;
	}
	return damages;
}

void km_slabs_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	const struct km_node_counts *n;

	km_for_each_node(n, cache) {
		size_t taken = km_load(&n->taken);

		stats->total_slabs += km_load(&n->slabs);
		stats->total_objects += km_load(&n->objects);
		stats->partial_slabs += km_load(&n->partial);
		stats->shared_avail += km_load(&n->shared);
		stats->active_objects += taken == KM_NOT_KEPT ? 0 : taken;
		stats->alloc_slab += km_load(&n->new_slabs);
		stats->free_slab += km_load(&n->freed_slabs);
		for (unsigned i = 0; i < km_array_count(n->ready); i++)
			stats->shelf_objects += n->ready[i] ? km_load(n->ready[i]) : 0;
	}
}

void km_slabs_fork(struct kmem_cache *cache, bool before, bool child)
{
	struct km_slabs *n;

	km_for_each_node(n, cache)
		km_lock_around_fork(&n->lock, before, child);
}
