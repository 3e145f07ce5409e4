/*
 * memcg_several_objcgs.c: several groups are charged for objects of one cache. A free puts the object on the CPU's
 * sheaf without a comparison, and the object stays charged to its group until the next allocation: then the
 * allocating group is charged, and the former group is uncharged. Here: exact bytes at each step, by each call;
 * cached objects are never withheld from a group at its limit; calls that may not wait, and a system that refuses the
 * fence. Disciplines: all.
 */
#define _GNU_SOURCE
#include "kit/charged_cpus.h"

#include "memcg/memcg_group.h"
#include "os/os.h"

enum { SOME = 40 };

static void *objects[SOME];
static struct mem_cgroup *parent, *one, *two;

/* A cache with a former object of both groups; no object is cached. */
static struct kmem_cache *of_both_sized(const char *name, unsigned size)
{
	struct kmem_cache *cache = charged(name, size);

	parent = group_below(NULL, "parent");
	one = group_below(parent, "one");
	two = group_below(parent, "two");
	kmem_cache_free(cache, alloc_for(one, cache));
	kmem_cache_free(cache, alloc_for(two, cache));
	NEED(drained(parent) == 0 && lies_charged(cache) == 0);
	return cache;
}

static struct kmem_cache *of_both(const char *name)
{
	struct kmem_cache *cache = of_both_sized(name, 200);

	NEED((back_of(cache) == MIXED) == has_mixed_blocks(cache));
	return cache;
}

static void end(struct kmem_cache *cache)
{
	NEED(drained(parent) == 0);
	mem_cgroup_put(two);
	mem_cgroup_put(one);
	mem_cgroup_put(parent);
	gone(cache);
}

static void take_for(struct mem_cgroup *group, struct kmem_cache *cache, int from, int to)
{
	for (int i = from; i < to; i++)
		NEED((objects[i] = alloc_for(group, cache)) && (i == from || objects[i] != objects[i - 1]));
}

/* Checks the owners of objects, by query and by charge. */
static void is_right(struct kmem_cache *cache, size_t ones, size_t twos)
{
	NEED(drained(one) == ones * cost(cache) && drained(two) == twos * cost(cache));
	NEED(drained(parent) == (ones + twos) * cost(cache));
}

static void changes_hands(void)
{
	struct kmem_cache *cache = of_both("hands");

	for (int round = 0; round < 3; round++) {
		take_for(one, cache, 0, SOME / 2);
		take_for(two, cache, SOME / 2, SOME);
		is_right(cache, SOME / 2, SOME / 2);
		size_t before = lies_charged(cache);
		/* The objects stay charged to their groups. */
		free_each_way(cache, objects, 4, 8);
		free_each_way(cache, objects, SOME - 4, SOME);
		if (has_mixed_blocks(cache))
			NEED(lies_charged(cache) == before + 8);
		/* The other group takes the objects: one group's charge rises by the fall of the other's. */
		take_for(two, cache, 4, 8);
		take_for(one, cache, SOME - 4, SOME);
		for (int i = 0; i < 8; i++) {
			struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[i < 4 ? i + 4 : SOME - 8 + i]);

			NEED(objcg == (i < 4 ? two : one));
			mem_cgroup_put(objcg);
		}
		is_right(cache, SOME / 2, SOME / 2);
		free_each_way(cache, objects, 0, SOME);
		is_right(cache, 0, 0);
	}
	end(cache);
}

static void in_bulk(void)
{
	struct kmem_cache *cache = of_both("bulk");
	void *more[SOME];

	for (int n = 1; n <= SOME; n += 3) {
		set_active_memcg(one);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, (size_t)n, objects));
		set_active_memcg(two);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, (size_t)n, more));
		set_active_memcg(NULL);
		is_right(cache, (size_t)n, (size_t)n);
		/* One's and two's in turn. */
		for (int i = 0; i < n; i += 2) {
			void *object = objects[i];

			objects[i] = more[i];
			more[i] = object;
		}
		kmem_cache_free_bulk(cache, (size_t)n, objects);
		kfree_bulk((size_t)n, more);
		set_active_memcg(two);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, (size_t)n, objects));
		set_active_memcg(NULL);
		is_right(cache, 0, (size_t)n);
		kmem_cache_free_bulk(cache, (size_t)n, objects);
		is_right(cache, 0, 0);
	}
	end(cache);
}

/* Pages of one's and of two's lie side by side, some are of both; and what lies on the block is of them all, in no
 * order. */
