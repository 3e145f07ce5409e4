/*
 * gate_shut: a program with hits only answers a request from another process: a store by that process makes each call
 * a miss (struct kmem_gate), and the first call that may wait serves the request and opens the fast-path gate again,
 * with or without a request. The gate stays shut while a request waits: a request with a tick for each few caches of
 * some thousand takes as many calls; a request that cannot be served lets hits be hits again after ten seconds. A
 * call that may not wait, and a call of a handler inside an engine, work meanwhile, and leave the gate as it is; the
 * child of a fork has an open gate. Disciplines: all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cache/mailbox.h"
#include "kit/api.h"
#include "kit/clock.h"
#include "kit/cpus.h"
#include "percpu/pcpu.h"

static uint32_t number = 1;

/* As the command does. */
static void shut(void)
{
	NEED(km_gate.shut && km_gate.word[1] == &km_rseq);
	for (size_t i = 0; i < km_array_count(km_gate.word); i++)
		if (km_gate.word[i])
			km_store(km_gate.word[i], km_gate.shut);
}

/* If hits use per-CPU sheaves. */
static void shut_cache(struct kmem_cache *cache)
{
	if (km_gate.in_caches && cache->fast.pcs.slot)
		km_store(&cache->fast.pcs.front.rseq, km_gate.shut);
}

static bool are_open(void)
{
	for (size_t i = 0; i < km_array_count(km_gate.word); i++)
		if (km_gate.word[i] && *km_gate.word[i] != km_gate.open[i])
			return false;
	return true;
}

/* No cache has this name: the answer differs from the last one. */
static void ask(void)
{
	km_mail.request = (struct kmem_mail_request){ .command = KMEM_MAIL_SHRINK, .cache = "nobody" };
	km_store_release(&km_mail.asked, ++number);
}

static bool is_answered(void)
{
	return km_mail.answered == number && km_mail.result == -ENOENT;
}

/* In slob each call takes the engine's lock, and a tick comes now and then. */
#define TIMES (slob ? 200 : 2)

/* ------------------------------------------------------------------ by each function */

static struct kmem_cache *cache;

static void by_kmalloc(void)
{
	void *p = kmalloc(100, GFP_KERNEL);

	NEED(p);
	memset(p, 1, 100);
	kfree(p);
}

static void by_cache(void)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(p);
	memset(p, 1, 100);
	kmem_cache_free(cache, p);
}

static void inlined(void)
{
	void *p = kmem_cache_alloc_inline(cache, GFP_KERNEL);

	NEED(p);
	memset(p, 1, 100);
	kmem_cache_free_inline(cache, p);
}

static void in_bulk(void)
{
	void *many[8];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 8, many));
	kmem_cache_free_bulk(cache, 8, many);
}

static void zeroed(void)
{
	void *p = kmem_cache_zalloc(cache, GFP_KERNEL);

	NEED(p && all(p, 0, 100));
	memset(p, 1, 100);
	kmem_cache_free(cache, p);
}

static void (*const doors[])(void) = { by_kmalloc, by_cache, inlined, in_bulk, zeroed };

static void begin(void)
{
	NEED(go_to_cpu(cpu_at(0)));
	cache = make("ways", 100);
	for (size_t i = 0; i < km_array_count(doors); i++)
		for (int times = 0; times < 100; times++)
			doors[i]();
}

/* With validated frees calls use the other word only: this word may stay shut until a miss. */
static bool goes_by_copy(void)
{
	return km_gate.in_caches && cache->fast.pcs.slot && !km_hardening.live;
}

static bool copy_is_open(void)
{
	return cache->fast.pcs.front.rseq == km_gate.open[1] || km_hardening.live;
}

static void each_answers(void)
{
	begin();
	for (size_t i = 0; i < km_array_count(doors); i++) {
		shut();
		shut_cache(cache);
		ask();
		for (int times = 0; times < TIMES; times++)
			doors[i]();
		NEED(is_answered() && are_open());
		by_cache();
		NEED(copy_is_open());
	}
	gone(cache);
}

/* Calls find the shut gate by the cache's copy alone: the other word may be open again. */
static void by_the_copy(void)
{
	begin();
	shut_cache(cache);
	ask();
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED((is_answered() || !goes_by_copy()) && copy_is_open());
	gone(cache);
}

/* The command ended before its request, or after it withdrew the request. */
static void without_a_request(void)
{
	begin();
	for (size_t i = 0; i < km_array_count(doors); i++) {
		shut();
		shut_cache(cache);
		for (int times = 0; times < TIMES; times++)
			doors[i]();
		NEED(are_open());
	}
	gone(cache);
}

#define MANY 3000

