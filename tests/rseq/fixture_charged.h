/*
 * fixture_charged.h: charged caches under test: the second hit, and groups in turn. One cache has a single group all
 * the time, another has two groups in turn, the third has two groups, one of them private, and the fourth has two
 * groups and a refused fence: there frees compare owners. The model is the one of fixture_cache.h; and after all
 * frees and a drain no group is charged.
 */
#ifndef TESTS_RSEQ_FIXTURE_CHARGED_H
#define TESTS_RSEQ_FIXTURE_CHARGED_H

#include <kmem/memcg.h>

#include "fixture_cache.h"
#include "os/os.h"

enum { CHARGED_CACHES = 4 };

static struct {
	struct kmem_cache *cache[CHARGED_CACHES];
	struct mem_cgroup *group[2], *others[2], *private;
	bool malloc;			/* malloc's blocks are charged in this driver */
} charged;

static struct mem_cgroup *charged_objcg(unsigned which, int objcg)
{
	return which == 2 && !objcg ? charged.private : charged.group[objcg];
}

/* Objects allocated, and freed again, before; the group for them; and the group for the operation. */
static const struct {
	int get, put, before, then;
} charged_states[] = {
	{ 0, 0, 0, 0 }, { 1, 0, 0, 0 }, { 1, 1, 0, 0 }, { 5, 2, 0, 0 }, { 40, 40, 0, 0 }, { 31, 0, 0, 0 },
	{ 62, 31, 0, 0 },
	{ 0, 0, 0, 1 }, { 1, 0, 0, 1 }, { 5, 2, 0, 1 }, { 40, 40, 0, 1 }, { 62, 31, 0, 1 },
};
enum { CHARGED_STATES = sizeof(charged_states) / sizeof(charged_states[0]), CHARGED_OPERATIONS = 26 };

enum { FREE_LATE = 14, MALLOC_CHARGED = 24, MALLOC_UNCHARGED = 25 };

static bool prepare_charged(unsigned driver)
{
	unsigned state = driver / CHARGED_OPERATIONS % CHARGED_STATES;
	unsigned which = driver / CHARGED_OPERATIONS / CHARGED_STATES;

	/* One group: no second group comes. */
	if (!which && (charged_states[state].then || driver % CHARGED_OPERATIONS == FREE_LATE))
		return false;
	model.cache = charged.cache[which];
	charged.malloc = driver % CHARGED_OPERATIONS >= MALLOC_CHARGED;
	if (charged.malloc)
		need(mem_cgroup_account_malloc(true) == 0, "malloc cannot be charged");
	set_active_memcg(charged_objcg(which, charged_states[state].before));
	for (int i = 0; i < SPARE + charged_states[state].get; i++)
		get_one();
	for (int i = 0; i < charged_states[state].put; i++)
		put_one();
	/* A thread counts conflicts with other groups: here the count is always the same. */
	for (int i = 0; which && i < 2; i++) {
		set_active_memcg(charged.others[i]);
		kmem_cache_free(model.cache, kmem_cache_alloc(model.cache, GFP_KERNEL));
	}
	set_active_memcg(charged_objcg(which, charged_states[state].then));
	return true;
}

/* Of kmalloc's charged cache: the second is a hit. */
static void use_kmalloc(void)
{
	void *first = kmalloc(OBJECT_BYTES, GFP_KERNEL_ACCOUNT);
	void *second = kmalloc(OBJECT_BYTES, GFP_KERNEL_ACCOUNT);

	need(first && second && first != second, "kmalloc failed");
	kfree(first);
	kfree(second);
}

