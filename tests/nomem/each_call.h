/*
 * each_call.h: the nth call to the system fails, n = 1, 2, 3 ... until n is not reached: once with one failure, once
 * with all further calls failing, each n in a process of its own. After each nothing is lost, and with the failures
 * over the same runs without a refusal.
 */
#ifndef NOMEM_EACH_CALL_H
#define NOMEM_EACH_CALL_H

#include "nomem.h"

#include <sys/wait.h>

#include "os/os.h"

static struct {
	unsigned long calls, fail_at;	/* fail_at 0: count only */
	bool for_ever;
	bool fences;			/* they count as well, though they take no memory */
} fault;

static bool refuse(const char *call)
{
	if (!fault.fences && strcmp(call, "fence") == 0)
		return false;
	unsigned long n = ++fault.calls;

	return fault.fail_at && (fault.for_ever ? n >= fault.fail_at : n == fault.fail_at);
}

/* Exit status 0: refusals were survived; 9: n was not reached. */
static int survive(void (*use)(void))
{
	use();
	bool reached = fault.calls >= fault.fail_at;
	fault.fail_at = 0;
	km_os_fault = NULL;
	nothing_lost();
	use();
	NEED(refused == 0);
	nothing_lost();
	return reached ? 0 : 9;
}

/* Returns: the wait status of a process with a failure of the nth call in `use`. */
static int run_forked(void (*use)(void), unsigned long n, bool for_ever)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(580);
		fault.calls = 0;
		fault.fail_at = n;
		fault.for_ever = for_ever;
		km_os_fault = refuse;
		_exit(survive(use));
	}
	waitpid(pid, &status, 0);
	return status;
}

static int each_call(const char *what, int (*run)(void (*use)(void), unsigned long n, bool for_ever),
		     void (*use)(void))
{
	for (int for_ever = 0; for_ever < 2; for_ever++) {
		unsigned long n = 1;
		int status;

		while ((status = run(use, n, for_ever)) == 0)
			n++;
		printf("%s, call n fails %s: n = 1 to %lu\n", what, for_ever ? "for ever" : "once", n - 1);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 9) {
			printf("%s: call %lu fails %s: status 0x%x\n", what, n,
			       for_ever ? "for ever" : "once", (unsigned)status);
			return 1;
		}
		if (n < 5)
			return 1;
	}
	return 0;
}

#endif
