/*
 * mappings.h: counts the mappings of the process, and those of libkmem. MAPPINGS_MOST is the limit under any load:
 * decision 129.
 */
#ifndef TESTS_KIT_MAPPINGS_H
#define TESTS_KIT_MAPPINGS_H

#include <stdio.h>
#include <string.h>

#include "check.h"

#define MAPPINGS_MOST	100u

/* Returns: the mappings without a file, and without a name except libkmem's. Some mappings of libc are included. */
static inline unsigned mappings_of_ours(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], name[256];
	unsigned count = 0;

	NEED(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long inode = 1;
		int words = sscanf(line, "%*s %*s %*s %*s %lu %255s", &inode, name);

		count += !inode && (words == 1 || strstr(name, "libkmem"));
	}
	fclose(maps);
	return count;
}

static inline unsigned mappings_of_all(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned lines = 0;

	NEED(maps);
	for (int c; (c = getc(maps)) != EOF;)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

#endif
