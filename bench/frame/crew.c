/*
 * Threads that start together, work for a given time and stop together: the frame of the throughput works. The crew
 * never allocates while the clock runs.
 *
 * Three barriers: all prepared, all counted, memory read (then members may free their objects). The main thread sets
 * crew.stop between the first two barriers, after a sleep. The clock starts before the first barrier can open and ends
 * with the last member's last operation: with more threads than CPUs the main thread may be late for both barriers, and
 * this delay must neither add nor drop operations.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "frame/bench.h"

#define CREW_MAX 1024u

static struct {
	atomic_bool stop __attribute__((aligned(64)));
	_Atomic(unsigned int) ready;
	_Atomic(uint64_t) end_ns;
	pthread_barrier_t barrier __attribute__((aligned(64)));
	void (*body)(struct member *);
	struct member members[CREW_MAX];
	pthread_t threads[CREW_MAX];
} crew;

void crew_start(struct member *member)
{
	(void)member;
	atomic_fetch_add(&crew.ready, 1);
	pthread_barrier_wait(&crew.barrier);
}

bool crew_stopped(void)
{
	return atomic_load_explicit(&crew.stop, memory_order_relaxed);
}

void crew_finish(struct member *member)
{
	uint64_t now = bench_now_ns(), seen = atomic_load(&crew.end_ns);

	(void)member;
	while (seen < now && !atomic_compare_exchange_weak(&crew.end_ns, &seen, now))
		;
	pthread_barrier_wait(&crew.barrier);
	pthread_barrier_wait(&crew.barrier);
}

static void *crew_body(void *argument)
{
	crew.body(argument);
	return NULL;
}

static void start_all(unsigned int threads, void (*body)(struct member *))
{
	if (threads < 1 || threads > CREW_MAX)
		bench_die("too many threads");
	atomic_store(&crew.stop, false);
	atomic_store(&crew.ready, 0);
	atomic_store(&crew.end_ns, 0);
	crew.body = body;
	pthread_barrier_init(&crew.barrier, NULL, threads + 1);
	for (unsigned int i = 0; i < threads; i++) {
		crew.members[i] = (struct member){ .id = i };
		if (pthread_create(&crew.threads[i], NULL, crew_body, &crew.members[i]))
			bench_die("cannot make a thread");
	}
	while (atomic_load(&crew.ready) < threads)
		bench_sleep_ms(1);
}

/* Operations of all members together. */
static uint64_t end_all(unsigned int threads)
{
	uint64_t ops = 0;

	pthread_barrier_wait(&crew.barrier);
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(crew.threads[i], NULL);
		ops += crew.members[i].ops;
	}
	pthread_barrier_destroy(&crew.barrier);
	return ops;
}

void crew_run(unsigned int threads, void (*body)(struct member *), bool memory)
{
	uint64_t start;

	start_all(threads, body);
	start = bench_now_ns();
	pthread_barrier_wait(&crew.barrier);
	bench_sleep_ms(bench_amounts.run_ms);
	atomic_store(&crew.stop, true);
	pthread_barrier_wait(&crew.barrier);
	if (memory)
		bench_print_memory("end", 0);
	bench_print("ops/s", "-", "-",
		    (double)end_all(threads) * 1e9 / (double)(atomic_load(&crew.end_ns) - start));
}

void crew_hold(unsigned int threads, void (*body)(struct member *), void (*held)(void))
{
	start_all(threads, body);
	pthread_barrier_wait(&crew.barrier);
	pthread_barrier_wait(&crew.barrier);
	held();
	end_all(threads);
}
