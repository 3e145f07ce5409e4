/*
 * core_dump.h: a core dump's memory, registers and files. Invariant: no value from the file is trusted: each read
 * stays inside of the file.
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
	/* Used while notes are read: the bytes of notes still allowed, at most the file's length; the count of
	 * segments searched for a file's name. */
	uint64_t notes_left;
	size_t named;
	struct maps maps;		/* by address: memory present in the dump */
	uint64_t *offset;		/* for each of `maps`: offset in the file, bytes */
	struct maps blank;		/* by address: mapped memory not in the dump: never written or left out */
	struct maps files;		/* by address: mappings of files; a dump has no constants */
	struct core_file {
		const char *bytes;	/* NULL: the file can't be read */
		size_t length;
		bool opened;
	} *file;			/* for each of `files` */
	uint64_t (*registers)[CORE_REGISTERS];	/* for each thread, in the system's order; zeros at the end */
	size_t threads;
	unsigned pid;
	uint64_t cut;			/* bytes of memory cut off by the end of the file */
	uint64_t missing;		/* `cut`, and bytes of writable memory left out of the core */
};

/* Open a core dump. Returns: NULL after one line on stderr for the subcommand. */
const struct core *core_open(const char *command, const char *path);
/* Returns: the stack of a thread by index. */
struct stop_stack core_stack(const struct core *core, size_t thread);
bool core_read(const struct core *core, void *to, uintptr_t from, size_t bytes);

#endif