/* The same, zeros. */
static void use_kzalloc(void)
{
	uint64_t *first = kzalloc(OBJECT_BYTES, GFP_KERNEL_ACCOUNT);

	need(first && !first[0], "kzalloc failed");
	first[0] = 1;
	uint64_t *second = kmalloc(OBJECT_BYTES, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	need(second && second != first && !second[0] && first[0] == 1, "kmalloc of zeros failed");
	kfree(first);
	kfree(second);
}

/* malloc's blocks, charged to the thread's group or uncharged. The second is a hit. */
static void use_malloc(bool paid)
{
	struct mem_cgroup *before = mem_cgroup_active();

	if (!paid)
		set_active_memcg(mem_cgroup_root());
	void *first = malloc(OBJECT_BYTES);
	void *second = malloc(OBJECT_BYTES);

	need(first && second && first != second, "malloc failed");
	free(first);
	free(second);
	set_active_memcg(before);
}

/* A group took an object past another group's sheaf, and frees the object after a third group's visit. */
static void free_late(void)
{
	set_active_memcg(charged.others[0]);
	get_one();
	set_active_memcg(charged.others[1]);
	get_one();
	put_one();
	put_one();
}

static void put_alone(void)
{
	void *object = part_with();

	kfree_bulk(1, &object);
}

/* A free with the object's size: C23's functions, C++'s operators. */
static void put_sized(unsigned form)
{
	size_t size = kmem_cache_size(model.cache);
	void *p = part_with();

	switch (form) {
	case 0: free_sized(p, size); break;
	case 1: free_aligned_sized(p, 8, size); break;
	case 2: _ZdlPvm(p, size); break;
	case 3: _ZdaPvm(p, size); break;
	case 4: _ZdlPvmSt11align_val_t(p, size, 8); break;
	default: _ZdaPvmSt11align_val_t(p, size, 8);
	}
}

static void operate_charged(unsigned driver)
{
	switch (driver % CHARGED_OPERATIONS) {
	case 0: get_one(); break;
	case 1: put_one(); break;
	case 2: get_many(3); break;
	case 3: put_many(3); break;
	case 4: get_many(31); break;
	case 5: put_many(31); break;
	case 6: kfree(part_with()); break;
	case 7:
		/* As a thread without a group. */
		set_active_memcg(NULL);
		get_one();
		break;
	case 8: use_kmalloc(); break;
	case 9: put_alone(); break;
	case 10: free(part_with()); break;
	case 11: _ZdlPv(part_with()); break;
	case 12: km_free_miss(model.cache, part_with()); break;
	case 13: _ZdlPvSt11align_val_t(part_with(), 16); break;
	case FREE_LATE: free_late(); break;
	case 15: get_zeroed(); break;
	case 16: use_kzalloc(); break;
	case 17:
		get_one();
		put_one();
		get_one();
		break;
	case MALLOC_CHARGED: use_malloc(true); break;
	case MALLOC_UNCHARGED: use_malloc(false); break;
	default: put_sized(driver % CHARGED_OPERATIONS - 18);
	}
}

static void describe_charged(unsigned driver, char *text, size_t bytes)
{
	snprintf(text, bytes, "operation %u, state %u, %s", driver % CHARGED_OPERATIONS,
		 driver / CHARGED_OPERATIONS % CHARGED_STATES,
		 kmem_cache_name(charged.cache[driver / CHARGED_OPERATIONS / CHARGED_STATES]));
}

static void verify_charged(void)
{
	if (charged.malloc)
		need(mem_cgroup_account_malloc(false) == 0, "malloc is charged for ever");
	set_active_memcg(charged.group[0]);
	verify_cache();
	for (int i = 0; i < 5; i++) {
		struct mem_cgroup *group = i < 2 ? charged.group[i] : i < 4 ? charged.others[i - 2] : charged.private;

		mem_cgroup_drain(group);
		need(mem_cgroup_current(group) == 0, "group %d: %lu bytes charged for nothing", i,
		     (unsigned long)mem_cgroup_current(group));
	}
}

/* In the name of the other group; not for the cache with a single group. */
static void do_as_other(void)
{
	struct mem_cgroup *before = mem_cgroup_active();

	for (unsigned which = 1; which < CHARGED_CACHES; which++)
		if (model.cache == charged.cache[which])
			set_active_memcg(charged_objcg(which, before != charged.group[1]));
	do_both();
	set_active_memcg(before);
}

static const struct adversary charged_adversaries[] = {
	{ "nothing", do_nothing },
	{ "pop", do_pop },
	{ "push", do_push },
	{ "pop, push", do_both },
	{ "pop, push of another's", do_as_other },
	{ "bulk alloc", do_bulk_in },
	{ "bulk free", do_bulk_out },
	{ "fill", do_fill },
	{ "drain", do_drain },
	{ "drain from another thread", do_drain_elsewhere },
	{ "migrate", migrate },
	{ "migrate, pop, push", do_migrate_both },
	{ "signal", do_signal },
	{ "fork", fork_now },
};

static bool no_fence(const char *call)
{
	return strcmp(call, "fence") == 0;
}

static bool start_charged(void)
{
	static const char *const names[] = { "one group", "two groups", "own slabs", "no fence" };

	for (int i = 0; i < 2; i++)
		charged.others[i] = mem_cgroup_create(NULL, "others", 0);
	for (int i = 0; i < 2; i++)
		charged.group[i] = mem_cgroup_create(NULL, names[i], 0);
	charged.private = mem_cgroup_create(NULL, names[2], MEM_CGROUP_PRIVATE);
	if (!charged.group[0] || !charged.group[1] || !charged.private)
		return false;
	for (int i = 0; i < CHARGED_CACHES; i++) {
		charged.cache[i] = kmem_cache_create(names[i], OBJECT_BYTES, NULL, SLAB_ACCOUNT | SLAB_NO_MERGE);
		if (!start_with(charged.cache[i], CACHE))
			return false;
	}
	for (int i = 0; i < 2; i++) {
		set_active_memcg(charged.group[i]);
		km_os_fault = i ? no_fence : NULL;
		kmem_cache_free(charged.cache[3], kmem_cache_alloc(charged.cache[3], GFP_KERNEL));
	}
	km_os_fault = NULL;
	set_active_memcg(NULL);
	mem_cgroup_set_default(charged.group[0]);
	return true;
}

#define CHARGED_FIXTURE                                                                            \
	{ "charged", start_charged, CHARGED_CACHES * CHARGED_STATES * CHARGED_OPERATIONS,          \
	  prepare_charged, operate_charged, verify_charged, describe_charged, charged_adversaries, \
	  sizeof(charged_adversaries) / sizeof(charged_adversaries[0]), is_dear_cache }

#endif
