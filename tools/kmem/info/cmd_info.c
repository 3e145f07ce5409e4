/*
 * cmd_info.c: the subcommand `kmem info`. The command shows the caches of a running program, or of a file written by
 * `kmem run --stats`. Invariant: reads from outside do not stop the program, and run no code in the program.
 *
 * Exit status: 0; 1 if numbers of a requested process are missing, all or some; 2 wrong usage.
 */
#define _GNU_SOURCE
#include "info/info.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "info/info_print.h"
#include "command.h"

#define ATTEMPTS 50u	/* a millisecond apart; the last attempt accepts missing caches */

static const char usage_text[] =
	"usage: kmem info [--memory | --slabinfo | --json] [PID | FILE]\n"
	"       kmem info --memcg [--json | --files] [PID | FILE]\n"
	"Print the caches or the groups of a running program.\n"
	"  PID         a running program; --memory on a terminal, else --slabinfo\n"
	"  FILE        a file of kmem run --stats=FILE (for a name of digits: ./FILE)\n"
	"  no PID      print one line for each of your processes with libkmem\n"
	"  --memory    caches in use, largest first, and all memory of the library\n"
	"  --slabinfo  all caches with their objects, in the form of slabinfo 2.1\n"
	"  --json      all figures, for programs\n"
	"  --memcg     groups as a tree, largest first; without a PID of all processes\n"
	"  --files     with --memcg: memory.current, memory.stat, memory.events and\n"
	"              further files of each group\n"
	"Example:\n"
	"  kmem info --memory $(pidof redis-server)\n";

/* ------------------------------------------------------------------ snapshots */

struct info_cache *snapshot_grow(struct snapshot *snapshot)
{
	snapshot->caches = kmem_grow(snapshot->caches, snapshot->count, &snapshot->room, sizeof(*snapshot->caches));
	struct info_cache *cache = &snapshot->caches[snapshot->count++];
	memset(cache, 0, sizeof(*cache));
	return cache;
}

struct km_group_stats *snapshot_grow_groups(struct snapshot *snapshot)
{
	snapshot->groups = kmem_grow(snapshot->groups, snapshot->group_count, &snapshot->group_room,
				     sizeof(*snapshot->groups));
	snapshot->group_at = kmem_grow(snapshot->group_at, snapshot->group_count, &snapshot->group_at_room,
				       sizeof(*snapshot->group_at));
	snapshot->group_at[snapshot->group_count] = (struct info_group_at){ .address = NULL };
	struct km_group_stats *group = &snapshot->groups[snapshot->group_count++];
	memset(group, 0, sizeof(*group));
	return group;
}

void snapshot_clear(struct snapshot *snapshot)
{
	snapshot_clear_extents(snapshot);
	for (size_t i = 0; i < snapshot->count; i++)
		free(snapshot->caches[i].full);
	free(snapshot->caches);
	free(snapshot->groups);
	free(snapshot->group_at);
	info_source_free(snapshot->source);
	*snapshot = (struct snapshot){ .by_page = snapshot->by_page, .in_full = snapshot->in_full,
				       .by_one = snapshot->by_one };
}

/* Read the groups of one root, with separate attempts, because groups and caches change independently. */
static enum info_result read_groups(struct target *target, struct info_root *root, struct snapshot *snapshot)
{
	size_t before = snapshot->group_count;
	enum info_result result = INFO_TORN;

	for (unsigned i = 0; i < ATTEMPTS && result == INFO_TORN; i++) {
		if (i)
			usleep(1000);
		snapshot->group_count = before;
		result = walk_groups(target, root, snapshot);
	}
	if (result != INFO_TORN)
		return result;
	snapshot->groups_partly = true;
	return INFO_OK;
}

/* Take a snapshot once. All attempts together have one budget of time, until *end_ms. */
static enum info_result try_once(pid_t pid, bool lenient, uint64_t *end_ms, struct snapshot *snapshot)
{
	struct target target = { .pid = target_thread(pid), .budget = { .end_ms = *end_ms } };
	struct info_root *roots = kmem_need(calloc(INFO_MAX_ROOTS, sizeof(*roots)));	/* too large for a stack */

