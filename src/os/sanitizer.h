/*
 * sanitizer.h: sanitizers in this process (AddressSanitizer, LeakSanitizer, ThreadSanitizer, valgrind's memcheck), and
 * the events reported to them. The start of the library detects sanitizers, so one binary runs with and without them.
 * Invariant: without a sanitizer km_sanitizer is zeros, and the library calls only the root functions of the hook.
 */
#ifndef KM_OS_SANITIZER_H
#define KM_OS_SANITIZER_H

#include "base/cc.h"

struct km_sanitizer {
	bool any;			/* a sanitizer is present */
	bool objects;			/* report each allocation and free of an object to a sanitizer */
	bool address, thread, valgrind;
};
extern km_hidden struct km_sanitizer km_sanitizer;

/* Bytes of the red zone behind an object, at least. */
#define KM_RED_ZONE	16u
/* Largest observed object, in bytes. The longest slab has no room for a larger object with its red zone and a word. */
#define KM_OBSERVED_MOST	(((size_t)4 << 20) - KM_RED_ZONE - sizeof(size_t))

struct km_hooks;

/* Hook of the extension for sanitizers (base/cc.h). */
struct km_sanitizer_ops {
	/* Detect sanitizers, and set km_sanitizer. Context: once, before any thread. */
	void (*start)(void);
	const struct km_hooks *hooks;	/* hooks (struct km_hooks) of caches whose objects are reported */

	/* Begin and end a root: memory that may hold the only pointers to allocated objects. */
	void (*root_comes)(const void *p, size_t bytes);
	void (*root_goes)(const void *p, size_t bytes);

	/* Make memory accessible or inaccessible to its user. */
	void (*memory_on)(const void *p, size_t bytes);
	void (*memory_off)(const void *p, size_t bytes);
	/* Suspend this thread's reports, so that the thread may access free memory, and resume the reports. Pairs may
	 * nest. */
	void (*reports_off)(void);
	void (*reports_on)(void);
	/* Pass memory to another thread, with a happens-before edge for p, and for each further page of the range:
	 * handed_out by the giver, handed_in by the taker. */
	void (*handed_out)(const void *p, size_t bytes);
	void (*handed_in)(const void *p, size_t bytes);

	/* Report an object's allocation, with content or without, its change of length, and its free. bytes: the user's
	 * bytes. */
	void (*object_begins)(void *p, size_t bytes, bool has_content);
	void (*object_resized)(void *p, size_t before, size_t bytes);
	void (*object_ends)(void *p, size_t bytes);
};
extern km_hidden const struct km_sanitizer_ops *km_sanitizer_ops;

/* Report to the sanitizer, if there is one. Roots are reported even if km_sanitizer is zeros: a library built with
 * AddressSanitizer has LeakSanitizer in the process. */
#define km_tell(what, ...) km_tell_if(km_sanitizer.any, what, __VA_ARGS__)
#define km_tell_root(what, ...) km_tell_if(km_sanitizer_ops, what, __VA_ARGS__)
#define km_tell_if(condition, what, ...)                                                           \
	do {                                                                                       \
		if (km_unlikely(condition))                                                        \
			km_sanitizer_ops->what(__VA_ARGS__);                                       \
	} while (0)

km_inline void km_reports_leave(const char *begun km_unused)
{
	km_tell(reports_on);
}
/* reports_off, with reports_on at the end of the block or at a return. */
#define km_unreported_scope() \
	km_tell(reports_off); \
	const char unreported_here km_scoped(km_reports_leave) = 0

#endif
