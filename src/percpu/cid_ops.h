/*
 * cid_ops.h: per-CPU operations as sequences whose area is indexed by the thread's concurrency id. The kernel
 * numbers the concurrently running threads of a process. The kernel writes a thread's number into its rseq area
 * (mm_cid) whenever the thread gets a CPU. So few threads use few areas, on any CPUs (docs/design/sheaves.md).
 *
 * An unregistered thread reads mm_cid 0, which may be another thread's number. So the sequence also reads cpu_id,
 * negative in an unregistered thread, and the area's number is (cpu_id >> 31) | mm_cid. All other lines are the
 * lines of the sequences by CPU: cid_ops.c compiles their files a second time.
 */
#ifndef KM_PERCPU_CID_OPS_H
#define KM_PERCPU_CID_OPS_H

#include "cpu_freelist.h"
#include "commit.h"

/*
 * X(type, operation, parameters, arguments) for each operation: km_rseq_OPERATION by CPU, km_cid_OPERATION by
 * concurrency id.
 */
#define KM_CID_PCS_VERBS(X)                                                                      \
	X(void *, pop, (const struct kmem_pcs *pcs, char *base, intptr_t rseq), (pcs, base, rseq)) \
	X(bool, push, (const struct kmem_pcs *pcs, char *base, intptr_t rseq, void *object),   \
	  (pcs, base, rseq, object))                                                             \
	X(size_t, pop_n, (const struct kmem_pcs *pcs, uint32_t sheaf_mask, char *base,         \
			  intptr_t rseq, void **out, size_t bytes),                                \
	  (pcs, sheaf_mask, base, rseq, out, bytes))                                             \
	X(size_t, push_n, (const struct kmem_pcs *pcs, char *base, intptr_t rseq,              \
			   void *const *in, size_t bytes),                                         \
	  (pcs, base, rseq, in, bytes))                                                          \
	X(bool, swap, (const struct kmem_pcs *pcs, uint32_t sheaf_mask, char *base,            \
		       intptr_t rseq, bool for_pop, uint32_t bytes),                               \
	  (pcs, sheaf_mask, base, rseq, for_pop, bytes))                                         \
	X(bool, commit, (const uint32_t *open, char *base, intptr_t rseq, const struct km_commit *commit), \
	  (open, base, rseq, commit))
#define KM_CID_OWNED_VERBS(X)                                                                      \
	X(void *, owned_pop, (const struct kmem_pcs *pcs, char *base, intptr_t rseq, uintptr_t owner), \
	  (pcs, base, rseq, owner))                                                              \
	X(bool, owned_push, (const struct kmem_pcs *pcs, char *base, intptr_t rseq,            \
			     uintptr_t owner, void *object),                                       \
	  (pcs, base, rseq, owner, object))                                                      \
	X(size_t, owned_pop_n, (const struct kmem_pcs *pcs, uint32_t sheaf_mask, char *base,   \
				intptr_t rseq, uintptr_t owner, void **out, size_t bytes),         \
	  (pcs, sheaf_mask, base, rseq, owner, out, bytes))                                      \
	X(size_t, owned_push_n, (const struct kmem_pcs *pcs, char *base, intptr_t rseq,        \
				 uintptr_t owner, void *const *in, size_t bytes),                  \
	  (pcs, base, rseq, owner, in, bytes))                                                   \
	X(bool, stock_take, (const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes),    \
	  (stock, base, rseq, bytes))                                                              \
	X(bool, stock_put, (const uint32_t *stock, char *base, intptr_t rseq, uint64_t bytes,      \
			    uint64_t limit),                                                       \
	  (stock, base, rseq, bytes, limit))
#define KM_CID_CHAIN_VERBS(X)                                                                      \
	X(void *, chain_pop, (const struct km_chain *chain, char *base, intptr_t rseq), (chain, base, rseq)) \
	X(size_t, chain_pop_n, (const struct km_chain *chain, char *base, intptr_t rseq,           \
				void **out, size_t count),                                         \
	  (chain, base, rseq, out, count))                                                         \
	X(enum km_chain_push, chain_push, (const struct km_chain *chain, char *base,               \
					   intptr_t rseq, void *head, void *tail),                 \
	  (chain, base, rseq, head, tail))                                                         \
	X(bool, chain_swap, (const struct km_chain *chain, char *base, intptr_t rseq,              \
			     const struct km_chain_top *new_top, struct km_chain_top *old),        \
	  (chain, base, rseq, new_top, old))
#define KM_CID_VERBS(X)                                                                            \
	KM_CID_PCS_VERBS(X)                                                                      \
	KM_CID_OWNED_VERBS(X)                                                                      \
	KM_CID_CHAIN_VERBS(X)

#define KM_CID_DECLARE(type, verb, parameters, arguments) type km_cid_##verb parameters;
KM_CID_VERBS(KM_CID_DECLARE)
#undef KM_CID_DECLARE

#endif
