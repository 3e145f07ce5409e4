/*
 * core_dump.c: reads a core dump, a 64-bit ELF file. The segments hold the memory; the notes hold the threads'
 * registers and the names of mapped files. Invariant: see core_dump.h.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "leaks/core_dump.h"
#include "file_helper.h"

#define MAX_THREADS	65536u

static const void *part(const struct core *core, uint64_t at, uint64_t count, uint64_t each)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(count, each, &bytes) || at > core->length || bytes > core->length - at)
		return NULL;
	return core->bytes + at;
}

/* ------------------------------------------------------------------ notes */

static void add_thread(struct core *core, const char *data, size_t bytes)
{
	struct elf_prstatus status;
	static size_t room;

	if (bytes < sizeof(status) || core->threads >= MAX_THREADS)
		return;
	memcpy(&status, data, sizeof(status));
	if (!core->threads)
		core->pid = (unsigned)status.pr_pid;
	core->registers = kmem_grow(core->registers, core->threads, &room, sizeof(*core->registers));
	memset(core->registers[core->threads], 0, sizeof(*core->registers));
	_Static_assert(sizeof(status.pr_reg) <= sizeof(*core->registers), "all of them have room");
	memcpy(core->registers[core->threads], &status.pr_reg, sizeof(status.pr_reg));
	core->threads++;
}

/* Adds a file mapped from words[0] to words[1] at `offset`, and names the segments that begin in this range. */
static void add_file(struct core *core, const uint64_t words[2], uint64_t offset, const char *name)
{
	struct maps *maps = &core->maps;
	size_t m = core->named;

	maps_add(&core->files, (struct map){
		.start = words[0], .end = words[1], .offset = offset, .read = true, .file = true,
		.name = kmem_need(strdup(name)),
	});
	while (m < maps->count && maps->at[m].start < words[0])
		m++;
	for (; m < maps->count && maps->at[m].start < words[1]; m++) {
		/* Shares the file's name string: segments may be many, and names long. */
		maps->at[m].name = core->files.at[core->files.count - 1].name;
		maps->at[m].file = true;
		maps->at[m].offset = offset + (maps->at[m].start - words[0]);
	}
	core->named = m;
}

/* Returns: true for a valid next file. The kernel writes files in address order, with names below PATH_MAX. */
static bool is_next(const struct core *core, const uint64_t words[2], const char *name)
{
	const struct maps *files = &core->files;

	return words[0] < words[1] && (!files->count || files->at[files->count - 1].end <= words[0]) &&
	       strlen(name) < PATH_MAX;
}

/* Parses NT_FILE: a count and the page size, then three words for each mapping, then the names. */
static void add_files(struct core *core, const char *data, size_t bytes)
{
	uint64_t head[2], words[3];

	if (bytes < sizeof(head))
		return;
	memcpy(head, data, sizeof(head));
	if (head[0] > (bytes - sizeof(head)) / sizeof(words))
		return;
	const char *name = data + sizeof(head) + head[0] * sizeof(words), *end = data + bytes;
	for (uint64_t i = 0; i < head[0] && name < end && memchr(name, '\0', (size_t)(end - name)); i++) {
		memcpy(words, data + sizeof(head) + i * sizeof(words), sizeof(words));
		if (is_next(core, words, name))
			add_file(core, words, words[2] * head[1], name);
		name += strlen(name) + 1;
	}
}

static void read_notes(struct core *core, uint64_t at, uint64_t bytes)
{
	const char *notes = part(core, at, bytes, 1);
	uint64_t done = 0;
	Elf64_Nhdr note;

	/* Limits all notes to the dump's length: segments may repeat the same notes. */
	if (bytes > core->notes_left)
		return;
	core->notes_left -= bytes;
	core->cut += notes ? 0 : bytes;
	while (notes && bytes - done >= sizeof(note)) {
		memcpy(&note, notes + done, sizeof(note));
		uint64_t name = ((uint64_t)note.n_namesz + 3) & ~3ull, data = ((uint64_t)note.n_descsz + 3) & ~3ull;

		done += sizeof(note);
		if (name > bytes - done || data > bytes - done - name)
			return;
		if (note.n_type == NT_PRSTATUS)
			add_thread(core, notes + done + name, note.n_descsz);
		else if (note.n_type == NT_FILE)
			add_files(core, notes + done + name, note.n_descsz);
		done += name + data;
	}
}

/* ------------------------------------------------------------------ segments */

static int by_address(const void *a, const void *b)
{
	const Elf64_Phdr *x = a, *y = b;

	return (x->p_vaddr > y->p_vaddr) - (x->p_vaddr < y->p_vaddr);
}

