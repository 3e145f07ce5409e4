/*
 * fs_traces.c: the files of a cache in /sys/kernel/debug/slab: the stacks that allocated the live objects, and the
 * stacks that last freed the same places, with the number of objects by stack. Objects have stacks with debug flag
 * U, or as samples of a running profile. The process keeps running while the objects are read.
 */
#include <stdlib.h>
#include <string.h>

#include "fs/fs.h"
#include "command.h"
#include "leaks/heap.h"
#include "leaks/maps.h"

#define FOLD_AT	65536u		/* number of sites from which sites of one stack are merged, at each doubling */

enum { ALLOCATED, FREED };

/* Objects with one stack. */
struct site {
	uint64_t hash;
	uintptr_t frame[HEAP_FRAMES];
	unsigned long count;
	uint64_t least, most, sum;	/* ages of the objects, ms */
	uint32_t first, last;		/* least and greatest thread number */
	bool has_age, has_thread;
};

struct sites {
	struct site *at;
	size_t count, room;
};

/* Piece of the heap and a cache that lists the piece. A piece of a debug shadow cache is listed by two caches. */
struct owned {
	const struct kmem_cache *cache;
	size_t piece;
};

struct fs_objects {
	struct target target;
	struct heap heap;
	struct owned *owned;		/* sorted by cache, to find the pieces of one cache */
	size_t count, room;
	bool read;
};

void fs_clear_objects(struct fs_tree *tree)
{
	if (!tree->objects)
		return;
	if (tree->objects->read)
		heap_clear(&tree->objects->heap);
	free(tree->objects->owned);
	free(tree->objects);
}

static int by_cache(const void *a, const void *b)
{
	const struct owned *x = a, *y = b;

	if (x->cache != y->cache)
		return x->cache < y->cache ? -1 : 1;
	return (x->piece > y->piece) - (x->piece < y->piece);
}

static void add_owned(struct fs_objects *objects, const struct kmem_cache *cache, size_t piece)
{
	objects->owned = kmem_grow(objects->owned, objects->count, &objects->room, sizeof(*objects->owned));
	objects->owned[objects->count++] = (struct owned){ cache, piece };
}

static void find_owned(struct fs_objects *objects)
{
	const struct heap *heap = &objects->heap;

	for (size_t i = 0; i < heap->piece_count; i++) {
		if (heap->pieces[i].cache == HEAP_NO_CACHE)
			continue;
		const struct heap_cache *cache = &heap->caches[heap->pieces[i].cache];

		add_owned(objects, cache->address, i);
		if (cache->copy.sibling_of && cache->copy.sibling_of != cache->address)
			add_owned(objects, cache->copy.sibling_of, i);
	}
	if (objects->count)
		qsort(objects->owned, objects->count, sizeof(*objects->owned), by_cache);
}

/* Read all objects of the process, once for all files of a tree. Returns: NULL if unreadable. */
static struct fs_objects *objects_of(struct fs_tree *tree)
{
	struct fs_objects *objects = tree->objects;

	if (!objects) {
		objects = tree->objects = kmem_need(calloc(1, sizeof(*objects)));
		objects->target.pid = (pid_t)tree->snapshot.thread;
		objects->read = fs_maps(tree) && heap_load(&objects->target, &objects->heap);
		if (objects->read)
			find_owned(objects);
	}
	return objects->read ? objects : NULL;
}

/* ------------------------------------------------------------------ which caches */

bool fs_is_tracked(const struct info_cache *cache)
{
	return cache->full->tracked;
}

/* Checks the first copy of libkmem in the process: only one profile runs at a time. */
bool fs_is_profiled(const struct snapshot *snapshot)
{
	static struct info_root roots[INFO_MAX_ROOTS];
	struct target target = { .pid = (pid_t)snapshot->thread };
	struct kmem_profile_record record;

	return target_roots_in_use(&target, roots) && layout_has(&roots[0].layout, "root.profile") &&
	       roots[0].record.profile && target_read(&target, &record, roots[0].record.profile, sizeof(record)) &&
	       record.version == KMEM_PROFILE_VERSION && record.state == KMEM_PROFILE_ON;
}

/* ------------------------------------------------------------------ stacks */

static uint64_t hash_of(const uintptr_t *frame)
{
	uint64_t hash = 0;

	for (unsigned i = 0; i < HEAP_FRAMES; i++)
		hash = (hash ^ hash >> 29 ^ frame[i]) * 0x9e3779b97f4a7c15u;
	return hash;
}

static int by_hash(const void *a, const void *b)
{
	const struct site *x = a, *y = b;

	return (x->hash > y->hash) - (x->hash < y->hash);
}

/* Compare by descending count. Kernel: the same order. */
static int by_count(const void *a, const void *b)
{
	const struct site *x = a, *y = b;

	return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : by_hash(a, b);
}

