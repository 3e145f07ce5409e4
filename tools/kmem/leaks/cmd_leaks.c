/*
 * `kmem leaks`: report the growth of a running program, the known ages of objects, and lost objects (scan.h); in a
 * core dump only lost objects. Invariant: the command never writes to the program's memory. All threads of the
 * program stop for a moment; the last line of the output has the duration.
 *
 * Exit status: 0 with or without lost objects; 1 if the search failed; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "info/info_print.h"
#include "command.h"
#include "leaks/core_dump.h"
#include "leaks/leak_growth.h"
#include "leaks/scan.h"

#define SECONDS		5
#define MOST_SECONDS	86400
#define MOST_LINES	20u

static const char usage_text[] =
	"usage: kmem leaks [--seconds=N] [--most=LINES] PID | CORE\n"
	"Print the growth of each cache of a running program, then its lost objects:\n"
	"objects without a pointer to them. All threads stop for a moment; the last line\n"
	"has the time of the stop. For a core dump, print the lost objects only.\n"
	"  --seconds=N   time between two readings of the growth (5); 0: no growth\n"
	"  --most=LINES  the longest list (20); 0: no limit\n"
	"Caches debugged with U (kmem debug) have stacks and ages too.\n"
	"Example:\n"
	"  kmem leaks --seconds=60 $(pidof server) | kmem symbols\n";

/* Order: objects without a pointer from another lost object first, then by size, largest first, then by address. */
static int by_weight(const void *a, const void *b)
{
	const struct scan_lost *x = a, *y = b;

	if (x->pointed != y->pointed)
		return x->pointed - y->pointed;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return (x->address > y->address) - (x->address < y->address);
}

static void print_lost(const struct subject *subject, struct scan_result *result, size_t most)
{
	unsigned long bytes = 0, pointed = 0;

	for (size_t i = 0; i < result->count; i++) {
		bytes += result->lost[i].bytes;
		pointed += result->lost[i].pointed;
	}
	printf("lost: %zu of %zu objects, %lu bytes; no pointer leads to them%s\n", result->count, result->live, bytes,
	       pointed ? " except from lost objects" : "");
	qsort(result->lost, result->count, sizeof(*result->lost), by_weight);
	if (result->count)
		printf("  %-18s %10s  %9s  %s\n", "ADDRESS", "BYTES", "AGE", "CACHE");
	for (size_t i = 0; i < result->count && i < most; i++) {
		const struct scan_lost *lost = &result->lost[i];
		char age[32] = "-";

		if (lost->aged)
			snprintf(age, sizeof(age), "%.1f s", (double)lost->age_ms / 1000);
		printf("  0x%-16lx %10zu  %9s  %s%s\n", (unsigned long)lost->address, lost->bytes, age, lost->cache,
		       lost->pointed ? ", pointed to by a lost object" : "");
		print_stack(&subject->maps, lost->frame, HEAP_FRAMES);
	}
	if (result->count > most)
		printf("  and %zu more\n", result->count - most);
}

static void print_ages(const unsigned long *ages)
{
	if (ages[0] + ages[1] + ages[2] + ages[3])
		printf("objects of known age: %lu of less than a second, %lu of a minute, %lu of an hour, %lu "
		       "older\n", ages[0], ages[1], ages[2], ages[3]);
}

/* An object is lost if no pointer leads to the object. Say how much memory with possible pointers was not read.
 * Returns 1 if a dump lacks a part of this memory. */
static int print_unread(const struct subject *subject, const struct scan_result *result)
{
	const struct core *core = subject->target.core;
	int status = 0;

	if (core && core->cut)
		status = kmem_failed(1, "leaks", "%s: the dump is cut off: %s of its memory are missing; raise "
						 "ulimit -c", subject->name, BYTES(core->cut));
	if (core && !core->threads)
		printf("not searched: registers and stacks, because the dump has no threads\n");
	if (result->unread_bytes)
		printf("not searched: %s of unreadable memory; objects with pointers only there may be reported as "
		       "lost\n",
		       BYTES(result->unread_bytes));
	return status;
}

/* Print how many bytes of possible holders were read again in a stop, if time did not suffice for all of them. */
static void print_rest(const struct scan_result *result)
{
	if (!result->count || result->again_bytes >= result->again_wanted)
		return;
	printf("read again while all threads stood still: %s of ", BYTES(result->again_bytes));
	printf("%s of objects; elsewhere a moved pointer may be missed\n", BYTES(result->again_wanted));
}

/* Print the size of mappings outside of libkmem. The scan reads these for pointers, but reports no loss there. */
static void print_elsewhere(const struct subject *subject)
{
	unsigned long ours, elsewhere = subject->target.core ? 0 : info_elsewhere(subject->target.pid, &ours);

	if (!elsewhere)
		return;
	printf("%s are other mappings of the program, without objects of libkmem; ",
	       BYTES(elsewhere));
	printf("%s are libkmem's\n", BYTES(ours));
}

static void print_price(const struct subject *subject, const struct scan_result *result)
{
	if (subject->target.core)
		printf("searched %s\n", BYTES(result->read_bytes));
	else
		printf("searched %s in %u round%s; all threads stood still %u times, for %.2f ms at most\n",
		       BYTES(result->read_bytes), result->rounds, result->rounds == 1 ? "" : "s", result->stops,
		       (double)result->longest_ns / 1e6);
}

static unsigned long number(const char *option, const char *text, unsigned long most)
{
	char *end;

	errno = 0;
	unsigned long n = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text < '0' || *text > '9' || n > most)
		kmem_usage("leaks", "--%s=%s is not a number up to %lu", option, text, most);
	return n;
}

static int look(struct subject *subject, double seconds, size_t most)
{
	struct scan_result result = { .count = 0 };
	unsigned long ages[4] = { 0 };
	int status = 0;

	if (!subject->target.core && seconds > 0) {
		status = growth_print(subject, seconds, most, ages);
		print_ages(ages);
		fflush(stdout);
	}
	if (!status)
		status = scan_run(subject, &result);
	if (!status) {
		print_lost(subject, &result, most);
		status = print_unread(subject, &result);
		print_rest(&result);
		print_elsewhere(subject);
		print_price(subject, &result);
	}
	free(result.lost);
	if ((fflush(stdout) || ferror(stdout)) && !status)
		status = kmem_failed(1, "leaks", "writing: %s", strerror(errno));
	return status;
}

int cmd_leaks(int argc, char **argv)
{
	static const struct option known[] = {
		{ "seconds", required_argument, NULL, 's' }, { "most", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	double seconds = SECONDS;
	size_t most = MOST_LINES;
	struct subject subject;
	int code;

	while ((code = kmem_next_option("leaks", usage_text, argc, argv, ":", known)) != -1)
		if (code == 's')
			seconds = kmem_seconds("leaks", optarg, 0, MOST_SECONDS);
		else
			most = number("most", optarg, SIZE_MAX - 1) ?: SIZE_MAX;
	if (argc - optind != 1)
		kmem_usage("leaks", "a process or a core dump is missing; see kmem leaks --help");
	argv[optind] = info_process("leaks", argv[optind], true);
	return subject_open(&subject, "leaks", argv[optind]) ? look(&subject, seconds, most) : 1;
}
