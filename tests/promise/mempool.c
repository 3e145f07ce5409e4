/*
 * mempool.c: a pool allocates by its function, then from its reserve. A caller that may wait gets the next freed
 * element, and never NULL.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/time.h>

#include <kmem/mempool.h>
#include <kmem/stats.h>

#include "kit/api.h"
#include "base/atomic.h"
#include "os/os.h"

/* ---- a function that fails as the test wants, and counts */

enum { BYTES = 100 };
static int refusing, allocated, freed;
static gfp_t asked_gfp;

static void *own_alloc(gfp_t gfp, void *data)
{
	NEED(data == &allocated);
	km_store(&asked_gfp, gfp);
	if (km_load(&refusing)) {
		errno = ENOMEM;
		return NULL;
	}
	km_add(&allocated, 1);
	return kmalloc(BYTES, gfp);
}

static void own_free(void *element, void *data)
{
	NEED(data == &allocated);
	km_add(&freed, 1);
	kfree(element);
}

static mempool_t pool;

static void begin(int min_nr)
{
	allocated = freed = 0;
	NEED(mempool_init(&pool, min_nr, own_alloc, own_free, &allocated) == 0);
	NEED(allocated == min_nr && pool.curr_nr == min_nr && mempool_initialized(&pool));
	km_store(&refusing, 1);
}

static void end(void)
{
	km_store(&refusing, 0);
	mempool_exit(&pool);
	NEED(allocated == freed && !mempool_initialized(&pool));
	mempool_exit(&pool);
	NEED(kmem_check_all() == 0);
}

/* ---- cases */

static void reserve(void)
{
	void *element[5], *other;

	begin(4);
	km_store(&refusing, 0);
	other = mempool_alloc(&pool, GFP_KERNEL);
	NEED(other && allocated == 5 && pool.curr_nr == 4);
	NEED((asked_gfp & (__GFP_NORETRY | __GFP_NOWARN)) == (__GFP_NORETRY | __GFP_NOWARN));
	km_store(&refusing, 1);
	errno = 7;
	for (int i = 0; i < 4; i++) {
		element[i] = mempool_alloc(&pool, i & 1 ? GFP_KERNEL | __GFP_NOFAIL : GFP_NOWAIT);
		NEED(element[i] && !(asked_gfp & __GFP_NOFAIL));
		memset(element[i], i, BYTES);
	}
	NEED(errno == 7 && pool.curr_nr == 0);
	NEED(!mempool_alloc(&pool, GFP_NOWAIT) && errno == ENOMEM);
	errno = 0;
	NEED(!mempool_alloc_preallocated(&pool) && errno == ENOMEM);
	for (int i = 0; i < 4; i++)
		NEED(all(element[i], i, BYTES));
	/* Elements go to the reserve first, also elements of other origin. */
	mempool_free(other, &pool);
	NEED(pool.curr_nr == 1 && freed == 0);
	NEED(mempool_alloc_preallocated(&pool) == other);
	element[4] = other;
	mempool_free(NULL, &pool);
	for (int i = 0; i < 5; i++)
		mempool_free(element[i], &pool);
	NEED(pool.curr_nr == 4 && freed == 1 && mempool_is_saturated(&pool));
	end();
}

static void kinds(void)
{
	struct kmem_cache *cache = make("pooled", 200);
	mempool_t *slab = mempool_create_slab_pool(3, cache), *blocks = mempool_create_kmalloc_pool(3, 300);
	mempool_t *pages = mempool_create_page_pool(2, 1), by_slab, by_size, by_pages, none = { 0 };
	struct kmem_cache_stats stats;

	NEED(slab && blocks && pages);
	NEED(mempool_init_slab_pool(&by_slab, 2, cache) == 0);
	NEED(mempool_init_kmalloc_pool(&by_size, 2, 10000) == 0 && mempool_init_page_pool(&by_pages, 1, 0) == 0);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 5);
	char *page = mempool_alloc(pages, GFP_KERNEL), *block = mempool_alloc(blocks, GFP_KERNEL);
	NEED(page && (uintptr_t)page % 4096 == 0 && ksize(page) >= 8192 && ksize(block) >= 300);
	mempool_free(page, pages);
	mempool_free(block, blocks);
	/* A cache at its slab limit: the reserve is available. */
	NEED(slob || kmem_cache_set_limit(cache, 1) == 0);
	for (int i = 0; i < 100; i++)
		mempool_free(mempool_alloc(slab, GFP_KERNEL), slab);
	mempool_exit(&by_slab);
	mempool_exit(&by_size);
	mempool_exit(&by_pages);
	mempool_exit(&none);
	mempool_destroy(slab);
	mempool_destroy(blocks);
	mempool_destroy(pages);
	mempool_destroy(NULL);
	gone(cache);
}

static int give_some;
static void *some_alloc(gfp_t gfp, void *data)
{
	return give_some-- > 0 ? own_alloc(gfp, data) : NULL;
}

