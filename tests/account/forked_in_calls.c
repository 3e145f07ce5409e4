/*
 * forked_in_calls.c: a call that waits, or calls back, holds a reference on a group meanwhile. A child of fork has
 * the references of the forking thread, and no references of threads missing in the child: a group put by the child
 * goes offline and ends, and a group held only by a missing thread ends at once. And no group stays marked as drained
 * for a charge. Disciplines: all
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#include "kit/groups.h"

#include "memcg/memcg_group.h"

#define PAGE	4096ul

static struct mem_cgroup *above, *group;
static sem_t in_call, go_on;
static bool forks;		/* the thread in the callback forks */

static void ends_well(pid_t child)
{
	int status;

	NEED(waitpid(child, &status, 0) == child);
	CHECK(status == 0, "the child's status is %x", status);
}

/*
 * In a callback: waits for the checks of the other thread. Returns: true in the child of the
 * callback's own fork.
 */
static bool stay(void)
{
	if (forks) {
		pid_t child = fork();

		NEED(child >= 0);
		if (child)
			ends_well(child);
		return !child;
	}
	sem_post(&in_call);
	sem_wait(&go_on);
	return false;
}

static bool in_child;		/* also inside the call */

static void on_high(struct mem_cgroup *over, uint64_t bytes, unsigned int delay, void *arg)
{
	(void)over, (void)bytes, (void)delay, (void)arg;
	in_child |= stay();
}

static bool on_oom(struct mem_cgroup *over, uint64_t bytes, void *arg)
{
	(void)over, (void)bytes, (void)arg;
	in_child |= stay();
	return false;
}

static int on_visit(struct mem_cgroup *at, unsigned int depth, void *arg)
{
	(void)at, (void)depth, (void)arg;
	in_child |= stay();
	return 1;
}

static void over_high(void)
{
	mem_cgroup_set_high(group, PAGE);
	NEED(charge(group, 64 * PAGE));
	mem_cgroup_uncharge(group, 64 * PAGE);
}

static void over_max(void)
{
	mem_cgroup_set_max(group, PAGE);
	NEED(!charge(group, 64 * PAGE));
}

static void walked(void)
{
	NEED(mem_cgroup_walk(group, on_visit, NULL) == 1);
}

/* An allocation charged by the stock of a sheaf, and settled later. */
static void allocated(void)
{
	mem_cgroup_set_high(group, PAGE);
	MEMCG_SCOPE(group);
	kfree(kmalloc(64 * PAGE, GFP_KERNEL_ACCOUNT));
}

static void *call(void *way)
{
	(*(void (**)(void))way)();
	return NULL;
}

static void create(void)
{
	above = group_below(NULL, "above");
	group = group_below(above, "group");
	mem_cgroup_set_high_callback(group, on_high, NULL);
	mem_cgroup_set_oom_callback(group, on_oom, NULL);
}

/* The only reference left is the one on `above`. */
static void all_gone(void)
{
	CHECK(mem_cgroup_offline(above) == 0);
	mem_cgroup_put(above);
}

/* put: before the fork, so that the call's reference is the last one in the child. */
static void by_another(void (*way)(void), bool put)
{
	pthread_t thread;

	create();
	forks = false;
	NEED(!pthread_create(&thread, NULL, call, &way));
	sem_wait(&in_call);
	if (put)
		mem_cgroup_put(group);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		if (!put)
			mem_cgroup_put(group);
		all_gone();
		_exit(failures != 0);
	}
	ends_well(child);
	/* Here the call still has its reference. */
	CHECK(mem_cgroup_offline(above) == -EBUSY);
	sem_post(&go_on);
	NEED(!pthread_join(thread, NULL));
	if (!put)
		mem_cgroup_put(group);
	all_gone();
}

/* The child goes on inside the call, and keeps the call's references. */
static void by_itself(void (*way)(void))
{
	create();
	forks = true;
	in_child = false;
	way();
	CHECK(mem_cgroup_online(group));
	mem_cgroup_put(group);
	all_gone();
	if (in_child)
		_exit(failures != 0);
}

/*
 * ------------------------------------------------------------------ a handler forks while its thread drains a group
 */

static struct mem_cgroup *full[2];
static volatile bool strikes;

bool __real_km_memcg_could_give(struct mem_cgroup *root, uint64_t bytes);
bool __wrap_km_memcg_could_give(struct mem_cgroup *root, uint64_t bytes)
{
	bool could = __real_km_memcg_could_give(root, bytes);

	if (strikes) {
		strikes = false;
		raise(SIGUSR1);
	}
	return could;
}

/* First the handler makes a charge of its own. */
static void on_signal(int signal)
{
	(void)signal;
	NEED(!charge(full[1], 1));
	forks = true;
	in_child = stay();
}

static void by_a_handler(void)
{
	for (int i = 0; i < 2; i++) {
		full[i] = group_below(NULL, "full");
		mem_cgroup_set_max(full[i], PAGE);
		NEED(charge(full[i], PAGE));
	}
	signal(SIGUSR1, on_signal);
	in_child = false;
	strikes = true;
	NEED(!charge(full[0], 1) && !strikes);
	for (int i = 0; i < 2; i++) {
		CHECK_EQUAL(full[i]->memory.squeezed, 0);
		mem_cgroup_uncharge(full[i], PAGE);
		mem_cgroup_put(full[i]);
	}
	if (in_child)
		_exit(failures != 0);
}

int main(void)
{
	static void (*const ways[])(void) = { over_high, over_max, walked, allocated };

	sem_init(&in_call, 0, 0);
	sem_init(&go_on, 0, 0);
	for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		by_another(ways[i], false);
		by_another(ways[i], true);
		by_itself(ways[i]);
	}
	by_a_handler();
	return failures != 0;
}
