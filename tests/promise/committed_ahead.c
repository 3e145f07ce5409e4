/*
 * committed_ahead.c: calls that may wait commit pages ahead for calls that may not wait: the reserved amount, and
 * twice the amount taken by such calls since the last tick. A process without such calls and without reservations
 * commits nothing ahead.
 */
#include "kit/api.h"

#include "page/commit_ahead.h"
#include "page/arena.h"
#include "os/lock.h"
#include "os/os.h"

#define SIZE	2048u		/* this size leaves no free rests on pages of engine slob; each
				 * search would walk the rests */
#define MANY	40000u
#define ROUNDS	60u
#define EACH	512u		/* objects in a round: more than a tenth of what is committed at once */
#define WARM	20u		/* rounds with possible failures */
_Static_assert(ROUNDS * EACH <= MANY, "");

static void *objects[MANY];

static size_t take(struct kmem_cache *cache, size_t want)
{
	size_t got = 0;

	while (got < want && (objects[got] = kmem_cache_alloc(cache, GFP_NOWAIT)))
		got++;
	return got;
}

static void give(struct kmem_cache *cache, size_t count)
{
	while (count)
		kmem_cache_free(cache, objects[--count]);
}

static void reserved_for_a_cache(void)
{
	struct kmem_cache *cache = make("reserved", SIZE), *other = make("other", SIZE);

	NEED(take(cache, MANY) < MANY);
	NEED(kmem_reserve(other, MANY) == 0);
	NEED(km_ahead_level() * KM_PAGE_SIZE >= (size_t)MANY * SIZE);
	NEED(take(other, MANY) == MANY);
	/* The new number replaces the old one. Pages taken raise the level at the next tick, in any call. */
	struct km_busy_was was = km_busy_begin();
	km_ahead_top_up();
	km_busy_end(was);
	size_t level = km_ahead_level();
	NEED(kmem_reserve(other, MANY / 2) == 0 && km_ahead_level() < level);
	NEED(kmem_reserve(other, 0) == 0);
	NEED(km_ahead_level() + (size_t)MANY * SIZE / KM_PAGE_SIZE <= level);
	NEED(kmem_check_all() == 0);
}

static void gone_with_its_cache(void)
{
	struct kmem_cache *cache = make("gone", SIZE);

	NEED(kmem_reserve(cache, MANY) == 0);
	NEED(km_ahead_level());
	kmem_cache_destroy(cache);
	NEED(!km_ahead_level());
}

static bool refuse(const char *call)
{
	return strncmp(call, "commit", 6) == 0;
}

static void refused(void)
{
	struct kmem_cache *cache = make("refused", SIZE);

	NEED(kmem_reserve(cache, SIZE_MAX / 2) == -ENOMEM && !km_ahead_level());
	km_os_fault = refuse;
	NEED(kmem_reserve(cache, MANY) == -ENOMEM && !km_ahead_level());
	km_os_fault = NULL;
	NEED(kmem_reserve(cache, MANY) == 0);
	NEED(take(cache, MANY) == MANY);
}

static void child_has_it_too(void)
{
	struct kmem_cache *cache = make("child", SIZE);
	int status;

	NEED(kmem_reserve(cache, MANY) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child)
		_exit(take(cache, MANY) != MANY);
	NEED(waitpid(child, &status, 0) == child && status == 0);
}

/* In each round a call that may wait runs a tick. */
static void grow_with(struct kmem_cache *cache, void (*come_by)(struct kmem_cache *cache, size_t have))
{
	size_t have = 0, failed = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < EACH; i++) {
			void *p = kmem_cache_alloc(cache, GFP_NOWAIT);

			failed += !p && round >= WARM;
			if (p)
				objects[have++] = p;
		}
		come_by(cache, have);
	}
	NEED(failed == 0 && km_ahead_level());
	give(cache, have);
	NEED(kmem_check_all() == 0);
}

/* More than any CPU keeps ready: each is a miss. */
static void allocate(struct kmem_cache *cache, size_t have)
{
	void *p = kmalloc(257 * KM_PAGE_SIZE, GFP_KERNEL);

	NEED(p);
	kfree(p);
}

/* Some of the last come back, and go again as they did: only frees may wait. */
static void free_some(struct kmem_cache *cache, size_t have)
{
	enum { SOME = 256 };

	for (size_t i = 0; i < SOME && i < have; i++)
		kmem_cache_free(cache, objects[have - 1 - i]);
	for (size_t i = 0; i < SOME && i < have; i++)
		NEED((objects[have - 1 - i] = kmem_cache_alloc(cache, GFP_NOWAIT)));
}

static void who_allocates_commits(void)
{
	grow_with(make("grows", SIZE), allocate);
}

static void who_frees_commits(void)
{
	grow_with(make("grows", SIZE), free_some);
}

/* A slab and a large block at a time, now and then for half a minute: until nothing is asked for. */
static void falls_without_demand(void)
{
	struct kmem_cache *cache = make("falls", SIZE);

	NEED(!km_ahead_level());
	grow_with(cache, allocate);
	km_arena_set(false, 10);
	for (int i = 0; km_ahead_level() && i < 3000; i++) {
		usleep(10000);
		allocate(cache, 0);
	}
	NEED(!km_ahead_level());
}

static void nothing_without_demand(void)
{
	struct kmem_cache *cache = make("ordinary", SIZE);
	struct kmem_stats stats;

	for (size_t i = 0; i < MANY; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	kmem_get_stats(&stats);
	NEED(!km_ahead_level());
	NEED(stats.arena_committed_bytes - stats.pages_used * KM_PAGE_SIZE <= 2 * (KM_PAGE_SIZE << KM_MAX_ORDER));
	give(cache, MANY);
	NEED(!km_ahead_level());
}

static const struct test_case cases[] = {
	{ "reserved for a cache", reserved_for_a_cache },
	{ "gone with its cache", gone_with_its_cache },
	{ "refused", refused },
	{ "a child has it, too", child_has_it_too },
	{ "who allocates commits", who_allocates_commits },
	{ "who frees commits", who_frees_commits },
	{ "falls without demand", falls_without_demand },
	{ "nothing without demand", nothing_without_demand },
};

API_MAIN(cases)
