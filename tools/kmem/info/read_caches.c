/*
 * read_caches.c: read the numbers of all caches, from a root record on. The sums equal the sums of kmem_get_stats and
 * kmem_cache_get_stats while the process is quiet. In a busy process the reads are of different moments. Invariant:
 * each walk is bounded, the target's pointers are never dereferenced here, and impossible data repeats the snapshot.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"

#define SCAN_PAGES	4096u	/* descriptors read at a time */

struct walk {
	struct target *target;
	struct info_root *root;
	const struct layout *layout;
	struct snapshot *snapshot;
	size_t first;			/* index of this root's first cache in the snapshot */
	size_t link;			/* offset of struct kmem_cache.all in the target */
	struct rec_percpu percpu;
	/* Engine of the last cache. */
	const struct rec_engine *engine_at;
	struct rec_engine engine;
	char engine_name[16];
	size_t by_slab;			/* caches with free objects counted slab by slab */
};

/* ------------------------------------------------------------------ cached objects of CPUs */

/* Returns: addresses of the same offset in each CPU's area. The caller frees the array. */
static void **per_cpu(const struct info_root *root, const struct rec_percpu *percpu, uint32_t offset)
{
	unsigned shift = layout_offset(&root->layout, "const.area_shift") & 63;
	void **at = kmem_need(calloc(percpu->cpus + 1, sizeof(*at)));

	for (unsigned cpu = 0; cpu < percpu->cpus; cpu++)
		at[cpu] = percpu->base + ((uintptr_t)cpu << shift) + offset;
	return at;
}

bool target_per_cpu(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
		    uint32_t offset, void *to, size_t each)
{
	void **at = per_cpu(root, percpu, offset);
	bool ok = target_gather(target, to, at, each, percpu->cpus);

	free(at);
	return ok;
}

/* The last two words of a sheaf: pcpu.h has the picture. */
struct block_end {
	uint64_t pad, spare;
};

/*
 * Read the ends of sheaves and add up their objects. `tops` are the tops of sheaves of one cache. Returns: false if a
 * read failed, or if the data is impossible.
 */
static bool count_blocks(struct walk *walk, uint32_t mask, void *const *tops, size_t count,
			 struct block_end *ends, unsigned long *objects)
{
	void **at = kmem_need(calloc(count + 1, sizeof(*at)));

	for (size_t i = 0; i < count; i++)
		at[i] = (void *)(((uintptr_t)tops[i] | mask) - 15);
	bool ok = target_gather(walk->target, ends, at, sizeof(*ends), count);
	for (size_t i = 0; ok && i < count; i++) {
		uintptr_t bytes = mask - 15 - ((uintptr_t)tops[i] & mask);

		/* For a top beyond the bottom, `bytes` wraps. */
		if (bytes > mask || ends[i].pad > bytes || bytes % sizeof(void *))
			ok = target_torn(walk->target);
		*objects += (bytes - ends[i].pad) / sizeof(void *);
	}
	free(at);
	return ok;
}

/* Count the objects in each CPU's main and spare sheaf. An owned sheaf has no spare. pcpu.h and owned_sheaf.h have
 * the pictures. */
static bool count_pcs(struct walk *walk, const struct rec_sheaves *pcs, unsigned long *objects)
{
	unsigned cpus = walk->percpu.cpus;
	void **at = per_cpu(walk->root, &walk->percpu, pcs->slot);
	struct block_end *ends = kmem_need(calloc(cpus + 1, sizeof(*ends)));
	uint64_t *words = kmem_need(calloc(cpus + 1, sizeof(*words)));
	void **areas = per_cpu(walk->root, &walk->percpu, 0);
	size_t count = 0;

	bool ok = target_gather(walk->target, words, at, sizeof(*words), cpus);
	for (unsigned cpu = 0; ok && cpu < cpus; cpu++)
		if (words[cpu]) {
			at[count] = (char *)areas[cpu] + words[cpu];
			areas[count++] = areas[cpu];
		}
	ok = ok && count_blocks(walk, pcs->block_mask, at, count, ends, objects);
	size_t pairs = 0;
	for (size_t i = 0; ok && i < count; i++)
		if (ends[i].spare)
			at[pairs++] = (char *)areas[i] + ends[i].spare;
	ok = ok && count_blocks(walk, pcs->block_mask, at, pairs, ends, objects);
	free(at);
	free(areas);
	free(ends);
	free(words);
	return ok;
}

