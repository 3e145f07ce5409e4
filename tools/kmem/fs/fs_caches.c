/*
 * fs_caches.c: the files of a cache in /sys/kernel/slab, and /proc/slabinfo, with the kernel's names and formats.
 * A figure without a counterpart in libkmem is 0. Invariant: the kernel's slabinfo tool and slabtop can parse each
 * line, so an unknown number is 0 in slabinfo, and no name has a blank.
 */
#include <stdlib.h>
#include <string.h>

#include "fs/fs.h"
#include "leaks/maps.h"
#include "function_names.h"
#include "command.h"

#define NOT_COUNTED	KMEM_NR_EVENTS

static const struct info_cache *cache_at(const struct fs_tree *tree, size_t index)
{
	return &tree->snapshot.caches[index];
}

static bool print_number(struct fs_text *text, unsigned long number)
{
	if (number != INFO_UNKNOWN)
		fs_print(text, "%lu\n", number);
	return number != INFO_UNKNOWN;
}

/* ------------------------------------------------------------------ a number */

enum number {
	SLAB_SIZE, OBJECT_SIZE, OBJS_PER_SLAB, ORDER, SHEAF_CAPACITY, MIN_PARTIAL, CPU_PARTIAL, ALIASES, ALIGN,
	USERSIZE, DEFRAG_RATIO
};

/* Widen a number; an unknown unsigned int (all bits set) becomes INFO_UNKNOWN. */
static unsigned long widened(unsigned number)
{
	return number == (unsigned)INFO_UNKNOWN ? INFO_UNKNOWN : number;
}

static unsigned long order_of(unsigned pages)
{
	unsigned long order = 0;

	while (order < 31 && (1ul << order) < pages)
		order++;
	return pages == (unsigned)INFO_UNKNOWN ? INFO_UNKNOWN : order;
}

static unsigned long number_of(const struct info_cache *cache, enum number which)
{
	const struct kmem_cache_stats *stats = &cache->stats;
	const struct info_full *full = cache->full;

	switch (which) {
	case SLAB_SIZE: return stats->size;
	case OBJECT_SIZE: return widened(stats->object_size);
	case OBJS_PER_SLAB: return stats->objects_per_slab;
	case ORDER: return order_of(stats->pages_per_slab);
	case SHEAF_CAPACITY: return widened(stats->sheaf_capacity);
	case MIN_PARTIAL: return stats->min_partial;
	case CPU_PARTIAL: return full->cpu_partial;
	case ALIASES: return full->references == INFO_UNKNOWN || !full->references ? full->references :
			     full->references - 1;
	case ALIGN: return full->align;
	case USERSIZE: return full->usersize;
	case DEFRAG_RATIO: return full->defrag_ratio == INFO_UNKNOWN ? INFO_UNKNOWN :
				  full->defrag_ratio / KMEM_RECORD_DEFRAG;
	}
	return INFO_UNKNOWN;
}

static bool show_number(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	return print_number(text, number_of(cache_at(tree, index), (enum number)what));
}

/* ------------------------------------------------------------------ slabs and objects */

enum count { TOTAL_OBJECTS, OBJECTS, OBJECTS_PARTIAL, PARTIAL, SLABS };

static unsigned long on_node(const struct info_node *node, enum count which)
{
	return which == TOTAL_OBJECTS ? node->objects : which == OBJECTS_PARTIAL ? node->partial_objects :
	       which == PARTIAL ? node->partial : node->slabs;
}

static unsigned long count_of(const struct info_cache *cache, enum count which)
{
	unsigned long sum = 0;

	if (which == TOTAL_OBJECTS)
		return cache->stats.total_objects;
	if (which == OBJECTS)
		return cache->stats.active_objects;
	if (which == PARTIAL)
		return cache->stats.partial_slabs;
	if (which == SLABS)
		return cache->stats.total_slabs;
	for (unsigned i = 0; i < KMEM_RECORD_NODES; i++) {
		unsigned long here = on_node(&cache->full->node[i], which);

		sum = sum == INFO_UNKNOWN || here == INFO_UNKNOWN ? INFO_UNKNOWN : sum + here;
	}
	return sum;
}

