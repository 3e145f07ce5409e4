/*
 * cases.h: a test is a list of cases. Each case runs in a separate process, and may end or limit the process.
 * (events.h runs cases in turn.)
 */
#ifndef TESTS_KIT_CASES_H
#define TESTS_KIT_CASES_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"
#include "options.h"

#define TEST_SECONDS 580	/* longer: the case hangs */

struct test_case {
	const char *name;
	void (*run)(void);
};

/* Returns: the wait status of a child process after run(), or -1. */
static inline int in_process(void (*run)(void))
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		failures = 0;
		check_kept.text = NULL;
		alarm(TEST_SECONDS);
		run();
		fflush(stdout);
		_exit(failures != 0);
	}
	return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}

/* Returns: the wait status of this program, run again with an argument and other options, or -1. */
static inline int again(const char *name, const char *argument, const char *options)
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		set_options(options);
		execl("/proc/self/exe", name, argument, (char *)NULL);
		_exit(127);
	}
	return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}

/*
 * Runs run() in a child and captures stderr in text (4096 bytes). *lines is the number of lines. Returns: the wait
 * status.
 */
static inline int said(void (*run)(void), char *text, int *lines)
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

/* Runs each case in a process, and prints the number of failures with the label of the engine. */
static inline int run_cases(const struct test_case *cases, size_t count, const char *whose)
{
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		int status = in_process(cases[i].run);

		if (status) {
			printf("FAIL %s: %s (status %#x)\n", whose, cases[i].name, (unsigned)status);
			failed++;
		}
	}
	printf("%s: %zu cases, %d failed\n", whose, count, failed);
	return failed != 0;
}

#endif
