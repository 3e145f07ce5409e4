/*
 * tracer.h: the hook of the extension that tells tracers of each call. Invariant: km_alloc_probing has
 * KM_PROBING_TRACER only where the hook is set.
 */
#ifndef KM_ALLOC_TRACER_H
#define KM_ALLOC_TRACER_H

#include "base/atomic.h"
#include "base/cc.h"

/* The hook (base/cc.h). call_site: the return address of the call. If one function of the library calls another,
 * call_site is inside the library. */
struct km_tracer_ops {
	/* Not 0 while a tracer is attached. */
	const uint64_t *attached;
	/* Tells a preloaded tracer (heaptrack) of an allocated object; NULL without one. Constant from the start to the
	 * end. */
	void (*preloaded)(void *p, size_t bytes);
	void (*kmalloc)(uintptr_t call_site, const void *p, size_t bytes_req, size_t bytes_alloc, unsigned gfp_flags,
			int node, bool accounted);
	void (*cache_alloc)(uintptr_t call_site, const void *p, const char *name, size_t bytes_req,
			    size_t bytes_alloc, unsigned gfp_flags, int node, bool accounted);
	void (*kfree)(uintptr_t call_site, const void *p);
	void (*cache_free)(uintptr_t call_site, const void *p, const char *name);
	/* comes and goes: tell the preloaded tracer of an allocation (p NULL: it failed) and of a free. With no lock
	 * held, because the tracer allocates. */
	void (*comes)(const void *p, size_t bytes);
	void (*goes)(const void *p);
};
extern km_hidden const struct km_tracer_ops *km_tracer_ops;

/* Returns: true if a tracer is attached or preloaded, and wants to see each call. */
km_inline bool km_tracer_is_wanted(void)
{
	return km_tracer_ops && (km_load(km_tracer_ops->attached) || km_tracer_ops->preloaded);
}

/* Tell the preloaded tracer, if there is one, of an allocation or a free. */
void km_tracer_comes(const void *p, size_t bytes) km_cold;
void km_tracer_goes(const void *p) km_cold;

#endif