/* Count the objects of a freelist in the slab named by the tag. */
static bool count_freelist(struct walk *walk, const struct rec_cache *cache, uint64_t tag,
			   uintptr_t object, unsigned long *objects)
{
	uintptr_t base = (uintptr_t)KMEM_RECORD_TAG_ADDRESS(tag);
	const unsigned shift = KMEM_RECORD_TAG_SHIFT(tag);
	const size_t bytes = (size_t)1 << shift;
	unsigned count = 0;

	if (!object || shift < KMEM_PAGE_SHIFT || shift > KMEM_PAGE_SHIFT + KMEM_RECORD_MAX_ORDER)
		return true;
	char *copy = kmem_need(malloc(bytes));
	bool ok = target_read(walk->target, copy, (void *)base, bytes);
	while (ok && object && count < cache->objects) {
		size_t offset = object - base;	/* wraps for an object below the slab */

		if (offset >= bytes || offset % cache->size || cache->size > bytes - offset ||
		    cache->freeptr + sizeof(object) > bytes - offset)
			break;
		count++;
		memcpy(&object, copy + offset + cache->freeptr, sizeof(object));
	}
	free(copy);
	*objects += count;
	return ok;
}

static bool count_chain(struct walk *walk, const struct rec_cache *cache, unsigned long *objects)
{
	unsigned cpus = walk->percpu.cpus;
	size_t each = layout_bytes(walk->layout, INFO_CHAIN);
	char *states = target_room(walk->target, cpus, each);
	bool separate = walk->percpu.discipline == KMEM_RECORD_CMPXCHG;

	bool ok = states && target_per_cpu(walk->target, walk->root, &walk->percpu,
					   cache->chain.slot, states, each);
	for (unsigned cpu = 0; ok && each && cpu < cpus; cpu++) {
		struct rec_chain state;

		layout_take(walk->layout, INFO_CHAIN, &state, states + cpu * each);
		ok = count_freelist(walk, cache, separate ? state.slab : state.top.slab,
				    state.top.freelist, objects);
	}
	free(states);
	return ok;
}

/* ------------------------------------------------------------------ one cache */

static bool read_engine(struct walk *walk, const struct rec_engine *engine)
{
	if (engine == walk->engine_at)
		return true;
	walk->engine_at = NULL;
	if (!target_struct(walk->target, walk->layout, INFO_ENGINE, &walk->engine, engine) ||
	    !target_string(walk->target, walk->engine_name, sizeof(walk->engine_name),
			   walk->engine.name))
		return false;
	walk->engine_at = engine;
	return true;
}

static unsigned long minus(unsigned long a, unsigned long b)
{
	return a > b ? a - b : 0;
}

static bool add_nodes(struct walk *walk, const struct rec_cache *cache, struct info_cache *into, bool *kept)
{
	struct kmem_cache_stats *stats = &into->stats;

	*kept = true;
	for (unsigned i = 0; i < KMEM_RECORD_NODES; i++) {
		struct rec_node counts;

		if (!cache->node[i])
			continue;
		if (!target_struct(walk->target, walk->layout, INFO_NODE, &counts, cache->node[i]))
			return false;
		for (unsigned j = 0; j < KMEM_COUNT(counts.ready); j++) {
			size_t ready = 0;

			if (counts.ready[j] &&
			    !target_read(walk->target, &ready, counts.ready[j], sizeof(ready)))
				return false;
			stats->shelf_objects += ready;
		}
		if (into->full)
			full_node(into->full, i, &counts, cache->objects,
				  layout_has(walk->layout, counts.taken == KMEM_RECORD_NOT_KEPT ? INFO_SCAN_NEEDS :
					     "node.slabs node.taken node.partial node.free_slabs"));
		stats->total_slabs += counts.slabs;
		stats->active_slabs += minus(counts.slabs, counts.free_slabs);
		stats->total_objects += counts.objects;
		stats->partial_slabs += counts.partial;
		stats->shared_avail += counts.shared;
		stats->alloc_slab += counts.new_slabs;
		stats->free_slab += counts.freed_slabs;
		if (counts.taken == KMEM_RECORD_NOT_KEPT)
			*kept = false;
		else
			stats->active_objects += counts.taken;
	}
	return true;
}

