/*
 * charged_blocks.c: charged large blocks cached on a CPU: the next request of the freeing group gets the block. A block
 * stays charged until given back. Cached blocks are drained at a limit of a group, and of the process. With several
 * groups a block changes its owner. Each block is one group's or uncharged after a group's end, in signal handlers,
 * in threads, after fork, and without memory. Disciplines: all Not with hardened: no blocks of whole pages are cached.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include <kmem/memcg.h>

#include "kit/cpus.h"
#include "kit/inside.h"
#include "kit/api.h"
#include "kmalloc/large_cache.h"
#include "page/zone.h"
#include "os/os.h"

#define BYTES	40960ul		/* ten pages, a class of their own */
#define UNEVEN	(25 * 4096ul)	/* the class has a page more */
#define ASK	40
#define MANY	512

static void *block[MANY];

static struct mem_cgroup *group_of(struct mem_cgroup *parent, const char *name)
{
	struct mem_cgroup *group = mem_cgroup_create(parent, name, 0);

	NEED(group);
	return group;
}

static unsigned long usage(struct mem_cgroup *group)
{
	mem_cgroup_drain(group);
	return mem_cgroup_current(group);
}

/* The thread stays on one CPU, the group's class exists, and nothing ages. */
static struct mem_cgroup *begin(const char *name, size_t bytes)
{
	struct mem_cgroup *group = group_of(NULL, name);

	stay_here();
	km_alloc_tick = NULL;
	for (int i = 0; i < ASK; i++)
		kfree(kmalloc_in(group, bytes, GFP_KERNEL));
	return group;
}

static void end(struct mem_cgroup *group)
{
	NEED(usage(group) == 0);
	mem_cgroup_put(group);
	kmem_shrink_all();
	NEED(kmem_check_all() == 0);
}

static int add_cached(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (strncmp(kmem_cache_name(cache), "large-cg-", 9) == 0)
		*(size_t *)arg += stats.shelf_objects * stats.pages_per_slab;
	return 0;
}

/* Pages of charged classes cached on CPUs. */
static size_t cached(void)
{
	size_t pages = 0;

	kmem_for_each_cache(add_cached, &pages);
	return pages;
}

/* The next request of the freeing group gets the block, zeroed on request, and the group stays charged. */
static void comes_back(void)
{
	struct mem_cgroup *group = begin("comes back", BYTES);
	int others = 0;

	for (int i = 0; i < 200; i++) {
		char *p = kmalloc_in(group, BYTES, GFP_KERNEL);
		NEED(p && ksize(p) == BYTES && mem_cgroup_current(group) >= BYTES);
		memset(p, 0xff, BYTES);
		kfree(p);
		NEED(slob || mem_cgroup_current(group) >= BYTES);
		MEMCG_SCOPE_ALL(group);
		char *q = i % 3 == 0 ? kvmalloc(BYTES, GFP_NOWAIT) : i % 3 == 1 ? kzalloc(BYTES, GFP_KERNEL) :
								      kmalloc(37000, GFP_KERNEL);
		others += p != q;
		NEED(q && (i % 3 != 1 || all(q, 0, BYTES)));
		kfree_bulk(1, (void *[]){ q });
	}
	NEED(slob || (others < 20 && cached() >= 10));
	end(group);
	NEED(cached() == 0);
}

