/*
 * offline_meanwhile.c: a group goes offline in the middle of another thread's charge, uncharge or free: before each
 * call made by such a section, at each depth, with the stock's rules and both hierarchies, below the root and below
 * the process's group. A group without a counter is never charged, and in the end all bytes are exact. Disciplines:
 * all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>

#include "kit/cases.h"
#include "kit/cpus.h"
#include "kit/groups.h"

#include "memcg/memcg_group.h"

enum { DEPTHS = 3, MANY = 12000, LARGE = 70 << 12 };

/* ------------------------------------------------------------------ a point of a section */

static struct mem_cgroup *victim;
static __thread bool charges;		/* the thread with the tested sections */
static int points;			/* to be passed; -1: the last was reached */
static bool struck;			/* there, where the tree was not this thread's */
static sem_t go, gone;

static void *take_offline(void *unused)
{
	for (;;) {
		while (sem_wait(&go))
			;
		NEED(mem_cgroup_offline(victim) == 0);
		sem_post(&gone);
	}
	return unused;
}

/* From here on the section finds the parent; the other thread may wait for the section's end. */
static void point(void)
{
	if (!charges || points < 0 || points-- || !km_memcg_trylock())
		return;
	km_memcg_unlock();
	struck = true;
	sem_post(&go);
	while (km_load(&victim->objcg->memcg) == victim)
		sched_yield();
}

#define POINT(type, name, parameters, arguments)                                                   \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		point();                                                                           \
		return __real_##name arguments;                                                    \
	}
POINT(uint64_t, km_counter_spare, (const struct km_counter *counter), (counter))
POINT(struct km_counter *, km_counter_try_charge, (struct km_counter *counter, uint64_t bytes), (counter, bytes))
POINT(struct km_counter *, km_counter_would_refuse, (struct km_counter *counter, uint64_t bytes), (counter, bytes))
POINT(void, km_counter_charge, (struct km_counter *counter, uint64_t bytes), (counter, bytes))
POINT(void, km_counter_uncharge, (struct km_counter *counter, uint64_t bytes), (counter, bytes))
POINT(bool, km_stock_put, (const uint32_t *slot, uint64_t bytes, uint64_t limit), (slot, bytes, limit))
POINT(uint64_t, km_stock_empty, (const uint32_t *slot), (slot))

/* ------------------------------------------------------------------ what may be under way */

static void *object;
static uint64_t out;		/* charged by hand */

static void put_in(uint64_t bytes, gfp_t gfp)
{
	if (mem_cgroup_charge(victim, gfp, bytes) == 0)
		out += bytes;
}

static void take_out(uint64_t bytes)
{
	mem_cgroup_uncharge(victim, bytes);
	out -= bytes;
}

static void nothing(void) { }
static void charge_little(void) { put_in(100, GFP_KERNEL); }
static void charge_many(void) { put_in(MANY, GFP_KERNEL); }
static void charge_large(void) { put_in(LARGE, GFP_KERNEL); }
static void charge_nowait(void) { put_in(MANY, GFP_NOWAIT); }
static void charge_atomic(void) { put_in(MANY, GFP_ATOMIC); }
static void uncharge_little(void) { take_out(100); }
static void uncharge_many(void) { take_out(MANY); }
static void uncharge_large(void) { take_out(LARGE); }
static void alloc_object(void) { object = kmalloc_in(victim, MANY, GFP_KERNEL); }

static void free_object(void)
{
	kfree(object);
	object = NULL;
}

static void limit(void)
{
	mem_cgroup_set_max(victim, 1000);
}

static void high(void)
{
	/* The excess is above a batch, and too small for a sleep. */
	mem_cgroup_set_high(victim, 260000);
}

/* Another group's bytes are in the CPU's stock, by the rule `drain`. */
static void others_come(void)
{
	put_in(MANY, GFP_KERNEL);
	put_in(LARGE, GFP_KERNEL);
	take_out(MANY);
}

