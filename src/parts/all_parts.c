/*
 * all_parts.c: the optional parts in a program linked with an archive: debugging, guarded objects and profiles, groups,
 * failures on purpose, an observer, probes, sanitizers. Options and requests from outside may need each part.
 * Invariant: no code; the table links the parts by the names of what they register, and entry.c links the table.
 * A program without them is linked with -Wl,--defsym=km_all_parts=0.
 */
#include "base/cc.h"

extern km_hidden const char km_accounting[], km_debugging[], km_failing[];
extern km_hidden const char km_guarding[], km_observing[], km_profiling[], km_sanitizing[], km_tracing[];
extern km_hidden const void *const km_all_parts[];

const void *const km_all_parts[] = {
	km_accounting, km_debugging, km_failing, km_guarding, km_observing, km_profiling, km_sanitizing,
	km_tracing,
};
