/*
 * Parts of every benchmark worker: the cell, the table of works, the clock, the seeded generator, and the functions
 * that print a figure. Invariant: nothing here depends on the allocator under test, because the work must be the same
 * code for each subject; the allocator's parts are in api/.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_BATCH 10000u	/* objects in one batch; the published tables have 250; `apart` has 10000 */

#define BENCH_WINDOWS 4u	/* minimum of windows of a cost cell: one may be interrupted */

#define bench_inline static inline __attribute__((always_inline))
#define bench_noinline static __attribute__((noinline))

/* One measurement of the driver; 0 in fields without meaning for the work. */
struct cell {
	const char *work;
	size_t size;		/* bytes */
	unsigned int batch;	/* objects */
	unsigned int threads;
	unsigned int match;	/* worst: every match-th object is of the slab of the first */
	unsigned int groups;	/* groups: number of groups used in turn */
	unsigned int transfer;	/* simulation: ns for the transfer of a line from another CPU */
	unsigned int low;	/* churn: bytes of the smallest object; `size` is the largest */
};

struct work {
	const char *name;
	void (*run)(const struct cell *cell);
};

/* The works of the worker, ended by a NULL name; defined in the worker's file. */
extern const struct work bench_works[];
/* The library behind the worker, for the driver's rows; defined in frame/who_NAME.c. */
void bench_print_subject(void);

/* Amounts of work, from the command line; the same for each subject. */
struct bench_amounts {
	unsigned int cell_us;		/* minimum of a cost cell's windows together */
	unsigned int run_ms;		/* length of a throughput cell */
	uint64_t min_objects;		/* minimum of objects of a cost cell */
	unsigned int live_objects;
	unsigned int idle_threads;
	bool baseline;			/* idle-threads: the run without allocations */
	bool account, several;		/* api/account.h */
	int cpu;			/* CPU of single-threaded work */
};
extern struct bench_amounts bench_amounts;

/* Prints one figure of the running cell. measure and at may be "-". */
void bench_print(const char *unit, const char *measure, const char *at, double value);
/* Prints Rss and Pss of this process, less `harness` bytes of the worker, as "bytes". */
void bench_print_memory(const char *at, double harness);
void bench_read_memory(double *rss, double *pss);
_Noreturn __attribute__((cold)) void bench_die(const char *why);
void *bench_table(size_t bytes);	/* zeroed memory of the worker, resident; never of the allocator under test */
void bench_pin(void);
void bench_unpin(void);
void bench_sleep_ms(unsigned int ms);
uint64_t bench_now_ns(void);
uint64_t bench_clock_cost(void);	/* cycles between clock_start and clock_stop without work */

/* Cycles of `count` iterations of a cell's work. */
typedef uint64_t bench_window(const struct cell *cell, uint64_t count);

/*
 * Measures the cost of one object in time-stamp cycles: calls window(count) with a count of about a millisecond, once
 * untimed, then until the cell's time is used. The best window counts. An iteration has `objects` objects.
 */
double bench_cost(bench_window *window, const struct cell *cell, unsigned int objects);
/* together.c: the same for a cell with several threads; bench_cost calls this function. */
double bench_cost_together(bench_window *window, const struct cell *cell, unsigned int objects);
/* Returns the iterations of about a millisecond. */
uint64_t bench_window_count(bench_window *window, const struct cell *cell);

/* ---- The clock. Fences keep the work inside the window. */
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

/* Makes the compiler assume a use of the object, and a change of memory. */
bench_inline void bench_use(void *object)
{
	__asm__ __volatile__("" ::"r"(object) : "memory");
}

/* Ends the worker after a failed allocation, because a failure would look like a fast row. */
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

/* Returns a number in [low, high], uniform, from the top 32 bits; one generated number gives a slot and a size. */
bench_inline uint32_t rng_between(uint64_t random, uint32_t low, uint32_t high)
{
	return low + (uint32_t)((random >> 32) * (high - low + 1) >> 32);
}

bench_inline uint32_t rng_index(uint64_t random, uint32_t count)
{
	return (uint32_t)((random & 0xffffffffu) * count >> 32);
}

/* ---- A crew: threads that prepare, start together, work until a stop, and wait for leave. */
struct member {
	unsigned int id;
	uint64_t ops;
};

void crew_start(struct member *member);		/* after preparation; returns when all members may begin */
bool crew_stopped(void);
void crew_finish(struct member *member);	/* after the count; returns when memory was read */
/*
 * Runs `threads` bodies for bench_amounts.run_ms. Prints ops/s over the whole time and, if memory is set, Rss and Pss
 * while all threads still hold their objects.
 */
void crew_run(unsigned int threads, void (*body)(struct member *), bool memory);
/* The same without a clock: `held` is called once while all threads hold their objects. */
void crew_hold(unsigned int threads, void (*body)(struct member *), void (*held)(void));

#endif
