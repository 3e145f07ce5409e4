/*
 * defragment.c: a program frees nine of ten objects at random, and moves the other objects with kmem_slab_usage,
 * __GFP_FULLEST and kmem_free_to_slab only. In the end pages and resident memory are about the size of the objects.
 * For objects of caches and of kmalloc; for charged objects, with the same charge as before; for debugged objects,
 * and with validated frees; beside other threads.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/memcg.h>

#include "kit/api.h"
#include "kit/random.h"
#include "kit/rollup.h"

#include "slab/engine.h"

#define MANY	60000u
#define SIZE	200u
#define AT_ONCE	64u
#define ROUNDS	40u
/* Cached objects of CPUs and barns, empty slabs that stay; the library's records, and the test's array. */
#define SLACK	(1024u << 10)
#define OWN_KB	1536u

struct thing {
	uint64_t number;
	char rest[SIZE - 8];
};

/* Then pages stay with the name of their cache, and count as used; their memory goes all the same. */
static bool hardened;
static struct thing *thing[MANY];
static struct kmem_cache *cache;
static gfp_t more_gfp;

static struct thing *get(gfp_t gfp)
{
	gfp |= GFP_KERNEL | more_gfp;
	return cache ? kmem_cache_alloc(cache, gfp) : kmalloc(SIZE, gfp);
}

/* In engine slob an object does not name its cache; each free goes to the object's page. */
static void put(struct thing *p)
{
	if (cache && slob)
		kmem_cache_free(cache, p);
	else
		kmem_free_to_slab(p);
}

static void put_anyhow(struct thing *p)
{
	if (cache)
		kmem_cache_free(cache, p);
	else
		kfree(p);
}

static size_t pages_used(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_used;
}

/* One of ten is left. */
static void fragment(void)
{
	for (unsigned i = 0; i < MANY; i++) {
		thing[i] = get(0);
		NEED(thing[i]);
		memset(thing[i]->rest, (int)(i % 251), sizeof(thing[i]->rest));
		thing[i]->number = i;
	}
	for (unsigned i = 0; i < MANY; i++)
		if (random_below(10)) {
			put_anyhow(thing[i]);
			thing[i] = NULL;
		}
}

static void move(struct thing **at)
{
	struct thing *p = get(__GFP_FULLEST);

	NEED(p && p != *at);
	memcpy(p, *at, SIZE);
	put(*at);
	*at = p;
}

static unsigned defragment_some(unsigned *from)
{
	struct kmem_slab_usage usage[AT_ONCE];
	struct thing **at[AT_ONCE];
	const void *pointer[AT_ONCE] = { NULL };
	unsigned n = 0, moved = 0;

	for (; *from < MANY && n < AT_ONCE; ++*from)
		if (thing[*from]) {
			at[n] = &thing[*from];
			pointer[n++] = thing[*from];
		}
	NEED(kmem_slab_usage(pointer, n, usage) == n);
	for (unsigned i = 0; i < n; i++) {
		NEED(usage[i].inuse && usage[i].inuse <= usage[i].objects && usage[i].slab);
		if (kmem_usage_is_sparse(&usage[i])) {
			move(at[i]);
			moved++;
		}
	}
	return moved;
}

static unsigned defragment(void)
{
	unsigned moved = 0, now = 1;

	for (unsigned round = 0; now && round < ROUNDS; round++) {
		now = 0;
		for (unsigned from = 0; from < MANY;)
			now += defragment_some(&from);
		moved += now;
	}
	return moved;
}

static size_t live_bytes(void)
{
	size_t live = 0;

	for (unsigned i = 0; i < MANY; i++)
		live += thing[i] ? SIZE : 0;
	return live;
}

static void is_whole(void)
{
	for (unsigned i = 0; i < MANY; i++)
		NEED(!thing[i] || (thing[i]->number == i &&
				   all(thing[i]->rest, (int)(i % 251), sizeof(thing[i]->rest))));
}

