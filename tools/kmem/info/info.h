/*
 * info.h: interface between the files of `kmem info`. A snapshot of a process's numbers comes from the memory of a
 * running process, or from a file written by the process.
 */
#ifndef KMEM_COMMAND_INFO_H
#define KMEM_COMMAND_INFO_H

#include <kmem/stats.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "info/record_copies.h"
#include "inspect/stats_print.h"

/* Numbers of a cache for files in the format of the kernel's slab attributes (info/slab_attributes.c). INFO_UNKNOWN:
 * the target's build does not record the number. */
struct info_full {
	unsigned long flags, align, usersize, references, defrag_ratio;	/* as struct kmem_cache has them */
	unsigned long ctor;		/* address of the constructor in the process; 0: none */
	unsigned long carried;		/* debug flags of new objects */
	bool tracked;			/* some objects, or new objects, record their allocation site */
	unsigned long cpu_partial;	/* slub: limit of objects in a CPU's partial slabs */
	/* slub: CPUs with an active slab; slabs held by CPUs, active or partial. */
	unsigned long cpu_slabs, frozen;
	unsigned long events[KMEM_NR_EVENTS];
	struct info_node {
		unsigned long slabs, objects, partial;
		unsigned long partial_objects;	/* in use, on partial slabs */
	} node[KMEM_RECORD_NODES];
};

struct info_cache {
	struct kmem_cache_stats stats;	/* .engine is unset: the name is in `engine` below */
	char engine[16];
	unsigned group;			/* number of the private group of a child cache, or 0 */
	const struct kmem_cache *address;	/* in the target */
	unsigned root;			/* index of the copy of libkmem in the target */
	bool by_slab;			/* free objects are counted slab by slab */
	/* Debug shadow caches exist after a switch of debugging on a cache in use. shadow_of: the cache with the same
	 * objects in the original layout; NULL: not a shadow. A snapshot shows a shadow as a part of that cache. */
	const struct kmem_cache *shadow_of;
	const struct kmem_cache *child_of;	/* root cache of a private group's child cache; NULL: none */
	char of[32];			/* name of child_of; "": unknown */
	slab_flags_t carried;		/* debug flags of new objects */
	unsigned long debugged;		/* active objects in the shadow caches */
	/* info/page_owners.c: bytes of slabs without allocated objects, and of slabs with less than a tenth of the
	 * objects allocated. */
	unsigned long empty, pinned;
	struct info_full *full;		/* set if snapshot.in_full */
};

/* Kinds of the target's address space owned by libkmem. */
enum info_kind {
	INFO_PAGES,	/* pages of slabs and large blocks, and free pages */
	INFO_BLOCK,	/* a huge block, above 4 MiB */
	INFO_CACHED_HUGE,	/* a cached huge block: freed, still mapped */
	INFO_RECORDS,
};
struct info_extent {
	uintptr_t start, end;
	enum info_kind kind;
	uint64_t *free;		/* INFO_PAGES: bitmap of free pages that may be resident; owned by the snapshot */
	uint32_t *owner;	/* INFO_PAGES: owner of each page, as below (info/page_owners.c); NULL: not read */
};

/* Owner of a page. NONE: no owner, or kept for growing blocks. SHARED: shared by the caches of engine slob. CACHE and
 * above: a cache, by index in the snapshot. */
enum { INFO_OWNER_NONE, INFO_OWNER_LARGE, INFO_OWNER_SHARED, INFO_OWNER_CACHE };

/* Address of a group in the target, and index of the copy of libkmem. */
struct info_group_at {
	const struct mem_cgroup *address;
	unsigned root;
};