static void in_no_order(void)
{
	enum { RUN = 20, MANY = 6 * RUN };
	static void *many[MANY];

	for (int round = 0; round < 16; round++) {
		struct kmem_cache *cache = of_both("no order");
		struct mem_cgroup *taker = round % 2 ? two : one;

		for (int i = 0; i < MANY; i += RUN) {
			MEMCG_SCOPE(i / RUN % 2 ? two : one);
			NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, RUN, many + i));
		}
		for (size_t k = MANY; k > 1; k--) {
			size_t other = random_number() % k;
			void *object = many[k - 1];

			many[k - 1] = many[other];
			many[other] = object;
		}
		is_right(cache, MANY / 2, MANY / 2);
		kmem_cache_free_bulk(cache, MANY, many);
		set_active_memcg(taker);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, many));
		set_active_memcg(NULL);
		for (int i = 0; i < MANY; i++) {
			struct mem_cgroup *objcg = mem_cgroup_from_obj(many[i]);

			NEED(objcg == taker);
			mem_cgroup_put(objcg);
		}
		is_right(cache, round % 2 ? 0 : MANY, round % 2 ? MANY : 0);
		kmem_cache_free_bulk(cache, MANY, many);
		end(cache);
	}
}

static int by_address(const void *a, const void *b)
{
	const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;

	return (x > y) - (x < y);
}

enum { MANY = 1100, FEW = 20 };

/* The first FEW of many objects, each in a page owned by the group alone. Returns: NULL if there are fewer. */
static void **in_own_pages(struct mem_cgroup *group, void **many, int wanted)
{
	int found = 0;

	qsort(many, MANY, sizeof(*many), by_address);
	for (int i = 0; i < MANY && found < wanted; i++) {
		const size_t index = (size_t)((char *)many[i] - km_hot.arena) >> KM_PAGE_SHIFT;

		if (index >= km_hot.pages || km_hot.owner[index] != (uintptr_t)group->objcg)
			continue;
		void *object = many[found];
		many[found++] = many[i];
		many[i] = object;
	}
	return found == wanted ? many : NULL;
}

/* One of two's among one's, at this place: what is allocated is all one's. */
static void one_among(struct kmem_cache *cache, int place)
{
	static void *ones[MANY], *twos[MANY];

	set_active_memcg(one);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, ones));
	set_active_memcg(two);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, twos));
	set_active_memcg(one);
	if (in_own_pages(one, ones, FEW) && in_own_pages(two, twos, 1)) {
		void *object = ones[place];

		ones[place] = twos[0];
		twos[0] = object;
		kmem_cache_free_bulk(cache, FEW, ones);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, FEW, ones));
		is_right(cache, MANY + 1, MANY - 1);
	} else {
		NEED(!has_blocks(cache));
	}
	set_active_memcg(NULL);
	kmem_cache_free_bulk(cache, MANY, ones);
	kmem_cache_free_bulk(cache, MANY, twos);
	is_right(cache, 0, 0);
	NEED(kmem_cache_shrink(cache) == 0);
}

/* At each place: a comparison of many objects at once misses none, at any size. */
static void one_among_many(void)
{
	static const unsigned sizes[] = { 8, 64, 256, 600, 1024, 4096 };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct kmem_cache *cache = of_both_sized("among", sizes[s]);

		for (int place = 0; place < FEW; place++)
			one_among(cache, place);
		end(cache);
	}
}

/* Uncharged objects go the same way. */
static void uncharged(void)
{
	struct kmem_cache *cache = of_both("uncharged");

	for (int i = 0; i < 8; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	is_right(cache, 0, 0);
	free_each_way(cache, objects, 0, 8);
	take_for(one, cache, 0, 8);
	is_right(cache, 8, 0);
	free_each_way(cache, objects, 0, 8);
	for (int i = 0; i < 8; i++) {
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		NEED(!mem_cgroup_from_obj(objects[i]));
	}
	is_right(cache, 0, 0);
	free_each_way(cache, objects, 0, 8);
	end(cache);
}

/* Cached objects of one group give room at a limit shared by both: to the byte, and in bulk. */
static void at_a_limit(void)
{
	struct kmem_cache *cache = of_both("limit");
	size_t fit = 8, most = fit * cost(cache);

	NEED(mem_cgroup_set_max(parent, most) == 0);
	for (int round = 0; round < 3; round++) {
		take_for(one, cache, 0, (int)fit);
		NEED(!alloc_for(two, cache) && mem_cgroup_current(parent) == most);
		free_each_way(cache, objects, 0, (int)fit);
		take_for(two, cache, 0, (int)fit);
		NEED(!alloc_for(one, cache) && mem_cgroup_current(parent) == most);
		is_right(cache, 0, fit);
		kmem_cache_free_bulk(cache, fit, objects);
		set_active_memcg(one);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, fit, objects));
		/* Refused, without a trace. */
		NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, fit, objects + fit));
		set_active_memcg(NULL);
		is_right(cache, fit, 0);
		free_each_way(cache, objects, 0, (int)fit);
	}
	/* The group's own limit is lower: some objects of the other group are charged to it, then no more. */
	NEED(mem_cgroup_set_max(two, 3 * cost(cache)) == 0);
	take_for(one, cache, 0, (int)fit);
	free_each_way(cache, objects, 0, (int)fit);
	set_active_memcg(two);
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, fit, objects));
	set_active_memcg(NULL);
	is_right(cache, 0, 0);
	take_for(one, cache, 0, (int)fit);
	free_each_way(cache, objects, 0, (int)fit);
	take_for(two, cache, 0, 3);
	NEED(!alloc_for(two, cache));
	is_right(cache, 0, 3);
	free_each_way(cache, objects, 0, 3);
	end(cache);
}

