/*
 * reserved_beside.c: while kmem_reserve faults pages in, other threads create and destroy caches, allocate and fork,
 * at each of its system calls; their child gets half-reserved memory back, and may reserve by itself. In a child
 * forked by a handler of the reserving thread, the call goes on. Two reserving threads both succeed; if two reserve
 * one cache and one fails, the failure takes no object from the other. The cache's slabs may be freed meanwhile; a
 * slab whose pages are faulted in is freed afterwards; another thread's handler may fork under the lock of these
 * pages. Handlers of fork that run inside the library's handlers, and reserve or shrink, never wait. With hardened:
 * own_addresses:0, because here pages go from one name to another. Tier: full.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/memcg.h>

#include "kit/reserved.h"
#include "kit/sleeps.h"

#include "slab/engine.h"
#include "page/commit_ahead.h"
#include "page/zone.h"
#include "os/os.h"

#define SIZE	500u
#define MANY	20000u

static struct kmem_cache *reserved, *other;
static pid_t striking;
static bool handlers_call;	/* handlers of fork inside the library's handlers */
static __thread bool in_handler;

/*
 * The child of a handler's fork has one thread, so a wait would never end. Nor would a wait in a fork's handler: the
 * other thread goes on after the fork.
 */
void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	NEED(!in_handler, "a handler of fork waits");
	if (striking && getpid() != striking)
		_exit(9);
	__real_km_os_wait(word, value, ms);
}

static pthread_t reserver;
static unsigned calls, strike;
static size_t used_before, level_before;
static void (*beside)(void);

static void *in_thread(void *unused)
{
	(void)unused;
	beside();
	return NULL;
}

/* At one of the calls that fault memory in, another thread does all its work. */
static bool others_come_by(const char *call)
{
	pthread_t thread;

	if (strcmp(call, "fault in") != 0 || !pthread_equal(pthread_self(), reserver) || calls++ != strike)
		return false;
	NEED(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
	return false;
}

static int reserve_with(bool (*hook)(const char *call))
{
	reserver = pthread_self();
	calls = 0;
	km_os_fault = hook;
	int result = kmem_reserve(reserved, MANY);
	km_os_fault = NULL;
	return result;
}

/* Once for each call. */
static void at_each_call(void (*what)(void))
{
	beside = what;
	reserved = make("reserved", SIZE);
	for (strike = 0; !strike || calls >= strike; strike++) {
		kmem_shrink_all();
		used_before = km_pages_used();
		level_before = km_ahead_level();
		NEED(reserve_with(others_come_by) == 0 && km_ahead_level() > level_before);
		NEED(kmem_reserve(reserved, 0) == 0 && km_ahead_level() == level_before);
		NEED(kmem_check_all() == 0);
	}
	NEED(strike > 8, "(%u calls)", strike);
	gone(reserved);
}

static int count_caches(struct kmem_cache *cache, void *count)
{
	(void)cache;
	++*(int *)count;
	return 0;
}

static void use_the_library(void)
{
	struct kmem_cache *cache = make("beside", 300);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "beside", 0);
	void *object = kmem_cache_alloc(cache, GFP_KERNEL), *block = kmalloc(100000, GFP_KERNEL);
	int count = 0;

	NEED(group && object && block);
	mem_cgroup_put(group);
	kfree(block);
	kmem_cache_free(cache, object);
	NEED(kmem_for_each_cache(count_caches, &count) == 0 && count > 1);
	NEED(kmem_cache_shrink(cache) == 0);
	kmem_cache_destroy(cache);
}

static void they_go_on(void)
{
	at_each_call(use_the_library);
}

static int status_of(pid_t child)
{
	int status = -1;

	NEED(child > 0 && waitpid(child, &status, 0) == child);
	return status;
}

static unsigned had_nothing;

/*
 * In the child the reservation ends: the child has no reserved object, or all, if only the CPUs' words were
 * missing.
 */
static void fork_once(void)
{
	static size_t full;
	pid_t child = fork();

	if (!child) {
		km_os_fault = NULL;
		bool nothing = km_ahead_level() == level_before;
		NEED(nothing || (had_nothing > 8 && km_ahead_level() == full), "(%zu)", km_ahead_level());
		NEED(km_pages_used() == used_before, "(%zu, %zu)", km_pages_used(), used_before);
		NEED(kmem_check_all() == 0);
		NEED(kmem_reserve(reserved, MANY) == 0 && km_ahead_level() > level_before);
		NEED(kmem_check_all() == 0);
		_exit(nothing ? 2 : 0);
	}
	int status = status_of(child);
	NEED(status == 0 || status == 0x200, "(%x)", status);
	had_nothing += status == 0x200;
	full = km_ahead_level();
}