/* Returns: objects in a new sheaf. The last two words of a sheaf hold no object. */
static unsigned capacity_of(const struct rec_cache *cache)
{
	return (cache->shelf.inner.mask + 1) / (unsigned)sizeof(void *) - 2 - cache->pad / (unsigned)sizeof(void *);
}

static bool fill_cache(struct walk *walk, const struct rec_cache *cache, struct info_cache *into)
{
	struct kmem_cache_stats *stats = &into->stats;
	bool kept, array;

	if (!read_engine(walk, cache->engine))
		return false;
	array = walk->engine.front == KMEM_RECORD_SHEAVES;
	memcpy(into->engine, walk->engine_name, sizeof(into->engine));
	into->group = cache->group;
	into->shadow_of = cache->sibling_of;
	into->child_of = cache->twin_of;
	into->carried = cache->carried & KMEM_RECORD_DEBUG_FLAGS;
	*stats = (struct kmem_cache_stats){
		.active_objects = cache->guarded,	/* outside slabs, all allocated */
		.total_objects = cache->guarded,
		.min_partial = cache->min_partial,
		.object_size = cache->object_size,
		.size = cache->size,
		.objects_per_slab = cache->objects,
		.pages_per_slab = cache->slab_pages ?: 1u << (cache->order & 31),
		.sheaf_capacity = array && cache->capacity ? capacity_of(cache) : 0,
		.alloc_slab = cache->past.new_slabs,
		.free_slab = cache->past.freed_slabs,
	};
	if (walk->engine.tune && cache->capacity) {
		stats->limit = cache->capacity;
		stats->batchcount = cache->batchcount;
		stats->shared_factor = cache->shared;
	}
	info_printable(stats->name, cache->name, sizeof(stats->name));
	if (walk->snapshot->in_full) {
		into->full = kmem_need(calloc(1, sizeof(*into->full)));
		if (!full_read(walk->target, walk->root, &walk->percpu, &walk->engine, walk->engine_name, cache,
			       into->full))
			return false;
	}
	if (!add_nodes(walk, cache, into, &kept))
		return false;
	if (array && cache->shelf.slot && !count_pcs(walk, &cache->shelf, &stats->shelf_objects))
		return false;
	if (cache->charged.slot && !count_pcs(walk, &cache->charged, &stats->shelf_objects))
		return false;
	if (walk->engine.front == KMEM_RECORD_FREELIST && cache->chain.slot &&
	    !count_chain(walk, cache, &stats->shelf_objects))
		return false;
	into->by_slab = !kept;
	/* Without counts of the nodes: all objects until scan_slabs, or unknown if a scan is impossible. */
	if (!kept && !layout_has(walk->layout, INFO_SCAN_NEEDS))
		stats->active_objects = INFO_UNKNOWN;
	else
		stats->active_objects = kept ? minus(stats->active_objects, stats->shelf_objects) :
					       stats->total_objects;
	return true;
}

/* ------------------------------------------------------------------ all caches */

static bool looks_whole(const struct rec_cache *cache)
{
	return !info_true(&cache->dead) && cache->size && cache->objects &&
	       cache->order <= KMEM_RECORD_MAX_ORDER;
}

static bool read_cache(struct walk *walk, const struct rec_list *link, const struct rec_list *before,
		       struct rec_cache *cache)
{
	uintptr_t address = (uintptr_t)link - walk->link;

	if (address % sizeof(void *))
		return target_torn(walk->target);
	target_charge(walk->target, sizeof(struct info_cache) +
		      (walk->snapshot->in_full ? sizeof(struct info_full) : 0));
	if (!target_struct(walk->target, walk->layout, INFO_CACHE, cache, (void *)address))
		return false;
	/* A cache destroyed meanwhile has other links. */
	return (cache->all.prev == before && looks_whole(cache)) || target_torn(walk->target);
}

