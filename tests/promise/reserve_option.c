/*
 * reserve_option.c: KMEM_OPTIONS=reserve: a program whose calls may never wait gets the reserved amount, again and
 * again.
 */
#include "kit/api.h"

#define RESERVE	((size_t)64 << 20)
#define SIZE	1000u

static void *objects[RESERVE / SIZE];

/* The library's own use and the waste of slabs are less than a twentieth. */
static void all_of_it(void)
{
	struct kmem_cache *cache = make("all of it", SIZE);
	const size_t want = RESERVE / SIZE / 20 * 19;

	for (int turn = 0; turn < 3; turn++) {
		for (size_t i = 0; i < want; i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_ATOMIC | __GFP_NOWARN)));
		for (size_t i = 0; i < want; i++)
			kmem_cache_free(cache, objects[i]);
	}
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "all of it", all_of_it },
};

API_MAIN_OPTIONS(cases, ",reserve:64M")
