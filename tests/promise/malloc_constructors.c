/*
 * malloc_constructors: a constructor may allocate by every function: kmalloc, a cache with a constructor of its own,
 * bulk requests, malloc; for every kind of request: one object, an array, a sheaf, a request that may not wait. A
 * constructor may free, fork, tick and shrink, and a signal handler that interrupts one may allocate. Constructors
 * nest eight deep, and the ninth request fails. kmem_cache_alloc_nolock runs no constructor. The same with checked,
 * guarded, debugged and charged objects, and in a private group. Disciplines: all
 */
#include <errno.h>
#include <signal.h>

#include <kmem/memcg.h>

#include "kit/api.h"

#define OBJECTS	120
#define DEPTH	8

struct built {
	char *kmalloced, *malloced;
	struct built *below;
	char pad[176];
};

static struct kmem_cache *below, *top;
static int handled;

static void construct_below(void *object)
{
	struct built *built = object;

	built->kmalloced = kmalloc(64, GFP_NOWAIT);
	built->malloced = malloc(64);
}

static void construct(void *object)
{
	struct built *built = object;
	void *many[3];

	errno = ENOTTY;
	built->kmalloced = kmalloc(100, GFP_KERNEL);
	built->malloced = malloc(100);
	built->below = kmem_cache_alloc(below, GFP_KERNEL);
	NEED(kmem_cache_alloc_bulk(below, GFP_KERNEL, 3, many));
	kmem_cache_free_bulk(below, 3, many);
	free(realloc(malloc(10), 5000));
	if (built->kmalloced)
		memset(built->kmalloced, 0x77, 100);
	if (built->malloced)
		memset(built->malloced, 0x78, 100);
}

static void need_built(const void *object)
{
	const struct built *built = object;

	NEED(built && built->kmalloced && built->malloced && built->below);
	NEED(built->below->kmalloced && built->below->malloced);
	NEED(all(built->kmalloced, 0x77, 100) && all(built->malloced, 0x78, 100));
}

static struct kmem_cache *cache_of(const char *name, void (*ctor)(void *), slab_flags_t flags)
{
	struct kmem_cache_args args = { .ctor = ctor };
	struct kmem_cache *cache = kmem_cache_create(name, sizeof(struct built), &args, flags);

	NEED(cache);
	return cache;
}

static void make_both(slab_flags_t flags)
{
	char names[2][16];

	snprintf(names[0], sizeof(names[0]), "below %x", flags);
	snprintf(names[1], sizeof(names[1]), "top %x", flags);
	below = cache_of(names[0], construct_below, flags);
	top = cache_of(names[1], construct, flags);
}

static void take_all(gfp_t gfp)
{
	static void *objects[OBJECTS];

	for (int i = 0; i < OBJECTS; i++) {
		errno = 7;
		need_built(objects[i] = kmem_cache_alloc(top, gfp));
		NEED(errno == 7);
	}
	kmem_cache_free_bulk(top, OBJECTS, objects);
	NEED(kmem_cache_alloc_bulk(top, gfp, OBJECTS, objects));
	for (int i = 0; i < OBJECTS; i++)
		need_built(objects[i]);
	kmem_cache_free_bulk(top, OBJECTS, objects);
	NEED(kmem_check_all() == 0);
}

static void doors(void)
{
	make_both(0);
	take_all(GFP_KERNEL);
	kmem_cache_shrink(top);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(top, GFP_KERNEL, 20);
	NEED(sheaf);
	for (int i = 0; i < 20; i++)
		need_built(kmem_cache_alloc_from_sheaf(top, GFP_KERNEL, sheaf));
	kmem_cache_return_sheaf(top, GFP_KERNEL, sheaf);
	NEED(kmem_check_all() == 0);
}

/* Free pages are allocated without waiting; the constructor's own requests use their own gfp. */
static void may_not_wait(void)
{
	make_both(0);
	for (int i = 0; i < 20; i++)
		kfree(kmalloc(100000, GFP_KERNEL));
	for (int i = 0; i < OBJECTS; i++) {
		void *object = kmem_cache_alloc(top, GFP_NOWAIT);

		if (object)
			need_built(object);
	}
}

