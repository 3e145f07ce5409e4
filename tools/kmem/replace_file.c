/*
 * replace_file.c: replace a file atomically. Invariants: a reader sees the old file or the whole new file at all
 * times, however the command ends. No other file is written to, whatever files other users create in the directory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"

/* Name of the temporary file; NULL: none. A signal that ends the command removes the file. */
static char *volatile unfinished;

static void take_away(int number)
{
	if (unfinished)
		unlink(unfinished);
	raise(number);
}

/* Handle the ending signals. An ignored signal stays ignored. */
static void catch_ends(void)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGTERM };
	struct sigaction catch = { .sa_handler = take_away, .sa_flags = (int)SA_RESETHAND }, before;

	for (size_t i = 0; i < KMEM_COUNT(ends); i++)
		if (!sigaction(ends[i], NULL, &before) && before.sa_handler == SIG_DFL)
			sigaction(ends[i], &catch, NULL);
}

/* Fill the temporary file and close `fd`. The contents are on disk (fsync) before the file is renamed.
 * Returns: 0 or an errno. */
static int fill_whole(int fd, int (*fill)(int fd, void *arg), void *arg)
{
	mode_t mask = umask(0);

	umask(mask);
	int error = fill(fd, arg);
	error = error ?: fchmod(fd, 0666 & ~mask) ? errno : 0;
	error = error ?: fsync(fd) ? errno : 0;
	return close(fd) && !error ? errno : error;
}

/* Write a temporary file beside `path`, then rename the complete file to `path`. Returns: 0 or an errno. */
static int replace(const char *path, int (*fill)(int fd, void *arg), void *arg)
{
	char *name;
	int error;

	if (asprintf(&name, "%s.XXXXXX", path) < 0)
		kmem_need(NULL);
	catch_ends();
	int fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0) {
		error = errno;
	} else {
		unfinished = name;
		error = fill_whole(fd, fill, arg);
		error = error ?: rename(name, path) ? errno : 0;
		if (error)
			unlink(name);
	}
	unfinished = NULL;
	free(name);
	return error;
}

bool kmem_is_replaceable(const char *command, const char *path)
{
	struct stat status;

	/* A device, a pipe or a symbolic link must not be replaced by a regular file. */
	if (lstat(path, &status) || S_ISREG(status.st_mode))
		return true;
	kmem_failed(1, command, "%s: not a regular file, and not replaced", path);
	return false;
}

int kmem_replace(const char *command, const char *path, int (*fill)(int fd, void *arg), void *arg)
{
	if (!kmem_is_replaceable(command, path))
		return 1;
	int error = replace(path, fill, arg);
	return error ? kmem_failed(1, command, "%s: %s", path, strerror(error)) : 0;
}
