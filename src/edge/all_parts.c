/*
 * all_parts.c: what requests from outside, and options, may ask of a program that is linked with an archive: debugging,
 * guarded objects and profiles, groups, failures on purpose, an observer. Invariant: nothing here runs; cache/boot.c
 * refers to the table, so that each program has the parts, unless the linker is told that there is no table
 * (-Wl,--defsym=km_all_parts=0).
 */
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "../port/cc.h"

extern km_hidden const char km_observing[];	/* its address: not weak, as it is for its users */
extern km_hidden const void *const km_all_parts[];

const void *const km_all_parts[] = {
	(const void *)kmem_cache_validate, (const void *)mem_cgroup_create, (const void *)kmem_failslab, km_observing,
};
