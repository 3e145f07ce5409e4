/*
 * mempool_shrinks: a reserve with less room than a free counted on. In one case the reserve shrinks meanwhile:
 * mempool_resize waits for the free, and takes the freed elements out. In the other case another thread fills the
 * reserve: elements without room stay the caller's, byte for byte, also with a debugged cache. The test stops the
 * free at its read of the pointers, in a page without access.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kmem/kmem.h>
#include <kmem/mempool.h>

#include "kit/check.h"

#define MOST	16
#define PAGE	65536

void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);

static mempool_t pool;
static void **pointers;			/* a page of them */
static int begun, through, sleeps;	/* the free is stopped; the other thread is through, or sleeps */
static __thread bool is_other;

void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	if (is_other)
		__atomic_store_n(&sleeps, 1, __ATOMIC_RELEASE);
	__real_km_os_wait(word, value, ms);
}

static void on_fault(int number)
{
	(void)number;
	__atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&through, __ATOMIC_ACQUIRE) && !__atomic_load_n(&sleeps, __ATOMIC_ACQUIRE))
		sched_yield();
	if (mprotect(pointers, PAGE, PROT_READ | PROT_WRITE))
		abort();
}

static void *be_other(void *what)
{
	while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
		sched_yield();
	is_other = true;
	((void (*)(void))what)();
	__atomic_store_n(&through, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Frees so many of the pointers, beside the other thread; returns how many were taken. */
static unsigned free_beside(void (*other)(void), unsigned count)
{
	pthread_t thread;

	begun = through = sleeps = 0;
	NEED(mprotect(pointers, PAGE, PROT_NONE) == 0);
	NEED(pthread_create(&thread, NULL, be_other, (void *)other) == 0);
	unsigned taken = mempool_free_bulk(&pool, pointers, count);
	pthread_join(thread, NULL);
	NEED(begun);
	return taken;
}

static bool none;

static void *allocate(gfp_t gfp, void *data)
{
	(void)gfp;
	(void)data;
	return none ? NULL : malloc(16);
}

static void release(void *element, void *data)
{
	(void)data;
	free(element);
}

static void resize(void)
{
	NEED(mempool_resize(&pool, 1) == 0);
}

static void shrinks(void)
{
	NEED(mempool_init(&pool, 1, allocate, release, NULL) == 0);
	none = true;
	NEED(mempool_resize(&pool, MOST) == 0 && pool.curr_nr == 1);
	for (int i = 0; i < MOST - 1; i++)
		pointers[i] = malloc(16);
	NEED(free_beside(resize, MOST - 1) == MOST - 1);
	CHECK(pool.min_nr == 1 && pool.curr_nr == 1, "%d elements where there may be %d", pool.curr_nr, pool.min_nr);
	mempool_exit(&pool);
}

#define ROOM	3u
#define BYTES	64
static void *others[ROOM];
static unsigned others_taken;

static void free_others(void)
{
	others_taken = mempool_free_bulk(&pool, others, ROOM);
}

static void *new_element(struct kmem_cache *cache)
{
	void *element = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(element);
	return memset(element, 0x11, BYTES);
}

static void give_back(struct kmem_cache *cache, void *const *elements, unsigned taken)
{
	for (unsigned i = taken; i < ROOM; i++) {
		for (int at = 0; at < BYTES; at++)
			CHECK(((unsigned char *)elements[i])[at] == 0x11, "byte %d of what was not taken", at);
		kmem_cache_free(cache, elements[i]);
	}
}

static void is_filled(void)
{
	struct kmem_cache *cache = kmem_cache_create("poisoned", BYTES, NULL, SLAB_POISON);
	void *out[ROOM];

	NEED(cache && mempool_init_slab_pool(&pool, ROOM + 1, cache) == 0);
	for (unsigned i = 0; i < ROOM; i++) {
		NEED((out[i] = mempool_alloc_preallocated(&pool)));
		pointers[i] = new_element(cache);
		others[i] = new_element(cache);
	}
	unsigned taken = free_beside(free_others, ROOM);
	NEED(taken + others_taken == ROOM);
	give_back(cache, pointers, taken);
	give_back(cache, others, others_taken);
	for (unsigned i = 0; i < ROOM; i++)
		kmem_cache_free(cache, out[i]);
	mempool_exit(&pool);
	kmem_cache_destroy(cache);
}

int main(void)
{
	signal(SIGSEGV, on_fault);
	pointers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(pointers != MAP_FAILED);
	shrinks();
	is_filled();
	return failures != 0;
}
