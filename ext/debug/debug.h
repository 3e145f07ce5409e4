/*
 * debug.h: what the files of debugging share: the settings of KMEM_DEBUG, what lies around an object of a cache that is
 * debugged (slab/engine.h has the drawing), and how a damage is reported.
 */
#ifndef KM_DEBUG_H
#define KM_DEBUG_H

#include "cache/cache.h"
#include "inspect/stack.h"

extern km_hidden const struct km_debug_ops km_debugging;

/* ---- debug_options.c: KMEM_DEBUG */

/* Settings for all: each text replaces the one before. "help" changes nothing, and says what there is. */
void km_debug_read(const char *text);
/* Are all letters of it known? False: *letter is one that is not. */
bool km_debug_fits(const char *text, char *letter);
/* From now on caches have SLAB_STORE_USER, but those that refuse it. */
void km_debug_track_all(void);
/* The flags that letters without a list of names stand for; false: one of them stands for nothing. */
bool km_debug_letters(const char *text, slab_flags_t *flags);
/* The flags of a cache of that name, made with `flags`. *low: none that would make its slabs longer. */
slab_flags_t km_debug_flags_of(const char *name, slab_flags_t flags, bool *low);

/* ---- debug_traces.c */

/* kmem_print_leaks, without a look whether any cache has stacks, and without a lock while it writes. */
int km_debug_print_leaks(int fd);
/* Are there tracks for it? With the registry locked. */
bool km_debug_has_tracks(void);
/* As the program ends. -EINVAL where no cache has stacks: most of what is out is not known, and no total is. */
int km_debug_print_all_leaks(int fd);

/* ---- debug_stacks.c: a track as it lies beside an object, where a stack is a number */

#define KM_DEBUG_FACTOR 0x9e3779b97f4a7c15u	/* of hashes and seals */

struct km_debug_mark {
	uint64_t who;				/* the number; and the thread, from bit 32 on */
	uint64_t when;				/* ms, 0: never; and the CPU, from KM_DEBUG_CPU_SHIFT on */
	uint64_t seal;				/* over the rest, and where it lies */
};
#define KM_DEBUG_CPU_SHIFT 48
_Static_assert(sizeof(struct km_debug_mark) == KM_DEBUG_TRACK, "as engine.h says");

/* By number; the first is none, and says how many there can be. For readers outside of the process as well. */
struct km_debug_stack {
	uint32_t next;
	union { uint32_t hash, room; };
	uintptr_t frame[KM_STACK_FRAMES];
};
extern km_hidden struct km_debug_stack *km_debug_stacks;	/* NULL: nobody has asked for stacks */
/* Before any cache has marks. False: there is no memory, and stacks are not known. */
bool km_debug_stacks_start(void);
/* From here, now. */
void km_debug_mark(struct km_debug_mark *mark);
void km_debug_read_mark(const struct km_debug_mark *mark, struct km_stack_track *track);
/* Each step can be undone, so that no change of one word is lost on the way. */
km_inline uint64_t km_debug_mark_seal(const struct km_debug_mark *mark)
{
	uint64_t seal = ((uintptr_t)mark ^ km_load(&mark->who)) * KM_DEBUG_FACTOR;

	seal = (seal ^ seal >> 32 ^ km_load(&mark->when)) * KM_DEBUG_FACTOR;
	return seal ^ seal >> 32;
}
/* Else it was written over, and what it says is of no use. */
km_inline bool km_debug_is_sealed(const struct km_debug_mark *mark)
{
	return km_load(&mark->seal) == km_debug_mark_seal(mark);
}

/* ---- debug_check.c: the bytes around an object, and whether they are as they should be */

/* Each in turn, but the last: then somebody wrote over the word that says it. */
enum km_debug_state {
	KM_DEBUG_FREE, KM_DEBUG_TAKEN,
	KM_DEBUG_CHANGES,		/* by somebody, just now */
	KM_DEBUG_DAMAGED,
};

/*
 * The word beside an object: from bit 32 on the bytes that its user has of it, beneath them the state, sealed with
 * those bytes and the object's address. So a word that was written over, or copied from another object, says nothing.
 */
km_inline uint64_t *km_debug_word(const struct kmem_cache *cache, const void *object)
{
	return (uint64_t *)((char *)object + cache->freeptr + sizeof(void *));
}
_Static_assert(sizeof(uint64_t) == KM_DEBUG_WORD, "as engine.h says");
/* Free, taken, changing. */
static const uint32_t km_debug_states[] = { 0x6b6b0f1e, 0xcccc0a1d, 0x5a5a0c2b };
km_inline uint32_t km_debug_seal_of(const void *object, uint32_t asked)
{
	return (uint32_t)(((uintptr_t)object ^ asked) * KM_DEBUG_FACTOR >> 32);
}
km_inline uint64_t km_debug_sealed(const void *object, enum km_debug_state state, uint32_t asked)
{
	km_debug(state < KM_DEBUG_DAMAGED, "no word says that it is damaged");
	return (uint64_t)asked << 32 | (km_debug_seal_of(object, asked) ^ km_debug_states[state]);
}

