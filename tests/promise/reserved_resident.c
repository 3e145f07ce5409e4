/*
 * reserved_resident.c: after kmem_reserve(cache, n) so many allocations make no system call and no page fault, also
 * at the first write; for a cache with charged objects as well, and still after a release of all free memory. A
 * refused call changes nothing, and pages no longer reserved go back. Disciplines: all. With hardened:
 * own_addresses:0, because here pages go from one name to another.
 */
#define _GNU_SOURCE

#include <kmem/memcg.h>

#include "kit/api.h"
#include "kit/cpus.h"
#include "kit/faults.h"
#include "kit/rollup.h"

#include "page/commit_ahead.h"
#include "page/arena.h"
#include "os/os.h"

#define SIZE	500u
#define MANY	20000u

static char *objects[MANY];
static unsigned calls;

static bool count_calls(const char *call)
{
	(void)call;
	calls++;
	return false;
}

static void take(struct kmem_cache *cache, gfp_t gfp)
{
	for (unsigned i = 0; i < MANY; i++) {
		objects[i] = kmem_cache_alloc(cache, gfp);
		if (!objects[i])
			break;
		memset(objects[i], 1, SIZE);
	}
}

static void give(struct kmem_cache *cache)
{
	for (unsigned i = 0; i < MANY; i++)
		if (objects[i])
			kmem_cache_free(cache, objects[i]);
}

/* The code has run before, and the arrays are there. */
static void warm(slab_flags_t flags)
{
	/* On a CPU new to the program, the per-CPU words of its caches are missing. */
	stay_here();
	struct kmem_cache *cache = kmem_cache_create("warm", SIZE + 40, NULL, flags);

	NEED(cache && kmem_reserve(cache, 100) == 0);
	take(cache, GFP_KERNEL);
	give(cache);
	program_pages();
	gone(cache);
	kmem_shrink_all();
	km_os_fault = count_calls;
}

static void no_fault(struct kmem_cache *cache, gfp_t gfp)
{
	long came = 1;

	for (int i = 0; came && i < FAULTS_TRIES; i++) {
		NEED(!i || (kmem_cache_shrink(cache) == 0 && kmem_reserve(cache, MANY) == 0));
		calls = 0;
		long before = page_faults();
		take(cache, gfp);
		came = page_faults() - before;
		unsigned made = calls;
		NEED(objects[MANY - 1]);
		NEED(!made || gfp == GFP_KERNEL, "(%u calls)", made);
		give(cache);
	}
	NEED(!came, "(%ld faults)", came);
}

static void nothing_is_missing_by(gfp_t gfp)
{
	warm(0);
	struct kmem_cache *cache = make("reserved", SIZE);
	NEED(kmem_reserve(cache, MANY) == 0);
	no_fault(cache, gfp);
	gone(cache);
}

static void nothing_is_missing(void)
{
	nothing_is_missing_by(GFP_ATOMIC);
}

static void nor_where_calls_wait(void)
{
	nothing_is_missing_by(GFP_KERNEL);
}

/* The reservation survives each release of free memory; and again after a new reservation. */
static void it_stays(void)
{
	warm(0);
	struct kmem_cache *cache = make("stays", SIZE);
	NEED(kmem_reserve(cache, MANY) == 0);
	kmem_shrink_all();
	no_fault(cache, GFP_ATOMIC);
	NEED(kmem_cache_shrink(cache) == 0);
	kmem_shrink_all();
	NEED(kmem_reserve(cache, MANY) == 0);
	no_fault(cache, GFP_ATOMIC);
	gone(cache);
}

static size_t dirty(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_free_dirty;
}

