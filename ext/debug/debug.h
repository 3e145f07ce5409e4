/*
 * debug.h: declarations shared by the debugging files: KMEM_DEBUG settings, the metadata around an object of a
 * debugged cache (drawing: slab/engine.h), and damage reports.
 */
#ifndef KM_DEBUG_H
#define KM_DEBUG_H

#include "cache/cache.h"
#include "debug_letters.h"
#include "inspect/stack.h"

extern km_hidden const struct km_debug_ops km_debugging;

/* ---- debug_traces.c */

/* Print leaks like kmem_print_leaks, but without checking for tracks first, and without a lock during the output. */
int km_debug_print_leaks(int fd);
/* Returns: true if some cache or large block has tracks. Context: the registry is locked. */
bool km_debug_has_tracks(void);
/* Print leaks at program exit. Returns: -EINVAL if no cache has tracks, because without tracks most allocations and
 * the total are unknown. */
int km_debug_print_all_leaks(int fd);

/* ---- debug_stacks.c: marks beside objects; a mark refers to a stack by number */

#define KM_DEBUG_FACTOR 0x9e3779b97f4a7c15u	/* factor of hashes and seals */

_Static_assert(sizeof(struct kmem_record_mark) == KM_DEBUG_TRACK, "as engine.h says");
_Static_assert(KMEM_RECORD_FRAMES == KM_STACK_FRAMES, "a stack of the table has the frames of a walk");
extern km_hidden struct kmem_record_stack *km_debug_stacks;	/* table of stacks; NULL: no stacks were requested */
/* Maps the table of stacks. Requires: no cache has marks yet. Returns: false without memory; stacks then stay
 * unknown. */
bool km_debug_stacks_start(void);
/* Fill a mark with the current stack, thread, time and CPU. */
void km_debug_mark(struct kmem_record_mark *mark);
void km_debug_read_mark(const struct kmem_record_mark *mark, struct km_stack_track *track);
/* Compute the seal of a mark. Each step is invertible, so a change of either word always changes the seal. */
km_inline uint64_t km_debug_mark_seal(const struct kmem_record_mark *mark)
{
	uint64_t seal = ((uintptr_t)mark ^ km_load(&mark->who)) * KM_DEBUG_FACTOR;

	seal = (seal ^ seal >> 32 ^ km_load(&mark->when)) * KM_DEBUG_FACTOR;
	return seal ^ seal >> 32;
}
/* Returns: false if the mark was overwritten; the contents must then be ignored. */
km_inline bool km_debug_is_sealed(const struct kmem_record_mark *mark)
{
	return km_load(&mark->seal) == km_debug_mark_seal(mark);
}

/* ---- debug_check.c: the bytes around an object, and their expected values */

/* State of an object. DAMAGED means only: the state word was overwritten. */
enum km_debug_state {
	KM_DEBUG_FREE, KM_DEBUG_TAKEN,
	KM_DEBUG_CHANGES,		/* a thread allocates or frees the object now */
	KM_DEBUG_DAMAGED,
};

/* Address of an object's state word: bits 32 up hold the bytes requested by the user, bits 0 to 31 the state. The state
 * is sealed with the requested bytes and the object's address, so an overwritten or copied word has no valid state. */
km_inline uint64_t *km_debug_word(const struct kmem_cache *cache, const void *object)
{
	return (uint64_t *)((char *)object + cache->layout.freeptr + sizeof(void *));
}
_Static_assert(sizeof(uint64_t) == KM_DEBUG_WORD, "as engine.h says");
/* values of the states FREE, TAKEN, CHANGES in the state word */
static const uint32_t km_debug_states[] = { 0x6b6b0f1e, 0xcccc0a1d, 0x5a5a0c2b };
km_inline uint32_t km_debug_seal_of(const void *object, uint32_t asked)
{
	return (uint32_t)(((uintptr_t)object ^ asked) * KM_DEBUG_FACTOR >> 32);
}
km_inline uint64_t km_debug_sealed(const void *object, enum km_debug_state state, uint32_t asked)
{
	km_debug(state < KM_DEBUG_DAMAGED, "no valid state word has the damaged bit");
	return (uint64_t)asked << 32 | (km_debug_seal_of(object, asked) ^ km_debug_states[state]);
}

struct km_debug_seen {
	uint64_t word;
	enum km_debug_state state;
	uint32_t asked;			/* requested bytes; if the word is damaged, the object's size */
	bool waits;			/* freed, but not yet given to the engine, or lost: the link has no defined
					 * value */
};
km_inline struct km_debug_seen km_debug_judge(const struct kmem_cache *cache, const void *object, uint64_t word)
{
	const uint32_t asked = (uint32_t)(word >> 32), said = (uint32_t)word ^ km_debug_seal_of(object, asked);
	struct km_debug_seen seen = { word, KM_DEBUG_FREE, asked, false };

	while (seen.state < KM_DEBUG_DAMAGED && km_debug_states[seen.state] != said)
		seen.state++;
	if (km_unlikely(seen.state == KM_DEBUG_DAMAGED || asked > cache->layout.object_size))
		return (struct km_debug_seen){ word, KM_DEBUG_DAMAGED, cache->layout.object_size, false };
	return seen;
}
/* Read the state. Acquire pairs with the store or compare-and-swap of the word: the object's bytes match the state. */
km_inline struct km_debug_seen km_debug_look(const struct kmem_cache *cache, const void *object)
{
	return km_debug_judge(cache, object, km_load_acquire(km_debug_word(cache, object)));
}

