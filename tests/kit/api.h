/*
 * api.h: what the tests of the public interface share. The program runs itself once for each engine (as the process
 * default, by KMEM_OPTIONS), and there each case in a process of its own, so that one that ends its process, or limits
 * it, is by itself.
 */
#ifndef TESTS_CONTRACT_API_H
#define TESTS_CONTRACT_API_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/inline.h>
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "engine/engines.h"

#define NEED(truth)                                                                                \
	do {                                                                                       \
		if (!(truth)) {                                                                    \
			printf("     line %d: %s (errno %d)\n", __LINE__, #truth, errno);          \
			fflush(stdout);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* The engine is slob: an object does not say whose it is, and kmalloc is by the byte. */
static bool slob;

struct api_case {
	const char *name;
	void (*run)(void);
};

/* An unsized cache of the default engine. */
static struct kmem_cache *make(const char *name, unsigned size)
{
	struct kmem_cache *cache = kmem_cache_create(name, size, NULL, 0);

	NEED(cache);
	return cache;
}

/* Everything is back: no object, and no slab but those that must keep their type. */
static void gone(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	NEED(kmem_cache_shrink(cache) == 0);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 0 && stats.total_slabs == 0 && stats.shelf_objects == 0);
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

/* Is every byte of it `value`? */
static int all(const void *p, int value, size_t bytes)
{
	const unsigned char *byte = p;

	for (size_t i = 0; i < bytes; i++)
		if (byte[i] != (unsigned char)value)
			return 0;
	return 1;
}

/*
 * Run it in a child and catch what it writes to stderr. Returns its wait status; *lines is how many lines there were,
 * and text (of 4096 bytes) what they said.
 */
static int said(void (*run)(void), char *text, int *lines)
{
	int pipes[2], status;
	size_t length = 0;
	ssize_t got;

	fflush(stdout);
	NEED(pipe(pipes) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		dup2(pipes[1], 2);
		close(pipes[0]);
		run();
		_exit(0);
	}
	close(pipes[1]);
	while (length < 4095 && (got = read(pipes[0], text + length, 4095 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	close(pipes[0]);
	NEED(waitpid(child, &status, 0) == child);
	*lines = 0;
	for (const char *at = text; *at; at++)
		*lines += *at == '\n';
	return status;
}

static int run_cases(const struct api_case *cases, size_t count, const char *engine)
{
	int failed = 0;

	slob = strcmp(engine, "slob") == 0;
	for (size_t i = 0; i < count; i++) {
		int status;

		fflush(stdout);
		pid_t child = fork();
		if (!child) {
			alarm(580);
			cases[i].run();
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			status = -1;
		if (status) {
			printf("FAIL %s: %s (status %#x)\n", engine, cases[i].name, (unsigned)status);
			failed++;
		}
	}
	printf("%s: %zu cases, %d failed\n", engine, count, failed);
	return failed != 0;
}

/* Argument: the engine; none: each of them, or that of TEST_ENGINE alone, by running this program again. */
static int api_main(int argc, char **argv, const struct api_case *cases, size_t count, const char *more)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	const char *only = getenv("TEST_ENGINE");
	int failed = 0;

	if (argc > 1)
		return run_cases(cases, count, argv[1]);
	for (size_t i = 0; i < (only ? 1 : sizeof(engines) / sizeof(engines[0])); i++) {
		const char *engine = only ?: engines[i];
		char options[64];
		int status;

		snprintf(options, sizeof(options), "engine:%s%s", engine, more);
		fflush(stdout);
		pid_t child = fork();
		if (!child) {
			setenv("KMEM_OPTIONS", options, 1);
			execl("/proc/self/exe", argv[0], engine, (char *)NULL);
			_exit(127);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			failed = 1;
	}
	return failed;
}

#define API_MAIN(cases) API_MAIN_OPTIONS(cases, "")
/* The same with ",key:value" in KMEM_OPTIONS as well. */
#define API_MAIN_OPTIONS(cases, more)                                                              \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), more);        \
	}

#endif
