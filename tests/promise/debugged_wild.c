/*
 * debugged_wild: a program writes anywhere into the slabs of a debugged cache, and frees free objects again; with
 * misuse:warn the program goes on. The library never follows a damaged pointer into a fault, never allocates an
 * object twice, and validation reports each damage once. Objects have random sizes and random flags; each engine
 * runs in a process of its own.
 *
 * debugged_wild [SEED [ROUNDS]]	the same seed does the same
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "kit/options.h"
#include "kit/random.h"

#define NEED(truth)                                                                                \
	((truth) ? (void)0 : (printf("line %d: %s\n", __LINE__, #truth), fflush(stdout), _exit(1)))
#define MOST 400
#define FORMER 64

static uint64_t random_state;

static size_t below(size_t n)
{
	return random_next(&random_state) % n;
}

static struct kmem_cache *cache;
static unsigned char *objects[MOST], *former[FORMER];
static size_t count, formers;

static void get(void)
{
	unsigned char *p = count < MOST ? kmem_cache_alloc(cache, GFP_KERNEL) : NULL;

	for (size_t i = 0; p && i < count; i++)
		NEED(objects[i] != p);
	if (p)
		objects[count++] = memset(p, 0x77, cache->layout.object_size);
}

static void put(void)
{
	size_t which = count ? below(count) : 0;
	void *p = objects[which];

	if (!count)
		return;
	objects[which] = objects[--count];
	former[formers++ % FORMER] = p;
	if (below(2))
		kmem_cache_free(cache, p);
	else
		kmem_cache_free_bulk(cache, 1, &p);
}

static unsigned char *some_former(void)
{
	return formers ? former[below(formers < FORMER ? formers : FORMER)] : NULL;
}

/* The engine's own bytes in slabs, and pages shared by caches, are left alone. */
static void write_somewhere(void)
{
	unsigned char *p = count && below(2) ? objects[below(count)] : some_former(), value = below(256);
	struct km_page *page = p ? km_page_of(p) : NULL, *slab = page ? km_page_head(page) : NULL;

	if (!slab || slab->type != KM_PAGE_SLAB || slab->cache != cache)
		return;
	unsigned char *base = km_page_address(slab);
	size_t bytes = (KM_PAGE_SIZE << slab->order) - cache->form.slab_tail;
	size_t run = 1 + below(below(2) ? 2 * cache->layout.size : 1);
	size_t from = (size_t)(p - base) + below(2 * cache->layout.size);
	from -= from < 64 ? from : below(64);
	for (size_t i = from, way = below(4); i < from + run && i < bytes; i++)
		base[i] = way == 0 ? value : way == 1 ? base[i] ^ (value | 1) : way == 2 ? 0 :
						       base[(i + cache->layout.size) % bytes];
}

static void write_behind(void)
{
	size_t from = below(cache->layout.size);

	if (count)
		memset(objects[below(count)] + from, (int)below(256), 1 + below(cache->layout.size - from));
}

static void free_again(void)
{
	unsigned char *p = some_former();
	bool live = !p;

	for (size_t i = 0; i < count; i++)
		live |= objects[i] == p;
	if (!live)
		kmem_cache_free(cache, p);
}

/* Frees as a signal handler does that interrupts the allocator. */
static void put_from_inside(void)
{
	struct km_busy_was was = km_busy_begin();

	put();
	km_busy_end(was);
}

static void step(void)
{
	size_t what = below(100);

	if (what < 40)
		get();
	else if (what < 75)
		put();
	else if (what < 85)
		(cache->layout.engine->shared_pages ? write_behind : write_somewhere)();
	else if (what < 89)
		free_again();
	else if (what < 91 && count)
		kmem_cache_free(cache, objects[below(count)] + 8);
	else if (what < 93)
		put_from_inside();
	else if (what < 94)
		kmem_cache_validate(cache);
	else if (what < 95)
		kmem_cache_shrink(cache);
	else if (what < 96)
		kmem_check_all();
}

static void one_cache(void)
{
	slab_flags_t flags = SLAB_CONSISTENCY_CHECKS | (below(3) ? SLAB_STORE_USER : 0);

	flags |= (below(4) ? SLAB_RED_ZONE : 0) | (below(4) ? SLAB_POISON : 0) | (below(5) ? 0 : SLAB_TYPESAFE_BY_RCU);
	if (!(flags & KM_DEBUG_LAYOUT))
		flags |= SLAB_POISON;
	cache = kmem_cache_create("wild", (unsigned)(1 + below(below(3) ? 200 : 3000)), NULL, flags);
	NEED(cache);
	count = formers = 0;
	for (int i = 0; i < 1500; i++)
		step();
	while (count)
		kmem_cache_free(cache, objects[--count]);
	kmem_cache_validate(cache);
	NEED(kmem_cache_validate(cache) == 0);
	kmem_cache_destroy(cache);
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	const char *seed = argc >= 2 ? argv[1] : "1", *rounds = argc >= 3 ? argv[2] : "12";
	int failed = 0, status;

	if (argc == 4) {
		int nowhere = open("/dev/null", O_WRONLY);

		NEED(dup2(nowhere, 2) == 2);
		alarm(580);
		random_state = strtoull(seed, NULL, 0);
		for (int i = atoi(rounds); i; i--)
			one_cache();
		return 0;
	}
	printf("seed %s\n", seed);
	fflush(stdout);
	for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++) {
		pid_t pid = fork();

		if (!pid) {
			char options[64];

			snprintf(options, sizeof(options), "misuse:warn,engine:%s", engines[e]);
			set_options(options);
			execl("/proc/self/exe", "debugged_wild", seed, rounds, "child", NULL);
			_exit(2);
		}
		if (waitpid(pid, &status, 0) == pid && status == 0)
			continue;
		printf("%s: status 0x%x\n", engines[e], (unsigned)status);
		failed++;
	}
	printf("%d failed\n", failed);
	return failed != 0;
}
