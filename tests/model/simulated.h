/*
 * simulated.h: a machine in one process: CPUs that come and go, threads, a clock, and a system that refuses memory
 * in bad times. Threads are the system's, but one runs at a time: the others wait for their turn. The turn changes
 * at any basic block of the library (the test is linked with a library compiled to report each), and where the
 * library waits. The seed decides all: the same seed is the same run.
 *
 * Under rseq a thread's area is registered with this machine and not with the kernel, so the kernel never aborts a
 * sequence: a sequence is one step. All threads see memory at once. Other orders: the models (tests/model/).
 */
#ifndef MODEL_SIMULATED_H
#define MODEL_SIMULATED_H

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kit/check.h"
#include "kit/random.h"
#include "os/os.h"

#define SIM_CPUS	8u	/* as the system reports; threads may run on SIM_BEYOND more */
#define SIM_BEYOND	2u
#define SIM_THREADS	6u
#define SIM_STACK	((size_t)256 << 10)
#define NO_THREAD		SIM_THREADS

struct sim_area {
	uint32_t cpu_id_start, cpu_id;
};

struct sim_thread {
	pthread_t thread;
	char *stack;
	uint32_t turn;			/* a futex: the turn is this thread's */
	unsigned cpu;
	struct sim_area *area;		/* NULL: not registered */
	const uint32_t *waits_on;
	uint64_t wakes_at;
	bool there, began, between;	/* the thread exists; the thread has had a turn; the thread is inside no
					 * call of the library */
};

static struct {
	struct sim_thread thread[SIM_THREADS];
	uint64_t seed, microseconds, digest;
	uint64_t blocks, switches, moves, came, went, refused;
	uint64_t patience;		/* basic blocks until the turn goes on, on average */
	uint64_t left;			/* ... and until the next such time */
	uint64_t shortage;		/* of 1000 calls for memory, so many are refused */
	unsigned running;
	bool on, online[SIM_CPUS + SIM_BEYOND];
	unsigned resting;		/* a thread that waits until all threads are between calls; NO_THREAD: none */
	uint32_t over;			/* a futex: all threads have ended */
	pthread_key_t last;		/* its destructor is a thread's last step */
	void (*main)(unsigned number);
} sim = { .microseconds = 1000000000, .running = NO_THREAD, .resting = NO_THREAD, .digest = 14695981039346656037u };

static uint64_t sim_below(uint64_t n)
{
	return random_next(&sim.seed) % n;
}

static void sim_note(uint64_t word)
{
	sim.digest = (sim.digest ^ word) * 1099511628211u;
}

/* ------------------------------------------------------------------ turns */

static void sim_futex(uint32_t *word, int what, uint32_t value)
{
	syscall(SYS_futex, word, what, value, NULL, NULL, 0);
}

static void sim_give(unsigned number)
{
	uint32_t *turn = &sim.thread[number].turn;

	__atomic_store_n(turn, 1, __ATOMIC_RELEASE);
	sim_futex(turn, FUTEX_WAKE_PRIVATE, 1);
}

static void sim_await(unsigned number)
{
	uint32_t *turn = &sim.thread[number].turn;

	while (!__atomic_load_n(turn, __ATOMIC_ACQUIRE))
		sim_futex(turn, FUTEX_WAIT_PRIVATE, 0);
	__atomic_store_n(turn, 0, __ATOMIC_RELAXED);
}

static unsigned sim_some_cpu(void)
{
	unsigned cpu;

	do
		cpu = (unsigned)sim_below(SIM_CPUS + SIM_BEYOND);
	while (!sim.online[cpu]);
	return cpu;
}

/* Stays on the CPU, or moves to another: always, if the CPU is gone. */
static void sim_place(struct sim_thread *thread)
{
	if (!sim.online[thread->cpu] || !sim_below(16)) {
		thread->cpu = sim_some_cpu();
		sim.moves++;
	}
	if (thread->area)
		thread->area->cpu_id_start = thread->area->cpu_id = thread->cpu;
}

static bool sim_is_ready(const struct sim_thread *thread)
{
	if (!thread->there || (sim.resting != NO_THREAD && thread->between))
		return false;
	return !thread->waits_on || sim.microseconds >= thread->wakes_at;
}

