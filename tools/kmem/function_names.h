/*
 * function_names.h: names of functions at addresses in an ELF file. function_names_dw.c uses elfutils' libdw, and
 * adds source lines and inlined functions. A build without libdw uses function_names_elf.c, the file's symbol tables.
 */
#ifndef KMEM_COMMAND_FUNCTION_NAMES_H
#define KMEM_COMMAND_FUNCTION_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An ELF file named by a report. */
struct image {
	char *path;
	const char *bytes;		/* mapped contents; NULL: not a usable ELF file */
	size_t length;
	int copy;			/* descriptor of the copy of a file on a server (file_helper.h); else -1 */
	uint32_t build;			/* first 4 bytes of the build id; 0: no build id */
	bool told;			/* true after the message about a different build */
	void *names;			/* libdw's module of the file */
	bool opened;			/* true after the first attempt to open the module */
	bool failed;			/* the helper process ended or timed out on this file */
};

struct name {
	const char *function;		/* valid until the next query */
	uint64_t start, bytes;		/* address and size in bytes; not set for an inlined function */
	const char *source;		/* source file; NULL: unknown */
	int line;
};
#define MOST_NAMES 16

/* Returns: `count` elements of `each` bytes at file offset `at`. NULL: outside the file, or `at` is unaligned. */
const void *image_part(const struct image *image, uint64_t at, uint64_t count, uint64_t each);

/* Name the functions at an address: the inlined functions first, from the innermost outwards, then the function whose
 * symbol contains the address. Returns: the number of names; 0: unknown. */
size_t names_at(struct image *image, uint64_t address, struct name names[MOST_NAMES]);

/* function_names_helper.c: call names_at in a helper process with limits on memory and time. */
size_t names_apart(struct image *image, uint64_t address, struct name names[MOST_NAMES]);
/* Context: the helper process. Forget all images, so that the files are opened again. */
void images_forget(void);

/* cmd_symbols.c: image_of takes a path with octal escapes from a report, image_at a plain path. Both return NULL when
 * the table of files is full. names_of caches the result of names_apart; *names is valid until the next call. */
struct image *image_of(const char *text, size_t length);
struct image *image_at(const char *path);
size_t names_of(struct image *image, uint64_t address, const struct name **names);

#endif