struct info_source;
struct snapshot {
	bool by_page;		/* requested: the owner of each page */
	bool in_full;		/* requested: struct info_full of each cache */
	bool by_one;		/* requested: later reads of single caches and groups (info/read_one.c) */
	struct info_source *source;	/* for by_one; NULL: no later reads */
	unsigned pid;
	unsigned thread;	/* thread for reads of files and memory: pid, or another thread if pid has ended */
	char version[16], discipline[16], reason[160], hardened[160];
	struct kmem_stats stats;
	unsigned long mapped_ready;	/* pages of cached huge blocks, part of stats.pages_free_dirty */
	struct km_print_guard guard;	/* guarded objects */
	unsigned long past_new_slabs, past_freed_slabs;	/* counts of destroyed caches */
	struct info_cache *caches;
	size_t count, room;
	struct info_extent *extents;
	size_t extent_count, extent_room;
	unsigned extents_lack;		/* a bit for each kind with extents unknown to the target's build */
	struct km_group_stats *groups;
	struct info_group_at *group_at;	/* one for each group */
	size_t group_count, group_room, group_at_room;
	bool groups_partly;		/* groups changed too fast: some are missing */
};

/* Add a zeroed entry. Without memory the command ends. */
struct info_cache *snapshot_grow(struct snapshot *snapshot);
struct km_group_stats *snapshot_grow_groups(struct snapshot *snapshot);
/* Free the contents. by_page, in_full and by_one stay. */
void snapshot_clear(struct snapshot *snapshot);

enum info_result {
	INFO_OK,
	INFO_PARTLY,	/* caches changed too fast: some are missing */
	INFO_TORN,	/* the target changed during the read: try again */
	INFO_GONE,	/* no process has this number, or the process has no memory any more */
	INFO_DENIED,
	INFO_NONE,	/* no libkmem in the process */
	INFO_SILENT,	/* the process has this user as an observer, and did not answer in time */
	INFO_INVALID,	/* the record is impossible, or costs more than the budget: info_invalid_why */
	INFO_OTHER,	/* another build, with a record of no readable table; snapshot.version names the build */
};

/* Read a running process, without a stop of the process. */
enum info_result info_of_process(pid_t pid, struct snapshot *snapshot);
/* info/observer_client.c: ask a process with this user as an observer, when its memory may not be read. The snapshot
 * has caches and groups, and no resident memory. Returns: INFO_DENIED if this user is no observer. */
enum info_result info_of_observed(pid_t pid, struct snapshot *snapshot);
extern unsigned info_patience_ms;	/* timeout of an answer, milliseconds */
/* Read a file written by --stats. Returns: false after one line on stderr. */
bool info_of_file(const char *path, struct snapshot *snapshot);

/* ---- info/resident.c: resident bytes of libkmem's memory in a running process. */
struct info_resident {
	unsigned long used;	/* slabs and large blocks */
	unsigned long free;	/* free pages, and cached huge blocks */
	unsigned long records;	/* descriptors, caches, CPUs' areas */
	/* Parts of `used`, with by_page. by_cache: the caller's array, one entry for each cache, or NULL. */
	unsigned long large, shared, kept;
	unsigned long *by_cache;
	/* Locked parts of `free` and of by_cache, never given back. by_cache_locked NULL: not read. */
	unsigned long free_locked, *by_cache_locked;
};
/* Returns: true if memory of the process is locked (mlock, mlockall). */
bool info_is_locked(pid_t pid);
/* Bytes from /proc/PID/smaps_rollup, all of one moment; 0: the file is missing or silent. */
struct info_rollup {
	unsigned long rss, pss;
	unsigned long anonymous;	/* part of rss outside files and shared memory */
};
struct info_rollup info_rollup(unsigned pid);
/*
 * A running process and its resident memory. The process may become another program between the reads of its files.
 * Then all reads are repeated, so that all figures are of one program. INFO_TORN: each attempt met a change. With
 * by_page the resident figures have owners, too.
 */
