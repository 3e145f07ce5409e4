/*
 * memcg_mixed.c: a million mixed objects, by threads that move and fork, for groups in a tree, some with limits, some
 * going offline, while in every other phase the system refuses a third of all calls: from caches, kmalloc, in bulk,
 * grown by krealloc, charged later, uncharged, or a private group's; freed by other threads, under other groups, one
 * by one and in mixed arrays. In between, with the stocks drained, `current` of each group is the sum over the
 * allocated objects below it, to the byte, in children too, and no limit was ever exceeded. With each engine and each
 * way of accounting. Arguments: engine, more options, steps of a thread. Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"
#include "kit/random.h"

#include <sys/wait.h>

#include "os/os.h"

#define GROUPS	9	/* g's parent is g / 2, except for 0 and 1, children of the root */
#define CACHES	5
#define SLOTS	3000
#define THREADS	4
#define PHASES	4
#define UNCHARGED	(-1)
#define PRIVATE	GROUPS	/* charged by the slab: its sum is known only in the end */
#define OURS	CACHES	/* in the place of a cache: kmalloc's */

struct slot {
	void *object;
	unsigned long bytes;	/* charged */
	int objcg;
};

static struct worker {
	pthread_t thread;
	uint64_t random;
	struct slot slots[SLOTS];
	unsigned long refused;
} workers[THREADS];

static struct mem_cgroup *groups[GROUPS + 1];
static unsigned long most[GROUPS];
static struct kmem_cache *caches[CACHES];
static pthread_barrier_t barrier;
static int steps;

static unsigned below(struct worker *worker, unsigned n)
{
	return random_next(&worker->random) % n;
}

static void need(bool truth, const char *what)
{
	if (truth)
		return;
	printf("%s (errno %d)\n", what, errno);
	fflush(stdout);
	abort();
}

static unsigned long cost(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.size + sizeof(void *);
}

static unsigned long cost_of_block(const void *object)
{
	unsigned long bytes = ksize(object);

	return bytes > KMALLOC_MAX_CACHE_SIZE ? bytes : bytes + sizeof(void *);
}

static void note(struct slot *slot, void *object, unsigned long bytes, int objcg)
{
	*slot = (struct slot){ object, objcg == UNCHARGED ? 0 : bytes, objcg };
	memset(object, objcg + 1, 8);
}

static void *taken(struct slot *slot)
{
	void *object = slot->object;

	need(*(char *)object == slot->objcg + 1, "an object was overwritten");
	slot->object = NULL;
	return object;
}

static gfp_t some_gfp(struct worker *worker)
{
	static const gfp_t gfps[] = { GFP_KERNEL, GFP_KERNEL | __GFP_ZERO, GFP_NOWAIT, GFP_KERNEL | __GFP_NORETRY };

	return gfps[below(worker, 4)] | __GFP_ACCOUNT | __GFP_NOWARN;
}

/* ------------------------------------------------------------------ refused system calls */

static bool refusing;			/* atomic, like what follows */
static unsigned long calls, refused_calls;

static bool refuse(const char *call)
{
	if (!__atomic_load_n(&refusing, __ATOMIC_RELAXED) || strcmp(call, "rseq") == 0)
		return false;
	if (__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 3)
		return false;
	__atomic_fetch_add(&refused_calls, 1, __ATOMIC_RELAXED);
	return true;
}

