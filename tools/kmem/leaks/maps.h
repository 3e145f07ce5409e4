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
	uint64_t offset;		/* in its file */
	bool read, write;
	bool file;
	char *name;			/* NULL: it has none */
};

struct maps {
	struct map *at;
	size_t count, room;
	pid_t pid;			/* whose they are; 0: a dump's */
};

/* False: /proc/PID/maps can't be read; errno says why. */
bool maps_of_process(pid_t pid, struct maps *maps);
void maps_add(struct maps *maps, struct map map);
void maps_clear(struct maps *maps);
/* The place of the first that ends behind an address, of maps in order; maps->count: none does. */
size_t maps_behind(const struct maps *maps, uintptr_t address);
/* The one that an address is in, of maps in order; NULL: none. */
const struct map *maps_find(const struct maps *maps, uintptr_t address);
/* The name by which its file can be opened here; the caller frees it. */
char *maps_file(const struct maps *maps, const struct map *map);
/* What its file's own addresses were moved by. */
uintptr_t maps_load(const struct maps *maps, const struct map *map);

#endif
