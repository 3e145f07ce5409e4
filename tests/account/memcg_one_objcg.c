/*
 * memcg_one_objcg.c: while one group is charged for all allocated objects of a cache, frees compare no owner: hits
 * put the objects on the CPU's charged sheaf, as uncharged objects on the public sheaf. Here: when this state begins,
 * its end before an object of any other group can be allocated, and exact bytes meanwhile. (After the end:
 * memcg_several_objcgs.c.) Disciplines: all.
 */
#define _GNU_SOURCE
#include "kit/charged_cpus.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "memcg/charged_sheaf.h"

enum { SOME = 40 };

static void *objects[SOME];

/* The place of frees by hits with several groups. */
static enum back back_of_several(const struct kmem_cache *cache)
{
	return has_mixed_blocks(cache) && !km_is_parent(cache) ? MIXED : NOWHERE;
}

/* A cache with objects of this group only. */
static struct kmem_cache *charged_to(struct mem_cgroup *group, const char *name)
{
	struct kmem_cache *cache = charged(name, 200);

	NEED(back_of(cache) == NOWHERE);
	for (int i = 0; i < SOME; i++)
		NEED((objects[i] = alloc_for(group, cache)));
	NEED(back_of(cache) == (has_blocks(cache) ? CHARGED : NOWHERE));
	return cache;
}

static void free_all(struct kmem_cache *cache)
{
	free_each_way(cache, objects, 0, SOME);
}

static void begins(void)
{
	struct mem_cgroup *group = group_below(NULL, "one");
	struct kmem_cache *cache = charged_to(group, "one");
	size_t before = lies_charged(cache);

	/* Each kind of free caches the object there, and the object stays charged. */
	uint64_t current = mem_cgroup_current(group);
	kmem_cache_free(cache, objects[0]);
	kfree(objects[1]);
	kmem_cache_free_bulk(cache, 1, &objects[2]);
	kfree_bulk(1, &objects[3]);
	if (has_blocks(cache))
		NEED(lies_charged(cache) == before + 4 && mem_cgroup_current(group) == current);
	/* A drain leaves no block, and the way open. */
	NEED(drained(group) == (SOME - 4) * cost(cache) && !lies_charged(cache));
	for (unsigned cpu = 0; has_blocks(cache) && cpu < km_percpu.cpus; cpu++)
		NEED(!km_pcs_top_cpu(&cache->memcg.charged, cpu) && !km_owned_owner_cpu(&cache->memcg.charged, cpu));
	NEED(back_of(cache) == (has_blocks(cache) ? CHARGED : NOWHERE));
	for (int i = 0; i < 4; i++)
		NEED((objects[i] = alloc_for(group, cache)));
	free_all(cache);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

/* Also where all comes and goes in bulk: there is no refill then. */
static void begins_in_bulk(void)
{
	struct mem_cgroup *group = group_below(NULL, "bulk");
	struct kmem_cache *cache = charged("bulk", 200);

	set_active_memcg(group);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, SOME, objects));
	set_active_memcg(NULL);
	NEED(back_of(cache) == (has_blocks(cache) ? CHARGED : NOWHERE));
	kmem_cache_free_bulk(cache, 4, objects);
	if (has_blocks(cache))
		NEED(lies_charged(cache) == 4);
	kmem_cache_free_bulk(cache, SOME - 4, objects + 4);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

/* A CPU without a sheaf when the owner was written: a thread interrupted there has no sheaf. */
static void interrupted(void)
{
	struct mem_cgroup *group = group_below(NULL, "interrupted");
	struct kmem_cache *cache = charged_to(group, "interrupted");
	unsigned here = km_cpu();

	for (int freed = 0; has_blocks(cache) && freed < 2; freed++) {
		mem_cgroup_drain(group);
		NEED(!km_pcs_top_cpu(&cache->memcg.charged, here));
		((uintptr_t *)(km_area(here) + cache->memcg.charged.slot))[1] = (uintptr_t)cache->memcg.objcg;
		if (freed)
			kmem_cache_free(cache, objects[0]);
		else
			kmem_cache_free(cache, alloc_for(group, cache));
		NEED(km_pcs_top_cpu(&cache->memcg.charged, here) && lies_charged(cache));
	}
	if (has_blocks(cache))
		NEED((objects[0] = alloc_for(group, cache)));
	free_all(cache);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

static struct mem_cgroup *second;

static void *of_another(struct kmem_cache *cache)
{
	return alloc_for(second, cache);
}

static void *of_no_group(struct kmem_cache *cache)
{
	return kmem_cache_alloc(cache, GFP_KERNEL);
}

static void *of_another_in_bulk(struct kmem_cache *cache)
{
	void *pair[2];

	MEMCG_SCOPE(second);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 2, pair));
	kmem_cache_free(cache, pair[1]);
	return pair[0];
}

