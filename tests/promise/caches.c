/*
 * caches.c: caches keep the promises of <kmem/kmem.h> and of the kernel's documentation: all forms of creation and
 * their errors, constructors, typesafe caches, min_partial, destruction with allocated objects, bulk requests, zeros,
 * shrinking, statistics. Disciplines: all. With hardened: own_addresses:0,random_order:0,decay:3600000, because the
 * test expects freed slabs and objects in the order of addresses.
 */
#include <limits.h>

#include "kit/api.h"
#include "kit/clock.h"

/* ------------------------------------------------------------------ creation */

struct pair {
	long a, b;
	char text[20];
};

static void use(struct kmem_cache *cache, unsigned size, unsigned align)
{
	void *objects[100];

	NEED(cache && kmem_cache_size(cache) == size);
	for (int i = 0; i < 100; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(objects[i] && (uintptr_t)objects[i] % align == 0);
		memset(objects[i], i, size);
	}
	for (int i = 0; i < 100; i++) {
		NEED(all(objects[i], i, size));
		kmem_cache_free(cache, objects[i]);
	}
	gone(cache);
}

static void forms(void)
{
	struct kmem_cache_args args = { .align = 64, .useroffset = 8, .usersize = 16 };
	static const char *const engines[] = { KM_ENGINE_NAMES };
	struct kmem_cache_args chosen = { .engine = NULL };
	struct kmem_cache_stats stats;

	use(kmem_cache_create("null args", 100, NULL, 0), 100, 8);
	use(kmem_cache_create("args", 100, &args, 0), 100, 64);
	use(kmem_cache_create("legacy", 100, 32, 0, NULL), 100, 32);
	use(kmem_cache_create_usercopy("usercopy", 100, 16, 0, 8, 16, NULL), 100, 16);
	use(KMEM_CACHE(pair, 0), sizeof(struct pair), _Alignof(struct pair));
	use(KMEM_CACHE_USERCOPY(pair, 0, text), sizeof(struct pair), _Alignof(struct pair));
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		chosen.engine = engines[i];
		struct kmem_cache *cache = kmem_cache_create("engine", 50, &chosen, 0);

		NEED(cache);
		kmem_cache_get_stats(cache, &stats);
		NEED(strcmp(stats.engine, engines[i]) == 0);
		use(cache, 50, 8);
	}
}

static void every_size(void)
{
	for (unsigned size = 1; size <= 300; size++)
		use(make("small", size), size, 8);
	for (unsigned size = 301; size < 70000; size = size * 5 / 4 + 3)
		use(make("larger", size), size, 8);
	struct kmem_cache *cache = make("largest", KMALLOC_MAX_SIZE);
	char *p = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(p);
	p[0] = p[KMALLOC_MAX_SIZE - 1] = 1;
	kmem_cache_free(cache, p);
	gone(cache);
}

static void alignment(void)
{
	for (unsigned align = 1; align <= 4096; align *= 2)
		for (unsigned size = 1; size < 5000; size = size * 2 + 1)
			use(kmem_cache_create("aligned", size, align, 0, NULL), size, align);
	/* To the cache line, halved while two objects fit. */
	use(kmem_cache_create("line", 20, 0, SLAB_HWCACHE_ALIGN, NULL), 20, 32);
	use(kmem_cache_create("line", 33, 0, SLAB_HWCACHE_ALIGN, NULL), 33, 64);
	use(kmem_cache_create("line", 8, 0, SLAB_HWCACHE_ALIGN, NULL), 8, 8);
	use(kmem_cache_create("line", 200, 128, SLAB_HWCACHE_ALIGN, NULL), 200, 128);
}

static void names(void)
{
	char text[] = "a name that is longer than thirty-one bytes";
	struct kmem_cache *cache = make(text, 40);

	/* The cache copies the name, cut and without blanks, because slabinfo has one column for the name. */
	memset(text, 'x', sizeof(text) - 1);
	NEED(strcmp(kmem_cache_name(cache), "a_name_that_is_longer_than_thir") == 0);
	use(cache, 40, 8);
}

