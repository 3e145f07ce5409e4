/*
 * day: a day on a simulated machine (simulated.h): threads create and destroy caches, allocate and free in all ways,
 * charge groups with limits, switch debugging on and off, start and end. Meanwhile CPUs go and come back, memory is
 * refused for a time, and turns change at any basic block of the library. Beside the library a model: the allocated
 * objects and their contents. Now and then all threads rest, and the library must agree with the model, and with
 * itself. A request that may wait fails only if the system, or a group's limit, refused memory. In the end no memory
 * is left.
 *
 * SEED=n is the first of DAYS=4 days, each with options of its own. The same seed is the same day: each day runs
 * twice, and both runs must end in the same state. A day has SECONDS=n of simulated time, by default 50; with
 * CHECK_LONG=1 six hours, so that all days together are a day and a night. `day --day` is one of them by itself.
 * Disciplines: all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/wait.h>

#include "day.h"
#include "slab/engines.h"
#include "kit/cpus.h"

/* ------------------------------------------------------------------ operations */

static void op_alloc(void)
{
	unsigned cache = some_cache(), group = some_group();
	struct request r;
	void *p;

	if (cache < CACHES && day.cache[cache].slob)
		group = GROUPS;
	if (cache == CACHES || !begin_request(&r, 1, day.cache[cache].size, cache, group))
		return;
	struct kmem_cache *from = day.cache[cache].cache;
	if (group < GROUPS) {
		p = kmem_cache_alloc_in(from, day.group[group].group, r.gfp);
	} else if (!sim_below(8)) {
		r.may_fail = true;
		/* A slab taken off a CPU may have to wait, too. */
		day.cache[cache].late = true;
		p = kmem_cache_alloc_nolock(from, r.gfp & __GFP_ZERO, NUMA_NO_NODE);
	} else if (!sim_below(8)) {
		p = kmem_cache_alloc_node(from, r.gfp, (int)sim_below(2));
	} else {
		p = kmem_cache_alloc(from, r.gfp);
	}
	end_request(&r, &p, p != NULL);
}

static void op_alloc_bulk(void)
{
	unsigned cache = some_cache();
	void *objects[BULK];
	struct request r;

	if (cache == CACHES || !begin_request(&r, 1 + sim_below(BULK), day.cache[cache].size, cache, GROUPS))
		return;
	bool got = kmem_cache_alloc_bulk(day.cache[cache].cache, r.gfp, r.count, objects);
	end_request(&r, objects, got ? r.count : 0);
}

static void op_kmalloc(void)
{
	unsigned group = some_group();
	size_t bytes = some_bytes();
	struct request r;
	void *p;

	if (!begin_request(&r, 1, bytes, KMALLOC, group))
		return;
	if (group < GROUPS && bytes <= KMALLOC_MAX_SIZE) {
		p = kmalloc_in(day.group[group].group, bytes, r.gfp);
	} else if (bytes <= KMALLOC_MAX_CACHE_SIZE && !sim_below(8)) {
		r.may_fail = true;
		p = kmalloc_nolock(bytes, r.gfp & __GFP_ZERO, NUMA_NO_NODE);
	} else {
		p = bytes > KMALLOC_MAX_SIZE ? kvmalloc(bytes, r.gfp) : kmalloc(bytes, r.gfp);
		/* The object is uncharged. */
		if (group < GROUPS)
			day.group[group].users--;
		r.group = GROUPS;
	}
	end_request(&r, &p, p != NULL);
}

static void op_pool(void)
{
	struct request r;

	if (!begin_request(&r, 1, 200, POOL, GROUPS))
		return;
	r.may_fail = true;
	r.gfp = GFP_NOWAIT;
	void *p = mempool_alloc(day.pool, r.gfp);
	end_request(&r, &p, p != NULL);
}

/* Finds an object that may be taken: its cache is not due to be destroyed. */
static bool some_object(size_t *at)
{
	for (unsigned tries = 0; day.count && tries < 8; tries++) {
		*at = sim_below(day.count);
		if (day.object[*at].cache >= CACHES || !day.cache[day.object[*at].cache].going)
			return true;
	}
	return false;
}

