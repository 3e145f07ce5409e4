/*
 * standard_error.c: lines go to the process's first standard error, after any change of descriptor 2, and never into
 * a file opened by the program under its number, or under the duplicate's. A duplicate is kept only with a requested
 * report on standard error. Each case is a process of its own, with a file or a pipe as standard error.
 */
#define _GNU_SOURCE
#define DESCRIPTORS_AS_STARTED
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <kmem/kmem.h>

#include "os/die.h"
#include "os/os.h"
#include "kit/check.h"

#define LINE "libkmem: a line\n"

static char dir[] = "/tmp/kmem-stderr-XXXXXX";

static const char *path(const char *name)
{
	static char text[2][128];
	static int turn;

	turn = !turn;
	snprintf(text[turn], sizeof(text[turn]), "%s/%s", dir, name);
	return text[turn];
}

/* Descriptors used by a case: 200, or fewer with a lower limit. */
static int numbers(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 200 ? (int)limit.rlim_cur : 200;
}

static void line(void)
{
	errno = 77;
	km_warn("a line");
	NEED(errno == 77);
}

/* Opens the file in the place of descriptor `fd`. */
static void take(int fd, const char *name, int flags)
{
	close(fd);
	int got = open(path(name), O_CREAT | flags, 0600);

	if (got != fd)
		_exit(9);
}

/* ------------------------------------------------------------------ what the program does */

static void plain(void) { line(); }

static void moved(void)
{
	close(2);
	line();
}

static void taken(void)
{
	take(2, "data", O_WRONLY);
	line();
}

static void taken_to_append(void)
{
	take(2, "data", O_WRONLY | O_APPEND);
	line();
}

/* The library holds no descriptor of its own: a reader of standard error sees the end when the program closes 2. */
static void none_kept(void)
{
	for (int fd = 3; fd < numbers(); fd++)
		NEED(fcntl(fd, F_GETFD) < 0);
}

/* As daemons do, and then a file under each number. */
static void all_taken(void)
{
	for (int fd = 0; fd < numbers(); fd++)
		close(fd);
	for (int fd = 0; fd < numbers(); fd++)
		take(fd, "data", O_WRONLY | (fd % 2 ? O_APPEND : 0));
	line();
}

/* The same file as before, opened again: fine. */
static void again(void)
{
	for (int fd = 2; fd < numbers(); fd++)
		close(fd);
	take(2, "stderr", O_WRONLY | O_APPEND);
	line();
}

static bool in_child(void)
{
	int status;
	pid_t child = fork();

	if (!child)
		return true;
	NEED(waitpid(child, &status, 0) == child && status == 0);
	return false;
}

static void child(void)
{
	if (in_child())
		line();
}

/* Without a duplicate the line has no place. */
static void child_taken(void)
{
	if (in_child())
		taken();
}

/* Standard error under all numbers: they are the program's, in a child as well. */
static void child_inherits(void)
{
	for (int fd = 3; fd < numbers(); fd++)
		NEED(dup2(2, fd) == fd);
	if (!in_child())
		return;
	for (int fd = 3; fd < numbers(); fd++)
		NEED(fcntl(fd, F_GETFD) == 0);
	line();
}

static void child_log(void)
{
	if (!in_child())
		return;
	take(2, "log", O_WRONLY | O_APPEND);
	line();
}

/* The library runs out of memory in a death test: the parent reads its lines. */
static void child_pipe(void)
{
	char text[64] = "";
	int ends[2];

	NEED(pipe(ends) == 0);
	if (in_child()) {
		dup2(ends[1], 2);
		close(ends[0]);
		close(ends[1]);
		line();
		return;
	}
	NEED(read(ends[0], text, sizeof(text) - 1) > 0 && strcmp(text, LINE) == 0);
}

/* A program that reads its own standard error: it still has the file, or the former one. */
static void captured(void)
{
	int log = open(path("log"), O_RDWR);

	dup2(log, 2);
	line();
}

