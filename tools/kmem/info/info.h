/*
 * What the files of `kmem info` share: a snapshot of a process's numbers, and the two ways to get
 * one: out of a running process's memory, or out of a file that it wrote.
 */
#ifndef KMEM_COMMAND_INFO_H
#define KMEM_COMMAND_INFO_H

#include <kmem/stats.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "cache/process_record.h"
#include "percpu/node.h"
#include "inspect/stats_print.h"

/* What files that look like the kernel's say of a cache besides (info/slab_attributes.c); INFO_UNKNOWN: its build
 * does not. */
struct info_full {
	unsigned long flags, align, usersize, references, defrag_ratio;	/* as struct kmem_cache has them */
	unsigned long ctor;		/* where it is in the process; 0: there is none */
	unsigned long carried;		/* what a new object carries of debugging */
	bool tracked;			/* some objects say by whom they were allocated, or new ones do */
	unsigned long cpu_partial;	/* slub: objects that a CPU may keep in partial slabs */
	/* slub: CPUs with a slab of their own; slabs that some CPU has, partial ones too. */
	unsigned long cpu_slabs, frozen;
	unsigned long events[KMEM_NR_EVENTS];
	struct info_node {
		unsigned long slabs, objects, partial;
		unsigned long partial_objects;	/* in use, on partial slabs */
	} node[KM_MAX_NODES];
};

struct info_cache {
	struct kmem_cache_stats stats;	/* but for .engine: a string of ours, below */
	char engine[16];
	unsigned group;			/* a private one has it: its number, or 0 */
	const struct kmem_cache *address;	/* in the target */
	unsigned root;			/* of which copy of libkmem there */
	bool by_slab;			/* its free objects are counted slab by slab */
	/* Debugging that was switched while it is used: the cache whose objects these are in another layout (NULL: its
	 * own; others are not shown by themselves), what a new object carries, and how many have another layout. */
	const struct kmem_cache *shadow_of;
	const struct kmem_cache *child_of;	/* a private group has it of that cache; NULL: none */
	char of[32];			/* ... its name; "": it is not known */
	slab_flags_t carried;
	unsigned long debugged;
	/* info/page_owners.c. Bytes: slabs of which no object is out; slabs of which some are, but less than a tenth.
	 * */
	unsigned long empty, pinned;
	struct info_full *full;		/* where it was wanted */
};

/* Address space of the process that is ours. */
enum info_kind {
	INFO_PAGES,	/* of slabs and large blocks, and free ones */
	INFO_BLOCK,	/* a block above 4 MiB */
	INFO_PARKED,	/* such a one that was freed and lies ready */
	INFO_RECORDS,
};
struct info_extent {
	uintptr_t start, end;
	enum info_kind kind;
	uint64_t *free;		/* pages: a bit for each that is free and may be resident; the snapshot's own */
	uint32_t *owner;	/* pages: whose each is, as below (info/page_owners.c); NULL: nobody looked */
};

/* A page's owner: nobody's, or kept for blocks that grow; large blocks; what the caches of slob share; or a cache, by
 * its place in the snapshot. */
enum { INFO_OWNER_NONE, INFO_OWNER_LARGE, INFO_OWNER_SHARED, INFO_OWNER_CACHE };

/* Where a group is in the target, and in which copy of libkmem. */
struct info_group_at {
	const struct mem_cgroup *address;
	unsigned root;
};

struct info_source;
struct snapshot {
	bool by_page;		/* wanted: whose each page is */
	bool in_full;		/* wanted: what struct info_full has */
	bool by_one;		/* wanted: that one of it can be read again (info/read_one.c) */
	struct info_source *source;	/* ... from there; NULL: it can't */
	unsigned pid;
	unsigned thread;	/* the one whose files and memory are read: pid, or another where that has ended */
	char version[16], discipline[16], reason[160], hardened[160];
	struct kmem_stats stats;
	unsigned long mapped_ready;	/* of its free dirty pages: those of freed mappings */
	struct km_print_guard guard;	/* guarded objects */
	unsigned long past_new_slabs, past_freed_slabs;	/* of caches that are gone */
	struct info_cache *caches;
	size_t count, room;
	struct info_extent *extents;
	size_t extent_count, extent_room;
	unsigned extents_lack;		/* a bit for each kind of which the process's build does not tell all */
	struct km_group_stats *groups;
	struct info_group_at *group_at;	/* where each is in the target */
	size_t group_count, group_room, group_at_room;
	bool groups_partly;		/* they come and go too fast: those that could be read */
};

