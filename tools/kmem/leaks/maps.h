/*
 * maps.h: the mappings of a process, from /proc/PID/maps, or of a core dump.
 */
#ifndef KMEM_COMMAND_MAPS_H
#define KMEM_COMMAND_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct map {
	uintptr_t start, end;
	uint64_t offset;		/* of `start` in the file, bytes */
	bool read, write;
	bool file;
	char *name;			/* NULL: no name */
};

struct maps {
	struct map *at;
	size_t count, room;
	pid_t pid;			/* 0: maps of a core dump */
};

/* Read /proc/PID/maps. Returns: false with errno set if the file can't be read. */
bool maps_of_process(pid_t pid, struct maps *maps);
void maps_add(struct maps *maps, struct map map);
void maps_clear(struct maps *maps);
/* Find the first mapping with an end behind the address. Requires: maps in address order. Returns: the index, or
 * maps->count if there is none. */
size_t maps_behind(const struct maps *maps, uintptr_t address);
/* Find the mapping with an address. Requires: maps in address order. Returns: NULL if there is none. */
const struct map *maps_find(const struct maps *maps, uintptr_t address);
/* Returns: a path to open the mapping's file from this process; the caller must free the path. */
char *maps_file(const struct maps *maps, const struct map *map);
/* Returns: the load bias of the mapping's file: the mapped address minus the address in the file. */
uintptr_t maps_load(const struct maps *maps, const struct map *map);

#endif
