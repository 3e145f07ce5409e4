/*
 * <kmem/record.h>: the record of a process, for programs that read the memory of the process from outside, as kmem(1)
 * does. A record states places, sizes and kinds of fields, so a reader of one build reads processes of other builds.
 *
 * The record begins a private anonymous mapping with read and write access, right behind memory without access (both
 * are lines of /proc/PID/maps). A reader recognizes the record by the magic, and reads by process_vm_readv(2). The
 * process runs no code for the reader. A process with several copies of libkmem has a record for each copy.
 *
 * Each pointer here is an address in the process. The process changes its structures meanwhile. Caches, nodes, sheaves
 * and the tables named here stay readable for ever, also after their end. A reader must check all data, must bound
 * each walk, and must read again after an impossible value.
 *
 * Invariant: the head of the record, and all structures of this header, keep their layout; a changed layout has
 * another version, or another name of the field that leads to the structure.
 */
#ifndef KMEM_RECORD_H
#define KMEM_RECORD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the head of the record, and its tables of fields */

#define KMEM_RECORD_MAGIC	"libkmem"
#define KMEM_RECORD_MAJOR	2u	/* another number: a reader must read or walk a table differently */
#define KMEM_RECORD_MINOR	1u	/* for people; 1: this header is published */

/* The first bytes of the record. All later bytes have their places in the table, as fields of "root". */
struct kmem_record {
	char magic[8];			/* KMEM_RECORD_MAGIC; written last */
	uint32_t major, minor;
	const struct kmem_record_field *fields;
	char version[16];		/* of libkmem, ended by NUL */
	uint64_t field_count;
};

#define KMEM_RECORD_FIELD_BYTES	32u

/*
 * Entry of a table of fields. A table has an entry for each structure, followed by an entry for each field of the
 * structure, and entries for constants. A reader finds entries by name, skips unknown names, and must accept missing
 * names: fields move, grow and go. A name means the same in every build.
 *
 * The record's table has the structures root, percpu, range, page, zone, engine, node, chain, cache, big, parked,
 * pool, span, grace, waiting, rcublock and events. More tables are found through these: "engine.fields" has the
 * engine's own structures (sheaf: sheaf, remote; slab: slab, alien; slub: slub), "pool.fields" has slot, and the first
 * two words behind "root.memcg" are the address of the groups' table (view, group, objcg, stock) and the address of
 * the table's count.
 */
struct kmem_record_field {
	char name[KMEM_RECORD_FIELD_BYTES];	/* "cache", "cache.size", "const.area_shift"; ended by NUL */
	uint64_t offset;		/* structure: bytes; constant: value; field: offset in bytes */
	uint32_t each;			/* bytes of an element: 1, 2, 4 or 8; structure, constant: 0 */
	uint32_t count;			/* number of elements; 1: not an array */
};

/* ---- values of fields */

#define KMEM_PAGE_SHIFT	12	/* a page of libkmem has 4096 bytes, whatever the system's page is */
#define KMEM_PAGE_BYTES	((size_t)1 << KMEM_PAGE_SHIFT)
#define KMEM_RECORD_NAME_BYTES	32u	/* of a name of a cache, with the NUL */
#define KMEM_RECORD_NODES	8u	/* most memory nodes */
#define KMEM_RECORD_MAX_ORDER	10u	/* most pages of a slab: 2^10 */
#define KMEM_RECORD_MAX_OBJECTS	0x7fffu	/* most objects of a slab */
#define KMEM_RECORD_NOT_KEPT	UINT64_MAX	/* "node.taken": the engine keeps no count; count slab by slab */
#define KMEM_RECORD_MAP_SHIFT	3u	/* "cache.live_shift" of the allocation state map "range.live", element 0 */
#define KMEM_RECORD_MAPS	5u	/* elements of "range.live" */
#define KMEM_RECORD_WORDS	4u	/* elements of "page.words" */
#define KMEM_RECORD_STOCKS	7u	/* elements of "stock.groups" */
#define KMEM_RECORD_RCU_OBJECTS	510u	/* elements of "rcublock.object" */
#define KMEM_RECORD_DEFRAG	10u	/* "cache.defrag_ratio" of one percent of remote_node_defrag_ratio */

/* Flags of "cache.flags" (<kmem/kmem.h>) that a switch of debugging may change, and of "cache.carried". */
#define KMEM_RECORD_DEBUG_FLAGS \
	(SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER | SLAB_CONSISTENCY_CHECKS | SLAB_TRACE | SLAB_FAILSLAB)