struct km_debug_seen {
	uint64_t word;
	enum km_debug_state state;
	uint32_t asked;			/* of a word that is damaged: the whole object */
	bool waits;			/* freed, and not the engine's yet, or lost by it: its link is anybody's */
};
km_inline struct km_debug_seen km_debug_judge(const struct kmem_cache *cache, const void *object, uint64_t word)
{
	const uint32_t asked = (uint32_t)(word >> 32), said = (uint32_t)word ^ km_debug_seal_of(object, asked);
	struct km_debug_seen seen = { word, KM_DEBUG_FREE, asked, false };

	while (seen.state < KM_DEBUG_DAMAGED && km_debug_states[seen.state] != said)
		seen.state++;
	if (km_unlikely(seen.state == KM_DEBUG_DAMAGED || asked > cache->object_size))
		return (struct km_debug_seen){ word, KM_DEBUG_DAMAGED, cache->object_size, false };
	return seen;
}
/* Acquire pairs with those who change it: what they say of the object is so. */
km_inline struct km_debug_seen km_debug_look(const struct kmem_cache *cache, const void *object)
{
	return km_debug_judge(cache, object, km_load_acquire(km_debug_word(cache, object)));
}

/* [0]: it was allocated, [1]: it was freed; only with SLAB_STORE_USER. */
km_inline struct km_debug_mark *km_debug_marks(const struct kmem_cache *cache, const void *object)
{
	return (struct km_debug_mark *)(km_debug_word(cache, object) + 1);
}

/* The bytes that its user has of an object; 0: the cache is not debugged. */
size_t km_debug_bytes(const struct kmem_cache *cache, const void *object);

/* Bytes that should all have one value; or that have a seal, which does not fit. */
struct km_debug_region {
	const char *what;		/* as the kernel calls it */
	unsigned char *at;
	size_t bytes;
	unsigned char value;
	const char *title;		/* NULL: "WHAT overwritten" */
	bool unsealed;
	uint64_t found, wanted;		/* ... of the word of the state */
};
#define KM_DEBUG_REGIONS 10u
/* The first and the last byte of it that has another value, and one behind; false: there is none. */
bool km_debug_differs(const struct km_debug_region *region, unsigned char **from, unsigned char **to);
/* The bytes that the objects and the engine leave of a slab. */
struct km_debug_region km_debug_slab_padding(const struct kmem_cache *cache, const struct km_page *slab);
/* kmalloc's red zone begins where the user's bytes end. */
km_inline bool km_debug_is_narrowed(const struct kmem_cache *cache)
{
	return (cache->flags & (SLAB_KMALLOC | SLAB_RED_ZONE)) == (SLAB_KMALLOC | SLAB_RED_ZONE);
}
/* The bytes behind those that a user asked for are red zone. */
void km_debug_fill_asked(const struct kmem_cache *cache, void *object, size_t bytes);
/* They are as they should be of an object that is free, or of which a user has so many bytes; of a slab's rest. */
void km_debug_fill(const struct kmem_cache *cache, void *object, bool taken, uint32_t asked);
void km_debug_fill_padding(const struct kmem_cache *cache, const struct km_page *slab);
/* The objects that are taken, as far as the engine knows: 64 from 64 * `word` on. The first one, by its address, that
 * is not, or NULL; and how many are. */
uint64_t km_debug_taken(struct kmem_cache *cache, struct km_page *slab, unsigned word);
void *km_debug_first_free(struct kmem_cache *cache, struct km_page *slab, unsigned *used);
/* Its word is damaged: is it taken, where the engine says that it is (or not), and by what lies around it? */
bool km_debug_seems_taken(const struct kmem_cache *cache, void *object, bool engine_says);
/*
 * The damages of an object that is free or taken, with the word that was seen of it, and of a slab's padding: they are
 * told, and mended unless that ends the process; but the word of the state is the caller's to mend. Returns how many.
 * slab NULL: the object's.
 */
struct km_page *km_debug_slab(const void *object);
unsigned km_debug_check(struct kmem_cache *cache, struct km_page *slab, void *object, struct km_debug_seen seen,
			bool taken, const char *function);
unsigned km_debug_check_padding(struct kmem_cache *cache, struct km_page *slab, const char *function);

/* ---- debug_large.c */

/* KMEM_DEBUG has been read: blocks of whole pages are debugged if it says so. */
void km_debug_blocks_start(void);
bool km_debug_blocks_have_tracks(void);
/* By whom the block that begins there was allocated, and its bytes; NULL: it is none, was freed, or it is not known. */
const struct km_debug_mark *km_debug_block_mark(const struct km_page *page, size_t *asked);

/* ---- debug_report.c */

/* The slab, and the object of it (NULL: it is of no object), with what is known of both. */
struct km_debug_about {
	struct kmem_cache *cache;
	struct km_page *slab;
	char *object;
};
/* "BUG cache: title", and all that is known: to be called between begin and end, which keep others' lines out. */
void km_debug_report_begin(const struct km_debug_about *about, const char *title);
void km_debug_report_region(const struct km_debug_about *about, const struct km_debug_region *region);
void km_debug_report_end(const struct km_debug_about *about);
/* A block of whole pages; marks NULL: none is believed. region NULL: all that can be said is said by the title. */
struct km_debug_block {
	const void *at;
	size_t bytes;
	const struct km_debug_mark *marks;
};
void km_debug_report_block(const struct km_debug_block *block, const struct km_debug_region *region, const char *title);
/* It is about to be as it should be again. */
void km_debug_report_restored(const struct kmem_cache *cache, const struct km_debug_region *region);
/* A damage was mended, or shut off, so. */
void km_debug_report_fix(const struct kmem_cache *cache, const char *format, ...);
/* By whom it was allocated, or freed, if that is known. */
void km_debug_report_track(const struct km_debug_about *about, bool alloc);
/* The object with its tracks, and no more: a line of many. */
void km_debug_report_object(const struct km_debug_about *about);

#endif
