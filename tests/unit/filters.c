/*
 * filters: the system's part in a report: a file in memory, another program as a filter, this program's path, the
 * number of threads without the library's, and a socket name other processes connect to. Each refused system call
 * returns an error, or leaves the report unfiltered, and leaves no descriptor open; a confined program makes no
 * call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kit/cases.h"

#include "os/os.h"

/* The next call of this number fails so. */
static struct {
	long number, after;
	int error;
} refused = { -1, 0, 0 };

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	va_list list;
	long a[6];

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == refused.number && refused.after-- == 0) {
		errno = refused.error;
		return -1;
	}
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void refuse(long number, long after, int error)
{
	refused.number = number;
	refused.after = after;
	refused.error = error;
}

static bool fails_at(const char *call)
{
	return strcmp(call, "memory file") == 0 || strcmp(call, "filter") == 0;
}

static int in = -1, out[2];

static void begin(const char *text)
{
	NEED((in = km_os_memory_file("report")) >= 0 && pipe2(out, O_NONBLOCK) == 0);
	NEED(km_os_write(in, text, strlen(text)) == 0);
	refuse(-1, 0, 0);
	errno = 77;
}

/* Checks the filtered text, and an unchanged errno. */
static void comes(const char *want)
{
	char got[100] = "";

	CHECK_EQUAL(errno, 77);
	ssize_t bytes = read(out[0], got, sizeof(got) - 1);
	CHECK(bytes < 0 ? !*want : strcmp(got, want) == 0, "%s", got);
	close(in);
	close(out[0]);
	close(out[1]);
}

static void goes_through(void)
{
	begin("one two\n");
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == 0);
	comes("one two\n");
	begin("one two\n");
	CHECK(km_os_copy(in, out[1]) == 0);
	comes("one two\n");
}

/* Without such a program the text is unfiltered. */
static void goes_as_it_is(void)
{
	begin("a report\n");
	CHECK(km_os_filter("/nowhere/at/all", NULL, in, out[1]) == 0);
	comes("a report\n");
	begin("a report\n");
	refuse(SYS_dup3, 0, EBUSY);
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == 0);
	comes("a report\n");
	begin("a report\n");
	refuse(SYS_dup3, 1, EBUSY);
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == 0);
	comes("a report\n");
	begin("a report\n");
	refuse(SYS_dup3, 2, EBUSY);
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == 0);
	comes("a report\n");
}

static void is_refused(void)
{
	km_os_fault = fails_at;
	errno = 77;
	CHECK(km_os_memory_file("report") == -EPERM && errno == 77);
	km_os_fault = NULL;
	begin("x");
	km_os_fault = fails_at;
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == -EPERM);
	km_os_fault = NULL;
	comes("");
	begin("x");
	CHECK(km_os_filter("/bin/cat", NULL, -1, out[1]) == -EPERM);
	CHECK(km_os_copy(-1, out[1]) == -EBADF);
	comes("");
	begin("x");
	refuse(SYS_clone, 0, EAGAIN);
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == -EAGAIN);
	comes("");
	for (long after = 0; after < 2; after++) {
		begin("x");
		refuse(SYS_fcntl, after, EMFILE);
		CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == -EIO);
		comes("");
	}
	begin("x");
	refuse(SYS_read, 0, EIO);
	CHECK(km_os_copy(in, out[1]) == -EIO);
	comes("");
}

/* An interrupted call is repeated; a child whose end no wait reports counts as ended well. */
static void is_interrupted(void)
{
	begin("x");
	refuse(SYS_wait4, 0, EINTR);
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == 0);
	comes("x");
	begin("x");
	refuse(SYS_read, 0, EINTR);
	CHECK(km_os_copy(in, out[1]) == 0);
	comes("x");
	begin("x");
	CHECK(km_os_filter("/bin/false", NULL, in, out[1]) == -EIO);
	comes("");
	signal(SIGCHLD, SIG_IGN);
	begin("x");
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == 0);
	comes("x");
	begin("x");
	refuse(SYS_wait4, 0, EPERM);
	CHECK(km_os_filter("/bin/true", NULL, in, out[1]) == -EIO);
	refuse(-1, 0, 0);
	CHECK(waitpid(-1, NULL, 0) < 0);
	errno = 77;
	comes("");
}

/* This program's own, started by another name. */
static void ask_for_path(const char *want)
{
	char text[PATH_MAX];
	const char *path = km_os_program_path(text, sizeof(text));

	CHECK(strcmp(path, want) == 0, "%s, not %s", path, want);
}

static void *wait_there(void *barrier)
{
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	return NULL;
}

static void counts_threads(void)
{
	pthread_barrier_t barrier;
	pthread_t thread;

	CHECK_EQUAL(km_os_threads(), 1);
	pthread_barrier_init(&barrier, NULL, 2);
	NEED(pthread_create(&thread, NULL, wait_there, &barrier) == 0);
	pthread_barrier_wait(&barrier);
	CHECK_EQUAL(km_os_threads(), 2);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
}

static unsigned own;

static void *be_ours(void *barrier)
{
	char name[16];

	km_os_thread_is_ours(true, "of ours");
	NEED(pthread_getname_np(pthread_self(), name, sizeof(name)) == 0);
	CHECK(!strcmp(name, "of ours"), "its name is %s", name);
	own = km_os_thread();
	wait_there(barrier);
	km_os_thread_is_ours(false, NULL);
	wait_there(barrier);
	return NULL;
}

