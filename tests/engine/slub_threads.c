/*
 * slub_threads: the engine slub among threads, signal handlers, forks and threads without a CPU: no object is given
 * out twice, none is lost, and the counters of lost compare-and-swaps move where they are lost. Disciplines: all.
 */
#include "slub.h"
#include "kit/random.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#define SLOTS 4096u
#define THREADS 4

/* The object has a mark of its allocation; the free pointer is outside of the mark, so the mark survives. */
struct object {
	uint64_t taken;
	char rest[SIZE - sizeof(uint64_t)];
};

static void make(void *object)
{
	((struct object *)object)->taken = 0;
}

static uint32_t wrong;

static void claim(struct object *object)
{
	if (__atomic_exchange_n(&object->taken, 1, __ATOMIC_ACQ_REL))
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static void release(struct kmem_cache *cache, struct object *object)
{
	if (!__atomic_exchange_n(&object->taken, 0, __ATOMIC_ACQ_REL))
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
	kmem_cache_free(cache, object);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static struct {
	struct kmem_cache *cache;
	struct object *slot[SLOTS];
	uint32_t stop;
} shared;

static void one_step(uint64_t *seed)
{
	struct kmem_cache *cache = shared.cache;
	unsigned what = random_next(seed) % 16;

	if (what == 0) {
		void *batch[100];
		size_t count = 1 + random_next(seed) % 100;

		if (!kmem_cache_alloc_bulk(cache, GFP_KERNEL, count, batch))
			return;
		for (size_t i = 0; i < count; i++)
			claim(batch[i]);
		for (size_t i = 0; i < count; i++)
			((struct object *)batch[i])->taken = 0;
		kmem_cache_free_bulk(cache, count, batch);
		return;
	}
	struct object *mine = what < 9 ? kmem_cache_alloc(cache, GFP_KERNEL) : NULL;
	if (mine)
		claim(mine);
	mine = __atomic_exchange_n(&shared.slot[random_next(seed) % SLOTS], mine, __ATOMIC_ACQ_REL);
	if (mine)
		release(cache, mine);
}

static void *churn(void *arg)
{
	uint64_t seed = 1 + (uintptr_t)arg;
	int cpus = cpu_at(1) < 0 ? 1 : 2;

	while (!__atomic_load_n(&shared.stop, __ATOMIC_RELAXED)) {
		if (random_next(&seed) % 256 == 0)
			go_to_cpu(cpu_at((int)(random_next(&seed) % (unsigned)cpus)));
		one_step(&seed);
	}
	return NULL;
}

static void start(pthread_t *threads)
{
	shared.stop = 0;
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)i);
}

