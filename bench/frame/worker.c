/*
 * The frame of every benchmark worker: one process of one subject runs the cells of the command line and prints one
 * line for each figure. The works are in works/; this file has the command line, the windows, the memory figures and
 * the output.
 *
 * Lines: "info KEY VALUE" about the subject, then "INDEX UNIT MEASURE AT VALUE" for each figure of the cell with this
 * index. Invariant: the output never uses the allocator under test.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "frame/bench.h"

struct bench_amounts bench_amounts = {
	.cell_us = 20000,
	.run_ms = 200,
	.live_objects = 1000000,
	.idle_threads = 1000,
	.cpu = -1,
};

static struct {
	unsigned int cell;
	char out[1 << 16];
	cpu_set_t allowed;
} worker;

void bench_print(const char *unit, const char *measure, const char *at, double value)
{
	printf("%u %s %s %s %.6f\n", worker.cell, unit, measure, at, value);
	fflush(stdout);
}

_Noreturn void bench_die(const char *why)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "%s: %s\n", program_invocation_short_name, why);

	if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
		_exit(2);
	_exit(1);
}

void *bench_table(size_t bytes)
{
	void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (table == MAP_FAILED)
		bench_die("no memory for a table of objects");
	return table;
}

void bench_pin(void)
{
	cpu_set_t one;

	if (bench_amounts.cpu < 0)
		return;
	CPU_ZERO(&one);
	CPU_SET(bench_amounts.cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		bench_die("cannot pin to the CPU given");
}

void bench_unpin(void)
{
	if (sched_setaffinity(0, sizeof(worker.allowed), &worker.allowed))
		bench_die("cannot return to all CPUs");
}

void bench_sleep_ms(unsigned int ms)
{
	struct timespec left = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

uint64_t bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_clock_cost(void)
{
	uint64_t least = UINT64_MAX;

	for (unsigned int i = 0; i < 1000; i++) {
		uint64_t start = clock_start(), cycles = clock_stop() - start;

		least = cycles < least ? cycles : least;
	}
	return least;
}

static double memory_field(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	if (!at)
		bench_die("smaps_rollup lacks a field");
	return strtod(at + strlen(key), NULL) * 1024;
}

void bench_read_memory(double *rss, double *pss)
{
	static char text[4096];
	int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (length <= 0)
		bench_die("cannot read /proc/self/smaps_rollup");
	text[length] = '\0';
	close(fd);
	*rss = memory_field(text, "\nRss:");
	*pss = memory_field(text, "\nPss:");
}

void bench_print_memory(const char *at, double harness)
{
	double rss, pss;

	bench_read_memory(&rss, &pss);
	bench_print("bytes", "rss", at, rss - harness);
	bench_print("bytes", "pss", at, pss - harness);
}

static uint64_t window_ns(bench_window *window, const struct cell *cell, uint64_t count)
{
	uint64_t start = bench_now_ns();

	window(cell, count);
	return bench_now_ns() - start;
}

/*
 * Finds the iterations of about a millisecond, by doubling; the search is also the warm-up. A long time counts only if
 * a second try is long, too: an interrupted try would give windows that are too short to hide the clock.
 */
uint64_t bench_window_count(bench_window *window, const struct cell *cell)
{
	uint64_t count = 16, ns, again;

	for (;;) {
		ns = window_ns(window, cell, count);
		if (ns >= 250000) {
			again = window_ns(window, cell, count);
			ns = again < ns ? again : ns;
		}
		if (ns >= 250000 || count >= 1ull << 32)
			break;
		count *= 2;
	}
	return count * 1000000 / (ns ? ns : 1) + 1;
}

