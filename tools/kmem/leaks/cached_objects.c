/*
 * cached_objects.c: finds the cached objects: in per-CPU sheaves and chains, in barns, in shared and alien arrays,
 * and in lists of deferred frees. A slab counts a cached object as allocated. Invariant: a list or sheaf that changes
 * during the read yields too many or too few addresses, never an endless walk.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "leaks/heap.h"

#define MAX_SHEAVES	4096u	/* sheaves read of a barn's list */
#define MAX_SHARED	65536u	/* objects in a shared array */
#define MAX_DEFERRED	4096u	/* objects read of a list of deferred frees */

struct rests {
	struct heap *heap;
	const struct heap_cache *cache;
	const struct info_root *root;
	struct rec_percpu percpu;
	unsigned shift;
};

static void add(struct rests *rests, uintptr_t object)
{
	struct heap *heap = rests->heap;

	if (!object)
		return;
	target_charge(heap->target, sizeof(*heap->rests));
	heap->rests = kmem_grow(heap->rests, heap->rest_count, &heap->rest_room, sizeof(*heap->rests));
	heap->rests[heap->rest_count++] = object;
}

static uintptr_t area_of(const struct rests *rests, unsigned cpu)
{
	return (uintptr_t)rests->percpu.base + ((uintptr_t)cpu << rests->shift);
}

/* Reads `each` bytes at `offset` of each CPU's area. An unreadable area reads as zeros: a dump lacks unused areas. */
static void read_areas(struct rests *rests, uint32_t offset, void *to, size_t each)
{
	struct target *target = rests->heap->target;

	if (target_per_cpu(target, rests->root, &rests->percpu, offset, to, each))
		return;
	for (unsigned cpu = 0; cpu < rests->percpu.cpus && target->result != INFO_GONE; cpu++)
		if (!target_read(target, (char *)to + cpu * each, (void *)(area_of(rests, cpu) + offset), each))
			memset((char *)to + cpu * each, 0, each);
}

/* ------------------------------------------------------------------ sheaves */

/* Adds the objects of the sheaf that `top` points into (layout: KMEM_RECORD_SHEAVES). Returns: the link of the sheaf,
 * or 0. */
static uint64_t add_sheaf(struct rests *rests, uint32_t mask, uintptr_t top)
{
	uint64_t words[KMEM_PAGE_BYTES * 2 / sizeof(uint64_t)];
	size_t bytes = (top | mask) + 1 - top, count = bytes / sizeof(*words);

	if (mask >= sizeof(words) || top % sizeof(*words) || count < 2 ||
	    !target_read(rests->heap->target, words, (void *)top, bytes))
		return 0;
	uint64_t pad = words[count - 2] / sizeof(*words);

	for (size_t i = 0; pad < count - 1 && i < count - 2 - pad; i++)
		add(rests, words[i]);
	return words[count - 1];
}

/* Adds the objects of each CPU's main and spare. The charged pcs has no spare. */
static void add_pcs(struct rests *rests, const struct rec_sheaves *pcs)
{
	uint64_t *words = kmem_need(calloc(rests->percpu.cpus + 1, sizeof(*words)));

	if (pcs->slot && pcs->block_mask)
		read_areas(rests, pcs->slot, words, sizeof(*words));
	for (unsigned cpu = 0; cpu < rests->percpu.cpus; cpu++) {
		uintptr_t area = area_of(rests, cpu);
		uint64_t spare = words[cpu] ? add_sheaf(rests, pcs->block_mask, area + words[cpu]) : 0;

		if (spare)
			add_sheaf(rests, pcs->block_mask, area + spare);
	}
	free(words);
}

/* ------------------------------------------------------------------ caches of the engines */

static void add_barn(struct rests *rests, const struct layout *layout, const struct rec_cache *cache, const void *node)
{
	struct rec_sheaf n;
	struct rec_remote remote;

	if (target_struct(rests->heap->target, layout, INFO_SHEAF, &n, node)) {
		uintptr_t sheaf = n.barn.full;

		for (unsigned i = 0; sheaf && i < MAX_SHEAVES && i < n.barn.full_count; i++)
			sheaf = add_sheaf(rests, cache->shelf.block_mask, sheaf);
		if (n.remote && target_struct(rests->heap->target, layout, INFO_REMOTE, &remote, n.remote))
			for (unsigned i = 0; i < KMEM_RECORD_NODES; i++)
				if (remote.block[i])
					add_sheaf(rests, cache->shelf.block_mask, remote.block[i]);
	}
}

