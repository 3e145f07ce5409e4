/*
 * malloc_accounted.c: malloc and its family charge the thread's group while mem_cgroup_account_malloc is on, and only
 * then. Earlier blocks stay uncharged; a free uncharges a charged block, by any thread and after any switch. Each
 * function, each size; realloc from one group to another; limits; threads; private groups; a fork.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/groups.h"
#include "kit/malloc.h"

/* jemalloc's. */
void *mallocx(size_t size, int flags);
void dallocx(void *p, int flags);
#define MALLOCX_ZERO 0x40

/* Small, of a part, of whole pages, cached and not, and a mapping. */
static const size_t sizes[] = { 0, 1, 16, 100, 300, 1000, 5000, 32768, 32769, 100000, 1 << 20, 3 << 20, 5 << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define EACH 40u

static void *blocks[SIZES * EACH];

static struct mem_cgroup *objcg_of(const void *p)
{
	struct mem_cgroup *objcg = mem_cgroup_from_obj(p);

	mem_cgroup_put(objcg);
	return objcg;
}

static void is_charged_to(const void *p, const struct mem_cgroup *group, size_t size)
{
	NEED(p, "(%zu bytes)", size);
	NEED(objcg_of(p) == group, "(%zu bytes)", size);
}

/* By each function; *bytes: the sum of the blocks. */
static size_t get_all(size_t *bytes)
{
	size_t n = 0;

	*bytes = 0;
	for (size_t i = 0; i < SIZES; i++)
		for (unsigned j = 0; j < (sizes[i] > 100000 ? 3 : EACH); j++) {
			void *p = j % 6 == 0 ? malloc(sizes[i]) : j % 6 == 1 ? calloc(1, sizes[i]) :
				  j % 6 == 2 ? realloc(NULL, sizes[i]) : j % 6 == 3 ? memalign(64, sizes[i]) :
				  j % 6 == 4 ? mallocx(sizes[i], j & MALLOCX_ZERO) : aligned_alloc(8192, sizes[i]);

			NEED(p, "(%zu bytes)", sizes[i]);
			*bytes += sizes[i];
			blocks[n++] = p;
		}
	return n;
}

static void put_all(size_t n)
{
	while (n--)
		(n % 2 ? dallocx(blocks[n], 0) : free(blocks[n]));
}

/* A charged block in the fullest slab goes back to its slab, not to a sheaf. */
static void charged_in_the_fullest(struct mem_cgroup *group)
{
	for (size_t size = 0; size < 100000; size = size * 3 + 10) {
		void *p = kmem_malloc_fullest(size);

		is_charged_to(p, group, size);
		kmem_free_to_slab(p);
	}
}

static void charged_by_each_function(struct mem_cgroup *group)
{
	size_t bytes, n = get_all(&bytes);

	NEED(drained(group) == 0);
	put_all(n);
	{
		MEMCG_SCOPE(group);
		n = get_all(&bytes);
		charged_in_the_fullest(group);
	}
	for (size_t i = 0; i < n; i++)
		is_charged_to(blocks[i], group, malloc_usable_size(blocks[i]));
	NEED(drained(group) >= bytes, "(%lu of %zu)", (unsigned long)drained(group), bytes);
	put_all(n);
	NEED(drained(group) == 0, "(%lu)", (unsigned long)drained(group));
}

/* Each alignment, up to those of which the library has no run of pages; often enough that each size has its cache. */
static void charged_at_each_alignment(struct mem_cgroup *group)
{
	for (size_t align = 16; align <= 32 << 20; align *= 4)
		for (size_t i = 1; i < SIZES; i++) {
			const size_t size = sizes[i], edge = size < 1000 ? size : 1000;
			MEMCG_SCOPE(group);

			for (unsigned j = 0; j < 12; j++) {
				blocks[j] = aligned_alloc(align, size);
				is_charged_to(blocks[j], group, size);
				NEED((uintptr_t)blocks[j] % align == 0, "(%zu aligned to %zu)", size, align);
				fill(blocks[j], edge, j);
			}
			for (unsigned j = 0; j < 12; j += 2) {
				blocks[j] = realloc(blocks[j], size + size / 2);
				is_charged_to(blocks[j], group, size + size / 2);
			}
			NEED(drained(group) >= 12 * size, "(%zu aligned to %zu)", size, align);
			for (unsigned j = 0; j < 12; j++) {
				NEED(is_filled(blocks[j], edge, j), "(%zu aligned to %zu)", size, align);
				free(blocks[j]);
			}
			NEED(drained(group) == 0, "(%lu: %zu aligned to %zu)", (unsigned long)drained(group), size,
			     align);
		}
}

/* Blocks of before, and of between. */
static void switched(struct mem_cgroup *group)
{
	size_t bytes;
	MEMCG_SCOPE(group);

	NEED(mem_cgroup_account_malloc(false) == 0 && mem_cgroup_account_malloc(false) == 0);
	size_t n = get_all(&bytes);
	NEED(drained(group) == 0);
	for (size_t i = 0; i < n; i++)
		is_charged_to(blocks[i], NULL, malloc_usable_size(blocks[i]));
	NEED(mem_cgroup_account_malloc(true) == 0 && mem_cgroup_account_malloc(true) == 0);
	put_all(n);
	NEED(drained(group) == 0);
	n = get_all(&bytes);
	NEED(drained(group) >= bytes);
	NEED(mem_cgroup_account_malloc(false) == 0);
	void *since = malloc(100);
	is_charged_to(since, NULL, 100);
	free(since);
	NEED(drained(group) >= bytes);
	put_all(n);
	NEED(drained(group) == 0);
	NEED(mem_cgroup_account_malloc(true) == 0);
}

/* A block resized in place stays charged to its group; a moved block is charged to the caller's group. */
static void between(struct mem_cgroup *a, struct mem_cgroup *b)
{
	for (size_t from = 0; from < SIZES; from++)
		for (size_t to = 1; to < SIZES; to++) {
			set_active_memcg(a);
			void *p = malloc(sizes[from]);
			uintptr_t was = (uintptr_t)p;

			set_active_memcg(b);
			p = realloc(p, sizes[to]);
			/* A mapping grown by mremap is the same block at another address. */
			struct mem_cgroup *objcg = objcg_of(p);
			NEED(objcg == ((uintptr_t)p == was ? a : b) || (objcg == a && sizes[from] > 4 << 20),
			     "(%zu to %zu)", sizes[from], sizes[to]);
			NEED(drained(objcg) >= sizes[to] && drained(objcg == a ? b : a) == 0);
			set_active_memcg(NULL);
			free(p);
			NEED(drained(a) == 0 && drained(b) == 0);
		}
}

/* An uncharged block is charged when the block moves or grows by pages. */
static void taken_over(struct mem_cgroup *group)
{
	for (size_t i = 0; i < SIZES; i++) {
		void *p = malloc(sizes[i]);
		uintptr_t was = (uintptr_t)p;
		size_t more = malloc_usable_size(p) + 1;

		is_charged_to(p, NULL, sizes[i]);
		set_active_memcg(group);
		p = realloc(p, more);
		is_charged_to(p, group, more);
		NEED(drained(group) >= more, "(%zu bytes, moved: %d)", more, (uintptr_t)p != was);
		free(p);
		set_active_memcg(NULL);
		NEED(drained(group) == 0);
	}
}

static void limited(struct mem_cgroup *group)
{
	void *kept[1000];
	size_t n = 0;
	MEMCG_SCOPE(group);

	NEED(mem_cgroup_set_max(group, 200000) == 0);
	errno = 0;
	while (n < 1000 && (kept[n] = malloc(1000)))
		n++;
	NEED(n > 150 && n < 200 && errno == ENOMEM, "(%zu)", n);
	NEED(mem_cgroup_current(group) <= 200000);
	errno = 0;
	NEED(!realloc(kept[0], 100000) && errno == ENOMEM);
	memset(kept[0], 1, 1000);
	errno = 0;
	NEED(!calloc(1, 300000) && errno == ENOMEM && !malloc(6 << 20) && !aligned_alloc(4096, 65536));
	/* A thread without a group charges nothing. */
	set_active_memcg(NULL);
	void *free_of_charge = malloc(1 << 20);
	NEED(free_of_charge);
	set_active_memcg(group);
	/* An uncharged block does not grow beyond the group's limit, and stays unchanged. */
	errno = 0;
	NEED(!realloc(free_of_charge, 2 << 20) && errno == ENOMEM);
	memset(free_of_charge, 1, 1 << 20);
	free(free_of_charge);
	while (n)
		free(kept[--n]);
	NEED((kept[0] = malloc(100000)));
	free(kept[0]);
	NEED(mem_cgroup_set_max(group, MEMCG_NO_LIMIT) == 0 && drained(group) == 0);
}

/*
 * An uncharged block without room to grow in place: a refused realloc leaves the block uncharged, and a move is
 * charged once.
 */
static void refused_where_it_is(struct mem_cgroup *group, size_t size)
{
	void *p = malloc(size);

	memset(p, 7, size);
	NEED(mem_cgroup_set_max(group, size * 3 / 2) == 0);
	set_active_memcg(group);
	errno = 0;
	NEED(!realloc(p, size * 4) && errno == ENOMEM, "(%zu bytes)", size);
	set_active_memcg(NULL);
	is_charged_to(p, NULL, size);
	NEED(drained(group) == 0, "(%zu bytes: %lu)", size, (unsigned long)drained(group));
	NEED(mem_cgroup_set_max(group, size * 2) == 0);
	set_active_memcg(group);
	p = realloc(p, size / 3 * 5);
	set_active_memcg(NULL);
	is_charged_to(p, group, size / 3 * 5);
	NEED(((unsigned char *)p)[size - 1] == 7);
	free(p);
	NEED(drained(group) == 0 && mem_cgroup_set_max(group, MEMCG_NO_LIMIT) == 0);
}

/* Otherwise the block would end with the group. */
static void refused_by_a_private_group(size_t size)
{
	struct mem_cgroup *group = private_group("refuses");
	void *p = malloc(size);

	NEED(mem_cgroup_set_max(group, size * 3 / 2) == 0);
	set_active_memcg(group);
	NEED(!realloc(p, size * 4));
	set_active_memcg(NULL);
	is_charged_to(p, NULL, size);
	NEED(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
	memset(p, 7, size);
	free(p);
	mem_cgroup_put(group);
}

static void refused_where_they_are(struct mem_cgroup *group)
{
	static const size_t large[] = { 40000, 1 << 20, 3 << 20, 5 << 20 };

	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
		refused_where_it_is(group, large[i]);
		refused_by_a_private_group(large[i]);
	}
}

/* volatile: the compiler assumes that malloc calls no function of the program. */
static volatile unsigned asked;

static bool no_help(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)group;
	(void)bytes;
	(void)arg;
	asked = asked + 1;
	return false;
}