/* A limit is usable to its last page, with cached blocks, and with classes of more pages. */
static void to_the_last_page(void)
{
	struct mem_cgroup *above = group_of(NULL, "above");
	struct mem_cgroup *group = group_of(above, "below"), *other = group_of(above, "beside");

	mem_cgroup_put(begin("warm", BYTES));
	mem_cgroup_put(begin("warm", UNEVEN));
	for (int round = 0; round < 20; round++) {
		NEED(mem_cgroup_set_max(above, 8 * BYTES) == 0);
		for (int i = 0; i < 8; i++)
			NEED((block[i] = kmalloc_in(group, BYTES, GFP_KERNEL | __GFP_NOWARN)));
		NEED(!kmalloc_in(group, 4096, GFP_KERNEL | __GFP_NOWARN));
		NEED(!kmalloc_in(other, BYTES, GFP_KERNEL | __GFP_NOWARN) && errno == ENOMEM);
		/* Two blocks are cached, charged to one group: the other group gets the room, in one piece. */
		kfree(block[0]);
		kfree(block[1]);
		NEED((block[0] = kmalloc_in(other, 2 * BYTES, GFP_KERNEL | __GFP_NOWARN)));
		NEED(usage(above) == 8 * BYTES && usage(other) == 2 * BYTES);
		kfree(block[0]);
		for (int i = 2; i < 8; i++)
			kfree(block[i]);
		/* Of a size below its class's pages exactly one block fits. */
		NEED(mem_cgroup_set_max(above, UNEVEN) == 0);
		void *p = kmalloc_in(group, UNEVEN, GFP_KERNEL | __GFP_NOWARN);
		NEED(p && ksize(p) == UNEVEN && usage(above) == UNEVEN);
		kfree(p);
		NEED(usage(above) == 0);
	}
	mem_cgroup_put(other);
	mem_cgroup_put(group);
	end(above);
}

static void *free_elsewhere(void *p)
{
	kfree(p);
	return NULL;
}

/*
 * With several groups each block is one group's: also after a free by another thread, and an allocation by another
 * group.
 */
static void several(void)
{
	struct mem_cgroup *one = begin("one", BYTES), *two = group_of(NULL, "two");

	for (int i = 0; i < 300; i++) {
		void *p = kmalloc_in(one, BYTES, GFP_KERNEL), *q = kmalloc_in(two, BYTES, GFP_KERNEL);

		NEED(p && q && usage(one) == BYTES && usage(two) == BYTES);
		NEED(mem_cgroup_from_obj(p) == one && mem_cgroup_from_obj(q) == two);
		mem_cgroup_put(one);
		mem_cgroup_put(two);
		kfree(p);
		void *r = kmalloc_in(two, BYTES, GFP_KERNEL);
		NEED(r && usage(one) == 0 && usage(two) == 2 * BYTES);
		pthread_t thread;
		NEED(pthread_create(&thread, NULL, free_elsewhere, q) == 0 && pthread_join(thread, NULL) == 0);
		NEED(usage(two) == BYTES);
		kfree(r);
	}
	mem_cgroup_put(two);
	end(one);
}

/* Groups in turn, and a parent's limit filled by cached blocks of another child. */
static void in_turn(void)
{
	struct mem_cgroup *group[16], *first = begin("turn", BYTES);

	for (int i = 0; i < 16; i++)
		group[i] = group_of(first, "turn");
	NEED(mem_cgroup_set_max(first, 3 * BYTES) == 0);
	for (int i = 0; i < 3000; i++) {
		void *p = kmalloc_in(group[i % 16], BYTES, GFP_KERNEL);
		void *q = i % 5 ? kmalloc_in(group[i % 7], 2 * BYTES, GFP_KERNEL) : NULL;

		NEED(p && (q || i % 5 == 0));
		kfree(p);
		kfree(q);
	}
	NEED(usage(first) == 0);
	for (int i = 0; i < 16; i++)
		mem_cgroup_put(group[i]);
	end(first);
}

/* A private group's blocks go with the group, all at once, and none is cached for other groups. */
static void private(void)
{
	struct mem_cgroup *public = begin("public", BYTES);
	struct mem_cgroup *own = mem_cgroup_create(NULL, "own", MEM_CGROUP_PRIVATE);

	NEED(own);
	void *stays = kmalloc_in(public, BYTES, GFP_KERNEL);
	for (int i = 0; i < ASK; i++) {
		NEED((block[i] = kmalloc_in(own, BYTES, GFP_KERNEL)));
		memset(block[i], i, BYTES);
	}
	for (int i = 0; i < ASK / 2; i++)
		kfree(block[i]);
	NEED(usage(own) == ASK / 2 * BYTES);
	NEED(mem_cgroup_destroy_all(own, NULL, NULL) == 0);
	NEED(usage(public) == BYTES && usage(own) == 0);
	mem_cgroup_put(own);
	kfree(stays);
	end(public);
}

