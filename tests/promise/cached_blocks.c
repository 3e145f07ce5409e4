/*
 * cached_blocks.c: blocks of whole pages cached on a CPU: the requests they serve, the waste of a block, the bound of
 * their number, and the reasons to give them back: age, a request that would fail, kmem_shrink_all, a block that
 * changes its length or gets charged; the child of a handler's fork. Disciplines: all Not with hardened: no blocks of
 * whole pages are cached.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/memcg.h>

#include "kit/cpus.h"
#include "kit/api.h"
#include "kit/clock.h"
#include "cache/cache.h"
#include "kmalloc/large_cache.h"
#include "os/os.h"

#define MANY	64
#define BYTES	40000ul		/* ten pages, a class of their own */

static void *block[4096];

static void get(unsigned n, size_t bytes)
{
	for (unsigned i = 0; i < n; i++)
		NEED((block[i] = kmalloc(bytes, GFP_KERNEL)));
}

static void put(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		kfree(block[i]);
}

/* A class is made after enough requests. */
static void ask_for(size_t bytes)
{
	get(MANY, bytes);
	put(MANY);
	kmem_shrink_all();
}

struct sums {
	size_t classes, cached, live;
	unsigned most;			/* objects of a block of pointers, in any class */
};

static int add(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;
	struct sums *sums = arg;

	kmem_cache_get_stats(cache, &stats);
	if (strcmp(stats.engine, "ready") != 0)
		return 0;
	sums->classes++;
	sums->cached += stats.shelf_objects * stats.pages_per_slab;
	sums->live += stats.active_objects;
	sums->most = stats.sheaf_capacity > sums->most ? stats.sheaf_capacity : sums->most;
	NEED(stats.size == stats.pages_per_slab * 4096ul && stats.total_objects == stats.total_slabs);
	return 0;
}

static struct sums sums(void)
{
	struct sums now = { 0 };

	kmem_for_each_cache(add, &now);
	NEED(kmem_check_all() == 0);
	return now;
}

struct named {
	const char *name;
	struct kmem_cache_stats stats;
};

static int find(struct kmem_cache *cache, void *arg)
{
	struct named *named = arg;

	if (strcmp(kmem_cache_name(cache), named->name) == 0)
		kmem_cache_get_stats(cache, &named->stats);
	return 0;
}

static struct kmem_cache_stats stats_of(const char *name)
{
	struct named named = { .name = name };

	kmem_for_each_cache(find, &named);
	NEED(named.stats.engine);
	return named.stats;
}

/* Pages that may be cached: a part of the pages in use, and a minimum. */
static size_t bound(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_used / 32 + 1024 + 256 * (size_t)(sysconf(_SC_NPROCESSORS_CONF) - 1);
}

/*
 * The next request gets the freed block, by any function; zeros are zeros; a handler's free or a bulk free
 * caches, too.
 */
static void comes_back(void)
{
	int others = 0;

	stay_here();
	ask_for(BYTES);
	for (int i = 0; i < 1000; i++) {
		char *p = kmalloc(BYTES, GFP_KERNEL);
		NEED(p && ksize(p) == 40960);
		memset(HELD(p), 0xff, ksize(p));
		kfree(p);
		char *q = i % 3 == 0 ? kvmalloc(BYTES, GFP_NOWAIT) : i % 3 == 1 ? kzalloc(BYTES, GFP_KERNEL) :
								      kmalloc(37000, GFP_ATOMIC);
		others += p != q;
		NEED(i % 3 != 1 || all(q, 0, ksize(q)));
		kfree_bulk(1, (void *[]){ q });
	}
	/* A free with a miss may run a tick, and the tick may drain the cached blocks. */
	NEED(slob || others < 20);
	kmem_shrink_all();
	NEED(sums().cached == 0 && sums().live == 0);
}

/* Less than an eighth of a block is more than was asked for, up to a page; kmalloc aligns as ever. */
static void little_waste(void)
{
	for (size_t bytes = 8193; bytes <= 1100000; bytes += bytes / 64 + 1) {
		size_t whole = (bytes + 4095) & ~4095ul;

		get(20, bytes);
		for (unsigned i = 0; i < 20; i++)
			NEED(ksize(block[i]) >= whole && ksize(block[i]) - whole < bytes / 8);
		NEED(slob || kmalloc_size_roundup(bytes) == ksize(block[19]));
		put(20);
	}
	for (size_t bytes = 8192; bytes <= 1 << 20; bytes *= 2) {
		/* Cached blocks need no alignment to their size. */
		get(20, bytes - 4096);
		put(20);
		get(20, bytes);
		for (unsigned i = 0; i < 20; i++)
			NEED(((uintptr_t)block[i] & (bytes - 1)) == 0);
		put(20);
	}
	NEED(kmem_check_all() == 0);
}