static unsigned times_asked(void)
{
	unsigned times = asked;

	asked = 0;
	return times;
}

/*
 * A refused realloc calls the out-of-memory callback as often as malloc; a shrinking realloc leaves the block
 * and errno.
 */
static void asked_once(void)
{
	struct mem_cgroup *group = group_below(NULL, "asks");
	void *small = malloc(100), *larger = malloc(7000);
	MEMCG_SCOPE(group);

	NEED(mem_cgroup_set_max(group, 1000) == 0);
	mem_cgroup_set_oom_callback(group, no_help, NULL);
	asked = 0;
	NEED(!malloc(3000));
	unsigned by_malloc = times_asked();
	NEED(by_malloc == 1, "(%u)", by_malloc);
	errno = 0;
	NEED(!realloc(small, 3000) && errno == ENOMEM);
	unsigned by_realloc = times_asked();
	NEED(by_realloc == by_malloc, "(%u, malloc %u)", by_realloc, by_malloc);
	errno = 0;
	void *same = realloc(larger, 3000);
	by_realloc = times_asked();
	NEED(same == larger && errno == 0);
	NEED(by_realloc == by_malloc, "(%u, malloc %u)", by_realloc, by_malloc);
	free(small);
	free(same);
	mem_cgroup_set_oom_callback(group, NULL, NULL);
	mem_cgroup_put(group);
}

