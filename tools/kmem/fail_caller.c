/*
 * fail_caller.c: `kmem run --fail caller=NAME` for functions that the program does not export. libkmem in the program
 * resolves names by the dynamic linker, and the dynamic linker knows exported functions only. The symbol table of the
 * program's file has all functions, unless the file is stripped. The command therefore looks NAME up in the file and
 * passes the range of the code: FILE+0xFROM-0xTO.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"

struct file {
	const char *bytes, *name;
	size_t length;
};

static const void *part(const struct file *file, uint64_t at, uint64_t length)
{
	return at <= file->length && length <= file->length - at ? file->bytes + at : NULL;
}

/* Returns: the lowest link address of the PT_LOAD segments, page-aligned. At run time the dynamic linker reports the
 * address of this page as the start of the file. */
static uint64_t first_address(const struct file *file, const Elf64_Ehdr *head)
{
	const Elf64_Phdr *segment = part(file, head->e_phoff, head->e_phnum * sizeof(*segment));
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; segment && i < head->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && segment[i].p_vaddr < first)
			first = segment[i].p_vaddr;
	return first & -4096ul;
}

/* Append ",caller=FILE+0xFROM-0xTO" for each function of the name. Returns: the end of the text. */
static char *add_functions(const struct file *file, const Elf64_Shdr *table, const Elf64_Shdr *strings,
			   const char *name, char *to, const char *end)
{
	const Elf64_Ehdr *head = part(file, 0, sizeof(*head));
	const Elf64_Sym *symbol = part(file, table->sh_offset, table->sh_size);
	const char *names = part(file, strings->sh_offset, strings->sh_size);
	size_t length = strcspn(name, ",") + 1;

	for (size_t i = 0; symbol && names && i < table->sh_size / sizeof(*symbol); i++) {
		uint64_t from = symbol[i].st_value - first_address(file, head);

		if (ELF64_ST_TYPE(symbol[i].st_info) != STT_FUNC || !symbol[i].st_size ||
		    symbol[i].st_name >= strings->sh_size || strings->sh_size - symbol[i].st_name < length ||
		    strncmp(names + symbol[i].st_name, name, length - 1) || names[symbol[i].st_name + length - 1])
			continue;
		int more = snprintf(to, (size_t)(end - to), ",caller=%s+0x%lx-0x%lx", file->name, from,
				    from + symbol[i].st_size);
		if (more >= end - to)
			break;
		to += more;
	}
	*to = '\0';
	return to;
}

static char *add_named(const struct file *file, const char *name, char *to, const char *end)
{
	const Elf64_Ehdr *head = part(file, 0, sizeof(*head));
	const Elf64_Shdr *section = head && !memcmp(head->e_ident, ELFMAG, SELFMAG) &&
				    head->e_ident[EI_CLASS] == ELFCLASS64 ?
					    part(file, head->e_shoff, head->e_shnum * sizeof(*section)) : NULL;

	for (unsigned i = 0; section && i < head->e_shnum; i++)
		if (section[i].sh_type == SHT_SYMTAB && section[i].sh_link < head->e_shnum)
			to = add_functions(file, &section[i], &section[section[i].sh_link], name, to, end);
	return to;
}

void kmem_fail_callers(const char *settings, const char *program, const char *name, char *text, size_t bytes)
{
	/* The dynamic linker names the program by `name`, as the program was started. */
	struct file file = { .name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name };
	int fd = open(program, O_RDONLY | O_CLOEXEC);
	char *to = text, *end = text + bytes;
	struct stat status;

	*text = '\0';
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
		void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		file.length = (size_t)status.st_size;
		file.bytes = map == MAP_FAILED ? NULL : map;
	}
	if (fd >= 0)
		close(fd);
	for (const char *word = settings; file.bytes && word; word = strchr(word, ',')) {
		word += *word == ',';
		if (!strncmp(word, "caller=", 7))
			to = add_named(&file, word + 7, to, end);
	}
	if (file.bytes)
		munmap((void *)file.bytes, file.length);
}