double bench_cost(bench_window *window, const struct cell *cell, unsigned int objects)
{
	uint64_t count, done = 0, begin;
	unsigned int windows = 0;
	double best = 0;

	if (cell->threads > 1)
		return bench_cost_together(window, cell, objects);
	count = bench_window_count(window, cell);
	window(cell, count);
	begin = bench_now_ns();
	do {
		double cost = (double)window(cell, count) / ((double)count * objects);

		if (!done || cost < best)
			best = cost;
		done += count * objects;
	} while (++windows < BENCH_WINDOWS || bench_now_ns() - begin < bench_amounts.cell_us * 1000ull ||
		 done < bench_amounts.min_objects);
	return best;
}

static void parse_cell(char *text, struct cell *cell)
{
	char *rest = strchr(text, ',');

	memset(cell, 0, sizeof(*cell));
	if (!rest)
		bench_die("a cell is WORK,SIZE,BATCH,THREADS,MATCH,GROUPS,TRANSFER,LOW");
	*rest++ = '\0';
	cell->work = text;
	cell->size = strtoul(rest, &rest, 10);
	cell->batch = (unsigned int)strtoul(rest + (*rest == ','), &rest, 10);
	cell->threads = (unsigned int)strtoul(rest + (*rest == ','), &rest, 10);
	cell->match = (unsigned int)strtoul(rest + (*rest == ','), &rest, 10);
	cell->groups = (unsigned int)strtoul(rest + (*rest == ','), &rest, 10);
	cell->transfer = (unsigned int)strtoul(rest + (*rest == ','), &rest, 10);
	cell->low = (unsigned int)strtoul(rest + (*rest == ','), &rest, 10);
	if (*rest || cell->batch > BENCH_MAX_BATCH)
		bench_die("a cell is WORK,SIZE,BATCH,THREADS,MATCH,GROUPS,TRANSFER,LOW");
}

static void run_cell(char *text)
{
	struct cell cell;
	const struct work *work;

	parse_cell(text, &cell);
	for (work = bench_works; work->name; work++)
		if (!strcmp(work->name, cell.work))
			break;
	if (!work->name)
		bench_die("this worker does not know that work");
	work->run(&cell);
	worker.cell++;
}

static void parse_amount(const char *text)
{
	const char *value = strchr(text, '=');
	char *end = "";
	unsigned long number = value ? strtoul(value + 1, &end, 10) : 1;

	if (*end || number > UINT_MAX)
		bench_die("an option needs a number");
	if (!strncmp(text, "--cpu=", 6))
		bench_amounts.cpu = (int)number;
	else if (!strncmp(text, "--cell-us=", 10))
		bench_amounts.cell_us = (unsigned int)number;
	else if (!strncmp(text, "--run-ms=", 9))
		bench_amounts.run_ms = (unsigned int)number;
	else if (!strncmp(text, "--objects=", 10))
		bench_amounts.min_objects = number;
	else if (!strncmp(text, "--live=", 7))
		bench_amounts.live_objects = (unsigned int)number;
	else if (!strncmp(text, "--idle=", 7))
		bench_amounts.idle_threads = (unsigned int)number;
	else if (!strcmp(text, "--baseline"))
		bench_amounts.baseline = true;
	else if (!strcmp(text, "--account"))
		bench_amounts.account = true;
	else if (!strcmp(text, "--several"))
		bench_amounts.several = true;
	else
		bench_die("unknown option");
}

int main(int argc, char **argv)
{
	int i;

	setvbuf(stdout, worker.out, _IOFBF, sizeof(worker.out));
	if (sched_getaffinity(0, sizeof(worker.allowed), &worker.allowed))
		bench_die("cannot read the CPUs allowed");
	for (i = 1; i < argc && !strncmp(argv[i], "--", 2); i++)
		parse_amount(argv[i]);
	printf("info compiler gcc %s\n", __VERSION__);
	printf("info flags %s\n", BENCH_FLAGS);
	printf("info library-flags %s\n", BENCH_LIBRARY_FLAGS);
	bench_print_subject();
	fflush(stdout);
	for (; i < argc; i++)
		run_cell(argv[i]);
	return 0;
}
