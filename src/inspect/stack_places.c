/*
 * stack_places.c: origins of calls: the file of an address, the offset in the file, the function's names, and the
 * frame tables; and the stack of a call into the library, as walked by stack.c with these tables. Invariant: nothing
 * is allocated, no library is loaded, and no lock held by a thread lost at fork is waited for.
 * docs/design/debugging.md lists all functions called here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

#include "base/bits.h"
#include "os/os.h"
#include "stack.h"

static bool over;			/* libc has freed the records of dlopened files */
static uint32_t first_pid;		/* process id at the start of the library; 0: before the start */

/* ------------------------------------------------------------------ objects of the process */

/* A mapped file. */
struct object {
	uintptr_t load;			/* difference between addresses in memory and in the file */
	const char *name;		/* path of the file; empty: the program */
	const ElfW(Phdr) *headers;
	unsigned count;
	const void *sorted;		/* address of .eh_frame_hdr, if libc supplies it */
};

/* Set the program headers. The first page of a mapping is normally the first page of the file. */
static void take_headers(struct object *object, const ElfW(Ehdr) *head, bool is_program)
{
	if (is_program) {
		object->headers = (const void *)getauxval(AT_PHDR);
		object->count = (unsigned)getauxval(AT_PHNUM);
	} else if (head && __builtin_memcmp(head->e_ident, ELFMAG, SELFMAG) == 0) {
		object->headers = (const void *)((const char *)head + head->e_phoff);
		object->count = head->e_phnum;
	}
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE
/* Since 2.35 glibc finds the object of an address without a lock. */
#pragma weak _dl_find_object
#define FINDS_AT_ONCE (_dl_find_object != NULL)

static bool find_at_once(uintptr_t address, struct object *object)
{
	struct dl_find_object found;

	if (_dl_find_object((void *)address, &found) || !found.dlfo_link_map->l_name)
		return false;
	object->load = found.dlfo_link_map->l_addr;
	object->name = found.dlfo_link_map->l_name;
	object->sorted = found.dlfo_eh_frame;
	take_headers(object, found.dlfo_map_start, !*object->name);
	return true;
}
#else
#define FINDS_AT_ONCE false

static bool find_at_once(uintptr_t address km_unused, struct object *object km_unused)
{
	return false;
}
#endif

static bool has_address(const struct object *object, uintptr_t address)
{
	for (unsigned i = 0; i < object->count; i++) {
		const ElfW(Phdr) *header = &object->headers[i];

		if (header->p_type == PT_LOAD && address - (object->load + header->p_vaddr) < header->p_memsz)
			return true;
	}
	return false;
}

#ifdef __GLIBC__
#pragma weak _r_debug
#define LIST (&_r_debug ? _r_debug.r_map : NULL)
#else
extern struct r_debug *_dl_debug_addr __attribute__((weak));
#define LIST (&_dl_debug_addr ? _dl_debug_addr->r_map : NULL)
#endif

/* Search the dynamic linker's list for debuggers, without the linker's lock: the list changes by single stores. A
 * static program has no list, and is the only file. */
static bool find_in_list(uintptr_t address, struct object *object)
{
	const struct link_map program = { .l_name = (char *)"" }, *map = LIST ?: &program;

	for (; map; map = map->l_next) {
		*object = (struct object){ .load = map->l_addr, .name = map->l_prev && map->l_name ? map->l_name : "" };
		take_headers(object, (const void *)map->l_addr, !map->l_prev);
		if (has_address(object, address))
			return true;
	}
	return false;
}

#ifdef __GLIBC__
struct search {
	uintptr_t address;
	struct object *object;
};

static int look(struct dl_phdr_info *info, size_t bytes km_unused, void *arg)
{
	struct search *search = arg;

	*search->object = (struct object){
		.load = info->dlpi_addr, .name = info->dlpi_name ?: "",
		.headers = info->dlpi_phdr, .count = info->dlpi_phnum,
	};
	return has_address(search->object, search->address);
}
#endif

/* Find the object of an address. Before 2.35 glibc's dynamic linker uses a lock, and fork may leave the lock taken in
 * the child. So a child reads the list, because no other thread of the child can shorten the list. musl shortens the
 * list only after a failed dlopen. */
static bool find(uintptr_t address, struct object *object)
{
	*object = (struct object){ .count = 0 };
	if (FINDS_AT_ONCE && (find_at_once(address, object) || !km_load(&over)))
		return object->name;
#ifdef __GLIBC__
	struct search search = { address, object };
	const uint32_t first = km_load(&first_pid);

	if (!FINDS_AT_ONCE && !km_os_is_shut() && (!first || km_os_pid() == first))
		return dl_iterate_phdr(look, &search);
#endif
	return find_in_list(address, object);
}

static const ElfW(Phdr) *header_of(const struct object *object, unsigned type)
{
	for (unsigned i = 0; i < object->count; i++)
		if (object->headers[i].p_type == type)
			return &object->headers[i];
	return NULL;
}

/* Append a name, with separators of words and lines escaped as octal digits, like /proc/mounts. */
static size_t put_name(char *text, size_t bytes, const char *name)
{
	size_t length = 0;

	for (; *name && length + 5 < bytes; name++) {
		unsigned char c = (unsigned char)*name;

		if (c <= ' ' || c == '\\' || c == 0x7f)
			length += km_format(text + length, bytes - length, "\\%u%u%u", c >> 6, c >> 3 & 7, c & 7);
		else
			text[length++] = *name;
	}
	km_debug(length < bytes, "a shortened name ends in its array");
	text[length] = '\0';
	return length;
}

/* Returns: the first 4 bytes of the build ID, the linker's mark to distinguish files of one name; 0: none. */
static uint32_t build_of(const struct object *object)
{
	for (unsigned i = 0; i < object->count; i++) {
		const ElfW(Phdr) *header = &object->headers[i];
		const char *at = (const char *)object->load + header->p_vaddr, *end = at + header->p_memsz;

		while (header->p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr)) + 8) {
			const ElfW(Nhdr) *note = (const void *)at;
			const unsigned char *id = (const unsigned char *)(note + 1) + 4;

			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && note->n_descsz >= 4)
				return (uint32_t)id[0] << 24 | id[1] << 16 | id[2] << 8 | id[3];
			size_t bytes = sizeof(*note) + km_align_up(note->n_namesz, 4) + km_align_up(note->n_descsz, 4);
			at += km_min(bytes, (size_t)(end - at));
		}
	}
	return 0;
}

