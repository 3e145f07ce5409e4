/*
 * cid_ops.c: per-CPU operations as sequences whose area is indexed by the thread's concurrency id. The kernel numbers
 * the concurrently running threads of a process. The kernel writes a thread's number into its rseq area (mm_cid)
 * whenever the thread gets a CPU. So few threads use few areas, on any CPUs (docs/design/sheaves.md). Invariant: this
 * file holds no sequence. The files of the sequences are compiled once more, with another index of the area.
 *
 * An unregistered thread reads mm_cid 0, which may be another thread's number. So the sequence also reads cpu_id,
 * negative in an unregistered thread, and the area's number is (cpu_id >> 31) | mm_cid.
 */
#include "cid_index.h"

#define KM_OPERATION(type, name) KM_TEXT_BY_CID type km_cid_##name
#define KM_BY_CID(name)

#include "rseq.h"

#ifdef KMEM_HAVE_RSEQ
KM_OPERATION(void *, pop)(const struct kmem_pcs *pcs, char *base, intptr_t rseq)
{
	return kmem_pcs_pop(pcs, base, rseq);
}

KM_OPERATION(bool, push)(const struct kmem_pcs *pcs, char *base, intptr_t rseq, void *object)
{
	return kmem_pcs_push(pcs, base, rseq, object);
}
#endif
