/*
 * memcg_pressure.c: a charge that meets a limit: the order of shrinkers, the protection by low and min, the
 * out-of-memory callback, the delay above high; the events counted, their groups, and the notifications. And a
 * charge that may not make system calls makes none. Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"
#include "kit/random.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "os/os.h"

#define PAGE	4096ul
#define MIB	(1ul << 20)

/* A simulated cache: bytes charged to a group that the cache can give up. */
struct pool {
	struct mem_cgroup *group;
	const char *name;
	unsigned long bytes;
	int asked;
	struct mem_cgroup_shrinker *shrinker;
};

static char order[256];		/* the shrinkers called, in order */

static uint64_t shrink_pool(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	struct pool *pool = arg;
	uint64_t give = bytes < pool->bytes ? bytes : pool->bytes;

	CHECK(group == pool->group);
	pool->asked++;
	strcat(order, pool->name);
	pool->bytes -= give;
	mem_cgroup_uncharge(group, give);
	errno = EBADF;
	return give;
}

static void fill(struct pool *pool, struct mem_cgroup *group, const char *name, int priority, unsigned long bytes)
{
	*pool = (struct pool){ .group = group, .name = name, .bytes = bytes };
	CHECK(charge(group, bytes));
	pool->shrinker = mem_cgroup_add_shrinker(group, priority, shrink_pool, pool);
	CHECK(pool->shrinker);
}

static void empty(struct pool *pool)
{
	mem_cgroup_remove_shrinker(pool->shrinker);
	mem_cgroup_uncharge(pool->group, pool->bytes);
}

static void forget_order(void)
{
	order[0] = '\0';
}

static void order_of_shrinkers(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *a = group_below(top, "a"), *b = group_below(top, "b"),
			  *other = group_below(NULL, "other");
	struct pool pools[5];

	fill(&pools[0], a, "A", 5, 100000);
	fill(&pools[1], b, "B", -1, 100000);
	fill(&pools[2], b, "C", 5, 100000);
	fill(&pools[3], top, "D", 0, 100000);
	fill(&pools[4], other, "X", -9, 100000);
	CHECK_EQUAL(drained(top), 400000);
	forget_order();
	CHECK_EQUAL(mem_cgroup_reclaim(top, 50000), 50000);
	CHECK(strcmp(order, "B") == 0);
	forget_order();
	CHECK_EQUAL(mem_cgroup_reclaim(top, 200000), 200000);
	CHECK(strcmp(order, "BDA") == 0);
	CHECK_EQUAL(drained(top), 150000);
	/* Below b there is only b's shrinker; an empty shrinker is called too, and returns 0. */
	forget_order();
	CHECK_EQUAL(mem_cgroup_reclaim(b, 1), 1);
	CHECK(strcmp(order, "BC") == 0);
	/* A charge at the limit reclaims, and succeeds. errno is unchanged. */
	mem_cgroup_set_max(top, 150000);
	forget_order();
	errno = 0;
	CHECK(charge(a, 100000));
	CHECK(strncmp(order, "BDA", 3) == 0 && errno == 0);
	CHECK(drained(top) <= 150000);
	CHECK_EQUAL(mem_cgroup_events(top, MEMCG_MAX) > 0, 1);
	CHECK_EQUAL(mem_cgroup_events(top, MEMCG_OOM), 0);
	CHECK_EQUAL(mem_cgroup_events(a, MEMCG_MAX), 0);
	/* An offline group's is not asked, and can't be added. */
	CHECK_EQUAL(mem_cgroup_offline(other), 0);
	CHECK_EQUAL(mem_cgroup_reclaim(mem_cgroup_root(), 1) == 1 && pools[4].asked == 0, 1);
	errno = 0;
	CHECK(!mem_cgroup_add_shrinker(other, 0, shrink_pool, NULL) && errno == ENOENT);
	errno = 0;
	CHECK(!mem_cgroup_add_shrinker(mem_cgroup_root(), 0, shrink_pool, NULL) && errno == EINVAL);
	mem_cgroup_uncharge(a, 100000);
	for (int i = 0; i < 5; i++)
		empty(&pools[i]);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(a);
	mem_cgroup_put(b);
	mem_cgroup_put(other);
	mem_cgroup_put(top);
}

