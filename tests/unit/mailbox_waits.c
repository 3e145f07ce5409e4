/*
 * mailbox_waits: no request waits for the registry's lock; a request that finds the lock taken is served later, and
 * once. The test sets the clock.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/clock.h"

#include "memcg/memcg_group.h"
#include "cache/cache.h"
#include "cache/mailbox.h"
#include "kit/inside.h"
#include "os/os.h"
#include "ext/debug/debug.h"

static struct kmem_cache *cache;

/* Calls the engine, and so the tick; the tick reads the mailbox. */
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

static void ask_of(uint32_t command, const char *name, const char *letters)
{
	km_mail.request.command = command;
	strcpy(km_mail.request.cache, name);
	strcpy(km_mail.request.letters, letters);
	km_store_release(&km_mail.asked, 1u);
}

static void ask(const char *letters)
{
	NEED((cache = kmem_cache_create("waits", 64, NULL, 0)));
	ask_of(KMEM_MAIL_DEBUG, "waits", letters);
}

static bool is_answered(void)
{
	misses(3);
	return km_mail.answered == 1;
}

/* A thread of the library may serve the request, and gets time. */
static void until_answered(void)
{
	while (!is_answered())
		sched_yield();
}

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

static pthread_t other;

static void begin_to_hold(void)
{
	NEED(!pthread_create(&other, NULL, hold_registry, NULL));
	while (__atomic_load_n(&step, __ATOMIC_ACQUIRE) != 1)
		sched_yield();
}

static void end_to_hold(void)
{
	__atomic_store_n(&step, 2, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
}

static void registry_is_taken(void)
{
	ask("F");
	begin_to_hold();
	/* Without kmem_cache_shrink, because this call would wait. */
	for (int i = 0; i < 3; i++) {
		INSIDE(km_alloc_tick());
		CHECK(km_mail.answered != 1);
	}
	end_to_hold();
	until_answered();
	CHECK(!km_mail.result);
}

/* ------------------------------------------------------------------ done once */

static unsigned times;

/* A charge takes what was asked for, and a second one finds nothing. */
static void count_asked(struct mem_cgroup *group)
{
	times += group->asked != 0;
	group->asked = 0;
}

static void reclaim_once(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "tenant", 0);
	char text[KMEM_MAIL_NAME];

	NEED(group && (cache = kmem_cache_create("waits", 64, NULL, 0)));
	begin_to_hold();
	snprintf(text, sizeof(text), "%u 65536", group->number);
	ask_of(KMEM_MAIL_GROUP, text, "reclaim");
	for (int i = 0; i < 3; i++) {
		INSIDE(km_alloc_tick());
		count_asked(group);
	}
	end_to_hold();
	until_answered();
	count_asked(group);
	CHECK(!km_mail.result);
	CHECK_EQUAL(times, 1);
	mem_cgroup_put(group);
}

static const char *wanted_call;
static bool has_registry;

/* Takes the registry, if available, during this system call. */
static bool take_registry(const char *call)
{
	if (!wanted_call || strcmp(call, wanted_call))
		return !strcmp(call, "unmap");
	times++;
	has_registry = has_registry || km_registry_trylock();
	return !strcmp(call, "unmap");
}

/*
 * A shrink is answered before another thread can take the registry; otherwise the request would stay open,
 * and be repeated.
 */
static void shrunk_once(void)
{
	NEED((cache = kmem_cache_create("waits", 64, NULL, 0)));
	misses(1);
	for (int i = 0; i < 600; i++)
		kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	km_os_fault = take_registry;
	wanted_call = "purge";
	ask_of(KMEM_MAIL_SHRINK, "waits", "");
	INSIDE(km_alloc_tick());
	CHECK(times);
	CHECK(!has_registry && km_mail.answered == 1 && !km_mail.result);
	km_os_fault = NULL;
	if (has_registry)
		km_registry_unlock();
}

/* A round over all caches ends once, although its answer is blocked for a while. */
static void ended_once(void)
{
	NEED((cache = kmem_cache_create("waits", 64, NULL, 0)));
	km_os_fault = take_registry;
	/* Memory refused by the system is offered again at the end of such a round. */
	kvfree(kvmalloc(8 << 20, GFP_KERNEL));
	kmem_shrink_all();
	wanted_call = "unmap";
	ask_of(KMEM_MAIL_SHRINK, "", "");
	struct km_busy_was was = km_busy_begin();
	for (int i = 0; i < 100 && !has_registry; i++)
		km_alloc_tick();
	NEED(has_registry && km_mail.answered != 1);
	times = 0;
	km_alloc_tick();
	CHECK(!times && km_mail.answered != 1);
	km_registry_unlock();
	km_alloc_tick();
	CHECK(!times && km_mail.answered == 1 && !km_mail.result);
	km_busy_end(was);
	km_os_fault = NULL;
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "registry is taken", registry_is_taken }, { "reclaim once", reclaim_once },
		{ "shrunk once", shrunk_once }, { "ended once", ended_once },
	};

	return run_cases(cases, km_array_count(cases), "mailbox");
}
