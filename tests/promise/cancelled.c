/*
 * cancelled.c: no call of the library is a cancellation point. A thread with a pending cancellation, of the default
 * type, finishes each call, and leaves no lock and no object behind. Bytes that a cancelled or ended thread charged
 * and did not use serve other threads or are uncharged. A thread with asynchronous cancellation must defer
 * cancellation around the calls. Disciplines: all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>

#include <kmem/memcg.h>
#include <kmem/mempool.h>

#include "kit/api.h"

static struct kmem_cache *cache;
static struct mem_cgroup *group;
static mempool_t *pool;
static bool through;
static int nowhere;

static void one_by_one(void)
{
	void *objects[300];

	for (int i = 0; i < 300; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (int i = 0; i < 300; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 300, objects));
	kmem_cache_free_bulk(cache, 300, objects);
	kmem_cache_return_sheaf(cache, GFP_KERNEL, kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 40));
}

static void sizes(void)
{
	for (size_t bytes = 8; bytes < (size_t)20 << 20; bytes *= 3) {
		void *p = kvmalloc(bytes, GFP_KERNEL), *moved = kvrealloc(p, bytes * 2, GFP_KERNEL);

		NEED(p && moved);
		kvfree(moved);
	}
}

static void caches(void)
{
	struct kmem_cache *other = kmem_cache_create("other", 200, NULL, 0);

	NEED(other);
	kmem_cache_free(other, kmem_cache_alloc(other, GFP_KERNEL));
	NEED(kmem_cache_set_debug(other, "FZPU") == 0);
	kmem_cache_free(other, kmem_cache_alloc(other, GFP_KERNEL));
	NEED(kmem_cache_set_debug(other, "-") == 0);
	kmem_cache_destroy(other);
	kmem_cache_shrink(cache);
	kmem_shrink_all();
}

/* These calls write lines: libc's write, open and close would end the cancelled thread. */
static void tells(void)
{
	NEED(kmem_print_slabinfo(nowhere) == 0 && kmem_print_json(nowhere) == 0);
	NEED(!kmem_cache_create("of no bytes, of which a line is said", 0, NULL, 0));
}

/* This thread charged all bytes left in the CPU's stocks. */
static void pays(void)
{
	void *p[20];

	if (slob)
		return;
	for (int i = 0; i < 20; i++)
		NEED((p[i] = kmalloc_in(group, 300, GFP_KERNEL)));
	for (int i = 0; i < 20; i++)
		kfree(p[i]);
	NEED(mem_cgroup_charge(group, GFP_KERNEL, 5000) == 0);
	mem_cgroup_uncharge(group, 5000);
}

static void pools(void)
{
	void *element = mempool_alloc(pool, GFP_KERNEL);

	NEED(element);
	mempool_free(element, pool);
}

static void does_all(void)
{
	one_by_one();
	sizes();
	caches();
	tells();
	pays();
	pools();
	through = true;
}

/* The cancellation is pending already, and ends the thread when the type is set back. */
static void *works_deferred(void *unused)
{
	int type;

	NEED(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
	NEED(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) == 0);
	NEED(pthread_cancel(pthread_self()) == 0);
	does_all();
	pthread_setcanceltype(type, NULL);
	through = false;
	return unused;
}

static void *works(void *to_be_cancelled)
{
	if (to_be_cancelled)
		NEED(pthread_cancel(pthread_self()) == 0);
	does_all();
	if (to_be_cancelled)
		pthread_testcancel();
	return NULL;
}

static void ends_by(bool cancelled)
{
	pthread_t thread;
	void *result;

	through = false;
	NEED(pthread_create(&thread, NULL, works, cancelled ? &through : NULL) == 0);
	NEED(pthread_join(thread, &result) == 0);
	NEED(through && result == (cancelled ? PTHREAD_CANCELED : NULL));
}

static void ends_asynchronously(void)
{
	pthread_t thread;
	void *result;

	through = false;
	NEED(pthread_create(&thread, NULL, works_deferred, NULL) == 0);
	NEED(pthread_join(thread, &result) == 0);
	NEED(through && result == PTHREAD_CANCELED);
}

static void all_is_back(void)
{
	if (!slob) {
		mem_cgroup_drain(group);
		CHECK_EQUAL(mem_cgroup_current(group), 0);
	}
	mempool_destroy(pool);
	mem_cgroup_put(group);
	gone(cache);
	NEED(kmem_check_all() == 0);
}

static void begin(void)
{
	NEED((nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)) >= 0);
	cache = make("cancelled", 72);
	NEED((group = mem_cgroup_create(NULL, "pays", 0)));
	NEED((pool = mempool_create_kmalloc_pool(4, 100)));
}

static void by_request(void)
{
	begin();
	for (int i = 0; i < 3; i++)
		ends_by(true);
	ends_asynchronously();
	ends_by(false);
	all_is_back();
}

/*
 * Leaves by a jump out of a function, started by a signal of this thread or of another one between
 * two calls.
 */
static void *leaves(void *held)
{
	void **objects = held;

	for (int i = 0; i < 50; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	if (!slob)
		NEED((objects[50] = kmalloc_in(group, 300, GFP_KERNEL)) &&
		     mem_cgroup_charge(group, GFP_KERNEL, 70000) == 0);
	pthread_exit(objects);
}

static void in_the_midst(void)
{
	void *objects[51] = { NULL };
	pthread_t thread;

	begin();
	for (int turn = 0; turn < 5; turn++) {
		NEED(pthread_create(&thread, NULL, leaves, objects) == 0 && pthread_join(thread, NULL) == 0);
		for (int i = 0; i < 50; i++)
			kmem_cache_free(cache, objects[i]);
		if (!slob) {
			kfree(objects[50]);
			mem_cgroup_uncharge(group, 70000);
		}
	}
	all_is_back();
}

static const struct test_case cases[] = {
	{ "by request", by_request }, { "in the midst", in_the_midst },
};
API_MAIN(cases)