static const struct {
	const char *name;
	unsigned size;
	struct kmem_cache_args args;
	slab_flags_t flags;
} wrong[] = {
	{ NULL, 10, { 0 }, 0 },
	{ "", 10, { 0 }, 0 },
	{ "x", 0, { 0 }, 0 },
	{ "x", KMALLOC_MAX_SIZE + 1, { 0 }, 0 },
	{ "x", 10, { 0 }, 1 },
	{ "x", 10, { 0 }, ~SLAB_FLAGS_PERMITTED },
	{ "x", 10, { .align = 3 }, 0 },
	{ "x", 10, { .align = 8192 }, 0 },
	{ "x", 10, { .sheaf_capacity = 1023 }, 0 },
	{ "x", 10, { .engine = "nosuch" }, 0 },
	{ "x", 16, { .use_freeptr_offset = true }, 0 },
	{ "x", 16, { .use_freeptr_offset = true, .freeptr_offset = 16 }, SLAB_TYPESAFE_BY_RCU },
	{ "x", 16, { .use_freeptr_offset = true, .freeptr_offset = 3 }, SLAB_TYPESAFE_BY_RCU },
};
static unsigned wrong_turn;

static void create_wrong(void)
{
	errno = 0;
	if (kmem_cache_create(wrong[wrong_turn].name, wrong[wrong_turn].size,
			      &wrong[wrong_turn].args, wrong[wrong_turn].flags))
		_exit(1);
	_exit(errno == EINVAL ? 0 : 2);
}

static void create_or_die(void)
{
	if (kmem_cache_create("must be", 0, NULL, SLAB_PANIC))
		_exit(1);
	_exit(2);
}

static void errors(void)
{
	char text[4096];
	int lines;

	for (wrong_turn = 0; wrong_turn < sizeof(wrong) / sizeof(wrong[0]); wrong_turn++) {
		int status = said(create_wrong, text, &lines);

		if (status || lines != 1)
			printf("     wrong[%u]: status %#x, %s\n", wrong_turn, (unsigned)status, text);
		NEED(status == 0 && lines == 1);
	}
	int status = said(create_or_die, text, &lines);
	NEED(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1);
	NEED(strstr(text, "must_be"));
}

static void create_odd(void)
{
	struct kmem_cache *a = kmem_cache_create_usercopy("odd", 100, 0, 0, 90, 20, NULL);
	struct kmem_cache *b = make("odd", 100);
	void *p = kmem_cache_alloc(a, GFP_KERNEL);

	NEED(a != b && p && (slob || kmem_cache_of(p) == a));
	kmem_cache_free(a, p);
	kmem_cache_destroy(a);
	kmem_cache_destroy(b);
}

/* A bad usercopy region counts as none, with a line; a second cache of one name is another cache, with a line. */
static void oddities(void)
{
	char text[4096];
	int lines;

	NEED(said(create_odd, text, &lines) == 0);
	NEED(lines == 2 && strstr(text, "usercopy") && strstr(text, "exists"));
}

