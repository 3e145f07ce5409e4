/*
 * rseq.h: the shelf's longer verbs, and those of accounting, as restartable sequences, for the architecture we are
 * built for; only where KMEM_HAVE_RSEQ. Every architecture's files have the same functions: pcpu.h, owned_sheaf.h and
 * stock_word.h have their pseudo-code. And the choice between them, the same by concurrency id, and what is done
 * without.
 */
#ifndef KM_PERCPU_RSEQ_H
#define KM_PERCPU_RSEQ_H

#include <kmem/inline.h>

#include "cid_ops.h"

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
#include "rseq_owned_x86_64.h"
#include "rseq_x86_64.h"
#elif defined(KMEM_HAVE_RSEQ)
#include "rseq_aarch64.h"
#include "rseq_owned_aarch64.h"
#endif

/* The two that programs have as well go by another name. */
#define km_rseq_pop kmem_pcs_pop
#define km_rseq_push kmem_pcs_push

#ifdef KMEM_HAVE_RSEQ
#define KM_RSEQ(verb, arguments, otherwise)                                                        \
	(km_likely(km_percpu.index == KM_INDEX_CPU) ? km_rseq_##verb arguments :                   \
	 km_percpu.index == KM_INDEX_CID ? km_cid_##verb arguments : (otherwise))
#else
#define KM_RSEQ(verb, arguments, otherwise) (otherwise)
#endif

#endif
