/*
 * hits: each call is a hit: on one CPU an object is allocated and freed, forever. Argument: malloc; cache (by calls),
 * inlined or paid (inlined, each object charged to a group), each with a number of additional caches; held (inlined,
 * and without calls after 100000 until the file go exists); vfork (the same, beside a thread that waits in the kernel
 * until the file go is opened for writing, and then makes the file went-on); compute (no calls), own (the same, with
 * 64 MiB of its own), headless (the same, with an ended first thread), sleep. WAYS: prints the address of the word by
 * which hits find their place, and its two values.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef CACHE
#include <kmem/inline.h>
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#endif
#ifdef WAYS
#include "percpu/pcpu.h"
#endif

static void pin(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static void ready(void)
{
#ifdef WAYS
	printf("%lu %ld %ld\n", (unsigned long)(uintptr_t)&km_rseq, (long)km_gate.open[1], (long)km_gate.shut);
#endif
	puts("ready");
	fflush(stdout);
}

static void use(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

static void compute(int own)
{
	size_t bytes = (size_t)64 << 20;
	char *mine = own ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;

	if (mine)
		memset(mine, 1, bytes);
	ready();
	for (volatile unsigned long n = 0;; n++)
		;
}

#ifdef CACHE
static volatile int went_on;

/*
 * A hit interrupted by another thread's turn is a miss, and would serve the request: so there are no hits meanwhile.
 */
static void hold(const char *how)
{
	while (!strcmp(how, "vfork") ? !went_on : !strcmp(how, "held") && access("go", F_OK))
		;
}

/* A thread cannot be stopped while a child shares the thread's memory. */
static void *wait_in_kernel(void *unused)
{
	if (vfork() == 0)
		_exit(open("go", O_RDONLY) < 0);
	close(open("went-on", O_CREAT | O_WRONLY, 0600));
	went_on = 1;
	return unused;
}
#endif

/* The first thread has ended once the number does not lead to the memory. */
static void *compute_headless(void *unused)
{
	char path[64], byte;
	ssize_t got = 1;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)getpid());
	while (got > 0) {
		int fd = open(path, O_RDONLY);

		got = read(fd, &byte, 1);
		close(fd);
		usleep(1000);
	}
	compute(1);
	return unused;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "malloc";

	pin();
	if (!strcmp(what, "compute") || !strcmp(what, "own"))
		compute(!strcmp(what, "own"));
	if (!strcmp(what, "headless")) {
		pthread_t thread;

		pthread_create(&thread, NULL, compute_headless, NULL);
		pthread_exit(NULL);
	}
	if (!strcmp(what, "sleep")) {
		ready();
		for (;;)
			pause();
	}
#ifdef CACHE
	const int paid = !strcmp(what, "paid");
	struct kmem_cache *cache = kmem_cache_create("hits", 100, NULL, paid ? SLAB_ACCOUNT : 0);
	if (paid)
		set_active_memcg(mem_cgroup_create(NULL, "group", 0));
	if (!cache)
		return 1;
	pthread_t other;
	if (!strcmp(what, "vfork") && pthread_create(&other, NULL, wait_in_kernel, NULL))
		return 1;
	for (int i = 0; argc > 2 && i < atoi(argv[2]); i++) {
		char name[32];

		snprintf(name, sizeof(name), "beside-%d", i);
		if (!kmem_cache_create(name, 8, NULL, SLAB_NO_MERGE))
			return 1;
	}
	const int inlined = strcmp(what, "cache");
	for (unsigned long n = 0;; n++) {
		void *p = inlined ? kmem_cache_alloc_inline(cache, GFP_KERNEL) : kmem_cache_alloc(cache, GFP_KERNEL);
		if (!p)
			return 1;
		use(p);
		if (inlined)
			kmem_cache_free_inline(cache, p);
		else
			kmem_cache_free(cache, p);
		if (n == 100000) {
			ready();
			hold(what);
		}
	}
#else
	for (unsigned long n = 0;; n++) {
		void *p = malloc(100);
		use(p);
		free(p);
		if (n == 100000)
			ready();
	}
#endif
}
