/*
 * rseq_freelist.h: operations on a chain as restartable sequences for this architecture; only with KMEM_HAVE_RSEQ.
 * The file of every architecture has the same functions, with pseudo-code in cpu_freelist.h.
 */
#ifndef KM_PERCPU_RSEQ_FREELIST_H
#define KM_PERCPU_RSEQ_FREELIST_H

#include "cpu_freelist.h"

#ifdef KMEM_HAVE_RSEQ
_Static_assert(offsetof(struct km_chain, open) == 0 && offsetof(struct km_chain, freeptr) == 4 &&
	       offsetof(struct km_chain_cpu, top.freelist) == 0 &&
	       offsetof(struct km_chain_cpu, top.slab) == 8, "the sequences spell these");
#endif

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
#include "rseq_freelist_x86_64.h"
#elif defined(KMEM_HAVE_RSEQ)
#include "rseq_freelist_aarch64.h"
#endif

#ifdef KMEM_HAVE_RSEQ
KM_BY_CID(chain_pop) KM_BY_CID(chain_pop_n) KM_BY_CID(chain_push) KM_BY_CID(chain_swap)
#endif

#endif