/* Print a sum, then the counts by node if there are several. `objects` has no counts by node, because the node of
 * a cached object is unknown. */
static bool show_count(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	const struct info_cache *cache = cache_at(tree, index);
	unsigned long count = count_of(cache, (enum count)what), nodes = tree->snapshot.stats.nodes;

	if (count == INFO_UNKNOWN)
		return false;
	fs_print(text, "%lu", count);
	for (unsigned i = 0; i < KMEM_RECORD_NODES && i < nodes && nodes > 1 && what != OBJECTS; i++)
		if (on_node(&cache->full->node[i], (enum count)what))
			fs_print(text, " N%u=%lu", i, on_node(&cache->full->node[i], (enum count)what));
	fs_print(text, "\n");
	return true;
}

static bool show_cpu_slabs(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	return print_number(text, cache_at(tree, index)->full->cpu_slabs);
}

/* Print objects and slabs of the CPU partial lists. Kernel: each slab is also assumed half full. */
static bool show_cpu_partial_slabs(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	const struct info_cache *cache = cache_at(tree, index);
	unsigned long frozen = cache->full->frozen, cpu_slabs = cache->full->cpu_slabs;
	unsigned long slabs = frozen > cpu_slabs ? frozen - cpu_slabs : 0;

	if (frozen == INFO_UNKNOWN || cpu_slabs == INFO_UNKNOWN)
		return false;
	fs_print(text, "%lu(%lu)\n", slabs * cache->stats.objects_per_slab / 2, slabs);
	return true;
}

/* ------------------------------------------------------------------ flags and constructor */

static bool show_flag(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	unsigned long flags = cache_at(tree, index)->full->flags;

	return print_number(text, flags == INFO_UNKNOWN ? INFO_UNKNOWN : (flags & what) != 0);
}

/* Print a debug flag, as applied to new objects. */
static bool show_debugged(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	unsigned long carried = cache_at(tree, index)->full->carried;

	return print_number(text, carried == INFO_UNKNOWN ? INFO_UNKNOWN : (carried & what) != 0);
}

/* Print an address as FUNCTION+OFFSET/SIZE, as the kernel does, or as FILE+OFFSET. */
static void print_function(struct fs_text *text, const char *path, const char *file, uint64_t address)
{
	struct image *image = image_at(file);
	const struct name *names;
	size_t count = image ? names_of(image, address, &names) : 0;
	const struct name *name = count ? &names[count - 1] : NULL;

	if (name && name->start <= address && address - name->start < name->bytes)
		fs_print(text, "%s+0x%lx/0x%lx", name->function, (unsigned long)(address - name->start),
			 (unsigned long)name->bytes);
	else
		fs_print(text, "%s+0x%lx", path, (unsigned long)address);
}

void fs_print_place(struct fs_text *text, const struct maps *maps, unsigned long address)
{
	const struct map *map = maps_find(maps, address);

	char *file = map && map->file && map->name && *map->name == '/' ? maps_file(maps, map) : NULL;

	if (file)
		print_function(text, map->name, file, address - maps_load(maps, map));
	else
		fs_print(text, "0x%lx", address);
	free(file);
}

static bool show_ctor(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	static const struct maps none = { .at = NULL };
	unsigned long ctor = cache_at(tree, index)->full->ctor;

	if (!ctor || ctor == INFO_UNKNOWN)
		return !ctor;
	fs_print_place(text, fs_maps(tree) ?: &none, ctor);
	fs_print(text, "\n");
	return true;
}

static bool show_nothing(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	return true;
}

/* ------------------------------------------------------------------ events */

/* Print the sum of an event. Kernel: counts by CPU follow the sum. */
static bool show_event(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text)
{
	return print_number(text, what == NOT_COUNTED ? 0 : cache_at(tree, index)->full->events[what]);
}

/* ------------------------------------------------------------------ /proc/slabinfo */

