/*
 * liburcu.c: libkmem-rcu, a flavour of liburcu as the RCU. Invariant: the flavour is set once, and liburcu's thread
 * runs, before the library knows of either. A flavour is a table of functions in the program's own flavour library,
 * so no flavour is linked here.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <urcu/call-rcu.h>
#include <urcu/flavor.h>

#include <kmem/rcu.h>

/* A request to the RCU in liburcu's form, stored in a struct kmem_rcu_head. */
struct request {
	struct rcu_head head;
	void (*func)(struct kmem_rcu_head *head);
};
_Static_assert(sizeof(struct request) <= sizeof(struct kmem_rcu_head), "it fits");

static const struct rcu_flavor_struct *flavor;
static struct rcu_head first;

static void run(struct rcu_head *head)
{
	struct request *request = (struct request *)head;

	request->func((struct kmem_rcu_head *)request);
}

static void call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	struct request *request = (struct request *)head;

	request->func = func;
	__atomic_load_n(&flavor, __ATOMIC_RELAXED)->update_call_rcu(&request->head, run);
}

static void synchronize(void)
{
	__atomic_load_n(&flavor, __ATOMIC_RELAXED)->update_synchronize_rcu();
}

static void barrier(void)
{
	__atomic_load_n(&flavor, __ATOMIC_RELAXED)->barrier();
}

static void nothing(struct rcu_head *head)
{
	(void)head;
}

/* Sets the flavour, with the lock held: a second thread waits until liburcu's thread runs. */
static int set(const struct rcu_flavor_struct *wanted)
{
	static const struct kmem_rcu rcu = { call, synchronize, barrier };

	if (flavor && flavor != wanted)
		return -EBUSY;
	/*
	 * liburcu starts its thread, and allocates, at the first call_rcu: this call must not come from inside
	 * libkmem.
	 */
	if (!flavor)
		wanted->update_call_rcu(&first, nothing);
	__atomic_store_n(&flavor, wanted, __ATOMIC_RELEASE);
	return kmem_set_rcu(&rcu);
}

__attribute__((visibility("default"))) int kmem_set_liburcu(const struct rcu_flavor_struct *wanted)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	if (!wanted)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	int error = set(wanted);
	pthread_mutex_unlock(&lock);
	return error;
}
