/*
 * nested_calls.c: a signal handler may allocate and free at any instruction. The handler's request may be refused,
 * but never waits for the interrupted code. Every call of the groups, and every call of a cache that takes locks, is
 * single-stepped; after each instruction a handler requests each kind of memory: a slab, whole pages, a mapping,
 * metadata, and objects charged to a private group. Malloc's calls: tests/promise/malloc_handlers.c. Disciplines:
 * all. Tier: full.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <kmem/memcg.h>
#include <kmem/stats.h>

#define CHECK_FD 2
#include "kit/check.h"

#include "page/metadata.h"
#include "os/lock.h"

#if !defined(__x86_64__)
int main(void)
{
	puts("steps by x86-64's trap flag");
	return 77;
}
#else
#include <x86intrin.h>

#define TRAP_FLAG 0x100ull
/* While the thread is busy, a handler's requests fail at once: there the handler runs once in so many instructions. */
#define BUSY_STRIDE 61u
/* Instructions interrupted in one call; the rest is not interrupted. */
#define MOST 20000u
#define BATCH 200

static struct kmem_cache *cache, *charged;
static struct mem_cgroup *top, *handlers, *group;
static struct mem_cgroup_shrinker *shrinker;
static volatile unsigned long steps, strikes, refused;
static const char *volatile doing = "setting up";

/* ------------------------------------------------------------------ the handler */

/* More objects than a CPU caches, and metadata; whole pages; a mapping; and objects charged to a private group. */
static void strike(void)
{
	static void *objects[BATCH];
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	unsigned n = 0;

	switch (strikes++ % 4) {
	case 0:
		kfree(kvmalloc((4 << 20) + 4096, gfp));
		return;
	case 1:
		kfree(kmalloc(64 << 10, gfp));
		return;
	case 2:
		/* Each of these requests needs metadata now and then; so each time. */
		if (!km_thread.busy)
			km_metadata_free(km_metadata_alloc(64, true), 64);
		while (n < BATCH && (objects[n] = kmem_cache_alloc(cache, gfp)))
			n++;
		refused += n < BATCH;
		while (n)
			kmem_cache_free(cache, objects[--n]);
		return;
	default: {
		MEMCG_SCOPE(handlers);
		void *page = kmalloc(16 << 10, gfp | __GFP_ACCOUNT), *object = kmem_cache_alloc(charged, gfp);

		if (object)
			kmem_cache_free(charged, object);
		kfree(page);
	}
	}
}

static void on_step(int signal, siginfo_t *info, void *context)
{
	static greg_t last;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)signal, (void)info;
	/* A repeated string instruction traps at each repetition. */
	if (registers[REG_RIP] != last && (++steps % BUSY_STRIDE == 0 || !km_thread.busy))
		strike();
	last = registers[REG_RIP];
	if (steps >= MOST)
		registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static void on_alarm(int signal)
{
	(void)signal;
	NEED(false, "the handler waits for its own thread in %s, instruction %lu", doing, steps);
}

/* ------------------------------------------------------------------ interrupted calls */

static void no_object(struct kmem_cache *of, void *object, void *arg)
{
	(void)of, (void)object, (void)arg;
}

static uint64_t shrink(struct mem_cgroup *of, uint64_t bytes, void *arg)
{
	(void)of, (void)bytes, (void)arg;
	return 0;
}

static bool no_room(struct mem_cgroup *of, uint64_t bytes, void *arg)
{
	(void)of, (void)bytes, (void)arg;
	return false;
}

static int visit_group(struct mem_cgroup *of, unsigned int depth, void *arg)
{
	(void)of, (void)depth, (void)arg;
	return 0;
}

static int visit_cache(const char *name, size_t objects, uint64_t bytes, void *arg)
{
	(void)name, (void)objects, (void)bytes, (void)arg;
	return 0;
}

static int visit_object(void *object, void *arg)
{
	(void)object, (void)arg;
	return 0;
}

static int visit_each(struct kmem_cache *each, void *arg)
{
	(void)each, (void)arg;
	return 0;
}

