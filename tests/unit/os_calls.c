/*
 * os_calls: each service of os/os.h on a system that refuses calls: the result is the documented one, and errno is
 * unchanged, also on success. Interrupted calls are repeated. The environment is found before libc knows it, with any
 * neighbours. The calls are wrapped (tests/flags), and each is refused in turn.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kit/check.h"
#include "base/bits.h"
#include "os/os.h"

#define PAGE	((size_t)4096)
#define OTHER	4711			/* no error of the system's */
#define MANY	100u

/* ------------------------------------------------------------------ a system with refusals */

static struct {
	const char *call;		/* NULL: none; a function of libc's, or "syscall" with its number */
	long number;
	int error;			/* 0: reports success, and has no effect */
	unsigned times;
} refused = { "getrlimit", 0, EPERM, MANY };

static bool refuses(const char *call, long number)
{
	if (!refused.call || strcmp(call, refused.call) || number != refused.number || !refused.times)
		return false;
	refused.times--;
	if (refused.error)
		errno = refused.error;
	return true;
}
#define REFUSAL (refused.error ? -1 : 0)

#define WRAP(type, name, parameters, arguments, failure)                                           \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		return refuses(#name, 0) ? (failure) : __real_##name arguments;                    \
	}
WRAP(void *, mmap, (void *p, size_t bytes, int protection, int flags, int fd, off_t at),
     (p, bytes, protection, flags, fd, at), MAP_FAILED)
WRAP(int, munmap, (void *p, size_t bytes), (p, bytes), REFUSAL)
WRAP(int, mprotect, (void *p, size_t bytes, int protection), (p, bytes, protection), REFUSAL)
WRAP(int, madvise, (void *p, size_t bytes, int advice), (p, bytes, advice), REFUSAL)
WRAP(int, getrlimit, (__rlimit_resource_t resource, struct rlimit *limit), (resource, limit), REFUSAL)
WRAP(int, fstat, (int fd, struct stat *stat), (fd, stat), REFUSAL)

/* Each wrapped call has at most six words. */
#define WORDS(last)                                                                                \
	long word[6];                                                                              \
	va_list list;                                                                              \
                                                                                                   \
	va_start(list, last);                                                                      \
	for (int i = 0; i < 6; i++)                                                                \
		word[i] = va_arg(list, long);                                                      \
	va_end(list)

void *__real_mremap(void *p, size_t old, size_t bytes, int flags, ...);
void *__wrap_mremap(void *p, size_t old, size_t bytes, int flags, ...);
void *__wrap_mremap(void *p, size_t old, size_t bytes, int flags, ...)
{
	return refuses("mremap", 0) ? MAP_FAILED : __real_mremap(p, old, bytes, flags);
}