static void captured_and_kept(void)
{
	int former = dup(2), log = open(path("log"), O_RDWR);

	dup2(log, 2);
	close(log);
	line();
	dup2(former, 2);
	close(former);
}

static void taken_by_socket(void)
{
	int pair[2];
	char byte;

	close(2);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pair[0] == 2);
	line();
	NEED(recv(pair[1], &byte, 1, MSG_DONTWAIT) < 0);
}

static void taken_by_pipe(void)
{
	int ends[2];
	char byte;

	close(2);
	NEED(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 && ends[0] == 2);
	/* The write end becomes 2. */
	int from = fcntl(ends[0], F_DUPFD_CLOEXEC, 3);
	NEED(from > 2 && dup3(ends[1], 2, O_CLOEXEC) == 2);
	line();
	NEED(read(from, &byte, 1) < 0);
}

/* The read end: no line would come through. */
static void taken_to_read(void)
{
	int ends[2];

	close(2);
	NEED(pipe(ends) == 0 && ends[0] == 2);
	line();
}

/* The program began without a standard error: no file opened later counts as one. */
static void taken_by_fifo(void)
{
	char byte;

	NEED(mkfifo(path("fifo"), 0600) == 0 && open(path("fifo"), O_RDWR | O_NONBLOCK) == 2);
	line();
	NEED(read(2, &byte, 1) < 0 && unlink(path("fifo")) == 0);
}

/* ------------------------------------------------------------------ expected results */

/* A report was asked for: then a line is not lost where standard error has gone. */
enum { CLOSED = 1, FEW = 2, VERY_FEW = 4, ASKED = 8 };

static const struct {
	const char *name;
	void (*run)(void);
	const char *in_stderr, *in_log;
	int how;
} cases[] = {
	{ "plain", plain, LINE, "", 0 },
	{ "none_kept", none_kept, "", "", 0 },
	{ "moved", moved, "", "", 0 },
	{ "moved, asked", moved, LINE, "", ASKED },
	{ "taken", taken, "", "", 0 },
	{ "taken, asked", taken, LINE, "", ASKED },
	{ "taken_to_append", taken_to_append, "", "", 0 },
	{ "taken_to_append, asked", taken_to_append, LINE, "", ASKED },
	{ "all_taken", all_taken, "", "", 0 },
	{ "all_taken, asked", all_taken, "", "", ASKED },
	{ "again", again, LINE, "", 0 },
	{ "again, asked", again, LINE, "", ASKED },
	{ "child", child, LINE, "", 0 },
	{ "child, asked", child, LINE, "", ASKED },
	{ "child_taken", child_taken, "", "", 0 },
	{ "child_taken, asked", child_taken, "", "", ASKED },
	{ "child_inherits", child_inherits, LINE, "", 0 },
	{ "child_inherits, asked", child_inherits, LINE, "", ASKED },
	{ "child_log", child_log, "", LINE, 0 },
	{ "child_log, asked", child_log, "", LINE, ASKED },
	{ "child_pipe", child_pipe, "", "", 0 },
	{ "child_pipe, asked", child_pipe, "", "", ASKED },
	{ "captured", captured, "", LINE, 0 },
	{ "captured, asked", captured, "", LINE, ASKED },
	{ "captured_and_kept", captured_and_kept, "", LINE, 0 },
	{ "captured_and_kept, asked", captured_and_kept, "", LINE, ASKED },
	{ "taken_by_socket", taken_by_socket, "", "", 0 },
	{ "taken_by_socket, asked", taken_by_socket, LINE, "", ASKED },
	{ "taken_by_pipe", taken_by_pipe, "", "", 0 },
	{ "taken_by_pipe, asked", taken_by_pipe, LINE, "", ASKED },
	{ "taken_to_read", taken_to_read, "", "", 0 },
	{ "taken_to_read, asked", taken_to_read, LINE, "", ASKED },
	{ "closed", plain, "", "", CLOSED },
	{ "closed_taken_by_fifo", taken_by_fifo, "", "", CLOSED },
	{ "closed_taken", taken, "", "", CLOSED },
	{ "closed_taken_to_append", taken_to_append, "", "", CLOSED },
	{ "few, asked", taken, LINE, "", FEW | ASKED },
	{ "very_few, asked", plain, LINE, "", VERY_FEW | ASKED },
	{ "very_few_taken, asked", taken, "", "", VERY_FEW | ASKED },
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

static void start(size_t i, const char *self)
{
	char number[8];

	take(2, "stderr", O_WRONLY | O_TRUNC);
	close(open(path("data"), O_CREAT | O_TRUNC | O_WRONLY, 0600));
	close(open(path("log"), O_CREAT | O_TRUNC | O_WRONLY, 0600));
	if (cases[i].how & (FEW | VERY_FEW)) {
		rlim_t most = cases[i].how & FEW ? 12 : 6;

		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ most, most });
	}
	if (cases[i].how & CLOSED)
		close(2);
	for (int fd = 3; fd < numbers(); fd++)
		close(fd);
	unsetenv("KMEM_LEAKS");
	if (cases[i].how & ASKED)
		setenv("KMEM_STATS", "-", 1);
	else
		unsetenv("KMEM_STATS");
	snprintf(number, sizeof(number), "%zu", i);
	execl("/proc/self/exe", self, dir, number, (char *)NULL);
	_exit(8);
}