static bool counts(struct mem_cgroup *group, uint64_t bytes, void *times)
{
	(void)group;
	(void)bytes;
	++*(volatile unsigned *)times;
	return false;
}

/*
 * The block's group is asked for the additional bytes; another active group is asked for all bytes, and no more.
 */
static void another_asked_once(size_t size, unsigned flags)
{
	struct mem_cgroup *objcg = group_of(NULL, "pays", flags), *active = group_of(NULL, "active", flags);
	volatile unsigned by_objcg = 0, by_active = 0;

	mem_cgroup_set_oom_callback(objcg, counts, (void *)(uintptr_t)&by_objcg);
	mem_cgroup_set_oom_callback(active, counts, (void *)(uintptr_t)&by_active);
	set_active_memcg(objcg);
	char *block = malloc(size), *between = malloc(4096);
	NEED(block && between);
	block[size - 1] = 7;
	set_active_memcg(active);
	NEED(mem_cgroup_set_max(objcg, drained(objcg)) == 0 && mem_cgroup_set_max(active, size) == 0);
	errno = 0;
	NEED(!realloc(block, size * 5 / 3) && errno == ENOMEM, "(%zu)", size);
	NEED(by_objcg == 1 && by_active == 1, "(%zu: %u, %u)", size, by_objcg, by_active);
	/* The limit has room for the block, and no room for an eighth more. */
	NEED(mem_cgroup_set_max(active, size * 5 / 3 + 8192) == 0);
	block = realloc(block, size * 5 / 3);
	NEED(block && block[size - 1] == 7 && by_active == 1, "(%zu: %u)", size, by_active);
	is_charged_to(block, active, size);
	/* Nor is the block's own group asked twice, where the block would have to move. */
	NEED(mem_cgroup_set_max(active, drained(active) + size) == 0);
	by_active = 0;
	NEED(!realloc(block, size * 3) && by_active == 1, "(%zu: %u)", size, by_active);
	set_active_memcg(NULL);
	free(block);
	free(between);
	NEED(drained(objcg) == 0 && drained(active) == 0);
	mem_cgroup_put(objcg);
	mem_cgroup_put(active);
}

