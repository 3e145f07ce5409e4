/*
 * root.h: what a reader outside of the process needs to find: `kmem info` reads a running
 * program's memory with process_vm_readv and never runs anything in it.
 *
 * The record lies at the very start of our first metadata range, just behind a page without access
 * (page/meta.c): so it begins a mapping in /proc/PID/maps, in every program, also where there are
 * no symbols and no names of mappings. It points at what is kept anyway; nothing is written for
 * readers' sake while the program runs. A fork's child has a copy that is right for the child,
 * which is why no process id stands here.
 *
 * A reader follows pointers into structures that change under its feet. What it may rely on: a
 * cache, a node, a block of a shelf and the tables here are metadata or static, so they can be
 * read for ever, even after they were freed. It must check what it read, bound each walk, and try
 * again.
 */
#ifndef KM_CACHE_ROOT_H
#define KM_CACHE_ROOT_H

#include "../page/big.h"
#include "cache.h"

#define KM_ROOT_MAGIC	"libkmem"
#define KM_ROOT_ABI	1u	/* of this record: changes with its first four fields, i.e. never */

struct km_root {
	char magic[8];		/* written last */
	uint32_t abi;
	uint32_t bytes;		/* sizeof(struct km_root) */
	uint64_t layout;	/* km_root_layout() of who wrote it */
	char version[16];
	const char *discipline, *reason;
	const struct km_percpu *percpu;
	const struct km_list *caches;	/* the registry: struct kmem_cache.all, oldest first */
	const unsigned *cache_count;
	struct km_arena_view arena;
	const size_t *large_blocks, *large_bytes;	/* not the mappings of their own */
	const size_t *mapped_blocks, *mapped_bytes;
	const size_t *meta_bytes;
	const size_t *slob_pages, *slob_units;
	const struct km_memcg_view *memcg;	/* watch/group.h; NULL: there can't be groups */
};

/* What a reader of the other side's structures must agree on, in one number. */
km_inline uint64_t km_root_layout(void)
{
	static const size_t facts[] = {
		sizeof(struct km_root), sizeof(struct kmem_cache), sizeof(struct km_engine),
		sizeof(struct km_node_counts), sizeof(struct km_percpu), sizeof(struct km_range),
		sizeof(struct km_page), sizeof(struct km_shelf), KMEM_AREA_SHIFT, KM_MAX_NODES,
		offsetof(struct kmem_cache, engine), offsetof(struct kmem_cache, shelf),
		offsetof(struct kmem_cache, size), offsetof(struct kmem_cache, object_size),
		offsetof(struct kmem_cache, objects), offsetof(struct kmem_cache, order),
		offsetof(struct kmem_cache, capacity), offsetof(struct kmem_cache, pad),
		offsetof(struct kmem_cache, batchcount), offsetof(struct kmem_cache, min_partial),
		offsetof(struct kmem_cache, node), offsetof(struct kmem_cache, all),
		offsetof(struct kmem_cache, name), offsetof(struct kmem_cache, dead),
		offsetof(struct km_engine, name), offsetof(struct km_engine, front),
		offsetof(struct km_shelf, inner), offsetof(struct km_shelf, block_mask),
		offsetof(struct km_shelf, slot), offsetof(struct km_percpu, base),
		offsetof(struct km_percpu, cpus), offsetof(struct km_range, base),
		offsetof(struct km_range, page), offsetof(struct km_range, ready),
		sizeof(struct km_zone_counts), offsetof(struct kmem_cache, charged),
	};
	uint64_t hash = 0xcbf29ce484222325ull;	/* FNV-1a, by words */

	for (size_t i = 0; i < km_array_count(facts); i++)
		hash = (hash ^ facts[i]) * 0x100000001b3ull;
	return hash;
}

/* Write the record; once, when everything it points at is there. */
void km_root_start(void);

#endif
