/*
 * reserved_used.c: kmem_reserve of a used cache: with cached objects, with partial slabs, and with freed slabs of
 * objects never written to. So many allocations and first writes make no page fault all the same; also with
 * fragmented free pages. The library's clock stands still, because the first due tick writes to pages of its own.
 * With hardened: own_addresses:0, because freed slabs would be out of reach.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "kit/clock.h"
#include "kit/cpus.h"
#include "kit/faults.h"
#include "kit/reserved.h"

#include "page/arena.h"

#define MANY	3000u

static char *objects[MANY], *kept[MANY], *others[MANY];

static void take_and_write(struct kmem_cache *cache, unsigned size)
{
	for (unsigned i = 0; i < MANY; i++) {
		take(cache, objects + i, 1);
		for (unsigned at = 0; at < size; at += 512)
			objects[i][at] = 1;
		objects[i][size - 1] = 1;
	}
}

/* The code has run before, the arrays are there, and so are the words of the CPU. */
static void warm(unsigned size)
{
	stay_here();
	memset(objects, 0, sizeof(objects));
	memset(kept, 0, sizeof(kept));
	memset(others, 0, sizeof(others));
	struct kmem_cache *cache = make("warm", size + 8);
	NEED(kmem_reserve(cache, 100) == 0);
	take_and_write(cache, size);
	program_pages();
	give(cache, objects, MANY, false);
	gone(cache);
	kmem_shrink_all();
}

static long faults_of(void (*use)(struct kmem_cache *cache), unsigned size)
{
	warm(size);
	struct kmem_cache *cache = make("used", size);
	use(cache);
	NEED(kmem_reserve(cache, MANY) == 0);
	long before = page_faults();
	take_and_write(cache, size);
	long came = page_faults() - before;
	NEED(kmem_check_all() == 0);
	give(cache, objects, MANY, false);
	give(cache, kept, MANY, false);
	gone(cache);
	kmem_shrink_all();
	return came;
}

static void no_fault(void (*use)(struct kmem_cache *cache), unsigned size)
{
	long came = 1;

	for (int i = 0; came && i < FAULTS_TRIES; i++)
		came = faults_of(use, size);
	NEED(!came, "(%ld faults, size %u)", came, size);
}

static void for_sizes(void (*use)(struct kmem_cache *cache))
{
	static const unsigned sizes[] = { 24, 500, 2000, 5000, 20000 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		no_fault(use, sizes[i]);
}

static void use_one(struct kmem_cache *cache)
{
	take(cache, kept, 1);
	give(cache, kept, MANY, false);
}

static void are_cached(void)
{
	for_sizes(use_one);
}

static void use_many(struct kmem_cache *cache)
{
	take(cache, kept, MANY / 2);
	give(cache, kept, MANY / 2, true);
}

static void in_slabs(void)
{
	for_sizes(use_many);
}

static void use_up(struct kmem_cache *cache)
{
	take(cache, kept, MANY);
	give(cache, kept, MANY, false);
}

static void slabs_went(void)
{
	for_sizes(use_up);
}

/* Slabs of other caches stay in between; the freed slabs were never written to. */
static void in_pieces(struct kmem_cache *cache)
{
	static struct kmem_cache *stays, *goes;
	char **mine = others;

	if (!stays) {
		stays = make("stays", 4000);
		goes = make("goes", 3000);
	}
	give(stays, kept, MANY, false);
	for (unsigned i = 0; i < 600; i++) {
		take(stays, mine + i, 1);
		take(goes, kept + i, 1);
	}
	for (unsigned i = 0; i < 600; i++)
		if (i % 40) {
			kmem_cache_free(stays, mine[i]);
			mine[i] = NULL;
		}
	give(goes, kept, MANY, false);
	kmem_cache_shrink(stays);
	kmem_cache_shrink(goes);
	(void)cache;
}

static void pages_in_pieces(void)
{
	for_sizes(in_pieces);
}

static const struct test_case cases[] = {
	{ "cached", are_cached },
	{ "in slabs", in_slabs },
	{ "slabs went", slabs_went },
	{ "pages in pieces", pages_in_pieces },
};
API_MAIN(cases)
