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

/* Mistakes of a caller: X(name, phrase, next step for the reader of the line). tests/death tests each phrase. CHILD is
 * a call in a child of libc's vfork. Some are found by some engines only: HEADER by slob, WRITTEN by slob and slab,
 * NOT_KMALLOC by an engine that can't tell an object's cache. GROUP follows the put of the last reference. */
#define KM_MISUSES(X)                                                                                                  \
	X(FOREIGN, "pointer is not from this allocator", "KMEM_DEBUG=FZPU says if it was freed before")                \
	X(INTERIOR, "pointer is not the start of an object", "KMEM_DEBUG=U says who allocated the object")             \
	X(DOUBLE_FREE, "object already free", "KMEM_DEBUG=U says who freed it first")                                  \
	X(WRONG_CACHE, "object belongs to different cache", "KMEM_DEBUG=U says who allocated it")                      \
	X(NULL_FREE, "NULL freed", "a backtrace shows the caller")                                                     \
	X(BAD_GFP, "unexpected gfp bits", "<kmem/kmem.h> has the valid bits")                                          \
	X(DEAD_CACHE, "cache is destroyed", "a backtrace shows the caller")                                            \
	X(SHEAF, "not a prefilled sheaf of this cache", "return a sheaf once, to the cache that gave it")              \
	X(NOT_KMALLOC, "object is not from kmalloc", "kmem_cache_free() takes such objects")                           \
	X(HEADER, "size in front of the object was overwritten",                                                       \
	  "KMEM_OPTIONS=engine:sheaf and KMEM_DEBUG=FZPU say who allocated it")                                        \
	X(WRITTEN, "free memory of this page was written to", "KMEM_OPTIONS=guard:each stops at such a write")         \
	X(GROUP, "group is gone", "a backtrace shows the caller")                                                      \
	X(UNCHARGE, "more uncharged than was charged", "compare its bytes with those of mem_cgroup_charge()")          \
	X(OVERWRITTEN, "object or its surroundings were overwritten", "KMEM_DEBUG=FZPU says who allocated it")         \
	X(USERCOPY, "copy exceeds the object", "a backtrace shows the caller")                                         \
	X(SIZE, "freed with a wrong size", "KMEM_OPTIONS=check_sizes:0 disables this check")                           \
	X(SHRINKER, "called by a shrinker, but waits for all shrinkers", "call the function outside of shrinkers")     \
	X(CONSTRUCTOR, "called by the cache's own constructor", "allocate from another cache there")                   \
	X(CHILD, "called by a vfork child in its parent's memory", "KMEM_PERCPU=lock permits the call")

enum km_misuse {
#define KM_MISUSE_NAME(name, phrase, next) KM_MISUSE_##name,
	KM_MISUSES(KM_MISUSE_NAME)
#undef KM_MISUSE_NAME
	KM_NR_MISUSES
};

/* Buffer for the lines of a thread that validates caches for another process. Each of the thread's lines that fits is
 * copied here, and a misuse found by the thread does not end the process. */
struct km_heard {
	char *text;
	size_t bytes, length;	/* bytes: size of text; length: bytes used, without a NUL */
};

/* Report a misuse. Ends the process (KMEM_OPTIONS=misuse:abort), or warns and returns (misuse:warn), or traps
 * (misuse:trap). After a warning the caller must drop the object: the object leaks, and nothing is corrupted. */
km_cold void km_misuse(enum km_misuse what, const char *function, const void *object,
		       const char *cache);
#define KM_MISUSE_TOLD "`kmem symbols` names the functions above"	/* next step in a line below a report with
									 * stacks */
/* Report a misuse. owner: the name of the object's cache, or NULL. told: a report with stacks precedes the line. */
km_cold void km_misuse_of(enum km_misuse what, const char *function, const void *object, const char *cache,
			  const char *owner, bool told);
enum km_misuse_action { KM_MISUSE_ABORT, KM_MISUSE_WARN, KM_MISUSE_TRAP };
void km_misuse_set(enum km_misuse_action action);
bool km_misuse_goes_on(void);	/* Returns: true if km_misuse warns and returns (misuse:warn) */

/* End the process: memory is exhausted, and the call can't fail (__GFP_NOFAIL, SLAB_PANIC). */
km_cold _Noreturn void km_panic(const char *format, ...) km_printf(1, 2);

#endif
