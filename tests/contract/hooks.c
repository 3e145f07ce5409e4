/*
 * hooks.c: the socket for those who watch. Disciplines: all. Each object passes on_alloc and on_free once, whichever
 * way it goes; an object that on_alloc refuses goes back, and one that on_free keeps does not.
 */
#include "api.h"

#include "front/front.h"
#include "inside.h"

#define OBJECTS 500

static unsigned long shown, hidden;
static bool refuse, keep;
static void *kept;

static void *on_alloc(struct kmem_cache *cache, void *object, gfp_t gfp)
{
	if (refuse)
		return NULL;
	shown++;
	return object;
}

static bool on_free(struct kmem_cache *cache, void *object)
{
	hidden++;
	if (keep)
		kept = object;
	return !keep;
}

static const struct km_hooks hooks = { .on_alloc = on_alloc, .on_free = on_free };

static struct kmem_cache *watched(void)
{
	struct kmem_cache *cache = make("watched", 200);

	/* As its makers do: before anybody uses it. */
	cache->hooks = &hooks;
	INSIDE(km_front_drain(cache));
	shown = hidden = 0;
	return cache;
}

static size_t active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

static void every_object(void)
{
	struct kmem_cache *cache = watched();
	static void *objects[OBJECTS];

	for (int i = 0; i < OBJECTS; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	NEED(shown == OBJECTS);
	for (int i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(hidden == OBJECTS);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, OBJECTS, objects));
	NEED(shown == 2 * OBJECTS);
	kmem_cache_free_bulk(cache, OBJECTS, objects);
	NEED(hidden == 2 * OBJECTS && active(cache) == 0);
	kmem_cache_destroy(cache);
}

static void refused(void)
{
	struct kmem_cache *cache = watched();

	refuse = true;
	for (int i = 0; i < OBJECTS; i++)
		NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
	NEED(!kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_NOWARN));
	refuse = false;
	NEED(active(cache) == 0 && hidden == 0);
	kmem_cache_destroy(cache);
}

static void kept_back(void)
{
	struct kmem_cache *cache = watched();
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	keep = true;
	kmem_cache_free(cache, p);
	keep = false;
	NEED(kept == p && active(cache) == 1);
	NEED(kmem_cache_alloc(cache, GFP_KERNEL) != p);
	kmem_cache_free(cache, p);
	NEED(hidden == 2 && active(cache) == 1);
}

static const struct api_case cases[] = {
	{ "every object is seen", every_object },
	{ "refused", refused },
	{ "kept", kept_back },
};

API_MAIN(cases)
