/*
 * sheaf_fill: pages of a partial slab whose memory went back are resident again when the cache is reserved. After a
 * refusal half-way, no resident page counts as released. Slabs whose last object is freed meanwhile go, also in the
 * child of a fork by another thread. Disciplines: all. With hardened: own_addresses:0, because here a freed page
 * counts as free.
 */
#include "kit/engine.h"

#include <pthread.h>
#include <sys/wait.h>

#include "kit/holes.h"

static struct kmem_cache *filled;
static unsigned fills;
static bool inside;

static bool is_fill(const char *call)
{
	return !strcmp(call, "fault in") && filled && sheaf_node(filled, 0)->in_hand;
}

static bool refuse_the_second(const char *call)
{
	return is_fill(call) && ++fills == 2;
}

/* Pages that count as released, and are resident. */
static unsigned both(void)
{
	const struct sheaf_node *n = sheaf_node(filled, 0);
	unsigned count = 0;

	km_list_for_each(entry, &n->slabs.partial) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);

		for (unsigned page = 0; page < 1u << slab->order; page++) {
			unsigned char is;

			NEED(!mincore((char *)km_page_address(slab) + page * KM_PAGE_SIZE, 1, &is));
			count += slab[page].flags & KM_PAGE_GONE && is & 1;
		}
	}
	return count;
}

/* All releasable pages go, and a part of them comes back. */
static void go_and_come_half_way(unsigned slabs)
{
	kmem_cache_shrink(filled);
	CHECK_EQUAL(all_resident(), slabs);
	CHECK_EQUAL(both(), 0);
	fills = 0;
	km_os_fault = refuse_the_second;
	CHECK_EQUAL(kmem_reserve(filled, MANY), -ENOMEM);
	km_os_fault = NULL;
	CHECK_EQUAL(fills, 2);
	CHECK_EQUAL(both(), 0);
}

static void refused_half_way(void)
{
	unsigned slabs = thinned(&filled), pages = all_resident();

	go_and_come_half_way(slabs);
	/* The pages that came back go again; the other pages come back at the next reservation. */
	go_and_come_half_way(slabs);
	CHECK_EQUAL(kmem_reserve(filled, MANY), 0);
	CHECK(all_resident() >= pages);
	CHECK_EQUAL(kmem_reserve(filled, 0), 0);
	CHECK_EQUAL(both(), 0);
	done(filled, SIZE);
	filled = NULL;
}

static size_t pages_used(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_used;
}

static size_t pages_before;

static void *free_all(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < MANY; i++)
		if (objects[i]) {
			kmem_cache_free(filled, objects[i]);
			objects[i] = NULL;
		}
	send_home(filled);
	return NULL;
}

static void look_in_child(void)
{
	struct kmem_cache_stats stats = { .name = "" };

	km_os_fault = NULL;
	kmem_reserve(filled, 0);
	kmem_cache_shrink(filled);
	INSIDE(filled->layout.engine->stats(filled, &stats));
	_exit(stats.total_slabs || pages_used() > pages_before);
}

static void *fork_it(void *unused)
{
	int status;
	pid_t child = fork();

	(void)unused;
	if (!child)
		look_in_child();
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	CHECK_EQUAL(status, 0);
	return NULL;
}

static void in_thread(void *(*what)(void *unused))
{
	pthread_t thread;

	NEED(!pthread_create(&thread, NULL, what, NULL) && !pthread_join(thread, NULL));
}

/* At the first all objects come back; from then on slabs leave the list, and there is a fork at each. */
static bool free_then_fork(const char *call)
{
	if (!is_fill(call) || inside)
		return false;
	inside = true;
	fills++;
	in_thread(fills == 1 ? free_all : fork_it);
	inside = false;
	return false;
}

static void forked_meanwhile(void)
{
	begin();
	filled = fresh(SIZE);
	fill(filled, SIZE);
	free_all(NULL);
	kmem_cache_shrink(filled);
	kmem_shrink_all();
	pages_before = pages_used();
	fill(filled, SIZE);
	thin_out(filled);
	kmem_cache_shrink(filled);
	fills = 0;
	km_os_fault = free_then_fork;
	CHECK_EQUAL(kmem_reserve(filled, MANY), 0);
	km_os_fault = NULL;
	CHECK(fills > 2);
	kmem_reserve(filled, 0);
	kmem_cache_shrink(filled);
	CHECK(pages_used() <= pages_before);
	done(filled, SIZE);
	filled = NULL;
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "refused half-way", refused_half_way },
		{ "forked meanwhile", forked_meanwhile },
	};

	return run_in_turn(cases, km_array_count(cases), 20);
}
