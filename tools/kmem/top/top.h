/*
 * top.h: interfaces shared by the files of `kmem top`. A sample lays out running processes as a tree of rows, with
 * figures of resident memory. Invariant: the live, ready and free bytes of a row add up to its resident bytes (the
 * allocator's metadata excepted). The rows of caches and of system memory add up to the row of their process.
 */
#ifndef KMEM_COMMAND_TOP_H
#define KMEM_COMMAND_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "info/info.h"

/* Figures of one row, in bytes; INFO_UNKNOWN: not measurable. */
struct top_figures {
	unsigned long resident;
	unsigned long live;		/* bytes of allocated objects; of a group: charged bytes */
	unsigned long ready;		/* bytes of cached objects */
	unsigned long free;		/* remaining bytes of the slabs */
	unsigned long purgeable;	/* free and ready bytes of slabs without allocated objects */
	unsigned long pinned;		/* bytes of slabs with 1 object to under a tenth of the objects allocated */
};

enum top_kind { TOP_PROCESS, TOP_CACHE, TOP_SYSTEM, TOP_GROUPS, TOP_GROUP };

#define TOP_NAME 96
struct top_row {
	char name[TOP_NAME];
	enum top_kind kind;
	unsigned depth;
	size_t above;			/* number of the parent row, from 1; 0: none */
	uint64_t key;			/* identity of the row, equal in all samples */
	struct top_figures figures;
	double rate;			/* growth of live, bytes per second; NAN: unknown */
};

/*
 * Breakdown of resident memory, in bytes. unknown: resident memory whose use the process's build does not report.
 * files: part of other backed by files and shared memory; the rest of other is anonymous.
 */
struct top_equation {
	unsigned long rss, live, ready, holes, records, other, unknown;
	unsigned long files;
};

struct top_sample {
	struct top_row *rows;
	size_t count, room;
	size_t *places;			/* hash table from key to row number (from 1); 0: empty */
	size_t place_count;		/* power of two, at least twice the row count; 0: no table yet */
	size_t *order;			/* indices of shown rows, each parent before its children */
	size_t shown;			/* number of entries in order */
	struct top_equation sum;
	size_t processes, caches, groups;
	double seconds;			/* time of the sample, monotonic clock */
	bool has_rates;
	/* Last process that was not read completely: the result, its version, number and reason. */
	enum info_result result;
	char version[16];
	pid_t unread;
	const char *why;		/* copy of info_invalid_why */
};

/* ---- top/top_targets.c: selection of processes. */
struct top_targets {
	const pid_t *pids;		/* processes named by the user; NULL: all processes of the user or cgroup */
	size_t count;
	const char *cgroup;		/* path of a folder with cgroup.procs */
};
/* List the process numbers of the targets now. The caller frees *pids. Returns: false if the cgroup is gone. */
bool top_pids(const struct top_targets *targets, pid_t **pids, size_t *count);
/* Resolve the argument of --cgroup: a path, a path below /sys/fs/cgroup, or a process number. Exits the command if no
 * such cgroup exists. Returns: the folder's path. */
char *top_cgroup(const char *name);

/* ---- top/top_sample.c */

enum top_sort {
	TOP_BY_RESIDENT, TOP_BY_LIVE, TOP_BY_READY, TOP_BY_FREE, TOP_BY_PURGEABLE, TOP_BY_PINNED, TOP_BY_RATE,
	TOP_BY_NAME, TOP_SORTS
};
struct top_view {
	enum top_sort sort;
	bool reverse;
	bool all;			/* include rows without memory */
	bool merged;			/* merge rows of the same name across processes */
};

/* Take a sample of the targets. Returns: false if no process was read; sample->result then holds the reason, and
 * INFO_OK means no matching process. */
bool top_take(const struct top_targets *targets, const struct top_view *view, struct top_sample *sample);
void top_clear(struct top_sample *sample);

/* ---- top/top_rows.c */

struct top_row *top_row(struct top_sample *sample, size_t above, enum top_kind kind, const char *name,
			uint64_t salt);
void top_add(struct top_figures *sum, const struct top_figures *more);
/* Set the rate of each row from its growth since the sample `before`. */
void top_rates(struct top_sample *sample, const struct top_sample *before);
/* Fill sample->order with the shown rows in the order of the view. */
void top_sort(struct top_sample *sample, const struct top_view *view);

/* ---- top/top_text.c: lines of at most `columns` terminal columns, without a newline. columns 0: unlimited width and
 * figures in bytes. */

struct top_text {
	char text[1024];
};
struct top_text top_title(const struct top_sample *sample, int columns);
struct top_text top_equation_text(const struct top_sample *sample, int columns);
/* Format the file-backed part of memory outside libkmem. Returns: an empty text if the part is unknown. */
struct top_text top_other_text(const struct top_sample *sample, int columns);
struct top_text top_heads(const struct top_view *view, int columns);
struct top_text top_row_text(const struct top_sample *sample, const struct top_row *row, int columns);
extern const char *const top_sort_names[TOP_SORTS];
/* Format bytes with a unit, e.g. "1.2M"; "-" for INFO_UNKNOWN. */
struct top_size {
	char text[32];
} top_size(unsigned long bytes);
/* Format a change of bytes with sign and unit. */
struct top_size top_change(double bytes);
/* Write a name, cut or padded to `columns` columns. Returns: the end of the text in `to`. */
char *top_pad(char *to, const char *end, const char *name, int columns);

/* ---- top/top_screen.c, or top_screen_none.c: run the screen until a key or signal. Returns: the exit status. */
int top_screen(const struct top_targets *targets, struct top_view view, double delay);

/* ---- top/cmd_top.c */
/* Print one line with the reason for a failed sample. Returns: the exit status. */
int top_complain(const struct top_targets *targets, const struct top_sample *sample);

#endif