struct info_memory {
	bool told;		/* `resident` is known */
	struct info_resident resident;
	struct info_rollup rollup;
	char name[64];		/* from info_process_name */
};
enum info_result info_of_process_and_memory(pid_t pid, struct snapshot *snapshot, struct info_memory *memory);
void info_memory_clear(struct info_memory *memory);
/*
 * Detect a program with nearly all of its memory from another allocator. *ours: resident bytes of libkmem's slabs and
 * large blocks. Returns: anonymous bytes from elsewhere; 0: libkmem serves the program, or the figure is unknown.
 */
unsigned long info_elsewhere(pid_t pid, unsigned long *ours);
/* Returns: false if the kernel does not tell, or denies this user. */
bool info_resident(const struct snapshot *snapshot, struct info_resident *resident);

/* ---- info/target.c: memory of another process or of a core dump. Each function returns false if the memory can't be
 * read; `result` has the reason. */

struct target {
	pid_t pid;
	enum info_result result;
	char version[16];	/* version of the target's libkmem, this build or another */
	const struct core *core;	/* leaks/core_dump.h; NULL: the process runs */
	enum { TARGET_FREE, TARGET_SEEN, TARGET_BOUND } hold;	/* the last two have /proc/PID/mem open */
	bool shares;		/* the pages are shared with a fork: process_vm_readv would copy each page */
	int memory;
	struct target_budget {		/* info/budget.c */
		uint64_t read, room;	/* bytes left to read, and to keep */
		uint64_t space;		/* bytes of the process's address space */
		uint64_t end_ms;	/* CLOCK_MONOTONIC_COARSE; 0: the budget did not begin */
	} budget;
};

/* ---- info/budget.c: checks each read, and each array with a number of members stated by the target. */

/* Begin a new budget of bytes, and of time if end_ms is 0. The first read of a target begins a budget, too. */
void target_budget(struct target *target);
/* Seconds for one target, by default 20; fewer for one of many processes. */
extern unsigned info_budget_seconds;
extern const char *info_invalid_why;	/* the reason of the last INFO_INVALID; NULL: each read found a change */
bool target_refuse(struct target *target, const char *why);
/* Refuse the target, for a count above the memory of the process. */
bool target_too_much(struct target *target);
/* True if the process has so much address space; else refuses the target. */
bool target_has_space(struct target *target, uint64_t bytes);
bool target_may_read(struct target *target, uint64_t bytes);
/* Allocate zeros: target_room for a short time, not counted in the budget; target_keep until the end of the budget.
 * NULL: the target is refused. */
void *target_room(struct target *target, size_t count, size_t each);
void *target_keep(struct target *target, size_t count, size_t each);
/* Count `bytes` as kept. Above the budget the next read is refused. */
void target_charge(struct target *target, uint64_t bytes);
/* Limit this process to half of the machine's memory. */
void info_limit_memory(void);

/* Find a thread with the process's memory: /proc/PID has no memory once the first thread has ended. */
pid_t target_thread(pid_t pid);
/* Find a name for opening a mapped file of the process; the file may be in another root, or deleted. path, start and
 * end are of the mapping in /proc/PID/maps. Returns: a string for the caller to free. */
char *target_file(pid_t pid, const char *path, uintptr_t start, uintptr_t end);
/* Open a file of /proc/PID for reading. If this process may open no more files, the command ends. Returns: NULL with
 * errno on failure. */
FILE *target_proc(pid_t pid, const char *name);
int target_proc_fd(pid_t pid, const char *name);
/* Returns: true if errno `error` is a lack of files or memory in this process, not in the target. */
bool target_is_own_lack(int error);
/* Returns: the state letter of a process or thread in /proc/PID/stat; X: the process is gone. */
char target_state(pid_t pid);
/* Returns: true if the process is gone, or a zombie. */
bool target_has_ended(pid_t pid);
/* Returns: CPU time of all threads together, in ticks of the kernel's clock. */
unsigned long target_work(pid_t pid);
bool target_read(struct target *target, void *to, const void *from, size_t bytes);
/*
 * Remember the process's present memory. If the process becomes another program, its memory changes, and later reads
 * are of the new program. target_is_same then returns false. It returns true if the change can't be detected.
 */
