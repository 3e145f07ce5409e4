/*
 * cache_names_alike.c: caches with names that begin alike and are cut: child caches of private groups have
 * different names, and the end of a cache searches no cache by name. Disciplines: all.
 */
#include <string.h>

#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "slab/engine.h"

#define GROUPS	40u
#define CACHES	300u
#define ALIKE	"customer-production-eu-west-"

/* ------------------------------------------------------------------ child caches */

static char shown[2 * GROUPS + 64][sizeof(((struct kmem_cache_stats *)0)->name)];
static unsigned count;

static int note(struct kmem_cache *cache, void *arg)
{
	(void)arg;
	if (!cache->memcg.child_of)
		return 0;
	NEED(count < sizeof(shown) / sizeof(*shown));
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(cache, &stats);
	memcpy(shown[count++], stats.name, sizeof(stats.name));
	/* The lookup takes no search. */
	CHECK(!cache->registry.named_by && !cache->registry.next_named);
	return 0;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* The names are equal, the numbers differ. And the last cache of a name has no number. */
static void namesakes(void)
{
	struct kmem_cache *cache = kmem_cache_create("row", 64, NULL, SLAB_ACCOUNT);
	struct mem_cgroup *group[GROUPS];

	NEED(cache);
	count = 0;
	for (unsigned i = 0; i < GROUPS; i++) {
		NEED((group[i] = mem_cgroup_create(NULL, "tenant", MEM_CGROUP_PRIVATE)));
		NEED(kmem_cache_alloc_in(cache, group[i], GFP_KERNEL));
	}
	NEED(kmem_for_each_cache(note, NULL) == 0);
	CHECK(count == GROUPS && !strcmp(shown[0], "row:tenant"));
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < i; j++)
			CHECK(strcmp(shown[i], shown[j]) != 0);
	for (unsigned i = 0; i < GROUPS; i++) {
		NEED(mem_cgroup_destroy_all(group[i], NULL, NULL) == 0);
		mem_cgroup_put(group[i]);
	}
	NEED((group[0] = mem_cgroup_create(NULL, "tenant", MEM_CGROUP_PRIVATE)));
	NEED(kmem_cache_alloc_in(cache, group[0], GFP_KERNEL));
	count = 0;
	NEED(kmem_for_each_cache(note, NULL) == 0);
	CHECK(count == 1 && !strcmp(shown[0], "row:tenant"));
	NEED(mem_cgroup_destroy_all(group[0], NULL, NULL) == 0);
	mem_cgroup_put(group[0]);
	kmem_cache_destroy(cache);
}

/*
 * A child cache never has its parent's name, also where the name has no room for more, or the group's name is
 * empty.
 */
static void child_and_parent(void)
{
	static const char *const parents[] = {
		"thirty-one-characters-are-shown", "thirty-characters-and-then-one", "short",
	};
	static const char *const groups[] = { "", "x" };

	for (unsigned i = 0; i < 6; i++) {
		struct kmem_cache *cache = kmem_cache_create(parents[i / 2], 64, NULL, SLAB_ACCOUNT);
		struct mem_cgroup *group = mem_cgroup_create(NULL, groups[i % 2], MEM_CGROUP_PRIVATE);

		NEED(cache && group && kmem_cache_alloc_in(cache, group, GFP_KERNEL));
		count = 0;
		NEED(kmem_for_each_cache(note, NULL) == 0);
		CHECK(count == 1 && strcmp(shown[0], kmem_cache_name(cache)) && strchr(shown[0], ':'));
		NEED(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
		mem_cgroup_put(group);
		kmem_cache_destroy(cache);
	}
}

/* The shown name has the end of the group's name, and no two names are equal. */
static void children(void)
{
	struct kmem_cache *one = kmem_cache_create("conn", 64, NULL, SLAB_ACCOUNT);
	struct kmem_cache *two = kmem_cache_create("a-cache-with-a-long-name", 64, NULL, SLAB_ACCOUNT);
	struct mem_cgroup *group[GROUPS];
	char name[64];

	NEED(one && two);
	for (unsigned i = 0; i < GROUPS; i++) {
		/* Some are the same to the end. */
		snprintf(name, sizeof(name), i < 2 ? "web" : ALIKE "%05u", i / 2);
		NEED((group[i] = mem_cgroup_create(NULL, i ? name : "db", MEM_CGROUP_PRIVATE)));
		MEMCG_SCOPE(group[i]);
		void *a = kmem_cache_alloc(one, GFP_KERNEL), *b = kmem_cache_alloc(two, GFP_KERNEL);
		NEED(a && b);
		kmem_cache_free(one, a);
		kmem_cache_free(two, b);
	}
	NEED(kmem_for_each_cache(note, NULL) == 0);
	CHECK(count == 2 * GROUPS);
	for (unsigned i = 0; i < count; i++) {
		for (unsigned j = 0; j < i; j++)
			CHECK(strcmp(shown[i], shown[j]) != 0);
		snprintf(name, sizeof(name), "-%05u~%u", i / 2 / 2, i / 2 + 1);
		if (i >= 4)
			CHECK(strstr(shown[i], name));
		CHECK(begins(shown[i], i % 2 ? "a-cache-with-a-" : "conn:"));
	}
	CHECK(!strcmp(shown[0], "conn:db") && !strcmp(shown[2], "conn:web"));
	CHECK(!strcmp(shown[1], "a-cache-with-a-long-name:db"));
	for (unsigned i = 0; i < GROUPS; i++)
		mem_cgroup_put(group[i]);
	kmem_cache_destroy(one);
	kmem_cache_destroy(two);
}

/* ------------------------------------------------------------------ a program's own */

/* One pointer, known to the cache, names the owner of a name. */
static void own(void)
{
	static struct kmem_cache *cache[CACHES];
	char name[64];

	for (unsigned i = 0; i < CACHES; i++) {
		snprintf(name, sizeof(name), ALIKE "of-caches-%u", i);
		NEED((cache[i] = kmem_cache_create(name, 64, NULL, 0)));
	}
	for (unsigned i = 0; i < CACHES; i++) {
		/* The oldest, the latest, one between. */
		unsigned at = i % 3 == 0 ? i / 3 : i % 3 == 1 ? CACHES - 1 - i / 3 : CACHES / 3 + i / 3;

		for (unsigned j = 0; j < CACHES; j++)
			CHECK(!cache[j] || *cache[j]->registry.named_by == cache[j]);
		kmem_cache_destroy(cache[at]);
		cache[at] = NULL;
	}
}

int main(void)
{
	children();
	namesakes();
	child_and_parent();
	/* Each equal name prints a warning. */
	NEED(freopen("/dev/null", "w", stderr));
	own();
	return failures != 0;
}