static void all_flags(void)
{
	for (unsigned bit = 0; bit < 32; bit++) {
		slab_flags_t flag = (slab_flags_t)1 << bit;

		if (!(flag & SLAB_FLAGS_PERMITTED))
			continue;
		struct kmem_cache *cache = kmem_cache_create("flag", 100, NULL, flag);
		NEED(cache);
		void *p = kmem_cache_alloc(cache, GFP_KERNEL), *q = kmem_cache_zalloc(cache, GFP_KERNEL);
		NEED(p && q && p != q && all(q, 0, 100));
		kmem_cache_free(cache, p);
		kmem_cache_free(cache, q);
		kmem_cache_destroy(cache);
	}
	/* Flags of programs for older kernels. */
	slab_flags_t old = SLAB_MEM_SPREAD | SLAB_DEBUG_OBJECTS | SLAB_KASAN | SLAB_TEMPORARY;
	use(kmem_cache_create("old", 100, NULL, old), 100, 8);
	NEED(SLAB_DESTROY_BY_RCU == SLAB_TYPESAFE_BY_RCU);
	NEED(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ constructors, typesafe caches */

static unsigned long constructed;

static void construct(void *object)
{
	constructed++;
	memset(object, 0x77, 120);
}

static void constructor(void)
{
	struct kmem_cache *cache = kmem_cache_create("built", 120, 0, 0, construct);
	struct kmem_cache_stats stats;
	unsigned char *objects[300];

	NEED(constructed == 0);
	for (int i = 0; i < 300; i++) {
		objects[i] = kmem_cache_alloc(cache, i % 2 ? GFP_KERNEL : GFP_KERNEL | __GFP_ZERO);
		NEED(objects[i] && all(objects[i], 0x77, 120));
	}
	kmem_cache_get_stats(cache, &stats);
	/*
	 * The constructor runs once for each object, also for objects of freed slabs: a busy machine may
	 * free slabs as idle.
	 */
	NEED(constructed == (slob ? stats.total_objects : stats.alloc_slab * stats.objects_per_slab));
	/* Given back in constructed state, they come again without another call. */
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 300; i++)
			kmem_cache_free(cache, objects[i]);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 300, (void **)objects));
		for (int i = 0; i < 300; i++)
			NEED(all(objects[i], 0x77, 120));
	}
	NEED(slob || ksize(objects[0]) == 120);
	kmem_cache_free_bulk(cache, 300, (void **)objects);
	gone(cache);
}

/* The memory keeps the type until the end of the cache: a late reader sees an object of the type. */
static void typesafe(void)
{
	struct kmem_cache *cache = kmem_cache_create("typed", 64, 0, SLAB_TYPESAFE_BY_RCU, NULL);
	struct kmem_cache *other = make("other", 64);
	static char *objects[2000];
	static void *more[20000];

	for (int i = 0; i < 2000; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(objects[i]);
		memset(objects[i], 0x42, 64);
	}
	for (int i = 0; i < 2000; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_shrink(cache);
	kmem_shrink_all();
	for (int i = 0; i < 20000; i++) {
		more[i] = kmem_cache_alloc(other, GFP_KERNEL);
		NEED(more[i]);
		memset(more[i], 0x99, 64);
	}
	for (int i = 0; i < 2000; i++)
		NEED(all(objects[i], 0x42, 64));
	kmem_cache_free_bulk(other, 20000, more);
	gone(other);
	kmem_cache_destroy(cache);
	NEED(kmem_check_all() == 0);
}

/* The free pointer is at the user's offset, and nowhere else. */
static void freeptr(void)
{
	struct kmem_cache_args args = { .use_freeptr_offset = true, .freeptr_offset = 16 };
	struct kmem_cache *cache = kmem_cache_create("freeptr", 64, &args, SLAB_TYPESAFE_BY_RCU);
	char *objects[500];

	NEED(cache);
	for (int i = 0; i < 500; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		memset(objects[i], 0x24, 64);
	}
	for (int i = 0; i < 500; i++)
		kmem_cache_free(cache, objects[i]);
	for (int i = 0; i < 500; i++)
		NEED(all(objects[i], 0x24, 16) && all(objects[i] + 24, 0x24, 40));
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ destruction, shrinking */

static struct kmem_cache *left_cache;
static char *left_object;

static void destroy_with_objects(void)
{
	left_cache = make("leftovers", 100);
	left_object = kmem_cache_alloc(left_cache, GFP_KERNEL);
	void *second = kmem_cache_alloc(left_cache, GFP_KERNEL);

	memset(left_object, 5, 100);
	errno = 0;
	kmem_cache_destroy(left_cache);
	NEED(errno == EBUSY);
	/* The leaked memory keeps its contents, and is never allocated again. */
	struct kmem_cache *again = make("leftovers2", 100);
	static void *objects[5000];
	NEED(kmem_cache_alloc_bulk(again, GFP_KERNEL, 5000, objects));
	for (int i = 0; i < 5000; i++) {
		NEED(objects[i] != left_object && objects[i] != second);
		memset(objects[i], 6, 100);
	}
	NEED(all(left_object, 5, 100));
	kmem_cache_free_bulk(again, 5000, objects);
	gone(again);
	errno = EINTR;
	kmem_cache_destroy(NULL);
	kmem_cache_destroy(make("empty", 100));
	NEED(errno == EINTR);
}

static void destruction(void)
{
	char text[4096], address[32];
	int lines;

	NEED(said(destroy_with_objects, text, &lines) == 0);
	NEED(strstr(text, "leftovers") && strstr(text, "still has objects"));
	NEED(strstr(text, "2 objects") && lines >= 2);
	snprintf(address, sizeof(address), "%s", "object 0x");
	NEED(slob || (strstr(text, address) && lines >= 3));
}

static void shrinking(void)
{
	struct kmem_cache *cache = make("shrinks", 500);
	struct kmem_cache_stats stats;
	static void *objects[1000];

	NEED(kmem_cache_shrink(cache) == 0);
	NEED(kmem_cache_set_min_partial(cache, 100) == 0);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 1000, objects));
	/* A cache of slob has no slabs. */
	NEED(kmem_cache_shrink(cache) == !slob);
	void *last = objects[999];
	kmem_cache_free_bulk(cache, 999, objects);
	NEED(kmem_cache_shrink(cache) == !slob);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.total_slabs == !slob && stats.active_objects == 1);
	kmem_cache_free(cache, last);
	NEED(kmem_shrink_all() > 0);
	gone(cache);
}

