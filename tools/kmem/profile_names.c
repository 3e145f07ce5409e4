/*
 * profile_names.c: finds the mapped file of each frame of a profile, and the functions at the frame's address,
 * including inlined functions. Invariant: files are untrusted (function_names.h); a frame without a name keeps its
 * address.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "info/info.h"
#include "command.h"
#include "function_names.h"
#include "profile_data.h"

#define MOST_LINES 100000u		/* read from /proc/PID/maps */
#define PLACES	   (1u << 20)		/* slots of the hash table of frames; more than the frames of all stacks */

static void add_mapping(struct profile *profile, uint64_t start, uint64_t end, uint64_t offset, char *path)
{
	path[strcspn(path, "\n")] = '\0';
	profile->mapped = kmem_grow(profile->mapped, profile->mappings, &profile->mapped_room,
				    sizeof(*profile->mapped));
	profile->mapped[profile->mappings++] = (struct mapped){
		start, end, offset, kmem_need(strdup(path)), NULL,
	};
}

void profile_maps(struct profile *profile, pid_t thread)
{
	FILE *maps = target_proc(thread, "maps");
	char *line = NULL, access[5];
	unsigned long start, end, offset;
	size_t room = 0;
	int at;

	for (unsigned i = 0; maps && i < MOST_LINES && getline(&line, &room, maps) > 0; i++)
		if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %n", &start, &end, access, &offset, &at) == 4 &&
		    access[2] == 'x' && line[at] == '/')
			add_mapping(profile, start, end, offset, line + at);
	free(line);
	if (maps)
		fclose(maps);
}

/* Returns: the index of the mapping of `pc`, or -1. The kernel lists mappings sorted by address. */
static int mapping_of(const struct profile *profile, uint64_t pc)
{
	const size_t at = KMEM_FIRST_BEHIND(profile->mapped, profile->mappings, pc);

	return at < profile->mappings && pc >= profile->mapped[at].start ? (int)at : -1;
}

unsigned profile_frame(struct profile *profile, uint64_t pc)
{
	static unsigned known[PLACES];
	unsigned at = (unsigned)(pc * 0x9e3779b97f4a7c15ull >> 40) % PLACES;

	for (; known[at]; at = (at + 1) % PLACES)
		if (profile->frame[known[at] - 1].pc == pc)
			return known[at] - 1;
	profile->frame = kmem_grow(profile->frame, profile->frames, &profile->frame_room, sizeof(*profile->frame));
	profile->frame[profile->frames++] = (struct frame){ .pc = pc, .mapped = mapping_of(profile, pc) };
	known[at] = (unsigned)profile->frames;
	return (unsigned)profile->frames - 1;
}

/* ------------------------------------------------------------------ names */

/* Returns: the virtual address of `pc` in the file, from the PT_LOAD segment at pc's file offset; 0: no segment. */
static uint64_t address_in(const struct image *image, const struct mapped *mapped, uint64_t pc)
{
	const Elf64_Ehdr *head = image_part(image, 0, 1, sizeof(*head));
	const Elf64_Phdr *segment = head ? image_part(image, head->e_phoff, head->e_phnum, sizeof(*segment)) : NULL;
	uint64_t offset = pc - mapped->start + mapped->offset;

	for (unsigned i = 0; segment && i < head->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && offset >= segment[i].p_offset &&
		    offset - segment[i].p_offset < segment[i].p_filesz)
			return offset - segment[i].p_offset + segment[i].p_vaddr;
	return 0;
}

static struct image *open_image(const struct profile *profile, struct mapped *mapped)
{
	char *file = mapped->image ? NULL : target_file(profile->thread, mapped->path, mapped->start, mapped->end);

	if (file)
		mapped->image = image_at(file);
	free(file);
	return mapped->image;
}

/* Hash table of functions, without duplicates. An entry is the function's index plus 1; at least half is empty. */
static struct {
	unsigned *place;
	size_t places;
} known_functions;

static unsigned *place_of(const struct profile *profile, const char *name, const char *source)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (const char *at = name; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
	for (size_t at = hash;; at++) {
		unsigned *place = &known_functions.place[at & (known_functions.places - 1)];
		const struct function *function = *place ? &profile->function[*place - 1] : NULL;

		if (!function || (!strcmp(function->name, name) && !strcmp(function->source, source)))
			return place;
	}
}

static void make_places(const struct profile *profile)
{
	known_functions.places = known_functions.places ? known_functions.places * 2 : 1024;
	free(known_functions.place);
	known_functions.place = kmem_need(calloc(known_functions.places, sizeof(*known_functions.place)));
	for (size_t i = 0; i < profile->functions; i++)
		*place_of(profile, profile->function[i].name, profile->function[i].source) = (unsigned)i + 1;
}

static unsigned function_of(struct profile *profile, const struct name *name)
{
	char *function = info_printable_copy(name->function), *source = info_printable_copy(name->source ?: "");

	if (profile->functions * 2 >= known_functions.places)
		make_places(profile);
	unsigned *place = place_of(profile, function, source);
	if (*place) {
		free(function);
		free(source);
		return *place - 1;
	}
	profile->function = kmem_grow(profile->function, profile->functions, &profile->function_room,
				      sizeof(*profile->function));
	profile->function[profile->functions++] = (struct function){ function, source };
	*place = (unsigned)profile->functions;
	return *place - 1;
}

static void name_frame(struct profile *profile, struct frame *frame)
{
	struct mapped *mapped = frame->mapped >= 0 ? &profile->mapped[frame->mapped] : NULL;
	struct image *image = mapped ? open_image(profile, mapped) : NULL;
	/* pc is a return address; pc - 1 lies in the call instruction. */
	uint64_t address = image && image->bytes ? address_in(image, mapped, frame->pc - 1) : 0;
	const struct name *names;
	size_t count = address ? names_of(image, address, &names) : 0;
	struct name made = { .function = mapped ? NULL : profile_jit_name(profile, frame->pc - 1) };

	if (made.function) {
		names = &made;
		count = 1;
	}

	frame->steps = kmem_need(calloc(count + 1, sizeof(*frame->steps)));
	frame->count = (unsigned)count;
	for (size_t i = 0; i < count; i++)
		frame->steps[i] = (struct frame_step){ function_of(profile, &names[i]), names[i].line };
}

void profile_name_all(struct profile *profile)
{
	for (size_t i = 0; i < profile->frames; i++)
		name_frame(profile, &profile->frame[i]);
}

unsigned profile_steps(const struct profile *profile, unsigned frame)
{
	unsigned count = profile->frame[frame].count;

	return count ? count : 1;
}

const char *profile_frame_name(const struct profile *profile, unsigned number, unsigned step)
{
	static char texts[8][96];
	static unsigned next;
	const struct frame *frame = &profile->frame[number];
	const struct mapped *mapped = frame->mapped >= 0 ? &profile->mapped[frame->mapped] : NULL;
	char *text = texts[next = (next + 1) % 8];

	if (step < frame->count)
		return profile->function[frame->steps[step].function].name;
	if (mapped)
		snprintf(text, sizeof(*texts), "%.60s+0x%llx", strrchr(mapped->path, '/') + 1,
			 (unsigned long long)(frame->pc - mapped->start + mapped->offset));
	else
		snprintf(text, sizeof(*texts), "0x%llx", (unsigned long long)frame->pc);
	info_printable(text, text, sizeof(*texts));
	return text;
}
