/*
 * usdt.h: places in the code that a tracer knows by name: SystemTap's, perf's, bpftrace's and gdb's user-space
 * static probes. A probe is one nop; beside the code, in a section that no process loads, stands a note that says
 * where it is, its names, and in which registers its arguments are then. Invariant: no probe stands where a hit
 * passes; those of calls that would be hits have a counter of who is attached (a semaphore), and while one of these
 * is not 0 no call is a hit (cache/trace_attach.c).
 *
 * The note is that of SystemTap's <sys/sdt.h>, version 3: three words (bytes of the owner's name, of what follows,
 * the type), the owner "stapsdt", three addresses (the nop, the section .stapsdt.base as it was linked, the semaphore
 * or 0), three strings (provider, name, arguments as SIZE@REGISTER, negative: signed). It is written here, so that
 * the build needs no header of others'. The provider is "kmem", as the kernel's group of these tracepoints, but for
 * samples.
 */
#ifndef KM_OS_USDT_H
#define KM_OS_USDT_H

#include "base/atomic.h"
#include "base/cc.h"

/* Tracers write here: how many are attached. In a section by itself, as they expect. */
struct km_probe_attached {
	uint16_t kmalloc, kmem_cache_alloc, kfree, kmem_cache_free;
};
extern km_hidden union km_probe_counts {
	struct km_probe_attached of;
	uint64_t any;
} km_probe_counts;
extern km_hidden union km_otel_counts {
	struct { uint16_t alloc, free; } of;
	uint32_t any;
} km_otel_counts;

#if defined(__x86_64__) || defined(__aarch64__)

#define KM_PROBE_TEXT(name, semaphore, arguments) KM_PROBE_TEXT_OF("kmem", name, semaphore, arguments)
#define KM_PROBE_TEXT_OF(provider, name, semaphore, arguments)                                     \
	"991:	nop\n"                                                                                \
	"	.pushsection .note.stapsdt,\"?\",\"note\"\n"                                           \
	"	.balign	4\n"                                                                           \
	"	.4byte	993f - 992f, 995f - 994f, 3\n"                                                 \
	"992:	.asciz	\"stapsdt\"\n"                                                                 \
	"993:	.balign	4\n"                                                                           \
	"994:	.8byte	991b, km_probe_base, " semaphore "\n"                                          \
	"	.asciz	\"" provider "\"\n"                                                            \
	"	.asciz	\"" name "\"\n"                                                                \
	"	.asciz	\"" arguments "\"\n"                                                           \
	"995:	.balign	4\n"                                                                           \
	"	.popsection\n"

#define KM_PROBE_VALUE(x) "r"((intptr_t)(x))
#define KM_PROBE2(name, a, b)                                                                      \
	__asm__ volatile(KM_PROBE_TEXT(#name, "0", "8@%0 8@%1")                                    \
			 : : KM_PROBE_VALUE(a), KM_PROBE_VALUE(b))
#define KM_PROBE3(name, a, b, c)                                                                   \
	__asm__ volatile(KM_PROBE_TEXT(#name, "0", "8@%0 8@%1 8@%2")                               \
			 : : KM_PROBE_VALUE(a), KM_PROBE_VALUE(b), KM_PROBE_VALUE(c))
#define KM_PROBE4(name, a, b, c, d)                                                                \
	__asm__ volatile(KM_PROBE_TEXT(#name, "0", "8@%0 8@%1 8@%2 8@%3")                          \
			 : : KM_PROBE_VALUE(a), KM_PROBE_VALUE(b), KM_PROBE_VALUE(c), KM_PROBE_VALUE(d))

#else
#define KM_PROBE2(name, a, b)		((void)(a), (void)(b))
#define KM_PROBE3(name, a, b, c)	((void)(a), (void)(b), (void)(c))
#define KM_PROBE4(name, a, b, c, d)	((void)(a), (void)(b), (void)(c), (void)(d))
#endif

/*
 * heaptrack, where it was preloaded: it is in front of malloc and free, and sees these by itself. It is told of what
 * comes by other functions, new among them, and of each free; of one that it saw as well it makes nothing. While it is
 * there no call is a hit, as with a tracer. Its names, from its heaptrack_api.h.
 */
__attribute__((weak, visibility("default"))) void heaptrack_malloc(void *p, size_t bytes);
__attribute__((weak, visibility("default"))) void heaptrack_free(void *p);
/* p NULL: nothing came. With no lock held: it allocates. In a handler that struck the allocator nothing is told. */
void km_heaptrack_alloc(const void *p, size_t bytes) km_cold;
void km_heaptrack_free(const void *p) km_cold;

/* Is anybody attached to a probe of calls that would be hits? */
km_inline bool km_probe_is_wanted(void)
{
	return km_load(&km_probe_counts.any) != 0 || heaptrack_malloc;
}

/*
 * The kernel's tracepoints of these names, with their arguments in their order. call_site: where the call returns to,
 * which lies in the library where one of its functions calls another.
 */
void km_probe_kmalloc(uintptr_t call_site, const void *p, size_t bytes_req, size_t bytes_alloc, unsigned gfp_flags,
		      int node, bool accounted) km_cold;
void km_probe_kmem_cache_alloc(uintptr_t call_site, const void *p, const char *name, size_t bytes_req,
			       size_t bytes_alloc, unsigned gfp_flags, int node, bool accounted) km_cold;
void km_probe_kfree(uintptr_t call_site, const void *p) km_cold;
void km_probe_kmem_cache_free(uintptr_t call_site, const void *p, const char *name) km_cold;

/*
 * Probes of samples, which the OpenTelemetry profiler attaches to, provider "otel_memory". alloc: an allocation that is
 * sampled, its bytes, and the bytes that it stands for, which are the mean between two samples times how many of these
 * fell into it. free: one that was sampled goes. While one of them is attached a profile is taken; while
 * one is taken they are passed.
 */
void km_probe_otel_alloc(const void *p, size_t bytes, uint64_t weight) km_cold;
void km_probe_otel_free(const void *p) km_cold;

#endif
