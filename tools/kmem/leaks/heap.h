/*
 * heap.h: list all objects of another process, with the cache and the state of each object.
 *
 * A piece is memory with objects of one size: a slab, a page shared by slob caches, a block of whole pages, a huge
 * block or a guarded object. The objects of a piece have consecutive numbers. Each object has two bits: `live` is set
 * for an allocated object, `ready` for an object cached on a CPU or in an engine's arrays. A free object has none.
 * In a slob page each unit has a number. At the first unit of a block, `live` marks an allocated block, `ready`
 * marks a free block, and both bits mark a kmalloc block with a header.
 *
 * The data of a running process is read at different moments. Invariant: no value read from the process is trusted:
 * each index is compared with a bound before use, and each walk has a limit.
 */
#ifndef KMEM_COMMAND_HEAP_H
#define KMEM_COMMAND_HEAP_H

#include "info/info.h"
#include "slab/engines.h"

/* HEAP_ and the engine's name; HEAP_ready: cached blocks of whole pages; HEAP_other: an engine of another build. */
#define HEAP_ENGINE(name) HEAP_##name,
enum heap_engine { KM_ENGINES(HEAP_ENGINE, ) HEAP_ready, HEAP_other };

struct heap_cache {
	struct rec_cache copy;
	const struct kmem_cache *address;
	enum heap_engine engine;
	char engine_name[16];
	bool tracked;			/* objects have a debug track of their allocation */
	const struct info_root *root;
};

enum heap_kind { HEAP_OF_SLAB, HEAP_OF_SLOB, HEAP_OF_PAGES, HEAP_OF_BIG, HEAP_OF_GUARD };

#define HEAP_NO_CACHE	UINT32_MAX
struct heap_piece {
	uintptr_t start;		/* address of the first object */
	size_t each;			/* bytes from one object to the next */
	uint32_t count;
	uint32_t cache;			/* index in heap.caches; HEAP_NO_CACHE: none */
	uint64_t first;			/* the number of the first object */
	uintptr_t slab;			/* address of the first page */
	uint32_t pages;
	enum heap_kind kind;
	bool unknown;			/* unknown engine: live objects can't be told from free ones */
	uintptr_t track;		/* guarded object: address of the slot in the process; 0: none */
	uint64_t owner;			/* huge block: objcg (obj_cgroups.h); 0: uncharged or unknown */
};

/* A range of pages. `piece` has for each page the index of the page's piece plus one; 0: none. */
struct heap_range {
	uintptr_t start, end;
	uint32_t *piece;
	struct rec_range copy;
	const struct info_root *root;
};

struct heap {
	struct target *target;
	struct info_root *roots;
	size_t root_count;
	struct heap_cache *caches;
	size_t cache_count, cache_room;
	uint32_t *sorted;		/* indexes of the current root's caches, by address */
	struct heap_piece *pieces;	/* pieces of ranges, then loose pieces */
	size_t piece_count, piece_room;
	size_t loose;			/* index of the first loose piece; loose pieces are in address order */
	struct heap_range *ranges;	/* in address order */
	size_t range_count, range_room;
	uint64_t objects;		/* count of object numbers in use */
	uint64_t *live, *ready;		/* a bit for each object number */
	size_t bit_room;
	uintptr_t *rests;		/* addresses of cached objects */
	size_t rest_count, rest_room;
	uintptr_t lowest, highest;	/* bounds of all pieces */
	struct heap_samples *samples;	/* leaks/track.c; NULL: not read yet */
	uint64_t now_ms;		/* the process's clock, ms; 0: a core dump, without a time */
};

/* Load all caches, pieces and object states. Returns: false with target->result set; the heap is empty then. */
bool heap_load(struct target *target, struct heap *heap);
void heap_clear(struct heap *heap);
/* Find the piece with an address. Returns: NULL if no piece has the address. */
const struct heap_piece *heap_piece(const struct heap *heap, uintptr_t address);
/* Find the number of the object with an address. Returns: false if the address lies in no object of the piece. */
bool heap_object(const struct heap *heap, const struct heap_piece *piece, uintptr_t address, uint64_t *object);
/* Find the piece of an object number. */
const struct heap_piece *heap_piece_of(const struct heap *heap, uint64_t object);
uintptr_t heap_address(const struct heap_piece *piece, uint64_t object);
/* Returns: the address given to the user: behind the header for a slob block of kmalloc. */
uintptr_t heap_user_address(const struct heap *heap, const struct heap_piece *piece, uint64_t object);
/* Returns: bytes of the object. In a slab: the cache's object size, without padding. */
size_t heap_bytes(const struct heap *heap, const struct heap_piece *piece, uint64_t object);
/* Returns: the name of the piece's cache; without a cache, the kind of the piece in parentheses. */
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

/* ---- leaks/cached_objects.c: add the cached objects of the wanted caches from caches[*next] on to rests.
 * wanted: a flag for each cache; NULL: all. The walk stops when CLOCK_MONOTONIC (ns) is at `end`. *next becomes the
 * index of the first cache not reached. */
bool heap_rests(struct heap *heap, const bool *wanted, size_t *next, uint64_t end);

/* Replace heap->rests by the objects cached now, and mark these as cached. Earlier cached objects stay not live. */
void heap_rests_again(struct heap *heap, const bool *wanted, size_t *next, uint64_t end);

/* ---- leaks/heap_pieces.c: add the pieces of a root with caches from index `from` on. heap_pieces() adds the pieces
 * of ranges, and heap_loose() the pieces elsewhere, later. heap_sort() must run when all pieces are added. */
bool heap_pieces(struct heap *heap, struct info_root *root, size_t from);
bool heap_loose(struct heap *heap, struct info_root *root, size_t from);
bool heap_sort(struct heap *heap);
/* Read the live bits of a piece of a range again. Returns: false if the piece is gone or can't be read. */
bool heap_look_again(struct heap *heap, const struct heap_piece *piece, uint64_t *live);

/* ---- leaks/track.c: the stack and the time of an object's allocation, if known. */
#define HEAP_FRAMES KMEM_RECORD_FRAMES
struct heap_track {
	uintptr_t frame[HEAP_FRAMES];
	uint64_t when;			/* time of the process's clock, ms; 0: not known */
};
bool heap_track(struct heap *heap, const struct heap_piece *piece, uintptr_t object, struct heap_track *track);
void heap_samples_clear(struct heap *heap);
/* Read the debug track in the object itself: `which` 0: the object's allocation; 1: the last free at this address.
 * Returns: false if there is no track, or for 1 if the object was never freed. */
struct rec_track;
bool heap_debug_track(const struct heap *heap, const struct heap_piece *piece, uintptr_t object, unsigned which,
		      struct rec_track *track);
/* Find the name of the group charged for the object. Returns: false if the object is uncharged, or on failure. */
bool heap_group(const struct heap *heap, const struct heap_piece *piece, uintptr_t object, char *name, size_t bytes);

#endif