/* bytes: of an object with its debug bytes */
static void fragmented_and_back(size_t bytes)
{
	size_t pages = pages_used(), first = rollup_kb("Anonymous");
	fragment();
	size_t before = (pages_used() - pages) * 4096, resident = rollup_kb("Anonymous");
	size_t live = live_bytes() / SIZE * bytes, want = live + live / 4 + SLACK;
	NEED(before > 2 * want);
	unsigned moved = defragment();
	size_t after = (pages_used() - pages) * 4096;
	printf("%zu KiB live, %zu before, %zu after %u were moved\n", live >> 10, before >> 10, after >> 10, moved);
	NEED(hardened || after <= want, "(%zu, %zu are live)", after, live);
	/* Freed pages go back at once (decay:0), except for pages used in turns. */
	size_t now = rollup_kb("Anonymous");
	NEED(now <= first + want / 1024 + OWN_KB, "(%zu KiB, was %zu, at first %zu)", now, resident, first);
	is_whole();
	for (unsigned i = 0; i < MANY; i++)
		if (thing[i])
			put_anyhow(thing[i]);
	NEED(kmem_check_all() == 0);
}

static void of_a_cache(void)
{
	cache = make("defragmented", SIZE);
	fragmented_and_back(SIZE);
	gone(cache);
}

static void of_kmalloc(void)
{
	fragmented_and_back(slob ? SIZE + 8 : 256);
}

/* The group is charged in the end byte for byte as much as a group with objects that never moved. */
static void charged_to(unsigned flags)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "group", flags), *old;

	if (slob)
		return;
	NEED(group);
	cache = kmem_cache_create("charged", SIZE, NULL, SLAB_ACCOUNT);
	NEED(cache);
	old = set_active_memcg(group);
	fragment();
	NEED(kmem_cache_shrink(cache) == 1);
	mem_cgroup_drain(group);
	uint64_t charged = mem_cgroup_current(group);
	NEED(defragment());
	is_whole();
	kmem_cache_shrink(cache);
	mem_cgroup_drain(group);
	uint64_t now = mem_cgroup_current(group);
	/* A private group is charged for slabs. */
	NEED(flags ? now < charged / 4 : now == charged, "(%llu, was %llu)", (unsigned long long)now,
	     (unsigned long long)charged);
	for (unsigned i = 0; i < MANY; i++)
		NEED(!thing[i] || mem_cgroup_from_obj(thing[i]) == group);
	set_active_memcg(old);
	for (unsigned i = 0; i < MANY; i++)
		if (thing[i])
			kmem_free_to_slab(thing[i]);
	kmem_cache_shrink(cache);
	mem_cgroup_drain(group);
	NEED(mem_cgroup_current(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

static void charged_to_a_group(void)
{
	charged_to(0);
}

static void charged_to_a_private_group(void)
{
	charged_to(MEM_CGROUP_PRIVATE);
}

/*
 * kmalloc objects: one thread sets the group charged, and another thread moves objects in the name
 * of the first.
 */
static void charged_to_kmalloc(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "kmalloc's group", 0), *old;

	if (slob)
		return;
	old = set_active_memcg(group);
	more_gfp = __GFP_ACCOUNT;
	fragment();
	mem_cgroup_drain(group);
	uint64_t charged = mem_cgroup_current(group);
	NEED(defragment() && charged);
	mem_cgroup_drain(group);
	/* Cached objects may be charged. */
	NEED(mem_cgroup_current(group) <= charged + (256 << 10));
	set_active_memcg(old);
	for (unsigned i = 0; i < MANY; i++)
		if (thing[i])
			kmem_free_to_slab(thing[i]);
	kmem_shrink_all();
	mem_cgroup_drain(group);
	NEED(mem_cgroup_current(group) == 0);
	mem_cgroup_put(group);
}

static void debugged(void)
{
	cache = kmem_cache_create("debugged", SIZE, NULL, SLAB_RED_ZONE | SLAB_POISON | SLAB_CONSISTENCY_CHECKS);
	NEED(cache);
	fragmented_and_back(cache->layout.size);
	gone(cache);
}

/* ------------------------------------------------------------------ beside others */

static unsigned stop;

static void *others(void *arg)
{
	struct thing *own[500] = { NULL };
	uint64_t state = (uintptr_t)arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		unsigned i = (unsigned)(random_next(&state) % 500);

		if (own[i]) {
			NEED(own[i]->number == i);
			put_anyhow(own[i]);
			own[i] = NULL;
		} else {
			own[i] = get(random_next(&state) % 8 ? 0 : __GFP_FULLEST);
			NEED(own[i]);
			own[i]->number = i;
		}
	}
	for (unsigned i = 0; i < 500; i++)
		if (own[i])
			put(own[i]);
	return NULL;
}

