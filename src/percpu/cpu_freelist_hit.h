/* cpu_freelist_hit.h: operations on a chain for hits, inline. Invariant: under rseq a hit makes no call. */
#ifndef KM_PERCPU_CPU_FREELIST_HIT_H
#define KM_PERCPU_CPU_FREELIST_HIT_H

#include "cpu_freelist.h"
#include "os/die.h"
#include "rseq.h"

/* Returns: the number of this thread's CPU; under rseq km_percpu.home if the CPU's area is not online. Stale at
 * once. */
km_inline unsigned km_chain_cpu_id(void)
{
	uint32_t cpu = km_cpu_of_thread();

	return km_likely(km_cpu_is_online(cpu)) ? cpu : km_percpu.home;
}

km_inline void *km_chain_pop(struct km_chain *chain)
{
	return KM_RSEQ(chain_pop, (chain, km_percpu.base, km_thread_rseq), km_chain_soft_pop(chain));
}

/* Pushes a chain of objects of one slab. The tail's link need not be set. */
km_inline enum km_chain_push km_chain_push_list(struct km_chain *chain, void *head, void *tail)
{
	km_debug(head, "a chain has no NULL");
	return KM_RSEQ(chain_push, (chain, km_percpu.base, km_thread_rseq, head, tail),
		       km_chain_soft_push(chain, head, tail));
}

km_inline enum km_chain_push km_chain_push(struct km_chain *chain, void *object)
{
	return km_chain_push_list(chain, object, object);
}

/* Push for a thread without the rseq fast path: by concurrency id, or under a soft discipline (lock, cmpxchg). */
km_inline enum km_chain_push km_chain_push_no_hit(struct km_chain *chain, void *object)
{
	if (km_percpu.index != KM_INDEX_CID)
		return km_chain_soft_push(chain, object, object);
	return KM_RSEQ_OR(km_cid_chain_push(chain, km_percpu.base, km_thread_rseq, object, object), KM_CHAIN_MISS);
}

/* The pop and push that a hit inlines. Requires: discipline rseq. A build without rseq always misses. */
km_inline void *km_chain_rseq_pop(struct km_chain *chain)
{
	return KM_RSEQ_OR(km_rseq_chain_pop(chain, km_percpu.base, km_rseq), NULL);
}

km_inline enum km_chain_push km_chain_rseq_push(struct km_chain *chain, void *object)
{
	return KM_RSEQ_OR(km_rseq_chain_push(chain, km_percpu.base, km_rseq, object, object), KM_CHAIN_MISS);
}

/* Pop up to count objects to out[0 ..). Requires: count > 0. */
km_inline size_t km_chain_pop_n(struct km_chain *chain, void **out, size_t count)
{
	return KM_RSEQ(chain_pop_n, (chain, km_percpu.base, km_thread_rseq, out, count),
		       km_chain_soft_pop_n(chain, out, count));
}

#endif
