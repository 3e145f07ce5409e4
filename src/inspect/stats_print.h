/*
 * stats_print.h: output of statistics as slabinfo 2.1 and JSON, shared by the library and `kmem info`, with
 * statistics from inside or outside the process.
 */
#ifndef KM_INSPECT_STATS_PRINT_H
#define KM_INSPECT_STATS_PRINT_H

#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "base/text.h"

/* Output buffer, flushed when full. Initialize with { .fd = fd }. no_signal: a pipe without readers and a file size
 * limit cause errors instead of SIGPIPE and SIGXFSZ, signals reserved for the program. */
struct km_writer {
	int fd, error;
	bool no_signal;
	size_t length;
	char text[4096];
};

/* Append formatted text. Requires: at most 500 bytes per call. */
void km_print(struct km_writer *writer, const char *format, ...) km_printf(2, 3);
/* Append any number of bytes unchanged. */
void km_print_bytes(struct km_writer *writer, const char *bytes, size_t count);
/* Append a quoted and escaped JSON string. */
void km_print_string(struct km_writer *writer, const char *text);
/* Returns: true if a cache's row fits without a flush. */
bool km_print_has_room(const struct km_writer *writer);
void km_print_flush(struct km_writer *writer);
/* Flush the rest. Returns: 0, or the first -errno of any write. */
int km_print_end(struct km_writer *writer);

/* Add the statistics of a cache to a sum, for caches shown as one. */
void km_stats_add(struct kmem_cache_stats *stats, const struct kmem_cache_stats *more);

/* KM_UNKNOWN: a number that is not known, because `kmem info` may read processes of other builds. slabinfo shows a
 * dash, JSON omits the key. An unknown unsigned int has all bits set. If all bits set means no limit, unknown is one
 * less. */
#define KM_UNKNOWN	(~0ul)
#define KM_UNKNOWN_LIMIT (KM_UNKNOWN - 1)

/* Adds `n` to a sum. A sum with an unknown part is unknown. */
static inline void km_stats_sum(unsigned long *sum, unsigned long n)
{
	*sum = *sum == KM_UNKNOWN || n == KM_UNKNOWN ? KM_UNKNOWN : *sum + n;
}

/* Numbers of guarded objects: capacity; allocated now; allocated since the start; errors reported. */
struct km_print_guard {
	unsigned long objects, live, samples, reports;
};

/* Values of a process in JSON, in addition to kmem_stats. */
struct km_print_process {
	struct km_print_guard guard;
	const char *version, *discipline, *reason, *hardened;
	unsigned pid;
	unsigned long mapped_ready;	/* bytes of cached huge blocks, which are free and resident */
	unsigned long past_new_slabs, past_freed_slabs;	/* slab counters of destroyed caches without an heir */
};
/* stats.c: km_print_own_process returns the values of this process. */
struct km_print_process km_print_own_process(void);
void km_print_json_head(struct km_writer *writer, const struct km_print_process *process,
			const struct kmem_stats *stats);
/* group: number of the owning private group, or 0. of: the parent cache, or NULL. */
void km_print_json_cache(struct km_writer *writer, const struct kmem_cache_stats *stats, unsigned group, const char *of,
			 bool first);
/* Prints the end of the list of caches, and the begin of the list of groups. */
void km_print_json_groups(struct km_writer *writer);
void km_print_json_tail(struct km_writer *writer);

/* Statistics of a group. A tree is printed as a list, with each group before its children. */
struct km_group_stats {
	char name[MEMCG_NAME_MAX];
	unsigned depth;			/* 1: child of the root; the root is not listed */
	unsigned number;		/* serial number of the group, which tells groups of one name apart; 0:
					 * unknown */
	uint64_t current, peak, max, high, low, min, failcnt, kmem, stock, dying;
	uint64_t events[MEMCG_NR_MEMORY_EVENTS], local[MEMCG_NR_MEMORY_EVENTS];
};
extern km_hidden const char *const km_memcg_event_names[MEMCG_NR_MEMORY_EVENTS];
void km_print_json_group(struct km_writer *writer, const struct km_group_stats *stats, bool first);

/* stats.c: kmem_print_json to a file that never blocks. Returns: -EAGAIN if the registry is locked by another thread.
 * Context: no lock held, km_thread.busy set; the registry is locked during the call. */
int km_print_json_now(int fd);

/* Two header lines of slabinfo 2.1, and one row. Returns: the length of the row. */
extern km_hidden const char km_slabinfo_head[];
size_t km_slabinfo_row(char *text, size_t bytes, const struct kmem_cache_stats *stats);

#endif
