/*
 * memcg_corners.c: rare states of charged objects, exact to the byte: a cache's first charge, caches with observers,
 * with checks, and destroyed ones; ended owners; no memory for owner words. Disciplines: all.
 */
#define _GNU_SOURCE
#include "kit/charged_cpus.h"
#include "kit/clock.h"

#include <pthread.h>

#include "page/metadata.h"
#include "os/die.h"
#include "os/os.h"
#include "kit/inside.h"

#define FEW 300

static void *objects[FEW];

static struct kmem_cache *charged_with(const char *name, unsigned size, slab_flags_t flags)
{
	struct kmem_cache *cache = kmem_cache_create(name, size, NULL, SLAB_ACCOUNT | flags);

	NEED(cache);
	return cache;
}

static struct mem_cgroup *tenant(const char *name)
{
	return group_below(NULL, name);
}

static void *get(struct kmem_cache *cache, struct mem_cgroup *group, gfp_t gfp)
{
	set_active_memcg(group);
	void *object = kmem_cache_alloc(cache, gfp);
	set_active_memcg(NULL);
	return object;
}

/* ------------------------------------------------------------------ the first charge of a cache */

/* A cache of other users is not slowed down by an uncharged request, nor, for kmalloc, by a charged one. */
static void kmalloc_has_its_own(void)
{
	static const size_t sizes[] = { 1, 8, 9, 64, 100, 192, 193, 4096, 8192 };
	struct kmem_cache *plain = make("plain", 64);
	char name[64];

	void *p = kmalloc(64, GFP_KERNEL_ACCOUNT), *q = kmem_cache_alloc(plain, GFP_KERNEL_ACCOUNT);
	NEED(p && q && !kmem_cache_of(p)->memcg.charge && !plain->memcg.charge);
	kfree(p);
	struct mem_cgroup *group = tenant("kmalloc");
	set_active_memcg(group);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		NEED(kmalloc_bulk(sizes[i], GFP_KERNEL_ACCOUNT, FEW, objects));
		NEED((p = kmalloc(sizes[i], GFP_KERNEL)));
		struct kmem_cache *cache = kmem_cache_of(objects[0]);
		snprintf(name, sizeof(name), "kmalloc-cg-%s", kmem_cache_name(kmem_cache_of(p)) + strlen("kmalloc-"));
		NEED(strcmp(kmem_cache_name(cache), name) == 0 && !kmem_cache_of(p)->memcg.charge);
		for (int j = 0; j < FEW; j++)
			NEED(kmem_cache_of(objects[j]) == cache && ksize(objects[j]) == ksize(p));
		NEED(drained(group) == FEW * cost(cache));
		kfree_bulk(FEW, objects);
		kfree(p);
		NEED(drained(group) == 0);
	}
	set_active_memcg(NULL);
	mem_cgroup_put(group);
	kmem_cache_free(plain, q);
	gone(plain);
}

static int count_cg(struct kmem_cache *cache, void *arg)
{
	*(int *)arg += strcmp(kmem_cache_name(cache), "kmalloc-cg-64") == 0;
	return 0;
}

static void *first_group(void *arg)
{
	pthread_barrier_wait(arg);
	return tenant("first");
}

/* With several threads as the first to charge, there is one cache of each size. */
static void several_are_first(void)
{
	pthread_barrier_t start;
	pthread_t thread[4];
	void *group;
	int count = 0;

	pthread_barrier_init(&start, NULL, 4);
	for (int i = 0; i < 4; i++)
		NEED(pthread_create(&thread[i], NULL, first_group, &start) == 0);
	for (int i = 0; i < 4; i++) {
		NEED(pthread_join(thread[i], &group) == 0);
		mem_cgroup_put(group);
	}
	kmem_for_each_cache(count_cg, &count);
	NEED(count == 1);
}

static void first_in_bulk(void)
{
	struct kmem_cache *cache = make("first in bulk", 64);
	struct mem_cgroup *group = tenant("bulk");

	set_active_memcg(group);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL_ACCOUNT, FEW, objects));
	set_active_memcg(NULL);
	NEED(drained(group) == FEW * cost(cache));
	kmem_cache_free_bulk(cache, FEW, objects);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

static struct kmem_cache *beginning;

/* Resizes a cache until its public fast path is closed, then reports. */
static void *resize(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		struct kmem_cache *cache;

		while (!(cache = __atomic_load_n(&beginning, __ATOMIC_ACQUIRE)))
			sched_yield();
		for (int j = 0; !j || __atomic_load_n(&cache->fast.pcs.front.open.pcs, __ATOMIC_RELAXED); j++)
			km_alloc_resize(cache, j % 2 ? 62 : 30);
		__atomic_store_n(&beginning, NULL, __ATOMIC_RELEASE);
	}
	return arg;
}

