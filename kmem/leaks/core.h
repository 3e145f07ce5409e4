/*
 * core.h: a core dump's memory, registers and files. Invariant: nothing of the file is believed: what is read lies in
 * it.
 */
#ifndef KMEM_COMMAND_CORE_H
#define KMEM_COMMAND_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leaks/maps.h"

struct core {
	const char *bytes;
	size_t length;
	struct maps maps;		/* by address, as the dump has them; of what it has in it */
	uint64_t *offset;		/* of each: where it is in the file */
	uint64_t (*registers)[32];	/* of each thread; those that an architecture has not are 0 */
	size_t threads;
	unsigned pid;
};

/* NULL, and one line on stderr, of that subcommand. */
const struct core *core_open(const char *command, const char *path);
bool core_read(const struct core *core, void *to, uintptr_t from, size_t bytes);

#endif