static void a_child_has_it_back(void)
{
	at_each_call(fork_once);
}

static pid_t own_child;

static bool fork_here(const char *call)
{
	if (strcmp(call, "fault in") == 0 && calls++ == strike)
		own_child = fork();
	return false;
}

static void a_handlers_child_goes_on(void)
{
	reserved = make("reserved", SIZE);
	for (strike = 0; !strike || calls >= strike; strike++) {
		size_t used = km_pages_used();

		own_child = -1;
		NEED(reserve_with(fork_here) == 0 && km_ahead_level());
		NEED(km_pages_used() == used && kmem_check_all() == 0);
		NEED(kmem_reserve(reserved, 0) == 0 && km_ahead_level() == 0);
		if (!own_child)
			_exit(0);
		if (calls > strike)
			NEED(status_of(own_child) == 0);
	}
	NEED(strike > 8, "(%u calls)", strike);
	gone(reserved);
}

static pthread_t second;

static void *reserve_other(void *unused)
{
	(void)unused;
	NEED(kmem_reserve(other, MANY / 2) == 0);
	return NULL;
}

static bool start_second(const char *call)
{
	if (strcmp(call, "fault in") == 0 && pthread_equal(pthread_self(), reserver) && calls++ == 3)
		NEED(pthread_create(&second, NULL, reserve_other, NULL) == 0);
	return false;
}

static void two_get_both(void)
{
	reserved = make("reserved", SIZE);
	other = make("other", SIZE);
	NEED(kmem_reserve(other, MANY / 2) == 0);
	size_t half = km_ahead_level();
	NEED(kmem_reserve(other, 0) == 0 && km_ahead_level() == 0);
	/* The hook stays while the other thread may call it. */
	reserver = pthread_self();
	calls = 0;
	km_os_fault = start_second;
	NEED(kmem_reserve(reserved, MANY) == 0 && pthread_join(second, NULL) == 0);
	km_os_fault = NULL;
	NEED(km_ahead_level() >= 3 * half - 2 && km_ahead_level() <= 3 * half, "(%zu)", km_ahead_level());
	kmem_cache_destroy(other);
	NEED(km_ahead_level() > half && kmem_reserve(reserved, 0) == 0 && km_ahead_level() == 0);
	gone(reserved);
}

/* ------------------------------------------------------------------ a used cache */

#define OUT	150u	/* objects */

static char *out[OUT], *taken[OUT];

static void use_some(void)
{
	take(reserved, out, OUT);
	give(reserved, out, OUT, true);
}

/* Before each step, without free pages. */
static void begin_step(void)
{
	kmem_shrink_all();
	used_before = km_pages_used();
	use_some();
}

static void reserve_and_give(void)
{
	NEED(reserve_with(others_come_by) == 0 && kmem_check_all() == 0);
	give(reserved, out, OUT, false);
	NEED(kmem_reserve(reserved, 0) == 0);
}

/* A child also gets the pages of a freed slab, while the other thread keeps the pages. */
static void they_go(void)
{
	give(reserved, out, OUT, false);
	kmem_cache_shrink(reserved);
	for (unsigned i = 0; i < OUT; i++) {
		NEED((taken[i] = kmem_cache_alloc(other, GFP_KERNEL)));
		memset(taken[i], (int)i, SIZE);
	}
	pid_t child = fork();
	if (!child) {
		km_os_fault = NULL;
		give(other, taken, OUT, false);
		kmem_shrink_all();
		NEED(km_pages_used() == used_before, "(%zu, %zu)", km_pages_used(), used_before);
		NEED(kmem_check_all() == 0);
		_exit(0);
	}
	int status = status_of(child);
	NEED(status == 0, "(%x)", status);
}

