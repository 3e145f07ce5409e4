/*
 * own_locks_struck.c: a fork out of a signal handler waits for no lock of its own thread. A process of one thread
 * allocates, frees and shrinks; at each instruction a signal handler runs the library's handlers of fork, and no lock
 * is waited for: there is no other thread to have one. Disciplines: all
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "kit/api.h"

#ifndef __x86_64__
int main(void)
{
	printf("its single steps are x86-64's\n");
	return 77;
}
#else
#include <x86intrin.h>

#define TRAP_FLAG	0x100ull
#define SOME		20

#define MOST		100000ul	/* instructions; with CHECK_LONG all */

static unsigned long strikes, waits, most;

void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	waits++;
	__real_km_os_wait(word, value, ms);
}

static void on_step(int number, siginfo_t *info, void *arg)
{
	unsigned long before = waits;

	(void)number, (void)info;
	if (++strikes == most)
		((ucontext_t *)arg)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
	km_boot_fork_prepare();
	km_boot_fork_parent();
	if (waits != before)
		NEED(0, "(a fork waits for itself, strike %lu)", strikes);
	/* The child's handlers know the same. */
	if (strikes % 5003 == 0) {
		int status;
		pid_t child = fork();

		if (!child)
			_exit(waits != before);
		NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
}

static void use(struct kmem_cache *cache)
{
	static const size_t bytes[] = { 40, 20000 };
	void *objects[SOME];

	if (kmem_cache_alloc_bulk(cache, GFP_KERNEL, SOME, objects))
		kmem_cache_free_bulk(cache, SOME, objects);
	for (unsigned i = 0; i < 2; i++)
		kfree(kmalloc(bytes[i], GFP_KERNEL));
}

static void struck(void)
{
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	struct kmem_cache *cache = make("struck", 200);
	struct mem_cgroup *group = slob ? NULL : mem_cgroup_create(NULL, "struck", 0);

	use(cache);
	kfree(kmalloc_in(group, 100, GFP_KERNEL));
	NEED(!sigaction(SIGTRAP, &step, NULL));
	waits = strikes = 0;
	most = getenv("CHECK_LONG") ? 0 : MOST;
	__writeeflags(__readeflags() | TRAP_FLAG);
	kmem_cache_shrink(cache);
	kmem_cache_destroy(kmem_cache_create("another", 72, NULL, 0));
	kfree(kmalloc_in(group, 100, GFP_KERNEL));
	use(cache);
	__writeeflags(__readeflags() & ~TRAP_FLAG);
	NEED(strikes > 1000);
	mem_cgroup_put(group);
	gone(cache);
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = { { "struck", struck } };
API_MAIN(cases)
#endif
