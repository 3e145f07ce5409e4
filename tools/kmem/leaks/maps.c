/*
 * maps.c: reads the mappings of a process, in address order. Invariant: a line with invalid syntax is skipped.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"
#include "leaks/maps.h"
#include "file_helper.h"

void maps_add(struct maps *maps, struct map map)
{
	maps->at = kmem_grow(maps->at, maps->count, &maps->room, sizeof(*maps->at));
	maps->at[maps->count++] = map;
}

void maps_clear(struct maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		free(maps->at[i].name);
	free(maps->at);
	*maps = (struct maps){ NULL, 0, 0, 0 };
}

static void add_line(struct maps *maps, char *line)
{
	unsigned long start, end, offset, inode;
	char access[5];
	int name = 0;

	if (sscanf(line, "%lx-%lx %4s %lx %*s %lu %n", &start, &end, access, &offset, &inode, &name) < 5)
		return;
	line[strcspn(line, "\n")] = '\0';
	maps_add(maps, (struct map){
		.start = start, .end = end, .offset = offset, .read = access[0] == 'r', .write = access[1] == 'w',
		.file = inode != 0, .name = name && line[name] ? kmem_need(strdup(line + name)) : NULL,
	});
}

bool maps_of_process(pid_t pid, struct maps *maps)
{
	char *line = NULL;
	size_t room = 0;
	FILE *file = target_proc(pid, "maps");

	*maps = (struct maps){ NULL, 0, 0, pid };
	if (!file)
		return false;
	while (getline(&line, &room, file) > 0)
		add_line(maps, line);
	free(line);
	fclose(file);
	return true;
}

size_t maps_behind(const struct maps *maps, uintptr_t address)
{
	return KMEM_FIRST_BEHIND(maps->at, maps->count, address);
}

const struct map *maps_find(const struct maps *maps, uintptr_t address)
{
	size_t at = maps_behind(maps, address);

	return at < maps->count && address >= maps->at[at].start ? &maps->at[at] : NULL;
}

/* Returns: true for a program linked at fixed addresses (ET_EXEC), which the kernel never relocates. */
static bool is_fixed(const char *path)
{
	Elf64_Ehdr head = { .e_type = ET_NONE };
	struct opened opened;
	int fd = opened_file(path, true, sizeof(head), &opened);

	if (fd < 0)
		return false;
	if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
		head.e_type = ET_NONE;
	close(fd);
	return head.e_type == ET_EXEC;
}

char *maps_file(const struct maps *maps, const struct map *map)
{
	return maps->pid ? target_file(maps->pid, map->name, map->start, map->end) : kmem_need(strdup(map->name));
}

uintptr_t maps_load(const struct maps *maps, const struct map *map)
{
	const struct map *first = map;

	if (!map->name)
		return 0;
	while (first > maps->at && first->offset && first[-1].name && !strcmp(first[-1].name, map->name))
		first--;
	char *file = maps_file(maps, map);
	uintptr_t load = is_fixed(file) ? 0 : first->start - first->offset;
	free(file);
	return load;
}
