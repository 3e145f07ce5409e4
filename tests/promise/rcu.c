/*
 * rcu.c: an object given to kfree_rcu, and a slab of SLAB_TYPESAFE_BY_RCU, goes back after a grace period of the
 * program's RCU, and not earlier; waiting callers wait. The test ends the grace periods of its RCU by hand.
 * Disciplines: all. With hardened: own_addresses:0, because here pages go from one name to another.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include <kmem/memcg.h>
#include <kmem/rcu.h>

#include "kit/api.h"
#include "kit/clock.h"
#include "base/atomic.h"
#include "os/die.h"
#include "os/os.h"

struct rcu_head {
	void *word[2];
};

struct node {
	long value[14];
	struct rcu_head rcu;
};

/* ---- an RCU */

static struct kmem_rcu_head *under_way;
static void (*at_its_end)(struct kmem_rcu_head *head);
static int calls, synchronized, barriers;

static void call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	NEED(!under_way);
	under_way = head;
	at_its_end = func;
	calls++;
}

/* A grace period ends. False: none was under way. */
static int end_one(void)
{
	struct kmem_rcu_head *head = under_way;

	under_way = NULL;
	if (head)
		at_its_end(head);
	return head != NULL;
}

static void synchronize(void)
{
	synchronized++;
}

static void barrier(void)
{
	barriers++;
	NEED(end_one());
}

static const struct kmem_rcu rcu = { call, synchronize, barrier };

static unsigned long active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

/* ---- cases */

static void set(void)
{
	struct kmem_rcu half = { call, NULL, barrier }, other = { call, barrier, synchronize };

	NEED(kmem_set_rcu(NULL) == -EINVAL && kmem_set_rcu(&half) == -EINVAL);
	kvfree_rcu_barrier();
	NEED(kmem_set_rcu(&rcu) == 0 && kmem_set_rcu(&rcu) == 0);
	NEED(kmem_set_rcu(&other) == -EBUSY);
	kvfree_rcu_barrier();
	NEED(!calls && !barriers && !synchronized);
}

/* The object keeps its contents until the end of a grace period begun at or after the call of kfree_rcu. */
static void after_a_grace_period(void)
{
	struct kmem_cache *cache = make("node", sizeof(struct node));
	struct node *first, *second;

	NEED(kmem_set_rcu(&rcu) == 0);
	if (slob) {
		first = kmalloc(sizeof(*first), GFP_KERNEL);
		second = kmalloc(sizeof(*first), GFP_KERNEL);
	} else {
		first = kmem_cache_alloc(cache, GFP_KERNEL);
		second = kmem_cache_alloc(cache, GFP_KERNEL);
	}
	memset(first, 0x42, sizeof(*first));
	memset(second, 0x43, sizeof(*second));
	kfree_rcu(first, rcu);
	NEED(calls == 1);
	kfree_rcu(second, rcu);
	kfree_rcu((struct node *)NULL, rcu);
	NEED(calls == 1);
	NEED(all(first, 0x42, sizeof(*first)) && (slob || active(cache) == 2));
	/* The second object came after the start of the period: its own period begins now. */
	NEED(end_one());
	NEED(calls == 2 && all(second, 0x43, sizeof(*second)) && (slob || active(cache) == 1));
	NEED(end_one() && calls == 2 && !end_one());
	NEED(active(cache) == 0);
	gone(cache);
}

/* More than blocks take, of all kinds. */
static void many(void)
{
	enum { MANY = 60000 };
	struct kmem_cache *cache = make("many", sizeof(struct node));
	static struct node *node[MANY];

	NEED(kmem_set_rcu(&rcu) == 0);
	for (int i = 0; i < MANY; i++) {
		if (i % 1000 == 7)
			node[i] = kvmalloc(i % 2000 == 7 ? 9000 : 5u << 20, GFP_KERNEL);
		else
			node[i] = slob || i & 1 ? kmalloc(sizeof(struct node), GFP_KERNEL) :
						  kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(node[i]);
		node[i]->value[3] = i;
	}
	for (int i = 0; i < MANY; i++)
		if (i % 3)
			kvfree_rcu(node[i], rcu);
		else
			kvfree_rcu_mightsleep(node[i]);
	NEED(calls == 1 && !synchronized);
	for (int i = 0; i < MANY; i++)
		NEED(node[i]->value[3] == i);
	while (end_one())
		;
	NEED(calls == 2 && active(cache) == 0 && kmem_check_all() == 0);
	gone(cache);
}

