/*
 * memcg_objects.c: objects are charged to the byte. Disciplines: all. After any allocations, frees, moves to the
 * parent and refusals, with the stocks drained, a group's `current` is the sum over its allocated objects.
 */
#define _GNU_SOURCE
#include "kit/charged_cpus.h"

#include <pthread.h>
#include <unistd.h>

#include "memcg/charged_sheaf.h"
#include "kit/inside.h"

/* ------------------------------------------------------------------ one cache, one group */

#define FEW 700

static void each_object(void)
{
	struct kmem_cache *cache = charged("each", 200);
	struct mem_cgroup *group = group_below(NULL, "each");
	static void *objects[FEW];

	for (int round = 0; round < 3; round++) {
		set_active_memcg(group);
		for (int i = 0; i < FEW; i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		for (int i = 0; i < FEW; i++) {
			struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[i]);

			NEED(objcg == group);
			mem_cgroup_put(objcg);
		}
		set_active_memcg(NULL);
		NEED(drained(group) == FEW * cost(cache));
		for (int i = 0; i < FEW; i++)
			kmem_cache_free(cache, objects[i]);
		NEED(drained(group) == 0);
		NEED(mem_cgroup_peak(group) >= FEW * cost(cache));
	}
	mem_cgroup_put(group);
	gone(cache);
}

static void in_bulk(void)
{
	struct kmem_cache *cache = charged("bulk", 256);
	struct mem_cgroup *group = group_below(NULL, "bulk"), *other = group_below(NULL, "other");
	static void *objects[FEW], *more[FEW];

	for (size_t n = 1; n <= FEW; n = n * 3 / 2 + 1) {
		set_active_memcg(group);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects));
		set_active_memcg(other);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, more));
		set_active_memcg(NULL);
		NEED(drained(group) == n * cost(cache) && drained(other) == n * cost(cache));
		/* Objects of two groups in one array, in turn; any thread may free them. */
		for (size_t i = 0; i < n; i += 2) {
			void *swap = objects[i];

			objects[i] = more[i];
			more[i] = swap;
		}
		kmem_cache_free_bulk(cache, n, objects);
		NEED(drained(group) + drained(other) == n * cost(cache));
		kfree_bulk(n, more);
		NEED(drained(group) == 0 && drained(other) == 0);
	}
	mem_cgroup_put(group);
	mem_cgroup_put(other);
	gone(cache);
}

/*
 * Arrays whose owner changes after every `run` objects, with three groups and uncharged objects in turn: in a cache
 * with SLAB_ACCOUNT, in one charged now and then, and in one with validated frees.
 */
static void in_runs(void)
{
	static const size_t lengths[] = { 1, 2, 7, 8, 9, 16, 64, 65, 200 };
	struct kmem_cache *caches[] = {
		charged("runs", 256), make("runs+", 256),
		kmem_cache_create("runs!", 256, NULL, SLAB_ACCOUNT | SLAB_CONSISTENCY_CHECKS),
	};
	struct mem_cgroup *groups[3];
	static void *objects[FEW];

	for (int g = 0; g < 3; g++)
		groups[g] = group_below(NULL, "runs");
	for (unsigned which = 0; which < 3 * (sizeof(lengths) / sizeof(*lengths)); which++) {
		struct kmem_cache *cache = caches[which % 3];
		size_t run = lengths[which / 3], online[4] = { 0 };

		NEED(cache);
		for (size_t at = 0, now; at < FEW; at += now) {
			size_t whose = at / run % 4;

			now = run < FEW - at ? run : FEW - at;
			set_active_memcg(whose < 3 ? groups[whose] : NULL);
			NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL_ACCOUNT, now, objects + at));
			if (at >= FEW / 2)
				online[whose] += now;
			else if (at + now > FEW / 2)
				online[whose] += at + now - FEW / 2;
		}
		set_active_memcg(NULL);
		kmem_cache_free_bulk(cache, FEW / 2, objects);
		for (int g = 0; g < 3; g++)
			NEED(drained(groups[g]) == online[g] * cost(cache));
		kfree_bulk(FEW - FEW / 2, objects + FEW / 2);
		for (int g = 0; g < 3; g++)
			NEED(drained(groups[g]) == 0);
	}
	for (int i = 0; i < 3; i++) {
		mem_cgroup_put(groups[i]);
		gone(caches[i]);
	}
}

