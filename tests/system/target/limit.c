/*
 * A program under a limit, which it is told. limit small|large|mapped|mixed|aligned BYTES: takes memory until there is
 * none, checks that everything said ENOMEM and that nothing beyond the limit was given out, frees it all, and can have
 * as much again. limit realloc BYTES: blocks grow up to the limit, and keep what is in them when they can't. limit
 * fork BYTES: the child has what its parent has left. limit threads BYTES: four at once.
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

/* Until there is no more; the bytes that were had. */
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

/* What an object costs besides its own bytes is 8, so small ones reach at least 97 percent. */
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
	/* The old block is as it was, and a smaller one can be had: in place, or anew. */
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

/* An eighth more than what was asked for is a courtesy: where there is no room for it, it is left out. */
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
	/* What the child did is not the parent's. */
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
	/* All of it can be had again by one. */
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
