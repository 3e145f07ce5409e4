/*
 * memcg_caches.c: the objects of a group, cache by cache: mem_cgroup_walk_caches and the slab lines of memory.stat.
 * The numbers are exact, with any objects cached, of other groups or uncharged. Disciplines: all.
 */
#include "kit/charged_objects.h"

#define FEW 600
#define CACHES 40

static struct kmem_cache *caches[CACHES];
static struct mem_cgroup *groups[4];	/* 1 below 0; 3 is private */

struct expected {
	size_t objects[CACHES];
	unsigned private;	/* visits of private groups' caches */
	uint64_t bytes;
};

static int compare(const char *name, size_t count, uint64_t bytes, void *arg)
{
	struct expected *expected = arg;

	expected->bytes += bytes;
	for (unsigned c = 0; c < CACHES; c++) {
		const char *of = kmem_cache_name(caches[c]);
		size_t length = strlen(of);

		if (strncmp(name, of, length) || (name[length] && name[length] != ':'))
			continue;
		NEED(expected->objects[c] == count && (name[length] || bytes == count * cost(caches[c])));
		expected->objects[c] = 0;
		expected->private += name[length] == ':';
		return 0;
	}
	NEED(!name);
	return 0;
}

static int stop(const char *name, size_t count, uint64_t bytes, void *arg)
{
	(void)name, (void)count, (void)bytes;
	return ++*(int *)arg == 2 ? 77 : 0;
}

static unsigned long stat_of(struct mem_cgroup *group, const char *key)
{
	char text[1024], line[64];

	NEED(mem_cgroup_write_stat(group, text, sizeof(text)) < sizeof(text));
	snprintf(line, sizeof(line), "\n%s ", key);
	char *at = strstr(text, line);
	NEED(at);
	return strtoul(at + strlen(line), NULL, 10);
}

static void make_caches_and_groups(void)
{
	for (unsigned c = 0; c < CACHES; c++) {
		char name[32];

		snprintf(name, sizeof(name), "cache%02u", c);
		caches[c] = kmem_cache_create(name, 32 + c * 24, NULL, c % 3 ? SLAB_ACCOUNT : 0);
		NEED(caches[c]);
	}
	groups[0] = group_below(NULL, "top");
	groups[1] = group_below(groups[0], "below");
	groups[2] = group_below(groups[0], "gone");
	groups[3] = group_of(NULL, "own", MEM_CGROUP_PRIVATE);
}

static void to_the_object(void)
{
	static struct { void *object; int group, cache; } slot[FEW * 4];
	struct expected expected[4] = { 0 };

	make_caches_and_groups();
	for (int i = 0; i < FEW * 40; i++) {
		uint64_t random = random_number();
		int s = (int)(random % (FEW * 4)), g = (int)((random >> 32) % 5), c = (int)((random >> 40) % CACHES);

		if (slot[s].object) {
			kmem_cache_free(caches[slot[s].cache], slot[s].object);
			slot[s].object = NULL;
			continue;
		}
		/* Group 4: uncharged. */
		set_active_memcg(g < 4 ? groups[g] : NULL);
		NEED((slot[s].object = kmem_cache_alloc(caches[c], GFP_KERNEL_ACCOUNT)));
		set_active_memcg(NULL);
		slot[s].group = g;
		slot[s].cache = c;
	}
	/* The objects of this group are its parent's now. */
	mem_cgroup_put(groups[2]);
	for (int s = 0; s < FEW * 4; s++)
		if (slot[s].object && slot[s].group < 4)
			expected[slot[s].group == 2 ? 0 : slot[s].group].objects[slot[s].cache]++;
	for (int g = 0; g < 4; g += g == 1 ? 2 : 1) {
		struct expected left = { .bytes = 0 };

		NEED(mem_cgroup_walk_caches(groups[g], compare, &expected[g]) == 0);
		NEED(memcmp(expected[g].objects, left.objects, sizeof(left.objects)) == 0);
		NEED(!expected[g].private == (g != 3));
	}
	for (int g = 0; g < 4; g += 3)
		mem_cgroup_drain(groups[g]);
	NEED(mem_cgroup_current(groups[0]) == expected[0].bytes + expected[1].bytes);
	NEED(mem_cgroup_current(groups[3]) == expected[3].bytes);
	NEED(stat_of(groups[0], "slab") == mem_cgroup_current(groups[0]));
	NEED(stat_of(groups[0], "slab_unreclaimable") == mem_cgroup_current(groups[0]));
	NEED(stat_of(groups[1], "slab") == expected[1].bytes);
	int visits = 0;
	NEED(mem_cgroup_walk_caches(groups[0], stop, &visits) == 77 && visits == 2);
	for (int s = 0; s < FEW * 4; s++)
		if (slot[s].object)
			kmem_cache_free(caches[slot[s].cache], slot[s].object);
	NEED(mem_cgroup_walk_caches(groups[0], stop, &visits) == 0 && stat_of(groups[0], "slab") == 0);
	for (int g = 0; g < 4; g += g == 1 ? 2 : 1)
		mem_cgroup_put(groups[g]);
	for (unsigned c = 0; c < CACHES; c++)
		gone(caches[c]);
}

static const struct test_case cases[] = {
	{ "to the object", to_the_object },
};

GROUPS_MAIN(cases)
