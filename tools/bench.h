/*
 * What the files of `kmem bench` share: options, subjects, the cells of a table and the rows
 * that come out of it. Measuring itself happens in the workers (bench/), each a process of its
 * own; here are only the plan, the rounds and the printing. Memory is never freed: the command
 * runs once and ends.
 */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "kmem.h"

#define BENCH_LIST 64u		/* entries of an option's list */
#define BENCH_ROUNDS 9u		/* the contract's minimum, and the default */
#define BENCH_QUICK_ROUNDS 3u	/* --quick: a third of the rounds, of a third of the length */
#define BENCH_LATENCY_RUNS 100u	/* fresh processes, as published; --quick: a tenth */
#define BENCH_FIO_EXAMPLE "/usr/share/doc/fio/examples/netio.fio"
#define BENCH_NETIO_RUNS 50u	/* as published; --quick: a tenth */

struct names {
	const char *name[BENCH_LIST];
	size_t count;
};

struct numbers {
	unsigned long number[BENCH_LIST];
	size_t count;
};

struct bench_options {
	struct names benches, engines, subjects, linkages, works, disciplines;
	struct numbers sizes, batches, threads, transfers;
	unsigned int rounds, runs, seconds;	/* 0: by default */
	bool quick, full, json, csv, fetch;
	const char *html;	/* file, or NULL */
};

enum subject_kind { SUBJECT_OURS, SUBJECT_PEER, SUBJECT_NOTHING, SUBJECT_PUBLISHED, SUBJECT_MODEL,
		    SUBJECT_PROCESSOR };

/* One way to reach one subject: a worker program and the environment that it needs. */
struct variant {
	enum subject_kind kind;
	const char *subject;	/* "sheaf", "jemalloc", ... */
	const char *api;	/* "kmem_cache", "kmalloc", "malloc", "bulk" */
	const char *linkage;
	const char *worker;	/* path under the root */
	const char *preload;	/* path under the root, or NULL */
	const char *owner;	/* who must hold malloc: path under the root, NULL: whoever */
	const char *version;	/* NULL: unknown */
	const char *discipline;	/* said by the worker; "none" for strangers */
	const char *only;	/* the bench that it is for; NULL: whichever takes it */
	const char *percpu;	/* discipline to force; NULL: what the library chooses */
	const char *min_partial;	/* rule to force; NULL: the library's */
	const char *accounting;	/* who pays and how; NULL: the worker knows of no accounting */
	bool broken;		/* failed once: left out from then on */
	bool refused;		/* the machine lacks the discipline: nobody's failure */
	bool impostor;		/* not what its rows would say: none of them counts */
};

/* One measurement to ask of a worker, and how its rows are named. */
struct plan_cell {
	const char *work;	/* as the worker knows it */
	const char *row_work, *row_api;
	const char *touch, *state;
	const char *payers;	/* of the cache's objects: "one", "several"; NULL: nobody, or all the same */
	unsigned long size, batch, threads, match, objects, groups, transfer;
	unsigned int ms;	/* what it takes, about */
	unsigned int run_ms;	/* what a throughput cell takes; 0: as ever */
};

/* One process in a round: a variant and the cells it runs. */
struct job {
	struct variant *variant;
	struct plan_cell *cells;
	size_t count;
	unsigned int every;	/* it runs in the first of so many rounds */
	double ms;		/* a run of it: at first what the plan expects */
	unsigned int rounds;	/* that it has completed */
};

struct row {
	const char *bench, *work, *subject, *of, *version, *api, *linkage, *discipline, *memcg;
	const char *touch, *unit, *measure, *at, *time, *min_partial, *state, *label;
	const char *accounting, *payers;	/* accounting NULL: off */
	enum subject_kind kind;
	unsigned long size, batch, threads, match, objects, groups, transfer;
	double *values;		/* in the order of the rounds */
	size_t count, room;
	unsigned int planned;	/* rounds; 0: it has them all */
	double median, min, max, avg, sd;
	bool settled;		/* published: the figures are set, and there are no values */
	/* What the row came from, to find it again in the next round. */
	const struct variant *variant;
	const struct job *job;
	const struct plan_cell *cell;
};