static void min_partial(void)
{
	struct kmem_cache *cache = make("partial", 256);
	struct kmem_cache_stats stats;

	NEED(kmem_cache_min_partial(cache) == 5);
	NEED(kmem_cache_min_partial(cache) >= 5 && kmem_cache_min_partial(cache) <= 10);
	NEED(kmem_cache_set_min_partial(cache, 0) == 0 && kmem_cache_min_partial(cache) == 0);
	NEED(kmem_cache_set_min_partial(cache, 1048576) == 0);
	NEED(kmem_cache_set_min_partial(cache, 1048577) == -EINVAL);
	NEED(kmem_cache_min_partial(cache) == 1048576);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.min_partial == 1048576);
	gone(cache);
}

static int try_in_visit(struct kmem_cache *cache, void *arg)
{
	return *(int *)arg = kmem_set_min_partial_rule("size");
}

/*
 * The rule holds for the whole process from now on: for existing caches without a min_partial of their own, and for
 * new caches.
 */
static void min_partial_rule(void)
{
	struct kmem_cache *small = make("rule 64", 64), *large = make("rule 4096", 4096), *own = make("rule own", 4096);
	int result = 0;

	NEED(strcmp(kmem_min_partial_rule(), "half") == 0);
	NEED(kmem_cache_set_min_partial(own, 3) == 0);
	NEED(kmem_set_min_partial_rule("size") == 0 && strcmp(kmem_min_partial_rule(), "size") == 0);
	struct kmem_cache *later = make("rule later", 1024);
	NEED(kmem_cache_min_partial(small) == 6 && kmem_cache_min_partial(large) == 10);
	NEED(kmem_cache_min_partial(later) == 10 && kmem_cache_min_partial(own) == 3);
	NEED(kmem_set_min_partial_rule("static") == 0 && kmem_cache_min_partial(large) == 5);
	NEED(kmem_cache_min_partial(own) == 3);
	NEED(kmem_set_min_partial_rule("other") == -EINVAL && kmem_set_min_partial_rule(NULL) == -EINVAL);
	NEED(kmem_for_each_cache(try_in_visit, &result) == -EBUSY && result == -EBUSY);
	NEED(strcmp(kmem_min_partial_rule(), "static") == 0);
	NEED(kmem_set_min_partial_rule("half") == 0 && kmem_cache_min_partial(large) == 6);
	gone(small);
	gone(large);
	gone(own);
	gone(later);
}