/* After each instruction of the statement. */
#define STEP(statement)                                                                            \
	do {                                                                                       \
		doing = #statement;                                                                \
		steps = 0;                                                                         \
		alarm(580);                                                                         \
		__writeeflags(__readeflags() | TRAP_FLAG);                                         \
		statement;                                                                         \
		__writeeflags(__readeflags() & ~TRAP_FLAG);                                        \
		alarm(0);                                                                          \
		NEED(steps, "in %s", doing);                                                       \
		if (getenv("STEPS"))                                                               \
			printf("%7lu %s\n", steps, doing);                                         \
	} while (0)

/* Memory of the group: objects of a cache and of kmalloc, whole pages, a mapping. */
static void *object, *page, *mapping;

static void use_group(void)
{
	set_active_memcg(group);
	STEP(object = kmem_cache_alloc(charged, GFP_KERNEL));
	STEP(page = kmalloc(100 << 10, GFP_KERNEL_ACCOUNT));
	STEP(mapping = kvmalloc(5 << 20, GFP_KERNEL_ACCOUNT));
	set_active_memcg(NULL);
	NEED(object && page && mapping);
}

static void free_all(void)
{
	STEP(kmem_cache_free(charged, object));
	STEP(kfree(page));
	STEP(kvfree(mapping));
}

static void limits(void)
{
	int fd = -1, error = 0;

	STEP(fd = mem_cgroup_eventfd(group, 1 << MEMCG_MAX));
	NEED(fd >= 0);
	STEP(shrinker = mem_cgroup_add_shrinker(group, 0, shrink, NULL));
	NEED(shrinker);
	STEP(mem_cgroup_set_oom_callback(group, no_room, NULL));
	STEP(mem_cgroup_set_high_callback(group, NULL, NULL));
	STEP(mem_cgroup_charge(group, GFP_KERNEL, 12345));
	STEP(mem_cgroup_set_max(group, mem_cgroup_current(group)));
	STEP(error = mem_cgroup_charge(group, GFP_KERNEL, 1 << 20));
	NEED(error);
	STEP(mem_cgroup_set_max(group, 0));
	mem_cgroup_set_max(group, MEMCG_NO_LIMIT);
	STEP(mem_cgroup_set_high(group, 1 << 20));
	STEP(mem_cgroup_set_low(group, 0));
	STEP(mem_cgroup_set_min(group, 0));
	mem_cgroup_set_high(group, MEMCG_NO_LIMIT);
	STEP(mem_cgroup_uncharge(group, 12345));
	STEP(mem_cgroup_reclaim(group, 1 << 20));
	STEP(mem_cgroup_drain(group));
	STEP(mem_cgroup_margin(group));
	STEP(mem_cgroup_remove_shrinker(shrinker));
}

static void numbers(void)
{
	static char text[4096];
	struct mem_cgroup *whose = NULL;

	STEP(whose = mem_cgroup_from_obj(object));
	mem_cgroup_put(whose);
	STEP(whose = mem_cgroup_from_obj(mapping));
	NEED(whose == group);
	STEP(mem_cgroup_put(whose));
	STEP(mem_cgroup_current(group));
	STEP(mem_cgroup_reset_peak(group));
	STEP(mem_cgroup_walk(NULL, visit_group, NULL));
	STEP(mem_cgroup_walk_caches(group, visit_cache, NULL));
	STEP(mem_cgroup_write_current(group, text, sizeof(text)));
	STEP(mem_cgroup_write_stat(group, text, sizeof(text)));
	STEP(mem_cgroup_write_events(group, text, sizeof(text)));
	STEP(mem_cgroup_write_events_local(group, text, sizeof(text)));
}