static void in_modes(void)
{
	make_both(SLAB_CONSISTENCY_CHECKS);
	take_all(GFP_KERNEL);
	make_both(SLAB_TYPESAFE_BY_RCU);
	take_all(GFP_KERNEL);
	make_both(SLAB_HWCACHE_ALIGN | SLAB_ACCOUNT);
	for (unsigned flags = 0; flags < 2; flags++) {
		struct mem_cgroup *group = mem_cgroup_create(NULL, "pays", flags ? MEM_CGROUP_PRIVATE : 0);

		NEED(group);
		set_active_memcg(group);
		take_all(GFP_KERNEL_ACCOUNT);
		set_active_memcg(NULL);
		mem_cgroup_put(group);
	}
}

/* ------------------------------------------------------------------ what else a constructor may do */

static void handle(int number)
{
	free(malloc(5000));
	kfree(kmalloc(3000, GFP_ATOMIC));
	/*
	 * The library cannot tell a handler's request from the constructor's: the request is refused without misuse.
	 */
	NEED(!kmem_cache_alloc(top, GFP_ATOMIC | __GFP_NOWARN));
	handled = number;
}

static void construct_busily(void *object)
{
	struct built *built = object;
	int status = -1;

	if (handled)
		return;
	raise(SIGUSR1);
	kmem_tick();
	kmem_shrink_all();
	pid_t child = fork();
	if (!child) {
		for (int i = 0; i < 1000; i++)
			kfree(kmalloc((size_t)i, GFP_KERNEL));
		_exit(malloc(100) ? 0 : 1);
	}
	NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	built->malloced = malloc(100);
}

static void does_all(void)
{
	signal(SIGUSR1, handle);
	top = cache_of("top", construct_busily, 0);
	struct built *built = kmem_cache_alloc(top, GFP_KERNEL);
	NEED(built && handled == SIGUSR1);
	kmem_cache_free(top, built);
	gone(top);
}

/* ------------------------------------------------------------------ how deep */

static struct kmem_cache *chain[DEPTH + 2];
static int deepest, refused;

static void construct_next(void *object)
{
	static int depth;

	deepest = deepest > ++depth ? deepest : depth;
	void *next = kmem_cache_alloc(chain[depth], GFP_KERNEL | __GFP_NOWARN);
	refused += !next && errno == ENOMEM;
	*(void **)object = next;
	depth--;
}

static void nests(void)
{
	for (int i = 0; i < DEPTH + 2; i++) {
		char name[] = { 'a' + i, '\0' };

		NEED(chain[i] = kmem_cache_create(name, 2000, 0, 0, construct_next));
	}
	void *object = kmem_cache_alloc(chain[0], GFP_KERNEL);
	NEED(object && deepest == DEPTH && refused);
	NEED(kmem_check_all() == 0);
}

static void nolock(void)
{
	make_both(0);
	for (int i = 0; i < 2 * OBJECTS; i++) {
		void *object = kmem_cache_alloc_nolock(top, 0, NUMA_NO_NODE);

		NEED(!object);
	}
	void *one = kmem_cache_alloc(top, GFP_KERNEL);
	kmem_cache_free(top, one);
	void *object = kmem_cache_alloc_nolock(top, 0, NUMA_NO_NODE);
	if (object)
		need_built(object);
}

static const struct test_case cases[] = {
	{ "every door", doors }, { "GFP_NOWAIT", may_not_wait }, { "checked, typesafe, charged, private", in_modes },
	{ "handlers, fork, ticks", does_all }, { "eight deep", nests }, { "nolock", nolock },
};

/* Each engine, and each with options under which the engine makes objects in another way. */
int main(int argc, char **argv)
{
	static const char *const options[] = { "", ",hardened:1", ",guard:each" };
	int failed = 0;

	for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]) && (argc == 1 || !i); i++)
		failed |= api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), options[i]);
	if (argc == 1) {
		setenv("KMEM_DEBUG", "FZPU", 1);
		failed |= api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), "");
	}
	return failed;
}
