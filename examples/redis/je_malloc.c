/*
 * je_malloc.c: the slow paths of include/jemalloc/jemalloc.h: resized blocks, caches during a save, statistics and
 * defragmentation. redis-server links this file and libkmem-malloc.a.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <kmem/stats.h>
#include <jemalloc/jemalloc.h>

/*
 * The usual caches, and the caches during a save. A child that saves shares all pages with its parent, and a write
 * of the parent copies the page. Free objects lie on many pages, so each reused object could cost the copy of a
 * page. Until the child ends, blocks come from separate caches with new pages (saving-24).
 */
static struct kmem_cache *usual[JE_CLASSES], *saving[JE_CLASSES];
struct kmem_cache **je_now = usual;
size_t je_most = JE_MOST;
/* Flags of the caches; tenants.c overrides the flags. */
__attribute__((weak)) slab_flags_t je_flags;

/* Creates a cache, with engine sheaf if the default engine is slob: free() must find the cache of an object, and slob
 * does not record the cache. */
static struct kmem_cache *make_cache(const char *name, size_t bytes)
{
	struct kmem_cache_args args = { .align = bytes & 8 ? 8 : 16 };
	struct kmem_cache_stats stats;
	struct kmem_cache *cache = kmem_cache_create(name, (unsigned int)bytes, &args, je_flags | SLAB_PANIC);

	kmem_cache_get_stats(cache, &stats);
	if (strcmp(stats.engine, "slob") != 0)
		return cache;
	kmem_cache_destroy(cache);
	args.engine = "sheaf";
	return kmem_cache_create(name, (unsigned int)bytes, &args, je_flags | SLAB_PANIC);
}

/* Creates the cache of a class. If two threads create the cache at once, one cache is destroyed. */
struct kmem_cache *je_make(struct kmem_cache **caches, unsigned int class)
{
	const size_t bytes = je_bytes(class);
	struct kmem_cache *none = NULL, *cache;
	char name[24];

	snprintf(name, sizeof(name), "%s-%zu", caches == usual ? "redis" : "saving", bytes);
	cache = make_cache(name, bytes);
	if (__atomic_compare_exchange_n(&caches[class], &none, cache, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return cache;
	kmem_cache_destroy(cache);
	return none;
}

/* ------------------------------------------------------------------ a child saves */

/* Switches the caches. A concurrent thread may combine the old set with the new largest size: je_make creates
 * the cache. */
static void serve_from(struct kmem_cache **caches, size_t most)
{
	__atomic_store_n(&je_most, most, __ATOMIC_RELAXED);
	__atomic_store_n(&je_now, caches, __ATOMIC_RELAXED);
}

/* Runs in the parent after each fork. */
static void begin_saving(void)
{
	serve_from(saving, JE_MOST_SAVING);
}

/* Returns to the usual caches when no child is left. redis reads the statistics ten times a second and reaps its
 * children. */
static void look_for_children(void)
{
	siginfo_t child;

	if (je_now == saving && waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) && errno == ECHILD)
		serve_from(usual, JE_MOST);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, begin_saving, NULL);
}

/*
 * Disables huge pages. redis disables huge pages itself if the system's setting is "always" (disable-thp), because
 * a save would copy 2 MiB for each write. With the setting "madvise" libkmem would ask for huge pages. A list also
 * grows in a fifth less time without huge pages, because the kernel clears a huge page past the processor's caches.
 */