	target_see(&target);
	target_budget(&target);
	*end_ms = target.budget.end_ms;
	size_t count = target_roots_in_use(&target, roots);
	enum info_result result = count ? INFO_OK : target.result;

	snapshot_clear(snapshot);
	snapshot->pid = (unsigned)pid;
	snapshot->thread = (unsigned)target.pid;
	memcpy(snapshot->version, target.version, sizeof(snapshot->version));
	for (size_t i = 0; i < count && (result == INFO_OK || result == INFO_PARTLY); i++) {
		size_t caches = snapshot->count, groups_before = snapshot->group_count;
		enum info_result one = walk_root(&target, &roots[i], lenient, snapshot);

		if (one == INFO_OK || one == INFO_PARTLY) {
			enum info_result groups = read_groups(&target, &roots[i], snapshot);

			one = groups == INFO_OK ? one : groups;
		}
		for (; caches < snapshot->count; caches++)
			snapshot->caches[caches].root = (unsigned)i;
		for (; groups_before < snapshot->group_count; groups_before++)
			snapshot->group_at[groups_before].root = (unsigned)i;
		if (one != INFO_OK)
			result = one;
	}
	/* A part of the data may be of another program. */
	if ((result == INFO_OK || result == INFO_PARTLY) && !target_is_same(&target))
		result = INFO_TORN;
	if (snapshot->by_one && (result == INFO_OK || result == INFO_PARTLY))
		snapshot->source = info_source_make(&target, roots, count);
	else
		target_let_go(&target);
	free(roots);
	return result;
}

enum info_result info_of_process(pid_t pid, struct snapshot *snapshot)
{
	enum info_result result = INFO_TORN;
	uint64_t end_ms = 0;

	info_invalid_why = NULL;
	for (unsigned i = 0; i < ATTEMPTS && result == INFO_TORN; i++) {
		if (i)
			usleep(1000);
		result = try_once(pid, i == ATTEMPTS - 1, &end_ms, snapshot);
	}
	/* Observers get no numbers of pages, and no struct info_full. */
	if (result != INFO_DENIED || snapshot->in_full || snapshot->by_page)
		return result;
	return info_of_observed(pid, snapshot);
}

/* ------------------------------------------------------------------ one process, or one file */

int info_complain(const char *command, pid_t pid, enum info_result result, const char *version)
{
	switch (result) {
	case INFO_OK:
		return 0;
	case INFO_PARTLY:
		return kmem_failed(1, command,
				   "%d: caches or groups are created and destroyed too fast: some are missing", pid);
	case INFO_GONE:
		if (access("/proc/self", F_OK) != 0)
			return kmem_failed(1, command, "%d: /proc is not mounted, and no process can be found", pid);
		return kmem_failed(1, command, "%d: no such process, or it has ended", pid);
	case INFO_DENIED:
		return kmem_failed(1, command, "%d: not permitted to read its memory (not yours, or "
				   "kernel.yama.ptrace_scope is set: try as root)", pid);
	case INFO_SILENT:
		return kmem_failed(1, command,
				   "%d: the process did not answer its observer in %u s: it answers at its next miss "
				   "(with observer_thread:1 always)", pid,
				   info_patience_ms / 1000);
	case INFO_NONE:
		return kmem_failed(1, command, "%d: no libkmem in this process", pid);
	case INFO_OTHER:
		return kmem_failed(1, command,
				   "%d: runs libkmem %s, whose record this kmem cannot read: use the kmem of the "
				   "same libkmem", pid, version);
	default:
		return kmem_failed(1, command, "%d: its record is invalid: %s", pid,
				   info_invalid_why ?: "its data is inconsistent");
	}
}

int info_errno(enum info_result result)
{
	switch (result) {
	case INFO_OK:
	case INFO_PARTLY:
		return 0;
	case INFO_GONE:
		return ESRCH;
	case INFO_DENIED:
		return EACCES;
	case INFO_NONE:
		return ENODEV;
	case INFO_OTHER:
		return EPROTO;
	default:
		return EIO;
	}
}