/* Tracks of an object: [0] allocation, [1] free. Requires: SLAB_STORE_USER. */
km_inline struct kmem_record_mark *km_debug_marks(const struct kmem_cache *cache, const void *object)
{
	return (struct kmem_record_mark *)(km_debug_word(cache, object) + 1);
}

/* Returns: the bytes of an object usable by the caller, or 0 if the cache is not debugged. */
size_t km_debug_bytes(const struct kmem_cache *cache, const void *object);

/* A range of bytes with one expected value, or (unsealed) a word or track with an invalid seal. */
struct km_debug_region {
	const char *what;		/* the kernel's name of the region */
	unsigned char *at;
	size_t bytes;
	unsigned char value;
	const char *title;		/* title of the report; NULL: `what` and "overwritten" */
	bool unsealed;
	uint64_t found, wanted;		/* only for the state word: its present and its expected value */
};
#define KM_DEBUG_REGIONS 10u
/* Find the first wrong byte (*from) and the end of the last wrong byte (*to). Returns: false if all bytes are
 * correct. */
bool km_debug_differs(const struct km_debug_region *region, unsigned char **from, unsigned char **to);
/* Returns: the padding of a slab: bytes used neither by objects nor by the engine. */
struct km_debug_region km_debug_slab_padding(const struct kmem_cache *cache, const struct km_page *slab);
/* Returns: true for kmalloc caches with red zones, where the red zone begins behind the requested bytes. */
km_inline bool km_debug_is_narrowed(const struct kmem_cache *cache)
{
	return (cache->layout.flags & (SLAB_KMALLOC | SLAB_RED_ZONE)) == (SLAB_KMALLOC | SLAB_RED_ZONE);
}
/* Fill the bytes behind the requested ones with the red-zone value. */
void km_debug_fill_asked(const struct kmem_cache *cache, void *object, size_t bytes);
/* Write the expected bytes around a free object, or around a taken object of `asked` bytes; or of the slab's
 * padding. */
void km_debug_fill(const struct kmem_cache *cache, void *object, bool taken, uint32_t asked);
void km_debug_fill_padding(const struct kmem_cache *cache, const struct km_page *slab);
/* km_debug_taken: the engine's bitmap of 64 objects from index 64 * `word` on; bit set: taken. km_debug_first_free:
 * the free object with the lowest address, or NULL; *used: number of taken objects. */
uint64_t km_debug_taken(struct kmem_cache *cache, struct km_page *slab, unsigned word);
void *km_debug_first_free(struct kmem_cache *cache, struct km_page *slab, unsigned *used);
/* Guess the state of an object with a damaged state word from the engine's record and the surrounding bytes. */
bool km_debug_seems_taken(const struct kmem_cache *cache, void *object, bool engine_says);
/*
 * km_debug_check reports and repairs the damage of a free or taken object; km_debug_check_padding does the same for a
 * slab's padding. A report may end the process. The caller must repair the state word.
 *
 * Returns: the number of damaged regions. slab NULL: the slab is looked up from the object.
 */
struct km_page *km_debug_slab(const void *object);
unsigned km_debug_check(struct kmem_cache *cache, struct km_page *slab, void *object, struct km_debug_seen seen,
			bool taken, const char *function);
unsigned km_debug_check_padding(struct kmem_cache *cache, struct km_page *slab, const char *function);

/* ---- debug_large.c */

/* Start debugging of large blocks (whole pages) if KMEM_DEBUG asks for it. Requires: KMEM_DEBUG has been read. */
void km_debug_blocks_start(void);
bool km_debug_blocks_have_tracks(void);
/* Find the allocation track of a large block and the requested bytes. Returns: NULL if the page begins no block, or
 * the block was freed or has no track. */
const struct kmem_record_mark *km_debug_block_mark(const struct km_page *page, size_t *asked);

/* ---- debug_report.c */

/* Subject of a report: the slab, and the object (NULL: the report is about the slab). */
struct km_debug_about {
	struct kmem_cache *cache;
	struct km_page *slab;
	char *object;
};
/* Print "BUG cache: title" and the known details. Requires: report lines stand between begin and end, which hold
 * back the lines of other threads. */
void km_debug_report_begin(const struct km_debug_about *about, const char *title);
/* Prints a region of a report. start: address of the slab or block from which the offset counts. */
void km_debug_report_region(const struct km_debug_region *region, const void *start);
void km_debug_report_end(const struct km_debug_about *about);
/* Print the misuse line of an overwritten object or slab, below the report. The line may end the process. */
void km_debug_misuse(const struct km_debug_about *about, const char *function);
struct km_debug_block {
	const void *at;
	size_t bytes;
	const struct kmem_record_mark *marks;	/* tracks of allocation and free; NULL: the report has no tracks */
};
/* Report damage of a large block. region: the damaged bytes; NULL: unknown, and the title names the damage. */
void km_debug_report_block(const struct km_debug_block *block, const struct km_debug_region *region, const char *title);
/* Announce the repair of a region. */
void km_debug_report_restored(const struct kmem_cache *cache, const struct km_debug_region *region);
/* Report how the damage was repaired or contained. */
void km_debug_report_fix(const struct kmem_cache *cache, const char *format, ...);
/* Print the allocation or free track of an object, if known. */
void km_debug_report_track(const struct km_debug_about *about, bool alloc);
/* Print one object with its tracks, as one entry of a list of objects. */
void km_debug_report_object(const struct km_debug_about *about);

#endif
