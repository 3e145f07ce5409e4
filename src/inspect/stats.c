/*
 * stats.c: statistics snapshots, walks over objects, and the check of everything. Invariant: counters are read while
 * other threads write them, without stopping any thread, and nothing is allocated.
 */
#include <kmem/stats.h>

#include <errno.h>

#include "cache/cache.h"
#include "kmalloc/realloc_run.h"
#include "page/huge.h"
#include "page/metadata.h"
#include "page/addr_reuse.h"
#include "page/huge_cache.h"
#include "os/die.h"
#include "os/secret.h"
#include "os/os.h"
#include "stats_print.h"

static const char *const event_names[KMEM_NR_EVENTS] = {
	"alloc_fastpath", "alloc_slowpath", "free_fastpath", "free_slowpath",
	"free_frozen", "free_add_partial", "free_remove_partial", "alloc_from_partial",
	"alloc_slab", "alloc_refill", "alloc_node_mismatch", "free_slab",
	"cpuslab_flush", "deactivate_full", "deactivate_empty", "deactivate_to_head",
	"deactivate_to_tail", "deactivate_remote_frees", "deactivate_bypass",
	"order_fallback", "cmpxchg_double_fail", "cmpxchg_double_cpu_fail",
	"cpu_partial_alloc", "cpu_partial_free", "cpu_partial_node", "cpu_partial_drain",
	"sheaf_flush", "sheaf_refill", "barn_get", "barn_get_fail",
	"barn_put", "barn_put_fail",
	"sheaf_prefill_fast", "sheaf_prefill_slow", "sheaf_prefill_oversize",
	"sheaf_return_fast", "sheaf_return_slow",
	"allocs", "high", "grown", "reaped", "errors", "max_freeable",
	"node_allocs", "node_frees", "overflows",
	"allochit", "allocmiss", "freehit", "freemiss", "limit",
};

const char *kmem_event_name(enum kmem_event event)
{
	return event < KMEM_NR_EVENTS ? event_names[event] : NULL;
}

static unsigned long event_of(struct kmem_cache *cache, enum kmem_event event)
{
	km_debug(event_names[event], "a counted event has a name");
	return km_load(&cache->state.events->count[event]) +
	       (cache->layout.engine->event ? cache->layout.engine->event(cache, event) : 0);
}

unsigned long kmem_cache_event(struct kmem_cache *cache, enum kmem_event event)
{
	if (event >= KMEM_NR_EVENTS)
		return 0;
	unsigned long count = event_of(cache, event);
	for (struct kmem_cache *at = km_alloc_shadows(cache); at; at = at->ext.next_shadow)
		count += event_of(at, event);
	return count;
}

static void clear_events_of(struct kmem_cache *cache)
{
	for (size_t i = 0; i < KMEM_NR_EVENTS; i++)
		km_store(&cache->state.events->count[i], 0ul);
	/* Keep signal handlers out, because the engine may lock its node. */
	km_busy_scope(was);
	if (cache->layout.engine->clear_events)
		cache->layout.engine->clear_events(cache);
}

void kmem_cache_clear_events(struct kmem_cache *cache)
{
	clear_events_of(cache);
	for (struct kmem_cache *at = km_alloc_shadows(cache); at; at = at->ext.next_shadow)
		clear_events_of(at);
}

/* Returns: the number of free slabs to subtract from the active ones. Kernel: SLAB has a list of free slabs, and counts
 * them separately. SLUB has none, and counts all slabs as active. */
static unsigned long free_slabs(const struct kmem_cache *cache)
{
	unsigned long count = 0;

	km_debug(cache->state.node[0], "a cache has a record on each node");
	for (unsigned i = 0; i < km_node_count; i++)
		count += km_load(&((const struct km_node_counts *)cache->state.node[i])->free_slabs);
	return count;
}

