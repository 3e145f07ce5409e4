/*
 * memcg.c: all group operations at once, from a seed: moving threads charge groups in a tree whose groups start and
 * end, limits change and are met, stocks are drained, shrinkers called, children forked. The test knows each charge:
 * at the end, and in each child, every group's current is the sum of the charges below it. Arguments: seed, rounds.
 * Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"
#include "kit/random.h"

#include <sys/wait.h>

#define THREADS	4
#define TENANTS	12
#define HELD_OBJECTS	200

/* A place in the tree, with a group replaced now and then. */
struct place {
	pthread_mutex_t lock;
	struct mem_cgroup *group;
};

struct held {
	struct mem_cgroup *group;	/* referenced; may be offline */
	unsigned long bytes;
};

static struct mem_cgroup *top, *halves[2];
static struct place places[TENANTS];
static struct worker {
	pthread_t thread;
	uint64_t random;
	struct held held[HELD_OBJECTS];
	unsigned long out[2], refused;
	int half;
} workers[THREADS];
static int rounds = 40000;

static unsigned long below(struct worker *worker, unsigned long n)
{
	return random_next(&worker->random) % n;
}

static struct mem_cgroup *take_group(struct place *place)
{
	pthread_mutex_lock(&place->lock);
	struct mem_cgroup *group = mem_cgroup_get(place->group);
	pthread_mutex_unlock(&place->lock);
	return group;
}

/* The tenants of even places are below one half, the others below the other: so the halves' sums are known. */
static void replace(struct worker *worker, int i)
{
	struct mem_cgroup *fresh = group_below(halves[i % 2], "tenant");

	if (below(worker, 2))
		mem_cgroup_set_max(fresh, 20000 + below(worker, 3000000));
	pthread_mutex_lock(&places[i].lock);
	struct mem_cgroup *old = places[i].group;
	places[i].group = fresh;
	pthread_mutex_unlock(&places[i].lock);
	if (below(worker, 2))
		mem_cgroup_offline(old);
	mem_cgroup_put(old);
}

static void give_up(struct worker *worker, int k)
{
	struct held *held = &worker->held[k];

	if (!held->group)
		return;
	mem_cgroup_uncharge(held->group, held->bytes);
	mem_cgroup_put(held->group);
	held->group = NULL;
}

static void get(struct worker *worker, int k)
{
	struct held *held = &worker->held[k];
	static const gfp_t gfps[] = { GFP_KERNEL, GFP_KERNEL, GFP_NOWAIT, GFP_KERNEL | __GFP_NORETRY, GFP_ATOMIC };

	give_up(worker, k);
	held->group = take_group(&places[below(worker, TENANTS)]);
	held->bytes = below(worker, 10) ? 1 + below(worker, 700) : 1 + below(worker, 300000);
	if (mem_cgroup_charge(held->group, gfps[below(worker, 5)], held->bytes)) {
		worker->refused++;
		mem_cgroup_put(held->group);
		held->group = NULL;
	}
}

static uint64_t shrink_nothing(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	return 0;
}

/* In the child all other threads are missing: their objects are lost, but the sums agree. */
static void fork_and_look(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		alarm(580);
		unsigned long all = drained(top);
		bool good = all == mem_cgroup_current(halves[0]) + mem_cgroup_current(halves[1]);
		struct mem_cgroup *group = group_below(halves[0], "child's");
		mem_cgroup_set_max(top, MEMCG_NO_LIMIT);
		mem_cgroup_set_max(halves[0], MEMCG_NO_LIMIT);
		good = good && charge(group, 12345) && drained(top) == all + 12345;
		mem_cgroup_uncharge(group, 12345);
		mem_cgroup_put(group);
		_exit(good && drained(top) == all ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "in the child");
}

static void *work(void *arg)
{
	struct worker *worker = arg;

	for (int i = 0; i < rounds; i++) {
		unsigned long what = below(worker, 10000);

		get(worker, (int)below(worker, HELD_OBJECTS));
		if (what < 40)
			replace(worker, (int)below(worker, TENANTS));
		else if (what < 60)
			go_to_cpu(cpu_at((int)below(worker, 2)));
		else if (what < 80)
			mem_cgroup_drain(halves[below(worker, 2)]);
		else if (what < 100)
			mem_cgroup_set_max(halves[below(worker, 2)], 1000000 + below(worker, 20000000));
		else if (what < 110)
			mem_cgroup_remove_shrinker(mem_cgroup_add_shrinker(halves[0], 0, shrink_nothing, NULL));
		else if (what < 113)
			fork_and_look();
	}
	return NULL;
}

static unsigned long out_below(int half)
{
	unsigned long bytes = 0;

	for (int w = 0; w < THREADS; w++)
		for (int k = 0; k < HELD_OBJECTS; k++) {
			struct held *held = &workers[w].held[k];

			if (held->group && mem_cgroup_parent(held->group) == halves[half])
				bytes += held->bytes;
		}
	return bytes;
}

int main(int argc, char **argv)
{
	unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;

	if (argc > 2)
		rounds = atoi(argv[2]);
	cpu_at(0);
	top = group_below(NULL, "top");
	mem_cgroup_set_max(top, 30000000);
	for (int i = 0; i < 2; i++)
		halves[i] = group_below(top, "half");
	for (int i = 0; i < TENANTS; i++) {
		pthread_mutex_init(&places[i].lock, NULL);
		places[i].group = group_below(halves[i % 2], "tenant");
	}
	for (int w = 0; w < THREADS; w++) {
		workers[w].random = seed * 1000 + (unsigned long)w;
		if (pthread_create(&workers[w].thread, NULL, work, &workers[w]))
			abort();
	}
	for (int w = 0; w < THREADS; w++)
		pthread_join(workers[w].thread, NULL);
	mem_cgroup_drain(top);
	unsigned long refused = 0;
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(mem_cgroup_current(halves[i]), out_below(i));
	CHECK_EQUAL(mem_cgroup_current(top), out_below(0) + out_below(1));
	for (int w = 0; w < THREADS; w++) {
		for (int k = 0; k < HELD_OBJECTS; k++)
			give_up(&workers[w], k);
		refused += workers[w].refused;
	}
	CHECK_EQUAL(drained(top), 0);
	/* Without a met limit the test proves little. */
	CHECK(refused > 0);
	for (int i = 0; i < TENANTS; i++)
		mem_cgroup_put(places[i].group);
	mem_cgroup_put(halves[0]);
	mem_cgroup_put(halves[1]);
	mem_cgroup_put(top);
	char text[256];
	mem_cgroup_write_stat(mem_cgroup_root(), text, sizeof(text));
	CHECK(strstr(text, "dying 0\n"));
	printf("seed %lu, %d rounds, %lu refused\n", seed, rounds, refused);
	return failures != 0;
}
