/*
 * liburcu.c: libkmem-rcu: the RCU is a flavour of liburcu. Invariant: the flavour is set once, before the library knows
 * of it. A flavour is a table of functions, which the program's own flavour library has, so that none is linked here.
 */
#include <errno.h>
#include <stddef.h>
#include <urcu/call-rcu.h>
#include <urcu/flavor.h>

#include <kmem/rcu.h>

/* A request to the RCU, as liburcu has it: drawn into a struct kmem_rcu_head. */
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

__attribute__((visibility("default"))) int kmem_set_liburcu(const struct rcu_flavor_struct *wanted)
{
	static const struct kmem_rcu rcu = { call, synchronize, barrier };
	const struct rcu_flavor_struct *none = NULL;

	if (!wanted)
		return -EINVAL;
	if (!__atomic_compare_exchange_n(&flavor, &none, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return none == wanted ? kmem_set_rcu(&rcu) : -EBUSY;
	/* liburcu starts its thread, for which it allocates, at the first call: not at one of libkmem's. */
	wanted->update_call_rcu(&first, nothing);
	return kmem_set_rcu(&rcu);
}
