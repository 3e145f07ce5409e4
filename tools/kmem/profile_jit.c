/*
 * profile_jit.c: names of functions generated at run time (JIT), from the map written by the program for perf:
 * /tmp/perf-PID.map, a line "START SIZE NAME" for each function. Invariant: the file is untrusted. The file must
 * belong to the user of the process, must be no link, and is read up to MOST_BYTES.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"
#include "file_helper.h"
#include "profile_data.h"

#define MOST_BYTES	((off_t)64 << 20)
#define MOST_LINES	1000000u
#define MOST_OVERLAPS	64u		/* functions once at the same address, old and new */

static struct jit {
	uint64_t start, end;
	char *name;
	size_t number;			/* line number; a later line is newer code */
} *known;
static size_t count, room;

static int by_start(const void *a, const void *b)
{
	const struct jit *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->number > y->number) - (x->number < y->number);
}

/* Returns: the process id in the process's own PID namespace; a process in a container names the file by that id. */
static pid_t own_number(pid_t pid)
{
	char path[64], line[256], *last;
	pid_t number = pid;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "NSpid:", 6) && (last = strrchr(line, '\t')))
			number = atoi(last);
	if (status)
		fclose(status);
	return number;
}

static FILE *open_map(pid_t pid)
{
	struct stat process;
	struct opened map;
	char path[128];

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &process))
		return NULL;
	snprintf(path, sizeof(path), "/proc/%d/root%s/perf-%d.map", (int)pid, "/tmp", (int)own_number(pid));
	int file = opened_file(path, false, MOST_BYTES, &map);
	if (file < 0)
		return NULL;
	if (map.status.st_uid != process.st_uid || map.status.st_size > MOST_BYTES) {
		close(file);
		return NULL;
	}
	return fdopen(file, "r");
}

static void add_line(char *line)
{
	unsigned long long start, bytes;
	int at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%llx %llx %n", &start, &bytes, &at) < 2 || !at || !line[at] || !bytes ||
	    bytes > UINT64_MAX - start)
		return;
	known = kmem_grow(known, count, &room, sizeof(*known));
	char *name = kmem_need(strndup(line + at, 200));
	info_printable(name, name, strlen(name) + 1);
	known[count] = (struct jit){ start, start + bytes, name, count };
	count++;
}

static void load(pid_t pid)
{
	FILE *map = open_map(pid);
	char *line = NULL;
	size_t line_room = 0;
	off_t read = 0;

	/* The file may grow during the loop. */
	while (map && count < MOST_LINES && read < MOST_BYTES) {
		ssize_t bytes = getline(&line, &line_room, map);

		if (bytes <= 0)
			break;
		read += bytes;
		add_line(line);
	}
	free(line);
	if (map)
		fclose(map);
	if (count)
		qsort(known, count, sizeof(*known), by_start);
}

const char *profile_jit_name(const struct profile *profile, uint64_t pc)
{
	static bool loaded;
	const struct jit *found = NULL;
	size_t low = 0, high;

	if (!loaded)
		load(profile->pid);
	loaded = true;
	for (high = count; low < high;) {
		size_t middle = low + (high - low) / 2;

		if (known[middle].start <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i > 0 && low - i < MOST_OVERLAPS; i--)
		if (pc < known[i - 1].end && (!found || known[i - 1].number > found->number))
			found = &known[i - 1];
	return found ? found->name : NULL;
}
