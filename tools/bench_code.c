/*
 * Bytes of machine code of the bulk functions, as rows of `kmem bench bulk`. Counted, from the
 * symbols of this very program, which is linked with the same archive as the static workers: the
 * function itself; the functions of the front that it hands the array to, with the parts of them
 * that the compiler put elsewhere; and the functions of the engine that these call. What those
 * call on a miss (slabs, pages, locks) serves single calls as well and is not counted, nor is a
 * helper that is not of the bulk files. A function counts once in a sum.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "cache/cache.h"

#define CODE_NAMES 8u
#define CODE_CALLS 4u

typedef void (*code_fn)(void);

static struct {
	const char *image, *names;
	const Elf64_Sym *symbols;
	size_t count;
	uintptr_t shift;	/* address here less address in the file */
} code;

static const Elf64_Shdr *section(const Elf64_Ehdr *head, unsigned int index)
{
	return (const Elf64_Shdr *)(code.image + head->e_shoff) + index;
}

static bool open_symbols(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const Elf64_Ehdr *head;
	struct stat info;

	if (fd < 0 || fstat(fd, &info))
		return false;
	code.image = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (code.image == MAP_FAILED)
		return false;
	head = (const Elf64_Ehdr *)code.image;
	for (unsigned int i = 0; i < head->e_shnum; i++)
		if (section(head, i)->sh_type == SHT_SYMTAB) {
			code.symbols = (const void *)(code.image + section(head, i)->sh_offset);
			code.count = section(head, i)->sh_size / sizeof(*code.symbols);
			code.names = code.image + section(head, section(head, i)->sh_link)->sh_offset;
		}
	return code.symbols != NULL;
}

static const Elf64_Sym *find_symbol(const char *name)
{
	for (size_t i = 0; i < code.count; i++)
		if (ELF64_ST_TYPE(code.symbols[i].st_info) == STT_FUNC &&
		    !strcmp(code.names + code.symbols[i].st_name, name))
			return &code.symbols[i];
	return NULL;
}

/* Of this function, or a part of it: NAME, NAME.cold, NAME.part.0, ... */
static bool is_part(const char *symbol, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(symbol, name, length) && (!symbol[length] || symbol[length] == '.');
}

/* Two names of one place count once. */
static double bytes_of_name(const char *name)
{
	double bytes = 0;

	for (size_t i = 0; i < code.count; i++) {
		const Elf64_Sym *symbol = &code.symbols[i];
		bool again = false;

		if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
		    !is_part(code.names + symbol->st_name, name))
			continue;
		for (size_t k = 0; k < i; k++)
			again |= code.symbols[k].st_value == symbol->st_value &&
				 is_part(code.names + code.symbols[k].st_name, name);
		bytes += again ? 0 : (double)symbol->st_size;
	}
	return bytes;
}

static double bytes_at(code_fn function)
{
	uintptr_t address = (uintptr_t)function - code.shift;

	for (size_t i = 0; i < code.count; i++)
		if (ELF64_ST_TYPE(code.symbols[i].st_info) == STT_FUNC &&
		    code.symbols[i].st_value == address)
			return bytes_of_name(code.names + code.symbols[i].st_name);
	return 0;
}

static double bytes_of(const char *const *names, const code_fn *calls)
{
	double bytes = 0;

	for (size_t i = 0; i < CODE_NAMES && names[i]; i++)
		bytes += bytes_of_name(names[i]);
	for (size_t i = 0; i < CODE_CALLS; i++) {
		bool again = !calls[i];

		for (size_t k = 0; k < i; k++)
			again |= calls[k] == calls[i];
		bytes += again ? 0 : bytes_at(calls[i]);
	}
	return bytes;
}

static void add_row(struct table *table, const struct variant *variant, const char *function,
		    const char *api, double bytes)
{
	struct row *row = bench_new_row(table);

	row->kind = variant->kind;
	row->work = "bulk";
	row->subject = variant->subject;
	row->version = variant->version;
	row->api = api;
	row->linkage = variant->linkage;
	row->discipline = variant->discipline;
	row->variant = variant;
	row->unit = "bytes";
	row->measure = "code";
	row->at = function;
	bench_add_value(row, bytes);
}

#define CALL(function) ((code_fn)(function))

static void add_engine(struct table *table, const struct variant *variant)
{
	const struct km_engine *e = km_engine_find(variant->subject);
	const bool chain = e->front == KM_FRONT_CHAIN, array = e->front == KM_FRONT_ARRAY;
	const char *const alloc[CODE_NAMES] = { "kmem_cache_alloc_bulk", "km_front_alloc_bulk",
						array ? "fit_bulk" : NULL };
	const char *const free_it[CODE_NAMES] = { "kmem_cache_free_bulk", chain ?
						  "km_front_free_chain" : "km_front_free_bulk" };
	const char *const kfree[CODE_NAMES] = { "kfree_bulk", chain ? "km_front_free_last" :
								      "km_front_free_bulk" };
	const code_fn takes[CODE_CALLS] = { CALL(e->take), array ? CALL(e->refill) : NULL };
	const code_fn gives[CODE_CALLS] = { CALL(e->give), array ? CALL(e->spill) : NULL,
					    array ? CALL(e->retire) : NULL };
	const code_fn lasts[CODE_CALLS] = { chain ? CALL(e->give_last) : CALL(e->give),
					    array ? CALL(e->spill) : NULL,
					    array ? CALL(e->retire) : NULL };

	add_row(table, variant, "kmem_cache_alloc_bulk", "bulk", bytes_of(alloc, takes));
	add_row(table, variant, "kmem_cache_free_bulk", "bulk", bytes_of(free_it, gives));
	add_row(table, variant, "kfree_bulk", "kfree_bulk", bytes_of(kfree, lasts));
}

/* Once for each engine: the code is the same under every discipline. */
void bench_add_code(struct table *table)
{
	const struct variant *last = NULL;
	const Elf64_Sym *anchor;

	if (strcmp(table->bench, "bulk") || bench.options.works.count || !open_symbols() ||
	    !(anchor = find_symbol("kmem_cache_alloc_bulk")))
		return;
	code.shift = (uintptr_t)kmem_cache_alloc_bulk - anchor->st_value;
	for (size_t i = 0; i < bench.variant_count; i++) {
		const struct variant *variant = &bench.variants[i];

		if (variant->kind != SUBJECT_OURS || strcmp(variant->api, "kmem_cache") ||
		    strcmp(variant->linkage, "static") || variant->broken || variant->only ||
		    (last && !strcmp(last->subject, variant->subject)))
			continue;
		add_engine(table, variant);
		last = variant;
	}
}