struct table {
	const char *bench;
	const char *rounds_name;	/* "rounds", or "runs" */
	unsigned int rounds, complete;	/* wanted; done by every subject that did not fall out */
	unsigned int limit_s;	/* no round begins that would end later, but the first; 0: there is no limit */
	double began_ms;	/* 0: not yet */
	unsigned int worker_s;	/* a worker that takes longer hangs */
	const char *cut_by;	/* why it has fewer rounds, where it was not the whole run that ended */
	struct job *jobs;
	size_t job_count;
	struct row *rows;
	size_t row_count, row_room;
};

struct environment {
	char cpu[128], kernel[208], libc[64], compiler[128], flags[256], library_flags[256];
	char commit[64], date[32];
	const char *discipline;	/* all that were in force */
	long cores;
	double tsc_ghz, clock_before, clock_after;
	bool noisy;
	unsigned int rounds;
};

/* Everything about this run; filled in order: options, root, environment, variants, tables. */
struct bench {
	struct bench_options options;
	char root[4096];
	struct environment environment;
	struct variant *variants;
	size_t variant_count;
	const char *without[BENCH_LIST * 4];	/* "NAME: why", for the environment block */
	size_t without_count;
	struct table tables[9];
	size_t table_count;
	bool ours_failed, must_missing;
};
extern struct bench bench;

/* bench_util.c */
/* Columns of the terminal that `out` is; 0: it is none. */
int bench_terminal(FILE *out);
double bench_now_ms(void);
char *bench_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *bench_path(const char *under_root);
#define bench_usage(...) kmem_usage("bench", __VA_ARGS__)
#define bench_fatal(...) exit(kmem_failed(1, "bench", __VA_ARGS__))
void bench_without(const char *name, const char *why);
bool bench_has(const struct names *names, const char *name);
bool bench_same(const char *a, const char *b);	/* NULL equals NULL */
bool bench_has_word(const char *words, const char *word);	/* of some with a blank between */
void bench_find_root(void);

/* bench_options.c */
void bench_parse(int argc, char **argv, struct bench_options *options);

/* bench_env.c */
void bench_env_before(struct environment *environment);
void bench_env_after(struct environment *environment);

/* bench_subjects.c */
void bench_find_subjects(void);
/* The one after `peer`, NULL: the first one; once for each peer, whatever its interfaces. */
const struct variant *bench_next_peer(const struct variant *peer);
void bench_build_workers(void);
bool bench_is_ours(const struct variant *variant);	/* the project's code: that it can't be measured is a failure */

/* bench_child.c: stopping is to print what is complete, and to end with that status. */
void bench_catch_stop(void);		/* from now on SIGHUP, SIGINT and SIGTERM stop the run */
void bench_stop(const char *why);	/* we can't go on */
const char *bench_stopped(void);	/* why; NULL: go on */
int bench_stop_status(void);		/* 128 and the signal's number; 0: it was no signal */
/* As fork() does; the child is the only one, and it and its children get SIGTERM when we are stopped. */
pid_t bench_fork(void);
int bench_wait(pid_t child);		/* its status, as waitpid() has it */

/* bench_plan.c */
void bench_plan(const char *name);
/* For plans in files of their own. */
struct numbers bench_choose(const struct numbers *option, const unsigned long *own, size_t count);
#define BENCH_CHOOSE(option, own)                                                                  \
	bench_choose(&bench.options.option, own, sizeof(own) / sizeof(*(own)))
bool bench_wanted_work(const char *work);
struct job *bench_add_job(struct variant *variant, size_t most_cells);
struct plan_cell *bench_add_cell(struct job *job, const char *work, const char *row_work,
				 unsigned long size, unsigned long batch, unsigned long threads);
void bench_end_job(struct job *job);
void bench_add_batches(struct job *job, const char *work, const char *row_work, const char *row_api,
		       const struct numbers *batches);
/* One process for one cell: what a work leaves behind must not be the next one's. NULL: not wanted. */
struct job *bench_add_single(struct variant *variant, const char *work, const char *touch, unsigned long size,
			     unsigned long threads, unsigned long objects);
#define BENCH_BULK_BATCHES 14u
extern const unsigned long bench_bulk_batches[BENCH_BULK_BATCHES];

/* bench_peers.c */
void bench_plan_peers(struct table *table);