/* A block that changes its length has no class, and its group is charged for the pages of the block. */
static void resized(void)
{
	struct mem_cgroup *group = begin("resized", BYTES), *other = group_of(NULL, "other");

	/* So that owner words are vectors. */
	kfree(kmalloc_in(other, BYTES, GFP_KERNEL));
	for (unsigned i = 0; i < 60; i++) {
		MEMCG_SCOPE_ALL(i % 2 ? group : other);
		char *p = kmalloc(BYTES, GFP_KERNEL);

		NEED(p);
		memset(p, (int)i, BYTES);
		for (unsigned step = 1; step < 12; step++) {
			p = kvrealloc(p, BYTES * (1 + step * (i + 1) % 9), GFP_KERNEL);
			NEED(p && all(p, (int)i, BYTES) && usage(i % 2 ? group : other) == ksize(p));
			NEED(usage(i % 2 ? other : group) == 0 && kmem_check_all() == 0);
		}
		kvfree(p);
	}
	mem_cgroup_put(other);
	end(group);
}

/* Four threads free each other's blocks, and one thread drains: in the end all bytes are uncharged. */
#define THREADS 4
static void *handed[THREADS];
static struct mem_cgroup *objcg[2];

static void *hand_on(void *arg)
{
	size_t me = (uintptr_t)arg;

	for (unsigned i = 0; i < 3000; i++) {
		struct mem_cgroup *group = objcg[(i / 7 + me) % 2];
		char *p = kmalloc_in(group, i % 11 ? BYTES : UNEVEN, GFP_KERNEL);

		NEED(p);
		*p = (char)i;
		kfree(__atomic_exchange_n(&handed[(me + i) % THREADS], p, __ATOMIC_ACQ_REL));
	}
	return NULL;
}

