/*
 * atexit.c: output at program exit. KMEM_STATS=FILE: the JSON of kmem_print_json ("%p" in the name becomes the PID),
 * or slabinfo on stderr if FILE is "-". KMEM_LEAKS=FILE: allocation sites of live objects, piped through the command
 * in KMEM_SYMBOLS to resolve function names. Invariants: with two copies of the library in one process, only the copy
 * used by the program writes. The program's exit status never changes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>

#include <kmem/stats.h>

#include "cache/cache.h"
#include "os/die.h"
#include "os/os.h"
#include "os/stderr.h"
#include "stats_print.h"

#pragma weak dlsym

/* The symbol as bound by the loader, and this copy's own symbol: different if another copy was loaded first. */
KMEM_API int kmem_copy_in_use;
extern int km_addr_reuse_copy __attribute__((alias("kmem_copy_in_use"), visibility("hidden")));

/* libc's function behind atexit. Used directly, so that the handler runs at the end of the program, also after an
 * earlier dlclose. */
int __cxa_atexit(void (*function)(void *arg), void *arg, void *of_object);

#define PATH_BYTES 1024u

static char statistics[PATH_BYTES];	/* path of KMEM_STATS; empty: not requested */
static char leaks[PATH_BYTES];

static void read_path(const char *variable, char *path)
{
	int length = km_os_getenv(variable, path, PATH_BYTES);

	if (length >= (int)PATH_BYTES)
		km_warn("%s: longer than %u bytes, ignored", variable, PATH_BYTES - 1);
	if (length < 0 || length >= (int)PATH_BYTES)
		path[0] = '\0';
}

static void expand(const char *from, char *to, size_t bytes)
{
	size_t length = 0;

	for (; *from && length + 16 < bytes; from++) {
		if (from[0] == '%' && from[1] == 'p') {
			length += km_format(to + length, bytes - length, "%u", km_os_pid());
			from++;
		} else {
			to[length++] = *from;
		}
	}
	km_debug(length < bytes, "a name ends in its array");
	to[length] = '\0';
}

static bool may_write(const char *variable, const char *path)
{
	int *in_use = &kmem_copy_in_use;

	/* Hide the address from the compiler, which would assume that two symbols have two addresses. */
	__asm__("" : "+r"(in_use));
	if (!path[0] || in_use != &km_addr_reuse_copy || !km_ready)
		return false;
	/* The program calls exit() in a signal handler that interrupted the allocator: locks may be held for ever, so
	 * print nothing. */
	if (km_thread.busy)
		km_warn("%s: the program ended inside of the allocator: no report is written", variable);
	return !km_thread.busy;
}

static bool is_stderr(const char *path)
{
	return path[0] == '-' && !path[1];
}

/* Open the output. Returns: a descriptor to close, unless stderr; negative on failure. */
static int open_path(const char *variable, const char *path)
{
	char name[PATH_BYTES + 76];

	/* GNU programs have closed stderr by now, so the output goes to a duplicate. */
	if (is_stderr(path))
		return km_stderr(false);
	expand(path, name, sizeof(name));
	int fd = km_os_open_truncated(name);
	if (fd < 0)
		km_warn("%s: can't write %s", variable, name);
	return fd;
}

static void leave_statistics(void)
{
	if (!may_write("KMEM_STATS", statistics))
		return;
	int fd = open_path("KMEM_STATS", statistics);
	if (fd < 0)
		return;
	if (is_stderr(statistics)) {
		kmem_print_slabinfo(fd);
		return;
	}
	if (kmem_print_json(fd))
		km_warn("KMEM_STATS: can't write %s", statistics);
	km_os_close(fd);
}

/* ------------------------------------------------------------------ leaks */

/* Make libc and the C++ library free their own memory, by functions provided for leak checkers. Otherwise these objects
 * would be in every report. Skipped with several threads, because another thread may use the memory. */
static void free_libraries_own(void)
{
	static const char *const names[] = { "_ZN9__gnu_cxx9__freeresEv", "__libc_freeres" };

	if (!dlsym || km_os_threads() != 1)
		return;
	km_debug_ops->over();
	for (size_t i = 0; i < km_array_count(names); i++) {
		void (*give_back)(void);

		*(void **)&give_back = dlsym(RTLD_DEFAULT, names[i]);
		if (give_back)
			give_back();
	}
}

static void print_leaks(int fd)
{
	struct km_writer writer = { .fd = fd };
	char program[16];

	km_os_program(program, sizeof(program));
	km_print(&writer, "libkmem: %s (%u): allocation stacks of objects that are not freed:\n", program, km_os_pid());
	int error = km_print_end(&writer) ?: km_debug_ops->print_leaks(fd);
	if (error)
		km_warn("KMEM_LEAKS: %s", error == -EINVAL ? "no cache has user tracking" :
			error == -ENOMEM ? "out of memory for the table of stacks" : "can't write");
}

/* Resolve names through a memory file, so that a failing command loses no output. */
static void print_named(const char *command, int fd)
{
	int file = km_os_memory_file("kmem-leaks");

	km_debug(file != fd, "a report is copied to another file");
	if (file < 0) {
		print_leaks(fd);
		return;
	}
	print_leaks(file);
	if (km_os_filter(command, "symbols", file, fd))
		km_os_copy(file, fd);
	km_os_close(file);
}

static void leave_leaks(void)
{
	char command[PATH_BYTES];
	sigset_t failures;

	km_debug(leaks[0], "leaks are printed on request only");
	if (!km_debug_ops || !may_write("KMEM_LEAKS", leaks))
		return;
	/* A reader that has gone, or a file size limit, must not change the program's exit. */
	sigemptyset(&failures);
	sigaddset(&failures, SIGPIPE);
	sigaddset(&failures, SIGXFSZ);
	sigprocmask(SIG_BLOCK, &failures, NULL);
	free_libraries_own();
	int fd = open_path("KMEM_LEAKS", leaks);
	if (fd < 0)
		return;
	int length = km_os_getenv("KMEM_SYMBOLS", command, sizeof(command));
	if (length > 0 && length < (int)sizeof(command))
		print_named(command, fd);
	else
		print_leaks(fd);
}

/* Print leaks at the second of two calls. For a shared object loaded at program start, libc calls the registered
 * function after all destructors, and this object's own destructor before. In a program the order is reversed. The
 * later call is the end of the program. */
static void at_end(void *arg km_unused)
{
	static uint32_t earlier;

	if (km_swap_acquire(&earlier, 1u))
		leave_leaks();
}

/* ------------------------------------------------------------------ constructor and destructor */

/* Copies the paths from the environment, early: programs that rewrite their title overwrite the environment. */
__attribute__((constructor(102))) static void remember_paths(void)
{
	read_path("KMEM_STATS", statistics);
	read_path("KMEM_LEAKS", leaks);
	if (leaks[0] && __cxa_atexit(at_end, NULL, NULL))
		at_end(NULL);
}

/* Prints statistics. This destructor is registered among the first, and so runs among the last. */
__attribute__((destructor(102))) static void leave(void)
{
	leave_statistics();
	if (leaks[0])
		at_end(NULL);
}