static void it_goes(void)
{
	struct kmem_cache *cache = make("goes", SIZE), *other = make("other", SIZE);

	NEED(kmem_reserve(cache, MANY) == 0 && kmem_reserve(other, MANY / 4) == 0);
	kmem_shrink_all();
	NEED(dirty() >= MANY / 4 * 5 * SIZE / 4096);
	NEED(kmem_reserve(cache, MANY / 4) == 0);
	kmem_shrink_all();
	NEED(dirty() >= MANY / 2 * SIZE / 4096 && dirty() < MANY * SIZE / 4096, "(%zu)", dirty());
	NEED(kmem_reserve(cache, 0) == 0);
	kmem_cache_destroy(other);
	kmem_shrink_all();
	NEED(dirty() == 0 && km_ahead_level() == 0, "(%zu, %zu)", dirty(), km_ahead_level());
	gone(cache);
}

/* The records of the reserved pages and objects go back, too. */
static void records_go(void)
{
	struct kmem_cache *cache = make("records", SIZE);

	kmem_shrink_all();
	unsigned long before = rollup_kb("Anonymous");
	NEED(kmem_reserve(cache, 10 * MANY) == 0 && kmem_reserve(cache, 0) == 0);
	kmem_shrink_all();
	unsigned long after = rollup_kb("Anonymous");
	NEED(after < before + 1024, "(%lu KiB, before %lu)", after, before);
	NEED(kmem_check_all() == 0);
	gone(cache);
}

static void charged(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "group", 0), *old;

	if (slob)
		return;
	old = set_active_memcg(group);
	warm(SLAB_ACCOUNT);
	struct kmem_cache *cache = kmem_cache_create("charged", SIZE, NULL, SLAB_ACCOUNT);
	NEED(cache && kmem_reserve(cache, MANY) == 0);
	no_fault(cache, GFP_KERNEL);
	set_active_memcg(old);
	gone(cache);
	mem_cgroup_put(group);
}

/* ------------------------------------------------------------------ refusals */

static unsigned refuse_from;

static bool refuse(const char *call)
{
	return strcmp(call, "fault in") == 0 && calls++ >= refuse_from;
}

static void refused(void)
{
	struct kmem_cache *cache = make("refused", SIZE);

	for (refuse_from = 0; refuse_from < 6; refuse_from++) {
		calls = 0;
		km_os_fault = refuse;
		NEED(kmem_reserve(cache, MANY) == -ENOMEM && km_ahead_level() == 0);
		km_os_fault = NULL;
		kmem_shrink_all();
		NEED(dirty() == 0);
		NEED(kmem_check_all() == 0);
	}
	NEED(kmem_reserve(cache, MANY) == 0);
	gone(cache);
}

/* A system that refuses each call for memory. */
static bool refuse_all(const char *call)
{
	(void)call;
	return true;
}

/*
 * A smaller reservation needs no system call; an equal one may need some, and keeps the old
 * reservation at a failure.
 */
static void fewer_where_all_is_refused(void)
{
	struct kmem_cache *cache = make("fewer", SIZE);

	NEED(kmem_reserve(cache, MANY) == 0);
	size_t level = km_ahead_level();
	/* The reserved memory is not resident. */
	NEED(kmem_cache_shrink(cache) == 0);
	take(cache, GFP_KERNEL);
	km_os_fault = refuse_all;
	int same = kmem_reserve(cache, MANY);
	NEED((same == 0 || same == -ENOMEM) && km_ahead_level() == level);
	NEED(kmem_reserve(cache, MANY / 2) == 0);
	NEED(km_ahead_level() < level && km_ahead_level() >= MANY / 2 * SIZE / 4096, "(%zu)", km_ahead_level());
	km_os_fault = NULL;
	give(cache);
	NEED(kmem_reserve(cache, 0) == 0 && km_ahead_level() == 0, "(%zu)", km_ahead_level());
	gone(cache);
}

static const struct test_case cases[] = {
	{ "nothing is missing", nothing_is_missing },
	{ "nor where calls wait", nor_where_calls_wait },
	{ "it stays", it_stays },
	{ "it goes", it_goes },
	{ "records go", records_go },
	{ "charged", charged },
	{ "refused", refused },
	{ "fewer where all is refused", fewer_where_all_is_refused },
};
API_MAIN(cases)
