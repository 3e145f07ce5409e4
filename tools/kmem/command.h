/*
 * command.h: entry points of the subcommands of `kmem`, and shared helpers. Invariant: an error is one line on
 * stderr; exit status 2 means wrong usage, any other nonzero status means a failed action.
 */
#ifndef KMEM_COMMAND_COMMAND_H
#define KMEM_COMMAND_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* Entry points of the subcommands. Requires: argv[0] is the name of the subcommand. Returns: the exit status. */
int cmd_run(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_symbols(int argc, char **argv);
int cmd_debug(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_shrink(int argc, char **argv);
int cmd_account(int argc, char **argv);
int cmd_leaks(int argc, char **argv);
int cmd_who(int argc, char **argv);
int cmd_fs(int argc, char **argv);
int cmd_metrics(int argc, char **argv);

/* fail_caller.c: writes extra settings for --fail into `text`, each after a comma, as many as `bytes` have room for.
 * `settings` may name callers; the extra settings give the code ranges (FILE+0xFROM-0xTO) of callers found in the
 * symbol table of the file `program`, so static functions work too. `name`: the program as named by the user. */
void kmem_fail_callers(const char *settings, const char *program, const char *name, char *text, size_t bytes);

/* Prints the text and exits: status 0, or 1 after a write error. */
_Noreturn void kmem_help(const char *text);
/*
 * Reads the next option of a subcommand with getopt_long from `short_ones` and `known`; optarg is the option's value.
 * 'h' prints `help` and exits with 0. An unknown option or a missing value exits as kmem_usage does.
 * Requires: short_ones begins with ":", or with "+:" if the first word without a dash ends the options.
 * Returns: the option's code; -1 after the last option, and optind is the first word after the options.
 */
struct option;
int kmem_next_option(const char *command, const char *help, int argc, char **argv, const char *short_ones,
		     const struct option *known);
/* Prints "kmem COMMAND: ..." on stderr and exits with 2. */
_Noreturn void kmem_usage(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Name of the running subcommand, for functions called by several subcommands. */
extern const char *kmem_command;
/* Prints "kmem COMMAND: ..." on stderr. Returns: `status`, for `return kmem_failed(...)`. */
int kmem_failed(int status, const char *command, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* replace_file.c: checks whether `path` may be replaced: a regular file, or no file at all. A device, a pipe or a
 * link must not be replaced. Returns: true, or false after an error message. */
bool kmem_is_replaceable(const char *command, const char *path);
/* Replaces the file `path` by a new file written by `fill`; `fill` returns 0 or an errno.
 * Returns: 0, or 1 after an error message. */
int kmem_replace(const char *command, const char *path, int (*fill)(int fd, void *arg), void *arg);

/* Returns: the value of --seconds, a decimal number from `least` to `most`. Exits with 2 for other text. */
double kmem_seconds(const char *command, const char *text, double least, double most);
void kmem_pause(double seconds);

/* Close all descriptors but `fd`, or all descriptors from `fd` on. A forked process without use for inherited files
 * must close the files, because another process may wait for the end of a pipe, or for a lock held by a descriptor.
 * Context: makes system calls only, hence safe after fork() in a process with threads. */
void kmem_close_all_but(int fd);
void kmem_close_from(int fd);

/* Returns: `memory`. NULL ends the command with one line on stderr and status 1. */
void *kmem_need(void *memory);
/* Makes room for one more element in an array of `count` elements of `each` bytes. *room: allocated elements.
 * Returns: the array, possibly moved. */
void *kmem_grow(void *array, size_t count, size_t *room, size_t each);

#define KMEM_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Finds by binary search the index of the first range ending after the address.
 * Requires: `pieces` is an array of `count` structures with a member `end`, sorted by address, without overlaps.
 * Evaluates to: the index, or `count` if all ranges end at or before the address. */
#define KMEM_FIRST_BEHIND(pieces, count, address)                                                  \
	({                                                                                         \
		const typeof((address) + 0) kmem_address = (address);                              \
		size_t kmem_low = 0, kmem_high = (count);                                          \
                                                                                                   \
		while (kmem_low < kmem_high) {                                                     \
			const size_t kmem_middle = kmem_low + (kmem_high - kmem_low) / 2;          \
                                                                                                   \
			if ((pieces)[kmem_middle].end <= kmem_address)                             \
				kmem_low = kmem_middle + 1;                                        \
			else                                                                       \
				kmem_high = kmem_middle;                                           \
		}                                                                                  \
		kmem_low;                                                                          \
	})

#endif
