/*
 * cmd_symbols.c: `kmem symbols`: a filter from addresses to function names. Debug reports contain
 * FILE+0xOFFSET[BUILD]. The filter prints FUNCTION+0xINTO/0xLENGTH [FILE], the kernel's form, and the source line if
 * known. The file must be a 64-bit ELF file with a symbol at the offset, and with the report's build id, if any. All
 * other text is copied unchanged. Invariant: files are untrusted; each note is checked against the file's length
 * before the note is read.
 *
 * Exit status: 0; 1 input not read or output not written; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"
#include "function_names.h"
#include "file_helper.h"

#define MOST_FILES 1024		/* addresses in further files stay unchanged; a browser has some hundred files */
#define MOST_PATH  (4 * PATH_MAX)	/* bytes of an escaped path: \ooo for one byte; a line has no limit */

static const char usage_text[] =
	"usage: kmem symbols [FILE]\n"
	"Copy FILE, or standard input, and name the functions at FILE+0xOFFSET.\n"
	"Example:\n"
	"  kmem run --debug FZPU -- ./server 2>&1 | kmem symbols\n";

static struct {
	struct image image[MOST_FILES];
	size_t count;
} files;

const void *image_part(const struct image *image, uint64_t at, uint64_t count, uint64_t each)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(count, each, &bytes) || at > image->length || bytes > image->length - at ||
	    at % sizeof(uint64_t))
		return NULL;
	return image->bytes + at;
}

/* Search a note segment. Requires: the segment is inside the file. Returns: the first 4 bytes of the build id, as in
 * a report; 0: no build id. */
static uint32_t build_in(const struct image *image, uint64_t at, uint64_t bytes)
{
	uint64_t end = at + bytes;
	Elf64_Nhdr note;

	while (end - at >= sizeof(note) + 8) {
		memcpy(&note, image->bytes + at, sizeof(note));
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz >= 4) {
			const unsigned char *id = (const unsigned char *)image->bytes + at + sizeof(note) + 4;
			return (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
		}
		uint64_t step = sizeof(note) + (((uint64_t)note.n_namesz + 3) & ~3ul) +
				(((uint64_t)note.n_descsz + 3) & ~3ul);
		at += step < end - at ? step : end - at;
	}
	return 0;
}

static uint32_t build_of(const struct image *image, const Elf64_Ehdr *head)
{
	const Elf64_Phdr *segments = image_part(image, head->e_phoff, head->e_phnum, sizeof(*segments));
	uint32_t build = 0;

	if (!segments || head->e_phentsize != sizeof(*segments))
		return 0;
	for (unsigned i = 0; i < head->e_phnum && !build; i++)
		if (segments[i].p_type == PT_NOTE && segments[i].p_offset <= image->length &&
		    segments[i].p_filesz <= image->length - segments[i].p_offset)
			build = build_in(image, segments[i].p_offset, segments[i].p_filesz);
	return build;
}

static void map_file(struct image *image)
{
	struct opened opened;
	int fd = opened_file(image->path, true, OPENED_ALL, &opened);
	struct stat status;

	image->copy = -1;
	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0 && status.st_size > 0) {
		void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (map != MAP_FAILED) {
			image->bytes = map;
			image->length = (size_t)status.st_size;
		}
	}
	if (opened.far && image->bytes)
		image->copy = fd;
	else
		close(fd);
	const Elf64_Ehdr *head = image->bytes ? image_part(image, 0, 1, sizeof(*head)) : NULL;
	if (head && !memcmp(head->e_ident, ELFMAG, SELFMAG) && head->e_ident[EI_CLASS] == ELFCLASS64)
		image->build = build_of(image, head);
	else
		image->bytes = NULL;
}

/* Decode a path of a report. Reports escape blanks, control characters and backslashes as octal digits. */
static char *path_of(const char *text, size_t length)
{
	char *path = kmem_need(strndup(text, length)), *to = path;

	for (const char *at = path; *at; at++) {
		unsigned byte;

		if (*at == '\\' && strspn(at + 1, "01234567") >= 3 && sscanf(at + 1, "%3o", &byte) == 1) {
			*to++ = (char)byte;
			at += 3;
		} else {
			*to++ = *at;
		}
	}
	*to = '\0';
	return path;
}

/* Find or map the image of a path. Takes ownership of `path`. Returns: NULL: MOST_FILES images exist. */
static struct image *image_by(char *path)
{
	struct image *found = NULL;

	for (size_t i = 0; i < files.count && !found; i++)
		if (!strcmp(files.image[i].path, path))
			found = &files.image[i];
	if (found || files.count == MOST_FILES) {
		free(path);
		return found;
	}
	found = &files.image[files.count++];
	found->path = path;
	map_file(found);
	return found;
}

struct image *image_of(const char *text, size_t length)
{
	return image_by(path_of(text, length));
}

void images_forget(void)
{
	files.count = 0;
}

struct image *image_at(const char *path)
{
	return image_by(kmem_need(strdup(path)));
}

/* ------------------------------------------------------------------ lines */

/* Returns: the start of the word that ends at `plus`: after the last blank between `from` and `plus`, else `word`. */
static const char *word_before(const char *word, const char *from, const char *plus)
{
	for (; from < plus; from++)
		if (*from == ' ' || *from == '\t')
			word = from + 1;
	return word;
}

/* Parse "[BUILD]", eight hexadecimal digits. Returns: the text behind the bracket; NULL: no build id. */
static const char *build_at(const char *text, uint32_t *build)
{
	char digits[9] = "";

	if (*text != '[' || strspn(strncpy(digits, text + 1, 8), "0123456789abcdefABCDEF") != 8 || text[9] != ']')
		return NULL;
	*build = (uint32_t)strtoul(digits, NULL, 16);
	return text + 10;
}