static void get_stats_of(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	*stats = (struct kmem_cache_stats){
		.engine = cache->layout.engine->name,
		.min_partial = km_load(&cache->tune.min_partial),
		.object_size = cache->layout.object_size,
		.size = cache->layout.size,
		.objects_per_slab = cache->layout.objects,
		.pages_per_slab = cache->form.slab_pages,
		.sheaf_capacity = cache->layout.engine->front == KM_PERCPU_SHEAVES && km_load(&cache->fast.capacity) ?
					  km_alloc_capacity(cache) : 0,
	};
	if (cache->layout.engine->array.tune && km_load(&cache->fast.capacity)) {
		stats->limit = km_load(&cache->fast.capacity);
		stats->batchcount = km_load(&cache->tune.batchcount);
		stats->shared_factor = km_load(&cache->tune.shared);
	}
	__builtin_memcpy(stats->name, cache->registry.name, sizeof(cache->registry.name));
	/* The engine counts objects outside of slabs, including objects cached in sheaves and barns. The engine may
	 * lock its node. */
	struct km_busy_was was = km_busy_begin();
	cache->layout.engine->stats(cache, stats);
	km_busy_end(was);
	stats->alloc_slab += km_load(&cache->state.past.new_slabs);
	stats->free_slab += km_load(&cache->state.past.freed_slabs);
	/* Read after the engine's counters: an object moving from a sheaf to its slab meanwhile counts as allocated,
	 * and never as free twice (debug_shadow.c). */
	stats->shelf_objects += km_alloc_pcs_objects(cache);
	/* Guarded objects are in no slab. A guarded object freed on the fast path is in a sheaf. */
	unsigned long guarded = km_load(&cache->ext.guarded);
	stats->active_objects += guarded;
	stats->total_objects += guarded;
	stats->active_objects = stats->active_objects > stats->shelf_objects ?
					stats->active_objects - stats->shelf_objects : 0;
	stats->active_slabs = stats->total_slabs - km_min(stats->total_slabs, free_slabs(cache));
}

void km_stats_add(struct kmem_cache_stats *stats, const struct kmem_cache_stats *more)
{
#define ADD(member) km_stats_sum(&stats->member, more->member);
	ADD(active_objects) ADD(total_objects) ADD(shelf_objects) ADD(shared_avail)
	ADD(active_slabs) ADD(total_slabs) ADD(partial_slabs) ADD(alloc_slab) ADD(free_slab)
#undef ADD
}

void kmem_cache_get_stats(struct kmem_cache *cache, struct kmem_cache_stats *stats)
{
	if (km_unlikely(!cache)) {
		*stats = (struct kmem_cache_stats){ .name = "", .engine = "" };
		return;
	}
	get_stats_of(cache, stats);
	for (struct kmem_cache *at = km_alloc_shadows(cache); at; at = at->ext.next_shadow) {
		struct kmem_cache_stats more;

		get_stats_of(at, &more);
		km_stats_add(stats, &more);
	}
}

void kmem_get_stats(struct kmem_stats *stats)
{
	const struct km_sized_engine *sized = km_engine_sized();
	struct km_arena_stats arena;

	km_boot();
	km_arena_get_stats(&arena);
	const size_t own = km_load(&km_addr_reuse_pages), runs = km_growth_count();
	const size_t kept = km_min(own + runs, arena.pages.used_pages);
	*stats = (struct kmem_stats){
		.caches = km_registry_count() - km_load(&km_caches.shadows),
		.arena_reserved_bytes = arena.reserved_bytes,
		.arena_committed_bytes = arena.committed_bytes,
		.pages_used = arena.pages.used_pages - kept,
		.pages_free_dirty = arena.pages.dirty_pages + runs + km_load(&km_huge_cache.pages),
		.pages_free_clean = arena.pages.clean_pages + own,
		.large_blocks = km_load(&km_large.blocks) + km_load(&km_huge.blocks),
		.large_bytes = km_load(&km_large.bytes) - (runs << KM_PAGE_SHIFT) + km_load(&km_huge.bytes),
		.mapped_blocks = km_load(&km_huge.blocks),
		.mapped_bytes = km_load(&km_huge.bytes),
		.mapped_spare_bytes = km_huge_spare(),
		.meta_bytes = km_metadata_committed_bytes(),
		.purged_pages = arena.pages.purged_pages,
		.slob_pages = sized ? km_load(sized->pages) : 0,
		.slob_bytes = sized ? km_load(sized->units) * KM_SIZED_UNIT : 0,
		.nodes = km_node_count,
		.bind_failures = arena.bind_failures,
	};
}

