/*
 * rseq.h: the longer operations on sheaves and on chains, and the operations of accounting, as restartable sequences
 * for this architecture; only with KMEM_HAVE_RSEQ. The file of every architecture has the same functions, with
 * pseudo-code in pcpu.h, cpu_freelist.h, owned_sheaf.h and stock_word.h. KM_RSEQ chooses the sequence by CPU, by
 * concurrency id, or the soft operation. Invariant: each sequence has one committing store, its last instruction.
 * Earlier stores go only to places that no other thread reads before the commit: an object or a link of the caller, the
 * caller's stack, words below the top of a sheaf.
 *
 * A put into a stock, and a swap of a chain, must check the word to be writable (KM_RSEQ_WRITABLE). A closed slot leads
 * to word 0 of the area, and a store there would open every closed pcs of the CPU.
 *
 * A sequence without the CPU for a while may have read a link in an object taken and written by another thread. The
 * value is meaningless, and is never stored, because the kernel aborts the sequence before the last instruction. The
 * read is harmless while the slab's memory stays mapped. Memory of a slab is unmapped only after a drain, and the
 * drain's fence aborts the sequence.
 */
#ifndef KM_PERCPU_RSEQ_H
#define KM_PERCPU_RSEQ_H

#include <kmem/inline.h>

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
#include "rseq_x86_64.h"
#elif defined(KMEM_HAVE_RSEQ)
#include "rseq_aarch64.h"
#endif

/* pop and push of <kmem/inline.h>, under this folder's names. */
#define km_rseq_pop kmem_pcs_pop
#define km_rseq_push kmem_pcs_push

#ifdef KMEM_HAVE_RSEQ
/* Copies without an owner (whose is KM_ANYBODY), or with an owner as one more parameter (KM_OWNED). Move up to `bytes`
 * / 8 objects into the end of out[0 .. bytes / 8), or from the end of in[0 .. bytes / 8). Returns: the number of bytes
 * moved, 0 for a miss. */
#define KM_ANYBODY(...)
#define KM_OWNED(...) __VA_ARGS__
KM_RSEQ_POP_N(pop_n, KM_ANYBODY)
KM_RSEQ_PUSH_N(push_n, KM_ANYBODY)
KM_RSEQ_POP_N(owned_pop_n, KM_OWNED)
KM_RSEQ_PUSH_N(owned_push_n, KM_OWNED)

KM_BY_CID(pop) KM_BY_CID(push)
KM_BY_CID(pop_n) KM_BY_CID(push_n) KM_BY_CID(swap) KM_BY_CID(commit)
KM_BY_CID(owned_pop) KM_BY_CID(owned_push) KM_BY_CID(owned_pop_n) KM_BY_CID(owned_push_n)
KM_BY_CID(stock_take) KM_BY_CID(stock_put)
KM_BY_CID(chain_pop) KM_BY_CID(chain_pop_n) KM_BY_CID(chain_push) KM_BY_CID(chain_swap)

_Static_assert(offsetof(struct km_chain, open) == 0 && offsetof(struct km_chain, freeptr) == 4 &&
	       offsetof(struct km_chain_cpu, top.freelist) == 0 &&
	       offsetof(struct km_chain_cpu, top.slab) == 8, "the sequences spell these");

#define KM_RSEQ(operation, arguments, otherwise)                                                   \
	(km_likely(km_percpu.index == KM_INDEX_CPU) ? km_rseq_##operation arguments :              \
	 km_percpu.index == KM_INDEX_CID ? km_cid_##operation arguments : (otherwise))
#define KM_RSEQ_OR(sequence, otherwise) (sequence)
#else
#define KM_RSEQ(operation, arguments, otherwise) (otherwise)
#define KM_RSEQ_OR(sequence, otherwise) (otherwise)
#endif

#endif