/* Another one, of zeros; it ends the command where there is no memory. */
struct info_cache *snapshot_grow(struct snapshot *snapshot);
struct km_group_stats *snapshot_grow_groups(struct snapshot *snapshot);
/* What was wanted stays. */
void snapshot_clear(struct snapshot *snapshot);

enum info_result {
	INFO_OK,
	INFO_PARTLY,	/* caches come and go too fast: those that could be read */
	INFO_TORN,	/* it changed while we read: again */
	INFO_GONE,	/* there is no such process, or it has no memory any more */
	INFO_DENIED,
	INFO_NONE,	/* no libkmem in it */
	INFO_SILENT,	/* it may be asked for its numbers, and did not answer in time */
	INFO_INVALID,	/* the record is impossible, or costs more than the budget: info_invalid_why */
	INFO_OTHER,	/* another build's, whose record has no table that we can read: snapshot.version says which */
};

/* A running process, stopped by nobody. */
enum info_result info_of_process(pid_t pid, struct snapshot *snapshot);
/* info/observer_client.c: one that may not be read, and names this user as its observer; INFO_DENIED: it does not.
 * Then there are caches and groups, and nothing of what is resident. For so long an answer is waited for. */
enum info_result info_of_observed(pid_t pid, struct snapshot *snapshot);
extern unsigned info_patience_ms;
/* What --stats wrote: true, or false with one line on stderr. */
bool info_of_file(const char *path, struct snapshot *snapshot);

/* ---- info/resident.c: what the kernel has in memory of what is ours in a running process, in bytes. */
struct info_resident {
	unsigned long used;	/* of slabs and large blocks */
	unsigned long free;	/* of free pages, and of freed mappings that lie ready */
	unsigned long records;	/* of descriptors, caches, CPUs' areas */
	/* Of what is used, where pages have owners. by_cache: the caller's, one for each cache, or NULL. */
	unsigned long large, shared, kept;
	unsigned long *by_cache;
	/* What of them is locked, and can't be given back: of free pages, and of each cache. NULL: nobody looks. */
	unsigned long free_locked, *by_cache_locked;
};
/* Does the system keep some memory of the process for it (mlock, mlockall)? */
bool info_is_locked(pid_t pid);
/* Bytes that /proc/PID/smaps_rollup has, all of one moment; 0: it does not say. */
struct info_rollup {
	unsigned long rss, pss;
	unsigned long anonymous;	/* of rss, what is no page of a file's, nor of shared memory */
};
struct info_rollup info_rollup(unsigned pid);
/*
 * A running process, and what the kernel has in memory of it. These are files of a process, which may be another
 * program by then: where it became one meanwhile all is read anew, so that no figure is of another program than the
 * others. INFO_TORN: it became one each time. Where the snapshot has the owners of pages, so have these figures.
 */
struct info_memory {
	bool told;		/* what is resident; else nobody says, or not to us */
	struct info_resident resident;
	struct info_rollup rollup;
	char name[64];		/* as info_process_name has it */
};
enum info_result info_of_process_and_memory(pid_t pid, struct snapshot *snapshot, struct info_memory *memory);
void info_memory_clear(struct info_memory *memory);
/*
 * Does the program have next to all of its memory from somebody else than libkmem? So many bytes, which are resident;
 * 0: it does not, or that is not to be known. *ours: those that it has from libkmem.
 */
unsigned long info_elsewhere(pid_t pid, unsigned long *ours);
/* False: it does not say, or not to us. */
bool info_resident(const struct snapshot *snapshot, struct info_resident *resident);

/* ---- info/target.c: another process's memory, or that of a core dump. All say false where it can't be read; then
 * `result` says why. */