/* bytes kept free for the offset and the build ID behind a name, which may be cut */
#define OFFSET_BYTES	32u

const char *km_stack_place(uintptr_t address, char *text, size_t bytes)
{
	struct object object;
	char path[256];
	size_t length;

	km_debug(bytes > 2 * OFFSET_BYTES, "a stack place has room for a name");
	if (!find(address, &object)) {
		km_format(text, bytes, "%p", (void *)address);
		return text;
	}
	const char *name = *object.name ? object.name : km_os_program_path(path, sizeof(path));
	length = put_name(text, bytes - OFFSET_BYTES, name);
	length += km_format(text + length, bytes - length, "+0x%lx", address - object.load);
	uint32_t build = build_of(&object);
	if (build)
		km_format(text + length, bytes - length, "[%08x]", build);
	return text;
}

/* ------------------------------------------------------------------ names of functions */

/* Dynamic symbols of a file, found through the program headers. NULL: none. */
struct names {
	const ElfW(Sym) *symbol;
	size_t count;
	const char *text;
	size_t bytes;
};

/* Returns: the lowest mapped address of the file. */
static uintptr_t start_of(const struct object *object)
{
	uintptr_t first = UINTPTR_MAX;

	for (unsigned i = 0; i < object->count; i++)
		if (object->headers[i].p_type == PT_LOAD)
			first = km_min(first, (uintptr_t)object->headers[i].p_vaddr);
	return object->load + (first == UINTPTR_MAX ? 0 : km_align_down(first, KM_PAGE_SIZE));
}

