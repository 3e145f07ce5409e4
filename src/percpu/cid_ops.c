/*
 * cid_ops.c: per-CPU operations by concurrency id (cid_ops.h). Invariant: this file holds no sequence. Each
 * operation calls a function of the files of the sequences, compiled once more with another index of the area.
 */
#include "cid_index.h"

#include "cid_ops.h"

#ifdef KMEM_HAVE_RSEQ
#include "rseq.h"
#include "rseq_freelist.h"

#define DEFINE(type, verb, parameters, arguments)                                                  \
	KM_TEXT_BY_CID type km_cid_##verb parameters                                               \
	{                                                                                          \
		return km_rseq_##verb arguments;                                                   \
	}
KM_CID_VERBS(DEFINE)
#endif
