/*
 * nolock: kmalloc_nolock, kfree_nolock and their forms for caches: permitted flags and results, bit by bit. The calls
 * never wait: while another thread holds any lock of the library, the calls return with or without an object, and an
 * object that cannot be put back goes back later. For each engine. Disciplines: all. With hardened: own_addresses:0,
 * because here pages go from one name to another.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include <kmem/memcg.h>

#include "slab/sheaf.h"
#include "engines/slab/slab.h"
#include "engines/slob/slob.h"
#include "engines/slub/slub.h"
#include "kit/api.h"
#include "page/deferred_free.h"
#include "page/zone.h"
#include "os/lock.h"

#define ANY NUMA_NO_NODE

static void arguments(void)
{
	static const gfp_t bad[] = { GFP_KERNEL, GFP_NOWAIT, GFP_ATOMIC, __GFP_THISNODE, __GFP_NOFAIL, 1u << 31 };
	struct kmem_cache *cache = make("arguments", 100);

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		errno = 0;
		NEED(!kmalloc_nolock(10, bad[i], ANY) && errno == EINVAL);
		errno = 0;
		NEED(!kmem_cache_alloc_nolock(cache, bad[i], ANY) && errno == EINVAL);
	}
	errno = 0;
	NEED(!kmalloc_nolock(KMALLOC_MAX_CACHE_SIZE + 1, 0, ANY) && errno == EINVAL);
	NEED(kmalloc_nolock(0, 0, ANY) == ZERO_SIZE_PTR);
	errno = 77;
	kfree_nolock(NULL);
	kfree_nolock(ZERO_SIZE_PTR);
	for (size_t size = 1; size <= KMALLOC_MAX_CACHE_SIZE; size += size / 3 + 1) {
		if (slob && size >= 4000)
			break;
		for (int i = 0; i < 20; i++) {
			char *p = kmalloc_nolock(size, i % 2 ? __GFP_ZERO : 0, ANY);

			NEED(p && errno == 77 && ksize(p) >= size && !((uintptr_t)p & ((size & -size) - 1)));
			NEED(!(i % 2) || all(p, 0, size));
			memset(p, 0x33, size);
			i % 3 ? kfree_nolock(p) : kfree(p);
			NEED(errno == 77);
		}
	}
	void *objects[100];
	for (int i = 0; i < 100; i++) {
		NEED((objects[i] = kmem_cache_alloc_nolock(cache, i % 2 ? __GFP_ZERO : 0, i % 3 ? ANY : 0)));
		NEED(!(i % 2) || all(objects[i], 0, 100));
		memset(objects[i], 0x44, 100);
	}
	for (int i = 0; i < 100; i++)
		kmem_cache_free_nolock(cache, objects[i]);
	NEED(errno == 77);
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	gone(cache);
}

/*
 * A thread with all allocations charged is charged for these objects, too, except for bytes already
 * in stocks.
 */
static void pays_for_all(struct mem_cgroup *group)
{
	static void *objects[600];
	uint64_t before = mem_cgroup_current(group), got = 0;
	MEMCG_SCOPE_ALL(group);

	for (int i = 0; i < 600; i++)
		got += (objects[i] = kmalloc_nolock(3000, 0, ANY)) != NULL;
	CHECK(got * 3000 <= mem_cgroup_current(group) - before + (1 << 19), "%lu objects", (unsigned long)got);
	for (int i = 0; i < 600; i++)
		kfree_nolock(objects[i]);
}

