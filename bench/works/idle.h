/*
 * `idle-threads`: many threads each allocate and free 1 MiB of mixed sizes, 16 to 1024, once, and then sleep. All
 * threads exist before the first allocation. After 1.5 s, and one alloc and free by the main thread, resident memory is
 * read. A second process, started by this process, runs at the same time without allocations, and its memory is
 * subtracted. Included after an interface (api/) for any size.
 */
#ifndef BENCH_WORK_IDLE_H
#define BENCH_WORK_IDLE_H

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IDLE_BYTES (1u << 20)
#define IDLE_LOW 16u
#define IDLE_HIGH 1024u
#define IDLE_STACK (64u << 10)
#define IDLE_MAX 4096u

struct idle_link {
	struct idle_link *next;
};

static struct {
	struct api api;
	pthread_barrier_t barrier;
	pthread_mutex_t for_ever;
	pthread_t threads[IDLE_MAX];
} idle = { .for_ever = PTHREAD_MUTEX_INITIALIZER };

static void *idle_body(void *argument)
{
	uint64_t random = (uint64_t)(uintptr_t)argument;
	struct idle_link *list = NULL, *link;
	size_t bytes = 0;

	pthread_barrier_wait(&idle.barrier);
	while (!bench_amounts.baseline && bytes < IDLE_BYTES) {
		size_t size = rng_between(rng_next(&random), IDLE_LOW, IDLE_HIGH);

		link = api_alloc_sized(idle.api, size);
		bench_check(link);
		link->next = list;
		list = link;
		bytes += size;
	}
	while ((link = list)) {
		list = link->next;
		api_free(idle.api, link);
	}
	pthread_barrier_wait(&idle.barrier);
	pthread_mutex_lock(&idle.for_ever);	/* held by main: this thread sleeps until the end */
	return NULL;
}

/*
 * The second process: the same program and subject, with --baseline. The second process reports when its threads sleep,
 * and only then this process begins, because the two must not compete. The figures of the second process are read
 * later.
 */
static FILE *idle_baseline(const struct cell *cell)
{
	char self[PATH_MAX], command[PATH_MAX + 128], line[256];
	FILE *from;
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (length < 0)
		bench_die("cannot find this program");
	self[length] = '\0';
	snprintf(command, sizeof(command), "exec '%s' --baseline --idle=%u idle-threads,%zu,0,%u,0",
		 self, bench_amounts.idle_threads, cell->size, cell->threads);
	from = popen(command, "r");
	while (from && fgets(line, sizeof(line), from))
		if (!strcmp(line, "info asleep\n"))
			return from;
	bench_die("the run without allocations does not start");
}

static void idle_subtract(FILE *baseline)
{
	double rss, pss, base, base_rss = -1, base_pss = -1;
	char line[256];

	bench_read_memory(&rss, &pss);
	if (!baseline) {
		bench_print("bytes", "rss", "end", rss);
		bench_print("bytes", "pss", "end", pss);
		return;
	}
	while (fgets(line, sizeof(line), baseline)) {
		if (sscanf(line, "0 bytes rss end %lf", &base) == 1)
			base_rss = base;
		else if (sscanf(line, "0 bytes pss end %lf", &base) == 1)
			base_pss = base;
	}
	if (pclose(baseline) || base_rss < 0 || base_pss < 0)
		bench_die("the run without allocations failed");
	bench_print("bytes", "rss", "end", rss - base_rss);
	bench_print("bytes", "pss", "end", pss - base_pss);
}

static void idle_run(const struct cell *cell)
{
	unsigned int count = bench_amounts.idle_threads;
	FILE *baseline = bench_amounts.baseline ? NULL : idle_baseline(cell);
	pthread_attr_t attributes;

	if (count > IDLE_MAX)
		bench_die("too many idle threads");
	idle.api = api_open(cell->size);
	pthread_mutex_lock(&idle.for_ever);
	pthread_barrier_init(&idle.barrier, NULL, count + 1);
	pthread_attr_init(&attributes);
	if (pthread_attr_setstacksize(&attributes, IDLE_STACK))
		bench_die("cannot make small stacks");
	for (unsigned int i = 0; i < count; i++)
		if (pthread_create(&idle.threads[i], &attributes, idle_body,
				   (void *)(uintptr_t)(i + 1)))
			bench_die("cannot make a thread");
	pthread_barrier_wait(&idle.barrier);
	pthread_barrier_wait(&idle.barrier);
	if (bench_amounts.baseline) {
		puts("info asleep");
		fflush(stdout);
	}
	bench_sleep_ms(1500);
	api_free(idle.api, api_alloc_sized(idle.api, 100));
	bench_sleep_ms(100);
	idle_subtract(baseline);
	fflush(stdout);
	_exit(0);	/* the threads sleep for ever */
}

#endif
