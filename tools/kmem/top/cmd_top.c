/*
 * cmd_top.c: the command `kmem top`, which shows the memory of running programs on a live screen, or once.
 * Invariant: the programs are read from outside, like `kmem info`, and never stopped.
 *
 * Exit status: 0; 1 a process was unreadable or partly readable, or no screen; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"
#include "top/top.h"

static const char usage_text[] =
	"usage: kmem top [OPTION...] [PID... | --cgroup=CGROUP]\n"
	"Show the memory of running programs on a screen.\n"
	"  PID...           running programs; default: all of yours with libkmem\n"
	"  --cgroup=CGROUP  processes of a cgroup and of the cgroups below: a path, or a\n"
	"                   process id\n"
	"  --once           print once, for scripts\n"
	"  --bytes          with --once: figures in bytes\n"
	"  --seconds=N      seconds between two readings (2); with --once: read twice\n"
	"                   and print rates\n"
	"  --sort=COLUMN    resident, allocated, cached, free, purgeable, pinned, rate or\n"
	"                   name\n"
	"  --reverse        smallest first\n"
	"  --all            print rows without memory too\n"
	"  --as-one         print one row for each cache of all processes together\n"
	"On the screen, q quits and h lists all keys.\n"
	"Example:\n"
	"  kmem top --once --sort=pinned $(pidof redis-server)\n";

struct wanted {
	struct top_targets targets;
	struct top_view view;
	bool once, bytes, has_seconds;
	double seconds;
};

int top_complain(const struct top_targets *targets, const struct top_sample *sample)
{
	info_invalid_why = sample->why;
	if (sample->result != INFO_OK)
		return info_complain("top", sample->unread, sample->result, sample->version);
	if (targets->cgroup)
		return kmem_failed(1, "top", "%s: no process of this cgroup runs libkmem, or none may be read",
				   targets->cgroup);
	/* List the processes again, to learn the reason. */
	size_t count;
	pid_t *pids = info_own_processes(&count);
	if (!pids)
		return info_complain_of_all("top", errno);
	free(pids);
	return kmem_failed(1, "top", "none of your processes runs libkmem");
}

/* ------------------------------------------------------------------ once */

/* Returns: the columns of the terminal, or 80. */
static int columns_of_output(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

static void print_once(const struct top_sample *sample, const struct wanted *wanted)
{
	int columns = wanted->bytes ? 0 : columns_of_output();

	printf("%s\n", top_title(sample, columns).text);
	printf("%s\n", top_equation_text(sample, columns).text);
	printf("%s\n", top_other_text(sample, columns).text);
	printf("%s\n", top_heads(&wanted->view, columns).text);
	for (size_t i = 0; i < sample->shown; i++)
		printf("%s\n", top_row_text(sample, &sample->rows[sample->order[i]], columns).text);
}

static int once(const struct wanted *wanted)
{
	struct top_sample sample = { 0 }, before = { 0 };
	bool ok = true;

	setlocale(LC_CTYPE, "C.UTF-8");
	if (wanted->has_seconds) {
		ok = top_take(&wanted->targets, &wanted->view, &before);
		kmem_pause(ok ? wanted->seconds : 0);
	}
	if (!ok || !top_take(&wanted->targets, &wanted->view, &sample))
		return top_complain(&wanted->targets, ok ? &sample : &before);
	if (wanted->has_seconds)
		top_rates(&sample, &before);
	top_sort(&sample, &wanted->view);
	print_once(&sample, wanted);
	int status = fflush(stdout) || ferror(stdout) ? kmem_failed(1, "top", "writing: %s", strerror(errno)) :
		     sample.result == INFO_OK ? 0 : top_complain(&wanted->targets, &sample);
	top_clear(&before);
	top_clear(&sample);
	return status;
}

/* ------------------------------------------------------------------ the command */

static enum top_sort parse_sort(const char *text)
{
	for (int i = 0; i < TOP_SORTS; i++)
		if (!strcmp(text, top_sort_names[i]))
			return (enum top_sort)i;
	kmem_usage("top", "--sort: unknown column '%s'; kmem top --help lists the columns", text);
}

static void parse_one(struct wanted *wanted, int code)
{
	switch (code) {
	case 'o': wanted->once = true; break;
	case 'b': wanted->bytes = true; break;
	case 's': wanted->seconds = kmem_seconds("top", optarg, 0.1, 3600); wanted->has_seconds = true; break;
	case 'k': wanted->view.sort = parse_sort(optarg); break;
	case 'r': wanted->view.reverse = true; break;
	case 'a': wanted->view.all = true; break;
	case '1': wanted->view.merged = true; break;
	case 'c': wanted->targets.cgroup = optarg; break;
	}
}

/* Collect the process numbers of the arguments: numbers, or names of processes. */
static void parse_pids(struct top_targets *targets, char **texts)
{
	size_t room = 0, count, called;
	pid_t *pids = NULL;

	for (count = 0; *texts; texts++) {
		const pid_t number = info_is_number(*texts) ? atoi(*texts) : 0;
		pid_t *found = number ? NULL : info_processes_called(*texts, &called);

		called = number ? 1 : called;
		if (!called)
			kmem_usage("top", "'%s' is neither the number nor the name of a process", *texts);
		for (size_t i = 0; i < called; i++) {
			pids = kmem_grow(pids, count, &room, sizeof(*pids));
			pids[count++] = number ?: found[i];
		}
		free(found);
	}
	targets->pids = pids;
	targets->count = count;
}

int cmd_top(int argc, char **argv)
{
	static const struct option known[] = {
		{ "once", no_argument, NULL, 'o' }, { "bytes", no_argument, NULL, 'b' },
		{ "seconds", required_argument, NULL, 's' }, { "sort", required_argument, NULL, 'k' },
		{ "reverse", no_argument, NULL, 'r' }, { "all", no_argument, NULL, 'a' },
		{ "as-one", no_argument, NULL, '1' }, { "cgroup", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	struct wanted wanted = { .seconds = 2 };
	int code;

	while ((code = kmem_next_option("top", usage_text, argc, argv, ":", known)) != -1)
		parse_one(&wanted, code);
	if (wanted.targets.cgroup && optind < argc)
		kmem_usage("top", "give processes or --cgroup, not both");
	if (wanted.targets.cgroup && !*wanted.targets.cgroup)
		kmem_usage("top", "--cgroup: the cgroup is missing");
	if (wanted.bytes && !wanted.once)
		kmem_usage("top", "--bytes needs --once");
	if (wanted.targets.cgroup)
		wanted.targets.cgroup = top_cgroup(wanted.targets.cgroup);
	if (optind < argc)
		parse_pids(&wanted.targets, argv + optind);
	return wanted.once ? once(&wanted) : top_screen(&wanted.targets, wanted.view, wanted.seconds);
}
