/*
 * stats.c: the numbers: snapshots, slabinfo 2.1, JSON, and the check of everything. Invariant: reads what others
 * write without stopping them, and allocates nothing.
 */
#include <kmem/stats.h>

#include <errno.h>

#include "../cache/cache.h"
#include "../page/big.h"
#include "../page/meta.h"
#include "../port/die.h"
#include "../port/os.h"
#include "watch.h"

static const char *const event_names[KMEM_NR_EVENTS] = {
	"alloc_fastpath", "alloc_slowpath", "free_fastpath", "free_slowpath",
	"free_frozen", "free_add_partial", "free_remove_partial", "alloc_from_partial",
	"alloc_slab", "alloc_refill", "alloc_node_mismatch", "free_slab",
	"cpuslab_flush", "deactivate_full", "deactivate_empty", "deactivate_to_head",
	"deactivate_to_tail", "deactivate_remote_frees", "deactivate_bypass",
	"order_fallback", "cmpxchg_double_fail", "cmpxchg_double_cpu_fail",
	"cpu_partial_alloc", "cpu_partial_free", "cpu_partial_node", "cpu_partial_drain",
	"sheaf_flush", "sheaf_refill", "sheaf_swap", "barn_get", "barn_get_fail",
	"barn_put", "barn_put_fail",
};

const char *kmem_event_name(enum kmem_event event)
{
	return event < KMEM_NR_EVENTS ? event_names[event] : NULL;
}

unsigned long kmem_cache_event(struct kmem_cache *cache, enum kmem_event event)
{
	return event < KMEM_NR_EVENTS ? km_load(&cache->events->count[event]) : 0;
}

void kmem_cache_clear_events(struct kmem_cache *cache)
{
	for (size_t i = 0; i < KMEM_NR_EVENTS; i++)
		km_store(&cache->events->count[i], 0ul);
}

void kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	*stats = (struct kmem_cache_stats){
		.engine = cache->engine->name,
		.min_partial = km_load(&cache->min_partial),
		.object_size = cache->object_size,
		.size = cache->size,
		.objects_per_slab = cache->objects,
		.pages_per_slab = 1u << cache->order,
		.sheaf_capacity = cache->engine->front == KM_FRONT_ARRAY ? cache->capacity : 0,
	};
	__builtin_memcpy(stats->name, cache->name, sizeof(cache->name));
	stats->shelf_objects = km_front_shelf_objects(cache);
	/* The engine says how many are out of slabs; those on shelves and in barns are nobody's yet. */
	cache->engine->stats(cache, stats);
	stats->active_objects = stats->active_objects > stats->shelf_objects ?
					stats->active_objects - stats->shelf_objects : 0;
	stats->active_slabs = stats->total_slabs;
}

void kmem_get_stats(struct kmem_stats *stats)
{
	struct km_arena_stats arena;
	size_t large_blocks, large_bytes, big_blocks, big_bytes;

	km_boot();
	km_arena_get_stats(&arena);
	km_large_get_stats(&large_blocks, &large_bytes);
	km_big_get_stats(&big_blocks, &big_bytes);
	*stats = (struct kmem_stats){
		.caches = km_registry_count(),
		.arena_reserved_bytes = arena.reserved_bytes,
		.arena_committed_bytes = arena.committed_bytes,
		.pages_used = arena.used_pages,
		.pages_free_dirty = arena.dirty_pages,
		.pages_free_clean = arena.clean_pages,
		.large_blocks = large_blocks,
		.large_bytes = large_bytes,
		.mapped_blocks = big_blocks,
		.mapped_bytes = big_bytes,
		.meta_bytes = km_meta_committed_bytes(),
		.purged_pages = arena.purged_pages,
	};
}

int kmem_for_each_cache(int (*visit)(struct kmem_cache *cache, void *arg), void *arg)
{
	return km_boot() ? km_registry_visit(visit, arg) : 0;
}

/* ------------------------------------------------------------------ text */

/* A buffer that writes itself out when it is full. */
struct writer {
	int fd, error;
	size_t length;
	char text[4096];
};

static void flush(struct writer *writer)
{
	if (writer->length && !writer->error)
		writer->error = km_os_write(writer->fd, writer->text, writer->length);
	writer->length = 0;
}

static void print(struct writer *writer, const char *format, ...) km_printf(2, 3);
static void print(struct writer *writer, const char *format, ...)
{
	__builtin_va_list arguments;

	if (sizeof(writer->text) - writer->length < 512)
		flush(writer);
	__builtin_va_start(arguments, format);
	writer->length += km_vformat(writer->text + writer->length,
				     sizeof(writer->text) - writer->length, format, arguments);
	__builtin_va_end(arguments);
}

size_t km_slabinfo_row(char *text, size_t bytes, const struct kmem_cache_stats *stats)
{
	return km_format(text, bytes,
			 "%-17s %6lu %6lu %6u %4u %4u : tunables %4u %4u %4u : slabdata %6lu %6lu %6lu\n",
			 stats->name, stats->active_objects, stats->total_objects, stats->size,
			 stats->objects_per_slab, stats->pages_per_slab, 0u, 0u, 0u,
			 stats->active_slabs, stats->total_slabs, 0ul);
}

const char km_slabinfo_head[] =
	"slabinfo - version: 2.1\n"
	"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
	" : tunables <limit> <batchcount> <sharedfactor>"
	" : slabdata <active_slabs> <num_slabs> <sharedavail>\n";

