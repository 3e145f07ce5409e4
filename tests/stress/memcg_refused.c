/*
 * memcg_refused.c: sister groups whose needs fit together below one limit, on several CPUs and caches, while each
 * group keeps freed bytes in stocks and sheaves: no request ever fails. Arguments: rounds. Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"
#include "kit/random.h"

#define SISTERS	3
#define MOST	20000ul		/* of each of them */
#define IN_HAND	32768ul		/* half a sheaf, on its way between the counters and the CPU */
#define LARGE	300000ul	/* of the thread that charges and uncharges meanwhile */
#define CACHES	4

static struct mem_cgroup *top;
static struct kmem_cache *caches[CACHES];
static bool over;

struct sister {
	pthread_t thread;
	struct mem_cgroup *group;
	unsigned number;
	unsigned long refused;
};

/* By hand, and objects. */
static bool charge_some(struct sister *sister, unsigned random)
{
	unsigned long bytes = 1 + random % MOST;

	if (random >> 16 & 1) {
		MEMCG_SCOPE(sister->group);
		struct kmem_cache *cache = caches[random % CACHES];
		void *object = kmem_cache_alloc(cache, GFP_KERNEL);

		if (object)
			kmem_cache_free(cache, object);
		return object;
	}
	if (!charge(sister->group, bytes))
		return false;
	mem_cgroup_uncharge(sister->group, bytes);
	return true;
}

static void *charge_on(void *arg)
{
	struct sister *sister = arg;
	uint64_t random = sister->number;

	go_to_cpu(cpu_at((int)sister->number % 2));
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		sister->refused += !charge_some(sister, random_next(&random));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5000;
	struct sister sisters[SISTERS] = { 0 };
	static const char *const names[CACHES] = { "refused-64", "refused-128", "refused-256", "refused-512" };
	unsigned long refused = 0;

	cpu_at(0);
	top = group_below(NULL, "top");
	mem_cgroup_set_max(top, LARGE + SISTERS * (MOST + IN_HAND));
	struct mem_cgroup *large = group_below(top, "large");
	for (unsigned i = 0; i < CACHES; i++)
		CHECK(caches[i] = kmem_cache_create(names[i], 64u << i, NULL, SLAB_ACCOUNT));
	for (unsigned i = 0; i < SISTERS; i++) {
		sisters[i].group = group_below(top, "sister");
		sisters[i].number = i;
		if (pthread_create(&sisters[i].thread, NULL, charge_on, &sisters[i]))
			abort();
	}
	for (int i = 0; i < rounds; i++) {
		go_to_cpu(cpu_at(i / 100 % 2));
		if (charge(large, LARGE))
			mem_cgroup_uncharge(large, LARGE);
		else
			refused++;
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	CHECK_EQUAL(refused, 0);
	for (int i = 0; i < SISTERS; i++) {
		pthread_join(sisters[i].thread, NULL);
		CHECK_EQUAL(sisters[i].refused, 0);
		mem_cgroup_put(sisters[i].group);
	}
	CHECK_EQUAL(drained(top), 0);
	CHECK(mem_cgroup_peak(top) <= LARGE + SISTERS * (MOST + IN_HAND));
	mem_cgroup_put(large);
	mem_cgroup_put(top);
	printf("%d rounds\n", rounds);
	return failures != 0;
}
