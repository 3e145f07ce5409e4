/*
 * <kmem/rcu.h>: memory freed after a grace period of the program's RCU: SLAB_TYPESAFE_BY_RCU, kfree_rcu, and the
 * barriers. Names and semantics are the kernel's (Linux 7.x). A sentence that begins with "Kernel:" states a
 * difference.
 *
 * A reader in a read-side critical section may use an object that another thread has removed from a structure
 * meanwhile. The memory of the object must not be reused before all such readers have left. libkmem has no RCU of its
 * own: the program names its RCU, once, before the first use of the functions below. With liburcu (any flavour):
 *
 *	#include <urcu.h>			// memb; with RCU_MB defined: mb; <urcu-qsbr.h>, <urcu-bp.h>
 *	#include <kmem/rcu.h>
 *	kmem_set_liburcu(&rcu_flavor);		// of the flavour that was included; link with -lkmem-rcu
 *
 * and with another RCU kmem_set_rcu. Without an RCU, slabs of SLAB_TYPESAFE_BY_RCU stay with their cache until the
 * cache is destroyed, and kfree_rcu queues its objects until an RCU is set.
 */
#ifndef KMEM_RCU_H
#define KMEM_RCU_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Storage for one request to an RCU, with contents private to the RCU. */
struct kmem_rcu_head {
	void *word[4];
};

/*
 * The functions of an RCU. All three are required.
 *
 * call: after a grace period, call func(head) once, in any thread, outside of read-side critical sections.
 * - The library calls `call` in any thread, with locks of the library held. `call` must not wait for another thread
 *   inside the library, and should not allocate.
 * - `call` must only queue the request. If `call` runs func itself, before the return, func waits for a lock of the
 *   same thread for ever. This applies also where there are no readers: such a program must call func in a thread, or
 *   needs no RCU.
 * - A fork waits for the library's locks: if `call` takes a lock, a fork handler of the program must not hold this
 *   lock while the library's fork handler runs.
 * - kfree_rcu in a signal handler runs `call` in the handler. If the RCU does not support that, handlers must use
 *   kfree_rcu_nolock.
 * - At most one call is under way at any time.
 * synchronize: wait for a grace period.
 * barrier: wait until all functions queued so far have returned.
 */
struct kmem_rcu {
	void (*call)(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head));
	void (*synchronize)(void);
	void (*barrier)(void);
};

/*
 * kmem_set_rcu - set the RCU of the process; *rcu is copied. The setting is permanent.
 * Returns: 0; -EINVAL: a function is missing; -EBUSY: another RCU was set before; -ENOMEM. Context: any thread; not
 * from a signal handler.
 */
KMEM_API int kmem_set_rcu(const struct kmem_rcu *rcu);

struct rcu_flavor_struct;
/*
 * kmem_set_liburcu - set a flavour of liburcu (tested: 0.13) as the RCU, by &rcu_flavor of its header: memb, mb,
 * qsbr, bp. The function is part of the library libkmem-rcu. The first call starts liburcu's thread for call_rcu.
 * The caller must follow liburcu's rules: readers are registered threads. If the child of a fork uses RCU, the
 * program must notify liburcu (call_rcu_before_fork and related functions). In the child all flavours but bp wait for
 * ever for registered threads that do not exist.
 * Returns: as kmem_set_rcu.
 */
int kmem_set_liburcu(const struct rcu_flavor_struct *flavor);

/*
 * kfree_rcu - free p after a grace period. p must be valid for kfree: from kmalloc, kvmalloc or a cache. `field` is a
 * member of *p, like a struct rcu_head: at least two pointers long, within the first 4096 bytes. The member is
 * written only if there is no memory for a list of pointers. p is evaluated once; NULL does nothing. p must not be
 * freed by other means, nor passed twice.
 * The call never waits, and makes no call but the RCU's. p is freed after one or two grace periods. There is no timer
 * (kernel: up to five seconds later), because the end of a grace period starts the next.
 * Context: any thread, also in a read-side critical section; also signal handlers.
 */
#define kfree_rcu(p, field) kmem_free_rcu((p), KMEM_RCU_OFFSET(__typeof__(*(p)), field))
#define kvfree_rcu(p, field) kfree_rcu(p, field)
/*
 * kfree_rcu_nolock - kfree_rcu without a lock and without a call of the RCU. The next kfree_rcu or slow path
 * starts the grace period.
 */
#define kfree_rcu_nolock(p, field) kmem_free_rcu_nolock((p), KMEM_RCU_OFFSET(__typeof__(*(p)), field))
/* The offset of a member. A member that is too small, or too far from the start, does not compile. */
#define KMEM_RCU_OFFSET(type, field)                                                               \
	(offsetof(type, field) +                                                                   \
	 0 * sizeof(char[sizeof(((type *)0)->field) >= 2 * sizeof(void *) && offsetof(type, field) < 4096 ? 1 : -1]))
/* The functions behind the macros: the member is `head` bytes behind p. */
KMEM_API void kmem_free_rcu(const void *p, size_t head);
KMEM_API void kmem_free_rcu_nolock(const void *p, size_t head);
/*
 * kvfree_rcu_mightsleep - kfree_rcu for an object without such a member. The call may wait for memory, or, if there
 * is none, for a grace period. Context: not in a read-side critical section, nor in a signal handler.
 */
KMEM_API void kvfree_rcu_mightsleep(const void *p);
#define kfree_rcu_mightsleep(p) kvfree_rcu_mightsleep(p)

/*
 * kvfree_rcu_barrier - wait until all objects passed to kfree_rcu before, by any thread, are freed, and all empty
 * slabs of SLAB_TYPESAFE_BY_RCU are released. kmem_cache_destroy does the same if frees or slabs are pending.
 * Context: not in a read-side critical section, a function called by the RCU, or a signal handler.
 */
KMEM_API void kvfree_rcu_barrier(void);
/* kvfree_rcu_barrier_on_cache - kvfree_rcu_barrier for the objects of one cache at least (here: of all caches). */
KMEM_API void kvfree_rcu_barrier_on_cache(struct kmem_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