/* Count the symbols of a DT_GNU_HASH table: the last entry of the last chain has an odd hash. */
static size_t count_of(const uint32_t *hash)
{
	const uint32_t buckets = hash[0], first = hash[1];
	const uint32_t *bucket = hash + 4 + hash[2] * (sizeof(uintptr_t) / sizeof(*hash));
	uint32_t last = 0;

	for (uint32_t i = 0; i < buckets; i++)
		last = km_max(last, bucket[i]);
	if (last < first)
		return first;
	while (!(bucket[buckets + last - first] & 1))
		last++;
	return (size_t)last + 1;
}

/* Some dynamic linkers relocate the values in the dynamic section, others leave file offsets. */
static const void *led_to(const struct object *object, uintptr_t value)
{
	return (const void *)(value < object->load ? object->load + value : value);
}

static struct names names_of(const struct object *object)
{
	struct names names = { .symbol = NULL };
	const ElfW(Dyn) *entry = NULL;

	const ElfW(Phdr) *dynamic = header_of(object, PT_DYNAMIC);

	if (dynamic)
		entry = (const void *)(object->load + dynamic->p_vaddr);
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		const void *at = led_to(object, entry->d_un.d_ptr);

		if (entry->d_tag == DT_SYMTAB)
			names.symbol = at;
		else if (entry->d_tag == DT_STRTAB)
			names.text = at;
		else if (entry->d_tag == DT_STRSZ)
			names.bytes = entry->d_un.d_val;
		else if (entry->d_tag == DT_GNU_HASH)
			names.count = count_of(at);
		else if (entry->d_tag == DT_HASH && !names.count)
			names.count = ((const uint32_t *)at)[1];
	}
	if (!names.symbol || !names.text)
		names.count = 0;
	return names;
}

static bool is_function_at(const ElfW(Sym) *symbol, uintptr_t offset)
{
	unsigned type = symbol->st_info & 0xf;

	return symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_NOTYPE || type == STT_GNU_IFUNC) &&
	       offset - symbol->st_value < symbol->st_size;
}

bool km_stack_find_name(uintptr_t address, bool (*fits)(const char *name))
{
	struct object object;

	if (!find(address, &object))
		return false;
	const struct names names = names_of(&object);
	for (size_t i = 0; i < names.count; i++) {
		const ElfW(Sym) *symbol = &names.symbol[i];

		if (is_function_at(symbol, address - object.load) && symbol->st_name < names.bytes &&
		    fits(names.text + symbol->st_name))
			return true;
	}
	return false;
}

bool km_stack_find_file(uintptr_t address, char *path, size_t bytes, uintptr_t *start)
{
	struct object object;

	km_debug(bytes, "a path has room");
	if (!find(address, &object))
		return false;
	const char *name = *object.name ? object.name : km_os_program_path(path, bytes);
	if (name != path)
		km_format(path, bytes, "%s", name);
	*start = start_of(&object);
	return true;
}

/* ------------------------------------------------------------------ frame tables */

/* Frame entries of a program without a sorted table (gcc's static programs, except -static-pie). The position comes
 * from the file's section headers, not loaded into memory. */
static struct {
	const uint8_t *start, *end;	/* start is stored last; NULL: unknown */
} entries;

#define MOST_SECTIONS	64u

