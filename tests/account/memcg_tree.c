/*
 * memcg_tree.c: groups start and end: their names, refused calls, the group charged by a thread; an offline group's
 * charges are its parent's, over generations and during other threads' charges; both sides of a fork; the texts.
 * Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"

#include <limits.h>
#include <sys/wait.h>

#include "memcg/objcg.h"

static void come_and_go(void)
{
	char name[2 * MEMCG_NAME_MAX];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	name[0] = '/';
	name[1] = '\n';
	struct mem_cgroup *top = group_below(NULL, name), *group = group_below(top, "");
	CHECK_EQUAL(strlen(mem_cgroup_name(top)), MEMCG_NAME_MAX - 1);
	CHECK(memcmp(mem_cgroup_name(top), "__xx", 4) == 0);
	CHECK(mem_cgroup_parent(top) == mem_cgroup_root() && mem_cgroup_parent(group) == top);
	CHECK(!mem_cgroup_parent(mem_cgroup_root()));
	CHECK_EQUAL(mem_cgroup_max(top), MEMCG_NO_LIMIT);
	CHECK_EQUAL(mem_cgroup_high(top), MEMCG_NO_LIMIT);
	CHECK_EQUAL(mem_cgroup_low(top) + mem_cgroup_min(top), 0);
	errno = 0;
	CHECK(!mem_cgroup_create(top, NULL, 0) && errno == EINVAL);
	CHECK(!mem_cgroup_create(top, "flags", 2) && errno == EINVAL);
	CHECK_EQUAL(mem_cgroup_offline(top), -EBUSY);
	CHECK_EQUAL(mem_cgroup_offline(mem_cgroup_root()), -EBUSY);
	CHECK(mem_cgroup_online(group));
	CHECK_EQUAL(mem_cgroup_offline(group), 0);
	CHECK(!mem_cgroup_online(group));
	CHECK_EQUAL(mem_cgroup_offline(group), -ENOENT);
	errno = 0;
	CHECK(!mem_cgroup_create(group, "below", 0) && errno == ENOENT);
	CHECK_EQUAL(mem_cgroup_offline(top), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
	mem_cgroup_put(NULL);
	mem_cgroup_put(mem_cgroup_root());
	CHECK_EQUAL(mem_cgroup_set_max(mem_cgroup_root(), 1), -EINVAL);
	CHECK_EQUAL(mem_cgroup_set_high(mem_cgroup_root(), 1), -EINVAL);
	CHECK_EQUAL(mem_cgroup_set_low(mem_cgroup_root(), 1), -EINVAL);
	CHECK_EQUAL(mem_cgroup_set_min(mem_cgroup_root(), 1), -EINVAL);
}

static void depth(void)
{
	struct mem_cgroup *groups[MEMCG_DEPTH_MAX], *above = NULL;

	for (int i = 0; i < MEMCG_DEPTH_MAX; i++)
		above = groups[i] = group_below(above, "deeper");
	errno = 0;
	CHECK(!mem_cgroup_create(above, "too deep", 0) && errno == EINVAL);
	CHECK(charge(above, 777));
	CHECK_EQUAL(drained(groups[0]), 777);
	mem_cgroup_uncharge(above, 777);
	CHECK_EQUAL(drained(groups[0]), 0);
	for (int i = MEMCG_DEPTH_MAX; i--;)
		mem_cgroup_put(groups[i]);
}

static void who_pays(void)
{
	struct mem_cgroup *a = group_below(NULL, "a"), *b = group_below(NULL, "b");

	CHECK(!mem_cgroup_active() && !km_objcg_now());
	{
		MEMCG_SCOPE(a);
		CHECK(mem_cgroup_active() == a && km_objcg_memcg(km_objcg_now()) == a);
		{
			MEMCG_SCOPE(b);
			CHECK(mem_cgroup_active() == b);
			CHECK(set_active_memcg(mem_cgroup_root()) == b);
			CHECK(km_objcg_now() == &km_objcg_root && km_objcg_charge(km_objcg_now(), 5, GFP_KERNEL));
			km_objcg_uncharge(km_objcg_now(), 5);
			CHECK(set_active_memcg(b) == mem_cgroup_root());
			mem_cgroup_put(km_objcg_memcg(km_objcg_now()));
		}
		CHECK(mem_cgroup_active() == a);
		mem_cgroup_put(a);
	}
	CHECK(!mem_cgroup_active());
	mem_cgroup_set_default(a);
	CHECK(!mem_cgroup_active() && km_objcg_now() == km_objcg_default);
	mem_cgroup_set_default(b);
	struct mem_cgroup *pays = km_objcg_memcg(km_objcg_now());
	CHECK(pays == b);
	mem_cgroup_put(pays);
	mem_cgroup_set_default(NULL);
	CHECK(!km_objcg_now());
	mem_cgroup_put(a);
	mem_cgroup_put(b);
}

/* Charges move up as group after group ends; each is uncharged from a long ended group. */
static void generations(void)
{
	enum { DEEP = 6 };
	struct mem_cgroup *groups[DEEP], *above = NULL;
	struct obj_cgroup *objcgs[DEEP];

	for (int i = 0; i < DEEP; i++) {
		above = groups[i] = group_below(above, "generation");
		CHECK(charge(groups[i], 1000ul << i));
		MEMCG_SCOPE(groups[i]);
		objcgs[i] = km_objcg_now();
	}
	for (int i = DEEP; --i;) {
		CHECK_EQUAL(mem_cgroup_offline(groups[i]), 0);
		CHECK_EQUAL(mem_cgroup_current(groups[i]), 0);
		CHECK_EQUAL(drained(groups[i - 1]), (1000ul << DEEP) - (1000ul << (i - 1)));
		/* A thread with the offline group as its active group charges the parent. */
		CHECK(charge(groups[i], 10));
		CHECK_EQUAL(mem_cgroup_current(groups[i]), 0);
		CHECK_EQUAL(drained(groups[0]), (1000ul << DEEP) - 1000 + 10);
		mem_cgroup_uncharge(groups[i], 10);
		mem_cgroup_put(groups[i]);
	}
	char text[256];
	mem_cgroup_write_stat(groups[0], text, sizeof(text));
	CHECK(strstr(text, "kernel 63000\n") && strstr(text, "stock 0\n") && strstr(text, "dying 5\n"));
	for (int i = 1; i < DEEP - 1; i++)
		km_objcg_uncharge(objcgs[i], 1000ul << i);
	CHECK_EQUAL(drained(groups[0]), 33000);
	/* The last of them moves on to the root, which counts nothing, and ends there. */
	CHECK_EQUAL(mem_cgroup_offline(groups[0]), 0);
	mem_cgroup_uncharge(groups[0], 1000);
	km_objcg_uncharge(objcgs[DEEP - 1], 1000ul << (DEEP - 1));
	mem_cgroup_put(groups[0]);
	mem_cgroup_write_stat(mem_cgroup_root(), text, sizeof(text));
	CHECK(strstr(text, "kernel 0\n") && strstr(text, "dying 0\n"));
}