/* Charged objects come from cached objects, or from the group's stock and the sheaf. */
static void accounts(void)
{
	struct mem_cgroup *group = slob ? NULL : mem_cgroup_create(NULL, "group", 0);
	void *objects[50];
	unsigned got = 0;

	if (!group)
		return;
	struct mem_cgroup *former = set_active_memcg(group);
	for (int i = 0; i < 50; i++)
		kfree(kmalloc(100, GFP_KERNEL_ACCOUNT));
	for (int i = 0; i < 50; i++)
		got += (objects[i] = kmalloc_nolock(100, __GFP_ACCOUNT, ANY)) != NULL;
	for (int i = 0; i < 50; i++)
		kfree_nolock(objects[i]);
	CHECK(got || strcmp(kmem_percpu_discipline(), "rseq"));
	pays_for_all(group);
	set_active_memcg(former);
	mem_cgroup_put(group);
	kmem_shrink_all();
	NEED(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ locks held by other threads */

static struct km_lock *held;
static volatile int stage;	/* 1: the lock is held; 2: the lock is to be released */

static void *holder(void *unused)
{
	struct km_busy_was was = km_busy_begin();

	km_lock(held);
	stage = 1;
	while (stage == 1)
		sched_yield();
	km_unlock(held);
	km_busy_end(was);
	return unused;
}

static unsigned objects_without(struct km_lock *lock, struct kmem_cache *cache, const char *what)
{
	void *kept[600], *sized[100];
	unsigned got = 0;
	pthread_t thread;

	held = lock;
	stage = 0;
	NEED(!pthread_create(&thread, NULL, holder, NULL));
	while (!stage)
		sched_yield();
	for (int i = 0; i < 600; i++)
		got += (kept[i] = kmem_cache_alloc_nolock(cache, 0, ANY)) != NULL;
	for (int i = 0; i < 100; i++)
		sized[i] = kmalloc_nolock(i * 37 + 1, __GFP_ZERO, ANY);
	for (int i = 0; i < 600; i++)
		if (kept[i])
			kmem_cache_free_nolock(cache, kept[i]);
	for (int i = 0; i < 100; i++)
		kfree_nolock(sized[i]);
	stage = 2;
	pthread_join(thread, NULL);
	/* A request that may wait finishes the deferred frees. */
	for (int i = 0; i < 600; i++)
		NEED((kept[i] = kmem_cache_alloc(cache, GFP_KERNEL)), "%s", what);
	for (int i = 0; i < 600; i++)
		kmem_cache_free(cache, kept[i]);
	for (int i = 0; i < 100; i++)
		kfree(kmalloc((size_t)i * 37 + 1, GFP_KERNEL));
	return got;
}

/* Prints a line before each lock: the log of a hanging test names the lock. */
static void others_locks(void)
{
	struct kmem_cache *cache = make("locked", 64);
	const char *engine = cache->layout.engine->name;
	unsigned all = 0;

#define WITHOUT(lock) ({ puts(#lock); fflush(stdout); objects_without(lock, cache, #lock); })
	all += WITHOUT(&km_arena.zone[0].lock);
	all += WITHOUT(&km_arena.grow);
	all += WITHOUT(&km_arena.purge);
	if (!strcmp(engine, "slob")) {
		CHECK_EQUAL(WITHOUT(&km_slob.lock), 0);
	} else {
		all += WITHOUT(&((struct km_slabs *)cache->state.node[0])->lock);
		kmem_cache_shrink(cache);
		all += WITHOUT(&((struct km_slabs *)cache->state.node[0])->lock);
	}
	if (!strcmp(engine, "sheaf"))
		all += WITHOUT(&sheaf_node(cache, 0)->barn.lock);
	printf("%s: %u objects\n", engine, all);
	gone(cache);
}

/* Pages were got, and can't be given back, because another has the lock: they are left, and come back. */
static void left_pages(void)
{
	struct kmem_cache *cache = make("left", 3000);
	struct kmem_stats before, after;

	if (slob)
		return;
	kmem_shrink_all();
	kmem_get_stats(&before);
	pthread_t thread;
	held = &km_arena.zone[0].lock;
	stage = 0;
	struct km_request request = km_request_of(0, ANY);
	struct km_busy_was was = km_busy_begin();
	bool late = km_deferred_begin();
	struct km_page *slab = km_slab_new(cache, &request);
	NEED(slab);
	NEED(!pthread_create(&thread, NULL, holder, NULL));
	while (!stage)
		sched_yield();
	km_slab_free(cache, slab);
	km_deferred_end(late);
	km_busy_end(was);
	stage = 2;
	pthread_join(thread, NULL);
	kmem_get_stats(&after);
	NEED(after.pages_used > before.pages_used);
	kmem_shrink_all();
	kmem_get_stats(&after);
	NEED(after.pages_used <= before.pages_used);
	kmem_cache_destroy(cache);
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "arguments", arguments }, { "accounts", accounts }, { "others' locks", others_locks },
	{ "left pages", left_pages },
};
API_MAIN(cases)
