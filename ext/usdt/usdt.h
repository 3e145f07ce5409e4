/*
 * usdt.h: the counters that tracers write, and what heaptrack exports.
 */
#ifndef KM_USDT_H
#define KM_USDT_H

#include "base/cc.h"

/* How many tracers are attached to each probe: written by tracers. In a section by itself, as tracers expect. */
struct km_probe_attached {
	uint16_t kmalloc, kmem_cache_alloc, kfree, kmem_cache_free;
};
extern km_hidden union km_probe_counts {
	struct km_probe_attached of;
	uint64_t any;
} km_probe_counts;

/*
 * heaptrack, where it was preloaded: it is in front of malloc and free, and sees these by itself. It is told of what
 * comes by other functions, new among them, and of each free; of one that it saw as well it makes nothing. While it is
 * there no call is a hit, as with a tracer. Its names, from its heaptrack_api.h.
 */
__attribute__((weak, visibility("default"))) void heaptrack_malloc(void *p, size_t bytes);
__attribute__((weak, visibility("default"))) void heaptrack_free(void *p);

#endif