/* Requests without a group are uncharged; requests of a group are charged in a cache without the flag, too. */
static void now_and_then(void)
{
	struct kmem_cache *cache = make("now and then", 120);
	struct mem_cgroup *group = group_below(NULL, "now and then");
	static void *objects[FEW];

	for (int round = 0; round < 4; round++) {
		uint64_t paid = 0;

		set_active_memcg(group);
		for (int i = 0; i < FEW; i++) {
			bool pay = (i + round) % 3 == 0;

			NEED((objects[i] = kmem_cache_alloc(cache, pay ? GFP_KERNEL_ACCOUNT : GFP_KERNEL)));
			paid += pay;
		}
		set_active_memcg(NULL);
		NEED(drained(group) == paid * cost(cache));
		for (int i = 0; i < FEW; i++)
			kmem_cache_free(cache, objects[i]);
		NEED(drained(group) == 0);
	}
	/* Charged afterwards, once. */
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);
	set_active_memcg(group);
	NEED(kmem_cache_charge(p, GFP_KERNEL) && kmem_cache_charge(p, GFP_KERNEL));
	set_active_memcg(NULL);
	NEED(drained(group) == cost(cache));
	kmem_cache_free(cache, p);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

static void the_root_pays_nothing(void)
{
	struct kmem_cache *cache = charged("free ride", 64);
	struct mem_cgroup *group = group_below(NULL, "nobody");
	static void *objects[FEW];

	for (int i = 0; i < FEW; i++) {
		set_active_memcg(i % 3 == 0 ? group : i % 3 == 1 ? mem_cgroup_root() : NULL);
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	}
	set_active_memcg(NULL);
	NEED(drained(group) == (FEW + 2) / 3 * cost(cache));
	for (int i = 0; i < FEW; i++) {
		struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[i]);

		NEED(objcg == (i % 3 ? NULL : group));
		mem_cgroup_put(objcg);
		kmem_cache_free(cache, objects[i]);
	}
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
	gone(cache);
}

/* ------------------------------------------------------------------ a million, mixed */

#define GROUPS 6
#define CACHES 4
#define SLOTS 4000
#define STEPS 1000000

static struct {
	void *object;
	uint64_t bytes;
	int group;		/* the owner; -1: uncharged */
	int cache;		/* CACHES: kmalloc's */
} slot[SLOTS];

/* Bytes that kmalloc uses for the size. */
static uint64_t kmalloc_cost(size_t size)
{
	static void *probe;
	uint64_t bytes;

	probe = kmalloc(size, GFP_KERNEL);
	bytes = ksize(probe);
	kfree(probe);
	return size > KMALLOC_MAX_CACHE_SIZE ? bytes : bytes + sizeof(void *);
}

static void fill(int i, struct mem_cgroup **groups, struct kmem_cache **caches, uint64_t *online)
{
	static const size_t sizes[] = { 24, 100, 500, 4096, 8192, 20000 };
	int group = (int)(random_number() % (GROUPS + 1)) - 1;

	slot[i].cache = (int)(random_number() % (CACHES + 1));
	slot[i].group = group;
	set_active_memcg(group < 0 ? NULL : groups[group]);
	if (slot[i].cache < CACHES) {
		struct kmem_cache *cache = caches[slot[i].cache];

		NEED((slot[i].object = kmem_cache_alloc(cache, GFP_KERNEL_ACCOUNT)));
		slot[i].bytes = cost(cache);
	} else {
		size_t size = sizes[random_number() % 6];

		/* The size is a constant for the compiler, or is not. */
		NEED((slot[i].object = random_number() % 2 ? kmalloc(size, GFP_KERNEL_ACCOUNT) :
						    (kmalloc)(size, GFP_KERNEL_ACCOUNT)));
		slot[i].bytes = kmalloc_cost(size);
	}
	set_active_memcg(NULL);
	*(int *)slot[i].object = i;
	if (group >= 0)
		online[group] += slot[i].bytes;
}

