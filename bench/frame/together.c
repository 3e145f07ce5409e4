/*
 * Measures the cost of one object while other threads do the same: each thread has a separate CPU and runs windows of
 * some pieces. A window counts only if all other threads worked during the window; the threads' counts of pieces show
 * this. If no window counts in a hundred times a cell's time, the thread's best window counts. The figure is the mean
 * of the threads' best windows.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "frame/bench.h"

#define TOGETHER_MAX 64u
#define PIECES 8u		/* of a window */
#define PIECES_MS 64u		/* of a millisecond: short windows fit between disturbances */
#define WINDOWS 20u		/* minimum of windows that count */
#define PATIENCE 100u		/* maximum wait for these windows, in cells' times */

struct mate {
	_Atomic(uint64_t) pieces __attribute__((aligned(64)));	/* pieces done; read by the other threads */
	double best, alone;	/* cycles per object: of windows that count, of other windows; 0: none */
	unsigned int id, windows;	/* windows that count */
	pthread_t thread;
} __attribute__((aligned(64)));

static struct {
	bench_window *window;
	const struct cell *cell;
	uint64_t count;		/* iterations of a piece */
	unsigned int objects;
	_Atomic(unsigned int) content;	/* threads with a figure whose time is over */
	pthread_barrier_t barrier;
	struct mate mates[TOGETHER_MAX];
} together;

/* Returns the index-th CPU of this process's CPUs, counted from the last. */
static void pin_to(unsigned int index)
{
	cpu_set_t allowed, one;

	bench_unpin();
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		bench_die("cannot read the CPUs allowed");
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
		if (!CPU_ISSET(cpu, &allowed) || index--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one))
			bench_die("cannot pin to a CPU");
		return;
	}
	bench_die("more threads at once than CPUs");
}

static void look(const struct mate *mate, uint64_t pieces[])
{
	for (unsigned int i = 0; i < together.cell->threads; i++)
		pieces[i] = i == mate->id ? 0 : atomic_load_explicit(&together.mates[i].pieces, memory_order_relaxed);
}

static void run_window(struct mate *mate)
{
	uint64_t before[TOGETHER_MAX], after[TOGETHER_MAX], cycles = 0;
	bool counts = true;
	double cost;

	look(mate, before);
	for (unsigned int i = 0; i < PIECES; i++) {
		cycles += together.window(together.cell, together.count);
		atomic_fetch_add_explicit(&mate->pieces, 1, memory_order_relaxed);
	}
	look(mate, after);
	for (unsigned int i = 0; i < together.cell->threads; i++)
		counts &= i == mate->id || after[i] - before[i] >= PIECES / 2;
	cost = (double)cycles / ((double)together.count * PIECES * together.objects);
	mate->windows += counts;
	if (counts && (mate->best <= 0 || cost < mate->best))
		mate->best = cost;
	if (!counts && (mate->alone <= 0 || cost < mate->alone))
		mate->alone = cost;
}

static void *mate_body(void *argument)
{
	struct mate *mate = argument;
	uint64_t begin, time = bench_amounts.cell_us * 1000ull, passed;
	bool content = false;

	pin_to(mate->id);
	pthread_barrier_wait(&together.barrier);
	together.window(together.cell, together.count);
	pthread_barrier_wait(&together.barrier);
	begin = bench_now_ns();
	do {
		run_window(mate);
		passed = bench_now_ns() - begin;
		if (!content && passed >= time && (mate->windows >= WINDOWS || passed > PATIENCE * time)) {
			content = true;
			atomic_fetch_add(&together.content, 1);
		}
	} while (atomic_load(&together.content) < together.cell->threads);
	return NULL;
}

double bench_cost_together(bench_window *window, const struct cell *cell, unsigned int objects)
{
	double sum = 0;

	if (cell->threads > TOGETHER_MAX)
		bench_die("too many threads at once");
	together.window = window;
	together.cell = cell;
	together.objects = objects;
	together.count = bench_window_count(window, cell) / PIECES_MS + 1;
	atomic_store(&together.content, 0);
	pthread_barrier_init(&together.barrier, NULL, cell->threads);
	for (unsigned int i = 0; i < cell->threads; i++) {
		struct mate *mate = &together.mates[i];

		atomic_store(&mate->pieces, 0);
		mate->best = mate->alone = 0;
		mate->windows = 0;
		mate->id = i;
		if (pthread_create(&mate->thread, NULL, mate_body, mate))
			bench_die("cannot make a thread");
	}
	for (unsigned int i = 0; i < cell->threads; i++) {
		struct mate *mate = &together.mates[i];

		pthread_join(mate->thread, NULL);
		sum += mate->best > 0 ? mate->best : mate->alone;
	}
	pthread_barrier_destroy(&together.barrier);
	return sum / cell->threads;
}
