/*
 * trim_rounds.c: with thousands of caches a tick visits a few, and later ticks visit the others: each cache once a
 * round, in the order of creation, also with caches destroyed meanwhile. The cached objects of all go back in the
 * end. The test sets the clock.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/cpus.h"
#include "kit/check.h"
#include "kit/clock.h"
#include "alloc/fast_path.h"
#include "page/arena.h"
#include "kit/inside.h"

TEST_IS_INSIDE

#define CACHES	3000u
#define MOST	256u	/* visited by one tick */

static struct kmem_cache *caches[CACHES];
static unsigned visits[CACHES], in_tick, out_of_order;
static int last = -1;

/* The test's caches have an engine that counts visits. */
static const struct km_engine *real;
static struct km_engine counting;

static size_t count_reap(struct kmem_cache *cache)
{
	int at = atoi(kmem_cache_name(cache));

	visits[at]++;
	in_tick++;
	/* Quiet rounds come twice to each. */
	out_of_order += at < last;
	last = at == (int)CACHES - 1 ? -1 : at;
	return real->reap(cache);
}

static unsigned tick(long ms)
{
	ahead_ms += ms;
	in_tick = 0;
	struct km_busy_was was = km_busy_begin();
	km_alloc_tick();
	km_busy_end(was);
	return in_tick;
}

/* Until a tick without a visit. */
static unsigned long round_of(unsigned most)
{
	unsigned long sum = 0;

	for (unsigned now; (now = tick(20)); sum += now)
		if (now > most) {
			printf("a tick visits %u caches\n", now);
			failures++;
		}
	return sum;
}

static void make_all(void)
{
	char name[32];

	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), "%u", i);
		NEED((caches[i] = kmem_cache_create(name, 64, 8, 0, NULL)));
		real = caches[i]->layout.engine;
		counting = *real;
		counting.reap = count_reap;
		caches[i]->layout.engine = &counting;
	}
}

static size_t with_slabs(void)
{
	struct kmem_cache_stats stats;
	size_t count = 0;

	for (unsigned i = 0; i < CACHES; i++)
		if (caches[i]) {
			kmem_cache_get_stats(caches[i], &stats);
			count += stats.total_slabs != 0;
		}
	return count;
}

int main(void)
{

	stay_here();
	make_all();
	km_arena_set(false, 600000);
	/* The pages released below are few compared with these. */
	struct km_busy_was was = km_busy_begin();
	for (int i = 0; i < 32; i++)
		NEED(km_pages_alloc(KM_MAX_ORDER, -1, true, NULL));
	km_busy_end(was);
	/* Work due before the test set the decay. */
	ahead_ms += 2000;
	while (tick(20))
		;
	for (unsigned i = 0; i < CACHES; i++) {
		void *object = kmem_cache_alloc(caches[i], GFP_KERNEL);

		NEED(object);
		kmem_cache_free(caches[i], object);
		visits[i] = 0;
	}
	NEED(with_slabs() == CACHES);
	/* An ordinary round. */
	out_of_order = 0;
	last = -1;
	ahead_ms += 301000;
	CHECK(round_of(MOST) == CACHES && !out_of_order);
	for (unsigned i = 0; i < CACHES; i++)
		NEED(visits[i] == 1);
	/* Some caches are destroyed in the middle of a round, among them the next one. */
	ahead_ms += 301000;
	unsigned some = tick(20);
	NEED(some > 0 && some < CACHES);
	for (unsigned i = 0; i < CACHES; i += i % 3 + 1) {
		kmem_cache_destroy(caches[i]);
		caches[i] = NULL;
	}
	round_of(MOST);
	CHECK(!out_of_order);
	for (unsigned i = 0; i < CACHES; i++)
		NEED(!caches[i] || visits[i] == 2 || visits[i] == 3);
	NEED(kmem_check_all() == 0);
	/* No tick for longer than the decay: each cache is visited twice, by as many ticks as needed. */
	NEED(with_slabs() > 0);
	ahead_ms += 601000;
	round_of(2 * 4 * MOST);
	CHECK(with_slabs() == 0);
	NEED(kmem_check_all() == 0);
	return failures != 0;
}
