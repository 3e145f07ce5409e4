/*
 * os_file.c: the system's files as text, parts of other files, and writing to a peer without a reader, or under a limit
 * of file size. Invariant: errno does not change, no descriptor stays open after a read, and the thread's signal mask
 * and pending signals are the same before and after a write.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "die.h"
#include "os_call.h"

/* Reads a file to its end or to `bytes`; repeats a read that a signal interrupted. */
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

/* Write with SIGPIPE and SIGXFSZ blocked. The signal of a write is directed at the thread, and pending when the write
 * returns. A signal pending before the write stays pending. */
int km_os_write_no_signal(int fd, const void *bytes, size_t count)
{
	const uint64_t failures = 1ul << (SIGPIPE - 1) | 1ul << (SIGXFSZ - 1);
	const struct timespec now = { 0 };
	uint64_t before = 0, pending = 0;

	if (km_os_is_shut() || KM_CALL(syscall(SYS_rt_sigpending, &pending, sizeof(pending))) ||
	    KM_CALL(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &failures, &before, sizeof(failures))))
		return km_os_write(fd, bytes, count);
	int error = km_os_write(fd, bytes, count);
	const uint64_t sent = (error == -EPIPE ? 1ul << (SIGPIPE - 1) : error == -EFBIG ? 1ul << (SIGXFSZ - 1) : 0) &
			      ~pending;
	if (sent)
		KM_CALL(syscall(SYS_rt_sigtimedwait, &sent, NULL, &now, sizeof(sent)));
	KM_CALL(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before)));
	km_debug(error <= 0, "a write ends in an error, or in none");
	return error;
}

int km_os_open_truncated(const char *path)
{
	return (int)KM_CALL(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
}
