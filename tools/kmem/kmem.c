/*
 * kmem.c: entry point of the command `kmem`, and the helpers shared by its subcommands. main() picks a subcommand
 * from commands[]; each subcommand lives in its own file (cmd_run.c, cmd_info.c, ...), and cmd_bench.c becomes the
 * driver of the benchmarks. Invariant: descriptors 0 to 2 are open before a subcommand runs.
 */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <kmem/kmem.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cache/option_text.h"
#include "info/info.h"

#ifndef SYS_close_range
#define SYS_close_range	436
#endif

static const char help_text[] =
	"usage: kmem run [OPTION...] [--] PROGRAM [ARGUMENT...]  start on libkmem\n"
	"       kmem info [OPTION...] [PID | FILE]               print caches and groups\n"
	"       kmem top [OPTION...] [PID...]                    watch memory\n"
	"       kmem diff BEFORE AFTER                           print the growth\n"
	"       kmem bench BENCH... [OPTION...]                  measure\n"
	"       kmem debug PID [CACHE LETTERS]                   switch debugging\n"
	"       kmem shrink PID [CACHE]                          return free memory\n"
	"       kmem account PID on | off                        charge malloc to groups\n"
	"       kmem leaks [OPTION...] PID | CORE                find lost objects\n"
	"       kmem who PID|CORE ADDRESS...                     name an object\n"
	"       kmem profile [OPTION...] PID                     profile allocations\n"
	"       kmem fs [--snapshot] PID DIR                     files as the kernel's\n"
	"       kmem metrics [OPTION...] PID | FILE              print for Prometheus\n"
	"       kmem symbols [FILE]                              name functions\n"
	"       kmem --help | --version\n"
	"Each command has --help and a section of the manual page kmem(1).\n"
	"Example:\n"
	"  kmem run -- redis-server & kmem top $(pidof redis-server)\n";

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "run", cmd_run },
	{ "info", cmd_info },
	{ "bench", cmd_bench },
	{ "symbols", cmd_symbols },
	{ "debug", cmd_debug },
	{ "profile", cmd_profile },
	{ "top", cmd_top },
	{ "diff", cmd_diff },
	{ "shrink", cmd_shrink },
	{ "account", cmd_account },
	{ "who", cmd_who },
	{ "leaks", cmd_leaks },
	{ "fs", cmd_fs },
	{ "metrics", cmd_metrics },
};

const char *kmem_command = "";

/* Returns: the names of all subcommands, "run, info, ... and metrics", for error messages. */
static const char *names_of_commands(void)
{
	static char text[200];
	size_t count = sizeof(commands) / sizeof(*commands), length = 0;

	for (size_t i = 0; i < count && length < sizeof(text); i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", commands[i].name,
					   i + 2 < count ? ", " : i + 2 == count ? " and " : "");
	return text;
}

static void complain(const char *command, const char *format, va_list arguments)
{
	char text[1024];

	/* Write the line in one call, because several kmem processes may share the terminal. */
	vsnprintf(text, sizeof(text), format, arguments);
	fprintf(stderr, "kmem%s%s: %s\n", *command ? " " : "", command, text);
}

_Noreturn void kmem_usage(const char *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(command, format, arguments);
	va_end(arguments);
	exit(2);
}

int kmem_failed(int status, const char *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(command, format, arguments);
	va_end(arguments);
	return status;
}

double kmem_seconds(const char *command, const char *text, double least, double most)
{
	char *end;
	double seconds = strtod(text, &end);

	/* strtod also accepts 0x10 and nan; the option must not. */
	if (!*text || text[strspn(text, "0123456789.")] || *end || !(seconds >= least && seconds <= most))
		kmem_usage(command, "--seconds: '%s' is not a number from %g to %g", text, least, most);
	return seconds;
}

