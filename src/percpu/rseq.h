/*
 * rseq.h: the longer operations on sheaves, and the operations of accounting, as restartable sequences for this
 * architecture; only with KMEM_HAVE_RSEQ. The files of every architecture have the same functions, with pseudo-code
 * in pcpu.h, owned_sheaf.h and stock_word.h. KM_RSEQ chooses the sequence by CPU, by concurrency id, or the soft
 * operation.
 */
#ifndef KM_PERCPU_RSEQ_H
#define KM_PERCPU_RSEQ_H

#include <kmem/inline.h>

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
#include "rseq_owned_x86_64.h"
#include "rseq_x86_64.h"
#elif defined(KMEM_HAVE_RSEQ)
#include "rseq_aarch64.h"
#include "rseq_owned_aarch64.h"
#endif

/* pop and push are in <kmem/inline.h>, shared with programs, under other names. */
#define km_rseq_pop kmem_pcs_pop
#define km_rseq_push kmem_pcs_push

#ifdef KMEM_HAVE_RSEQ
KM_BY_CID(pop) KM_BY_CID(push)
KM_BY_CID(pop_n) KM_BY_CID(push_n) KM_BY_CID(swap) KM_BY_CID(commit)
KM_BY_CID(owned_pop) KM_BY_CID(owned_push) KM_BY_CID(owned_pop_n) KM_BY_CID(owned_push_n)
KM_BY_CID(stock_take) KM_BY_CID(stock_put)

#define KM_RSEQ(verb, arguments, otherwise)                                                        \
	(km_likely(km_percpu.index == KM_INDEX_CPU) ? km_rseq_##verb arguments :                   \
	 km_percpu.index == KM_INDEX_CID ? km_cid_##verb arguments : (otherwise))
#else
#define KM_RSEQ(verb, arguments, otherwise) (otherwise)
#endif

#endif
