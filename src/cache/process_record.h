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

struct km_root {
	struct kmem_record head;	/* header; the table of fields has the places of all fields below */
	const char *discipline, *reason;
	const char *hardened;	/* names of the active parts of hardening; empty: none */
	const struct km_percpu *percpu;
	const struct km_list *caches;	/* list of all caches (struct kmem_cache.registry.all), oldest first */
	const unsigned *cache_count;
	const size_t *past_new_slabs, *past_freed_slabs;	/* slab counters of destroyed caches without an heir */
	struct km_arena_view arena;
	const size_t *large_blocks, *large_bytes;	/* large blocks, and their bytes, without those that are
							 * mappings */
	const uint32_t *growth_at;	/* per-CPU offset of the pages of runs, which large_bytes includes
					 * (realloc_run.h) */
	const size_t *own_pages;	/* km_addr_reuse_pages (page/addr_reuse.h) */
	const size_t *mapped_blocks, *mapped_bytes;
	const size_t *mapped_kept, *mapped_spare;	/* bytes of address space without a block: ranges refused by
							 * munmap; spare room of regions */
	const size_t *mapped_ready;	/* pages of cached huge blocks */
	const struct km_huge_entry *const *mapped_table;	/* hash table of huge blocks, with mapped_slots entries;
								 * replaced when it grows */
	const size_t *mapped_slots;
	const struct km_huge_cached *parked;	/* table of cached huge blocks */
	const unsigned *parked_count;
	const size_t *meta_bytes;
	const struct km_span *spans;	/* the library's own memory, except the arrays of ranges and the per-CPU
					 * areas */
	const unsigned *span_count;
	const size_t *slob_pages, *slob_units;
	const struct km_guarded *guarded;
	const size_t *guard_objects, *guard_live, *guard_samples, *guard_reports;	/* guarded objects */
	const struct km_memcg_view *memcg;	/* groups (memcg/memcg_group.h); NULL: not linked in */
	uint32_t control;		/* enum kmem_control */
	struct kmem_mail *mail;		/* mailbox; NULL if control is off */
	const struct kmem_mail_report *mail_report;
	const struct km_grace *const *grace;	/* objects waiting for a grace period; points to NULL without RCU */
	const struct kmem_profile_record *profile;	/* samples of a profile; NULL: profiles are not linked in */
	const struct kmem_gate *ways;	/* fast-path gate; NULL if control is off */
	struct kmem_record_stack *const *stacks;	/* stacks by number; NULL: debugging is not linked in */
};

/* cache_fields.c: names and places of the fields of this build. */
extern km_hidden const struct kmem_record_field km_fields[];
extern km_hidden const unsigned km_field_count;

/* Write the record. Context: called once, when all referenced data exist. */
void km_root_start(void);

#endif
