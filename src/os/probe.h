/*
 * probe.h: static probes: places in the code that SystemTap, perf, bpftrace and gdb find by name. A probe is one
 * nop. In a section outside of the loaded memory, a note has the address of the nop, the names of the probe, and
 * the registers of the arguments. Invariant: no probe stands in a hit. Probes of calls that are often hits belong
 * to an extension (alloc/tracer.h), and have a counter of attached tracers (a semaphore).
 *
 * The note has the form of SystemTap's <sys/sdt.h>, version 3: three words (bytes of the owner's name, bytes of the
 * contents, the type), the owner "stapsdt", three addresses (the nop, the section .stapsdt.base as linked, the
 * semaphore or 0), three strings (provider, name, arguments as SIZE@REGISTER, negative: signed). This file writes
 * the note, so that the build needs no header of another project. The provider is "kmem", the kernel's group of
 * these tracepoints.
 */
#ifndef KM_OS_PROBE_H
#define KM_OS_PROBE_H

#include "base/cc.h"

#if defined(__x86_64__) || defined(__aarch64__)

/* A debugger corrects the addresses in the notes by the moved base, if the file was changed after the link. Each object
 * file with a probe brings the base, and the linker keeps one. */
#define KM_PROBE_BASE                                                                              \
	"	.ifndef km_probe_base\n"                                                              \
	"	.pushsection .stapsdt.base,\"aG\",\"progbits\",km_probe_base,comdat\n"                \
	"	.weak	km_probe_base\n"                                                              \
	"	.hidden	km_probe_base\n"                                                              \
	"km_probe_base:\n"                                                                         \
	"	.space	1\n"                                                                          \
	"	.size	km_probe_base, 1\n"                                                           \
	"	.popsection\n"                                                                        \
	"	.endif\n"
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
	"	.popsection\n"                                                                        \
	KM_PROBE_BASE

#define KM_PROBE_VALUE(x) "r"((intptr_t)(x))
#define KM_PROBE(text, ...) __asm__ volatile(text : : __VA_ARGS__)
#define KM_PROBE3(name, a, b, c)                                                                   \
	KM_PROBE(KM_PROBE_TEXT(#name, "0", "8@%0 8@%1 8@%2"),                                      \
		 KM_PROBE_VALUE(a), KM_PROBE_VALUE(b), KM_PROBE_VALUE(c))
#define KM_PROBE4(name, a, b, c, d)                                                                \
	KM_PROBE(KM_PROBE_TEXT(#name, "0", "8@%0 8@%1 8@%2 8@%3"),                                 \
		 KM_PROBE_VALUE(a), KM_PROBE_VALUE(b), KM_PROBE_VALUE(c), KM_PROBE_VALUE(d))

#else
#define KM_PROBE(text, ...)		((void)0)
#define KM_PROBE3(name, a, b, c)	((void)(a), (void)(b), (void)(c))
#define KM_PROBE4(name, a, b, c, d)	((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