static void op_free(void)
{
	size_t at;

	if (!some_object(&at))
		return;
	struct object object = died(at);
	struct model_cache *c = object.cache < CACHES ? &day.cache[object.cache] : NULL;

	if (c)
		c->users++;
	free_object(&object);
	if (c)
		c->users--;
}

static void op_free_bulk(void)
{
	unsigned cache = some_cache();
	size_t count = 0, most = 1 + sim_below(BULK);
	void *objects[BULK];

	if (cache == CACHES)
		return;
	struct model_cache *c = &day.cache[cache];
	for (size_t i = sim_below(day.count + 1); i < day.count && count < most;)
		if (day.object[i].cache == cache)
			objects[count++] = died(i).p;
		else
			i++;
	c->users++;
	kmem_cache_free_bulk(c->cache, count, objects);
	c->users--;
}

static void op_realloc(void)
{
	size_t at, bytes = some_bytes();

	if (!some_object(&at) || day.object[at].cache != KMALLOC || day.object[at].group != GROUPS ||
	    day.object[at].bytes > KMALLOC_MAX_SIZE || bytes > KMALLOC_MAX_SIZE)
		return;
	struct object object = died(at), old;
	struct request r;
	if (!begin_request(&r, 1, bytes, KMALLOC, GROUPS)) {
		free_object(&object);
		return;
	}
	r.gfp &= ~__GFP_ZERO;
	void *p = krealloc(object.p, bytes, r.gfp);
	old = object;
	if (p) {
		old.p = p;
		old.bytes = bytes < old.bytes ? bytes : old.bytes;
		for (size_t i = 0; i < old.bytes && i < 256; i++)
			NEED(old.p[i] == byte_of(&object, i) || next_byte(&object, 255) < i);
	}
	end_request(&r, &p, p != NULL);
	if (!p)
		free_object(&object);
}

/* One sheaf at a time for each cache, and only this thread uses the sheaf while in hand. */
static void op_sheaf(void)
{
	unsigned cache = some_cache();
	struct request r;

	if (cache == CACHES || !begin_request(&r, 1 + sim_below(40), day.cache[cache].size, cache, GROUPS))
		return;
	struct model_cache *c = &day.cache[cache];
	struct slab_sheaf *sheaf = c->sheaf;
	void *objects[40];
	size_t got = 0;

	c->sheaf = NULL;
	c->in_sheaf = 0;
	if (!sheaf)
		sheaf = kmem_cache_prefill_sheaf(c->cache, r.gfp & ~__GFP_ZERO, (unsigned)r.count);
	else if (!sim_below(3))
		kmem_cache_refill_sheaf(c->cache, r.gfp & ~__GFP_ZERO, &sheaf, (unsigned)sim_below(300));
	while (sheaf && got < r.count && (objects[got] = kmem_cache_alloc_from_sheaf(c->cache, r.gfp, sheaf)))
		got++;
	if (sheaf && !c->sheaf && sim_below(3)) {
		c->sheaf = sheaf;
		c->in_sheaf = kmem_cache_sheaf_size(sheaf);
	} else {
		kmem_cache_return_sheaf(c->cache, GFP_KERNEL, sheaf);
	}
	r.may_fail |= sheaf != NULL;
	end_request(&r, objects, got);
}

static void op_create(void)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	static const slab_flags_t flags[] = { 0, 0, 0, 0, SLAB_HWCACHE_ALIGN, SLAB_TYPESAFE_BY_RCU, SLAB_ACCOUNT,
					      SLAB_CONSISTENCY_CHECKS, SLAB_NO_SHEAVES, SLAB_NODUMP,
					      SLAB_POISON | SLAB_RED_ZONE };
	static const unsigned aligns[] = { 0, 0, 0, 16, 64, 4096 };
	unsigned at = (unsigned)sim_below(CACHES), engine = (unsigned)sim_below(5) % 4;
	struct kmem_cache_args args = { .engine = engines[engine], .align = aligns[sim_below(6)] };
	struct model_cache *c = &day.cache[at];
	char name[16];

	if (c->cache || c->going)
		return;
	*c = (struct model_cache){ .slob = !strcmp(engines[engine], "slob"), .going = true };
	c->size = 8 + sim_below(sim_below(8) ? 600 : 6000);
	c->flags = flags[sim_below(sizeof(flags) / sizeof(flags[0]))];
	if (!sim_below(6)) {
		args.ctor = construct;
		c->size = 96;
		c->constructed = true;
	}
	if (!sim_below(3))
		args.sheaf_capacity = (unsigned)sim_below(1000);
	snprintf(name, sizeof(name), "day-%u", at);
	uint64_t refused = sim.refused;
	c->cache = kmem_cache_create(name, (unsigned)c->size, &args, c->flags);
	c->going = false;
	NEED(c->cache || sim.refused != refused, "errno %d", errno);
	sim_note(c->cache != NULL);
}