static void others_asked_once(void)
{
	static const size_t large[] = { 40000, 300000, 1126400, 2 << 20, 8 << 20 };

	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
		another_asked_once(large[i], 0);
		another_asked_once(large[i], MEM_CGROUP_PRIVATE);
	}
}

/* An object of a cache is no block of pages, at any size: the object moves. */
static void large_objects_move(struct mem_cgroup *group)
{
	struct kmem_cache *cache = kmem_cache_create("large", 40000, 0, 0, NULL);
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	set_active_memcg(group);
	p = realloc(p, 80000);
	set_active_memcg(NULL);
	is_charged_to(p, group, 80000);
	free(p);
	NEED(drained(group) == 0);
	kmem_cache_destroy(cache);
}

static void *frees_all(void *n)
{
	put_all((size_t)n);
	return NULL;
}

static void elsewhere(struct mem_cgroup *group)
{
	size_t bytes, n;
	pthread_t thread;

	set_active_memcg(group);
	n = get_all(&bytes);
	set_active_memcg(NULL);
	NEED(!pthread_create(&thread, NULL, frees_all, (void *)n));
	pthread_join(thread, NULL);
	NEED(drained(group) == 0);
}

/* The group ends, and the parent is charged for the remaining blocks. */
static void survived(void)
{
	struct mem_cgroup *above = group_below(NULL, "above"), *below = group_below(above, "below");
	size_t bytes, n;

	set_active_memcg(below);
	n = get_all(&bytes);
	set_active_memcg(NULL);
	mem_cgroup_put(below);
	NEED(drained(above) >= bytes);
	for (size_t i = 0; i < n; i++)
		is_charged_to(blocks[i], above, malloc_usable_size(blocks[i]));
	put_all(n);
	NEED(drained(above) == 0);
	mem_cgroup_put(above);
}