static void beside_threads(void)
{
	pthread_t threads[3];

	cache = make("shared", SIZE);
	fragment();
	size_t pages = pages_used();
	for (uintptr_t i = 0; i < 3; i++)
		NEED(pthread_create(&threads[i], NULL, others, (void *)(i + 1)) == 0);
	for (unsigned i = 0; i < 100 && !(hardened && i) && (pages_used() >= pages / 2 || !i); i++)
		defragment();
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	is_whole();
	NEED(hardened || pages_used() < pages / 2);
	for (unsigned i = 0; i < MANY; i++)
		if (thing[i])
			put(thing[i]);
	gone(cache);
}

/* ------------------------------------------------------------------ any pointer */

static void any_pointer(void)
{
	static int mine;
	struct kmem_slab_usage usage[8];
	void *large = kmalloc(100000, GFP_KERNEL), *mapped = kvmalloc(10 << 20, GFP_KERNEL);
	char *small = kmalloc(100, GFP_KERNEL), *end = (char *)(UINTPTR_MAX - 4095);
	const void *pointers[8] = { NULL, &mine, large, mapped, small, small + 50, end, (char *)large + 50000 };

	NEED(kmem_slab_usage(pointers, 8, usage) == 2);
	for (int i = 0; i < 8; i++)
		NEED((usage[i].slab != NULL) == (i == 4 || i == 5));
	NEED(usage[0].what == KMEM_USAGE_NONE && usage[1].what == KMEM_USAGE_NONE && usage[6].what == KMEM_USAGE_NONE);
	NEED(usage[2].what == KMEM_USAGE_BLOCK && usage[3].what == KMEM_USAGE_BLOCK);
	NEED(usage[4].what >= KMEM_USAGE_SLAB && usage[7].what != KMEM_USAGE_SLAB);
	NEED(usage[4].slab == usage[5].slab && usage[4].inuse && usage[4].objects >= usage[4].inuse);
	for (int i = 0; i < 8; i++)
		NEED(usage[i].what == KMEM_USAGE_SLAB || !kmem_usage_is_sparse(&usage[i]));
	kmem_free_to_slab(NULL);
	kmem_free_to_slab(large);
	kmem_free_to_slab(small);
	kvfree(mapped);
	/* The object is freed, and its slab may be gone. */
	kmem_shrink_all();
	kmem_slab_usage(pointers, 8, usage);
	NEED(usage[2].what != KMEM_USAGE_SLAB && usage[3].what == KMEM_USAGE_NONE);
	NEED(kmem_check_all() == 0);
}

/* Zeros, a node, in bulk: as without the bit. */
static void other_bits(void)
{
	void *objects[100];

	cache = make("bits", SIZE);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_FULLEST, 100, objects));
	for (int i = 0; i < 100; i++)
		memset(objects[i], 1, SIZE);
	kmem_cache_free_bulk(cache, 100, objects);
	struct thing *p = kmem_cache_zalloc(cache, GFP_KERNEL | __GFP_FULLEST);
	NEED(p && all(p, 0, SIZE));
	kmem_cache_free(cache, p);
	p = kmem_cache_alloc_node(cache, GFP_KERNEL | __GFP_FULLEST, 0);
	NEED(p);
	kmem_cache_free(cache, p);
	p = kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_FULLEST);
	if (p)
		kmem_cache_free(cache, p);
	NEED(kmem_malloc_fullest(10) == NULL && errno == ENOSYS);
	gone(cache);
}

static const struct test_case cases[] = {
	{ "of a cache", of_a_cache },
	{ "of kmalloc", of_kmalloc },
	{ "charged to a group", charged_to_a_group },
	{ "charged to a private group", charged_to_a_private_group },
	{ "charged to kmalloc", charged_to_kmalloc },
	{ "debugged", debugged },
	{ "beside threads", beside_threads },
	{ "any pointer", any_pointer },
	{ "other bits", other_bits },
};

int main(int argc, char **argv)
{
	const size_t count = sizeof(cases) / sizeof(cases[0]);

	hardened = strstr(getenv("KMEM_OPTIONS") ?: "", "hardened") != NULL;
	if (argc > 1)
		return api_main(argc, argv, cases, count, "");
	return api_main(argc, argv, cases, count, ",decay:0") |
	       api_main(argc, argv, cases, count, ",decay:0,hardened:1");
}
