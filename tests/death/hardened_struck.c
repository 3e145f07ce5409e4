/*
 * hardened_struck: with KMEM_OPTIONS=hardened:1 two frees of one object, the second one between any two instructions
 * of the first: one of the two counts as the double free, and ends the process with its line. The second free comes
 * from a signal handler of the same thread, and from another thread, while the first does not go on; through
 * kmem_cache_free, kfree and free, and at each instruction up to a few behind the deciding one. So the step from
 * "out" to "free" is indivisible. x86-64's trap flag. Disciplines: all.
 */
#define _GNU_SOURCE
#define CHECK_FD 2
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "kit/api.h"

#ifndef __x86_64__
int main(void)
{
	printf("it goes from instruction to instruction by x86-64's trap flag\n");
	return 77;
}
#else

#define TRAP_FLAG 0x100
#define BEHIND 20		/* instructions behind the deciding one */
static struct kmem_cache *cache;
static void (*put)(void *p);
static void *volatile object;
static volatile int step, strike_at, asked, done;
static bool threads, *other_was_first;	/* of the last case */

static void by_cache(void *p) { kmem_cache_free(cache, p); }
static void by_kfree(void *p) { kfree(p); }
static void by_free(void *p) { free(p); }

static void *get(void)
{
	return put == by_cache ? kmem_cache_alloc(cache, GFP_KERNEL) : put == by_free ? malloc(64) :
									kmalloc(64, GFP_KERNEL);
}

static void *other(void *unused)
{
	while (!asked)
		sched_yield();
	put(object);
	*other_was_first = true;
	done = 1;
	return unused;
}

static void on_step(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	if (++step != strike_at)
		return;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	if (!threads) {
		put(object);
		*other_was_first = true;
		return;
	}
	asked = 1;
	while (!done)
		sched_yield();
}

#define EXCHANGE_FLAGS(operation) \
	__asm__ volatile("pushfq\n\t" operation "\n\tpopfq" ::: "memory", "cc")

/* One free, interrupted at instruction strike_at. The free never ends. */
static void struck(void)
{
	struct sigaction action = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	pthread_t thread;
	void *warm = get();

	object = get();
	NEED(object && warm);
	put(warm);
	NEED(sigaction(SIGTRAP, &action, NULL) == 0);
	if (threads)
		NEED(pthread_create(&thread, NULL, other, NULL) == 0);
	EXCHANGE_FLAGS("orq $0x100, (%%rsp)");
	put(object);
	EXCHANGE_FLAGS("andq $~0x100, (%%rsp)");
}

static void each_instruction(void)
{
	static char text[4096];

	int behind = 0;

	for (strike_at = 1; behind < BEHIND; strike_at++) {
		*other_was_first = false;
		int lines, status = said(struck, text, &lines);

		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1 && strstr(text, "free"),
		      "at instruction %d: status %#x, said: %s", strike_at, (unsigned)status, text);
		behind = *other_was_first ? 0 : behind + 1;
	}
	NEED(strike_at > BEHIND + 5, "the first instructions are before the one that decides");
}

/* By each function, by a handler and by another thread. */
static void each_door(void)
{
	put = by_cache;
	each_instruction();
	put = by_kfree;
	each_instruction();
	put = by_free;
	each_instruction();
}

static void by_handler(void)
{
	/*
	 * slob validates frees under a lock: a thread stopped there stops others, and a handler's free is
	 * deferred.
	 */
	if (slob)
		return;
	cache = make("struck", 64);
	other_was_first = mmap(NULL, sizeof(bool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(other_was_first != MAP_FAILED);
	each_door();
}

static void by_thread(void)
{
	threads = true;
	by_handler();
}

static const struct test_case cases[] = { { "by a handler", by_handler }, { "by another thread", by_thread } };
API_MAIN_OPTIONS(cases, ",hardened:1")

#endif