/* A child of fork has its parent's count, and none of its threads. */
static void ours_do_not_count(void)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	int status;

	pthread_barrier_init(&barrier, NULL, 2);
	NEED(pthread_create(&thread, NULL, be_ours, &barrier) == 0);
	pthread_barrier_wait(&barrier);
	CHECK_EQUAL(km_os_threads(), 1);
	CHECK(km_os_has_thread(own) && !km_os_program_is_over());
	pid_t child = fork();
	if (!child)
		_exit(km_os_threads() == 1 && !km_os_program_is_over() ? 0 : 1);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status, "a child counts its parent's threads");
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	CHECK_EQUAL(km_os_threads(), 2);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	while (km_os_has_thread(own))
		usleep(1000);
	CHECK_EQUAL(km_os_threads(), 1);
}

static void *end_last(void *child)
{
	km_os_thread_is_ours(true, "of ours");
	while (!km_os_program_is_over())
		usleep(1000);
	_exit(*(int *)child);
}

/* The first thread ends before. */
static void ends_by_another(const char *about, rlim_t files)
{
	int seven = 7, status = 0;
	pid_t child = fork();

	if (!child) {
		static int result;
		pthread_t thread;

		result = seven;
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ files, files });
		pthread_create(&thread, NULL, end_last, &result);
		pthread_exit(NULL);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == seven,
	      "%s: a program that is over is not seen: %x", about, status);
}

/* Where nothing can be opened, too; pthread_exit opens a library, once. */
static void sees_the_end(void)
{
	NEED(dlopen("libgcc_s.so.1", RTLD_NOW));
	ends_by_another("as it is", 100);
	ends_by_another("no files", 0);
}

static void have_none(void)
{
	NEED(km_os_own_descriptors());
	for (int fd = 0; fd < 300; fd++)
		CHECK(fcntl(fd, F_GETFD) < 0, "a thread with descriptors of its own has %d", fd);
	NEED(open("/dev/null", O_RDONLY) == 0 && open("/dev/null", O_RDONLY) == 1);
}

static int meanwhiles;

static void count_meanwhile(void)
{
	meanwhiles++;
}

/* The program does not see the descriptors opened and closed by the thread. */
static void has_its_own(void)
{
	struct stat before, after;
	const int free_one = dup(1);

	NEED(free_one > 2 && fstat(0, &before) == 0);
	close(free_one);
	CHECK(km_os_run_beside(have_none, count_meanwhile) && meanwhiles == 1);
	CHECK(fstat(0, &after) == 0 && before.st_ino == after.st_ino && fcntl(1, F_GETFD) >= 0);
	CHECK_EQUAL(dup(1), free_one);
	close(free_one);
}

/* Without a connection: the wait ends by its time, or at a wake-up. */
static void waits_for_who_connects(void)
{
	char name[40];

	snprintf(name, sizeof(name), "libkmem-test-%d", (int)getpid());
	int fd = km_os_listen(name, 100);
	NEED(fd >= 100);
	CHECK(!km_os_wait_for(fd, 1) && !km_os_wait_for(-1, 1));
	CHECK(km_os_wait_for(99, 600000), "a descriptor that is none is waited for");
	CHECK_EQUAL(km_os_knock(name), 0);
	CHECK(km_os_wait_for(fd, 600000), "who knocks is not heard");
	km_os_close(fd);
	CHECK(km_os_knock(name) == -ECONNREFUSED);
}

static void shut_off(void)
{
	char text[PATH_MAX];

	begin("x");
	km_os_shut();
	CHECK(km_os_memory_file("report") == -EPERM);
	CHECK(km_os_filter("/bin/cat", NULL, in, out[1]) == -EPERM);
	CHECK(km_os_threads() == 0 && !km_os_program_is_over());
	CHECK(!km_os_wait_for(in, 600000) && km_os_knock("nobody") == -EPERM && !km_os_own_descriptors());
	CHECK(km_os_program_path(text, sizeof(text)));
	comes("");
}

/* The program is started by its name in its folder; then another file takes the place, and the folder goes. */
static void paths(void)
{
	char own[PATH_MAX], command[3 * PATH_MAX], folder[] = "/tmp/filtersXXXXXX";
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

	NEED(length > 0 && mkdtemp(folder));
	own[length] = '\0';
	snprintf(command, sizeof(command),
		 "cd %s && cp %s it && ./it path ./it && ./it refused ./it && ./it moved %s/it && mv it other && "
		 "cp %s it && ./other gone %s/other; status=$?; rm -rf %s; exit $status",
		 folder, own, folder, own, folder, folder);
	CHECK(system(command) == 0);
}

static int asked_by_itself(const char *what, const char *want)
{
	if (strcmp(what, "refused") == 0) {
		refuse(SYS_readlinkat, 0, EACCES);
		/* Not this program's file, as far as visible. */
		NEED(chdir("/") == 0);
	} else if (strcmp(what, "moved") == 0) {
		NEED(chdir("/") == 0);
	} else if (strcmp(what, "gone") == 0) {
		NEED(unlink(want) == 0 && symlink("it", "other") == 0);
	}
	ask_for_path(want);
	return failures != 0;
}

static const struct test_case cases[] = {
	{ "goes through", goes_through }, { "goes as it is", goes_as_it_is }, { "is refused", is_refused },
	{ "is interrupted", is_interrupted }, { "counts threads", counts_threads },
	{ "ours do not count", ours_do_not_count }, { "sees the end", sees_the_end },
	{ "has its own", has_its_own }, { "waits for who connects", waits_for_who_connects }, { "shut off", shut_off },
	{ "paths", paths },
};

int main(int argc, char **argv)
{
	if (argc > 2)
		return asked_by_itself(argv[1], argv[2]);
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "");
}
