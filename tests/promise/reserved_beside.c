/*
 * reserved_beside.c: while kmem_reserve brings pages in, other threads make and end caches, allocate and fork, at each
 * of its calls of the system; a child of theirs has what was half reserved back, and may reserve itself. In a child of
 * the thread that reserves, forked by a handler, the call goes on. Two that reserve get both. Disciplines: all.
 * With hardened: own_addresses:0, for pages go from one name to another here.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/memcg.h>

#include "kit/api.h"

#include "page/ahead.h"
#include "page/arena.h"
#include "port/os.h"

#define SIZE	500u
#define MANY	20000u

static struct kmem_cache *reserved, *other;
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

/* At one of the calls by which memory comes in, another thread does what it does to its end. */
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

/* Nobody goes on with it in the child: it has nothing of it, or, where the CPUs' words alone were missing, all. */
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
	NEED(reserve_with(start_second) == 0 && pthread_join(second, NULL) == 0);
	NEED(km_ahead_level() >= 3 * half - 2 && km_ahead_level() <= 3 * half, "(%zu)", km_ahead_level());
	kmem_cache_destroy(other);
	NEED(km_ahead_level() > half && kmem_reserve(reserved, 0) == 0 && km_ahead_level() == 0);
	gone(reserved);
}

static const struct test_case cases[] = {
	{ "they go on", they_go_on },
	{ "a child has it back", a_child_has_it_back },
	{ "a handler's child goes on", a_handlers_child_goes_on },
	{ "two get both", two_get_both },
};
API_MAIN(cases)