/*
 * A group ends while its objects are cached: an allocation of these objects reads the ended group no more
 * than needed.
 */
static void leaves(void)
{
	struct kmem_cache *cache = of_both("leaves");

	take_for(one, cache, 0, SOME);
	free_each_way(cache, objects, 0, SOME);
	mem_cgroup_put(one);
	take_for(two, cache, 0, SOME);
	NEED(drained(parent) == SOME * cost(cache) && drained(two) == SOME * cost(cache));
	one = group_below(parent, "one");
	free_each_way(cache, objects, 0, SOME);
	is_right(cache, 0, 0);
	end(cache);
}

/*
 * A second group that may not wait for a fence gets the object; the next call that may wait finishes the
 * switch.
 */
static void later(bool bulk)
{
	struct kmem_cache *cache = charged("later", 200);
	void *object;

	parent = group_below(NULL, "parent");
	one = group_below(parent, "one");
	two = group_below(parent, "two");
	take_for(one, cache, 0, SOME);
	set_active_memcg(two);
	/* The first of a group comes from where calls are made. */
	kfree(kmalloc(100, GFP_KERNEL_ACCOUNT));
	NEED((object = kmem_cache_alloc(cache, GFP_NOWAIT)));
	NEED(back_of(cache) != MIXED && (!has_blocks(cache) || !cache->fast.pcs.front.back.pcs));
	set_active_memcg(NULL);
	is_right(cache, SOME, 1);
	kmem_cache_free(cache, object);
	free_each_way(cache, objects, 0, SOME);
	is_right(cache, 0, 0);
	for (int i = 0; i < SOME && !bulk; i++)
		kmem_cache_free(cache, alloc_for(i % 2 ? one : two, cache));
	for (int i = 0; i < SOME && bulk; i++) {
		MEMCG_SCOPE(i % 2 ? one : two);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 4, objects));
		kmem_cache_free_bulk(cache, 4, objects);
	}
	NEED((back_of(cache) == MIXED) == has_mixed_blocks(cache));
	end(cache);
}

static void mixed_later(void)
{
	later(false);
	later(true);
}

static bool no_fence(const char *call)
{
	return strcmp(call, "fence") == 0;
}

/* Then frees compare owners forever. */
static void no_fence_to_be_had(void)
{
	struct kmem_cache *cache = charged("no fence", 200);

	parent = group_below(NULL, "parent");
	one = group_below(parent, "one");
	two = group_below(parent, "two");
	take_for(one, cache, 0, SOME / 2);
	km_os_fault = no_fence;
	take_for(two, cache, SOME / 2, SOME);
	km_os_fault = NULL;
	NEED(back_of(cache) != MIXED && (!has_blocks(cache) || !cache->fast.pcs.front.back.pcs));
	for (int round = 0; round < 3; round++) {
		is_right(cache, SOME / 2, SOME / 2);
		free_each_way(cache, objects, 0, SOME);
		is_right(cache, 0, 0);
		take_for(one, cache, 0, SOME / 2);
		take_for(two, cache, SOME / 2, SOME);
	}
	NEED(back_of(cache) != MIXED);
	free_each_way(cache, objects, 0, SOME);
	end(cache);
}

/* Nor at a limit: objects cached on this CPU, for one owner or for several, are drained all the same. */
static void at_a_limit_without_a_fence(void)
{
	enum { FIT = 8 };

	for (int round = 0; round < 4; round++) {
		struct kmem_cache *mine = round % 2 ? of_both("mine") : charged("mine", 200);
		struct kmem_cache *others = charged("others", 200);
		void *taken[FIT];

		if (round % 2 == 0) {
			parent = group_below(NULL, "parent");
			one = group_below(parent, "one");
			two = group_below(parent, "two");
		}
		NEED(mem_cgroup_set_max(parent, FIT * cost(mine)) == 0);
		take_for(one, mine, 0, FIT);
		free_each_way(mine, objects, 0, FIT);
		NEED(!has_blocks(mine) || lies_charged(mine));
		km_os_fault = no_fence;
		/* The owner decides: one's objects are not drained for two, unless they are in two's way. */
		if (round >= 2) {
			size_t before = lies_charged(mine);

			mem_cgroup_drain(two);
			NEED(lies_charged(mine) == before);
		}
		for (int i = 0; i < FIT; i++)
			NEED((taken[i] = alloc_for(two, others)));
		NEED(!alloc_for(two, others));
		km_os_fault = NULL;
		is_right(mine, 0, FIT);
		for (int i = 0; i < FIT; i++)
			kmem_cache_free(others, taken[i]);
		NEED(drained(parent) == 0);
		gone(others);
		end(mine);
	}
}