/*
 * low protects while other groups have reclaimable bytes; min always; each group only as far as its
 * ancestors are protected.
 */
static void protection(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *a = group_below(top, "a"), *b = group_below(top, "b"),
			  *c = group_below(a, "c"), *d = group_below(a, "d");
	struct pool pools[3];

	fill(&pools[0], c, "C", 0, 100000);
	fill(&pools[1], d, "D", 0, 100000);
	fill(&pools[2], b, "B", 0, 100000);
	mem_cgroup_drain(top);
	/* a has 100000 for both of its children; their claims are 200000: half for each. */
	mem_cgroup_set_low(a, 100000);
	mem_cgroup_set_low(c, 1000000);
	mem_cgroup_set_low(d, 1000000);
	CHECK_EQUAL(mem_cgroup_low(d), 1000000);
	mem_cgroup_reclaim(top, 120000);
	CHECK_EQUAL(pools[0].bytes, 50000);
	CHECK_EQUAL(pools[1].bytes, 50000 - 20000 + 20000);
	CHECK_EQUAL(pools[2].bytes, 80000);
	CHECK_EQUAL(mem_cgroup_events(top, MEMCG_LOW), 0);
	mem_cgroup_drain(top);
	/* Now both are below their low: b gives all, then low gives way, and is counted. */
	CHECK_EQUAL(mem_cgroup_reclaim(top, 90000), 90000);
	CHECK_EQUAL(pools[2].bytes, 0);
	CHECK_EQUAL(pools[0].bytes + pools[1].bytes, 90000);
	CHECK_EQUAL(mem_cgroup_events(c, MEMCG_LOW), 1);
	CHECK_EQUAL(mem_cgroup_events_local(a, MEMCG_LOW), 0);
	CHECK_EQUAL(mem_cgroup_events(top, MEMCG_LOW), 1);
	/* min: in neither round. Reclaim that begins at the group itself ignores protection. */
	mem_cgroup_set_min(a, 1000000);
	mem_cgroup_set_min(c, 1000000);
	mem_cgroup_set_min(d, 1000000);
	mem_cgroup_drain(top);
	CHECK_EQUAL(mem_cgroup_reclaim(top, 90000), 0);
	CHECK_EQUAL(mem_cgroup_reclaim(d, 1000), 1000);
	for (int i = 0; i < 3; i++)
		empty(&pools[i]);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(c);
	mem_cgroup_put(d);
	mem_cgroup_put(a);
	mem_cgroup_put(b);
	mem_cgroup_put(top);
}

static uint64_t shrink_nothing(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	/* Nor do the shrinker's own charges call the shrinker again. */
	CHECK(!charge(group, 1000000));
	++*(int *)arg;
	return 0;
}

struct killer {
	unsigned long victim;	/* bytes that the callback can free */
	int asked;
	bool lies;
};

static bool kill_one(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	struct killer *killer = arg;

	killer->asked++;
	mem_cgroup_uncharge(group, killer->victim);
	bool done = killer->victim != 0;
	killer->victim = 0;
	return done || killer->lies;
}

