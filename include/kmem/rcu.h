/*
 * <kmem/rcu.h>: memory that goes back after a grace period of the program's RCU: SLAB_TYPESAFE_BY_RCU, kfree_rcu and
 * what waits for them. Names and semantics are the kernel's (Linux 7.x); where ours differ, "Kernel:" says how.
 *
 * A reader in a read-side critical section may look at an object that another thread has taken out of a structure
 * meanwhile; its memory must not become anything else before all such readers have left. libkmem has no RCU of its
 * own: the program says what its RCU is, once, before it uses what follows. With liburcu (any flavour):
 *
 *	#include <urcu.h>			// memb; with RCU_MB defined: mb; <urcu-qsbr.h>, <urcu-bp.h>
 *	#include <kmem/rcu.h>
 *	kmem_set_liburcu(&rcu_flavor);		// of the flavour that was included; link with -lkmem-rcu
 *
 * and with another one kmem_set_rcu. Without either, slabs of SLAB_TYPESAFE_BY_RCU stay with their cache until it is
 * destroyed, and kfree_rcu keeps what it gets until there is an RCU.
 */
#ifndef KMEM_RCU_H
#define KMEM_RCU_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Room for one request to an RCU, which keeps in it what it likes. */
struct kmem_rcu_head {
	void *word[4];
};

/*
 * The functions of an RCU. All of them are needed.
 * call: after a grace period, call func(head) once, in some thread, outside of read-side critical sections. It may be
 * called in any thread, with locks of this library held: it must not wait for what another thread does in here, and
 * should not allocate; and it only asks: a `call` that calls func itself, before it returns, waits for its own lock for
 * ever, also where there are no readers (such a program has a thread that calls it, or needs no RCU).
 * A fork waits for the library's locks: if `call` takes a lock, a fork handler of the program must not hold this lock
 * while the library's fork handler runs.
 * It is called in a signal handler as well, by a kfree_rcu there: a program whose RCU can't be
 * gives handlers kfree_rcu_nolock. At most one call is under way at any time.
 * synchronize: wait for a grace period. barrier: wait until all functions that were asked for by then have returned.
 */
struct kmem_rcu {
	void (*call)(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head));
	void (*synchronize)(void);
	void (*barrier)(void);
};

/*
 * kmem_set_rcu - the process's RCU from now on; *rcu is copied. 0; -EINVAL: a function is missing; -EBUSY: another one
 * was set before; -ENOMEM. There is no way back. Any thread; not from a signal handler.
 */
KMEM_API int kmem_set_rcu(const struct kmem_rcu *rcu);

struct rcu_flavor_struct;
/*
 * kmem_set_liburcu - the same for a flavour of liburcu (tried: 0.13), &rcu_flavor of its header: memb, mb, qsbr, bp.
 * It is in the library libkmem-rcu. liburcu's rules are the caller's: threads that read are registered, and where
 * the child of a fork uses RCU it is told of that (call_rcu_before_fork and the like). There all flavours but bp wait
 * for ever for a thread that was registered and is not there. The first call starts liburcu's thread for call_rcu.
 * Errors as kmem_set_rcu.
 */
int kmem_set_liburcu(const struct rcu_flavor_struct *flavor);

/*
 * kfree_rcu - free p after a grace period: what kmalloc, kvmalloc or a cache (kfree's rule) has given out. `field` is a
 * member of *p of at least two pointers, within the first 4096 bytes, as a struct rcu_head; it is written only where
 * there is no memory for a list of pointers. p is evaluated once; NULL does nothing. p must not be freed otherwise, nor
 * given to it twice. Never waits, and makes no call but the RCU's. Any thread, also in a read-side critical section; in
 * a signal handler as well. When it is freed: after one grace period or two; there is no timer (kernel: up to five
 * seconds later), since the end of one is what begins the next.
 */
#define kfree_rcu(p, field) kmem_free_rcu((p), KMEM_RCU_OFFSET(__typeof__(*(p)), field))
#define kvfree_rcu(p, field) kfree_rcu(p, field)
/* kfree_rcu_nolock - the same, without a lock, and without a call of the RCU: whoever comes next makes it. */
#define kfree_rcu_nolock(p, field) kmem_free_rcu_nolock((p), KMEM_RCU_OFFSET(__typeof__(*(p)), field))
/* A member's place; a member that is too small, or too far from the start, does not compile. */
#define KMEM_RCU_OFFSET(type, field)                                                               \
	(offsetof(type, field) +                                                                   \
	 0 * sizeof(char[sizeof(((type *)0)->field) >= 2 * sizeof(void *) && offsetof(type, field) < 4096 ? 1 : -1]))
/* These macros are made of them: the member lies `head` bytes behind p. */
KMEM_API void kmem_free_rcu(const void *p, size_t head);
KMEM_API void kmem_free_rcu_nolock(const void *p, size_t head);
/*
 * kvfree_rcu_mightsleep - the same for what has no such member. It may wait for memory, or where there is none for a
 * grace period: not in a read-side critical section, nor in a signal handler.
 */
KMEM_API void kvfree_rcu_mightsleep(const void *p);
#define kfree_rcu_mightsleep(p) kvfree_rcu_mightsleep(p)

/*
 * kvfree_rcu_barrier - wait until all that was given to kfree_rcu before, by any thread, is free, and all slabs of
 * SLAB_TYPESAFE_BY_RCU that were empty have gone back. Not in a read-side critical section, in a function that the RCU
 * calls, or in a signal handler. kmem_cache_destroy does it by itself, where something is under way.
 */
KMEM_API void kvfree_rcu_barrier(void);
/* kvfree_rcu_barrier_on_cache - the same, for objects of one cache at least (here: of all). */
KMEM_API void kvfree_rcu_barrier_on_cache(struct kmem_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
