/*
 * A program under a known limit. limit small|large|mapped|mixed|aligned BYTES: allocates until failure, checks for
 * ENOMEM and for no allocation beyond the limit, frees all blocks, and allocates as much again. limit realloc BYTES:
 * blocks grow up to the limit, and keep their contents at a failure. limit fork BYTES: the child gets the rest of its
 * parent's limit. limit threads BYTES: four at once.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static size_t limit;

static void fail(const char *what, int line)
{
	fprintf(stderr, "line %d: %s\n", line, what);
	_exit(1);
}

struct block {
	struct block *next;
	char bytes[];
};

static void *take(const char *how, size_t i, size_t *bytes)
{
	static const size_t mixed[] = { 16, 3000, 100, 70000, 24, 4096, 500, 9000 };
	void *p = NULL;

	*bytes = !strcmp(how, "small") ? 1000 : !strcmp(how, "large") ? 50000 : !strcmp(how, "mapped") ? 5 << 20 :
		 !strcmp(how, "aligned") ? 300 : mixed[i % 8];
	errno = 0;
	if (!strcmp(how, "aligned")) {
		int error = posix_memalign(&p, 256, *bytes);

		NEED(error == (p ? 0 : ENOMEM) && errno == error);
	} else {
		p = i % 3 ? malloc(*bytes) : calloc(1, *bytes);
	}
	NEED(p ? errno == 0 : errno == ENOMEM);
	return p;
}

/* Allocates until failure. Returns: the bytes allocated. */
static size_t fill(const char *how, struct block **all)
{
	struct block *block;
	size_t sum = 0, bytes;

	for (size_t i = 0; (block = take(how, i, &bytes)); i++) {
		memset(block, 0xab, bytes);
		block->next = *all;
		*all = block;
		sum += malloc_usable_size(block);
		NEED(sum <= limit);
	}
	return sum;
}

static void free_all(struct block *all)
{
	while (all) {
		struct block *next = all->next;

		errno = 77;
		free(all);
		NEED(errno == 77);
		all = next;
	}
}

/* An object costs 8 bytes beside its own, so small objects reach at least 97 percent. */
static void fill_twice(const char *how, size_t largest)
{
	for (int round = 0; round < 3; round++) {
		struct block *all = NULL;
		size_t sum = fill(how, &all);

		NEED(sum + sum / 32 + largest + 100000 > limit);
		free_all(all);
	}
}

static void grow(void)
{
	size_t bytes = 1;
	unsigned char *p = malloc(bytes);

	NEED(p);
	*p = 0;
	for (;;) {
		size_t more = bytes + bytes / 3 + 1;
		unsigned char *moved;

		errno = 0;
		moved = realloc(p, more);
		if (!moved)
			break;
		NEED(errno == 0);
		p = moved;
		for (size_t i = bytes; i < more; i++)
			p[i] = (unsigned char)(i * 7);
		bytes = more;
		NEED(bytes <= limit);
	}
	NEED(errno == ENOMEM);
	/* The old block is unchanged, and a smaller size succeeds: in place, or in a new block. */
	for (size_t i = 1; i < bytes; i++)
		NEED(p[i] == (unsigned char)(i * 7));
	/* Blocks of pages are copied: both are there for a moment. */
	NEED(bytes > limit / 4);
	p = realloc(p, bytes / 8);
	NEED(p);
	for (size_t i = 1; i < bytes / 8; i++)
		NEED(p[i] == (unsigned char)(i * 7));
	free(p);
}

/* An eighth more than requested is optional: without room the eighth is left out. */
static void grow_exactly(void)
{
	size_t bytes = limit / 8;
	char *p = malloc(bytes), *ballast = malloc(limit - 2 * bytes - 140000);

	NEED(p && ballast);
	char *moved = realloc(p, bytes + 32768);
	NEED(moved);
	free(moved);
	free(ballast);
}

static void in_fork(void)
{
	struct block *all = NULL, *childs = NULL;
	int status;

	for (size_t sum = 0, bytes = 0; sum < limit / 2; sum += bytes) {
		struct block *block = take("small", 1, &bytes);

		NEED(block);
		block->next = all;
		all = block;
	}
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		size_t sum = fill("small", &childs);

		NEED(sum < limit / 2 + limit / 16 && sum > limit / 4);
		free_all(all);
		all = NULL;
		NEED(fill("small", &all) > limit / 3);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	/* The child's allocations do not count for the parent. */
	NEED(fill("small", &all) > limit / 4);
	free_all(all);
}

static void *in_thread(void *arg)
{
	for (int round = 0; round < 50; round++) {
		struct block *all = NULL;

		fill(round % 2 ? "mixed" : "small", &all);
		free_all(all);
	}
	return arg;
}

static void in_threads(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		NEED(pthread_create(&threads[i], NULL, in_thread, NULL) == 0);
	for (int i = 0; i < 4; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	/* One thread can allocate all of it again. */
	fill_twice("small", 1024);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	limit = strtoul(argv[2], NULL, 10);
	if (!strcmp(argv[1], "realloc")) {
		grow();
		grow_exactly();
	} else if (!strcmp(argv[1], "fork")) {
		in_fork();
	} else if (!strcmp(argv[1], "threads")) {
		in_threads();
	} else {
		fill_twice(argv[1], !strcmp(argv[1], "mapped") ? 5 << 20 : 70000);
	}
	return 0;
}
