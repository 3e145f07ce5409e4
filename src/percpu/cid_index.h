/*
 * cid_index.h: makes the sequences of a file find their area by the thread's concurrency id (cid_ops.c). Must be
 * the first include of the file. Invariant: the files of the sequences are included behind this file, without a
 * copy of any line.
 */
#ifndef KM_PERCPU_CID_INDEX_H
#define KM_PERCPU_CID_INDEX_H

#ifdef KMEM_INLINE_H
#error "the sequences are there already, by CPU"
#endif

#if defined(__x86_64__)
#define KMEM_RSEQ_INDEX                                                                            \
	"movl %%fs:4(%[rs]), %k[area]\n\t"                                                         \
	"sarl $31, %k[area]\n\t"                                                                   \
	"orl %%fs:24(%[rs]), %k[area]\n\t"                                                         \
	"movslq %k[area], %[area]\n\t"
#else
#define KMEM_RSEQ_INDEX(scratch)                                                                   \
	"ldrsw %[area], [%[rs], #4]\n\t"                                                           \
	"ldr %w[" scratch "], [%[rs], #24]\n\t"                                                    \
	"orr %[area], %[" scratch "], %[area], asr #63\n\t"
#endif

/* Section of the code that indexes areas by concurrency id; tests/rseq tells these sequences by the section. */
#define KM_TEXT_BY_CID __attribute__((section("km_text_by_cid")))

#endif
