/*
 * all_parts.c: the optional parts in a program linked with an archive: debugging, guarded objects and profiles, groups,
 * failures on purpose, an observer. Options and requests from outside may need each part. Invariant: no code; a
 * reference in cache/boot.c links the table, and the table the parts. A program without them is linked with
 * -Wl,--defsym=km_all_parts=0.
 */
#include "base/cc.h"

/* part(name): a symbol of each part that is built. */
#ifndef KM_PARTS
#define KM_PARTS(part)	part(kmem_cache_validate) part(mem_cgroup_create) part(kmem_failslab) part(km_observing)
#endif

/* The addresses link the parts: not weak here. */
#define DECLARED(name)	extern const char name[];
#define ADDRESS(name)	name,
KM_PARTS(DECLARED)

extern km_hidden const void *const km_all_parts[];
const void *const km_all_parts[] = { KM_PARTS(ADDRESS) NULL };