static const struct section {
	const char *name;
	void (*before)(void), (*section)(void);
} sections[] = {
	{ "charge a little", nothing, charge_little }, { "charge more", nothing, charge_many },
	{ "charge much", nothing, charge_large }, { "charge without waiting", nothing, charge_nowait },
	{ "charge beyond the limit", limit, charge_atomic }, { "refused", limit, charge_nowait },
	{ "above high", high, charge_many }, { "above high without waiting", high, charge_nowait },
	{ "uncharge a little", charge_little, uncharge_little }, { "uncharge more", charge_many, uncharge_many },
	{ "uncharge much", charge_large, uncharge_large }, { "uncharge of two", others_come, uncharge_large },
	{ "allocate", nothing, alloc_object }, { "free", alloc_object, free_object },
};

/* ------------------------------------------------------------------ each at each point */

static struct mem_cgroup *parent;

static unsigned strikes;

/* Returns: false if the section has no such point. */
static bool strike_at(const struct section *each, int at)
{
	const uint64_t before = drained(parent);

	victim = group_below(parent, "victim");
	each->before();
	points = at;
	struck = false;
	charges = true;
	each->section();
	charges = false;
	const bool reached = points < 0;
	if (struck)
		while (sem_wait(&gone))
			;
	strikes += struck;
	kfree(object);
	object = NULL;
	if (out)
		take_out(out);
	mem_cgroup_put(victim);
	mem_cgroup_drain(mem_cgroup_root());
	/* The root counts nothing, and has none in stocks. */
	for (unsigned cpu = 0; cpu < *km_memcg_view.stock_count; cpu++)
		for (unsigned i = 0; i < KM_STOCK_SLOTS; i++)
			NEED((*km_memcg_view.stocks)[cpu].groups[i] != &km_memcg_root, "%s, %d", each->name, at);
	NEED(drained(parent) == before, "%s, %d: %ld", each->name, at, (long)(drained(parent) - before));
	return reached;
}

static void strike_everywhere(void)
{
	struct mem_cgroup *above[DEPTHS] = { NULL };

	for (int depth = 0; depth < DEPTHS; depth++) {
		parent = depth ? above[depth - 1] : mem_cgroup_root();
		for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
			for (int at = 0; strike_at(&sections[i], at); at++)
				;
		above[depth] = group_below(parent, "above");
	}
	while (parent != mem_cgroup_root()) {
		struct mem_cgroup *last = parent;

		parent = mem_cgroup_parent(parent);
		mem_cgroup_put(last);
	}
}

int main(int argc, char **argv)
{
	static const enum mem_cgroup_mode modes[] = { MEM_CGROUP_DRAIN, MEM_CGROUP_V1 };
	pthread_t thread;

	if (argc < 2)
		return again(argv[0], "alone", "account:0") || again(argv[0], "process", "account:1");
	/* Brings the area of each CPU online: a thread that finds one stock taken uses another. */
	for (int i = 0; cpu_at(i) >= 0; i++) {
		NEED(go_to_cpu(cpu_at(i)));
		kfree(kmalloc(1, GFP_KERNEL));
		mem_cgroup_put(group_below(NULL, "first"));
	}
	go_anywhere();
	if (CPU_COUNT(all_cpus()) < 2) {
		printf("the thread that goes offline needs a stock of its own\n");
		return 77;
	}
	sem_init(&go, 0, 0);
	sem_init(&gone, 0, 0);
	NEED(pthread_create(&thread, NULL, take_offline, NULL) == 0);
	for (unsigned mode = 0; mode < 4; mode++) {
		for (unsigned i = 0; i < 2; i++)
			mem_cgroup_set_mode(modes[i], mode >> i & 1);
		strike_everywhere();
	}
	NEED(strikes > 300, "%u", strikes);
	NEED(kmem_check_all() == 0);
	return failures != 0;
}
