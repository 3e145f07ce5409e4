/*
 * The rounds: every job of a table once per round, in the same order (A B C A B C ...), each in
 * a fresh process. A subject that fails is left
 * out from then on, and named; its rows are those of the rounds before. Whatever ends the run early, the
 * rows of a table are made of whole rounds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define CELL_US 20000u		/* a cost cell's windows together, at least */
#define RUN_MS 200u		/* a throughput cell ... */
#define RUN_CROWD_MS 400u	/* ... with a crowd, so that each runs several times */
#define FULL_OBJECTS 10000000ul	/* what the published tables took for a cell */

/* The last CPU that we may use: the first one is where most systems take their interrupts. */
static int pinned_cpu(void)
{
	cpu_set_t allowed;
	int last = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return 0;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &allowed))
			last = i;
	return last;
}

/* What a peer has to run under, as its recipe found: settings NAME=VALUE. */
static void set_peer_environment(const char *peer)
{
	FILE *in = fopen(bench_format("%s/build/peers/%s/env", bench.root, peer), "r");
	char setting[512];

	while (in && fscanf(in, "%511s", setting) == 1)
		putenv(bench_format("%s", setting));
	if (in)
		fclose(in);
}

static bool is_accounted(const struct variant *variant)
{
	return variant->accounting && strcmp(variant->accounting, "off");
}

/* How charges are kept: "shelf", or hierarchy and refill rule of the stock, as "v2-keep". */
static const char *accounting_options(const struct variant *variant)
{
	const char *dash = variant->accounting ? strchr(variant->accounting, '-') : NULL;

	return dash ? bench_format(",memcg_hierarchy:%.2s,memcg_refill:%s,memcg_shelf:0",
				   variant->accounting, dash + 1) :
	       is_accounted(variant) ? ",memcg_hierarchy:v2,memcg_refill:keep,memcg_shelf:1" : "";
}

/* Our engine comes after what the user set, so that the user's other options stay. */
static void set_environment(const struct variant *variant)
{
	const char *options = getenv("KMEM_OPTIONS"), *rule = variant->min_partial;
	const char *engine = variant->kind == SUBJECT_MODEL ? "sheaf" : variant->subject;

	unsetenv("LD_PRELOAD");
	if (variant->kind == SUBJECT_PEER)
		set_peer_environment(variant->subject);
	if (variant->preload)
		setenv("LD_PRELOAD", bench_path(variant->preload), 1);
	if (variant->kind == SUBJECT_OURS || variant->kind == SUBJECT_MODEL)
		setenv("KMEM_OPTIONS", bench_format("%s%sengine:%s%s%s%s", options ? options : "",
						    options && *options ? "," : "",
						    engine, rule ? ",min_partial:" : "",
						    rule ? rule : "", accounting_options(variant)), 1);
	if (variant->percpu)
		setenv("KMEM_PERCPU", variant->percpu, 1);
}

static char **worker_arguments(const struct job *job)
{
	const bool quick = bench.options.quick;
	unsigned int run_ms = job->cells[0].run_ms	? job->cells[0].run_ms :
			      job->cells[0].threads > 2 ? RUN_CROWD_MS : RUN_MS;
	char **arguments = kmem_need(calloc(job->count + 10, sizeof(*arguments)));
	size_t n = 0;

	arguments[n++] = bench_path(job->variant->worker);
	arguments[n++] = bench_format("--cpu=%d", pinned_cpu());
	arguments[n++] = bench_format("--cell-us=%u", quick ? CELL_US / 3 : CELL_US);
	arguments[n++] = bench_format("--run-ms=%u", quick ? run_ms / 3 : run_ms);
	if (bench.options.full)
		arguments[n++] = bench_format("--objects=%lu", FULL_OBJECTS);
	if (job->cells[0].objects)
		arguments[n++] = bench_format("--live=%lu", job->cells[0].objects);
	if (job->cells[0].threads > 2)
		arguments[n++] = bench_format("--idle=%lu", job->cells[0].threads);
	if (is_accounted(job->variant))
		arguments[n++] = bench_format("--account");
	if (bench_same(job->cells[0].payers, "several"))
		arguments[n++] = bench_format("--several");
	for (size_t i = 0; i < job->count; i++) {
		const struct plan_cell *cell = &job->cells[i];

		arguments[n++] = bench_format("%s,%lu,%lu,%lu,%lu,%lu,%lu", cell->work, cell->size,
					      cell->batch, cell->threads, cell->match, cell->groups,
					      cell->transfer);
	}
	return arguments;
}

