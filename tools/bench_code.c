/*
 * Bytes of machine code of the bulk functions, as rows of `kmem bench bulk`, read from the symbols
 * and the code of libkmem.so. Counted is what is there for bulk alone: the function itself, and
 * every function that it reaches by direct calls and that nobody but bulk functions calls; the
 * front's bulk functions are that whoever calls them, and of an engine with a chain so are its own,
 * which are called through a table. What single calls use too (refilling a block, slabs, pages,
 * locks) is not counted.
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

#define CODE_FUNCTIONS 4096u
#define CODE_ROOTS 11u

typedef void (*code_fn)(void);	/* any function's address */

struct function {
	const char *name;
	uint64_t address, bytes;
	const unsigned char *text;
	bool bulk;		/* for bulk alone */
	bool reached;
};

struct image {
	const char *bytes, *names;
	const Elf64_Ehdr *head;
	const Elf64_Sym *symbols;
	size_t symbol_count;
	struct function functions[CODE_FUNCTIONS];
	size_t count;
};

static const Elf64_Shdr *section(const struct image *image, unsigned int index)
{
	return (const Elf64_Shdr *)(image->bytes + image->head->e_shoff) + index;
}

static bool open_image(struct image *image, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;

	if (fd < 0 || fstat(fd, &info))
		return false;
	image->bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (image->bytes == MAP_FAILED)
		return false;
	image->head = (const Elf64_Ehdr *)image->bytes;
	for (unsigned int i = 0; i < image->head->e_shnum; i++) {
		const Elf64_Shdr *table = section(image, i);

		if (table->sh_type != SHT_SYMTAB)
			continue;
		image->symbols = (const void *)(image->bytes + table->sh_offset);
		image->symbol_count = table->sh_size / sizeof(*image->symbols);
		image->names = image->bytes + section(image, table->sh_link)->sh_offset;
	}
	return image->symbols != NULL;
}

static int compare_functions(const void *a, const void *b)
{
	const struct function *x = a, *y = b;

	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	return strcmp(x->name, y->name);	/* NAME before NAME.localalias */
}

/* The functions by address; of several names for one place the plain one. */
static void list_functions(struct image *image)
{
	size_t kept = 0;

	for (size_t i = 0; i < image->symbol_count && image->count < CODE_FUNCTIONS; i++) {
		const Elf64_Sym *symbol = &image->symbols[i];
		const Elf64_Shdr *in = section(image, symbol->st_shndx);

		if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !symbol->st_size ||
		    symbol->st_shndx >= image->head->e_shnum)
			continue;
		image->functions[image->count++] = (struct function){
			image->names + symbol->st_name, symbol->st_value, symbol->st_size,
			(const unsigned char *)image->bytes + in->sh_offset + symbol->st_value -
				in->sh_addr, false, false };
	}
	qsort(image->functions, image->count, sizeof(*image->functions), compare_functions);
	for (size_t i = 0; i < image->count; i++)
		if (!kept || image->functions[kept - 1].address != image->functions[i].address)
			image->functions[kept++] = image->functions[i];
	image->count = kept;
}