static void *of_a_private_one(struct kmem_cache *cache)
{
	struct mem_cgroup *group = private_group("own");
	void *object = alloc_for(group, cache);

	mem_cgroup_put(group);
	return object;
}

static void ends(void)
{
	static void *(*const others[])(struct kmem_cache *cache) = {
		of_another, of_no_group, of_another_in_bulk, of_a_private_one,
	};
	struct mem_cgroup *group = group_below(NULL, "first");

	second = group_below(NULL, "second");
	for (size_t n = 0; n < sizeof(others) / sizeof(others[0]); n++) {
		struct kmem_cache *cache = charged_to(group, "first");
		void *object = others[n](cache);

		NEED(object && back_of(cache) == back_of_several(cache));
		free_all(cache);
		kfree(object);
		NEED(drained(group) == 0 && drained(second) == 0);
		/* The state does not begin again. */
		for (int i = 0; i < SOME; i++)
			NEED((objects[i] = alloc_for(group, cache)));
		NEED(back_of(cache) == back_of_several(cache));
		free_all(cache);
		kmem_cache_shrink(cache);
		NEED(back_of(cache) == back_of_several(cache) && drained(group) == 0);
		gone(cache);
	}
	mem_cgroup_put(second);
	mem_cgroup_put(group);
}

static void others_have_none(void)
{
	struct mem_cgroup *group = group_below(NULL, "checked");
	struct kmem_cache *checked = kmem_cache_create("checked", 200, NULL, SLAB_ACCOUNT | SLAB_CONSISTENCY_CHECKS);
	struct kmem_cache *plain = make("plain", 200);
	enum back back = back_of(plain);

	NEED(checked && back != CHARGED);
	void *p = alloc_for(group, checked), *q = alloc_for(group, plain);
	NEED(p && q && back_of(checked) == NOWHERE && back_of(plain) == NOWHERE);
	kfree(p);
	kfree(q);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(checked);
	gone(plain);
}

/*
 * A second group must close the state, and needs a lock for this; a call that may not wait for the lock
 * fails.
 */
static void *come_second(void *cache)
{
	void *object = NULL;

	set_active_memcg(second);
	if (has_blocks(cache)) {
		NEED(!kmem_cache_alloc(cache, GFP_NOWAIT) && errno == ENOMEM && back_of(cache) == CHARGED);
		NEED(!kmem_cache_alloc_bulk(cache, GFP_NOWAIT, 1, &object));
	}
	set_active_memcg(NULL);
	return NULL;
}

static void refused(void)
{
	struct mem_cgroup *group = group_below(NULL, "first");
	struct kmem_cache *cache = charged_to(group, "first");
	pthread_t thread;

	second = group_below(NULL, "second");
	/* Held as in a drain. */
	struct km_busy_was was = km_busy_begin();
	km_alloc_fork(true, false);
	NEED(pthread_create(&thread, NULL, come_second, cache) == 0 && pthread_join(thread, NULL) == 0);
	km_alloc_fork(false, false);
	km_busy_end(was);
	NEED(drained(second) == 0);
	void *object = alloc_for(second, cache);
	NEED(object && back_of(cache) == back_of_several(cache));
	kmem_cache_free(cache, object);
	free_all(cache);
	NEED(drained(group) == 0 && drained(second) == 0);
	mem_cgroup_put(second);
	mem_cgroup_put(group);
	gone(cache);
}