static void slabs_go(void)
{
	beside = they_go;
	reserved = make("reserved", SIZE);
	other = make("other", SIZE);
	for (strike = 0; !strike || calls >= strike; strike++) {
		begin_step();
		NEED(reserve_with(others_come_by) == 0 && kmem_check_all() == 0);
		for (unsigned i = 0; taken[0] && i < OUT; i++)
			NEED(taken[i][0] == (char)i && taken[i][SIZE - 1] == (char)i);
		give(other, taken, OUT, false);
		give(reserved, out, OUT, false);
		NEED(kmem_reserve(reserved, 0) == 0);
		kmem_shrink_all();
		NEED(km_pages_used() == used_before, "(%zu, %zu)", km_pages_used(), used_before);
		NEED(kmem_check_all() == 0);
	}
	NEED(strike > 8, "(%u calls)", strike);
	gone(reserved);
	gone(other);
}

static unsigned under_lock;

static void fork_in_handler(int number)
{
	(void)number;
	own_child = fork();
}

/* A handler of a thread that holds the lock of the kept pages forks: the fork must leave this lock alone. */
static void fork_under_lock(void)
{
	struct km_page *page = km_load(&km_arena.staying);

	if (!page)
		return;
	NEED(signal(SIGUSR1, fork_in_handler) != SIG_ERR);
	struct km_busy_was was = km_busy_begin();
	km_page_hold(page);
	striking = getpid();
	raise(SIGUSR1);
	km_page_let_go(page);
	km_busy_end(was);
	if (!own_child) {
		km_os_fault = NULL;
		give(reserved, out, OUT, false);
		NEED(kmem_reserve(reserved, 0) == 0);
		kmem_shrink_all();
		NEED(km_pages_used() == used_before, "(%zu, %zu)", km_pages_used(), used_before);
		NEED(kmem_check_all() == 0);
		_exit(0);
	}
	int status = status_of(own_child);
	NEED(status == 0, "(%x)", status);
	under_lock++;
}

static void a_handler_forks_under_the_lock(void)
{
	beside = fork_under_lock;
	reserved = make("reserved", SIZE);
	for (strike = 0; !strike || calls >= strike; strike++) {
		begin_step();
		reserve_and_give();
	}
	/* Caches of slob share pages; no page belongs to one cache. */
	NEED(slob || under_lock > 1, "(%u)", under_lock);
	gone(reserved);
}

static void in_fork(void)
{
	in_handler = handlers_call;
	for (int i = 0; i < 2 && in_handler; i++) {
		int error = kmem_reserve(i ? reserved : other, MANY / 2);

		NEED(!error || error == -ENOMEM, "(%d)", error);
		kmem_cache_shrink(i ? reserved : other);
		free(malloc(100000));
	}
	in_handler = false;
}

/*
 * These handlers are registered before the library's, because the library registers its handlers at its
 * start.
 */
__attribute__((constructor(101))) static void register_first(void)
{
	NEED(pthread_atfork(in_fork, in_fork, in_fork) == 0);
}

static void fork_with_handlers(void)
{
	handlers_call = true;
	pid_t child = fork();
	handlers_call = false;
	if (!child) {
		km_os_fault = NULL;
		NEED(kmem_reserve(reserved, MANY) == 0 && kmem_reserve(other, 0) == 0 && kmem_check_all() == 0);
		_exit(0);
	}
	int status = status_of(child);
	NEED(status == 0, "(%x)", status);
}

static void a_forks_handlers_reserve(void)
{
	beside = fork_with_handlers;
	reserved = make("reserved", SIZE);
	other = make("other", SIZE);
	for (strike = 0; !strike || calls >= strike; strike++) {
		begin_step();
		reserve_and_give();
		NEED(kmem_reserve(other, 0) == 0);
	}
	NEED(strike > 8, "(%u calls)", strike);
	gone(reserved);
	gone(other);
}

static char *was_out[OUT];
static unsigned stayed;

/*
 * Free memory goes to the system as well: the counters would miss pages faulted in at this moment. So the faulted
 * slab stays in use meanwhile.
 */
static void they_go_to_the_system(void)
{
	give(reserved, out, OUT, false);
	kmem_cache_shrink(reserved);
	kmem_shrink_all();
	/* From then on no other pages are in work. */
	if (__atomic_load_n(&reserved->state.reserved_pages, __ATOMIC_RELAXED))
		stayed += km_pages_used() > used_before;
}

static unsigned resident(void)
{
	unsigned char is;
	unsigned count = 0;

	for (unsigned i = 0; i < OUT; i++)
		if (!mincore((void *)((uintptr_t)was_out[i] & ~(uintptr_t)4095), 4096, &is))
			count += is & 1;
	return count;
}

