/*
 * debug.h: what the files of debugging share: the settings of KMEM_DEBUG, what lies around an object of a cache that is
 * debugged (engine/engine.h has the drawing), where it came from, and how a damage is reported.
 */
#ifndef KM_WATCH_DEBUG_H
#define KM_WATCH_DEBUG_H

#include "../cache/cache.h"

/* ---- debug_options.c: KMEM_DEBUG */

/* Settings for all: each text replaces the one before. "help" changes nothing, and says what there is. */
void km_debug_read(const char *text);
/* Some cache may have SLAB_STORE_USER by it. */
bool km_debug_may_track(void);
/* The flags of a cache of that name, made with `flags`. *low: none that would make its slabs longer. */
slab_flags_t km_debug_flags_of(const char *name, slab_flags_t flags, bool *low);

/* ---- debug_stack.c: where calls come from */

#define KM_DEBUG_FRAMES 16u
struct km_debug_track {
	uintptr_t frame[KM_DEBUG_FRAMES];	/* the call into the library first; 0: no more */
	uint64_t when;				/* ms; 0: never */
	uint32_t cpu, thread;
	uint64_t unused;
};
_Static_assert(sizeof(struct km_debug_track) == KM_DEBUG_TRACK, "as engine.h says");

/* libc can be asked for a stack from now on. */
void km_debug_stack_ready(bool tracks);
void km_debug_track(struct km_debug_track *track);
/* In a handler: the frames behind the one of `pc`, which was interrupted; returns how many. */
unsigned km_debug_stack_behind(uintptr_t pc, uintptr_t *frame, unsigned most);
/* "OBJECT+0xOFFSET", as `kmem symbols` reads it, or the bare address; returns text. */
const char *km_debug_place(uintptr_t address, char *text, size_t bytes);

/* ---- debug.c: the bytes around an object */

/* Each in turn. A word of any other value was overwritten. */
enum km_debug_state {
	KM_DEBUG_FREE = 0x6b6b0f1e, KM_DEBUG_TAKEN = 0xcccc0a1d,
	KM_DEBUG_CHANGES = 0x5a5a0c2bu,		/* by somebody, just now */
};

struct km_debug_word {
	uint32_t state;
	uint32_t asked;			/* bytes that its user has of it */
};
_Static_assert(sizeof(struct km_debug_word) == KM_DEBUG_WORD, "as engine.h says");

km_inline struct km_debug_word *km_debug_word(const struct kmem_cache *cache, const void *object)
{
	return (struct km_debug_word *)((char *)object + cache->freeptr + sizeof(void *));
}

/* [0]: it was allocated, [1]: it was freed; only with SLAB_STORE_USER. */
km_inline struct km_debug_track *km_debug_tracks(const struct kmem_cache *cache, const void *object)
{
	return (struct km_debug_track *)(km_debug_word(cache, object) + 1);
}

/* Bytes that should all have one value. */
struct km_debug_region {
	const char *what;		/* as the kernel calls it */
	unsigned char *at;
	size_t bytes;
	unsigned char value;
};
#define KM_DEBUG_REGIONS 6u
/* The regions of an object that is free, or taken; returns how many. */
unsigned km_debug_regions(const struct kmem_cache *cache, void *object, bool taken, struct km_debug_region *regions);
/* The first and the last byte of it that has another value, and one behind; false: there is none. */
bool km_debug_differs(const struct km_debug_region *region, unsigned char **from, unsigned char **to);
/* The bytes that the objects and the engine leave of a slab. */
struct km_debug_region km_debug_slab_padding(const struct kmem_cache *cache, const struct km_page *slab);

/* ---- debug_block.c */

/* KMEM_DEBUG has been read: blocks of whole pages are debugged if it says so. */
void km_debug_blocks_start(void);

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
/* A block of whole pages; tracks NULL: none is believed. region NULL: all that can be said is said by the title. */
struct km_debug_block {
	const void *at;
	size_t bytes;
	const struct km_debug_track *tracks;
};
void km_debug_report_block(const struct km_debug_block *block, const struct km_debug_region *region, const char *title);
/* The region is as it should be again, and that is said. */
void km_debug_restore(const struct kmem_cache *cache, const struct km_debug_region *region);

#endif
