/*
 * cid_ops.c: the verbs by concurrency id (cid_ops.h). Invariant: no sequence stands here: each verb is a call of what
 * the files of the sequences have, compiled once more with another way to the area.
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