static void destroyed_at_once(void)
{
	struct mem_cgroup *group = private_group("private");
	size_t bytes;

	set_active_memcg(group);
	get_all(&bytes);
	put_all(SIZES);
	set_active_memcg(NULL);
	NEED(drained(group) >= bytes / 2);
	NEED(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
	NEED(drained(group) == 0, "(%lu)", (unsigned long)drained(group));
	mem_cgroup_put(group);
}

static void default_pays(struct mem_cgroup *group)
{
	mem_cgroup_set_default(group);
	void *p = malloc(100), *q = malloc(100000);

	is_charged_to(p, group, 100);
	is_charged_to(q, group, 100000);
	set_active_memcg(mem_cgroup_root());
	void *uncharged = malloc(100);
	is_charged_to(uncharged, NULL, 100);
	free(uncharged);
	set_active_memcg(NULL);
	free(p);
	free(q);
	mem_cgroup_set_default(NULL);
	NEED(drained(group) == 0);
}

/* For kmalloc the gfp decides, as before. */
static void kmalloc_is_as_ever(struct mem_cgroup *group)
{
	MEMCG_SCOPE(group);
	void *p = kmalloc(100, GFP_KERNEL), *q = kmalloc(100000, GFP_KERNEL);

	NEED(p && q && drained(group) == 0);
	kfree(p);
	kfree(q);
}

static void forked(struct mem_cgroup *group)
{
	set_active_memcg(group);
	void *p = malloc(1000);
	pid_t child = fork();

	NEED(child >= 0);
	if (!child) {
		void *q = malloc(1000);

		is_charged_to(q, group, 1000);
		free(p);
		free(q);
		NEED(drained(group) == 0);
		NEED(mem_cgroup_account_malloc(false) == 0);
		is_charged_to(malloc(10), NULL, 10);
		_exit(0);
	}
	int status;
	NEED(waitpid(child, &status, 0) == child && status == 0, "(%x)", status);
	is_charged_to(p, group, 1000);
	free(p);
	set_active_memcg(NULL);
	NEED(drained(group) == 0);
}

/*
 * Blocks of one size, allocated and freed in turns, are the same blocks: no memory is lost between charged and
 * uncharged classes.
 */
static void comes_back(struct mem_cgroup *group)
{
	for (int i = 0; i < 200; i++) {
		size_t bytes, n;

		NEED(mem_cgroup_account_malloc(i & 1) == 0);
		set_active_memcg(i & 2 ? group : NULL);
		n = get_all(&bytes);
		set_active_memcg(i & 4 ? group : NULL);
		put_all(n);
	}
	set_active_memcg(NULL);
	NEED(mem_cgroup_account_malloc(true) == 0);
	NEED(drained(group) == 0);
}

/* With the registry locked neither call waits, and both work afterwards. */
static int switches(struct kmem_cache *cache, void *visited)
{
	(void)cache;
	(*(int *)visited)++;
	NEED(mem_cgroup_account_malloc(true) == -EBUSY && mem_cgroup_account_malloc(false) == -EBUSY);
	/* The first one of all. */
	NEED(!mem_cgroup_account_all(true) && !mem_cgroup_account_all(false));
	return 1;
}

static void switched_in_a_visit(struct mem_cgroup *group)
{
	int visited = 0;
	MEMCG_SCOPE(group);

	kmem_for_each_cache(switches, &visited);
	NEED(visited == 1);
	NEED(!mem_cgroup_account_all(true) && mem_cgroup_account_all(false));
	void *p = malloc(100);
	is_charged_to(p, group, 100);
	free(p);
}

static void each(void)
{
	check_ours();
	if (mem_cgroup_account_malloc(true)) {
		/* Engine slob: objects are never charged. */
		NEED(mem_cgroup_account_malloc(true) == -EOPNOTSUPP && mem_cgroup_account_malloc(false) == -EOPNOTSUPP);
		return;
	}
	struct mem_cgroup *a = group_below(NULL, "a"), *b = group_below(NULL, "b");

	charged_by_each_function(a);
	charged_at_each_alignment(a);
	switched(a);
	between(a, b);
	taken_over(a);
	limited(a);
	refused_where_they_are(a);
	large_objects_move(a);
	asked_once();
	others_asked_once();
	elsewhere(a);
	survived();
	destroyed_at_once();
	default_pays(a);
	kmalloc_is_as_ever(a);
	forked(a);
	comes_back(b);
	switched_in_a_visit(a);
	NEED(mem_cgroup_account_malloc(false) == 0);
	NEED(kmem_check_all() == 0);
	mem_cgroup_put(a);
	mem_cgroup_put(b);
}

/*
 * The option switches charging on from the start; a group with the process's default charges malloc
 * in any case.
 */
static void from_the_start(void)
{
	struct mem_cgroup *group = group_below(NULL, "early");

	set_active_memcg(group);
	is_charged_to(malloc(100), group, 100);
	NEED(mem_cgroup_account_malloc(false) == 0);
	is_charged_to(malloc(100), NULL, 100);
}

static void by_the_process(void)
{
	NEED(mem_cgroup_account_malloc(true) == 0 && mem_cgroup_account_malloc(false) == 0);
	struct mem_cgroup *objcg = objcg_of(malloc(100));
	NEED(objcg && objcg != mem_cgroup_root());
}

/* Options with another path before the alloc ops, or in place of a hit. */
static const struct {
	const char *options;
	void (*run)(void);
} ways[] = {
	{ "engine:sheaf", each }, { "engine:slub", each }, { "engine:slab", each }, { "engine:slob", each },
	{ "hardened:1", each }, { "hardened:1,canary:1,random_caches:1,quarantine:1", each }, { "check:1", each },
	{ "memcg_shelf:0", each }, { "memcg_refill:drain", each }, { "memcg_hierarchy:v1", each },
	{ "index:cid", each }, { "guard:each", each }, { "profile:64K", each }, { "stats:1,engine:slub", each },
	{ "nodes:2", each },
	{ "account:malloc", from_the_start }, { "account:1", by_the_process },
};

int main(int argc, char **argv)
{
	const size_t count = sizeof(ways) / sizeof(ways[0]);

	for (size_t i = 0; argc > 1 && i < count; i++)
		if (!strcmp(argv[1], ways[i].options))
			ways[i].run();
	for (size_t i = 0; argc == 1 && i < count; i++) {
		int status = again(argv[0], ways[i].options, ways[i].options);

		CHECK(status == 0, "%s: status %#x", ways[i].options, (unsigned)status);
	}
	return failures != 0;
}