static void failures_to_begin(void)
{
	NEED(mempool_init(&pool, -1, own_alloc, own_free, &allocated) == -EINVAL);
	NEED(mempool_init(&pool, 1, NULL, own_free, &allocated) == -EINVAL && !mempool_initialized(&pool));
	NEED(!mempool_create(1, own_alloc, NULL, &allocated) && errno == EINVAL);
	/* The reserve cannot be allocated: the part allocated goes back. */
	for (int some = 0; some < 5; some++) {
		give_some = some;
		NEED(mempool_init(&pool, 5, some_alloc, own_free, &allocated) == -ENOMEM);
		NEED(allocated == freed && !mempool_initialized(&pool));
		give_some = some;
		NEED(!mempool_create(5, some_alloc, own_free, &allocated) && errno == ENOMEM);
		NEED(allocated == freed);
	}
	/* No memory for the list of elements. */
	NEED(mempool_init(&pool, INT32_MAX, own_alloc, own_free, &allocated) == -ENOMEM && allocated == freed);
	/* A pool without a reserve has the elements of its function only. */
	begin(0);
	NEED(!mempool_alloc(&pool, GFP_NOWAIT));
	km_store(&refusing, 0);
	mempool_free(mempool_alloc(&pool, GFP_KERNEL), &pool);
	end();
}

static void resized(void)
{
	void *element[8];

	begin(4);
	NEED(mempool_resize(&pool, -1) == -EINVAL && mempool_resize(&pool, INT32_MAX) == -ENOMEM);
	NEED(pool.min_nr == 4 && pool.curr_nr == 4);
	/* The reserve grows while the function gives no element: freed elements fill the reserve. */
	km_store(&refusing, 0);
	for (int i = 0; i < 2; i++)
		element[i] = mempool_alloc(&pool, GFP_KERNEL);
	km_store(&refusing, 1);
	NEED(mempool_resize(&pool, 6) == 0 && pool.curr_nr == 4);
	for (int i = 0; i < 2; i++)
		mempool_free(element[i], &pool);
	NEED(pool.curr_nr == 6 && freed == 0);
	NEED(mempool_resize(&pool, 2) == 0 && pool.curr_nr == 2 && freed == 4);
	km_store(&refusing, 0);
	NEED(mempool_resize(&pool, 8) == 0 && pool.curr_nr == 8);
	km_store(&refusing, 1);
	for (int i = 0; i < 8; i++)
		NEED((element[i] = mempool_alloc(&pool, GFP_NOWAIT)));
	NEED(mempool_resize(&pool, 0) == 0);
	for (int i = 0; i < 8; i++)
		mempool_free(element[i], &pool);
	end();
}

/* ---- waiting callers */

static void *get_one(void *arg)
{
	(void)arg;
	return mempool_alloc(&pool, GFP_KERNEL);
}

static void until_waiting(unsigned count)
{
	while (km_load(&pool.waiters) != count)
		sched_yield();
}

static void waits(void)
{
	pthread_t thread[3];
	void *element[3], *got;

	begin(3);
	for (int i = 0; i < 3; i++)
		element[i] = mempool_alloc(&pool, GFP_KERNEL);
	for (int i = 0; i < 3; i++)
		NEED(pthread_create(&thread[i], NULL, get_one, NULL) == 0);
	until_waiting(3);
	for (unsigned i = 0; i < 3; i++) {
		mempool_free(element[i], &pool);
		until_waiting(2 - i);
	}
	for (int i = 0; i < 3; i++) {
		NEED(pthread_join(thread[i], &got) == 0 && got);
		mempool_free(got, &pool);
	}
	NEED(pool.curr_nr == 3 && pool.waiters == 0);
	end();
}

static void *get_two(void *arg)
{
	(void)arg;
	static __thread void *two[2];

	NEED(mempool_alloc_bulk(&pool, two, 2, 0) == 0 && two[0] && two[1]);
	mempool_free(two[0], &pool);
	mempool_free(two[1], &pool);
	return NULL;
}

/* No caller takes a part of its wish, because parts would leave both callers waiting. */
static void bulk(void)
{
	pthread_t thread[2];
	void *element[4] = { NULL }, *left[3];

	begin(3);
	NEED(mempool_alloc_bulk(&pool, element, 2, 0) == 0 && pool.curr_nr == 1);
	element[2] = element[3] = NULL;
	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&thread[i], NULL, get_two, NULL) == 0);
	until_waiting(2);
	NEED(pool.curr_nr == 1);
	/* A caller that wants one element passes the waiting callers. */
	NEED((left[0] = mempool_alloc(&pool, GFP_NOWAIT)));
	mempool_free(left[0], &pool);
	mempool_free(element[0], &pool);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	/* Elements already in the array stay. */
	element[0] = NULL;
	void *kept = element[1];
	NEED(mempool_alloc_bulk(&pool, element, 2, 1) == 0 && element[0] && element[1] == kept);
	km_store(&refusing, 0);
	NEED(mempool_alloc_bulk(&pool, element, 4, 2) == 0 && element[3]);
	km_store(&refusing, 1);
	/* One is in the reserve; the first two of four go there. */
	NEED(pool.curr_nr == 1 && mempool_free_bulk(&pool, element, 4) == 2 && pool.curr_nr == 3);
	NEED(mempool_free_bulk(&pool, element + 2, 2) == 0);
	own_free(element[2], &allocated);
	own_free(element[3], &allocated);
	end();
}

