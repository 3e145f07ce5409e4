/*
 * die.h: messages, and the end of the process. Invariant: messages are formatted without malloc and written with
 * one call. The caller's mistakes all end in km_misuse, with a listed phrase and a next step.
 */
#ifndef KM_OS_DIE_H
#define KM_OS_DIE_H

#include "base/invariant.h"
#include "base/format.h"
#include "base/thread.h"

/* Write one line "libkmem: ..." to the standard error of the process's start (stderr.h). */
void km_warn(const char *format, ...) km_printf(1, 2);

/*
 * Limit of 10 lines in 5 seconds, as the kernel's ratelimit. Initialised by zeros.
 * Returns: false if the line must not be printed. With true, `suffix` must follow the line. The suffix is "", or
 * says that further lines are only counted, or how many lines were not printed. Takes no lock: concurrent threads
 * may print a line too many, or count a line too few.
 */
struct km_ratelimit {
	uint32_t begun_ms, said;
};
#define KM_RATELIMIT_SUFFIX 64
bool km_ratelimit(struct km_ratelimit *limit, char suffix[KM_RATELIMIT_SUFFIX]);

/* Mistakes of a caller. Phrases and next steps are in die.c and in the death tests. */
enum km_misuse {
	KM_MISUSE_FOREIGN,	/* a pointer to memory of another allocator */
	KM_MISUSE_INTERIOR,	/* a pointer into an object, not to its start */
	KM_MISUSE_DOUBLE_FREE,
	KM_MISUSE_WRONG_CACHE,
	KM_MISUSE_NULL_FREE,	/* NULL passed to kmem_cache_free */
	KM_MISUSE_BAD_GFP,
	KM_MISUSE_DEAD_CACHE,
	KM_MISUSE_SHEAF,	/* a sheaf that this cache has not given out */
	KM_MISUSE_NOT_KMALLOC,	/* a cache's object passed to kfree, if the engine can't tell the cache */
	KM_MISUSE_HEADER,	/* the size in front of kmalloc's block has changed */
	KM_MISUSE_WRITTEN,	/* an impossible value in an engine's free memory (slob, slab) */
	KM_MISUSE_GROUP,	/* a group after the put of its last reference */
	KM_MISUSE_UNCHARGE,	/* an uncharge of more than was charged */
	KM_MISUSE_OVERWRITTEN,	/* debug cache: damage outside of objects, or in a free object */
	KM_MISUSE_USERCOPY,	/* a copy beyond the end of its object */
	KM_MISUSE_SIZE,		/* a free with a wrong size for its object */
	KM_MISUSE_SHRINKER,	/* a call by a shrinker of a function that waits for shrinkers */
	KM_MISUSE_CONSTRUCTOR,	/* an allocation by a constructor from its own cache */
	KM_MISUSE_CHILD,	/* a call in a child of libc's vfork */
	KM_NR_MISUSES
};

/*
 * Buffer of a thread that checks for damage for another party. Each of the thread's lines that fits is also copied
 * here, and a misuse found by the thread does not end the process.
 */
struct km_heard {
	char *text;
	size_t bytes, length;	/* bytes: size of text; length: bytes used, without a NUL */
};

/*
 * Report a misuse. Ends the process (KMEM_OPTIONS=misuse:abort), or warns and returns (misuse:warn), or traps
 * (misuse:trap). After a warning the caller must drop the object: the object leaks, and nothing is corrupted.
 */
km_cold void km_misuse(enum km_misuse what, const char *function, const void *object,
		       const char *cache);
#define KM_MISUSE_TOLD "`kmem symbols` names the functions above"	/* next step below a report with stacks */
/* Report a misuse. owner: the name of the object's cache, or NULL. told: a report with stacks precedes the line. */
km_cold void km_misuse_of(enum km_misuse what, const char *function, const void *object, const char *cache,
			  const char *owner, bool told);
enum km_misuse_action { KM_MISUSE_ABORT, KM_MISUSE_WARN, KM_MISUSE_TRAP };
void km_misuse_set(enum km_misuse_action action);
bool km_misuse_goes_on(void);	/* km_misuse warns and returns */

/* End the process: memory is exhausted, and the call can't fail (__GFP_NOFAIL, SLAB_PANIC). */
km_cold _Noreturn void km_panic(const char *format, ...) km_printf(1, 2);

#endif
