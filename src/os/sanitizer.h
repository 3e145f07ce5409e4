/*
 * sanitizer.h: who watches memory in this process, AddressSanitizer, LeakSanitizer, ThreadSanitizer or valgrind's
 * memcheck, and what they are told. They are found when the library starts: it is one and the same binary that runs
 * with and without them. Invariant: without a sanitizer km_sanitizer is zeros, and no function of the hook is called
 * but those of roots.
 */
#ifndef KM_OS_SANITIZER_H
#define KM_OS_SANITIZER_H

#include "base/cc.h"

struct km_sanitizer {
	bool any;			/* somebody is there */
	bool objects;			/* each object that comes or goes is told; one of those below */
	bool address, thread, valgrind;
};
extern km_hidden struct km_sanitizer km_sanitizer;

/* Bytes behind an object that are nobody's, at least. */
#define KM_RED_ZONE	16u
/* Behind a larger object the longest slab has no room for them, and a word: it is not told. */
#define KM_OBSERVED_MOST	(((size_t)4 << 20) - KM_RED_ZONE - sizeof(size_t))

struct km_hooks;

/* The hook of the extension that knows sanitizers (base/cc.h). */
struct km_sanitizer_ops {
	/* Look for sanitizers, and set km_sanitizer. Called once, before any thread. */
	void (*start)(void);
	const struct km_hooks *hooks;	/* of caches whose objects are told */

	/* Memory that may hold the only pointers to what others allocated: until it is no more. */
	void (*root_comes)(const void *p, size_t bytes);
	void (*root_goes)(const void *p, size_t bytes);

	/* Memory that its user may use, or not. */
	void (*memory_on)(const void *p, size_t bytes);
	void (*memory_off)(const void *p, size_t bytes);
	/* Until the reports are on again, this thread may touch what is nobody's; a pair may stand within a pair. */
	void (*reports_off)(void);
	void (*reports_on)(void);
	/* The memory at p belongs to another thread from now on, with all that it saw; that thread has it. */
	void (*handed_out)(const void *p);
	void (*handed_in)(const void *p);
	/* The same for pages, each of them. */
	void (*pages_handed_out)(const void *p, size_t bytes);
	void (*pages_handed_in)(const void *p, size_t bytes);

	/* An object begins, with content or without; its length changes; it ends. bytes: its user's. */
	void (*object_begins)(void *p, size_t bytes, bool has_content);
	void (*object_resized)(void *p, size_t before, size_t bytes);
	void (*object_ends)(void *p, size_t bytes);
};
extern km_hidden const struct km_sanitizer_ops *km_sanitizer_ops;

/* Tell the sanitizer, if there is one. Roots are told even where km_sanitizer is zeros: a library that is built with
 * AddressSanitizer has LeakSanitizer in the process. */
#define km_tell(what, ...) km_tell_if(km_sanitizer.any, what, __VA_ARGS__)
#define km_tell_root(what, ...) km_tell_if(km_sanitizer_ops, what, __VA_ARGS__)
#define km_tell_if(condition, what, ...)                                                           \
	do {                                                                                       \
		if (km_unlikely(condition))                                                        \
			km_sanitizer_ops->what(__VA_ARGS__);                                       \
	} while (0)

#endif