static void out_of_memory(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	struct killer killer = { 0 };
	int shrunk = 0;
	struct mem_cgroup_shrinker *shrinker = mem_cgroup_add_shrinker(group, 0, shrink_nothing, &shrunk);

	mem_cgroup_set_max(group, 100000);
	CHECK(charge(group, 100000));
	CHECK(!charge(group, 1000));
	CHECK_EQUAL(shrunk, 1);
	CHECK_EQUAL(mem_cgroup_events_local(group, MEMCG_OOM), 1);
	CHECK_EQUAL(mem_cgroup_events_local(top, MEMCG_OOM), 0);
	CHECK_EQUAL(mem_cgroup_events(top, MEMCG_OOM), 1);
	CHECK_EQUAL(mem_cgroup_events(group, MEMCG_OOM_KILL), 0);
	/* These do not go so far. */
	CHECK(mem_cgroup_charge(group, GFP_KERNEL | __GFP_NORETRY, 1000) == -ENOMEM);
	CHECK(mem_cgroup_charge(group, GFP_KERNEL | __GFP_RETRY_MAYFAIL, 1000) == -ENOMEM);
	CHECK_EQUAL(mem_cgroup_events(group, MEMCG_OOM), 1);
	/* The nearest callback is called, here the callback of the group above, about the full group. */
	mem_cgroup_set_oom_callback(top, kill_one, &killer);
	killer.victim = 5000;
	CHECK(charge(group, 1000));
	CHECK_EQUAL(killer.asked, 1);
	CHECK_EQUAL(mem_cgroup_events(group, MEMCG_OOM_KILL), 1);
	CHECK(charge(group, 4000) && !charge(group, 1));
	CHECK_EQUAL(killer.asked, 2);
	/* A callback that lies is called again, but not forever. */
	killer = (struct killer){ .lies = true };
	CHECK(!charge(group, 1));
	CHECK_EQUAL(killer.asked, 16);
	mem_cgroup_set_oom_callback(top, NULL, NULL);
	mem_cgroup_remove_shrinker(shrinker);
	mem_cgroup_uncharge(group, 100000);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
}

static void a_lower_max(void)
{
	struct mem_cgroup *group = group_below(NULL, "lower");
	struct pool pool;

	fill(&pool, group, "P", 0, 500000);
	CHECK_EQUAL(mem_cgroup_set_max(group, 200000), 0);
	CHECK_EQUAL(mem_cgroup_current(group), 200000);
	CHECK_EQUAL(pool.bytes, 200000);
	mem_cgroup_remove_shrinker(pool.shrinker);
	pool.shrinker = NULL;
	CHECK_EQUAL(mem_cgroup_set_max(group, 100000), 0);
	CHECK_EQUAL(mem_cgroup_current(group), 200000);
	CHECK(!charge(group, 1));
	empty(&pool);
	CHECK_EQUAL(drained(group), 0);
	mem_cgroup_put(group);
}