static void empty(int i, struct kmem_cache **caches, uint64_t *online)
{
	NEED(*(int *)slot[i].object == i);
	if (slot[i].group >= 0)
		online[slot[i].group] -= slot[i].bytes;
	if (random_number() % 2 && slot[i].cache < CACHES)
		kmem_cache_free(caches[slot[i].cache], slot[i].object);
	else
		kfree(slot[i].object);
	slot[i].object = NULL;
}

/* Group g's parent is g / 2, except for 0 and 1, children of the root. */
static void sums_agree(struct mem_cgroup **groups, const uint64_t *online)
{
	uint64_t sum[GROUPS];

	for (int g = 0; g < GROUPS; g++)
		mem_cgroup_drain(groups[g]);
	memcpy(sum, online, sizeof(sum));
	for (int g = GROUPS - 1; g > 1; g--)
		sum[g / 2] += sum[g];
	for (int g = 0; g < GROUPS; g++)
		NEED(mem_cgroup_current(groups[g]) == sum[g]);
}

static void a_million(void)
{
	struct mem_cgroup *groups[GROUPS];
	struct kmem_cache *caches[CACHES];
	uint64_t online[GROUPS] = { 0 };

	if (slob)
		return;
	for (int g = 0; g < GROUPS; g++)
		groups[g] = group_below(g < 2 ? NULL : groups[g / 2], "million");
	for (unsigned c = 0; c < CACHES; c++)
		caches[c] = c % 2 ? charged("million", 40 + 300 * c) : make("million+", 40 + 300 * c);
	for (int step = 0; step < STEPS; step++) {
		int i = (int)(random_number() % SLOTS);

		if (slot[i].object)
			empty(i, caches, online);
		else
			fill(i, groups, caches, online);
		if (step % (STEPS / 8) == 0)
			sums_agree(groups, online);
	}
	sums_agree(groups, online);
	for (int i = 0; i < SLOTS; i++)
		if (slot[i].object)
			empty(i, caches, online);
	sums_agree(groups, online);
	for (int g = GROUPS - 1; g >= 0; g--)
		mem_cgroup_put(groups[g]);
	for (int c = 0; c < CACHES; c++)
		gone(caches[c]);
}

/* ------------------------------------------------------------------ limits */

/* As many objects as fit, to the last, although sheaves and stocks of other groups hold bytes. */
static void to_the_last_byte(void)
{
	struct kmem_cache *cache = charged("limited", 256), *idle = charged("idle", 512);
	struct mem_cgroup *parent = group_below(NULL, "parent"), *child = group_below(parent, "child");
	struct mem_cgroup *sister = group_below(parent, "sister");
	uint64_t max = 300000, most = max / cost(cache);
	static void *objects[5000], *others[200];
	uint64_t count = 0;

	NEED(mem_cgroup_set_max(parent, max) == 0);
	/* Charged objects of a sister group are cached. */
	set_active_memcg(sister);
	for (int i = 0; i < 200; i++)
		NEED((others[i] = kmem_cache_alloc(idle, GFP_KERNEL)));
	for (int i = 0; i < 200; i++)
		kmem_cache_free(idle, others[i]);
	set_active_memcg(child);
	while (count < 5000 && (objects[count] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
		count++;
	NEED(errno == ENOMEM && count == most);
	NEED(mem_cgroup_current(parent) <= max && mem_cgroup_events(parent, MEMCG_MAX) > 0);
	/* One freed, one to be had, over and over. */
	for (int i = 0; i < 300; i++) {
		kmem_cache_free(cache, objects[i]);
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)));
		NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
	}
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 16, others));
	/* No failure is allowed: beyond the limit. */
	NEED((others[0] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOFAIL)));
	NEED(drained(parent) == (most + 1) * cost(cache));
	kmem_cache_free(cache, others[0]);
	set_active_memcg(NULL);
	for (uint64_t i = 0; i < count; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(drained(parent) == 0);
	mem_cgroup_put(child);
	mem_cgroup_put(sister);
	mem_cgroup_put(parent);
	gone(cache);
	gone(idle);
}

