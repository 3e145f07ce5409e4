/*
 * descriptors.h: descriptors 0, 1 and 2 are open, whoever started the test: one that was closed is /dev/null. What a
 * test opens has another number then: a pipe whose reading end is 2 loses that end by dup2(pipe's other end, 2). It is
 * done before the library's start, which looks at 2. A test of closed descriptors defines DESCRIPTORS_AS_STARTED first.
 */
#ifndef TESTS_KIT_DESCRIPTORS_H
#define TESTS_KIT_DESCRIPTORS_H

#ifndef DESCRIPTORS_AS_STARTED
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void open_standard_descriptors(void)
{
	int before = errno;

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			_exit(1);
	errno = before;
}

__attribute__((section(".preinit_array"), used)) static void (*descriptors_start)(void) = open_standard_descriptors;
#endif

#endif
