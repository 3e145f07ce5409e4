/* usdt.h: the counters written by tracers, and the functions of heaptrack. */
#ifndef KM_USDT_H
#define KM_USDT_H

#include "base/cc.h"

/* Number of tracers attached to each probe, written by the tracers. The counters have a section of their own, as
 * tracers expect. */
struct km_probe_attached {
	uint16_t kmalloc, kmem_cache_alloc, kfree, kmem_cache_free;
};
extern km_hidden union km_probe_counts {
	struct km_probe_attached of;
	uint64_t any;
} km_probe_counts;

/* Functions of a preloaded heaptrack; names from heaptrack_api.h. heaptrack wraps malloc and free and sees these
 * calls directly. The library reports allocations by other functions, including new, and every free; heaptrack
 * ignores a free seen before. With heaptrack, as with an attached tracer, no call takes a fast path. */
__attribute__((weak, visibility("default"))) void heaptrack_malloc(void *p, size_t bytes);
__attribute__((weak, visibility("default"))) void heaptrack_free(void *p);

#endif