/* "FILE+0xOFFSET" or "FILE+0xOFFSET[BUILD]" in a line. */
struct place {
	const char *path, *end;
	size_t length;			/* of the path, in bytes; 0: too long */
	uint64_t address;
	uint32_t build;			/* 0: no build id in the report */
};

static struct place place_at(const char *path, const char *plus)
{
	struct place place = { .path = path, .length = plus - path <= MOST_PATH ? (size_t)(plus - path) : 0 };
	char *end;

	place.address = strtoull(plus + 1, &end, 16);
	place.end = build_at(end, &place.build) ?: end;
	return place;
}

/* Returns: the image; NULL: no usable file, or another build than the program ran, e.g. after an upgrade. A different
 * build is reported once for each file. */
static struct image *usable(const struct place *place)
{
	struct image *image = image_of(place->path, place->length);

	if (!image || !image->bytes || image->build == place->build || !place->build)
		return image && image->bytes ? image : NULL;
	if (!image->told) {
		char *path = info_printable_copy(image->path);

		kmem_failed(0, "symbols", "%s: not the file that ran (build id %08x, not %08x): its functions have "
					  "no names", path, image->build, place->build);
		free(path);
	}
	image->told = true;
	return NULL;
}

/* ------------------------------------------------------------------ places that were named */

#define MOST_KNOWN 8192u		/* entries, a power of two; other addresses are looked up each time */

/* Cache of names, a hash table with 8 probes: stacks repeat the same frames. */
static struct known {
	const struct image *image;
	uint64_t address;
	struct name *names;
	size_t count;
} *known;

static void remember(struct known *place, const struct name *names, size_t count)
{
	place->names = kmem_need(calloc(count + 1, sizeof(*names)));
	place->count = count;
	for (size_t i = 0; i < count; i++) {
		place->names[i] = names[i];
		place->names[i].function = kmem_need(strdup(names[i].function));
		place->names[i].source = names[i].source ? kmem_need(strdup(names[i].source)) : NULL;
	}
}

size_t names_of(struct image *image, uint64_t address, const struct name **names)
{
	static struct name found[MOST_NAMES];
	uint64_t hash = (address ^ (uintptr_t)image) * 0x9e3779b97f4a7c15u >> 32;

	known = known ?: kmem_need(calloc(MOST_KNOWN, sizeof(*known)));
	for (unsigned i = 0; i < 8; i++) {
		struct known *place = &known[(hash + i) % MOST_KNOWN];

		if (place->image && (place->image != image || place->address != address))
			continue;
		if (!place->image) {
			*place = (struct known){ .image = image, .address = address };
			remember(place, found, names_apart(image, address, found));
		}
		*names = place->names;
		return place->count;
	}
	*names = found;
	return names_apart(image, address, found);
}

/* Print text from a file with control characters escaped for the terminal. */
static void put_printable(const char *text)
{
	char *copy = info_printable_copy(text);

	fputs(copy, stdout);
	free(copy);
}

static void put_source(const struct name *name)
{
	if (!name->source || !name->line)
		return;
	putchar(' ');
	put_printable(name->source);
	printf(":%d", name->line);
}

/* Print an address. In a stack the address ends the line, and each inlined function gets a separate line. */
static void put_place(const struct place *place, const struct image *image, const struct name *names, size_t count,
		      const char *before)
{
	const struct name *last = &names[count - 1];
	bool in_stack = place->end[0] == '\n' || !place->end[0];

	for (const struct name *name = names; in_stack && name < last; name++) {
		printf("%.*s", (int)(place->path - before), before);
		put_printable(name->function);
		fputs(" [inlined]", stdout);
		put_source(name);
		putchar('\n');
	}
	printf("%.*s", (int)(place->path - before), before);
	put_printable(last->function);
	printf("+0x%llx/0x%llx [", (unsigned long long)(place->address - last->start), (unsigned long long)last->bytes);
	put_printable(image->path);
	putchar(']');
	put_source(in_stack ? last : names);
}

static void copy_line(const char *line)
{
	const char *done = line, *word = line, *plus;

	for (const char *at = line; (plus = strstr(at, "+0x")); at = plus + 3) {
		word = word_before(word, at, plus);
		struct place place = place_at(word > done ? word : done, plus);
		struct image *image = place.length && place.address ? usable(&place) : NULL;
		const struct name *names;
		/* A stack has return addresses; the call is before the return address. */
		size_t count = image ? names_of(image, place.address - 1, &names) : 0;

		if (!count)
			continue;
		put_place(&place, image, names, count, done);
		done = place.end;
	}
	fputs(done, stdout);
}

int cmd_symbols(int argc, char **argv)
{
	FILE *input = stdin;
	char *line = NULL;
	size_t room = 0;

	if (argc == 2 && !strcmp(argv[1], "--help"))
		kmem_help(usage_text);
	if (argc > 2 || (argc == 2 && argv[1][0] == '-' && argv[1][1]))
		kmem_usage("symbols", "too many arguments: give one file at most");
	if (argc == 2 && strcmp(argv[1], "-") && !(input = fopen(argv[1], "re")))
		return kmem_failed(1, "symbols", "%s: %s", argv[1], strerror(errno));
	while (getline(&line, &room, input) > 0) {
		copy_line(line);
		/* Flush each line, so that a reader at a pipe sees the line at once. */
		if (fflush(stdout))
			return kmem_failed(1, "symbols", "writing: %s", strerror(errno));
	}
	free(line);
	if (ferror(input))
		return kmem_failed(1, "symbols", "reading: %s", strerror(errno));
	return 0;
}