/* For frees of all sizes, the cached pages are bounded by the pages in use, and by a minimum. */
static void bounded(void)
{
	stay_here();
	for (int round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 512; i++)
			NEED((block[i] = kmalloc(12288 + (i * 7919ul * 4096) % 1000000, GFP_KERNEL)));
		size_t most = bound();

		put(512);
		NEED(sums().cached <= most);
	}
	/* A class that runs empty and full in turns gets more room, if other classes leave room. */
	kmem_shrink_all();
	for (int round = 0; round < 100; round++) {
		get(16, BYTES);
		put(16);
	}
	NEED(slob || sums().most > 2);
	NEED(sums().cached <= bound());
	kmem_shrink_all();
	NEED(sums().cached == 0);
}

/* With no room left, unused classes give room to a class in use. */
static void gives_way(void)
{
	size_t bytes = 12288;

	if (slob)
		return;
	stay_here();
	/* Nothing ages. */
	km_alloc_tick = NULL;
	for (; bytes < 900000; bytes += bytes / 8) {
		get(20, bytes);
		put(20);
	}
	get(20, 1 << 20);
	for (unsigned i = 0; !stats_of("large-1048576").shelf_objects; i++) {
		NEED(i < 1000000);
		ahead_ms++;
		kfree(kmalloc(1 << 20, GFP_KERNEL));
	}
	NEED(sums().cached <= bound());
	put(20);
	kmem_shrink_all();
}

/* Let the class take as many as `most` of these blocks, one by one. */
static void swing(size_t bytes, unsigned most)
{
	for (int round = 0; round < 20; round++)
		for (unsigned n = 1; n <= most; n++) {
			get(n, bytes);
			put(n);
		}
}

/*
 * A class without blocks begins anew, because its former share may never have room again while other classes are in
 * use.
 */
static void begins_anew(void)
{
	if (slob)
		return;
	stay_here();
	/* Nothing ages. */
	km_alloc_tick = NULL;
	ask_for(65536);
	swing(65536, 60);
	NEED(stats_of("large-65536").sheaf_capacity == 62);
	kmem_shrink_all();
	get(1, 65536);
	put(1);
	NEED(stats_of("large-65536").sheaf_capacity == 2 && stats_of("large-65536").shelf_objects == 1);
}

/* Idle blocks go back, if some call misses. */
static void by_age(void)
{
	stay_here();
	ask_for(BYTES);
	get(1, BYTES);
	put(1);
	for (int i = 0; sums().cached; i++) {
		NEED(i < 30000);
		ahead_ms++;
		kfree(kmalloc(2 << 20, GFP_KERNEL));
	}
}

static uint64_t usage(struct mem_cgroup *group)
{
	mem_cgroup_drain(group);
	return mem_cgroup_current(group);
}

static bool refuse(const char *call)
{
	return !strncmp(call, "commit", 6);
}

