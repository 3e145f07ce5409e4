/*
 * What the subcommands of `kmem` share: their entry points, and how they complain: one line on
 * stderr, status 2 for wrong usage, another one for what could not be done.
 */
#ifndef KMEM_COMMAND_COMMAND_H
#define KMEM_COMMAND_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* argv[0] is the subcommand's name; each returns the exit status. */
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

/* fail_caller.c: words for --fail by which the functions that `settings` names as callers are found which the
 * program, of that name, keeps to itself: each behind a comma, as many as `bytes` have room for. */
void kmem_fail_callers(const char *settings, const char *program, const char *name, char *text, size_t bytes);

/* Print the text and exit with 0, or with 1 where it can't be printed. */
_Noreturn void kmem_help(const char *text);
/*
 * The next option of a subcommand, as getopt_long has it of `short_ones` and `known`, its value in optarg; -1 behind
 * the last one, and optind is the first word that is none. 'h' prints `help` and ends the command with 0; one that is
 * not known, or has no value, ends it as kmem_usage does. short_ones begins with ":", or with "+:" where the first word
 * that is no option ends them.
 */
struct option;
int kmem_next_option(const char *command, const char *help, int argc, char **argv, const char *short_ones,
		     const struct option *known);
/* "kmem COMMAND: ..." and exit with 2. */
_Noreturn void kmem_usage(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The subcommand that runs, for what several of them call. */
extern const char *kmem_command;
/* The same line, and `status` returned, for `return kmem_failed(...)`. */
int kmem_failed(int status, const char *command, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* replace_file.c: may there be a file of that name, or a new one in its place? False: it was said why not. */
bool kmem_is_replaceable(const char *command, const char *path);
/* A file with what `fill` writes (0 or an errno) takes the place of that one; 0, or 1 and it was said why. */
int kmem_replace(const char *command, const char *path, int (*fill)(int fd, void *arg), void *arg);

/* The value of --seconds, from `least` to `most`, with a fraction or without; or wrong usage. */
double kmem_seconds(const char *command, const char *text, double least, double most);
void kmem_pause(double seconds);

/* All files of this process, for one that was forked and has no use for them: somebody may wait for the end of a file
 * that it has, or for a lock. It makes system calls only. */
void kmem_close_all_but(int fd);
void kmem_close_from(int fd);

/* Memory, or the command ends with one line and status 1. */
void *kmem_need(void *memory);
/* An array of `count` elements of `each` bytes, of which *room have room, with room for one more. */
void *kmem_grow(void *array, size_t count, size_t *room, size_t each);

/* Which of `count` pieces of address space, in order, is the first that ends behind the address; `count`: none does.
 * Each is a structure that has its `end`. */
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
