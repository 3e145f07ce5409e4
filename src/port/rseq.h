/*
 * rseq.h: the shelf's longer verbs as restartable sequences, for the architecture we are built for; only where
 * KMEM_HAVE_RSEQ. Every architecture's file has the same functions: pcpu.h has their pseudo-code.
 */
#ifndef KM_PORT_RSEQ_H
#define KM_PORT_RSEQ_H

#include <kmem/inline.h>

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
#include "rseq_x86_64.h"
#elif defined(KMEM_HAVE_RSEQ)
#include "rseq_aarch64.h"
#endif

#endif
