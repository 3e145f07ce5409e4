/*
 * all_parts.c: the optional parts in a program linked with an archive: debugging, guarded objects and profiles, groups,
 * failures on purpose, an observer. Options and requests from outside may need each part. Invariant: no code; a
 * reference in cache/boot.c links the table, and the table the parts. A program without them is linked with
 * -Wl,--defsym=km_all_parts=0.
 */
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "base/cc.h"

extern km_hidden const char km_observing[];	/* the address links the part: not weak here */
extern km_hidden const void *const km_all_parts[];

const void *const km_all_parts[] = {
	(const void *)kmem_cache_validate, (const void *)mem_cgroup_create, (const void *)kmem_failslab, km_observing,
};