void target_see(struct target *target);
bool target_is_same(struct target *target);
/* Do as target_see, and bind later reads and writes to this memory: they fail once the memory is gone. */
bool target_bind(struct target *target);
/* Write to a bound target. Requires: private memory, writable for the process itself. */
bool target_write(struct target *target, void *to, const void *from, size_t bytes);
/* Sort the addresses, and write one word to each. Addresses outside private writable memory are skipped. */
void target_write_words(struct target *target, uintptr_t *to, size_t count, uint64_t word);
void target_let_go(struct target *target);
/* The data just read is impossible: sets INFO_TORN, returns false. target_torn_by: with a reason, shown if all
 * attempts fail. */
bool target_torn(struct target *target);
bool target_torn_by(struct target *target, const char *why);
/* Read pieces into to[], back to back. target_gather reads `count` pieces of `each` bytes. */
bool target_pieces(struct target *target, void *to, const struct iovec *piece, size_t count);
bool target_gather(struct target *target, void *to, void *const *from, size_t each, size_t count);
/* Read a string of printable characters, cut at bytes - 1. */
bool target_string(struct target *target, char *to, size_t bytes, const char *from);

/* ---- info/read_timeout.c: brackets around each read and write of the target, because an access may wait for a third
 * party. If no access ends in time, the command ends with one line, after a call of the function set, if any. */
void info_read_begins(pid_t pid);
void info_write_begins(pid_t pid);
void info_access_ends(void);
/* As info_of_process, or with memory as info_of_process_and_memory, for one of many processes. A separate thread
 * reads: if a read does not end in time, the thread is left behind, and the result is INFO_INVALID. */
enum info_result info_apart(pid_t pid, struct snapshot *snapshot, struct info_memory *memory);
extern unsigned info_read_seconds;
extern void (*info_before_the_end)(void);

/* Copy UTF-8 up to the first NUL, cut at bytes - 1. Characters unfit for a terminal become question marks. `to` may
 * be `from`. */
void info_printable(char *to, const char *from, size_t bytes);
/* Copy a whole name of a file or function for display, never for open(2). The caller frees the copy. */
char *info_printable_copy(const char *text);

/* A number unknown to the target's build: a dash in tables, left out in JSON. */
#define INFO_UNKNOWN	KM_UNKNOWN

/* ---- info/record_fields.c: structures of any build of libkmem. */

enum info_ops {
	INFO_ROOT, INFO_PERCPU, INFO_RANGE, INFO_PAGE, INFO_ZONE, INFO_ENGINE, INFO_NODE, INFO_CHAIN, INFO_CACHE,
	INFO_BIG, INFO_CACHED_ENTRY, INFO_SPAN, INFO_POOL, INFO_VIEW, INFO_GROUP, INFO_OBJCG, INFO_STOCK,
	INFO_EVENTS, INFO_GRACE, INFO_WAITING, INFO_RCU_BLOCK,
	/* In the table of an engine or of guarded objects: layout_load. */
	INFO_SHEAF, INFO_REMOTE, INFO_SLAB, INFO_ALIEN, INFO_SLUB, INFO_SLOT,
	INFO_OPS
};

struct ops {
	size_t ours, theirs;	/* bytes here and in the target; theirs 0: the target lacks the structure */
	unsigned first, end;	/* range in layout.place */
	bool same;		/* both layouts agree: no conversion of fields */
};

/* Place in the target of a field, or a constant, of this build. */
struct info_place {
	const struct kmem_record_field *ours;
	struct kmem_record_field theirs;
	bool has;
};

#define INFO_MAX_PLACES 320u
struct layout {
	struct ops ops[INFO_OPS];
	struct info_place place[INFO_MAX_PLACES];
	unsigned places;
};

