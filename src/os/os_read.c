/*
 * os_read.c: the system's files as text, and parts of other files. Invariant: errno does not change, and no
 * descriptor stays open.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "die.h"
#include "os_call.h"

/* Read again after an interruption by a signal. */
static long read_all(long fd, char *to, size_t bytes)
{
	size_t length = 0;

	while (length < bytes) {
		const long count = KM_CALL(syscall(SYS_read, fd, to + length, bytes - length));

		if (count < 0 && count != -EINTR)
			return count;
		if (!count)
			break;
		length += count > 0 ? (size_t)count : 0;
		km_debug(length <= bytes, "a read ends in the buffer");
	}
	return (long)length;
}

long km_os_read_part(const char *path, uint64_t offset, void *data, size_t bytes)
{
	long fd = -EMFILE;

	if (!km_call_fault("read"))
		fd = KM_CALL(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return fd;
	long result = offset ? KM_CALL(syscall(SYS_lseek, fd, offset, SEEK_SET)) : 0;
	if (result >= 0)
		result = read_all(fd, data, bytes);
	km_os_close((int)fd);
	return result;
}

long km_os_read(const char *path, char *text, size_t bytes)
{
	const long length = km_os_read_part(path, 0, text, bytes - 1);

	km_debug(length < (long)bytes, "a text has room for its NUL");
	text[km_max(length, 0l)] = '\0';
	return length;
}
