/* invariant.h: invariants as code, checked by debug builds. */
#ifndef KM_BASE_INVARIANT_H
#define KM_BASE_INVARIANT_H

#include "cc.h"

/* Print the place, the condition and the sentence, and stop the process (os/die.c). */
km_cold _Noreturn void km_assert_failed(const char *condition, const char *sentence, const char *file, int line);

/* Check an invariant. The sentence states the invariant, and the condition tests the invariant at this point. Debug
 * builds (DEBUG=1) stop on a false condition, and print both. Other builds contain no code for the check, and only the
 * compiler reads the condition. So the condition must have no effects, and must read only data without concurrent
 * writers. */
#ifdef KM_DEBUG
#define km_debug(condition, sentence)                                                              \
	(km_likely(condition) ? (void)0 : km_assert_failed(#condition, sentence, __FILE__, __LINE__))
#else
#define km_debug(condition, sentence) ((void)sizeof(!(condition)))
#endif

#endif
