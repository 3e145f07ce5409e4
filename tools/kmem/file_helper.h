/*
 * file_helper.h: files that others name: a program that is looked at, or a report. They may lie with a server, of
 * FUSE's or on another machine, that does not answer.
 */
#ifndef KMEM_COMMAND_FILE_HELPER_H
#define KMEM_COMMAND_FILE_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct opened {
	struct stat status;	/* of the file itself */
	bool far;		/* it lies with a server: what is opened is a copy in memory */
};

/* A regular file, to be read from its beginning, of one that is far at most so many bytes. -1: errno says why;
 * ETIMEDOUT: nobody answers, which was said. */
#define OPENED_ALL SIZE_MAX
int opened_file(const char *path, bool follow, size_t most, struct opened *opened);
/* What is there, as stat has it. False: as above. */
bool opened_look(const char *path, struct opened *opened);
/* After a fork, in the child: forget the parent's process for files; the next call starts another process. */
void opened_forget(void);

#endif
