/*
 * nomem: the nth call to the system fails, n = 1, 2, 3 ... until the script gets through without reaching n: once with
 * one failure, once with all further calls failing. Each n in a process of its own; then the same for the start of
 * the library itself, in processes started anew. After each: nothing lost, all invariants, and with the failures over
 * the script runs without a refusal. Disciplines: all.
 */
#include "nomem.h"

#include <sys/wait.h>

#include "port/os.h"

static struct {
	unsigned long calls, fail_at;	/* fail_at 0: count only */
	bool for_ever;
	bool boot;			/* this process is one of those started anew */
} fault;

static bool refuse(const char *call)
{
	/* It takes no memory: nomem/memcg refuses it. */
	if (strcmp(call, "fence") == 0)
		return false;
	unsigned long n = ++fault.calls;

	return fault.fail_at && (fault.for_ever ? n >= fault.fail_at : n == fault.fail_at);
}

static void over(void)
{
	fault.fail_at = 0;
}

/* ------------------------------------------------------------------ the start of the library */

/* Before any constructor: the library starts in one. "NOMEM_BOOT=n" or "NOMEM_BOOT=n+". */
static void before_start(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	for (; *environment; environment++)
		if (strncmp(*environment, "NOMEM_BOOT=", 11) == 0) {
			char *end = *environment + 11;

			while (*end >= '0' && *end <= '9')
				fault.fail_at = fault.fail_at * 10 + (unsigned long)(*end++ - '0');
			fault.for_ever = *end == '+';
			fault.boot = true;
			km_os_fault = refuse;
		}
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) =
	before_start;

/* Exit status 0: refusals were survived; 9: n was not reached. */
static int after_start(void)
{
	bool reached;

	script();
	reached = fault.calls >= fault.fail_at;
	over();
	km_os_fault = NULL;
	nothing_lost();
	script();
	NEED(refused == 0);
	nothing_lost();
	return reached ? 0 : 9;
}

static int run_started(unsigned long n, bool for_ever)
{
	char setting[32];
	int status;

	snprintf(setting, sizeof(setting), "%lu%s", n, for_ever ? "+" : "");
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(60);
		setenv("NOMEM_BOOT", setting, 1);
		execl("/proc/self/exe", "nomem", NULL);
		_exit(4);
	}
	waitpid(pid, &status, 0);
	return status;
}

/* ------------------------------------------------------------------ after it */

static int run_forked(unsigned long n, bool for_ever)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(60);
		fault.calls = 0;
		fault.fail_at = n;
		fault.for_ever = for_ever;
		km_os_fault = refuse;
		_exit(after_start());
	}
	waitpid(pid, &status, 0);
	return status;
}

static int enumerate(const char *what, int (*run)(unsigned long, bool))
{
	for (int for_ever = 0; for_ever < 2; for_ever++) {
		unsigned long n = 1;
		int status;

		while ((status = run(n, for_ever)) == 0)
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

int main(void)
{
	if (fault.boot)
		return after_start();
	/* Nothing of the script is left in this process before it is copied. */
	int failed = enumerate("the script", run_forked);
	return failed | enumerate("start and script", run_started);
}