/*
 * A request without __GFP_NOWARN that a limit refuses prints a line with the group's name; other requests print
 * nothing. For large blocks as well as objects. Kernel: prints nothing in either case.
 */
static void with_a_line(void)
{
	struct mem_cgroup *group = group_below(NULL, "talkative");
	int before = dup(STDERR_FILENO);
	FILE *said = tmpfile();
	char line[512] = "";

	NEED(before >= 0 && said && dup2(fileno(said), STDERR_FILENO) >= 0);
	NEED(mem_cgroup_set_max(group, 8) == 0);
	set_active_memcg(group);
	for (size_t size = 8; size <= KMALLOC_MAX_SIZE; size *= 8)
		NEED(!kmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN));
	NEED(!kvmalloc(2 * KMALLOC_MAX_SIZE, GFP_KERNEL_ACCOUNT | __GFP_NOWARN));
	NEED(lseek(fileno(said), 0, SEEK_END) == 0);
	NEED(!kmalloc(64, GFP_KERNEL_ACCOUNT));
	set_active_memcg(NULL);
	NEED(dup2(before, STDERR_FILENO) >= 0);
	NEED(pread(fileno(said), line, sizeof(line) - 1, 0) > 0);
	NEED(strstr(line, "unable to allocate") && strstr(line, "reason: limit of group talkative ("), "%s", line);
	fclose(said);
	close(before);
	mem_cgroup_put(group);
}

static void large_ones(void)
{
	struct mem_cgroup *group = group_below(NULL, "large");
	size_t mib = 1 << 20;
	void *p, *q;

	NEED(mem_cgroup_set_max(group, 32 * mib) == 0);
	set_active_memcg(group);
	NEED((p = kmalloc(2 * mib, GFP_KERNEL_ACCOUNT)) && (q = kvmalloc(20 * mib, GFP_KERNEL_ACCOUNT)));
	NEED(drained(group) == 22 * mib);
	NEED(!kvmalloc(20 * mib, GFP_KERNEL_ACCOUNT | __GFP_NOWARN));
	struct mem_cgroup *objcg = mem_cgroup_from_obj(q);
	NEED(objcg == group);
	mem_cgroup_put(objcg);
	NEED((q = kvrealloc(q, 24 * mib, GFP_KERNEL_ACCOUNT)));
	NEED(drained(group) == 26 * mib);
	kvfree(q);
	kfree(p);
	set_active_memcg(NULL);
	NEED(drained(group) == 0);
	mem_cgroup_put(group);
}

/* Uncharged large blocks are charged later; a block that cannot be charged is reported. */
static void large_ones_later(void)
{
	struct mem_cgroup *group = group_below(NULL, "later"), *private = private_group("private");
	size_t mib = 1 << 20;
	void *p = kmalloc(2 * mib, GFP_KERNEL), *q = kvmalloc(20 * mib, GFP_KERNEL);

	NEED(p && q && mem_cgroup_set_max(group, 20 * mib) == 0);
	NEED(kmem_cache_charge(p, GFP_KERNEL) && !mem_cgroup_from_obj(p));
	set_active_memcg(private);
	NEED(!kmem_cache_charge(p, GFP_KERNEL) && drained(private) == 0);
	set_active_memcg(group);
	NEED(kmem_cache_charge(p, GFP_KERNEL) && kmem_cache_charge(p, GFP_KERNEL) && drained(group) == 2 * mib);
	struct mem_cgroup *objcg = mem_cgroup_from_obj(p);
	NEED(objcg == group);
	mem_cgroup_put(objcg);
	NEED(!kmem_cache_charge(q, GFP_KERNEL) && !mem_cgroup_from_obj(q) && drained(group) == 2 * mib);
	NEED(mem_cgroup_set_max(group, 22 * mib) == 0 && kmem_cache_charge(q, GFP_NOWAIT));
	NEED((q = kvrealloc(q, 10 * mib, GFP_KERNEL)) && drained(group) == 12 * mib);
	NEED(kmem_cache_charge(NULL, GFP_KERNEL) && kmem_cache_charge(ZERO_SIZE_PTR, GFP_KERNEL));
	NEED(!kmem_cache_charge(&group, GFP_KERNEL) && !kmem_cache_charge((char *)p + 4096, GFP_KERNEL));
	set_active_memcg(private);
	NEED(kmem_cache_charge(p, GFP_KERNEL) && mem_cgroup_destroy_all(private, NULL, NULL) == 0);
	set_active_memcg(NULL);
	kvfree(q);
	kfree(p);
	NEED(drained(group) == 0 && drained(private) == 0);
	mem_cgroup_put(group);
	mem_cgroup_put(private);
}