/* Is the thread asleep? */
static bool sleeps(pid_t thread)
{
	char path[64], state = '?';

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	FILE *file = fopen(path, "r");
	NEED(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
	fclose(file);
	return state == 'S';
}

static pid_t waiter;

static void *wait_second(void *cache)
{
	__atomic_store_n(&waiter, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	return alloc_for(second, cache);
}

/* Until the state is closed no sheaf is the second group's, and frees go where they went before. */
static void waits(void)
{
	struct mem_cgroup *group = group_below(NULL, "first");
	struct kmem_cache *cache = charged_to(group, "first");
	void *more[KM_CHARGED_MOST], *object;
	pthread_t thread;
	size_t n = 0;

	/* With validated frees there is no sheaf to wait for. */
	if (cache->layout.live_shift)
		return;
	/* An empty block is for the taking. */
	while (n < KM_CHARGED_MOST && lies_charged(cache))
		NEED((more[n++] = alloc_for(group, cache)));
	second = group_below(NULL, "second");
	struct km_busy_was was = km_busy_begin();
	km_alloc_fork(true, false);
	NEED(pthread_create(&thread, NULL, wait_second, cache) == 0);
	for (pid_t who = 0; !who || !sleeps(who); sched_yield())
		who = __atomic_load_n(&waiter, __ATOMIC_ACQUIRE);
	if (has_blocks(cache)) {
		NEED(back_of(cache) == CHARGED && km_owned_owner(&cache->memcg.charged) == cache->memcg.objcg);
		for (int i = 0; i < 4; i++)
			kmem_cache_free(cache, objects[i]);
		NEED(lies_charged(cache) == 4);
	}
	km_alloc_fork(false, false);
	km_busy_end(was);
	NEED(pthread_join(thread, &object) == 0 && object && back_of(cache) == back_of_several(cache));
	for (int i = 0; has_blocks(cache) && i < 4; i++)
		NEED((objects[i] = alloc_for(group, cache)));
	kmem_cache_free(cache, object);
	kmem_cache_free_bulk(cache, n, more);
	free_all(cache);
	NEED(drained(group) == 0 && drained(second) == 0);
	mem_cgroup_put(second);
	mem_cgroup_put(group);
	gone(cache);
}

/* Under AddressSanitizer the test would step through the sanitizer's own work. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define STEPS
/* Checked after each instruction of the second group's thread. */
static struct {
	const struct kmem_cache *cache;
	uint64_t objcg;
	bool on;
	unsigned long steps, open;
} observed;

static void look(int signal, siginfo_t *info, void *context)
{
	greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
	const struct kmem_cache *cache = observed.cache;

	observed.steps++;
	/* By kmem_cache_free, or by kfree: the two do not open and close together. */
	if (km_load(&cache->memcg.objcg) != observed.objcg && !cache->memcg.mixed.slot &&
	    (cache->fast.pcs.front.back.pcs || km_id_masks(cache->fast.id)->sheaf))
		observed.open++;
	/* The trap flag. With several groups no change is visible here: their sheaf stays. */
	*flags = observed.on && !cache->memcg.mixed.slot ? *flags | 0x100 : *flags & ~0x100l;
}

/* A thread that finds several owners also finds the state closed. */
static void closed_first(void)
{
	static void *(*const others[])(struct kmem_cache *cache) = { of_another, of_no_group };
	struct sigaction action = { .sa_sigaction = look, .sa_flags = SA_SIGINFO };
	struct mem_cgroup *group = group_below(NULL, "first");

	second = group_below(NULL, "second");
	sigaction(SIGTRAP, &action, NULL);
	for (size_t n = 0; n < sizeof(others) / sizeof(others[0]); n++) {
		struct kmem_cache *cache = charged_to(group, "first");

		if (has_blocks(cache)) {
			observed.cache = cache;
			observed.objcg = cache->memcg.objcg;
			observed.on = true;
			raise(SIGTRAP);
			void *object = others[n](cache);
			observed.on = false;
			NEED(object && cache->memcg.objcg != observed.objcg && observed.steps > 100 && !observed.open);
			NEED(!cache->memcg.mixed.slot == !has_mixed_blocks(cache));
			kfree(object);
		}
		free_all(cache);
		NEED(drained(group) == 0 && drained(second) == 0);
		gone(cache);
	}
	mem_cgroup_put(second);
	mem_cgroup_put(group);
}
#endif

static const struct test_case cases[] = {
	{ "begins", begins },
	{ "begins in bulk", begins_in_bulk },
	{ "interrupted", interrupted },
	{ "ends", ends },
	{ "others have none", others_have_none },
	{ "refused", refused },
	{ "waits", waits },
#ifdef STEPS
	{ "closed first", closed_first },
#endif
};

CHARGED_MAIN(cases)