static void set_refusing(bool on)
{
	__atomic_store_n(&refusing, on, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ they come */

static void get_one(struct worker *worker, struct slot *slot, int objcg)
{
	unsigned c = below(worker, CACHES + 1);
	size_t size = below(worker, 20) ? 8 + below(worker, 9000) : 8 + below(worker, 200000);

	if (below(worker, 400) == 0)
		size += 5 << 20;	/* a separate mapping */
	void *object = c < OURS ? kmem_cache_alloc(caches[c], some_gfp(worker)) : kvmalloc(size, some_gfp(worker));

	if (object)
		note(slot, object, c < OURS ? cost(caches[c]) : cost_of_block(object), objcg);
	else
		worker->refused++;
}

/* The empty slots from `slot` on. */
static void get_many(struct worker *worker, struct slot *slot, int objcg)
{
	unsigned c = below(worker, CACHES), n = 0;
	struct slot *empty[40];
	void *objects[40];

	for (; slot < worker->slots + SLOTS && n < 40; slot++)
		if (!slot->object)
			empty[n++] = slot;
	if (!kmem_cache_alloc_bulk(caches[c], some_gfp(worker), n, objects))
		worker->refused++;
	else if (below(worker, 3) == 0)
		kmem_cache_free_bulk(caches[c], n, objects);
	else
		for (unsigned i = 0; i < n; i++)
			note(empty[i], objects[i], cost(caches[c]), objcg);
}

/* Uncharged at first, from a cache without SLAB_ACCOUNT. */
static void get_and_charge(struct worker *worker, struct slot *slot, int objcg)
{
	bool large = below(worker, 20) == 0;
	void *object = large ? kmalloc(100000, GFP_KERNEL | __GFP_NOWARN) :
			       kmem_cache_alloc(caches[1], GFP_KERNEL | __GFP_NOWARN);

	need(object || __atomic_load_n(&refusing, __ATOMIC_RELAXED), "no memory");
	if (!object)
		return;
	if (objcg == PRIVATE || !kmem_cache_charge(object, some_gfp(worker)))
		objcg = UNCHARGED;
	note(slot, object, large ? cost_of_block(object) : cost(caches[1]), objcg);
}

static void get(struct worker *worker, struct slot *slot)
{
	int objcg = (int)below(worker, GROUPS + 2) - 1;
	MEMCG_SCOPE(objcg == UNCHARGED ? NULL : groups[objcg]);

	switch (below(worker, 8)) {
	case 0:
		get_many(worker, slot, objcg);
		break;
	case 1:
		get_and_charge(worker, slot, objcg);
		break;
	case 2:
		if (below(worker, 10) == 0)
			mem_cgroup_drain(objcg == UNCHARGED ? mem_cgroup_root() : groups[objcg]);
		break;
	default:
		get_one(worker, slot, objcg);
	}
}

/* ------------------------------------------------------------------ they go, or change */

static void give_many(struct worker *worker, struct slot *slot)
{
	unsigned n = 0;
	void *objects[64];

	for (; slot < worker->slots + SLOTS && n < 64; slot++)
		if (slot->object)
			objects[n++] = taken(slot);
	kfree_bulk(n, objects);
}

/* Afterwards the active group is charged, or, for a block in place, its former group. */
static void resize(struct worker *worker, struct slot *slot)
{
	int objcg = (int)below(worker, GROUPS + 1) - 1;
	size_t before = ksize(slot->object), size = 8 + below(worker, below(worker, 20) ? 9000 : 200000);
	MEMCG_SCOPE(objcg == UNCHARGED ? NULL : groups[objcg]);
	void *object = krealloc(slot->object, size, some_gfp(worker));

	if (!object) {
		worker->refused++;
		need(ksize(slot->object) == before, "a refused krealloc changed the block");
		return;
	}
	if (object == slot->object)	/* Whole pages grow and shrink in place, and stay charged to their group. */
		objcg = slot->objcg;
	struct mem_cgroup *now = mem_cgroup_from_obj(object);
	need(*(char *)object == slot->objcg + 1, "krealloc lost the content");
	need(now == (objcg == UNCHARGED ? NULL : groups[objcg]), "krealloc's block is another's");
	mem_cgroup_put(now);
	note(slot, object, cost_of_block(object), objcg);
}

static bool is_ours(const struct slot *slot)
{
	struct kmem_cache *cache = kmem_cache_of(slot->object);

	return slot->objcg != PRIVATE && (!cache || strncmp(kmem_cache_name(cache), "kmalloc", 7) == 0);
}

static void give_or_change(struct worker *worker, struct slot *slot)
{
	switch (below(worker, 10)) {
	case 0:
		give_many(worker, slot);
		break;
	case 1:
	case 2:
		if (is_ours(slot))
			resize(worker, slot);
		break;
	default:
		kfree(taken(slot));
	}
}

/* ------------------------------------------------------------------ the sums */

static void sums_agree(void)
{
	unsigned long online[GROUPS] = { 0 };

	for (int w = 0; w < THREADS; w++)
		for (int i = 0; i < SLOTS; i++) {
			const struct slot *slot = &workers[w].slots[i];

			if (slot->object && slot->objcg >= 0 && slot->objcg < GROUPS)
				online[slot->objcg] += slot->bytes;
		}
	mem_cgroup_drain(mem_cgroup_root());
	for (int g = GROUPS - 1; g >= 0; g--) {
		if (g > 1)
			online[g / 2] += online[g];
		if (mem_cgroup_current(groups[g]) != online[g])
			printf("group %d: %lu, not %lu\n", g, (unsigned long)mem_cgroup_current(groups[g]), online[g]);
		need(mem_cgroup_current(groups[g]) == online[g], "the sums don't agree");
		need(!mem_cgroup_mode(MEM_CGROUP_V1) || mem_cgroup_kmem(groups[g]) == online[g], "kmem");
		need(mem_cgroup_peak(groups[g]) <= most[g], "a limit was exceeded");
	}
	need(kmem_check_all() == 0, "kmem_check_all");
}

static void make_group(int g)
{
	need((groups[g] = mem_cgroup_create(g < 2 ? NULL : groups[g / 2], "mixed", 0)), "no group");
	most[g] = g % 2 && g > 1 ? 300000 + 100000ul * (unsigned)g : MEMCG_NO_LIMIT;
	mem_cgroup_set_max(groups[g], most[g]);
}

/* A leaf's objects are its parent's, and another leaf takes its place. */
static void replace_leaf(int g)
{
	need(mem_cgroup_offline(groups[g]) == 0, "offline");
	for (int w = 0; w < THREADS; w++)
		for (int i = 0; i < SLOTS; i++)
			if (workers[w].slots[i].object && workers[w].slots[i].objcg == g) {
				workers[w].slots[i].objcg = g / 2;
				memset(workers[w].slots[i].object, g / 2 + 1, 8);
			}
	mem_cgroup_put(groups[g]);
	make_group(g);
}

/* Each thread goes on with the objects of another. */
static void hand_on(void)
{
	static struct slot first[SLOTS];

	memcpy(first, workers[0].slots, sizeof(first));
	for (int w = 0; w + 1 < THREADS; w++)
		memcpy(workers[w].slots, workers[w + 1].slots, sizeof(first));
	memcpy(workers[THREADS - 1].slots, first, sizeof(first));
}

/*
 * A child has its parent's objects. With all other threads at rest the sums are exact to the byte; otherwise objects
 * in other threads' hands stay allocated forever, and only the child's own objects are exact.
 */
static void fork_and_look(struct worker *worker, bool quiet)
{
	int status;
	pid_t child = fork();

	need(child >= 0, "fork");
	if (child) {
		need(waitpid(child, &status, 0) == child && status == 0, "a child's accounts");
		return;
	}
	alarm(580);
	set_refusing(false);
	struct mem_cgroup *own = mem_cgroup_create(groups[0], "child", 0);
	void *objects[200];
	need(own, "no group in a child");
	set_active_memcg(own);
	for (int i = 0; i < 200; i++)
		need((objects[i] = kmem_cache_alloc(caches[i % CACHES], GFP_KERNEL_ACCOUNT)), "a child's object");
	set_active_memcg(NULL);
	mem_cgroup_drain(own);
	need(mem_cgroup_current(own) >= 200 * 24, "a child's objects are uncharged");
	kfree_bulk(200, objects);
	mem_cgroup_drain(own);
	need(mem_cgroup_current(own) == 0, "a child's group");
	mem_cgroup_put(own);
	for (int i = 0; i < SLOTS; i += 2)
		if (worker->slots[i].object)
			kfree(taken(&worker->slots[i]));
	if (quiet)
		sums_agree();
	_exit(0);
}

static void *work(void *arg)
{
	struct worker *worker = arg;

	for (int phase = 0; phase < PHASES; phase++) {
		set_refusing(phase % 2);
		for (int i = 0; i < steps / PHASES; i++) {
			struct slot *slot = &worker->slots[below(worker, SLOTS)];

			if (i % 1000 == 0)
				go_to_cpu(cpu_at((int)below(worker, 2)));
			if (i == steps / PHASES / 2)
				fork_and_look(worker, false);
			if (slot->object)
				give_or_change(worker, slot);
			else
				get(worker, slot);
		}
		pthread_barrier_wait(&barrier);
		if (worker == workers) {
			set_refusing(false);
			sums_agree();
			fork_and_look(worker, true);
			replace_leaf(GROUPS - 1 - phase);
			sums_agree();
			hand_on();
		}
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* ------------------------------------------------------------------ */

static int run(void)
{
	static const char *const names[CACHES] = { "mixed-40", "mixed-200", "mixed-1000", "mixed-24", "mixed-5000" };
	static const unsigned sizes[CACHES] = { 40, 200, 1000, 24, 5000 };
	unsigned long refused = 0;

	cpu_at(0);
	for (int g = 0; g < GROUPS; g++)
		make_group(g);
	need((groups[PRIVATE] = mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE)), "no private group");
	for (int c = 0; c < CACHES; c++)
		need((caches[c] = kmem_cache_create(names[c], sizes[c], NULL, c % 2 ? 0 : SLAB_ACCOUNT)), "no cache");
	pthread_barrier_init(&barrier, NULL, THREADS);
	km_os_fault = refuse;
	for (int w = 0; w < THREADS; w++) {
		workers[w].random = (uint64_t)w + 1;
		if (pthread_create(&workers[w].thread, NULL, work, &workers[w]))
			abort();
	}
	for (int w = 0; w < THREADS; w++) {
		pthread_join(workers[w].thread, NULL);
		give_many(&workers[w], workers[w].slots);
		for (int i = 0; i < SLOTS; i++)
			if (workers[w].slots[i].object)
				kfree(taken(&workers[w].slots[i]));
		refused += workers[w].refused;
	}
	sums_agree();
	need(refused, "no limit was met");
	need(refused_calls || steps < 100000, "no call was refused");
	need(mem_cgroup_current(groups[PRIVATE]) == 0, "something private is left");
	for (int g = GROUPS; g >= 0; g--)
		mem_cgroup_put(groups[g]);
	for (int c = 0; c < CACHES; c++)
		kmem_cache_destroy(caches[c]);
	need(kmem_check_all() == 0, "kmem_check_all");
	printf("ok   %s, %d steps, %lu refused, %lu of %lu calls\n", getenv("KMEM_OPTIONS"), steps * THREADS, refused,
	       refused_calls, calls);
	return 0;
}

static int run_with(const char *program, const char *engine, const char *more, const char *count)
{
	char options[128];
	int status;
	pid_t child = fork();

	if (!child) {
		snprintf(options, sizeof(options), "engine:%s%s", engine, more);
		set_options(options);
		execl("/proc/self/exe", program, engine, more, count, (char *)NULL);
		_exit(127);
	}
	if (child > 0 && waitpid(child, &status, 0) == child && !status)
		return 0;
	printf("FAIL engine:%s%s\n", engine, more);
	return 1;
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { "sheaf", "slub", "slab" };
	static const char *const others[] = { ",memcg_refill:drain", ",memcg_hierarchy:v1", ",memcg_shelf:0",
		",memcg_refill:drain,memcg_hierarchy:v1,memcg_shelf:0", ",check:1" };
	int failed = 0;

	if (argc > 3) {
		steps = atoi(argv[3]);
		return run();
	}
	for (int e = 0; e < 3; e++) {
		failed += run_with(argv[0], engines[e], "", "250000");
		for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
			failed += run_with(argv[0], engines[e], others[i], "25000");
	}
	return failed != 0;
}