static bool add_caches(struct walk *walk)
{
	const struct rec_list *head = walk->root->record.caches, *before = head;
	struct rec_list link;
	struct rec_cache cache;
	unsigned count;

	if (!target_read(walk->target, &link, head, sizeof(link)))
		return false;
	for (const struct rec_list *at = link.next; at != head; at = cache.all.next) {
		if (walk->snapshot->count - walk->first >= INFO_MAX_CACHES)
			return target_torn(walk->target);
		if (!read_cache(walk, at, before, &cache))
			return false;
		struct info_cache *into = snapshot_grow(walk->snapshot);
		if (!fill_cache(walk, &cache, into)) {
			free(into->full);
			walk->snapshot->count--;
			return false;
		}
		into->address = (const void *)((uintptr_t)at - walk->link);
		walk->by_slab += into->by_slab;
		before = at;
	}
	if (!layout_has(walk->layout, "root.cache_count"))
		return true;
	if (!target_read(walk->target, &count, walk->root->record.cache_count, sizeof(count)))
		return false;
	return count == walk->snapshot->count - walk->first || target_torn(walk->target);
}

/* ------------------------------------------------------------------ slab by slab */

static int by_address(const void *a, const void *b, void *arg)
{
	const struct snapshot *snapshot = arg;
	const struct kmem_cache *x = snapshot->caches[*(const size_t *)a].address;
	const struct kmem_cache *y = snapshot->caches[*(const size_t *)b].address;

	return (x > y) - (x < y);
}

