/*
 * The command line of `kmem bench`. Anything wrong: one line on stderr and exit status 2, before
 * anything was measured.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char usage_text[] =
	"usage: kmem bench BENCH... [OPTION...]\n"
	"  benches: fastpath, bulk, worst, slab-fastpath, bulk-latency, netio, memcg,\n"
	"           peers, forwarding, all\n"
	"  --engine A,B     engines of ours (sheaf,slub,slab,slob)\n"
	"  --percpu A,B     disciplines of ours (rseq,cmpxchg,lock)\n"
	"  --subjects A,B   engines and peers to measure; default: all\n"
	"  --size N,..      bytes of an object      --batch N,..   objects of a batch\n"
	"  --threads N,..   threads of a work       --linkage A,B  shared, static, inline\n"
	"  --work A,B       works of the table, as its rows name them\n"
	"  --transfer N,..  memcg's simulation: ns for a line from another CPU (100)\n"
	"  --rounds N       default 9\n"
	"  --runs N         default 100 for bulk-latency, 50 for netio\n"
	"  --seconds N      no round that would end later than N s after a table's begin;\n"
	"                   peers: 600, unless --rounds or --work is given\n"
	"  --quick          a tenth of the work\n"
	"  --full           bulk: 10 M objects a cell\n"
	"  --json, --csv    instead of the table\n"
	"  --html FILE      tables and plots as well\n"
	"  --fetch          first bring the peers that are not there (scripts/peers:\n"
	"                   takes minutes)\n";

enum {
	OPTION_ENGINE = 256, OPTION_PERCPU, OPTION_SUBJECTS, OPTION_SIZE, OPTION_BATCH, OPTION_THREADS,
	OPTION_TRANSFER, OPTION_LINKAGE, OPTION_WORK, OPTION_ROUNDS, OPTION_RUNS, OPTION_SECONDS, OPTION_QUICK,
	OPTION_FULL, OPTION_JSON, OPTION_CSV, OPTION_HTML, OPTION_FETCH, OPTION_HELP
};

static const struct option long_options[] = {
	{ "engine", required_argument, NULL, OPTION_ENGINE },
	{ "percpu", required_argument, NULL, OPTION_PERCPU },
	{ "subjects", required_argument, NULL, OPTION_SUBJECTS },
	{ "size", required_argument, NULL, OPTION_SIZE },
	{ "batch", required_argument, NULL, OPTION_BATCH },
	{ "threads", required_argument, NULL, OPTION_THREADS },
	{ "transfer", required_argument, NULL, OPTION_TRANSFER },
	{ "linkage", required_argument, NULL, OPTION_LINKAGE },
	{ "work", required_argument, NULL, OPTION_WORK },
	{ "rounds", required_argument, NULL, OPTION_ROUNDS },
	{ "runs", required_argument, NULL, OPTION_RUNS },
	{ "seconds", required_argument, NULL, OPTION_SECONDS },
	{ "quick", no_argument, NULL, OPTION_QUICK },
	{ "full", no_argument, NULL, OPTION_FULL },
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "csv", no_argument, NULL, OPTION_CSV },
	{ "html", required_argument, NULL, OPTION_HTML },
	{ "fetch", no_argument, NULL, OPTION_FETCH },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ NULL, 0, NULL, 0 },
};

static void parse_names(const char *option, char *text, struct names *names)
{
	char *next = text, *name;

	names->count = 0;
	while ((name = strsep(&next, ","))) {
		if (!*name || bench_has(names, name))
			bench_usage("--%s: an empty or repeated name", option);
		if (names->count == BENCH_LIST)
			bench_usage("--%s: too many names", option);
		names->name[names->count++] = name;
	}
}

static unsigned long parse_number(const char *option, const char *text, unsigned long most)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || !number || number > most)
		bench_usage("--%s: '%s' is not a number from 1 to %lu", option, text, most);
	return number;
}

static void parse_numbers(const char *option, char *text, struct numbers *numbers,
			  unsigned long most)
{
	char *next = text, *item;

	numbers->count = 0;
	while ((item = strsep(&next, ","))) {
		unsigned long number = parse_number(option, item, most);

		for (size_t i = 0; i < numbers->count; i++)
			if (numbers->number[i] == number)
				bench_usage("--%s: %lu twice", option, number);
		if (numbers->count == BENCH_LIST)
			bench_usage("--%s: too many numbers", option);
		numbers->number[numbers->count++] = number;
	}
}

static void check_names(const char *option, const struct names *names, const char *const *known)
{
	for (size_t i = 0; i < names->count; i++) {
		size_t k = 0;

		while (known[k] && strcmp(known[k], names->name[i]))
			k++;
		if (!known[k])
			bench_usage("--%s: there is no '%s'", option, names->name[i]);
	}
}

static void parse_lists(int code, const char *name, char *value, struct bench_options *options)
{
	static const char *const engines[] = { "sheaf", "slub", "slab", "slob", NULL };
	static const char *const disciplines[] = { "rseq", "cmpxchg", "lock", NULL };
	static const char *const linkages[] = { "shared", "static", "inline", NULL };
	static const char *const works[] = { "pair", "alloc", "free", "loop", "bulk",
					     "producer-consumer", "larson", "threads-4k",
					     "idle-threads", "live-set", "netio", "latency", "groups",
					     "churn", "simulation", "zero", "aligned", "blocks", "held",
					     "realloc", "adrift", NULL };

	switch (code) {
	case OPTION_ENGINE:
		parse_names(name, value, &options->engines);
		check_names(name, &options->engines, engines);
		break;
	case OPTION_PERCPU:
		parse_names(name, value, &options->disciplines);
		check_names(name, &options->disciplines, disciplines);
		break;
	case OPTION_SUBJECTS:
		parse_names(name, value, &options->subjects);
		break;
	case OPTION_LINKAGE:
		parse_names(name, value, &options->linkages);
		check_names(name, &options->linkages, linkages);
		break;
	case OPTION_WORK:
		parse_names(name, value, &options->works);
		check_names(name, &options->works, works);
		break;
	case OPTION_SIZE:
		parse_numbers(name, value, &options->sizes, 1ul << 20);
		break;
	case OPTION_BATCH:
		parse_numbers(name, value, &options->batches, 10000);
		break;
	case OPTION_TRANSFER:
		parse_numbers(name, value, &options->transfers, 100000);
		break;
	default:
		parse_numbers(name, value, &options->threads, 1024);
		break;
	}
}

static void parse_option(int code, const char *name, struct bench_options *options)
{
	switch (code) {
	case OPTION_ROUNDS:
		options->rounds = (unsigned int)parse_number(name, optarg, 10000);
		break;
	case OPTION_RUNS:
		options->runs = (unsigned int)parse_number(name, optarg, 10000);
		break;
	case OPTION_SECONDS:
		options->seconds = (unsigned int)parse_number(name, optarg, 1000000);
		break;
	case OPTION_QUICK:
		options->quick = true;
		break;
	case OPTION_FULL:
		options->full = true;
		break;
	case OPTION_FETCH:
		options->fetch = true;
		break;
	case OPTION_JSON:
		options->json = true;
		break;
	case OPTION_CSV:
		options->csv = true;
		break;
	case OPTION_HTML:
		options->html = optarg;
		break;
	case OPTION_HELP:
		fputs(usage_text, stdout);
		exit(0);
	default:
		parse_lists(code, name, optarg, options);
	}
}

static void add_bench(struct names *benches, const char *name)
{
	if (!bench_has(benches, name))
		benches->name[benches->count++] = name;
}

static void parse_benches(int argc, char **argv, struct bench_options *options)
{
	static const char *const known[] = { "fastpath", "bulk", "worst", "slab-fastpath",
					     "bulk-latency", "netio", "memcg", "peers",
					     "forwarding" };
	const size_t count = sizeof(known) / sizeof(*known);

	for (int i = optind; i < argc; i++) {
		bool found = !strcmp(argv[i], "all");

		for (size_t k = 0; k < count; k++) {
			if (strcmp(argv[i], known[k]) && strcmp(argv[i], "all"))
				continue;
			found = true;
			add_bench(&options->benches, known[k]);
			/* The worst case of a batch belongs to the table of batches. */
			if (!strcmp(known[k], "bulk"))
				add_bench(&options->benches, "worst");
		}
		if (!found)
			bench_usage("there is no bench '%s'; there are fastpath, bulk, worst, "
				    "slab-fastpath, bulk-latency, netio, memcg, peers, forwarding, all", argv[i]);
	}
	if (!options->benches.count)
		bench_usage("which? fastpath, bulk, worst, slab-fastpath, bulk-latency, netio, "
			    "memcg, peers, forwarding or all");
}

void bench_parse(int argc, char **argv, struct bench_options *options)
{
	int code, index = 0;

	opterr = 0;
	optind = 1;
	while ((code = getopt_long(argc, argv, ":", long_options, &index)) != -1) {
		if (code == ':')
			bench_usage("%s needs a value", argv[optind - 1]);
		if (code == '?')
			bench_usage("unknown option '%s'", argv[optind - 1]);
		parse_option(code, long_options[index].name, options);
	}
	parse_benches(argc, argv, options);
	if (options->json && options->csv)
		bench_usage("--json and --csv exclude each other");
	if (options->quick && options->full)
		bench_usage("--quick and --full exclude each other");
}
