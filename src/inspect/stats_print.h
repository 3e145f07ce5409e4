/*
 * stats_print.h: how numbers are written, slabinfo 2.1 and JSON, whoever took them: the library in its
 * own process, or `kmem info` from outside of it.
 */
#ifndef KM_INSPECT_STATS_PRINT_H
#define KM_INSPECT_STATS_PRINT_H

#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "base/text.h"

/* A buffer that writes itself out when it is full. Start with { .fd = fd }. no_signal: a pipe that nobody reads and the
 * limit of a file are errors, and no SIGPIPE or SIGXFSZ, which are the program's. */
struct km_writer {
	int fd, error;
	bool no_signal;
	size_t length;
	char text[4096];
};

/* At most 500 bytes a call. */
void km_print(struct km_writer *writer, const char *format, ...) km_printf(2, 3);
/* Any number, as they are. */
void km_print_bytes(struct km_writer *writer, const char *bytes, size_t count);
/* A string in quotation marks, as JSON wants it. */
void km_print_string(struct km_writer *writer, const char *text);
/* Room for a row of a cache, which is then not written out before it is flushed. */
bool km_print_has_room(const struct km_writer *writer);
void km_print_flush(struct km_writer *writer);
/* Write out what is left; 0, or the first -errno that was met. */
int km_print_end(struct km_writer *writer);

/* The figures of caches that are shown as one. */
void km_stats_add(struct kmem_cache_stats *stats, const struct kmem_cache_stats *more);

/*
 * A number that is not known, for `kmem info` reads processes of other builds too: a dash in slabinfo, left
 * out in JSON. Where it is an unsigned int, all ones of that; where all ones are no limit, one less.
 */
#define KM_UNKNOWN	(~0ul)
#define KM_UNKNOWN_LIMIT (KM_UNKNOWN - 1)

/* Of guarded objects: how many there may be, are, ever were; mistakes with them that were told. */
struct km_print_guard {
	unsigned long objects, live, samples, reports;
};

/* The texts that JSON has of a process besides its numbers. */
struct km_print_process {
	struct km_print_guard guard;
	const char *version, *discipline, *reason, *hardened;
	unsigned pid;
	unsigned long mapped_ready;	/* of its free dirty pages those of freed mappings that lie ready */
	unsigned long past_new_slabs, past_freed_slabs;	/* of caches that are gone, and no cache's */
};
void km_print_json_head(struct km_writer *writer, const struct km_print_process *process,
			const struct kmem_stats *stats);
/* group: the number of the private group that has it, or 0; of: the cache that it has it of, or NULL. */
void km_print_json_cache(struct km_writer *writer, const struct kmem_cache_stats *stats, unsigned group, const char *of,
			 bool first);
/* Caches end, groups begin. */
void km_print_json_groups(struct km_writer *writer);
void km_print_json_tail(struct km_writer *writer);

/* A group's numbers; the tree is a list of them, each group before those below it. */
struct km_group_stats {
	char name[MEMCG_NAME_MAX];
	unsigned depth;			/* 1: below the root, which is not listed */
	unsigned number;		/* what tells those of one name apart; 0: not known */
	uint64_t current, peak, max, high, low, min, failcnt, kmem, stock, dying;
	uint64_t events[MEMCG_NR_MEMORY_EVENTS], local[MEMCG_NR_MEMORY_EVENTS];
};
extern km_hidden const char *const km_memcg_event_names[MEMCG_NR_MEMORY_EVENTS];
void km_print_json_group(struct km_writer *writer, const struct km_group_stats *stats, bool first);

/* stats.c: kmem_print_json to a file that never waits, with the registry locked meanwhile; -EAGAIN where that is taken
 * just now. With no lock held, and km_thread_busy. */
int km_print_json_now(int fd);

/* The two head lines of slabinfo 2.1, and a row of it; returns its length. */
extern km_hidden const char km_slabinfo_head[];
size_t km_slabinfo_row(char *text, size_t bytes, const struct kmem_cache_stats *stats);

#endif