static bool refuse_all(const char *call)
{
	(void)call;
	return true;
}

/*
 * Without memory for blocks of pointers, objects are linked through themselves, and a caller that
 * may wait waits.
 */
static void no_memory(void)
{
	enum { MANY = 200000 };
	struct kmem_cache *cache = make("poor", sizeof(struct node));
	static struct node *node[MANY];
	int before;

	NEED(kmem_set_rcu(&rcu) == 0);
	for (int i = 0; i < MANY; i++) {
		node[i] = slob ? kmalloc(sizeof(struct node), GFP_KERNEL) : kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(node[i]);
		memset(node[i], i, sizeof(*node[i]));
	}
	km_os_fault = refuse_all;
	for (int i = 0; i < MANY - 1; i++)
		kfree_rcu(node[i], rcu);
	/* No more than the bound on blocks, or what memory there was: the rest is in the chain. */
	for (int i = 0; i < MANY; i++)
		NEED(all(node[i], i & 0xff, offsetof(struct node, rcu)));
	before = synchronized;
	kvfree_rcu_mightsleep(node[MANY - 1]);
	NEED(synchronized == before || synchronized == before + 1);
	km_os_fault = NULL;
	while (end_one())
		;
	NEED(active(cache) == 0 && kmem_check_all() == 0);
	gone(cache);
}

static void barriers_wait(void)
{
	struct kmem_cache *cache = make("waited", sizeof(struct node)), *other = make("other", 64);
	struct node *node[3];

	NEED(kmem_set_rcu(&rcu) == 0);
	for (int i = 0; i < 3; i++)
		node[i] = slob ? kmalloc(sizeof(struct node), GFP_KERNEL) : kmem_cache_alloc(cache, GFP_KERNEL);
	kfree_rcu(node[0], rcu);
	kfree_rcu_nolock(node[1], rcu);
	kvfree_rcu_barrier();
	/* One barrier for the objects under way, one for the objects behind them. */
	NEED(barriers == 2 && !under_way && active(cache) == (slob ? 0 : 1));
	kvfree_rcu_barrier_on_cache(cache);
	NEED(barriers == 2);
	kfree_rcu_nolock(node[2], rcu);
	NEED(!under_way);
	/* A destroyed cache waits for its own objects in flight only. */
	kmem_cache_destroy(cache);
	NEED(barriers == 3 && !under_way);
	kmem_cache_destroy(other);
	NEED(barriers == 3 && !synchronized && kmem_check_all() == 0);
}

/* Objects given before the RCU's registration are freed by the RCU; one line reports them. */
static struct kmem_cache *kept_cache;
static void keep_two(void)
{
	struct node *one = slob ? kmalloc(sizeof(*one), GFP_KERNEL) : kmem_cache_alloc(kept_cache, GFP_KERNEL);
	struct node *two = slob ? kmalloc(sizeof(*two), GFP_KERNEL) : kmem_cache_alloc(kept_cache, GFP_KERNEL);

	memset(one, 0x42, sizeof(*one));
	kfree_rcu(one, rcu);
	kfree_rcu_nolock(two, rcu);
	kvfree_rcu_barrier();
	NEED(all(one, 0x42, offsetof(struct node, rcu)) && (slob || active(kept_cache) == 2));
	NEED(kmem_set_rcu(&rcu) == 0 && calls == 1 && end_one());
	NEED(active(kept_cache) == 0);
}
static void kept(void)
{
	char text[4096];
	int lines;

	kept_cache = make("kept", sizeof(struct node));
	NEED(said(keep_two, text, &lines) == 0);
	NEED(lines == 1 && strstr(text, "no RCU is set: freed objects stay allocated until a call of kmem_set_rcu()"));
}

