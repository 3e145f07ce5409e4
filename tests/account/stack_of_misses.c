/*
 * stack_of_misses.c: the stack for a signal handler, as kmem(7) states, beside the kernel's frame: a miss takes at
 * most 5 KiB of stack, and 6 with a charge. Measured on a painted stack, in all branches of a miss: new slabs, full
 * sheaves, bulk, several groups, a limit and its reclaim, private groups; and while time passes, so that some miss
 * gives back idle memory. For code as the compiler's optimizer leaves the code. Disciplines: all.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "kit/clock.h"
#include "kit/charged_objects.h"

enum { STACK = 256 << 10, MANY = 3000, CACHED = 100, IDLE = 4, PLAIN = 5 << 10, CHARGED = 6 << 10 };
#define PAINT 0x5e

static unsigned char stack[STACK] __attribute__((aligned(4096)));
static void *objects[MANY];
static struct kmem_cache *cache, *idle[IDLE];
static struct mem_cgroup *groups[2];

/* ------------------------------------------------------------------ depth */

static void *run(void *work)
{
	((void (*)(void))work)();
	return NULL;
}

static void nothing(void)
{
}

/* With the thread's own start and end. */
static size_t bytes_of(void (*work)(void))
{
	size_t untouched = 0;
	pthread_attr_t how;
	pthread_t thread;

	memset(stack, PAINT, sizeof(stack));
	pthread_attr_init(&how);
	NEED(!pthread_attr_setstack(&how, stack, sizeof(stack)));
	NEED(!pthread_create(&thread, &how, run, (void *)work));
	pthread_join(thread, NULL);
	while (stack[untouched] == PAINT)
		untouched++;
	return sizeof(stack) - untouched;
}

static void takes(const char *what, void (*work)(void), size_t most)
{
	size_t bytes = bytes_of(work) - bytes_of(nothing);

	printf("%-20s %zu bytes\n", what, bytes);
#if defined(__OPTIMIZE__) && !defined(KM_DEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	NEED(bytes <= most, "%s", what);
#else
	(void)most;
#endif
}

/* ------------------------------------------------------------------ misses */

/* Caches objects in caches unused for a while: some miss of another cache drains them. */
static void leave_cached(void)
{
	void *some[CACHED];

	for (unsigned i = 0; i < IDLE; i++) {
		for (unsigned k = 0; k < CACHED; k++)
			some[k] = kmem_cache_alloc(idle[i], GFP_KERNEL | __GFP_NOWARN);
		for (unsigned k = 0; k < CACHED; k++)
			if (some[k])
				kmem_cache_free(idle[i], some[k]);
	}
}

static void time_passes(unsigned i)
{
	if (i % 8 == 0)
		ahead_ms += 600;
	if (i % CACHED == 0)
		leave_cached();
}

static void one_by_one(void)
{
	for (unsigned i = 0; i < MANY; i++) {
		time_passes(i);
		set_active_memcg(groups[i % 2]);
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN);
	}
	for (unsigned i = 0; i < MANY; i++) {
		time_passes(i);
		if (objects[i])
			kmem_cache_free(cache, objects[i]);
	}
}

static void in_bulk(void)
{
	for (unsigned i = 0; i < MANY; i += CACHED) {
		set_active_memcg(groups[i / CACHED % 2]);
		time_passes(i);
		if (kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, CACHED, objects))
			kmem_cache_free_bulk(cache, CACHED, objects);
		if (kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, CACHED, objects))
			kmem_cache_free_bulk(NULL, CACHED, objects);
	}
}

static void sizes(void)
{
	for (size_t size = 8; size < 6 << 20; size += size / 2) {
		void *p = kmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN), *grown = NULL;

		time_passes(0);
		if (p)
			grown = krealloc(p, size * 2, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		kfree(grown ? grown : p);
	}
}

static void measure(size_t most)
{
	takes("one by one", one_by_one, most);
	if (!slob)
		takes("in bulk", in_bulk, most);
	takes("sizes", sizes, most);
}

static void make_all(const char *name, slab_flags_t flags)
{
	cache = kmem_cache_create(name, 200, NULL, flags);
	NEED(cache);
	for (unsigned i = 0; i < IDLE; i++) {
		char other[16];

		snprintf(other, sizeof(other), "%s%u", name, i);
		NEED((idle[i] = kmem_cache_create(other, 300 + 100 * i, NULL, flags)));
	}
}

static void uncharged(void)
{
	make_all("plain", 0);
	measure(PLAIN);
}

/* ------------------------------------------------------------------ charged */

static uint64_t gives_nothing(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)group, (void)bytes, (void)arg;
	return 0;
}

static void limit(struct mem_cgroup *group)
{
	NEED(mem_cgroup_add_shrinker(group, 0, gives_nothing, NULL));
	NEED(!mem_cgroup_set_max(group, mem_cgroup_current(group) + 100000));
}

static void charged_to_groups(void)
{
	make_all("paid", SLAB_ACCOUNT);
	groups[0] = group_below(NULL, "first");
	groups[1] = group_below(NULL, "second");
	measure(CHARGED);
	limit(groups[0]);
	measure(CHARGED);
}

static void charged_to_private_groups(void)
{
	make_all("own", SLAB_ACCOUNT);
	groups[0] = private_group("first");
	groups[1] = private_group("second");
	measure(CHARGED);
	limit(groups[0]);
	measure(CHARGED);
}

static const struct test_case cases[] = {
	{ "uncharged", uncharged }, { "charged to groups", charged_to_groups },
	{ "charged to private groups", charged_to_private_groups },
};
API_MAIN(cases)