struct target {
	pid_t pid;
	enum info_result result;
	char version[16];	/* of libkmem there, ours or another build */
	const struct core *core;	/* leaks/core_dump.h; NULL: the process runs */
	enum { TARGET_FREE, TARGET_SEEN, TARGET_BOUND } hold;	/* the last two have /proc/PID/mem open */
	bool shares;		/* what is read now is a fork's as well: process_vm_readv would copy each such page */
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

/* A thread of the process that still has its memory; where the first has ended, /proc/PID has none. */
pid_t target_thread(pid_t pid);
/* The name by which a file of the process can be opened here, where it may be in another root, or deleted: of a
 * mapping, as /proc/PID/maps has it. The caller frees it. */
char *target_file(pid_t pid, const char *path, uintptr_t start, uintptr_t end);
/* A file of /proc/PID, to be read; NULL: errno says why. It ends the command where this process may open no more. */
FILE *target_proc(pid_t pid, const char *name);
int target_proc_fd(pid_t pid, const char *name);
/* The errno of one that may not, or has no memory for it. */
bool target_is_own_lack(int error);
/* Of a process or a thread, the letter that /proc/PID/stat has; X: it is not there any more. */
char target_state(pid_t pid);
/* It is not there any more, or only for its parent. */
bool target_has_ended(pid_t pid);
/* How long its threads have had a CPU, all together, in ticks of the kernel's clock. */
unsigned long target_work(pid_t pid);
bool target_read(struct target *target, void *to, const void *from, size_t bytes);
/*
 * The memory that the process has now. A process that becomes another program has another one, and what is read from
 * then on is that program's, until target_is_same says so, or can't tell.
 */
void target_see(struct target *target);
bool target_is_same(struct target *target);
/* The same, and whatever is read or written from now on is in that memory: where it is gone both fail. */
bool target_bind(struct target *target);
/* Of one that is bound, into memory that is the process's own and that it may write itself. */
bool target_write(struct target *target, void *to, const void *from, size_t bytes);
/* The same of one word in each of many places, which are sorted; a place that is no such memory is passed over. */
void target_write_words(struct target *target, uintptr_t *to, size_t count, uint64_t word);
void target_let_go(struct target *target);
/* The data just read is impossible: sets INFO_TORN, returns false. target_torn_by: with a reason, shown if all
 * attempts fail. */
bool target_torn(struct target *target);
bool target_torn_by(struct target *target, const char *why);
/* Pieces into to[], one behind the other; and `count` pieces of `each` bytes. */
bool target_pieces(struct target *target, void *to, const struct iovec *piece, size_t count);
bool target_gather(struct target *target, void *to, void *const *from, size_t each, size_t count);
/* A string, cut at bytes - 1, of printable characters. */
bool target_string(struct target *target, char *to, size_t bytes, const char *from);

/* ---- info/read_timeout.c: around each of these reads and writes, which may wait for somebody. Where none has ended
 * for so many seconds the command does, with a line; before that it calls the function, if there is one. */
void info_read_begins(pid_t pid);
void info_write_begins(pid_t pid);
void info_access_ends(void);
/* As info_of_process, or with memory as info_of_process_and_memory, for one of many processes. A separate thread
 * reads: if a read does not end in time, the thread is left behind, and the result is INFO_INVALID. */
enum info_result info_apart(pid_t pid, struct snapshot *snapshot, struct info_memory *memory);
extern unsigned info_read_seconds;
extern void (*info_before_the_end)(void);

/* Up to the first NUL, cut at bytes - 1, and maybe in place: UTF-8, in which what a terminal should not get is a
 * question mark. */
void info_printable(char *to, const char *from, size_t bytes);
/* The whole of it, for the caller to free: a name of a file or function as it is shown, not as it is opened. */
char *info_printable_copy(const char *text);

/* A number that the process's build does not tell: a dash in tables, left out in JSON. */
#define INFO_UNKNOWN	KM_UNKNOWN

/* ---- info/record_fields.c: structures of whatever build. */

enum info_ops {
	INFO_ROOT, INFO_PERCPU, INFO_RANGE, INFO_PAGE, INFO_ZONE, INFO_ENGINE, INFO_NODE, INFO_CHAIN, INFO_CACHE,
	INFO_BIG, INFO_READY, INFO_SPAN, INFO_POOL, INFO_VIEW, INFO_GROUP, INFO_OBJCG, INFO_STOCK,
	INFO_EVENTS, INFO_GRACE, INFO_WAITING, INFO_RCU_BLOCK,
	/* Of an engine, or of guarded objects: layout_load_part. */
	INFO_SHEAF, INFO_REMOTE, INFO_SLAB, INFO_ALIEN, INFO_SLUB, INFO_SLOT,
	INFO_OPS
};

struct ops {
	size_t ours, theirs;	/* bytes; theirs 0: they have no such structure */
	unsigned first, end;	/* its places */
	bool same;		/* it is read without a look at them */
};

/* Where a field of ours, or a constant, is there. */
struct info_place {
	const struct km_field *ours;
	struct km_field theirs;
	bool has;
};

#define INFO_MAX_PLACES 320u
struct layout {
	struct ops ops[INFO_OPS];
	struct info_place place[INFO_MAX_PLACES];
	unsigned places;
};

/* Add the process's table to the layout: that of the groups, or the other one. */
bool layout_load(struct target *target, struct layout *layout, const struct km_field *from, size_t count, bool groups);
/* The same of a table of its own: of an engine, by the one that we have of that name, or of guarded objects. */
bool layout_load_part(struct target *target, struct layout *layout, const struct km_field *ours, size_t our_count,
		      const struct km_field *from, size_t count);
/* Are all of these there, separated by spaces? */
bool layout_has(const struct layout *layout, const char *names);
/* Where a field is there; a constant's value. 0: it is not there. */
uint64_t layout_offset(const struct layout *layout, const char *name);
/* Of one structure there. */
size_t layout_bytes(const struct layout *layout, enum info_ops which);
/* What was read there of one structure, as ours. */
void layout_take(const struct layout *layout, enum info_ops which, void *to, const void *from);
/* One, or an array of them: as ours, with zeros where they lack something. */
bool target_struct(struct target *target, const struct layout *layout, enum info_ops which, void *to,
		   const void *from);
bool target_structs(struct target *target, const struct layout *layout, enum info_ops which, void *to,
		    const void *from, size_t count);

/* A truth value as another process has it, which may be any byte. */
static inline bool info_true(const bool *value)
{
	return *(const unsigned char *)value != 0;
}

#define INFO_MAX_CPUS 4096u
#define INFO_MAX_CACHES ((size_t)1 << 20)	/* that any command looks at, of a process or a file */
#define INFO_MAX_ROOTS 8u	/* a program may have libkmem in it more than once */
struct km_zone_counts;

/* A copy of libkmem in the process. */
struct info_root {
	struct km_root record;
	struct layout layout;
};
/* Its copies, at most INFO_MAX_ROOTS; how many. 0: target->result says why. */
size_t target_roots(struct target *target, struct info_root *roots);

/* The same of those that are in use, which come first: where there are several the others idle. */
size_t target_roots_in_use(struct target *target, struct info_root *roots);

/* ---- info/cmd_info.c */
bool info_is_number(const char *text);
/* Find a process by the user's word: a number, or the name of a program (/proc/PID/comm, or the name of the program's
 * file). Returns the number, or the word itself if no process has the name. If several processes have the name, one
 * line lists their numbers, and the command ends. With `or_file`, a file of this name comes first. */
char *info_process(const char *command, char *word, bool or_file);
/* All processes with this name; the caller frees the list. */
pid_t *info_processes_called(const char *name, size_t *count);
/* The numbers of one's own processes (root: of all), but for this one, in order; the caller frees them. NULL: /proc
 * can't be read, or has none; errno says why. */
pid_t *info_own_processes(size_t *count);
/* The line for that, of that subcommand; returns its status. */
int info_complain_of_all(const char *command, int error);
/* One line that says why, of that subcommand; returns its status. */
int info_complain(const char *command, pid_t pid, enum info_result result, const char *version);
/* Each attempt read impossible data, or the target was refused. */
static inline bool info_is_invalid(enum info_result result)
{
	return result == INFO_TORN || result == INFO_INVALID;
}
/* The errno that says it; 0: there are numbers. */
int info_errno(enum info_result result);

enum info_one {
	INFO_ONE_READ,
	INFO_ONE_OF_ALL,	/* what is to be known of it is not to be had without all others */
	INFO_ONE_GONE,		/* it is not there any more, or changes just now */
};

/* ---- info/read_caches.c: what one root leads to, added to the snapshot. INFO_TORN: it changed too much
 * meanwhile; with `lenient` then INFO_PARTLY, and those caches that could be read. */
enum info_result walk_root(struct target *target, struct info_root *root, bool lenient, struct snapshot *snapshot);
/* One cache alone, added to the snapshot: INFO_ONE_OF_ALL where its siblings, or with `counts` the slabs of all, are to
 * be read for it. */
enum info_one walk_one(struct target *target, struct info_root *root, const struct kmem_cache *address, bool counts,
		       struct snapshot *snapshot);
/* Words, or what else `each` bytes are, at the same offset in each CPU's area. */
bool target_per_cpu(struct target *target, const struct info_root *root, const struct km_percpu *percpu,
		    uint32_t offset, void *to, size_t each);
/* How many memory nodes there are, and the pages of all of them. */
bool root_pages(struct target *target, const struct info_root *root, unsigned *nodes,
		struct km_zone_counts *all);

/* The ranges of pages. */
#define INFO_MAX_RANGES 256u
bool root_ranges(struct target *target, const struct info_root *root, struct km_range *ranges, unsigned *count);

/* ---- info/page_owners.c: whose each page is, in the extents of the ranges; empty and pinned slabs of each cache.
 * `owners` are the caches of the root, siblings too, and where each stands in the snapshot, or will; they get sorted.
 * */
struct page_owner {
	const struct kmem_cache *address, *shadow_of;
	size_t place;			/* of a sibling's: anything */
};
bool walk_pages(struct target *target, const struct info_root *root, struct page_owner *owners, size_t count,
		struct snapshot *snapshot);

/* What a walk of all slabs, one by one, wants. */
#define INFO_SCAN_NEEDS	"root.arena.ranges root.arena.range range.ready range.page page.cache page.type page.word"

/* ---- info/slab_attributes.c */
struct km_node_counts;
struct kmem_cache;
struct km_engine;
/* All of it but the nodes. False: it can't be read. */
bool full_read(struct target *target, struct info_root *root, const struct km_percpu *percpu,
	       const struct km_engine *engine, const char *engine_name, const struct kmem_cache *cache,
	       struct info_full *full);
/* Of one node. says: its build tells what is taken, or each slab of its engine does. */
void full_node(struct info_full *full, unsigned node, const struct km_node_counts *counts, unsigned objects, bool says);
/* A slab of slub on that node. */
void full_slub_slab(struct info_full *full, unsigned node, uint64_t word);
/* A cache is shown together with another. */
void full_add(struct info_full *full, const struct info_full *more);

/* ---- info/extents.c: its address space, added to the snapshot. */
bool walk_extents(struct target *target, const struct info_root *root, const struct km_percpu *percpu,
		  struct snapshot *snapshot);
/* Take pages in use of no slab and no block out of the sums, as kmem_get_stats does: CPUs' runs for blocks that grow,
 * and pages kept for names. */
bool walk_kept(struct target *target, const struct info_root *root, const struct km_percpu *percpu,
	       struct kmem_stats *stats);
void snapshot_clear_extents(struct snapshot *snapshot);

/* ---- info/read_groups.c: the groups of one root, added to the snapshot. INFO_TORN as above: those up to there. */
enum info_result walk_groups(struct target *target, struct info_root *root, struct snapshot *snapshot);
/* One alone, that is online. */
enum info_result walk_group(struct target *target, struct info_root *root, const struct mem_cgroup *at,
			    struct snapshot *snapshot);

/* ---- info/read_one.c: a cache or a group of a snapshot, as it is now, alone: into one of its own, which the caller
 * clears. Its address is looked at again, and has to have what has that name. */
/* counts: its objects are to be known, too. */
enum info_one info_cache_again(const struct snapshot *of, size_t index, bool counts, struct snapshot *one);
enum info_one info_group_again(const struct snapshot *of, size_t index, struct snapshot *one);
/* Is the process's memory the one that the snapshot is of? Also true where that can't be told. */
bool info_source_is_same(const struct snapshot *snapshot);
/* For cmd_info.c: it takes over the target. */
struct info_source *info_source_make(const struct target *target, const struct info_root *roots, size_t count);
void info_source_free(struct info_source *source);

#endif
