/*
 * cmd_metrics.c: `kmem metrics`: print the statistics of a running program, or of a file from `kmem run --stats`, as
 * OpenMetrics 1.0 or in Prometheus' text format for node_exporter's textfile collector.
 *
 * Exit status: 0; 1 statistics not read, incomplete or not written; 2 wrong usage.
 */
#define _GNU_SOURCE
#include "inspect/openmetrics.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"

#define MOST_LABELS	16u

static const char usage_text[] =
	"usage: kmem metrics [OPTION...] PID | FILE\n"
	"Print the figures of a running program, or of a file of kmem run --stats=FILE\n"
	"(for a name of digits: ./FILE), as OpenMetrics 1.0 for Prometheus.\n"
	"  --text         the text format 0.0.4 of Prometheus\n"
	"  --output=FILE  replace FILE at once; a name with the end .prom implies --text,\n"
	"                 for the textfile collector of node_exporter\n"
	"  --label=NAME=VALUE  a label of each sample; programs of one host need\n"
	"                 different values\n"
	"  --caches=N, --groups=N  only the N largest caches or groups (1000)\n"
	"Example:\n"
	"  kmem metrics --label=program=redis $(pidof redis-server)\n";

struct wanted {
	bool text;
	const char *output;
	struct km_metrics_label labels[MOST_LABELS];
	size_t label_count, caches, groups;
};

/* ------------------------------------------------------------------ the numbers */

static void fill(struct km_metrics *metrics, const struct snapshot *snapshot)
{
	metrics->process = (struct km_print_process){
		.version = snapshot->version, .discipline = snapshot->discipline, .reason = snapshot->reason,
		.hardened = snapshot->hardened, .pid = snapshot->pid, .guard = snapshot->guard,
		.past_new_slabs = snapshot->past_new_slabs, .past_freed_slabs = snapshot->past_freed_slabs,
	};
	metrics->stats = snapshot->stats;
	for (size_t i = 0; i < snapshot->count; i++) {
		const struct info_cache *cache = &snapshot->caches[i];
		struct kmem_cache_stats stats = cache->stats;

		stats.engine = cache->engine;
		km_metrics_cache(&metrics->caches[i], &stats, *cache->of ? cache->of : NULL);
	}
	for (size_t i = 0; i < snapshot->group_count; i++)
		metrics->groups[i] = (struct km_metrics_group){ .stats = snapshot->groups[i] };
	metrics->cache_count = snapshot->count;
	metrics->group_count = snapshot->group_count;
}

/* Add resident memory, which only the kernel knows (/proc). */
static void add_memory(struct km_metrics *metrics, const struct info_memory *memory)
{
	const struct info_resident *resident = &memory->resident;

	metrics->resident_used = memory->told ? resident->used : INFO_UNKNOWN;
	metrics->resident_free = memory->told ? resident->free : INFO_UNKNOWN;
	metrics->resident_records = memory->told ? resident->records : INFO_UNKNOWN;
	metrics->rss = memory->rollup.rss ?: INFO_UNKNOWN;
}

/* Returns: 0 or an errno. */
static int print(const struct wanted *wanted, const struct snapshot *snapshot, const struct info_memory *memory,
		 int fd)
{
	struct km_writer writer = { .fd = fd };
	struct km_metrics metrics = {
		.classic = wanted->text, .labels = wanted->labels, .label_count = wanted->label_count,
		.most_caches = wanted->caches, .most_groups = wanted->groups,
		.caches = kmem_need(calloc(snapshot->count + 1, sizeof(*metrics.caches))),
		.groups = kmem_need(calloc(snapshot->group_count + 1, sizeof(*metrics.groups))),
		.order = kmem_need(calloc(snapshot->count + snapshot->group_count + 1, sizeof(*metrics.order))),
	};

	fill(&metrics, snapshot);
	add_memory(&metrics, memory);
	km_metrics_print(&writer, &metrics);
	free(metrics.caches);
	free(metrics.groups);
	free(metrics.order);
	return -km_print_end(&writer);
}

/* ------------------------------------------------------------------ where they go */

struct filling {
	const struct wanted *wanted;
	const struct snapshot *snapshot;
	const struct info_memory *memory;
};

/* Returns: 0 or an errno. */
static int fill_file(int fd, void *arg)
{
	const struct filling *filling = arg;

	return print(filling->wanted, filling->snapshot, filling->memory, fd);
}