/* ---- typesafe slabs */

enum { TYPED = 4000 };
static char *typed[TYPED];

static struct kmem_cache *fill_and_free(void)
{
	struct kmem_cache *cache = kmem_cache_create("typed", 200, NULL, SLAB_TYPESAFE_BY_RCU);

	NEED(cache);
	for (int i = 0; i < TYPED; i++) {
		typed[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(typed[i]);
		memset(typed[i], 0x42, 200);
	}
	for (int i = 0; i < TYPED; i++)
		kmem_cache_free(cache, typed[i]);
	kmem_cache_shrink(cache);
	return cache;
}

static void still_typed(void)
{
	static void *more[20000];
	static struct kmem_cache *other;

	other = other ?: make("other", 200);

	for (int i = 0; i < 20000; i++) {
		more[i] = kmem_cache_alloc(other, GFP_KERNEL);
		NEED(more[i]);
		memset(more[i], 0x99, 200);
	}
	for (int i = 0; i < TYPED; i++)
		NEED(all(typed[i], 0x42, 200));
	/* The cache is not destroyed, because the destruction would wait. */
	kmem_cache_free_bulk(other, 20000, more);
}

static void slabs_wait(void)
{
	NEED(kmem_set_rcu(&rcu) == 0);
	struct kmem_cache *cache = fill_and_free();
	struct kmem_cache_stats stats;

	still_typed();
	kmem_cache_get_stats(cache, &stats);
	NEED(slob || (calls == 1 && stats.total_slabs == 0));
	while (end_one())
		;
	NEED(kmem_check_all() == 0);
	/* The pages are free now, and serve another cache. */
	if (!slob) {
		struct kmem_cache *next = make("next", 200);
		int there = 0;

		for (int i = 0; i < 100000 && !there; i++) {
			char *p = kmem_cache_alloc(next, GFP_KERNEL);

			for (int j = 0; j < TYPED && !there; j++)
				there = p == typed[j];
		}
		NEED(there);
	}
	/* The cache still serves requests. */
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(object);
	kmem_cache_free(cache, object);
	kmem_cache_destroy(cache);
	NEED(synchronized == 1 && kmem_check_all() == 0);
}

/* In the order of waiting: what is under way, and a grace period for what is left. */
static void destroyed_waits(void)
{
	NEED(kmem_set_rcu(&rcu) == 0);
	struct kmem_cache *cache = fill_and_free();
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);

	kmem_cache_free(cache, object);
	kmem_cache_destroy(cache);
	NEED(!under_way && synchronized == 1 && (slob || barriers == 2));
	/* A cache without slabs has no memory for readers. */
	kmem_cache_destroy(kmem_cache_create("unused", 100, NULL, SLAB_TYPESAFE_BY_RCU));
	NEED(slob || (synchronized == 1 && barriers == 2));
	NEED(kmem_check_all() == 0);
}

/* Without an RCU they stay, and there is nothing to wait for. */
static void slabs_stay(void)
{
	struct kmem_cache *cache = fill_and_free();

	still_typed();
	NEED(kmem_set_rcu(&rcu) == 0);
	still_typed();
	kmem_cache_shrink(cache);
	still_typed();
	while (end_one())
		;
	kmem_cache_destroy(cache);
	NEED(kmem_check_all() == 0);
}

/* A free to a slab that waits for its grace period is a free of a foreign pointer. */
static struct kmem_cache *late_cache;
static void free_late(void)
{
	kmem_cache_free(late_cache, typed[7]);
	kmem_cache_shrink(late_cache);
}
static void late(void)
{
	char text[4096];
	int lines;

	if (slob)
		return;
	NEED(kmem_set_rcu(&rcu) == 0);
	late_cache = fill_and_free();
	int status = said(free_late, text, &lines);
	NEED(WIFSIGNALED(status) && lines == 1 && strstr(text, "kmem_cache_free"));
}

/* ---- twice */