static void op_destroy(void)
{
	unsigned cache = some_cache();

	if (cache == CACHES || day.cache[cache].users)
		return;
	struct model_cache *c = &day.cache[cache];
	c->going = true;
	for (size_t i = day.count; i--;)
		if (i < day.count && day.object[i].cache == cache) {
			struct object object = died(i);
			free_object(&object);
		}
	/* Other threads have moved some objects to places passed already. */
	for (size_t i = 0; i < day.count;)
		if (day.object[i].cache == cache) {
			struct object object = died(i);
			free_object(&object);
			i = 0;
		} else {
			i++;
		}
	NEED(!c->live && !c->users);
	kmem_cache_return_sheaf(c->cache, GFP_KERNEL, c->sheaf);
	kmem_cache_destroy(c->cache);
	*c = (struct model_cache){ 0 };
}

static void op_shrink(void)
{
	unsigned cache = some_cache();

	if (!sim_below(10))
		kmem_shrink_all();
	else if (cache < CACHES) {
		day.cache[cache].users++;
		kmem_cache_shrink(day.cache[cache].cache);
		day.cache[cache].users--;
	}
}

static void op_debug(void)
{
	static const char *const letters[] = { "FZP", "F", "Z", "P", "-", "-", "-" };
	unsigned cache = some_cache();

	if (cache == CACHES)
		return;
	day.cache[cache].users++;
	sim_note((uint64_t)(int64_t)kmem_cache_set_debug(day.cache[cache].cache, letters[sim_below(7)]));
	day.cache[cache].users--;
}

static void op_group(void)
{
	struct model_group *g = &day.group[sim_below(GROUPS)];

	if (g->users)
		return;
	g->users++;
	if (!g->group) {
		struct mem_cgroup *parent = day.group[0].group;

		if (g == day.group)
			parent = NULL;
		g->group = mem_cgroup_create(parent, "tenant", 0);
		g->max = UINT64_MAX;
	} else if (g != day.group && !g->live && !sim_below(4)) {
		struct mem_cgroup *group = g->group;

		g->group = NULL;
		mem_cgroup_put(group);
	} else if (sim_below(2)) {
		uint64_t max = 100000 + sim_below(2000000);

		if (!mem_cgroup_set_max(g->group, max))
			g->max = max;
	} else if (sim_below(2)) {
		mem_cgroup_drain(g->group);
	} else {
		mem_cgroup_reclaim(g->group, 10000);
	}
	g->users--;
}

/* The program's RCU: a period ends at some operation of some thread. */
static void rcu_call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	NEED(!day.grace);
	day.grace = head;
	day.grace_ends = func;
}

static void op_grace(void)
{
	struct kmem_rcu_head *head = day.grace;

	day.grace = NULL;
	if (head)
		day.grace_ends(head);
}

static void rcu_synchronize(void)
{
}

/* Where no period is under way another thread is in the midst of an end, or of a call. */
static void rcu_barrier(void)
{
	if (!day.grace)
		sim_yield();
	op_grace();
}

static const struct kmem_rcu rcu = { rcu_call, rcu_synchronize, rcu_barrier };

/* ------------------------------------------------------------------ the world */

