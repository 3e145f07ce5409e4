/*
 * liburcu.c: readers read objects while other threads free them, under a flavour of liburcu, given to the compiler as
 * HEADER. An object given to kfree_rcu keeps its contents while a reader may read; an object of SLAB_TYPESAFE_BY_RCU
 * keeps its type, while such slabs come and go. Argument: "wrong": the RCU never waits, and some reader must notice.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include HEADER
#include <kmem/rcu.h>
#include <kmem/stats.h>

#define NEED(truth) ((truth) ? (void)0 : (printf("FAIL line %d: %s\n", __LINE__, #truth), fflush(stdout), _exit(1)))

enum { PLACES = 16, READERS = 2, TURNS = 3000, MAGIC = 0x5ca1ab1e };

/* ---- objects of kfree_rcu */

struct node {
	unsigned long magic, serial, check;
	struct rcu_head rcu;
};
static struct node *node[PLACES];
static struct kmem_cache *nodes;

static struct node *new_node(unsigned long serial)
{
	struct node *p = serial & 1 ? kmem_cache_alloc(nodes, GFP_KERNEL) : kmalloc(sizeof(*p), GFP_KERNEL);

	NEED(p);
	*p = (struct node){ .magic = MAGIC, .serial = serial, .check = ~serial };
	return p;
}

/* The first read is while the node is in the table; at the second the node may have been removed. */
static void read_node(unsigned place)
{
	rcu_read_lock();
	struct node *p = rcu_dereference(node[place]);
	unsigned long serial = p->serial;
	if (place == serial % PLACES)
		sched_yield();
	NEED(p->magic == MAGIC && p->serial == serial && p->check == ~serial);
	rcu_read_unlock();
}

static void replace_node(unsigned place, unsigned long serial)
{
	struct node *old = rcu_xchg_pointer(&node[place], new_node(serial));

	switch (serial % 8) {
	case 0:
		kvfree_rcu_mightsleep(old);
		break;
	case 1:
		kfree_rcu_nolock(old, rcu);
		break;
	default:
		kfree_rcu(old, rcu);
	}
}

/* ---- typesafe objects */

struct typed {
	unsigned long type;		/* constructed, and never changed */
	_Atomic unsigned long users;	/* 0: free. The thread that sets 1 owns the object; readers add to a value
					 * above 0 */
	_Atomic unsigned long key;
	char rest[200];
};
static struct typed *_Atomic typed[PLACES];
static struct kmem_cache *types, *others;

static void construct(void *object)
{
	struct typed *p = object;

	p->type = MAGIC;
	atomic_init(&p->users, 0);
}

static void put_typed(struct typed *p)
{
	if (atomic_fetch_sub(&p->users, 1) == 1)
		kmem_cache_free(types, p);
}

static struct typed *new_typed(unsigned long key)
{
	struct typed *p = kmem_cache_alloc(types, GFP_KERNEL);

	NEED(p && p->type == MAGIC);
	atomic_store(&p->key, key);
	atomic_store(&p->users, 1);
	return p;
}

/* Found without a reference; after the reference the reader checks for the expected object. */
static void read_typed(unsigned place)
{
	rcu_read_lock();
	struct typed *p = atomic_load(&typed[place]);
	sched_yield();
	NEED(p->type == MAGIC);
	unsigned long users = atomic_load(&p->users);
	while (users && !atomic_compare_exchange_weak(&p->users, &users, users + 1))
		;
	/* With a reference the object stays the same, expected or not. */
	unsigned long key = atomic_load(&p->key);
	if (users && key % PLACES == place)
		sched_yield();
	NEED(!users || atomic_load(&p->key) == key);
	NEED(p->type == MAGIC);
	rcu_read_unlock();
	if (users)
		put_typed(p);
}

static void replace_typed(unsigned place, unsigned long serial)
{
	put_typed(atomic_exchange(&typed[place], new_typed(serial * PLACES + place)));
}

/* Slabs of typed objects go, and other objects of their size come, written all over. */
static void churn(void)
{
	enum { MANY = 300 };
	static struct typed *many[MANY];
	static char *other[MANY];

	for (unsigned place = 0; place < PLACES; place++)
		replace_typed(place, place + 1);
	for (int i = 0; i < MANY; i++)
		many[i] = new_typed(0);
	/* The objects in the table are among them, and go with them. */
	for (unsigned place = 0; place < PLACES; place++)
		replace_typed(place, place + 2);
	for (int i = 0; i < MANY; i++)
		put_typed(many[i]);
	for (unsigned place = 0; place < PLACES; place++)
		replace_typed(place, place + 3);
	kmem_cache_shrink(types);
	for (int i = 0; i < MANY; i++)
		if ((other[i] = kmem_cache_alloc(others, GFP_KERNEL)))
			memset(other[i], 0x99, sizeof(struct typed));
	kmem_cache_free_bulk(others, MANY, (void **)other);
	kmem_cache_shrink(others);
}

/* ---- threads */

static _Atomic bool stop;
static unsigned long turns = TURNS;

static void *reader(void *arg)
{
	unsigned turn = (unsigned)(uintptr_t)arg;

	rcu_register_thread();
	while (!atomic_load(&stop)) {
		read_node(turn % PLACES);
		read_typed(turn / 3 % PLACES);
		turn++;
#ifdef QSBR
		rcu_quiescent_state();
#endif
	}
	rcu_unregister_thread();
	return NULL;
}

