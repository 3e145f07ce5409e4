/*
 * steps.h: the next step at the end of a misuse's line, by the phrase of the line.
 */
#ifndef DEATH_STEPS_H
#define DEATH_STEPS_H

#include <string.h>

/* The next step below a report with stacks. */
#define TOLD "`kmem symbols` names the functions above\n"

static const char *const steps[][2] = {
	{ ": pointer is not from this allocator", "KMEM_DEBUG=FZPU says if it was freed before" },
	{ ": pointer is not the start of an object", "KMEM_DEBUG=U says who allocated the object" },
	{ ": object already free", "KMEM_DEBUG=U says who freed it first" },
	{ ": object belongs to different cache", "KMEM_DEBUG=U says who allocated it" },
	{ ": NULL freed", "a backtrace shows the caller" },
	{ ": unexpected gfp bits", "<kmem/kmem.h> has the valid bits" },
	{ ": cache is destroyed", "a backtrace shows the caller" },
	{ ": not a prefilled sheaf of this cache", "return a sheaf once, to the cache that gave it" },
	{ ": object is not from kmalloc", "kmem_cache_free() takes such objects" },
	{ ": size in front of the object was overwritten",
	  "KMEM_OPTIONS=engine:sheaf and KMEM_DEBUG=FZPU say who allocated it" },
	{ ": group is gone", "a backtrace shows the caller" },
	{ ": called by a shrinker, but waits for all shrinkers", "call the function outside of shrinkers" },
	{ ": called by the cache's own constructor", "allocate from another cache there" },
	{ ": called by a vfork child in its parent's memory", "KMEM_PERCPU=lock permits the call" },
	{ ": more uncharged than was charged", "compare its bytes with those of mem_cgroup_charge()" },
	{ ": free memory of this page was written to", "KMEM_OPTIONS=guard:each stops at such a write" },
	{ " stay allocated, and are never reused", "KMEM_DEBUG=U says who allocated them" },
};

/* The text behind a line: "; " and the step, or "". */
static inline const char *next_step(const char *line, char text[128])
{
	text[0] = '\0';
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (strstr(line, steps[i][0]))
			snprintf(text, 128, "; %s", steps[i][1]);
	return text;
}

#endif
