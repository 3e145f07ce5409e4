/*
 * sanitizer.h: who watches memory in this process, AddressSanitizer, LeakSanitizer, ThreadSanitizer or valgrind's
 * memcheck, and what they are told. They are found when the library starts: it is one and the same binary that runs
 * with and without them. Invariant: where nobody listens, km_sanitizer is zeros and nobody is called.
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

/* Look who is there. Called once, before any thread. */
void km_sanitizer_start(void);

/* Bytes behind an object that are nobody's, at least. */
#define KM_RED_ZONE	16u
/* Behind a larger object the longest slab has no room for them, and a word: it is not told. */
#define KM_OBSERVED_MOST	(((size_t)4 << 20) - KM_RED_ZONE - sizeof(size_t))

/* Memory that may hold the only pointers to what others allocated: until it is no more. */
void km_root_comes(const void *p, size_t bytes) km_cold;
void km_root_goes(const void *p, size_t bytes) km_cold;

/* Memory that its user may use, or not. */
void km_memory_on(const void *p, size_t bytes) km_cold;
void km_memory_off(const void *p, size_t bytes) km_cold;
/* Until the reports are on again, this thread may touch what is nobody's; a pair may stand within a pair. */
void km_reports_off(void) km_cold;
void km_reports_on(void) km_cold;
/* The memory at p belongs to another thread from now on, with all that it saw; that thread has it. */
void km_handed_out(const void *p) km_cold;
void km_handed_in(const void *p) km_cold;
/* The same for pages, each of them. */
void km_pages_handed_out(const void *p, size_t bytes) km_cold;
void km_pages_handed_in(const void *p, size_t bytes) km_cold;

/* An object begins, with content or without; its length changes; it ends. `bytes` is what its user has of it. */
void km_object_begins(void *p, size_t bytes, bool has_content) km_cold;
void km_object_resized(void *p, size_t before, size_t bytes) km_cold;
void km_object_ends(void *p, size_t bytes) km_cold;

#endif