static void stop(pthread_t *threads)
{
	__atomic_store_n(&shared.stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void empty_slots(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (shared.slot[i]) {
			release(shared.cache, shared.slot[i]);
			shared.slot[i] = NULL;
		}
}

/* Threads on all CPUs, drains and shrinks meanwhile; compare-and-swaps on slabs are lost now and then. */
static void case_churn(void)
{
	struct kmem_cache *cache = shared.cache = fresh_with(sizeof(struct object), 0, make);
	pthread_t threads[THREADS];
	double begin = now();

	start(threads);
	do {
		usleep(20000);
		kmem_cache_shrink(cache);
		kmem_cache_set_min_partial(cache, (unsigned long)((now() - begin) * 10) % 7);
	} while (now() < begin + 1.5 ||
		 (cpu_at(1) >= 0 && now() < begin + 20 &&
		  !kmem_cache_event(cache, KMEM_CMPXCHG_DOUBLE_FAIL)));
	stop(threads);
	if (cpu_at(1) >= 0)
		CHECK(kmem_cache_event(cache, KMEM_CMPXCHG_DOUBLE_FAIL) > 0);
	CHECK_EQUAL(wrong, 0);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	empty_slots();
	CHECK_EQUAL(wrong, 0);
	done(cache);
}

/* ------------------------------------------------------------------ signal handlers */

static void in_handler(int signal)
{
	static uint64_t seed = 99;
	int saved_errno = errno;
	struct object *object = kmem_cache_alloc(shared.cache, GFP_NOWAIT);

	(void)signal;
	if (object) {
		claim(object);
		object = __atomic_exchange_n(&shared.slot[random_next(&seed) % 64], object,
					     __ATOMIC_ACQ_REL);
	}
	if (object)
		release(shared.cache, object);
	errno = saved_errno;
}

/* Under cmpxchg a handler between read and swap makes the swap fail; under any discipline nothing is lost. */
static void case_handler(void)
{
	struct kmem_cache *cache = shared.cache = fresh_with(sizeof(struct object), 0, make);
	struct sigaction action = { .sa_handler = in_handler, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { { 0, 0 }, { 0, 0 } };
	uint64_t seed = 7;
	bool cmpxchg = km_percpu.discipline == KM_DISCIPLINE_CMPXCHG;
	double begin = now();

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	do
		for (int i = 0; i < 1000; i++)
			one_step(&seed);
	while (now() < begin + 0.5 || (cmpxchg && now() < begin + 20 &&
				       !kmem_cache_event(cache, KMEM_CMPXCHG_DOUBLE_CPU_FAIL)));
	setitimer(ITIMER_REAL, &never, NULL);
	if (cmpxchg)
		CHECK(kmem_cache_event(cache, KMEM_CMPXCHG_DOUBLE_CPU_FAIL) > 0);
	else
		CHECK_EQUAL(kmem_cache_event(cache, KMEM_CMPXCHG_DOUBLE_CPU_FAIL), 0);
	empty_slots();
	/* Deferred frees of handlers. */
	kmem_cache_shrink(cache);
	CHECK_EQUAL(wrong, 0);
	done(cache);
}

/* ------------------------------------------------------------------ fork */

static int in_child(void)
{
	struct kmem_cache *cache = shared.cache;
	uint64_t seed = 5;

	alarm(580);
	wrong = 0;
	for (int i = 0; i < 20000; i++)
		one_step(&seed);
	kmem_cache_shrink(cache);
	return wrong || cache->layout.engine->check(cache) || !cache->fast.chain.open;
}

static void case_fork(void)
{
	struct kmem_cache *cache = shared.cache = fresh_with(sizeof(struct object), 0, make);
	pthread_t threads[THREADS];

	/* An object handled by a thread missing in the child is lost there. */
	start(threads);
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t pid = fork();

		if (pid == 0)
			_exit(in_child());
		waitpid(pid, &status, 0);
		CHECK_EQUAL(status, 0);
		usleep(1000);
	}
	stop(threads);
	empty_slots();
	CHECK_EQUAL(wrong, 0);
	done(cache);
}

/* ------------------------------------------------------------------ a thread without rseq registration */

extern const unsigned int __rseq_size __attribute__((weak));
extern const ptrdiff_t __rseq_offset __attribute__((weak));

static void *without_cpu(void *arg)
{
	struct kmem_cache *cache = arg;
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;

	if (syscall(SYS_rseq, area, 32, 1, 0x53053053))
		return NULL;
	void **objects = malloc(3 * n_objects * sizeof(*objects));
	for (unsigned i = 0; i < 3 * n_objects; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		CHECK(objects[i]);
		if (objects[i])
			claim(objects[i]);
	}
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOC_FASTPATH), 0);
	for (unsigned i = 0; i < 3 * n_objects; i++)
		if (objects[i])
			release(cache, objects[i]);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_FASTPATH), 0);
	CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 3 * n_objects, objects));
	kmem_cache_free_bulk(cache, 3 * n_objects, objects);
	free(objects);
	return NULL;
}

static void case_without_cpu(void)
{
	struct kmem_cache *cache = fresh_with(sizeof(struct object), 0, make);
	pthread_t thread;

	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ && &__rseq_size && __rseq_size) {
		pthread_create(&thread, NULL, without_cpu, cache);
		pthread_join(thread, NULL);
	}
	CHECK_EQUAL(wrong, 0);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "threads, drains and shrinks", case_churn },
		{ "signal handlers", case_handler },
		{ "forks in a threaded process", case_fork },
		{ "a thread without a CPU", case_without_cpu },
	};

	return counted_run(cases, km_array_count(cases), 1);
}