/* CPUs go and come, bad times begin and end, threads begin, turns become longer or shorter. */
static void event(void)
{
	static const uint64_t patience[] = { 50, 2000, 20000, 100000 };
	unsigned cpu = (unsigned)sim_below(SIM_CPUS + SIM_BEYOND), online = 0;

	day.next_event = sim.microseconds + sim_below(4000000);
	for (unsigned i = 0; i < SIM_CPUS + SIM_BEYOND; i++)
		online += sim.online[i];
	if (sim.online[cpu] && online > 1) {
		sim.online[cpu] = false;
		sim.went++;
	} else if (cpu < SIM_CPUS || !sim_below(8)) {
		sim.came += !sim.online[cpu];
		sim.online[cpu] = true;
	}
	sim.patience = patience[sim_below(8) ? 1 + sim_below(3) : 0];
	sim.shortage = sim_below(6) ? 0 : 1 + sim_below(500);
	for (unsigned i = 0; i < SIM_THREADS; i++)
		if (!sim.thread[i].there)
			sim_begin(i);
}

static void check_cache(struct model_cache *c)
{
	struct kmem_cache_stats stats;

	if (c->late)
		kmem_cache_shrink(c->cache);
	c->late = false;
	kmem_cache_get_stats(c->cache, &stats);
	NEED(stats.active_objects == c->live + c->in_sheaf, "%s: %lu, not %zu and %zu in a sheaf", stats.name,
	     stats.active_objects, c->live, c->in_sheaf);
	sim_note(stats.active_objects);
	sim_note(stats.total_slabs);
	sim_note(stats.shelf_objects);
}

/* All threads are between calls: all figures must agree. */
static void look_at_all(void)
{
	struct kmem_stats all;

	for (unsigned i = 0; i < CACHES; i++)
		if (day.cache[i].cache && !day.cache[i].going)
			check_cache(&day.cache[i]);
	for (unsigned i = 0; i < GROUPS; i++)
		if (day.group[i].group)
			NEED(mem_cgroup_current(day.group[i].group) >= day.group[i].bytes, "group %u", i);
	for (size_t i = 0; i < day.count; i++)
		check_content(&day.object[i]);
	NEED(kmem_check_all() == 0);
	kmem_get_stats(&all);
	sim_note(all.pages_used);
	sim_note(all.pages_free_dirty);
	sim_note(sim.microseconds);
	day.rests++;
}

static void rest(void)
{
	sim_rest();
	look_at_all();
	day.next_rest = sim.microseconds + 1000000 + sim_below(20000000);
	sim_resume();
}

static const struct {
	void (*run)(void);
	unsigned weight;
} operations[] = {
	{ op_alloc, 30 }, { op_free, 34 }, { op_kmalloc, 24 }, { op_alloc_bulk, 6 }, { op_free_bulk, 8 },
	{ op_realloc, 5 }, { op_sheaf, 4 }, { op_create, 2 }, { op_destroy, 1 }, { op_shrink, 1 }, { op_debug, 1 },
	{ op_group, 2 }, { op_grace, 2 }, { op_pool, 4 },
};

static void operate(void)
{
	unsigned sum = 0, which = 0;

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		sum += operations[i].weight;
	for (unsigned at = (unsigned)sim_below(sum); at >= operations[which].weight; which++)
		at -= operations[which].weight;
	day.operations++;
	sim_note(which);
	operations[which].run();
}

/* Short times, long ones, and now and then a time long enough to release idle memory. */
static void pass_time(void)
{
	uint64_t kind = sim_below(1000);

	sim.microseconds += kind ? sim_below(kind < 50 ? 200000 : 500) : sim_below(6000000);
}

static void live(unsigned number)
{
	while (sim.microseconds < day.end) {
		sim_between();
		pass_time();
		if (sim.microseconds >= day.next_event)
			event();
		if (sim.microseconds >= day.next_rest && sim.resting == NO_THREAD)
			rest();
		operate();
		/* The first thread stays, to start others. */
		if (number && !sim_below(3000))
			return;
	}
}

