/*
 * nomem: a script with all requests for memory, in which each system call fails in turn (each_call.h); then the same
 * for the start of the library itself, in new processes. With hardened: own_addresses:0, because here pages go from
 * one name to another.
 */
#include "each_call.h"

static bool boot;	/* this process is one of the new ones */

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
			boot = true;
			km_os_fault = refuse;
		}
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) =
	before_start;

static int run_started(void (*use)(void), unsigned long n, bool for_ever)
{
	char setting[32];
	int status;

	snprintf(setting, sizeof(setting), "%lu%s", n, for_ever ? "+" : "");
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(580);
		setenv("NOMEM_BOOT", setting, 1);
		execl("/proc/self/exe", "nomem", NULL);
		_exit(4);
	}
	waitpid(pid, &status, 0);
	return status;
}

int main(void)
{
	if (boot)
		return survive(script);
	/* The script leaves no memory in this process before the fork. */
	int failed = each_call("the script", run_forked, script);
	return failed | each_call("start and script", run_started, script);
}
