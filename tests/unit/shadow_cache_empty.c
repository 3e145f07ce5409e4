/*
 * shadow_cache_empty: a cache switched to debugging for a while is as before once no object of this time is allocated,
 * and not sooner: also if quarantined frees go back between two reads of their count. Here the cache was created with
 * debugging, and was switched off.
 */
#include <stdlib.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "alloc/harden.h"
#include "kit/check.h"
#include "ext/debug/debug_shadow.h"

#define MANY	100
#define OUT	40
#define FREED	30

static void *object[MANY];
static const struct km_engine *real;

/* Another thread drains just then. */
static void stats(struct kmem_cache *cache, struct kmem_cache_stats *out)
{
	km_parts_flush(cache);
	real->stats(cache, out);
}

/* Others free meanwhile. */
static size_t shrink(struct kmem_cache *cache)
{
	size_t slabs = real->shrink(cache);

	for (int i = 0; i < FREED; i++)
		km_parts_goes(cache, object[i]);
	return slabs;
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		setenv("KMEM_OPTIONS", "hardened:1,quarantine:1", 1);
		execl("/proc/self/exe", argv[0], "hardened", NULL);
		NEED(!"no exec");
	}
	struct kmem_cache *cache = kmem_cache_create("cache", 64, NULL, SLAB_RED_ZONE);
	NEED(cache && kmem_cache_set_debug(cache, "-") == 0);
	struct kmem_cache *shadow = cache->ext.shadows->first;
	NEED(shadow && shadow->ext.quarantine);
	for (int i = 0; i < MANY; i++)
		NEED((object[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (int i = OUT; i < MANY; i++)
		kmem_cache_free(cache, object[i]);
	real = shadow->layout.engine;
	struct km_engine other = *real;
	other.stats = stats;
	other.shrink = shrink;
	shadow->layout.engine = &other;
	NEED(kmem_cache_set_debug(cache, "Z") == 0);
	CHECK(cache->ext.shadows->out, "objects are out, and frees would not look whose they are");
	/* Without a merge of its objects. */
	_exit(failures != 0);
}
