/*
 * os_filter.c: services of os.h for reports: a filter program for the output, and the path of this program.
 * Invariant: the filter is a child unknown to the program. The child's end sends no signal, and the child waits for
 * no lock of the library.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "os_call.h"

#define CALL(...) KM_CALL(syscall(__VA_ARGS__))

int km_os_memory_file(const char *name)
{
	if (km_os_is_shut() || km_call_fault("memory file"))
		return -EPERM;
	return (int)CALL(SYS_memfd_create, name, 3u);	/* MFD_CLOEXEC, MFD_ALLOW_SEALING */
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

/* Become the filter program. Context: the child, with a copy of this thread only. */
static _Noreturn void become(const char *command, const char *word, int in, int out)
{
	const char *arguments[] = { command, word, NULL }, *environment[] = { NULL };
	/* Move the descriptors away from their target numbers. */
	int from = (int)CALL(SYS_fcntl, in, F_DUPFD_CLOEXEC, 3), to = (int)CALL(SYS_fcntl, out, F_DUPFD_CLOEXEC, 3);

	if (from >= 0 && to >= 0 && CALL(SYS_dup3, from, 0, 0) == 0 && CALL(SYS_dup3, to, 1, 0) == 1 &&
	    CALL(SYS_dup3, to, 2, 0) == 2)
		CALL(SYS_execve, command, arguments, environment);
	for (;;)
		CALL(SYS_exit_group, from >= 0 && to >= 0 ? -km_os_copy(from, to) : 1);
}

int km_os_filter(const char *command, const char *word, int in, int out)
{
	int status = 0;
	long child, ended;

	if (km_os_is_shut() || CALL(SYS_lseek, in, 0l, SEEK_SET) < 0 || km_call_fault("filter"))
		return -EPERM;
	/* Clone without a signal at the child's end. The order of the other arguments differs by architecture, without
	 * effect here. */
	child = CALL(SYS_clone, 0ul, 0ul, 0ul, 0ul, 0ul);
	if (!child)
		become(command, word, in, out);
	if (child < 0)
		return (int)child;
	do
		ended = CALL(SYS_wait4, child, &status, __WALL, NULL);
	while (ended == -EINTR);
	/* -ECHILD: the program ignores its children's ends, so there is no status. */
	return ended == -ECHILD || (ended == child && status == 0) ? 0 : -EIO;
}

const char *km_os_program_path(char *text, size_t bytes)
{
	static const char self[] = "/proc/self/exe", deleted[] = " (deleted)";
	const char *name = (const char *)getauxval(AT_EXECFN);
	struct stat named, own;
	long length;

	if (name && (name[0] == '/' || km_os_is_shut()))
		return name;
	bool both = name && !CALL(SYS_newfstatat, AT_FDCWD, name, &named, 0) &&
		    !CALL(SYS_newfstatat, AT_FDCWD, self, &own, 0);
	if (both && named.st_dev == own.st_dev && named.st_ino == own.st_ino)
		return name;
	length = CALL(SYS_readlinkat, AT_FDCWD, self, text, bytes - 1);
	if (length <= 0)
		return name ?: self;
	text[length] = '\0';
	/* Remove " (deleted)" from the name: another file may have replaced the program's file. */
	char *end = text + length - km_min((size_t)length, sizeof(deleted) - 1);
	if (__builtin_strcmp(end, deleted) == 0)
		*end = '\0';
	return text;
}
