/*
 * malloc_jemalloc.c: jemalloc's own functions, as in jemalloc's manual page, return blocks of malloc: each block may
 * go to either family. Alignment, zeros, growth, sizes, failures; the mallctl names used by programs of Debian.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>

#include "kit/malloc.h"

void *mallocx(size_t size, int flags);
void *rallocx(void *p, size_t size, int flags);
size_t xallocx(void *p, size_t size, size_t extra, int flags);
size_t sallocx(const void *p, int flags);
void dallocx(void *p, int flags);
void sdallocx(void *p, size_t size, int flags);
size_t nallocx(size_t size, int flags);
int mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
int mallctlnametomib(const char *name, size_t *mib, size_t *length);
int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_bytes, void *new, size_t new_bytes);
void malloc_stats_print(void (*write)(void *opaque, const char *text), void *opaque, const char *options);

/* Of jemalloc's header: MALLOCX_LG_ALIGN, MALLOCX_ZERO, MALLOCX_TCACHE_NONE, MALLOCX_ARENA. */
#define LG_ALIGN(lg)	(lg)
#define ZERO		0x40
#define NO_CACHE	0x100
#define ARENA(n)	(((n) + 1) << 20)

static const size_t sizes[] = { 1, 16, 100, 300, 1000, 5000, 32768, 32769, 100000, 3 << 20, 5 << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
static volatile size_t huge = PTRDIFF_MAX;

static int zeros(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i])
			return 0;
	return 1;
}

/* Writes to the memory before its reuse. */
static void soil(size_t size)
{
	void *p[20];

	for (int i = 0; i < 20; i++) {
		p[i] = mallocx(size, 0);
		NEED(p[i]);
		memset(p[i], 0xa5, sallocx(p[i], 0));
	}
	for (int i = 0; i < 20; i++)
		sdallocx(p[i], size, 0);
}

static void test_flags(void)
{
	for (size_t i = 0; i < SIZES; i++)
		for (int lg = 0; lg <= 16; lg++) {
			const int flags = LG_ALIGN(lg) | NO_CACHE | ARENA(3);
			size_t size = sizes[i];

			soil(size);
			char *p = mallocx(size, flags | ZERO);
			NEED(p && !((uintptr_t)p & ((1ul << lg) - 1)) && zeros(p, size), "(%zu, 2^%d)", size, lg);
			NEED(sallocx(p, flags) >= size && sallocx(p, flags) == malloc_usable_size(p));
			NEED(nallocx(size, flags) >= size && nallocx(size, flags) <= sallocx(p, flags));
			NEED(xallocx(p, size, 100, flags) == sallocx(p, flags));
			fill(p, size, 7);
			size_t before = sallocx(p, flags);
			p = rallocx(p, size * 3, flags | ZERO);
			NEED(p && !((uintptr_t)p & ((1ul << lg) - 1)), "(%zu, 2^%d)", size, lg);
			NEED(is_filled(p, size, 7), "(%zu, 2^%d)", size, lg);
			NEED(sallocx(p, flags) <= before || zeros(p + before, sallocx(p, flags) - before));
			p = rallocx(p, size / 2 + 1, flags);
			NEED(p && !((uintptr_t)p & ((1ul << lg) - 1)) && is_filled(p, size / 2 + 1, 7));
			sdallocx(p, size / 2 + 1, flags);
		}
	void *p = rallocx(mallocx(100, 0), 0, 0);
	NEED(p && sallocx(p, 0) >= 1);
	dallocx(p, 0);
}

/* A block of the one family goes to the other. */
static void test_families(void)
{
	for (size_t i = 0; i < SIZES; i++) {
		size_t size = sizes[i];
		void *p = mallocx(size, 0);

		fill(p, size, 1);
		p = realloc(p, size * 2);
		NEED(p && is_filled(p, size, 1));
		p = rallocx(p, size * 4, 0);
		NEED(p && is_filled(p, size, 1) && malloc_usable_size(p) >= size * 4);
		free(p);
		dallocx(malloc(size), 0);
		sdallocx(malloc(size), size, 0);
		dallocx(calloc(1, size), 0);
		sdallocx(aligned_alloc(64, size), size, LG_ALIGN(6));
		free(mallocx(size, ZERO | LG_ALIGN(12)));
		p = malloc(size);
		NEED(sallocx(p, 0) == malloc_usable_size(p));
		NEED(kmem_cache_of(p) || size > 4000);
		sdallocx(p, sallocx(p, 0), 0);
	}
}

static void test_failures(void)
{
	void *p = mallocx(100, 0);

	fill(p, 100, 3);
	NEED(!mallocx(huge, 0) && !mallocx(huge, ZERO) && !mallocx(huge + 1, LG_ALIGN(6)) && !mallocx(1, LG_ALIGN(63)));
	NEED(!rallocx(p, huge, 0) && !rallocx(p, huge, ZERO) && !rallocx(p, huge, LG_ALIGN(7)) && is_filled(p, 100, 3));
	NEED(nallocx(huge + 1, 0) == 0 && nallocx(1, LG_ALIGN(63)) == 0);
	dallocx(p, 0);
}

