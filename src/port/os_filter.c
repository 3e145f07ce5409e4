/*
 * os_filter.c: the services of os.h by which what the library prints goes through another program first. Invariant:
 * the other one is a child that nobody hears of: it sends no signal when it ends, and waits for nothing of ours.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bits.h"
#include "os.h"

/* Nothing here changes errno. */
#define CALL(...)                                                                                  \
	({                                                                                         \
		int call_errno = errno;                                                            \
		long call_result = syscall(__VA_ARGS__);                                           \
		call_result = call_result < 0 ? -errno : call_result;                              \
		errno = call_errno;                                                                \
		call_result;                                                                       \
	})

int km_os_memory_file(const char *name)
{
	if (km_os_is_shut() || (km_os_fault && km_os_fault("memory file")))
		return -EPERM;
	return (int)CALL(SYS_memfd_create, name, 1u);		/* MFD_CLOEXEC */
}

int km_os_copy(int in, int out)
{
	char text[4096];
	long bytes, error = CALL(SYS_lseek, in, 0l, SEEK_SET);

	while (!error && (bytes = CALL(SYS_read, in, text, sizeof(text)))) {
		if (bytes != -EINTR)
			error = bytes < 0 ? bytes : km_os_write(out, text, (size_t)bytes);
	}
	return (int)error;
}

/* In the child, which has this thread alone. */
static _Noreturn void become(const char *command, const char *word, int in, int out)
{
	const char *arguments[] = { command, word, NULL }, *environment[] = { NULL };
	/* Away from the numbers that they are to have. */
	int from = (int)CALL(SYS_fcntl, in, F_DUPFD_CLOEXEC, 3), to = (int)CALL(SYS_fcntl, out, F_DUPFD_CLOEXEC, 3);

	if (from >= 0 && to >= 0 && CALL(SYS_dup3, from, 0, 0) == 0 && CALL(SYS_dup3, to, 1, 0) == 1 &&
	    CALL(SYS_dup3, to, 2, 0) == 2)
		CALL(SYS_execve, command, arguments, environment);
	for (;;)
		CALL(SYS_exit_group, 127);
}

int km_os_filter(const char *command, const char *word, int in, int out)
{
	int status = 0;
	long child, ended;

	if (km_os_is_shut() || CALL(SYS_lseek, in, 0l, SEEK_SET) < 0 || (km_os_fault && km_os_fault("filter")))
		return -EPERM;
	/* Without a signal for its end; the order of the other arguments, which differs, does not matter. */
	child = CALL(SYS_clone, 0ul, 0ul, 0ul, 0ul, 0ul);
	if (!child)
		become(command, word, in, out);
	if (child < 0)
		return (int)child;
	do
		ended = CALL(SYS_wait4, child, &status, __WALL, NULL);
	while (ended == -EINTR);
	return ended == child && status == 0 ? 0 : -EIO;
}

unsigned km_os_threads(void)
{
	static const char field[] = "\nThreads:\t";
	char text[4096];
	unsigned threads = 0;

	if (km_os_is_shut() || km_os_read("/proc/self/status", text, sizeof(text)) < 0)
		return 0;
	const char *at = __builtin_strstr(text, field);
	for (at = at ? at + sizeof(field) - 1 : ""; *at >= '0' && *at <= '9'; at++)
		threads = threads * 10 + (unsigned)(*at - '0');
	return threads;
}
