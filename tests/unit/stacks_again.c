/*
 * stacks_again: the stack recorded for an object equals the stack of libgcc's unwinder, and the stack walked without
 * known earlier stacks: over frames of fixed and of changing length, recursion of any depth, handlers, and threads. A
 * repeated path is not walked again; and one stack has one number, also if threads record it at once. In a small
 * address space there is room for fewer stacks.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "os/os.h"
#include "ext/debug/debug.h"
#include "inspect/stack.h"

#ifdef __GLIBC__
#include <execinfo.h>

#define LONGEST	600u	/* bytes of a function here */
#define THREADS	4
#define ROUNDS	100u
#define KEYS	20u

static __thread bool in_handler;
static unsigned compared;

static unsigned depth_of(const struct km_stack_track *track)
{
	unsigned depth = 0;

	while (depth < KM_STACK_FRAMES && track->frame[depth])
		depth++;
	return depth;
}

/* Three stacks from here; the first frame of each is another place of this function. */
static __attribute__((noinline)) uint32_t compare(void)
{
	struct km_stack_track known, walked;
	struct kmem_record_mark mark;
	void *told[KM_STACK_FRAMES + 8];

	km_debug_mark(&mark);
	km_stack_track(&walked);
	int count = backtrace(told, KM_STACK_FRAMES);
	km_debug_read_mark(&mark, &known);
	unsigned depth = depth_of(&known);
	CHECK(km_debug_is_sealed(&mark));
	CHECK(depth > 1 && depth == depth_of(&walked), "%u and %u frames", depth, depth_of(&walked));
	CHECK(known.frame[0] - (uintptr_t)compare < LONGEST);
	for (unsigned i = 1; i < depth; i++) {
		CHECK(known.frame[i] == walked.frame[i], "frame %u", i);
		/* Behind a handler's frame libgcc also goes on with the interrupted place. */
		CHECK((int)i >= count || known.frame[i] == (uintptr_t)told[i], "frame %u of libgcc's", i);
	}
	CHECK(in_handler || (int)depth >= count - 1, "%u frames, libgcc's %d", depth, count);
	__atomic_fetch_add(&compared, 1, __ATOMIC_RELAXED);
	return (uint32_t)mark.who;
}

static __attribute__((noinline)) void dig(unsigned path, unsigned left);

static __attribute__((noinline)) void on_alloca(unsigned path, unsigned left)
{
	char *bytes = alloca(16 + path % 5000);

	__asm__ volatile("" : : "r"(bytes) : "memory");
	dig(path / 3, left - 1);
	__asm__ volatile("" : : "r"(bytes) : "memory");
}

static __attribute__((noinline)) void aligned(unsigned path, unsigned left)
{
	char bytes[64] __attribute__((aligned(64)));

	__asm__ volatile("" : : "r"(bytes) : "memory");
	dig(path / 3, left - 1);
	__asm__ volatile("" : : "r"(bytes) : "memory");
}

static __attribute__((noinline, optimize("no-omit-frame-pointer"))) void with_pointer(unsigned path, unsigned left)
{
	dig(path / 3, left - 1);
	__asm__ volatile("" : : : "memory");
}

static void handler(int number)
{
	in_handler = true;
	compare();
	in_handler = false;
	(void)number;
}

static __attribute__((noinline)) void dig(unsigned path, unsigned left)
{
	if (!left)
		compare();
	else if (path % 3 == 0)
		on_alloca(path, left);
	else if (path % 3 == 1)
		aligned(path, left);
	else
		with_pointer(path, left);
	if (left == 1 && path % 7 == 0)
		raise(SIGUSR1);
	__asm__ volatile("" : : : "memory");
}

static void *many_paths(void *arg)
{
	unsigned state = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < 4000; i++) {
		state = state * 1103515245 + 12345;
		/* Few repeated paths, and many others. */
		dig(state >> 8 & (i % 2 ? 15 : 0xffffff), i % 100 ? 1 + i % 6 : 200);
	}
	return NULL;
}

static pthread_barrier_t barrier;
static uint32_t numbers[THREADS];

static void *at_once(void *arg)
{
	pthread_barrier_wait(&barrier);
	*(uint32_t *)arg = compare();
	return NULL;
}

static void one_number(void)
{
	pthread_t thread[THREADS];

	pthread_barrier_init(&barrier, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		NEED(!pthread_create(&thread[i], NULL, at_once, &numbers[i]));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(numbers[i] && numbers[i] == numbers[0]);
}

/* Returns: how many of two stacks that differ in one word are unknown, and walked. */
static __attribute__((noinline)) unsigned walked_of(uint64_t key, uint32_t what)
{
	struct km_stack stack;

	km_stack_take(&stack, key, KM_STACK_FRAMES, false);
	if (stack.known) {
		CHECK_EQUAL(stack.what, what);
		return 0;
	}
	km_stack_keep(&stack, what);
	return 1;
}

static __attribute__((noinline)) unsigned walked_of_two(uint64_t key)
{
	unsigned walked = walked_of(key, 1);

	__asm__ volatile("" : "+r"(walked));
	return walked + walked_of(key, 2);
}

static bool is_known_again(uint64_t key)
{
	bool good = true;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i == ROUNDS / 2)
			km_stack_forget();
		/* One call, and not a copy of it before the loop. */
		__asm__ volatile("" : "+r"(i));
		good &= walked_of_two(key) == (i % (ROUNDS / 2) ? 0 : 2);
	}
	return good;
}

/*
 * A repeated path is not walked, except where another library may be at any place. By chance two stacks may replace
 * each other: for some keys in a hundred.
 */
static void known_again(void)
{
	unsigned good = 0;

	for (uint64_t key = 1; key <= KEYS; key++)
		good += is_known_again(key);
	CHECK(good > KEYS / 2, "%u of %u", good, KEYS);
}

/* A small address space is for the program's memory. */
static void in_small_space(void)
{
	const size_t limit = (size_t)30 << 20;
	pid_t child = fork();
	int status;

	if (!child) {
		km_os_set_address_limit(limit);
		_exit(!km_debug_stacks_start() || km_debug_stacks->room * sizeof(*km_debug_stacks) > limit / 32);
	}
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQUAL(status, 0);
}

int main(void)
{
	pthread_t thread[THREADS];
	void *loads[1];

	in_small_space();

	NEED(km_debug_stacks_start() && backtrace(loads, 1) == 1);
	signal(SIGUSR1, handler);
	known_again();
	many_paths((void *)1);
	for (unsigned i = 0; i < THREADS; i++)
		NEED(!pthread_create(&thread[i], NULL, many_paths, (void *)(uintptr_t)(i + 2)));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	one_number();
	CHECK(compared > 5 * 4000);
	return failures != 0;
}
#else
int main(void)
{
	printf("libc has no unwinder to compare with\n");
	return 77;
}
#endif