/* With any changes of the sheaves meanwhile: once a cache is charged, no hit bypasses the charge. */
static void begins_meanwhile(void)
{
	struct mem_cgroup *group = tenant("meanwhile");
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, resize, NULL) == 0);
	for (int i = 0; i < 2000; i++) {
		struct kmem_cache *cache = make("meanwhile", 64);
		void *p;

		__atomic_store_n(&beginning, cache, __ATOMIC_RELEASE);
		for (volatile int wait = i % 100; wait; wait--)
			;
		NEED((p = get(cache, group, GFP_KERNEL_ACCOUNT)));
		while (__atomic_load_n(&beginning, __ATOMIC_ACQUIRE))
			sched_yield();
		NEED(!cache->fast.pcs.front.open.pcs);
		NEED(cache->fast.id < KM_MAP_FIRST || !km_id_masks(cache->fast.id)->sheaf);
		kmem_cache_free(cache, p);
		kmem_cache_destroy(cache);
	}
	NEED(pthread_join(thread, NULL) == 0);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
}

/* ------------------------------------------------------------------ observers, checks, destroyed caches */

static unsigned long shown, hidden;

static void *on_alloc(struct kmem_cache *cache, void *object, gfp_t gfp)
{
	shown++;
	return object;
}

static bool on_free(struct kmem_cache *cache, void *object)
{
	hidden++;
	return true;
}

/* An observer sees each object once, at the user's call. */
static void observed(void)
{
	static const struct km_hooks hooks = { .on_alloc = on_alloc, .on_free = on_free };
	struct mem_cgroup *group[2] = { tenant("observed"), tenant("as well") };
	struct kmem_cache *cache = charged("observed", 200);

	INSIDE(km_alloc_watch(cache, &hooks));
	for (int round = 0; round < 4; round++) {
		shown = hidden = 0;
		NEED(mem_cgroup_set_mode(MEM_CGROUP_SHELF, round % 2 == 0) == 0);
		for (int i = 0; i < FEW; i++) {
			NEED((objects[i] = get(cache, group[round / 2 ? i % 2 : 0], GFP_KERNEL)));
			NEED(shown == i + 1ul);
		}
		NEED(drained(group[0]) + drained(group[1]) == FEW * cost(cache));
		for (int i = 0; i < FEW; i++) {
			kmem_cache_free(cache, objects[i]);
			NEED(hidden == i + 1ul);
		}
		set_active_memcg(group[0]);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, FEW, objects) && shown == 2 * FEW);
		set_active_memcg(NULL);
		kmem_cache_free_bulk(cache, FEW, objects);
		NEED(hidden == 2 * FEW && drained(group[0]) == 0 && drained(group[1]) == 0);
	}
	mem_cgroup_put(group[0]);
	mem_cgroup_put(group[1]);
	gone(cache);
}

/* An object refused by a check is not uncharged. */
static void refused_frees(void)
{
	struct kmem_cache *cache = charged_with("checked", 100, SLAB_CONSISTENCY_CHECKS);
	struct kmem_cache *other = charged_with("other", 100, SLAB_CONSISTENCY_CHECKS);
	struct mem_cgroup *group = tenant("checked");
	char *p = get(cache, group, GFP_KERNEL), *q = get(cache, group, GFP_KERNEL);
	void *pair[2] = { q + 8, p + 8 };

	NEED(p && q);
	km_misuse_set(KM_MISUSE_WARN);
	kmem_cache_free(cache, p + 8);
	kmem_cache_free(other, p);
	kfree(p + 8);
	kmem_cache_free_bulk(cache, 2, pair);
	NEED(drained(group) == 2 * cost(cache));
	kmem_cache_free(cache, p);
	NEED(drained(group) == cost(cache));
	kmem_cache_free(cache, p);
	NEED(drained(group) == cost(cache));
	kmem_cache_free(cache, q);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
	gone(other);
}

/* Objects left in a destroyed cache stay charged, because they stay allocated. */
static void left_behind(void)
{
	struct kmem_cache *cache = charged("left behind", 100);
	struct mem_cgroup *group = tenant("left behind");
	uint64_t one = cost(cache);
	void *p = get(cache, group, GFP_KERNEL);

	NEED(p);
	km_misuse_set(KM_MISUSE_WARN);
	kmem_cache_destroy(cache);
	NEED(drained(group) == one);
	for (int i = 0; i < 2; i++)
		kmem_cache_free(cache, p);
	NEED(!get(cache, group, GFP_KERNEL_ACCOUNT) && errno == EINVAL);
	NEED(drained(group) == one && !mem_cgroup_from_obj(p));
	mem_cgroup_put(group);
}

