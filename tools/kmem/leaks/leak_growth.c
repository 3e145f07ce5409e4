/*
 * leak_growth.c: prints the growth of a process over some seconds: by cache, and by allocation stack for objects with
 * a known stack. Invariant: the process is never stopped.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/leak_growth.h"

/* ------------------------------------------------------------------ by stack */

struct site {
	uint64_t hash;
	uintptr_t frame[HEAP_FRAMES];
	long objects, bytes;
};

struct sites {
	struct site *at;
	size_t count, room;
};

static uint64_t hash_of(const struct heap_track *track)
{
	uint64_t hash = 0;

	for (unsigned i = 0; i < HEAP_FRAMES; i++)
		hash = (hash ^ hash >> 29 ^ track->frame[i]) * 0x9e3779b97f4a7c15u;
	return hash;
}

static int by_hash(const void *a, const void *b)
{
	const struct site *x = a, *y = b;

	return (x->hash > y->hash) - (x->hash < y->hash);
}

/* Sorts the sites by hash and merges the sites of equal stacks. */
static void fold(struct sites *sites)
{
	size_t kept = 0;

	qsort(sites->at, sites->count, sizeof(*sites->at), by_hash);
	for (size_t i = 0; i < sites->count; i++) {
		if (kept && sites->at[kept - 1].hash == sites->at[i].hash) {
			sites->at[kept - 1].objects += sites->at[i].objects;
			sites->at[kept - 1].bytes += sites->at[i].bytes;
		} else {
			sites->at[kept++] = sites->at[i];
		}
	}
	sites->count = kept;
}

static void add_site(struct sites *sites, const struct heap_track *track, long sign, size_t bytes)
{
	/* Merges equal stacks at each power of two from 65536 on, to limit the memory. */
	if (sites->count >= 65536 && !(sites->count & (sites->count - 1)))
		fold(sites);
	sites->at = kmem_grow(sites->at, sites->count, &sites->room, sizeof(*sites->at));
	struct site *site = &sites->at[sites->count++];
	*site = (struct site){ .hash = hash_of(track), .objects = sign, .bytes = sign * (long)bytes };
	memcpy(site->frame, track->frame, sizeof(site->frame));
}

/* Adds the live objects with known stacks, counted with `sign`. ages: NULL, or counts of objects by age. */
static int add_sites(struct subject *subject, struct sites *sites, long sign, unsigned long *ages)
{
	struct heap heap;
	int status = subject_load(subject, &heap);

	for (size_t i = 0; !status && i < heap.piece_count; i++) {
		const struct heap_piece *piece = &heap.pieces[i];
		bool tracked = piece->kind == HEAP_OF_GUARD ||
			       (piece->kind == HEAP_OF_SLAB && heap.caches[piece->cache].tracked);
		struct heap_track track;

		for (uint64_t o = piece->first; tracked && o < piece->first + piece->count; o++) {
			if (!heap_bit(heap.live, o) || !heap_track(&heap, piece, heap_address(piece, o), &track))
				continue;
			add_site(sites, &track, sign, heap_bytes(&heap, piece, o));
			uint64_t age = heap.now_ms > track.when ? heap.now_ms - track.when : 0;
			if (ages)
				ages[age < 1000 ? 0 : age < 60000 ? 1 : age < 3600000 ? 2 : 3]++;
		}
	}
	heap_clear(&heap);
	fold(sites);
	return status;
}

static int by_bytes(const void *a, const void *b)
{
	const struct site *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void print_sites(const struct subject *subject, struct sites *sites, size_t most)
{
	size_t grown = 0;

	qsort(sites->at, sites->count, sizeof(*sites->at), by_bytes);
	while (grown < sites->count && sites->at[grown].bytes > 0)
		grown++;
	if (grown)
		printf("  by stack, where it is known:\n");
	for (size_t i = 0; i < grown && i < most; i++) {
		printf("    %+8ld %+11ld  at\n", sites->at[i].objects, sites->at[i].bytes);
		print_stack(&subject->maps, sites->at[i].frame, HEAP_FRAMES);
	}
	if (grown > most)
		printf("    and %zu more\n", grown - most);
}

/* ------------------------------------------------------------------ by cache */

struct grown {
	const struct info_cache *cache;
	long objects, bytes;
};

static int by_growth(const void *a, const void *b)
{
	const struct grown *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int by_address(const void *a, const void *b)
{
	const struct info_cache *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

/* Requires: a snapshot sorted by address. Returns: the cache in the snapshot, or NULL. */
static const struct info_cache *find(const struct snapshot *snapshot, const struct info_cache *cache)
{
	return snapshot->count ? bsearch(cache, snapshot->caches, snapshot->count, sizeof(*cache), by_address) : NULL;
}

/* Prints the caches that have grown. Sorts `before` by address. */
static void print_caches(const struct snapshot *before, const struct snapshot *after, double seconds, size_t most)
{
	struct grown *grown = kmem_need(calloc(after->count + 1, sizeof(*grown)));
	size_t count = 0;

	qsort(before->caches, before->count, sizeof(*before->caches), by_address);
	for (size_t i = 0; i < after->count; i++) {
		const struct info_cache *cache = &after->caches[i], *was = find(before, cache);
		long objects = (long)cache->stats.active_objects - (was ? (long)was->stats.active_objects : 0);

		if (objects > 0 && cache->stats.active_objects != INFO_UNKNOWN)
			grown[count++] = (struct grown){ cache, objects, objects * (long)cache->stats.size };
	}
	long blocks = (long)after->stats.large_bytes - (long)before->stats.large_bytes;
	qsort(grown, count, sizeof(*grown), by_growth);
	printf("growth in %g second%s%s\n", seconds, seconds == 1 ? "" : "s", count || blocks > 0 ? ":" : ": none");
	if (count)
		printf("     OBJECTS       BYTES  CACHE\n");
	for (size_t i = 0; i < count && i < most; i++)
		printf("    %+8ld %+11ld  %s\n", grown[i].objects, grown[i].bytes, grown[i].cache->stats.name);
	if (count > most)
		printf("    and %zu more\n", count - most);
	if (blocks > 0)
		printf("    %+8ld %+11ld  (large blocks)\n",
		       (long)after->stats.large_blocks - (long)before->stats.large_blocks, blocks);
	free(grown);
}

int growth_print(struct subject *subject, double seconds, size_t most, unsigned long *ages)
{
	struct snapshot before = { 0 }, after = { 0 };
	struct sites sites = { .count = 0 };
	int status = add_sites(subject, &sites, -1, NULL);
	enum info_result result = status ? INFO_OK : info_of_process(subject->pid, &before);

	if (!status && (result == INFO_OK || result == INFO_PARTLY)) {
		kmem_pause(seconds);
		result = info_of_process(subject->pid, &after);
	}
	if (!status && result != INFO_OK && result != INFO_PARTLY)
		status = info_complain(subject->command, subject->pid, result, after.version);
	if (!status)
		status = add_sites(subject, &sites, 1, ages);
	if (!status) {
		print_caches(&before, &after, seconds, most);
		print_sites(subject, &sites, most);
	}
	snapshot_clear(&before);
	snapshot_clear(&after);
	free(sites.at);
	return status;
}
