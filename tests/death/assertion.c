/*
 * assertion: a broken invariant ends a debug build at the place of the assertion, with one line of the file, the
 * line, the sentence and the condition. Any other build contains no assertion, and goes on. Each case breaks one
 * invariant in a process of its own. tests/system/sanitize_debug runs this test as a debug build.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>

#include "kit/inside.h"
#include "page/metadata.h"
#include "base/list.h"
#include "percpu/pcpu.h"

#ifdef KM_DEBUG
static const bool debug = true;
#else
static const bool debug = false;
#endif

static void piece_twice(void)
{
	void *p = km_metadata_alloc(64, true);

	km_metadata_free(p, 64);
	km_metadata_free(p, 64);
}

static void words_twice(void)
{
	uint32_t offset;

	INSIDE(offset = km_percpu_alloc(64));
	INSIDE(km_percpu_free(offset, 64));
	INSIDE(km_percpu_free(offset, 64));
}

static void words_in_use(void)
{
	uint32_t offset;

	INSIDE(offset = km_percpu_alloc(64));
	INSIDE(km_percpu_free(offset, 64));
	*(uint64_t *)(km_area(km_percpu.home) + offset) = 1;
	INSIDE(km_percpu_alloc(64));
}

static void lock_unguarded(void)
{
	static struct km_lock lock = KM_LOCK_INIT(KM_RANK_METADATA);

	km_lock(&lock);
	km_unlock(&lock);
}

static void damaged_list(void)
{
	struct km_list list, entry;

	km_list_init(&list);
	km_list_add_head(&entry, &list);
	entry.next = &entry;
	km_list_del(&entry);
}

static const struct {
	void (*breaks)(void);
	const char *file, *sentence;
} cases[] = {
	{ piece_twice, "src/page/metadata.c", "a piece is freed once" },
	{ words_twice, "src/percpu/cpu.c", "a per-CPU word is allocated once, and freed once" },
	{ words_in_use, "src/percpu/cpu.c", "allocated words are zero" },
	{ lock_unguarded, "src/os/lock.c", "a thread keeps signal handlers out before it locks" },
	{ damaged_list, "src/base/list.h", "the neighbours of an entry point to the entry" },
};

/* Returns: the wait status; `said` gets the output on standard error. */
static int run(void (*breaks)(void), char *said, size_t bytes)
{
	int pipes[2], status;
	size_t length = 0;
	ssize_t got;

	if (pipe(pipes))
		exit(2);
	pid_t pid = fork();
	if (!pid) {
		dup2(pipes[1], 2);
		breaks();
		_exit(0);
	}
	close(pipes[1]);
	while (length < bytes - 1 && (got = read(pipes[0], said + length, bytes - 1 - length)) > 0)
		length += (size_t)got;
	said[length] = '\0';
	close(pipes[0]);
	waitpid(pid, &status, 0);
	return status;
}

/* libkmem: FILE:LINE: assertion failed: SENTENCE (CONDITION) */
static bool is_line(const char *said, const char *file, const char *sentence)
{
	char expected[256], *end;
	int length = snprintf(expected, sizeof(expected), "libkmem: %s:", file);

	if (strncmp(said, expected, (size_t)length) || strtol(said + length, &end, 10) <= 0)
		return false;
	length = snprintf(expected, sizeof(expected), ": assertion failed: %s (", sentence);
	const char *last = said + strlen(said) - 2;
	return strncmp(end, expected, (size_t)length) == 0 && strcmp(last, ")\n") == 0 &&
	       strchr(said, '\n') == last + 1;
}

int main(void)
{
	char said[1024];
	int failed = 0;

	kfree(kmalloc(64, GFP_KERNEL));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = run(cases[i].breaks, said, sizeof(said));
		bool as_expected = debug ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
						   is_line(said, cases[i].file, cases[i].sentence) :
					   status == 0 && !said[0];

		if (!as_expected)
			printf("FAIL %s: status %d, said: %s\n", cases[i].sentence, status, said);
		failed += !as_expected;
	}
	printf("%zu cases, %s build, %d failed\n", sizeof(cases) / sizeof(cases[0]), debug ? "debug" : "ordinary",
	       failed);
	return failed != 0;
}
