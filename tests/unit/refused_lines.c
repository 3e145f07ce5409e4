/*
 * refused_lines.c: the line about a failed allocation has the reason, and gfp as names. There are ten in five
 * seconds for each cache at its own limit, and ten for all others. The tenth announces a count, and the first after
 * the pause has the number. No line if the request may not wait; from a signal handler as well.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

#include "kit/cases.h"
#include "kit/clock.h"
#include "kit/groups.h"
#include "alloc/fast_path.h"
#include "os/os.h"

enum { KEPT = 400 };
static void *objects[KEPT];
static char text[1 << 16];

/* How many lines have the word. */
static unsigned lines_with(const char *word)
{
	unsigned lines = 0;

	for (const char *at = text; (at = strstr(at, word)); at = strchr(at, '\n'))
		lines++;
	return lines;
}

static void says(const char *line)
{
	NEED(strstr(text, line), "not \"%s\" but \"%s\"", line, text);
}

static void listen(void)
{
	static struct km_heard heard;

	memset(text, 0, sizeof(text));
	heard = (struct km_heard){ text, sizeof(text) - 1, 0 };
	km_thread.heard = &heard;
}

/* A cache at its limit, with lines from now on. */
static struct kmem_cache *full_cache(const char *name, slab_flags_t flags)
{
	struct kmem_cache *cache = kmem_cache_create(name, 1000, NULL, flags);

	NEED(cache && kmem_cache_set_limit(cache, 65536) == 0);
	for (int i = 0; i < KEPT; i++)
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN);
	NEED(!objects[KEPT - 1]);
	return cache;
}

static void refuse(struct kmem_cache *cache, gfp_t gfp, unsigned times)
{
	while (times--) {
		errno = 0;
		NEED(!kmem_cache_alloc(cache, gfp) && errno == ENOMEM);
	}
}

static void ten_in_five_seconds(void)
{
	struct kmem_cache *first = full_cache("first", 0), *later = full_cache("later", 0);

	listen();
	refuse(first, GFP_KERNEL, 25);
	NEED(lines_with("first:") == 10 && lines_with("(further lines within 5 s are only counted)") == 1, "%s", text);
	refuse(later, GFP_KERNEL, 25);
	NEED(lines_with("later:") == 10 && lines_with("first:") == 10, "%s", text);
	ahead_ms += 4900;
	refuse(first, GFP_KERNEL, 5);
	NEED(lines_with("first:") == 10);
	ahead_ms += 200;
	listen();
	refuse(first, GFP_KERNEL, 12);
	NEED(lines_with("first:") == 10 && lines_with("were suppressed") == 1, "%s", text);
	says("reason: limit of the cache (65536 bytes) (20 similar lines were suppressed)\n");
	/* An hour later: suppressed lines are still counted. */
	ahead_ms += 3600 * 1000;
	refuse(first, GFP_KERNEL, 1);
	says(" (2 similar lines were suppressed)\n");
	ahead_ms += 5000;
	listen();
	refuse(first, GFP_KERNEL, 1);
	says("reason: limit of the cache (65536 bytes)\n");
}

static void gfp_by_name(void)
{
	static const struct {
		gfp_t gfp;
		const char *names;
	} sets[] = {
		{ GFP_KERNEL, "(GFP_KERNEL)" }, { GFP_KERNEL | __GFP_COMP, "(GFP_KERNEL|__GFP_COMP)" },
		{ GFP_NOFS, "(GFP_NOFS)" }, { GFP_NOIO | __GFP_HIGH, "(GFP_NOIO|__GFP_HIGH)" },
		{ __GFP_DIRECT_RECLAIM | __GFP_NORETRY, "(__GFP_DIRECT_RECLAIM|__GFP_NORETRY)" },
		{ GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL, "(GFP_KERNEL_ACCOUNT|__GFP_RETRY_MAYFAIL)" },
	};
	struct kmem_cache *cache = full_cache("named", 0);

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		char word[100];

		listen();
		refuse(cache, sets[i].gfp, 1);
		snprintf(word, sizeof(word), "gfp=0x%x%s, reason: ", (unsigned)sets[i].gfp, sets[i].names);
		says(word);
	}
	listen();
	NEED(!km_alloc_failed("other", 8, GFP_KERNEL | __GFP_ZERO, ENOMEM));
	says("other: unable to allocate 8 bytes, gfp=0x1b01(GFP_KERNEL|__GFP_ZERO), reason: system memory\n");
	listen();
	refuse(cache, GFP_NOWAIT, 3);
	refuse(cache, GFP_ATOMIC, 3);
	refuse(cache, GFP_KERNEL | __GFP_NOWARN, 3);
	NEED(!*text, "%s", text);
}

