/*
 * What the subcommands of `kmem` share: their entry points, and how they complain: one line on
 * stderr, status 2 for wrong usage, another one for what could not be done.
 */
#ifndef KMEM_COMMAND_H
#define KMEM_COMMAND_H

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
int cmd_leaks(int argc, char **argv);
int cmd_who(int argc, char **argv);

/* fail.c: words for --fail by which the functions that `settings` names as callers are found which the program, of that
 * name, keeps to itself: each behind a comma, as many as `bytes` have room for. */
void kmem_fail_callers(const char *settings, const char *program, const char *name, char *text, size_t bytes);

/* Print the text and exit with 0, or with 1 where it can't be printed. */
_Noreturn void kmem_help(const char *text);
/* "kmem COMMAND: ..." and exit with 2. */
_Noreturn void kmem_usage(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same line, and `status` returned, for `return kmem_failed(...)`. */
int kmem_failed(int status, const char *command, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Memory, or the command ends with one line and status 1. */
void *kmem_need(void *memory);
/* An array of `count` elements of `each` bytes, of which *room have room, with room for one more. */
void *kmem_grow(void *array, size_t count, size_t *room, size_t each);

#endif
