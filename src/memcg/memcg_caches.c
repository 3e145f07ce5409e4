/*
 * memcg_caches.c: a group's objects and bytes, cache by cache. Invariants: nothing is counted in advance; a query
 * walks over all slabs and reads their owner words (page/obj_cgroups.h). A slab is read only while its page is held.
 * An owner may go meanwhile, but its record stays a record (objcg.c). A word read while its slab is freed may be any
 * value: only addresses of records are followed, under the tree lock.
 */
#include "page/metadata.h"
#include "page/obj_cgroups.h"
#include "os/die.h"
#include "memcg_group.h"
#include "child_cache.h"

/* most caches counted in one walk over the slabs */
#define AT_ONCE 32u

struct walk {
	const struct mem_cgroup *group;
	bool below;			/* count groups below too, without their child caches: there may be 100000 */
	size_t count;			/* of caches, each with a name, objects and bytes */
	struct kmem_cache *cache[AT_ONCE];
	char name[AT_ONCE][KM_NAME_BYTES];
	size_t objects[AT_ONCE];
	uint64_t bytes[AT_ONCE];
	size_t skip;			/* caches counted in earlier walks */
	uint64_t sum;			/* result of sum_children: bytes of child caches' slabs */
};

/* ------------------------------------------------------------------ cache by cache */

/* Returns whether the objcg charges the group. Context: tree lock held, which keeps the groups. */
static bool is_its(const struct walk *walk, const struct obj_cgroup *objcg)
{
	const struct mem_cgroup *group = km_load(&objcg->memcg);

	return group == walk->group || (walk->below && km_memcg_in(group, walk->group));
}

/* Counts the objects charged to the walk's group. taken: a bit for each allocated object; owners: their owner words. */
static size_t count_its(const struct walk *walk, const uint64_t *owners, uint64_t taken)
{
	size_t count = 0;
	uint64_t last = 0;
	bool its = false;

	km_memcg_scope();
	for (; taken; taken &= taken - 1) {
		const uint64_t owner = owners[__builtin_ctzll(taken)];

		/* Neighbours mostly have the same owner, and need one search. */
		if (owner != last)
			its = km_objcg_is_record(owner) && is_its(walk, (const struct obj_cgroup *)(uintptr_t)owner);
		last = owner;
		count += its;
	}
	return count;
}

/*
 * Counts 64 objects of a slab, from 64 * `word` on. Returns: false if there are no more, or the slab has another
 * cache by now. The page is held for 64 objects at a time, so that no thread waits long for the page. The slab may
 * have gone to another cache before: the descriptor is read under the hold, and limits all other reads.
 */
static bool count_some(struct walk *walk, size_t i, struct km_page *slab, unsigned word)
{
	struct kmem_cache *cache = walk->cache[i];
	uint64_t owners[64], taken = 0;

	km_debug(!cache->memcg.child_of && km_is_charged(cache), "objects with owner words are counted");
	km_page_hold(slab);
	/* Acquire pairs with km_slab_new_raw: the slab's descriptor is filled in. */
	bool its = km_load_acquire(&slab->type) == KM_PAGE_SLAB && km_load(&slab->cache) == cache;
	unsigned objects = its ? slab->objects : 0;
	const uint64_t *first = km_owner_of_page(slab);
	/* Acquire pairs with the setter of an owner: the setter has an object, so the engine has finished the slab as
	 * well. */
	if (objects > word * 64 && km_owner_any(first, slab->order)) {
		size_t at = (size_t)(km_slab_first(cache, slab) - (char *)km_page_address(slab));

		taken = cache->layout.engine->taken(cache, slab, word);
		km_owner_read(first, at + word * 64 * (size_t)cache->layout.size,
			      cache->layout.size, cache->memcg.owner_shift, owners,
			      km_min(objects - word * 64, 64u));
	}
	km_page_let_go(slab);
	if (taken)
		walk->objects[i] += count_its(walk, owners, taken);
	return objects > (word + 1) * 64;
}

static int count_slab(struct km_page *slab, void *arg)
{
	struct walk *walk = arg;
	struct kmem_cache *cache = km_load(&slab->type) == KM_PAGE_SLAB ? km_load(&slab->cache) : NULL;
	size_t i = 0;

	while (i < walk->count && walk->cache[i] != cache)
		i++;
	/* The words of a child cache's slab are not owners. */
	if (i < walk->count && !cache->memcg.child_of)
		for (unsigned word = 0; count_some(walk, i, slab, word); word++)
			;
	return 0;
}