/* ------------------------------------------------------------------ ended owners */

/* Runs the function on the n-th CPU of the process. Returns: false if there are fewer CPUs. */
static bool on_cpu(unsigned n, void (*run)(void))
{
	bool there = go_to_cpu(cpu_at((int)n));

	if (there)
		run();
	go_anywhere();
	return there;
}

static struct kmem_cache *common;
static struct mem_cgroup *first, *second;
static int held;
#define SECONDS 3	/* objects, at the end of the array */

/* Until the CPU's sheaf is empty and owned by the group. */
static void take_firsts(void)
{
	unsigned cpu = (unsigned)sched_getcpu();

	do
		NEED(held < FEW - SECONDS && (objects[held++] = get(common, first, GFP_KERNEL)));
	while (km_pcs_count_cpu(&common->memcg.charged, cpu) || !km_owned_owner_cpu(&common->memcg.charged, cpu));
}

static void take_seconds(void)
{
	for (int i = FEW - SECONDS; i < FEW; i++)
		NEED((objects[i] = get(common, second, GFP_KERNEL)));
	NEED(!has_blocks(common) || lies_charged(common) > 1);
}

/* On a CPU whose sheaf the second group owns, so that the objects are not cached there. */
static void free_firsts(void)
{
	while (held)
		kmem_cache_free(common, objects[--held]);
}

/* An empty sheaf may name an ended owner with reused memory: no code may follow the name. */
static void empty_pcs_of_the_gone(void)
{
	common = charged("gone", 256);
	first = tenant("first");
	second = tenant("second");
	if (!common->memcg.charged.slot || common->layout.live_shift || !on_cpu(1, take_seconds))
		return;
	NEED(on_cpu(0, take_firsts) && on_cpu(1, free_firsts));
	mem_cgroup_put(first);
	for (int i = 0; i < 64; i++)
		memset(km_metadata_alloc(64 << i % 3, true), 0x5a, 64 << i % 3);
	NEED(drained(second) == SECONDS * cost(common));
	for (int i = FEW - SECONDS; i < FEW; i++)
		kmem_cache_free(common, objects[i]);
	NEED(drained(second) == 0);
	mem_cgroup_put(second);
	gone(common);
}

/* Without per-CPU sheaves no object is cached there, also where they were used before. */
static void pcs_off(void)
{
	struct kmem_cache *cache = charged("off", 256);
	struct mem_cgroup *group = tenant("off");

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < FEW; i++)
			NEED((objects[i] = get(cache, group, GFP_KERNEL)));
		for (int i = 0; i < FEW; i++)
			kmem_cache_free(cache, objects[i]);
		NEED(!round == (lies_charged(cache) != 0) || !cache->memcg.charged.slot || cache->layout.live_shift);
		NEED(mem_cgroup_set_mode(MEM_CGROUP_SHELF, false) == 0);
		NEED(lies_charged(cache) == 0);
	}
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

/* ------------------------------------------------------------------ no memory for words */

/* Takes all metadata available without a system call. */
static void use_up_metadata(void)
{
	for (size_t bytes = (size_t)4 << 20; bytes >= 64; bytes /= 2)
		while (km_metadata_alloc(bytes, false))
			;
}

/*
 * Two groups own objects of a slab: this needs memory. A call that may not wait cannot get the memory, and
 * fails.
 */
static void no_words(void)
{
	struct kmem_cache *cache = charged("no words", 64);
	struct mem_cgroup *group = tenant("no words");
	void *paid = get(cache, group, GFP_KERNEL), *p;

	NEED(paid);
	use_up_metadata();
	size_t before = km_metadata_committed_bytes();
	errno = 0;
	for (held = 0; held < FEW && (p = kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_NOWARN)); held++)
		objects[held] = p;
	NEED(km_metadata_committed_bytes() == before);
	/* Proved, slub's objects come one by one, and had their words with the first. */
	NEED((held < FEW && errno == ENOMEM) || cache->layout.live_shift);
	errno = 0;
	NEED(held == FEW || !kmem_cache_alloc_bulk(cache, GFP_NOWAIT | __GFP_NOWARN, FEW - held, objects + held));
	NEED(held == FEW || errno == ENOMEM);
	NEED(km_metadata_committed_bytes() == before);
	NEED((p = kmem_cache_alloc(cache, GFP_KERNEL)));
	kmem_cache_free(cache, p);
	while (held)
		kmem_cache_free(cache, objects[--held]);
	NEED(drained(group) == cost(cache));
	kmem_cache_free(cache, paid);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