static km_cold void find_entries(uintptr_t load)
{
	static const char path[] = "/proc/self/exe", wanted[] = ".eh_frame";
	ElfW(Shdr) section[MOST_SECTIONS];
	struct object object;
	ElfW(Ehdr) head;
	char names[1024];

	if (km_os_read_part(path, 0, &head, sizeof(head)) != sizeof(head) || head.e_shnum > MOST_SECTIONS ||
	    head.e_shstrndx >= head.e_shnum || head.e_shentsize != sizeof(*section) ||
	    km_os_read_part(path, head.e_shoff, section, head.e_shnum * sizeof(*section)) !=
		    (long)(head.e_shnum * sizeof(*section)))
		return;
	long length = km_os_read_part(path, section[head.e_shstrndx].sh_offset, names, sizeof(names));
	for (unsigned i = 0; i < head.e_shnum; i++) {
		const size_t at = section[i].sh_name;
		const uintptr_t start = load + section[i].sh_addr, end = start + section[i].sh_size;

		if (!(section[i].sh_flags & SHF_ALLOC) || (long)(at + sizeof(wanted)) > length ||
		    __builtin_memcmp(names + at, wanted, sizeof(wanted)) != 0 || !find(start, &object) ||
		    *object.name || !find(end - 1, &object) || *object.name)
			continue;
		entries.end = (const uint8_t *)end;
		/* Release pairs with km_stack_tables_of: `end` is set. */
		km_store_release(&entries.start, (const uint8_t *)start);
	}
}

static const uint8_t *sorted_of(const struct object *object)
{
	const ElfW(Phdr) *header = object->sorted ? NULL : header_of(object, PT_GNU_EH_FRAME);

	return header ? (const uint8_t *)object->load + header->p_vaddr : object->sorted;
}

bool km_stack_tables_of(uintptr_t address, struct km_stack_tables *tables)
{
	struct object object;

	*tables = (struct km_stack_tables){ .sorted = NULL };
	if (!find(address, &object))
		return false;
	tables->sorted = sorted_of(&object);
	if (!tables->sorted && !*object.name) {
		/* Acquire pairs with find_entries. */
		tables->entry = km_load_acquire(&entries.start);
		tables->end = entries.end;
	}
	return true;
}

/* Runs before the program's first function: all earlier allocations belong to the dynamic linker. */
__attribute__((constructor(101))) static void begin(void)
{
	struct object object;

	if (find((uintptr_t)begin, &object) && !*object.name && !sorted_of(&object))
		find_entries(object.load);
	km_store(&first_pid, km_os_pid());
	km_stack_first_thread();
}

/* ------------------------------------------------------------------ a stack */

/* Code ranges of the library's files: KM_CODE in base/cc.h adds an entry per file, and the linker joins the entries. */
struct code {
	int32_t start;			/* start of the code, relative to the address of this field */
	uint32_t bytes;
};
extern const struct code __start_km_code[] km_hidden, __stop_km_code[] km_hidden;

bool km_stack_is_own(uintptr_t address)
{
	for (const struct code *code = __start_km_code; code < __stop_km_code; code++)
		if (address - ((uintptr_t)&code->start + (uintptr_t)(intptr_t)code->start) < code->bytes)
			return true;
	km_debug(address != (uintptr_t)km_stack_is_own, "the library's own code is in its list");
	return false;
}

void km_stack_over(void)
{
	km_store(&over, true);
}

bool km_stack_is_there(void)
{
	uintptr_t frame;

	return km_stack_walk(&frame, 1) != 0;
}

bool km_stack_is_early(uintptr_t first)
{
	return first && km_stack_is_own(first) && km_stack_is_there();
}

bool km_stack_may_walk(void)
{
	return km_load(&first_pid) && !km_load(&over);
}

void km_stack_track(struct km_stack_track *track)
{
	__builtin_memset(track, 0, sizeof(*track));
	if (!km_stack_may_walk() || !km_stack_walk(track->frame, KM_STACK_FRAMES))
		track->frame[0] = (uintptr_t)__builtin_return_address(0);
	track->when = km_os_now_ms();
	track->cpu = km_os_getcpu();
	track->thread = km_os_thread();
}
