/*
 * failslab: allocations that fail on purpose: each setting selects the right allocations; the same seed selects the
 * same allocations; each function of kmem_cache, kmalloc and malloc returns NULL with ENOMEM, and the state stays
 * valid. A cache without failures keeps its fast path. Each case runs in a process of its own with KMEM_FAILSLAB, for
 * each engine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "slab/engines.h"
#include "alloc/fast_path.h"
#include "kit/check.h"
#include "kit/options.h"

#define SET(words) NEED(kmem_failslab(words) == 0)
#define QUIET "verbose=0,ignore-gfp-wait=N,"

static bool slob;

/* Bit mask of the failed calls; the lowest bit is the last of 64. */
static uint64_t pattern(struct kmem_cache *cache)
{
	uint64_t failed = 0;

	for (int i = 0; i < 64; i++) {
		errno = 0;
		void *p = kmem_cache_alloc(cache, GFP_KERNEL);

		NEED(p || errno == ENOMEM);
		failed = failed << 1 | !p;
		if (p)
			kmem_cache_free(cache, p);
	}
	return failed;
}

static struct kmem_cache *make(const char *name, slab_flags_t flags)
{
	struct kmem_cache *cache = kmem_cache_create(name, 64, NULL, flags);

	NEED(cache);
	return cache;
}

/* ------------------------------------------------------------------ settings; "1,0,0,0" marks all caches */

static void numbers(void)
{
	struct kmem_cache *cache = make("numbers", 0);
	unsigned long before = kmem_failslab_failures();

	CHECK_EQUAL(pattern(cache), 0);
	SET(QUIET "1,100,0,-1");
	CHECK_EQUAL(pattern(cache), UINT64_MAX);
	CHECK_EQUAL(kmem_failslab_failures() - before, 64);
	/* Each second one; three of them; the first 640 bytes are spared. */
	SET(QUIET "2,100,0,-1");
	CHECK_EQUAL(pattern(cache), 0x5555555555555555);
	SET(QUIET "2,100,0,3");
	CHECK_EQUAL(pattern(cache), 0x5400000000000000);
	SET(QUIET "1,100,640,1");
	CHECK_EQUAL(__builtin_clzl(pattern(cache)), 9);
	SET(QUIET "probability=100");
	CHECK_EQUAL(pattern(cache), 1ul << 63);
	SET(QUIET "fail-nth=5");
	CHECK_EQUAL(pattern(cache), 1ul << 59);
	SET(NULL);
	CHECK_EQUAL(pattern(cache), 0);
	SET("verbose=0,1,100,0,-1");
	CHECK_EQUAL(pattern(cache), 0);
	NEED(!kmem_cache_alloc(cache, GFP_NOWAIT));
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_ATOMIC | __GFP_NOFAIL));
	SET(QUIET "1,100,0,-1");
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOFAIL));
	SET("");
	kmem_cache_destroy(cache);
}

static void seeds(void)
{
	struct kmem_cache *cache = make("seeds", 0);

	SET(QUIET "seed=42,1,50,0,-1");
	uint64_t first = pattern(cache), second = pattern(cache);
	SET(QUIET "seed=42,1,50,0,-1");
	CHECK_EQUAL(pattern(cache), first);
	CHECK_EQUAL(pattern(cache), second);
	SET(QUIET "seed=43,1,50,0,-1");
	CHECK(pattern(cache) != first);
	CHECK(first != second && __builtin_popcountl(first) > 16 && __builtin_popcountl(first) < 48);
	SET("");
	kmem_cache_destroy(cache);
}

