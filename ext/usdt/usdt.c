/*
 * usdt.c: the probes of calls that skip the fast path for tracers, the counters of attached tracers, and heaptrack.
 * Invariant: no function of this file is called unless a tracer is attached or heaptrack preloaded.
 */
#include "usdt.h"

#include "alloc/tracer.h"
#include "os/lock.h"
#include "os/probe.h"

/* Initialized data, not zero-filled: a tracer finds the counters through the file. */
union km_probe_counts km_probe_counts __attribute__((section(".probes"), aligned(8))) = { .any = 0 };

#define ATTACHED(offset) "km_probe_counts + " #offset

static void probe_kmalloc(uintptr_t call_site, const void *p, size_t bytes_req, size_t bytes_alloc, unsigned gfp_flags,
			  int node, bool accounted)
{
	_Static_assert(offsetof(struct km_probe_attached, kmalloc) == 0, "as the note says");
	KM_PROBE(KM_PROBE_TEXT("kmalloc", ATTACHED(0), "8@%0 8@%1 8@%2 8@%3 8@%4 -8@%5 8@%6"),
		 KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p), KM_PROBE_VALUE(bytes_req),
		 KM_PROBE_VALUE(bytes_alloc), KM_PROBE_VALUE(gfp_flags), KM_PROBE_VALUE(node),
		 KM_PROBE_VALUE(accounted));
}

static void probe_cache_alloc(uintptr_t call_site, const void *p, const char *name, size_t bytes_req,
			      size_t bytes_alloc, unsigned gfp_flags, int node, bool accounted)
{
	_Static_assert(offsetof(struct km_probe_attached, kmem_cache_alloc) == 2, "as the note says");
	KM_PROBE(KM_PROBE_TEXT("kmem_cache_alloc", ATTACHED(2),
			       "8@%0 8@%1 8@%2 8@%3 8@%4 8@%5 -8@%6 8@%7"),
		 KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p), KM_PROBE_VALUE(name),
		 KM_PROBE_VALUE(bytes_req), KM_PROBE_VALUE(bytes_alloc), KM_PROBE_VALUE(gfp_flags),
		 KM_PROBE_VALUE(node), KM_PROBE_VALUE(accounted));
}

static void probe_kfree(uintptr_t call_site, const void *p)
{
	_Static_assert(offsetof(struct km_probe_attached, kfree) == 4, "as the note says");
	KM_PROBE(KM_PROBE_TEXT("kfree", ATTACHED(4), "8@%0 8@%1"),
		 KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p));
}

static void probe_cache_free(uintptr_t call_site, const void *p, const char *name)
{
	_Static_assert(offsetof(struct km_probe_attached, kmem_cache_free) == 6, "as the note says");
	KM_PROBE(KM_PROBE_TEXT("kmem_cache_free", ATTACHED(6), "8@%0 8@%1 8@%2"),
		 KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p), KM_PROBE_VALUE(name));
}

/* ------------------------------------------------------------------ heaptrack */

static void comes(const void *p, size_t bytes)
{
	if (heaptrack_malloc && p && !km_thread.busy)
		heaptrack_malloc((void *)p, bytes);
}

static void goes(const void *p)
{
	if (heaptrack_free && p && !km_thread.busy)
		heaptrack_free((void *)p);
}

const struct km_tracer_ops km_tracing = {
	.attached = &km_probe_counts.any, .preloaded = heaptrack_malloc,
	.kmalloc = probe_kmalloc, .kfree = probe_kfree,
	.cache_alloc = probe_cache_alloc, .cache_free = probe_cache_free,
	.comes = comes, .goes = goes,
};
KM_REGISTER(km_tracer_ops, km_tracing);
