/*
 * subject.c: opens the process or core dump named on the command line, reports read errors, and prints stacks.
 * Users: `kmem leaks` and `kmem who`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/core_dump.h"
#include "leaks/leaks.h"

bool subject_open(struct subject *subject, const char *command, const char *name)
{
	static struct info_root roots[INFO_MAX_ROOTS];

	*subject = (struct subject){ .command = command, .name = name };
	if (!info_is_number(name)) {
		subject->target.core = core_open(command, name);
		if (subject->target.core)
			subject->maps = subject->target.core->maps;
		return subject->target.core;
	}
	subject->pid = atoi(name);
	subject->target.pid = target_thread(subject->pid);
	target_see(&subject->target);
	if (!maps_of_process(subject->target.pid, &subject->maps))
		subject->target.result = errno == EACCES || errno == EPERM ? INFO_DENIED : INFO_GONE;
	else if (target_roots(&subject->target, roots))
		return true;
	subject_complain(subject);
	return false;
}

int subject_is_other(const struct subject *subject)
{
	struct target target = subject->target;

	return target_is_same(&target) ? 0 : kmem_failed(1, subject->command,
							 "%d: the process has ended, or runs another program "
							 "now", subject->pid);
}

int subject_complain(struct subject *subject)
{
	if (!subject->target.core)
		return subject_is_other(subject) ?:
		       info_complain(subject->command, subject->pid, subject->target.result, subject->target.version);
	if (subject->target.core->cut)
		return kmem_failed(1, subject->command, "%s: the dump is cut off, and lacks metadata of libkmem; "
							"raise ulimit -c",
				   subject->name);
	return kmem_failed(1, subject->command, subject->target.result == INFO_OTHER ?
			   "%s: has libkmem of another build; use the kmem of the same "
			   "build" : subject->target.result == INFO_NONE ?
			   "%s: has no libkmem" : subject->target.result == INFO_INVALID ?
			   "%s: its record is invalid" : "%s: the dump lacks metadata of libkmem", subject->name);
}

int subject_load(struct subject *subject, struct heap *heap)
{
	return heap_load(&subject->target, heap) ? subject_is_other(subject) : subject_complain(subject);
}

/* Prints a path in the format of reports: a space or backslash becomes an octal escape. */
static void print_path(const char *path)
{
	char *name = info_printable_copy(path);

	for (const char *at = name; *at; at++)
		if (*at == ' ' || *at == '\\')
			printf("\\%03o", (unsigned char)*at);
		else
			putchar(*at);
	free(name);
}

void print_stack(const struct maps *maps, const uintptr_t *frame, unsigned count)
{
	for (unsigned i = 0; i < count && frame[i]; i++) {
		const struct map *map = maps_find(maps, frame[i]);

		if (!map || !map->name || !map->file) {
			printf("        0x%lx\n", (unsigned long)frame[i]);
			continue;
		}
		char *file = maps_file(maps, map);
		printf("        ");
		print_path(file);
		printf("+0x%lx\n", (unsigned long)(frame[i] - maps_load(maps, map)));
		free(file);
	}
}