static void bad_words(void)
{
	static const char *const bad[] = {
		"1,2,3,4,5", "x", "probability=101", "probability", "interval=", "interval=1x", "times=-2", "seed=y",
		"ignore-gfp-wait=2", "verbose=3", "cache=", "space=18446744073709551616", "fail-nth=0x", "=1",
	};
	struct kmem_cache *cache = make("bad", 0);

	SET(QUIET "1,100,0,-1");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK(kmem_failslab(bad[i]) == -EINVAL, "%s", bad[i]);
	char longest[600];
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CHECK(kmem_failslab(longest) == -EINVAL);
	CHECK_EQUAL(pattern(cache), UINT64_MAX);
	SET("require-start=0x10,require-end=0xffff,,");
	SET(QUIET "1,100,0,-1,cache=other,cache=b?d,cache=*e*");
	CHECK_EQUAL(pattern(cache), 0);
	SET(QUIET "1,100,0,-1,cache=other,cache=*a*d");
	CHECK_EQUAL(pattern(cache), UINT64_MAX);
	SET("");
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ functions */

/* Each call fails with the setting, and succeeds without. */
#define FAILS(expression)                                                                          \
	do {                                                                                       \
		SET(QUIET "1,100,0,-1");                                                           \
		errno = 0;                                                                         \
		CHECK(!(expression) && errno == ENOMEM, "fails");                                  \
		SET("");                                                                           \
		errno = 77;                                                                        \
		void *p_ = (void *)(expression);                                                   \
		CHECK(p_ && errno == 77, "works again");                                           \
		free(p_);                                                                          \
	} while (0)

static void doors(void)
{
	static const size_t sizes[] = { 1, 64, 1000, 8192, 8193, 40000, 100000, 3 << 20, 9 << 20 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t size = sizes[i];

		for (int round = 0; round < 20; round++)
			free(malloc(size));
		FAILS(malloc(size));
		FAILS(calloc(1, size));
		FAILS(aligned_alloc(64, size));
		FAILS(memalign(8192, size));
		FAILS(kvmalloc(size, GFP_KERNEL));
		if (size > KMALLOC_MAX_SIZE)
			continue;
		FAILS(kmalloc(size, GFP_KERNEL));
		FAILS(kzalloc(size, GFP_KERNEL));
		FAILS(kmalloc(size, GFP_KERNEL_ACCOUNT));
	}
}

/* A block that cannot grow stays unchanged. */
static void reallocs(void)
{
	for (size_t size = 16; size < 8 << 20; size *= 4) {
		char *p = malloc(size);

		NEED(p);
		memset(p, 0x5a, size);
		SET(QUIET "1,100,0,-1");
		errno = 0;
		NEED(!realloc(p, 4 * size + 100) && errno == ENOMEM);
		for (size_t i = 0; i < size; i++)
			NEED(p[i] == 0x5a);
		SET("");
		p = realloc(p, 4 * size + 100);
		NEED(p && p[size - 1] == 0x5a);
		free(p);
	}
}

static void many(void)
{
	struct kmem_cache *cache = make("many", 0);
	struct kmem_cache_stats stats;
	void *objects[100];

	SET(QUIET "1,100,0,1");
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects));
	/* Asked once for all of them. */
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects));
	kmem_cache_free_bulk(cache, 100, objects);
	SET(QUIET "fail-nth=50");
	bool got = kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_ZERO, 100, objects);
	if (got)
		kmem_cache_free_bulk(cache, 100, objects);
	SET(QUIET "1,100,0,-1");
	NEED(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 10));
	SET("");
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 10);
	SET(QUIET "1,100,0,-1");
	for (int i = 0; i < 10; i++)
		NEED((objects[i] = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaf)));
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
	kmem_cache_free_bulk(cache, 10, objects);
	SET("");
	kmem_cache_shrink(cache);
	kmem_cache_get_stats(cache, &stats);
	NEED(!stats.active_objects && !stats.total_slabs && kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

/* A failed request leaves no charge. */
static void groups(void)
{
	struct mem_cgroup *group = slob ? NULL : mem_cgroup_create(NULL, "group", 0);
	struct kmem_cache *cache = make("charged", SLAB_ACCOUNT);

	if (!group)
		return;
	struct mem_cgroup *former = set_active_memcg(group);
	SET(QUIET "1,50,0,-1,seed=1");
	for (int i = 0; i < 20; i++) {
		uint64_t failed = pattern(cache);

		NEED(failed && ~failed);
		void *p = kmalloc(100, GFP_KERNEL_ACCOUNT);
		kfree(p);
	}
	SET("");
	set_active_memcg(former);
	mem_cgroup_put(group);
	kmem_cache_destroy(cache);
	NEED(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ callers */

static __attribute__((noinline, aligned(64))) void *from_here(struct kmem_cache *cache)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	__asm__ volatile("" : "+r"(p));
	return p;
}

static __attribute__((noinline, aligned(64))) void *from_there(struct kmem_cache *cache)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
}

/* A symbol known to the dynamic linker. */
__attribute__((noinline, visibility("default"))) void *failslab_test_caller(struct kmem_cache *cache)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	__asm__ volatile("" : "+r"(p) : : "memory", "cc");
	return p;
}

