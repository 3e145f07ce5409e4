/*
 * core_dump.h: a core dump's memory, registers and files. Invariant: nothing of the file is believed: what is read
 * lies in it.
 */
#ifndef KMEM_COMMAND_CORE_DUMP_H
#define KMEM_COMMAND_CORE_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leaks/maps.h"
#include "leaks/stop_threads.h"

#define CORE_REGISTERS 40u

struct core {
	const char *bytes;
	size_t length;
	/* While notes are read: bytes that still may be, no more than there are in the file; segments that were looked
	 * at for a file's name. */
	uint64_t notes_left;
	size_t named;
	struct maps maps;		/* by address, as the dump has them; of what it has in it */
	uint64_t *offset;		/* of each: where it is in the file */
	struct maps blank;		/* by address: what was mapped and is not in it: never written, or left out */
	struct maps files;		/* by address: what was mapped of files; constants are in no dump */
	struct core_file {
		const char *bytes;	/* NULL: it can't be read */
		size_t length;
		bool opened;
	} *file;			/* of each */
	uint64_t (*registers)[CORE_REGISTERS];	/* of each thread, in the system's order; behind them zeros */
	size_t threads;
	unsigned pid;
	uint64_t cut;			/* bytes of memory cut off by the end of the file */
	uint64_t missing;		/* `cut`, and bytes of writable memory left out of the core */
};

/* NULL, and one line on stderr, of that subcommand. */
const struct core *core_open(const char *command, const char *path);
/* A thread's stack. */
struct stop_stack core_stack(const struct core *core, size_t thread);
bool core_read(const struct core *core, void *to, uintptr_t from, size_t bytes);

#endif
