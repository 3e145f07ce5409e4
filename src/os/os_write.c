/*
 * os_write.c: writing to a peer without a reader, or under a limit of file size. Invariant: the thread's signal
 * mask and pending signals are the same before and after.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "die.h"
#include "os_call.h"

/*
 * Write with SIGPIPE and SIGXFSZ blocked. The signal of a write is directed at the thread, and pending when the
 * write returns. A signal pending before the write stays pending.
 */
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