/* A CPU's first block: the same. */
static void no_block(void)
{
	struct kmem_cache *cache = charged("no block", 64);
	struct mem_cgroup *group = tenant("no block");
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	kmem_cache_free(cache, p);
	use_up_metadata();
	size_t before = km_metadata_committed_bytes();
	set_active_memcg(group);
	p = kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_NOWARN);
	bool bulk = kmem_cache_alloc_bulk(cache, GFP_NOWAIT | __GFP_NOWARN, 30, objects);
	set_active_memcg(NULL);
	NEED(km_metadata_committed_bytes() == before);
	if (bulk)
		kmem_cache_free_bulk(cache, 30, objects);
	if (p)
		kmem_cache_free(cache, p);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

/* ------------------------------------------------------------------ handlers */

static struct kmem_cache *struck[2];
static struct mem_cgroup *objcgs[2];
static void *of_handlers[64];
static volatile unsigned strikes, steps;
static bool over;

/*
 * A handler at any instruction charges other groups in the same caches. Its requests may fail, but each allocated
 * object is charged, and uncharged at the free.
 */
static void strike(int number)
{
	const gfp_t gfp = GFP_NOWAIT | __GFP_ACCOUNT | __GFP_NOWARN;
	struct mem_cgroup *before = set_active_memcg(objcgs[strikes / 3 % 2]);
	void **place = &of_handlers[strikes % 64];
	int error = errno;

	kfree(*place);
	*place = strikes % 3 ? kmem_cache_alloc(struck[strikes % 2], gfp) : kmalloc(strikes % 10000, gfp);
	if (mem_cgroup_charge(objcgs[0], GFP_NOWAIT, 5000) == 0)
		mem_cgroup_uncharge(objcgs[0], 5000);
	strikes++;
	errno = error;
	set_active_memcg(before);
}

/* One for a step at most: where a handler takes longer than a signal does to come, nothing else would get on. */
static void *send(void *thread)
{
	unsigned seen = 0, now;

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		for (volatile int wait = 2000; wait; wait--)
			;
		now = __atomic_load_n(&steps, __ATOMIC_RELAXED);
		if (now == seen)
			continue;
		seen = now;
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	}
	return NULL;
}