/*
 * The next thread, at random; without one, the thread that waits for all others to rest, or NO_THREAD. If all threads
 * wait, time goes on to the first thread with its wait over.
 */
static unsigned sim_next(void)
{
	unsigned ready[SIM_THREADS], count = 0;
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; i < SIM_THREADS; i++) {
		const struct sim_thread *thread = &sim.thread[i];

		if (sim_is_ready(thread))
			ready[count++] = i;
		else if (thread->there && thread->waits_on && thread->wakes_at < first)
			first = thread->wakes_at;
	}
	if (count)
		return ready[sim_below(count)];
	if (first == UINT64_MAX)
		return sim.resting;
	sim.microseconds = first;
	return sim_next();
}

static void sim_set_out(void)
{
	sim.left = 1 + sim_below(2 * sim.patience);
}

/* The turn goes to `next`, and comes back some time. */
static void sim_go_on(unsigned self, unsigned next)
{
	sim_set_out();
	if (next == self) {
		sim_place(&sim.thread[self]);
		return;
	}
	sim.switches++;
	sim.running = next;
	sim_place(&sim.thread[next]);
	sim_give(next);
	sim_await(self);
}

static void sim_switch(void)
{
	unsigned self = sim.running, next = sim_next();

	NEED(next != NO_THREAD, "all threads wait for each other for ever");
	sim_go_on(self, next);
}

/* Each basic block of the library. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	if (!sim.on || sim.running == NO_THREAD)
		return;
	sim.blocks++;
	if (--sim.left)
		return;
	/* Steps take time: where some threads spin, and others sleep for what these wait for, their time comes. */
	sim.microseconds++;
	sim_switch();
}

/* ------------------------------------------------------------------ the system */

int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
	(void)id;
	*now = (struct timespec){ (time_t)(sim.microseconds / 1000000), (long)(sim.microseconds % 1000000 * 1000) };
	return 0;
}

unsigned __wrap_km_os_possible_cpus(unsigned *masks);
unsigned __wrap_km_os_possible_cpus(unsigned *masks)
{
	*masks = 1024;
	return SIM_CPUS;
}

unsigned __wrap_km_os_getcpu(void);
unsigned __wrap_km_os_getcpu(void)
{
	return sim.running == NO_THREAD ? 0 : sim.thread[sim.running].cpu;
}

int __wrap_km_os_rseq_register(struct sim_area *area, size_t bytes, uint32_t signature);
int __wrap_km_os_rseq_register(struct sim_area *area, size_t bytes, uint32_t signature)
{
	(void)bytes, (void)signature;
	area->cpu_id_start = area->cpu_id = 0;
	if (sim.running != NO_THREAD) {
		sim.thread[sim.running].area = area;
		area->cpu_id_start = area->cpu_id = sim.thread[sim.running].cpu;
	}
	return 0;
}

int __wrap_km_os_rseq_unregister(struct sim_area *area, size_t bytes, uint32_t signature);
int __wrap_km_os_rseq_unregister(struct sim_area *area, size_t bytes, uint32_t signature)
{
	(void)area, (void)bytes, (void)signature;
	if (sim.running != NO_THREAD)
		sim.thread[sim.running].area = NULL;
	return 0;
}

/* No sequence is ever in flight where another thread runs. */
int __wrap_km_os_barrier(void);
int __wrap_km_os_barrier(void)
{
	return km_os_fault && km_os_fault("fence") ? -ENOMEM : 0;
}

void __wrap_km_os_random(unsigned char *p, size_t bytes, bool fresh);
void __wrap_km_os_random(unsigned char *p, size_t bytes, bool fresh)
{
	(void)fresh;
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)sim_below(256);
}

