/*
 * die.h: how the library speaks and how it stops. Messages are made without malloc and written with one
 * call; the caller's mistakes stop the process through one door, km_misuse, with a listed phrase and a next step.
 */
#ifndef KM_OS_DIE_H
#define KM_OS_DIE_H

#include "base/invariant.h"
#include "base/format.h"

/* One line "libkmem: ..." on standard error, which is what it was when the process began (stderr.h). */
void km_warn(const char *format, ...) km_printf(1, 2);

/*
 * A limit of 10 lines in 5 seconds, as the kernel's ratelimit; starts as zeros. False: the line must not be printed.
 * True: `suffix` goes behind the line; the suffix is "", or says that the following lines are counted and not printed,
 * or how many were not printed. Takes no lock: concurrent threads may print a line too many, or count one too few.
 */
struct km_ratelimit {
	uint32_t begun_ms, said;
};
#define KM_RATELIMIT_SUFFIX 64
bool km_ratelimit(struct km_ratelimit *limit, char suffix[KM_RATELIMIT_SUFFIX]);

/* The mistakes that a caller can make; phrases and next steps are in die.c and in the death tests. */
enum km_misuse {
	KM_MISUSE_FOREIGN,	/* a pointer that is not ours */
	KM_MISUSE_INTERIOR,	/* ours, not the start of an object */
	KM_MISUSE_DOUBLE_FREE,
	KM_MISUSE_WRONG_CACHE,
	KM_MISUSE_NULL_FREE,	/* NULL into kmem_cache_free */
	KM_MISUSE_BAD_GFP,
	KM_MISUSE_DEAD_CACHE,
	KM_MISUSE_SHEAF,	/* not a sheaf that this cache has given out */
	KM_MISUSE_NOT_KMALLOC,	/* a cache's object into kfree, where its engine can't tell the cache */
	KM_MISUSE_HEADER,	/* the size in front of kmalloc's block is another than it was */
	KM_MISUSE_WRITTEN,	/* what an engine keeps in free memory can't be right (slob, slab) */
	KM_MISUSE_GROUP,	/* a group whose last reference was put */
	KM_MISUSE_UNCHARGE,	/* more than was charged */
	KM_MISUSE_OVERWRITTEN,	/* a cache that is debugged: bytes of nobody's, or of a free object */
	KM_MISUSE_USERCOPY,	/* a copy that leads out of its object */
	KM_MISUSE_SIZE,		/* a free that names its object's bytes, and they are others */
	KM_MISUSE_SHRINKER,	/* what waits for shrinkers, called by one */
	KM_MISUSE_CONSTRUCTOR,	/* an allocation by a constructor from its own cache */
	KM_MISUSE_CHILD,	/* a call in a child of libc's vfork */
	KM_NR_MISUSES
};

/*
 * A thread that looks for damages in somebody else's name: its lines are copied there as well, as many as there is room
 * for, and no misuse that it finds ends the process.
 */
struct km_heard {
	char *text;
	size_t bytes, length;	/* what there is room for; what is there, without a NUL */
};
extern km_hidden km_tls struct km_heard *km_heard;

/* The one door. Ends the process (KMEM_OPTIONS=misuse:abort), or warns and returns (misuse:warn), or traps
 * (misuse:trap). After a warning the caller must drop the object: it leaks and nothing is corrupted. */
km_cold void km_misuse(enum km_misuse what, const char *function, const void *object,
		       const char *cache);
#define KM_MISUSE_TOLD "`kmem symbols` names the functions above"	/* the next step below a report with stacks */
/* As km_misuse. owner: the name of the object's cache, or NULL. told: a report with stacks stands above the line. */
km_cold void km_misuse_of(enum km_misuse what, const char *function, const void *object, const char *cache,
			  const char *owner, bool told);
enum km_misuse_action { KM_MISUSE_ABORT, KM_MISUSE_WARN, KM_MISUSE_TRAP };
void km_misuse_set(enum km_misuse_action action);
bool km_misuse_goes_on(void);	/* it warns and returns */

/* Memory is exhausted and the caller can't be told (__GFP_NOFAIL, SLAB_PANIC). */
km_cold _Noreturn void km_panic(const char *format, ...) km_printf(1, 2);

#endif
