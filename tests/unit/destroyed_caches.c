/*
 * destroyed_caches.c: a destroyed cache leaves its record, and no other metadata (docs/design/bounds.md): the record
 * stays for late callers. Records have pages of their own, so the metadata of a cache's nodes goes back to the system.
 */
#include <stdio.h>

#include <kmem/stats.h>

#include "kit/check.h"
#include "slab/engines.h"

#define CACHES		1024u
#define RECORD_BYTES	1024u

static size_t meta_bytes(void)
{
	struct kmem_stats stats;

	kmem_shrink_all();
	kmem_get_stats(&stats);
	return stats.meta_bytes;
}

static void make_and_destroy(const char *engine)
{
	static struct kmem_cache *cache[CACHES];
	struct kmem_cache_args args = { .engine = engine };

	for (unsigned i = 0; i < CACHES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "gone-%u", i);
		NEED((cache[i] = kmem_cache_create(name, 100, &args, 0)));
		void *object = kmem_cache_alloc(cache[i], GFP_KERNEL);
		NEED(object);
		kmem_cache_free(cache[i], object);
	}
	for (unsigned i = 0; i < CACHES; i++)
		kmem_cache_destroy(cache[i]);
}

int main(void)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	size_t before = meta_bytes();

	/* The caches of each engine reuse the records of the engine before. */
	for (unsigned i = 0; i < sizeof(engines) / sizeof(*engines); i++) {
		make_and_destroy(engines[i]);
		size_t after = meta_bytes();

		CHECK(after <= before + CACHES * (RECORD_BYTES + RECORD_BYTES / 8), "engine %s: %zu bytes for a cache",
		      engines[i], (after - before) / CACHES);
	}
	return failures != 0;
}