static void merge(struct site *into, const struct site *from)
{
	into->count += from->count;
	into->sum += from->sum;
	into->least = from->least < into->least ? from->least : into->least;
	into->most = from->most > into->most ? from->most : into->most;
	into->first = from->first < into->first ? from->first : into->first;
	into->last = from->last > into->last ? from->last : into->last;
	into->has_age &= from->has_age;
	into->has_thread &= from->has_thread;
}

static void fold(struct sites *sites)
{
	size_t kept = 0;

	if (sites->count)
		qsort(sites->at, sites->count, sizeof(*sites->at), by_hash);
	for (size_t i = 0; i < sites->count; i++)
		if (kept && sites->at[kept - 1].hash == sites->at[i].hash)
			merge(&sites->at[kept - 1], &sites->at[i]);
		else
			sites->at[kept++] = sites->at[i];
	sites->count = kept;
}

static void add(struct sites *sites, struct site site)
{
	if (sites->count >= FOLD_AT && !(sites->count & (sites->count - 1)))
		fold(sites);
	sites->at = kmem_grow(sites->at, sites->count, &sites->room, sizeof(*sites->at));
	site.hash = hash_of(site.frame);
	site.count = 1;
	site.most = site.sum = site.least;
	site.last = site.first;
	sites->at[sites->count++] = site;
}

static uint64_t age_of(const struct heap *heap, uint64_t when)
{
	return heap->now_ms > when ? heap->now_ms - when : 0;
}

/* Add a live object to the sites. Kernel: objects in never freed places also form one line. */
static void add_object(struct sites *sites, struct heap *heap, const struct heap_piece *piece, uintptr_t object,
		       unsigned which)
{
	struct site site = { .hash = 0 };
	struct rec_track own;
	struct heap_track other;

	if (heap_debug_track(heap, piece, object, which, &own)) {
		memcpy(site.frame, own.frame, sizeof(site.frame));
		site.has_age = site.has_thread = true;
		site.least = age_of(heap, own.when);
		site.first = own.thread;
	} else if (which == FREED) {
		if (piece->kind != HEAP_OF_SLAB || !heap->caches[piece->cache].tracked)
			return;
	} else if (heap_track(heap, piece, object, &other)) {
		memcpy(site.frame, other.frame, sizeof(site.frame));
		site.has_age = other.when;
		site.least = age_of(heap, other.when);
	} else {
		return;
	}
	add(sites, site);
}

static void add_cache(struct sites *sites, struct fs_objects *objects, const struct kmem_cache *address, unsigned which)
{
	struct heap *heap = &objects->heap;
	const struct owned first = { address, 0 };

	for (size_t i = fs_first(objects->owned, objects->count, sizeof(first), &first, by_cache);
	     i < objects->count && objects->owned[i].cache == address; i++) {
		const struct heap_piece *piece = &heap->pieces[objects->owned[i].piece];

		for (uint64_t o = piece->first; o < piece->first + piece->count; o++)
			if (heap_bit(heap->live, o))
				add_object(sites, heap, piece, heap_address(piece, o), which);
	}
	fold(sites);
}

/* ------------------------------------------------------------------ lines */

/* Print one site: the first frame, then the whole stack. Kernel: the same. */
static void print_site(struct fs_text *text, const struct maps *maps, const struct site *site)
{
	fs_print(text, "%7lu ", site->count);
	if (site->frame[0])
		fs_print_place(text, maps, site->frame[0]);
	else
		fs_print(text, "<not-available>");
	if (site->has_age)
		fs_print(text, " age=%lu/%lu/%lu", (unsigned long)site->least, (unsigned long)(site->sum / site->count),
			 (unsigned long)site->most);
	if (site->has_thread)
		fs_print(text, site->first == site->last ? " pid=%u" : " pid=%u-%u", site->first, site->last);
	fs_print(text, "\n");
	for (unsigned i = 0; i < HEAP_FRAMES && site->frame[i]; i++) {
		fs_print(text, "        ");
		fs_print_place(text, maps, site->frame[i]);
		fs_print(text, "\n");
	}
}

static bool show_traces(struct fs_tree *tree, size_t index, unsigned long which, struct fs_text *text)
{
	const struct info_cache *cache = &tree->snapshot.caches[index];
	struct sites sites = { NULL, 0, 0 };
	struct fs_objects *objects = objects_of(tree);

	if (!objects)
		return false;
	add_cache(&sites, objects, cache->address, (unsigned)which);
	if (sites.count)
		qsort(sites.at, sites.count, sizeof(*sites.at), by_count);
	for (size_t i = 0; i < sites.count; i++)
		print_site(text, fs_maps(tree), &sites.at[i]);
	if (!sites.count)
		fs_print(text, "No data\n");
	free(sites.at);
	return true;
}

const struct fs_file fs_trace_files[] = {
	{ "alloc_traces", 0400, show_traces, ALLOCATED, 0 },
	{ "free_traces", 0400, show_traces, FREED, 0 },
};
const size_t fs_trace_file_count = KMEM_COUNT(fs_trace_files);
