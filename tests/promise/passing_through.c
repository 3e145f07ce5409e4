/*
 * passing_through.c: a program that uses many caches, one after the other, and never comes back to them, has no more
 * resident than a few of them have; the library's clock stands still meanwhile, so nothing goes by age. A program that
 * goes round in the same caches finds its memory there. What lies ready stays where it is a small part of what is in
 * use, however much that grows, and in a cache that is missed all the time. Disciplines: all.
 */
#include <kmem/stats.h>

#include "kit/api.h"
#include "kit/clock.h"

#include "page/arena.h"
#include "port/os.h"

#define CACHES	64u
#define EACH	(2u << 20)	/* bytes of each cache that are out together */
#define STEP	512u		/* its objects are by so much larger than the one's before */
#define LAPS	4u
#define MOST	(16u << 20)	/* resident in the end; 46 MB of 128 once */

static struct kmem_cache *caches[CACHES];
static char *objects[EACH / STEP];
static unsigned fences;

static bool sheaf(void)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(caches[0], &stats);
	return !strcmp(stats.engine, "sheaf");
}

static void begin(void)
{
	for (unsigned i = 0; i < CACHES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "through-%u", i);
		caches[i] = make(name, (i + 1) * STEP);
	}
}

static void done(void)
{
	NEED(kmem_check_all() == 0);
	for (unsigned i = 0; i < CACHES; i++)
		gone(caches[i]);
}

static void use(unsigned i, unsigned bytes)
{
	const unsigned size = (i + 1) * STEP, count = bytes / size;

	for (unsigned at = 0; at < count; at++) {
		NEED((objects[at] = kmem_cache_alloc(caches[i], GFP_KERNEL)));
		memset(objects[at], 1, size);
	}
	for (unsigned at = 0; at < count; at++)
		kmem_cache_free(caches[i], objects[at]);
}

static size_t resident(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return (stats.pages_used + stats.pages_free_dirty) * 4096;
}

static void once(void)
{
	begin();
	size_t before = resident();
	for (unsigned i = 0; i < CACHES; i++)
		use(i, EACH);
	size_t left = resident() - before;
	printf("%zu KiB\n", left / 1024);
	CHECK(!sheaf() || left <= MOST, "%zu KiB", left / 1024);
	done();
}

/* Fresh pages are those that nobody touched, or that went to the system. */
static void round_and_round(void)
{
	struct kmem_stats first, last;

	begin();
	for (unsigned i = 0; i < CACHES; i++)
		use(i, EACH);
	kmem_get_stats(&first);
	for (unsigned lap = 1; lap < LAPS; lap++)
		for (unsigned i = 0; i < CACHES; i++)
			use(i, EACH);
	kmem_get_stats(&last);
	size_t went = (last.purged_pages - first.purged_pages) * 4096;
	printf("%zu KiB went, %zu are resident\n", went / 1024, resident() / 1024);
	CHECK(!sheaf() || went <= (LAPS - 1) * MOST, "%zu KiB", went / 1024);
	done();
}

static size_t ready(unsigned i)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(caches[i], &stats);
	return stats.shelf_objects;
}

static bool count_fences(const char *call)
{
	fences += !strcmp(call, "fence");
	return false;
}

/* 64 MiB more are live, and nobody is interrupted for a few objects that lie ready. */
static void a_small_part_stays(void)
{
	static char *live[4][EACH * 8 / STEP / 2];

	begin();
	use(3, 100 * 4 * STEP);
	size_t had = ready(3);
	km_os_fault = count_fences;
	for (unsigned i = 0; i < 4; i++)
		for (unsigned at = 0; at < EACH * 8 / STEP / (i + 1); at++)
			if (at < sizeof(live[i]) / sizeof(*live[i]))
				NEED((live[i][at] = kmem_cache_alloc(caches[i + 4], GFP_KERNEL)));
	km_os_fault = NULL;
	CHECK(!sheaf() || ready(3) == had, "%zu, not %zu", ready(3), had);
	CHECK(!sheaf() || !fences, "%u fences", fences);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned at = 0; at < sizeof(live[i]) / sizeof(*live[i]); at++)
			if (live[i][at])
				kmem_cache_free(caches[i + 4], live[i][at]);
	done();
}

/* Its objects come and go by more than lie ready, so that it is missed, beside all others. */
static void what_is_used_stays(void)
{
	begin();
	for (unsigned i = 1; i < CACHES; i++) {
		use(0, EACH / 4);
		use(i, EACH / 2);
		use(0, EACH / 4);
		CHECK(slob || ready(0), "nothing is ready after %u", i);
	}
	done();
}

static const struct test_case cases[] = {
	{ "once", once },
	{ "round and round", round_and_round },
	{ "a small part stays", a_small_part_stays },
	{ "what is used stays", what_is_used_stays },
};
API_MAIN(cases)