static struct kmem_cache *debugged_cache;
static int how;
static void give_twice(void)
{
	struct node *node = kmem_cache_alloc(debugged_cache, GFP_KERNEL), *other, *third;

	other = kmem_cache_alloc(debugged_cache, GFP_KERNEL);
	third = kmem_cache_alloc(debugged_cache, GFP_KERNEL);
	if (how == 3) {
		/* The misuse is a warning: the object waits once, and is freed once. */
		kfree_rcu(node, rcu);
		kfree_rcu(other, rcu);
		kfree_rcu(node, rcu);
		kvfree_rcu_barrier();
		NEED(active(debugged_cache) == 1 && kmem_check_all() == 0);
		/* After the free the object may be allocated and given again. */
		for (int i = 0; i < 100; i++) {
			kfree_rcu(third, rcu);
			kvfree_rcu_barrier();
			third = kmem_cache_alloc(debugged_cache, GFP_KERNEL);
		}
		return;
	}
	/* The first is under way, or both wait on the CPU, or one is in the chain. */
	if (how == 1)
		kfree_rcu(third, rcu);
	if (how == 2)
		kfree_rcu_nolock(node, rcu);
	else
		kfree_rcu(node, rcu);
	kfree_rcu(other, rcu);
	if (how == 0)
		kvfree_rcu_mightsleep(node);
	else
		kfree_rcu(node, rcu);
	while (end_one())
		;
}
static void twice(void)
{
	char text[4096];
	int lines, status;

	if (slob)
		return;
	NEED(kmem_set_rcu(&rcu) == 0);
	debugged_cache = kmem_cache_create("debugged", sizeof(struct node), NULL,
					   SLAB_POISON | SLAB_CONSISTENCY_CHECKS);
	NEED(debugged_cache && kmem_cache_validate(debugged_cache) == 0);
	for (how = 0; how < 3; how++) {
		status = said(give_twice, text, &lines);
		NEED(WIFSIGNALED(status) && strstr(text, "kfree_rcu") && strstr(text, "debugged"));
	}
	km_misuse_set(KM_MISUSE_WARN);
	status = said(give_twice, text, &lines);
	NEED(status == 0 && strstr(text, "kfree_rcu"));
}

/* ---- groups */

/* Waiting objects are free: the end of a group does not free them again. */
static void with_its_group(void)
{
	struct kmem_cache *cache = kmem_cache_create("grouped", sizeof(struct node), NULL, SLAB_ACCOUNT);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "tenant", MEM_CGROUP_PRIVATE);

	NEED(cache && group && kmem_set_rcu(&rcu) == 0);
	if (slob)
		return;
	struct mem_cgroup *old = set_active_memcg(group);
	for (int i = 0; i < 1000; i++) {
		struct node *node = kmem_cache_alloc(cache, GFP_KERNEL);

		NEED(node);
		if (i % 2)
			kfree_rcu(node, rcu);
	}
	set_active_memcg(old);
	NEED(under_way && mem_cgroup_destroy_all(group, NULL, NULL) == 0 && !under_way);
	mem_cgroup_put(group);
	NEED(!end_one() && active(cache) == 0 && kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

/* ---- fork, handlers */

static void forked(void)
{
	struct kmem_cache *cache = make("forked", sizeof(struct node));
	struct node *node[2];
	int status;

	NEED(kmem_set_rcu(&rcu) == 0);
	for (int i = 0; i < 2; i++)
		node[i] = slob ? kmalloc(sizeof(struct node), GFP_KERNEL) : kmem_cache_alloc(cache, GFP_KERNEL);
	kfree_rcu(node[0], rcu);
	pid_t child = fork();
	NEED(child >= 0);
	/* Both have what was under way, and go on. */
	kfree_rcu(node[1], rcu);
	kvfree_rcu_barrier();
	NEED(active(cache) == 0 && barriers == 2);
	gone(cache);
	if (!child)
		_exit(0);
	NEED(waitpid(child, &status, 0) == child && status == 0);
}

static struct node *struck;
static void handler(int signal)
{
	(void)signal;
	kfree_rcu(struck, rcu);
}

/* A handler that interrupts the allocator waits for no lock. */
static bool strike(const char *call)
{
	(void)call;
	if (struck) {
		raise(SIGUSR1);
		struck = NULL;
	}
	return false;
}

static void in_a_handler(void)
{
	NEED(kmem_set_rcu(&rcu) == 0);
	signal(SIGUSR1, handler);
	struck = kmalloc(sizeof(*struck), GFP_KERNEL);
	raise(SIGUSR1);
	NEED(calls == 1 && end_one() && !under_way);
	struck = kmalloc(sizeof(*struck), GFP_KERNEL);
	km_os_fault = strike;
	/* A mapping of this size makes system calls. */
	void *block = kvmalloc(9u << 20, GFP_KERNEL);
	km_os_fault = NULL;
	NEED(block && !struck);
	kvfree(block);
	kvfree_rcu_barrier();
	NEED(!under_way && kmem_check_all() == 0);
}

/* ---- threads, and an RCU with a lock held by readers: a sanitizer sees all waits */

enum { PLACES = 8, TURNS = 1000, MAGIC = 0x5ca1ab1e, MANY_TYPED = 200, ENOUGH_MS = 60000 };
/* New readers do not pass a waiting writer forever. */
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
static pthread_rwlock_t section = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
#else
static pthread_rwlock_t section = PTHREAD_RWLOCK_INITIALIZER;
#endif
static struct kmem_rcu_head *wanted_head;
static void (*wanted_func)(struct kmem_rcu_head *head);
static unsigned wanted_calls, done_calls;
static bool over;

static void thread_call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	wanted_head = head;
	wanted_func = func;
	km_add_both(&wanted_calls, 1u);
}