/* Replace unknown figures by 0 and blanks in the name by "_", for parsers of slabinfo. */
static struct kmem_cache_stats for_readers(const struct fs_tree *tree, size_t index)
{
	struct kmem_cache_stats stats = cache_at(tree, index)->stats;
	unsigned long *const longs[] = {
		&stats.active_objects, &stats.total_objects, &stats.active_slabs, &stats.total_slabs,
		&stats.shared_avail,
	};
	unsigned *const ints[] = { &stats.pages_per_slab, &stats.limit, &stats.batchcount, &stats.shared_factor };

	for (size_t i = 0; i < KMEM_COUNT(longs); i++)
		*longs[i] = *longs[i] == INFO_UNKNOWN ? 0 : *longs[i];
	for (size_t i = 0; i < KMEM_COUNT(ints); i++)
		*ints[i] = *ints[i] == (unsigned)INFO_UNKNOWN ? 0 : *ints[i];
	for (char *at = stats.name; *at; at++)
		*at = (unsigned char)*at <= ' ' || *at == 0x7f ? '_' : *at;
	if (!*stats.name)
		strcpy(stats.name, "_");
	return stats;
}

bool fs_show_slabinfo(struct fs_tree *tree, size_t unused, unsigned long what, struct fs_text *text)
{
	fs_print(text, "%s", km_slabinfo_head);
	for (size_t i = 0; i < tree->snapshot.count; i++) {
		struct kmem_cache_stats stats = for_readers(tree, i);
		char row[256];

		km_slabinfo_row(row, sizeof(row), &stats);
		fs_print(text, "%s", row);
	}
	return true;
}

/* ------------------------------------------------------------------ the files */

#define EVENT(name, event) { name, 0600, show_event, event, KMEM_MAIL_CLEAR }

