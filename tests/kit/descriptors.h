/*
 * descriptors.h: opens descriptors 0, 1 and 2 on /dev/null if closed at the start. Later descriptors have other
 * numbers: a pipe with reading end 2 would lose the end by dup2(other end, 2). The code runs before the library's
 * start, which checks descriptor 2. A test of closed descriptors must define DESCRIPTORS_AS_STARTED first.
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
