/*
 * profile_record.h: what a profile of allocations is: samples by stack, taken while the program runs, and the record
 * in which a reader from outside finds them. Invariants: while none is taken nothing is in a hit or a miss but what a
 * tracer costs (km_alloc_probing); while one is taken no call is a hit. Lower floors know one hook, which is NULL in
 * a static program without profiles.
 *
 * The record's drawing stays, or has another version. The reader may be of another build: it takes the bytes of a site
 * and of a slot from the record, and relies on the fields up to those that it knows. It reads while others write: each
 * figure is whole, the sum of several need not be of one moment. The tables are never given back.
 */
#ifndef KM_ALLOC_PROFILE_RECORD_H
#define KM_ALLOC_PROFILE_RECORD_H

#include "slab/engine.h"

#define KM_PROFILE_VERSION	2u
#define KM_PROFILE_FRAMES	38u		/* of a stack, from the call into the library on */
#define KM_PROFILE_SITES	4096u		/* stacks, by cache and group */
#define KM_PROFILE_SLOTS	65536u		/* samples that are out */
#define KM_PROFILE_ROW		8u		/* slots in which an object may be */
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
	uint64_t bytes, parts;		/* allocated since it began; parts: where `each` is 0 */
	uint32_t samples, depth;
	uint32_t group;			/* its number; 0: nobody's, or the root's */
	uint32_t each;			/* bytes of each object; 0: they differ */
	char cache[KM_NAME_BYTES];	/* "": a large block of no class */
	char group_name[KM_NAME_BYTES];	/* cut */
	uintptr_t frame[KM_PROFILE_FRAMES];
};

/* A sampled object that is out: 0 free, 1 changes hands. Together they are what a site has out. */
struct km_profile_slot {
	uintptr_t p;
	uint64_t what;			/* its bytes, and in the upper 16 bits its site */
};
#define KM_PROFILE_SITE_SHIFT	48
#define KM_PROFILE_MOST_BYTES	(((uint64_t)1 << KM_PROFILE_SITE_SHIFT) - 1)

/* x / q, where a sample is one with the probability q = 1 - exp(-x); for x up to 1. */
static inline double km_profile_series(double x)
{
	const double s = x * x;

	return 1 + x * (1. / 2) + s * (1. / 12) - s * s * (1. / 720 - s * (1. / 30240));
}

/*
 * How many objects a sample stands for: 1 / q, x = bytes / mean. For most by that series; beyond, q by a series near
 * 0, and 1 - (1 - q)^2 doubles x.
 */
static inline double km_profile_times(double x)
{
	unsigned doublings = 0;

	if (__builtin_expect(x <= 1, 1))
		return km_profile_series(x) / x;
	if (x >= 40)
		return 1;
	for (; x > 1. / 32; x *= 0.5)
		doublings++;
	double q = x * (1 - x * (1. / 2) * (1 - x * (1. / 3) * (1 - x * (1. / 4) * (1 - x * (1. / 5)))));
	while (doublings--)
		q *= 2 - q;
	return 1 / q;
}

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

/* How far a thread is from its next sample. */
struct km_profile_thread {
	int64_t left;			/* bytes */
	int64_t next;			/* from that one to the next; 0: not drawn yet */
	uint32_t number;		/* of the profile that these are of */
	uint64_t random;
};
extern km_hidden km_tls struct km_profile_thread km_profile_thread;

/* Each call looks at these while a profile is taken. */
struct km_profile_now {
	uint64_t *tags;			/* a byte for each slot: 0 free, else of its address; a word for each row */
	uint32_t number;		/* of the profile */
};
extern km_hidden struct km_profile_now km_profile_now;

/* So many bytes more were allocated: is this object a sample, or the thread's first in this profile? */
km_inline bool km_profile_is_due(size_t bytes)
{
	const int64_t left = km_profile_thread.left - (int64_t)bytes;

	km_profile_thread.left = left;
	return km_unlikely(left <= 0) || km_unlikely(km_profile_thread.number != km_load(&km_profile_now.number));
}

/* An object may lie in one of the slots of its row, and nowhere else. */
km_inline size_t km_profile_row(const void *p)
{
	return (uintptr_t)p * 0x9e3779b97f4a7c15ull >> 51;
}
_Static_assert(KM_PROFILE_SLOTS == KM_PROFILE_ROW << 13, "a row has a number of 13 bits");

/* Of nearly every object it is known by one look that it is no sample. */
km_inline bool km_profile_may_have(const void *p)
{
	return km_unlikely(km_load(&km_profile_now.tags[km_profile_row(p)]));
}

/*
 * The hook of profiles (base/cc.h). due, comes, goes: also in a signal handler, with no lock held; they
 * take none, and change no errno. cache NULL: a block of whole pages. may_wait: the call may make system calls; then a
 * sample is an occasion to look whether the profile is over. site: where the call returns to, or thereabouts.
 */
struct km_mail_request;
struct km_profile_ops {
	/* KMEM_OPTIONS=profile: from the first object on. Before the first cache is made. */
	void (*start)(uint64_t mean);
	/* Is one to be taken now? A look. begin, end: with the registry locked. False: there is no memory. */
	bool (*is_wanted)(void);
	bool (*begin)(void);
	void (*end)(void);
	/* An object that km_profile_is_due has said so of. */
	void (*due)(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait, uintptr_t site);
	void (*comes)(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait);
	void (*goes)(const void *p);
	/* A request from outside (cache/mailbox.h), with the registry locked: 0 or -errno. */
	int (*ask)(const struct km_mail_request *request);
	const struct km_profile_record *record;
};
extern km_hidden const struct km_profile_ops *km_profile_ops;
/* For tests: the same samples each time; 0: others. */
void km_profile_seed(uint64_t seed);

#endif