/* "percpu.discipline". The area of CPU n begins at "percpu.base" + (n << "const.area_shift"). */
enum kmem_record_discipline {
	KMEM_RECORD_LOCK,
	KMEM_RECORD_CMPXCHG,		/* "chain.slab" has the tag of a CPU's slab; else "chain.top.slab" has it */
	KMEM_RECORD_RSEQ,
	KMEM_RECORD_NONE,		/* no areas */
};

/* "engine.front": where a CPU caches objects. */
enum kmem_record_front {
	KMEM_RECORD_UNCACHED,
	/*
	 * "cache.shelf.slot" and "cache.charged.slot" are offsets in each area, 0: none. The word there is 0, or the
	 * offset in the area of the top of the main sheaf. A sheaf is aligned to mask + 1 bytes ("shelf.block_mask",
	 * "charged.block_mask"). Pointers to objects begin at the top, and end `pad` bytes in front of the last two
	 * words: `pad`, and a link. The link of a CPU's sheaf is the offset of the spare sheaf's top, of a sheaf in a
	 * barn ("sheaf.barn.full") the top of the next sheaf.
	 */
	KMEM_RECORD_SHEAVES,
	KMEM_RECORD_FREELIST,		/* "cache.chain.slot": offset of a chain, a list linked at "cache.freeptr" */
};

/* "page.type" of a page descriptor. "range.page" has a descriptor for each page. */
enum kmem_record_page {
	KMEM_RECORD_PAGE_NONE,		/* never used, or the inside of a free run or a large block */
	KMEM_RECORD_PAGE_FREE,		/* first page of a free run of "page.run" pages */
	KMEM_RECORD_PAGE_SLAB,		/* first page of a slab of 2^"page.order" pages */
	KMEM_RECORD_PAGE_TAIL,		/* further page of a slab */
	KMEM_RECORD_PAGE_LARGE,		/* first page of a large block of "page.pages" pages */
	KMEM_RECORD_PAGE_SHARED,	/* engine slob: blocks of several caches and of kmalloc */
	KMEM_RECORD_PAGE_FREE_LAST,	/* last page of a free run of more than one page */
};

/*
 * "page.words", the engine's part of a descriptor. A cache with "cache.colours" has the offset of a slab's first object
 * in the low half of word 0; else "cache.first" is the offset. A set bit is a free object:
 *
 *	sheaf	words 0 and 1 of each descriptor have the bits of 128 objects
 *	slab	words 2 and 3 have the bits, of at most KMEM_RECORD_SLAB_BITS objects
 *	slub	word 0, below
 *	slob	bits 16 to 31 of word 0: unit of the first free block; word 3: address of the marks, below
 *
 * With "cache.tail_bits" (sheaf), or more objects (slab), the bits are the last words of the slab.
 */
#define KMEM_RECORD_SLAB_BITS	128u

/* "page.word" of a slab of slub. HEAD: offset of the first free object plus one, 0: none. FROZEN: on a CPU. */
#define KMEM_RECORD_SLUB_INUSE(word)	((uint32_t)((word) & 0xffffu))
#define KMEM_RECORD_SLUB_OBJECTS(word)	((uint32_t)((word) >> 16) & 0x7fffu)
#define KMEM_RECORD_SLUB_FROZEN(word)	((uint32_t)((word) >> 31) & 1u)
#define KMEM_RECORD_SLUB_HEAD(word)	((uint32_t)((word) >> 32))
/* A tag of a CPU's slab ("chain.slab"): the address, and in the low bits the logarithm of the slab's bytes. */
#define KMEM_RECORD_TAG_ADDRESS(tag)	((tag) & ~(uint64_t)0xfff)
#define KMEM_RECORD_TAG_SHIFT(tag)	((uint32_t)((tag) & 63u))

#define KMEM_RECORD_ALIEN	12u	/* most objects of an alien array (engine slab) */

/* Shared page of slob: units, and two bits of each unit. A free block begins with struct kmem_record_slob_free. */
#define KMEM_RECORD_SLOB_UNIT	8u	/* bytes; also of the header of a block of kmalloc */
#define KMEM_RECORD_SLOB_UNITS	512u	/* of a page */
struct kmem_record_slob_marks {
	struct {
		uint64_t live;		/* an allocated block begins here */
		uint64_t other;		/* with `live`: a block of kmalloc; alone: freed type-stable object */
	} word[KMEM_RECORD_SLOB_UNITS / 64];
};
struct kmem_record_slob_free {
	uint16_t units;
	uint16_t next;			/* unit of the next free block, by address; KMEM_RECORD_SLOB_UNITS: none */
};

