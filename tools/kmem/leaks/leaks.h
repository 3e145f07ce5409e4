/*
 * leaks.h: what `kmem leaks` and `kmem who` share: how their target is named, and how a stack is printed.
 */
#ifndef KMEM_COMMAND_LEAKS_H
#define KMEM_COMMAND_LEAKS_H

#include "leaks/heap.h"
#include "leaks/maps.h"

/* A process, by its number, or a core dump. False: one line was said, of that subcommand. */
struct subject {
	const char *command, *name;
	pid_t pid;			/* 0: a dump */
	struct target target;
	struct maps maps;
};
bool subject_open(struct subject *subject, const char *command, const char *name);
/* All of its objects; returns the exit status: where it is not 0, one line was said. */
int subject_load(struct subject *subject, struct heap *heap);
/* Did it end, or become another program, since it was opened? What was read is told of nobody then: one line says so;
 * the status, or 0. */
int subject_is_other(const struct subject *subject);
/* One line that says why; the status. */
int subject_complain(struct subject *subject);

/* A frame as reports have it, FILE+0xOFFSET, which `kmem symbols` names; each on a line of its own. */
void print_stack(const struct maps *maps, const uintptr_t *frame, unsigned count);

#endif
