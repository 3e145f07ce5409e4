/*
 * function_names_elf.c: names of functions from the symbol tables of an ELF file, for builds without libdw.
 * Invariant: files are untrusted; each table and name is checked against the file's length before a read.
 */
#include <elf.h>
#include <string.h>

#include "function_names.h"

/* Returns: the name at an offset of a string table; NULL: empty, outside the table, or without a terminating 0. */
static const char *name_at(const struct image *image, const Elf64_Shdr *strings, uint32_t at)
{
	if (strings->sh_offset > image->length || strings->sh_size > image->length - strings->sh_offset ||
	    at >= strings->sh_size)
		return NULL;
	const char *name = image->bytes + strings->sh_offset + at;
	return *name && memchr(name, '\0', strings->sh_size - at) ? name : NULL;
}

/* Find the function that contains the address in one symbol table. */
static bool find_in(const struct image *image, const Elf64_Shdr *table, const Elf64_Shdr *strings, uint64_t address,
		    struct name *found)
{
	uint64_t count = table->sh_size / sizeof(Elf64_Sym);
	const Elf64_Sym *symbols = image_part(image, table->sh_offset, count, sizeof(*symbols));

	for (uint64_t i = 0; symbols && i < count; i++) {
		const Elf64_Sym *symbol = &symbols[i];
		const char *name;

		if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || address - symbol->st_value >= symbol->st_size ||
		    !(name = name_at(image, strings, symbol->st_name)))
			continue;
		*found = (struct name){ .function = name, .start = symbol->st_value, .bytes = symbol->st_size };
		return true;
	}
	return false;
}

size_t names_at(struct image *image, uint64_t address, struct name names[MOST_NAMES])
{
	const Elf64_Ehdr *head = image_part(image, 0, 1, sizeof(*head));
	const Elf64_Shdr *sections = head ? image_part(image, head->e_shoff, head->e_shnum, sizeof(*sections)) : NULL;

	if (!sections || head->e_shentsize != sizeof(*sections))
		return 0;
	/* The full symbol table, absent in a stripped file, is searched before the table of exported symbols. */
	for (unsigned type = SHT_SYMTAB;; type = SHT_DYNSYM) {
		for (unsigned i = 0; i < head->e_shnum; i++)
			if (sections[i].sh_type == type && sections[i].sh_link < head->e_shnum &&
			    find_in(image, &sections[i], &sections[sections[i].sh_link], address, names))
				return 1;
		if (type == SHT_DYNSYM)
			return 0;
	}
}
