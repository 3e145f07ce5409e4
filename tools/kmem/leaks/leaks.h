/*
 * leaks.h: parts shared by `kmem leaks` and `kmem who`: the process or core dump to read, and the print of a stack.
 */
#ifndef KMEM_COMMAND_LEAKS_H
#define KMEM_COMMAND_LEAKS_H

#include "leaks/heap.h"
#include "leaks/maps.h"

/* A process, by number, or a core dump. subject_open() returns false after one line on stderr for the subcommand. */
struct subject {
	const char *command, *name;
	pid_t pid;			/* 0: a core dump */
	struct target target;
	struct maps maps;
};
bool subject_open(struct subject *subject, const char *command, const char *name);
/* Load all objects. Returns: the exit status; not 0 after one line on stderr. */
int subject_load(struct subject *subject, struct heap *heap);
/* Check for the end or an exec of the process since subject_open(). The data read is invalid then, and must not be
 * reported. Returns: 0, or the exit status after one line on stderr. */
int subject_is_other(const struct subject *subject);
/* Print one line with the reason of a failure. Returns: the exit status. */
int subject_complain(struct subject *subject);

/* Print each frame on one line as in reports, FILE+0xOFFSET. `kmem symbols` translates these lines to names. */
void print_stack(const struct maps *maps, const uintptr_t *frame, unsigned count);

#endif