static _Noreturn void become_worker(const struct table *table, const struct job *job, int out)
{
	char **arguments = worker_arguments(job);

	dup2(out, STDOUT_FILENO);
	set_environment(job->variant);
	alarm(table->worker_s);
	execv(arguments[0], arguments);
	_exit(127);
}

/* What the worker says; NULL and errno: there is none. */
static FILE *start_worker(const struct table *table, const struct job *job, pid_t *child)
{
	int ends[2], error;
	FILE *from;

	if (pipe2(ends, O_CLOEXEC))
		return NULL;
	from = fdopen(ends[0], "r");
	*child = from ? bench_fork() : -1;
	if (!*child)
		become_worker(table, job, ends[1]);
	error = errno;
	close(ends[1]);
	if (*child < 0) {
		if (from)
			fclose(from);
		else
			close(ends[0]);
		from = NULL;
	}
	errno = error;
	return from;
}

static bool same_file(const char *path, const char *under_root)
{
	char real[PATH_MAX];

	return realpath(bench_path(under_root), real) && !strcmp(real, path);
}

/* The disciplines of all our subjects, each once. */
static void note_discipline(const char *name)
{
	const char **all = &bench.environment.discipline;

	if (!strcmp(*all, "none"))
		*all = name;
	else if (!strstr(*all, name))
		*all = bench_format("%s, %s", *all, name);
}

/* A line about the subject. False where what is in force is not what we mean. */
static bool take_info(struct variant *variant, const char *key, const char *value)
{
	struct environment *environment = &bench.environment;

	if (!strcmp(key, "malloc") && variant->owner)
		return same_file(value, variant->owner);
	if (!strcmp(key, "accounting"))
		return bench_same(value, variant->accounting);
	if (!strcmp(key, "engine"))
		return !strcmp(value, variant->subject);
	if (!strcmp(key, "discipline") && variant->kind == SUBJECT_OURS) {
		variant->refused = variant->percpu && strcmp(variant->percpu, value);
		if (variant->refused)
			return false;
		if (strcmp(variant->subject, "slob") && strcmp(variant->discipline, value)) {
			variant->discipline = bench_format("%s", value);
			note_discipline(variant->discipline);
		}
	} else if (!strcmp(key, "version") && !variant->version) {
		variant->version = bench_format("%s", value);
	} else if (!strcmp(key, "compiler")) {
		snprintf(environment->compiler, sizeof(environment->compiler), "%s", value);
	} else if (!strcmp(key, "flags")) {
		snprintf(environment->flags, sizeof(environment->flags), "%s", value);
	} else if (!strcmp(key, "library-flags")) {
		snprintf(environment->library_flags, sizeof(environment->library_flags), "%s",
			 value);
	}
	return true;
}

static const char *dash(const char *text)
{
	return strcmp(text, "-") ? text : NULL;
}

/* One worker's output; false if it was not what it must be. */
static bool read_worker(struct table *table, const struct job *job, FILE *from)
{
	char line[4400], key[64], unit[64], measure[32], at[32];
	unsigned int index;
	size_t figures = 0;
	bool good = true;
	int value_at;
	double value;

	while (fgets(line, sizeof(line), from)) {
		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "info %63s %n", key, &value_at) == 1) {
			if (!take_info(job->variant, key, line + value_at))
				job->variant->impostor = true;
		} else if (sscanf(line, "%u %63s %31s %31s %lf", &index, unit, measure, at,
				  &value) == 5 && index < job->count) {
			const struct plan_cell *cell = &job->cells[index];

			bench_add(table, job, cell, unit, dash(measure), dash(at), value);
			if (!strcmp(unit, "cycles/object"))
				bench_add(table, job, cell, "ns/object", NULL, NULL,
					  value / bench.environment.tsc_ghz);
			figures++;
		} else {
			good = false;
		}
	}
	return good && figures >= job->count;
}

/* The table's rounds that a job has completed: those between its own are nothing to it. */
static unsigned int job_rounds(const struct table *table, const struct job *job)
{
	unsigned int rounds = job->rounds * job->every;

	return rounds < table->rounds ? rounds : table->rounds;
}

/* How often a job runs in the first so many rounds of its table. */
static unsigned int runs_within(const struct job *job, unsigned int rounds)
{
	return (rounds + job->every - 1) / job->every;
}

/* The rounds of a subject that can be printed: those that all of its jobs have completed. */
static unsigned int complete_rounds(const struct table *table, const struct variant *variant)
{
	unsigned int rounds = table->rounds;

	for (size_t i = 0; i < table->job_count; i++)
		if (table->jobs[i].variant == variant && job_rounds(table, &table->jobs[i]) < rounds)
			rounds = job_rounds(table, &table->jobs[i]);
	return rounds;
}