/* bench_forwarding.c */
void bench_plan_forwarding(struct variant *variant);

/* bench_progress.c */
bool bench_is_due(const struct job *job, unsigned int round);
double bench_round_ms(const struct table *table, unsigned int round);
void bench_progress_begin(void);	/* all is planned */
void bench_progress_show(const struct table *table, const struct job *job);
void bench_progress_ran(struct job *job, double ms);
void bench_progress_clear(void);

/* bench_run.c */
void bench_run_table(struct table *table);
/* "50 runs", or "38 of 50 runs: interrupted". */
const char *bench_extent(const struct table *table);
bool bench_incomplete(const struct table *table);
const char *bench_cut_by(const struct table *table);	/* why it is incomplete */

/* bench_rows.c */
struct row *bench_new_row(struct table *table);
void bench_add(struct table *table, const struct job *job, const struct plan_cell *cell,
	       const char *unit, const char *measure, const char *at, double value);
void bench_add_value(struct row *row, double value);
int bench_compare(const void *a, const void *b);	/* two doubles, for qsort */
void bench_settle(struct table *table);	/* medians; and no two rows agree in all but figures */

/* bench_published.c */
void bench_add_published(struct table *table);

/* bench_memcg.c */
void bench_plan_memcg(struct variant *variant);
/* Under the tables: what accounting costs, as ratios within the run. */
void bench_print_memcg(FILE *out, const struct table *table, int width);

/* bench_code.c */
void bench_add_code(struct table *table);

/* bench_view.c */
enum bench_plot { PLOT_BARS, PLOT_CURVES, PLOT_RUNS, PLOT_NONE };
enum bench_figure {
	FIGURE_MIN, FIGURE_TENTH, FIGURE_QUARTER, FIGURE_MEDIAN, FIGURE_AVG, FIGURE_THREE_QUARTERS,
	FIGURE_NINE_TENTHS, FIGURE_MAX, FIGURE_SD, FIGURE_END
};
#define VIEW_COLUMNS 40u
#define VIEW_LINES 160u
struct view_line {
	const char *label;
	const struct row *cells[VIEW_COLUMNS];	/* NULL: not measured */
	const struct row *any;			/* one of them, for what all have in common */
};
struct view {
	const struct table *table;
	const char *title, *unit_text;
	double scale;		/* figures are divided by it */
	int decimals;
	bool higher_is_better;
	enum bench_plot plot;
	const enum bench_figure *figures;	/* columns are figures of one row; NULL: medians */
	const char *columns[VIEW_COLUMNS];
	size_t column_count;
	struct view_line lines[VIEW_LINES];
	size_t line_count;
	size_t left_out;	/* rows that have no column or line any more */
};
/* A table's views, one after the other: fills *view and returns true while there is a next one. */
bool bench_view(const struct table *table, unsigned int index, struct view *view);
/* What stands in a cell, unscaled; NAN: a published row does not say. */
double bench_cell(const struct view *view, const struct row *row, size_t column);
/* The best peer's row for this line's kind in a column, or NULL; batch: among batch interfaces. */
const struct row *bench_best_peer(const struct view *view, const struct view_line *line,
				  size_t column, bool batch);

/* bench_grid.c */
struct grid_line {
	char *label;
	bool dim;
	const char *cells[VIEW_COLUMNS];	/* NULL: nothing */
};
struct grid {
	const char *columns[VIEW_COLUMNS];
	size_t column_count;
	struct grid_line *lines;
	size_t line_count, line_room;
	int label_width;
};
int bench_width(FILE *out);	/* columns: the terminal's, or 100 */
void bench_wrap(FILE *out, int width, const char *text);
struct grid_line *bench_grid_line(struct grid *grid, const char *label, bool dim);
void bench_grid_print(FILE *out, struct grid *grid, int width);	/* empties it */

/* bench_verdict.c */
void bench_print_verdict(FILE *out, const struct table *table, int width);

/* bench_text.c, bench_json.c, bench_html.c, bench_plot.c, bench_runs.c */
void bench_print_text(FILE *out);
void bench_print_json(FILE *out);
void bench_print_csv(FILE *out);
void bench_print_html(FILE *out);
void bench_plot(FILE *out, const struct view *view);
void bench_plot_runs(FILE *out, const struct view *view);

#endif
