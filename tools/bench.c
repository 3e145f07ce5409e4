/*
 * `kmem bench`: the project's measurements. This file is the course of one call: options, subjects,
 * plan, workers, rounds, printing. How each table measures stands in bench/, what it holds in
 * bench_plan.c.
 *
 * Exit status: 0; 1 where something of ours could not be measured; 2 wrong usage; 3 where
 * `peers` lacks a peer that it must not lack; 128 and the signal's number where one stopped it. Tables
 * are printed in any case but wrong usage, with the rounds that are complete.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static void write_html(const char *file)
{
	FILE *out = fopen(file, "w");

	if (!out)
		bench_fatal("%s: %s", file, strerror(errno));
	bench_print_html(out);
	if (fclose(out))
		bench_fatal("%s: %s", file, strerror(errno));
}

/* Before an hour's work, not after it. */
static void check_html(const char *file)
{
	FILE *out = fopen(file, "a");

	if (!out || fclose(out))
		bench_fatal("%s: %s", file, strerror(errno));
}

static void print_all(void)
{
	bool failed;

	/* A reader that went with the same Ctrl-C must not take the page with it. */
	signal(SIGPIPE, SIG_IGN);
	if (bench.options.json)
		bench_print_json(stdout);
	else if (bench.options.csv)
		bench_print_csv(stdout);
	else
		bench_print_text(stdout);
	failed = fflush(stdout) || ferror(stdout);
	if (bench.options.html)
		write_html(bench.options.html);
	if (failed)
		bench_fatal("cannot write the figures");
}

/* A table of which nothing is complete has no rows at all. */
static void finish_table(struct table *table)
{
	if (bench_incomplete(table))
		fprintf(stderr, "kmem bench: %s: %s\n", table->bench, bench_extent(table));
	if (!table->complete)
		return;
	bench_add_code(table);
	bench_add_published(table);
	bench_settle(table);
}

int cmd_bench(int argc, char **argv)
{
	const struct names *benches = &bench.options.benches;

	bench_parse(argc, argv, &bench.options);
	if (bench.options.html)
		check_html(bench.options.html);
	bench_catch_stop();
	bench_find_root();
	bench.environment.rounds = bench.options.rounds ? bench.options.rounds :
				   bench.options.quick	? BENCH_QUICK_ROUNDS :
							  BENCH_ROUNDS;
	bench_find_subjects();
	for (size_t i = 0; i < benches->count; i++)
		bench_plan(benches->name[i]);
	bench_build_workers();
	bench_env_before(&bench.environment);
	bench_progress_begin();
	for (size_t i = 0; i < bench.table_count; i++)
		bench_run_table(&bench.tables[i]);
	bench_env_after(&bench.environment);
	for (size_t i = 0; i < bench.table_count; i++)
		finish_table(&bench.tables[i]);
	print_all();
	if (bench_stop_status())
		return bench_stop_status();
	if (bench_has(benches, "peers") && bench.must_missing) {
		fputs("kmem bench: peers: glibc, jemalloc, mimalloc or gperftools is missing\n",
		      stderr);
		return 3;
	}
	return bench.ours_failed ? 1 : 0;
}