/* Add the process's table to the layout: the table of groups, or the main table. */
bool layout_load(struct target *target, struct layout *layout, const struct rec_table *ours,
		 const struct kmem_record_field *from, size_t count);
/* Add the table of an engine, once; an engine unknown to the command has none. */
bool layout_load_engine(struct target *target, struct layout *layout, const char *name,
			const struct rec_engine *engine);
/* Returns: true if the target has all fields in `names`, separated by spaces. */
bool layout_has(const struct layout *layout, const char *names);
/* Returns: a field's offset in the target, or a constant's value; 0: missing. */
uint64_t layout_offset(const struct layout *layout, const char *name);
/* Returns: bytes of one structure in the target. */
size_t layout_bytes(const struct layout *layout, enum info_ops which);
/* Convert the target's bytes of one structure to this build's structure. */
void layout_take(const struct layout *layout, enum info_ops which, void *to, const void *from);
/* Read and convert one structure, or an array; missing fields are zero. */
bool target_struct(struct target *target, const struct layout *layout, enum info_ops which, void *to,
		   const void *from);
bool target_structs(struct target *target, const struct layout *layout, enum info_ops which, void *to,
		    const void *from, size_t count);

/* Read a bool copied from a target: any byte is possible. */
static inline bool info_true(const bool *value)
{
	return *(const unsigned char *)value != 0;
}

#define INFO_MAX_CPUS 4096u
#define INFO_MAX_CACHES ((size_t)1 << 20)	/* limit for each process or file */
#define INFO_MAX_ROOTS 8u	/* copies of libkmem in one program */
struct rec_zone;

/* A copy of libkmem in the process. */
struct info_root {
	struct rec_root record;
	struct layout layout;
};
/* Find the copies, at most INFO_MAX_ROOTS. Returns: their count; 0 with the reason in target->result. */
size_t target_roots(struct target *target, struct info_root *roots);

/* Find the copies in use, moved to the front. Of several copies in a process, the copies without pages idle. */
size_t target_roots_in_use(struct target *target, struct info_root *roots);

/* ---- info/cmd_info.c */
bool info_is_number(const char *text);
/* Find a process by the user's word: a number, or the name of a program (/proc/PID/comm, or the name of the program's
 * file). Returns the number, or the word itself if no process has the name. If several processes have the name, one
 * line lists their numbers, and the command ends. With `or_file`, a file of this name comes first. */
char *info_process(const char *command, char *word, bool or_file);
/* All processes with this name; the caller frees the list. */
pid_t *info_processes_called(const char *name, size_t *count);
/* List the user's processes (root: all processes) in ascending order, without this process. Returns: an array for the
 * caller to free; NULL with errno if /proc can't be read or is empty. */
pid_t *info_own_processes(size_t *count);
/* Print the line for such a failure in the name of a subcommand. Returns: the exit status. */
int info_complain_of_all(const char *command, int error);
/* Print one line with the reason of `result`. Returns: the exit status. */
int info_complain(const char *command, pid_t pid, enum info_result result, const char *version);
/* Each attempt read impossible data, or the target was refused. */
static inline bool info_is_invalid(enum info_result result)
{
	return result == INFO_TORN || result == INFO_INVALID;
}
/* Convert a result to an errno; 0: the snapshot has numbers. */
int info_errno(enum info_result result);

enum info_one {
	INFO_ONE_READ,
	INFO_ONE_OF_ALL,	/* the numbers need a read of all others */
	INFO_ONE_GONE,		/* the cache or group is gone, or is changing now */
};

/* ---- info/read_caches.c: add the caches and process numbers of one root to the snapshot. Returns: INFO_TORN if the
 * target changed during the read. With `lenient`, a changing list of caches gives INFO_PARTLY: some are missing. */
enum info_result walk_root(struct target *target, struct info_root *root, bool lenient, struct snapshot *snapshot);
/* Add one cache alone to the snapshot. Returns: INFO_ONE_OF_ALL if the cache has debug shadow caches, or if `counts`
 * needs a scan of all slabs. */
