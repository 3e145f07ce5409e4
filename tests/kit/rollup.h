/* rollup.h: reads a field of /proc/self/smaps_rollup, in KiB; 0: no such field. */
#ifndef TESTS_KIT_ROLLUP_H
#define TESTS_KIT_ROLLUP_H

#include <stdio.h>
#include <string.h>

static unsigned long rollup_kb(const char *field)
{
	FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
	size_t length = strlen(field);
	unsigned long kb = 0;
	char line[256];

	while (rollup && fgets(line, sizeof(line), rollup))
		if (!strncmp(line, field, length) && line[length] == ':')
			sscanf(line + length + 1, "%lu", &kb);
	if (rollup)
		fclose(rollup);
	return kb;
}

#endif