static void callers(void)
{
	struct kmem_cache *cache = make("callers", 0);
	uintptr_t here = (uintptr_t)from_here;
	char words[128];

	snprintf(words, sizeof(words), QUIET "1,100,0,-1,require-start=0x%lx,require-end=0x%lx", here, here + 64);
	NEED(kmem_failslab(words) == 0);
	CHECK(!from_here(cache));
	void *p = from_there(cache);
	CHECK(p);
	kmem_cache_free(cache, p);
	SET(QUIET "1,100,0,-1,caller=failslab_test_*");
	CHECK(!failslab_test_caller(cache));
	p = from_there(cache);
	CHECK(p);
	kmem_cache_free(cache, p);
	SET(QUIET "1,100,0,-1,caller=no_such_function,caller=failslab");
	CHECK(!from_there(cache));
	SET("");
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ which caches */

static bool has_pcs(const struct kmem_cache *cache)
{
	return cache->fast.pcs.slot != 0;
}

/* Caches with the flag, and with `named` this cache. */
static void only(bool named)
{
	struct kmem_cache *one = make("chosen-one", 0), *other = make("another", 0);
	struct kmem_cache *flagged = make("flagged", SLAB_FAILSLAB);

	SET(QUIET "1,100,0,-1");
	CHECK_EQUAL(pattern(one), named ? UINT64_MAX : 0);
	CHECK_EQUAL(pattern(flagged), UINT64_MAX);
	CHECK_EQUAL(pattern(other), 0);
	void *p = malloc(50), *q = kmalloc(50, GFP_KERNEL), *large = malloc(100000);
	CHECK(p && q && large);
	free(p);
	kfree(q);
	free(large);
	CHECK(!has_pcs(flagged) && (!named || !has_pcs(one)));
	CHECK(has_pcs(other) == (other->layout.engine->front == KM_PERCPU_SHEAVES));
	SET("");
	kmem_cache_destroy(one);
	kmem_cache_destroy(other);
	kmem_cache_destroy(flagged);
}

static void by_name(void) { only(true); }
static void by_mark(void) { only(false); }

static const struct {
	const char *name, *settings;
	void (*run)(void);
} cases[] = {
	{ "numbers", "1,0,0,0", numbers },
	{ "seeds", "1,0,0,0", seeds },
	{ "bad words", "1,0,0,0", bad_words },
	{ "doors", "1,0,0,0", doors },
	{ "reallocs", "1,0,0,0", reallocs },
	{ "many", "1,0,0,0", many },
	{ "groups", "1,0,0,0", groups },
	{ "callers", "1,0,0,0", callers },
	{ "by name", "cache=chosen-*", by_name },
	{ "marked", "cache-filter=Y", by_mark },
};

/* The case ran, in a process with these settings. */
static bool ran(char *program, const char *engine, const char *more, size_t i)
{
	char options[64], number[8];
	int status;
	pid_t child = fork();

	if (!child) {
		snprintf(options, sizeof(options), "engine:%s%s", engine, more);
		snprintf(number, sizeof(number), "%zu", i);
		set_options(options);
		setenv("KMEM_FAILSLAB", cases[i].settings, 1);
		execl(program, program, engine, number, (char *)NULL);
		_exit(127);
	}
	NEED(waitpid(child, &status, 0) == child);
	if (status)
		printf("FAIL %s: %s: status 0x%x\n", engine, cases[i].name, status);
	return !status;
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };

	if (argc == 3) {
		slob = !strcmp(argv[1], "slob");
		cases[atoi(argv[2])].run();
		return failures != 0;
	}
	for (size_t e = 0; e < sizeof(engines) / sizeof(*engines); e++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
			failures += !ran(argv[0], engines[e], "", i);
	/* Where each eligible object is guarded. */
	failures += !ran(argv[0], "sheaf", ",guard:each", 0);
	return failures != 0;
}
