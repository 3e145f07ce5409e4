/*
 * kmem_owns.c: kmem_owns recognizes addresses of libkmem's objects and blocks: of their starts and insides,
 * small to large, and of no other memory; also while other threads allocate and free large blocks, and inside the
 * library's own calls.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "kit/api.h"
#include "os/os.h"

#define MIB ((size_t)1 << 20)
enum { BIG = 100, ROUNDS = 300 };

/* Both ends, and the middle. */
static bool owns_all(const char *p, size_t bytes)
{
	return kmem_owns(p) && kmem_owns(p + bytes / 2) && kmem_owns(p + bytes - 1);
}

static void owned(void)
{
	static const size_t sizes[] = { 1, 8, 100, 4096, 8192, 8193, 100000, MIB, 4 * MIB, 5 * MIB, 40 * MIB };
	struct kmem_cache *cache = make("owned", 200);
	char *p = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(owns_all(p, 200));
	kmem_cache_free(cache, p);
	NEED(kmem_owns(p));
	gone(cache);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		p = kvmalloc(sizes[i], GFP_KERNEL);
		NEED(p && owns_all(p, sizes[i]), "%zu", sizes[i]);
		kvfree(p);
	}
	/* As many as share regions. */
	static char *big[BIG];
	for (int i = 0; i < BIG; i++)
		NEED((big[i] = kvmalloc(5 * MIB, GFP_KERNEL)));
	for (int i = 0; i < BIG; i++)
		NEED(owns_all(big[i], 5 * MIB));
	for (int i = 0; i < BIG; i++)
		kvfree(big[i]);
	NEED(!kmem_owns(big[0]) && !kmem_owns(big[BIG / 2] + MIB));
}

static int data;

static void foreign(void)
{
	char here = 0, *mapped = mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *block = malloc(100), *kept = kvmalloc(8 * MIB, GFP_KERNEL);

	NEED(kept && block && mapped != MAP_FAILED);
	NEED(!kmem_owns(NULL) && !kmem_owns(ZERO_SIZE_PTR) && !kmem_owns((void *)-1) && !kmem_owns((void *)1));
	NEED(!kmem_owns(&here) && !kmem_owns(&data) && !kmem_owns(block) && !kmem_owns("text"));
	NEED(!kmem_owns(mapped) && !kmem_owns(mapped + 32 * MIB) && !kmem_owns((void *)(uintptr_t)foreign));
	free(block);
	kvfree(kept);
}

static bool over;

static void *have_and_free(void *arg)
{
	static char *big[BIG];

	(void)arg;
	for (int round = 0; round < ROUNDS / 10; round++) {
		for (int i = 0; i < BIG; i++)
			NEED((big[i] = kvmalloc(5 * MIB, GFP_KERNEL)));
		for (int i = 0; i < BIG; i++)
			kvfree(big[i]);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	return NULL;
}

/* The table grows, and loses entries, in another thread. */
static void beside_others(void)
{
	pthread_t thread;
	char *mine = kvmalloc(6 * MIB, GFP_KERNEL);
	int foreign_here = 0;

	NEED(mine && pthread_create(&thread, NULL, have_and_free, NULL) == 0);
	do
		NEED(owns_all(mine, 6 * MIB) && !kmem_owns(&foreign_here));
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE));
	pthread_join(thread, NULL);
	kvfree(mine);
}

static char *kept_block;
static unsigned asked;

static bool ask(const char *call)
{
	(void)call;
	NEED(owns_all(kept_block, 5 * MIB) && !kmem_owns(&data));
	asked++;
	return false;
}

/* As a signal handler does inside a call. */
static void within_calls(void)
{
	static char *big[BIG];

	kept_block = kvmalloc(5 * MIB, GFP_KERNEL);
	km_os_fault = ask;
	for (int i = 0; i < BIG; i++)
		NEED((big[i] = kvmalloc(5 * MIB, GFP_KERNEL)));
	for (int i = 0; i < BIG; i++)
		kvfree(big[i]);
	km_os_fault = NULL;
	NEED(asked > 20);
}

static void no_cache(void)
{
	struct kmem_cache_stats stats;

	memset(&stats, 0xff, sizeof(stats));
	kmem_cache_get_stats(NULL, &stats);
	NEED(!*stats.name && !*stats.engine && !stats.active_objects && !stats.total_slabs);
}

static const struct test_case cases[] = {
	{ "owned", owned }, { "foreign", foreign }, { "beside others", beside_others },
	{ "within calls", within_calls }, { "statistics of no cache", no_cache },
};

API_MAIN(cases)
