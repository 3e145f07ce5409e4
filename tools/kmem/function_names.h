/*
 * function_names.h: functions by their addresses in a file: function_names_dw.c has them by elfutils' libdw, with
 * sources and what was inlined; function_names_elf.c, where that is not there, from the file's own tables of symbols.
 */
#ifndef KMEM_COMMAND_FUNCTION_NAMES_H
#define KMEM_COMMAND_FUNCTION_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file that a report names. */
struct image {
	char *path;
	const char *bytes;		/* NULL: it can't be used */
	size_t length;
	int copy;			/* of one that lies with a server (file_helper.h): it is read instead; or -1 */
	uint32_t build;			/* the first bytes of its build id; 0: it has none */
	bool told;			/* that it is another build than the program had */
	void *names;			/* what is kept of it here */
	bool opened;
	bool failed;			/* the process for names died of this file */
};

struct name {
	const char *function;		/* lives until the next question */
	uint64_t start, bytes;		/* where it is; of one that was inlined it is not said */
	const char *source;		/* NULL: not known */
	int line;
};
#define MOST_NAMES 16

/* `count` things of `each` bytes in a file, or NULL. */
const void *image_part(const struct image *image, uint64_t at, uint64_t count, uint64_t each);

/* The functions that an address is in: those that were inlined there, the innermost first, and in the end the one that
 * has the address. Returns how many; 0: none is known. */
size_t names_at(struct image *image, uint64_t address, struct name names[MOST_NAMES]);

/* function_names_helper.c: names_at, in another process with limits. */
size_t names_apart(struct image *image, uint64_t address, struct name names[MOST_NAMES]);
/* In the other process: open files anew. */
void images_forget(void);

/* cmd_symbols.c: a file, with blanks and the like as octal digits, or as it is; NULL: there are too many. The same as
 * names_at, which remembers; *names live until the next call. */
struct image *image_of(const char *text, size_t length);
struct image *image_at(const char *path);
size_t names_of(struct image *image, uint64_t address, const struct name **names);

#endif