/* Callers with a bounded number of elements go on, although the function never gives any. */
enum { THREADS = 4, TURNS = 5000 };
static void *hold_two(void *arg)
{
	for (int i = 0; i < TURNS; i++) {
		void *element[2] = { NULL };

		NEED(mempool_alloc_bulk(&pool, element, 2, 0) == 0);
		NEED(element[0] != element[1]);
		memset(element[0], (int)(uintptr_t)arg, BYTES);
		memset(element[1], (int)(uintptr_t)arg, BYTES);
		if (i % 16 == 0)
			sched_yield();
		NEED(all(element[0], (int)(uintptr_t)arg, BYTES) && all(element[1], (int)(uintptr_t)arg, BYTES));
		mempool_free(element[i & 1], &pool);
		mempool_free(element[!(i & 1)], &pool);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS];

	begin(3);
	for (uintptr_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, hold_two, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	NEED(pool.curr_nr == 3);
	end();
}

/* ---- contexts */

static bool over;
static void *take_turns(void *arg)
{
	(void)arg;
	while (!km_load(&over))
		mempool_free(mempool_alloc(&pool, GFP_KERNEL), &pool);
	return NULL;
}

/* In the child no other thread holds the lock; elements held by other threads are lost. */
static void forked(void)
{
	pthread_t thread[2];
	int status;

	begin(4);
	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&thread[i], NULL, take_turns, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		pid_t child = fork();

		NEED(child >= 0);
		if (!child) {
			alarm(580);
			void *one = mempool_alloc(&pool, GFP_NOWAIT), *two = mempool_alloc(&pool, GFP_NOWAIT);

			NEED(one && two);
			mempool_free(one, &pool);
			mempool_free(two, &pool);
			_exit(0);
		}
		NEED(waitpid(child, &status, 0) == child && status == 0);
	}
	km_store(&over, true);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	end();
}

static volatile int handled, had;
static void handler(int signal)
{
	int kept = errno;
	void *one = mempool_alloc(&pool, GFP_ATOMIC), *two = mempool_alloc_preallocated(&pool);

	(void)signal;
	handled++;
	had += (one != NULL) + (two != NULL);
	mempool_free(two, &pool);
	mempool_free(one, &pool);
	errno = kept;
}

/* A handler at any instruction never waits, and no element is lost. */
static void in_a_handler(void)
{
	struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { 0 };

	begin(4);
	signal(SIGALRM, handler);
	setitimer(ITIMER_REAL, &often, NULL);
	while (handled < 2000) {
		void *element = mempool_alloc(&pool, GFP_NOWAIT);

		NEED(element);
		mempool_free(element, &pool);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_DFL);
	NEED(had > 0);
	/* A handler that could not return an element to the reserve freed the element. */
	NEED(pool.curr_nr + freed == 4);
	end();
}

/* In a debugged cache a write to an element of the reserve is found. */
static char *late;
static void write_late(void)
{
	struct kmem_cache *cache = kmem_cache_create("observed", 200, NULL, SLAB_POISON | SLAB_RED_ZONE);

	NEED(cache && kmem_cache_validate(cache) == 0);
	NEED(mempool_init_slab_pool(&pool, 2, cache) == 0);
	for (int i = 0; i < 100; i++) {
		void *two[2] = { NULL };

		NEED(mempool_alloc_bulk(&pool, two, 2, 0) == 0);
		memset(two[0], 1, 200);
		memset(two[1], 2, 200);
		mempool_free(two[i & 1], &pool);
		mempool_free(two[!(i & 1)], &pool);
	}
	late = mempool_alloc_preallocated(&pool);
	memset(late, 3, 200);
	mempool_free(late, &pool);
	NEED(all(late, 0x6b, 199));
	late[17] = 0x6a;
	if (refusing == 2)
		mempool_exit(&pool);
	else
		(void)!mempool_alloc_preallocated(&pool);
}
static void written_late(void)
{
	char text[4096];
	int lines;

	if (slob)
		return;
	for (refusing = 1; refusing < 3; refusing++) {
		int status = said(write_late, text, &lines);

		NEED(WIFSIGNALED(status) && strstr(text, "at byte 17: 0x6a") && strstr(text, "mempool_alloc(observed"));
	}
}

static void with_zero(void)
{
	begin(1);
	(void)!mempool_alloc(&pool, GFP_KERNEL | __GFP_ZERO);
}
static void bad_gfp(void)
{
	char text[4096];
	int lines, status = said(with_zero, text, &lines);

	NEED(WIFSIGNALED(status) && lines == 1 && strstr(text, "mempool_alloc"));
}

static const struct test_case cases[] = {
	{ "reserve", reserve },
	{ "kinds", kinds },
	{ "failures", failures_to_begin },
	{ "resized", resized },
	{ "waits", waits },
	{ "bulk", bulk },
	{ "threads", threads },
	{ "fork", forked },
	{ "in a handler", in_a_handler },
	{ "bad gfp", bad_gfp },
	{ "written late", written_late },
};
API_MAIN(cases)
