/*
 * mempool_shrinks: a reserve that becomes smaller while elements come: mempool_resize waits for a free that has counted
 * the room there was, and takes out what that one puts there. The free is stopped as it reads the pointers: they lie in
 * a page without access. Disciplines: all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
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
static int begun, through, sleeps;	/* the free is stopped; mempool_resize is through, or sleeps */
static __thread bool resizes;

void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	if (resizes)
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

static void *resize(void *unused)
{
	while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
		sched_yield();
	resizes = true;
	NEED(mempool_resize(&pool, 1) == 0);
	__atomic_store_n(&through, 1, __ATOMIC_RELEASE);
	return unused;
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

int main(void)
{
	pthread_t thread;

	signal(SIGSEGV, on_fault);
	pointers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(pointers != MAP_FAILED && mempool_init(&pool, 1, allocate, release, NULL) == 0);
	none = true;
	NEED(mempool_resize(&pool, MOST) == 0 && pool.curr_nr == 1);
	for (int i = 0; i < MOST - 1; i++)
		pointers[i] = malloc(16);
	NEED(mprotect(pointers, PAGE, PROT_NONE) == 0);
	NEED(pthread_create(&thread, NULL, resize, NULL) == 0);
	NEED(mempool_free_bulk(&pool, pointers, MOST - 1) == MOST - 1);
	pthread_join(thread, NULL);
	CHECK(begun && pool.min_nr == 1 && pool.curr_nr == 1, "%d elements where there may be %d", pool.curr_nr,
	      pool.min_nr);
	mempool_exit(&pool);
	return failures != 0;
}
