/*
 * rseq_freelist.h: the verbs of a chain as restartable sequences, for the architecture we are built for; only where
 * KMEM_HAVE_RSEQ. Every architecture's file has the same functions: cpu_freelist.h has their pseudo-code.
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

#endif