static void are_zeros(const void *object, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		NEED(((const char *)object)[i] == 0);
}

/* Bytes written by other groups are never visible, by any call, and the object is charged as any other. */
static void zeroed(void)
{
	struct kmem_cache *cache = of_both("zeroed");

	for (int round = 0; round < 3; round++) {
		take_for(one, cache, 0, 8);
		for (int i = 0; i < 8; i++)
			memset(objects[i], 0x5a, 200);
		free_each_way(cache, objects, 0, 8);
		set_active_memcg(round ? two : one);
		for (int i = 0; i < 8; i++) {
			NEED((objects[i] = i % 2 ? kmem_cache_zalloc(cache, GFP_KERNEL) :
						   kmem_cache_alloc(cache, GFP_KERNEL | __GFP_ZERO)));
			are_zeros(objects[i], 200);
		}
		set_active_memcg(NULL);
		is_right(cache, round ? 0 : 8, round ? 8 : 0);
		free_each_way(cache, objects, 0, 8);
	}
	for (int i = 0; i < 8; i++) {
		MEMCG_SCOPE(i % 2 ? one : two);
		char *object = kmalloc(200, GFP_KERNEL_ACCOUNT | __GFP_ZERO);

		NEED(object);
		are_zeros(object, 200);
		memset(object, 0x5a, 200);
		kfree(object);
	}
	end(cache);
}

/* A private group's child cache: an object may belong to the cache or to the child, so there are no hits. */
static void with_a_child(void)
{
	struct kmem_cache *cache = of_both("child");
	struct mem_cgroup *own = private_group("own");

	for (int round = 0; round < 3; round++) {
		take_for(one, cache, 0, 4);
		take_for(own, cache, 4, 8);
		take_for(two, cache, 8, 12);
		NEED(!cache->fast.pcs.front.back.pcs && !km_id_masks(cache->fast.id)->sheaf);
		is_right(cache, 4, 4);
		free_each_way(cache, objects, 0, 12);
		take_for(two, cache, 0, 4);
		is_right(cache, 0, 4);
		free_each_way(cache, objects, 0, 4);
	}
	mem_cgroup_put(own);
	end(cache);
}

/*
 * A popped object that cannot be charged goes back as gfp permits: without a tick in a call that may not make system
 * calls.
 */
static unsigned ticks, calls;

static void see_tick(void)
{
	ticks++;
	calls += !km_thread.no_calls;
}

static void refused_without_a_call(void)
{
	enum { MANY = 100, ROUNDS = 8 };
	static void *taken[ROUNDS][MANY], *none[MANY];
	struct kmem_cache *cache = of_both("refused");
	void (*tick)(void) = km_alloc_tick;

	for (int i = 0; i < ROUNDS; i++) {
		MEMCG_SCOPE(one);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, taken[i]));
	}
	NEED(mem_cgroup_set_max(two, 0) == 0);
	ticks = calls = 0;
	/* More than the CPU's plain blocks have room for. */
	for (int i = 0; i < ROUNDS; i++) {
		MEMCG_SCOPE(two);
		kmem_cache_free_bulk(cache, MANY, taken[i]);
		km_alloc_tick = see_tick;
		NEED(!kmem_cache_alloc_bulk(cache, GFP_NOWAIT, MANY, none));
		km_alloc_tick = tick;
	}
	NEED((!has_mixed_blocks(cache) || ticks) && !calls);
	NEED(mem_cgroup_set_max(two, MEMCG_NO_LIMIT) == 0);
	is_right(cache, 0, 0);
	end(cache);
}

static const struct test_case cases[] = {
	{ "changes hands", changes_hands },
	{ "in bulk", in_bulk },
	{ "in no order", in_no_order },
	{ "one among many", one_among_many },
	{ "uncharged", uncharged },
	{ "at a limit", at_a_limit },
	{ "refused without a call", refused_without_a_call },
	{ "leaves", leaves },
	{ "mixed later", mixed_later },
	{ "no fence", no_fence_to_be_had },
	{ "at a limit without a fence", at_a_limit_without_a_fence },
	{ "zeroed", zeroed },
	{ "with a child cache", with_a_child },
};

CHARGED_MAIN(cases)
