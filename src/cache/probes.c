/*
 * probes.c: a tracer comes, or goes: while one is attached to a probe of calls that would be hits (port/probe.h),
 * each cache has hooks, which do nothing, and so no shelf that a hit finds: every call is a miss and passes the
 * probe. Invariant: km_front_probing says what the caches' hooks say, with the registry locked.
 *
 * The tracer writes a counter, and nobody is told. It is looked at by the tick, that is by misses; so a thread that
 * only hits goes on unseen until somebody misses. Nothing is in a hit.
 */
#include "../port/die.h"
#include "../port/probe.h"
#include "cache.h"

#define AT_ONCE 64u	/* caches that have one fence */

/* The shape that looks at hooks passes the probes (front/watched.c). */
const struct km_hooks km_probe_hooks;

struct changed {
	struct kmem_cache *cache[AT_ONCE];
	size_t count;
};

static void drain(struct changed *changed)
{
	if (changed->count)
		km_front_drain_all(changed->cache, changed->count);
	changed->count = 0;
}

static int change(struct kmem_cache *cache, void *arg)
{
	const struct km_hooks *hooks = km_load(&cache->hooks);
	struct changed *changed = arg;

	if (hooks && hooks != &km_probe_hooks)
		return 0;
	km_store(&cache->hooks, km_front_probing ? &km_probe_hooks : NULL);
	km_front_choose_shape(cache);
	changed->cache[changed->count++] = cache;
	if (changed->count == AT_ONCE)
		drain(changed);
	return 0;
}

void km_probes_look(void)
{
	struct changed changed = { .count = 0 };
	bool wanted = km_probe_is_wanted();

	if (km_likely(wanted == km_load(&km_front_probing)) || !km_registry_trylock())
		return;
	if (wanted != km_front_probing) {
		km_store(&km_front_probing, wanted);
		km_front_want_sizes(false);
		km_registry_each(change, &changed);
		drain(&changed);
	}
	km_registry_unlock();
}
