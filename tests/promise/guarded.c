/*
 * guarded: guarded objects behave as objects: sizes, zeros, constructors, resizing, walking, statistics; objects
 * that are never guarded; a cache with hits only is sampled, and its fast path is open again afterwards; other
 * faults end the process as without guards; with refused system calls no request fails. Not with hardened: hits by
 * the public sheaf are looked at, which is closed.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kit/cases.h"
#include "kit/clock.h"

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "os/os.h"

static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

static struct kmem_cache *cache_of(const char *name, unsigned size, slab_flags_t flags, void (*ctor)(void *))
{
	struct kmem_cache_args args = { .ctor = ctor };
	struct kmem_cache *cache = kmem_cache_create(name, size, &args, flags);

	NEED(cache);
	return cache;
}

static void *guarded(void *p)
{
	NEED(p && km_is_guarded(p));
	return p;
}

/* ------------------------------------------------------------------ guard:each */

static bool is_zero(const char *p, size_t bytes)
{
	while (bytes && !*p)
		p++, bytes--;
	return !bytes;
}

static void sizes(void)
{
	for (size_t size = 1; size <= 4096; size = size * 3 / 2 + 1) {
		char *p = guarded(kmalloc(size, GFP_KERNEL)), *z = guarded(kzalloc(size, GFP_KERNEL));
		char *m = guarded(malloc(size)), *c = guarded(calloc(1, size));
		bool sized = kmem_cache_of(p)->layout.engine->shared_pages;

		memset(p, 1, size);
		memset(m, 1, size);
		CHECK(ksize(p) == size && malloc_usable_size(m) == size);
		CHECK(is_zero(z, size) && is_zero(c, size));
		CHECK(!((uintptr_t)m & 15) && !((uintptr_t)p & 7));
		CHECK(sized || kmem_cache_of(p)->layout.object_size >= size);
		m = realloc(m, size * 2 + 1);
		CHECK(m && m[0] == 1 && m[size - 1] == 1);
		m[size * 2] = 1;
		p = krealloc(p, size * 2, GFP_KERNEL);
		CHECK(p && p[0] == 1 && p[size - 1] == 1);
		kfree(p);
		kfree(z);
		free(m);
		free(c);
	}
	for (size_t align = 16; align <= 4096; align *= 2)
		for (size_t size = 1; size <= 2048; size = size * 5 + 3) {
			char *p = aligned_alloc(align, size);

			CHECK(p && !((uintptr_t)p & (align - 1)));
			memset(p, 1, size);
			free(p);
		}
	CHECK(kmem_check_all() == 0);
}

static void constructor(void *object)
{
	memset(object, 0x77, 64);
}

static int count_one(void *object, void *arg)
{
	(void)object;
	++*(int *)arg;
	return 0;
}

static unsigned long active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	CHECK(stats.active_objects <= stats.total_objects);
	return stats.active_objects;
}

static void objects(void)
{
	struct kmem_cache *built = cache_of("built", 64, 0, constructor), *plain = cache_of("plain", 72, 0, NULL);
	int walked = 0;
	void *some[8];

	char *p = guarded(kmem_cache_alloc(built, GFP_KERNEL));
	CHECK(p[0] == 0x77 && p[63] == 0x77);
	kmem_cache_free(built, p);
	p = guarded(kmem_cache_zalloc(plain, GFP_KERNEL));
	CHECK(is_zero(p, 72) && kmem_cache_of(p) == plain && ksize(p) == 72);
	CHECK(active(plain) == 1);
	NEED(kmem_cache_alloc_bulk(plain, GFP_KERNEL, 8, some));
	CHECK(active(plain) == 9);
	if (!plain->layout.engine->shared_pages) {
		CHECK(kmem_cache_walk(plain, count_one, &walked) == 0);
		CHECK(walked == 9);
	}
	CHECK(kmem_cache_validate(plain) == 0);
	kmem_cache_free_bulk(plain, 8, some);
	kmem_cache_free(plain, p);
	CHECK(active(plain) == 0 && km_guarded.live == 0);
	kmem_cache_destroy(plain);
	kmem_cache_destroy(built);
}