static void one_group(unsigned flags)
{
	STEP(group = mem_cgroup_create(top, "struck", flags));
	NEED(group);
	STEP(mem_cgroup_get(group));
	STEP(mem_cgroup_put(group));
	STEP(set_active_memcg(set_active_memcg(group)));
	use_group();
	limits();
	numbers();
	free_all();
	if (flags & MEM_CGROUP_PRIVATE) {
		use_group();
		STEP(mem_cgroup_destroy_all(group, no_object, NULL));
		use_group();
		STEP(mem_cgroup_destroy_all(group, NULL, NULL));
	} else {
		STEP(object = kmalloc(100, GFP_KERNEL));
		set_active_memcg(group);
		bool paid = false;
		STEP(paid = kmem_cache_charge(object, GFP_KERNEL));
		set_active_memcg(NULL);
		NEED(paid);
		STEP(kfree(object));
	}
	use_group();
	STEP(mem_cgroup_set_default(group));
	STEP(mem_cgroup_set_default(NULL));
	STEP(mem_cgroup_offline(group));
	free_all();
	STEP(mem_cgroup_put(group));
	/* And a group put while online. */
	STEP(group = mem_cgroup_create(top, "short", flags));
	STEP(mem_cgroup_put(group));
}

static void modes(void)
{
	STEP(mem_cgroup_set_mode(MEM_CGROUP_SHELF, false));
	STEP(mem_cgroup_set_mode(MEM_CGROUP_SHELF, true));
	STEP(mem_cgroup_set_mode(MEM_CGROUP_DRAIN, true));
	STEP(mem_cgroup_set_mode(MEM_CGROUP_DRAIN, false));
}

/* ------------------------------------------------------------------ caches */

static void caches(void)
{
	struct kmem_cache *made = NULL;
	struct slab_sheaf *sheaf = NULL;
	static void *objects[300];
	int null = open("/dev/null", O_WRONLY);
	bool got = false;

	STEP(made = kmem_cache_create("struck", 120, NULL, 0));
	NEED(made);
	STEP(got = kmem_cache_alloc_bulk(made, GFP_KERNEL, 300, objects));
	NEED(got);
	STEP(kmem_cache_walk(made, visit_object, NULL));
	STEP(kmem_cache_free_bulk(made, 300, objects));
	STEP(sheaf = kmem_cache_prefill_sheaf(made, GFP_KERNEL, 10));
	NEED(sheaf);
	STEP(kmem_cache_refill_sheaf(made, GFP_KERNEL, &sheaf, 300));
	STEP(kmem_cache_return_sheaf(made, GFP_KERNEL, sheaf));
	STEP(kmem_cache_set_min_partial(made, 6));
	STEP(kmem_cache_set_limit(made, 1 << 20));
	STEP(kmem_cache_tune(made, 30, 15, 8));
	STEP(kmem_cache_clear_events(made));
	STEP(kmem_cache_shrink(made));
	STEP(kmem_cache_destroy(made));
	STEP(kmem_set_min_partial_rule("size"));
	STEP(kmem_set_min_partial_rule("half"));
	STEP(kmem_for_each_cache(visit_each, NULL));
	STEP(kmem_print_slabinfo(null));
	STEP(kmem_print_json(null));
	STEP(kmem_shrink_all());
	close(null);
}

static void blocks(void)
{
	void *volatile p;

	STEP(p = kmalloc(300 << 10, GFP_KERNEL));
	STEP(p = krealloc(p, 100 << 10, GFP_KERNEL));
	STEP(kfree(p));
	STEP(p = kvmalloc(5 << 20, GFP_KERNEL));
	STEP(p = kvrealloc(p, 9 << 20, GFP_KERNEL));
	STEP(ksize(p));
	STEP(kvfree(p));
}

int main(void)
{
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO }, late = { .sa_handler = on_alarm };

	sigaction(SIGTRAP, &step, NULL);
	sigaction(SIGALRM, &late, NULL);
	cache = kmem_cache_create("handler's", 128, NULL, 0);
	charged = kmem_cache_create("charged", 200, NULL, SLAB_ACCOUNT);
	top = mem_cgroup_create(NULL, "top", 0);
	handlers = mem_cgroup_create(top, "handler's", MEM_CGROUP_PRIVATE);
	NEED(cache && charged && top && handlers);
	blocks();
	caches();
	one_group(0);
	one_group(MEM_CGROUP_PRIVATE);
	modes();
	NEED(kmem_check_all() == 0);
	mem_cgroup_put(handlers);
	NEED((mem_cgroup_drain(top), mem_cgroup_current(top)) == 0);
	printf("%lu strikes, %lu refused\n", strikes, refused);
	return 0;
}
#endif
