/*
 * file_helper.h: open files named by an inspected program or by a report. Such a file may be on a server that does
 * not answer: a FUSE server, or another machine.
 */
#ifndef KMEM_COMMAND_FILE_HELPER_H
#define KMEM_COMMAND_FILE_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct opened {
	struct stat status;	/* of the named file, not of the copy */
	bool far;		/* file on a server; the descriptor is a copy in memory */
};

/* Open a regular file for reading, at offset 0. At most `most` bytes of a far file are copied. Returns: a descriptor;
 * -1: errno is set. ETIMEDOUT: the server does not answer; a message was printed. */
#define OPENED_ALL SIZE_MAX
int opened_file(const char *path, bool follow, size_t most, struct opened *opened);
/* Stat a file without opening the file for reading. Returns: false: errno is set as above. */
bool opened_look(const char *path, struct opened *opened);
/* After a fork, in the child: forget the parent's process for files; the next call starts another process. */
void opened_forget(void);

#endif
