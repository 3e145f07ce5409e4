/*
 * profile.h: what a profile of allocations is: samples by stack, taken while the program runs (watch/profile.c), and
 * the record in which a reader from outside finds them. Invariants: while none is taken nothing is in a hit or a miss
 * but what a tracer costs (km_front_probing); while one is taken no call is a hit. Lower floors know one table of
 * functions, which is weak: a static program without debugging does not contain it.
 *
 * The record's drawing stays, or has another version. The reader may be of another build: it takes the bytes of a site
 * and of a slot from the record, and relies on the fields up to those that it knows. It reads while others write: each
 * figure is whole, the sum of several need not be of one moment. The tables are never given back.
 */
#ifndef KM_FRONT_PROFILE_H
#define KM_FRONT_PROFILE_H

#include "../engine/engine.h"

#define KM_PROFILE_VERSION	1u
#define KM_PROFILE_FRAMES	38u		/* of a stack, from the call into the library on */
#define KM_PROFILE_SITES	4096u		/* stacks, by cache and group */
#define KM_PROFILE_SLOTS	65536u		/* samples that are out */
#define KM_PROFILE_MEAN		(512u << 10)	/* bytes between two samples; as jemalloc's and tcmalloc's */
#define KM_PROFILE_PART		256u		/* of an object: counts are in these */

enum km_profile_state {
	KM_PROFILE_NEVER,
	KM_PROFILE_ASKED,	/* it begins when the caches have hooks */
	KM_PROFILE_ON,
	KM_PROFILE_OVER,	/* its figures stay until the next one begins */
};

/* All that came by one stack from one cache for one group. Estimates, but for `samples`. */
struct km_profile_site {
	uint64_t hash;			/* 0: free; 1: somebody fills it in */
	uint64_t bytes, parts;		/* allocated since it began */
	uint64_t freed_bytes, freed_parts;	/* ... of them */
	uint32_t samples, depth;
	uint32_t group, unused;		/* group: its number; 0: nobody's, or the root's */
	char cache[KM_NAME_BYTES];	/* "": a large block of no class */
	char group_name[KM_NAME_BYTES];	/* cut */
	uintptr_t frame[KM_PROFILE_FRAMES];
};

/* A sampled object that is out: 0 free, 1 changes hands. */
struct km_profile_slot {
	uintptr_t p;
	uint64_t what;			/* its bytes, and in the upper 16 bits its site */
};

struct km_profile_record {
	uint32_t version, state;
	uint32_t number;		/* of the profile: each has another */
	uint32_t frames, sites, site_bytes, slots, slot_bytes;
	uint64_t mean;			/* bytes between two samples, on the average */
	uint64_t began_ms, ends_ms;	/* by the monotonic clock; ends 0: it does not, by itself */
	uint64_t lost;			/* for whose stack there was no site */
	uint64_t untracked;		/* ... or no slot: counted as allocated, not as out */
	struct km_profile_site *site;	/* NULL: none was ever taken */
	struct km_profile_slot *slot;
	char cache[KM_NAME_BYTES];	/* only what is this cache's; "": all */
};

/*
 * watch/profile.c, where it is linked in. comes, goes: also in a signal handler, with no lock held; they take none, and
 * change no errno. cache NULL: a block of whole pages. may_wait: the call may make system calls; then a sample is an
 * occasion to look whether the profile is over.
 */
struct km_profiling {
	/* KMEM_OPTIONS=profile: from the first object on. Before the first cache is made. */
	void (*start)(uint64_t mean);
	/* Is one to be taken now? A look. begin, end: with the registry locked. False: there is no memory. */
	bool (*is_wanted)(void);
	bool (*begin)(void);
	void (*end)(void);
	void (*comes)(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait);
	void (*goes)(const void *p);
	const struct km_profile_record *record;
};
extern const struct km_profiling km_profiling __attribute__((weak));

#endif
