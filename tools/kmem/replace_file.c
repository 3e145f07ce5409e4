/*
 * replace_file.c: a file that a command writes. Invariants: it is the old one or all of the new one, whoever reads it
 * meanwhile and however this ends; no other file is written to, whatever others have made in its directory.
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
#include "base/cc.h"

/* The file of another name, while there is one: a signal that ends the command takes it away. */
static char *volatile unfinished;

static void take_away(int number)
{
	if (unfinished)
		unlink(unfinished);
	raise(number);
}

/* A signal that is ignored stays so. */
static void catch_ends(void)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGTERM };
	struct sigaction catch = { .sa_handler = take_away, .sa_flags = (int)SA_RESETHAND }, before;

	for (size_t i = 0; i < km_array_count(ends); i++)
		if (!sigaction(ends[i], NULL, &before) && before.sa_handler == SIG_DFL)
			sigaction(ends[i], &catch, NULL);
}

/* 0 or an errno. What is in the file is on the disk before the file has the old one's name. */
static int fill_whole(int fd, int (*fill)(int fd, void *arg), void *arg)
{
	mode_t mask = umask(0);

	umask(mask);
	int error = fill(fd, arg);
	error = error ?: fchmod(fd, 0666 & ~mask) ? errno : 0;
	error = error ?: fsync(fd) ? errno : 0;
	return close(fd) && !error ? errno : error;
}

/* A file of another name takes the place of the old one when all is in it. */
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

	/* A device, a pipe or a link is not to become a file. */
	if (lstat(path, &status) || S_ISREG(status.st_mode))
		return true;
	kmem_failed(1, command, "%s: is no regular file, and is not replaced", path);
	return false;
}

int kmem_replace(const char *command, const char *path, int (*fill)(int fd, void *arg), void *arg)
{
	if (!kmem_is_replaceable(command, path))
		return 1;
	int error = replace(path, fill, arg);
	return error ? kmem_failed(1, command, "%s: %s", path, strerror(error)) : 0;
}