/*
 * Word of a page in "range.owner", and "big.owner": the objcg of the objects that begin in the page; 0 and
 * KMEM_RECORD_UNCHARGED: none. With KMEM_RECORD_VECTOR the rest of the word is the address of a vector of such words,
 * one for every 2^n bytes of the page; n is the floor of the logarithm of "cache.size", at most KMEM_PAGE_SHIFT.
 */
#define KMEM_RECORD_VECTOR	1ull
#define KMEM_RECORD_UNCHARGED	2ull

/* ---- stacks of debugged and guarded objects */

#define KMEM_RECORD_FRAMES	16u

/*
 * Marks of a debugged object (SLAB_STORE_USER): of the allocation, then of the last free. Their address is the
 * object's, plus "cache.freeptr", a pointer and KMEM_RECORD_DEBUG_WORD bytes. "const.track" is the size of a mark.
 */
#define KMEM_RECORD_DEBUG_WORD	8u
struct kmem_record_mark {
	uint64_t who;			/* stack number in the low 32 bits, thread ID above */
	uint64_t when;			/* time in ms, 0: never; CPU from bit KMEM_RECORD_CPU_SHIFT on */
	uint64_t seal;			/* over `who`, `when` and the address of the mark */
};
#define KMEM_RECORD_CPU_SHIFT	48

/* Entry of the table of stacks, "root.stacks". Number 0 is no stack, and entry 0 has the number of entries. */
struct kmem_record_stack {
	uint32_t next;
	union {
		uint32_t hash;
		uint32_t room;		/* entry 0 */
	};
	uintptr_t frame[KMEM_RECORD_FRAMES];	/* the call into the library first; 0: no more */
};

#define KMEM_RECORD_GUARD_TAKEN	2u	/* "slot.state" of an allocated guarded object */

/* ---- profiles of allocations: "root.profile" */

#define KMEM_PROFILE_VERSION	2u
#define KMEM_PROFILE_FRAMES	38u	/* frames of a stack, from the call into the library on */
#define KMEM_PROFILE_SITES	4096u	/* stacks, by cache and group */
#define KMEM_PROFILE_SLOTS	65536u	/* samples allocated now */
#define KMEM_PROFILE_MEAN	(512u << 10)	/* mean bytes between two samples, as in jemalloc and tcmalloc */
#define KMEM_PROFILE_PART	256u	/* unit of `parts`: 1/256 of an object */

enum kmem_profile_state {
	KMEM_PROFILE_NEVER,
	KMEM_PROFILE_ASKED,		/* begins as soon as the caches have hooks */
	KMEM_PROFILE_ON,
	KMEM_PROFILE_OVER,		/* figures stay until the next profile begins */
};

/*
 * All allocations by one stack, from one cache, for one group. A sample of b bytes stands for 1 / (1 - exp(-b / mean))
 * objects. All figures but `samples` are such estimates. Each figure is whole; several figures may mix moments.
 */
struct kmem_profile_site {
	uint64_t hash;			/* 0: free; 1: being filled in */
	uint64_t bytes, parts;		/* allocated in this profile; parts: only if `each` is 0 */
	uint32_t samples, depth;
	uint32_t group;			/* number of the group; 0: uncharged, or the root */
	uint32_t each;			/* bytes of each object; 0: sizes differ */
	char cache[KMEM_RECORD_NAME_BYTES];	/* "": a large block of no class */
	char group_name[KMEM_RECORD_NAME_BYTES];	/* truncated */
	uintptr_t frame[KMEM_PROFILE_FRAMES];
};

/* Sampled object not freed yet; p 0: free slot, 1: slot in change. A site's live bytes are the sum of its slots. */
struct kmem_profile_slot {
	uintptr_t p;
	uint64_t what;			/* bytes; from bit KMEM_PROFILE_SITE_SHIFT on: the site */
};
#define KMEM_PROFILE_SITE_SHIFT	48
#define KMEM_PROFILE_MOST_BYTES	(((uint64_t)1 << KMEM_PROFILE_SITE_SHIFT) - 1)

/* A reader takes the bytes of a site and of a slot from here, because a later build may add fields at the end. */
struct kmem_profile_record {
	uint32_t version, state;	/* KMEM_PROFILE_VERSION, enum kmem_profile_state */
	uint32_t number;		/* of the profile, different for each */
	uint32_t frames, sites, site_bytes, slots, slot_bytes;
	uint64_t mean;			/* mean bytes between two samples */
	uint64_t began_ms, ends_ms;	/* monotonic clock, ms; ends_ms 0: no end set */
	uint64_t lost;			/* samples without a site for their stack */
	uint64_t untracked;		/* samples without a slot: counted as allocated, not as live */
	struct kmem_profile_site *site;	/* NULL: no profile was ever taken */
	struct kmem_profile_slot *slot;
	char cache[KMEM_RECORD_NAME_BYTES];	/* profile of this cache only; "": all caches */
};

