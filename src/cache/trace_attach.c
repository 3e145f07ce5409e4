/*
 * trace_attach.c: attach and detach a tracer, begin and end a profile. With a tracer attached to a probe of fast-path
 * calls (alloc/tracer.h), or during a profile (alloc/profile_record.h), each cache has hooks that do nothing. The
 * hooks close the sheaves for the fast path: every call is a miss and passes the probe and the profile. Invariant:
 * with the registry locked, km_alloc_probing agrees with the caches' hooks.
 *
 * The tracer writes a counter, without any notification; a profile ends by the clock. The tick checks both, at
 * misses. A thread with hits only stays unobserved until some thread misses. The fast path has no code for probes.
 */
#include "alloc/tracer.h"
#include "cache.h"

#define AT_ONCE 64u	/* caches drained with one fence */

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
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);
	struct changed *changed = arg;

	if (hooks && hooks != &km_probe_hooks)
		return 0;
	km_store(&cache->ext.hooks, km_alloc_probing ? &km_probe_hooks : NULL);
	km_layers_choose(cache);
	changed->cache[changed->count++] = cache;
	if (changed->count == AT_ONCE)
		drain(changed);
	return 0;
}

/* Returns: the bits of enum km_probing that are wanted now. */
static uint32_t wanted_now(void)
{
	return (km_tracer_is_wanted() ? KM_PROBING_TRACER : 0u) |
	       (km_profile_ops && km_profile_ops->is_wanted() ? KM_PROBING_PROFILE : 0u);
}

/* Begin or end a profile. Context: registry locked. Returns: `wanted`, without a profile if there is no memory. */
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
		km_debug(!(wanted & ~(uint32_t)(KM_PROBING_TRACER | KM_PROBING_PROFILE)), "the observer is known");
		/* Release pairs with the code that takes samples: the profile's tables exist. */
		km_store_release(&km_alloc_probing, wanted);
		km_alloc_want_sizes(false);
		km_registry_each(change, &changed);
		drain(&changed);
	}
	km_registry_unlock();
}
