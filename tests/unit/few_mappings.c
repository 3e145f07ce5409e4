/*
 * few_mappings: at any load the library uses at most 100 mappings: very many requests of all sizes for each engine
 * and with several nodes, page-sized blocks with every second one freed, large blocks allocated, freed and grown in
 * turns, guarded objects, and slabs with guard pages. Each load is a process of its own. On a system without guard
 * pages within a mapping (before Linux 6.13) the last two use more; the older way is run everywhere.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/mappings.h"
#include "kit/random.h"
#include "page/guard_range.h"
#include "os/os.h"

#define PAGE	((size_t)4096)
#define MIB	((size_t)1 << 20)

static unsigned most;

static unsigned mappings(void)
{
	unsigned count = mappings_of_ours();

	most = count > most ? count : most;
	return count;
}

static void touch(char *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += MIB)
		p[at] = 1;
	p[bytes - 1] = 1;
}

static void *get(size_t bytes)
{
	char *p = kvmalloc(bytes, GFP_KERNEL);

	NEED(p);
	touch(p, bytes);
	return p;
}

/* ------------------------------------------------------------------ loads */

#define SLOTS	20000u
static void *slot[SLOTS];

static void all_sizes(void)
{
	for (unsigned i = 0; i < 400000; i++) {
		void **p = &slot[random_below(SLOTS)];

		kvfree(*p);
		*p = kvmalloc(1 + random_below(random_below(20) ? 2000 : 200000), GFP_KERNEL);
		NEED(*p);
		if (i % 20000 == 0)
			mappings();
	}
}

static void each_second_goes(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		slot[i] = get(40 << 10);
	mappings();
	for (unsigned i = 0; i < SLOTS; i += 2)
		kvfree(slot[i]);
	kmem_shrink_all();
}

/* As a server with some hundred files of any size in memory. */
static void big_turns(void)
{
	for (unsigned i = 0; i < 6000; i++) {
		void **p = &slot[random_below(150)];

		kvfree(*p);
		*p = get(4 * MIB + PAGE + random_below(40 * MIB));
		if (i % 100 == 0)
			mappings();
	}
}

static void many_big(void)
{
	for (unsigned i = 0; i < 2000; i++)
		slot[i] = get(5 * MIB + random_below(MIB));
	mappings();
	for (unsigned i = 0; i < 2000; i += 2) {
		kvfree(slot[i]);
		slot[i] = NULL;
	}
	mappings();
	for (unsigned i = 0; i < 2000; i += 3)
		kvfree(slot[i]);
}

static void big_ones_grow(void)
{
	for (unsigned i = 0; i < 100; i++)
		slot[i] = get(5 * MIB);
	for (size_t bytes = 8 * MIB; bytes <= 64 * MIB; bytes += bytes / 2) {
		for (unsigned i = 0; i < 100; i++) {
			NEED((slot[i] = kvrealloc(slot[i], bytes, GFP_KERNEL)));
			touch(slot[i], bytes);
			if (i % 10 == 0)
				mappings();
		}
		for (unsigned i = 0; i < 100; i += 7) {
			kvfree(slot[i]);
			slot[i] = get(6 * MIB);
		}
	}
}

/* Address space alone, as far as there is some. */
static void a_terabyte(void)
{
	for (unsigned i = 0; i < 1000 && (slot[i] = kvmalloc(1024 * MIB, GFP_KERNEL | __GFP_NOWARN)); i++) {
		*(char *)slot[i] = 1;
		if (i % 10 == 0)
			mappings();
	}
}

/* Each eligible object, and every second one freed. */
static void guarded(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < 2000; i++) {
		void **p = &slot[random_below(400)];

		kfree(*p);
		NEED((*p = kmalloc(1 + random_below(4096), GFP_KERNEL)));
		memset(HELD(*p), 1, ksize(*p));
	}
	for (unsigned i = 0; i < 400; i++)
		count += slot[i] && km_is_guarded(slot[i]);
	NEED(count > 100);
	mappings();
	for (unsigned i = 0; i < 400; i += 2)
		kfree(slot[i]);
}

static void guard_slabs(void)
{
	struct kmem_cache *cache = kmem_cache_create("own", 2000, NULL, 0);

	NEED(cache);
	for (unsigned i = 0; i < SLOTS; i++)
		NEED((slot[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
}

/* ------------------------------------------------------------------ each in a process */

static const struct load {
	const char *name, *options;
	void (*run)(void);
	bool guards;
} loads[] = {
	{ "all sizes", "engine:sheaf", all_sizes, false }, { "... slub", "engine:slub", all_sizes, false },
	{ "... slab", "engine:slab", all_sizes, false }, { "... slob", "engine:slob", each_second_goes, false },
	{ "... four nodes", "nodes:4", all_sizes, false }, { "each second goes", "nodes:1", each_second_goes, false },
	{ "big blocks in turns", "nodes:1", big_turns, false }, { "many big blocks", "nodes:1", many_big, false },
	{ "... and hardened", "hardened:1", many_big, false }, { "big blocks grow", "nodes:1", big_ones_grow, false },
	{ "a terabyte", "nodes:1", a_terabyte, false },
	{ "guarded objects", "guard:each", guarded, true },
	{ "guarded slabs", "own_addresses:1,guard_slabs:1", guard_slabs, true },
};

/* Has the system guard pages within a mapping? */
static bool has_markers(void)
{
	char *p = km_os_map(3 * PAGE, PAGE);

	NEED(p);
	unsigned before = mappings();
	NEED(!km_os_guard(p + PAGE, PAGE, false));
	unsigned after = mappings();
	NEED(!km_os_unguard(p + PAGE, PAGE) && mappings() <= before);
	p[PAGE] = 1;
	km_os_unmap(p, 3 * PAGE);
	return after == before;
}

static bool no_markers(const char *call)
{
	return !strcmp(call, "guard");
}

/* Before any constructor: the library starts in one. */
static void before_start(int argc, char **argv, char **environment)
{
	(void)argc, (void)argv;
	for (; *environment; environment++)
		if (!strncmp(*environment, "WITHOUT_MARKERS=", 16))
			km_os_fault = no_markers;
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_start;

static int one(const struct load *load)
{
	alarm(580);
	bool other = km_os_fault != NULL, free = load->guards && (other || !has_markers());

	most = 0;
	load->run();
	mappings();
	printf("%s%s: %u mappings\n", load->name, other ? ", by protection" : "", most);
	CHECK(free || most <= MAPPINGS_MOST);
	CHECK(kmem_check_all() == 0);
	fflush(stdout);
	return failures != 0;
}

static void start(const struct load *load, bool markers)
{
	int status;
	pid_t child = fork();

	if (!child) {
		setenv("KMEM_OPTIONS", load->options, 1);
		if (!markers)
			setenv("WITHOUT_MARKERS", "1", 1);
		execl("/proc/self/exe", "few_mappings", load->name, NULL);
		_exit(4);
	}
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(status == 0, "%s: status %d", load->name, status);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		if (argc > 1 && !strcmp(argv[1], loads[i].name))
			return one(&loads[i]);
		if (argc > 1)
			continue;
		start(&loads[i], true);
		if (loads[i].guards)
			start(&loads[i], false);
	}
	return failures != 0;
}
