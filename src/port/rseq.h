/*
 * rseq.h: the shelf's longer verbs, and those of accounting, as restartable sequences, for the architecture we are
 * built for; only where KMEM_HAVE_RSEQ. Every architecture's files have the same functions: pcpu.h, owned.h and
 * stock_word.h have their pseudo-code.
 */
#ifndef KM_PORT_RSEQ_H
#define KM_PORT_RSEQ_H

#include <kmem/inline.h>

#if defined(KMEM_HAVE_RSEQ) && defined(__x86_64__)
#include "rseq_owned_x86_64.h"
#include "rseq_x86_64.h"
#elif defined(KMEM_HAVE_RSEQ)
#include "rseq_aarch64.h"
#include "rseq_owned_aarch64.h"
#endif

#endif
