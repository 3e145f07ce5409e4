/*
 * all_parts.c: the optional parts in a program linked with an archive: debugging, guarded objects and profiles, groups,
 * failures on purpose, an observer, probes, sanitizers. Options and requests from outside may need each part.
 * Invariant: no code; the table links the parts by the names of what they register, and entry.c links the table.
 * A program without them is linked with -Wl,--defsym=km_all_parts=0.
 */
#include "base/cc.h"

/* part(name): the registration of each built part. A build with fewer parts has its own list. */
#ifndef KM_PARTS
#define KM_PARTS(part)                                                                             \
	part(km_accounting) part(km_debugging) part(km_failing) part(km_guarding) part(km_observing) \
	part(km_profiling) part(km_sanitizing) part(km_tracing)
#endif
#define DECLARED(name)	extern km_hidden const char name[];
#define ADDRESS(name)	name,
KM_PARTS(DECLARED)

extern km_hidden const void *const km_all_parts[];
const void *const km_all_parts[] = { KM_PARTS(ADDRESS) NULL };