struct visiting {
	int (*visit)(struct kmem_cache *cache, void *arg);
	void *arg;
};

static int visit_known(struct kmem_cache *cache, void *arg)
{
	const struct visiting *visiting = arg;

	return cache->ext.shadow_of ? 0 : visiting->visit(cache, visiting->arg);
}

int kmem_for_each_cache(int (*visit)(struct kmem_cache *cache, void *arg), void *arg)
{
	struct visiting visiting = { visit, arg };

	if (!km_boot())
		return 0;
	/* The registry is locked: an allocation in need of a new cache fails instead of deadlocking. */
	km_busy_scope(was);
	return km_registry_visit(visit_known, &visiting);
}

/* ------------------------------------------------------------------ text */

/* Flush with no lock held: the output may be a pipe, and its reader may wait for one of our locks. */
static void write_piece(void *writer)
{
	km_print_flush(writer);
}

static int print_row(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;
	char row[256];

	if (cache->ext.shadow_of)
		return 0;
	if (!km_print_has_room(arg))
		return 1;
	kmem_cache_get_stats(cache, &stats);
	size_t length = km_slabinfo_row(row, sizeof(row), &stats);
	km_debug(length < sizeof(row) && row[length - 1] == '\n', "a row of slabinfo is a whole line");
	km_print(arg, "%s", row);
	return 0;
}

int kmem_print_slabinfo(int fd)
{
	struct km_writer writer = { .fd = fd, .no_signal = true };

	if (!km_boot())
		return -ENOMEM;
	km_busy_scope(was);
	km_print(&writer, "%s", km_slabinfo_head);
	km_registry_visit_pieces(print_row, write_piece, &writer);
	return km_print_end(&writer);
}

struct json_rows {
	struct km_writer writer;	/* first member, because write_piece casts the pointer */
	bool more;
};

static int print_json_row(struct kmem_cache *cache, void *arg)
{
	struct json_rows *rows = arg;
	struct kmem_cache_stats stats;

	if (cache->ext.shadow_of)
		return 0;
	if (!km_print_has_room(&rows->writer))
		return 1;
	const size_t before = rows->writer.length;
	kmem_cache_get_stats(cache, &stats);
	km_print_json_cache(&rows->writer, &stats, km_load(&cache->memcg.group),
			    cache->memcg.child_of ? cache->memcg.child_of->registry.name : NULL, !rows->more);
	km_debug(rows->writer.length > before, "the buffer is not written while the registry is locked");
	rows->more = true;
	return 0;
}

static void print_json_group(const struct km_group_stats *stats, void *arg)
{
	struct json_rows *rows = arg;

	km_print_json_group(&rows->writer, stats, !rows->more);
	rows->more = true;
}

struct km_print_process km_print_own_process(void)
{
	return (struct km_print_process){
		.version = KMEM_VERSION, .pid = km_os_pid(), .mapped_ready = km_load(&km_huge_cache.pages),
		.guard = { km_guarded.objects, km_load(&km_guarded.live), km_load(&km_guarded.samples),
			   km_load(&km_guarded.reports) },
		.discipline = kmem_percpu_discipline(), .reason = kmem_percpu_reason(),
		.hardened = km_hardening.parts,
		.past_new_slabs = km_load(&km_retired_of_process()->new_slabs),
		.past_freed_slabs = km_load(&km_retired_of_process()->freed_slabs),
	};
}

static void print_json_head(struct json_rows *rows)
{
	const struct km_print_process process = km_print_own_process();
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	km_print_json_head(&rows->writer, &process, &stats);
}

static int print_json_rest(struct json_rows *rows)
{
	km_print_json_groups(&rows->writer);
	rows->more = false;
	if (km_has_accounting())
		km_charge_ops->groups(print_json_group, rows);
	km_print_json_tail(&rows->writer);
	return km_print_end(&rows->writer);
}