/* No page is free, and none can be allocated: cached blocks are drained before a slab or a block is refused. */
static void before_failure(void)
{
	static void *held[1 << 16], *page[1 << 16];
	size_t count = 0, pages = 0;

	if (slob)
		return;
	struct kmem_cache *cache = kmem_cache_create("before failure", 4096, NULL, SLAB_NO_SHEAVES);
	NEED(cache);
	stay_here();
	ask_for(BYTES);
	get(1, BYTES);
	km_os_fault = refuse;
	while ((held[count] = kmalloc(65536, GFP_KERNEL | __GFP_NOWARN)))
		NEED(++count < 1 << 16);
	while ((held[count] = kmalloc(12288, GFP_KERNEL | __GFP_NOWARN)))
		NEED(++count < 1 << 16);
	while ((page[pages] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
		NEED(++pages < 1 << 16);
	put(1);
	NEED(sums().cached == 10);
	void *p = kmalloc(12288, GFP_KERNEL);
	NEED(p && sums().cached == 0);
	kfree(p);
	NEED((p = kmem_cache_alloc(cache, GFP_KERNEL)));
	kmem_cache_free(cache, p);
	/* A request that may not wait gets a larger block. */
	kmem_shrink_all();
	get(1, BYTES);
	put(1);
	NEED(sums().cached == 10);
	p = kmalloc(30000, GFP_NOWAIT);
	NEED(p == block[0] && ksize(p) == 40960);
	kfree(p);
	km_os_fault = NULL;
	while (count)
		kfree(held[--count]);
	while (pages)
		kmem_cache_free(cache, page[--pages]);
	kmem_cache_destroy(cache);
	NEED(kmem_check_all() == 0);
}

/* A block that grows or shrinks in place changes its class, or has none; no block is counted twice. */
static void resized(void)
{
	struct kmem_stats before, after;

	ask_for(BYTES);
	kmem_get_stats(&before);
	for (unsigned i = 0; i < 200; i++) {
		char *p = kmalloc(BYTES, GFP_KERNEL);
		NEED(p);
		memset(p, (int)i, BYTES);
		for (unsigned step = 1; step < 12; step++) {
			size_t bytes = BYTES * (1 + step * (i + 1) % 9);

			p = kvrealloc(p, bytes, GFP_KERNEL);
			NEED(p && all(p, (int)i, BYTES) && ksize(p) >= bytes && kmem_check_all() == 0);
		}
		kvfree(p);
	}
	kmem_shrink_all();
	kmem_get_stats(&after);
	NEED(after.large_blocks == before.large_blocks && after.large_bytes == before.large_bytes);
	NEED(after.pages_used <= before.pages_used && sums().live == 0);
}

/* Cached blocks of a charged group hold no charge: the group's limit is exact. */
static void charged(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "ready", 0);

	NEED(group);
	stay_here();
	ask_for(BYTES);
	get(1, BYTES);
	put(1);
	NEED(slob || sums().cached >= 10);
	for (int i = 0; i < 100; i++) {
		void *p = kmalloc_in(group, BYTES, GFP_KERNEL);
		NEED(p && usage(group) == 40960);
		kfree(p);
		NEED(usage(group) == 0);
	}
	NEED(mem_cgroup_set_max(group, 40960) == 0);
	for (int i = 0; i < 100; i++) {
		MEMCG_SCOPE_ALL(group);
		void *p = kmalloc(BYTES, GFP_KERNEL);
		NEED(p && !kmalloc(BYTES, GFP_KERNEL));
		kfree(p);
	}
	/* And a cached block that is charged now. */
	get(1, BYTES);
	{
		MEMCG_SCOPE(group);
		NEED(kmem_cache_charge(block[0], GFP_KERNEL) && usage(group) == 40960);
	}
	put(1);
	NEED(usage(group) == 0);
	mem_cgroup_put(group);
	NEED(kmem_check_all() == 0);
}

static void *ask_elsewhere(void *arg)
{
	get(MANY, BYTES);
	put(MANY);
	return arg;
}

static int wait_for_another(struct kmem_cache *cache, void *arg)
{
	pthread_t thread;

	(void)cache;
	(void)arg;
	NEED(pthread_create(&thread, NULL, ask_elsewhere, NULL) == 0 && pthread_join(thread, NULL) == 0);
	return 1;
}

/*
 * A thread with the registry locked may wait for another thread's first request of blocks: that request takes no
 * lock of the registry.
 */
static void made_by_another(void)
{
	NEED(kmem_for_each_cache(wait_for_another, NULL) == 1);
	NEED(sums().live == 0);
	ask_for(BYTES);
	get(1, BYTES);
	NEED(slob || sums().live == 1);
	put(1);
}

static int find_class(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (strcmp(stats.engine, "ready") != 0)
		return 0;
	*(struct kmem_cache **)arg = cache;
	return 1;
}

/* A visitor of all caches finds a class, and must not limit or destroy the class. */
static void not_the_visitors(void)
{
	struct kmem_cache *class = NULL;

	ask_for(BYTES);
	get(MANY, BYTES);
	NEED(kmem_for_each_cache(find_class, &class) == !slob);
	if (slob)
		return;
	NEED(kmem_cache_set_limit(class, 40960) == -EOPNOTSUPP);
	kmem_cache_destroy(class);
	/* The new cache would get the memory of the destroyed class. */
	struct kmem_cache *own = kmem_cache_create("own", 100, NULL, 0);
	NEED(own && own != class);
	put(MANY);
	get(MANY, BYTES);
	for (unsigned i = 0; i < MANY; i++)
		NEED(ksize(block[i]) == 40960);
	put(MANY);
	kmem_cache_destroy(own);
	NEED(kmem_check_all() == 0);
}

static bool forks;		/* the next block given back forks, as a handler there */
static pid_t child = -1;

void __real_km_large_give(void *p);
void __wrap_km_large_give(void *p);
void __wrap_km_large_give(void *p)
{
	if (forks) {
		forks = false;
		NEED(km_thread.busy == KM_BUSY);
		child = fork();
	}
	__real_km_large_give(p);
}

/* A handler forks while a thread exchanges the full sheaf of its CPU. The child goes on, and caches blocks as ever. */
static void forked_in_exchange(void)
{
	int status;

	if (slob)
		return;
	stay_here();
	ask_for(BYTES);
	get(MANY, BYTES);
	forks = true;
	put(MANY);
	NEED(child >= 0 && !forks);
	for (int round = 0; round < 3; round++) {
		kmem_shrink_all();
		NEED(sums().cached == 0);
		get(1, BYTES);
		put(1);
		NEED(sums().cached == 10);
	}
	if (!child)
		_exit(0);
	NEED(waitpid(child, &status, 0) == child && status == 0);
}

static const struct test_case cases[] = {
	{ "forked in an exchange", forked_in_exchange },
	{ "made by another", made_by_another }, { "comes back", comes_back }, { "little waste", little_waste },
	{ "bounded", bounded }, { "gives way", gives_way }, { "begins anew", begins_anew },
	{ "not the visitor's", not_the_visitors },
	{ "by age", by_age }, { "before failure", before_failure }, { "resized", resized },
	{ "charged", charged },
};

API_MAIN(cases)
