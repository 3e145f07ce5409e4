/*
 * usdt.c: the probes of calls that would be hits, and who is attached to them. Invariant: nothing here is called while
 * nobody is.
 */
#include "usdt.h"

#include "lock.h"

/* Not zeros to the linker: a tracer finds the place in the file. */
union km_probe_counts km_probe_counts __attribute__((section(".probes"), aligned(8))) = { .any = 0 };
union km_otel_counts km_otel_counts __attribute__((section(".probes"), aligned(4))) = { .any = 0 };

#if defined(__x86_64__) || defined(__aarch64__)

/* A debugger subtracts where it finds this from what the notes say, if the file was changed after it was linked. */
__asm__("	.pushsection .stapsdt.base,\"a\"\n"
	"	.hidden	km_probe_base\n"
	"	.globl	km_probe_base\n"
	"km_probe_base:\n"
	"	.space	1\n"
	"	.popsection\n");

#define ATTACHED(offset) "km_probe_counts + " #offset

void km_probe_kmalloc(uintptr_t call_site, const void *p, size_t bytes_req, size_t bytes_alloc, unsigned gfp_flags,
		      int node, bool accounted)
{
	_Static_assert(offsetof(struct km_probe_attached, kmalloc) == 0, "as the note says");
	__asm__ volatile(KM_PROBE_TEXT("kmalloc", ATTACHED(0), "8@%0 8@%1 8@%2 8@%3 8@%4 -8@%5 8@%6")
			 : : KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p), KM_PROBE_VALUE(bytes_req),
			     KM_PROBE_VALUE(bytes_alloc), KM_PROBE_VALUE(gfp_flags), KM_PROBE_VALUE(node),
			     KM_PROBE_VALUE(accounted));
}

void km_probe_kmem_cache_alloc(uintptr_t call_site, const void *p, const char *name, size_t bytes_req,
			       size_t bytes_alloc, unsigned gfp_flags, int node, bool accounted)
{
	_Static_assert(offsetof(struct km_probe_attached, kmem_cache_alloc) == 2, "as the note says");
	__asm__ volatile(KM_PROBE_TEXT("kmem_cache_alloc", ATTACHED(2),
				       "8@%0 8@%1 8@%2 8@%3 8@%4 8@%5 -8@%6 8@%7")
			 : : KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p), KM_PROBE_VALUE(name),
			     KM_PROBE_VALUE(bytes_req), KM_PROBE_VALUE(bytes_alloc), KM_PROBE_VALUE(gfp_flags),
			     KM_PROBE_VALUE(node), KM_PROBE_VALUE(accounted));
}

void km_probe_kfree(uintptr_t call_site, const void *p)
{
	_Static_assert(offsetof(struct km_probe_attached, kfree) == 4, "as the note says");
	__asm__ volatile(KM_PROBE_TEXT("kfree", ATTACHED(4), "8@%0 8@%1")
			 : : KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p));
}

void km_probe_kmem_cache_free(uintptr_t call_site, const void *p, const char *name)
{
	_Static_assert(offsetof(struct km_probe_attached, kmem_cache_free) == 6, "as the note says");
	__asm__ volatile(KM_PROBE_TEXT("kmem_cache_free", ATTACHED(6), "8@%0 8@%1 8@%2")
			 : : KM_PROBE_VALUE(call_site), KM_PROBE_VALUE(p), KM_PROBE_VALUE(name));
}

void km_probe_otel_alloc(const void *p, size_t bytes, uint64_t weight)
{
	__asm__ volatile(KM_PROBE_TEXT_OF("otel_memory", "alloc", "km_otel_counts", "8@%0 8@%1 8@%2")
			 : : KM_PROBE_VALUE(p), KM_PROBE_VALUE(bytes), KM_PROBE_VALUE(weight));
}

void km_probe_otel_free(const void *p)
{
	__asm__ volatile(KM_PROBE_TEXT_OF("otel_memory", "free", "km_otel_counts + 2", "8@%0")
			 : : KM_PROBE_VALUE(p));
}

#else

void km_probe_otel_alloc(const void *p km_unused, size_t bytes km_unused, uint64_t weight km_unused) {}
void km_probe_otel_free(const void *p km_unused) {}
void km_probe_kmalloc(uintptr_t call_site km_unused, const void *p km_unused, size_t bytes_req km_unused,
		      size_t bytes_alloc km_unused, unsigned gfp_flags km_unused, int node km_unused,
		      bool accounted km_unused) {}
void km_probe_kmem_cache_alloc(uintptr_t call_site km_unused, const void *p km_unused, const char *name km_unused,
			       size_t bytes_req km_unused, size_t bytes_alloc km_unused, unsigned gfp_flags km_unused,
			       int node km_unused, bool accounted km_unused) {}
void km_probe_kfree(uintptr_t call_site km_unused, const void *p km_unused) {}
void km_probe_kmem_cache_free(uintptr_t call_site km_unused, const void *p km_unused,
			      const char *name km_unused) {}

#endif

/* ------------------------------------------------------------------ heaptrack */

void km_heaptrack_alloc(const void *p, size_t bytes)
{
	if (heaptrack_malloc && p && !km_thread_busy)
		heaptrack_malloc((void *)p, bytes);
}

void km_heaptrack_free(const void *p)
{
	if (heaptrack_free && p && !km_thread_busy)
		heaptrack_free((void *)p);
}