static int print_row(struct kmem_cache *cache, void *arg)
{
	struct writer *writer = arg;
	struct kmem_cache_stats stats;
	char row[256];

	kmem_cache_get_stats(cache, &stats);
	km_slabinfo_row(row, sizeof(row), &stats);
	print(writer, "%s", row);
	return 0;
}

int kmem_print_slabinfo(int fd)
{
	struct writer writer = { .fd = fd };

	if (!km_boot())
		return -ENOMEM;
	bool was = km_busy_begin();
	print(&writer, "%s", km_slabinfo_head);
	km_registry_visit(print_row, &writer);
	flush(&writer);
	km_busy_end(was);
	return writer.error;
}

/* Names are the user's: quote what JSON wants quoted. Control characters were replaced at creation. */
static void print_string(struct writer *writer, const char *text)
{
	print(writer, "\"");
	for (; *text; text++)
		print(writer, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	print(writer, "\"");
}

static void print_json_cache(struct writer *writer, const struct kmem_cache_stats *s, bool first)
{
	print(writer, "%s\n  {\"name\": ", first ? "" : ",");
	print_string(writer, s->name);
	print(writer, ", \"engine\": \"%s\", \"object_size\": %u, \"size\": %u,", s->engine,
	      s->object_size, s->size);
	print(writer, " \"objects_per_slab\": %u, \"pages_per_slab\": %u, \"sheaf_capacity\": %u,",
	      s->objects_per_slab, s->pages_per_slab, s->sheaf_capacity);
	print(writer, " \"active_objects\": %lu, \"total_objects\": %lu, \"shelf_objects\": %lu,",
	      s->active_objects, s->total_objects, s->shelf_objects);
	print(writer, " \"total_slabs\": %lu, \"partial_slabs\": %lu, \"min_partial\": %lu,",
	      s->total_slabs, s->partial_slabs, s->min_partial);
	print(writer, " \"alloc_slab\": %lu, \"free_slab\": %lu}", s->alloc_slab, s->free_slab);
}

struct json_rows {
	struct writer *writer;
	bool more;
};

static int print_json_row(struct kmem_cache *cache, void *arg)
{
	struct json_rows *rows = arg;
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	print_json_cache(rows->writer, &stats, !rows->more);
	rows->more = true;
	return 0;
}

int kmem_print_json(int fd)
{
	struct writer writer = { .fd = fd };
	struct json_rows rows = { &writer, false };
	struct kmem_stats s;

	if (!km_boot())
		return -ENOMEM;
	kmem_get_stats(&s);
	bool was = km_busy_begin();
	print(&writer, "{\"version\": \"%s\", \"pid\": %u, \"discipline\": \"%s\", \"reason\": \"%s\",\n",
	      KMEM_VERSION, km_os_pid(), kmem_percpu_discipline(), kmem_percpu_reason());
	print(&writer, " \"arena_reserved_bytes\": %lu, \"arena_committed_bytes\": %lu,",
	      s.arena_reserved_bytes, s.arena_committed_bytes);
	print(&writer, " \"pages_used\": %lu, \"pages_free_dirty\": %lu, \"pages_free_clean\": %lu,\n",
	      s.pages_used, s.pages_free_dirty, s.pages_free_clean);
	print(&writer, " \"large_blocks\": %lu, \"large_bytes\": %lu, \"mapped_blocks\": %lu,",
	      s.large_blocks, s.large_bytes, s.mapped_blocks);
	print(&writer, " \"mapped_bytes\": %lu, \"meta_bytes\": %lu, \"purged_pages\": %lu,\n \"caches\": [",
	      s.mapped_bytes, s.meta_bytes, s.purged_pages);
	km_registry_visit(print_json_row, &rows);
	print(&writer, "\n ]}\n");
	flush(&writer);
	km_busy_end(was);
	return writer.error;
}

/* ------------------------------------------------------------------ walking and checking */

struct walk {
	struct kmem_cache *cache;
	km_walk_fn *visit;
	void *arg;
};

static int walk_slab(struct km_page *slab, void *arg)
{
	struct walk *walk = arg;
	char *address = km_page_address(slab);

	if (slab->type != KM_PAGE_SLAB || slab->cache != walk->cache)
		return 0;
	for (unsigned i = 0; i < slab->objects; i++)
		if (walk->cache->engine->is_taken(walk->cache, slab, i)) {
			int result = walk->visit(address + (size_t)i * walk->cache->size, walk->arg);

			if (result)
				return result;
		}
	return 0;
}

int kmem_cache_walk(struct kmem_cache *cache, km_walk_fn *visit, void *arg)
{
	struct walk walk = { cache, visit, arg };
	bool was = km_busy_begin();

	/* What lies on shelves and in barns goes home first: then taken means allocated. */
	km_front_drain(cache);
	cache->engine->shrink(cache);
	km_busy_end(was);
	return km_pages_walk(walk_slab, &walk);
}

static int check_cache(struct kmem_cache *cache, void *arg)
{
	*(int *)arg += cache->engine->check(cache);
	return 0;
}

int kmem_check_all(void)
{
	int damages = 0;

	if (!km_boot())
		return 0;
	bool was = km_busy_begin();
	km_registry_visit(check_cache, &damages);
	damages += km_arena_check();
	km_busy_end(was);
	return damages ? -EIO : 0;
}