static void thread_synchronize(void)
{
	pthread_rwlock_wrlock(&section);
	pthread_rwlock_unlock(&section);
}

static void thread_barrier(void)
{
	unsigned calls = km_load_acquire(&wanted_calls);

	while ((int)(km_load_acquire(&done_calls) - calls) < 0)
		sched_yield();
}

static void *grace_periods(void *arg)
{
	while (!km_load_acquire(&over)) {
		if (km_load_acquire(&wanted_calls) != done_calls) {
			thread_synchronize();
			wanted_func(wanted_head);
			km_add_both(&done_calls, 1u);
		}
		sched_yield();
	}
	return arg;
}

static struct node *place[PLACES];
static long *type[PLACES];
static struct kmem_cache *nodes, *types, *others;

static void construct(void *object)
{
	/* In engine slob the constructor runs at every allocation, while a reader may read. */
	km_store((long *)object, MAGIC);
}

static struct node *new_node(long serial)
{
	struct node *node = slob ? kmalloc(sizeof(*node), GFP_KERNEL) : kmem_cache_alloc(nodes, GFP_KERNEL);

	NEED(node);
	node->value[0] = serial;
	node->value[13] = ~serial;
	return node;
}

/* Finds an object without a reference, and reads the object twice. */
static void *reader(void *arg)
{
	while (!km_load_acquire(&over))
		for (int i = 0; i < PLACES; i++) {
			pthread_rwlock_rdlock(&section);
			const struct node *node = km_load_acquire(&place[i]);
			const long *typed = km_load_acquire(&type[i]), serial = node->value[0];
			sched_yield();
			NEED(node->value[0] == serial && node->value[13] == ~serial && km_load(typed) == MAGIC);
			pthread_rwlock_unlock(&section);
		}
	return arg;
}

static void replace_type(int at)
{
	long *new = kmem_cache_alloc(types, GFP_KERNEL);

	NEED(new && km_load(new) == MAGIC);
	kmem_cache_free(types, __atomic_exchange_n(&type[at], new, __ATOMIC_ACQ_REL));
}

