/*
 * harden.c: zeros, canaries and the quarantine of a cache with validated frees.
 *
 *	zeros		freed objects are zeroed (zero_on_free), or allocated objects (zero_on_alloc)
 *	canary		8 bytes behind the object, made of the secret and the address; the lowest byte is 0, so no
 *			string reads or writes the other bytes. Set at allocation, checked at free
 *	quarantine	a freed object takes a place drawn at random; the former object of the place is freed instead
 *
 * Invariant: an object in the quarantine is not allocated, and its byte (page/alloc_map.h) is 0. A place is exchanged
 * by one atomic instruction, so any thread may exchange, also in a signal handler. The places fill few cache lines.
 */
#include "harden.h"

#include "page/metadata.h"
#include "base/bits.h"
#include "os/secret.h"

#define MOST_PLACES	64u
#define MOST_BYTES	((size_t)64 << 10)	/* bytes in quarantine for one cache; but at least 4 places */
#define LEAST_PLACES	4u

struct km_quarantine {
	uint32_t places;
	void *place[MOST_PLACES];
};

static uint64_t canary_of(const void *at)
{
	return (km_hardening.secret ^ __builtin_bswap64((uintptr_t)at)) & ~(uint64_t)0xff;
}

static uint64_t *canary_at(const struct kmem_cache *cache, const void *object)
{
	return (uint64_t *)((char *)object + cache->ext.canary);
}

void km_parts_begin(struct kmem_cache *cache)
{
	const bool keeps = cache->form.ctor || cache->layout.flags & SLAB_TYPESAFE_BY_RCU;

	cache->ext.wiped = km_hardening.zero_on_free && !keeps;
	cache->ext.zeroed = km_hardening.zero_on_alloc && !keeps && !cache->ext.wiped;
	if (km_hardening.quarantine && !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU))
		cache->ext.quarantine = km_metadata_alloc(sizeof(*cache->ext.quarantine), true);
	if (cache->ext.quarantine)
		cache->ext.quarantine->places = (uint32_t)km_max(
			km_min(MOST_BYTES / cache->layout.size, (size_t)MOST_PLACES),
			(size_t)LEAST_PLACES);
	cache->ext.comes_in_parts = cache->ext.zeroed || cache->ext.canary;
	cache->ext.goes_in_parts = cache->ext.canary || cache->ext.quarantine;
	cache->ext.comes_slowly = cache->ext.comes_in_parts;
	cache->ext.parts = cache->ext.wiped || cache->ext.goes_in_parts;
}

void km_parts_end(struct kmem_cache *cache)
{
	km_debug(!km_parts_waiting(cache), "a destroyed cache has no quarantined object");
	km_metadata_free(cache->ext.quarantine, sizeof(*cache->ext.quarantine));
	cache->ext.quarantine = NULL;
	cache->ext.parts = cache->ext.comes_in_parts = cache->ext.goes_in_parts = false;
}

static km_cold void overwritten(const struct kmem_cache *cache, const void *object, const char *function)
{
	km_misuse(KM_MISUSE_OVERWRITTEN, function, object, cache->registry.name);
}

void km_parts_comes(struct kmem_cache *cache, void *object)
{
	if (cache->ext.zeroed)
		__builtin_memset(object, 0, cache->layout.cleared);
	if (cache->ext.canary)
		*canary_at(cache, object) = canary_of(canary_at(cache, object));
}

/* Reports a write after a free: the wiped bytes of an object that leaves the quarantine must be zeros. */
static void check_zeros(const struct kmem_cache *cache, const void *object)
{
	const uint64_t *word = object;
	uint64_t seen = 0;

	for (size_t i = 0; i < cache->layout.cleared / sizeof(*word); i++)
		seen |= word[i];
	if (km_unlikely(seen))
		overwritten(cache, object, "kmem_cache_free");
}

static void *exchange(struct kmem_cache *cache, void *object)
{
	struct km_quarantine *quarantine = cache->ext.quarantine;
	/* Acquire and release: the thread that gets the other object sees all earlier stores to the object. */
	void *other = __atomic_exchange_n(&quarantine->place[km_random_below(quarantine->places)], object,
					  __ATOMIC_ACQ_REL);

	km_debug(other != object, "an object is in one place of the quarantine");
	if (other && cache->ext.wiped)
		check_zeros(cache, other);
	return other;
}

void *km_parts_goes(struct kmem_cache *cache, void *object)
{
	if (cache->ext.canary && km_unlikely(*canary_at(cache, object) != canary_of(canary_at(cache, object))))
		overwritten(cache, object, "kmem_cache_free");
	if (cache->ext.wiped)
		km_wipe(object, cache->layout.cleared);
	return cache->ext.quarantine ? exchange(cache, object) : object;
}

void km_parts_flush(struct kmem_cache *cache)
{
	struct km_quarantine *quarantine = cache->ext.quarantine;

	for (uint32_t i = 0; quarantine && i < quarantine->places; i++) {
		void *object = __atomic_exchange_n(&quarantine->place[i], NULL, __ATOMIC_ACQ_REL);

		km_debug(km_thread.busy, "quarantined objects are freed with signal handlers kept out");
		if (object)
			cache->layout.engine->give(cache, &object, 1);
	}
}

size_t km_parts_waiting(const struct kmem_cache *cache)
{
	const struct km_quarantine *quarantine = km_load(&cache->ext.quarantine);
	size_t count = 0;

	for (uint32_t i = 0; quarantine && i < quarantine->places; i++)
		count += km_load(&quarantine->place[i]) != NULL;
	return count;
}