enum info_one walk_one(struct target *target, struct info_root *root, const struct kmem_cache *address, bool counts,
		       struct snapshot *snapshot);
/* Read `each` bytes at the same offset of each CPU's area. */
bool target_per_cpu(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
		    uint32_t offset, void *to, size_t each);
/* Read the number of memory nodes, and the sums of their page counts. */
bool root_pages(struct target *target, const struct info_root *root, unsigned *nodes,
		struct rec_zone *all);

/* Read the ranges of pages. */
#define INFO_MAX_RANGES 256u
bool root_ranges(struct target *target, const struct info_root *root, struct rec_range *ranges, unsigned *count);

/* ---- info/page_owners.c: find the owner of each page in the extents of the ranges, and each cache's empty and
 * pinned slabs. `owners` has the root's caches with their final places in the snapshot, shadow caches too. The walk
 * sorts the array. */
struct page_owner {
	const struct kmem_cache *address, *shadow_of;
	size_t place;			/* of a debug shadow cache: ignored */
};
bool walk_pages(struct target *target, const struct info_root *root, struct page_owner *owners, size_t count,
		struct snapshot *snapshot);

/* Fields needed for a scan of all slabs. */
#define INFO_SCAN_NEEDS	"root.arena.ranges root.arena.range range.ready range.page page.cache page.type page.word"

/* ---- info/slab_attributes.c */
struct rec_node;
struct kmem_cache;
struct rec_engine;
/* Fill all fields but the nodes. Returns: false if a read failed. */
bool full_read(struct target *target, struct info_root *root, const struct rec_percpu *percpu,
	       const struct rec_engine *engine, const char *engine_name, const struct rec_cache *cache,
	       struct info_full *full);
/* Fill one node. says: the target's build counts allocated objects, or each slab of the engine does. */
void full_node(struct info_full *full, unsigned node, const struct rec_node *counts, unsigned objects, bool says);
/* Count a slab of engine slub on the node. */
void full_slub_slab(struct info_full *full, unsigned node, uint64_t word);
/* Add the numbers of a debug shadow cache. */
void full_add(struct info_full *full, const struct info_full *more);

/* ---- info/extents.c: add the root's address space to the snapshot. */
bool walk_extents(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
		  struct snapshot *snapshot);
/* Take pages in use of no slab and no block out of the sums, as kmem_get_stats does: CPUs' runs for blocks that grow,
 * and pages kept for names. */
bool walk_kept(struct target *target, const struct info_root *root, const struct rec_percpu *percpu,
	       struct kmem_stats *stats);
void snapshot_clear_extents(struct snapshot *snapshot);

/* ---- info/read_groups.c */
/* Load the field table of the root's groups, once. */
bool groups_load(struct target *target, struct info_root *root);
/* Add the groups of one root to the snapshot. After INFO_TORN the snapshot has the groups
 * read before the change. */
enum info_result walk_groups(struct target *target, struct info_root *root, struct snapshot *snapshot);
/* Add one online group alone. */
enum info_result walk_group(struct target *target, struct info_root *root, const struct mem_cgroup *at,
			    struct snapshot *snapshot);

/* ---- info/read_one.c: read one cache or group of a snapshot again, into a separate snapshot for the caller to
 * clear. The cache or group at the old address must still have the same name. */
/* counts: the numbers of objects are needed, too. */
enum info_one info_cache_again(const struct snapshot *of, size_t index, bool counts, struct snapshot *one);
enum info_one info_group_again(const struct snapshot *of, size_t index, struct snapshot *one);
/* Returns: true if the process still has the snapshot's memory, or if a change can't be detected. */
bool info_source_is_same(const struct snapshot *snapshot);
/* Make a source for later reads. The source takes over the target. */
struct info_source *info_source_make(const struct target *target, const struct info_root *roots, size_t count);
void info_source_free(struct info_source *source);

#endif