/* Shut once: each call has a tick, until all caches were visited, however few of them a tick visits. */
static void many_caches(void)
{
	static struct kmem_cache *many[MANY];
	char name[32];

	begin();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many-%d", i);
		many[i] = make(name, 64);
	}
	for (int which = 0; which < 2; which++) {
		for (int times = 0; times < 100; times++)
			by_cache(), by_kmalloc();
		/* A tick that is due has its own round: run here first. */
		kmem_idle();
		km_mail.request = (struct kmem_mail_request){ .command = KMEM_MAIL_SHRINK };
		km_store_release(&km_mail.asked, ++number);
		if (!which)
			shut();
		shut_cache(cache);
		for (int times = 0; times < MANY / 64 * TIMES && km_mail.answered != number; times++)
			which ? by_cache() : by_kmalloc();
		NEED(km_mail.answered == number || (which && !goes_by_copy()));
		if (km_mail.answered != number)
			shut();
		for (int times = 0; times < MANY / 64 * TIMES && km_mail.answered != number; times++)
			by_cache();
		NEED(km_mail.answered == number && !km_mail.result);
		by_cache(), by_kmalloc();
		NEED(are_open());
		NEED(copy_is_open());
	}
	for (int i = 0; i < MANY; i++)
		gone(many[i]);
	gone(cache);
}

static int has_registry, may_go;

static void *hold_registry(void *unused)
{
	struct km_busy_was was = km_busy_begin();

	km_registry_lock();
	for (km_store_release(&has_registry, 1); !km_load_acquire(&may_go); usleep(1000))
		;
	km_registry_unlock();
	km_busy_end(was);
	return unused;
}

/* The gate is shut with a request; then calls follow. */
static void ask_in_vain(void)
{
	shut();
	shut_cache(cache);
	ask();
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED(!is_answered() && !are_open());
}

static void can_not_be_served(void)
{
	pthread_t thread;

	begin();
	NEED(!pthread_create(&thread, NULL, hold_registry, NULL));
	while (!km_load_acquire(&has_registry))
		usleep(1000);
	ask_in_vain();
	/* Taken back. */
	uint32_t before = km_mail.answered;
	km_store(&km_mail.asked, before);
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED(are_open() && cache->fast.pcs.front.rseq == km_gate.open[1]);
	ask_in_vain();
	ahead_ms += 10001;
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED(!is_answered() && are_open() && cache->fast.pcs.front.rseq == km_gate.open[1]);
	km_store_release(&may_go, 1);
	NEED(!pthread_join(thread, NULL));
	shut();
	shut_cache(cache);
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED(is_answered() && are_open());
	gone(cache);
}

/* A command that ends between its stores leaves only the first word shut. By concurrency id hits are an array's. */
static void half_shut(void)
{
	begin();
	const bool by_cid = km_gate.word[0] && cache->layout.engine->front == KM_PERCPU_SHEAVES;
	km_store(km_gate.word[by_cid ? 0 : 1], km_gate.shut);
	ask();
	for (int times = 0; times < TIMES; times++)
		by_cache(), by_kmalloc();
	NEED(is_answered() && are_open());
	gone(cache);
}

/* ------------------------------------------------------------------ calls that may not serve */

static void may_not_wait(void)
{
	begin();
	shut();
	shut_cache(cache);
	ask();
	for (int times = 0; times < 4; times++) {
		void *p = kmem_cache_alloc(cache, GFP_NOWAIT), *q = kmalloc(100, GFP_NOWAIT);

		NEED(p && q && !is_answered());
		memset(p, 1, 100);
		memset(q, 2, 100);
		bool was = km_thread.no_calls;
		km_thread.no_calls = true;
		kmem_cache_free(cache, p);
		kfree(q);
		km_thread.no_calls = was;
		NEED(!is_answered());
	}
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED(is_answered() && are_open());
	gone(cache);
}

static void in_a_handler(void)
{
	void *p;

	begin();
	shut();
	shut_cache(cache);
	ask();
	struct km_busy_was was = km_busy_begin();
	for (int times = 0; times < 4; times++)
		if ((p = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
			kmem_cache_free(cache, p);
	NEED(!is_answered());
	km_busy_end(was);
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED(is_answered() && are_open());
	gone(cache);
}

static void forked(void)
{
	int status;

	begin();
	shut();
	shut_cache(cache);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		NEED(are_open());
		for (int times = 0; times < TIMES; times++)
			by_cache(), by_kmalloc();
		NEED(copy_is_open());
		gone(cache);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	for (int times = 0; times < TIMES; times++)
		by_cache();
	NEED(are_open());
	gone(cache);
}

/* A cache created meanwhile begins open, and a destroyed one does no harm. */
static void made_meanwhile(void)
{
	begin();
	shut();
	struct kmem_cache *other = make("other", 200);
	NEED(other->fast.pcs.front.rseq == km_gate.open[1]);
	shut_cache(other);
	kmem_cache_free(other, kmem_cache_alloc(other, GFP_NOWAIT));
	shut_cache(other);
	gone(other);
	gone(cache);
}

static const struct test_case cases[] = {
	{ "each answers", each_answers }, { "by the copy", by_the_copy }, { "without a request", without_a_request },
	{ "half shut", half_shut },
	{ "many caches", many_caches }, { "can not be served", can_not_be_served },
	{ "may not wait", may_not_wait }, { "in a handler", in_a_handler }, { "forked", forked },
	{ "made meanwhile", made_meanwhile },
};
API_MAIN(cases)