static void leave_out(const struct table *table, struct variant *variant, const char *why)
{
	unsigned int rounds = variant->impostor ? 0 : complete_rounds(table, variant);
	char *name = bench_format("%s %s %s%s%s%s", variant->subject, variant->api, variant->linkage,
				  variant->percpu ? " " : "", variant->percpu ? variant->percpu : "",
				  rounds ? bench_format(" after %u of %u %s", rounds, table->rounds,
							table->rounds_name) : "");

	bench_progress_clear();
	fprintf(stderr, "kmem bench: going on without %s: %s\n", name, why);
	bench_without(name, why);
	variant->broken = true;
	bench.ours_failed |= bench_is_ours(variant) && !variant->refused;
}

/* Why a worker's figures do not count; NULL: they do. */
static const char *fault_of(const struct table *table, const struct job *job, int status, bool good)
{
	const char *work = job->cells[0].work;

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		return bench_format("its worker took more than %u seconds (%s)", table->worker_s,
				    work);
	if (WIFSIGNALED(status))
		return bench_format("its worker died of signal %d (%s)", WTERMSIG(status), work);
	if (status)
		return bench_format("its worker failed (%s)", work);
	if (job->variant->refused)
		return "this machine does not have that discipline";
	if (job->variant->impostor)
		return "another malloc or engine was in force";
	return good ? NULL : "its worker's output is wrong";
}

/* The figures of a round that the job did not complete. */
static void take_back(struct table *table, const struct job *job)
{
	for (size_t i = 0; i < table->row_count; i++)
		if (table->rows[i].job == job && table->rows[i].count > job->rounds)
			table->rows[i].count = job->rounds;
}

/* False where the run ends here. */
static bool run_job(struct table *table, struct job *job)
{
	const char *fault;
	double began = bench_now_ms();
	pid_t child;
	FILE *from = start_worker(table, job, &child);
	bool good;

	if (!from) {
		bench_stop(bench_format("cannot start a worker: %s", strerror(errno)));
		bench.ours_failed = true;
		return false;
	}
	good = read_worker(table, job, from);
	fclose(from);
	fault = fault_of(table, job, bench_wait(child), good);
	if (!fault) {
		bench_progress_ran(job, bench_now_ms() - began);
		job->rounds++;
		return true;
	}
	take_back(table, job);
	if (bench_stopped())
		return false;
	leave_out(table, job->variant, fault);
	return true;
}

/* False where the run ends within the round. */
static bool run_round(struct table *table)
{
	for (size_t i = 0; i < table->job_count; i++) {
		struct job *job = &table->jobs[i];

		if (!bench_is_due(job, table->complete))
			continue;
		if (bench_stopped())
			return false;
		bench_progress_show(table, job);
		if (!run_job(table, job))
			return false;
	}
	return true;
}

/*
 * Rows end with the last round that all subjects have completed, so that they stay comparable; those of a subject that
 * fell out end before. A row that its worker did not print in every round is none, nor is an impostor's.
 */
static void keep_complete(struct table *table)
{
	size_t kept = 0;

	for (size_t i = 0; i < table->row_count; i++) {
		struct row *row = &table->rows[i];
		unsigned int rounds = complete_rounds(table, row->variant);

		if (rounds > table->complete)
			rounds = table->complete;
		if (!rounds || row->count != row->job->rounds || row->variant->impostor)
			continue;
		row->count = runs_within(row->job, rounds);
		row->planned = runs_within(row->job, table->rounds);
		if (row->count == row->planned)
			row->planned = 0;
		table->rows[kept++] = *row;
	}
	table->row_count = kept;
}

/* Whether the next round ends within the table's limit. */
static bool has_time(struct table *table)
{
	double end = bench_now_ms() - table->began_ms + bench_round_ms(table, table->complete);

	if (!table->limit_s || !table->complete || end < table->limit_s * 1e3)
		return true;
	table->cut_by = bench_format("the next would end later than the %u seconds that it has (--seconds)",
				     table->limit_s);
	return false;
}

void bench_run_table(struct table *table)
{
	table->began_ms = bench_now_ms();
	while (table->complete < table->rounds && has_time(table) && run_round(table))
		table->complete++;
	bench_progress_clear();
	keep_complete(table);
}

bool bench_incomplete(const struct table *table)
{
	return table->complete < table->rounds;
}

const char *bench_cut_by(const struct table *table)
{
	return table->cut_by ? table->cut_by : bench_stopped();
}

const char *bench_extent(const struct table *table)
{
	if (!bench_incomplete(table))
		return bench_format("%u %s", table->rounds, table->rounds_name);
	return bench_format("%u of %u %s: %s", table->complete, table->rounds, table->rounds_name,
			    bench_cut_by(table));
}
