/*
 * process_record.h: the record for readers in other processes (<kmem/record.h>): `kmem info` reads a running program's
 * memory with process_vm_readv and never runs code in the program.
 *
 * The record lies at the very start of the first metadata range, just behind a page without access (page/metadata.c).
 * Therefore the record begins a mapping in /proc/PID/maps in every program, also without symbols and names of
 * mappings. The record points at data kept anyway; nothing is written for readers while the program runs. A fork's
 * child has a copy with the right addresses for the child, so the record has no process id.
 *
 * Invariant: caches, nodes, sheaves and the tables here are metadata or static, so a reader may read them for ever,
 * also after their end.
 */
#ifndef KM_CACHE_PROCESS_RECORD_H
#define KM_CACHE_PROCESS_RECORD_H

#include "page/huge.h"
#include "page/metadata.h"
#include "page/huge_cache.h"
#include "base/fields.h"
#include "cache.h"
#include "mailbox.h"

/* X(type, name, value) for each field, with its value at the start; NULL: none. */
#define KM_ROOT_FIELDS(X)                                                                                          \
	X(const char *, discipline, km_discipline_name(km_percpu.discipline))                                      \
	X(const char *, reason, km_percpu.reason)                                                                  \
	X(const char *, hardened, km_hardening.parts)	/* active parts, by the names of their options */          \
	X(const struct km_percpu *, percpu, &km_percpu)                                                            \
	X(const struct km_list *, caches, &km_caches.all)                                                          \
	X(const unsigned *, cache_count, &km_caches.count)                                                         \
	/* Of destroyed caches without an heir. */                                                                 \
	X(const size_t *, past_new_slabs, &km_retired_of_process()->new_slabs)                                     \
	X(const size_t *, past_freed_slabs, &km_retired_of_process()->freed_slabs)                                 \
	/* Without separate mappings, with the pages of realloc_run.h. */                                          \
	X(const size_t *, large_blocks, &km_large.blocks)                                                          \
	X(const size_t *, large_bytes, &km_large.bytes)                                                            \
	X(const uint32_t *, growth_at, &km_growth_at)                                                              \
	X(const size_t *, own_pages, &km_addr_reuse_pages)                                                         \
	X(const size_t *, mapped_blocks, &km_huge.blocks)                                                          \
	X(const size_t *, mapped_bytes, &km_huge.bytes)                                                            \
	/* Bytes without a block: refused by the system; in regions. Pages without a block, with memory. */        \
	X(const size_t *, mapped_kept, &km_huge.kept_bytes)                                                        \
	X(const size_t *, mapped_spare, &km_region_spare)                                                          \
	X(const size_t *, mapped_ready, &km_huge_cache.pages)                                                      \
	X(const struct km_huge_entry *const *, mapped_table, (const struct km_huge_entry *const *)&km_huge.table)  \
	X(const size_t *, mapped_slots, &km_huge.slots)                                                            \
	X(const struct km_huge_cached *, parked, km_huge_cache.at)                                                 \
	X(const unsigned *, parked_count, &km_huge_cache.count)                                                    \
	/* The library's own memory, except the arrays of ranges and the per-CPU areas. */                         \
	X(const size_t *, meta_bytes, &km_metadata.committed_bytes)                                                \
	X(const struct km_span *, spans, km_metadata.span)                                                         \
	X(const unsigned *, span_count, &km_metadata.spans)                                                        \
	X(const size_t *, slob_pages, sized ? sized->pages : NULL)                                                 \
	X(const size_t *, slob_units, sized ? sized->units : NULL)                                                 \
	X(const struct km_guarded *, guarded, &km_guarded)                                                         \
	X(const size_t *, guard_objects, &km_guarded.objects)                                                      \
	X(const size_t *, guard_live, &km_guarded.live)                                                            \
	X(const size_t *, guard_samples, &km_guarded.samples)                                                      \
	X(const size_t *, guard_reports, &km_guarded.reports)                                                      \
	X(const struct km_memcg_view *, memcg, km_has_accounting() ? km_charge_ops->view : NULL)                   \
	X(uint32_t, control, serves ? KMEM_CONTROL_ON : km_control_ops ? KMEM_CONTROL_OFF : KMEM_CONTROL_NONE)     \
	X(struct kmem_mail *, mail, serves ? &km_mail : NULL)                                                      \
	X(const struct kmem_mail_report *, mail_report, serves ? km_control_ops->report : NULL)                    \
	X(const struct kmem_gate *, ways, serves ? &km_gate : NULL)                                                \
	X(const struct km_grace *const *, grace, &km_grace)	/* points to NULL without RCU */                   \
	X(const struct kmem_profile_record *, profile, km_profile_ops ? km_profile_ops->record : NULL)             \
	X(struct kmem_record_stack *const *, stacks, km_debug_ops ? km_debug_ops->stacks : NULL)

struct km_root {
	struct kmem_record head;
	struct km_arena_view arena;
#define KM_ROOT_MEMBER(type, name, value) type name;
	KM_ROOT_FIELDS(KM_ROOT_MEMBER)
};

/* cache_fields.c: names and places of the fields of this build. */
extern km_hidden const struct kmem_record_field km_fields[];
extern km_hidden const unsigned km_field_count;

/* Write the record. Context: called once, when all referenced data exist. */
void km_root_start(void);

#endif