/* Returns: INFO_PARTLY only if caches or groups shown in this style are missing. */
static enum info_result judge(enum info_result result, enum info_style style, const struct snapshot *snapshot)
{
	bool groups = style >= INFO_TREE;

	if (result == INFO_PARTLY && groups)
		result = INFO_OK;
	return result == INFO_OK && snapshot->groups_partly && (groups || style == INFO_JSON) ? INFO_PARTLY : result;
}

static int show(const struct snapshot *snapshot, enum info_style style, const struct info_memory *memory)
{
	int error = info_print(snapshot, style, memory);

	return error ? kmem_failed(1, "info", "writing: %s", strerror(error)) : 0;
}

static int of_process(pid_t pid, enum info_style style)
{
	struct snapshot snapshot = { 0 };
	struct info_memory memory = { .told = false };
	enum info_result result = style == INFO_MEMORY ? info_of_process_and_memory(pid, &snapshot, &memory) :
				  info_of_process(pid, &snapshot);
	int status = 0;

	if (result == INFO_OK || result == INFO_PARTLY)
		status = show(&snapshot, style, &memory);
	status = status ?: info_complain("info", pid, judge(result, style, &snapshot), snapshot.version);
	snapshot_clear(&snapshot);
	info_memory_clear(&memory);
	return status;
}

static int of_file(const char *path, enum info_style style)
{
	struct snapshot snapshot = { 0 };
	int status = info_of_file(path, &snapshot) ? show(&snapshot, style, NULL) : 1;

	snapshot_clear(&snapshot);
	return status;
}

/* ------------------------------------------------------------------ all processes */

bool info_is_number(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits && !text[digits] && digits < 10;
}

static int by_number(const struct dirent **a, const struct dirent **b)
{
	return atoi((*a)->d_name) - atoi((*b)->d_name);
}

static int is_process(const struct dirent *entry)
{
	return info_is_number(entry->d_name);
}

static bool is_ours(const char *pid)
{
	char path[300];
	struct stat stat_of;

	snprintf(path, sizeof(path), "/proc/%s", pid);
	return geteuid() == 0 || (stat(path, &stat_of) == 0 && stat_of.st_uid == geteuid());
}

