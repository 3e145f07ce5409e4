/*
 * memcg_caches.c: what a group has, cache by cache. Invariant: nothing is counted while running; it is found out when
 * somebody asks, by a walk over all slabs, each of which says whose its objects are (page/owner.h).
 */
#include "../page/owner.h"
#include "../port/die.h"
#include "group.h"
#include "private.h"

/* Caches that are counted in one walk over the slabs. */
#define AT_ONCE 32u

struct row {
	struct kmem_cache *cache;
	size_t objects;
	uint64_t bytes;
};

struct walk {
	const struct mem_cgroup *group;
	bool below;			/* and those below it; of these not the twins, of which there may be 100000 */
	struct row row[AT_ONCE];
	size_t count;			/* of rows */
	size_t skip;			/* caches that were counted in former walks */
	uint64_t sum;			/* sum_twins: bytes */
	uint64_t last;			/* an owner that was looked at, and whether it is the group's */
	bool last_is_its;
};

/* A group has few owners: its own, and those of groups below it that are gone. The owner of an object that is out is
 * there. */
static bool is_its(struct walk *walk, uint64_t owner)
{
	owner &= ~KM_OWNER_NOBODY;
	if (!owner)
		return false;
	if (walk->last != owner) {
		walk->last = owner;
		const struct mem_cgroup *memcg = km_load(&((struct obj_cgroup *)(uintptr_t)owner)->memcg);

		walk->last_is_its = memcg == walk->group || (walk->below && km_memcg_in(memcg, walk->group));
	}
	return walk->last_is_its;
}

static struct row *row_of(struct walk *walk, const struct kmem_cache *cache)
{
	for (size_t i = 0; i < walk->count; i++)
		if (walk->row[i].cache == cache)
			return &walk->row[i];
	return NULL;
}

static int count_slab(struct km_page *slab, void *arg)
{
	struct walk *walk = arg;
	struct kmem_cache *cache = slab->type == KM_PAGE_SLAB ? km_load(&slab->cache) : NULL;
	struct row *row = cache ? row_of(walk, cache) : NULL;

	/* A twin's words are not owners. */
	if (!row || cache->twin_of)
		return 0;
	uint64_t word = km_load_acquire(km_owner_of_page(slab));
	size_t first = (size_t)(km_slab_first(cache, slab) - (char *)km_page_address(slab));

	for (unsigned i = 0; word && i < slab->objects; i++) {
		uint64_t owner = word;

		if (!cache->engine->is_taken(cache, slab, i))
			continue;
		if (word & KM_OWNER_VECTOR)
			owner = km_load(km_owner_in_vector(word, first + (size_t)i * cache->size, cache->reciprocal));
		row->objects += is_its(walk, owner);
	}
	return 0;
}

static bool is_its_twin(struct walk *walk, const struct kmem_cache *cache)
{
	return cache->twin_of && is_its(walk, (uintptr_t)km_private_owner(cache));
}

static int note_cache(struct kmem_cache *cache, void *arg)
{
	struct walk *walk = arg;

	if (!cache->charging && !is_its_twin(walk, cache))
		return 0;
	if (cache->twin_of && walk->below)
		return 0;
	if (walk->skip) {
		walk->skip--;
		return 0;
	}
	if (walk->count == AT_ONCE)
		return 1;
	walk->row[walk->count++] = (struct row){ .cache = cache };
	return 0;
}

/* What is on no shelf and in no barn then is a user's: only that is taken. */
static void take_back(struct walk *walk)
{
	struct kmem_cache *caches[AT_ONCE];

	if (!walk->count)
		return;
	for (size_t i = 0; i < walk->count; i++)
		caches[i] = walk->row[i].cache;
	km_front_drain_all(caches, walk->count);
	for (size_t i = 0; i < walk->count; i++)
		caches[i]->engine->shrink(caches[i]);
}

/* A group with slabs of its own pays for them whole. */
static void finish_row(struct row *row)
{
	struct kmem_cache_stats stats;

	row->bytes = row->objects * (uint64_t)row->cache->charge;
	if (!row->cache->twin_of)
		return;
	kmem_cache_get_stats(row->cache, &stats);
	row->objects = stats.active_objects;
	row->bytes = km_load(&row->cache->slab_bytes);
}

/* The next caches, all that can be done while none comes or goes. True: there are more. */
static bool gather(struct walk *walk, char (*name)[KM_NAME_BYTES])
{
	km_registry_lock();
	bool more = km_registry_each(note_cache, walk) != 0;
	take_back(walk);
	km_pages_walk(count_slab, walk);
	for (size_t i = 0; i < walk->count; i++) {
		finish_row(&walk->row[i]);
		__builtin_memcpy(name[i], walk->row[i].cache->name, KM_NAME_BYTES);
	}
	km_registry_unlock();
	return more;
}

static int walk_caches(const struct mem_cgroup *group, bool below, mem_cgroup_visit_cache visit, void *arg)
{
	char name[AT_ONCE][KM_NAME_BYTES];
	size_t done = 0;
	bool more = true;

	while (more) {
		struct walk walk = { .group = group, .below = below, .skip = done };

		more = gather(&walk, name);
		done += walk.count;
		for (size_t i = 0; i < walk.count; i++) {
			const struct row *row = &walk.row[i];
			int result = row->bytes ? visit(name[i], row->objects, row->bytes, arg) : 0;

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

static void sum_rows(struct walk *walk)
{
	take_back(walk);
	for (size_t i = 0; i < walk->count; i++)
		walk->sum += km_load(&walk->row[i].cache->slab_bytes);
	walk->count = 0;
}

static int sum_twin(struct kmem_cache *cache, void *arg)
{
	struct walk *walk = arg;

	if (!is_its_twin(walk, cache) || !km_load(&cache->slab_bytes))
		return 0;
	walk->row[walk->count++].cache = cache;
	if (walk->count == AT_ONCE)
		sum_rows(walk);
	return 0;
}

/* Nobody is told of each: once over the registry does for all. */
static uint64_t sum_twins(const struct mem_cgroup *group)
{
	struct walk walk = { .group = group, .below = true };

	km_registry_lock();
	km_registry_each(sum_twin, &walk);
	sum_rows(&walk);
	km_registry_unlock();
	return walk.sum;
}

static int add(const char *name, size_t objects, uint64_t bytes, void *arg)
{
	(void)name, (void)objects;
	*(uint64_t *)arg += bytes;
	return 0;
}

static size_t more_stat(const struct mem_cgroup *group, char *text, size_t bytes)
{
	char lines[128];
	uint64_t slab = sum_twins(group);

	walk_caches(group, true, add, &slab);
	/* Then `dying` says who has something out. */
	km_private_reap();
	size_t length = km_format(lines, sizeof(lines), "slab_reclaimable 0\nslab_unreclaimable %lu\nslab %lu\n",
				  (unsigned long)slab, (unsigned long)slab);
	for (size_t i = 0; i < length && i + 1 < bytes; i++)
		text[i] = lines[i];
	return length;
}

size_t (*km_memcg_more_stat)(const struct mem_cgroup *group, char *text, size_t bytes) = more_stat;
