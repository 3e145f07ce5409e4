/*
 * How long it will take: what the plan expects of a job until it has run, then what it took. On a terminal a line says
 * so while the rounds go on; it never is wider than the terminal, and is gone when the tables come.
 */
#include <math.h>
#include <string.h>

#include "bench.h"

#define BAR 10

static double began;	/* ms */
static double expected, took;	/* of the jobs that have run: what was expected of them, what they took */

bool bench_is_due(const struct job *job, unsigned int round)
{
	return !job->variant->broken && round % job->every == 0;
}

/* A job that never ran is late or early as those that have. */
static double job_ms(const struct job *job)
{
	return job->rounds || expected <= 0 ? job->ms : job->ms * took / expected;
}

double bench_round_ms(const struct table *table, unsigned int round)
{
	double ms = 0;

	for (size_t i = 0; i < table->job_count; i++)
		if (bench_is_due(&table->jobs[i], round))
			ms += job_ms(&table->jobs[i]);
	return ms;
}

/* From this job of the round on, or from a table's first one; never more than its limit leaves. */
static double left_ms(const struct table *table, const struct job *next)
{
	double passed = table->began_ms > 0 ? bench_now_ms() - table->began_ms : 0, ms = 0;

	for (const struct job *job = next; job && job < table->jobs + table->job_count; job++)
		if (bench_is_due(job, table->complete))
			ms += job_ms(job);
	for (unsigned int round = table->complete + (next ? 1 : 0); round < table->rounds; round++)
		ms += bench_round_ms(table, round);
	return table->limit_s ? fmax(0, fmin(ms, table->limit_s * 1e3 - passed)) : ms;
}

static double all_left_ms(const struct table *from, const struct job *next)
{
	double ms = left_ms(from, next);

	for (const struct table *table = from + 1; table < bench.tables + bench.table_count; table++)
		ms += left_ms(table, NULL);
	return ms;
}

static const char *duration(double ms)
{
	unsigned long seconds = (unsigned long)(ms / 1e3 + 0.5);

	return bench_format("%lu:%02lu", seconds / 60, seconds % 60);
}

void bench_progress_begin(void)
{
	double minutes = all_left_ms(bench.tables, NULL) / 60e3;

	began = bench_now_ms();
	if (bench_terminal(stderr))
		fprintf(stderr, "kmem bench: about %.0f %s\n", ceil(minutes < 2 ? minutes * 60 : minutes),
			minutes < 2 ? "seconds" : "minutes");
}

void bench_progress_show(const struct table *table, const struct job *job)
{
	int width = bench_terminal(stderr);
	double left, all;
	int filled;

	if (!width)
		return;
	left = all_left_ms(table, job);
	all = left + bench_now_ms() - began;
	filled = all > 0 ? (int)(BAR * (1 - left / all)) : 0;
	char *line = bench_format("%s %u/%u [%.*s%*s] %s left: %s %s %s %s", table->bench, table->complete + 1,
				  table->rounds, filled, "##########", BAR - filled, "", duration(left),
				  job->cells[0].row_work, job->variant->subject, job->variant->api,
				  job->variant->linkage);
	/* A full line would move to the next one. */
	fprintf(stderr, "\r\033[K%.*s", width - 1, line);
	fflush(stderr);
	free(line);
}

void bench_progress_ran(struct job *job, double ms)
{
	if (job->rounds < 2) {
		expected += job->rounds ? 0 : job->ms;
		took += job->rounds ? 0 : ms;
		job->ms = ms;
	} else {
		job->ms += (ms - job->ms) / job->rounds;
	}
}

void bench_progress_clear(void)
{
	if (bench_terminal(stderr))
		fputs("\r\033[K", stderr);
}