static void *writer(void *arg)
{
	(void)arg;
	rcu_register_thread();
	for (unsigned long turn = 0; turn < turns; turn++) {
		replace_node((unsigned)(turn * 7 % PLACES), turn);
		if (turn % 100 == 0)
			churn();
		if (turn % 50 == 0)
			sched_yield();
#ifdef QSBR
		rcu_quiescent_state();
#endif
	}
	rcu_unregister_thread();
	return NULL;
}

/* ---- an RCU without any wait */

static struct kmem_rcu_head *_Atomic asked;
static void (*asked_func)(struct kmem_rcu_head *head);
static void wrong_call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	asked_func = func;
	atomic_store(&asked, head);
}
static void wrong_wait(void)
{
	while (atomic_load(&asked))
		sched_yield();
}
static void *wrong_thread(void *arg)
{
	for (;;) {
		struct kmem_rcu_head *head = atomic_exchange(&asked, NULL);

		if (head)
			asked_func(head);
		sched_yield();
	}
	return arg;
}
static const struct kmem_rcu wrong = { wrong_call, wrong_wait, wrong_wait };

/* ---- afterwards: all objects are freed, here and in a child */

static unsigned long active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

static void end_all(void)
{
	for (unsigned place = 0; place < PLACES; place++) {
		kfree_rcu(node[place], rcu);
		put_typed(atomic_load(&typed[place]));
	}
	kvfree_rcu_barrier();
	NEED(active(nodes) == 0 && active(types) == 0);
	/* Waits for what is under way. */
	for (int i = 0; i < 1000; i++) {
		struct node *p = kmem_cache_alloc(nodes, GFP_KERNEL);

		kfree_rcu(p, rcu);
	}
	kmem_cache_destroy(nodes);
	kmem_cache_destroy(types);
	kmem_cache_destroy(others);
	NEED(kmem_check_all() == 0);
}

/*
 * A thread missing in the child: under bp, which forgets the thread there, the thread is a reader at the fork; under
 * other flavours the thread is unregistered then.
 */
static sem_t may_fork, may_end;

static void *bystander(void *arg)
{
	rcu_register_thread();
	kfree_rcu(new_node(1), rcu);
#ifdef BP
	rcu_read_lock();
#else
	rcu_unregister_thread();
#endif
	sem_post(&may_fork);
	while (sem_wait(&may_end))
		;
#ifdef BP
	rcu_read_unlock();
#endif
	return arg;
}

static void in_a_child(void)
{
	pthread_t thread;
	int status;

	NEED(sem_init(&may_fork, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
	NEED(pthread_create(&thread, NULL, bystander, NULL) == 0);
	while (sem_wait(&may_fork))
		;
	kfree_rcu(new_node(1), rcu);
#ifdef BP
	urcu_bp_before_fork();
#endif
	call_rcu_before_fork();
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		alarm(580);
#ifdef BP
		urcu_bp_after_fork_child();
#endif
		call_rcu_after_fork_child();
		end_all();
		_exit(0);
	}
#ifdef BP
	urcu_bp_after_fork_parent();
#endif
	call_rcu_after_fork_parent();
	NEED(waitpid(child, &status, 0) == child && status == 0);
	sem_post(&may_end);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	pthread_t thread[READERS + 1];
	bool is_wrong = argc > 1 && strcmp(argv[1], "wrong") == 0;

	(void)argv;
	alarm(580);
	rcu_register_thread();
	if (is_wrong) {
		/* Until a reader notices. */
		turns = 1000000;
		NEED(kmem_set_rcu(&wrong) == 0 && kmem_set_liburcu(&rcu_flavor) == -EBUSY);
		NEED(pthread_create(&thread[0], NULL, wrong_thread, NULL) == 0);
	} else {
		NEED(kmem_set_liburcu(NULL) == -EINVAL);
		NEED(kmem_set_liburcu(&rcu_flavor) == 0 && kmem_set_liburcu(&rcu_flavor) == 0);
		NEED(kmem_set_rcu(&wrong) == -EBUSY);
	}
	nodes = kmem_cache_create("nodes", sizeof(struct node), NULL, 0);
	struct kmem_cache_args args = { .ctor = construct };
	types = kmem_cache_create("types", sizeof(struct typed), &args, SLAB_TYPESAFE_BY_RCU);
	others = kmem_cache_create("others", sizeof(struct typed), NULL, 0);
	NEED(nodes && types && others);
	kmem_cache_set_min_partial(types, 0);
	for (unsigned place = 0; place < PLACES; place++) {
		node[place] = new_node(place);
		atomic_store(&typed[place], new_typed(place));
	}
	for (uintptr_t i = 0; i < READERS; i++)
		NEED(pthread_create(&thread[i], NULL, reader, (void *)i) == 0);
	NEED(pthread_create(&thread[READERS], NULL, writer, NULL) == 0);
#ifdef QSBR
	rcu_thread_offline();
#endif
	pthread_join(thread[READERS], NULL);
	atomic_store(&stop, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
#ifdef QSBR
	rcu_thread_online();
#endif
	kvfree_rcu_barrier();
	/* In engine slob objects do not name their cache, and kfree frees no object of a cache. */
	printf("%lu slabs of typed objects went back\n", kmem_cache_event(types, KMEM_FREE_SLAB));
	NEED(is_wrong || kmem_cache_event(types, KMEM_FREE_SLAB) > 0);
	if (!is_wrong)
		in_a_child();
	end_all();
	rcu_unregister_thread();
	return 0;
}