struct charger {
	struct mem_cgroup *group;
	unsigned long out;	/* bytes left charged by the thread */
	int rounds;
};

static bool stop;	/* atomic */

static void *charge_on(void *arg)
{
	struct charger *charger = arg;
	unsigned long held[64] = { 0 };
	uint64_t state = (uintptr_t)arg;

	for (int i = 0; i < charger->rounds && !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		unsigned k = (state >> 33) % 64;

		if (held[k])
			mem_cgroup_uncharge(charger->group, held[k]);
		held[k] = 1 + (state >> 40) % 5000;
		if (mem_cgroup_charge(charger->group, i % 3 ? GFP_KERNEL : GFP_NOWAIT, held[k]))
			held[k] = 0;
		if (i % 1000 == 0)
			go_to_cpu(cpu_at(i / 1000 % 2));
	}
	for (int k = 0; k < 64; k++)
		charger->out += held[k];
	return NULL;
}

/* Other threads charge while their group ends, and then the parent. */
static void offline_under_fire(void)
{
	enum { THREADS = 4, TIMES = 10 };
	struct mem_cgroup *top = group_below(NULL, "top");
	unsigned long sum = 0;

	for (int time = 0; time < TIMES; time++) {
		struct mem_cgroup *middle = group_below(top, "middle"), *low = group_below(middle, "low");
		struct charger chargers[THREADS];
		pthread_t threads[THREADS];

		for (int i = 0; i < THREADS; i++) {
			chargers[i] = (struct charger){ i % 2 ? low : middle, 0, 20000 };
			if (pthread_create(&threads[i], NULL, charge_on, &chargers[i]))
				abort();
		}
		sched_yield();
		for (int i = 0; i < 3; i++)
			mem_cgroup_drain(top);
		CHECK_EQUAL(mem_cgroup_offline(low), 0);
		sched_yield();
		CHECK_EQUAL(mem_cgroup_offline(middle), 0);
		for (int i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			sum += chargers[i].out;
		}
		CHECK_EQUAL(drained(top), sum);
		CHECK_EQUAL(mem_cgroup_current(low) + mem_cgroup_current(middle), 0);
		/* Give all back in one piece each. */
		for (int i = 0; i < THREADS; i++) {
			mem_cgroup_uncharge(chargers[i].group, chargers[i].out);
			sum -= chargers[i].out;
		}
		CHECK_EQUAL(drained(top), 0);
		mem_cgroup_put(middle);
		mem_cgroup_put(low);
	}
	mem_cgroup_put(top);
}