static void slabs_go_to_the_system(void)
{
	beside = they_go_to_the_system;
	reserved = make("reserved", SIZE);
	for (strike = 0; !strike || calls >= strike; strike++) {
		begin_step();
		memcpy(was_out, out, sizeof(out));
		for (unsigned i = 0; i < OUT; i++)
			was_out[i] = was_out[i] ?: out[0];
		reserve_and_give();
		NEED(kmem_cache_shrink(reserved) == 0);
		kmem_shrink_all();
		NEED(!resident(), "(%u objects' pages, call %u of %u)", resident(), strike, calls);
		NEED(kmem_check_all() == 0);
	}
	/* Pages of slob are no cache's. */
	NEED(strike > 8 && (slob || stayed), "(%u calls, %u slabs)", strike, stayed);
	gone(reserved);
}

static struct {
	pthread_t thread;
	int id, result;
	size_t objects;
	bool fails, done;
} also;
static bool first_fails;

static void *reserve_also(void *unused)
{
	__atomic_store_n(&also.id, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	also.result = kmem_reserve(reserved, also.objects);
	__atomic_store_n(&also.done, true, __ATOMIC_RELEASE);
	return unused;
}

/* The first thread is in the middle of the cache's slabs: the second runs until a wait, or until its result. */
static void let_second_run(void)
{
	NEED(pthread_create(&also.thread, NULL, reserve_also, NULL) == 0);
	for (bool slept = false; !slept && !__atomic_load_n(&also.done, __ATOMIC_ACQUIRE); usleep(100)) {
		int id = __atomic_load_n(&also.id, __ATOMIC_ACQUIRE);

		slept = id && sleeps(id);
	}
}

static bool second_comes(const char *call)
{
	if (strcmp(call, "fault in") != 0 || !__atomic_load_n(&reserved->state.reserved_pages, __ATOMIC_RELAXED))
		return false;
	if (!pthread_equal(pthread_self(), reserver))
		return also.fails;
	if (!calls++)
		let_second_run();
	return first_fails;
}

static size_t level_of(size_t objects)
{
	NEED(kmem_reserve(reserved, objects) == 0);
	size_t level = km_ahead_level();
	NEED(kmem_reserve(reserved, 0) == 0 && km_ahead_level() == 0);
	return level;
}

static void one_of_two(size_t objects, bool first, size_t level)
{
	memset(&also, 0, sizeof(also));
	also.objects = objects;
	also.fails = !first;
	first_fails = first;
	reserver = pthread_self();
	calls = 0;
	/* Free pages of the slabs go to the system, in engines that purge. */
	kmem_cache_shrink(reserved);
	km_os_fault = second_comes;
	int result = kmem_reserve(reserved, MANY);
	NEED(calls && pthread_join(also.thread, NULL) == 0);
	km_os_fault = NULL;
	NEED(result == (first ? -ENOMEM : 0) && also.result == (first ? 0 : -ENOMEM), "(%d, %d)", result, also.result);
	NEED(km_ahead_level() == level, "(%zu, not %zu)", km_ahead_level(), level);
	NEED(kmem_reserve(reserved, 0) == 0 && km_ahead_level() == 0 && kmem_check_all() == 0);
}

static void of_two_one_fails(void)
{
	/* Caches of slob share pages; no page belongs to one cache. */
	if (slob)
		return;
	reserved = make("reserved", SIZE);
	use_some();
	size_t full = level_of(MANY), half = level_of(MANY / 2);
	one_of_two(MANY / 2, true, half);
	one_of_two(MANY * 2, false, full);
	give(reserved, out, OUT, false);
	gone(reserved);
}

static const struct test_case cases[] = {
	{ "they go on", they_go_on },
	{ "a child has it back", a_child_has_it_back },
	{ "a handler's child goes on", a_handlers_child_goes_on },
	{ "two get both", two_get_both },
	{ "slabs go", slabs_go },
	{ "a handler forks under the lock", a_handler_forks_under_the_lock },
	{ "slabs go to the system", slabs_go_to_the_system },
	{ "a fork's handlers reserve", a_forks_handlers_reserve },
	{ "of two one fails", of_two_one_fails },
};
API_MAIN(cases)