/* All objects are freed; all memory of the library can be released. */
static void evening(void)
{
	bool own_addresses = strstr(getenv("KMEM_OPTIONS"), "hardened:1") != NULL;
	struct kmem_stats all;

	op_grace();
	while (day.count) {
		struct object object = died(day.count - 1);
		free_object(&object);
	}
	kvfree_rcu_barrier();
	mempool_destroy(day.pool);
	for (unsigned i = 0; i < CACHES; i++) {
		struct model_cache *c = &day.cache[i];

		if (!c->cache)
			continue;
		kmem_cache_return_sheaf(c->cache, GFP_KERNEL, c->sheaf);
		c->in_sheaf = 0;
		kmem_cache_shrink(c->cache);
		check_cache(c);
		kmem_cache_destroy(c->cache);
	}
	for (unsigned i = GROUPS; i--;)
		if (day.group[i].group) {
			mem_cgroup_drain(day.group[i].group);
			NEED(!mem_cgroup_current(day.group[i].group), "group %u has %lu", i,
			     (unsigned long)mem_cgroup_current(day.group[i].group));
			mem_cgroup_put(day.group[i].group);
		}
	kmem_shrink_all();
	kmem_get_stats(&all);
	/* Pages may stay with the name of a cache, without memory. */
	NEED((own_addresses || all.pages_used == 0) && all.large_blocks == 0 && all.mapped_blocks == 0, "%lu pages",
	     (unsigned long)all.pages_used);
	NEED(kmem_check_all() == 0);
}

static unsigned long number_of(const char *name, unsigned long usual)
{
	const char *text = getenv(name);

	return text && *text ? strtoul(text, NULL, 0) : usual;
}

/* The state in the end, for the comparing process, is the last line. */
static int one_day(void)
{
	unsigned long seconds = number_of("SECONDS", getenv("CHECK_LONG") ? 21600 : 50);
	unsigned long seed = number_of("SEED", 1);

	NEED(kmem_set_rcu(&rcu) == 0);
	NEED((day.pool = mempool_create_kmalloc_pool(8, 200)));
	day.end = sim.microseconds + seconds * 1000000ul;
	sim_run(live, seed);
	evening();
	printf("SEED=%lu SECONDS=%lu KMEM_OPTIONS=%s %s: ", seed, seconds, getenv("KMEM_OPTIONS"),
	       kmem_percpu_discipline());
	printf("%lu operations, %lu got nothing, %lu calls refused, %lu turns, %lu moves, CPUs went %lu times and came "
	       "%lu, %lu rests: %016lx\n", day.operations, day.nothing, sim.refused, sim.switches, sim.moves, sim.went,
	       sim.came, day.rests, sim.digest);
	return failures != 0;
}

/* Where addresses are the same each time, and no area is registered but by the library. */
static int begin_day(unsigned long seed, const char *options, char *line, size_t bytes)
{
	int out[2], status;
	size_t length = 0;
	ssize_t got;
	char text[32];

	NEED(pipe(out) == 0);
	pid_t child = fork();
	if (!child) {
		snprintf(text, sizeof(text), "%lu", seed);
		setenv("SEED", text, 1);
		setenv("KMEM_OPTIONS", options, 1);
		setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
		personality(ADDR_NO_RANDOMIZE);
		/* Turns go on faster so. */
		stay_here();
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execl("/proc/self/exe", "day", "--day", NULL);
		_exit(4);
	}
	close(out[1]);
	while (length < bytes - 1 && (got = read(out[0], line + length, bytes - 1 - length)) > 0)
		length += (size_t)got;
	line[length] = '\0';
	close(out[0]);
	NEED(waitpid(child, &status, 0) == child);
	return status;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {
		"engine:sheaf", "engine:sheaf,hardened:1,guard:40", "engine:slub,nodes:2",
		"engine:slab,decay:100",
	};
	unsigned long seed = number_of("SEED", 20261123), days = number_of("DAYS", 4);
	char line[2][4096];
	int failed = 0;

	if (argc > 1 && strcmp(argv[1], "--day") == 0)
		return one_day();
	for (unsigned long i = 0; i < days; i++) {
		for (int turn = 0; turn < 2; turn++) {
			int status = begin_day(seed + i, options[(seed + i) % 4], line[turn], sizeof(line[turn]));

			if (status || !turn)
				fputs(line[turn], stdout);
			if (status)
				printf("FAIL SEED=%lu DAYS=1: status %#x\n", seed + i, (unsigned)status);
			failed |= status != 0;
		}
		if (strcmp(line[0], line[1])) {
			printf("FAIL SEED=%lu DAYS=1: another day than before: %s", seed + i, line[1]);
			failed = 1;
		}
		fflush(stdout);
	}
	return failed;
}