/* By flags, size and gfp; and charged objects are never guarded. */
static void others(void)
{
	struct kmem_cache *skip = cache_of("skip", 64, SLAB_SKIP_KFENCE, NULL);
	struct kmem_cache *typed = cache_of("typed", 64, SLAB_TYPESAFE_BY_RCU, NULL);
	struct kmem_cache *large = cache_of("larger", 8192, 0, NULL), *plain = cache_of("plain", 64, 0, NULL);
	struct kmem_cache *of[] = { skip, typed, large };

	for (unsigned i = 0; i < 3; i++) {
		void *p = kmem_cache_alloc(of[i], GFP_KERNEL);

		NEED(p && !km_is_guarded(p));
		kmem_cache_free(of[i], p);
	}
	void *p = kmem_cache_alloc(plain, GFP_NOWAIT);
	CHECK(!km_is_guarded(p));
	if (p)
		kmem_cache_free(plain, p);
}

static void charged(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "group", 0);
	struct kmem_cache *plain = cache_of("plain", 64, 0, NULL);
	void *early[200], *p[200];

	if (!group || plain->layout.engine->shared_pages)
		return;
	for (unsigned i = 0; i < 200; i++)
		NEED(early[i] = kmem_cache_alloc(plain, GFP_KERNEL));
	CHECK(km_is_guarded(early[0]));
	set_active_memcg(group);
	CHECK(kmem_cache_charge(early[0], GFP_KERNEL) && !mem_cgroup_from_obj(early[0]));
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 200; i++) {
			NEED(p[i] = kmem_cache_alloc(plain, GFP_KERNEL | __GFP_ACCOUNT));
			CHECK(!km_is_guarded(p[i]));
		}
		for (unsigned i = 0; i < 10; i++)
			kmem_cache_free(plain, early[round * 10 + i]);
		for (unsigned i = 0; i < 200; i++)
			kmem_cache_free(plain, p[i]);
	}
	set_active_memcg(NULL);
	kmem_cache_shrink(plain);
	CHECK(km_guarded.live == 0 && active(plain) == 0);
	mem_cgroup_put(group);
	CHECK(kmem_check_all() == 0);
}

static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	unsigned char *p[64] = { 0 };

	for (unsigned i = 0; i < 20000; i++) {
		unsigned at = rand_r(&seed) % 64, size = rand_r(&seed) % 500 + 1;

		if (p[at] && *p[at] != (unsigned char)(at + 1))
			abort();
		free(p[at]);
		p[at] = i % 100 ? malloc(size) : calloc(1, size);
		memset(p[at], (int)at + 1, size);
	}
	for (unsigned i = 0; i < 64; i++)
		free(p[i]);
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];
	const size_t before = km_guarded.live;

	for (uintptr_t i = 0; i < 4; i++)
		NEED(!pthread_create(&thread[i], NULL, churn, (void *)(i + 1)));
	for (unsigned i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	CHECK(km_guarded.samples > 255 && km_guarded.live <= before + 8);
	CHECK(kmem_check_all() == 0);
}

static bool no_access(const char *call)
{
	return !strcmp(call, "unprotect");
}

static void refused(void)
{
	km_os_fault = no_access;
	for (unsigned i = 1; i < 1000; i++) {
		void *p = malloc(i);

		NEED(p && !km_is_guarded(p));
		memset(p, 1, i);
		free(p);
	}
	km_os_fault = NULL;
	free(guarded(malloc(10)));
}

/* Of one source, not all: there is room for others. */
static void covered(void)
{
	void *p[300], *other;

	for (unsigned i = 0; i < 300; i++)
		NEED(p[i] = malloc(100));
	other = guarded(malloc(100));
	CHECK(km_guarded.live < km_guarded.objects);
	for (unsigned i = 0; i < 300; i++)
		free(p[i]);
	free(other);
}

