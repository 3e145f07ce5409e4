/*
 * nomem.h: a scripted run over all requests for memory that survives any refusal: the script goes on without
 * refused memory, and checks and frees the rest. Afterwards no memory may be missing.
 */
#ifndef NOMEM_H
#define NOMEM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#define CHECK_FD 2
#include "kit/check.h"

#include "cache/cache.h"

#define HELD_OBJECTS 6000
#define FILLED 5000	/* bytes of a block written and checked */

static unsigned refused;	/* NULLs of this run */

struct held {
	unsigned char *p;
	size_t bytes;
};

static struct held held[HELD_OBJECTS];
static size_t held_count;

static void hold(void *p, size_t bytes)
{
	if (!p) {
		NEED(errno == ENOMEM);
		refused++;
		return;
	}
	NEED(held_count < HELD_OBJECTS);
	memset(p, (int)(held_count & 0xff), bytes < FILLED ? bytes : FILLED);
	held[held_count++] = (struct held){ p, bytes };
}

static void let_go(struct kmem_cache *cache, size_t from)
{
	while (held_count > from) {
		struct held *h = &held[--held_count];
		size_t filled = h->bytes < FILLED ? h->bytes : FILLED;

		/* Each byte equals the byte before. */
		NEED(h->p[0] == (held_count & 0xff) && memcmp(h->p, h->p + 1, filled - 1) == 0);
		if (cache)
			kmem_cache_free(cache, h->p);
		else
			kvfree(h->p);
	}
}

/* Prefilled sheaves: of a sheaf's size, and larger. Prefilled objects are always available. */
static void use_sheaves(struct kmem_cache *cache)
{
	struct slab_sheaf *sheaves[6];
	size_t mark = held_count;

	for (unsigned i = 0; i < 6; i++) {
		unsigned n = i < 4 ? 2 : 300;

		sheaves[i] = kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, n);
		if (!sheaves[i]) {
			NEED(errno == ENOMEM);
			refused++;
			continue;
		}
		for (unsigned j = 0; j < n; j++) {
			void *p = kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT, sheaves[i]);

			NEED(p);
			hold(p, kmem_cache_size(cache));
		}
		int error = kmem_cache_refill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, &sheaves[i],
						    n + i);
		NEED(error == 0 || error == -ENOMEM);
		NEED(error || kmem_cache_sheaf_size(sheaves[i]) >= n + i);
		refused += error != 0;
	}
	for (unsigned i = 0; i < 6; i++)
		kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaves[i]);
	let_go(cache, mark);
}

/* A new cache: objects one by one, zeroed, in bulk; shrunk, destroyed. */
static void use_cache(const char *engine, unsigned size, unsigned count)
{
	struct kmem_cache_args args = { .engine = engine };
	size_t mark = held_count;
	void *objects[200];
	struct kmem_cache *cache = kmem_cache_create("scripted", size, &args, 0);

	if (!cache) {
		NEED(errno == ENOMEM);
		refused++;
		return;
	}
	for (unsigned i = 0; i < count; i++)
		hold(kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN), size);
	hold(kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN | __GFP_ZERO), size);
	if (kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 200, objects))
		kmem_cache_free_bulk(cache, 200, objects);
	else
		refused++;
	use_sheaves(cache);
	kmem_cache_shrink(cache);
	let_go(cache, mark);
	NEED(kmem_cache_shrink(cache) == 0);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 0 && stats.total_slabs == 0);
	kmem_cache_destroy(cache);
}

static void use_sizes(void)
{
	size_t mark = held_count;

	for (size_t size = 8; size <= 64 << 10; size = size * 3 / 2)
		for (int i = 0; i < 20; i++)
			hold(kmalloc(size, GFP_KERNEL | __GFP_NOWARN), size);
	let_go(NULL, mark);
}

/* Mappings of their own, grown and shrunk. */
static void use_mappings(void)
{
	size_t mark = held_count;

	for (size_t mib = 1; mib < 24; mib += 5) {
		unsigned char *p = kvzalloc(mib << 20, GFP_KERNEL | __GFP_NOWARN), *moved;

		if (!p) {
			NEED(errno == ENOMEM);
			refused++;
			continue;
		}
		NEED(!p[0] && !p[(mib << 20) - 1]);
		memset(p, 0x5c, 4096);
		moved = kvrealloc(p, (mib + 6) << 20, GFP_KERNEL | __GFP_NOWARN);
		if (moved)
			p = moved;
		else
			refused++;
		NEED(p[0] == 0x5c && p[4095] == 0x5c);
		hold(p, 4096);
	}
	let_go(NULL, mark);
}

static void script(void)
{
	refused = 0;
	use_cache("sheaf", 24, 500);
	use_cache("sheaf", 512, 3000);
	use_cache("sheaf", 4096, 600);
	if (km_engine_find("slub")) {
		use_cache("slub", 64, 1000);
		use_cache("slub", 4096, 1500);
	}
	use_cache("slob", 24, 500);
	use_cache("slob", 600, 1500);
	use_cache("slob", 5000, 200);
	if (km_engine_find("slab")) {
		use_cache("slab", 24, 500);
		use_cache("slab", 200, 2000);
		use_cache("slab", 4096, 600);
	}
	/* Linked by tests/engine/bumped. */
	if (km_engine_find("bump")) {
		use_cache("bump", 24, 500);
		use_cache("bump", 4096, 600);
	}
	use_sizes();
	use_mappings();
	kmem_shrink_all();
}

static int count_left(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (stats.active_objects || stats.total_slabs) {
		fprintf(stderr, "%s: %lu objects in %lu slabs\n", stats.name, stats.active_objects,
			stats.total_slabs);
		++*(int *)arg;
	}
	return 0;
}

/* All objects of the script are freed; refusals are over. */
static void nothing_lost(void)
{
	struct kmem_stats all;
	int left = 0;

	kmem_shrink_all();
	kmem_for_each_cache(count_left, &left);
	NEED(left == 0);
	kmem_get_stats(&all);
	NEED(all.pages_used == 0);
	NEED(all.large_blocks == 0 && all.mapped_blocks == 0);
	NEED(kmem_check_all() == 0);
}

#endif
