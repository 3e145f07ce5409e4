/*
 * record_copies.h: the command's copies of structures of a process's record (<kmem/record.h>), and the tables of their
 * fields. Invariant: a member has the name of its field in the record: "cache.shelf.slot" is shelf.slot of struct
 * rec_cache. A copy has only fields that the command reads. Each pointer is an address in the process.
 */
#ifndef KMEM_COMMAND_RECORD_COPIES_H
#define KMEM_COMMAND_RECORD_COPIES_H

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/record.h>
#include <kmem/stats.h>
#include <stdbool.h>

/* A list's link, with the layout of the process. */
struct rec_list {
	const struct rec_list *next, *prev;
};

struct rec_arena {
	const unsigned *ranges;		/* number of ranges */
	const void *range;		/* struct rec_range */
	const unsigned *nodes;
	const void *zone[KMEM_RECORD_NODES];	/* struct rec_zone */
	const size_t *bind_failures;
};

struct rec_root {
	const char *discipline, *reason;
	const char *hardened;		/* active parts, by the names of their options */
	const void *percpu;
	const struct rec_list *caches;	/* head of the list of caches, by cache.all */
	const unsigned *cache_count;
	const size_t *past_new_slabs, *past_freed_slabs;	/* of destroyed caches */
	struct rec_arena arena;
	const size_t *large_blocks, *large_bytes;
	const uint32_t *growth_at;	/* per-CPU offset of the pages of runs kept for growing blocks */
	const size_t *own_pages;	/* free pages kept for caches of one name */
	const size_t *mapped_blocks, *mapped_bytes, *mapped_kept, *mapped_spare, *mapped_ready;	/* huge blocks */
	const void *const *mapped_table;	/* struct rec_big, mapped_slots of them */
	const size_t *mapped_slots;
	const void *parked;		/* struct rec_parked: cached huge blocks */
	const unsigned *parked_count;
	const size_t *meta_bytes;
	const void *spans;		/* struct rec_span: libkmem's own memory */
	const unsigned *span_count;
	const size_t *slob_pages, *slob_units;
	const void *guarded;		/* struct rec_pool */
	const size_t *guard_objects, *guard_live, *guard_samples, *guard_reports;
	const void *memcg;		/* struct rec_view_head, struct rec_view; NULL: no groups */
	uint32_t control;		/* enum kmem_control */
	struct kmem_mail *mail;
	const struct kmem_mail_report *mail_report;
	const void *const *grace;	/* struct rec_grace, or NULL */
	const struct kmem_profile_record *profile;
	const struct kmem_gate *ways;
	const struct kmem_record_stack *const *stacks;
};

struct rec_percpu {
	char *base;			/* area of CPU 0 */
	unsigned cpus;
	uint32_t discipline;		/* enum kmem_record_discipline */
};

struct rec_range {
	char *base;			/* NULL: the range was given back */
	size_t pages, ready;		/* reserved and committed pages */
	const uint16_t *map;
	const char *page;		/* descriptors */
	const uint64_t *owner;		/* a word for each page, as KMEM_RECORD_VECTOR states */
	const uint64_t *dirty;		/* a bit for each page: free, and may be resident */
	const uint8_t *live[KMEM_RECORD_MAPS];	/* allocation state maps */
};

struct rec_page {
	const struct kmem_cache *cache;
	uint64_t words[KMEM_RECORD_WORDS], word;	/* the engine's; word: the first word, for slub */
	uint64_t pages;			/* of a large block */
	uint32_t run;			/* pages of a free run */
	uint16_t inuse, objects;
	uint8_t type, order, node;	/* type: enum kmem_record_page */
};

struct rec_zone {
	size_t used_pages, dirty_pages, clean_pages, purged_pages;
};

struct rec_engine {
	const char *name;
	uint32_t front;			/* enum kmem_record_front */
	uint32_t field_count;
	const struct kmem_record_field *fields;
	const void *tune;		/* NULL: limits of arrays can't be set */
};

struct rec_node {
	size_t slabs, objects, taken;	/* taken: KMEM_RECORD_NOT_KEPT without a count */
	size_t partial, free_slabs, new_slabs, freed_slabs, shared;
	const size_t *ready[2];		/* counts of cached objects, or NULL */
};

struct rec_chain {
	struct {
		uintptr_t freelist;
		uint64_t slab;
	} top;
	uint64_t slab, failures;
};

struct rec_big {
	uintptr_t start;		/* 0: empty, 1: deleted */
	size_t bytes;
	uint64_t owner;
};

struct rec_parked {
	char *p;
	size_t bytes;
};

struct rec_pool {
	uintptr_t start;
	size_t bytes, page_bytes, objects;
	const char *slot;		/* struct rec_slot, one for each object */
	const struct kmem_record_field *fields;
	uint32_t field_count;
};

struct rec_span {
	const char *start, *end;
};

/* Objects waiting for a grace period. */
struct rec_grace {
	const uint32_t *slot;		/* per-CPU offset of struct rec_waiting */
	const void *const *pile;	/* struct rec_rcublock */
};
struct rec_waiting {
	const void *blocks;		/* struct rec_rcublock */
};
struct rec_rcublock {
	const void *next;
	size_t count;
	const void *object[KMEM_RECORD_RCU_OBJECTS];
};