static struct kmem_cache *handled;

static void on_signal(int number)
{
	(void)number;
	refuse(handled, GFP_KERNEL, 3);
	refuse(handled, GFP_NOWAIT, 3);
}

static void in_a_handler(void)
{
	handled = full_cache("handled", 0);
	signal(SIGUSR1, on_signal);
	listen();
	raise(SIGUSR1);
	NEED(lines_with("handled:") == 3, "%s", text);
}

static void of_a_group(void)
{
	struct mem_cgroup *group = group_below(NULL, "tenant"), *before = set_active_memcg(group);
	struct kmem_cache *cache = kmem_cache_create("charged", 1000, NULL, SLAB_ACCOUNT);

	NEED(mem_cgroup_set_max(group, 65536) == 0);
	listen();
	for (int i = 0; i < KEPT; i++)
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
	says("group tenant: unable to allocate ");
	says("reason: limit of group tenant (65536 bytes)");
	NEED(lines_with("tenant") == 10, "%s", text);
	/* Large blocks, private groups. */
	ahead_ms += 5000;
	listen();
	NEED(!kmalloc(100000, GFP_KERNEL_ACCOUNT));
	says("reason: limit of group tenant (65536 bytes)");
	NEED(lines_with("libkmem:") == 1, "%s", text);
	struct mem_cgroup *private = private_group("sealed");
	NEED(mem_cgroup_set_max(private, 65536) == 0);
	set_active_memcg(private);
	listen();
	while (kmem_cache_alloc(cache, GFP_KERNEL))
		;
	says("reason: limit of group sealed (65536 bytes)");
	set_active_memcg(before);
}

static const char *refused_call;

static bool refuses(const char *call)
{
	return !strncmp(call, refused_call, strlen(refused_call));
}

/* Refusals of the system: memory, or addresses. */
static void of_the_system(void)
{
	void *p;

	NEED(kmalloc(1, GFP_KERNEL));
	listen();
	refused_call = "commit";
	km_os_fault = refuses;
	while ((p = kmalloc(1 << 20, GFP_KERNEL)))
		;
	km_os_fault = NULL;
	says("kmalloc: unable to allocate 1048576 bytes, gfp=0x1b00(GFP_KERNEL), reason: system memory\n");
	ahead_ms += 5000;
	listen();
	refused_call = "";
	km_os_fault = refuses;
	NEED(!kvmalloc((size_t)1 << 30, GFP_KERNEL));
	km_os_fault = NULL;
	says("kvmalloc: unable to allocate 1073741824 bytes, gfp=0x1b00(GFP_KERNEL), reason: address space\n");
}

static void of_the_process(void)
{
	struct rlimit limit = { 2ul << 30, 2ul << 30 };

	NEED(kmalloc(1, GFP_KERNEL));
	NEED(setrlimit(RLIMIT_DATA, &limit) == 0);
	listen();
	while (kvmalloc(64 << 20, GFP_KERNEL))
		;
	says("reason: process limit RLIMIT_DATA (2147483648 bytes)");
}

static void of_the_address_space(void)
{
	struct rlimit limit = { 4ul << 30, 4ul << 30 };

	NEED(setrlimit(RLIMIT_AS, &limit) == 0);
	listen();
	while (kvmalloc(64 << 20, GFP_KERNEL))
		;
	says("reason: process limit RLIMIT_AS (4294967296 bytes)");
}

static void of_the_call(void)
{
	listen();
	NEED(!kmalloc(KMALLOC_MAX_SIZE + 1, GFP_KERNEL) && errno == EINVAL);
	says("kmalloc: unable to allocate 4194305 bytes, gfp=0x1b00(GFP_KERNEL), "
	     "reason: limit of kmalloc (4194304 bytes)\n");
}

static const struct test_case cases[] = {
	{ "ten in five seconds", ten_in_five_seconds }, { "gfp by name", gfp_by_name },
	{ "in a handler", in_a_handler }, { "of a group", of_a_group }, { "of the system", of_the_system },
	{ "of the process", of_the_process }, { "of the address space", of_the_address_space },
	{ "of the call", of_the_call },
};

int main(void)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "refused lines");
}