/* ------------------------------------------------------------------ zeros, bulk, nodes */

static void zeros(void)
{
	static volatile gfp_t zero = GFP_KERNEL | __GFP_ZERO;

	for (unsigned size = 8; size <= 16384; size = size * 2 + 8) {
		struct kmem_cache *cache = make("zeros", size);
		void *objects[50];

		for (int round = 0; round < 4; round++) {
			for (int i = 0; i < 50; i++) {
				objects[i] = i % 3 == 0 ? kmem_cache_zalloc(cache, GFP_KERNEL) :
					     i % 3 == 1 ? kmem_cache_alloc(cache, zero) :
							  kmem_cache_alloc_inline(cache, zero);
				NEED(objects[i] && all(objects[i], 0, size));
				memset(objects[i], 0xff, size);
			}
			kmem_cache_free_bulk(cache, 50, objects);
			NEED(kmem_cache_alloc_bulk(cache, zero, 50, objects));
			for (int i = 0; i < 50; i++) {
				NEED(all(objects[i], 0, size));
				memset(objects[i], 0xff, size);
			}
			for (int i = 0; i < 50; i++)
				kmem_cache_free(cache, objects[i]);
		}
		gone(cache);
	}
}

static int by_address(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return (x > y) - (x < y);
}

static void bulk(void)
{
	struct kmem_cache *cache = make("bulk", 200);
	struct kmem_cache_stats stats;
	static void *objects[3000];

	objects[0] = &objects;
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL, 0, objects) && objects[0] == &objects);
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, SIZE_MAX, objects));
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, SIZE_MAX / 8, objects));
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, (size_t)INT_MAX + 1, objects));
	kmem_cache_free_bulk(cache, 0, objects);
	for (size_t n = 1; n < 3000; n = n * 3 / 2 + 1) {
		/* The result is a count, as in Linux up to 7.1. */
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects) == (int)n);
		kmem_cache_get_stats(cache, &stats);
		NEED(stats.active_objects == n);
		for (size_t i = 0; i < n; i++)
			memset(objects[i], (int)i, 200);
		for (size_t i = 0; i < n; i++)
			NEED(all(objects[i], (int)(i & 0xff), 200));
		qsort(objects, n, sizeof(objects[0]), by_address);
		for (size_t i = 1; i < n; i++)
			NEED((char *)objects[i] - (char *)objects[i - 1] >= 200);
		kmem_cache_free_bulk(n % 2 || slob ? cache : NULL, n, objects);
		kmem_cache_get_stats(cache, &stats);
		NEED(stats.active_objects == 0);
	}
	/* NULL entries are passed over, wherever they are. */
	for (int every = 1; every < 5; every++) {
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects));
		for (int i = 0; i < 100; i += every) {
			kmem_cache_free(cache, objects[i]);
			objects[i] = NULL;
		}
		kmem_cache_free_bulk(cache, 100, objects);
	}
	gone(cache);
}

static void nodes(void)
{
	struct kmem_cache *cache = make("nodes", 100);
	const gfp_t quiet = GFP_KERNEL | __GFP_NOWARN;
	void *objects[4] = {
		kmem_cache_alloc_node(cache, GFP_KERNEL, NUMA_NO_NODE),
		kmem_cache_alloc_node(cache, GFP_KERNEL, 0),
		kmem_cache_alloc_node(cache, GFP_KERNEL | __GFP_THISNODE, 0),
		kmem_cache_alloc_node(cache, quiet, 5),
	};

	for (int i = 0; i < 4; i++)
		NEED(objects[i]);
	errno = 0;
	NEED(!kmem_cache_alloc_node(cache, quiet | __GFP_THISNODE, 5) && errno == ENOMEM);
	kmem_cache_free_bulk(cache, 4, objects);
	gone(cache);
}

/* ------------------------------------------------------------------ numbers */

static int count_object(void *object, void *arg)
{
	(*(unsigned long *)arg)++;
	return *(unsigned char *)object != 0x61;
}