/* ---- requests: "root.mail" */

/* "root.control": whether the process serves requests. */
enum kmem_control { KMEM_CONTROL_NONE, KMEM_CONTROL_OFF, KMEM_CONTROL_ON };

#define KMEM_MAIL_VERSION	1u
#define KMEM_MAIL_LETTERS	16u
#define KMEM_MAIL_NAME		32u

enum kmem_mail_command {
	KMEM_MAIL_NOTHING,
	KMEM_MAIL_DEBUG,		/* kmem_cache_set_debug with these letters, for caches of the name */
	KMEM_MAIL_LEAKS,		/* kmem_print_leaks to standard error; no name, no letters */
	/* A profile of caches of the name, or of all caches. letters: "BYTES:SECONDS" in digits, the mean between two
	 * samples and the longest duration; "" or "0" ends the profile. */
	KMEM_MAIL_PROFILE,
	KMEM_MAIL_SHRINK,		/* give back cached objects of caches of the name; no name: all, as
					 * kmem_idle */
	/* kmem_cache_validate for caches of the name, or the check of all ("*"); kmem_mail_report has the report. */
	KMEM_MAIL_VALIDATE,
	/* Writes to files like the kernel's /sys/kernel/slab, for caches of the name. letters: a number in digits;
	 * for TUNE "LIMIT BATCHCOUNT SHARED"; for CLEAR, a reset of the event counters, none. */
	KMEM_MAIL_MIN_PARTIAL, KMEM_MAIL_DEFRAG_RATIO, KMEM_MAIL_SHEAF_CAPACITY, KMEM_MAIL_CPU_PARTIAL,
	KMEM_MAIL_TUNE, KMEM_MAIL_CLEAR,
	/* Writes to a group's file. A group has no name here: cache is "NUMBER VALUE", in digits. letters: the
	 * file's name without "memory.": max, high, low, min, peak or reclaim. */
	KMEM_MAIL_GROUP,
	KMEM_MAIL_ACCOUNT,		/* mem_cgroup_account_malloc: letters "on" or "off", no name */
};

struct kmem_mail_request {
	uint32_t command;		/* enum kmem_mail_command */
	char cache[KMEM_MAIL_NAME], letters[KMEM_MAIL_LETTERS];	/* each ended by NUL */
};

/*
 * The mailbox. A writer writes `request`, then a new number to `asked`, through /proc/PID/mem: the kernel has checked
 * the writer's right to control the process. The next miss of the process that may make system calls serves the
 * request. The answer is `result`, then `done` (a copy of the served request), then the number in `answered`. If two
 * writers ask at once, one of them finds a foreign request in `done`.
 */
struct kmem_mail {
	uint32_t version;
	uint32_t asked, answered;	/* request numbers; equal if no request is pending */
	int32_t result;			/* 0 or -errno: ENOENT, no cache has the name; ENODATA, no cache has
					 * stacks; EBUSY, another profile is running */
	struct kmem_mail_request request, done;
};

/* "root.mail_report": report of the last request with a report, by request number; cut to the buffer's size. */
#define KMEM_MAIL_TEXT	8192u
struct kmem_mail_report {
	uint32_t number, damages, length;
	char text[KMEM_MAIL_TEXT];
};

/*
 * The fast-path gate, "root.ways", where control is on: only a miss reads the mailbox. A store of `shut` to the words
 * turns each call into a miss. The first call that finds a word shut opens both words, once the request is served or
 * withdrawn. A writer may store at any time, and may end at any time. If the meaning of the gate changes, the field
 * gets another name.
 */
struct kmem_gate {
	intptr_t *word[2];		/* of hits by concurrency id, or NULL; of hits by CPU number */
	intptr_t open[2];		/* values of the words of an open gate */
	intptr_t shut;			/* 0: there are no areas */
	uint8_t in_caches;		/* 1: hits with a known cache read a copy, "cache.shelf.front.rseq" */
};

/* ---- observers (KMEM_OPTIONS=observer) */

/*
 * Name of a socket in Linux's abstract namespace, with the process id. The answer to one byte is one byte and a
 * descriptor of sealed, immutable memory with the JSON of kmem_print_json. A byte without a descriptor means: no answer
 * at the moment. Users without permission receive nothing.
 */
#define KMEM_OBSERVER_NAME	"libkmem-observer-%u"
#define KMEM_OBSERVER_NAME_BYTES	40u

#ifdef __cplusplus
}
#endif

#endif
