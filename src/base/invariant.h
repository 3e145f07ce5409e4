/*
 * invariant.h: invariants as code. Debug builds check them.
 */
#ifndef KM_BASE_INVARIANT_H
#define KM_BASE_INVARIANT_H

#include "cc.h"

/* Prints where it stands and what does not hold, and stops the process (os/die.c). */
km_cold _Noreturn void km_assert_failed(const char *condition, const char *sentence, const char *file, int line);

/*
 * An invariant, at a transition that it speaks of: the sentence says what holds there, the condition tells. Debug
 * builds (DEBUG=1) stop where it does not, and print both. Other builds contain nothing of it: only the compiler reads
 * the condition. So a condition changes nothing, and looks only at what no other thread changes just then.
 */
#ifdef KM_DEBUG
#define km_debug(condition, sentence)                                                              \
	(km_likely(condition) ? (void)0 : km_assert_failed(#condition, sentence, __FILE__, __LINE__))
#else
#define km_debug(condition, sentence) ((void)sizeof(!(condition)))
#endif

#endif
