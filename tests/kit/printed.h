/* printed.h: reads back the text that the library writes to a descriptor. */
#ifndef TESTS_KIT_PRINTED_H
#define TESTS_KIT_PRINTED_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static inline int open_file(void)
{
	FILE *file = tmpfile();

	NEED(file);
	return fileno(file);
}

/*
 * Reads the whole file into text, and closes the descriptor. Requires: the file is not empty, and shorter than the
 * buffer.
 */
static inline void read_back(int fd, char *text, size_t bytes)
{
	ssize_t length = pread(fd, text, bytes - 1, 0);

	NEED(length > 0 && (size_t)length < bytes - 1);
	text[length] = '\0';
	NEED(strlen(text) == (size_t)length);
	close(fd);
}

#endif