/* Returns whether the group is charged for the child cache. */
static bool is_its_child(const struct walk *walk, const struct kmem_cache *cache)
{
	if (!cache->memcg.child_of)
		return false;
	km_memcg_scope();
	return is_its(walk, km_private_owner(cache));
}

static int note_cache(struct kmem_cache *cache, void *arg)
{
	struct walk *walk = arg;

	/* Skip caches of large blocks, which have no slabs. */
	if ((!km_is_charged(cache) && !is_its_child(walk, cache)) || cache->layout.engine->whole_pages)
		return 0;
	if (cache->memcg.child_of && walk->below)
		return 0;
	if (walk->skip) {
		walk->skip--;
		return 0;
	}
	if (walk->count == AT_ONCE)
		return 1;
	walk->cache[walk->count++] = cache;
	return 0;
}

/* Flushes the sheaves of the walk's caches, so that every object still allocated in a slab is a user's. */
static void empty_pcs(struct walk *walk)
{
	if (walk->count)
		km_alloc_drain_all(walk->cache, walk->count);
	for (size_t i = 0; i < walk->count; i++)
		walk->cache[i]->layout.engine->shrink(walk->cache[i]);
}

/* Finishes the figures of a cache. A private group is charged for whole slabs. */
static void finish(struct walk *walk, size_t i)
{
	struct kmem_cache *cache = walk->cache[i];
	struct kmem_cache_stats stats;

	__builtin_memcpy(walk->name[i], cache->registry.name, KM_NAME_BYTES);
	walk->bytes[i] = walk->objects[i] * (uint64_t)cache->memcg.charge;
	if (!cache->memcg.child_of)
		return;
	kmem_cache_get_stats(cache, &stats);
	walk->objects[i] = stats.active_objects;
	walk->bytes[i] = km_load(&cache->state.slab_bytes);
}

/* Counts the next caches, with the registry held. Returns: true if there are more. */
static bool gather(struct walk *walk)
{
	km_busy_scope(was);
	km_registry_hold_scope(within);
	bool more = km_registry_each(note_cache, walk) != 0;
	empty_pcs(walk);
	if (walk->count)
		km_pages_walk(count_slab, walk);
	for (size_t i = 0; i < walk->count; i++)
		finish(walk, i);
	return more;
}

static int walk_caches(const struct mem_cgroup *group, bool below, mem_cgroup_visit_cache visit, void *arg)
{
	size_t done = 0;
	bool more = true;

	while (more) {
		struct walk walk = { .group = group, .below = below, .skip = done };

		more = gather(&walk);
		done += walk.count;
		for (size_t i = 0; i < walk.count; i++) {
			int result = walk.bytes[i] ? visit(walk.name[i], walk.objects[i], walk.bytes[i], arg) : 0;

			if (result)
				return result;
		}
	}
	return 0;
}

int mem_cgroup_walk_caches(struct mem_cgroup *group, mem_cgroup_visit_cache visit, void *arg)
{
	return walk_caches(group, false, visit, arg);
}

/* ------------------------------------------------------------------ memory.stat */

static void sum_bytes(struct walk *walk)
{
	empty_pcs(walk);
	for (size_t i = 0; i < walk->count; i++)
		walk->sum += km_load(&walk->cache[i]->state.slab_bytes);
	walk->count = 0;
}

static int sum_child(struct kmem_cache *cache, void *arg)
{
	struct walk *walk = arg;

	if (!is_its_child(walk, cache) || !km_load(&cache->state.slab_bytes))
		return 0;
	walk->cache[walk->count++] = cache;
	if (walk->count == AT_ONCE)
		sum_bytes(walk);
	km_debug(walk->count < AT_ONCE, "the array has room for the next child cache");
	return 0;
}

/* Returns the bytes of all child caches of the group and of groups below, in one walk over the registry. */
static uint64_t sum_children(const struct mem_cgroup *group)
{
	struct walk walk = { .group = group, .below = true };
	km_busy_scope(was);
	km_registry_hold_scope(within);

	km_registry_each(sum_child, &walk);
	sum_bytes(&walk);
	return walk.sum;
}

static int add(const char *name, size_t objects, uint64_t bytes, void *arg)
{
	(void)name, (void)objects;
	*(uint64_t *)arg += bytes;
	return 0;
}

uint64_t km_memcg_slab_bytes(const struct mem_cgroup *group)
{
	uint64_t slab = sum_children(group);

	walk_caches(group, true, add, &slab);
	/* First release child caches without objects, so that only groups with charged bytes count as dying. */
	km_private_reap();
	return slab;
}
