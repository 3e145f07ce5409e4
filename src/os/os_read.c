/*
 * os_read.c: the system's files as text, and parts of other files. Invariant: errno does not change, and no
 * descriptor stays open.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "die.h"
#include "os.h"

static long answer_of(long result)
{
	return result < 0 ? -errno : result;
}

/* Read again after an interruption by a signal. */
static long read_all(long fd, char *to, size_t bytes)
{
	size_t length = 0;

	while (length < bytes) {
		const long count = answer_of(syscall(SYS_read, fd, to + length, bytes - length));

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
	const int saved_errno = errno;
	long result = -EMFILE;

	if (!km_os_fault || !km_os_fault("read"))
		result = answer_of(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
	const long fd = result;
	if (fd >= 0 && offset)
		result = answer_of(syscall(SYS_lseek, fd, offset, SEEK_SET));
	if (result >= 0)
		result = read_all(fd, data, bytes);
	errno = saved_errno;
	if (fd >= 0)
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
