/*
 * chain_hit.h: pop and push of a chain, inline: under rseq a hit makes no call.
 */
#ifndef KM_PORT_CHAIN_HIT_H
#define KM_PORT_CHAIN_HIT_H

#include "chain.h"
#ifdef KMEM_HAVE_RSEQ
#include "rseq_chain_x86_64.h"
#define KM_CHAIN_RSEQ(verb, otherwise)                                                             \
	(km_likely(km_percpu.discipline == KM_DISCIPLINE_RSEQ) ? (verb) : (otherwise))
#else
#define KM_CHAIN_RSEQ(verb, otherwise) (otherwise)
#endif

km_inline void *km_chain_pop(struct km_chain *chain)
{
	return KM_CHAIN_RSEQ(km_rseq_chain_pop(chain, km_percpu.base, km_rseq),
			     km_chain_soft_pop(chain));
}

/* object is not NULL. */
km_inline enum km_chain_push km_chain_push(struct km_chain *chain, void *object)
{
	return KM_CHAIN_RSEQ(km_rseq_chain_push(chain, km_percpu.base, km_rseq, object, object),
			     km_chain_soft_push(chain, object, object));
}

#endif