/* Objects with frees deferred by a handler are uncharged, too. */
static void set_aside(void)
{
	struct mem_cgroup *group = tenant("set aside");
	struct kmem_cache *cache = charged("set aside", 100);
	void *p = get(cache, group, GFP_KERNEL);

	set_active_memcg(group);
	void *q = kmalloc(20000, GFP_KERNEL_ACCOUNT), *r = kvmalloc(8 << 20, GFP_KERNEL_ACCOUNT);
	set_active_memcg(NULL);
	NEED(p && q && r && drained(group) == cost(cache) + ksize(q) + (8 << 20));
	/* The state found by a handler that interrupts the allocator. */
	struct km_busy_was was = km_busy_begin();
	kfree(p);
	kfree(q);
	kfree(r);
	km_busy_end(was);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

static void handlers_strike(void)
{
	struct sigaction action = { .sa_handler = strike };
	pthread_t self = pthread_self(), sender;

	struck[0] = charged("struck", 200);
	struck[1] = make("struck now and then", 300);
	for (int i = 0; i < 2; i++)
		objcgs[i] = tenant("struck");
	NEED(sigaction(SIGUSR1, &action, NULL) == 0 && pthread_create(&sender, NULL, send, &self) == 0);
	for (unsigned i = 0; i < 200000 || __atomic_load_n(&strikes, __ATOMIC_RELAXED) < 2000; i++) {
		void **place = &objects[i * 7919u % FEW];

		__atomic_store_n(&steps, i + 1, __ATOMIC_RELAXED);
		if (*place) {
			kfree(*place);
			*place = NULL;
			continue;
		}
		*place = get(struck[i % 2], objcgs[i / 97 % 2], i % 3 ? GFP_KERNEL_ACCOUNT : GFP_KERNEL);
		if (i % 5000 == 0)
			mem_cgroup_drain(objcgs[0]);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	NEED(pthread_join(sender, NULL) == 0);
	for (int i = 0; i < FEW; i++)
		kfree(objects[i]);
	for (int i = 0; i < 64; i++)
		kfree(of_handlers[i]);
	for (int i = 0; i < 2; i++) {
		NEED(drained(objcgs[i]) == 0);
		mem_cgroup_put(objcgs[i]);
		gone(struck[i]);
	}
}

static uint64_t count_asked(struct mem_cgroup *group, uint64_t bytes, void *asked)
{
	(void)group, (void)bytes;
	++*(int *)asked;
	return 0;
}

/*
 * A block that would grow into the free pages behind it, at its group's limit: with GFP_NOWAIT no callback is asked
 * for room.
 */
static void grows_as_gfp_says(void)
{
	const size_t bytes = (size_t)1100 << 10, grown = (size_t)1700 << 10;
	struct mem_cgroup *group = mem_cgroup_create(NULL, "grows", 0);
	int asked = 0;

	NEED(group);
	struct mem_cgroup_shrinker *shrinker = mem_cgroup_add_shrinker(group, 0, count_asked, &asked);
	NEED(shrinker);
	kvfree(kvmalloc((size_t)3900 << 10, GFP_KERNEL));
	set_active_memcg(group);
	void *block = kmalloc(bytes, GFP_KERNEL_ACCOUNT);
	NEED(block);
	NEED(mem_cgroup_set_max(group, mem_cgroup_current(group) + (64 << 10)) == 0);
	asked = 0;
	NEED(!krealloc(block, grown, GFP_NOWAIT | __GFP_ACCOUNT | __GFP_NOWARN));
	NEED(asked == 0);
	NEED(!krealloc(block, grown, GFP_KERNEL_ACCOUNT | __GFP_NOWARN));
	NEED(asked > 0);
	set_active_memcg(NULL);
	kfree(block);
	mem_cgroup_remove_shrinker(shrinker);
	mem_cgroup_put(group);
}

/* ------------------------------------------------------------------ a destroyed cache */

static struct {
	struct kmem_cache *cache;
	void *object;
	size_t lay;
} late;

static void *free_late(void *arg)
{
	kmem_cache_free(late.cache, late.object);
	late.object = NULL;
	late.lay = lies_charged(late.cache);
	return arg;
}

/* At a fence, while frees still go to the CPUs' sheaves, after their drain. */
static bool put_late(const char *call)
{
	pthread_t thread;

	if (strcmp(call, "fence") == 0 && late.object && late.cache->fast.pcs.front.back.pcs)
		NEED(pthread_create(&thread, NULL, free_late, NULL) == 0 && pthread_join(thread, NULL) == 0);
	return false;
}

/*
 * A late, wrong free by another thread harms no other owner: the object goes back as from a plain sheaf, is
 * uncharged, and leaves no trace in the CPU's area, where another cache will get the word.
 */
static void comes_back_late(void)
{
	for (int several = 0; several < 2; several++) {
		struct mem_cgroup *objcg = tenant("late"), *other = tenant("other");
		struct kmem_cache *cache = charged_with("late", 200, 0);

		if (several)
			kmem_cache_free(cache, get(cache, other, GFP_KERNEL));
		late.cache = cache;
		late.object = get(cache, objcg, GFP_KERNEL);
		NEED(late.object);
		kmem_cache_free(cache, get(cache, objcg, GFP_KERNEL));
		const uint32_t slot = cache->memcg.charged.slot;
		if (cache->fast.pcs.front.back.pcs) {
			km_os_fault = put_late;
			kmem_cache_destroy(cache);
			km_os_fault = NULL;
			NEED(!late.object && late.lay && !named("late"));
			km_for_each_cpu(cpu)
				NEED(!*(uint64_t *)(km_area(cpu) + slot));
		} else {
			kmem_cache_free(cache, late.object);
			gone(cache);
		}
		NEED(drained(objcg) == 0 && drained(other) == 0);
		mem_cgroup_put(other);
		mem_cgroup_put(objcg);
	}
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "kmalloc has its own", kmalloc_has_its_own },
	{ "several are first", several_are_first },
	{ "first in bulk", first_in_bulk },
	{ "begins meanwhile", begins_meanwhile },
	{ "observed", observed },
	{ "refused frees", refused_frees },
	{ "left behind", left_behind },
	{ "empty sheaves of the gone", empty_pcs_of_the_gone },
	{ "sheaves off", pcs_off },
	{ "no words", no_words },
	{ "no block", no_block },
	{ "set aside", set_aside },
	{ "handlers strike", handlers_strike },
	{ "grows as gfp says", grows_as_gfp_says },
	{ "comes back late", comes_back_late },
};

GROUPS_MAIN(cases)