static void in_threads(void)
{
	objcg[0] = begin("first", BYTES);
	objcg[1] = group_of(NULL, "second");
	pthread_t thread[THREADS];

	go_anywhere();
	for (uintptr_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, hand_on, (void *)i) == 0);
	for (int i = 0; i < 50; i++) {
		mem_cgroup_drain(objcg[i % 2]);
		kmem_shrink_all();
		usleep(100);
	}
	for (int i = 0; i < THREADS; i++)
		NEED(pthread_join(thread[i], NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		kfree(handed[i]);
	NEED(usage(objcg[0]) == 0);
	mem_cgroup_put(objcg[0]);
	end(objcg[1]);
}

/* A group ends while its blocks are allocated, and while they are cached. */
static void leaves(void)
{
	struct mem_cgroup *above = begin("above", BYTES);

	for (int i = 0; i < 100; i++) {
		struct mem_cgroup *group = group_of(above, "leaves");
		void *p = kmalloc_in(group, BYTES, GFP_KERNEL), *q = kmalloc_in(group, BYTES, GFP_KERNEL);

		NEED(p && q);
		kfree(p);
		mem_cgroup_put(group);
		NEED(usage(above) == BYTES);
		/* A cached block of the ended group goes to another group. */
		p = kmalloc_in(above, BYTES, GFP_KERNEL);
		NEED(p && usage(above) == 2 * BYTES);
		kfree(q);
		kfree(p);
		NEED(usage(above) == 0);
	}
	end(above);
}

/* In a handler that interrupts the allocator, a cached block can be allocated, and no other; both are freed. */
static void in_handlers(void)
{
	struct mem_cgroup *group = begin("handlers", BYTES), *other = group_of(NULL, "other");

	for (int i = 0; i < 100; i++) {
		struct mem_cgroup *one = i % 3 ? group : other;
		void *p = kmalloc_in(one, BYTES, GFP_KERNEL), *q = NULL, *r = NULL, *s = NULL;

		NEED(p);
		block[0] = kmalloc_in(one, BYTES, GFP_KERNEL);
		NEED(block[0]);
		kfree(block[0]);
		INSIDE(({
			q = kmalloc_in(one, BYTES, GFP_ATOMIC);
			r = kmalloc_in(one, BYTES, GFP_ATOMIC);
			s = kmalloc_in(i % 2 ? group : other, BYTES, GFP_ATOMIC | __GFP_NOWARN);
			kfree(r);
			kfree(p);
			kfree(s);
		}));
		kfree(q);
		/* The next call finishes the handler's deferred frees. */
		kfree(kmalloc_in(one, BYTES, GFP_KERNEL));
		NEED(usage(group) == 0 && usage(other) == 0 && kmem_check_all() == 0);
	}
	mem_cgroup_put(other);
	end(group);
}

static int status_of(pid_t child)
{
	int status = -1;

	NEED(waitpid(child, &status, 0) == child);
	return status;
}

/* A child has the parent's blocks, cached ones too, and each process uncharges its own. */
static void after_fork(void)
{
	struct mem_cgroup *group = begin("fork", BYTES), *other = group_of(NULL, "other");
	void *p = kmalloc_in(group, BYTES, GFP_KERNEL), *q = kmalloc_in(other, BYTES, GFP_KERNEL);

	kfree(kmalloc_in(group, BYTES, GFP_KERNEL));
	pid_t child = fork();
	if (!child) {
		NEED(usage(group) == BYTES && usage(other) == BYTES);
		for (int i = 0; i < 100; i++)
			kfree(kmalloc_in(i % 2 ? group : other, BYTES, GFP_KERNEL));
		kfree(p);
		kfree(q);
		NEED(usage(group) == 0 && usage(other) == 0 && kmem_check_all() == 0);
		_exit(0);
	}
	NEED(child > 0 && status_of(child) == 0);
	NEED(usage(group) == BYTES && usage(other) == BYTES);
	kfree(p);
	kfree(q);
	mem_cgroup_put(other);
	end(group);
}

/* Of the calls for memory every n-th is refused, or all from the n-th on. */
static unsigned long calls, refused_from;

static bool refuse(const char *call)
{
	return !strncmp(call, "commit", 6) && ++calls >= refused_from;
}

/* Without memory a request gets a block or NULL, and NULL leaves no charge. */
static void no_memory(void)
{
	struct mem_cgroup *group = begin("none", BYTES), *other = group_of(NULL, "other");

	for (refused_from = 1; refused_from < 12; refused_from++) {
		size_t count = 0;

		calls = 0;
		km_os_fault = refuse;
		while (count < MANY && (block[count] = kmalloc_in(count % 2 ? group : other, 1 << 20,
								  GFP_KERNEL | __GFP_NOWARN)))
			count++;
		NEED(count < MANY || refused_from > 8);
		for (size_t i = 0; i < count; i += 3) {
			kfree(block[i]);
			block[i] = kmalloc_in(group, BYTES, GFP_KERNEL | __GFP_NOWARN);
			NEED(block[i]);
		}
		while (count)
			kfree(block[--count]);
		km_os_fault = NULL;
		NEED(usage(group) == 0 && usage(other) == 0 && kmem_check_all() == 0);
	}
	mem_cgroup_put(other);
	end(group);
}

/* Cached charged blocks are drained before any request of the process fails for lack of pages. */
static void before_failure(void)
{
	static void *held[1 << 16];
	struct mem_cgroup *group = begin("pages", BYTES);
	void *p = kmalloc_in(group, BYTES, GFP_KERNEL);
	size_t count = 0;

	refused_from = 0;
	km_os_fault = refuse;
	while ((held[count] = kmalloc(65536, GFP_KERNEL | __GFP_NOWARN)))
		NEED(++count < 1 << 16);
	while ((held[count] = kmalloc(12288, GFP_KERNEL | __GFP_NOWARN)))
		NEED(++count < 1 << 16);
	kfree(p);
	NEED(slob || (cached() == 10 && mem_cgroup_current(group) >= BYTES));
	NEED((held[count] = kmalloc(12288, GFP_KERNEL)));
	count++;
	NEED(cached() == 0 && usage(group) == 0);
	km_os_fault = NULL;
	while (count)
		kfree(held[--count]);
	end(group);
}

/* The cached blocks of all sizes, charged or not, keep one bound. */
static void bounded(void)
{
	struct mem_cgroup *group = begin("bounded", BYTES);
	struct kmem_stats stats;

	for (int round = 0; round < 20; round++) {
		for (unsigned i = 0; i < MANY; i++)
			NEED((block[i] = kmalloc_in(group, 12288 + i * 7919ul * 4096 % 1000000, GFP_KERNEL)));
		kmem_get_stats(&stats);
		for (unsigned i = 0; i < MANY; i++)
			kfree(block[i]);
		NEED(cached() <= stats.pages_used / 32 + 1024 + 256 * (size_t)(sysconf(_SC_NPROCESSORS_CONF) - 1));
	}
	end(group);
}

static int add_charged(struct kmem_cache *cache, void *arg)
{
	if (strncmp(kmem_cache_name(cache), "large-cg-", 9) == 0 && km_pcs_slot(&cache->memcg.charged))
		km_for_each_cpu(cpu)
			*(size_t *)arg += km_pcs_count_cpu(&cache->memcg.charged, cpu);
	return 0;
}

/* Several blocks at once are cached, too, up to the bound; they stay charged, and a drain finds all. */
static void eight_at_once(void)
{
	enum { EIGHT = 8 };
	static const struct {
		size_t bytes, least, most;
	} sizes[] = { { 16384, 8, 8 }, { BYTES, 4, 6 }, { 131072, 2, 2 } };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct mem_cgroup *group = begin("eight", sizes[s].bytes);
		size_t lie = 0;

		for (int round = 0; round < 20; round++) {
			for (int i = 0; i < EIGHT; i++)
				NEED((block[i] = kmalloc_in(group, sizes[s].bytes, GFP_KERNEL)));
			for (int i = 0; i < EIGHT; i++)
				kfree(block[i]);
		}
		kmem_for_each_cache(add_charged, &lie);
		NEED(slob || (lie >= sizes[s].least && lie <= sizes[s].most));
		NEED(slob || mem_cgroup_current(group) >= lie * sizes[s].bytes);
		end(group);
	}
}

/*
 * Room for cached blocks lowers the bound of free pages only while the room exists: also without cached
 * blocks.
 */
static void tells(void)
{
	struct mem_cgroup *group = begin("tells", BYTES);

	for (int i = 0; i < 4; i++)
		NEED((block[i] = kmalloc_in(group, BYTES, GFP_KERNEL)));
	NEED(slob || km_arena.ready_pages >= 10);
	kmem_shrink_all();
	NEED(km_arena.ready_pages == 0);
	for (int i = 0; i < 4; i++)
		kfree(block[i]);
	end(group);
}

static const struct test_case cases[] = {
	{ "comes back", comes_back }, { "to the last page", to_the_last_page }, { "several", several },
	{ "in turn", in_turn }, { "private", private }, { "resized", resized }, { "leaves", leaves },
	{ "in threads", in_threads }, { "in handlers", in_handlers }, { "after fork", after_fork },
	{ "no memory", no_memory }, { "before failure", before_failure }, { "bounded", bounded },
	{ "tells", tells }, { "eight at once", eight_at_once },
};

API_MAIN(cases)