static void add_shared(struct rests *rests, const struct layout *layout, const void *node)
{
	struct rec_slab n;
	struct rec_alien alien[KMEM_RECORD_NODES];
	struct target *target = rests->heap->target;

	if (!target_struct(target, layout, INFO_SLAB, &n, node))
		return;
	size_t count = n.slabs.counts.shared;
	if (n.shared && count && count <= n.shared_limit && n.shared_limit <= MAX_SHARED) {
		uintptr_t *objects = kmem_need(calloc(count, sizeof(*objects)));

		if (target_read(target, objects, n.shared + (n.shared_limit - count), count * sizeof(*objects)))
			for (size_t i = 0; i < count; i++)
				add(rests, objects[i]);
		free(objects);
	}
	if (!n.alien || !target_structs(target, layout, INFO_ALIEN, alien, n.alien, KMEM_RECORD_NODES))
		return;
	for (unsigned i = 0; i < KMEM_RECORD_NODES; i++)
		for (unsigned j = 0; j < alien[i].avail && j < KMEM_RECORD_ALIEN; j++)
			add(rests, alien[i].objects[j]);
}

static void add_nodes(struct rests *rests, const struct layout *layout)
{
	const struct rec_cache *cache = &rests->cache->copy;

	for (unsigned i = 0; i < KMEM_RECORD_NODES; i++) {
		if (!cache->node[i])
			continue;
		if (rests->cache->engine == HEAP_sheaf && layout_bytes(layout, INFO_SHEAF))
			add_barn(rests, layout, cache, cache->node[i]);
		else if (rests->cache->engine == HEAP_slab && layout_bytes(layout, INFO_SLAB))
			add_shared(rests, layout, cache->node[i]);
	}
}

/* ------------------------------------------------------------------ lists through objects */

/* Adds at most `most` objects of a list linked at `freeptr`. Each link is read from the process. */
static void add_list(struct rests *rests, uintptr_t object, uint32_t freeptr, unsigned most)
{
	for (unsigned i = 0; object && i < most; i++) {
		add(rests, object);
		if (!target_read(rests->heap->target, &object, (void *)(object + freeptr), sizeof(object)))
			return;
	}
}

static void add_chain(struct rests *rests)
{
	const struct rec_cache *cache = &rests->cache->copy;
	size_t each = layout_bytes(&rests->root->layout, INFO_CHAIN);
	char *states = target_room(rests->heap->target, rests->percpu.cpus, each);

	if (states && cache->chain.slot && each)
		read_areas(rests, cache->chain.slot, states, each);
	for (unsigned cpu = 0; states && cache->chain.slot && each && cpu < rests->percpu.cpus; cpu++) {
		struct rec_chain state;

		layout_take(&rests->root->layout, INFO_CHAIN, &state, states + cpu * each);
		add_list(rests, state.top.freelist, cache->freeptr, cache->objects);
	}
	free(states);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Reads the per-CPU record of a library instance. Returns: false with target->result set on failure. */
static bool begin_root(struct rests *rests, const struct info_root *root)
{
	struct target *target = rests->heap->target;

	rests->root = root;
	rests->shift = layout_offset(&root->layout, "const.area_shift") & 63;
	if (!target_struct(target, &root->layout, INFO_PERCPU, &rests->percpu, root->record.percpu))
		return false;
	return rests->percpu.cpus <= INFO_MAX_CPUS || target_torn(target);
}

bool heap_rests(struct heap *heap, const bool *wanted, size_t *next, uint64_t end)
{
	struct rests rests = { .heap = heap };

	for (; *next < heap->cache_count; ++*next) {
		const struct heap_cache *cache = &heap->caches[*next];

		if (wanted && !wanted[*next])
			continue;
		if (end != UINT64_MAX && now_ns() >= end)
			break;
		if (cache->root != rests.root && !begin_root(&rests, cache->root))
			return false;
		rests.cache = cache;
		add_pcs(&rests, &cache->copy.shelf);
		add_pcs(&rests, &cache->copy.charged);
		add_nodes(&rests, &cache->root->layout);
		if (cache->engine == HEAP_slub)
			add_chain(&rests);
		add_list(&rests, cache->copy.deferred, cache->copy.freeptr, MAX_DEFERRED);
	}
	return heap->target->result == INFO_OK || heap->target->result == INFO_TORN;
}