void kmem_pause(double seconds)
{
	struct timespec time = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/* close_range fails on Linux before 5.9 and under some seccomp filters; then a loop closes the descriptors. */
void kmem_close_from(int fd)
{
	const int most = 1 << 20;

	if (syscall(SYS_close_range, (unsigned)fd, ~0u, 0u))
		for (; fd < most; fd++)
			close(fd);
}

void kmem_close_all_but(int fd)
{
	for (int each = 0; each < fd; each++)
		close(each);
	kmem_close_from(fd + 1);
}

void *kmem_need(void *memory)
{
	if (memory)
		return memory;
	if (info_before_the_end)
		info_before_the_end();
	exit(kmem_failed(1, "", "out of memory"));
}

void *kmem_grow(void *array, size_t count, size_t *room, size_t each)
{
	if (count < *room)
		return array;
	*room = *room ? *room * 2 : 64;
	return kmem_need(reallocarray(array, *room, each));
}

_Noreturn void kmem_help(const char *text)
{
	fputs(text, stdout);
	if (fflush(stdout) || ferror(stdout))
		exit(kmem_failed(1, "", "writing: %s", strerror(errno)));
	exit(0);
}

int kmem_next_option(const char *command, const char *help, int argc, char **argv, const char *short_ones,
		     const struct option *known)
{
	opterr = 0;
	int code = getopt_long(argc, argv, short_ones, known, NULL);

	if (code == 'h')
		kmem_help(help);
	if (code == ':')
		kmem_usage(command, "%s needs a value", argv[optind - 1]);
	if (code == '?')
		kmem_usage(command, "unknown option '%s'", argv[optind - 1]);
	return code;
}

/* Tells the library that KMEM_* variables in the environment are meant for other processes: the program of `kmem run`
 * and the workers of `kmem bench`. Each such process reports bad values of its own. A process inspected by `kmem
 * info` read its variables when the process started. */
bool km_options_for_others(void)
{
	return true;
}

/* SIGBUS handler. Another process may shorten a file while kmem or libdw maps the file. The handler maps
 * a page of zeros over the page of a failed access. */
static void fill_with_zeros(int number, siginfo_t *info, void *context)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *at = (void *)((uintptr_t)info->si_addr & -page);
	int error = errno;

	(void)context;
	/* If mmap fails, the access is repeated with the default action, and SIGBUS ends the command. */
	if (info->si_code != BUS_ADRERR ||
	    mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		signal(number, SIG_DFL);
	errno = error;
}

/* Opens /dev/null on each closed standard descriptor, so no later open() (for example of another process's memory)
 * gets descriptor 0, 1 or 2. Input is opened for writing only and output for
 * reading only, so reads and writes still fail. O_CLOEXEC: a started program finds the descriptors closed,
 * as before. */
static void keep_standard_files(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) != fd)
			_exit(1);
}

/* Runs a subcommand. SIGXFSZ is ignored, so a write beyond the file size limit fails with an error message.
 * `run` and `bench` start other programs and leave SIGXFSZ unchanged, because an ignored signal stays ignored across
 * exec. */
static int run_command(const struct command *command, int argc, char **argv)
{
	static char help[] = "--help";

	kmem_command = command->name;
	if (argc > 1 && !strcmp(argv[1], "-h"))
		argv[1] = help;
	if (command->run != cmd_run && command->run != cmd_bench) {
		signal(SIGXFSZ, SIG_IGN);
		info_limit_memory();
	}
	return command->run(argc, argv);
}

int main(int argc, char **argv)
{
	const struct sigaction shortened = { .sa_sigaction = fill_with_zeros, .sa_flags = SA_SIGINFO };

	keep_standard_files();
	sigaction(SIGBUS, &shortened, NULL);
	if (argc < 2)
		kmem_usage("", "a command is missing: %s; see kmem --help", names_of_commands());
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		kmem_help(help_text);
	if (!strcmp(argv[1], "--version"))
		kmem_help("kmem " KMEM_VERSION "\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return run_command(&commands[i], argc - 1, argv + 1);
	kmem_usage("", "unknown command '%s'; the commands are %s", argv[1], names_of_commands());
}