/* The objects of the readers are among other objects, and these slabs go to other caches. */
static void churn(void)
{
	static void *many[MANY_TYPED];

	for (int i = 0; i < MANY_TYPED; i++) {
		if (i % (MANY_TYPED / PLACES) == 0)
			replace_type(i / (MANY_TYPED / PLACES));
		NEED((many[i] = kmem_cache_alloc(types, GFP_KERNEL)));
	}
	for (int i = 0; i < PLACES; i++)
		replace_type(i);
	for (int i = 0; i < MANY_TYPED; i++)
		kmem_cache_free(types, many[i]);
	for (int i = 0; i < PLACES; i++)
		replace_type(i);
	kmem_cache_shrink(types);
	for (int i = 0; i < MANY_TYPED; i++) {
		NEED((many[i] = kmem_cache_alloc(others, GFP_KERNEL)));
		memset(many[i], 0x99, 200);
	}
	for (int i = 0; i < MANY_TYPED; i++)
		kmem_cache_free(others, many[i]);
	kmem_cache_shrink(others);
}

static void *writer(void *arg)
{
	/*
	 * Each turn yields some ten times, and takes seconds with fifty other processes: then the test
	 * makes fewer turns.
	 */
	uint64_t end = km_os_now_ms() + ENOUGH_MS;

	for (long turn = (long)(intptr_t)arg; turn < TURNS && (turn < PLACES * 4 || km_os_now_ms() < end); turn += 2) {
		struct node *old = __atomic_exchange_n(&place[turn % PLACES], new_node(turn), __ATOMIC_ACQ_REL);

		if (turn % 8 == 3)
			kvfree_rcu_mightsleep(old);
		else if (turn % 8 == 5)
			kfree_rcu_nolock(old, rcu);
		else
			kfree_rcu(old, rcu);
		if (arg && turn % 100 == 1)
			churn();
		if (turn % 20 < 2)
			sched_yield();
	}
	return NULL;
}

static void threads(void)
{
	static const struct kmem_rcu rwlock = { thread_call, thread_synchronize, thread_barrier };
	struct kmem_cache_args args = { .ctor = construct };
	void *(*const runs[])(void *) = { grace_periods, reader, reader, writer, writer };
	pthread_t thread[5];

	NEED(kmem_set_rcu(&rwlock) == 0);
	nodes = make("nodes", sizeof(struct node));
	others = make("others", 200);
	types = kmem_cache_create("types", 200, &args, SLAB_TYPESAFE_BY_RCU);
	NEED(types && kmem_cache_set_min_partial(types, 0) == 0);
	for (int i = 0; i < PLACES; i++) {
		place[i] = new_node(i);
		NEED((type[i] = kmem_cache_alloc(types, GFP_KERNEL)));
	}
	for (int i = 0; i < 5; i++)
		NEED(pthread_create(&thread[i], NULL, runs[i], (void *)(intptr_t)(i == 4)) == 0);
	pthread_join(thread[3], NULL);
	pthread_join(thread[4], NULL);
	for (int i = 0; i < PLACES; i++) {
		struct node *old = __atomic_exchange_n(&place[i], new_node(i), __ATOMIC_ACQ_REL);

		kfree_rcu(old, rcu);
	}
	kvfree_rcu_barrier();
	NEED(active(nodes) == (slob ? 0 : PLACES) && (slob || kmem_cache_event(types, KMEM_FREE_SLAB)));
	/* The destruction of the caches waits for waiting slabs, and for readers. */
	static long last = MAGIC;
	for (int i = 0; i < PLACES; i++)
		kmem_cache_free(types, __atomic_exchange_n(&type[i], &last, __ATOMIC_ACQ_REL));
	kmem_cache_destroy(types);
	km_store_release(&over, true);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "set", set },
	{ "after a grace period", after_a_grace_period },
	{ "many", many },
	{ "no memory", no_memory },
	{ "barriers wait", barriers_wait },
	{ "kept until there is an RCU", kept },
	{ "slabs wait", slabs_wait },
	{ "a cache that is destroyed waits", destroyed_waits },
	{ "slabs stay where there is no RCU", slabs_stay },
	{ "a free of what waits", late },
	{ "twice", twice },
	{ "with its group", with_its_group },
	{ "fork", forked },
	{ "in a handler", in_a_handler },
	{ "threads", threads },
};
API_MAIN(cases)
