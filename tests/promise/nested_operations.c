/*
 * nested_operations.c: without restartable sequences a CPU's words have a lock, and a handler may interrupt a hit under
 * the lock. The handler's call never waits for the interrupted code, although that code holds the lock until the
 * handler returns. This process has one thread, so each system call that waits would wait forever. The test
 * interrupts every instruction of a hit, by a handler that makes the library drain, and by a handler that forks: the
 * child's handler and the interrupted hit get different objects, and both may be freed. The thread stays on one CPU:
 * on another CPU the call would begin with a lock, and a fork may wait a moment for that lock (docs/theory.md 8).
 * Disciplines: all
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#define CHECK_FD 2
#include "kit/check.h"
#include "kit/cpus.h"

#include "os/os.h"

static unsigned long waits;

void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	(void)word, (void)value, (void)ms;
	waits++;
}

#if !defined(__x86_64__)
int main(void)
{
	puts("steps by x86-64's trap flag");
	return 77;
}
#else
#include <x86intrin.h>

#define TRAP_FLAG 0x100ull
#define LIMIT ((size_t)256 << 10)
#define MOST 4096
/* A hit is within the first of a call's instructions. */
#define HIT 300

static struct kmem_cache *cache;
static bool forking, child;
static volatile unsigned strikes;
static void *nested;	/* the handler's object, in a child */
static const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;

/* With the cache at its limit, except for objects cached on the interrupted CPU, the library drains the CPU. */
static void drain(void)
{
	void *object = kmem_cache_alloc(cache, gfp);

	if (object)
		kmem_cache_free(cache, object);
}

static void on_step(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	int status = -1;

	(void)signal, (void)info;
	if (++strikes > HIT)
		return;
	if (!forking) {
		drain();
		return;
	}
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid) {
		NEED(waitpid(pid, &status, 0) == pid && status == 0, "strike %u, status %#x", strikes,
		     (unsigned)status);
		return;
	}
	child = true;
	nested = kmem_cache_alloc(cache, gfp);
	registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

/* A child ends here. */
static void hit(void)
{
	void *object;

	__writeeflags(__readeflags() | TRAP_FLAG);
	object = kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_NOWARN);
	__writeeflags(__readeflags() & ~TRAP_FLAG);
	if (child) {
		bool same = object && object == nested;

		if (object)
			kmem_cache_free(cache, object);
		if (nested && !same)
			kmem_cache_free(cache, nested);
		_exit((same ? 1 : 0) | (kmem_check_all() ? 2 : 0) | (waits ? 4 : 0));
	}
	/* The handler's drain may have taken the object. */
	object = object ?: kmem_cache_alloc(cache, gfp);
	NEED(object);
	strikes = 0;
	__writeeflags(__readeflags() | TRAP_FLAG);
	kmem_cache_free(cache, object);
	__writeeflags(__readeflags() & ~TRAP_FLAG);
	if (child)
		_exit((nested ? kmem_cache_free(cache, nested) : (void)0, kmem_check_all()) | (waits ? 4 : 0));
}

static void strike_engine(const char *engine)
{
	static void *objects[MOST];
	struct kmem_cache_args args = { .engine = engine };
	unsigned count = 0;

	cache = kmem_cache_create("struck", 2000, &args, 0);
	NEED(cache);
	kmem_cache_set_limit(cache, LIMIT);
	while (count < MOST && (objects[count] = kmem_cache_alloc(cache, gfp)))
		count++;
	NEED(count && count < MOST);
	for (unsigned i = 0; i < 3; i++)
		kmem_cache_free(cache, objects[--count]);
	for (int i = 0; i < 2; i++) {
		forking = i;
		strikes = 0;
		waits = 0;
		hit();
		NEED(strikes, "%s", engine);
		CHECK(!waits, "%s: %s waits for its own thread", engine, forking ? "a fork" : "a call");
	}
	forking = false;
	while (count)
		kmem_cache_free(cache, objects[--count]);
	CHECK(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

int main(void)
{
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };

	alarm(580);
	stay_here();
	sigaction(SIGTRAP, &step, NULL);
	strike_engine("sheaf");
	strike_engine("slub");
	return failures != 0;
}
#endif