__attribute__((constructor)) static void refuse_huge_pages(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

/* ------------------------------------------------------------------ blocks that grow and shrink */

size_t je_nallocx(size_t size, int flags)
{
	(void)flags;
	return size <= je_most ? je_bytes(je_class(size)) : 0;
}

/* Resizes a block. malloc's realloc keeps a block until half of the block is unused; redis expects realloc to
 * trim strings. */
struct je_block je_resize(void *block, size_t old, size_t size)
{
	const struct je_block same = { block, old }, none = { NULL, 0 };
	void *moved;

	if (block && !size) {
		free(block);
		return none;
	}
	if (size <= old && block && (je_nallocx(size, 0) == old || (size > JE_MOST && old - size <= old / 8)))
		return same;
	if (block && size > old && old > JE_MOST && size > je_most) {
		moved = realloc(block, size);
		return moved ? (struct je_block){ moved, malloc_usable_size(moved) } : none;
	}
	moved = je_malloc(size);
	if (!moved)
		return block && size <= old ? same : none;
	size_t bytes = je_malloc_usable_size(moved);
	if (block) {
		memcpy(moved, block, size < old ? size : old);
		free(block);
	}
	return (struct je_block){ moved, bytes };
}

/* ------------------------------------------------------------------ defragmentation */

void *je_mallocx(size_t size, int flags)
{
	(void)flags;
	return size <= je_most ? kmem_cache_alloc(je_cache(je_class(size)), GFP_KERNEL | __GFP_FULLEST) :
				 kmem_malloc_fullest(size);
}

/* In tenants.c: the new block is charged to the group of the old block, until the old block is freed. */
__attribute__((weak)) void je_move_begins(const void *block);
__attribute__((weak)) void je_move_ends(void);

void je_dallocx(void *block, int flags)
{
	(void)flags;
	kmem_free_to_slab(block);
	if (je_move_ends)
		je_move_ends();
}

int je_get_defrag_hint(void *block)
{
	struct kmem_slab_usage usage;
	const void *one = block;

	if (!kmem_slab_usage(&one, 1, &usage) || !kmem_usage_is_sparse(&usage))
		return 0;
	if (je_move_begins)
		je_move_begins(block);
	return 1;
}

/* ------------------------------------------------------------------ figures */

/*
 * Statistics by jemalloc's definitions, in bytes. allocated: blocks from these caches and large blocks, including
 * cached objects, as in jemalloc (a move of a block does not change the number). active: the pages of these blocks.
 * resident, mapped, metadata: the whole process.
 */
static struct {
	size_t allocated, active, resident, mapped, metadata;
} figures;

/* Adds a cache. malloc's caches up to JE_MOST are left out, because Lua and libc use them. */
static int add(struct kmem_cache *cache, void *unused)
{
	const char *name = kmem_cache_name(cache);
	struct kmem_cache_stats stats;

	(void)unused;
	if (!strncmp(name, "redis-", 6) || !strncmp(name, "saving-", 7) ||
	    (!strncmp(name, "malloc-", 7) && kmem_cache_size(cache) > JE_MOST)) {
		kmem_cache_get_stats(cache, &stats);
		figures.allocated += (stats.active_objects + stats.shelf_objects) * stats.size;
		figures.active += stats.total_slabs * stats.pages_per_slab * 4096;
	}
	return 0;
}

static void take_figures(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	figures.allocated = figures.active = stats.large_bytes;
	kmem_for_each_cache(add, NULL);
	figures.metadata = stats.meta_bytes;
	figures.resident = (stats.pages_used + stats.pages_free_dirty) * 4096 + stats.mapped_bytes + stats.meta_bytes;
	figures.mapped = stats.arena_committed_bytes + stats.mapped_bytes + stats.meta_bytes;
}

static int give(void *old, size_t *old_bytes, const void *value, size_t bytes)
{
	if (!old || !old_bytes)
		return 0;
	if (*old_bytes != bytes)
		return EINVAL;
	memcpy(old, value, bytes);
	return 0;
}

static const struct {
	const char *name;
	const size_t *value;
} sizes[] = {
	{ "stats.allocated", &figures.allocated },
	{ "stats.active", &figures.active },
	{ "stats.resident", &figures.resident },
	{ "stats.mapped", &figures.mapped },
	{ "stats.metadata", &figures.metadata },
	{ "arenas.page", &(const size_t){ 4096 } },
};

/* Returns 0 or an errno; ENOENT for a name without use in redis. */
int je_mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes)
{
	static uint64_t epoch;
	unsigned int one = 1;
	char on = 1;

	(void)new_bytes;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!strcmp(name, sizes[i].name))
			return new ? EPERM : give(old, old_bytes, sizes[i].value, sizeof(size_t));
	if (!strcmp(name, "epoch")) {
		look_for_children();
		kmem_tick();
		take_figures();
		epoch++;
		return give(old, old_bytes, &epoch, sizeof(epoch));
	}
	if (!strcmp(name, "arenas.narenas"))
		return give(old, old_bytes, &one, sizeof(one));
	/* libkmem gives free memory back at "epoch"; redis reads "epoch" ten times a second. */
	if (!strcmp(name, "background_thread"))
		return give(old, old_bytes, &on, sizeof(on));
	if (!strcmp(name, "thread.tcache.flush") || (!strncmp(name, "arena.", 6) && strstr(name, ".purge"))) {
		if (old)
			return EPERM;
		kmem_shrink_all();
		return 0;
	}
	return ENOENT;
}

/* The rows are collected before printing, because printing allocates and a visit holds the registry's lock. */
struct rows {
	struct kmem_cache_stats *row;
	size_t count, room;
};

static int collect(struct kmem_cache *cache, void *to)
{
	struct rows *rows = to;

	if (rows->count < rows->room)
		kmem_cache_get_stats(cache, &rows->row[rows->count++]);
	return 0;
}

void je_malloc_stats_print(void (*write)(void *to, const char *text), void *to, const char *options)
{
	struct kmem_stats stats;
	char line[160];

	(void)options;
	take_figures();
	kmem_get_stats(&stats);
	struct rows rows = { .room = stats.caches + 16 };
	rows.row = calloc(rows.room, sizeof(*rows.row));
	if (!rows.row)
		return;
	kmem_for_each_cache(collect, &rows);
	snprintf(line, sizeof(line), "___ Begin libkmem %s statistics ___\n", kmem_version());
	write(to, line);
	snprintf(line, sizeof(line), "Allocated: %zu, active: %zu, resident: %zu\n", figures.allocated,
		 figures.active, figures.resident);
	write(to, line);
	snprintf(line, sizeof(line), "%-24s %8s %10s %10s %8s\n", "cache", "size", "live", "objects", "slabs");
	write(to, line);
	for (size_t i = 0; i < rows.count; i++) {
		const struct kmem_cache_stats *s = &rows.row[i];

		if (!s->total_slabs)
			continue;
		snprintf(line, sizeof(line), "%-24s %8u %10lu %10lu %8lu\n", s->name, s->size, s->active_objects,
			 s->total_objects, s->total_slabs);
		write(to, line);
	}
	write(to, "--- End libkmem statistics ---\n");
	free(rows.row);
}
