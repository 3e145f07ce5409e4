/*
 * guarded: every system call fails in turn in a program with guarded objects, from its start on: the program goes on
 * with ordinary objects, and loses no memory.
 */
#include "each_call.h"

/* Before any constructor: the library starts in one. "NOMEM_BOOT=n" or "NOMEM_BOOT=n+". */
static bool boot;

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
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_start;

static int run_started(void (*use)(void), unsigned long n, bool for_ever)
{
	char setting[32];
	int status;

	(void)use;
	snprintf(setting, sizeof(setting), "%lu%s", n, for_ever ? "+" : "");
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(580);
		setenv("NOMEM_BOOT", setting, 1);
		setenv("KMEM_OPTIONS", "guard:each,guard_objects:8", 1);
		execl("/proc/self/exe", "guarded", NULL);
		_exit(4);
	}
	waitpid(pid, &status, 0);
	return status;
}

/* More than there is room for; some of them come and go. */
static void few(void)
{
	refused = 0;
	struct kmem_cache *cache = kmem_cache_create("guarded", 48, NULL, 0);

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; cache && i < 8; i++)
			hold(kmem_cache_alloc(cache, GFP_KERNEL), 48);
		let_go(cache, 0);
		for (unsigned i = 0; i < 8; i++)
			hold(kmalloc(100 + i, GFP_KERNEL), 100 + i);
		let_go(NULL, 0);
	}
	if (cache)
		kmem_cache_destroy(cache);
	else
		refused++;
}

int main(void)
{
	return boot ? survive(few) : each_call("start, and a few guarded objects", run_started, few);
}