int kmem_print_json(int fd)
{
	struct json_rows rows = { .writer = { .fd = fd, .no_signal = true } };

	if (!km_boot())
		return -ENOMEM;
	km_busy_scope(was);
	print_json_head(&rows);
	km_registry_visit_pieces(print_json_row, write_piece, &rows);
	return print_json_rest(&rows);
}

static int print_json_row_now(struct kmem_cache *cache, void *arg)
{
	if (print_json_row(cache, arg)) {
		write_piece(arg);
		print_json_row(cache, arg);
	}
	return 0;
}

int km_print_json_now(int fd)
{
	struct json_rows rows = { .writer = { .fd = fd, .no_signal = true } };

	km_debug(km_thread.busy, "a text is written inside of the allocator");
	print_json_head(&rows);
	if (!km_registry_trylock())
		return -EAGAIN;
	km_registry_each(print_json_row_now, &rows);
	km_registry_unlock();
	return print_json_rest(&rows);
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
	if (slab->type != KM_PAGE_SLAB || slab->cache != walk->cache)
		return 0;
	char *address = km_slab_first(walk->cache, slab);
	km_debug((size_t)slab->objects * walk->cache->layout.size <= KM_PAGE_SIZE << slab->order,
		 "a slab has room for its objects");
	for (unsigned i = 0; i < slab->objects; i++) {
		struct km_busy_was was = km_busy_begin();
		bool taken = walk->cache->layout.engine->is_taken(walk->cache, slab, i);
		km_busy_end(was);
		int result = !taken ? 0 :
			     walk->visit(address + (size_t)i * walk->cache->layout.size, walk->arg);

		if (result)
			return result;
	}
	return 0;
}

static int walk_one(struct kmem_cache *cache, km_walk_fn *visit, void *arg)
{
	struct walk walk = { cache, visit, arg };
	struct km_busy_was was = km_busy_begin();
	/* Return objects from sheaves and barns to slabs first; then every taken object is allocated. */
	km_alloc_drain(cache);
	cache->layout.engine->shrink(cache);
	km_busy_end(was);
	int result = km_load(&cache->ext.guarded) ? km_guard_ops->walk(cache, visit, arg) : 0;
	return result ?: km_pages_walk(walk_slab, &walk);
}

int kmem_cache_walk(struct kmem_cache *cache, km_walk_fn *visit, void *arg)
{
	if (cache->layout.engine->shared_pages || cache->layout.engine->whole_pages)
		return -EOPNOTSUPP;
	int result = walk_one(cache, visit, arg);
	for (struct kmem_cache *at = km_alloc_shadows(cache); at && !result; at = at->ext.next_shadow)
		result = walk_one(at, visit, arg);
	return result;
}

static int validate(struct kmem_cache *cache, bool busy)
{
	/* An object freed by a signal handler is linked through the word under check. */
	if (!busy)
		km_alloc_finish_deferred(cache);
	return km_cache_check(cache);
}

int kmem_cache_validate(struct kmem_cache *cache)
{
	km_busy_scope(was);
	int damages = validate(cache, km_was_busy(was)) + (km_guard_ops ? km_guard_ops->check(cache) : 0);

	for (struct kmem_cache *at = km_alloc_shadows(cache); at; at = at->ext.next_shadow)
		damages += validate(at, km_was_busy(was));
	return damages;
}

static int check_cache(struct kmem_cache *cache, void *arg)
{
	/* An object freed by a signal handler is linked through a word under check. */
	km_alloc_finish_deferred(cache);
	*(int *)arg += km_cache_check(cache) + km_alloc_check(cache);
	return 0;
}

int kmem_check_all(void)
{
	int damages = 0;

	if (!km_boot())
		return 0;
	km_busy_scope(was);
	km_debug(!km_was_busy(was) || km_registry_is_mine(), "the check of everything waits for locks");
	km_registry_visit(check_cache, &damages);
	damages += km_engines_check() + km_arena_check();
	if (km_block_hooks)
		damages += km_block_hooks->check();
	return damages ? -EIO : 0;
}