struct rec_events {
	uint64_t count[KMEM_NR_EVENTS];
};

/* Sheaves on CPUs (KMEM_RECORD_SHEAVES). */
struct rec_sheaves {
	struct {
		intptr_t rseq;		/* copy of the gate word */
	} front;
	struct {
		uint32_t mask;		/* block_mask of new sheaves */
	} inner;
	uint32_t block_mask, slot;
};

struct rec_cache {
	struct rec_sheaves shelf, charged;
	struct {
		uint32_t slot;
	} chain;
	uint16_t capacity;		/* of a sheaf, in objects; 0: no sheaves */
	uint32_t pad;			/* of new sheaves, in bytes */
	uint32_t size, object_size, objects;
	uint8_t order;
	uint32_t slab_pages;
	uint32_t freeptr;		/* offset of the link in a free object */
	const void *engine;		/* struct rec_engine */
	bool dead;
	unsigned long min_partial;
	uint16_t batchcount, shared;
	struct rec_list all;
	uint32_t group;			/* child cache: number of the group */
	uint32_t guarded;		/* allocated guarded objects */
	const struct kmem_cache *sibling_of;	/* debug shadow cache: the cache with the usual layout */
	const void *siblings;		/* NULL: no debug shadow caches */
	const struct kmem_cache *twin_of;	/* child cache: the parent */
	struct {
		size_t new_slabs, freed_slabs;
	} past;				/* of destroyed child caches, and of destroyed caches of the name */
	slab_flags_t carried;		/* debug flags of new objects */
	uint32_t first;			/* offset of a slab's first object */
	uint16_t colours;
	bool tail_bits;
	uint8_t live_shift;		/* of the allocation state map; 0: no map */
	slab_flags_t flags;
	uintptr_t deferred;		/* frees left undone, linked at freeptr */
	uint32_t align;
	uintptr_t ctor;
	int32_t references;
	uint32_t usersize;
	uint16_t defrag_ratio;
	const void *events;		/* struct rec_events */
	uint32_t percpu_offset, percpu_bytes;	/* the engine's part of an area */
	const void *node[KMEM_RECORD_NODES];	/* struct rec_node, and the engine's own structure */
	char name[KMEM_RECORD_NAME_BYTES];
};

/* ---- engines' own structures of a node, and guarded objects */

struct rec_sheaf {
	struct {
		uintptr_t full;		/* top of the first full sheaf */
		uint32_t full_count;
		uint64_t gets, puts;
	} barn;
	const void *remote;		/* struct rec_remote */
};
struct rec_remote {
	uintptr_t block[KMEM_RECORD_NODES];	/* tops of sheaves of remote objects */
};

struct rec_slab {
	const uintptr_t *shared;	/* array of shared_limit objects, the last slabs.counts.shared in use */
	uint32_t shared_limit;
	struct {
		struct {
			size_t shared;
		} counts;
	} slabs;
	const void *alien;		/* struct rec_alien, one for each node */
	uint64_t allocs, high, max_freeable;
};
struct rec_alien {
	uint32_t avail;
	uintptr_t objects[KMEM_RECORD_ALIEN];
};

struct rec_slub {
	uint32_t cpu_partial;
	uint64_t events[KMEM_NR_EVENTS];
};

struct rec_track {
	uintptr_t frame[KMEM_RECORD_FRAMES];
	uint64_t when;			/* ms; 0: never */
	uint32_t cpu, thread;
};
struct rec_slot {
	uint32_t state, bytes;
	uintptr_t object;
	const struct kmem_cache *cache;
	struct rec_track track[1];	/* of the allocation */
};

/* ---- groups */

struct rec_view_head {			/* the first two words behind root.memcg */
	const struct kmem_record_field *fields;
	const unsigned *field_count;
};
struct rec_view {
	const struct mem_cgroup *root;
	const void *const *stocks;	/* struct rec_stock, or NULL */
	const unsigned *stock_count;
};
struct rec_group {
	struct {
		uint64_t usage, peak, failcnt, max, high, low, min;
	} memory;
	struct {
		uint64_t usage;
	} kmem;
	const void *objcg;		/* struct rec_objcg */
	const struct mem_cgroup *parent;
	bool online;
	uint32_t depth, number;
	struct rec_list children, sibling, objcgs;
	uint64_t events[MEMCG_NR_MEMORY_EVENTS], local[MEMCG_NR_MEMORY_EVENTS];
	char name[MEMCG_NAME_MAX];
};
struct rec_objcg {
	uint32_t stock;			/* per-CPU offset of the byte stock */
	uint64_t nr_charged_bytes;
	const struct mem_cgroup *home;
	struct rec_list link;
};
struct rec_stock {
	const struct mem_cgroup *groups[KMEM_RECORD_STOCKS];
	uint32_t pages[KMEM_RECORD_STOCKS];
};

/* Tables of the fields above, each structure before its fields. */
struct rec_table {
	const struct kmem_record_field *fields;
	size_t count;
};
extern const struct rec_table rec_record, rec_groups, rec_slots;
/* Returns: the structures of an engine; NULL: the command reads none of this engine. */
const struct rec_table *rec_engine_table(const char *engine);

#endif
