/*
 * What the files of `kmem top` share: a sample of one or more running processes as a tree of rows, whose figures are of
 * memory that is resident, and the text of it. Invariant: a row's live, ready and free bytes make up what it has
 * resident (own records are none of these); and caches and the rows of what no cache has make up their process.
 */
#ifndef KMEM_COMMAND_TOP_H
#define KMEM_COMMAND_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "info/info.h"

/* Bytes; INFO_UNKNOWN: it can't be said. */
struct top_figures {
	unsigned long resident;
	unsigned long live;		/* of objects that are out */
	unsigned long ready;		/* of those that lie on shelves */
	unsigned long free;		/* of the rest */
	unsigned long purgeable;	/* of what is free or ready: in no slab with an object that is out */
	unsigned long pinned;		/* slabs of which less than a tenth of the objects is out, and some is */
};

enum top_kind { TOP_PROCESS, TOP_CACHE, TOP_SYSTEM, TOP_GROUPS, TOP_GROUP };

#define TOP_NAME 96
struct top_row {
	char name[TOP_NAME];
	enum top_kind kind;
	unsigned depth;
	size_t above;			/* the row that it is below, from 1 on; 0: none */
	uint64_t key;			/* the same row in another sample has it */
	struct top_figures figures;
	double rate;			/* bytes that live grows by in a second; NAN: it can't be said */
};

/* What is resident, and of what it is made up. unknown: of what other is not, a process's build does not tell
 * what it is. files: of what is other, pages of files and of shared memory; the rest is anonymous. */
struct top_equation {
	unsigned long rss, live, ready, holes, records, other, unknown;
	unsigned long files;
};

struct top_sample {
	struct top_row *rows;
	size_t count, room;
	size_t *places;			/* of rows by their keys: their numbers from 1 on, of which 0 is none */
	size_t place_count;		/* a power of two, at least twice as many as rows; 0: there are none yet */
	size_t *order;			/* rows, each before those below it */
	size_t shown;			/* of these */
	struct top_equation sum;
	size_t processes, caches, groups;
	double seconds;			/* of a clock that only rises */
	bool has_rates;
	/* Of the processes that could not be read, or not wholly, the last: why. */
	enum info_result result;
	char version[16];
	pid_t unread;
	const char *why;		/* ... as info_invalid_why */
};

/* ---- top/top_targets.c: which processes. */
struct top_targets {
	const pid_t *pids;		/* those that were named; NULL: all of one's own, or of the cgroup */
	size_t count;
	const char *cgroup;		/* a folder with cgroup.procs */
};
/* The numbers now, which the caller frees. False: there is no such cgroup any more. */
bool top_pids(const struct top_targets *targets, pid_t **pids, size_t *count);
/* The folder of what --cgroup named: a path, one below /sys/fs/cgroup, or a process's number. It ends the command
 * where there is none. */
char *top_cgroup(const char *name);

/* ---- top/top_sample.c */

enum top_sort {
	TOP_BY_RESIDENT, TOP_BY_LIVE, TOP_BY_READY, TOP_BY_FREE, TOP_BY_PURGEABLE, TOP_BY_PINNED, TOP_BY_RATE,
	TOP_BY_NAME, TOP_SORTS
};
struct top_view {
	enum top_sort sort;
	bool reverse;
	bool all;			/* rows without memory too */
	bool merged;			/* rows of one name, of whatever process, are one */
};

/* False: nothing can be read any more, and sample->result says why; INFO_OK: there is no such process. */
bool top_take(const struct top_targets *targets, const struct top_view *view, struct top_sample *sample);
void top_clear(struct top_sample *sample);

/* ---- top/top_rows.c */

struct top_row *top_row(struct top_sample *sample, size_t above, enum top_kind kind, const char *name,
			uint64_t salt);
void top_add(struct top_figures *sum, const struct top_figures *more);
/* How fast each row grows since the other sample. */
void top_rates(struct top_sample *sample, const struct top_sample *before);
/* The rows' order, and which are shown. */
void top_sort(struct top_sample *sample, const struct top_view *view);

/* ---- top/top_text.c: lines of so many columns of a terminal, without an end of line. columns 0: as many as it
 * takes, and figures are bytes. */

struct top_text {
	char text[1024];
};
struct top_text top_title(const struct top_sample *sample, int columns);
struct top_text top_equation_text(const struct top_sample *sample, int columns);
/* Of what is not ours, how much the kernel has as files; no text where that is not known. */
struct top_text top_other_text(const struct top_sample *sample, int columns);
struct top_text top_heads(const struct top_view *view, int columns);
struct top_text top_row_text(const struct top_sample *sample, const struct top_row *row, int columns);
extern const char *const top_sort_names[TOP_SORTS];
/* "1.2M"; "-": not known. */
struct top_size {
	char text[32];
} top_size(unsigned long bytes);
/* The same of a change, with its sign. */
struct top_size top_change(double bytes);
/* A name in so many columns, cut or filled up: its end in `to`. */
char *top_pad(char *to, const char *end, const char *name, int columns);

/* ---- top/top_screen.c, or top_screen_none.c: until the user or a signal ends it: the exit status. */
int top_screen(const struct top_targets *targets, struct top_view view, double delay);

/* ---- top/cmd_top.c */
/* Why the sample could not be had: one line, and the status. */
int top_complain(const struct top_targets *targets, const struct top_sample *sample);

#endif
