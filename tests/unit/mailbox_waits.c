/*
 * mailbox_waits: a request that wants stacks waits while the dynamic linker works, which may be in this very thread,
 * and for two seconds at most: then it is served without. No request waits for the registry's lock, and one that finds
 * it taken is served later. Each in a process, as stacks are had once. The clock is ours, and so is the linker's word.
 */
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/clock.h"

#include "cache/cache.h"
#include "cache/mail.h"
#include "kit/inside.h"
#include "port/os.h"
#include "watch/debug.h"

static struct kmem_cache *cache;

/* Calls the engine, and so the tick; the mailbox is looked into. */
static void misses(unsigned times)
{
	void *objects[600];

	while (times--) {
		for (size_t i = 0; i < km_array_count(objects); i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		for (size_t i = 0; i < km_array_count(objects); i++)
			kmem_cache_free(cache, objects[i]);
		kmem_cache_shrink(cache);
	}
}

static void ask(const char *letters)
{
	NEED((cache = kmem_cache_create("waits", 64, NULL, 0)));
	km_mail.request.command = KM_MAIL_DEBUG;
	strcpy(km_mail.request.cache, "waits");
	strcpy(km_mail.request.letters, letters);
	km_store_release(&km_mail.asked, 1u);
}

static bool is_answered(void)
{
	misses(3);
	return km_mail.answered == 1;
}

/* A thread of the library's may be at it, which is given its time. */
static void until_answered(void)
{
	while (!is_answered())
		sched_yield();
}

#ifdef __GLIBC__
static void linker_works(void)
{
	ask("U");
	_r_debug.r_state = RT_ADD;
	CHECK(!is_answered());
	ahead_ms += 1900;
	CHECK(!is_answered() && !kmem_cache_debug_flags(cache) && !km_debug_has_stacks());
	_r_debug.r_state = RT_CONSISTENT;
	until_answered();
	CHECK(!km_mail.result && km_debug_has_stacks());
	CHECK(kmem_cache_debug_flags(cache) == SLAB_STORE_USER);
}

static void linker_never_ends(void)
{
	ask("U");
	_r_debug.r_state = RT_DELETE;
	CHECK(!is_answered());
	ahead_ms += 2100;
	CHECK(is_answered() && !km_mail.result && !km_debug_has_stacks());
	CHECK(kmem_cache_debug_flags(cache) == SLAB_STORE_USER);
	/* There is a track, of the one place that is known without a stack. */
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(p && kmem_cache_of(p) == cache);
	kmem_cache_free(cache, p);
	_r_debug.r_state = RT_CONSISTENT;
}

/* Nobody is loaded any more. */
static void no_calls_any_more(void)
{
	ask("U");
	km_os_shut();
	CHECK(is_answered() && !km_mail.result && !km_debug_has_stacks());
}

/* Letters that want no stack don't wait. */
static void other_letters(void)
{
	ask("FZ");
	_r_debug.r_state = RT_ADD;
	CHECK(is_answered() && !km_mail.result);
	_r_debug.r_state = RT_CONSISTENT;
}
#endif

static int step;

static void *hold_registry(void *unused)
{
	struct km_busy_was was = km_busy_begin();

	km_registry_lock();
	__atomic_store_n(&step, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&step, __ATOMIC_ACQUIRE) != 2)
		sched_yield();
	km_registry_unlock();
	km_busy_end(was);
	return unused;
}

static void registry_is_taken(void)
{
	pthread_t other;

	ask("F");
	NEED(!pthread_create(&other, NULL, hold_registry, NULL));
	while (__atomic_load_n(&step, __ATOMIC_ACQUIRE) != 1)
		sched_yield();
	/* Without kmem_cache_shrink, which would wait. */
	for (int i = 0; i < 3; i++) {
		INSIDE(km_front_tick());
		CHECK(km_mail.answered != 1);
	}
	__atomic_store_n(&step, 2, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	until_answered();
	CHECK(!km_mail.result);
}

int main(void)
{
	static const struct test_case cases[] = {
#ifdef __GLIBC__
		{ "linker works", linker_works }, { "linker never ends", linker_never_ends },
		{ "no calls any more", no_calls_any_more }, { "other letters", other_letters },
#endif
		{ "registry is taken", registry_is_taken },
	};

	return run_cases(cases, km_array_count(cases), "mailbox");
}