/* ------------------------------------------------------------------ faults outside of the library's memory */

static sigjmp_buf back;
static volatile int struck;

static void own_handler(int number)
{
	(void)number;
	struck++;
	siglongjmp(back, 1);
}

static void stray(void)
{
	*(volatile char *)blind(NULL) = 1;
}

static void own_handlers(void)
{
	char text[4096];
	int lines;

	int status = said(stray, text, &lines);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && lines == 0);
	/* A handler installed later gets all faults. */
	signal(SIGSEGV, own_handler);
	if (!sigsetjmp(back, 1))
		stray();
	if (!sigsetjmp(back, 1))
		((volatile char *)guarded(malloc(10)))[4096] = 1;
	CHECK(struck == 2 && km_guarded.reports == 0);
}

static void sent(void)
{
	kill(getpid(), SIGSEGV);
	for (;;)
		pause();
}

static void sent_by_others(void)
{
	char text[4096];
	int lines;

	int status = said(sent, text, &lines);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && lines == 0);
}

/* A handler installed before the library's, for example by an earlier library, is called after the report. */
static void early_handler(int number, siginfo_t *info, void *context)
{
	(void)context;
	_exit(number == SIGSEGV && info->si_addr ? 42 : 43);
}

static void before_start(int argc, char **argv, char **environment)
{
	struct sigaction action = { .sa_sigaction = early_handler, .sa_flags = SA_SIGINFO };

	(void)argc;
	(void)environment;
	if (argv[1] && !strcmp(argv[1], "early"))
		sigaction(SIGSEGV, &action, NULL);
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_start;

static void strike_guarded(void)
{
	((volatile char *)guarded(malloc(10)))[4096] = 1;
}

static void strike_other(void)
{
	*(volatile char *)blind((void *)8) = 1;
}

static void earlier_handler(void)
{
	char text[4096];
	int lines;

	CHECK(said(strike_guarded, text, &lines) == 42 << 8);
	CHECK(strstr(text, "BUG: KFENCE: out-of-bounds write") != NULL);
	CHECK(said(strike_other, text, &lines) == 42 << 8 && lines == 0);
}

/* ------------------------------------------------------------------ guard:MS */

/* A miss, with a read of the clock. */
static void tick(struct kmem_cache *missing, void **kept)
{
	void *p;

	ahead_ms += 2000;
	for (unsigned i = 0; i < 300; i++) {
		NEED(p = kmem_cache_alloc(missing, GFP_KERNEL));
		*(void **)p = *kept;
		*kept = p;
	}
}

static void free_all(struct kmem_cache *missing, void *kept)
{
	while (kept) {
		void *next = *(void **)kept;

		kmem_cache_free(missing, kept);
		kept = next;
	}
}

static void *sample_of(struct kmem_cache *cache, struct kmem_cache *missing, void **kept)
{
	for (unsigned i = 0; i < 2000; i++) {
		for (unsigned j = 0; j < 50; j++) {
			void *p = kmem_cache_alloc(cache, GFP_KERNEL);

			NEED(p);
			if (km_is_guarded(p))
				return p;
			kmem_cache_free(cache, p);
		}
		tick(missing, kept);
	}
	return NULL;
}

static bool is_plain(const struct kmem_cache *cache)
{
	return km_alloc_ops(cache) == km_layer_below(cache, KM_LAYER_CHARGE);
}

static void hits(void)
{
	struct kmem_cache *cache = cache_of("hits", 56, 0, NULL), *missing = cache_of("missing", 24, 0, NULL);
	bool blocks = cache->layout.engine->front == KM_PERCPU_SHEAVES;
	void *kept = NULL, *p;

	/* A sample freed soon is found, and the cache is as before. */
	guarded(p = sample_of(cache, missing, &kept));
	CHECK(is_plain(cache) != blocks);
	kmem_cache_free(cache, p);
	CHECK(cache->ext.guarded == 0);
	for (unsigned i = 0; i < 5000; i++)
		kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	CHECK(is_plain(cache));
	/* A sample that lives long is freed by a hit, and found when the sheaf is drained. */
	guarded(p = sample_of(cache, missing, &kept));
	memset(p, 1, 56);
	for (unsigned i = 0; i < 5000; i++)
		kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	CHECK(is_plain(cache) && cache->ext.guarded == 1);
	kmem_cache_free(cache, p);
	CHECK(active(cache) == 0);
	kmem_cache_shrink(cache);
	CHECK(cache->ext.guarded == 0);
	free_all(missing, kept);
	kmem_cache_shrink(missing);
	CHECK(kmem_check_all() == 0);
}

static void free_twice(void)
{
	struct kmem_cache *cache = cache_of("twice", 56, 0, NULL), *missing = cache_of("missing", 24, 0, NULL);
	void *kept = NULL, *p;

	guarded(p = sample_of(cache, missing, &kept));
	kmem_cache_free(cache, p);
	for (unsigned i = 0; i < 100; i++)
		kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	kmem_cache_free(cache, blind(p));
}

static void told_of_second_free(void)
{
	char text[4096];
	int lines;

	int status = said(free_twice, text, &lines);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(strstr(text, "BUG: KFENCE: double-free in ") != NULL);
}

/* By malloc, with the requested bytes, although each call is a hit. */
static void malloc_hits(void)
{
	struct kmem_cache *missing = cache_of("missing", 24, 0, NULL);
	void *kept = NULL, *p = NULL;

	for (unsigned i = 0; i < 2000 && !km_is_guarded(p); i++) {
		tick(missing, &kept);
		for (unsigned j = 0; j < 50 && !km_is_guarded(p); j++) {
			free(p);
			NEED(p = malloc(45));
		}
	}
	guarded(p);
	CHECK(malloc_usable_size(p) == 45);
	/* A free by the cache of the object is recognized, and no later request gets a block that is too short. */
	if (!kmem_cache_of(p)->layout.engine->shared_pages) {
		kmem_cache_free(kmem_cache_of(p), p);
		for (unsigned i = 0; i < 100; i++) {
			void *q = malloc(48);

			memset(HELD(q), 1, malloc_usable_size(q));
			CHECK(malloc_usable_size(q) >= 48);
			free(q);
		}
	} else {
		free(p);
	}
	free_all(missing, kept);
	CHECK(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ */

static const struct test_case each[] = {
	{ "sizes", sizes }, { "objects", objects }, { "others", others }, { "charged", charged },
	{ "threads", threads },
	{ "refused", refused }, { "covered", covered }, { "own_handlers", own_handlers },
	{ "sent_by_others", sent_by_others },
};
static const struct test_case early[] = { { "earlier_handler", earlier_handler } };
static const struct test_case timed[] = {
	{ "hits", hits }, { "told_of_second_free", told_of_second_free }, { "malloc_hits", malloc_hits },
};

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	char options[64];
	int bad = 0;

	if (argc > 1 && !strcmp(argv[1], "each"))
		return run_cases(each, sizeof(each) / sizeof(*each), "each");
	if (argc > 1 && !strcmp(argv[1], "early"))
		return run_cases(early, sizeof(early) / sizeof(*early), "early");
	if (argc > 1)
		return run_cases(timed, sizeof(timed) / sizeof(*timed), "timed");
	for (size_t i = 0; i < sizeof(engines) / sizeof(*engines); i++) {
		printf("engine %s\n", engines[i]);
		snprintf(options, sizeof(options), "engine:%s,guard:each", engines[i]);
		bad |= again("guarded", "each", options) | again("guarded", "early", options);
		snprintf(options, sizeof(options), "engine:%s,guard:100", engines[i]);
		bad |= again("guarded", "timed", options);
	}
	return bad != 0;
}