int __real_prctl(int option, ...);
int __wrap_prctl(int option, ...);
int __wrap_prctl(int option, ...)
{
	WORDS(option);
	return refuses("prctl", 0) ? REFUSAL : __real_prctl(option, word[0], word[1], word[2], word[3]);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	WORDS(command);
	return refuses("fcntl", 0) ? REFUSAL : __real_fcntl(fd, command, word[0]);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	WORDS(number);
	return refuses("syscall", number) ? REFUSAL :
	       __real_syscall(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}

/* The statement, with `count` refusals of this call. */
#define SO_OFTEN(function, which, why, count, ...)                                                 \
	do {                                                                                       \
		refused.call = (function);                                                         \
		refused.number = (which);                                                          \
		refused.error = (why);                                                             \
		refused.times = (count);                                                           \
		errno = OTHER;                                                                     \
		__VA_ARGS__;                                                                       \
		int after = errno;                                                                 \
		refused.call = NULL;                                                               \
		CHECK(refused.times < (count), "%s, %ld is not called", function, (long)(which));   \
		CHECK_EQUAL(after, OTHER);                                                         \
	} while (0)
#define REFUSED(function, why, ...) SO_OFTEN(function, 0, why, MANY, __VA_ARGS__)
#define REFUSED_NUMBER(which, why, ...) SO_OFTEN("syscall", which, why, MANY, __VA_ARGS__)
#define ALLOWED(...)                                                                               \
	do {                                                                                       \
		errno = OTHER;                                                                     \
		__VA_ARGS__;                                                                       \
		CHECK_EQUAL(errno, OTHER);                                                         \
	} while (0)

/* ------------------------------------------------------------------ services */

/* The library asks for limits at its start, before main. */
static void asked_at_the_start(void)
{
	CHECK(refused.times < MANY && km_os_address_limit() == SIZE_MAX && !km_os_is_limited());
	refused.call = NULL;
}

/* Asks the system, without a fault. */
static bool is_readable(const char *p)
{
	int ends[2];

	NEED(pipe(ends) == 0);
	bool readable = write(ends[1], p, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return readable;
}

static void guard_and_back(char *p, const char *refused_call, int why)
{
	p[0] = p[PAGE] = 1;
	if (refused_call)
		REFUSED(refused_call, why, CHECK(!km_os_guard(p, PAGE, false)));
	else
		ALLOWED(CHECK(!km_os_guard(p, PAGE, false)));
	CHECK(!is_readable(p) && is_readable(p + PAGE));
	ALLOWED(CHECK(!km_os_unguard(p, PAGE)));
	CHECK(is_readable(p) && p[PAGE] == 1);
	p[0] = 2;
}

/*
 * By a marker in the page table or by protection: an old system refuses the first, and an emulator accepts it
 * without effect. The library remembers the result for the process, so a process of its own tests the
 * emulator's.
 */
static void guarding(char *p)
{
	pid_t child = fork();
	int status;

	if (!child) {
		guard_and_back(p, "madvise", 0);
		ALLOWED(CHECK(!km_os_guard(p, PAGE, false)));
		CHECK(!is_readable(p));
		_exit(failures != 0);
	}
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	CHECK_EQUAL(status, 0);
	guard_and_back(p, "madvise", EINVAL);
	guard_and_back(p, NULL, 0);
	guard_and_back(p, "madvise", EINVAL);
	/* Locked memory has no markers. */
	if (!mlock(p, PAGE)) {
		guard_and_back(p, NULL, 0);
		munlock(p, PAGE);
	}
	p[0] = 3;
	ALLOWED(CHECK(!km_os_guard(p, PAGE, true)));
	CHECK(!is_readable(p));
	REFUSED("mprotect", EPERM, CHECK_EQUAL(km_os_unguard(p, PAGE), -EPERM));
	ALLOWED(CHECK(!km_os_unguard(p, PAGE)));
	CHECK(p[0] == 3);
	REFUSED("mprotect", EPERM, CHECK_EQUAL(km_os_guard(p, PAGE, true), -EPERM));
}

static void memory(void)
{
	char *p = NULL, *q;

	REFUSED("mmap", ENOMEM, CHECK(!km_os_map(PAGE, PAGE)));
	REFUSED("mmap", ENOMEM, CHECK(!km_os_reserve(PAGE, PAGE)));
	CHECK(!km_os_map(SIZE_MAX / 2, PAGE));
	ALLOWED(p = km_os_map(4 * PAGE, 64 * PAGE));
	NEED(p && !((uintptr_t)p % (64 * PAGE)));
	REFUSED("mprotect", ENOMEM, CHECK_EQUAL(km_os_commit(p, PAGE), -ENOMEM));
	REFUSED("mprotect", EACCES, CHECK_EQUAL(km_os_commit_node(p, PAGE, 3), -EACCES));
	REFUSED("mprotect", ENOMEM, CHECK_EQUAL(km_os_commit_readonly(p, PAGE), -ENOMEM));
	REFUSED("mprotect", EPERM, CHECK_EQUAL(km_os_protect(p, PAGE, false), -EPERM));
	REFUSED("mprotect", EPERM, CHECK_EQUAL(km_os_unprotect(p, PAGE), -EPERM));
	guarding(p);
	/* Refused advice is no failure. */
	REFUSED("madvise", EINVAL, CHECK(!km_os_commit(p, PAGE)));
	REFUSED("madvise", EINVAL, CHECK((q = km_os_reserve(PAGE, PAGE))));
	ALLOWED(CHECK(!km_os_try_unmap(q, PAGE)));
	REFUSED("madvise", EINVAL, CHECK_EQUAL(km_os_renew(p, PAGE), -EINVAL));
	REFUSED("madvise", EPERM, CHECK_EQUAL(km_os_dump(p, PAGE, true), -EPERM));
	REFUSED("madvise", EINVAL, CHECK_EQUAL(km_os_purge(p, PAGE), -EINVAL));
	REFUSED("madvise", EINVAL, CHECK(!km_os_huge(p, PAGE)));
	/* A kernel with huge pages, and unable to populate them. */
	SO_OFTEN("madvise", 0, 0, 1, CHECK(km_os_huge(p, PAGE)));
	/* A locked page is reported; a filter that refuses the question is not. */
	REFUSED_NUMBER(SYS_msync, EBUSY, CHECK_EQUAL(km_os_renew(p, PAGE), -EBUSY));
	REFUSED_NUMBER(SYS_msync, EPERM, CHECK(!km_os_renew(p, PAGE)));
	REFUSED_NUMBER(SYS_msync, EACCES, CHECK(!km_os_renew(p, PAGE)));
	REFUSED_NUMBER(SYS_msync, ENOSYS, CHECK(!km_os_renew(p, PAGE)));
	REFUSED_NUMBER(SYS_munlock, EPERM, CHECK_EQUAL(km_os_lock(p, PAGE, false), -EPERM));
	REFUSED_NUMBER(SYS_mlock, ENOMEM, CHECK_EQUAL(km_os_lock(p, PAGE, true), -ENOMEM));
	REFUSED("mmap", ENOMEM, CHECK(!km_os_may_map(PAGE)));
	ALLOWED(CHECK(km_os_may_map(PAGE)));
	REFUSED("munmap", ENOMEM, CHECK_EQUAL(km_os_try_unmap(p, PAGE), -ENOMEM));
	REFUSED("mremap", ENOMEM, CHECK(!km_os_remap(p, 4 * PAGE, 8 * PAGE, true)));
	ALLOWED(q = km_os_remap(p, 4 * PAGE, 2 * PAGE, false));
	CHECK(q == p);
	REFUSED("munmap", ENOMEM, km_os_unmap(p, 2 * PAGE));
	ALLOWED(km_os_unmap(p, 2 * PAGE));
}

static void limits(void)
{
	uint64_t set = 1;
	unsigned masks;

	REFUSED_NUMBER(SYS_mlockall, EPERM, CHECK_EQUAL(km_os_mlockall(MCL_CURRENT), -EPERM));
	REFUSED_NUMBER(SYS_munlockall, EPERM, CHECK_EQUAL(km_os_munlockall(), -EPERM));
	REFUSED_NUMBER(SYS_prlimit64, EPERM, CHECK_EQUAL(km_os_prlimit(0, RLIMIT_AS, NULL, NULL), -EPERM));
	/* All mappings from now on count against RLIMIT_MEMLOCK. */
	REFUSED_NUMBER(SYS_mlockall, 0, CHECK_EQUAL(km_os_mlockall(MCL_FUTURE), 0));
	REFUSED_NUMBER(SYS_mlockall, 0, CHECK_EQUAL(km_os_mlockall(MCL_CURRENT), 0));
	CHECK(!km_os_is_limited());
	/* Memory locked later is populated as the rest. */
	REFUSED_NUMBER(SYS_mlockall, 0, CHECK_EQUAL(km_os_mlockall(MCL_FUTURE | MCL_ONFAULT), 0));
	REFUSED_NUMBER(SYS_mlock2, ENOMEM, CHECK_EQUAL(km_os_lock(&set, PAGE, true), -ENOMEM));
	REFUSED_NUMBER(SYS_mlockall, 0, CHECK_EQUAL(km_os_mlockall(MCL_FUTURE), 0));
	REFUSED_NUMBER(SYS_mlock, ENOMEM, CHECK_EQUAL(km_os_lock(&set, PAGE, true), -ENOMEM));
	REFUSED_NUMBER(SYS_munlockall, 0, CHECK_EQUAL(km_os_munlockall(), 0));
	REFUSED_NUMBER(SYS_sched_getaffinity, EPERM, CHECK(km_os_possible_cpus(&masks) && masks == KM_MAX_CPUS));
	/* No /sys: numbers go as far as the kernel's masks. */
	REFUSED_NUMBER(SYS_openat, ENOENT, CHECK(km_os_possible_cpus(&masks) == masks));
	ALLOWED(CHECK(km_os_possible_cpus(&masks) >= 1 && km_os_getcpu() < masks));
	REFUSED_NUMBER(SYS_get_mempolicy, EPERM, CHECK_EQUAL(km_os_allowed_nodes(&set, 64), -EPERM));
	REFUSED_NUMBER(SYS_get_mempolicy, ENOSYS, CHECK(!km_os_has_memory_policy()));
	REFUSED_NUMBER(SYS_mbind, EINVAL, CHECK_EQUAL(km_os_prefer_nodes(&set, PAGE, &set, 64), -EINVAL));
	REFUSED_NUMBER(SYS_mbind, EINVAL, CHECK_EQUAL(km_os_prefer_nodes(&set, PAGE, NULL, 0), -EINVAL));
	REFUSED_NUMBER(SYS_membarrier, ENOSYS, CHECK_EQUAL(km_os_barrier_register(), -ENOSYS));
	REFUSED_NUMBER(SYS_membarrier, EPERM, CHECK_EQUAL(km_os_barrier(), -EPERM));
	REFUSED_NUMBER(SYS_rseq, EBUSY, CHECK_EQUAL(km_os_rseq_register(&set, 32, 1), -EBUSY));
	REFUSED_NUMBER(SYS_rseq, EINVAL, CHECK_EQUAL(km_os_rseq_unregister(&set, 32, 1), -EINVAL));
}

static void files(void)
{
	struct km_os_opening opening;
	struct km_os_file file;
	char text[64], name[16];
	int fd = km_os_memory_file("os_calls"), other, ends[2];

	NEED(fd >= 0 && !pipe(ends));
	REFUSED("fstat", EBADF, CHECK_EQUAL(km_os_file(fd, &file), -EBADF));
	ALLOWED(CHECK(!km_os_file(ends[0], &file) && file.stream && !km_os_file(fd, &file) && !file.stream));
	REFUSED("fcntl", EBADF, CHECK_EQUAL(km_os_opening(fd, &opening), -EBADF));
	ALLOWED(CHECK(!km_os_opening(fd, &opening) && opening.writable && opening.closed_by_exec && !opening.appends));
	ALLOWED(CHECK(!km_os_opening(ends[0], &opening) && !opening.writable && !opening.closed_by_exec));
	REFUSED("fcntl", EMFILE, CHECK_EQUAL(km_os_duplicate(fd, 10), -EMFILE));
	other = km_os_duplicate(fd, 10);
	NEED(other >= 10);
	/* Before Linux 6.10 another call tells; if refused, the answer is unknown. */
	SO_OFTEN("fcntl", 0, EINVAL, 1, km_os_same_opening(fd, other));
	CHECK(!km_os_same_opening(fd, ends[0]));
	km_os_close(other);
	REFUSED_NUMBER(SYS_write, ENOSPC, CHECK_EQUAL(km_os_write(fd, "text", 4), -ENOSPC));
	REFUSED_NUMBER(SYS_write, 0, CHECK_EQUAL(km_os_write(fd, "text", 4), -EIO));
	SO_OFTEN("syscall", SYS_write, EINTR, 3, CHECK(!km_os_write(fd, "text", 4)));
	SO_OFTEN("syscall", SYS_read, EINTR, 3, CHECK(km_os_read("/proc/self/comm", text, 64) > 0 &&
						      strchr(text, '\n')));
	REFUSED_NUMBER(SYS_read, EIO, CHECK_EQUAL(km_os_read("/proc/self/comm", text, 64), -EIO));
	REFUSED_NUMBER(SYS_openat, EACCES, CHECK_EQUAL(km_os_read("/proc/self/comm", text, 64), -EACCES));
	REFUSED_NUMBER(SYS_openat, EACCES, CHECK_EQUAL(km_os_open_truncated("/dev/null"), -EACCES));
	REFUSED_NUMBER(SYS_eventfd2, EMFILE, CHECK_EQUAL(km_os_eventfd(), -EMFILE));
	REFUSED_NUMBER(SYS_write, EAGAIN, km_os_event_add(fd, 1));
	REFUSED_NUMBER(SYS_memfd_create, EPERM, CHECK_EQUAL(km_os_memory_file("os_calls"), -EPERM));
	REFUSED("prctl", EPERM, km_os_program(name, sizeof(name)));
	CHECK(!*name);
	ALLOWED(km_os_program(name, 4));
	CHECK_EQUAL(strlen(name), 3);
	close(ends[0]);
	close(ends[1]);
	close(fd);
}

static void other_programs(void)
{
	int in = km_os_memory_file("in"), out = km_os_memory_file("out");
	char text[16];

	NEED(in >= 0 && out >= 0 && !km_os_write(in, "through", 7));
	ALLOWED(CHECK_EQUAL(km_os_filter("/bin/cat", "-", in, out), 0));
	/* Without such a program the text is unfiltered. */
	ALLOWED(CHECK_EQUAL(km_os_filter("/no/such", "-", in, out), 0));
	CHECK(pread(out, text, 16, 0) == 14 && !memcmp(text, "throughthrough", 14));
	ALLOWED(CHECK_EQUAL(km_os_filter("/bin/false", "-", in, out), -EIO));
	REFUSED_NUMBER(SYS_lseek, ESPIPE, CHECK_EQUAL(km_os_filter("/bin/cat", "-", in, out), -EPERM));
	REFUSED_NUMBER(SYS_clone, EAGAIN, CHECK_EQUAL(km_os_filter("/bin/cat", "-", in, out), -EAGAIN));
	SO_OFTEN("syscall", SYS_wait4, EINTR, 3, CHECK_EQUAL(km_os_filter("/bin/false", "-", in, out), -EIO));
	REFUSED_NUMBER(SYS_wait4, ECHILD, CHECK_EQUAL(km_os_filter("/bin/false", "-", in, out), 0));
	waitpid(-1, NULL, __WALL);
	SO_OFTEN("syscall", SYS_read, EINTR, 3, CHECK_EQUAL(km_os_copy(in, out), 0));
	REFUSED_NUMBER(SYS_read, EIO, CHECK_EQUAL(km_os_copy(in, out), -EIO));
	REFUSED_NUMBER(SYS_write, ENOSPC, CHECK_EQUAL(km_os_copy(in, out), -ENOSPC));
	REFUSED_NUMBER(SYS_lseek, ESPIPE, CHECK_EQUAL(km_os_copy(in, out), -ESPIPE));
	ALLOWED(CHECK_EQUAL(km_os_threads(), 1));
	REFUSED_NUMBER(SYS_openat, EACCES, CHECK_EQUAL(km_os_threads(), 0));
	close(in);
	close(out);
}

/* Started by a name without a slash at the front: the file is the process's, unless no call can tell. */
static void own_path(void)
{
	char path[256];

	ALLOWED(CHECK(!strcmp(km_os_program_path(path, sizeof(path)), "os_calls.copy")));
	REFUSED_NUMBER(SYS_newfstatat, ENOENT, CHECK(*km_os_program_path(path, sizeof(path)) == '/'));
	rename("os_calls.copy", "os_calls.gone");
	ALLOWED(CHECK(strstr(km_os_program_path(path, sizeof(path)), "/os_calls.gone")));
	unlink("os_calls.gone");
	ALLOWED(CHECK(strstr(km_os_program_path(path, sizeof(path)), "/os_calls.gone") && !strchr(path, ' ')));
	REFUSED_NUMBER(SYS_readlinkat, EACCES,
		       CHECK(!strcmp(km_os_program_path(path, sizeof(path)), "os_calls.copy")));
}

/* The kernel's own copy of the environment, with a second name that begins as the first. */
static void environment(void)
{
	extern char **environ;
	char value[64];

	environ = NULL;
	ALLOWED(CHECK(km_os_getenv("SHORT", value, 64) == 5 && !strcmp(value, "value")));
	ALLOWED(CHECK(km_os_getenv("SHORTER", value, 64) == 0 && !*value));
	ALLOWED(CHECK(km_os_getenv("LAST", value, 64) == 4 && !strcmp(value, "last")));
	/* Longer than there is room for. */
	ALLOWED(CHECK_EQUAL(km_os_getenv("LONG", value, 64), 64));
	ALLOWED(CHECK_EQUAL(km_os_getenv("SHOR", value, 64), -1));
	REFUSED_NUMBER(SYS_openat, EACCES, CHECK_EQUAL(km_os_getenv("SHORT", value, 64), -1));
	REFUSED_NUMBER(SYS_read, EIO, CHECK_EQUAL(km_os_getenv("SHORT", value, 64), -1));
}

/* A program with a filter of its own calls: the library makes no more calls that may end the program. */
static void when_shut(void)
{
	struct km_os_opening opening;
	uint64_t set = 1;
	char path[256];

	km_os_shut();
	refused.call = "syscall";
	CHECK(km_os_is_shut() && km_os_dump(&set, PAGE, true) && km_os_barrier() == -EPERM);
	CHECK(km_os_prefer_nodes(&set, PAGE, &set, 64) == -EPERM && km_os_rseq_register(&set, 32, 1) == -EPERM);
	CHECK(km_os_lock(&set, PAGE, true) == -EPERM && km_os_lock(&set, PAGE, false) == -EPERM);
	CHECK(km_os_rseq_unregister(&set, 32, 1) == -EPERM && km_os_opening(0, &opening) == -EPERM);
	CHECK(km_os_thread() && !km_os_threads() && km_os_memory_file("x") == -EPERM);
	CHECK(km_os_filter("/bin/cat", "-", 0, 1) == -EPERM);
	CHECK(!strcmp(km_os_program_path(path, sizeof(path)), "os_calls.copy"));
	refused.call = NULL;
}

static void again(void)
{
	char folder[] = "/tmp/os_calls.XXXXXX", own[256] = "", longer[700] = "LONG=", path[64];
	char *environment[] = { "SHORTER=", longer, "SHORT=value", "LAST=last", NULL };
	int status;

	NEED(mkdtemp(folder) && readlink("/proc/self/exe", own, sizeof(own) - 1) > 0);
	memset(longer + 5, 'x', sizeof(longer) - 6);
	pid_t child = fork();
	if (!child) {
		char command[600];

		snprintf(command, sizeof(command), "cp '%s' %s/os_calls.copy", own, folder);
		NEED(!system(command) && !chdir(folder));
		execle("os_calls.copy", "os_calls.copy", "again", (char *)NULL, environment);
		_exit(127);
	}
	NEED(waitpid(child, &status, 0) == child);
	snprintf(path, sizeof(path), "%s/os_calls.copy", folder);
	unlink(path);
	rmdir(folder);
	CHECK(status == 0, "status %#x", (unsigned)status);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		own_path();
		environment();
		when_shut();
		return failures != 0;
	}
	asked_at_the_start();
	memory();
	limits();
	files();
	other_programs();
	again();
	return failures != 0;
}