const struct fs_file fs_cache_files[] = {
	{ "slab_size", 0400, show_number, SLAB_SIZE, 0 },
	{ "object_size", 0400, show_number, OBJECT_SIZE, 0 },
	{ "objs_per_slab", 0400, show_number, OBJS_PER_SLAB, 0 },
	{ "order", 0400, show_number, ORDER, 0 },
	{ "sheaf_capacity", 0600, show_number, SHEAF_CAPACITY, KMEM_MAIL_SHEAF_CAPACITY },
	{ "min_partial", 0600, show_number, MIN_PARTIAL, KMEM_MAIL_MIN_PARTIAL },
	{ "cpu_partial", 0600, show_number, CPU_PARTIAL, KMEM_MAIL_CPU_PARTIAL },
	{ "aliases", 0400, show_number, ALIASES, 0 },
	{ "align", 0400, show_number, ALIGN, 0 },
	{ "usersize", 0400, show_number, USERSIZE, 0 },
	{ "remote_node_defrag_ratio", 0600, show_number, DEFRAG_RATIO, KMEM_MAIL_DEFRAG_RATIO },
	{ "total_objects", 0400, show_count, TOTAL_OBJECTS, 0 },
	{ "objects", 0400, show_count, OBJECTS, 0 },
	{ "objects_partial", 0400, show_count, OBJECTS_PARTIAL, 0 },
	{ "partial", 0400, show_count, PARTIAL, 0 },
	{ "slabs", 0400, show_count, SLABS, 0 },
	{ "cpu_slabs", 0400, show_cpu_slabs, 0, 0 },
	{ "slabs_cpu_partial", 0400, show_cpu_partial_slabs, 0, 0 },
	{ "ctor", 0400, show_ctor, 0, 0 },
	{ "hwcache_align", 0400, show_flag, SLAB_HWCACHE_ALIGN, 0 },
	{ "reclaim_account", 0400, show_flag, SLAB_RECLAIM_ACCOUNT, 0 },
	{ "destroy_by_rcu", 0400, show_flag, SLAB_TYPESAFE_BY_RCU, 0 },
	{ "cache_dma", 0400, show_flag, SLAB_CACHE_DMA, 0 },
	{ "skip_kfence", 0400, show_flag, SLAB_SKIP_KFENCE, 0 },
	{ "sanity_checks", 0400, show_debugged, SLAB_CONSISTENCY_CHECKS, 0 },
	{ "trace", 0400, show_debugged, SLAB_TRACE, 0 },
	{ "red_zone", 0400, show_debugged, SLAB_RED_ZONE, 0 },
	{ "poison", 0400, show_debugged, SLAB_POISON, 0 },
	{ "store_user", 0400, show_debugged, SLAB_STORE_USER, 0 },
	{ "failslab", 0600, show_debugged, SLAB_FAILSLAB, KMEM_MAIL_DEBUG },
	{ "shrink", 0600, show_nothing, 0, KMEM_MAIL_SHRINK },
	{ "validate", 0600, show_nothing, 0, KMEM_MAIL_VALIDATE },
	EVENT("alloc_fastpath", KMEM_ALLOC_FASTPATH), EVENT("alloc_slowpath", KMEM_ALLOC_SLOWPATH),
	EVENT("free_rcu_sheaf", NOT_COUNTED), EVENT("free_rcu_sheaf_fail", NOT_COUNTED),
	EVENT("free_fastpath", KMEM_FREE_FASTPATH), EVENT("free_slowpath", KMEM_FREE_SLOWPATH),
	EVENT("free_add_partial", KMEM_FREE_ADD_PARTIAL), EVENT("free_remove_partial", KMEM_FREE_REMOVE_PARTIAL),
	EVENT("alloc_slab", KMEM_ALLOC_SLAB), EVENT("alloc_node_mismatch", KMEM_ALLOC_NODE_MISMATCH),
	EVENT("free_slab", KMEM_FREE_SLAB), EVENT("order_fallback", KMEM_ORDER_FALLBACK),
	EVENT("cmpxchg_double_fail", KMEM_CMPXCHG_DOUBLE_FAIL), EVENT("sheaf_flush", KMEM_SHEAF_FLUSH),
	EVENT("sheaf_refill", KMEM_SHEAF_REFILL), EVENT("sheaf_alloc", NOT_COUNTED),
	EVENT("sheaf_free", NOT_COUNTED), EVENT("barn_get", KMEM_BARN_GET),
	EVENT("barn_get_fail", KMEM_BARN_GET_FAIL), EVENT("barn_put", KMEM_BARN_PUT),
	EVENT("barn_put_fail", KMEM_BARN_PUT_FAIL), EVENT("sheaf_prefill_fast", KMEM_SHEAF_PREFILL_FAST),
	EVENT("sheaf_prefill_slow", KMEM_SHEAF_PREFILL_SLOW),
	EVENT("sheaf_prefill_oversize", KMEM_SHEAF_PREFILL_OVERSIZE),
	EVENT("sheaf_return_fast", KMEM_SHEAF_RETURN_FAST), EVENT("sheaf_return_slow", KMEM_SHEAF_RETURN_SLOW),
	/* Events of kernels up to 6.19. */
	EVENT("free_frozen", KMEM_FREE_FROZEN), EVENT("alloc_from_partial", KMEM_ALLOC_FROM_PARTIAL),
	EVENT("alloc_refill", KMEM_ALLOC_REFILL), EVENT("cpuslab_flush", KMEM_CPUSLAB_FLUSH),
	EVENT("deactivate_full", KMEM_DEACTIVATE_FULL), EVENT("deactivate_empty", KMEM_DEACTIVATE_EMPTY),
	EVENT("deactivate_to_head", KMEM_DEACTIVATE_TO_HEAD), EVENT("deactivate_to_tail", KMEM_DEACTIVATE_TO_TAIL),
	EVENT("deactivate_remote_frees", KMEM_DEACTIVATE_REMOTE_FREES),
	EVENT("deactivate_bypass", KMEM_DEACTIVATE_BYPASS),
	EVENT("cmpxchg_double_cpu_fail", KMEM_CMPXCHG_DOUBLE_CPU_FAIL),
	EVENT("cpu_partial_alloc", KMEM_CPU_PARTIAL_ALLOC), EVENT("cpu_partial_free", KMEM_CPU_PARTIAL_FREE),
	EVENT("cpu_partial_node", KMEM_CPU_PARTIAL_NODE), EVENT("cpu_partial_drain", KMEM_CPU_PARTIAL_DRAIN),
};
const size_t fs_cache_file_count = KMEM_COUNT(fs_cache_files);
