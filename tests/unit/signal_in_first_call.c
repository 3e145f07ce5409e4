/*
 * signal_in_first_call.c: a signal handler interrupts the library's start, and allocates: the handler's request may
 * be refused, but does not wait for its own thread; and the library starts. The test interrupts each of the first
 * instructions of the first call, and some of all others, each in a process of its own. Tier: full.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#define TRAP_FLAG	0x100ull
#define FIRST		100ul	/* first instructions, each interrupted */
#define OTHERS		8ul	/* of the rest: each is as far again, and a process steps all the way there */

static volatile unsigned long steps, strike_at;	/* 0: at none */
static volatile bool got;

static void on_step(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	if (++steps != strike_at)
		return;
	void *object = kmalloc(40, GFP_NOWAIT);
	got = object != NULL;
	kfree(object);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static void *first_call(void)
{
	__writeeflags(__readeflags() | TRAP_FLAG);
	void *object = (kmalloc)(40, GFP_KERNEL);
	__writeeflags(__readeflags() & ~TRAP_FLAG);
	return object;
}

static void in_child(unsigned long at)
{
	void *objects[100];

	alarm(580);
	strike_at = at;
	void *object = first_call();
	if (!object || !kmalloc_bulk(40, GFP_KERNEL, 100, objects))
		_exit(2);
	kfree_bulk(100, objects);
	if (kmem_check_all())
		_exit(3);
	/* Not each start takes as many instructions: this one was over before. */
	_exit(steps < at ? 0 : !got);
}

/* Returns: the result of a process interrupted once: 0 served, 1 refused, any other value is a failure. */
static int struck(unsigned long at)
{
	int status;
	pid_t child = fork();

	if (!child)
		in_child(at);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 4;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

static unsigned long count_steps(void)
{
	unsigned long count = 0;
	int ends[2];

	if (pipe(ends))
		return 0;
	if (!fork()) {
		first_call();
		count = steps;
		_exit(write(ends[1], &count, sizeof(count)) != sizeof(count));
	}
	if (read(ends[0], &count, sizeof(count)) != sizeof(count))
		count = 0;
	wait(NULL);
	return count;
}

/* Before the constructor that would start the library. */
static void before_constructors(void)
{
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	unsigned long refused = 0, runs = 0;

	sigaction(SIGTRAP, &step, NULL);
	unsigned long count = count_steps(), stride = count / OTHERS;
	for (unsigned long at = 1; at <= count; at += at < FIRST ? 1 : stride) {
		int result = struck(at);

		runs++;
		refused += result == 1;
		if (result > 1) {
			dprintf(1, "struck at instruction %lu of %lu: %d\n", at, count, result);
			_exit(1);
		}
	}
	dprintf(1, "%lu instructions, %lu of them struck, %lu times refused\n", count, runs, refused);
	_exit(count > FIRST && refused && refused < runs ? 0 : 1);
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = before_constructors;

int main(void)
{
	return 1;
}