static struct info_cache *find_cache(struct snapshot *snapshot, const size_t *order, size_t count,
				     const struct kmem_cache *address)
{
	size_t low = 0;

	while (count) {
		size_t half = count / 2;
		struct info_cache *cache = &snapshot->caches[order[low + half]];

		if (cache->address == address)
			return cache;
		if (cache->address < address) {
			low += half + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	return NULL;
}

static bool scan_range(struct walk *walk, const struct rec_range *range, const size_t *order,
		       size_t count, struct rec_page *pages)
{
	for (size_t at = 0; at < range->ready; at += SCAN_PAGES) {
		size_t now = range->ready - at < SCAN_PAGES ? range->ready - at : SCAN_PAGES;

		const char *from = range->page + at * layout_bytes(walk->layout, INFO_PAGE);

		if (!target_structs(walk->target, walk->layout, INFO_PAGE, pages, from, now))
			return false;
		for (size_t i = 0; i < now; i++) {
			struct info_cache *cache;

			if (pages[i].type != KMEM_RECORD_PAGE_SLAB)
				continue;
			cache = find_cache(walk->snapshot, order, count, pages[i].cache);
			if (!cache)
				continue;
			cache->stats.active_objects =
				minus(cache->stats.active_objects, KMEM_RECORD_SLUB_OBJECTS(pages[i].word) -
							    KMEM_RECORD_SLUB_INUSE(pages[i].word));
			if (cache->full)
				full_slub_slab(cache->full, pages[i].node, pages[i].word);
		}
	}
	return true;
}

/* True if ranges do not overlap. The record of an unmapped range has counts only. */
static bool are_apart(struct target *target, const struct rec_range *ranges, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const size_t pages = ranges[i].pages ?: ranges[i].ready;
		const uintptr_t start = (uintptr_t)ranges[i].base, end = start + (pages << KMEM_PAGE_SHIFT);

		if (ranges[i].ready > pages || pages > UINTPTR_MAX >> KMEM_PAGE_SHIFT || end < start)
			return target_torn_by(target, "a range of its pages has no end");
		for (unsigned k = 0; start && k < i; k++)
			if (ranges[k].base && (uintptr_t)ranges[k].base < end && start < (uintptr_t)ranges[k].base +
			    ((ranges[k].pages ?: ranges[k].ready) << KMEM_PAGE_SHIFT))
				return target_torn_by(target, "two ranges of its pages overlap");
	}
	return true;
}

bool root_ranges(struct target *target, const struct info_root *root, struct rec_range *ranges, unsigned *count)
{
	const struct rec_arena *arena = &root->record.arena;

	if (!target_read(target, count, arena->ranges, sizeof(*count)))
		return false;
	if (*count > INFO_MAX_RANGES)
		return target_too_much(target);
	return target_structs(target, &root->layout, INFO_RANGE, ranges, arena->range, *count) &&
	       are_apart(target, ranges, *count);
}

/* Subtract the free objects of slabs, for caches without counts in their nodes. */
static bool scan_slabs(struct walk *walk)
{
	struct snapshot *snapshot = walk->snapshot;
	struct rec_range ranges[INFO_MAX_RANGES];
	unsigned range_count;
	size_t count = 0;

	if (!root_ranges(walk->target, walk->root, ranges, &range_count))
		return false;
	size_t *order = kmem_need(calloc(snapshot->count + 1, sizeof(*order)));
	struct rec_page *pages = kmem_need(calloc(SCAN_PAGES, sizeof(*pages)));
	for (size_t i = walk->first; i < snapshot->count; i++)
		if (snapshot->caches[i].by_slab)
			order[count++] = i;
	qsort_r(order, count, sizeof(*order), by_address, snapshot);
	bool ok = true;
	for (unsigned i = 0; ok && i < range_count; i++)
		ok = scan_range(walk, &ranges[i], order, count, pages);
	for (size_t i = 0; i < count; i++) {
		struct kmem_cache_stats *stats = &snapshot->caches[order[i]].stats;

		stats->active_objects = minus(stats->active_objects, stats->shelf_objects);
	}
	free(order);
	free(pages);
	return ok;
}

/* ------------------------------------------------------------------ the process */

/* Add to a sum over copies of libkmem. The sum is unknown if one copy's number is unknown. */
static void add(unsigned long *sum, unsigned long n)
{
	*sum = *sum == INFO_UNKNOWN || n == INFO_UNKNOWN ? INFO_UNKNOWN : *sum + n;
}

static bool add_ranges(struct walk *walk, struct kmem_stats *stats)
{
	bool has_base = layout_has(walk->layout, "range.base");
	struct rec_range ranges[INFO_MAX_RANGES];
	unsigned count;

	if (!layout_has(walk->layout, "root.arena.ranges root.arena.range range.pages range.ready")) {
		stats->arena_reserved_bytes = stats->arena_committed_bytes = INFO_UNKNOWN;
		return true;
	}
	if (!root_ranges(walk->target, walk->root, ranges, &count))
		return false;
	for (unsigned i = 0; i < count; i++) {
		bool gone = has_base && !ranges[i].base;

		add(&stats->arena_reserved_bytes, gone ? 0 : ranges[i].pages << KMEM_PAGE_SHIFT);
		add(&stats->arena_committed_bytes, ranges[i].ready << KMEM_PAGE_SHIFT);
	}
	return true;
}

/* List this root's caches and debug shadow caches, with their places in the snapshot after fold_shadows. */
static struct page_owner *list_owners(const struct walk *walk, size_t *count)
{
	const struct info_cache *cache = &walk->snapshot->caches[walk->first];
	size_t place = walk->first;

	*count = walk->snapshot->count - walk->first;
	struct page_owner *owners = kmem_need(calloc(*count + 1, sizeof(*owners)));
	for (size_t i = 0; i < *count; i++, cache++) {
		owners[i] = (struct page_owner){ cache->address, cache->shadow_of, place };
		place += !cache->shadow_of;
	}
	return owners;
}

/* Returns: a number of a zone; INFO_UNKNOWN if the target's build lacks the number. */
static unsigned long of_zone(const struct info_root *root, const char *name, unsigned long pages)
{
	return layout_has(&root->layout, name) ? pages : INFO_UNKNOWN;
}

/* Set the root cache's name in each child cache of a private group. */
static void name_children(struct walk *walk)
{
	struct snapshot *snapshot = walk->snapshot;
	size_t *order = kmem_need(calloc(snapshot->count + 1, sizeof(*order))), count = 0;

	for (size_t i = walk->first; i < snapshot->count; i++)
		if (!snapshot->caches[i].child_of)
			order[count++] = i;
	qsort_r(order, count, sizeof(*order), by_address, snapshot);
	for (size_t i = walk->first; i < snapshot->count; i++) {
		struct info_cache *child = &snapshot->caches[i];
		struct info_cache *of = child->child_of ? find_cache(snapshot, order, count, child->child_of) : NULL;

		if (of)
			memcpy(child->of, of->stats.name, sizeof(child->of));
	}
	free(order);
}

/* Add the numbers of debug shadow caches to their caches, and drop the shadows: users see one cache. */
static void fold_shadows(struct walk *walk)
{
	struct snapshot *snapshot = walk->snapshot;
	size_t *order = kmem_need(calloc(snapshot->count + 1, sizeof(*order))), count = 0;
	size_t kept = walk->first;

	for (size_t i = walk->first; i < snapshot->count; i++)
		if (!snapshot->caches[i].shadow_of)
			order[count++] = i;
	qsort_r(order, count, sizeof(*order), by_address, snapshot);
	for (size_t i = walk->first; i < snapshot->count; i++) {
		struct info_cache *shadow = &snapshot->caches[i];
		struct info_cache *cache = shadow->shadow_of ?
					   find_cache(snapshot, order, count, shadow->shadow_of) : NULL;

		if (!cache)
			continue;
		km_stats_add(&cache->stats, &shadow->stats);
		if (cache->full && shadow->full)
			full_add(cache->full, shadow->full);
		add(&cache->debugged, shadow->stats.active_objects);
	}
	free(order);
	for (size_t i = walk->first; i < snapshot->count; i++)
		if (snapshot->caches[i].shadow_of)
			free(snapshot->caches[i].full);
		else
			snapshot->caches[kept++] = snapshot->caches[i];
	snapshot->count = kept;
}

bool root_pages(struct target *target, const struct info_root *root, unsigned *nodes,
		struct rec_zone *all)
{
	*all = (struct rec_zone){ 0 };
	if (!layout_has(&root->layout, "root.arena.nodes root.arena.zone")) {
		*nodes = 1;
		*all = (struct rec_zone){ INFO_UNKNOWN, INFO_UNKNOWN, INFO_UNKNOWN, INFO_UNKNOWN };
		return true;
	}
	if (!target_read(target, nodes, root->record.arena.nodes, sizeof(*nodes)))
		return false;
	if (!*nodes || *nodes > KMEM_RECORD_NODES)
		return target_torn(target);
	for (unsigned i = 0; i < *nodes; i++) {
		struct rec_zone pages;

		if (!target_struct(target, &root->layout, INFO_ZONE, &pages, root->record.arena.zone[i]))
			return false;
		add(&all->used_pages, of_zone(root, "zone.used_pages", pages.used_pages));
		add(&all->dirty_pages, of_zone(root, "zone.dirty_pages", pages.dirty_pages));
		add(&all->clean_pages, of_zone(root, "zone.clean_pages", pages.clean_pages));
		add(&all->purged_pages, of_zone(root, "zone.purged_pages", pages.purged_pages));
	}
	return true;
}

/* Drop idle copies: if libkmem is both linked and preloaded, one copy serves, and the other copies have no pages. */
static size_t drop_idle(struct target *target, struct info_root *roots, size_t count)
{
	struct rec_zone pages;
	size_t kept = 0;
	unsigned nodes;

	for (size_t i = 0; count > 1 && i < count; i++)
		if (root_pages(target, &roots[i], &nodes, &pages) && pages.used_pages)
			roots[kept++] = roots[i];
	return kept ? kept : count;
}

size_t target_roots_in_use(struct target *target, struct info_root *roots)
{
	return drop_idle(target, roots, target_roots(target, roots));
}

/* Add the page counts. The number of nodes is no sum: each copy of libkmem counts the same nodes. */
static bool add_pages(struct walk *walk, struct kmem_stats *stats)
{
	struct rec_zone pages;
	unsigned nodes;

	if (!root_pages(walk->target, walk->root, &nodes, &pages))
		return false;
	add(&stats->pages_used, pages.used_pages);
	add(&stats->pages_free_dirty, pages.dirty_pages);
	add(&stats->pages_free_clean, pages.clean_pages);
	add(&stats->purged_pages, pages.purged_pages);
	stats->nodes = nodes;
	return true;
}

/* Read a word through a pointer of the record; INFO_UNKNOWN if the target's build lacks the pointer. */
static bool read_word(struct walk *walk, const char *name, const size_t *from, unsigned long *word)
{
	*word = INFO_UNKNOWN;
	return !layout_has(walk->layout, name) || target_read(walk->target, word, from, sizeof(*word));
}

static bool add_process(struct walk *walk)
{
	const struct rec_root *root = &walk->root->record;
	struct kmem_stats *stats = &walk->snapshot->stats;
	const struct {
		const char *name;
		const size_t *from;
		unsigned long *sum, *other;
	} words[] = {
		{ "root.arena.bind_failures", root->arena.bind_failures, &stats->bind_failures, NULL },
		{ "root.large_blocks", root->large_blocks, &stats->large_blocks, NULL },
		{ "root.large_bytes", root->large_bytes, &stats->large_bytes, NULL },
		{ "root.mapped_blocks", root->mapped_blocks, &stats->mapped_blocks, &stats->large_blocks },
		{ "root.mapped_bytes", root->mapped_bytes, &stats->mapped_bytes, &stats->large_bytes },
		{ "root.mapped_kept", root->mapped_kept, &stats->mapped_spare_bytes, NULL },
		{ "root.mapped_spare", root->mapped_spare, &stats->mapped_spare_bytes, NULL },
		{ "root.mapped_ready", root->mapped_ready, &stats->pages_free_dirty,
		  &walk->snapshot->mapped_ready },
		{ "root.meta_bytes", root->meta_bytes, &stats->meta_bytes, NULL },
		{ "root.past_new_slabs", root->past_new_slabs, &walk->snapshot->past_new_slabs, NULL },
		{ "root.past_freed_slabs", root->past_freed_slabs, &walk->snapshot->past_freed_slabs, NULL },
		{ "root.slob_pages", root->slob_pages, &stats->slob_pages, NULL },
		{ "root.guard_objects", root->guard_objects, &walk->snapshot->guard.objects, NULL },
		{ "root.guard_live", root->guard_live, &walk->snapshot->guard.live, NULL },
		{ "root.guard_samples", root->guard_samples, &walk->snapshot->guard.samples, NULL },
		{ "root.guard_reports", root->guard_reports, &walk->snapshot->guard.reports, NULL },
		{ "root.slob_units const.slob_unit", root->slob_units, &stats->slob_bytes, NULL },
	};
	size_t unit = layout_offset(walk->layout, "const.slob_unit");

	for (size_t i = 0; i < KMEM_COUNT(words); i++) {
		unsigned long word;

		if (!read_word(walk, words[i].name, words[i].from, &word))
			return false;
		/* A build without this field has no cached huge blocks. */
		if (words[i].from == root->mapped_ready && word == INFO_UNKNOWN)
			continue;
		if (words[i].sum == &stats->slob_bytes && word != INFO_UNKNOWN)
			word *= unit;
		add(words[i].sum, word);
		if (words[i].other)
			add(words[i].other, word);
	}
	return add_ranges(walk, stats) && add_pages(walk, stats) &&
	       walk_kept(walk->target, walk->root, &walk->percpu, stats);
}

/* Fields needed for the number of cached objects. If one field is missing, the number is unknown. */
#define PCS_NEEDS "engine.front cache.shelf.slot cache.shelf.block_mask cache.charged.slot " \
	"cache.charged.block_mask cache.chain.slot cache.freeptr " \
	"chain.top.freelist chain.top.slab chain.slab percpu.discipline node.ready"

static void mark_unknown(struct walk *walk)
{
#define LONG(names, member) { names, offsetof(struct kmem_cache_stats, member), sizeof(unsigned long) }
#define INT(names, member) { names, offsetof(struct kmem_cache_stats, member), sizeof(unsigned) }
	static const struct {
		const char *names;
		size_t at, bytes;
	} needs[] = {
		INT("cache.object_size", object_size), INT("cache.order", pages_per_slab),
		INT("engine.front cache.capacity cache.pad cache.shelf.inner.mask", sheaf_capacity),
		INT("engine.tune cache.capacity", limit), INT("engine.tune cache.batchcount", batchcount),
		INT("engine.tune cache.shared", shared_factor), LONG("cache.min_partial", min_partial),
		LONG("cache.node node.slabs", total_slabs), LONG("cache.node node.slabs node.free_slabs", active_slabs),
		LONG("cache.node node.objects", total_objects), LONG("cache.node node.partial", partial_slabs),
		LONG("cache.node node.shared", shared_avail), LONG("cache.node node.new_slabs", alloc_slab),
		LONG("cache.node node.freed_slabs", free_slab), LONG(PCS_NEEDS, shelf_objects),
		LONG("cache.node node.objects node.taken " PCS_NEEDS, active_objects),
	};
#undef LONG
#undef INT
	static const unsigned long unknown = INFO_UNKNOWN;

	for (size_t i = 0; i < KMEM_COUNT(needs); i++)
		if (!layout_has(walk->layout, needs[i].names))
			for (size_t c = walk->first; c < walk->snapshot->count; c++)
				memcpy((char *)&walk->snapshot->caches[c].stats + needs[i].at, &unknown,
				       needs[i].bytes);
}

enum info_result walk_root(struct target *target, struct info_root *root, bool lenient, struct snapshot *snapshot)
{
	enum info_result result = INFO_OK;
	const struct rec_root *record = &root->record;
	struct walk walk = { .target = target, .root = root, .layout = &root->layout, .snapshot = snapshot,
			     .first = snapshot->count, .link = layout_offset(&root->layout, "cache.all.next") };

	if (!target_struct(target, walk.layout, INFO_PERCPU, &walk.percpu, record->percpu))
		return target->result;
	if (walk.percpu.cpus > INFO_MAX_CPUS)
		return INFO_TORN;
	if (!walk.first && layout_has(walk.layout, "root.discipline root.reason") &&
	    (!target_string(target, snapshot->discipline, sizeof(snapshot->discipline), record->discipline) ||
	     !target_string(target, snapshot->reason, sizeof(snapshot->reason), record->reason)))
		return target->result;
	if (!walk.first && layout_has(walk.layout, "root.hardened") && record->hardened &&
	    !target_string(target, snapshot->hardened, sizeof(snapshot->hardened), record->hardened))
		return target->result;
	if (!add_process(&walk))
		return target->result;
	if (!walk_extents(target, root, &walk.percpu, snapshot)) {
		if (target->result != INFO_TORN || !lenient)
			return target->result;
		snapshot->extents_lack = ~0u;
	}
	if (!add_caches(&walk)) {
		if (target->result != INFO_TORN || !lenient)
			return target->result;
		result = INFO_PARTLY;
	}
	if (walk.by_slab && layout_has(walk.layout, INFO_SCAN_NEEDS) && !scan_slabs(&walk))
		return target->result;
	size_t owner_count;
	mark_unknown(&walk);
	name_children(&walk);
	struct page_owner *owners = snapshot->by_page ? list_owners(&walk, &owner_count) : NULL;
	fold_shadows(&walk);
	bool looked = !owners || walk_pages(target, root, owners, owner_count, snapshot);
	free(owners);
	if (!looked)
		return target->result;
	snapshot->stats.caches += snapshot->count - walk.first;
	return result;
}

/* Returns: true if the previous element of the list of caches points to the cache. */
static bool is_listed(struct walk *walk, const struct rec_cache *cache, const struct rec_list *link)
{
	struct rec_list before;

	return target_read(walk->target, &before, cache->all.prev, sizeof(before)) && before.next == link;
}

enum info_one walk_one(struct target *target, struct info_root *root, const struct kmem_cache *address, bool counts,
		       struct snapshot *snapshot)
{
	struct walk walk = { .target = target, .root = root, .layout = &root->layout, .snapshot = snapshot,
			     .first = snapshot->count, .link = layout_offset(&root->layout, "cache.all.next") };
	const struct rec_list *link = (const void *)((uintptr_t)address + walk.link);
	struct rec_cache cache;

	if (!layout_has(walk.layout, "cache.siblings"))
		return INFO_ONE_OF_ALL;
	if (!target_struct(target, walk.layout, INFO_PERCPU, &walk.percpu, root->record.percpu) ||
	    walk.percpu.cpus > INFO_MAX_CPUS ||
	    !target_struct(target, walk.layout, INFO_CACHE, &cache, address) || !looks_whole(&cache) ||
	    !is_listed(&walk, &cache, link))
		return INFO_ONE_GONE;
	if (cache.siblings)
		return INFO_ONE_OF_ALL;
	struct info_cache *into = snapshot_grow(snapshot);
	if (!fill_cache(&walk, &cache, into)) {
		free(into->full);
		snapshot->count--;
		return INFO_ONE_GONE;
	}
	into->address = address;
	mark_unknown(&walk);
	return into->by_slab && counts ? INFO_ONE_OF_ALL : INFO_ONE_READ;
}