/* ------------------------------------------------------------------ the group goes first */

static void reparented(void)
{
	struct kmem_cache *cache = charged("orphans", 96);
	struct mem_cgroup *top = group_below(NULL, "top"), *middle = group_below(top, "middle");
	struct mem_cgroup *leaf = group_below(middle, "leaf");
	static void *objects[FEW];

	set_active_memcg(leaf);
	for (int i = 0; i < FEW; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (int i = 0; i < FEW / 3; i++)
		kmem_cache_free(cache, objects[i]);
	set_active_memcg(NULL);
	mem_cgroup_put(leaf);
	NEED(drained(middle) == (FEW - FEW / 3) * cost(cache));
	mem_cgroup_put(middle);
	NEED(drained(top) == (FEW - FEW / 3) * cost(cache));
	struct mem_cgroup *objcg = mem_cgroup_from_obj(objects[FEW - 1]);
	NEED(objcg == top);
	mem_cgroup_put(objcg);
	for (int i = FEW / 3; i < FEW; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(drained(top) == 0);
	mem_cgroup_put(top);
	gone(cache);
}

/* ------------------------------------------------------------------ threads */

#define THREADS 4
#define ROUNDS 20000

static struct kmem_cache *common;
static struct mem_cgroup *common_group[2];

static void *worker(void *arg)
{
	uint64_t mine = (uintptr_t)arg * 0x9e3779b97f4a7c15u + 1;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t number = random_next(&mine);

		set_active_memcg(common_group[number >> 20 & 1]);
		post(common, kmem_cache_alloc(common, GFP_KERNEL), number);
		if (i % 4000 == 0)
			mem_cgroup_drain(common_group[0]);
		if (number % 512 == 0)
			sched_yield();
	}
	return NULL;
}

static void crosswise(void)
{
	pthread_t thread[THREADS];

	common = charged("crosswise", 128);
	for (int i = 0; i < 2; i++)
		common_group[i] = group_below(NULL, "crosswise");
	for (uintptr_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&thread[i], NULL, worker, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	uint64_t online = 0;
	for (int i = 0; i < 256; i++)
		online += mailbox[i] != NULL;
	NEED(drained(common_group[0]) + drained(common_group[1]) == online * cost(common));
	for (int i = 0; i < 256; i++)
		if (mailbox[i])
			kmem_cache_free(common, mailbox[i]);
	NEED(drained(common_group[0]) == 0 && drained(common_group[1]) == 0);
	mem_cgroup_put(common_group[0]);
	mem_cgroup_put(common_group[1]);
	gone(common);
}

/* An ended group's name may still stand on an empty sheaf: a drain of another group must not follow the name, and takes
 * the sheaf. A sheaf with objects stays. */
static void empty_block(void)
{
	struct kmem_cache *cache = charged("empty block", 200);
	struct mem_cgroup *group = group_below(NULL, "empty block"), *other = group_below(NULL, "other");
	void *objects[KM_CHARGED_MOST];
	size_t n = 0;

	set_active_memcg(group);
	do
		NEED(n < KM_CHARGED_MOST && (objects[n++] = kmem_cache_alloc(cache, GFP_KERNEL)));
	while (lies_charged(cache));
	set_active_memcg(NULL);
	INSIDE(km_charged_drain_group(&cache, 1, other));
	NEED(!cache->memcg.charged_sheaves);
	while (n)
		kmem_cache_free(cache, objects[--n]);
	if (lies_charged(cache)) {
		INSIDE(km_charged_drain_group(&cache, 1, other));
		NEED(cache->memcg.charged_sheaves && lies_charged(cache));
	}
	mem_cgroup_put(other);
	mem_cgroup_put(group);
	gone(cache);
}

/*
 * Many groups in turn on a CPU charged to another group all the time. Some objects stay allocated, and the next group
 * frees them: with more bytes at once than a group's stock on a CPU holds, and than the stock has.
 */
#define IN_TURN	20
#define KEPT	30

static void in_turn(void)
{
	struct kmem_cache *cache = charged("in turn", 256);
	struct mem_cgroup *groups[IN_TURN], *other = group_below(NULL, "in the way");
	static void *kept[IN_TURN][KEPT];
	void *one;

	stay_here();
	set_active_memcg(other);
	NEED((one = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (int g = 0; g < IN_TURN; g++)
		groups[g] = group_below(NULL, "in turn");
	for (int round = 0; round < 6 * KEPT; round++)
		for (int g = 0; g < IN_TURN; g++) {
			void **place = &kept[g][round % KEPT], *object;

			set_active_memcg(groups[g]);
			NEED((object = kmem_cache_alloc(cache, GFP_KERNEL)));
			if (round / KEPT % 2)
				kmem_cache_free(cache, *place);
			else
				NEED((*place = kmem_cache_alloc(cache, GFP_KERNEL)));
			kmem_cache_free(cache, object);
			if (round % 50 == 49)
				NEED(drained(groups[g]) % cost(cache) == 0);
			if (round % KEPT == KEPT - 1)
				NEED(drained(groups[g]) == (round / KEPT % 2 ? 0 : KEPT * cost(cache)));
		}
	set_active_memcg(NULL);
	kmem_cache_free(cache, one);
	NEED(drained(other) == 0);
	for (int g = 0; g < IN_TURN; g++) {
		NEED(mem_cgroup_current(groups[g]) == 0);
		mem_cgroup_put(groups[g]);
	}
	go_anywhere();
	mem_cgroup_put(other);
	gone(cache);
}

/* Another group's object stays in the way: a group with many frees gets the CPU's sheaf in the end. */
static void in_bulk_with_another(void)
{
	struct kmem_cache *cache = charged("with another", 256);
	struct mem_cgroup *group = group_below(NULL, "many"), *other = group_below(NULL, "one");
	void *objects[40], *one;

	stay_here();
	set_active_memcg(other);
	NEED((one = kmem_cache_alloc(cache, GFP_KERNEL)));
	set_active_memcg(group);
	for (int round = 0; round < 20; round++) {
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 40, objects));
		kmem_cache_free_bulk(cache, 40, objects);
	}
	set_active_memcg(NULL);
	if (cache->memcg.charged.slot && !cache->layout.live_shift)
		NEED(lies_charged(cache));
	if (cache->memcg.charged.slot && !cache->memcg.mixed.slot)
		NEED(km_owned_owner(&cache->memcg.charged) != km_object_owner(cache, one));
	NEED(drained(group) == 0 && drained(other) == cost(cache));
	kmem_cache_free(cache, one);
	NEED(drained(other) == 0);
	go_anywhere();
	mem_cgroup_put(group);
	mem_cgroup_put(other);
	gone(cache);
}

static const struct test_case cases[] = {
	{ "each object", each_object },
	{ "in bulk", in_bulk },
	{ "in runs", in_runs },
	{ "in turn", in_turn },
	{ "in bulk with another", in_bulk_with_another },
	{ "now and then", now_and_then },
	{ "the root pays nothing", the_root_pays_nothing },
	{ "a million", a_million },
	{ "to the last byte", to_the_last_byte },
	{ "large ones", large_ones },
	{ "large ones, later", large_ones_later },
	{ "with a line", with_a_line },
	{ "reparented", reparented },
	{ "empty block", empty_block },
	{ "crosswise", crosswise },
};

GROUPS_MAIN(cases)