static int show(const struct wanted *wanted, const struct snapshot *snapshot, const struct info_memory *memory)
{
	if (wanted->output)
		return kmem_replace("metrics", wanted->output, fill_file,
				    &(struct filling){ wanted, snapshot, memory });
	int error = print(wanted, snapshot, memory, STDOUT_FILENO);

	return error ? kmem_failed(1, "metrics", "writing: %s", strerror(error)) : 0;
}

static int of_process(const struct wanted *wanted, pid_t pid)
{
	struct snapshot snapshot = { 0 };
	struct info_memory memory = { .told = false };
	enum info_result result = info_of_process_and_memory(pid, &snapshot, &memory);
	int status = 0;

	/* Partial statistics fail, because a reader of the metrics cannot tell partial sums from complete sums. */
	if (result == INFO_OK && snapshot.groups_partly)
		result = INFO_PARTLY;
	if (result == INFO_OK)
		status = show(wanted, &snapshot, &memory);
	status = status ?: info_complain("metrics", pid, result, snapshot.version);
	snapshot_clear(&snapshot);
	info_memory_clear(&memory);
	return status;
}

static int of_file(const struct wanted *wanted, const char *path)
{
	struct snapshot snapshot = { 0 };
	const struct info_memory none = { .told = false };
	int status = info_of_file(path, &snapshot) ? show(wanted, &snapshot, &none) : 1;

	snapshot_clear(&snapshot);
	return status;
}

/* ------------------------------------------------------------------ the command */

static void parse_label(struct wanted *wanted, char *text)
{
	char *value = strchr(text, '=');

	if (wanted->label_count == MOST_LABELS)
		kmem_usage("metrics", "--label: at most %u labels are permitted", MOST_LABELS);
	if (!value)
		kmem_usage("metrics", "--label: '%s' is not NAME=VALUE", text);
	*value++ = '\0';
	if (!km_metrics_is_label(text))
		kmem_usage("metrics", "--label: '%s' is not a name of a label, or samples already have this label",
			   text);
	for (const char *at = value; *at; at += km_utf8_bytes(at))
		if (!km_utf8_bytes(at))
			kmem_usage("metrics", "--label: the value of %s is not UTF-8", text);
	for (size_t i = 0; i < wanted->label_count; i++)
		if (!strcmp(wanted->labels[i].name, text))
			kmem_usage("metrics", "--label: %s twice", text);
	wanted->labels[wanted->label_count++] = (struct km_metrics_label){ text, value };
}

static size_t parse_most(const char *option, const char *text)
{
	if (!info_is_number(text))
		kmem_usage("metrics", "%s: '%s' is not a number from 0 to 999999999", option, text);
	return (size_t)atol(text);
}

static bool ends_in_prom(const char *path)
{
	size_t length = strlen(path);

	return length >= 5 && !strcmp(path + length - 5, ".prom");
}

static struct wanted parse(int argc, char **argv)
{
	static const struct option known[] = {
		{ "text", no_argument, NULL, 't' }, { "output", required_argument, NULL, 'o' },
		{ "label", required_argument, NULL, 'l' }, { "caches", required_argument, NULL, 'c' },
		{ "groups", required_argument, NULL, 'g' }, { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct wanted wanted = { .caches = KM_METRICS_MOST, .groups = KM_METRICS_MOST };
	int code;

	while ((code = kmem_next_option("metrics", usage_text, argc, argv, ":", known)) != -1)
		switch (code) {
		case 't': wanted.text = true; break;
		case 'o': wanted.output = optarg; break;
		case 'l': parse_label(&wanted, optarg); break;
		case 'c': wanted.caches = parse_most("--caches", optarg); break;
		case 'g': wanted.groups = parse_most("--groups", optarg); break;
		}
	wanted.text |= wanted.output && ends_in_prom(wanted.output);
	if (argc - optind != 1)
		kmem_usage("metrics", "a process or a file is missing");
	return wanted;
}

int cmd_metrics(int argc, char **argv)
{
	struct wanted wanted = parse(argc, argv);
	const char *of = info_process("metrics", argv[optind], true);

	return info_is_number(of) ? of_process(&wanted, atoi(of)) : of_file(&wanted, of);
}