/* The kernel's table for high = 100M. */
static void curve(void)
{
	static const struct { unsigned mib, ms; } table[] = {
		{ 99, 0 }, { 100, 0 }, { 101, 6 }, { 102, 25 }, { 103, 57 }, { 104, 102 }, { 105, 159 },
		{ 106, 230 }, { 107, 313 }, { 108, 409 }, { 109, 518 }, { 110, 639 }, { 115, 1439 }, { 118, 2000 },
		{ 150, 2000 }, { 200, 2000 }, { 4000, 2000 },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		CHECK_EQUAL(mem_cgroup_high_delay(table[i].mib * MIB, 100 * MIB, 64 * PAGE), table[i].ms);
	CHECK_EQUAL(mem_cgroup_high_delay(110 * MIB, 100 * MIB, 32 * PAGE), 319);
	CHECK_EQUAL(mem_cgroup_high_delay(105 * MIB, 100 * MIB, 128 * PAGE), 318);
	CHECK_EQUAL(mem_cgroup_high_delay(MIB, 0, PAGE), 2000);
	CHECK_EQUAL(mem_cgroup_high_delay(~0ull, 1, ~0ull), 2000);
	CHECK_EQUAL(mem_cgroup_high_delay(~0ull, ~0ull, ~0ull), 0);
}

struct slowed {
	struct mem_cgroup *group;
	int times;
	uint64_t over;
	unsigned delay;
};

static void note_slowed(struct mem_cgroup *group, uint64_t over, unsigned int delay, void *arg)
{
	struct slowed *slowed = arg;

	slowed->group = group;
	slowed->times++;
	slowed->over = over;
	slowed->delay = delay;
	/* The callback may charge, and is not called for its own charge. */
	CHECK(charge(group, 300000));
	mem_cgroup_uncharge(group, 300000);
}

static void above_high(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	struct slowed slowed = { 0 };
	struct pool pool;

	mem_cgroup_set_high_callback(top, note_slowed, &slowed);
	mem_cgroup_set_high(top, MIB);
	CHECK(charge(group, MIB - 64 * PAGE));
	CHECK_EQUAL(slowed.times, 0);
	CHECK(charge(group, 80 * PAGE));
	CHECK_EQUAL(slowed.times, 1);
	CHECK(slowed.group == top);
	CHECK_EQUAL(slowed.over, 16 * PAGE);
	CHECK_EQUAL(slowed.delay, mem_cgroup_high_delay(MIB + 16 * PAGE, MIB, 80 * PAGE));
	CHECK(mem_cgroup_events(top, MEMCG_HIGH) >= 1);
	CHECK_EQUAL(mem_cgroup_events(group, MEMCG_HIGH), 0);
	/* Reclaim comes first: then no charge is delayed. */
	mem_cgroup_uncharge(group, 80 * PAGE);
	mem_cgroup_drain(top);
	fill(&pool, group, "P", 0, 32 * PAGE);
	CHECK(charge(group, 64 * PAGE));
	CHECK_EQUAL(slowed.times, 1);
	CHECK(pool.asked > 0 && mem_cgroup_current(top) <= MIB);
	/* Without a callback the charge sleeps, and returns. A NOWAIT charge only counts. */
	mem_cgroup_set_high_callback(top, NULL, NULL);
	CHECK(charge(group, 64 * PAGE));
	uint64_t before = mem_cgroup_events(top, MEMCG_HIGH);
	CHECK_EQUAL(mem_cgroup_charge(group, GFP_NOWAIT, 64 * PAGE), 0);
	CHECK_EQUAL(mem_cgroup_events(top, MEMCG_HIGH), before + 1);
	mem_cgroup_uncharge(group, MIB - 64 * PAGE + 3 * 64 * PAGE);
	empty(&pool);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
}

static uint64_t told(int fd)
{
	uint64_t count = 0;

	if (read(fd, &count, sizeof(count)) != sizeof(count))
		return 0;
	return count;
}

static void told_of_events(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	int fd = mem_cgroup_eventfd(top, 1u << MEMCG_MAX);

	errno = 0;
	CHECK(mem_cgroup_eventfd(top, 0) == -1 && errno == EINVAL);
	CHECK(mem_cgroup_eventfd(top, 1u << MEMCG_NR_MEMORY_EVENTS) == -1 && errno == EINVAL);
	CHECK(mem_cgroup_eventfd(mem_cgroup_root(), 1) == -1 && errno == EINVAL);
	CHECK(fd >= 0 && told(fd) == 0);
	mem_cgroup_set_max(group, 1000);
	CHECK(!charge(group, 2000));
	struct pollfd ready = { fd, POLLIN, 0 };
	CHECK(poll(&ready, 1, 0) == 1);
	CHECK_EQUAL(told(fd), 1);
	/* OOM was not asked for, yet. */
	CHECK_EQUAL(mem_cgroup_eventfd(top, 1u << MEMCG_OOM), fd);
	CHECK(!charge(group, 2000));
	CHECK_EQUAL(told(fd), 2);
	/* A charge that may not make system calls leaves the notification to a later charge. */
	for (int i = 0; i < 5; i++)
		CHECK(mem_cgroup_charge(group, GFP_NOWAIT, 2000));
	CHECK_EQUAL(told(fd), 0);
	mem_cgroup_drain(group);
	CHECK_EQUAL(told(fd), 5);
	int status, copy = dup(fd);
	pid_t child = fork();
	if (!child)
		_exit(mem_cgroup_charge(group, GFP_KERNEL, 2000) == -ENOMEM &&
		      mem_cgroup_eventfd(top, 1u << MEMCG_MAX) >= 0 && told(copy) == 0 ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK_EQUAL(told(fd), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
	CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
	close(copy);
}

/* ------------------------------------------------------------------ removal during a call */

static int inside, may_leave;	/* atomic */

static uint64_t stay_inside(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	__atomic_store_n(&inside, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&may_leave, __ATOMIC_RELAXED))
		sched_yield();
	__atomic_store_n(&inside, 2, __ATOMIC_RELAXED);
	return 0;
}

static void *reclaim_once(void *group)
{
	mem_cgroup_reclaim(group, 1);
	return NULL;
}

static void *let_it_leave(void *unused)
{
	usleep(30000);
	__atomic_store_n(&may_leave, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void removed_while_it_runs(void)
{
	struct mem_cgroup *group = group_below(NULL, "group");
	struct mem_cgroup_shrinker *shrinker = mem_cgroup_add_shrinker(group, 0, stay_inside, NULL);
	pthread_t threads[2];

	inside = may_leave = 0;
	CHECK(charge(group, 1));
	pthread_create(&threads[0], NULL, reclaim_once, group);
	while (!__atomic_load_n(&inside, __ATOMIC_RELAXED))
		sched_yield();
	pthread_create(&threads[1], NULL, let_it_leave, NULL);
	mem_cgroup_remove_shrinker(shrinker);
	CHECK_EQUAL(__atomic_load_n(&inside, __ATOMIC_RELAXED), 2);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	mem_cgroup_uncharge(group, 1);
	mem_cgroup_put(group);
}

/* ------------------------------------------------------------------ above high, without waiting */

/* Charges more than a page stock holds, to any group. */
static void waits(struct mem_cgroup *group)
{
	CHECK(charge(group, 65 * PAGE));
	mem_cgroup_uncharge(group, 65 * PAGE);
}

static void owe(struct mem_cgroup *group, unsigned long bytes)
{
	CHECK_EQUAL(mem_cgroup_charge(group, GFP_NOWAIT, bytes), 0);
}

static void *owe_and_exit(void *group)
{
	owe(group, 65 * PAGE);
	return NULL;
}

static void slowed_down_later(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *over = group_below(top, "over"), *other;
	struct slowed slowed = { 0 };
	pthread_t thread;
	int status;

	other = group_below(NULL, "other");
	mem_cgroup_set_high_callback(top, note_slowed, &slowed);
	mem_cgroup_set_high(top, 16 * MIB);
	CHECK(charge(over, 16 * MIB));
	/* By the next charge that may wait, to any group, for all groups above high, and once. */
	owe(over, 65 * PAGE);
	owe(over, 70 * PAGE);
	owe(other, 65 * PAGE);
	CHECK_EQUAL(slowed.times, 0);
	waits(other);
	CHECK_EQUAL(slowed.times, 1);
	CHECK(slowed.group == top);
	CHECK_EQUAL(slowed.over, 135 * PAGE);
	CHECK_EQUAL(slowed.delay, mem_cgroup_high_delay(16 * MIB + 135 * PAGE, 16 * MIB, 135 * PAGE));
	waits(other);
	CHECK_EQUAL(slowed.times, 1);
	/* Together with one to the same group. */
	mem_cgroup_uncharge(over, 130 * PAGE);
	mem_cgroup_drain(top);
	owe(over, 65 * PAGE);
	CHECK(charge(over, 66 * PAGE));
	CHECK_EQUAL(slowed.times, 2);
	CHECK_EQUAL(slowed.delay, mem_cgroup_high_delay(16 * MIB + 136 * PAGE, 16 * MIB, 131 * PAGE));
	/* Not if the group is below high again, nor in another thread, nor in a child. */
	owe(over, 65 * PAGE);
	mem_cgroup_set_high(top, 32 * MIB);
	waits(other);
	mem_cgroup_set_high(top, 16 * MIB);
	waits(other);
	CHECK(pthread_create(&thread, NULL, owe_and_exit, over) == 0 && pthread_join(thread, NULL) == 0);
	waits(other);
	CHECK_EQUAL(slowed.times, 2);
	owe(over, 65 * PAGE);
	if (!fork()) {
		waits(other);
		_exit(slowed.times != 2);
	}
	CHECK(wait(&status) > 0 && status == 0);
	waits(other);
	CHECK_EQUAL(slowed.times, 3);
	mem_cgroup_uncharge(over, 16 * MIB - 130 * PAGE + (135 + 65 + 66 + 3 * 65) * PAGE);
	mem_cgroup_put(over);
	mem_cgroup_put(top);
	mem_cgroup_put(other);
}

/* Nor for an ended group, nor for a group with the ended group's memory. */
static void no_thread_to_wait_for(void)
{
	struct mem_cgroup *other = group_below(NULL, "other"), *over, *again = NULL;
	struct slowed slowed = { 0 };
	pthread_t thread;

	for (int round = 0; round < 3; round++) {
		over = group_below(NULL, "over");
		mem_cgroup_set_high_callback(over, note_slowed, &slowed);
		mem_cgroup_set_high(over, 0);
		owe(over, 65 * PAGE);
		mem_cgroup_uncharge(over, 65 * PAGE);
		if (round == 0)
			mem_cgroup_get(over);
		CHECK_EQUAL(mem_cgroup_offline(over), 0);
		if (round == 2) {
			mem_cgroup_put(over);
			/* The memory of a group is reused after a while. */
			for (int i = 0; i < 1000 && (again = group_below(NULL, "again")) != over; i++)
				mem_cgroup_put(again);
			CHECK(again == over);
			mem_cgroup_set_high_callback(again, note_slowed, &slowed);
			CHECK(pthread_create(&thread, NULL, owe_and_exit, again) == 0);
			CHECK(pthread_join(thread, NULL) == 0);
			mem_cgroup_set_high(again, 0);
		}
		waits(other);
		CHECK_EQUAL(slowed.times, 0);
		if (round == 0)
			mem_cgroup_put(over);
		if (round < 2)
			mem_cgroup_put(over);
	}
	mem_cgroup_uncharge(again, 65 * PAGE);
	mem_cgroup_put(again);
	mem_cgroup_put(other);
}

/* Slabs charged to a private group for a request that may not wait. */
static void private_and_later(void)
{
	struct mem_cgroup *tenant = mem_cgroup_create(NULL, "tenant", MEM_CGROUP_PRIVATE);
	struct kmem_cache *cache = kmem_cache_create("tenant", 1000, NULL, SLAB_ACCOUNT);
	struct mem_cgroup *other = group_below(NULL, "other");
	struct slowed slowed = { 0 };
	static void *objects[1000];

	CHECK(tenant && cache);
	MEMCG_SCOPE(tenant);
	CHECK((objects[0] = kmem_cache_alloc(cache, GFP_KERNEL)));
	mem_cgroup_set_high_callback(tenant, note_slowed, &slowed);
	mem_cgroup_set_high(tenant, 65 * PAGE);
	for (int i = 1; i < 1000; i++)
		CHECK((objects[i] = kmem_cache_alloc(cache, GFP_NOWAIT)));
	CHECK_EQUAL(slowed.times, 0);
	waits(other);
	CHECK_EQUAL(slowed.times, 1);
	for (int i = 0; i < 1000; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_destroy(cache);
	mem_cgroup_put(tenant);
	mem_cgroup_put(other);
}

/* ------------------------------------------------------------------ no system call */

static void on_refused(int number, siginfo_t *info, void *context)
{
	_exit(100 + info->si_syscall % 100);
}

static void refuse_calls(void)
{
#define ALLOW(call)                                                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1),                                         \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	struct sigaction refused = { .sa_sigaction = on_refused, .sa_flags = SA_SIGINFO };

	sigaction(SIGSYS, &refused, NULL);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
}

static void *crowd(void *group)
{
	for (;;) {
		unsigned long bytes = 1 + random_below(20000);

		if (mem_cgroup_charge(group, GFP_KERNEL, bytes) == 0)
			mem_cgroup_uncharge(group, bytes);
		if (bytes % 64 == 0)
			mem_cgroup_drain(group);
	}
	return NULL;
}

/* Within limits, at max, above high, with notifications, with many threads, and back again. */
static void without_calls(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	unsigned long got = 0;
	pthread_t thread;

	mem_cgroup_set_high(top, 50000);
	mem_cgroup_set_high_callback(top, note_slowed, &(struct slowed){ 0 });
	mem_cgroup_set_max(group, 200000);
	mem_cgroup_eventfd(top, 1u << MEMCG_MAX | 1u << MEMCG_HIGH);
	pthread_create(&thread, NULL, crowd, group);
	refuse_calls();
	for (int i = 0; i < 200000; i++) {
		unsigned long bytes = 1 + random_below(9000);

		if (mem_cgroup_charge(group, i % 100 ? GFP_NOWAIT : GFP_ATOMIC, bytes) == 0) {
			got++;
			if (i % 50)
				mem_cgroup_uncharge(group, bytes);
		}
	}
	_exit(got > 1000 && mem_cgroup_events(top, MEMCG_MAX) > 0 ? 0 : 1);
}

static void no_system_call(void)
{
	int status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	printf("     a sanitizer makes calls of its own: nothing was looked at\n");
	return;
#endif
	pid_t child = fork();

	if (!child)
		without_calls();
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		printf("     no filter to be had: nothing was looked at\n");
	else
		CHECK_EQUAL(status, 0);
}

/*
 * ------------------------------------------------------------------ no refusal while charged bytes are unused
 */

/*
 * The child's limit refuses first; after its unused bytes are back the parent's limit refuses, and then the
 * sister's unused bytes are taken.
 */
static void one_limit_after_the_other(void)
{
	struct mem_cgroup *parent = group_below(NULL, "parent");
	struct mem_cgroup *child = group_below(parent, "child"), *sister = group_below(parent, "sister");

	mem_cgroup_set_max(child, 75 * PAGE);
	mem_cgroup_set_max(parent, 100 * PAGE);
	/* A page each, and the rest of a batch in stock. */
	CHECK(charge(child, PAGE) && charge(sister, PAGE));
	CHECK(mem_cgroup_current(child) > 10 * PAGE);
	CHECK(mem_cgroup_current(parent) - mem_cgroup_current(child) > 10 * PAGE);
	CHECK(mem_cgroup_current(child) + 73 * PAGE > 75 * PAGE);
	CHECK(charge(child, 73 * PAGE));
	CHECK_EQUAL(mem_cgroup_events(parent, MEMCG_OOM), 0);
	CHECK_EQUAL(drained(parent), 75 * PAGE);
	mem_cgroup_uncharge(child, 74 * PAGE);
	mem_cgroup_uncharge(sister, PAGE);
	CHECK_EQUAL(drained(parent), 0);
	mem_cgroup_put(child);
	mem_cgroup_put(sister);
	mem_cgroup_put(parent);
}

#define MANY 32

static struct mem_cgroup *many[3][MANY];
static bool enough;
static unsigned long turns;

/* Uses many groups in turn: each must fetch pages again and again, and would fetch 64 alone. */
static void *use_in_turn(void *groups)
{
	struct mem_cgroup **group = groups;

	/* In parallel with the refused charge, not in turn. */
	if (cpu_at(1) >= 0)
		go_to_cpu(cpu_at(1));
	for (int i = 0; !__atomic_load_n(&enough, __ATOMIC_RELAXED); i = (i + 1) % MANY) {
		CHECK(charge(group[i], 100));
		mem_cgroup_uncharge(group[i], 100);
		__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Bytes drained for one charge do not go into other stocks before the charge has them. */
static void while_others_fetch(void)
{
	struct mem_cgroup *all = group_below(NULL, "all"), *large = group_below(all, "large");
	unsigned long refused = 0;
	pthread_t thread[3];

	mem_cgroup_set_max(all, MIB + 16 * PAGE);
	enough = false;
	for (int t = 0; t < 3; t++) {
		for (int i = 0; i < MANY; i++)
			many[t][i] = group_below(all, "one of many");
		pthread_create(&thread[t], NULL, use_in_turn, many[t]);
	}
	for (int i = 0; i < 500; i++) {
		/* First the other threads fill their stocks, so that there are bytes to drain. */
		unsigned long before = __atomic_load_n(&turns, __ATOMIC_RELAXED);

		while (__atomic_load_n(&turns, __ATOMIC_RELAXED) - before < 2 * MANY)
			sched_yield();
		if (charge(large, MIB))
			mem_cgroup_uncharge(large, MIB);
		else
			refused++;
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
	for (int t = 0; t < 3; t++)
		pthread_join(thread[t], NULL);
	CHECK_EQUAL(refused, 0);
	CHECK_EQUAL(mem_cgroup_events(all, MEMCG_OOM), 0);
	CHECK_EQUAL(drained(all), 0);
	for (int t = 0; t < 3; t++)
		for (int i = 0; i < MANY; i++)
			mem_cgroup_put(many[t][i]);
	mem_cgroup_put(large);
	mem_cgroup_put(all);
}

static int inside, turned_away;

/* One thread at a time is served: the first gives when the second was turned away. */
static uint64_t shrink_for_one(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	if (__atomic_exchange_n(&inside, 1, __ATOMIC_ACQ_REL)) {
		__atomic_store_n(&turned_away, 1, __ATOMIC_RELEASE);
		return 0;
	}
	while (!__atomic_load_n(&turned_away, __ATOMIC_ACQUIRE))
		usleep(100);
	bytes = *(unsigned long *)arg;
	mem_cgroup_uncharge(group, bytes);
	return bytes;
}

static void *charge_a_page(void *arg)
{
	return charge(arg, PAGE) ? arg : NULL;
}

/*
 * A thread that finds a shrinker empty, because another thread is in the shrinker, waits for the
 * other's result.
 */
static void second_in_a_shrinker(void)
{
	struct mem_cgroup *group = group_below(NULL, "second");
	unsigned long held = 64 * PAGE;
	pthread_t thread[2];

	mem_cgroup_set_max(group, held);
	CHECK(charge(group, held));
	struct mem_cgroup_shrinker *shrinker = mem_cgroup_add_shrinker(group, 0, shrink_for_one, &held);
	inside = turned_away = 0;
	for (int t = 0; t < 2; t++)
		pthread_create(&thread[t], NULL, charge_a_page, group);
	for (int t = 0; t < 2; t++) {
		void *charged = NULL;

		pthread_join(thread[t], &charged);
		CHECK(charged);
	}
	mem_cgroup_remove_shrinker(shrinker);
	CHECK_EQUAL(drained(group), 2 * PAGE);
	mem_cgroup_uncharge(group, 2 * PAGE);
	mem_cgroup_put(group);
}

static const struct test_case cases[] = {
	{ "second in a shrinker", second_in_a_shrinker },
	{ "one limit after the other", one_limit_after_the_other },
	{ "while others fetch", while_others_fetch },
	{ "order of shrinkers", order_of_shrinkers },
	{ "protection", protection },
	{ "out of memory", out_of_memory },
	{ "a lower max", a_lower_max },
	{ "the curve", curve },
	{ "above high", above_high },
	{ "slowed down later", slowed_down_later },
	{ "no thread to wait for", no_thread_to_wait_for },
	{ "private and later", private_and_later },
	{ "told of events", told_of_events },
	{ "removed while it runs", removed_while_it_runs },
	{ "no system call", no_system_call },
};

int main(void)
{
	return run_in_turn(cases, sizeof(cases) / sizeof(cases[0]), 1);
}