static bool holds(const char *name, const char *wanted)
{
	char text[256];
	int fd = open(path(name), O_RDONLY);
	ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	close(fd);
	text[length < 0 ? 0 : length] = '\0';
	if (strcmp(text, wanted) == 0)
		return true;
	printf("%s: '%s', not '%s'\n", name, text, wanted);
	return false;
}

/*
 * A reader of the output of a daemon's starter reads until the last writer ends: the daemon must not be a
 * writer.
 */
static void daemon_lets_go(const char *self)
{
	int stderr_pipe[2], online[2];
	char byte;

	NEED(pipe2(stderr_pipe, O_CLOEXEC) == 0 && pipe2(online, O_CLOEXEC) == 0);
	pid_t starter = fork();
	if (!starter) {
		dup2(stderr_pipe[1], 2);
		dup2(online[0], 0);
		execl("/proc/self/exe", self, dir, "daemon", (char *)NULL);
		_exit(8);
	}
	close(stderr_pipe[1]);
	close(online[0]);
	/* Not forever, if the read does not end. */
	alarm(580);
	NEED(read(stderr_pipe[0], &byte, 1) == 0);
	alarm(0);
	int status;
	NEED(waitpid(starter, &status, 0) == starter && status == 0);
	close(online[1]);
}

static int be_daemon(void)
{
	char byte;

	if (fork())
		return 0;
	close(1);
	close(2);
	/* Until the test's end. */
	return read(0, &byte, 1) != 0;
}

static int run_case(const char *where, const char *which)
{
	strcpy(dir, where);
	NEED(slab_is_available());
	if (strcmp(which, "daemon") == 0)
		return be_daemon();
	cases[atoi(which)].run();
	/* The report is not checked. */
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return run_case(argv[1], argv[2]);
	/* The descriptor numbers are the same with a closed standard input. */
	while (fcntl(0, F_GETFD) < 0)
		NEED(open("/dev/null", O_RDONLY) == 0);
	NEED(mkdtemp(dir));
	for (size_t i = 0; i < CASES; i++) {
		int status;
		pid_t pid = fork();

		if (!pid)
			start(i, argv[0]);
		NEED(waitpid(pid, &status, 0) == pid);
		bool right = status == 0;
		right &= holds("stderr", cases[i].in_stderr);
		right &= holds("log", cases[i].in_log);
		right &= holds("data", "");
		if (!right)
			printf("in case %s, status %x\n", cases[i].name, (unsigned)status);
		CHECK(right);
	}
	daemon_lets_go(argv[0]);
	for (const char *const *name = (const char *const[]){ "stderr", "data", "log", NULL }; *name; name++)
		unlink(path(*name));
	rmdir(dir);
	return failures != 0;
}