static size_t asked(const char *name)
{
	size_t value = 0, bytes = sizeof(value);
	int error = mallctl(name, &value, &bytes, NULL, 0);

	NEED(!error && bytes == sizeof(value), "(%s: %d)", name, error);
	return value;
}

static unsigned asked_int(const char *name)
{
	unsigned value = 77;
	size_t bytes = sizeof(value);
	int error = mallctl(name, &value, &bytes, NULL, 0);

	NEED(!error && bytes == sizeof(value), "(%s: %d)", name, error);
	return value;
}

/* redis and valkey assert some of these, and end where a Lua arena can't be made. */
static void test_controls(void)
{
	static const char *const done[] = {
		"arena.0.purge", "arena.4096.decay", "arena.1.destroy", "thread.tcache.flush",
	};
	static const char *const none[] = {
		"", "arena", "arena.x.purge", "arena.0.purge.x", "prof.active", "background_thread",
		"thread.allocatedp", "stats.arenas.0.small", "versions", "arenas.narenas ",
	};
	const char *version = (const char *)asked("version");
	uint64_t epoch = 1;
	size_t bytes = sizeof(epoch);
	unsigned arena = asked_int("arenas.create"), cache = asked_int("tcache.create");
	char name[64];
	ptrdiff_t decay = 0;

	NEED(!strncmp(version, "5.3.0", 5) && strstr(version, "libkmem"));
	NEED(!mallctl("epoch", &epoch, &bytes, &epoch, sizeof(epoch)));
	NEED(asked_int("arenas.narenas") == 1 && asked_int("arenas.nbins") == 0 && asked("arenas.page") == 4096);
	NEED(!mallctl("tcache.flush", NULL, NULL, &cache, sizeof(cache)) &&
	     !mallctl("tcache.destroy", NULL, NULL, &cache, sizeof(cache)));
	NEED(!mallctl("arenas.dirty_decay_ms", NULL, NULL, &decay, sizeof(decay)));
	for (size_t i = 0; i < sizeof(done) / sizeof(done[0]); i++)
		NEED(!mallctl(done[i], NULL, NULL, NULL, 0), "(%s)", done[i]);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		NEED(mallctl(none[i], NULL, NULL, NULL, 0) == ENOENT, "(%s)", none[i]);
	snprintf(name, sizeof(name), "stats.arenas.%u.small.allocated", arena);
	NEED(arena && asked(name) == 0);
	/* Wrong size, read-only name, write-only name. */
	NEED(mallctl("arenas.narenas", &epoch, &bytes, NULL, 0) == EINVAL);
	NEED(mallctl("epoch", NULL, NULL, &cache, sizeof(cache)) == EINVAL);
	NEED(mallctl("arenas.page", NULL, NULL, &epoch, sizeof(epoch)) == EPERM);
	NEED(mallctl("tcache.destroy", &cache, &bytes, NULL, 0) == EPERM);
	NEED(mallctl("arena.0.purge", NULL, NULL, &epoch, sizeof(epoch)) == EPERM);
}

static void test_figures(void)
{
	size_t mib[5], parts = 5, value, bytes = sizeof(value), before = asked("stats.allocated");
	void *p[500];

	for (int i = 0; i < 500; i++)
		p[i] = mallocx(10000, 0);
	size_t between = asked("stats.allocated");
	NEED(between >= before + 5000000 && between <= asked("stats.active"), "(%zu, then %zu)", before, between);
	NEED(asked("stats.active") <= asked("stats.resident") && asked("stats.retained") == 0);
	NEED(asked("stats.arenas.4096.small.allocated") + asked("stats.arenas.4096.large.allocated") >= 5000000);
	NEED(asked("stats.arenas.0.pactive") >= 5000000 / 4096 && asked("stats.arenas.4096.pmuzzy") == 0);
	/* By number, for another arena; and an invalid number. */
	NEED(!mallctlnametomib("stats.arenas.0.small.allocated", mib, &parts) && parts == 5);
	NEED(!mallctlbymib(mib, parts, &value, &bytes, NULL, 0) && value >= 5000000);
	mib[2] = 1;
	NEED(!mallctlbymib(mib, parts, &value, &bytes, NULL, 0) && value == 0);
	mib[0] = 100;
	NEED(mallctlbymib(mib, parts, &value, &bytes, NULL, 0) == ENOENT);
	parts = 2;
	NEED(!mallctlnametomib("arena.0.purge", mib, &parts) && parts == 2);
	for (int i = 0; i < 500; i++)
		sdallocx(p[i], 10000, 0);
	NEED(asked("stats.allocated") < between - 4000000);
}

/* The callback may allocate, as the callback of redis does. */
static void gather(void *opaque, const char *text)
{
	char **all = opaque;
	size_t had = *all ? strlen(*all) : 0;

	*all = rallocx(*all, had + strlen(text) + 1, 0);
	NEED(*all);
	strcpy(*all + had, text);
}

static void test_print(void)
{
	char *all = NULL;

	malloc_stats_print(gather, &all, "J");
	NEED(all && strstr(all, "allocated") && strstr(all, "slabinfo - version: 2.1"), "(%s)", all);
	free(all);
}

int main(void)
{
	check_ours();
	test_flags();
	test_families();
	test_failures();
	test_controls();
	test_figures();
	test_print();
	return 0;
}