pid_t *info_own_processes(size_t *count)
{
	struct dirent **entries;
	int found = scandir("/proc", &entries, is_process, by_number);

	*count = 0;
	/* A mounted /proc has at least this process. */
	if (found == 0) {
		free(entries);
		errno = ENODATA;
	}
	if (found <= 0)
		return NULL;
	pid_t *pids = kmem_need(calloc((size_t)found + 1, sizeof(*pids)));
	for (int i = 0; i < found; i++) {
		if (atoi(entries[i]->d_name) != getpid() && is_ours(entries[i]->d_name))
			pids[(*count)++] = atoi(entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return pids;
}

static bool is_called(pid_t pid, const char *name)
{
	char path[64], comm[64], file[PATH_MAX];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	ssize_t length = readlink(path, file, sizeof(file) - 1);
	file[length > 0 ? length : 0] = '\0';
	info_process_name((unsigned)pid, comm);
	return !strcmp(comm, name) || (strrchr(file, '/') && !strcmp(strrchr(file, '/') + 1, name));
}

pid_t *info_processes_called(const char *name, size_t *count)
{
	size_t kept = 0;
	pid_t *pids = info_own_processes(count);

	for (size_t i = 0; pids && i < *count; i++)
		if (is_called(pids[i], name) && !target_has_ended(pids[i]))
			pids[kept++] = pids[i];
	*count = kept;
	return pids;
}

char *info_process(const char *command, char *word, bool or_file)
{
	char list[512] = "", *number;
	size_t count, length = 0;

	if (info_is_number(word) || strchr(word, '/') || (or_file && !access(word, F_OK)))
		return word;
	pid_t *pids = info_processes_called(word, &count);
	for (size_t i = 0; i < count && length < sizeof(list) - 16; i++)
		length += (size_t)snprintf(list + length, sizeof(list) - length, i ? ", %d" : "%d", (int)pids[i]);
	free(pids);
	if (count > 1)
		exit(kmem_failed(1, command, "%s: %zu processes have this name; give one of the numbers "
					     "%s", word, count, list));
	number = kmem_need(strdup(list));
	return count ? number : word;
}

int info_complain_of_all(const char *command, int error)
{
	return kmem_failed(1, command, "/proc: %s", error == ENODATA ? "not mounted, or without processes" :
			   strerror(error));
}

static int of_all(enum info_style style)
{
	struct snapshot snapshot = { 0 };
	size_t count;
	pid_t *pids = info_own_processes(&count);

	if (!pids)
		return info_complain_of_all("info", errno);
	struct info_list list = info_list_begin(style);

	/* A list of all processes does not wait long for one observed process. */
	info_patience_ms = 300;
	for (size_t i = 0; i < count; i++) {
		enum info_result result = info_apart(pids[i], &snapshot, NULL);

		if (info_is_invalid(result))
			info_complain("info", pids[i], result, snapshot.version);
		if (style >= INFO_TREE && (result == INFO_OTHER || !snapshot.group_count))
			continue;
		if (result == INFO_OK || result == INFO_PARTLY || result == INFO_OTHER)
			info_list_row(&list, &snapshot, result == INFO_OTHER);
	}
	free(pids);
	snapshot_clear(&snapshot);
	int error = info_list_end(&list);
	return error ? kmem_failed(1, "info", "writing: %s", strerror(error)) : 0;
}

/* ------------------------------------------------------------------ the command */

struct wanted {
	bool json, memory, slabinfo, memcg, files;
};

/* Parse the options. Each option may be used once, and conflicting options end the command. */
static struct wanted parse(int argc, char **argv)
{
	static const struct option known[] = {
		{ "json", no_argument, NULL, 'j' }, { "memory", no_argument, NULL, 'm' },
		{ "slabinfo", no_argument, NULL, 's' },
		{ "memcg", no_argument, NULL, 'g' }, { "files", no_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	struct wanted wanted = { false };
	int code;

	while ((code = kmem_next_option("info", usage_text, argc, argv, ":", known)) != -1) {
		bool *flag = code == 'j' ? &wanted.json : code == 'm' ? &wanted.memory :
			     code == 's' ? &wanted.slabinfo : code == 'g' ? &wanted.memcg : &wanted.files;

		if (*flag)
			kmem_usage("info", "%s twice", argv[optind - 1]);
		*flag = true;
	}
	if (wanted.json + wanted.memory + wanted.slabinfo + wanted.files > 1)
		kmem_usage("info", "give only one of --json, --memory, --slabinfo and --files");
	if ((wanted.memory || wanted.slabinfo) && wanted.memcg)
		kmem_usage("info", "give only one of --%s and --memcg", wanted.memory ? "memory" : "slabinfo");
	if (wanted.files && !wanted.memcg)
		kmem_usage("info", "--files needs --memcg");
	return wanted;
}

/* Choose the style. one: a single process or file. The default is INFO_MEMORY on a terminal, and INFO_SLABINFO for
 * programs. */
static enum info_style style_of(struct wanted wanted, bool one)
{
	if (wanted.memcg)
		return wanted.files ? INFO_FILES : wanted.json ? INFO_TREE_JSON : INFO_TREE;
	if (wanted.json)
		return INFO_JSON;
	return wanted.memory || (one && !wanted.slabinfo && isatty(STDOUT_FILENO)) ? INFO_MEMORY : INFO_SLABINFO;
}

int cmd_info(int argc, char **argv)
{
	struct wanted wanted = parse(argc, argv);
	enum info_style style = style_of(wanted, argc > optind);

	if (argc - optind > 1)
		kmem_usage("info", "too many arguments: give one process or file");
	if (optind < argc)
		argv[optind] = info_process("info", argv[optind], true);
	if (optind < argc)
		return info_is_number(argv[optind]) ? of_process(atoi(argv[optind]), style) :
						 of_file(argv[optind], style);
	if (wanted.memory || wanted.slabinfo || wanted.files)
		kmem_usage("info", "--%s: a process or a file is missing",
			   wanted.memory ? "memory" : wanted.slabinfo ? "slabinfo" : "files");
	return of_all(style);
}