void __wrap_km_os_wait(const uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(const uint32_t *word, uint32_t value, unsigned ms)
{
	struct sim_thread *self = &sim.thread[sim.running];

	NEED(sim.running != NO_THREAD, "a wait where all others rest");
	if (*word != value)
		return;
	self->waits_on = word;
	self->wakes_at = sim.microseconds + (uint64_t)ms * 1000;
	sim_switch();
	self->waits_on = NULL;
}

void __wrap_km_os_wake(const uint32_t *word);
void __wrap_km_os_wake(const uint32_t *word)
{
	for (unsigned i = 0; i < SIM_THREADS; i++)
		if (sim.thread[i].waits_on == word) {
			sim.thread[i].waits_on = NULL;
			return;
		}
}

static bool sim_refuses(const char *call)
{
	(void)call;
	if (!sim.on || !sim.shortage || sim_below(1000) >= sim.shortage)
		return false;
	sim.refused++;
	return true;
}

/* ------------------------------------------------------------------ threads */

static void *sim_thread_main(void *number)
{
	pthread_setspecific(sim.last, (char *)number + 1);
	sim_await((unsigned)(uintptr_t)number);
	sim.main((unsigned)(uintptr_t)number);
	return NULL;
}

/* Behind the library's own destructor, with its older key: the thread has ended, and another goes on. */
static void sim_thread_last(void *number)
{
	unsigned self = (unsigned)((uintptr_t)number - 1);

	sim.thread[self].there = false;
	sim.thread[self].area = NULL;
	sim.running = sim_next();
	if (sim.running == NO_THREAD) {
		sim.on = false;
		__atomic_store_n(&sim.over, 1, __ATOMIC_RELEASE);
		sim_futex(&sim.over, FUTEX_WAKE_PRIVATE, 1);
		return;
	}
	sim_set_out();
	sim_place(&sim.thread[sim.running]);
	sim_give(sim.running);
}

/* In the place of an ended thread, or an empty place. By the running thread. */
static void sim_begin(unsigned number)
{
	struct sim_thread *thread = &sim.thread[number];
	pthread_attr_t attributes;
	char *stack = thread->stack;

	if (thread->began)
		NEED(pthread_join(thread->thread, NULL) == 0);
	if (!stack)
		stack = mmap(NULL, SIM_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(stack != MAP_FAILED);
	*thread = (struct sim_thread){ .stack = stack, .there = true, .began = true, .between = true };
	NEED(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, SIM_STACK) == 0);
	NEED(pthread_create(&thread->thread, &attributes, sim_thread_main, (void *)(uintptr_t)number) == 0);
	pthread_attr_destroy(&attributes);
}

/* By the running thread, between calls: all other threads go on until they are between calls, too. */
static void sim_rest(void)
{
	unsigned self = sim.resting = sim.running, next;

	sim.thread[self].between = true;
	while ((next = sim_next()) != self)
		sim_go_on(self, next);
	sim.on = false;
}

static void sim_resume(void)
{
	sim.thread[sim.running].between = false;
	sim.resting = NO_THREAD;
	sim.on = true;
}

/* Between two calls of a thread: here others have their turn, now and then, and time goes on. */
static void sim_between(void)
{
	unsigned self = sim.running;

	sim.thread[self].between = true;
	if (sim.resting != NO_THREAD || !sim_below(8))
		sim_go_on(self, sim_next());
	sim.thread[self].between = false;
}

/* A thread waits for what another one does, and not in the library's way: others have their turn. */
static void sim_yield(void)
{
	if (!sim.on)
		return;
	sim.microseconds++;
	sim_go_on(sim.running, sim_next());
}

/* All threads from beginning to end. */
static void sim_run(void (*main)(unsigned number), uint64_t seed)
{
	sim.main = main;
	sim.seed = seed;
	sim.patience = 1000;
	for (unsigned cpu = 0; cpu < SIM_CPUS; cpu++)
		sim.online[cpu] = true;
	NEED(pthread_key_create(&sim.last, sim_thread_last) == 0);
	for (unsigned i = 0; i < SIM_THREADS; i++)
		sim_begin(i);
	sim_set_out();
	km_os_fault = sim_refuses;
	sim.on = true;
	sim.running = 0;
	sim_place(&sim.thread[0]);
	sim_give(0);
	while (!__atomic_load_n(&sim.over, __ATOMIC_ACQUIRE))
		sim_futex(&sim.over, FUTEX_WAIT_PRIVATE, 0);
	for (unsigned i = 0; i < SIM_THREADS; i++)
		NEED(pthread_join(sim.thread[i].thread, NULL) == 0);
	km_os_fault = NULL;
}

#endif
