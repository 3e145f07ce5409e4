/*
 * process_record.h: what a reader outside of the process needs to find: `kmem info` reads a running
 * program's memory with process_vm_readv and never runs anything in it.
 *
 * The record lies at the very start of our first metadata range, just behind a page without access
 * (page/metadata.c): so it begins a mapping in /proc/PID/maps, in every program, also where there are
 * no symbols and no names of mappings. It points at what is kept anyway; nothing is written for
 * readers' sake while the program runs. A fork's child has a copy that is right for the child,
 * which is why no process id stands here.
 *
 * The reader may be of another build: a server lives for months, and the tool is updated. So the
 * record leads to a table of what the reader relies on, by name (base/fields.h): this record's own
 * fields, those of caches, of pages, of CPUs.
 * Only what stands first, up to the line below, is where it is for ever.
 *
 * A reader follows pointers into structures that change under its feet. The reader may rely on this: a cache, a node, a
 * block of a shelf and the tables here are metadata or static, so they can be read for ever, even after they were
 * freed. It must check what it read, bound each walk, and try again.
 */
#ifndef KM_CACHE_PROCESS_RECORD_H
#define KM_CACHE_PROCESS_RECORD_H

#include "page/huge.h"
#include "page/metadata.h"
#include "page/huge_cache.h"
#include "base/fields.h"
#include "cache.h"
#include "mailbox.h"

#define KM_ROOT_MAGIC	"libkmem"
#define KM_ROOT_MAJOR	2u	/* another one: a table is not read in this way, or what it leads to is not walked so */
#define KM_ROOT_MINOR	0u	/* for people */

struct km_root {
	char magic[8];		/* written last */
	uint32_t major, minor;
	const struct km_field *fields;
	char version[16];
	uint64_t field_count;
	/* ---- from here on by the table */
	const char *discipline, *reason;
	const char *hardened;	/* the parts that are on, by their options' names; empty: none */
	const struct km_percpu *percpu;
	const struct km_list *caches;	/* the registry: struct kmem_cache.all, oldest first */
	const unsigned *cache_count;
	const size_t *past_new_slabs, *past_freed_slabs;	/* of caches that are gone, and no cache's */
	struct km_arena_view arena;
	const size_t *large_blocks, *large_bytes;	/* not the mappings of their own */
	const uint32_t *growth_at;	/* large_bytes has the runs' pages, too: realloc_run.h */
	const size_t *own_pages;	/* page/addr_reuse.h */
	const size_t *mapped_blocks, *mapped_bytes;
	const size_t *mapped_kept, *mapped_spare;	/* bytes without a block: refused by the system; in regions */
	const size_t *mapped_ready;	/* pages without a block that lie ready, with memory */
	const struct km_huge_entry *const *mapped_table;	/* of so many slots; another one at times */
	const size_t *mapped_slots;
	const struct km_huge_cached *parked;	/* those that lie ready */
	const unsigned *parked_count;
	const size_t *meta_bytes;
	const struct km_span *spans;	/* where our own memory is, but for ranges' arrays and CPUs' areas */
	const unsigned *span_count;
	const size_t *slob_pages, *slob_units;
	const struct km_guarded *guarded;
	const size_t *guard_objects, *guard_live, *guard_samples, *guard_reports;	/* guarded objects */
	const struct km_memcg_view *memcg;	/* memcg/memcg_group.h; NULL: there can't be groups */
	uint32_t control;		/* enum km_control */
	struct km_mail *mail;		/* where it is on */
	const struct km_mail_report *mail_report;
	const struct km_grace *const *grace;	/* what waits for a grace period; NULL there: there is no RCU */
	const struct km_profile_record *profile;	/* alloc/profile_record.h; NULL: it is not linked in */
	const struct km_gate *ways;	/* percpu/pcpu.h; where control is on */
	struct km_debug_stack *const *stacks;	/* by number; NULL: debugging is not linked in */
};

/* cache_fields.c: the table of this build. */
extern km_hidden const struct km_field km_fields[];
extern km_hidden const unsigned km_field_count;

/* Write the record; once, when everything it points at is there. */
void km_root_start(void);

#endif
