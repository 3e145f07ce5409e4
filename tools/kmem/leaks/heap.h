/*
 * heap.h: every object of a process, from outside of it: which there are, whose cache's, and which of them are live.
 *
 * A piece is memory of objects of one size: a slab, a page that caches of slob share, a block of whole pages, a big
 * block, a guarded object. Its objects have numbers in turn, and three bits each: of one that the program has the bit
 * `live` is set, of one that lies ready on a CPU or in an engine's arrays `ready`, and of all others neither.
 * In a page of slob each unit has a number; where a block begins `live` is set, or `ready` of one that is free, or both
 * of kmalloc's, which has a header.
 *
 * What is read of a process that runs is of different moments. Invariant: nothing of it is believed: each number that
 * is used as an index was compared with its bound, and each walk has one.
 */
#ifndef KMEM_COMMAND_HEAP_H
#define KMEM_COMMAND_HEAP_H

#include "info/info.h"

/* HEAP_ and the engine's name; of blocks of whole pages that lie ready; of another build. */
#define HEAP_ENGINE(name) HEAP_##name,
enum heap_engine { KM_ENGINES(HEAP_ENGINE, ) HEAP_ready, HEAP_other };

struct heap_cache {
	struct kmem_cache copy;
	const struct kmem_cache *address;
	enum heap_engine engine;
	char engine_name[16];
	bool tracked;			/* its objects say by whom they were allocated */
	const struct info_root *root;
};

enum heap_kind { HEAP_OF_SLAB, HEAP_OF_SLOB, HEAP_OF_PAGES, HEAP_OF_BIG, HEAP_OF_GUARD };

#define HEAP_NO_CACHE	UINT32_MAX
struct heap_piece {
	uintptr_t start;		/* of the first object */
	size_t each;			/* bytes from one to the next */
	uint32_t count;
	uint32_t cache;			/* number in heap.caches; HEAP_NO_CACHE: none */
	uint64_t first;			/* the number of the first object */
	uintptr_t slab;			/* where its pages begin */
	uint32_t pages;
	enum heap_kind kind;
	bool unknown;			/* its engine is not: nobody can say which objects are live */
	uintptr_t track;		/* of a guarded object, in the process: its stack; 0: none */
	uint64_t owner;			/* of a big block: who pays (obj_cgroups.h); 0: nobody, or that is not known */
};

/* A range of pages: which piece each page is in, its number plus one. */
struct heap_range {
	uintptr_t start, end;
	uint32_t *piece;
	struct km_range copy;
	const struct info_root *root;
};

struct heap {
	struct target *target;
	struct info_root *roots;
	size_t root_count;
	struct heap_cache *caches;
	size_t cache_count, cache_room;
	uint32_t *sorted;		/* the numbers of the root's that is being loaded, by their addresses */
	struct heap_piece *pieces;	/* those of ranges first, then `loose` */
	size_t piece_count, piece_room;
	size_t loose;			/* from this one on: in order of their addresses */
	struct heap_range *ranges;	/* by address */
	size_t range_count, range_room;
	uint64_t objects;		/* numbers that were given */
	uint64_t *live, *ready;		/* a bit for each */
	size_t bit_room;
	uintptr_t *rests;		/* addresses of objects that lie ready */
	size_t rest_count, rest_room;
	uintptr_t lowest, highest;	/* of all pieces */
	struct heap_samples *samples;	/* leaks/track.c; NULL: not looked for yet */
	uint64_t now_ms;		/* the process's clock; 0: a dump, whose end nobody knows */
};

/* All of it. False: target->result says why, and the heap is empty. */
bool heap_load(struct target *target, struct heap *heap);
void heap_clear(struct heap *heap);
/* The piece that an address is in; NULL: none. */
const struct heap_piece *heap_piece(const struct heap *heap, uintptr_t address);
/* The number of the object that an address of the piece is in; false: it is in none. */
bool heap_object(const struct heap *heap, const struct heap_piece *piece, uintptr_t address, uint64_t *object);
/* The piece of an object. */
const struct heap_piece *heap_piece_of(const struct heap *heap, uint64_t object);
uintptr_t heap_address(const struct heap_piece *piece, uint64_t object);
/* The same as its user knows it: behind the header that slob's blocks of kmalloc have. */
uintptr_t heap_user_address(const struct heap *heap, const struct heap_piece *piece, uint64_t object);
/* Bytes from its start to its end. */
size_t heap_bytes(const struct heap *heap, const struct heap_piece *piece, uint64_t object);
/* The name of its cache, or of what it is. */
const char *heap_name(const struct heap *heap, const struct heap_piece *piece);

static inline bool heap_bit(const uint64_t *bits, uint64_t object)
{
	return bits[object / 64] >> object % 64 & 1;
}

static inline void heap_set(uint64_t *bits, uint64_t object)
{
	bits[object / 64] |= (uint64_t)1 << object % 64;
}

static inline void heap_unset(uint64_t *bits, uint64_t object)
{
	bits[object / 64] &= ~((uint64_t)1 << object % 64);
}

/* ---- leaks/cached_objects.c: objects that lie ready, added to heap->rests: of caches[*next] and those behind it
 * that are wanted (NULL: all), as long as the clock (CLOCK_MONOTONIC, ns) is not at `end`; *next is the one that was
 * not reached. */
bool heap_rests(struct heap *heap, const bool *wanted, size_t *next, uint64_t end);

/* The same of those that lie ready now, and those that did are not live either. */
void heap_rests_again(struct heap *heap, const bool *wanted, size_t *next, uint64_t end);

/* ---- leaks/heap_pieces.c: pieces of a root, added to the heap, by its caches from number `from` on: those of
 * ranges, and then those that lie elsewhere. When all are there they are put in order. */
bool heap_pieces(struct heap *heap, struct info_root *root, size_t from);
bool heap_loose(struct heap *heap, struct info_root *root, size_t from);
bool heap_sort(struct heap *heap);
/* The bits again of this piece, which may have gone: false: it has. */
bool heap_look_again(struct heap *heap, const struct heap_piece *piece, uint64_t *live);

/* ---- leaks/track.c: by whom an object was allocated, if that is known. */
#define HEAP_FRAMES 16u
struct heap_track {
	uintptr_t frame[HEAP_FRAMES];
	uint64_t when;			/* ms, of the process's clock; 0: not known */
};
bool heap_track(struct heap *heap, const struct heap_piece *piece, uintptr_t object, struct heap_track *track);
void heap_samples_clear(struct heap *heap);
/* The track of a debugged object itself: [0] by whom it was allocated, [1] by whom what lay there before was freed;
 * false: it has none, or was never freed. */
struct km_stack_track;
bool heap_debug_track(const struct heap *heap, const struct heap_piece *piece, uintptr_t object, unsigned which,
		      struct km_stack_track *track);
/* The name of the group that pays for it; false: nobody does, or it is not known. */
bool heap_group(const struct heap *heap, const struct heap_piece *piece, uintptr_t object, char *name, size_t bytes);

#endif
