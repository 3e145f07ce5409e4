/*
 * memcg_stat.c: threads read memory.stat, and a group's objects cache by cache, while groups start and end, and with
 * them slabs with several owners. Arguments: groups made by each thread. Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"
#include "kit/random.h"

#define THREADS	3
#define OBJECTS	600
#define CACHES	5

static struct mem_cgroup *top, *lasting[2];
static struct kmem_cache *caches[CACHES];
static unsigned running;

static int look(const char *cache, size_t objects, uint64_t bytes, void *sum)
{
	(void)cache, (void)objects;
	*(uint64_t *)sum += bytes;
	return 0;
}

struct churner {
	pthread_t thread;
	uint64_t random;
	int groups;
	void *object[OBJECTS];
	struct kmem_cache *of[OBJECTS];
};

static void use_one(struct churner *churner)
{
	struct mem_cgroup *group = group_below(top, "short");

	for (int i = 0; i < OBJECTS; i++) {
		unsigned random = random_next(&churner->random);

		MEMCG_SCOPE(random % 3 ? group : lasting[random / 3 % 2]);
		churner->of[i] = caches[random / 6 % CACHES];
		churner->object[i] = kmem_cache_alloc(churner->of[i], GFP_KERNEL);
		CHECK(churner->object[i]);
	}
	for (int i = 0; i < OBJECTS; i++) {
		memset(churner->object[i], 0x5a, 64);
		kmem_cache_free(churner->of[i], churner->object[i]);
	}
	mem_cgroup_put(group);
	if (random_next(&churner->random) % 4 == 0)
		kmem_cache_shrink(caches[random_next(&churner->random) % CACHES]);
}

static void *churn(void *arg)
{
	struct churner *churner = arg;

	for (int i = 0; i < churner->groups; i++)
		use_one(churner);
	__atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
	return NULL;
}

static uint64_t caches_of(struct mem_cgroup *group)
{
	uint64_t sum = 0;

	CHECK(mem_cgroup_walk_caches(group, look, &sum) == 0);
	return sum;
}

int main(int argc, char **argv)
{
	static struct churner churners[THREADS];
	int groups = argc > 1 ? atoi(argv[1]) : 4000;
	char text[512];

	top = group_below(NULL, "top");
	for (int i = 0; i < 2; i++)
		lasting[i] = group_below(top, "lasting");
	for (unsigned i = 0; i < CACHES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "stat-%u", 64u << i);
		CHECK(caches[i] = kmem_cache_create(name, 64u << i, NULL, SLAB_ACCOUNT));
	}
	running = THREADS;
	for (unsigned i = 0; i < THREADS; i++) {
		churners[i].random = i;
		churners[i].groups = groups;
		if (pthread_create(&churners[i].thread, NULL, churn, &churners[i]))
			abort();
	}
	while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
		CHECK(mem_cgroup_write_stat(top, text, sizeof(text)) < sizeof(text));
		caches_of(lasting[0]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(churners[i].thread, NULL);
	mem_cgroup_write_stat(top, text, sizeof(text));
	CHECK(strstr(text, "\nslab 0\n"));
	for (int i = 0; i < 2; i++) {
		CHECK(caches_of(lasting[i]) == 0);
		mem_cgroup_put(lasting[i]);
	}
	mem_cgroup_put(top);
	CHECK(kmem_check_all() == 0);
	printf("%d groups each\n", groups);
	return failures != 0;
}
