/*
 * The worker of `netio` with fio: fio's example of this name, over loopback, with this process's preload. The copy of
 * the example has three changes: the port (a free port), the amount (the example moves 100 GiB), and jobs as threads
 * (--thread), because a job as a process ends by _exit and leaves no statistics. In about one run of four the example's
 * receiver closes the socket before the sender's last block. fio then dies of SIGPIPE, or, with an ignored SIGPIPE, the
 * sender runs for ever, and the worker repeats the run. A run counts if at most a hundredth of the bytes is missing.
 *
 * Reported: real, system and user time of the fio process, and the slabs moved by fio's malloc.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame/bench.h"

#define FIO_EXAMPLE "/usr/share/doc/fio/examples/netio.fio"
#define FIO_TRIES 20u
#define FIO_SECONDS(bytes) (20u + (unsigned int)((bytes) >> 28))	/* a run takes 1 + bytes / 2 GiB */
#define FIO_BLOCK 4096ul
#define FIO_PATH 64u

static char fio_directory[FIO_PATH];
static volatile pid_t fio_child;	/* 0: no child to end */
static volatile sig_atomic_t fio_over;	/* the signal that ends this worker, after the files are removed */

static const char *fio_path(const char *name)
{
	static char paths[4][FIO_PATH + 16];
	static unsigned int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", fio_directory, name);
	return path;
}

static void fio_clean(void)
{
	static const char *const names[] = { "netio.fio", "out", "stats" };

	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlink(fio_path(names[i]));
	rmdir(fio_directory);
}

static _Noreturn void fio_die(const char *why)
{
	fio_clean();
	bench_die(why);
}

static unsigned int fio_free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		fio_die("no port over loopback");
	close(listener);
	return ntohs(address.sin_port);
}

static void fio_write_job(void)
{
	FILE *in = fopen(FIO_EXAMPLE, "r"), *out = fopen(fio_path("netio.fio"), "w");
	char line[512];

	if (!in || !out)
		fio_die("cannot copy fio's example");
	while (fgets(line, sizeof(line), in))
		if (!strncmp(line, "port=", 5))
			fprintf(out, "port=%u\n", fio_free_port());
		else if (!strncmp(line, "size=", 5))
			fprintf(out, "size=%lu\n", bench_amounts.live_objects * FIO_BLOCK);
		else
			fputs(line, out);
	fclose(in);
	if (fclose(out))
		fio_die("cannot copy fio's example");
}

static _Noreturn void fio_become(void)
{
	int out = open(fio_path("out"), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_DFL);
	if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0 ||
	    chdir(fio_directory) || setenv("KMEM_STATS", fio_path("stats"), 1))
		_exit(127);
	execl("/usr/bin/fio", "fio", "--thread", "--output-format=json", fio_path("netio.fio"),
	      (char *)NULL);
	_exit(127);
}

/* fio may hang at its end, and delays SIGTERM. */
static void fio_kill(int signal)
{
	(void)signal;
	if (fio_child > 0)
		kill(fio_child, SIGKILL);
}

static void fio_end(int signal)
{
	fio_over = signal;
	fio_kill(signal);
}

/* Reaps the child after the last handler that may send to its number. */
static int fio_wait(struct rusage *usage)
{
	pid_t child = fio_child;
	siginfo_t ended;
	int status;

	waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT);
	fio_child = 0;
	alarm(0);
	wait4(child, &status, 0, usage);
	return status;
}

/* Returns the sum of all numbers of this key in a JSON file; *found: their count. */
static double fio_sum(const char *file, const char *key, unsigned int *found)
{
	FILE *in = fopen(fio_path(file), "r");
	static char line[1 << 16];
	double sum = 0;

	*found = 0;
	while (in && fgets(line, sizeof(line), in))
		for (const char *at = line; (at = strstr(at, key)); ++*found) {
			at += strlen(key);
			sum += strtod(at + strspn(at, " :"), NULL);
		}
	if (in)
		fclose(in);
	return sum;
}

/* Runs fio once. Returns: false if fio failed at its own end. */
static bool fio_once(struct rusage *usage, double *real)
{
	uint64_t start = bench_now_ns();
	double bytes = 2.0 * (double)bench_amounts.live_objects * FIO_BLOCK;
	unsigned int found;
	int status;

	fio_write_job();
	unlink(fio_path("stats"));
	fio_child = fork();
	if (fio_child < 0)
		fio_die("cannot start fio");
	if (!fio_child)
		fio_become();
	if (fio_over)
		kill(fio_child, SIGKILL);
	alarm(FIO_SECONDS(2 * bench_amounts.live_objects * FIO_BLOCK));
	status = fio_wait(usage);
	*real = (double)(bench_now_ns() - start) / 1e9;
	if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
		return false;
	return fio_sum("out", "\"io_bytes\"", &found) >= 0.99 * bytes;
}

static double fio_seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void fio_run(const struct cell *cell)
{
	unsigned int tries = 0, found;
	struct rusage usage;
	double real, slabs;

	(void)cell;
	signal(SIGALRM, fio_kill);
	signal(SIGINT, fio_end);
	signal(SIGTERM, fio_end);
	signal(SIGHUP, fio_end);
	snprintf(fio_directory, sizeof(fio_directory), "/tmp/kmem-netio-XXXXXX");
	if (!mkdtemp(fio_directory))
		bench_die("cannot make a directory in /tmp");
	while (!fio_once(&usage, &real) && !fio_over)
		if (++tries == FIO_TRIES)
			fio_die("fio did not get through its example");
	if (fio_over) {
		fio_clean();
		signal(fio_over, SIG_DFL);
		raise(fio_over);
	}
	slabs = fio_sum("stats", "\"alloc_slab\"", &found);
	slabs += fio_sum("stats", "\"free_slab\"", &found);
	fio_clean();
	if (!found)
		bench_die("fio did not run on this malloc");
	bench_print("s", "real", "-", real);
	bench_print("s", "sys", "-", fio_seconds(usage.ru_stime));
	bench_print("s", "user", "-", fio_seconds(usage.ru_utime));
	bench_print("slabs", "-", "-", slabs);
}

const struct work bench_works[] = {
	{ "netio", fio_run },
	{ NULL, NULL },
};
