/*
 * What every benchmark worker shares: the cell it is asked to run, the table of works it knows, the
 * clock, the seeded generator and the one way to print a figure. Never anything that depends on the
 * allocator under test: that stands in api/, so that the work is the same code for each subject.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_BATCH 10000u	/* objects in one batch; the published tables have 250, and 10000 apart */

#define bench_inline static inline __attribute__((always_inline))
#define bench_noinline static __attribute__((noinline))

/* One measurement, as the driver asks for it; 0 where a field has no meaning for the work. */
struct cell {
	const char *work;
	size_t size;		/* bytes */
	unsigned int batch;	/* objects */
	unsigned int threads;
	unsigned int match;	/* worst: every match-th object comes from the slab of the first */
	unsigned int groups;	/* groups: used in turn */
	unsigned int transfer;	/* simulation: ns for a line to come from another CPU */
};

struct work {
	const char *name;
	void (*run)(const struct cell *cell);
};

/* Provided by the worker's own file: what it can do, ended by a NULL name. */
extern const struct work bench_works[];
/* Provided by frame/who_NAME.c: the library behind the worker, for the driver's rows. */
void bench_print_subject(void);

/* How much work: set from the command line, the same for each subject. */
struct bench_amounts {
	unsigned int cell_us;		/* a cost cell's windows together, at least */
	unsigned int run_ms;		/* a throughput cell */
	uint64_t min_objects;		/* a cost cell's objects, at least */
	unsigned int live_objects;
	unsigned int idle_threads;
	bool baseline;			/* idle-threads: the same run without allocations */
	bool account, several;		/* api/account.h */
	int cpu;			/* where single-threaded work is pinned */
};
extern struct bench_amounts bench_amounts;

/* Print one figure of the running cell. measure and at may be "-". */
void bench_print(const char *unit, const char *measure, const char *at, double value);
/* Print Rss and Pss of this process, less `harness` bytes of our own, as "bytes". */
void bench_print_memory(const char *at, double harness);
void bench_read_memory(double *rss, double *pss);
_Noreturn __attribute__((cold)) void bench_die(const char *why);
void bench_pin(void);
void bench_unpin(void);
void bench_sleep_ms(unsigned int ms);
uint64_t bench_now_ns(void);
uint64_t bench_clock_cost(void);	/* cycles between clock_start and clock_stop with nothing between */

/* Cycles that `count` iterations of a cell's work took. */
typedef uint64_t bench_window(const struct cell *cell, uint64_t count);

/*
 * Cost of one object in time-stamp cycles: calls window(count) with a count that takes about a
 * millisecond, once untimed, then until the cell's time is used; the best window counts. An iteration
 * has `objects` objects.
 */
double bench_cost(bench_window *window, const struct cell *cell, unsigned int objects);
/* together.c: the same where the cell has several threads; bench_cost goes there by itself. */
double bench_cost_together(bench_window *window, const struct cell *cell, unsigned int objects);
/* Iterations that take about a millisecond. */
uint64_t bench_window_count(bench_window *window, const struct cell *cell);

/* ---- The clock. Fences keep the work from leaking out of the window at either end. */
#if defined(__x86_64__)
bench_inline uint64_t clock_start(void)
{
	uint32_t low, high;

	__asm__ __volatile__("mfence\n\tlfence\n\trdtsc\n\tlfence"
			     : "=a"(low), "=d"(high)::"memory");
	return (uint64_t)high << 32 | low;
}

bench_inline uint64_t clock_stop(void)
{
	uint32_t low, high, aux;

	__asm__ __volatile__("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(aux)::"memory");
	return (uint64_t)high << 32 | low;
}

bench_inline void clock_pause(void)
{
	__builtin_ia32_pause();
}
#elif defined(__aarch64__)
bench_inline uint64_t clock_start(void)
{
	uint64_t ticks;

	__asm__ __volatile__("dsb ish\n\tisb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
	return ticks;
}
#define clock_stop clock_start

bench_inline void clock_pause(void)
{
	__asm__ __volatile__("yield");
}
#else
#error "the benches need a cycle counter"
#endif

/* The object is used, as far as the compiler knows; and memory may have changed. */
bench_inline void bench_use(void *object)
{
	__asm__ __volatile__("" ::"r"(object) : "memory");
}

/* A failed allocation would make a fast row out of nothing: it ends the worker instead. */
bench_inline void bench_check(void *object)
{
	if (__builtin_expect(!object, 0))
		bench_die("an allocation failed");
}

/* ---- The seeded generator (splitmix64): the same sizes and slots for each subject. */
bench_inline uint64_t rng_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* Uniform in [low, high]; the top 32 bits choose, so one number gives a slot and a size. */
bench_inline uint32_t rng_between(uint64_t random, uint32_t low, uint32_t high)
{
	return low + (uint32_t)((random >> 32) * (high - low + 1) >> 32);
}

bench_inline uint32_t rng_index(uint64_t random, uint32_t count)
{
	return (uint32_t)((random & 0xffffffffu) * count >> 32);
}

/*
 * ---- A crew: threads that prepare, start together, work until told to stop, and wait for leave.
 */
struct member {
	unsigned int id;
	uint64_t ops;
};

void crew_start(struct member *member);		/* after preparing; returns when all may begin */
bool crew_stopped(void);
void crew_finish(struct member *member);	/* after counting; returns when memory was read */
/*
 * Run `threads` bodies for bench_amounts.run_ms; prints ops/s over the whole time and, if memory is
 * set, Rss and Pss while all threads still hold what they hold.
 */
void crew_run(unsigned int threads, void (*body)(struct member *), bool memory);
/* The same without a clock: `held` is called once while all threads hold what they hold. */
void crew_hold(unsigned int threads, void (*body)(struct member *), void (*held)(void));

#endif
