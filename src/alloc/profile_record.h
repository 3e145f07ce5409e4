/*
 * profile_record.h: a profile of allocations: samples by stack, taken while the program runs (the record for readers:
 * <kmem/record.h>). Invariants: without a profile, fast path and slow path cost no more than with tracer support
 * (km_alloc_probing). During a profile no call is a fast path. The tables are never freed. Lower folders know one hook,
 * NULL in a static program without profiles.
 */
#ifndef KM_ALLOC_PROFILE_RECORD_H
#define KM_ALLOC_PROFILE_RECORD_H

#include <kmem/record.h>

#include "slab/engine.h"

#define KM_PROFILE_ROW		8u	/* slots in the row of an object */

/* x / q, where q = 1 - exp(-x) is the probability of a sample; for x up to 1. */
static inline double km_profile_series(double x)
{
	const double s = x * x;

	return 1 + x * (1. / 2) + s * (1. / 12) - s * s * (1. / 720 - s * (1. / 30240));
}

/* Returns: the number of objects that a sample stands for: 1 / q, where q is the probability that an object of x =
 * bytes / mean is sampled. Up to x = 1 by the series above; beyond, from q at a small x, by steps q = 1 - (1 - q)^2
 * that each double x. */
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

/* Data that each call reads during a profile. */
struct km_profile_now {
	uint64_t *tags;			/* a byte for each slot: 0: free, else made of the object's address; a row is
					 * one word */
	uint32_t number;		/* number of this profile; a thread with another number starts its counts
					 * anew */
};
extern km_hidden struct km_profile_now km_profile_now;

/* Counts allocated bytes. Returns: true if the object is a sample, or the thread's first in this profile. */
km_inline bool km_profile_is_due(size_t bytes)
{
	const int64_t left = km_thread.profile.left - (int64_t)bytes;

	km_thread.profile.left = left;
	return km_unlikely(left <= 0) || km_unlikely(km_thread.profile.number != km_load(&km_profile_now.number));
}

/* Returns: the row of slots in which a sample at this address is, if it is in the table. */
km_inline size_t km_profile_row(const void *p)
{
	return (uintptr_t)p * 0x9e3779b97f4a7c15ull >> 51;
}
_Static_assert(KMEM_PROFILE_SLOTS == KM_PROFILE_ROW << 13, "a row has a number of 13 bits");

/* Returns: false if the object at p is no sample, as for nearly every object. */
km_inline bool km_profile_may_have(const void *p)
{
	return km_unlikely(km_load(&km_profile_now.tags[km_profile_row(p)]));
}

/* The hook of profiles (base/cc.h). due, comes, goes: also called in a signal handler, with no lock held; take no
 * lock, and keep errno. cache NULL: a block of whole pages. may_wait: the call may make system calls; then a sample
 * may check for the end of the profile. site: the return address of the call, or near. */
struct kmem_mail_request;
struct km_profile_ops {
	/* KMEM_OPTIONS=profile: a profile from the first object on. Called before the first cache is made. */
	void (*start)(uint64_t mean);
	/* is_wanted: a profile is requested, a hint. begin, end: start and stop the profile, with the registry locked.
	 * Returns: false without memory. */
	bool (*is_wanted)(void);
	bool (*begin)(void);
	void (*end)(void);
	/* Samples an object for which km_profile_is_due returned true. */
	void (*due)(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait, uintptr_t site);
	void (*comes)(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait);
	void (*goes)(const void *p);
	/* Executes a request of another process (cache/mailbox.h), with the registry locked. Returns: 0 or -errno. */
	int (*ask)(const struct kmem_mail_request *request);
	const struct kmem_profile_record *record;
};
extern km_hidden const struct km_profile_ops *km_profile_ops;
/* For tests: makes the choice of samples the same in each run; 0: random samples. */
void km_profile_seed(uint64_t seed);

#endif