static int note_visit(struct mem_cgroup *group, unsigned int depth, void *arg)
{
	char *text = arg;

	snprintf(text + strlen(text), 64, "%u%s ", depth, mem_cgroup_name(group));
	/* The visitor may change the tree, also its own part. */
	if (strcmp(mem_cgroup_name(group), "b") == 0)
		mem_cgroup_offline(group);
	return strcmp(mem_cgroup_name(group), "stop") == 0 ? 7 : 0;
}

static void walking(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *a = group_below(top, "a"), *b = group_below(a, "b"),
			  *c = group_below(a, "c"), *d = group_below(top, "d");
	char text[512] = "";

	CHECK_EQUAL(mem_cgroup_walk(top, note_visit, text), 0);
	CHECK(strcmp(text, "0top 1a 2b 2c 1d ") == 0);
	text[0] = '\0';
	CHECK_EQUAL(mem_cgroup_walk(a, note_visit, text), 0);
	CHECK(strcmp(text, "0a 1c ") == 0);
	text[0] = '\0';
	mem_cgroup_put(c);
	c = group_below(a, "stop");
	CHECK_EQUAL(mem_cgroup_walk(NULL, note_visit, text), 7);
	CHECK(strcmp(text, "0/ 1top 2a 3stop ") == 0);
	mem_cgroup_put(b);
	mem_cgroup_put(c);
	mem_cgroup_put(a);
	mem_cgroup_put(d);
	mem_cgroup_put(top);
}

/* Each side goes on from the same numbers, independently; with other threads in the middle of charges. */
static void both_sides_of_a_fork(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *quiet = group_below(top, "quiet"),
			  *busy = group_below(top, "busy");
	struct charger charger = { busy, 0, INT_MAX };
	pthread_t thread;

	CHECK(charge(quiet, 123456));
	if (pthread_create(&thread, NULL, charge_on, &charger))
		abort();
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			alarm(580);
			bool good = drained(quiet) == 123456 && charge(quiet, 1000) && charge(busy, 70000);

			mem_cgroup_uncharge(quiet, 23456);
			good = good && drained(quiet) == 101000 && !mem_cgroup_offline(quiet);
			mem_cgroup_uncharge(quiet, 101000);
			mem_cgroup_put(quiet);
			good = good && mem_cgroup_create(busy, "new", 0);
			_exit(good ? 0 : 1);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	__atomic_store_n(&stop, false, __ATOMIC_RELAXED);
	CHECK_EQUAL(drained(quiet), 123456);
	mem_cgroup_uncharge(quiet, 123456);
	mem_cgroup_uncharge(busy, charger.out);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(quiet);
	mem_cgroup_put(busy);
	mem_cgroup_put(top);
}

static void texts(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	char text[256];

	mem_cgroup_set_max(group, 5000);
	CHECK(charge(group, 5000) && mem_cgroup_charge(group, GFP_NOWAIT, 1) == -ENOMEM);
	CHECK_EQUAL(mem_cgroup_write_current(group, text, sizeof(text)), 5);
	CHECK(strcmp(text, "5000\n") == 0);
	CHECK_EQUAL(mem_cgroup_write_current(group, text, 3), 5);
	CHECK(strcmp(text, "50") == 0);
	CHECK_EQUAL(mem_cgroup_write_current(group, NULL, 0), 5);
	mem_cgroup_write_events(top, text, sizeof(text));
	CHECK(strcmp(text, "low 0\nhigh 0\nmax 1\noom 0\noom_kill 0\noom_group_kill 0\nsock_throttled 0\n") == 0);
	mem_cgroup_write_events_local(top, text, sizeof(text));
	CHECK(strncmp(text, "low 0\nhigh 0\nmax 0\n", 18) == 0);
	mem_cgroup_write_stat(group, text, sizeof(text));
	CHECK(strcmp(text, "kernel 5000\nslab_reclaimable 0\nslab_unreclaimable 0\nslab 0\nstock 0\ndying 0\n") == 0);
	mem_cgroup_uncharge(group, 5000);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
}

static const struct test_case cases[] = {
	{ "come and go", come_and_go },
	{ "depth", depth },
	{ "who pays", who_pays },
	{ "generations", generations },
	{ "offline under fire", offline_under_fire },
	{ "walking", walking },
	{ "both sides of a fork", both_sides_of_a_fork },
	{ "texts", texts },
};

int main(void)
{
	return run_in_turn(cases, sizeof(cases) / sizeof(cases[0]), 1);
}