static void add_segments(struct core *core, const Elf64_Phdr *segments, size_t count)
{
	Elf64_Phdr *sorted = kmem_need(malloc(count * sizeof(*sorted) + 1));

	memcpy(sorted, segments, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_address);
	core->offset = kmem_need(calloc(count + 1, sizeof(*core->offset)));
	for (size_t i = 0; i < count; i++) {
		const Elf64_Phdr *at = &sorted[i];
		uint64_t bytes = at->p_filesz < at->p_memsz ? at->p_filesz : at->p_memsz;

		/* A truncated dump ends before some segments end. */
		if (at->p_type != PT_LOAD || at->p_vaddr + at->p_memsz < at->p_vaddr)
			continue;
		uint64_t there = at->p_offset < core->length ? core->length - at->p_offset : 0;
		there = bytes < there ? bytes : there;
		core->cut += bytes - there;
		core->missing += at->p_flags & PF_W ? at->p_memsz - there : 0;
		bytes = there;
		if (at->p_memsz > at->p_filesz)
			maps_add(&core->blank, (struct map){
				.start = at->p_vaddr + at->p_filesz, .end = at->p_vaddr + at->p_memsz,
			});
		if (!bytes || (core->maps.count && core->maps.at[core->maps.count - 1].end > at->p_vaddr))
			continue;
		core->offset[core->maps.count] = at->p_offset;
		maps_add(&core->maps, (struct map){
			.start = at->p_vaddr, .end = at->p_vaddr + bytes, .read = at->p_flags & PF_R,
			.write = at->p_flags & PF_W,
		});
	}
	free(sorted);
}

static bool parse(struct core *core)
{
	const Elf64_Ehdr *head = part(core, 0, 1, sizeof(*head));

	if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_ident[EI_CLASS] != ELFCLASS64 ||
	    head->e_type != ET_CORE || head->e_phentsize != sizeof(Elf64_Phdr) || head->e_phoff % 8)
		return false;
	size_t count = head->e_phnum;
	/* PN_XNUM: the first section header holds the segment count. */
	if (count == PN_XNUM) {
		const Elf64_Shdr *section = head->e_shoff % 8 ? NULL : part(core, head->e_shoff, 1, sizeof(*section));

		count = section ? section->sh_info : 0;
	}
	const Elf64_Phdr *segments = part(core, head->e_phoff, count, sizeof(*segments));
	if (!segments)
		return false;
	add_segments(core, segments, count);
	for (size_t i = 0; i < count; i++)
		if (segments[i].p_type == PT_NOTE)
			read_notes(core, segments[i].p_offset, segments[i].p_filesz);
	core->file = kmem_need(calloc(core->files.count + 1, sizeof(*core->file)));
	return core->maps.count;
}

const struct core *core_open(const char *command, const char *path)
{
	static struct core core;
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	void *map = MAP_FAILED;

	if (fd < 0 || fstat(fd, &status)) {
		kmem_failed(1, command, "%s: %s", path, strerror(errno));
		return NULL;
	}
	if (S_ISREG(status.st_mode) && status.st_size > 0)
		map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	core = (struct core){ .bytes = map, .length = (size_t)status.st_size };
	core.notes_left = core.length;
	if (map == MAP_FAILED || !parse(&core)) {
		kmem_failed(1, command, "%s: not a core dump of 64 bits", path);
		return NULL;
	}
	return &core;
}

struct stop_stack core_stack(const struct core *core, size_t thread)
{
#if defined(__x86_64__)
	return (struct stop_stack){ core->registers[thread][19], core->registers[thread][21] };
#else
	return (struct stop_stack){ core->registers[thread][31], 0 };
#endif
}

/* Maps the current content of a mapped file. The content may differ from the dumped process and is never trusted. */
static const struct core_file *open_file(const struct core *core, const struct map *map)
{
	struct core_file *file = &core->file[map - core->files.at];
	struct opened opened;
	struct stat status;

	if (file->opened)
		return file;
	file->opened = true;
	int fd = opened_file(map->name, true, OPENED_ALL, &opened);
	if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0) {
		void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (bytes != MAP_FAILED)
			*file = (struct core_file){ bytes, (size_t)status.st_size, true };
	}
	if (fd >= 0)
		close(fd);
	return file;
}

/* Returns: the copy of address `from`, in `length` bytes at `start` that were mapped at map->start; NULL: outside.
 * Lowers *bytes to the bytes available. */
static const char *some(const struct map *map, const char *start, size_t length, uintptr_t from, size_t *bytes)
{
	length = map->end - map->start < length ? map->end - map->start : length;
	if (from - map->start >= length)
		return NULL;
	length -= from - map->start;
	*bytes = length < *bytes ? length : *bytes;
	return start + (from - map->start);
}

/* Finds the bytes at address `from`. Lowers *bytes to the contiguous count. Returns: NULL if the dump has none. */
static const char *find(const struct core *core, uintptr_t from, size_t *bytes)
{
	static const char zeros[4096];
	const struct map *map = maps_find(&core->maps, from);

	if (map)
		return some(map, core->bytes + core->offset[map - core->maps.at], SIZE_MAX, from, bytes);
	map = maps_find(&core->files, from);
	if (map) {
		const struct core_file *file = open_file(core, map);

		return !file->bytes || map->offset >= file->length ? NULL :
		       some(map, file->bytes + map->offset, file->length - map->offset, from, bytes);
	}
	/* A dump omits memory never written: these bytes are zeros. */
	map = maps_find(&core->blank, from);
	if (!map)
		return NULL;
	*bytes = map->end - from < *bytes ? map->end - from : *bytes;
	*bytes = sizeof(zeros) < *bytes ? sizeof(zeros) : *bytes;
	return zeros;
}

bool core_read(const struct core *core, void *to, uintptr_t from, size_t bytes)
{
	while (bytes) {
		size_t now = bytes;
		const char *at = find(core, from, &now);

		if (!at)
			return false;
		memcpy(to, at, now);
		to = (char *)to + now;
		from += now;
		bytes -= now;
	}
	return true;
}