static int find_cache(struct kmem_cache *cache, void *arg)
{
	return cache == arg ? 42 : 0;
}

static void numbers(void)
{
	struct kmem_cache *cache = make("numbers", 300);
	struct kmem_cache_stats stats;
	unsigned long walked = 0;
	static void *objects[777];

	for (int i = 0; i < 777; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		memset(objects[i], 0x61, 300);
	}
	for (int i = 700; i < 777; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 700 && stats.object_size == 300 && stats.size >= 300);
	NEED(stats.total_objects >= (slob ? 700 : 777) && strcmp(stats.name, "numbers") == 0);
	NEED(slob || stats.total_slabs * stats.objects_per_slab >= stats.total_objects);
	NEED(slob || stats.alloc_slab - stats.free_slab == stats.total_slabs);
	int walk = kmem_cache_walk(cache, count_object, &walked);
	NEED(slob ? walk == -EOPNOTSUPP && walked == 0 : walk == 0 && walked == 700);
	NEED(kmem_for_each_cache(find_cache, cache) == 42);
	NEED(kmem_cache_of(objects[5]) == (slob ? NULL : cache) && !kmem_cache_of(&cache));
	NEED(!kmem_cache_of((char *)objects[5] + 1));
	NEED(strcmp(kmem_version(), KMEM_VERSION) == 0 && slab_is_available());
	for (int i = 0; i < 700; i++)
		kmem_cache_free(cache, objects[i]);
	gone(cache);
	NEED(kmem_for_each_cache(find_cache, cache) == 0);
}

static void keeps_errno(void)
{
	struct kmem_cache *cache = make("errno", 1000);
	static void *objects[2000];

	for (int i = 0; i < 2000; i++)
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
	errno = 77;
	for (int i = 0; i < 1000; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_free_bulk(cache, 1000, objects + 1000);
	NEED(errno == 77);
	gone(cache);
}

/* ------------------------------------------------------------------ very many */

static void many_caches(void)
{
	enum { MANY = 100000 };
	static struct kmem_cache *caches[MANY];
	static void *objects[MANY];
	struct kmem_stats stats;
	unsigned long before;
	char name[32];

	kmem_get_stats(&stats);
	before = stats.caches;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many-%d", i);
		caches[i] = kmem_cache_create(name, 8u + (unsigned)i % 500, NULL, 0);
		NEED(caches[i]);
		if (i % 16 == 0 || i > MANY - 100) {
			objects[i] = kmem_cache_alloc(caches[i], GFP_KERNEL);
			NEED(objects[i]);
			*(int *)objects[i] = i;
		}
	}
	kmem_get_stats(&stats);
	NEED(stats.caches == before + MANY);
	for (int i = 0; i < MANY; i++) {
		if (objects[i]) {
			NEED(*(int *)objects[i] == i);
			NEED(slob || kmem_cache_of(objects[i]) == caches[i]);
			kmem_cache_free(caches[i], objects[i]);
		}
		kmem_cache_destroy(caches[i]);
	}
	kmem_get_stats(&stats);
	NEED(stats.caches == before && kmem_check_all() == 0);
	use(make("afterwards", 100), 100, 8);
}

static const struct test_case cases[] = {
	{ "the forms of creation", forms },
	{ "every size", every_size },
	{ "alignment", alignment },
	{ "names", names },
	{ "errors of creation", errors },
	{ "a bad usercopy region, a second of the name", oddities },
	{ "every flag", all_flags },
	{ "constructor", constructor },
	{ "typesafe", typesafe },
	{ "freeptr_offset", freeptr },
	{ "destruction with objects left", destruction },
	{ "shrinking", shrinking },
	{ "min_partial", min_partial },
	{ "the rule for min_partial", min_partial_rule },
	{ "zeros", zeros },
	{ "bulk", bulk },
	{ "nodes", nodes },
	{ "numbers", numbers },
	{ "errno is kept", keeps_errno },
	{ "100000 caches", many_caches },
};

API_MAIN(cases)