static struct function *function_at(struct image *image, uint64_t address)
{
	size_t low = 0, high = image->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (image->functions[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < image->count && image->functions[low].address == address ?
		       &image->functions[low] : NULL;
}

/*
 * Where the bytes at `at` would be a call or jump to, as displacement from there; 0: nowhere.
 * Every byte is tried, as no disassembler is at hand: that a number which is none happens to lead
 * to the very first byte of a function is not to be feared.
 */
static int64_t displacement(const unsigned char *at, const unsigned char *end)
{
	int32_t value;
	size_t skip = end - at >= 6 && at[0] == 0x0f && (at[1] & 0xf0) == 0x80 ? 2 :
		      end - at >= 5 && (at[0] & 0xfe) == 0xe8 ? 1 : 0;

	if (!skip)
		return 0;
	memcpy(&value, at + skip, sizeof(value));
	return value + (int64_t)skip + 4;
}

/* Visit each function that `from` calls or jumps to, other than itself. */
static void each_call(struct image *image, struct function *from,
		      void (*visit)(struct function *from, struct function *to))
{
	const unsigned char *end = from->text + from->bytes;

	for (const unsigned char *at = from->text; at < end; at++) {
		int64_t far = displacement(at, end);
		struct function *to = far ? function_at(image, from->address +
							(uint64_t)(at - from->text) +
							(uint64_t)far) : NULL;

		if (to && to != from)
			visit(from, to);
	}
}

/* First everything that bulk reaches is its own; then what somebody else calls is not. */
static bool changed;

static void spread(struct function *from, struct function *to)
{
	changed |= from->bulk && !to->bulk;
	to->bulk |= from->bulk;
}

static void reach(struct function *from, struct function *to)
{
	bool more = from->reached && to->bulk && !to->reached;

	changed |= more;
	to->reached |= more;
}

static void until_settled(struct image *image,
			  void (*visit)(struct function *from, struct function *to))
{
	do {
		changed = false;
		for (size_t i = 0; i < image->count; i++)
			each_call(image, &image->functions[i], visit);
	} while (changed);
}

static void leave(struct function *from, struct function *to)
{
	changed |= !from->bulk && to->bulk && !to->reached;
	if (!from->bulk && !to->reached)	/* roots are marked as reached meanwhile */
		to->bulk = false;
}

static struct function *function_named(struct image *image, const char *name)
{
	for (size_t i = 0; name && i < image->count; i++)
		if (!strcmp(image->functions[i].name, name))
			return &image->functions[i];
	return NULL;
}

/* The name of a function of this program. */
static const char *name_of(const struct image *self, code_fn function)
{
	static uintptr_t shift;

	for (size_t i = 0; !shift && i < self->symbol_count; i++)
		if (!strcmp(self->names + self->symbols[i].st_name, "cmd_bench"))
			shift = (uintptr_t)cmd_bench - self->symbols[i].st_value;
	for (size_t i = 0; function && i < self->symbol_count; i++)
		if (ELF64_ST_TYPE(self->symbols[i].st_info) == STT_FUNC &&
		    self->symbols[i].st_value == (uintptr_t)function - shift)
			return self->names + self->symbols[i].st_name;
	return NULL;
}

static void mark(struct image *image, const char *const *names, size_t count, bool as_bulk)
{
	for (size_t i = 0; i < image->count; i++) {
		image->functions[i].reached = false;
		if (as_bulk)
			image->functions[i].bulk = false;
	}
	for (size_t i = 0; i < count; i++) {
		struct function *root = function_named(image, names[i]);

		if (!root)
			continue;
		root->reached = true;
		root->bulk |= as_bulk;
	}
}

static double bytes_reached(struct image *image, const char *function, const char *own)
{
	const char *const roots[] = { function, own };
	double bytes = 0;

	mark(image, roots, 2, false);
	until_settled(image, reach);
	for (size_t i = 0; i < image->count; i++)
		bytes += image->functions[i].reached ? (double)image->functions[i].bytes : 0;
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
	row->linkage = "shared";
	row->discipline = variant->discipline;
	row->variant = variant;
	row->unit = "bytes";
	row->measure = "code";
	row->at = function;
	bench_add_value(row, bytes);
}

static void add_engine(struct table *table, const struct variant *variant, struct image *image,
		       const struct image *self)
{
	const struct km_engine *e = km_engine_find(variant->subject);
	const bool chain = e->front == KM_FRONT_CHAIN;
	const char *take = name_of(self, chain ? (code_fn)e->take : NULL);
	const char *give = name_of(self, chain ? (code_fn)e->give : NULL);
	const char *last = name_of(self, chain ? (code_fn)e->give_last : NULL);
	const char *const roots[CODE_ROOTS] = { "kmem_cache_alloc_bulk", "kmem_cache_free_bulk",
						"kfree_bulk", "kmalloc_bulk",
						"km_front_alloc_bulk", "km_front_free_bulk",
						"km_front_free_chain", "km_front_free_last",
						take, give, last };

	mark(image, roots, CODE_ROOTS, true);
	until_settled(image, spread);
	until_settled(image, leave);
	add_row(table, variant, roots[0], "bulk", bytes_reached(image, roots[0], take));
	add_row(table, variant, roots[1], "bulk", bytes_reached(image, roots[1], give));
	add_row(table, variant, roots[2], "kfree_bulk", bytes_reached(image, roots[2], last));
}

/* Once for each engine: the code is the same under every discipline. */
void bench_add_code(struct table *table)
{
	static struct image image, self;
	const struct variant *last = NULL;

	if (strcmp(table->bench, "bulk") || bench.options.works.count)
		return;
	if (!open_image(&self, "/proc/self/exe") ||
	    !open_image(&image, bench_path("build/libkmem.so")) ||
	    image.head->e_machine != EM_X86_64) {
		bench_without("machine code", "read on x86-64, from a library with symbols");
		return;
	}
	list_functions(&image);
	for (size_t i = 0; i < bench.variant_count; i++) {
		const struct variant *variant = &bench.variants[i];

		if (variant->kind != SUBJECT_OURS || strcmp(variant->api, "kmem_cache") ||
		    strcmp(variant->linkage, "static") || variant->broken || variant->only ||
		    (last && !strcmp(last->subject, variant->subject)))
			continue;
		add_engine(table, variant, &image, &self);
		last = variant;
	}
}
