/*
 * trace_attach.c: a tracer comes, or goes, or a profile begins, or ends: while one is attached to a probe of calls
 * that would be hits (alloc/tracer.h), or a profile is taken (alloc/profile_record.h), each cache has hooks, which do
 * nothing, and so no shelf that a hit finds: every call is a miss, and passes the probe and the profile. Invariant:
 * km_alloc_probing says what the caches' hooks say, with the registry locked.
 *
 * The tracer writes a counter, and nobody is told; a profile ends by the clock. Both are looked at by the tick, that is
 * by misses; so a thread that only hits goes on unseen until somebody misses. Nothing is in a hit.
 */
#include "os/die.h"
#include "alloc/tracer.h"
#include "cache.h"

#define AT_ONCE 64u	/* caches that have one fence */

struct changed {
	struct kmem_cache *cache[AT_ONCE];
	size_t count;
};

static void drain(struct changed *changed)
{
	if (changed->count)
		km_alloc_drain_all(changed->cache, changed->count);
	changed->count = 0;
}

static int change(struct kmem_cache *cache, void *arg)
{
	const struct km_hooks *hooks = km_load(&cache->hooks);
	struct changed *changed = arg;

	if (hooks && hooks != &km_probe_hooks)
		return 0;
	km_store(&cache->hooks, km_alloc_probing ? &km_probe_hooks : NULL);
	km_layers_choose(cache);
	changed->cache[changed->count++] = cache;
	if (changed->count == AT_ONCE)
		drain(changed);
	return 0;
}

/* Bits of enum km_probing. */
static uint32_t wanted_now(void)
{
	return (km_tracer_is_wanted() ? KM_PROBING_TRACER : 0u) |
	       (km_profile_ops && km_profile_ops->is_wanted() ? KM_PROBING_PROFILE : 0u);
}

/* With the registry locked: a profile that begins has memory; one that ends is said to be over. */
static uint32_t settle(uint32_t wanted)
{
	const uint32_t changes = (wanted ^ km_alloc_probing) & KM_PROBING_PROFILE;

	if (changes && !(wanted & KM_PROBING_PROFILE))
		km_profile_ops->end();
	else if (changes && !km_profile_ops->begin())
		wanted &= ~(uint32_t)KM_PROBING_PROFILE;
	return wanted;
}

void km_probes_look(void)
{
	struct changed changed = { .count = 0 };
	uint32_t wanted = wanted_now();

	if (km_likely(wanted == km_load(&km_alloc_probing)) || !km_registry_trylock())
		return;
	wanted = settle(wanted);
	if (wanted != km_alloc_probing) {
		km_debug(!(wanted & ~(uint32_t)(KM_PROBING_TRACER | KM_PROBING_PROFILE)), "who looks is known");
		/* Release pairs with who takes samples: a profile's tables are there. */
		km_store_release(&km_alloc_probing, wanted);
		km_alloc_want_sizes(false);
		km_registry_each(change, &changed);
		drain(&changed);
	}
	km_registry_unlock();
}
